"""Attribution: the parts of an example that determine the output, by several methods, each with checks.

An attribution is drawn over an image, over words, next to column names, along time, or over nodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import (
    ConfigError,
    ModelError,
    SettingError,
    UnknownName,
    UnsupportedDataError,
)
from ..core.files import exists, missing_file_error
from ..core.spec import OF_TOKENS, Classes, Horizon, Mask, Masked, Tags, Value
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, percent, plural
from ..inspect.attribution import METHODS, Attribution, attribute
from ..inspect.attribution.methods import plan, seconds
from ..inspect.attribution.perturbation_methods import reach
from ..inspect.concepts import Concept, concept
from ..nn.attention import MultiHeadAttention
from .json_values import downsample, evenly_spaced, image_url, tensor_url, to_lists
from .message_passing import layout_nodes
from .model_layers import patch_blocks
from .subject import Subject, get_target, graph_index, node_labels, parse_index, with_examples

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
    """Return the attribution drawn over the image."""
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
    """Return the attribution drawn over the frames of a video."""
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
    """Return the attribution drawn over the words of a text, or of both sides of a pair."""
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
    """Return the attribution as one bar for each column."""
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
    """Return the attribution of a series along its steps."""
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
    """Return the attribution drawn over the nodes of a graph."""
    nodes = [one for one in found if one.method != "edges"]
    names = node_names(subject)
    drawings: list[Drawing] = []
    if nodes:
        sums = [one.values.sum(1) for one in nodes]  # (V,) each
        order = _largest_values(sums[0])
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
                [(called[f], "", [float(features[f])]) for f in _largest_values(features)],
                nodes[:1],
            )
        )
    for one in found:
        if one.method == "edges":
            pairs = subject.inputs[1]
            strongest = _largest_values(one.values)
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


def _largest_values(values: Tensor) -> list[int]:
    """Return the indices of the largest values by size, at most 24, without zeros unless all are zero."""
    order = values.abs().argsort(descending=True, stable=True)[:ROWS].tolist()
    return [k for k in order if float(values[k]) != 0] or order[:3]


CLASS, POOL = 60, 120  # most examples of the class, and of the concept and the others, in the test
CLASSED = 600  # examples that are searched for the class


def draw_attribution(subject: Subject) -> View:
    """Return the attribution maps of one example with their checks, and TCAV with concept=."""
    i = parse_index(subject.options, "example", 0, subject.count)
    one, place = single_example(subject, i)
    asked = _target(one, place)
    left: list[str] = []
    found = _maps(one, asked, left)
    drawings = attribution_drawings(one, 0 if subject.kind != "graph" else i, found)
    drawings += [d for d in (_cascade(found),) if d]
    drawings.append(_checks(one, found))
    words = [_answer(one, found[0]), *_untrained(one), _strongest_parts(one, found[0]), *_verdicts(one, found), *left]
    if "concept" in subject.options:
        tested = _concept(subject, found[0])
        drawings.append(_tested(subject, tested))
        words.append(tested.says)
    return View(
        id="attribution",
        title="Attribution",
        says=f"The parts of {subject.name(i)} that increase (purple) or decrease (green) "
        f"{_output_name(one, found[0])}, by {_join([NAMES[f.method] for f in found])}.",
        summary=" ".join(words),
        table=_table(one, found),
        drawings=drawings,
    )


def single_example(subject: Subject, i: int) -> tuple[Subject, int | None]:
    """Return example i alone without padding, and the position to explain if the model does not imply one.

    The position is the node or graph of a graph, or the masked token of a text.
    """
    if subject.kind == "graph":
        return subject, i
    inputs = tuple(x[i : i + 1] if len(x) == len(subject.inputs[0]) else x for x in subject.inputs)
    if subject.kind in OF_TOKENS and len(inputs) > 1 and inputs[1].dtype == torch.bool:
        length = max(1, int(inputs[1].sum()))
        if len(inputs) <= 3 and bool(inputs[1][0, :length].all()):
            inputs = (inputs[0][:, :length], inputs[1][:, :length], *inputs[2:])
    if subject.kind == "seq2seq":
        padding = getattr(getattr(subject.spec, "target", None), "padding", 0)
        real = (inputs[2][0] != padding).nonzero()
        if len(real) and subject.split is not None:
            inputs = (*inputs[:2], inputs[2][:, : int(real[-1]) + 1])
    rows = subject.rows[i : i + 1]
    one = dataclasses.replace(subject, inputs=inputs, rows=rows, target=None)
    target = getattr(subject.spec, "target", None)
    hidden = (inputs[0][0] == target.mask).nonzero().flatten().tolist() if isinstance(target, Masked) else []
    return one, hidden[0] if hidden else None


# --- the explained output ---------------------------------------------------------------------------------------------


def _target(one: Subject, place: int | None) -> Any:
    """Return the target as typed, or None for the model's own prediction. Raises SettingError, UnknownName."""
    typed = one.options.get("target")
    if typed is None:
        return (place, None) if place is not None else None
    names = _names(one)
    at, colon, output = typed.rpartition(":")
    if typed in names:
        return (place, names.index(typed)) if place is not None else names.index(typed)
    if not output.strip().isdecimal() or (colon and not at.strip().isdecimal()):
        if names:
            raise UnknownName("target", typed, names)
        raise SettingError(f"Invalid target={typed}: must be the index of an output, or POSITION:OUTPUT for a text.")
    chosen = int(at) if colon else place
    return (chosen, int(output)) if chosen is not None else int(output)


def _names(one: Subject) -> list[str]:
    """Return the names of the outputs, or an empty list."""
    target = getattr(one.spec, "target", None)
    return list(target.names) if isinstance(target, Classes | Mask | Tags) else []


def _methods(one: Subject) -> list[str]:
    """Return the default methods for this model and kind of data."""
    modules = list(one.model.modules())
    attends = any(isinstance(m, MultiHeadAttention) for m in modules)
    convolves = any(isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d) for m in modules)
    if one.kind == "graph":
        return ["integrated_gradients", "occlusion", "edges"]
    if one.inputs[0].ndim == 2 and one.inputs[0].is_floating_point():
        return ["integrated_gradients", "kernel_shap"]
    if one.kind in OF_TOKENS:
        return ["integrated_gradients", "occlusion", *(["rollout"] if attends else [])]
    own = ["grad_cam"] if convolves else []
    own = ["rollout"] if attends and one.kind == "image" and patch_blocks(one) else own
    return ["integrated_gradients", *own, "occlusion"]


def _maps(one: Subject, asked: Any, left: list[str]) -> list[Attribution]:
    """Compute as many maps as time allows, and append the omissions to `left`."""
    method = one.options.get("method")
    if method is not None and method not in METHODS:
        raise UnknownName("method of attribution", method, METHODS)
    if method == "edges" and one.kind != "graph":
        raise ConfigError(f"Invalid method=edges: {one.kind} data has no edges; use method=occlusion.")
    cost = seconds(one.model, one.inputs)
    place = asked[0] if isinstance(asked, tuple) else 0
    near = reach(one.model, one.inputs, place or 0) if one.kind == "graph" else None
    found: list[Attribution] = []
    layer = one.options.get("layer") if "concept" not in one.options else None
    for usual in [method] if method else _methods(one):
        name = usual
        planned = plan(name, one.inputs, cost, near)
        if planned is None and method is None:
            left.append(f"{_capital(NAMES[name])} is slow for this model; run it with method={name}.")
            if name != "integrated_gradients":
                continue
            name = "input_x_gradient"  # a single gradient replaces many
            planned = plan(name, one.inputs, cost, near)
        try:
            result = attribute(
                one.model,
                one.inputs,
                name,
                asked,
                steps=planned.steps if planned else None,
                layer=layer if name == "grad_cam" else None,
                window=planned.window if planned else None,
                randomise=bool(planned and planned.randomise),
            )
        except ModelError:
            if method is not None:
                raise
            continue  # the method does not apply to this model
        found.append(result)
        if planned and planned.brief:
            left.append(f"To save time, {_saved(name, result, planned.window)}.")
    return found


def _saved(name: str, result: Attribution, window: int | None) -> str:
    if window is not None:
        return f"occlusion covers squares of {count(window)} pixels"
    return f"{NAMES[name]} uses {count(result.steps or 0)} steps"


# --- findings in words ---------------------------------------------------------------------------------------


def _output_name(one: Subject, result: Attribution) -> str:
    """Return the name of the explained number: the score of a class or token, or a value."""
    target = getattr(one.spec, "target", None)
    if result.target.whole:
        return "the sum over all words"
    k = int(result.target.output[0]) if result.target.output is not None else 0
    names = _names(one)
    place = int(result.target.place[0]) if result.target.place is not None else None
    if one.kind in OF_TOKENS and place is not None:
        token = names[k] if names else _token(one, k)
        after = "at" if names or isinstance(target, Masked) else "after"
        return f"the score of {token!r} {after} token {place + 1}"
    if isinstance(target, Mask):
        return f"the score of {names[k]!r}, summed over all pixels"
    if names:
        binary = len(names) == 2 and _outputs(one, result) == 1
        return f"the score of {names[1 if binary else k]!r}"
    if isinstance(target, Value):
        return f"the value of {target.column}"
    if getattr(one.config, "horizon", 0):
        columns = getattr(target, "columns", ("the series",))
        return f"the forecast of {columns[k % len(columns)]}, step {k // len(columns) + 1}"
    return f"the score of output {k}"


def _outputs(one: Subject, result: Attribution) -> int:
    """Return the number of outputs."""
    return int(one.outputs().shape[-1])


def _token(one: Subject, k: int) -> str:
    """Return the text of a token of the output vocabulary."""
    ids = torch.tensor([[k]])
    side = 1 if one.kind == "seq2seq" else 0
    inputs = (ids, torch.ones_like(ids, dtype=torch.bool), *((ids,) if side else ()))
    return dataclasses.replace(one, inputs=inputs).tokens(0, side)[0]


def _answer(one: Subject, result: Attribution) -> str:
    target, value = getattr(one.spec, "target", None), float(result.output[0])
    said = f"The explained output is {_output_name(one, result)}, {number(value)}"
    if not isinstance(target, Value | Horizon) or result.target.output is None:
        return f"{said}."
    k = int(result.target.output[0]) % len(target.columns) if isinstance(target, Horizon) else 0
    mean, scale = (x[k] if isinstance(x, tuple) else x for x in (target.mean, target.scale))
    return f"{said} on the standardized scale, which is {number(value * scale + mean)} in the units of the data."


def _untrained(one: Subject) -> list[str]:
    """Return a warning that an answer from untrained weights is meaningless, or nothing for a trained model."""
    if not one.untrained:
        return []
    what = "The head of this model is" if one.untrained == "head" else "This model is"
    return [f"{what} untrained: the output comes from random weights, so the maps do not explain the example."]


def _verdicts(one: Subject, found: list[Attribution]) -> list[str]:
    """Return the maps that pass the checks and those that fail; for untrained weights, the checks of the method."""
    made = [f for f in found if any(check.passed is not None for check in f.checks)]
    stand, fall = ([NAMES[f.method] for f in made if f.passed is ok] for ok in (True, False))
    passes = "passes" if len(stand) == 1 else "pass"
    said = [f"{_capital(_join(stand))} {passes} the checks."] if stand else []
    if stand and one.untrained:
        said = [f"{_capital(_join(stand))} {passes} the checks; they test the method, not this output."]
    said += [f"{_capital(_join(fall))} fail{'s' if len(fall) == 1 else ''} a check."] if fall else []
    unchecked = [NAMES[f.method] for f in found if f not in made]
    return said + ([f"{_capital(_join(unchecked))}: not checked."] if unchecked else [])


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _strongest_parts(one: Subject, result: Attribution) -> str:
    """Return the three parts with the largest values, in words."""
    sizes = [(name, value) for name, value in _parts(one, result)]
    best = sorted(sizes, key=lambda pair: -abs(pair[1]))[:3]
    said = [f"{name} ({number(value)})" for name, value in best if value]
    return (
        f"The largest values of {NAMES[result.method]} are those of {_join(said)}."
        if said
        else "No part has an effect."
    )


def _parts(one: Subject, result: Attribution) -> list[tuple[str, float]]:
    """Return the parts of the example with their values: columns, tokens, steps, nodes, or regions of an image."""
    values = result.values if one.kind == "graph" else result.values[0]
    if result.kind == "table":
        return list(zip(column_names(one, len(values)), values.tolist()))
    if result.kind == "graph":
        if values.ndim == 1:
            return [(f"edge {k}", v) for k, v in enumerate(values.tolist())]
        return list(zip(node_names(one), values.sum(1).tolist()))
    if result.kind in OF_TOKENS:
        tokens = [(repr(t), float(v)) for t, v in zip(one.tokens(0), values)]
        beside = result.beside[0] if result.beside is not None else torch.zeros(0)
        target = one.tokens(0, 1) if len(beside) else []
        return tokens + [(f"{t!r} of the target", float(v)) for t, v in zip(target, beside)]
    if result.kind == "series":
        return [(f"step {t}", v) for t, v in enumerate(values.sum(1).tolist())]
    if result.kind == "video":
        return [(f"frame {t + 1}", v) for t, v in enumerate(values.sum((1, 2)).tolist())]
    thirds = [(row, column) for row in range(3) for column in range(3)]
    names = [f"the {a} {b}".replace("middle middle", "middle") for a in _DOWN for b in _ACROSS]
    return list(zip(names, [_third(values, row, column) for row, column in thirds]))


_DOWN, _ACROSS = ("upper", "middle", "lower"), ("left", "middle", "right")


def _third(values: Tensor, row: int, column: int) -> float:
    height, width = values.shape
    part = values[row * height // 3 : (row + 1) * height // 3, column * width // 3 : (column + 1) * width // 3]
    return float(part.sum())


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# --- checks ---------------------------------------------------------------------------------------------------------


def _cascade(found: list[Attribution]) -> Drawing | None:
    """Return a chart of the rank correlation of each map as layers are randomized."""
    series = [
        {
            "name": NAMES[f.method],
            "points": [[0, 1.0], *([k + 1, float(f"{c:.3g}")] for k, c in enumerate(f.randomisation.correlation))],
        }
        for f in found
        if f.randomisation is not None
    ]
    title = "Rank correlation of each map with its map under randomized weights"
    x = "randomized stages, from the output down"
    return charts.lines(title, x, series) if series else None


def _checks(one: Subject, found: list[Attribution]) -> Drawing:
    """Return the checks in words."""
    facts = []
    for f in found:
        based = f" The baseline is {f.about}." if f.baseline is not None else ""
        verdict = "Passes. " if f.passed else "Fails. "
        made = any(c.passed is not None for c in f.checks)
        facts.append([NAMES[f.method], f"{verdict if made else ''}{f.says}{based}"])
    title = "Checks of the method, on an output of random weights" if one.untrained else "Checks"
    return {"kind": "prose", "title": title, "facts": facts}


def _table(one: Subject, found: list[Attribution]) -> Any:
    """Return the checks of each method or, if the parts have names, the value of each part by each method."""
    same = [f for f in found if f.method != "edges"] or found
    if one.kind in ("image", "video") or found[0].kind in ("image", "video"):
        columns = {"method": "text", "sum of values": "number", "change of output": "number", "gap": "fraction"}
        columns |= {"correlation with random weights": "number", "verdict": "text"}
        return table(columns, [_row(f) for f in found])
    parts = [_parts(one, f) for f in same]
    order = sorted(range(len(parts[0])), key=lambda k: -abs(parts[0][k][1]))[:200]
    if found[0].kind in ("text", "seq2seq", "series"):
        order.sort()
    rows = [[parts[0][k][0], *(p[k][1] for p in parts)] for k in order]
    return table({"part": "text"} | {NAMES[f.method]: "number" for f in same}, rows)


def _row(f: Attribution) -> list[Any]:
    c, r = f.completeness, f.randomisation
    made = any(check.passed is not None for check in f.checks)
    promised = c.tolerance is not None
    return [
        NAMES[f.method],
        float(c.sum[0]),
        float(c.change[0]),
        c.relative if promised else None,
        r.last if r else None,
        ("passes" if f.passed else "fails") if made else "not checked",
    ]


# --- concepts -------------------------------------------------------------------------------------------------------


def _concept(subject: Subject, result: Attribution) -> Concept:
    """Compute TCAV for the examples in a folder.

    Raises:
        FileError: If a file cannot be read.
        DataError: If the data or the folder is missing.
    """
    typed = subject.options["concept"]
    folder = Path(typed)
    if subject.preprocessing is None or subject.data is None:
        raise UnsupportedDataError("concept= needs examples of the run's data: open a run whose data is available.")
    if typed.strip() and not exists(folder):
        raise missing_file_error(typed, "folder", "concept= takes a folder of examples.")
    if not typed.strip() or not folder.is_dir():
        raise SettingError(f"Invalid concept={typed}: must be a folder of examples.")
    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    split = subject.preprocessing.examples(files)
    examples = with_examples(subject, split, range(min(len(split), POOL))).inputs
    k = int(result.target.output[0]) if result.target.output is not None else 0
    others = subject.others(CLASSED)
    assert others is not None, "the data is available"
    with torch.no_grad():
        answers = others.outputs()
    if answers.ndim == 2 and answers.shape[1] > 1:
        predicted = answers.argmax(1) == k
    elif isinstance(get_target(subject), Classes):  # the only output is the logit of the second class
        predicted = answers[:, 0] > 0
    else:
        predicted = torch.ones(len(answers), dtype=torch.bool)
    of_class = predicted.nonzero()[:CLASS, 0]
    if not len(of_class):
        of_class = torch.arange(min(CLASS, len(answers)))
    inputs = tuple(x[of_class] for x in others.inputs)
    pool = tuple(x[:: max(1, len(answers) // POOL)][:POOL] for x in others.inputs)
    return concept(subject.model, inputs, examples, pool, layer=subject.options.get("layer"), target=k)


def _tested(subject: Subject, tested: Concept) -> Drawing:
    facts = [
        ["concept", Path(subject.options["concept"]).name],
        ["layer", tested.layer],
        ["TCAV", f"{number(tested.score)} of the class's examples score higher in the concept's direction"],
        ["with random examples instead", number(sum(tested.chance) / len(tested.chance))],
        ["p, two-sided", number(tested.p)],
        ["concept classifier", f"{percent(tested.accuracy)} accuracy on unseen examples"],
        ["verdict", tested.says.rpartition("). ")[2]],
    ]
    return {"kind": "prose", "title": "A concept (TCAV)", "facts": facts}
