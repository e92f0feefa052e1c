"""Training by several processes: their number, parallel strategies, and activation checkpointing.

`select_strategy` selects how processes hold a model and combine their gradients: a single process, data parallelism, or
sharded weights (by rows, by heads and hidden units, or both). All strategies have the same interface, and all can
recompute activations.

Activation checkpointing: activations of a block are not kept for the backward pass but recomputed there.

    none        all activations of a block are kept
    selective   results of products with weights, convolutions and fused attention are kept, the rest is recomputed
    full        the input of a block is kept, and the block recomputed: a third more arithmetic

T. Chen, B. Xu, C. Zhang, C. Guestrin, Training deep nets with sublinear memory cost, 2016
<https://arxiv.org/abs/1604.06174>; selectively: V. A. Korthikanti et al., Reducing activation recomputation in large
Transformer models, 2022 <https://arxiv.org/abs/2205.05198>. It uses PyTorch's `checkpoint` in its non-reentrant form.
Dropout repeats its random numbers. Hooks on the modules in a block (`cutaway.inspect`) are called twice in a step, once
of them in the backward pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from ..checkpoints.deferred_init import DeferredInit, copy_to_meta, move_parameters_to_meta, named_tensors
from ..core.config import build
from ..core.errors import IncompatibleSettingError, LostProcess, MemoryLimitError, SettingError
from ..core.files import read_json
from ..core.memory_budget import format_bytes, free_memory
from ..data.dataset_base import DataSet
from ..distributed.checkpoint import Saver
from ..distributed.ddp import SynchronizedBatchNorm, wrap_in_ddp
from ..distributed.fsdp import build_mesh, set_gradient_sync, shard
from ..distributed.group import rank_and_size as place_in_group
from ..distributed.launch import is_launched, local_world_size, world_size
from ..distributed.tensor_parallel import TENSOR, global_norm, load_full_tensors, local_part, parallelize
from ..models.base import BaseModel, as_base_model
from ..nn.modules import NORMS
from .batches import batch_examples
from .checkpoint import LAST, TrainingState, latest_checkpoint, save_whole
from .compression import build_fake_quantization
from .config import TrainSettings
from .device import DeviceContext
from .optim import find_blocks, has_batch_norm


class SingleProcess:
    """Strategy of a single process, which holds the whole model."""

    def __init__(self, model: nn.Module, place: DeviceContext, settings: TrainSettings) -> None:
        self.model, self.place = model, place
        self.synchronized = place.processes > 1 and settings.sync_batchnorm and has_batch_norm(model)
        self.loss: Callable[..., Any] = model  # loss of a batch
        self.recompute = settings.recompute
        self.blocks = [] if settings.recompute == "none" else find_blocks(model)
        self.quantization = build_fake_quantization(model, settings)

    def set_loss(self, loss: Callable[..., Any]) -> None:
        """Set the loss, which is optimized over the parameters that currently require gradients."""
        self.loss = loss

    def batch_context(self, last: bool) -> AbstractContextManager[object]:
        """Return the context of a batch's forward and backward pass.

        `last` marks the last batch of an update, after which gradients are synchronized.
        """
        # Two empty contexts would be noticeable in a step of half a millisecond.
        return self._in_context() if self.quantization or self.blocks else nullcontext()

    @contextmanager
    def _in_context(self) -> Iterator[None]:
        with self.fake_quantized(), checkpointed(self.blocks, self.recompute, self.sync_batch_norm):
            yield

    def fake_quantized(self) -> AbstractContextManager[object]:
        """Return the context in which weights and inputs are rounded, for quantization-aware training."""
        return self.quantization.applied() if self.quantization else nullcontext()

    def sync_batch_norm(self) -> AbstractContextManager[object]:
        """Return the context that synchronizes batch normalization over all processes, if it is enabled."""
        return SynchronizedBatchNorm() if self.synchronized else nullcontext()

    def broadcast_statistics(self) -> None:
        """Broadcast running statistics from the first process, if batch normalization is not synchronized."""
        if not self.synchronized:
            self.place.broadcast_buffers(self.model)

    def inference_context(self) -> AbstractContextManager[object]:
        """Return the context for calling the model outside of the loss."""
        return self.fake_quantized()

    def clip_gradients(self, parameters: list[nn.Parameter], most: float) -> float | Tensor:
        """Clip the norm of the gradients to at most `most`, and return the norm before clipping."""
        return nn.utils.clip_grad_norm_(parameters, most)

    def save_checkpoint(self, folder: Path, tensors: dict[str, Tensor], state: TrainingState) -> None:
        """Write a checkpoint to the folder. All processes must call it. Raises FileError."""
        save_whole(folder, tensors, state, self.place.writes)

    def wait_for_checkpoint(self) -> None:
        """Wait until the last checkpoint is written, if it is written in the background. Raises FileError."""


class DataParallel(SingleProcess):
    """Distributed data parallel: each process holds the whole model, and gradients are summed over all processes."""

    def __init__(self, model: nn.Module, place: DeviceContext, settings: TrainSettings) -> None:
        super().__init__(model, place, settings)
        self._learning: frozenset[str] = frozenset()

    def set_loss(self, loss: Callable[..., Any]) -> None:
        """Set the loss, and rebuild DistributedDataParallel if the trainable parameters have changed."""
        learning = frozenset(name for name, p in self.model.named_parameters() if p.requires_grad)
        if learning != self._learning:
            self.loss = loss  # release the previous wrapper first
            self.loss, self._learning = wrap_in_ddp(self.model, loss), learning

    @contextmanager
    def batch_context(self, last: bool) -> Iterator[None]:
        """Return the context of a batch, with batch normalization over all processes.

        Only the last batch synchronizes gradients.
        """
        waiting = nullcontext() if last else self.loss.no_sync()  # type: ignore[attr-defined]
        with super().batch_context(last), waiting, self.sync_batch_norm():
            yield


class ShardedDataParallel(SingleProcess):
    """Strategy in which each process holds a shard of every weight.

    Training uses a copy of the model, which is sharded before its weights are initialized. The model itself keeps only
    its shapes until the end.
    """

    def __init__(
        self, model: nn.Module, place: DeviceContext, settings: TrainSettings, deferred: DeferredInit | None = None
    ) -> None:
        super().__init__(copy_to_meta(model).to(place.dtype), place, settings)
        mesh = build_mesh(place.device, place.processes, settings.parallel, place.tensor)
        if place.tensor > 1:
            parallelize(self.model, mesh[TENSOR])
        self.root: Any = shard(self.model, mesh, find_blocks(self.model), place.autocast_dtype)
        self.root.to_empty(device=place.device)
        load_full_tensors(self.model, deferred.numbers(model) if deferred else named_tensors(model))
        move_parameters_to_meta(model.to(place.dtype))
        for own, of_all in zip(model.buffers(), self.model.buffers()):
            own.copy_(of_all)
        self.loss = self.root
        self.saver = Saver()

    def set_loss(self, loss: Callable[..., Any]) -> None:
        """Set the loss in all processes."""
        self.root.loss = loss

    @contextmanager
    def batch_context(self, last: bool) -> Iterator[None]:
        """Return the context of a batch.

        Before the last batch of an update, whole gradients are accumulated in each process.
        """
        set_gradient_sync(self.root, last)
        with super().batch_context(last), self.sync_batch_norm():
            yield

    @contextmanager
    def inference_context(self) -> Iterator[None]:
        """Gather the parameters outside of blocks within this context. A block gathers its own when it computes."""
        self.root.unshard()
        try:
            yield
        finally:
            self.root.reshard()

    def clip_gradients(self, parameters: list[nn.Parameter], most: float) -> float | Tensor:
        """Clip the gradients by the norm of the whole gradient over all shards, and return that norm."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = global_norm(gradients)
        torch._foreach_mul_([local_part(gradient) for gradient in gradients], (most / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def save_checkpoint(self, folder: Path, tensors: dict[str, Tensor], state: TrainingState) -> None:
        """Write the shards of each process in the background."""
        self.saver.save(folder, LAST, tensors, {"state": state.to_json()})

    def wait_for_checkpoint(self) -> None:
        """Wait until the shards are written. Raises FileError."""
        self.saver.wait()


def select_strategy(
    model: nn.Module, place: DeviceContext, settings: TrainSettings, deferred: DeferredInit | None = None
) -> SingleProcess:
    """Return the parallel strategy for this model, whose initialization may be `deferred`."""
    if place.processes * place.tensor == 1:
        return SingleProcess(place.model(model), place, settings)
    if not settings.in_parts:
        return DataParallel(place.model(model), place, settings)
    return ShardedDataParallel(model, place, settings, deferred)


# --- processes ----------------------------------------------------------------------------------------------------

# Other objectives compare the examples of a whole batch, or keep a state.
DISTRIBUTED_OBJECTIVES = ("supervised", "mae")
SETTINGS = ("processes", "max_restarts", "memory_fraction")
PROCESS_BYTES = 200 << 20  # bytes of a process that has imported PyTorch, without model and data


def process_settings(given: Mapping[str, Any], known: Mapping[str, Any]) -> TrainSettings:
    """Return the settings of processes from `given`, or from the `known` settings of a resumed run.

    Raises SettingError if torchrun has started another number of processes.
    """
    own = {**known, **given}
    settings = build(TrainSettings, {key: own[key] for key in SETTINGS if key in own})
    there = world_size()
    if is_launched() and "processes" in given and settings.processes not in (1, there):
        raise IncompatibleSettingError(
            f"processes={settings.processes}, and torchrun has started {there}: leave processes out, which torchrun "
            "decides."
        )
    return settings


def reject_beyond_machine(settings: TrainSettings) -> None:
    """Raise SettingError if the requested processes would use up the memory of this machine before training starts."""
    free = free_memory() if settings.memory_fraction else None
    if free is not None and settings.processes * PROCESS_BYTES > settings.memory_fraction * free:
        raise MemoryLimitError(
            f"processes={settings.processes} take about {format_bytes(settings.processes * PROCESS_BYTES)} before any"
            f" of them has a model, and {format_bytes(free)} are free, of which"
            f" memory_fraction={settings.memory_fraction:g} may be taken. One for each GPU, or for each of the"
            f" {os.cpu_count()} processors here, is enough."
        )


def reject_for_processes(settings: TrainSettings, data: DataSet, model: nn.Module, name: str) -> None:
    """Raise SettingError if the model, called `name`, cannot be trained by this number of processes."""
    there = place_in_group()[1]
    if settings.processes != there:
        raise IncompatibleSettingError(
            f"processes={settings.processes} are started by `cutaway train` alone, and here is one: leave it out."
        )
    if there > 1 and (settings.objective not in DISTRIBUTED_OBJECTIVES or data.tasks is not None):
        what = (
            f"objective={settings.objective}"
            if settings.objective not in DISTRIBUTED_OBJECTIVES
            else "a sequence of tasks"
        )
        raise IncompatibleSettingError(
            f"processes={there} each see a part of a batch, and {what} is learned from whole ones: leave processes out."
        )

    if (tensor := settings.tensor_parallel) > 1:
        if there % tensor:
            raise SettingError(
                f"Invalid processes={there}: must be a multiple of tensor_parallel={tensor}, the number of "
                "processes for each model."
            )
        from ..distributed.tensor_parallel import reject_for_tensor_parallel  # slow to import

        reject_for_tensor_parallel(model, name, tensor)
    if there > 1:
        examples = batch_examples(data.splits["train"], settings)
        reject_small_batches(settings, examples, there, tensor)


def reject_small_batches(
    settings: TrainSettings, examples: int, processes: int, tensor: int, called: str = "processes"
) -> None:
    """Raise SettingError if a batch has fewer `examples` than there are copies of the model that share it.

    `called` is the name of the setting for the number of processes. The last batch of an epoch may be smaller: then
    each copy trains on all of it.
    """
    copies = processes // tensor
    if examples >= copies:
        return
    asked = f"{called}={processes}" + (f" with tensor_parallel={tensor}" if tensor > 1 else "")
    has = f"{examples:,} example{'s' * (examples != 1)}"
    said = f"{asked} shares each batch among {copies}, and it has {has}: some would have nothing to learn from."
    if settings.batch_tokens:
        raise SettingError(f"{said} Give a larger batch_tokens, or fewer {called}.")
    if not settings.batch_size or examples < settings.batch_size:
        raise SettingError(f"{said} The training split has only these: give fewer {called}.")
    said += f" Give batch_size={copies} or more, or fewer {called}."
    if settings.accumulate > 1:
        said += f" accumulate={settings.accumulate} does not help: its batches are shared one by one."
    raise SettingError(said)


def reject_parallel(settings: TrainSettings, model: nn.Module, place: DeviceContext) -> None:
    """Raise SettingError for a parallel strategy that these processes or this model do not support."""
    if settings.parallel in ("ddp", "fsdp", "hsdp") and place.processes == 1:
        there = "this is one" if place.tensor == 1 else f"tensor_parallel={place.tensor} takes all that there are"
        raise IncompatibleSettingError(
            f"parallel={settings.parallel} is for several processes, and {there}: leave it out."
        )
    if settings.in_parts:
        _reject_for_shards(settings, model)
    count, within = place.processes * place.tensor, local_world_size()
    if settings.parallel == "hsdp" and (count % within or count == within or within % place.tensor):
        raise SettingError(
            f"parallel=hsdp shards within each machine and copies between machines, and of {count} processes "
            f"{within} are on this one: take parallel=fsdp."
        )


def may_start_sharded(settings: TrainSettings) -> bool:
    """Return whether processes may shard the model from the start, so that no process has to hold it whole."""
    may = settings.in_parts or settings.parallel == "auto"
    pruned = settings.prune_channels or settings.sparsity or settings.prune_pattern != "none"
    whole = settings.vectors or pruned  # these need the initial weights
    return may and not whole and place_in_group()[1] > 1


def max_shards(settings: TrainSettings) -> int:
    """Return the largest number of shards into which processes may divide the model."""
    if not may_start_sharded(settings):
        return 1
    if settings.parallel == "hsdp":
        return local_world_size()
    return settings.tensor_parallel if settings.parallel == "ddp" else place_in_group()[1]


def requires_whole_weights(settings: TrainSettings, model: nn.Module) -> str | None:
    """Return the name of a setting that requires whole weights in each process, or None."""
    found = {
        f"freeze_epochs={settings.freeze_epochs}": settings.freeze_epochs,
        "compile=true": settings.compile,
        "channels_last=true": settings.channels_last,
        "a model that is initialized from training images": (
            type(as_base_model(model)).initialize_from is not BaseModel.initialize_from and not settings.weights
        ),
        "sparse embeddings": any(isinstance(m, nn.Embedding) and m.sparse for m in model.modules()),
    }
    return next((what for what, there in found.items() if there), None)


def _reject_for_shards(settings: TrainSettings, model: nn.Module) -> None:
    """Raise SettingError for settings that sharded weights do not support."""
    what = requires_whole_weights(settings, model)
    if what is None:
        return
    cut = settings.tensor_parallel > 1
    asked = f"tensor_parallel={settings.tensor_parallel}" if cut else f"parallel={settings.parallel}"
    raise IncompatibleSettingError(
        f"{asked} holds weights in parts, which {what} does not know: leave one of them out"
        f"{'' if cut else ', or take parallel=ddp'}."
    )


def find_launched_run(launch: str | None, out: str | Path | None) -> Path | None:
    """Return the run that the processes of a launch have started, in `out` or in runs/, or None."""
    for document in [Path(out) / "run.json"] if out is not None else sorted(Path("runs").glob("*/run.json")):
        if launch is not None and document.is_file() and _launch(document) == launch:
            return document.parent
    return None


def _launch(document: Path) -> Any:
    found = read_json(document)
    return found.get("launch") if isinstance(found, dict) else None


def add_resume_hint(lost: LostProcess, run: Path | None) -> LostProcess:
    """Return the same error, extended by how to resume the run."""
    if run is not None and latest_checkpoint(run / "checkpoints") is not None:
        way = f"Its checkpoint is kept, and any number of processes can go on: cutaway train --resume {run}"
    else:
        way = "There is no checkpoint yet: start a new run."
    lost.args = (f"{lost} {way}",)
    return lost


# --- activation checkpointing -------------------------------------------------------------------------------------

# Operations that take much time relative to their memory. Unfused attention, whose scores are quadratic in the text
# length, consists of `bmm` and is recomputed. Communication is not repeated.
SAVED_OPERATIONS = {
    "aten::mm",
    "aten::addmm",
    "aten::convolution",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "_c10d_functional::all_reduce",
    "_c10d_functional::all_gather_into_tensor",
    "_c10d_functional::reduce_scatter_tensor",
}


Context = AbstractContextManager[Any]


@contextmanager
def checkpointed(
    recomputed: Sequence[nn.Module], how: str, within: Callable[[], Context] = nullcontext
) -> Iterator[None]:
    """Recompute these blocks as `how` says within this context, which spans a forward and a backward pass.

    The recomputation runs in the context `within`, since the backward pass is outside of the contexts of the forward
    pass.
    """
    if how == "none":
        yield
        return
    for block in recomputed:
        contexts = partial(_contexts, block, within, selective=how == "selective")
        vars(block)["forward"] = partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)
    try:
        yield
    finally:
        for block in recomputed:
            del vars(block)["forward"]


def reject_for_recompute(settings: TrainSettings, model: nn.Module, weighable: bool) -> None:
    """Raise SettingError if this model cannot recompute; `weighable` is the attribute of the objective."""
    asked = f"recompute={settings.recompute}"
    if settings.recompute == "none":
        return
    if not find_blocks(model):
        raise IncompatibleSettingError(
            f"{asked} computes blocks again, and {type(model).__name__} has none: leave it out."
        )
    if not weighable:
        raise IncompatibleSettingError(
            f"{asked} computes a backward pass in another way than objective={settings.objective} does, which takes "
            "derivatives of derivatives: leave it out."
        )
    if settings.compile:
        raise IncompatibleSettingError(
            f"{asked} and compile=true both decide which activations are stored: give only one of them."
        )


def _contexts(block: nn.Module, within: Callable[[], Context], selective: bool) -> tuple[Context, Context]:
    """Return the contexts for computing and recomputing a block."""
    if not selective:
        return nullcontext(), _recompute_contexts(block, within(), nullcontext())
    first, kept = create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]
    return first, _recompute_contexts(block, within(), kept)


def _policy(context: object, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Return the checkpoint policy of an operation: to keep or to recompute its result.

    Random operations are recomputed, since skipping one would change the random numbers of those after it.
    """
    kept = operation.name().partition(".")[0] in SAVED_OPERATIONS and not _operation_argument(
        "dropout_p", operation, args, kwargs
    )
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def _operation_argument(name: str, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the argument of that name of an operation; None if it has none or it is not given."""
    names = [argument.name for argument in operation._schema.arguments]
    return kwargs.get(name, dict(zip(names, args)).get(name))


@contextmanager
def _recompute_contexts(block: nn.Module, *contexts: Context) -> Iterator[None]:
    """Enter the contexts with frozen running statistics of batch norms, which have already seen the batch."""
    norms: list[Any] = [module for module in block.modules() if isinstance(module, NORMS)]
    own = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        with ExitStack() as held:
            for context in contexts:
                held.enter_context(context)
            yield
    finally:
        for norm, (momentum, count) in zip(norms, own):
            norm.momentum, norm.num_batches_tracked = momentum, count
