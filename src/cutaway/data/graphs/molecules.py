"""Molecules from a table column of SMILES: graphs with atoms as nodes and bonds as edges in both directions.

SMILES, D. Weininger, SMILES, a chemical language and information system, 1988, <https://doi.org/10.1021/ci00057a005>,
are read by RDKit <https://www.rdkit.org>: `pip install 'cutaway[molecules]'`. Hydrogens are counted at their atom and
are not nodes. Features of atoms and bonds follow J. Gilmer et al., Neural message passing for quantum chemistry, 2017,
table 1, without those that need coordinates. Two rows are the same molecule if RDKit writes the same canonical SMILES.

RDKit traverses molecules recursively and its ring search is at least quadratic in the number of rings. Molecules of
more than `ATOMS` atoms, `RINGS` rings or `LENGTH` characters are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ...core.errors import Problem, UnsupportedDataError, shorten_repr
from ...core.extras import require
from ..findings import leave_out
from ..tables.column_roles import find_column
from ..tables.delimited import Form
from ..tables.table_files import TABLE_SUFFIXES, Table, read_table
from .splits import RawGraphs, files_digest

ATOM = ("element", "degree", "charge", "hydrogens", "aromatic", "in a ring", "hybridization")
BOND = ("bond", "conjugated", "bond in a ring")
YES = {True: "yes", False: "no"}
# Human insulin (C257H383N65O77S6) has 405 heavy atoms; a V2000 mol file holds at most 999 atoms. A thread with a stack
# of 512 KiB, as on macOS, handles 1,000 atoms but not 1,500. The slowest molecule found within these bounds takes RDKit
# 0.7 s and 80 MB; with 1,000 rings it takes more than 10 s and 1.4 GB.
LENGTH, ATOMS, RINGS = 10_000, 1_000, 200
TOKEN = re.compile(r"(?P<atom>\[[^\]]*\]|Cl|Br|[A-Za-z*])|(?P<ring>%\(\d+\)|%\d\d|\d)")


def read_molecules(source: Path | Table, column: str, form: Form, drop: bool = False) -> RawGraphs:
    """Read the molecules of a table, one for each row. With `drop`, rows with invalid SMILES are left out.

    Raises DataError that names every row with invalid SMILES and the cause; SettingError if RDKit is not installed.
    """
    chem = _rdkit()
    if isinstance(source, Path) and source.suffix.lower() not in TABLE_SUFFIXES:
        raise UnsupportedDataError(
            f"smiles={column} is for a table ({', '.join(TABLE_SUFFIXES)}), and {source} is none."
        )
    table = source if isinstance(source, Table) else read_table(source, form)
    column = find_column(table, "smiles", column)
    found: list[Any] = []
    problems: list[Problem] = []
    kept: list[int] = []
    with _quiet():
        for i, cell in enumerate(table.text(column)):
            molecule, why = _parse(chem, cell)
            if why:
                problems.append(Problem(table.where(i, column), why))
            else:
                found.append(molecule)
                kept.append(i)
    fix = "Fix them; in training missing=drop leaves those rows out."
    dropped = leave_out(problems, len(table), f"rows of {table.title}", "drop" if drop else "error", fix)
    notes = [*table.notes, *dropped]
    lines = None if table.lines is None else table.lines[kept]
    starts = np.cumsum([0, *(molecule.GetNumAtoms() for molecule in found)])
    atoms = [atom for molecule in found for atom in molecule.GetAtoms()]
    bonds = [(start, bond) for start, molecule in zip(starts, found) for bond in molecule.GetBonds()]
    ends = [(start + bond.GetBeginAtomIdx(), start + bond.GetEndAtomIdx()) for start, bond in bonds]
    there = np.array(ends, np.int64).reshape(-1, 2).T  # (2, bonds)
    bond_features = [_bond_features(bond) for _, bond in bonds]
    element = chem.GetPeriodicTable().GetElementName
    return RawGraphs(
        title=table.title,
        edges=np.concatenate([there, there[::-1]], axis=1),
        names=[f"{atom.GetSymbol()} {atom.GetIdx() + 1}" for atom in atoms],
        table=_table([_atom_features(atom, element(atom.GetAtomicNum())) for atom in atoms], ATOM, table.form),
        columns=ATOM,
        edge_table=_table(bond_features + bond_features, BOND, table.form),
        graph=np.repeat(np.arange(len(found)), np.diff(starts)),
        graph_names=table.frame[column][kept].str.strip_chars().to_list(),
        targets=Table(table.name, table.frame[kept], lines, form=table.form),
        keys=[chem.MolToSmiles(molecule) for molecule in found],
        notes=tuple(notes),
        digest="" if isinstance(source, Table) else files_digest([source]),
    )


def _parse(chem: Any, smiles: str | None) -> tuple[Any, str]:
    """Return the molecule and an empty string, or None and the reason."""
    if smiles is None:
        return None, "the SMILES is missing"
    if too_large := _too_large(smiles):
        return None, too_large
    wrong: list[str] = []
    try:
        molecule = chem.MolFromSmiles(smiles)
        if molecule is not None:
            return molecule, "" if molecule.GetNumAtoms() else f"{shorten_repr(smiles)} has no atoms"
        written = chem.MolFromSmiles(smiles, sanitize=False)
        if written is None:
            return None, f"{shorten_repr(smiles)} is not a SMILES string"
        wrong = [problem.Message() for problem in chem.DetectChemistryProblems(written)]
    except RuntimeError as error:  # such as "Atomic number not found"
        wrong = [line.strip() for line in str(error).splitlines()[1:2]]
    return None, f"{shorten_repr(smiles)} is not a molecule" + (f" ({wrong[0]})" if wrong else "")


def _too_large(smiles: str) -> str:
    """Return the limit that a SMILES exceeds, before RDKit parses it; empty if none."""
    amounts = {"characters": (len(smiles), LENGTH)}
    if len(smiles) <= LENGTH:
        found = [token.lastgroup for token in TOKEN.finditer(smiles.split(maxsplit=1)[0] if smiles.strip() else "")]
        amounts = {"atoms": (found.count("atom"), ATOMS), "rings": (found.count("ring") // 2, RINGS)}
    for what, (count, most) in amounts.items():
        if count > most:
            return f"{shorten_repr(smiles)} has {count:,} {what}: at most {most:,} are allowed"
    return ""


def _atom_features(atom: Any, element: str) -> tuple[str, ...]:
    """Return the features `ATOM` of an atom. Elements have full names, because Na would be read as not available."""
    return (
        element,
        str(atom.GetDegree()),
        str(atom.GetFormalCharge()),
        str(atom.GetTotalNumHs()),
        YES[atom.GetIsAromatic()],
        YES[atom.IsInRing()],
        str(atom.GetHybridization()),
    )


def _bond_features(bond: Any) -> tuple[str, ...]:
    """Return the features `BOND` of a bond."""
    return str(bond.GetBondType()).lower(), YES[bond.GetIsConjugated()], YES[bond.IsInRing()]


def _table(rows: Sequence[tuple[str, ...]], columns: Sequence[str], form: Form) -> Table:
    """Build a table from rows of atoms or bonds."""
    schema = dict.fromkeys(columns, pl.String)
    return Table("", pl.DataFrame(rows, schema=schema, orient="row"), form=form)


def _rdkit() -> Any:
    """Import RDKit's Chem module. Raises SettingError if it is not installed."""
    return require("rdkit.Chem", "smiles=COLUMN")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence RDKit's log, because an error names each invalid row."""
    from rdkit import rdBase

    block = rdBase.BlockLogs()
    try:
        yield
    finally:
        del block
