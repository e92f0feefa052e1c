"""The view of link prediction: the scores of links and absent links, false positives, and the graph."""

from __future__ import annotations

from typing import Any

from ...draw import charts
from ...draw.description import Drawing, View, table
from ...draw.number_format import percent, plural
from ..graph_diffusion import layout_nodes


def links(found: dict[str, Any], split: str) -> View:
    """Return the probabilities of links and absent links, the most probable absent links, and a small graph."""
    edges, (absent, real) = found["edges"], found["counts"].values()
    drawings: list[Drawing] = [
        charts.lines(
            "Pairs by probability of a link",
            "probability of a link",
            [
                {"name": name, "points": [[(a + b) / 2, n] for a, b, n in zip(edges, edges[1:], counts)]}
                for name, counts in (("links", real), ("absent links", absent))
            ],
            x_format="fraction",
            format="count",
        )
    ]
    if found.get("graph"):
        drawings.append(_graph(found["graph"], split))
    half = len(real) // 2
    summary = f"Of {plural(sum(real), 'link')} {percent(sum(real[half:]) / max(1, sum(real)))} have a probability of "
    summary += f"at least a half, of {plural(sum(absent), 'absent link')} "
    summary += f"{percent(sum(absent[half:]) / max(1, sum(absent)))}."
    if found["wrong"]:
        name, p = found["wrong"][0]
        summary += f" The surest of what is no link is {name}, {percent(p)}: it may be one that is missing in the data."
    return View(
        id="links",
        title="Links and absent links",
        says=f"Pairs of nodes of the {split} split: as many that are linked as are not. In a whole graph nearly all "
        "are not, so that of what is called a link fewer are. The table has the absent links that are held most "
        "probable.",
        summary=summary,
        table=table({"absent link": "text", "probability": "fraction"}, [list(one) for one in found["wrong"]]),
        drawings=drawings,
    )


def _graph(drawn: dict[str, Any], split: str) -> Drawing:
    """Return the whole graph; the width of a held-out link is its probability."""
    names, pairs = drawn["names"], [(a, b) for a, b in (link["ends"] for link in drawn["links"])]
    asked = [[link["probability"]] * 2 for link in drawn["links"]]
    taught = [[1 if link["taught"] else None] * 2 for link in drawn["links"]]
    degree = [sum(v in pair for pair in pairs) for v in range(len(names))]
    nodes = [
        {"label": name, "at": at, "tip": [plural(n, "link")], "key": str(v)}
        for v, (name, at, n) in enumerate(zip(names, layout_nodes(pairs, len(names)), degree))
    ]
    return {
        "kind": "graph",
        "title": f"Links of the {split} split, as wide as they are probable",
        "nodes": nodes,
        "links": [list(pair) for pair in pairs],
        "weights": [
            {"name": f"links of the {split} split, by probability", "values": asked},
            {"name": "links that messages travel along", "values": taught},
        ],
        "colours": [],
        "node": None,
        "labels": True,
    }
