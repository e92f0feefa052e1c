"""Attention by layer and head, from the whole map to the arithmetic of one query."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.spec import OF_TOKENS
from ..draw import charts
from ..draw.description import Drawing, Table, View, table
from ..draw.number_format import count, number, percent, plural
from ..models.base import as_base_model
from .attention_capture import (
    AttentionCapture,
    TokenPositions,
    capture_attention,
    num_heads_by_name,
    query_key_positions,
    single_example,
    token_positions,
)
from .json_values import downsample, evenly_spaced, image_url, tensor_url, thousandths, to_lists
from .subject import Subject, parse_choice, parse_index

KEYS, NUMBERS = 12, 8  # most keys, and most numbers of a vector, that are shown


def arithmetic(look: AttentionCapture, head: int, query: int, asks: str, keys: Sequence[str]) -> list[Drawing]:
    """Return the attention of the query at position `query` as equations.

    `asks` is the name of the query, `keys` are the names of the keys. Of more than 12 keys, the ones with the largest
    weights are shown, in their order; of vectors, the first 8 numbers. Products and sums are over all keys and numbers.
    """
    weights = look.weights(head)[query][: len(keys)]  # (S,)
    shown = _largest(weights, KEYS)
    labels = [keys[i] for i in shown.tolist()]
    d = min(look.q.shape[-1], NUMBERS)
    result = look.weights(head)[query] @ look.v[head]  # (d_v,)
    said = _hidden_note(look, weights, shown, len(keys))
    first = _additive if look.compared is not None else _products
    return [
        *first(look, head, query, asks, shown, labels, d),
        _equation(
            "Softmax: weights that sum to 1",
            [
                _part("scores", _row(_scores(look, head, query)[shown]), rows=[asks], columns=labels),
                "softmax",
                _part("weights", _row(weights[shown]), rows=[asks], columns=labels, scale="amount", note=said),
            ],
        ),
        _equation(
            "Output: the weighted sum of the values",
            [
                _part("weights", _row(weights[shown]), rows=[asks], columns=labels, scale="amount"),
                "·",
                _part(
                    "V",
                    look.v[head][shown, :d],
                    rows=labels,
                    columns=_numbers(d),
                    note=_width_note(look.v.shape[-1], "values"),
                ),
                "=",
                _part(
                    "result",
                    _row(result[:d]),
                    rows=[asks],
                    columns=_numbers(d),
                    note="of all keys" if len(keys) > len(shown) else None,
                ),
            ],
        ),
    ]


def _products(
    look: AttentionCapture, head: int, query: int, asks: str, shown: Tensor, labels: list[str], d: int
) -> list[Drawing]:
    """Return q Kᵀ, then scale and mask applied to it."""
    q, k = look.q[head][query], look.k[head]  # (d,), (S, d)
    products = look.products(head)[query][shown]  # (S,)
    turned = ", rotated by position" if getattr(look.module, "rotates", False) else ""
    found = [
        _equation(
            "Dot product of the query with each key",
            [
                _part(
                    "q",
                    _row(q[:d]),
                    rows=[asks],
                    columns=_numbers(d),
                    note=_width_note(look.q.shape[-1], f"numbers{turned}"),
                ),
                "·",
                _part("Kᵀ", k[shown, :d].T, rows=_numbers(d), columns=labels),
                "=",
                _part("q Kᵀ", _row(products), rows=[asks], columns=labels, note=_sum_note(look.q.shape[-1], d)),
            ],
        )
    ]
    mask = look.attention_mask(head)
    scaled = products * look.scale
    usual = math.isclose(look.scale, 1 / math.sqrt(look.q.shape[-1]))
    name = f"q Kᵀ / √{look.q.shape[-1]}" if usual else f"{number(look.scale)} · q Kᵀ"
    steps: list[Any] = [_part("q Kᵀ", _row(products), rows=[asks], columns=labels), "·"]
    steps.append(_part("1 / √d" if usual else "scale", torch.tensor([[look.scale]]), scale="amount"))
    steps += ["=", _part(name, _row(scaled), rows=[asks], columns=labels)]
    if look.scale == 1.0:
        steps = [_part("q Kᵀ", _row(scaled), rows=[asks], columns=labels, note="not scaled: the queries are small")]
    if mask is None or not bool(_additive_mask(mask)[query].any()):  # the mask hides nothing from this query
        return [*found, _equation("Divided by √d: the scores", steps)] if look.scale != 1.0 else found
    added = _additive_mask(mask)[query][shown]
    words = "mask" if mask.dtype == torch.bool else "bias"
    hidden = "empty: −∞, masked" if bool(added.isinf().any()) else None
    start = _part(name if look.scale != 1.0 else "q Kᵀ", _row(scaled), rows=[asks], columns=labels)
    sums: list[Any] = [
        start,
        "+",
        _part(words, _row(added), rows=[asks], columns=labels, note=hidden),
        "=",
        _part("scores", _row(scaled + added), rows=[asks], columns=labels),
    ]
    if look.scale != 1.0:
        found.append(_equation("Divided by √d", steps))
    return [*found, _equation(f"With the {words}: the scores", sums)]


def _additive(
    look: AttentionCapture, head: int, query: int, asks: str, shown: Tensor, labels: list[str], d: int
) -> list[Drawing]:
    """Return vᵀ tanh(W s + U h): a small network compares state and source (Bahdanau et al. 2014)."""
    assert look.compared is not None, "the score is additive"
    q, k = look.q[head][query], look.k[head][shown]  # (d,), (S, d)
    width = look.q.shape[-1]
    return [
        _equation(
            "State and source",
            [
                _part("W s", _row(q[:d]), rows=[asks], columns=_numbers(d), note=_width_note(width, "numbers")),
                "+",
                _part("U h", k[:, :d], rows=labels, columns=_numbers(d), note="the state is added to each row"),
            ],
        ),
        _equation(
            "Scores of the source positions",
            [
                _part("tanh(W s + U h)", torch.tanh(q + k)[:, :d], rows=labels, columns=_numbers(d)),
                "·",
                _part("v", look.compared[:d, None], rows=_numbers(d), columns=["v"]),
                "=",
                _part(
                    "scores",
                    _scores(look, head, query)[shown][:, None],
                    rows=labels,
                    columns=[asks],
                    note=_sum_note(width, d),
                ),
            ],
        ),
    ]


def _scores(look: AttentionCapture, head: int, query: int) -> Tensor:
    """Return the scores that enter the softmax, (S,): −∞ for masked keys."""
    scaled = look.products(head)[query] * look.scale
    mask = look.attention_mask(head)
    return scaled if mask is None else scaled + _additive_mask(mask)[query]


def _additive_mask(mask: Tensor) -> Tensor:
    """Return a boolean mask as a term added to the scores: 0 or −∞."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)


def _largest(weights: Tensor, most: int) -> Tensor:
    """Return the indices of the `most` largest weights, in ascending order."""
    if len(weights) <= most:
        return torch.arange(len(weights))
    return torch.sort(weights.topk(most).indices).values


def _hidden_note(look: AttentionCapture, weights: Tensor, shown: Tensor, keys: int) -> str | None:
    """Return a note on the keys that are not shown, or None."""
    if len(shown) == keys:
        return None
    return f"{len(shown)} of {plural(keys, 'key')}, with {percent(float(weights[shown].sum()))} of the total weight"


def _width_note(width: int, what: str) -> str | None:
    return f"{NUMBERS} of {count(width)} {what}" if width > NUMBERS else (what if "rotated" in what else None)


def _sum_note(width: int, shown: int) -> str | None:
    return f"of all {count(width)} numbers" if width > shown else None


def _numbers(d: int) -> list[str]:
    return [str(i) for i in range(d)]


def _row(x: Tensor) -> Tensor:
    return x[None]  # (1, n)


def _part(
    name: str,
    values: Tensor,
    rows: list[str] | None = None,
    columns: list[str] | None = None,
    scale: str = "signed",
    note: str | None = None,
) -> dict[str, Any]:
    part: dict[str, Any] = {"name": name, "values": to_lists(values), "scale": scale}
    return part | {k: v for k, v in (("rows", rows), ("columns", columns), ("note", note)) if v is not None}


def _equation(title: str, parts: list[Any]) -> Drawing:
    return {"kind": "equation", "title": title, "parts": parts}


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
    mask = look.attention_mask(0)
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


# Units of attention distance; for a video, within a frame.
UNITS = {"image": "pixels", "video": "pixels", "series": "patches", "audio": "places"} | dict.fromkeys(
    OF_TOKENS, "tokens"
)
FRAMES = "frames"  # unit of distance for attention over time
PLACES = {
    "pixels": "position in the image",
    "patches": "patch of the series",
    "steps": "step of the series",
    "places": "position in time",
}

LAYERS = 12  # most layers that are drawn


@dataclass(frozen=True)
class AttentionSummary:
    """Statistics and drawings of one attention layer."""

    name: str
    over: str  # name of the keys that it attends to
    unit: str  # unit of distance
    keys: int
    heads: list[Head]
    drawings: list[Drawing] | None  # None for layers that are not drawn


def draw_attention(subject: Subject) -> View:
    """Return the attention in one example.

    Raises:
        UnknownName: If a named option has an unknown value.
        SettingError: If an option is invalid.
    """
    i = parse_index(subject.options, "example", 0, len(subject.inputs[0]))
    both = token_positions(subject, i)
    known = num_heads_by_name(subject.model)
    names = list(known)
    wanted = parse_choice(subject.options, "layer", names, "layer with attention")
    shown = evenly_spaced(names, LAYERS)
    if wanted is not None and wanted not in shown:
        shown = sorted([*shown[1:], wanted], key=names.index)
    head = parse_index(subject.options, "head", 0, max(known.values()))
    longest = max(len(side.labels) for side in both)
    asked = parse_index(subject.options, "query", 0, longest) if "query" in subject.options else None

    patches = as_base_model(subject.model).series_patches()
    variables = patches.variables if patches else 1
    variable = parse_index(subject.options, "variable", 0, variables)
    frame, patch = _frame_and_patch(subject, both) if subject.kind == "video" else (None, 0)
    image = image_for(subject, i, len(shown), frame) if both[0].grid is not None else None
    unit, said = UNITS[subject.kind], subject.name(i)
    if patches and all(first == last for first, last in patches.spans):
        unit = "steps"

    def see(look: AttentionCapture) -> AttentionSummary:
        layer = summarize_layer(look, both)
        over = "the source" if look.cross_attends else "earlier positions" if look.causal else "itself"
        if subject.kind == "video":
            over = f"patch {patch} in all frames" if look.over_frames else f"frame {frame}"
        drawn = layer_drawings(layer, head, asked, len(shown), image) if look.name in shown else None
        apart = FRAMES if look.over_frames else unit
        if subject.kind == "audio" and layer.keys is both[1]:
            apart = "tokens"
        return AttentionSummary(look.name, over, apart, len(layer.keys.labels), layer.heads, drawn)

    def row(name: str) -> int:
        if frame is None:
            return variable
        return patch if as_base_model(subject.model).is_temporal_attention(name) else frame

    found = capture_attention(subject.model, single_example(subject.inputs, i), see, row)
    if variables > 1:
        said += f", variable {variable}"
    if frame is not None:
        said += f", frame {frame} and {both[0].labels[both[0].before + patch]} over time"
    options = [{"name": one.name, "drawings": one.drawings} for one in found if one.drawings is not None]
    start = next((k for k, option in enumerate(options) if option["name"] == wanted), 0)
    return View(
        id="attention",
        title="Attention",
        says=(
            f"Attention weights between each {PLACES.get(unit, 'token')} and every other, by layer and head; "
            "point at one to see where it attends. The arithmetic of one query is below."
        ),
        summary=_summary(said, found, shown),
        table=_statistics_table(found),
        drawings=[
            *_depth_charts(found),
            charts.choice(f"In {said}", "layer", options, start=start),
        ],
    )


def _frame_and_patch(subject: Subject, both: tuple[TokenPositions, TokenPositions]) -> tuple[int, int]:
    """Return the frame and the patch of a video to show: the selected ones, or those in the middle."""
    patches, frames = both
    rows, columns = patches.grid or (1, 1)
    frame = parse_index(subject.options, "frame", len(frames.labels) // 2, len(frames.labels))
    patch = parse_index(subject.options, "patch", rows // 2 * columns + columns // 2, rows * columns)
    return int(frames.real[frame]), patch


def _units(found: list[AttentionSummary]) -> list[str]:
    """Return the units in which distances are measured; a video has two."""
    return list(dict.fromkeys(one.unit for one in found))


def _summary(name: str, found: list[AttentionSummary], shown: list[str]) -> str:
    """Return a summary of the sharpest, broadest, nearest and furthest heads, and of the layers left out."""
    heads = [(one, h, head) for one in found for h, head in enumerate(one.heads)]
    words = [f"In {name}: {plural(len(found), 'layer')} with {plural(len(heads), 'attention head')}."]
    sharp = min(heads, key=lambda entry: entry[2].entropy)
    broad = max(heads, key=lambda entry: entry[2].entropy)
    if len(heads) > 1:
        words.append(
            f"The sharpest is head {sharp[1]} of {sharp[0].name}, {number(sharp[2].entropy)} bits; the broadest is "
            f"head {broad[1]} of {broad[0].name}, {number(broad[2].entropy)} bits over {plural(broad[0].keys, 'key')}."
        )
    else:
        words.append(f"Its entropy is {number(sharp[2].entropy)} bits over {plural(sharp[0].keys, 'key')}.")
    for unit in _units(found):
        placed = [(one, h, head.distance) for one, h, head in heads if head.distance is not None and one.unit == unit]
        if len(placed) > 1:
            near, far = min(placed, key=lambda entry: entry[2]), max(placed, key=lambda entry: entry[2])
            words.append(
                f"Head {near[1]} of {near[0].name} has the smallest mean distance, {number(near[2])} {unit}; "
                f"head {far[1]} of {far[0].name} the largest, {number(far[2])}."
            )
    if len(shown) < len(found):
        words.append(f"{len(shown)} of {len(found)} layers are shown; layer= selects another. The table has all.")
    return " ".join(words)


def _statistics_table(found: list[AttentionSummary]) -> Table:
    """Return a table of the statistics of each head."""
    columns = {
        "layer": "text",
        "head": "count",
        "looks over": "text",
        "entropy, bits": "number",
        "of at most": "number",
        f"mean distance, {' or '.join(_units(found))}": "number",
        "on itself": "fraction",
        "on the first": "fraction",
    }
    rows = [
        [one.name, h, one.over, head.entropy, head.most, head.distance, head.own, head.first]
        for one in found
        for h, head in enumerate(one.heads)
    ]
    return table(columns, rows)


def _depth_charts(found: list[AttentionSummary]) -> list[Drawing]:
    """Return mean distance and entropy of each head by depth, as in figure 7 of Dosovitskiy et al. 2020."""
    if len(found) < 2:
        return []
    drawn = []
    for unit in _units(found):
        looks = [one for one in found if one.heads[0].distance is not None and one.unit == unit]
        if len(looks) > 1:
            drawn.append(_curves(f"Mean attention distance, {unit}", looks, lambda head: head.distance))
    return [*drawn, _curves("Attention entropy, bits", found, lambda head: head.entropy)]


def _curves(title: str, looks: list[AttentionSummary], measure: Callable[[Head], float | None]) -> Drawing:
    """Return the minimum, mean and maximum over a layer's heads, by the layer's number."""

    def curve(put: Callable[[list[float]], float]) -> list[list[float]]:
        return [[k, put([float(measure(head) or 0) for head in one.heads])] for k, one in enumerate(looks)]

    several = any(len(one.heads) > 1 for one in looks)
    named = [("mean", lambda values: sum(values) / len(values))]
    named = [("most", max), *named, ("least", min)] if several else named
    only = {} if several else {"split": "all"}
    series = [{"name": name if several else "", **only, "points": curve(put)} for name, put in named]
    return charts.lines(title, "layer, in order", series)
