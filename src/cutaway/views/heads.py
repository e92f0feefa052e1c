"""Drawings of attention: all heads of a layer as small maps, some heads in full, and attention maps on an image."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..draw import charts
from ..draw.description import Drawing
from ..draw.number_format import count, number, plural
from .attention_arithmetic import arithmetic
from .attention_capture import AttentionCapture
from .json_values import downsample, image_url, tensor_url, thousandths
from .subject import Subject
from .token_labels import TokenPositions, query_key_positions

TILES, MAPS = 50_000, 130_000  # most numbers in the small maps and in the full maps of all layers
IMAGES = 600_000  # most characters of images
LONG, WIDE = 128, 40  # most tokens that are shown, as text and as a matrix
QUERIES = 5  # most patches whose attention is drawn


@dataclass(frozen=True)
class Head:
    """Statistics of one head, averaged over the queries."""

    entropy: float  # bits
    most: float  # largest possible entropy in bits: uniform over the visible keys
    distance: float | None  # mean attention distance in tokens or pixels; None across two texts
    own: float | None  # weight on the query's own position
    first: float  # weight on the first key


@dataclass(frozen=True)
class AttentionLayer:
    """One attention record without padding, with the statistics of its heads."""

    look: AttentionCapture
    queries: TokenPositions
    keys: TokenPositions
    heads: list[Head]


@dataclass(frozen=True)
class DrawingLimits:
    """The sizes at which one layer is drawn."""

    tile: int  # pixels of a small map's side
    heads: int  # heads that are drawn in full
    long: int  # tokens in words
    wide: int  # tokens in a matrix


def summarize_layer(look: AttentionCapture, both: tuple[TokenPositions, TokenPositions]) -> AttentionLayer:
    """Return the record without padding, with the statistics of its heads."""
    queries, keys = query_key_positions(look, both)
    t, s = queries.real, keys.real
    mask = None if look.mask is None else look.mask[:, t][:, :, s]
    bare = dataclasses.replace(look, q=look.q[:, t], k=look.k[:, s], v=look.v[:, s], mask=mask, output=look.output[t])
    distances = None if look.cross_attends else queries.distances()
    visible = _visible(bare)
    heads = [_head(bare.weights(h), distances, visible) for h in range(bare.heads)]
    return AttentionLayer(bare, queries, keys, heads)


def _visible(look: AttentionCapture) -> float:
    """Return the entropy in bits of uniform attention over the visible keys, averaged over the queries."""
    mask = look.mask_of(0)
    if mask is None:
        return math.log2(look.k.shape[1])
    seen = mask if mask.dtype == torch.bool else ~mask.isneginf()
    return float(seen.sum(1).clamp(min=1).double().log2().mean())


def _head(weights: Tensor, distances: Tensor | None, most: float) -> Head:
    """Return the statistics of weights (T, S), averaged over the queries; `distances` (T, S) may be None."""
    bits = -(weights * weights.clamp(min=torch.finfo(weights.dtype).tiny).log2()).sum(1)  # (T,)
    distance = None
    if distances is not None:
        placed = ~distances.isnan()
        seen = weights * placed
        near = (seen * distances.nan_to_num().to(weights)).sum(1) / seen.sum(1).clamp(min=1e-12)
        rows = placed.any(1)
        distance = float(near[rows].mean()) if bool(rows.any()) else None
    own = float(weights.diagonal().mean()) if distances is not None else None
    return Head(float(bits.mean()), most, distance, own, float(weights[:, 0].mean()))


def layer_drawings(
    layer: AttentionLayer, head: int, asked: int | None, layers: int, image: str | None
) -> list[Drawing]:
    """Return all heads of a layer as small maps, then some in full, each with the arithmetic of one query."""
    look = layer.look
    room = _room(len(layer.queries.labels), len(layer.keys.labels), look.heads, layers)
    last = len(layer.queries.labels) - 1
    # The default query is the class token of an image, and the last token of a text.
    usual = 0 if layer.queries.grid is not None else last
    query = usual if asked is None else min(asked, last)
    first = min(head, look.heads - 1)
    whole_heads = sorted({first, *[h for h in range(look.heads) if h != first][: room.heads - 1]})
    maps = [look.weights(h) for h in range(look.heads)]
    small = charts.tiles(
        f"All {plural(look.heads, 'head')}" if look.heads > 1 else "The head",
        [
            {
                "label": f"head {h}",
                "group": look.name,
                "values": thousandths(downsample(maps[h][None], room.tile)[0]),
                "tip": _tip(layer, h),
            }
            for h in range(look.heads)
        ],
        scale="amount",
    )
    options = [{"name": f"head {h}", "drawings": _full_head(layer, h, maps[h], query, room)} for h in whole_heads]
    missing = (
        f", {len(whole_heads)} of {look.heads} shown: head= selects another" if len(whole_heads) < look.heads else ""
    )
    chosen_head = charts.choice(f"One head{missing}", "head", options, start=whole_heads.index(first))
    seen = _overlays(layer, maps, asked, layers, image) if layer.queries.grid is not None else []
    return [*seen, small, chosen_head]


def _room(queries: int, keys: int, heads: int, layers: int) -> DrawingLimits:
    tile = max(6, min(32, math.isqrt(TILES // (layers * heads))))
    long = min(LONG, math.isqrt(MAPS // layers))
    t, s = min(queries, long), min(keys, long)
    wide = min(WIDE, long)
    each = t * s + min(t, wide) * min(s, wide) + 1000
    return DrawingLimits(tile, max(1, min(heads, MAPS // (layers * each))), long, wide)


def _full_head(layer: AttentionLayer, h: int, weights: Tensor, query: int, room: DrawingLimits) -> list[Drawing]:
    """Return one head: its tokens, its matrix, and the arithmetic of the query."""
    look, queries, keys = layer.look, layer.queries, layer.keys
    found: list[Drawing] = []
    t, s = _window(len(queries.labels), room.long, query), _window(len(keys.labels), room.long, query)
    if look.cross_attends:
        s = slice(0, room.long)
    if queries.grid is None:
        items = [_item("source" if look.cross_attends else "", keys.labels[s])]
        items += [_item("target", queries.labels[t])] if look.cross_attends else []
        found.append(
            {
                "kind": "tokens",
                "title": f"Attention of each {'frame' if look.over_frames else 'token'}"
                + _range_note(t, len(queries.labels)),
                "scale": "amount",
                "items": items,
                "weights": thousandths(weights[t, s]),
                "query": query - t.start,
            }
        )
    if queries.grid is None or len(queries.labels) <= room.wide + 10:
        wide = room.wide if queries.grid is None else room.wide + 10
        t, s = _window(len(queries.labels), wide, query), _window(len(keys.labels), wide, query)
        if look.cross_attends:
            s = slice(0, wide)
        found.append(
            charts.matrix(
                "Weights" + _range_note(t, len(queries.labels)),
                thousandths(weights[t, s]),
                ("query", queries.labels[t]),
                ("key", keys.labels[s]),
                scale="amount",
                format="fraction",
                low=0,
            )
        )
    return [*found, *arithmetic(look, h, query, queries.labels[query], keys.labels)]


def _overlays(
    layer: AttentionLayer, maps: list[Tensor], asked: int | None, layers: int, image: str | None
) -> list[Drawing]:
    """Return the attention of some patches over the image, one map for each head."""
    side = layer.queries
    assert side.grid is not None, "patches have positions"
    rows, columns = side.grid
    before, patches = side.before, rows * columns
    room = max(1, min(QUERIES, MAPS // (2 * layers * len(maps) * patches)))
    corners = [(rows // 2, columns // 2), (rows // 4, columns // 4), (rows // 4, 3 * columns // 4)]
    corners += [(3 * rows // 4, columns // 4), (3 * rows // 4, 3 * columns // 4)]
    first = [asked] if asked is not None else list(range(before))
    queries = list(dict.fromkeys([*first, *(before + r * columns + c for r, c in corners)]))[:room]
    options: list[dict[str, Any]] = [
        {
            "name": _position_name(side, q),
            "drawings": [
                charts.overlay(
                    f"Attention of {_position_name(side, q)}",
                    [
                        {
                            "label": f"head {h}",
                            "image": None,
                            "values": thousandths(weights[q, before:].reshape(rows, columns)),
                            "tip": [f"head {h}", *_tip(layer, h)],
                            "warning": None,
                        }
                        for h, weights in enumerate(maps)
                    ],
                    scale="amount",
                    opacity=0.6,
                    image=image,
                )
            ],
        }
        for q in queries
    ]
    if len(options) == 1:
        return list(options[0]["drawings"])
    return [charts.choice("", "from", options)]


def image_for(subject: Subject, i: int, layers: int, frame: int | None = None) -> str:
    """Return the example, or a `frame` of a video, as an image small enough to repeat for the queries of all layers."""
    most = IMAGES // (layers * QUERIES)
    given, x = subject.image(i) if frame is None else None, subject.inputs[0][i]
    x = x if frame is None else x[frame]
    url = ""
    for side in (224, 160, 112, 80, 56, 40):
        url = tensor_url(downsample(x, side)) if given is None else image_url(given, side)
        if len(url) <= most:
            break
    return url


def _position_name(side: TokenPositions, q: int) -> str:
    """Return the name of a position of an image."""
    if side.grid is None or q < side.before:
        return f"the {side.labels[q]}"
    row, column = divmod(q - side.before, side.grid[1])
    return f"the patch in row {row}, column {column}"


def _window(length: int, most: int, query: int) -> slice:
    """Return the positions to show: all, or at most `most` that include the query."""
    if length <= most:
        return slice(0, length)
    end = max(most, query + 1)
    return slice(end - most, end)


def _range_note(shown: slice, length: int) -> str:
    many = shown.stop - shown.start
    return "" if many >= length else f", positions {shown.start} to {shown.stop - 1} of {count(length)}"


def _item(label: str, tokens: Sequence[str]) -> dict[str, Any]:
    return {"label": label, "tokens": list(tokens), "values": [], "warning": None}


def _tip(layer: AttentionLayer, h: int) -> list[str]:
    head = layer.heads[h]
    unit = "pixels" if layer.queries.grid is not None else "frames" if layer.look.over_frames else "tokens"
    said = [f"entropy {number(head.entropy)} bits"]
    if head.distance is not None:
        said.append(f"mean distance {number(head.distance)} {unit}")
    return said
