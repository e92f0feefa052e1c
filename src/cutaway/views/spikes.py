"""The spikes of a spiking network: a raster of each layer, and the membrane potential of single neurons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, percent, plural
from ..models.spiking import LeakyIntegrateAndFire
from ..nn.modules import eval_mode
from .json_values import to_lists
from .model_layers import hook_outputs
from .subject import Subject, parse_choice, parse_index

LAYERS = 8  # most layers to choose from
ROWS = 48  # most neurons in a raster
STEPS = 200  # most steps that are drawn
UNITS = 8  # most single neurons of a layer


@dataclass(frozen=True)
class SpikeRecord:
    """The spikes of one layer for all examples, and the potentials for one of them."""

    neurons: LeakyIntegrateAndFire
    spikes: Tensor  # (N, T, width)
    potential: Tensor  # (T, width), of the example that is drawn


def find_spiking_layers(model: nn.Module) -> list[str]:
    """Return the names of the layers that spike."""
    return [name for name, module in model.named_modules() if isinstance(module, LeakyIntegrateAndFire)]


def draw_spikes(subject: Subject) -> View:
    """Return the spikes of one example by layer, neuron and time step, and how often neurons fire in all examples."""
    example = parse_index(subject.options, "example", 0, len(subject.inputs[0]))
    names = find_spiking_layers(subject.model)
    asked = parse_choice(subject.options, "layer", names, "spiking layer")
    seen = _capture_spikes(subject, [asked] if asked else names[:LAYERS], example)
    drawings = {name: _drawings(record, example) for name, record in seen.items()}
    options: list[dict[str, Any]] = [{"name": name, "drawings": inside} for name, inside in drawings.items()]
    columns = {"layer": "text", "neurons": "count", "steps": "count", "spikes per neuron": "number"}
    return View(
        id="spikes",
        title="Spikes",
        says=f"The time steps at which each neuron fires for {subject.name(example)}, and the membrane potential that "
        "makes it fire.",
        summary=" ".join(_summary(name, record) for name, record in seen.items()),
        table=table(
            {**columns, "silent neurons": "fraction", "neurons that always fire": "fraction"},
            [[name, *_row(record)] for name, record in seen.items()],
        ),
        drawings=options[0]["drawings"] if len(options) == 1 else [charts.choice("Layer", "layer", options)],
    )


def _capture_spikes(subject: Subject, names: list[str], example: int) -> dict[str, SpikeRecord]:
    found: dict[str, SpikeRecord] = {}

    def see(name: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        assert isinstance(module, LeakyIntegrateAndFire)
        potential, _ = module.run(args[0][example : example + 1].detach())
        found[name] = SpikeRecord(module, output.detach(), potential[0])

    with eval_mode(subject.model), torch.no_grad(), hook_outputs(subject.model, see, names):
        subject.model(*subject.inputs)
    return found


def _drawings(record: SpikeRecord, example: int) -> list[Drawing]:
    spikes = record.spikes[example, :STEPS]  # (T, width)
    steps, width = spikes.shape
    totals = spikes.sum(0)
    most = totals.argsort(descending=True, stable=True)
    shown = most[torch.linspace(0, width - 1, min(ROWS, width)).long()].tolist()
    of = f"{ROWS} of {count(width)}" if width > ROWS else "all"
    labels = [str(k) for k in shown], [str(t + 1) for t in range(steps)]
    raster = charts.matrix(
        f"Spikes by neuron and time step: {of}, the most active first",
        to_lists(spikes[:, shown].t()),
        ("neuron", labels[0]),
        ("step", labels[1]),
        scale="amount",
        format="count",
        low=0,
        high=1,
    )
    rate = [{"name": "spikes", "points": _points(spikes.mean(1))}]
    units = []
    level = record.neurons.threshold
    for unit in most[torch.linspace(0, width - 1, min(UNITS, width)).long()].tolist():
        curves = [
            {"name": "membrane potential U", "points": _points(record.potential[:STEPS, unit])},
            {"name": "threshold θ", "points": [[1, level], [steps, level]]},
        ]
        drawn = charts.lines(f"Membrane potential of neuron {unit}, before the reset", "step", curves)
        units.append({"name": f"neuron {unit}: {plural(int(totals[unit]), 'spike')}", "drawings": [drawn]})
    return [
        raster,
        charts.lines("Fraction of neurons that fire, by step", "step", rate, format="fraction"),
        charts.choice(
            "Single neurons, from the most active to the least", "neuron", units, start=min(2, len(units) - 1)
        ),
    ]


def _points(values: Tensor) -> list[list[Any]]:
    return [[step + 1, value] for step, value in enumerate(to_lists(values))]


def _row(record: SpikeRecord) -> list[Any]:
    spikes = record.spikes  # (N, T, width)
    each = spikes.sum(1)
    silent, always = ((each == level).all(0).double().mean().item() for level in (0, spikes.shape[1]))
    return [spikes.shape[2], spikes.shape[1], each.mean().item(), silent, always]


def _summary(name: str, record: SpikeRecord) -> str:
    width, steps, mean, silent, _ = _row(record)
    return (
        f"{name} has {plural(width, 'neuron')}, which fire {number(mean)} times in {plural(steps, 'step')} on average; "
        f"{percent(silent)} fire for none of the {plural(len(record.spikes), 'example')}."
    )
