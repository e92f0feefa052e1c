"""A memory check of a training step, extrapolated from two examples before the first full batch."""

from __future__ import annotations

from ...core.errors import SettingError
from ...core.memory_budget import format_bytes, free_memory
from ...training.config import TrainSettings
from ...training.memory_check import measure_activations
from ...training.trainer import Trainer

FEW = 2  # examples in the trial batch
FRACTION = 0.5  # of free memory for one step, at most: a second model may train at the same time
AND_BACK = 2  # activations of the forward pass, plus as much for gradients


def reject_large_steps(trainer: Trainer, settings: TrainSettings) -> None:
    """Raise SettingError if a training step would need too much memory. Neither the model nor random state changes."""
    free = free_memory()
    batches = trainer.batches_of(0)
    if free is None or not batches or settings.batch_tokens or not settings.batch_size:
        return  # batches of another kind have no fixed number of examples
    few = batches[0][:FEW]
    inputs, _ = trainer.place.batch(next(iter(trainer.train.batches([few]))))
    kept = measure_activations(trainer.model, inputs, trainer.place)
    needed = AND_BACK * kept * min(settings.batch_size, len(trainer.train)) / max(1, len(few))
    if needed > FRACTION * free:
        raise SettingError(
            f"A step of batch_size={settings.batch_size} examples would take about {format_bytes(int(needed))} of"
            f" memory with this model, and {format_bytes(free)} are free here, of which the studio takes half at most."
            " Make the model narrower, or the batch smaller."
        )
