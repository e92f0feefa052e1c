"""Check before training: data problems, a traced batch and the estimated cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...core.errors import DataError
from ...data.images.dataset import find_damaged
from ...data.streaming.manifest import is_prepared, unusable_shards_error
from ...data.streaming.media import damaged_shards
from ...data.unusable_examples import REPAIR
from ...draw.number_format import plural
from ...inspect.layers import LayerTable, layer_table
from ...training.config_checks import reject_incompatible
from ...training.cost_estimate import Estimate, estimate_cost
from ...training.memory.fake_step import StepProfile, is_traceable, simulate_step
from ...training.memory_check import reject_step_beyond_memory
from ...training.setup import TrainingSetup, setup_training
from ...training.train import set_epochs_from_steps

TRACE_BATCH = 4  # batch size of the trace


@dataclass(frozen=True)
class CheckResult:
    """Result of a check. Nothing is written, and no training result is kept."""

    ready: TrainingSetup
    cost: Estimate  # seconds and bytes of an epoch
    step: StepProfile | None  # memory and operations of a step; None if they cannot be traced
    inputs: tuple[torch.Tensor, ...]  # inputs of the traced batch
    layers: LayerTable

    @property
    def findings(self) -> list[str]:
        """Return the problems of the data, in sentences."""
        return self.ready.data.findings

    @property
    def notes(self) -> list[str]:
        """Return all notes on the data and the initial weights, including findings."""
        return [*self.ready.data.notes, *(self.ready.taken.notes if self.ready.taken else ())]

    @property
    def splits(self) -> dict[str, int]:
        """Return the number of examples of each split."""
        return {name: len(split) for name, split in self.ready.data.splits.items()}

    @property
    def memory(self) -> dict[str, int]:
        """Return bytes by kind: the data, and a step at its peak as in `cutaway plan`.

        If steps cannot be traced, the values are measured over a few of them.
        """
        cost = self.cost
        if self.step is not None:
            return {"data": cost.data, **self.step.peak}
        return {
            "data": cost.data,
            "weights": cost.weights,
            "gradients and optimizer": cost.learning,
            "activations": cost.activations,
            "outputs": cost.outputs,
        }

    def __repr__(self) -> str:
        splits = ", ".join(f"{count:,} {name}" for name, count in self.splits.items())
        about = (
            f"{self.ready.preset.name} on {self.ready.data.name}: {self.ready.data.spec.kind}, {self.ready.task.name}"
        )
        return f"<Checked {about}, {splits}; {plural(len(self.findings), 'finding')}>"

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        ready = self.ready
        return {
            "model": ready.preset.name,
            "data": {
                "source": ready.data.source,
                "kind": ready.data.spec.kind,
                "shape": list(ready.data.spec.shape),
                "splits": self.splits,
                "columns": ready.data.columns,
                "findings": self.findings,
                "evidence": self.ready.data.evidence,
                "notes": self.notes,
            },
            "task": ready.task.name,
            "batch": [list(x.shape) for x in self.inputs],
            "layers": self.layers.to_json()["rows"],
            "cost": {
                "steps": self.cost.steps,
                "seconds_per_step": self.cost.seconds_per_step,
                "seconds_per_epoch": self.cost.seconds_per_epoch,
                "flops_per_step": self.step.flops if self.step else None,
                "memory": sum(self.memory.values()),
            },
            "memory": self.memory,
        }


def check(model: Any, source: Any, given: Mapping[str, Any]) -> CheckResult:
    """Read the data, build the model, trace a batch and estimate the cost.

    Raises DataError for unreadable data, with every bad row or file in `problems`.
    """
    ready = setup_training(model, source, given)
    reject_incompatible(ready.settings, ready.data.splits["train"])
    set_epochs_from_steps(ready, given)
    damaged = damaged_shards(source) if isinstance(source, str) else []
    if problems := damaged or [p for split in ready.data.splits.values() for p in find_damaged(split)]:
        if is_prepared(source):
            raise unusable_shards_error(source, problems)
        raise DataError(
            f"{len(problems)} files in {source} cannot be read.", problems, f"{REPAIR} Nothing was changed."
        )
    reject_step_beyond_memory(ready)
    step = (
        simulate_step(ready) if is_traceable(ready) else None
    )  # before steps are timed, because those train the model
    cost = estimate_cost(ready)
    train = ready.data.splits["train"]
    batch = next(iter(train.batches([torch.arange(min(TRACE_BATCH, len(train)))])))
    inputs, _ = ready.place.batch(batch)
    return CheckResult(ready, cost, step, inputs, layer_table(ready.model, *inputs))
