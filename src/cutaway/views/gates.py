"""The gates of a recurrent network at every step, and the length of its memory."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.custom import CustomPreset
from ..core.errors import UnknownName
from ..core.spec import OF_TOKENS
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, percent, plural
from ..inspect.gates import (
    PROBES,
    gradient_by_lag,
    layer_inputs,
    plain_network,
    record_recurrent_calls,
    replay,
    step_function,
    step_state,
)
from ..nn.modules import eval_mode
from ..nn.recurrent import State, layer_weights
from .json_values import to_lists
from .model_layers import find_recurrent_layers
from .subject import Subject, parse_index

STEPS = 200  # most steps that are drawn and traced back
ROWS, NUMBERS = 64, 90_000  # most units in a map, and most numbers in all maps of all layers
UNITS, FEW = 12, 4  # most single units: of one layer, and of each of several
LAYERS = 8  # most layers to choose from
WORDS = 60  # most tokens that fit as labels of columns
MOST_WORK = 2_000_000_000  # most multiplications when a layer is traced back in time
OPEN, SHUT = 0.9, 0.1
FAR = 30  # ratio of values above which a scale is logarithmic
GATES = ("input", "forget", "output", "reset", "update")  # values between 0 and 1
SIGNED_STATES = ("cell", "state", "candidate")  # signed values


@dataclass(frozen=True)
class GatedLayer:
    """One layer in one direction, for one example."""

    name: str  # rnn.l0_reverse
    module: nn.Module
    level: int
    way: int
    gates: dict[str, Tensor]  # (T, hidden) each, in the order of the sequence
    x: Tensor  # (T, inputs), in the order of processing
    first: State  # (hidden,) each

    @property
    def kind(self) -> str:
        """Return the type of the layer: LSTM, GRU or RNN."""
        return "LSTM" if "forget" in self.gates else "GRU" if "update" in self.gates else "RNN"

    @property
    def hidden(self) -> int:
        """Return the number of units."""
        return self.gates["state"].shape[1]

    @property
    def steps(self) -> int:
        """Return the number of steps without padding."""
        return self.gates["state"].shape[0]


def draw_gates(subject: Subject) -> View:
    """Return the gates over time for one example, by layer, and the gradient by time lag."""
    example = parse_index(subject.options, "example", 0, len(subject.inputs[0]))
    layers = capture_gates(subject, example)
    asked = subject.options.get("layer")
    if asked is not None and asked not in {layer.name for layer in layers}:
        raise UnknownName("recurrent layer", asked, [layer.name for layer in layers])
    layers.sort(key=lambda layer: layer.name != asked)
    shown = layers[:LAYERS]
    options: list[dict[str, Any]] = [
        {"name": layer.name, "drawings": _drawings(subject, layer, example, len(shown))} for layer in shown
    ]
    drawings: list[Drawing] = [charts.choice("Layer", "layer", options)]
    if len(options) == 1:
        drawings = list(options[0]["drawings"])
    lags = _memory_by_lag(subject, layers[0])
    if lags:
        drawings.append(_memory(lags, f" of {layers[0].name}" if len(options) > 1 else ""))
    columns = {
        "layer": "text",
        "gate": "text",
        "mean": "number",
        f"above {OPEN}": "fraction",
        f"below {SHUT}": "fraction",
    }
    return View(
        id="gates",
        title="Gates over time",
        says=f"Each gate at each step of {subject.name(example)}, from 0 (closed) to 1 (open), and how long the state "
        "is remembered.",
        summary=_summary(layers[0], lags),
        table=table(
            {**columns, "lowest": "number", "highest": "number"}, [row for layer in layers for row in _rows(layer)]
        ),
        drawings=drawings,
    )


def capture_gates(subject: Subject, example: int) -> list[GatedLayer]:
    """Return every layer and direction for one example without padding."""
    alone = dataclasses.replace(subject, inputs=tuple(x[example : example + 1] for x in subject.inputs))
    with eval_mode(alone.model), torch.no_grad(), record_recurrent_calls(alone.model) as seen:
        alone.model(*alone.inputs)
    layers = []
    for name, module in find_recurrent_layers(subject.model).items():
        if name not in seen:
            continue
        reading = seen[name][0]  # the first call of a layer that is called again
        if isinstance(module, nn.RNNCellBase):
            x, first = layer_inputs(module, reading, 0)
            layers.append(GatedLayer(f"{name}.l0", module, 0, 0, _cell_gates(module, x, first), x, first))
            continue
        assert isinstance(module, nn.RNNBase)
        gates = replay(module, reading)
        for level in range(module.num_layers):
            for way in range(2 if module.bidirectional else 1):
                x, first = layer_inputs(module, reading, 0, level, way)
                key = f"l{level}{'_reverse' * way}"
                own = {k.removeprefix(f"{key}."): g[0, : len(x)] for k, g in gates.items() if k.startswith(f"{key}.")}
                layers.append(GatedLayer(f"{name}.{key}", module, level, way, own, x, first))
    return layers


def _cell_gates(cell: nn.RNNCellBase, x: Tensor, first: State) -> dict[str, Tensor]:
    """Return the gates of a cell, (T, hidden) each, for the steps x (T, inputs)."""
    state = tuple(part[None] for part in first)
    found: list[dict[str, Tensor]] = []
    with torch.no_grad():
        for row in x:
            gates = step_function(cell)(row[None], state, layer_weights(cell))
            state = step_state(gates)
            found.append(gates)
    return {name: torch.cat([gates[name] for gates in found]) for name in found[0]}


# --- drawing --------------------------------------------------------------------------------------------------


def _drawings(subject: Subject, layer: GatedLayer, example: int, layers: int) -> list[Drawing]:
    """Return the means, the maps and the single units of one of `layers` layers."""
    drawn = min(layer.steps, STEPS)
    gates = {name: gate[:drawn] for name, gate in layer.gates.items()}
    sized = [name for name in GATES if name in gates]
    held = [name for name in SIGNED_STATES if name in gates]
    cut = f", the first {drawn} of {count(layer.steps)} steps" if drawn < layer.steps else ""
    words = _words(subject, layer, example)
    found: list[Drawing] = []
    if words is not None and sized:
        means = torch.stack([gates[name].mean(1) for name in sized])
        title, values = "Gates, mean over the units, by token", to_lists(means)
        found.append(charts.matrix(title, values, ("gate", sized), ("token", words), scale="amount", low=0, high=1))
    elif sized:
        found.append(_lines(f"Gates, mean over the units{cut}", {n: gates[n].mean(1) for n in sized}))
    sizes = {f"|{name}|": gates[name].abs().mean(1) for name in held if name != "candidate"}
    found.append(_lines(f"State, mean absolute value over the units{cut}", sizes))
    for title, names, scale in (("Gates of each unit", sized, "amount"), ("State of each unit", held, "signed")):
        if names:
            rows = max(4, min(ROWS, NUMBERS // (layers * len(gates) * drawn), max(16, 3 * drawn)))
            found.append(_maps(f"{title}{cut}", {name: gates[name] for name in names}, scale, rows))
            # A cell is unbounded and a state lies within ±1: on a common scale the state would be grey.
            found[-1]["range"] = "global" if names is sized else "unit"
    return [*found, _units(subject, layer, gates, UNITS if layers == 1 else FEW)]


def _words(subject: Subject, layer: GatedLayer, example: int) -> list[str] | None:
    """Return the tokens that the layer reads, if there is room for them."""
    if subject.kind not in OF_TOKENS or layer.steps > WORDS:
        return None
    for side in (0, 1) if subject.kind == "seq2seq" else (0,):
        found = subject.tokens(example, side)
        if len(found) == layer.steps and (side == 1) == isinstance(layer.module, nn.RNNCellBase):
            return found
    return None


def _maps(title: str, gates: dict[str, Tensor], scale: str, most: int) -> Drawing:
    tiles = []
    for name, gate in gates.items():
        rows = gate.t()[:most]  # (units, T)
        of = f"{most} of {count(gate.shape[1])} units" if gate.shape[1] > most else plural(gate.shape[1], "unit")
        tip = [
            name,
            f"{of}, one a row; {plural(len(gate), 'step')}, one a column",
            f"mean {number(float(gate.mean()))}",
        ]
        tiles.append({"label": name, "group": "", "values": to_lists(rows), "tip": tip})
    return charts.tiles(title, tiles, scale=scale, range="global")


def _units(subject: Subject, layer: GatedLayer, gates: dict[str, Tensor], most: int) -> Drawing:
    """Return charts of single units: the selected one, and those whose state changes most."""
    state = gates["state"]
    moves = (state.diff(dim=0) if layer.steps > 1 else state).abs().sum(0)  # (hidden,)
    shown = sorted(moves.argsort(descending=True, stable=True)[:most].tolist())
    if "unit" in subject.options:
        first = parse_index(subject.options, "unit", 0, layer.hidden)
        shown = [first, *(unit for unit in shown if unit != first)]
    options = []
    for unit in shown:
        sized = {name: gates[name][:, unit] for name in GATES if name in gates}
        held = {name: gates[name][:, unit] for name in SIGNED_STATES if name in gates}
        drawings = [_lines(f"Gates of unit {unit}", sized)] if sized else []
        options.append({"name": f"unit {unit}", "drawings": [*drawings, _lines(f"State of unit {unit}", held)]})
    of = (
        f"{len(shown)} of {count(layer.hidden)}, those that change most"
        if len(shown) < layer.hidden
        else "each of them"
    )
    return charts.choice(f"Single units: {of}", "unit", options)


def _lines(title: str, curves: dict[str, Tensor]) -> Drawing:
    series = [{"name": name, "points": _points(values)} for name, values in curves.items()]
    return charts.lines(title, "step", series, zero=not any(name in curves for name in SIGNED_STATES))


def _points(values: Tensor, start: int = 1) -> list[list[Any]]:
    return [[i + start, value] for i, value in enumerate(to_lists(values))]


# --- memory ----------------------------------------------------------------------------------------


def _memory_by_lag(subject: Subject, layer: GatedLayer) -> dict[str, Tensor]:
    """Return the memory by time lag for this layer, for the layer before training, and for a plain RNN.

    For long sequences and large layers, only the last steps are used.
    """
    if layer.steps < 2:
        return {}
    hidden, inputs = layer.hidden, layer.x.shape[1]
    each = 3 * 4 * PROBES * hidden * (hidden + inputs)  # multiplications in a step and its gradient
    before = layer.steps - max(2, min(layer.steps, STEPS, MOST_WORK // each))
    x, first = layer.x[before:], layer.first
    if before:  # the state of the layer before the last steps
        held = [layer.gates[name] for name in ("state", "cell") if name in layer.gates]
        first = tuple((gate.flip(0) if layer.way else gate)[before - 1] for gate in held)
    what = "cell" if layer.kind == "LSTM" else "state"
    found = {f"the {what} of this {layer.kind}": gradient_by_lag(layer.module, x, first, layer.level, layer.way)}
    if subject.run is not None and not isinstance(
        subject.preset, CustomPreset
    ):  # a custom module has no known initial weights
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            fresh = subject.preset.build(subject.config).to(x.dtype)
        own = fresh.get_submodule(layer.name.rpartition(".")[0])
        found["the same before training"] = gradient_by_lag(own, x, first, layer.level, layer.way)
    if layer.kind != "RNN":
        found["an untrained plain RNN"] = gradient_by_lag(
            plain_network(inputs, hidden, x), x, (torch.zeros_like(first[0]),)
        )
    return found


def _memory(lags: dict[str, Tensor], of: str) -> Drawing:
    seen = {name: _mask_tiny(values) for name, values in lags.items()}
    known = torch.cat([values[values.isfinite()] for values in seen.values()])
    log = len(known) > 0 and float(known.max() / known.min()) > FAR
    series = [{"name": name, "points": _points(values, start=0)} for name, values in seen.items()]
    title = f"Dependence of the state{of} on earlier states, by steps back"
    return charts.lines(title, "steps back", series, log=log, zero=not log)


def _mask_tiny(values: Tensor) -> Tensor:
    """Replace values indistinguishable from 0 by NaN, because a logarithmic scale cannot show them."""
    return torch.where(values > 1e-12, values, torch.full_like(values, torch.nan))


def _rows(layer: GatedLayer) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for name in (*GATES, *SIGNED_STATES):
        if name in layer.gates:
            gate = layer.gates[name].double()
            low, high, mean = to_lists(torch.stack([gate.min(), gate.max(), gate.mean()]))
            opens = [float((gate > OPEN).double().mean()), float((gate < SHUT).double().mean())]
            rows.append([layer.name, name, mean, *(opens if name in GATES else [None, None]), low, high])
    return rows


def _summary(layer: GatedLayer, lags: dict[str, Tensor]) -> str:
    """Return a summary of the gates and of the length of the memory."""
    article = "a" if layer.kind == "GRU" else "an"
    said = [
        f"{layer.name} is {article} {layer.kind} of {plural(layer.hidden, 'unit')} over {plural(layer.steps, 'step')}."
    ]
    for name in GATES:
        if name in layer.gates:
            gate = layer.gates[name]
            opens, shuts = (float(part.double().mean()) for part in (gate > OPEN, gate < SHUT))
            said.append(
                f"The mean of its {name} gate is {number(float(gate.mean()))}; it is above {OPEN} in {percent(opens)} "
                f"of units and steps and below {SHUT} in {percent(shuts)}."
            )
    if lags:
        at = min(20, *(len(values) - 1 for values in lags.values()))
        kept = ", ".join(f"{number(float(values[at]))} for {name}" for name, values in lags.items())
        said.append(f"After {plural(at, 'step')} the remaining fraction is {kept}.")
    return " ".join(said)
