"""Sinusoids learned from ten points each: MAML beside a network that was trained on all sinusoids at once.

Both networks have the same layers and see as many points in as many updates. Of a test sinusoid each takes gradient
steps on ten points, and is judged on ten others; the rate of the pre-trained one is that of RATES which is best on
validation sinusoids after ten steps.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import cutaway
from cutaway.apps.cli.arguments import flatten
from cutaway.core.spec import Episodes
from cutaway.data.dataset_base import Split
from cutaway.runs.run import Run
from cutaway.statistics.intervals import Metric
from cutaway.tasks.few_shot import FewShot
from cutaway.training.evaluation import evaluate_split

STEPS = (0, 1, 5, 10)
RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
TOGETHER = 50  # sinusoids that are adapted to at a time
SHOWN, GRID = 5, 51  # the test sinusoid that is drawn, and the places that it is drawn at


def train(recipe: dict[str, Any]) -> dict[str, Any]:
    """A training of each kind, as a row of results: the squared error of MAML after one step."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            name: cutaway.train(recipe["model"], "sinusoids", out=Path(folder) / name, **flatten(about["settings"]))
            for name, about in (("maml", recipe), ("all", recipe["beside"]))
        }
        return measured(runs["maml"], runs["all"])


def measured(maml: Run, pretrained: Run) -> dict[str, Any]:
    """The row of two runs."""
    data = maml.data()
    told = maml.spec.target
    assert isinstance(told, Episodes)
    val, test = data.splits["val"], data.splits["test"]
    rate = min(RATES, key=lambda lr: errors(pretrained, val, replace(told, inner_lr=lr, inner_steps=10)).value)
    forms = {"MAML": (maml, told), "pre-trained": (pretrained, replace(told, inner_lr=rate))}
    found = {
        (name, steps): errors(run, test, replace(form, inner_steps=steps))
        for name, (run, form) in forms.items()
        for steps in STEPS
    }
    one = found["MAML", 1]
    about = maml.about
    return {
        "command": about["command"],
        "value": one.value,
        "low": one.low,
        "high": one.high,
        "split": "test sinusoids",
        "count": len(test),
        "beside": [
            [f"{name} after {steps} step{'s' if steps != 1 else ''}", metric.value, "mse"]
            for (name, steps), metric in found.items()
            if (name, steps) != ("MAML", 1)
        ],
        "parameters": about["parameters"],
        "seconds": maml.about["seconds"] + pretrained.about["seconds"],
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{about['machine']['threads']} threads, {about['machine']['device']}, PyTorch "
        f"{about['versions']['torch']}",
        "rate": rate,
        "errors": {name: [found[name, steps].to_json() for steps in STEPS] for name in forms},
        "drawn": drawn(test, forms),
    }


def errors(run: Run, split: Split, told: Episodes) -> Metric:
    """The squared error of a run's network on sinusoids of a split, after it has adapted as `told`."""
    task = FewShot(told)
    return task.metrics(*evaluate_split(run.model, split, run.place, TOGETHER, task))["mse"]


@torch.no_grad()
def drawn(split: Split, forms: dict[str, tuple[Run, Episodes]]) -> dict[str, Any]:
    """One test sinusoid with its ten points, and what each network says of it after each number of steps."""
    ((inputs, y),) = [(batch.inputs[0], batch.target) for batch in split.batches([torch.tensor([SHOWN])])]
    (told,) = {form.support for _, form in forms.values()}
    x, known = inputs[None, :told], y[:, :told]
    grid = torch.linspace(-5, 5, GRID)[None, :, None]
    amplitude, phase = (float(v[0]) for v in split.functions(torch.tensor([SHOWN])))  # type: ignore[attr-defined]
    return {
        "x": [round(v, 3) for v in grid.flatten().tolist()],
        "true": _short(torch.from_numpy(amplitude * np.sin(grid.flatten().numpy() - phase))),
        "points": [[round(a, 3), round(b, 3)] for a, b in zip(x.flatten().tolist(), known.flatten().tolist())],
        "said": {
            name: [_short(_said(run.model, x, known, grid, replace(form, inner_steps=steps))) for steps in STEPS]
            for name, (run, form) in forms.items()
        },
    }


def _said(model: nn.Module, x: Tensor, y: Tensor, grid: Tensor, told: Episodes) -> Tensor:
    return FewShot(told).adapt_and_predict(model, x, y, grid)[0, :, 0]


def _short(values: Tensor) -> list[float]:
    return [round(v, 3) for v in values.tolist()]
