"""Drawings of attributions: over an image, over words, next to column names, along time, over nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.spec import OF_TOKENS
from ..draw import charts
from ..draw.description import Drawing
from ..draw.number_format import count, number, plural
from ..inspect.attribution import Attribution
from .common import evenly_spaced, graph_index, node_labels
from .graph import layout_nodes
from .json_values import downsample, image_url, tensor_url, to_lists
from .subject import Subject

NAMES = {
    "gradient": "gradient",
    "input_x_gradient": "input × gradient",
    "integrated_gradients": "integrated gradients",
    "gradient_shap": "GradientShap",
    "kernel_shap": "KernelShap",
    "occlusion": "occlusion",
    "edges": "edge removal",
    "grad_cam": "Grad-CAM",
    "rollout": "attention rollout",
}
PIXELS = 64  # most pixels per side of a map
ROWS = 24  # most columns, nodes or edges
MAX_NODES = 80  # most nodes of a graph that is drawn
COUNTING = (-0.5, -0.1, 0.1, 0.5)  # fractions of the largest attribution that separate the colours
TOKENS = 400  # most tokens of a text
STEPS = 240  # most steps of a series
VARIABLES = 40  # most variables of a series
FRAMES = 6  # most frames of a video
UNSIGNED = ("grad_cam", "rollout")


def attribution_drawings(subject: Subject, i: int, found: Sequence[Attribution]) -> list[Drawing]:
    """Return the attribution maps of one example, drawn according to the kind of data."""
    draw = {"image": _over_image, "video": _over_frames, "series": _along_time, "graph": _over_nodes}
    if found[0].kind in OF_TOKENS:
        return [_over_words(subject, i, one) for one in found]
    if found[0].kind == "table":
        return [_beside_columns(subject, found)]
    return draw[found[0].kind](subject, i, found)


def check_warning(result: Attribution) -> str | None:
    """Return a warning that fits on an image, or None if all checks passed."""
    failed = [type(check).__name__ for check in result.checks if check.passed is False]
    words = {"Completeness": "does not sum to the output", "Randomisation": "the same with random weights"}
    return f"Fails a check: {' and '.join(words[name] for name in failed)}" if failed else None


def _scale(found: Sequence[Attribution]) -> str:
    return "amount" if all(one.method in UNSIGNED for one in found) else "signed"


# --- images ------------------------------------------------------------------------------------------------------


def _over_image(subject: Subject, i: int, found: Sequence[Attribution]) -> list[Drawing]:
    own = subject.image(i)
    image = image_url(own) if own is not None else tensor_url(subject.inputs[0][i])
    items = [
        {
            "label": NAMES[one.method],
            "image": None,
            "values": to_lists(downsample(one.values, PIXELS)[0]),
            "tip": [_titled(one)],
            "warning": check_warning(one),
        }
        for one in found
    ]
    title = f"Attribution over {subject.name(i)}"
    drawing = charts.overlay(title, items, scale=_scale(found))
    return [drawing | {"image": image}]


def _over_frames(subject: Subject, i: int, found: Sequence[Attribution]) -> list[Drawing]:
    frames = subject.inputs[0][i]  # (T, C, H, W)
    mask = subject.inputs[1] if len(subject.inputs) > 1 else None
    real = int(mask[i].sum()) if mask is not None else len(frames)
    places = sorted({round(k * (real - 1) / max(1, FRAMES - 1)) for k in range(FRAMES)})
    drawings: list[Drawing] = []
    for one in found:
        maps = downsample(one.values, PIXELS)[0]
        items = [
            {
                "label": f"frame {t + 1} of {real}",
                "image": tensor_url(frames[t]),
                "values": to_lists(maps[t]),
                "tip": [_titled(one), f"frame {t + 1}"],
                "warning": check_warning(one) if t == 0 else None,
            }
            for t in places
        ]
        drawings.append(charts.overlay(_titled(one), items, scale=_scale([one])))
    return drawings


def _titled(one: Attribution) -> str:
    name = NAMES[one.method]
    name = name[0].upper() + name[1:]
    return f"{name} of {one.layer}" if one.layer else name


# --- words ---------------------------------------------------------------------------------------------------------


def _over_words(subject: Subject, i: int, one: Attribution) -> Drawing:
    sides = [("source" if one.beside is not None else "", subject.tokens(i), one.values[0])]
    if one.beside is not None:
        sides.append(("target so far", subject.tokens(i, 1), one.beside[0]))
    items: list[dict[str, Any]] = []
    for label, tokens, values in sides:
        tokens = tokens[: len(values)]
        first = _first_token(one, len(tokens))
        shown = tokens[first : first + TOKENS]
        said = f"{label}: {count(len(shown))} of {plural(len(tokens), 'token')}" if len(shown) < len(tokens) else label
        warning = check_warning(one) if not items else None
        part = to_lists(values[first : first + len(shown)])
        items.append({"label": said.lstrip(": "), "tokens": shown, "values": part, "warning": warning})
    signed = "amount" if one.method in (*UNSIGNED, "gradient") else "signed"
    return {"kind": "tokens", "title": _titled(one), "scale": signed, "items": items, "range": "global"}


def _first_token(one: Attribution, length: int) -> int:
    """Return the start of the shown part of a long text; it ends after the explained position."""
    place = int(one.target.place[0]) if one.target.place is not None and one.beside is None else 0
    return max(0, min(place + 1, length) - TOKENS)


# --- columns, steps, nodes ------------------------------------------------------------------------------------------


def column_names(subject: Subject, features: int) -> list[str]:
    """Return the names of a table's columns."""
    known = list(getattr(subject.spec, "columns", ()))
    return known if len(known) == features else [f"column {k + 1}" for k in range(features)]


def _beside_columns(subject: Subject, found: Sequence[Attribution]) -> Drawing:
    names = column_names(subject, found[0].values.shape[1])
    values = [one.values[0] for one in found]
    order = values[0].abs().argsort(descending=True, stable=True)[:ROWS].tolist()
    title = "Attribution by column"
    if len(order) < len(names):
        title += f": the first {len(order)} of {count(len(names))}"
    return _rows(title, [(names[k], "", [float(v[k]) for v in values]) for k in order], found)


def _rows(title: str, rows: list[tuple[str, str, list[float]]], found: Sequence[Attribution]) -> Drawing:
    heads = [NAMES[one.method] + (" · fails a check" if not one.passed else "") for one in found]
    columns = [{"name": head, "format": "number", "mark": "signed"} for head in heads]
    given = [
        {
            "label": label,
            "note": note,
            "cells": [{"value": float(f"{v:.4g}")} for v in values],
            "tip": [label, *(f"{head}: {number(v)}" for head, v in zip(heads, values))],
        }
        for label, note, values in rows
    ]
    return charts.rows(title, columns, given)


def _along_time(subject: Subject, i: int, found: Sequence[Attribution]) -> list[Drawing]:
    x = subject.inputs[0][i]  # (T, F)
    real = _frames(subject, i)
    x = x[:real]
    steps = evenly_spaced(range(real), STEPS)
    drawings: list[Drawing] = []
    if x.shape[1] <= 6:
        series = [
            {"name": name, "points": [[t, v] for t, v in zip(steps, to_lists(x[steps, f]))]}
            for f, name in enumerate(_variables(subject, x.shape[1]))
        ]
        drawings.append(charts.lines(f"Input: {subject.name(i)}", "step", series, zero=False))
    if x.shape[1] == 1:  # one curve for each method, scaled by its largest value
        curves = [one.values[0, :real, 0] / one.values[0, :real].abs().max().clamp(min=1e-12) for one in found]
        names = [NAMES[one.method] + (" · fails a check" if not one.passed else "") for one in found]
        series = [
            {"name": name, "points": [[t, v] for t, v in zip(steps, to_lists(curve[steps]))]}
            for name, curve in zip(names, curves)
        ]
        return [*drawings, charts.lines("Attribution by step, relative to the maximum of each method", "step", series)]
    variables = _variables(subject, x.shape[1])
    kept = evenly_spaced(range(len(variables)), VARIABLES)
    for one in found:
        title = _titled(one) + ("" if one.passed else " · fails a check")
        values = to_lists(one.values[0, :real][steps][:, kept].T)  # (F, T)
        named = [variables[f] for f in kept]
        drawings.append(charts.matrix(title, values, ("variable", named), ("step", [str(t) for t in steps])))
    return drawings


def _frames(subject: Subject, i: int) -> int:
    """Return the number of steps without padding."""
    mask = subject.inputs[1] if len(subject.inputs) > 1 else None
    return int(mask[i].sum()) if mask is not None and mask.dtype == torch.bool else subject.inputs[0].shape[1]


def _variables(subject: Subject, features: int) -> list[str]:
    if subject.kind == "audio":
        return [f"band {f + 1}" for f in range(features)]
    names = getattr(getattr(subject.preprocessing, "columns", None), "names", ())
    if len(names) == features:
        return [str(name) for name in names]
    return ["signal"] if features == 1 else [f"variable {f + 1}" for f in range(features)]


def _over_nodes(subject: Subject, i: int, found: Sequence[Attribution]) -> list[Drawing]:
    nodes = [one for one in found if one.method != "edges"]
    names = node_names(subject)
    drawings: list[Drawing] = []
    if nodes:
        sums = [one.values.sum(1) for one in nodes]  # (V,) each
        order = _strongest(sums[0])
        rows = [(names[v], "", [float(s[v]) for s in sums]) for v in order]
        drawings.append(_rows(f"Attribution by node, for {subject.name(i)}", rows, nodes))
        drawings += _graph(subject, i, nodes[0], names)
        features = nodes[0].values.sum(0)  # (F,)
        columns = getattr(subject.preprocessing, "encoders", ())
        called = [name for column in columns for name in column.features]
        called = called if len(called) == len(features) else [f"feature {f}" for f in range(len(features))]
        drawings.append(
            _rows(
                "Attribution by node feature",
                [(called[f], "", [float(features[f])]) for f in _strongest(features)],
                nodes[:1],
            )
        )
    for one in found:
        if one.method == "edges":
            pairs = subject.inputs[1]
            strongest = _strongest(one.values)
            ends = [[names[v] for v in pairs[:, e].tolist()] for e in strongest]
            rows = [(" → ".join(pair), "", [float(one.values[e])]) for pair, e in zip(ends, strongest)]
            drawings.append(_rows("Change of the output without each edge", rows, [one]))
    return drawings


def _graph(subject: Subject, i: int, one: Attribution, names: Sequence[str]) -> list[Drawing]:
    """Return graph i of a batch, with its nodes (the atoms of a molecule) coloured by attribution."""
    batch = graph_index(subject.inputs)
    own = [] if batch is None else (batch == i).nonzero()[:, 0].tolist()
    if not 1 < len(own) <= MAX_NODES:
        return []
    place = {v: k for k, v in enumerate(own)}
    ends = [(place[a], place[b]) for a, b in subject.inputs[1].t().tolist() if a in place]
    links = sorted({(min(a, b), max(a, b)) for a, b in ends if a != b})
    sums = one.values.sum(1)[own]  # (V,)
    steps = torch.bucketize(sums / sums.abs().max().clamp(min=1e-12), torch.tensor(COUNTING, dtype=sums.dtype))
    nodes = [
        {"label": names[v], "at": at, "tip": [f"{_titled(one)}: {number(float(value))}"], "key": str(v)}
        for v, at, value in zip(own, layout_nodes(links, len(own)), sums)
    ]
    found: Drawing = {
        "kind": "graph",
        "title": f"{subject.name(i)}, by {NAMES[one.method]}" + ("" if one.passed else " · fails a check"),
        "nodes": nodes,
        "links": [list(pair) for pair in links],
        "weights": [],
        "colours": [
            {
                "name": "attribution of the node",
                "groups": ["raised most", "raised", "little", "lowered", "lowered most"],
                "of": [len(COUNTING) - int(step) for step in steps],
                "ordered": True,
            }
        ],
        "node": None,
        "labels": True,
    }
    return [found]


def node_names(subject: Subject) -> list[str]:
    """Return the names of the nodes from the data, or else their numbers."""
    if called := node_labels(subject):
        return called
    names = [f"node {v}" for v in range(len(subject.inputs[0]))]
    whole = subject.data is not None and graph_index(subject.inputs) is None  # a single whole graph
    for split in subject.data.splits.values() if whole and subject.data is not None else ():
        rows = getattr(split, "rows", None)
        if isinstance(rows, Tensor) and len(getattr(split, "x", ())) == len(names):
            for k, v in enumerate(rows.tolist()):
                names[v] = split.name(k)
    return names


def _strongest(values: Tensor) -> list[int]:
    """Return the indices of the largest values by size, at most 24, without zeros unless all are zero."""
    order = values.abs().argsort(descending=True, stable=True)[:ROWS].tolist()
    return [k for k in order if float(values[k]) != 0] or order[:3]
