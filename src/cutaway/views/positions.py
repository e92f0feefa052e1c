"""The position encodings of a model: tables, sinusoids, rotations, distances, linear biases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..draw import charts
from ..draw.description import Drawing, Table, View, table
from ..draw.number_format import count, number, plural
from ..models.base import as_base_model
from ..nn.position import RelativeBias, distance_buckets, rotary
from .attention_capture import capture_attention, single_example
from .json_values import evenly_spaced, thousandths, to_lists
from .model_layers import find_relative_biases, find_rotary_attention
from .subject import Subject

BEYOND = 3.0  # factor of the 99th percentile above which a value is an outlier
ROWS, COLUMNS = 64, 64  # most positions and numbers of a table that are shown
CURVE = 256  # most positions along a curve
PATCHES = 196  # most patches whose similarity is drawn
TILE_VALUES = 65_536  # most values of these drawings together
DISTANCE = 64  # tokens on either side


@dataclass(frozen=True)
class Positions:
    """A position table with a row for each position."""

    name: str
    rows: Tensor  # (places, dim)
    learned: bool
    grid: tuple[int, int] | None = None  # rows and columns of an image's patches
    total: int = 0  # number of positions, if fewer rows are given


def find_position_tables(subject: Subject) -> list[Positions]:
    """Return the model's position tables, learned or fixed; those of patches have a square grid."""
    tables = as_base_model(subject.model).position_tables(CURVE)
    weights = {name.removesuffix(".weight") for name, _ in subject.model.named_parameters()}
    grids = {name: (math.isqrt(len(rows)),) * 2 for name, rows in tables.items()}
    if subject.kind == "image" and subject.inputs[0].ndim == 2:  # image tokens: a position for each pixel
        tables = {name: rows[subject.config.caption :] for name, rows in tables.items()}
        rows, columns = subject.config.sides
        grids = dict.fromkeys(tables, (rows, columns))
    return [
        Positions(name, rows.detach(), name in weights, grids[name] if subject.kind == "image" else None)
        for name, rows in tables.items()
    ]


def draw_positions(subject: Subject) -> View:
    """Return all position encodings of this model."""
    drawings: list[Drawing] = []
    words: list[str] = []
    rows: list[list[Any]] = []
    for found in find_position_tables(subject):
        drawn, said, numbers = _table_drawings(found)
        drawings += drawn
        words.append(said)
        rows += numbers
    if find_relative_biases(subject.model):
        for name, bias in find_relative_biases(subject.model).items():
            drawn, said, numbers = _bias_drawings(name, bias)
            drawings += drawn
            words.append(said)
            rows += numbers
    slopes = as_base_model(subject.model).position_slopes()
    if slopes is not None:
        drawn, said, numbers = _slope_drawings(slopes)
        drawings += drawn
        words.append(said)
        rows += numbers
    if find_rotary_attention(subject.model):
        drawn, said, numbers = _rotation_drawings(subject)
        drawings += drawn
        words.append(said)
        rows += numbers
    if subject.preprocessing is None and any(found.learned for found in find_position_tables(subject)):
        words.append("Without training, a learned table is noise.")
    return View(
        id="positions",
        title="Positions",
        says="The position encoding of the model, and the similarity of positions under it.",
        summary=" ".join(words),
        table=_table(rows),
        drawings=drawings,
    )


def _table(rows: list[list[Any]]) -> Table:
    return table({"of": "text", "at": "text", "what": "text", "value": "number"}, rows)


def _table_drawings(found: Positions) -> tuple[list[Drawing], str, list[list[Any]]]:
    """Return the drawings of a position table, a sentence on it, and its rows of the table."""
    places, dim = found.rows.shape
    alike = _cosines(found.rows)
    beside = float(alike.diagonal(1).mean()) if places > 1 else 1.0
    far = float(alike[0, -1])
    kind = "learned" if found.learned else "fixed"
    said = (
        f"The {kind} table {found.name} has {plural(places, 'position')} of {plural(dim, 'dimension')}; the mean "
        f"cosine of neighbors is {number(beside)}, that of the first and last position {number(far)}."
    )
    if not found.learned:
        said = (
            f"Positions are encoded by {plural(dim, 'sinusoid')} without a maximum length; over the first "
            f"{count(places)} positions, the mean cosine of neighbors is {number(beside)}."
        )
    said += _outlier_note(found)
    numbers = [
        [found.name, _place(found, i), "cosine with the first position", float(alike[0, i])]
        for i in evenly_spaced(range(places), 32)
    ]
    if found.grid is not None:
        return [_patches(found, alike), _values(found)], said, numbers
    return [_values(found), _alike(found, alike), *_likeness(found, alike)], said, numbers


def _cosines(rows: Tensor) -> Tensor:
    unit = F.normalize(rows.double(), dim=1)
    return (unit @ unit.T).clamp(-1, 1)  # (places, places)


def _place(found: Positions, i: int) -> str:
    if found.grid is None:
        return f"place {i}"
    return f"row {i // found.grid[1]}, column {i % found.grid[1]}"


def _values(found: Positions) -> Drawing:
    """Return the table itself, with positions as rows and its numbers as columns."""
    places, dim = found.rows.shape
    rows, columns = list(range(min(places, ROWS))), list(range(dim))
    if dim > COLUMNS:  # pairs, to keep each sine with its cosine
        columns = [i for pair in evenly_spaced(range(dim // 2), COLUMNS // 2) for i in (2 * pair, 2 * pair + 1)]
    cut = [
        f"the first {len(rows)} of {count(places)} positions" if len(rows) < places else "",
        f"{len(columns)} of {count(dim)} dimensions" if len(columns) < dim else "",
    ]
    more = ", ".join(part for part in cut if part)
    shown = found.rows[rows][:, columns]
    end = _colour_limit(found.rows)
    bounds: dict[str, Any] = {} if end is None else {"low": -end, "high": end}
    return charts.matrix(
        f"{found.name.capitalize() if not found.learned else found.name}{': ' + more if more else ''}",
        to_lists(shown),
        ("place", [_place(found, i) if found.grid else str(i) for i in rows]),
        ("number", [str(i) for i in columns]),
        **bounds,
    )


def _colour_limit(values: Tensor) -> float | None:
    """Return the limit of the colour scale, three times the 99th percentile, or None if no value is larger.

    Without it, a few large values would make all others grey.
    """
    sizes = values.abs().flatten()
    end = BEYOND * float(np.quantile(sizes.float().numpy(), 0.99))
    return end if 0 < end < float(sizes.max()) else None


def _outlier_note(found: Positions) -> str:
    """Return a sentence on values far beyond the others, or an empty string."""
    end = _colour_limit(found.rows)
    if end is None:
        return ""
    beyond = int((found.rows.abs() > end).sum())
    place, column = divmod(int(found.rows.abs().argmax()), found.rows.shape[1])
    others = f" ({plural(beyond, 'value')} of the table exceed it)" if beyond > 1 else ""
    value = number(float(found.rows[place, column]))
    return (
        f" Dimension {count(column)} of {_place(found, place)} is an outlier, {value}: colors are clipped at "
        f"±{number(end)}{others}."
    )


def _alike(found: Positions, alike: Tensor) -> Drawing:
    which = evenly_spaced(range(len(alike)), ROWS)
    return charts.matrix(
        "Cosine similarity of positions",
        to_lists(alike[which][:, which]),
        ("place", [str(i) for i in which]),
        ("place", [str(i) for i in which]),
        low=-1,
        high=1,
    )


def _likeness(found: Positions, alike: Tensor) -> list[Drawing]:
    """Return the cosines of three positions with all others, as curves."""
    places = len(alike)
    if places < 3:
        return []
    which = evenly_spaced(range(places), CURVE)
    fixed = list(dict.fromkeys([0, places // 2, places - 1]))
    series = [{"name": f"place {p}", "points": [[i, to_lists(alike[p, i])] for i in which]} for p in fixed]
    return [charts.lines(f"Cosine similarity to selected positions, {found.name}", "position", series)]


def _patches(found: Positions, alike: Tensor) -> Drawing:
    """Return the cosines of each patch's position with all others: figure 7, middle, of Dosovitskiy et al. 2020."""
    assert found.grid is not None, "patches form a grid"
    rows, columns = found.grid
    side = math.isqrt(max(1, min(PATCHES, TILE_VALUES // (rows * columns))))
    which = [r * columns + c for r in evenly_spaced(range(rows), side) for c in evenly_spaced(range(columns), side)]
    return charts.tiles(
        "Cosine similarity of each patch position to all"
        + (f", {len(which)} of {count(len(alike))} patches" if len(which) < len(alike) else ""),
        [
            {
                "label": _place(found, i),
                "group": found.name,
                "values": thousandths(alike[i].reshape(rows, columns)),
                "tip": [f"the patch in {_place(found, i)}"],
            }
            for i in which
        ],
        range="global",
    )


def _bias_drawings(name: str, bias: RelativeBias) -> tuple[list[Drawing], str, list[list[Any]]]:
    """Return the bias of each head by the distance of key and query (Raffel et al. 2019, section 2.1)."""
    ahead = DISTANCE if bias.both else 0
    distances = torch.arange(-2 * DISTANCE if not bias.both else -DISTANCE, ahead + 1)
    buckets = distance_buckets(distances, bias.buckets, bias.furthest, both=bias.both)
    values = bias.table.weight.detach()[buckets]  # (distances, heads)
    heads = values.shape[1]
    series = [
        {
            "name": f"head {h}",
            "points": [[d, to_lists(v)] for d, v in zip(distances.tolist(), values[:, h])],
        }
        for h in range(heads)
    ]
    steep = int((values.max(0).values - values.min(0).values).argmax())
    span = float(values[:, steep].max() - values[:, steep].min())
    said = (
        f"{name} adds a learned bias for each of {bias.buckets} distance buckets to the scores of "
        f"{plural(heads, 'head')}; the bias of head {steep} varies most, by {number(span)} over {len(distances)} "
        "distances."
    )
    drawn = charts.lines(f"{name}: bias added to the score", "key − query, tokens", series)
    numbers = [
        [name, f"distance {distances[i]}", f"bias of head {h}", float(values[i, h])]
        for h in range(heads)
        for i in evenly_spaced(range(len(distances)), 9)
    ]
    return [drawn], said, numbers


def _slope_drawings(slopes: Tensor) -> tuple[list[Drawing], str, list[list[Any]]]:
    """Return the bias of each head by the distance of key and query, and the weight that it leaves (ALiBi)."""
    distances = range(-2 * DISTANCE, 1)
    bias = slopes.double()[:, None] * torch.tensor(distances)  # (heads, distances)
    drawn = [
        charts.lines(title, "key − query, tokens", [
            {"name": f"head {h}", "points": [[d, to_lists(v)] for d, v in zip(distances, values)]}
            for h, values in enumerate(shown)
        ])
        for title, shown in (
            ("ALiBi: bias added to the score", bias),
            ("ALiBi: factor of the attention weight, e^bias", bias.exp()),
        )
    ]  # fmt: skip
    halves = math.log(2) / slopes.double()  # tokens, (heads,)
    steep, flat = int(slopes.argmax()), int(slopes.argmin())
    said = (
        f"ALiBi subtracts slope · distance from the scores of {plural(len(slopes), 'head')}; the slopes are fixed. For "
        f"equal products of query and key, the weight of a key halves every {number(float(halves[steep]))} tokens in "
        f"head {steep}, and every {number(float(halves[flat]))} in head {flat}."
    )
    numbers = [["ALiBi", f"head {h}", "slope", float(slope)] for h, slope in enumerate(slopes)]
    numbers += [
        ["ALiBi", f"head {h}", "distance that halves the weight, tokens", float(d)] for h, d in enumerate(halves)
    ]
    return drawn, said, numbers


def _rotation_drawings(subject: Subject) -> tuple[list[Drawing], str, list[list[Any]]]:
    """Return the rotation of each pair of dimensions, and scores by distance."""
    name, module = next(iter(find_rotary_attention(subject.model).items()))
    d = module.key_dim
    rates = module.base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)  # radians a token, (d/2,)
    lengths = 2 * math.pi / rates
    context = int(getattr(subject.config, "context_length", CURVE))
    reach = min(context, CURVE)
    places = torch.arange(reach)
    pairs = evenly_spaced(range(d // 2), 4)
    turns = [
        {
            "name": f"pair {i}",
            "points": [[p, to_lists(torch.cos(p * rates[i]))] for p in range(min(reach, DISTANCE))],
        }
        for i in pairs
    ]
    ones = torch.ones(1, 1, 1, d, dtype=torch.float64) / math.sqrt(d)
    alike = _scores_by_distance(ones, ones, places, module.base)
    q, k = _real_pair(subject, name, module.base)
    real = _scores_by_distance(q, k, places, module.base) * module.scale
    series = [{"name": "", "split": "all", "points": [[p, to_lists(alike[p])] for p in places.tolist()]}]
    own = [{"name": "", "split": "all", "points": [[p, to_lists(real[p])] for p in places.tolist()]}]
    zero = next((p for p in places.tolist() if alike[p] < 0.5), None)
    fallen = f" falls below half at distance {zero}" if zero is not None else " stays above half"
    said = (
        f"Queries and keys of {plural(d, 'dimension')} a head are rotated in pairs: the period of the first pair is "
        f"{number(float(lengths[0]))} tokens, that of the last {number(float(lengths[-1]))}. The product of two "
        f"vectors of ones{fallen}. The real query and key are those of the last token in head 0 of {name}."
    )
    drawn = [
        charts.lines("Rotation of each pair: cosine of its angle", "position", turns),
        charts.lines("Product of two vectors of ones, by distance", "distance, tokens", series),
        charts.lines("Score of a real query and its key, by distance", "distance, tokens", own),
    ]
    wave = [[name, f"pair {i}", "period, tokens", float(length)] for i, length in enumerate(lengths)]
    apart = [[name, f"distance {p}", "product of ones", float(alike[p])] for p in evenly_spaced(range(reach), 17)]
    return drawn, said, [*wave, *apart]


def _scores_by_distance(q: Tensor, k: Tensor, places: Tensor, base: float) -> Tensor:
    """Return q · k for a key at each number of positions before the query, (places,).

    q and k are unrotated vectors (1, 1, 1, d).
    """
    keys = rotary(k.expand(1, 1, len(places), -1), -places, base)  # the query has position 0
    return (q * keys).sum(-1)[0, 0]


def _real_pair(subject: Subject, name: str, base: float) -> tuple[Tensor, Tensor]:
    """Return the unrotated query and key of the last token of the first example in head 0, (1, 1, 1, d) each."""
    found = capture_attention(
        subject.model,
        single_example(subject.inputs, 0),
        lambda look: (look.name, look.q[:1, -1:], look.k[:1, -1:], look.q.shape[1]),
    )
    _, q, k, length = next(entry for entry in found if entry[0] == name)
    back = -torch.arange(length - 1, length)
    return rotary(q[None].double(), back, base), rotary(k[None].double(), back, base)
