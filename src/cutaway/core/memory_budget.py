"""How large a model would be, told before any of it is made; and how much memory there is for it.

A network is built on PyTorch's meta device, where tensors have shapes and no numbers, and is given up at the first
parameter that is too much: so a width of 10⁸ and a depth of 10⁶ are answered alike, in a moment.
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

from .config import as_text, short
from .errors import ModelError

FRACTION = 0.9  # of the memory that is free, from which on a model is rejected
MOST_LAYERS = 2_000  # of a kind, or blocks in a stage; ResNet-1202 has 200 in a stage, and DeepNet 1 000 layers
MOST_TENSORS = 10_000  # parameters and buffers; ResNet-1202 would have 6 000
SURELY = 500  # tensors that are counted in any case, so that what is rejected is told to the byte where that is quick
SIZES = 64  # models whose sizes are remembered
LAYERS = ("layers", "decoder_layers", "stages")  # settings that count layers


class Named(Protocol):
    """A preset, as far as its memory goes."""

    @property
    def name(self) -> str: ...
    @property
    def module(self) -> ModuleType: ...
    @property
    def config(self) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Size:
    """What a model's tensors come to."""

    parameters: int
    bytes: int  # of parameters and buffers
    trained: int  # bytes of what has a gradient
    whole: bool = True  # whether all of it was counted


def shaped(found: Named, config: Any, most: float = float("inf")) -> nn.Module:
    """The preset's model of that config with shapes and no numbers: as large as it may be, it takes no memory, and
    torch's random state stays as it is.

    Raises ModelError where it has more layers than any network, TooLarge where it has more than `most` bytes and
    is not told to the byte in a moment.
    """
    _reject_deep(found, config)
    try:
        with _counting(most), torch.device("meta"), _Uninitialized():
            model: nn.Module = found.module.Model(config)
    except _TooDeep:
        raise ModelError(
            f"{found.name}{_changes(found, config)} would have more than {MOST_TENSORS:,} tensors of weights: "
            "give it fewer layers."
        ) from None
    except (RuntimeError, TypeError, OverflowError) as error:
        largest = {name: value for name, value in _numbers(config) if value > 2**31}
        if not largest:
            raise
        said = ", ".join(f"{name}={short(value)}" for name, value in largest.items())
        raise ModelError(f"{found.name} with {said} cannot be: no tensor can be that large.") from error
    return model


# One command asks for the same size several times: of deep models, for seconds.
_sizes: dict[tuple[Any, Any], Size] = {}


def size_of(found: Named, config: Any, most: float = float("inf")) -> Size:
    """The size of the preset's model of that config; of one that is larger than `most` bytes perhaps a lower bound.
    Raises ModelError where it has more layers than any network."""
    key = (found.module.Model, config) if isinstance(config, Hashable) else None  # a module at hand may change
    if key is not None and (known := _sizes.get(key)) is not None:
        return known
    try:
        model = shaped(found, config, most)
    except TooLarge as large:
        return Size(large.parameters, large.bytes, large.bytes, whole=False)
    parameters = list(model.parameters())
    size = Size(
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
    found: Named,
    config: Any,
    *,
    taken: Callable[[Size], int] = lambda size: size.bytes,
    free: float | None = None,
    fraction: float = FRACTION,
    what: str = "",
    way_out: str = "",
) -> Size:
    """The size of the model that `config` describes, where it fits into memory: call it before the model is built.

    `taken` says how many bytes a model of that size takes, where that is more than its weights; `free` are the bytes
    that there are, by default those of this machine; `what` and `way_out` are words for the message. A `fraction` of
    0 rejects nothing but what can never be. Raises ModelError where more than `fraction` of what is free would be
    taken, or the model has more layers than any network.
    """
    free = free_memory() if free is None else free
    most = fraction * free if fraction and free is not None else float("inf")
    size = size_of(found, config, most)
    if taken(size) > most:
        more = "" if size.whole else "more than "
        raise ModelError(
            f"{found.name}{_changes(found, config)} would take {more}{in_bytes(taken(size))} of memory{what}, and "
            f"{in_bytes(free or 0)} are free here, of which at most {fraction:.0%} are taken. Make the model "
            f"smaller{way_out}."
        )
    return size


def free_memory(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> int | None:
    """Bytes that this process can still take: what the machine has available, or what its control groups (containers,
    batch systems) and its own limits (ulimit) leave it, whichever is least. None where the system does not say."""
    found = [*_limits(root, proc), *_own_limits(proc)]
    if (available := _field(proc / "meminfo", "MemAvailable:")) is not None:
        found.append(1024 * available)
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:  # macOS: all that there is
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return max(0, min(found)) if found else None


def in_bytes(count: float) -> str:
    """A size as people read it: 512 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if count >= 1000 or unit == "B" else f"{count:.3g} {unit}"


class TooLarge(Exception):
    """Counting ended, for the model is larger than was asked about: what had been counted by then."""

    def __init__(self, parameters: int, bytes: int) -> None:
        super().__init__(parameters, bytes)
        self.parameters, self.bytes = parameters, bytes


class _TooDeep(Exception):
    """Counting ended, for there are too many tensors."""


@contextmanager
def _counting(most: float) -> Iterator[None]:
    """Count every parameter and buffer that this thread registers while the block runs. Raises TooLarge
    where they come to more than `most` bytes and are not few, _TooDeep where they are too many."""
    thread = threading.get_ident()
    counted: dict[int, Tensor] = {}  # kept, so that no id is used again; one that layers share counts once
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
    """Passes over what fills tensors: on the meta device it fills nothing, and the first time takes seconds, because
    PyTorch loads its reference implementations for it."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        filled = args[0] if args else (kwargs or {}).get("tensor")  # torch.nn.init gives it by name
        if name.endswith("_") and not name.endswith("__") and name != "requires_grad_" and filled is not None:
            return filled
        return func(*args, **(kwargs or {}))


def _reject_deep(found: Named, config: Any) -> None:
    """Raise ModelError for more layers than any network has: lists of them would be made before the first tensor."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        listed = value if isinstance(value, tuple) else (value,) if isinstance(value, int) else ()
        deepest = max(listed, default=0) if field.name in LAYERS else 0
        if max(len(listed), deepest) > MOST_LAYERS:
            raise ModelError(
                f"{found.name} with {field.name}={short(as_text(value))} cannot be: at most {MOST_LAYERS:,} layers."
            )


def _numbers(config: Any) -> Iterator[tuple[str, int]]:
    """The whole numbers of a config by their names, each of a list by itself."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int):
                yield field.name, one


def _changes(found: Named, config: Any) -> str:
    """The settings in which this model is larger than its preset, in words: ` with hidden=4096`."""
    own = dict(_numbers(found.config))
    larger = [name for name, value in _numbers(config) if value > own.get(name, 0)]
    said = ", ".join(f"{name}={short(as_text(getattr(config, name)))}" for name in dict.fromkeys(larger))
    return f" with {said}" if said else ""


def _limits(root: Path, proc: Path) -> Iterator[int]:
    """What each control group above this process leaves, of version 2 and of version 1. Inside a container the path
    that /proc names may not exist: the root is the container's own then."""
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
    """What the limits of this process leave of its addresses and of its data. A library that cannot have what it asks
    for beyond them ends the process."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for limit, taken in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        most, used = resource.getrlimit(limit)[0], _field(proc / "self/status", taken)
        if most != resource.RLIM_INFINITY and used is not None:
            yield most - 1024 * used


def _number(path: Path) -> int | None:
    """The number in a file; None where there is no file, or it says max."""
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _field(path: Path, name: str) -> int | None:
    """The number behind a name, in a file of such lines."""
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == name:
                return int(words[1])
    except (OSError, ValueError):
        return None
    return None
