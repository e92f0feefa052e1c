"""Attribution: the parts of an example that determine the output, by several methods, each with checks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import DataError, ModelError, SettingError, UnknownName
from ..core.spec import OF_TOKENS, Classes, Horizon, Mask, Masked, Tags, Value
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, percent
from ..inspect.attribution import METHODS, Attribution, attribute
from ..inspect.attribution.budget import plan, seconds
from ..inspect.attribution.perturbation_methods import reach
from ..inspect.concepts import Concept, concept
from ..nn.attention import MultiHeadAttention
from .common import parse_index, patch_blocks
from .maps import NAMES, attribution_drawings, column_names, node_names
from .subject import Subject, with_examples

SAYS = "attribution: the parts of an example that an output depends on, and sanity checks of each map"
READ = (
    "Purple parts increase the explained output, green parts decrease it; gray parts have no effect. Several methods "
    "are shown together because they answer different questions: integrated gradients distribute the change from a "
    "baseline over the parts, occlusion covers a part and measures the loss, Grad-CAM shows where the last feature "
    "maps were active, and rollout follows attention alone. Their checks are below the maps: whether the values sum to "
    "the change of the output, and how similar the map stays when the weights are randomized from the output down. "
    "Maps that fail a check are labeled."
)
MISLEADS = (
    "A map shows what this output of this model depends on, not the identity of the object or why the model learned "
    "it. The baseline is a choice, and another baseline gives another map: a black image is not neutral for a model "
    "that looks for black (P. Sturmfels, S. Lundberg, S.-I. Lee, Visualizing the impact of feature attribution "
    "baselines, 2020). If two parts are redundant, occlusion finds neither. Some maps look plausible only because "
    "they show the edges of the input, independent of the weights (J. Adebayo et al., Sanity checks for saliency "
    "maps, 2018): the second check tests for this, but passing it does not make a map correct. Rollout ignores values "
    "and MLPs and is the same for every class. For an untrained network the maps explain noise."
)
OPTIONS = {
    "method": "a single method instead of the default selection: gradient, input_x_gradient, integrated_gradients, "
    "gradient_shap, kernel_shap, occlusion, edges, grad_cam, rollout",
    "target": "class or output to explain, by name or index; 3:7 is output 7 at position 3 of a text",
    "example": "index of the example, from 0",
    "layer": "layer for Grad-CAM or a concept",
    "concept": "folder of examples of a concept, to test whether the class depends on it (TCAV)",
}

CLASS, POOL = 60, 120  # most examples of the class, and of the concept and the others, in the test
CLASSED = 600  # examples that are searched for the class


def suits(subject: Subject) -> bool:
    """Return whether the model has numeric inputs to explain."""
    return subject.inputs[0].numel() > 0


def view(subject: Subject) -> View:
    """Return the attribution maps of one example with their checks, and TCAV with concept=."""
    i = parse_index(subject.options, "example", 0, subject.count)
    one, place = single_example(subject, i)
    asked = _target(one, place)
    left: list[str] = []
    found = _maps(one, asked, left)
    drawings = attribution_drawings(one, 0 if subject.kind != "graph" else i, found)
    drawings += [d for d in (_cascade(found),) if d]
    drawings.append(_checks(one, found))
    words = [_answer(one, found[0]), *_untrained(one), _strongest(one, found[0]), *_verdicts(one, found), *left]
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
        raise ModelError(f"Invalid method=edges: {one.kind} data has no edges; use method=occlusion.")
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


def _strongest(one: Subject, result: Attribution) -> str:
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
        raise DataError("concept= needs examples of the run's data: open a run whose data is available.")
    if not typed.strip() or not folder.is_dir():
        raise DataError(f"Invalid concept={typed}: must be an existing folder of examples.")
    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    split = subject.preprocessing.examples(files)
    examples = with_examples(subject, split, range(min(len(split), POOL))).inputs
    k = int(result.target.output[0]) if result.target.output is not None else 0
    others = subject.others(CLASSED)
    assert others is not None, "the data is available"
    with torch.no_grad():
        answers = others.outputs()
    said = answers.argmax(1) if answers.ndim == 2 and answers.shape[1] > 1 else torch.full((len(answers),), k)
    of_class = (said == k).nonzero()[:CLASS, 0]
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
