"""Conversion of node and edge attributes to features, fitted on the training split and saved with the model.

Table columns are encoded as in tabular data: numbers are standardised, (v − mean) / std, except that 0 and 1 stay;
categories become one feature for each value. A matrix is used unchanged, or with each node's features divided by their
sum. Nodes without attributes get a one-hot identity if there is only one, small graph, and otherwise their degree. Edge
attributes are encoded in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ...core import spec as specs
from ...core.errors import DataError, DataMismatchError, NotEnoughDataError, UnsupportedDataError
from ...core.schema import Between
from ...core.spec import GraphSpec
from ..splits import Rows
from ..tables import delimited
from ..tables.column_roles import NUMBER, Labels, read_labels
from ..tables.column_types import (
    ENCODERS,
    LEFT_OUT,
    Category,
    ColumnType,
    Encoder,
    decode,
    encoder_from_json,
    fit_encoder,
    infer_type,
)
from ..tables.delimited import KEPT, Form
from ..tables.table_files import Table, format_count, read_table
from ..tables.transforms import bad_cells, unknown_note, unreadable_cells
from .graph_files import is_table, read_graphs, resolve_edges
from .splits import (
    ConcatenatedGraphs,
    GraphsSplit,
    LinkSplit,
    NodeSplit,
    RawGraphs,
    encode_pairs,
    links_from_edges,
    merge_graphs,
    remove_links,
    sample_absent_links,
)


class OneGraph(NamedTuple):
    """One graph with encoded node and edge features."""

    x: Tensor  # (V, F)
    edges: Tensor  # (2, E)
    edge_attr: Tensor | None = None  # (E, D)


Ready = OneGraph | ConcatenatedGraphs

DEGREE = "edges to the node"
MOST_NUMBERED = 4096  # largest number of nodes with one-hot identity, whose features grow with its square
SHOWN = 5  # columns that a note lists


@dataclass(frozen=True)
class GraphPreprocessing:
    """Preprocessing of a graph's nodes to x (V, F)."""

    spec: GraphSpec
    form: str  # columns, matrix, number or degree
    encoders: tuple[Encoder, ...] = ()  # columns, degree: one per column
    scaled: str = ""  # matrix: rows divides each node's features by their sum
    neighbours: tuple[int, ...] = ()  # sample size of each layer; empty uses whole graphs
    written: Form = KEPT  # format of the training table, the default for new tables
    edge_encoders: tuple[Encoder, ...] = ()  # one per edge attribute
    smiles: str = ""  # the SMILES column, if graphs are molecules of a table
    nodes: tuple[str, ...] = ()  # number: name of node k

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA,
        "form": str,
        "columns": [ENCODERS],
        "scaled": str,
        "neighbours": [Between(1, 2**31 - 1)],
        "read?": delimited.SCHEMA,
        "edge_columns?": [ENCODERS],
        "smiles?": str,
        "nodes?": [str],
    }

    def features(self, graphs: RawGraphs) -> tuple[Tensor, list[str]]:
        """Encode x (V, F) float32, with notes.

        Raises DataError if node attributes differ from training, naming missing or unreadable columns.
        """
        if self.form == "matrix":
            return self._matrix_features(graphs), []
        if self.form == "number":
            return self._one_hot(graphs), []
        if self.form == "degree":
            cells = {DEGREE: _degrees(graphs)}
            return torch.from_numpy(np.concatenate([e.encode(cells[e.name]) for e in self.encoders], 1)), []
        return _encode(graphs.table, self.encoders, graphs.title, "nodes")

    def _one_hot(self, graphs: RawGraphs) -> Tensor:
        """Return the one-hot training index of each node, (V, V). Nodes may be in another order now."""
        known = self.nodes or tuple(graphs.names)  # saved since 0.8
        number = {name: k for k, name in enumerate(known)}
        strange = next((name for name in graphs.names if name not in number), None)
        if graphs.nodes != self.spec.features or strange is not None:
            has = f"{graphs.nodes:,} nodes" if strange is None else f"a node {strange!r}"
            raise DataMismatchError(
                f"{graphs.title} has {has}, and the model knows the {self.spec.features:,} nodes of its graph by their "
                "names alone.",
                fix="A model for other graphs needs nodes with features.",
            )
        return torch.eye(graphs.nodes)[[number[name] for name in graphs.names]]

    def edge_attr(self, graphs: RawGraphs) -> tuple[Tensor | None, list[str]]:
        """Encode edge attributes (E, D) float32, with notes; None if the model does not use them.

        Raises DataError as `features` does.
        """
        if not self.edge_encoders:
            return None, []
        return _encode(graphs.edge_table, self.edge_encoders, graphs.title, "edges")

    def ready(self, graphs: RawGraphs) -> tuple[Ready, list[str]]:
        """Encode nodes and edges for a split, with notes. Raises DataError as `features` does."""
        x, unknown = self.features(graphs)
        edge_attr, strange = self.edge_attr(graphs)
        edges = torch.from_numpy(np.ascontiguousarray(graphs.edges))
        if graphs.graph is None:
            return OneGraph(x, edges, edge_attr), unknown + strange
        names = graphs.names if self.smiles else ()
        return ConcatenatedGraphs(x, edges, torch.from_numpy(graphs.graph), edge_attr, names), unknown + strange

    def examples(self, sources: Sequence[Any]) -> NodeSplit | GraphsSplit:
        """Build a split of all nodes of new graphs, or of all graphs, from paths or in-memory objects.

        See `read_graphs`. For link prediction, the pairs are those of the tables after the graph; without tables there
        are none.
        """
        if not sources:
            raise NotEnoughDataError("No graph was given.")
        if isinstance(self.spec.target, specs.Links):
            return self._pairs(sources)
        return self._as_split(self._read(sources), None, None)

    def labelled(self, source: Any) -> NodeSplit | GraphsSplit:
        """Load the labelled nodes or graphs of another file.

        For link prediction, a tenth of the links is hidden from the model, with as many absent ones. Raises DataError
        if there are no targets, or for a class that is not in training.
        """
        graphs = self._read([source])
        if isinstance(self.spec.target, specs.Links):
            return self._hold_out_links(graphs)
        column = self.spec.target.column
        if graphs.targets is None or column not in graphs.targets.columns:
            raise NotEnoughDataError(f"{graphs.title} has no targets {column!r} to compare with.")
        target = self.spec.target
        labels = read_labels(graphs.targets, column, target.cells, target.classes)
        rows = labelled_examples(labels)
        return self._as_split(graphs, rows, labels.tensor(target, rows))

    def as_split(
        self, graphs: RawGraphs, ready: Ready, rows: Rows, target: Tensor | None, notes: Sequence[str] = ()
    ) -> NodeSplit | GraphsSplit:
        """Build a split of the examples `rows` of encoded graphs."""
        names = [graphs.examples[i] for i in rows]
        table = graphs.targets if graphs.targets is not None else (None if graphs.many else graphs.table)

        def row(i: int) -> dict[str, str] | None:
            return table.row(int(rows[i])) if table is not None else None

        wanted = torch.from_numpy(rows)
        if isinstance(ready, ConcatenatedGraphs):
            return GraphsSplit(ready, wanted, target, names, row, notes)
        return NodeSplit(ready.x, ready.edges, wanted, target, names, row, self.neighbours, notes, ready.edge_attr)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return {
            "kind": "graph",
            "spec": specs.to_json(self.spec),
            "form": self.form,
            "columns": [encoder.to_json() for encoder in self.encoders],
            "scaled": self.scaled,
            "neighbours": list(self.neighbours),
            "read": self.written.to_json(),
            "edge_columns": [encoder.to_json() for encoder in self.edge_encoders],
            "smiles": self.smiles,
            "nodes": list(self.nodes),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> GraphPreprocessing:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        spec = specs.read_spec(data["spec"], GraphSpec)
        of_nodes = tuple(encoder_from_json(column) for column in data["columns"])
        written = Form.from_json(data.get("read"))
        of_edges = tuple(encoder_from_json(column) for column in data.get("edge_columns") or ())  # saved since 0.8
        for what, found, size in (("nodes", of_nodes, spec.features), ("edges", of_edges, spec.edge_features)):
            if found and sum(len(encoder.features) for encoder in found) != size:
                raise ValueError(f"its columns of {what} do not give the {size} features of its spec")
        neighbours, smiles, nodes = tuple(data["neighbours"]), data.get("smiles") or "", tuple(data.get("nodes") or ())
        return cls(spec, data["form"], of_nodes, data["scaled"], neighbours, written, of_edges, smiles, nodes)

    def _read(self, sources: Sequence[Any]) -> RawGraphs:
        links = isinstance(self.spec.target, specs.Links)
        column = None if links else self.spec.target.column
        graphs = [read_graphs(source, column, self.written, self.smiles) for source in sources]
        for one in graphs:
            if one.many != self.spec.graph_level:
                alone = "links of one graph" if links else "nodes of one graph"
                learned = ("whole graphs", alone) if self.spec.graph_level else (alone, "whole graphs")
                raise DataMismatchError(f"The model answers for {learned[0]}, and {one.title} holds {learned[1]}.")
        return merge_graphs(graphs)

    def _pairs(self, sources: Sequence[Any]) -> LinkSplit:
        """Read a graph, and the node pairs that tables list."""
        tables = [source for source in sources if is_table(source)]
        if len(tables) == len(sources):
            raise UnsupportedDataError(
                f"{tables[0]} is a table of pairs without a graph.",
                fix=f"Name the graph before it: cutaway predict RUN GRAPH {Path(tables[0]).name}.",
            )
        graphs = self._read([source for source in sources if not is_table(source)])
        if graphs.many or len(sources) - len(tables) > 1:
            raise UnsupportedDataError(
                f"Links are predicted for one graph at a time, and these are several: {graphs.title}."
            )
        ready, notes = self.ready(graphs)
        assert isinstance(ready, OneGraph), "several graphs were rejected"
        names = pl.Series(graphs.names).str.strip_chars()
        nodes = "the graph" if graphs.table is None else graphs.table.name
        listed = [resolve_edges(read_table(Path(table), self.written), names, False, nodes)[0] for table in tables]
        pairs = np.concatenate([np.empty((2, 0), np.int64), *listed], 1).T
        return LinkSplit(ready.x, ready.edges, pairs, pairs[:0], graphs.names, None, self.neighbours, notes)

    def _hold_out_links(self, graphs: RawGraphs) -> LinkSplit:
        """Hold out a fixed tenth of the links, with as many absent ones; the model receives the other links."""
        if self.form == "number":
            raise DataMismatchError(
                "The model identifies nodes by their number and was trained on the links of its own graph: it can only "
                f"be evaluated on the held-out links of that graph, not on {graphs.title}.",
                fix="Leave the data out: cutaway evaluate RUN.",
            )
        nodes, rng = graphs.nodes, np.random.default_rng(0)
        links = links_from_edges(graphs.edges, nodes)
        held = np.sort(rng.permutation(len(links))[: -(-len(links) // 10)])
        absent = sample_absent_links(encode_pairs(links, nodes), nodes, len(held), rng)
        if not len(held) or not len(absent):
            raise NotEnoughDataError(
                f"{graphs.title} has no links, or links every pair of nodes: link prediction needs both kinds of pairs."
            )
        ready, notes = self.ready(remove_links(graphs, links[held]))
        assert isinstance(ready, OneGraph), "many graphs were rejected"
        return LinkSplit(ready.x, ready.edges, links[held], absent, graphs.names, graphs.edges, self.neighbours, notes)

    def _as_split(self, graphs: RawGraphs, rows: Rows | None, target: Tensor | None) -> NodeSplit | GraphsSplit:
        ready, notes = self.ready(graphs)
        rows = np.arange(len(graphs.examples)) if rows is None else rows
        return self.as_split(graphs, ready, rows, target, notes)

    def _matrix_features(self, graphs: RawGraphs) -> Tensor:
        """Return the feature matrix (V, F); with scaled="rows", each row is divided by its sum.

        Raises DataError for another number of features and for values that are not finite.
        """
        matrix = graphs.matrix
        if matrix is None or matrix.shape[1] != self.spec.features:
            has = "none" if matrix is None else str(matrix.shape[1])
            raise DataMismatchError(
                f"{graphs.title} has nodes of {has} features, and the model takes {self.spec.features}."
            )
        if not np.isfinite(matrix).all():
            node = int(np.flatnonzero(~np.isfinite(matrix).all(1))[0])
            raise DataError(f"{graphs.title}: {graphs.names[node]} has a feature that is not finite.")
        x = torch.from_numpy(np.ascontiguousarray(matrix))
        if self.scaled != "rows":
            return x
        total = x.sum(1, keepdim=True)
        return torch.where(total == 0, x, x / total)  # a node without features keeps zeros


def _encode(table: Table | None, encoders: Sequence[Encoder], title: str, what: str) -> tuple[Tensor, list[str]]:
    """Encode the columns of nodes or edges (`what`) as (n, F), with notes on unknown categories."""
    absent = [e.name for e in encoders if table is None or e.name not in table.columns]
    if table is None or absent:
        raise DataMismatchError(
            f"The model was trained with columns that {title} lacks: {', '.join(map(repr, absent[:10]))}.",
            fix=f"Give {what} with the columns of training; a column may be empty, not absent.",
        )
    cells = {e.name: table.text(e.name) for e in encoders}
    if problems := bad_cells(table, cells, {e.name: e.type for e in encoders}):
        raise unreadable_cells(table, list(problems.values()), "Fix them; an empty cell counts as missing.")
    blocks = [e.encode(cells[e.name]) for e in encoders]
    for e, block in zip(encoders, blocks):
        if not np.isfinite(block).all():
            raise DataMismatchError(f"Column {e.name!r} holds a number too far from those of training for 32 bits.")
    counts = {e.name: e.unknown(cells[e.name]) for e in encoders if isinstance(e, Category)}
    notes = [unknown_note(column, count, table.title) for column, count in counts.items() if count]
    return torch.from_numpy(np.concatenate(blocks, axis=1)), notes


def fit_preprocessing(
    graphs: RawGraphs,
    target: specs.Simple | specs.Links,
    train: Rows,
    neighbours: tuple[int, ...],
    edges: Rows | None = None,
) -> tuple[GraphPreprocessing, list[str]]:
    """Fit the preprocessing on the nodes `train`, with notes on automatic choices.

    With `edges`, the rows of training edges, edge attributes are encoded too and fitted on those.
    """
    nodes, notes = _fit_nodes(graphs, target, train, neighbours)
    if edges is None or graphs.edge_table is None:
        return nodes, notes
    encoders, left = _fit_columns(graphs.edge_table, graphs.edge_table.columns, edges, "edges")
    wide = replace(nodes.spec, edge_features=sum(len(e.features) for e in encoders))
    return replace(nodes, spec=wide, edge_encoders=encoders), notes + left


def _fit_nodes(
    graphs: RawGraphs, target: specs.Simple | specs.Links, train: Rows, neighbours: tuple[int, ...]
) -> tuple[GraphPreprocessing, list[str]]:

    def fitted(form: str, width: int, encoders: tuple[Encoder, ...] = (), scaled: str = "") -> GraphPreprocessing:
        return GraphPreprocessing(GraphSpec(width, target, graphs.many), form, encoders, scaled, neighbours)

    if graphs.matrix is not None:
        notes = ["Each node's features are divided by their sum."] if graphs.scaled == "rows" else []
        return fitted("matrix", graphs.matrix.shape[1], scaled=graphs.scaled), notes
    encoders, notes = ((), []) if graphs.table is None else _fit_columns(graphs.table, graphs.columns, train, "nodes")
    if encoders:
        return fitted("columns", sum(len(e.features) for e in encoders), encoders), notes
    if not graphs.many and graphs.nodes <= MOST_NUMBERED:
        notes.append(
            "Nothing is known of the nodes: each has a feature of its own, so that the model is for this graph alone."
        )
        return replace(fitted("number", graphs.nodes), nodes=tuple(graphs.names)), notes
    degree = fit_encoder(DEGREE, NUMBER, _degrees(graphs).gather(train), "standard")
    assert degree is not None, "each node has a degree"
    notes.append("Nothing is known of the nodes but how many edges lead to each: that is their feature.")
    return fitted("degree", len(degree.features), (degree,)), notes


def labelled_examples(labels: Labels) -> Rows:
    """Return the examples that have a target. Raises DataError that names unreadable targets."""
    problems = labels.problems()
    missing = labels.cells.is_null().to_numpy()
    unreadable = [problem for i, problem in problems.items() if not missing[i]]
    if unreadable:
        raise DataError(
            f"{format_count(len(unreadable), 'target')} of {labels.table.title} cannot be read.",
            unreadable,
            "Fix them, or leave them empty.",
        )
    return np.flatnonzero(~missing)


def _fit_columns(table: Table, columns: Sequence[str], train: Rows, what: str) -> tuple[tuple[Encoder, ...], list[str]]:
    """Fit an encoder for each usable column, with notes on the others. `what` names the rows in notes."""
    encoders: list[Encoder] = []
    left: dict[str, list[str]] = {}
    for column in columns:
        cells = table.text(column)
        training = cells.gather(train)
        type = infer_type(column, training, len(table))
        encoder = None
        if type.learned:
            encoder = fit_encoder(column, type, training, "none" if _is_binary(training, type) else "standard")
        if encoder is None:
            left.setdefault(LEFT_OUT.get(type.kind, "no cell can be read"), []).append(column)
        else:
            encoders.append(encoder)
    notes = []
    for reason, columns in left.items():
        more = f" and {len(columns) - SHOWN:,} more" if len(columns) > SHOWN else ""
        plural = "s are" if len(columns) > 1 else " is"
        notes.append(f"The column{plural} left out: {', '.join(columns[:SHOWN])}{more} (of training {what}, {reason}).")
    return tuple(encoders), notes


def _is_binary(cells: pl.Series, type: ColumnType) -> bool:
    """Return whether the cells are binary (0 and 1 or yes and no) and stay 0 and 1, which keeps the features sparse."""
    if type.kind not in ("number", "yes/no"):
        return False
    values = decode(cells, type)
    return bool(np.isin(values[~np.isnan(values)], (0.0, 1.0)).all())


def _degrees(graphs: RawGraphs) -> pl.Series:
    return pl.Series(DEGREE, [str(degree) for degree in graphs.degrees()])
