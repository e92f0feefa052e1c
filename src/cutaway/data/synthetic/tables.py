"""Example table, series and graphs."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


def wine(path: Path) -> None:
    """Write 178 wines: 13 measurements of each, and its cultivar of three."""
    from sklearn.datasets import load_wine

    data = load_wine()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "cultivar"])
        writer.writerows([*row, data.target_names[k]] for row, k in zip(data.data, data.target, strict=True))


def visits(path: Path, days: int = 140) -> None:
    """Write generated hourly visits to a shop with the temperature.

    Visits peak at noon, are low on Sundays and double on sale days. Sale days and Sundays are known in advance.
    """
    rng = np.random.default_rng(0)
    hours = np.arange(24 * days)
    day, hour = hours // 24, hours % 24
    sale, sunday = np.isin(day, rng.choice(days, days // 6, replace=False)), day % 7 == 6
    warm = 15 + 5 * np.sin(2 * np.pi * (hour - 9) / 24) + rng.normal(0, 1, len(hours))
    expected = 60 * np.exp(-(((hour - 13) / 4) ** 2)) * np.where(sunday, 0.3, 1) * np.where(sale, 2, 1)
    came = rng.poisson(expected + 1)
    begin = datetime.datetime(2024, 1, 1)  # a Monday
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "visits", "temperature", "sale", "sunday"])
        for i in hours.tolist():
            time = begin + datetime.timedelta(hours=i)
            writer.writerow([time.isoformat(" ", "minutes"), came[i], f"{warm[i]:.1f}", int(sale[i]), int(sunday[i])])


def shops(path: Path, days: int = 300) -> None:
    """Write generated daily visits to four shops, one row for each shop and day.

    Each shop has its size, weekly pattern and trend. Visits are 50 % higher on sale days, which are known in advance.
    The last shop opened later.
    """
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["shop", "day", "visits", "sale"])
        for name, size, closed in (("Harbour", 900, 6), ("Market", 300, 0), ("Mill", 60, 6), ("Station", 2000, 5)):
            day = np.arange(100 if name == "Station" else 0, days)
            sale = rng.random(len(day)) < 0.1
            rhythm = np.where(day % 7 == closed, 0.2, 1 + 0.3 * np.sin(2 * np.pi * day / 7))
            came = rng.poisson(size * rhythm * (1 + 0.001 * day) * np.where(sale, 1.5, 1))
            for t, count, has_sale in zip(day.tolist(), came.tolist(), sale.tolist()):
                date = datetime.date(2024, 1, 1) + datetime.timedelta(days=t)
                writer.writerow([name, date.isoformat(), count, int(has_sale)])


def karate(folder: Path) -> None:
    """Write Zachary's karate club: 34 members, their links, and the faction of each after the split."""
    import networkx

    club = networkx.karate_club_graph()
    _graph(folder, ["id", "club"], [[node, data["club"]] for node, data in club.nodes(data=True)], club.edges)


def novel(folder: Path) -> None:
    """Write Les Misérables: its 77 characters, linked if they appear in a chapter together.

    D. E. Knuth, The Stanford GraphBase, 1993.
    """
    import networkx

    met = networkx.les_miserables_graph()
    _graph(folder, ["name"], [[name] for name in met], met.edges)


def _graph(folder: Path, columns: list[str], nodes: Iterable[list[Any]], edges: Iterable[Iterable[Any]]) -> None:
    """Write a folder with nodes.csv and edges.csv."""
    folder.mkdir(exist_ok=True)
    for name, head, rows in (("nodes.csv", columns, nodes), ("edges.csv", ["source", "target"], edges)):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            writer.writerows(rows)
