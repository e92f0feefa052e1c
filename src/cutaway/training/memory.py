"""Memory of training: an estimate before the first step, for one process and under each parallel strategy.

In one process the memory of a step's activations is measured and not computed from formulas, which would fail for new
layers: a few examples are run through the model, and their memory is extrapolated to the largest batch. For several
processes one step is simulated (`simulated_step`), as in `cutaway plan`, and its memory divided among them:

    strategy   weights, gradients, optimizer    sent in a step, of each process
    one        all                              nothing
    ddp        all, and a bucket being sent     gradients, all-reduced: 2 (N − 1)/N of them
    fsdp       1/N, and the active blocks       weights twice, gradients once: (N − 1)/N of each
    hsdp       1/n, n GPUs of a machine         the same within a machine, 1/n of the gradients between machines

ddp: S. Li et al., 2020 <https://arxiv.org/abs/2006.15704>; fsdp: stage 3 of S. Rajbhandari et al., ZeRO, 2019
<https://arxiv.org/abs/1910.02054>, as PyTorch's `fully_shard` implements it. Activations are those of 1/N of the batch.
`resolve_parallel` selects the strategy for `parallel=auto`, and trainings that do not fit are rejected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..core.errors import MemoryLimitError
from ..core.memory_budget import format_bytes, model_size
from ..core.spec import Episodes, ImageSpec, ImageTokens, TableSpec, Tokens, Views
from ..data.dataset_base import Batch
from ..data.graphs.splits import NodeSplit
from ..distributed.group import rank_zero_only
from ..distributed.launch import local_world_size
from ..models.base import as_output_tuple
from .batches import largest_batch
from .config import TrainSettings
from .device import DeviceContext, for_sharded_weights, free_memory, num_sharing_processes
from .optim import find_blocks, training_bytes
from .parallel import checkpointed, reject_parallel, requires_whole_weights
from .setup import TrainingSetup
from .simulated_step import BlockMemory, NeedsRealValues, StepProfile, is_traceable, simulate_step

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
        raise MemoryLimitError(
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
            if isinstance(ready.data.spec.target, ImageTokens):
                length = ready.data.spec.target.caption + ready.data.spec.height * ready.data.spec.width
                inputs = (torch.zeros(count, length, dtype=torch.int64),)
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


# --- several processes -----------------------------------------------------------------------------------------------

STRATEGIES = ("one", "ddp", "fsdp", "hsdp")
WORKSPACE = 64 * 2**20  # bytes that PyTorch keeps on a GPU for matrix products, as measured on an H200
FIRST, BUCKET = 2**20, 25 * 2**20  # bytes at which DistributedDataParallel closes a bucket of gradients
SENDING = 2  # copies of a bucket: the received one, and one in gloo
GATHERED = 2  # blocks that are gathered at once: the current and the next one
# Fraction of a Transformer block's activations that tensor parallelism does not shard: 10 of 34 bytes. V. Korthikanti
# et al., Reducing activation recomputation in large Transformer models, 2022, table 2 <https://arxiv.org/abs/2205.05198>.
NOT_SHARED = 10 / 34


@dataclass(frozen=True)
class WeightLayout:
    """Parameters of a model as strategies use them, in bytes of their storage format."""

    shapes: tuple[tuple[int, ...], ...]
    itemsize: int
    compute: int  # bytes per number in products
    blocks: tuple[int, ...]  # bytes of each block's parameters
    matrices: int  # bytes of the matrices of blocks, which tensor parallelism shards
    copies: int = 0  # further copies of weights, such as a moving average

    @property
    def total(self) -> int:
        """Return the bytes of all parameters."""
        return self.itemsize * sum(math.prod(shape) for shape in self.shapes)

    @property
    def root(self) -> int:
        """Return the bytes of parameters outside of blocks: embeddings and head."""
        return self.total - sum(self.blocks)

    @property
    def bucket(self) -> int:
        """Return the bytes of the largest bucket that DistributedDataParallel forms from the parameters in order."""
        most, now, end = 0, 0, FIRST
        for shape in self.shapes:
            now += self.itemsize * math.prod(shape)
            most = max(most, now)
            if now >= end:
                now, end = 0, BUCKET
        return most

    def sharded(self, ranks: int) -> float:
        """Return the fraction of all parameters in the first of `ranks` processes, which has some rows of each."""
        rows = (math.ceil(shape[0] / ranks) * math.prod(shape[1:]) if shape else 1 for shape in self.shapes)
        return sum(rows) * self.itemsize / max(1, self.total)


def weight_layout(
    model: nn.Module, blocks: list[nn.Module], dtype: torch.dtype, compute: torch.dtype | None, copies: int = 0
) -> WeightLayout:
    """Return the weights of a model whose parameters are stored as `dtype` and converted to `compute` for products."""
    size = dtype.itemsize
    inside = [list(block.parameters()) for block in blocks]
    return WeightLayout(
        tuple(tuple(p.shape) for p in model.parameters()),
        size,
        (compute or dtype).itemsize,
        tuple(size * sum(p.numel() for p in one) for one in inside),
        size * sum(p.numel() for one in inside for p in one if p.ndim >= 2),
        copies,
    )


@dataclass(frozen=True)
class ProcessMemory:
    """Peak memory of one process, in bytes."""

    weights: float  # and buffers
    casts: float  # weights in the number format of products
    gradients: float
    optimizer: float
    activations: float
    outputs: float
    working: float  # temporary tensors of the backward pass
    communication: float  # buckets, and gathered weights and gradients
    checkpoint: float = 0.0  # copy of the shards that is written in the background
    workspace: float = 0.0  # of matrix products

    @property
    def total(self) -> float:
        """Return the sum of all parts."""
        return float(sum(getattr(self, field.name) for field in fields(self)))

    @property
    def of_batch(self) -> float:
        """Return the part that grows with the batch."""
        return self.activations + self.outputs + self.working


def num_shards(strategy: str, copies: int, within: int) -> int:
    """Return the number of processes over which the weights are sharded.

    `copies` processes share a batch, `within` of them on each machine.
    """
    return {"fsdp": copies, "hsdp": within}.get(strategy, 1)


def process_memory(
    strategy: str,
    step: StepProfile,
    weights: WeightLayout,
    ranks: int,
    tensor_parallel: int = 1,
    recompute: str = "none",
    reserved: bool = False,
    copied: bool = False,
) -> ProcessMemory:
    """Return the memory of one process under `strategy`, if `step` is its step.

    `ranks` processes shard the weights (see `num_shards`). On a GPU (`reserved`) products have a workspace, and the
    gradients of several processes count in full, since the allocator keeps their memory from step to step. A sharded
    checkpoint is `copied` to the same memory, as on a CPU, or to another.
    """
    matrices = weights.matrices / max(1, weights.total)
    own = 1 - matrices + matrices / tensor_parallel  # of all weights, with tensor parallelism
    part = own * (weights.sharded(ranks) if strategy in ("fsdp", "hsdp") else 1.0)
    kept = 1.0 if tensor_parallel == 1 else NOT_SHARED + (1 - NOT_SHARED) / tensor_parallel
    saved = _bytes_saved(step.blocks, recompute)
    in_buckets = strategy == "ddp" and tensor_parallel == 1  # DistributedDataParallel's; else `replicate` sends them
    copies = copied and (strategy in ("fsdp", "hsdp") or tensor_parallel > 1)

    def at(peak: Mapping[str, int], waiting: bool = step.accumulates) -> ProcessMemory:
        in_full, alive = reserved and strategy != "one", peak["gradients"] / max(1, step.gradients)
        gradients = step.gradients if in_full else peak["gradients"]
        if in_buckets:  # allocated from the start, next to accumulated gradients
            gradients = step.gradients + (peak["gradients"] if waiting else 0)
            alive = 0.0 if waiting else alive
            sent = alive * SENDING * weights.bucket
        else:
            sent = _communication_bytes(strategy, weights, 1.0 if in_full else alive)
        buffers = peak["weights"] - weights.total * (1 + weights.copies)
        return ProcessMemory(
            weights=buffers + part * (peak["weights"] - buffers),
            casts=0.0 if strategy in ("fsdp", "hsdp") else own * peak["casts"],
            gradients=part * gradients,
            optimizer=part * peak["optimizer"],
            activations=max(0.0, peak["activations"] - saved) * kept,
            outputs=peak["outputs"],
            working=peak["working"],
            communication=own * sent,
            checkpoint=part * (peak["weights"] - buffers + peak["optimizer"]) + buffers if copies else 0.0,
            workspace=WORKSPACE if reserved else 0.0,
        )

    found = [at(step.peak), at(step.of_batch)]
    if in_buckets:  # the last bucket is sent when few activations are left
        of_batch = dict.fromkeys(("activations", "outputs", "working"), 0)
        found.append(at({**step.peak, **of_batch, "gradients": step.gradients}, waiting=False))
    return max(found, key=lambda memory: memory.total)


def _bytes_saved(blocks: tuple[BlockMemory, ...], recompute: str) -> float:
    """Return the bytes that recomputing saves.

    Blocks then keep only their outputs (and products, if it is selective), except for one block, which is recomputed
    while its gradients are computed.
    """
    if recompute == "none" or not blocks:
        return 0
    left = [max(0, b.keeps - b.gives - (b.products if recompute == "selective" else 0)) for b in blocks]
    return sum(left) - max(left)


def _communication_bytes(strategy: str, weights: WeightLayout, alive: float) -> float:
    """Return the bytes of communication buffers and gathered weights; `alive` is the fraction of live gradients."""
    if strategy == "ddp":
        return weights.total + alive * min(weights.total, 3 * BUCKET)
    if strategy not in ("fsdp", "hsdp"):
        return 0
    block = max(weights.blocks, default=0)
    narrow = weights.compute / weights.itemsize
    # Gathered: parameters outside of blocks and their gradient, two blocks, and a block's gradient twice (being sent).
    return 2 * weights.root + GATHERED * narrow * block + narrow * block + block


def bytes_sent(
    strategy: str, step: StepProfile, weights: WeightLayout, gpus: int, node: int, tensor_parallel: int = 1
) -> tuple[float, float]:
    """Return the bytes that each GPU sends in a step within its machine of `node` GPUs, and between machines.

    Ring algorithms send (N − 1)/N of gathered or scattered data, and twice that of all-reduced data.
    """
    if gpus == 1 or strategy == "one":
        return 0.0, 0.0
    copies, within = gpus // tensor_parallel, node // tensor_parallel
    own = 1 - (weights.matrices / max(1, weights.total)) * (1 - 1 / tensor_parallel)
    gradients = own * weights.total
    gathered = own * weights.total * weights.compute / weights.itemsize
    inside = _tensor_parallel_bytes(step, weights, tensor_parallel)

    def ring(n: int) -> float:
        return (n - 1) / n

    if strategy == "ddp":
        sent = 2 * ring(copies) * gradients
    elif strategy == "fsdp":
        sent = ring(copies) * (2 * gathered + gradients)
    else:
        inside += ring(within) * (2 * gathered + gradients)
        return inside, 2 * ring(gpus // node) * gradients / within
    return (inside + sent, 0.0) if gpus <= node else (inside, sent)


def _tensor_parallel_bytes(step: StepProfile, weights: WeightLayout, tensor_parallel: int) -> float:
    """Return the bytes that tensor parallelism sends: four sums of each block's output, two in each direction."""
    if tensor_parallel == 1:
        return 0.0
    return 4 * 2 * (tensor_parallel - 1) / tensor_parallel * sum(block.gives for block in step.blocks)


def resolve_parallel(ready: TrainingSetup) -> None:
    """Resolve `parallel=auto`, if several processes share the batches. All processes must call it.

    Raises SettingError if the model does not fit whole and cannot be sharded.
    """
    settings, place = ready.settings, ready.place
    if settings.parallel == "auto" and place.processes > 1:
        room = _min_room(ready)
        too_large = room is not None and memory_per_process(ready, "ddp").total > room
        ready.settings = replace(settings, parallel="fsdp" if too_large else "ddp")
        reject_parallel(ready.settings, ready.model, place)
        ready.place = for_sharded_weights(ready.settings, place)
    if ready.deferred and not ready.settings.in_parts:
        initialize_deferred(ready)


def reject_beyond_memory(ready: TrainingSetup) -> list[str]:
    """Return a note on the memory of training, if it is a large part of the free memory.

    All processes must call it before the first step, after the strategy is resolved. Raises SettingError, with what
    would fit, if training takes more of a device than memory_fraction allows.
    """
    settings, place = ready.settings, ready.place
    count = place.processes * place.tensor
    if count == 1 or not is_traceable(ready):
        return reject_step_beyond_memory(ready)
    room = _min_room(ready)
    if room is None or room == math.inf:
        return []
    strategy = settings.parallel if settings.parallel in ("fsdp", "hsdp") else "ddp"
    held = memory_per_process(ready, strategy)
    said = (
        f"Training takes about {format_bytes(held.total)} on each of {count} devices with parallel={strategy}, "
        f"{format_bytes(held.of_batch)} of it for its part of a batch"
    )
    if held.total > room:
        free = f"{format_bytes(room)} of each may be taken (memory_fraction={settings.memory_fraction:g})"
        raise MemoryLimitError(f"{said}, and {free}. {_suggest_fix(ready, strategy, room)}")
    return [f"{said}; {format_bytes(room)} may be taken."] if held.total > MIN_REPORTED_FRACTION * room else []


def _suggest_fix(ready: TrainingSetup, strategy: str, room: float) -> str:
    """Return what would make the training fit, the most certain first."""
    if strategy == "ddp" and requires_whole_weights(ready.settings, ready.model) is None:
        parts = memory_per_process(ready, "fsdp").total
        if parts <= room:
            return f"Held in parts it takes {format_bytes(parts)} on each, and fits: parallel=fsdp."
        more = f"Held in parts (parallel=fsdp) it takes {format_bytes(parts)} on each: take that with"
    else:
        more = "Take"
    again = "recompute=full, " if ready.settings.recompute != "full" and find_blocks(ready.model) else ""
    return (
        f"{more} more devices, a smaller batch_size (accumulate makes up for it), {again}or a smaller model; "
        "memory_fraction=0 trains anyway."
    )


def memory_per_process(ready: TrainingSetup, strategy: str) -> ProcessMemory:
    """Return the memory of each process in a step with that strategy. The first process computes it for all."""
    try:
        return rank_zero_only(lambda: _simulate_memory(ready, strategy))
    except NeedsRealValues:
        if ready.deferred is None:
            raise
        initialize_deferred(ready)
        return rank_zero_only(lambda: _simulate_memory(ready, strategy))


def _simulate_memory(ready: TrainingSetup, strategy: str) -> ProcessMemory:
    """Return the memory of each process, from a simulated step of one process with its share of the batch."""
    settings, place = ready.settings, ready.place
    alone = replace(
        ready,
        settings=replace(settings, processes=1, tensor_parallel=1, recompute="none"),
        place=replace(place, rank=0, processes=1, tensor=1, tensor_rank=0),
    )
    weights = weight_layout(
        ready.model, find_blocks(ready.model), place.dtype, place.autocast_dtype, bool(settings.ema)
    )
    on_gpu = place.device.type == "cuda"
    ranks = num_shards(strategy, place.processes, local_world_size() // place.tensor)
    step = simulate_step(alone, place.processes, gpu=on_gpu)
    here = place.device.type == "cpu"
    return process_memory(
        strategy, step, weights, ranks, place.tensor, settings.recompute, reserved=on_gpu, copied=here
    )


def initialize_deferred(ready: TrainingSetup) -> None:
    """Initialize a model whose initialization was deferred, if processes hold it whole."""
    if ready.deferred is not None:
        ready.deferred.fill(ready.model)
        ready.deferred = None


def _min_room(ready: TrainingSetup) -> float | None:
    """Return the bytes that each process may use: the smallest number of any process; None if unknown."""
    device = ready.place.device
    rooms = ready.place.all_gather(available_bytes(ready.model, device, ready.settings, num_sharing_processes(device)))
    return None if None in rooms else min(room for room in rooms if room is not None)


def available_bytes(
    model: nn.Module, device: torch.device, settings: TrainSettings, processes: int = 1
) -> float | None:
    """Return the bytes of the device that each of `processes` processes may use, including those of the loaded model.

    The result is None if the system does not report free memory.
    """
    free = free_memory(device)
    weights = [*model.parameters(), *model.buffers()]
    held = 0 if any(x.is_meta for x in weights) else sum(x.nbytes for x in weights)
    return None if free is None else (settings.memory_fraction or math.inf) * (free + held) / processes
