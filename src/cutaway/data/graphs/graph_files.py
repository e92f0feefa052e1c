"""Reading of graphs in all supported formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.errors import DataError
from ..folders import list_entries
from ..tables.dialect import Form
from ..tables.table_files import TABLE_SUFFIXES, Table
from .raw import RawGraphs

FORMS = (
    "a folder with nodes.csv and edges.csv, a .graphml file or a folder of them, a Planetoid folder (ind.NAME.x, …), "
    "a TU folder (NAME_A.txt, …), or a table of molecules with smiles=COLUMN"
)


def is_table(source: Any) -> bool:
    """Return whether a source is a single table, judged by its name."""
    return isinstance(source, str | Path) and Path(source).suffix.lower() in TABLE_SUFFIXES


def has_tu_files(names: Sequence[str]) -> bool:
    """Return whether a folder's file names include NAME_A.txt and another file of the same NAME."""
    stems = [name.removesuffix("A.txt") for name in names if name.endswith("_A.txt")]
    return any(name.startswith(stem) and name != f"{stem}A.txt" for stem in stems for name in names)


def read_graphs(
    source: Any,
    target: str | None = None,
    form: Form = Form(),  # noqa: B008  # it is frozen
    smiles: str = "",
    drop: bool = False,
) -> RawGraphs:
    """Read a graph or graphs from a path or an object in memory.

    `target` is the column to predict, if requested. With `smiles`, the column of a table with SMILES, graphs are
    molecules. `drop` leaves out invalid molecules, edges to unknown nodes, and files of a folder that are not graphs.
    Raises DataError that names every bad row.
    """
    if isinstance(source, RawGraphs):
        return source
    if hasattr(source, "edge_index"):
        from .geometric import read_data

        return read_data(source)
    path = source if isinstance(source, Table) else Path(source).expanduser()
    if smiles:
        from .molecules import read_molecules

        return read_molecules(path, smiles, form, drop)
    if isinstance(path, Table):
        raise DataError(f"A table holds no graph, unless smiles=COLUMN names molecules. A graph is {FORMS}.")
    if path.is_file() and path.suffix.lower() == ".graphml":
        from .graphml import read_graphml

        return read_graphml(path, target)
    if not path.is_dir():
        raise DataError(f"There is no graph at {str(source)!r}.", fix=f"A graph is {FORMS}.")
    names = [p.name for p in list_entries(path) if p.is_file()]
    if "edges.csv" in names or "nodes.csv" in names:
        from .csv_files import read_tables

        return read_tables(path, target, form, drop)
    if any(name.startswith("ind.") for name in names):
        from .planetoid import read_planetoid

        return read_planetoid(path)
    if has_tu_files(names):
        from .tu import read_tu

        return read_tu(path)
    if any(name.endswith(".graphml") for name in names):
        from .graphml import read_graphml

        return read_graphml(path, target, drop)
    raise DataError(f"{path} holds no graph.", fix=f"A graph is {FORMS}.")
