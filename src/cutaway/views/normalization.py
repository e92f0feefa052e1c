"""The values that share statistics in each normalization, and its effect on means and standard deviations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, plural, shape_text
from ..nn.modules import eval_mode
from .json_values import evenly_spaced, to_lists
from .model_layers import NORMALIZATIONS, find_normalizations, hook_outputs
from .subject import FEW, Subject, parse_choice

LAYERS = 12  # most layers to choose from
SETS = 256  # most sets whose mean and standard deviation are shown
SHOWN = (3, 8, 16)  # most examples, channels and positions of the block
BINS = 48
PALE, PALER, DARK = 0.3, 0.12, 1.0

SHARED = {
    "batch": "the same channel of all examples, at every position",
    "layer": "all values of the same {}",
    "RMS": "all values of the same {}, without subtracting the mean",
    "group": "the same group of channels of one example, at every position",
    "local response": "the {} neighboring channels at the same position, without subtracting the mean",
}


@dataclass(frozen=True)
class NormalizedSets:
    """Statistics of a normalization layer and of its input and output."""

    kind: str
    shape: tuple[int, ...]  # of the input
    block: Tensor  # (examples, channels, positions), shades
    whole: tuple[int, int, int]  # total examples, channels and positions
    sets: str  # name of a set
    shared: str  # description of the values that share a set
    total: int  # number of sets
    centre: tuple[Tensor, Tensor]  # means of the sets, before and after, (sets,)
    spread: tuple[Tensor, Tensor]  # standard deviations of the sets, or roots of their mean squares
    running: tuple[Tensor, Tensor] | None  # running means and standard deviations that evaluation uses
    histogram: tuple[list[list[float]], list[list[float]]]  # [value, fraction] before and after


def draw_normalization(subject: Subject) -> View:
    """Return up to twelve normalization layers to choose from, or the selected one."""
    names = find_normalizations(subject.model)
    asked = parse_choice(subject.options, "layer", list(names), "normalization")
    some = [asked] if asked else evenly_spaced(list(names), LAYERS)
    seen = _capture_statistics(subject, {name: names[name] for name in some})
    drawings = {name: _drawings(name, one) for name, one in seen.items()}
    options = [{"name": name, "drawings": inside} for name, inside in drawings.items()]
    drawing = charts.choice("Normalization", "layer", options, slider=True)
    return View(
        id="normalization",
        title="Normalization",
        says="The values that share statistics in each normalization (dark in the block), and the means and standard "
        "deviations of those sets before and after it.",
        summary=_summary(names, seen),
        table=_table(seen),
        drawings=next(iter(drawings.values())) if len(drawings) == 1 else [drawing],
    )


# --- capture --------------------------------------------------------------------------------------------------------


def _capture_statistics(subject: Subject, names: dict[str, str]) -> dict[str, NormalizedSets]:
    """Return the statistics of the layers from one forward pass; of a layer that runs several times, its first run."""
    found: dict[str, NormalizedSets] = {}
    inputs = subject.inputs if subject.kind == "graph" else tuple(x[:FEW] for x in subject.inputs)
    mask = inputs[1] if len(inputs) > 1 and inputs[1].dtype == torch.bool else None

    def see(name: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if name not in found:
            found[name] = _measure_sets(names[name], module, args[0].detach(), output.detach(), mask)

    with eval_mode(subject.model), torch.no_grad(), hook_outputs(subject.model, see, list(names)):
        subject.model(*inputs)
    return {name: found[name] for name in names if name in found}


def _measure_sets(kind: str, module: nn.Module, x: Tensor, y: Tensor, mask: Tensor | None) -> NormalizedSets:
    """Return the statistics of the sets of values that share a mean and a standard deviation, before and after it."""
    sets, name = _sets(kind, module, x)
    after, _ = _sets(kind, module, y)
    if name == "token" and mask is not None and mask.shape == x.shape[:2]:  # leave out padding
        real = mask.flatten()
        sets, after = sets[real], after[real]
    squares = kind in ("RMS", "local response")
    block, whole = _block(kind, module, x)
    return NormalizedSets(
        kind=kind,
        shape=tuple(x.shape),
        block=block,
        whole=whole,
        sets=name,
        shared=SHARED[kind].format(module.size if isinstance(module, nn.LocalResponseNorm) else name),
        total=len(sets),
        centre=(sets[:SETS].mean(1), after[:SETS].mean(1)),
        spread=(_spread(sets[:SETS], squares), _spread(after[:SETS], squares)),
        running=_running(module),
        histogram=_histograms(sets, after),
    )


def _sets(kind: str, module: nn.Module, x: Tensor) -> tuple[Tensor, str]:
    """Return x with a row for each set that shares its statistics, (sets, n), and the name of a set.

    The sets of a local response overlap; channels are used in their place.
    """
    if kind in ("batch", "local response"):
        return x.transpose(0, 1).flatten(1).double(), "channel"  # (C, N·P)
    if isinstance(module, nn.GroupNorm):
        return x.reshape(len(x) * module.num_groups, -1).double(), "group"  # (N·G, C/G·P)
    axes = len(module.normalized_shape)  # type: ignore[arg-type]  # layer or RMS
    rows = x.flatten(x.ndim - axes).reshape(-1, x[(0,) * (x.ndim - axes)].numel())  # (N·T, d)
    return rows.double(), {2: "token", 3: "pixel"}.get(x.ndim - axes, "example")


def _spread(x: Tensor, squares: bool) -> Tensor:
    """Return the standard deviation of each row, or the root of its mean square."""
    return x.square().mean(1).sqrt() if squares else x.std(1, correction=0)


def _running(module: nn.Module) -> tuple[Tensor, Tensor] | None:
    mean, var = getattr(module, "running_mean", None), getattr(module, "running_var", None)
    if not isinstance(mean, Tensor) or not isinstance(var, Tensor):
        return None
    return mean[:SETS].double(), var[:SETS].double().sqrt()


def _histograms(x: Tensor, y: Tensor) -> tuple[list[list[float]], list[list[float]]]:
    """Return the fraction of values in each of 48 bins, before and after, over a common range without outliers."""
    some = torch.cat([_thinned(x), _thinned(y)])
    low, high = (float(torch.quantile(some, q)) for q in (0.002, 0.998))
    high = high if high > low else low + 1
    middles = [low + (high - low) * (k + 0.5) / BINS for k in range(BINS)]

    def fractions(values: Tensor) -> list[list[float]]:
        bins = ((values.flatten() - low) / (high - low) * BINS).long().clamp(0, BINS - 1)
        part = torch.bincount(bins, minlength=BINS).double() / values.numel()
        return [[float(f"{m:.4g}"), p] for m, p in zip(middles, to_lists(part))]

    return fractions(x), fractions(y)


def _thinned(x: Tensor, most: int = 100_000) -> Tensor:
    flat = x.flatten()
    return flat[:: max(1, len(flat) // most)]


def _block(kind: str, module: nn.Module, x: Tensor) -> tuple[Tensor, tuple[int, int, int]]:
    """Return the shades of the first examples, channels and positions, and the total number of each.

    The set of one value in the middle is dark. Other sets alternate between two pale shades.
    """
    by_place = kind in ("layer", "RMS") and x.ndim >= 3 and len(module.normalized_shape) == 1  # type: ignore[arg-type]
    channels = x.shape[-1] if by_place else x.shape[1]
    places = x[0, ..., 0].numel() if by_place else max(1, x[0, 0].numel())
    whole = (len(x), channels, places)
    n, c, p = (min(size, most) for size, most in zip(whole, SHOWN))
    example, channel, place = torch.meshgrid(torch.arange(n), torch.arange(c), torch.arange(p), indexing="ij")
    middle = (0, c // 2, p // 2)
    if isinstance(module, nn.LocalResponseNorm):
        half = module.size // 2
        same = (example == 0) & (place == middle[2]) & ((channel - middle[1]).abs() <= half)
        return torch.where(same, DARK, PALER), whole
    if kind == "batch":
        group = channel
    elif isinstance(module, nn.GroupNorm):
        group = example * module.num_groups + channel // max(1, channels // module.num_groups)
    else:
        group = example * places + place if by_place else example
    shade = torch.where(group % 2 == 0, PALE, PALER)
    return torch.where(group == group[middle], DARK, shade), whole


# --- drawing --------------------------------------------------------------------------------------------------------


def _drawings(name: str, one: NormalizedSets) -> list[Drawing]:
    """Return the block of a layer, its means and standard deviations, and its distribution."""
    word = "root mean square" if one.kind in ("RMS", "local response") else "standard deviation"
    running = one.running or (None, None)
    return [
        _tiles(name, one),
        _lines(f"Mean of each {one.sets}", one, one.centre, running[0]),
        _lines(f"{word[0].upper()}{word[1:]} of each {one.sets}", one, one.spread, running[1]),
        charts.lines(
            "Distribution of all values",
            "value",
            [{"name": n, "points": p} for n, p in zip(("before", "after"), one.histogram)],
            format="fraction",
        ),
    ]


def _tiles(name: str, one: NormalizedSets) -> Drawing:
    """Return the block, with a tile for each example."""
    n, c, p = one.block.shape
    cut = [f"{s} of {plural(w, what)}" for s, w, what in zip((n, c, p), one.whole, _WHAT) if s < w]
    shown = f" ({', '.join(cut)} shown)" if cut else ""
    tip = [f"Dark: {one.shared}", f"rows are channels, columns positions{shown}"]
    names = [f"example {k + 1}" for k in range(n)]
    blocks = [to_lists(part) for part in one.block]
    tiles = [{"label": x, "group": "the block", "values": v, "tip": [x, *tip]} for x, v in zip(names, blocks)]
    title = f"{one.kind[0].upper()}{one.kind[1:]} normalization, {name}: values that share statistics{shown}"
    return charts.tiles(title, tiles, scale="amount", range="global", pixel=9)


_WHAT = ("example", "channel", "place")


def _lines(title: str, one: NormalizedSets, values: tuple[Tensor, Tensor], running: Tensor | None) -> Drawing:
    before, after = (to_lists(v) for v in values)
    series = [("before", before), ("after", after)]
    if running is not None:
        series.append(("running", to_lists(running)))
    title += "" if one.total <= SETS else f": the first {SETS} of {count(one.total)}"
    return charts.lines(
        title, one.sets, [{"name": name, "points": [[k, v] for k, v in enumerate(vs)]} for name, vs in series]
    )


def _summary(names: dict[str, str], seen: dict[str, NormalizedSets]) -> str:
    """Return a summary of the kinds of normalization and of the first layer's statistics."""
    kinds = {kind: sum(k == kind for k in names.values()) for kind in NORMALIZATIONS}
    said = ", ".join(f"{plural(n, f'{kind} normalization')}" for kind, n in kinds.items() if n)
    words = [f"The model has {said}."]
    for name, one in list(seen.items())[:1]:
        words.append(f"In {name}, values of shape {shape_text(one.shape)} share their statistics with {one.shared}.")
    worst = max(seen, key=lambda name: float(seen[name].centre[0].abs().max() / _typical(seen[name])), default=None)
    if worst is not None:
        one = seen[worst]
        words.append(
            f"Before {worst} the means range from {number(float(one.centre[0].min()))} to "
            f"{number(float(one.centre[0].max()))}, after it from {number(float(one.centre[1].min()))} to "
            f"{number(float(one.centre[1].max()))}."
        )
    if any(one.kind == "batch" for one in seen.values()):
        words.append("In evaluation mode batch normalization uses the running means of training.")
    if len(seen) < len(names):
        words.append(f"{len(seen)} of {len(names)} are shown; layer= selects another.")
    return " ".join(words)


def _typical(one: NormalizedSets) -> float:
    return float(one.spread[0].median()) or 1.0


def _table(seen: dict[str, NormalizedSets]) -> Any:
    columns = {"layer": "text", "kind": "text", "input": "text", "sets": "count"}
    heads = ("mean", "standard deviation or root mean square")
    columns |= {f"{head}, {when}": "text" for head in heads for when in ("before", "after")}
    rows = []
    for name, one in seen.items():
        ranges = [_range(v) for pair in (one.centre, one.spread) for v in pair]
        rows.append([name, one.kind, shape_text(one.shape), one.total, *ranges])
    return table(columns, rows)


def _range(values: Tensor) -> str:
    return f"{number(float(values.min()))} to {number(float(values.max()))}"
