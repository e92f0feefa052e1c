"""Graph data sets: read, split by node or graph, and preprocessed with statistics of the training split.

Link prediction data: which pairs of nodes are linked, with held-out and absent links.

A link is a pair of nodes a < b with an edge in either direction; both directions are in the same split. Only edges of
training links pass messages, in validation and test too, so that held-out links do not leak. The absent links of
validation and test are sampled once, among pairs that no split links. Those of training are resampled in every epoch
among the pairs that training links do not contain: excluding held-out links would reveal them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.errors import (
    ColumnError,
    FolderLayoutError,
    IncompatibleSettingError,
    MissingSettingError,
    NotEnoughDataError,
)
from ...core.spec import Links
from ..build import DatasetBuilder, DataSource, DuplicateKeys
from ..dataset_base import IN_MEMORY, DataSet, Split
from ..findings import missing_class_findings, reject_fill
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import SPLITS, Rows, complete_split
from ..tables.column_roles import Labels, check_learnable, check_trained_classes, find_column, read_labels
from ..tables.column_types import natural_order
from ..tables.delimited import Form
from ..tables.table_files import format_count
from .graph_files import read_graphs
from .splits import (
    LinkSplit,
    NodeSplit,
    Pairs,
    RawGraphs,
    encode_pairs,
    links_from_edges,
    remove_links,
    sample_absent_links,
)
from .transforms import SHOWN, GraphPreprocessing, OneGraph, fit_preprocessing, labelled_examples


def open_graph(source: Any, settings: DataSettings) -> DataSet:
    """Load a folder, a .graphml file or a PyTorch Geometric object as a data set. See `read_graphs`.

    Raises DataError (with every bad row in `problems`), UnknownName or SettingError.
    """
    reject_fill(settings)
    graphs = read_graphs(
        source, settings.target, Form.from_settings(settings), settings.smiles or "", settings.missing == "drop"
    )
    settings = replace(settings, missing="error")  # `read_graphs` has applied missing=drop already
    in_memory = hasattr(source, "edge_index")
    name = "graph" if in_memory else Path(source).expanduser().resolve().stem
    return graph_dataset(graphs, DataSource(name, IN_MEMORY if in_memory else str(source), graphs.digest), settings)


def graph_dataset(graphs: RawGraphs, origin: DataSource, settings: DataSettings) -> DataSet:
    """Build a data set from graphs that were read. Raises what `open_graph` raises."""
    if settings.smiles and not graphs.keys:
        raise IncompatibleSettingError(
            f"smiles={settings.smiles} is for tables of molecules, and this is not one: leave it out."
        )
    if not settings.smiles:
        reject_changed(settings, ("missing",), "is for graphs in files, and these are whole")
    if settings.links:
        return LinkBuilder(graphs, origin, settings).build()
    return GraphBuilder(graphs, origin, settings).build()


class GraphBuilder(DatasetBuilder[GraphPreprocessing, Split]):
    """The steps from graphs with a target for each node, or for each graph, to their data set."""

    noun = "molecules"

    def __init__(self, graphs: RawGraphs, origin: DataSource, settings: DataSettings) -> None:
        super().__init__(origin, settings)
        self.graphs = graphs
        self.labels = _labels(graphs, settings)
        self.rows = labelled_examples(self.labels)
        check_learnable(self.labels, self.rows, splits=1)

    def split(self) -> dict[str, Rows]:
        """Split nodes or graphs."""
        indices, self.split_notes = _split(self.graphs, self.labels, self.rows, self.settings)
        return indices

    def fit(self) -> GraphPreprocessing:
        """Fit the encoders of attributes on training nodes, or on the nodes of training graphs."""
        graphs, settings, train = self.graphs, self.settings, self.indices["train"]
        self.target = self.labels.fit(train)
        check_trained_classes(self.labels, self.target, self.indices)
        taught = train if graphs.graph is None else np.flatnonzero(np.isin(graphs.graph, train))
        given, self.left_out = _edges_to_fit(graphs, taught, settings)
        fitted, self.decided = fit_preprocessing(graphs, self.target, taught, settings.num_neighbors, given)
        if graphs.table is not None:
            fitted = replace(fitted, written=graphs.table.form.as_default(), smiles=settings.smiles or "")
        if fitted.edge_encoders:
            self.origin = replace(self.origin, fingerprint=_with_edges(self.origin.fingerprint, graphs))
        return fitted

    def encode_splits(self) -> dict[str, Split]:
        """Return the splits of one graph, or of graphs; with inductive=true, nodes of later splits are hidden."""
        graphs, settings, indices = self.graphs, self.settings, self.indices
        ready, self.unknown = self.preprocessing.ready(graphs)
        self.targets = {split: self.labels.tensor(self.target, rows) for split, rows in indices.items()}
        if settings.inductive and graphs.many:
            raise IncompatibleSettingError(
                "inductive=true hides nodes of one graph, and these are many graphs: leave it out."
            )
        if settings.num_neighbors and graphs.many:
            raise IncompatibleSettingError(
                "num_neighbors=… is for one large graph, and these are many: take a smaller batch_size."
            )
        if not settings.inductive:
            as_split = self.preprocessing.as_split
            return {split: as_split(graphs, ready, rows, self.targets[split]) for split, rows in indices.items()}
        assert isinstance(ready, OneGraph), "many graphs were rejected"
        splits, hidden = _inductive(graphs, ready, indices, self.targets, self.preprocessing)
        self.split_notes += hidden
        return splits

    def notes(self) -> list[str]:
        """Return notes on attributes and splits, and findings on absent classes."""
        return [
            *self.graphs.notes,
            *self.decided,
            *self.left_out,
            *self.unknown,
            *self.split_notes,
            *_shape_notes(self.graphs, self.settings),
            *missing_class_findings(self.targets, self.target),
        ]

    def duplicate_keys(self) -> DuplicateKeys | None:
        """Return the canonical form of each molecule; other graphs are not compared."""
        graphs = self.graphs
        return DuplicateKeys(graphs.keys, lambda i: graphs.examples[i]) if graphs.keys else None


def _edges_to_fit(graphs: RawGraphs, taught: Rows, settings: DataSettings) -> tuple[Rows | None, list[str]]:
    """Return the rows of edges to fit edge attributes on: those between or to training nodes.

    Returns None, with a note, if the model does not receive edge attributes.
    """
    table = graphs.edge_table
    if table is None:
        return None, []
    if settings.edge_attr and not settings.num_neighbors:
        near = np.zeros(graphs.nodes, bool)
        near[taught] = True
        ends = graphs.edges if settings.inductive else graphs.edges[1:]
        return np.flatnonzero(near[ends].all(0)), []
    shown = f"{', '.join(table.columns[:SHOWN])}{', …' if len(table.columns) > SHOWN else ''}"
    why = "edges are drawn without them (num_neighbors)" if settings.edge_attr else "this model takes none"
    why = "edge_attr=false" if settings.edge_attr is False else why
    return None, [f"Attributes of edges are left out, as {why}: {shown}."]


def _with_edges(fingerprint: str, graphs: RawGraphs) -> str:
    """Extend a fingerprint by the edge attributes."""
    assert graphs.edge_table is not None
    written = graphs.edge_table.frame.write_csv().encode()
    return hashlib.sha256(fingerprint.encode() + hashlib.sha256(written).digest()).hexdigest()


def _labels(graphs: RawGraphs, settings: DataSettings) -> Labels:
    """Return the target of every example. Raises SettingError if the target column is not known."""
    table, column = graphs.targets, settings.target or graphs.target
    if table is None or not table.columns:
        raise NotEnoughDataError(f"{graphs.title} holds no targets: there is nothing to learn from it.")
    if column is None and len(table.columns) == 1:
        if table is graphs.table and not graphs.columns:
            raise ColumnError(
                f"{table.name} of {graphs.title} has no column but {table.columns[0]!r}, the names of the nodes: there "
                "is nothing to predict.",
                fix="Add the column to predict, and name it with target=COLUMN.",
            )
        column = table.columns[0]
    if column is None:
        shown = ", ".join(table.columns[:40])
        raise MissingSettingError(
            f"Which column of {table.title} is to be predicted? Say target=COLUMN. They are: {shown}."
        )
    column = find_column(table, "target", column)
    return read_labels(table, column, graphs.target_kind if column == graphs.target else None)


def _split(graphs: RawGraphs, labels: Labels, rows: Rows, settings: DataSettings) -> tuple[dict[str, Rows], list[str]]:
    """Split the examples that have a target, with notes on the others."""
    given, notes = None, []
    what = "graph" if graphs.many else "node"
    if len(rows) < len(graphs.examples):
        alone = len(graphs.examples) - len(rows)
        notes.append(
            f"{format_count(alone, what)} of {len(graphs.examples):,} have no target and are in no split"
            f"{'' if graphs.many else '; they stay in the graph'}."
        )
    if graphs.splits is not None:
        given = {split: np.intersect1d(graphs.splits[split], rows) for split in SPLITS if split in graphs.splits}
        if not len(given.get("train", ())):
            raise FolderLayoutError(f"{graphs.title} has a split and no {what} with a target for training.")
        outside = len(np.setdiff1d(rows, np.concatenate(list(given.values()))))
        if outside:
            notes.append(f"{format_count(outside, what)} with a target {'is' if outside == 1 else 'are'} in no split.")
    every, classes = np.full(len(graphs.examples), -1, np.int64), [what]
    every[rows] = 0
    if not labels.numeric:
        classes = natural_order(labels.cells.gather(rows).unique())
        number = {name: k for k, name in enumerate(classes)}
        every[rows] = [number[cell] for cell in labels.cells.gather(rows)]
    return complete_split(every, classes, given or {"train": rows}, settings), notes


def _inductive(
    graphs: RawGraphs,
    ready: OneGraph,
    indices: Mapping[str, Rows],
    targets: Mapping[str, Tensor],
    preprocessing: GraphPreprocessing,
) -> tuple[dict[str, Split], list[str]]:
    """Build splits that hide the nodes of later splits.

    Training sees its own nodes and the edges between them, validation also those of training. The test split sees all
    nodes, including those without a split.
    """
    splits: dict[str, Split] = {}
    seen = np.zeros(graphs.nodes, bool)
    counts = []
    for split, rows in indices.items():
        seen[rows] = True
        if split == "test":
            seen[:] = True
        place = np.cumsum(seen) - 1
        among = seen[graphs.edges].all(0)
        inside = graphs.edges[:, among]
        x = ready.x[torch.from_numpy(seen)]
        edge_attr = None if ready.edge_attr is None else ready.edge_attr[torch.from_numpy(among)]
        part = OneGraph(x, torch.from_numpy(place[inside]), edge_attr)
        whole = preprocessing.as_split(graphs, part, rows, targets[split])
        assert isinstance(whole, NodeSplit)
        splits[split] = whole.at(torch.from_numpy(place[rows]))
        counts.append(f"{split} {format_count(int(seen.sum()), 'node')} and {format_count(inside.shape[1], 'edge')}")
    return splits, [
        f"inductive=true: each split sees the nodes of the splits before it and its own: {'; '.join(counts)}."
    ]


def _shape_notes(graphs: RawGraphs, settings: DataSettings) -> list[str]:
    """Return notes on the size of the graph, isolated nodes and neighbor sampling."""
    edges = graphs.edges
    loops = int((edges[0] == edges[1]).sum())
    touched = np.zeros(graphs.nodes, bool)
    touched[edges[:, edges[0] != edges[1]]] = True
    many = f"{format_count(len(graphs.graph_names), 'graph')} with " if graphs.many else ""
    summary = (
        f"{many}{format_count(graphs.nodes, 'node')} and {format_count(edges.shape[1], 'edge')}, each direction counted"
    )
    extra = [f"{format_count(loops, 'edge')} from a node to itself"] if loops else []
    alone = int((~touched).sum())
    extra += [f"{format_count(alone, 'node')} without edges to others"] if alone else []
    notes = [f"{summary}{'; ' + ', '.join(extra) if extra else ''}."]
    if settings.num_neighbors:
        notes.append(
            f"num_neighbors={','.join(map(str, settings.num_neighbors))} draws the graph around each batch for "
            f"{format_count(len(settings.num_neighbors), 'layer')}: a model with more layers sees less than it could."
        )
    return notes


class LinkBuilder(DatasetBuilder[GraphPreprocessing, LinkSplit]):
    """The steps from a graph whose links are the examples to its data set."""

    def __init__(self, graphs: RawGraphs, origin: DataSource, settings: DataSettings) -> None:
        super().__init__(origin, settings)
        _reject(graphs, settings)
        # Words of a document stay 0 and 1. Dividing them by their sum, as node classification does, slows learning and
        # lowers the AUC on Cora by one point.
        self.graphs = replace(graphs, scaled="")

    def split(self) -> dict[str, Rows]:
        """Split the links."""
        self.links, indices = _link_split(self.graphs, self.settings)
        return indices

    def fit(self) -> GraphPreprocessing:
        """Fit the encoders of attributes on all nodes, without the links of validation and test."""
        nodes = self.graphs.nodes
        self.every = links_from_edges(self.graphs.edges, nodes)
        held_out = ~np.isin(encode_pairs(self.every, nodes), encode_pairs(self.links["train"], nodes))
        self.taught = remove_links(self.graphs, self.every[held_out])
        fitted, self.decided = fit_preprocessing(self.taught, Links(), np.arange(nodes), self.settings.num_neighbors)
        return fitted

    def encode_splits(self) -> dict[str, LinkSplit]:
        """Return the splits, with absent links drawn."""
        return _splits(self.graphs, self.taught, self.links, self.preprocessing, self.settings.split_seed)

    def notes(self) -> list[str]:
        """Return notes on links and on unused parts of the data."""
        graphs = self.graphs
        loops = int((graphs.edges[0] == graphs.edges[1]).sum())
        notes = [
            *graphs.notes,
            *self.decided,
            f"{format_count(graphs.nodes, 'node')} and {format_count(len(self.every), 'link')}, each a pair of nodes "
            f"whichever way its edges lead. Messages travel along the {len(self.links['train']):,} links of training "
            "alone.",
        ]
        if loops:
            notes.append(
                f"{format_count(loops, 'edge')} from a node to itself {'is' if loops == 1 else 'are'} no link."
            )
        if graphs.splits is not None:
            notes.append("The split of nodes that comes with the data is not used: links are split at random.")
        if graphs.edge_table is not None:
            notes.append(f"Attributes of edges are left out: {', '.join(graphs.edge_table.columns[:SHOWN])}.")
        return notes


def _reject(graphs: RawGraphs, settings: DataSettings) -> None:
    """Raise SettingError for data or settings that do not support link prediction."""
    if graphs.many:
        raise IncompatibleSettingError(
            f"links=true predicts the edges of one graph, and {graphs.title} holds "
            f"{format_count(len(graphs.graph_names), 'graph')}: leave it out, or give one graph."
        )
    if settings.target is not None:
        raise IncompatibleSettingError(
            f"links=true predicts edges, and target={settings.target} a column of nodes: give one of them."
        )
    if settings.inductive:
        raise IncompatibleSettingError(
            "inductive=true hides nodes, and links=true hides edges already: leave inductive out."
        )


def _link_split(graphs: RawGraphs, settings: DataSettings) -> tuple[dict[str, Pairs], dict[str, Rows]]:
    """Return the links of each split and their indices among all links. Raises DataError if there are too few."""
    links = links_from_edges(graphs.edges, graphs.nodes)
    if len(links) < 3:
        raise NotEnoughDataError(
            f"{graphs.title} has {format_count(len(links), 'edge')} between two nodes: too few to learn from some and"
            " to hold out others.",
            fix="Give a graph with more edges.",
        )
    if len(links) == graphs.nodes * (graphs.nodes - 1) // 2:
        raise NotEnoughDataError(
            f"In {graphs.title} all nodes are linked to each other, and link prediction needs pairs without a link.",
            fix="Keep the edges that count, such as those with a large weight.",
        )
    indices = complete_split(np.zeros(len(links), np.int64), ["link"], None, settings)
    return {split: links[rows] for split, rows in indices.items()}, indices


def _splits(
    graphs: RawGraphs,
    taught: RawGraphs,
    links: Mapping[str, Pairs],
    preprocessing: GraphPreprocessing,
    seed: int,
) -> dict[str, LinkSplit]:
    """Build each split from its links and as many absent ones, if available. Messages use training edges only."""
    nodes, rng = graphs.nodes, np.random.default_rng([seed, 1])  # independent of the generator of the splits
    ready, _ = preprocessing.ready(taught)
    assert isinstance(ready, OneGraph), "many graphs were rejected"
    held_out = [len(links[name]) for name in links if name != "train"]
    drawn = sample_absent_links(encode_pairs(links_from_edges(graphs.edges, nodes), nodes), nodes, sum(held_out), rng)
    cuts = np.cumsum(held_out[:-1]) * len(drawn) // max(1, sum(held_out))
    parts = iter(np.split(drawn, cuts))
    of_training = sample_absent_links(encode_pairs(links["train"], nodes), nodes, len(links["train"]), rng)
    return {
        name: LinkSplit(
            ready.x,
            ready.edges,
            of_split,
            of_training if name == "train" else next(parts),
            graphs.names,
            graphs.edges,
            preprocessing.neighbours,
            drawn=seed if name == "train" else None,
        )
        for name, of_split in links.items()
    }
