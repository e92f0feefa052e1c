"""A table, a series and a graph to try Cutaway with."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path

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


def karate(folder: Path) -> None:
    """Zachary's karate club: 34 members, who meets whom outside, and whom each followed when the club split."""
    import networkx

    folder.mkdir(exist_ok=True)
    club = networkx.karate_club_graph()
    with (folder / "nodes.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "club"])
        writer.writerows([node, data["club"]] for node, data in club.nodes(data=True))
    with (folder / "edges.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target"])
        writer.writerows(club.edges)
