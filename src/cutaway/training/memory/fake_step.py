"""Simulation of one training step: the real loop, model and optimizer on fake tensors, which have shapes but no data.

It gives the memory of a step to the byte, also for models that do not fit on this machine. The batch is real: masks,
lengths and targets have values, so that the network takes its usual path.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from ...core.errors import ModelError, SettingError
from ...data.dataset_base import Batch
from ..batches import largest_batch
from ..cost_estimate import silent_trainer
from ..device import DeviceContext
from ..objectives.choice import OBJECTIVES
from ..parameter_groups import find_blocks
from ..setup import TrainingSetup
from ..trainer import Trainer
from .tracker import KINDS, MemoryTracker

STAYS = 0.01  # fraction of the peak


class NeedsRealValues(ModelError):
    """Raised if a network needs real values in its forward pass and has none."""


@dataclass(frozen=True)
class BlockMemory:
    """Memory of a block's activations for the backward pass, in bytes."""

    keeps: int  # all activations
    products: int  # those that are results of matrix products, convolutions and attention
    gives: int  # the output


@dataclass(frozen=True)
class StepProfile:
    """Memory and compute of a step in one process."""

    examples: int  # of the batch
    tokens: int  # of the batch: positions of sequences, else examples
    peak: Mapping[str, int]  # bytes by kind (`tracker.KINDS`) at the peak
    of_batch: Mapping[str, int]  # bytes by kind at the peak of the batch's own tensors
    gradients: int  # bytes of all gradients after the backward pass
    flops: int  # of products, two for each multiply-add, forward and backward
    moved: int  # bytes that operations read and write
    kernels: int  # operations that are not views
    blocks: tuple[BlockMemory, ...]
    imagined: bool  # simulated on fake tensors, else run on this machine
    not_counted: tuple[str, ...]  # operations with unknown FLOPs
    accumulates: bool = False  # whether gradients are accumulated over batches

    @property
    def total(self) -> int:
        """Return the bytes at the peak."""
        return sum(self.peak.values())


def simulate_step(ready: TrainingSetup, parts: int = 1, gpu: bool = False) -> StepProfile:
    """Simulate the largest step of a training, or the part of one of `parts` processes with its share of the batch.

    On a `gpu` attention keeps no weights, with dropout too, and larger chunks of logits are held. `ready.model` may be
    on the meta device. Raises NeedsRealValues if the network needs real values and has none, and SettingError for an
    objective whose steps cannot be traced.
    """
    if not is_traceable(ready):
        raise SettingError(
            f"objective={ready.settings.objective} takes second derivatives, whose steps are not planned: "
            "`cutaway check` times them here, and estimates their memory."
        )
    log = logging.getLogger("torch._subclasses.fake_tensor")
    log.setLevel(logging.CRITICAL)  # it reports unsupported operations, which are handled below
    try:
        return _step(ready, parts, gpu, imagined=True)
    except (RuntimeError, TypeError) as error:  # sparse matrices, or data-dependent control flow
        if any(x.is_meta for x in ready.model.parameters()):
            raise NeedsRealValues(
                f"{ready.preset.name} asks for numbers on its way, so a step of it is to be made on this machine to be "
                "planned, and it does not fit here: plan a smaller one."
            ) from error
        return _step(ready, parts, gpu, imagined=False)


def is_traceable(ready: TrainingSetup) -> bool:
    """Return whether the steps of this training can be traced."""
    return OBJECTIVES[ready.settings.objective].weighable


def _step(ready: TrainingSetup, parts: int, gpu: bool, imagined: bool) -> StepProfile:
    ledger = MemoryTracker()
    place = ready.place
    if imagined:
        model = to_fake(ready.model, place)
        place = _FakeContext(**{field.name: getattr(place, field.name) for field in fields(place)})
    else:
        model = copy.deepcopy(ready.model)
    with ledger, torch.random.fork_rng(), _FusedAttention() if gpu else nullcontext():
        for x in (*model.parameters(), *model.buffers()):
            ledger.count(x, "weights")
        trainer = _trainer(replace(ready, model=model, place=place), ledger)
        if words := getattr(trainer.objective, "words", None):
            words.gpu = gpu
        index = largest_batch(ready.data.splits["train"], ready.settings)
        index = index[: -(-len(index) // parts)]
        batch, passes = _batch(ready, index), min(2, ready.settings.accumulate)
        trainer.plan = [index] * passes
        for x in (*batch.inputs, batch.target):
            ledger.count(x, "activations")
        with ledger.watching(trainer.model, find_blocks(trainer.model)), _count_logits_apart(trainer, ledger):
            for _ in range(2):
                before = ledger.now["activations"]
                ledger.begin()
                trainer.state.batch = 0
                trainer.step([batch] * passes, steps=1000)
                trainer.call("on_step_end")
                if ledger.now["activations"] - before < STAYS * ledger.peak.total():
                    break  # else the step cached something, such as a sorted graph: repeat it
    return StepProfile(
        len(index),
        _tokens(batch),
        {kind: ledger.peak[kind] for kind in KINDS},
        {kind: ledger.of_batch[kind] for kind in KINDS},
        gradients=ledger.now["gradients"],
        flops=ledger.flops // passes * ready.settings.accumulate,
        moved=ledger.moved // passes * ready.settings.accumulate,
        kernels=ledger.kernels // passes * ready.settings.accumulate,
        blocks=tuple(BlockMemory(one["keeps"], one["products"], one["gives"]) for one in ledger.blocks),
        imagined=imagined,
        not_counted=tuple(sorted(ledger.not_counted)),
        accumulates=passes > 1,
    )


class _FakeContext(DeviceContext):
    """Device context for fake tensors, whose losses cannot be read."""

    @property
    def looks_at_every_step(self) -> bool:
        return False

    def model(self, model: nn.Module, learns: bool = True) -> nn.Module:
        return model


def to_fake(model: nn.Module, place: DeviceContext) -> nn.Module:
    """Return a copy of the model with fake tensors, which take no memory. Tensors that share storage still share it."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    found: dict[int, Any] = {}

    def imagine(x: Tensor) -> Tensor:
        dtype = place.dtype if x.is_floating_point() else x.dtype
        shape = torch.empty_strided(x.shape, x.stride(), dtype=dtype, device="meta")
        fake: Tensor = mode.fake_tensor_converter.from_meta_and_device(mode, shape, torch.device("cpu"))
        return nn.Parameter(fake, x.requires_grad) if isinstance(x, nn.Parameter) else fake

    for x in (*model.parameters(), *model.buffers()):
        found.setdefault(id(x), imagine(x))
    copied = copy.deepcopy(model, found)  # `found` serves as the memo of copies
    if place.channels_last:
        for conv in (m for m in copied.modules() if isinstance(m, nn.Conv2d)):
            conv.weight.data = conv.weight.data.contiguous(memory_format=torch.channels_last)
    return copied


def _trainer(ready: TrainingSetup, ledger: MemoryTracker) -> Trainer:
    trainer = silent_trainer(ready)
    trainer.state.update = 1  # the loss is read before the first update
    ledger.kind = "optimizer"
    for parameter in (p for p in trainer.model.parameters() if p.requires_grad):
        parameter.grad = torch.zeros_like(parameter)
    for optimizer in trainer.optimizers:
        optimizer.step()  # creates the optimizer state
        optimizer.zero_grad()
        optimizer.register_step_pre_hook(lambda *_: setattr(ledger, "kind", "optimizer"))
    return trainer


@contextmanager
def _count_logits_apart(trainer: Trainer, ledger: MemoryTracker) -> Iterator[None]:
    """Count logits separately if the loss computes the head in chunks."""
    words: Any = trainer.objective.words
    if words is None:
        yield
        return
    features = words.features

    def noted(*inputs: Tensor) -> Tensor:
        ledger.kind = "activations"
        seen: Tensor = features(*inputs)
        ledger.kind = "outputs"
        return seen

    words.features = noted
    try:
        yield
    finally:
        words.features = features


def _batch(ready: TrainingSetup, index: Tensor) -> Batch:
    return next(iter(ready.data.splits["train"].batches([index], seed=0)))


def _tokens(batch: Batch) -> int:
    """Return the number of positions in a batch of token ids (N, T), or of examples in other batches."""
    first = batch.inputs[0]
    return first.numel() if first.ndim == 2 and not first.is_floating_point() else len(first)


class _FusedAttention(TorchFunctionMode):
    """Function mode without dropout in attention, since the fused kernels of GPUs support it and the CPU's does not."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            if len(args) > 4:  # query, key, value, attn_mask, dropout_p
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs["dropout_p"] = 0.0
        return func(*args, **kwargs)
