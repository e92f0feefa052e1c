"""Simple models for the nodes of one graph: labels that spread along edges, and features without edges."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.graphs.splits import NodeSplit
from ..data.sets import DataSet, Split
from ..spec import Classes, Value
from .simple import Answer, Baseline, Finish, Recipe, answers, fitted, log_probabilities, target_of

ALPHA = 0.8  # of a node's distribution comes from its neighbours
STEPS = 50  # 0.8⁵⁰ is 10⁻⁵


def by_propagation(target: Classes, finish: Finish) -> Baseline:
    """F ← α S F + (1 − α) Y, S = D^−½ A D^−½ (D. Zhou et al., Learning with local and global consistency, 2004)."""

    def learn(data: DataSet, seed: int) -> Answer:
        del seed
        train = _nodes(data.splits["train"])
        labels = np.zeros((len(train.x), len(target.names)))
        labels[train.rows.numpy(), target_of(data)] = 1
        spread = propagated(train.edges.numpy(), labels)
        total = spread.sum(1, keepdims=True)
        prior = labels.sum(0) / labels.sum()  # of nodes that no labelled node can be reached from
        p = np.where(total > 0, spread / np.where(total > 0, total, 1.0), prior)
        known = torch.from_numpy(log_probabilities(p)).float()
        return lambda split: finish(known[_nodes(split).rows])

    said = "Labels of training nodes, spread along edges in both directions; what else is known of nodes is not seen."
    return Baseline("label propagation", said, learn)


def by_features(target: Classes | Value, finish: Finish, recipe: Recipe) -> Baseline:
    """A model of scikit-learn of what is known of each node, and none of the edges."""

    def learn(data: DataSet, seed: int) -> Answer:
        train = _nodes(data.splits["train"])
        model = fitted(recipe, _features(train), target_of(data), target, seed)
        return lambda split: finish(answers(model, _features(split), target, recipe.votes))

    return Baseline(recipe.name, recipe.explanation, learn)


def propagated(edges: NDArray[np.int64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """What labels (V, K) become along edges (2, E), which lead in both directions and from no node to itself."""
    from scipy.sparse import coo_matrix, diags  # comes with scikit-learn

    nodes = len(labels)
    source, to = edges[:, edges[0] != edges[1]]
    both = np.concatenate([source, to]), np.concatenate([to, source])
    adjacency = coo_matrix((np.ones(len(both[0])), both), shape=(nodes, nodes)).tocsr()
    adjacency.data[:] = 1  # however often an edge is listed
    degree = np.asarray(adjacency.sum(1)).ravel()
    scale = diags(np.where(degree > 0, degree, 1.0) ** -0.5)
    along = scale @ adjacency @ scale
    spread = labels.copy()
    for _ in range(STEPS):
        spread = ALPHA * (along @ spread) + (1 - ALPHA) * labels
    return spread


def _features(split: Split) -> NDArray[np.float32]:
    nodes = _nodes(split)
    found: NDArray[np.float32] = nodes.x[nodes.rows].numpy()
    return found


def _nodes(split: Split) -> NodeSplit:
    assert isinstance(split, NodeSplit), "label propagation is of the nodes of one graph"
    return split
