"""Link prediction data: which pairs of nodes are linked, with held-out and absent links.

A link is a pair of nodes a < b with an edge in either direction; both directions are in the same split. Only edges of
training links pass messages, in validation and test too, so that held-out links do not leak. The absent links of
validation and test are sampled once, among pairs that no split links. Those of training are resampled in every epoch
among the pairs that training links do not contain: excluding held-out links would reveal them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...core.errors import DataError, SettingError
from ...core.spec import Links
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet
from ..settings import DataSettings
from ..splits import Rows, complete_split
from ..tables.table_files import format_count
from .link_pairs import LinkSplit, Pairs, encode_pairs, links_from_edges, remove_links, sample_absent_links
from .raw import RawGraphs
from .transforms import SHOWN, GraphPreprocessing, OneGraph, fit_preprocessing


def link_dataset(graphs: RawGraphs, origin: DataSource, settings: DataSettings) -> DataSet:
    """Build the data set of a graph whose links are the examples. Raises DataError or SettingError."""
    _reject(graphs, settings)
    # Words of a document stay 0 and 1. Dividing them by their sum, as node classification does, slows learning and
    # lowers the AUC on Cora by one point.
    graphs = replace(graphs, scaled="")
    links, indices = _split(graphs, settings)
    nodes, every = graphs.nodes, links_from_edges(graphs.edges, graphs.nodes)
    held_out = ~np.isin(encode_pairs(every, nodes), encode_pairs(links["train"], nodes))
    taught = remove_links(graphs, every[held_out])
    preprocessing, notes = fit_preprocessing(taught, Links(), np.arange(nodes), settings.num_neighbors)
    splits = _splits(graphs, taught, links, preprocessing, settings.split_seed)
    loops = int((graphs.edges[0] == graphs.edges[1]).sum())
    summary = [
        f"{format_count(nodes, 'node')} and {format_count(len(every), 'link')}, each a pair of nodes whichever way its"
        f" edges lead. Messages travel along the {len(links['train']):,} links of training alone."
    ]
    if loops:
        summary.append(f"{format_count(loops, 'edge')} from a node to itself {'is' if loops == 1 else 'are'} no link.")
    if graphs.splits is not None:
        summary.append("The split of nodes that comes with the data is not used: links are split at random.")
    if graphs.edge_table is not None:
        summary.append(f"Attributes of edges are left out: {', '.join(graphs.edge_table.columns[:SHOWN])}.")
    return build_dataset(origin, settings, indices, preprocessing, splits, [*graphs.notes, *notes, *summary])


def _reject(graphs: RawGraphs, settings: DataSettings) -> None:
    """Raise SettingError for data or settings that do not support link prediction."""
    if graphs.many:
        raise SettingError(
            f"links=true predicts the edges of one graph, and {graphs.title} holds "
            f"{format_count(len(graphs.graph_names), 'graph')}: leave it out, or give one graph."
        )
    if settings.target is not None:
        raise SettingError(
            f"links=true predicts edges, and target={settings.target} a column of nodes: give one of them."
        )
    if settings.inductive:
        raise SettingError("inductive=true hides nodes, and links=true hides edges already: leave inductive out.")


def _split(graphs: RawGraphs, settings: DataSettings) -> tuple[dict[str, Pairs], dict[str, Rows]]:
    """Return the links of each split and their indices among all links. Raises DataError if there are too few."""
    links = links_from_edges(graphs.edges, graphs.nodes)
    if len(links) < 3:
        raise DataError(
            f"{graphs.title} has {format_count(len(links), 'edge')} between two nodes: too few to learn from some and"
            " to hold out others.",
            fix="Give a graph with more edges.",
        )
    if len(links) == graphs.nodes * (graphs.nodes - 1) // 2:
        raise DataError(
            f"In {graphs.title} every node is linked to every other: there is no absent link to tell links from.",
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
