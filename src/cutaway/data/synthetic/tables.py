"""A table, series and graphs to try Cutaway with."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


def wine(path: Path) -> None:
    """178 wines: 13 measurements of each, and which of three cultivars it comes from."""
    from sklearn.datasets import load_wine

    data = load_wine()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "cultivar"])
        writer.writerows([*row, data.target_names[k]] for row, k in zip(data.data, data.target, strict=True))


def visits(path: Path, days: int = 140) -> None:
    """Made-up visits to a shop, hour by hour: most at noon, few on Sundays, twice as many on days of a sale, both known
    in advance; and how warm it was."""
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
    """Made-up visits to four shops, day by day, one row for each shop and day: each has its size, its weekly rhythm and
    a trend; on days of a sale, known in advance, half as many more come. The last shop opened later."""
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
    """Zachary's karate club: 34 members, who meets whom outside, and whom each followed when the club split."""
    import networkx

    club = networkx.karate_club_graph()
    _graph(folder, ["id", "club"], [[node, data["club"]] for node, data in club.nodes(data=True)], club.edges)


def novel(folder: Path) -> None:
    """Les Misérables: its 77 characters, and who stand in a chapter together (D. E. Knuth, The Stanford GraphBase,
    1993)."""
    import networkx

    met = networkx.les_miserables_graph()
    _graph(folder, ["name"], [[name] for name in met], met.edges)


def _graph(folder: Path, columns: list[str], nodes: Iterable[list[Any]], edges: Iterable[Iterable[Any]]) -> None:
    """A folder with nodes.csv and edges.csv."""
    folder.mkdir(exist_ok=True)
    for name, head, rows in (("nodes.csv", columns, nodes), ("edges.csv", ["source", "target"], edges)):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            writer.writerows(rows)
