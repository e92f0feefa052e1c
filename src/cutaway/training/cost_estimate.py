"""Estimates of the time and memory of training, from a few timed steps. Nothing is written.

Several calls are timed in turns, so that a machine that slows down affects all of them.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.dataset_base import Batch, Split
from .memory import activation_bytes
from .setup import TrainingSetup
from .trainer import Trainer, silent_trainer

HERE = __name__.partition(".")[0]  # this package, whose objects are searched for tensors
WARM_UP, MOST_STEPS, MOST_SECONDS = 2, 20, 3.0


@dataclass(frozen=True)
class Estimate:
    """Time and memory of training, extrapolated from a few steps."""

    steps: int  # per epoch
    seconds_per_step: float
    weights: int  # bytes: parameters and buffers
    learning: int  # bytes of gradients and optimizer state
    activations: int  # bytes kept from the forward pass for the backward pass, for one batch
    outputs: int  # bytes of temporary logits of token models, in chunks or whole
    data: int  # bytes of the data in memory

    @property
    def seconds_per_epoch(self) -> float:
        """Return the seconds of training in an epoch, without validation."""
        return self.steps * self.seconds_per_step

    @property
    def memory(self) -> int:
        """Return the total bytes, not counting Python and PyTorch themselves."""
        return self.weights + self.learning + self.activations + self.outputs + self.data


def estimate_cost(ready: TrainingSetup) -> Estimate:
    """Time up to 20 steps of real batches, fewer if they are slow. The model is modified and must not be reused."""
    trainer = silent_trainer(ready)
    batches = trainer.plan = trainer.epoch_batches(epoch=0)
    outputs = 0
    kept: dict[int, int] = {}

    def weigh(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    times: list[float] = []
    source = itertools.islice(ready.data.splits["train"].batches(batches, seed=0), WARM_UP + MOST_STEPS)
    began = time.perf_counter()
    for i, batch in enumerate(source):
        outputs = max(outputs, _logit_bytes(trainer, batch))
        before = time.perf_counter()
        if i == 0 and trainer.objective.weighable and ready.settings.recompute == "none":
            with torch.autograd.graph.saved_tensors_hooks(weigh, lambda x: x):
                trainer.step([batch], steps=len(batches))
        else:
            trainer.step([batch], steps=len(batches))
        trainer.call("on_step_end")
        if ready.place.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - before)
        if time.perf_counter() - began > MOST_SECONDS:
            break
    timed = sorted(times[WARM_UP:] or times[-1:])
    parameters = {p.untyped_storage().data_ptr(): p.nbytes for p in ready.model.parameters()}
    buffers = sum(b.nbytes for b in ready.model.buffers())
    remembered = sum(
        v.nbytes for o in trainer.optimizers for s in o.state.values() for v in s.values() if isinstance(v, Tensor)
    )
    return Estimate(
        steps=math.ceil(len(batches) / ready.settings.accumulate),
        seconds_per_step=timed[len(timed) // 2] * ready.settings.accumulate,
        weights=sum(parameters.values()) + buffers,
        learning=sum(parameters.values()) + remembered,
        activations=sum(size for pointer, size in kept.items() if pointer not in parameters)
        or activation_bytes(ready)[0],
        outputs=outputs,
        data=_tensor_bytes(list(ready.data.splits.values())),
    )


def _logit_bytes(trainer: Trainer, batch: Batch) -> int:
    """Return the bytes of a batch's logits that are not kept for the backward pass, for token models.

    With chunks this is one chunk. Otherwise it is the logits, which the step holds, and the gradients of the logits and
    of their logarithms.
    """
    chunked_head = trainer.objective.chunked_head
    if chunked_head is None:
        return 0
    bytes_each = torch.promote_types(trainer.place.dtype, torch.float32).itemsize
    tokens = batch.target.numel()
    count = min(chunked_head.chunk, tokens) if chunked_head.should_chunk(batch.target) else 3 * tokens
    return count * chunked_head.vocab_size * bytes_each


def _tensor_bytes(splits: list[Split]) -> int:
    """Return the bytes of all tensors that splits hold, including nested ones. Shared storages count once."""
    found: dict[int, int] = {}
    ahead: list[object] = list(splits)
    seen: set[int] = set()
    while ahead:
        value = ahead.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, list | tuple):
            ahead += [v for v in value if isinstance(v, Tensor)]
        elif type(value).__module__.startswith(HERE):
            ahead += vars(value).values() if hasattr(value, "__dict__") else []
    return sum(found.values())


SECONDS, TURNS = 2.0, 50  # limits for all calls together


def time_calls(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median milliseconds of each call."""
    for call in calls:
        call()  # warm-up
    spent: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + SECONDS
    while calls and (len(spent[0]) < 3 or (len(spent[0]) < TURNS and time.perf_counter() < end)):
        for call, times in zip(calls, spent):
            began = time.perf_counter()
            call()
            times.append(1000 * (time.perf_counter() - began))
    return [statistics.median(times) for times in spent]
