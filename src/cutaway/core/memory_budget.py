"""Size of a model before it is built, and the memory available for it.

A network is built on PyTorch's meta device, where tensors have shapes but no data. Building stops at the first
parameter beyond the limit, so a width of 10⁸ or a depth of 10⁶ is rejected quickly.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules
from torch.overrides import TorchFunctionMode

from .config import as_text, shorten
from .errors import ConfigError, MemoryLimitError

FRACTION = 0.9  # of the free memory, above which a model is rejected
MOST_LAYERS = 2_000  # per setting, or blocks per stage; ResNet-1202 has 200 in a stage, and DeepNet 1 000 layers
MOST_TENSORS = 10_000  # parameters and buffers; ResNet-1202 would have 6 000
SURELY = 500  # tensors that are always counted, so that the message is exact where that is quick
SIZES = 64  # models whose sizes are cached
LAYERS = ("layers", "decoder_layers", "stages")  # settings that count layers


class PresetLike(Protocol):
    """A preset, with the attributes that the memory check needs."""

    @property
    def name(self) -> str: ...
    @property
    def module(self) -> ModuleType: ...
    @property
    def config(self) -> Any: ...


@dataclasses.dataclass(frozen=True)
class ModelSize:
    """The size of a model's tensors."""

    parameters: int
    bytes: int  # of parameters and buffers
    trained: int  # bytes of what has a gradient
    whole: bool = True  # whether all of it was counted


def build_on_meta(found: PresetLike, config: Any, most: float = float("inf")) -> nn.Module:
    """Build the preset's model for a config on the meta device, without memory for its weights.

    The random state of torch is not changed.

    Raises ModelError if the config has more layers than any real network, and TooLarge if the model has more than
    `most` bytes and counting them exactly would take long.
    """
    _reject_deep(found, config)
    try:
        with _counting(most), torch.device("meta"), _Uninitialized():
            model: nn.Module = found.module.Model(config)
    except _TooDeep:
        raise MemoryLimitError(
            f"{found.name}{_overrides(found, config)} would have more than {MOST_TENSORS:,} weight tensors. "
            "Use fewer layers."
        ) from None
    except (RuntimeError, TypeError, OverflowError) as error:
        largest = {name: value for name, value in _integers(config) if value > 2**31}
        if not largest:
            raise
        said = ", ".join(f"{name}={shorten(value)}" for name, value in largest.items())
        raise MemoryLimitError(f"Invalid {said} for {found.name}: a tensor would be too large.") from error
    return model


# One command needs the same size several times, and counting a deep model takes seconds.
_sizes: dict[tuple[Any, Any], ModelSize] = {}


def model_size(found: PresetLike, config: Any, most: float = float("inf")) -> ModelSize:
    """Return the size of the preset's model for a config; possibly a lower bound if it exceeds `most` bytes.

    Raises ModelError if the config has more layers than any real network.
    """
    key = (found.module.Model, config) if isinstance(config, Hashable) else None  # an unhashable config may change
    if key is not None and (known := _sizes.get(key)) is not None:
        return known
    try:
        model = build_on_meta(found, config, most)
    except TooLarge as large:
        return ModelSize(large.parameters, large.bytes, large.bytes, whole=False)
    parameters = list(model.parameters())
    size = ModelSize(
        sum(p.numel() for p in parameters),
        sum(t.nbytes for t in (*parameters, *model.buffers())),
        sum(p.nbytes for p in parameters if p.requires_grad),
    )
    if len(_sizes) >= SIZES:
        _sizes.clear()
    if key is not None:
        _sizes[key] = size
    return size


def reject_too_large(
    found: PresetLike,
    config: Any,
    *,
    taken: Callable[[ModelSize], int] = lambda size: size.bytes,
    free: float | None = None,
    fraction: float = FRACTION,
    what: str = "",
    way_out: str = "",
) -> ModelSize:
    """Return the size of the model of a config, or raise if it does not fit into memory. Call it before building the
    model.

    `taken` returns the bytes that a model of a given size needs, if that is more than its weights. `free` is the
    available memory in bytes, by default that of this machine. `what` and `way_out` are inserted into the message. A
    `fraction` of 0 rejects only models that are impossible to build.

    Raises ModelError if more than `fraction` of the free memory would be used, or if there are too many layers.
    """
    free = free_memory() if free is None else free
    most = fraction * free if fraction and free is not None else float("inf")
    size = model_size(found, config, most)
    if taken(size) > most:
        more = "" if size.whole else "more than "
        raise MemoryLimitError(
            f"{found.name}{_overrides(found, config)} needs {more}{format_bytes(taken(size))} of memory{what};"
            f" {format_bytes(free or 0)} are free, of which at most {fraction:.0%} are used. Use a smaller"
            f" model{way_out}."
        )
    return size


def free_memory(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> int | None:
    """Return the bytes that this process can still allocate; None if the system does not report them.

    This is the minimum of the machine's available memory and of the memory within the limits of the control groups
    (containers, batch systems) and of the process (ulimit).
    """
    found = [*_limits(root, proc), *_own_limits(proc)]
    if (available := _field(proc / "meminfo", "MemAvailable:")) is not None:
        found.append(1024 * available)
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:  # macOS: all that there is
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return max(0, min(found)) if found else None


def format_bytes(count: float) -> str:
    """Format a number of bytes: 512 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if count >= 1000 or unit == "B" else f"{count:.3g} {unit}"


class TooLarge(Exception):
    """Raised when counting stops because the model exceeds the limit; holds the counts so far."""

    def __init__(self, parameters: int, bytes: int) -> None:
        super().__init__(parameters, bytes)
        self.parameters, self.bytes = parameters, bytes


class _TooDeep(Exception):
    """Raised when counting stops because there are too many tensors."""


@contextmanager
def _counting(most: float) -> Iterator[None]:
    """Count every parameter and buffer that this thread registers during the block.

    Raises TooLarge if they exceed `most` bytes and are more than a few, and _TooDeep if there are too many.
    """
    thread = threading.get_ident()
    counted: dict[int, Tensor] = {}  # kept alive so that no id is reused; shared tensors count once
    parameters = size = 0

    def register(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        nonlocal parameters, size
        if tensor is None or threading.get_ident() != thread or id(tensor) in counted:
            return
        counted[id(tensor)] = tensor
        size += tensor.nbytes
        parameters += tensor.numel() if isinstance(tensor, nn.Parameter) else 0
        if size > most and len(counted) > SURELY:
            raise TooLarge(parameters, size)
        if len(counted) > MOST_TENSORS:
            raise _TooDeep

    handles = [
        torch_modules.register_module_parameter_registration_hook(register),
        torch_modules.register_module_buffer_registration_hook(register),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Uninitialized(TorchFunctionMode):
    """A function mode that skips initialization of tensors.

    On the meta device there is nothing to initialize, and the first call takes seconds because PyTorch loads its
    reference implementations.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        filled = args[0] if args else (kwargs or {}).get("tensor")  # torch.nn.init gives it by name
        if name.endswith("_") and not name.endswith("__") and name != "requires_grad_" and filled is not None:
            return filled
        return func(*args, **(kwargs or {}))


def _reject_deep(found: PresetLike, config: Any) -> None:
    """Raise ModelError for more layers than any real network, before lists of them are created."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        listed = value if isinstance(value, tuple) else (value,) if isinstance(value, int) else ()
        deepest = max(listed, default=0) if field.name in LAYERS else 0
        if max(len(listed), deepest) > MOST_LAYERS:
            raise ConfigError(
                f"Invalid {field.name}={shorten(as_text(value))} for {found.name}: must be at most {MOST_LAYERS:,} "
                "layers."
            )


def _integers(config: Any) -> Iterator[tuple[str, int]]:
    """Yield the integers of a config with their names; each item of a tuple is yielded separately."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int):
                yield field.name, one


def _overrides(found: PresetLike, config: Any) -> str:
    """Return the settings in which this model is larger than its preset, as text: ` with hidden=4096`."""
    own = dict(_integers(found.config))
    larger = [name for name, value in _integers(config) if value > own.get(name, 0)]
    said = ", ".join(f"{name}={shorten(as_text(getattr(config, name)))}" for name in dict.fromkeys(larger))
    return f" with {said}" if said else ""


def _limits(root: Path, proc: Path) -> Iterator[int]:
    """Yield the memory that each control group above this process leaves, for cgroup versions 2 and 1.

    Inside a container the path named by /proc may not exist; the root is then the container's own group.
    """
    try:
        lines = (proc / "self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            top, limit, used, cache = root, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            top, limit, used = root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache = "total_inactive_file"
        else:
            continue
        folder = top / path.strip("/")
        for group in (folder, *folder.parents):
            most, taken = _number(group / limit), _number(group / used)
            if most is not None and taken is not None:
                yield most - taken + (_field(group / "memory.stat", cache) or 0)
            if group == top:
                break


def _own_limits(proc: Path) -> Iterator[int]:
    """Yield the unused part of the address space and data segment, within the limits of this process.

    A library that cannot allocate beyond them aborts the process.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    for limit, taken in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        most, used = resource.getrlimit(limit)[0], _field(proc / "self/status", taken)
        if most != resource.RLIM_INFINITY and used is not None:
            yield most - 1024 * used


def _number(path: Path) -> int | None:
    """Return the integer in a file; None if there is no file or it contains "max"."""
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _field(path: Path, name: str) -> int | None:
    """Return the number after a name in a file of `name number` lines."""
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == name:
                return int(words[1])
    except (OSError, ValueError):
        return None
    return None
