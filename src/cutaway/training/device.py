"""Device, number format, and this process's share of the work; reproducibility of resumed runs.

The training loop uses only this interface. In a single process there is no process group, and all methods return at
once.

Resumed runs end bit-identical to uninterrupted ones, or a note says why not. Sums are split over CPU threads, and
floating-point sums depend on how they are split. The result therefore depends on the number of threads, which is
recorded when a run starts and restored when it is resumed.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..checkpoints.custom import is_adapted
from ..core.config import shorten
from ..core.errors import DeviceError, IncompatibleSettingError, SettingError
from ..core.memory_budget import free_memory as free_on_machine
from ..data.dataset_base import Batch, Split, TensorSplit
from ..distributed import group, launch
from .config import TrainSettings

# On a CPU, kernels with more weights than this are applied to small maps, where training with channels-last is
# slower: used everywhere, it costs ResNet-18, ResNet-50 and Inception-v3 3 % of a step more than with this bound. Plain
# format everywhere costs these and DenseNet-121 about 15 %.
LARGE_KERNEL = 400_000
NARROW = 16  # channels of a block on processors with AVX-512; 8 on others
T = TypeVar("T")
MAX_HELD_FRACTION = 0.25  # largest fraction of a device's free memory that a resident split may take


@dataclass(frozen=True)
class DeviceContext:
    """Device, number format of the forward pass, and the part of the work that this process does."""

    device: torch.device
    dtype: torch.dtype  # of the weights
    autocast_dtype: torch.dtype | None  # of matrix products in the forward pass; None for `dtype`
    channels_last: bool
    rank: int = 0
    processes: int = 1  # processes with different examples
    tensor: int = 1  # tensor-parallel processes for each of those, with the same examples
    tensor_rank: int = 0

    @property
    def writes(self) -> bool:
        """Return whether this process writes the run's files."""
        return self.rank == self.tensor_rank == 0

    @property
    def reads_loss_every_step(self) -> bool:
        """Return whether reading a loss is cheap at every step.

        An accelerator must synchronize, so there it is done rarely.
        """
        return self.device.type == "cpu"

    def model(self, model: nn.Module, learns: bool = True) -> nn.Module:
        """Move the model to the device, with its number format and memory format.

        The memory format is the fastest one for training if `learns`, else for inference. Calling it again has no
        effect.
        """
        model = model.to(self.device, self.dtype)
        if self.channels_last:
            for module in model.modules():
                if isinstance(module, nn.Conv2d):
                    _set_memory_format(module, learns)
        return model

    def keep_on_device(self, split: Split) -> Split:
        """Move the tensors of a split to the device permanently, so that its batches are taken from there.

        This is done only for a split in memory that takes at most a quarter of the device's free memory. Otherwise, and
        on a CPU, the split is returned unchanged.
        """
        if self.device.type == "cpu" or not isinstance(split, TensorSplit):
            return split
        if split.inputs.nbytes > MAX_HELD_FRACTION * (free_memory(self.device) or 0):
            return split
        held = copy.copy(split)
        held.inputs = self._move(split.inputs)
        held.target = None if split.target is None else self._move(split.target)
        return held

    def batch(self, batch: Batch) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the inputs and the target of the batch, moved to the device."""
        if self.reads_loss_every_step and not self.channels_last and self.dtype == torch.float32:
            return batch.inputs, batch.target  # already on the CPU
        return tuple(self._move(self._pin(x)) for x in batch.inputs), self._move(self._pin(batch.target))

    def shard_batch(self, x: Tensor, carries: bool = False, dim: int = 0) -> Tensor:
        """Return this process's share of a batch: every N-th example along `dim`, for N processes.

        Every process gets at least one example; `shard_weight` is its weight. A batch with fewer examples than
        processes goes to every process. If batches continue one another (`carries`), each process keeps its rows, and a
        process whose rows have ended takes the first one.
        """
        count = x.shape[dim]
        if self.processes == 1 or (count < self.processes and not carries):
            return x
        first = self.rank if self.rank < count else 0
        return x.index_select(dim, torch.arange(first, count, self.processes, device=x.device))

    def shard_weight(self, count: int, carries: bool = False) -> float:
        """Return the weight of this process's shard of `count` examples, so that each example counts once overall."""
        if count >= self.processes:
            return 1.0
        return float(self.rank < count) if carries else 1 / self.processes

    def sum_over_shards(self, *numbers: float) -> tuple[float, ...]:
        """Return the numbers summed over the processes with different examples."""
        if self.processes == 1:
            return numbers
        return self.sum_over_processes(*(x if self.tensor_rank == 0 else 0.0 for x in numbers))

    def sum_over_processes(self, *numbers: float) -> tuple[float, ...]:
        """Return the numbers summed over all processes, including those with the same examples."""
        if self.processes * self.tensor == 1:
            return numbers
        return tuple(group.all_reduce_sum(torch.tensor(numbers, dtype=torch.float64)).tolist())

    def all_gather(self, value: T) -> list[T]:
        """Gather the value of each process in rank order; of processes with the same examples, the first one's."""
        return [value] if self.processes * self.tensor == 1 else group.all_gather_object(value)[:: self.tensor]

    def broadcast_buffers(self, model: nn.Module) -> None:
        """Broadcast the model's buffers, such as running means, from the first process."""
        if self.processes * self.tensor > 1:
            group.broadcast_tensors([*model.buffers()])

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Return the autocast context of the forward pass."""
        if self.autocast_dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast_dtype)

    def _pin(self, x: Tensor) -> Tensor:
        """Return the tensor in pinned memory if it goes to a GPU, so that the copy does not wait for the GPU."""
        plain = type(x) is Tensor and x.layout is torch.strided and x.device.type == "cpu"
        return x.pin_memory() if self.device.type == "cuda" and plain else x

    def _move(self, x: Tensor) -> Tensor:
        x = x.to(self.device, non_blocking=True)
        if x.is_floating_point() and x.dtype != self.dtype:
            x = x.to(self.dtype)
        return x.contiguous(memory_format=torch.channels_last) if self.channels_last and x.ndim == 4 else x


def merge_states(parts: Sequence[Tensor]) -> Tensor:
    """Merge the states (layers, n, hidden) of the processes' shares into (layers, N, hidden) of the batch."""
    if len(parts) == 1:
        return parts[0]
    found = parts[0].new_empty(parts[0].shape[0], sum(part.shape[1] for part in parts), *parts[0].shape[2:])
    for rank, part in enumerate(parts):
        found[:, rank :: len(parts)] = part
    return found


def find_device(device: str) -> torch.device:
    """Return the device of that name; `auto` is the fastest one. Raises SettingError if the device is not available."""
    return torch.device(_fastest() if device == "auto" else _validate_device(device))


def available_device(device: str) -> str:
    """Return the device of that name if it is available, else `auto`."""
    try:
        return str(find_device(device)) if device != "auto" else device
    except SettingError:
        return "auto"


def select_device(
    device: str, precision: str, channels_last: bool | None, model: nn.Module, tensor: int = 1
) -> DeviceContext:
    """Return the device context for these settings.

    `auto` selects the fastest device, bfloat16 only if the hardware supports it, and channels-last for convolutions of
    the catalog's models. Each group of `tensor` consecutive processes gets the same examples. Raises SettingError if
    the device is not available, and for an LSTM in bfloat16 on a processor without it: PyTorch has no kernel for that.
    """
    found = find_device(device)
    lacks = found.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if precision == "bfloat16" and lacks and any(isinstance(m, nn.LSTM) for m in model.modules()):
        raise IncompatibleSettingError(
            "Invalid precision=bfloat16: this processor has no bfloat16, which PyTorch's LSTM needs. Leave it out."
        )
    dtype = torch.float64 if precision == "float64" else torch.float32
    half = precision == "bfloat16" or (
        precision == "auto" and found.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    )
    if channels_last is None:
        channels_last = not is_adapted(model) and any(isinstance(m, nn.Conv2d) for m in model.modules())
    if found.type == "cuda" and launch.is_launched():
        found = _own_gpu(found)
    rank, processes = group.rank_and_size()
    own = (rank // tensor, processes // tensor, tensor, rank % tensor)
    return DeviceContext(found, dtype, torch.bfloat16 if half else None, channels_last, *own)


def _own_gpu(asked: torch.device) -> torch.device:
    """Return the GPU with this process's local rank.

    Raises SettingError if there are more processes than GPUs, or all of them are assigned to one GPU.
    """
    here, there = launch.local_world_size(), torch.cuda.device_count()
    if asked.index is not None and here > 1:
        raise DeviceError(
            f"device={asked} is one GPU, and each of the {here} processes on this machine takes one of its own: leave "
            "device out."
        )
    if here > there:
        raise DeviceError(
            f"{here} processes on this machine would each take a GPU, and it has {there}: start at most that many, or "
            "use device=cpu."
        )
    return asked if asked.index is not None else torch.device("cuda", launch.local_rank())


def for_sharded_weights(settings: TrainSettings, place: DeviceContext) -> DeviceContext:
    """Return the context without channels-last if these settings shard weights, whose shards are contiguous."""
    return replace(place, channels_last=False) if settings.in_parts else place


def single_process_context(place: DeviceContext, model: nn.Module, fraction: float) -> DeviceContext:
    """Return the device context of one process that runs the whole model in the precision of its weights.

    It is on the same device, or on the CPU if the weights exceed `fraction` of the device's free memory (0 disables
    this check).
    """
    found = replace(place, autocast_dtype=None, rank=0, processes=1, tensor=1, tensor_rank=0)
    free = free_memory(place.device)
    weights = place.dtype.itemsize * sum(x.numel() for x in model.parameters())
    if place.device.type != "cpu" and fraction and free is not None and weights > fraction * free:
        return replace(found, device=torch.device("cpu"))
    return found


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes of the device, or None if unknown. Apple GPUs share the machine's memory."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_on_machine()


def num_sharing_processes(device: torch.device) -> int:
    """Return the number of processes that share the device's memory: on a CPU, those of its machine."""
    return launch.local_world_size() if device.type == "cpu" else 1


def _fastest() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _validate_device(device: str) -> str:
    """Return the device's name. Raises SettingError if it is not available."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.empty(0, device=device)
            known = torch.device(device).type != "meta"  # tensors without data
    except (RuntimeError, AssertionError, TypeError, ValueError):  # no text, or a number of 20 digits, in run.json
        known = False
    if not known:
        raise DeviceError(
            f"device={shorten(device)} is not here. Allowed are auto, cpu, cuda, cuda:N for the GPU of that number, and"
            f" mps; this machine has {', '.join(list_devices())}."
        )
    return device


def reject_without_compiler(device: torch.device) -> None:
    """Raise SettingError if this machine has no compiler for models on that device. Nothing is compiled."""
    if device.type == "cpu":
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            get_cpp_compiler()
        except (InvalidCxxCompiler, OSError) as error:
            raise DeviceError(
                "compile=true needs a C++ compiler, and none works here: install one (g++ or clang++), or name it in "
                "the environment variable CXX; or leave compile out."
            ) from error
    elif device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise DeviceError(
                f"compile=true needs the package triton for {device}, and it is not here: install it, or leave compile "
                "out."
            )


def list_devices() -> list[str]:
    """Return the names of the devices of this machine."""
    gpus = [f"cuda:{n}" for n in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]


def _set_memory_format(conv: nn.Conv2d, learns: bool) -> None:
    """Set channels-last for this convolution, unless it trains faster without it or gives wrong results with it."""
    plain = _has_onednn_bug(conv) or (learns and conv.weight.numel() > LARGE_KERNEL)
    if conv.weight.device.type != "cpu" or not plain:
        conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    elif _plain_input not in conv._forward_pre_hooks.values():
        conv.register_forward_pre_hook(_plain_input)


def _has_onednn_bug(conv: nn.Conv2d) -> bool:
    """Return whether oneDNN's weight gradient would write out of bounds for channels-last inputs.

    This gives wrong numbers or ends the process. It affects 1 × 1 convolutions with a stride and few channels
    <https://github.com/uxlfoundation/oneDNN/issues/6035>.
    """
    return conv.kernel_size == (1, 1) and max(conv.stride) > 1 and conv.in_channels // conv.groups < NARROW


def _plain_input(conv: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    del conv
    return tuple(x.contiguous() for x in args)


def restore_threads(about: Mapping[str, Any]) -> list[str]:
    """Set the number of CPU threads that run.json records, and return a note if this process had another."""
    then, here = about["machine"].get("threads"), torch.get_num_threads()
    if then is None or then == here:
        return []
    torch.set_num_threads(then)
    return [
        f"The run goes on with {then} CPU threads, as it began, where this process would take {here}: so it ends bit "
        f"for bit as if it had not stopped. threads={here} takes those, and ends in slightly other weights."
    ]


def environment_changes(about: Mapping[str, Any], place: DeviceContext) -> list[str]:
    """Return a note on changes since the start of the run that affect the last digits of the results."""
    machine, versions = about["machine"], about["versions"]
    both = {
        "CPU threads": (machine.get("threads"), torch.get_num_threads()),
        "CPU instructions": (machine.get("instructions"), cpu_capability()),
        "the device": (machine.get("device"), str(place.device)),
        "PyTorch": (versions.get("torch"), torch.__version__),
    }
    other = [f"{what} {then} (now {now})" for what, (then, now) in both.items() if then is not None and then != now]
    if not other:
        return []
    return [f"The run began with {', '.join(other)}: it will not end bit for bit as if it had not stopped."]


def cpu_capability() -> str:
    """Return the CPU instruction set that PyTorch's kernels use, such as AVX2."""
    return str(torch.backends.cpu.get_cpu_capability())
