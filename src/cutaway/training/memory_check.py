"""Memory check before a model is built and before the first training step.

The memory of a step's activations is measured and not computed from formulas, which would fail for new layers: a few
examples are run through the model, and their memory is extrapolated to the largest batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..core.errors import SettingError
from ..core.memory_budget import format_bytes, model_size
from ..core.spec import Episodes, ImageSpec, TableSpec, Tokens, Views
from ..data.dataset_base import Batch
from ..data.graphs.splits import NodeSplit
from ..models.base import as_output_tuple
from .batches import largest_batch
from .device import DeviceContext, free_memory
from .optim import training_bytes
from .parameter_groups import find_blocks
from .recompute import checkpointed
from .setup import TrainingSetup

MIN_REPORTED_FRACTION = 0.5  # part of the allowed memory from which on the estimate is reported
TRIAL_EXAMPLES = (2, 4)  # numbers of examples in the trials, if a batch has more


def reject_step_beyond_memory(ready: TrainingSetup) -> list[str]:
    """Return a note on the memory of training, if it is a large part of the free memory. Call it before the first step.

    Raises SettingError if gradients, optimizer state and activations take more than memory_fraction of the memory that
    is free now, with weights and data already loaded.
    """
    settings, free = ready.settings, free_memory(ready.place.device)
    if not settings.memory_fraction or free is None:
        return []
    size = model_size(ready.preset, ready.config)
    most = settings.memory_fraction * free
    kept, examples = activation_bytes(ready, most)
    ahead = training_bytes(size, settings) - size.bytes + kept
    said = (
        f"Training takes about {format_bytes(ahead)} of memory more than now, {format_bytes(kept)} of it for the"
        f" backward pass of a batch of {examples:,}, and {format_bytes(free)} are free"
    )
    if ahead > most:
        raise SettingError(
            f"{said}, of which at most {settings.memory_fraction:.0%} may be used. Use a smaller batch_size "
            "(accumulate makes up for it), shorter or smaller examples, or a smaller model; several devices share the "
            "batch, and hold the model in parts (parallel=fsdp); memory_fraction=0 trains anyway."
        )
    return [f"{said}."] if ahead > MIN_REPORTED_FRACTION * most else []


def activation_bytes(ready: TrainingSetup, most: float = math.inf) -> tuple[int, int]:
    """Return the bytes that the largest batch keeps for the backward pass, and its number of examples.

    The model and torch's random state are not changed. The trial with a few examples stops early if they exceed their
    part of `most` bytes, since it could otherwise exhaust the memory.
    """
    split, place = ready.data.splits["train"], ready.place
    largest = largest_batch(split, ready.settings)

    def measure(count: int) -> int:
        if isinstance(ready.data.spec, ImageSpec | TableSpec):  # all of one shape: no file has to be read
            inputs: tuple[Tensor, ...] = (torch.zeros(count, *ready.data.spec.shape),)
            if isinstance(ready.data.spec.target, Tokens):
                inputs += (torch.full((count, ready.data.spec.target.longest), ready.data.spec.target.begin),)
        else:
            inputs = next(iter(split.batches([largest[:count]], seed=0))).inputs
        on_device, _ = place.batch(Batch(inputs, torch.zeros(0)))
        model, how = place.model(ready.model), ready.settings.recompute
        if how != "none":
            return measure_recomputed_activations(model, on_device, place, how)
        return measure_activations(model, on_device, place, most * count / len(largest))

    few, more = TRIAL_EXAMPLES
    target = ready.data.spec.target  # a step may have several images for each example
    views = 2 if isinstance(target, Views) else target.size if isinstance(target, Episodes) else 1
    if isinstance(target, Episodes) and target.inner_lr is not None:
        views += 2 * target.inner_steps * target.support  # approximately: the backward pass on the support is kept too
    whole = isinstance(split, NodeSplit) and not split.neighbours  # a batch always has the whole graph
    if len(largest) <= more or whole:
        return views * measure(len(largest)), len(largest)
    first = measure(few)
    if first > most * few / len(largest):
        return views * first * len(largest) // few, len(largest)
    return views * (first + max(0, measure(more) - first) * (len(largest) - few) // (more - few)), len(largest)


class _LimitExceededError(Exception):
    """Raised to stop a trial that exceeds its limit."""


def measure_activations(
    model: nn.Module, inputs: tuple[Tensor, ...], place: DeviceContext, most: float = math.inf
) -> int:
    """Return the bytes that the model keeps of these inputs for the backward pass, without its parameters.

    The measurement stops above `most` bytes. The model and torch's random state are not changed.
    """
    found: dict[int, int] = {}
    total = 0
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def weigh(x: Tensor) -> Tensor:
        nonlocal total
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            total += storage.nbytes() - found.get(storage.data_ptr(), 0)
            found[storage.data_ptr()] = storage.nbytes()
            if total > most:
                raise _LimitExceededError
        return x

    with (
        suppress(_LimitExceededError),
        _restored(model),
        torch.autograd.graph.saved_tensors_hooks(weigh, lambda x: x),
        place.autocast(),
    ):
        answers = as_output_tuple(model(*inputs))
        total += sum(a.untyped_storage().nbytes() for a in answers)
    return total


def measure_recomputed_activations(model: nn.Module, inputs: tuple[Tensor, ...], place: DeviceContext, how: str) -> int:
    """Return the bytes for the backward pass if the model's blocks are recomputed, as with `recompute=how`.

    The result is the memory after the forward pass plus that of the largest block, which is held while it is
    recomputed.
    """
    parts, before = find_blocks(model), [0]
    plain, again = _LiveMemory(model), _LiveMemory(model)
    largest = 0

    def enter(*_: object) -> None:
        before.append(plain.bytes())

    def leave(*_: object) -> None:
        nonlocal largest
        largest = max(largest, plain.bytes() - before.pop())

    with _restored(model), place.autocast():
        hooks = [block.register_forward_pre_hook(enter) for block in parts]
        hooks += [block.register_forward_hook(leave) for block in parts]
        with plain:
            model(*inputs)
        for hook in hooks:
            hook.remove()
        with checkpointed(parts, how), again:
            answers = model(*inputs)
    kept = again.bytes()
    del answers  # keeps the activations alive until here
    return kept + largest


class _LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that tracks the memory of all tensors created within it until they are freed."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._own = {x.untyped_storage()._cdata for x in (*model.parameters(), *model.buffers())}
        self._found: dict[int, tuple[Any, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation unchanged, and track its results."""
        given = func(*args, **(kwargs or {}))
        for x in tree_leaves(given):
            if isinstance(x, Tensor):
                storage = x.untyped_storage()
                if storage._cdata not in self._own:  # neither weights nor views of them
                    watched = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                    self._found[storage._cdata] = (watched, storage.nbytes())
        return given

    def bytes(self) -> int:
        """Return the tracked bytes that are currently alive."""
        return sum(size for storage, size in self._found.values() if not storage.expired())


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Set training mode within this context; restore modes, statistics of norms and random states on exit."""
    training = {module: module.training for module in model.modules()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.random.fork_rng():
        model.train()
        try:
            yield
        finally:
            with torch.no_grad():
                for name, buffer in model.named_buffers():
                    buffer.copy_(buffers[name])
            for module, was in training.items():
                module.training = was
