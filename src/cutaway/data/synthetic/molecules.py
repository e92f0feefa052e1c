"""Molecules to try Cutaway with: made up by a grammar, and weighed by the periodic table.

What a network says of each atom can be held to the truth: its mass, and that of the hydrogen it carries.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

HYDROGEN = 1.008
# Atom: valence, mass in g/mol (IUPAC 2021, abridged)
ATOMS = {
    "C": (4, 12.011),
    "N": (3, 14.007),
    "O": (2, 15.999),
    "S": (2, 32.06),
    "F": (1, 18.998),
    "Cl": (1, 35.45),
    "Br": (1, 79.904),
}
ODDS = {"C": 0.62, "N": 0.1, "O": 0.14, "S": 0.04, "F": 0.04, "Cl": 0.04, "Br": 0.02}
RING = ("c1ccccc1", 6 * ATOMS["C"][1] + 5 * HYDROGEN)  # a phenyl group
WITH_RING, WITH_DOUBLE = 0.25, 0.25  # odds of each


def molecules(path: Path, count: int = 800) -> None:
    """Made-up molecules without charges, of 3 to 16 heavy atoms, each once, and what a mole of each weighs in grams."""
    rng = np.random.default_rng(0)
    weights: dict[str, float] = {}
    while len(weights) < count:
        smiles, weight = _grown(rng, int(rng.integers(3, 11)))
        weights[smiles] = weight
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "weight"])
        writer.writerows([smiles, f"{weight:.3f}"] for smiles, weight in weights.items())


def _grown(rng: np.random.Generator, size: int) -> tuple[str, float]:
    """A tree of so many atoms as SMILES, perhaps with a ring at one of them, and its weight in g/mol."""
    names = ["C"]
    bonds: list[dict[int, int]] = [{}]  # of each atom: its neighbours, and the order of the bond to each
    free = [4]  # bonds that each atom has left, which hydrogen takes
    while len(names) < size:
        atom, new = _any_free(rng, free), len(names)
        name = str(rng.choice([*ODDS], p=[*ODDS.values()]))
        order = 2 if min(free[atom], ATOMS[name][0]) >= 2 and rng.random() < WITH_DOUBLE else 1
        if sum(free) + ATOMS[name][0] == 2 * order:
            continue  # nothing could grow any more
        names.append(name)
        bonds.append({atom: order})
        bonds[atom][new] = order
        free[atom] -= order
        free.append(ATOMS[name][0] - order)
    ringed = _any_free(rng, free) if rng.random() < WITH_RING else -1

    def written(atom: int, come_from: int = -1) -> str:
        ring = [RING[0]] if atom == ringed else []
        rest = [("=" if k == 2 else "") + written(i, atom) for i, k in bonds[atom].items() if i != come_from]
        *branches, last = sorted(ring + rest) or [""]
        return names[atom] + "".join(f"({branch})" for branch in branches) + last

    smiles = min(map(written, range(size)))  # the same from wherever a molecule has grown
    weight = sum(ATOMS[name][1] for name in names) + HYDROGEN * sum(free)
    return smiles, weight + (RING[1] - HYDROGEN if ringed >= 0 else 0)


def _any_free(rng: np.random.Generator, free: list[int]) -> int:
    """An atom that has a bond left."""
    return int(rng.choice([i for i, left in enumerate(free) if left]))
