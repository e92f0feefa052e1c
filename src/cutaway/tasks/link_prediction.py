"""Link prediction: outputs (N, 1) are logits of a pair of nodes, targets are 1 for links and 0 for absent links.

The loss is binary cross-entropy over equally many links and absent links. Metrics measure the ranking: AUC, the
probability that a link has a higher score than an absent one; average precision; and the mean reciprocal rank of each
link among all absent ones. A graph has far more absent links than are sampled, so the precision over all pairs is
lower.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..core.spec import Links
from ..data.graphs.splits import LinkSplit, links_from_edges
from ..statistics import classes
from ..statistics.intervals import Metric, mean, share
from .classification import Classification

BINS = 20
SHOWN = 20  # number of absent links with the highest scores in the report
DRAWN = 150  # largest number of nodes of a graph that is drawn


class LinkPrediction(Classification):
    """Binary cross-entropy; AUC, average precision and mean reciprocal rank."""

    NOUN = "links"
    name = "link prediction"
    default_monitor = (
        "loss"  # selects the best weights: small graphs have few validation links, whose ranking is soon perfect
    )
    headline = "auc"
    monitors = ("loss", "auc", "average_precision", "mrr")
    LOSSES = ("cross_entropy",)
    OPTIONS = ("loss",)
    target: Links  # type: ignore[assignment]  # it has names too

    def __init__(self, target: Links, loss: str = "cross_entropy") -> None:
        super().__init__(target, loss)  # type: ignore[arg-type]

    def fast_metrics(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """Return AUC and average precision."""
        score, linked = _logits_and_labels(outputs, target)
        return {"auc": auc(score, linked), "average_precision": average_precision(score, linked)}

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return AUC, average precision, mean reciprocal rank among these absent links, and loss."""
        score, linked = _logits_and_labels(outputs, target)
        ranks = reciprocal_ranks(score, linked)
        return {
            "auc": classes.auc(score, linked, "links"),
            "average_precision": classes.average_precision(score, linked, "links"),
            "mrr": share(ranks, np.ones_like(ranks), "link"),
            "loss": mean(self.losses(outputs, target).double().cpu().numpy(), noun="pair"),
        }

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """Return nothing: drawings of links need the graph."""
        del outputs, target
        return {}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the AUC of a random score."""
        del train_target, target
        return {"name": "a coin", "value": 0.5}

    def beside(self, outputs: Tensor, train: LinkSplit, split: LinkSplit) -> dict[str, Any]:
        """Return the common-neighbors baseline (D. Liben-Nowell, J. Kleinberg, 2003), and data for drawings.

        The drawings show histograms of probabilities, the absent links with the highest scores, and a small graph.
        """
        assert split.target is not None
        linked = split.target.numpy() == 1
        p = outputs[:, 0].double().sigmoid().numpy()
        edges = np.linspace(0, 1, BINS + 1)
        counts = {name: np.histogram(p[linked == k], edges)[0].tolist() for k, name in enumerate(self.target.names)}
        wrong = [i for i in np.argsort(-p, kind="stable").tolist() if not linked[i]][:SHOWN]
        found: dict[str, Any] = {
            "edges": edges.tolist(),
            "counts": counts,
            "wrong": [[split.name(i), p[i]] for i in wrong],
        }
        if len(split.x) <= DRAWN:
            asked = {tuple(pair): value for pair, value in zip(split.rows[: split.links].tolist(), p.tolist())}
            every = links_from_edges(split.known, len(split.x))
            rows = zip(map(tuple, every.tolist()), train.are_linked(every).tolist())
            found["graph"] = {
                "names": split.node_names(),
                "links": [{"ends": pair, "probability": asked.get(pair), "taught": taught} for pair, taught in rows],
            }
        shared = {"name": "common-neighbors baseline", "value": auc(split.shared_neighbours(), linked)}
        return {"baseline": shared, "links": found}


def auc(score: NDArray[np.float64], linked: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve; NaN where only links or only absent links are given."""
    from sklearn.metrics import roc_auc_score  # here, because it takes a while

    return float(roc_auc_score(linked, score)) if linked.any() and not linked.all() else math.nan


def average_precision(score: NDArray[np.float64], linked: NDArray[np.bool_]) -> float:
    """Return the area under the precision–recall curve, by steps; NaN as for `auc`."""
    from sklearn.metrics import average_precision_score  # here, because it takes a while

    return float(average_precision_score(linked, score)) if linked.any() and not linked.all() else math.nan


def reciprocal_ranks(score: NDArray[np.float64], linked: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return 1 / rank of each link among all absent ones, (links,); ties have the mean of best and worst rank."""
    absent = np.sort(score[~linked])
    above = len(absent) - np.searchsorted(absent, score[linked], side="right")
    as_high = len(absent) - np.searchsorted(absent, score[linked], side="left")
    return np.asarray(1 / (1 + (above + as_high) / 2))


def _logits_and_labels(outputs: Tensor, target: Tensor) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return logits and whether there is a link, (N,) each."""
    return outputs[:, 0].double().cpu().numpy(), target.cpu().numpy() == 1
