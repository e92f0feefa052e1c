"""Deferred initialization: models are built without values, and tensors are materialized one at a time.

A model that is sharded over many processes need not be complete in any of them, not even initially. Within
`DeferredInit` its constructor runs normally on tensors that have shapes but no values, and operations are recorded.
`numbers` replays them later in the same order from the same random state. Each parameter gets the same values, bit for
bit. It is returned when no later operation changes it, and is then released. Values that are overwritten later, such as
a layer's default initialization, are drawn and dropped. Tensors of files are read when they are needed. So little more
than one parameter is in memory at a time. PyTorch's `FakeTensor` and `to_empty` record no operations, so they cannot
give the same values.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _get_current_dispatch_mode
from torch.utils._pytree import tree_leaves, tree_map

CREATION_OPS = {
    "empty",
    "empty_strided",
    "empty_permuted",
    "zeros",
    "ones",
    "full",
    "rand",
    "randn",
    "randint",
    "normal",
}
OVERWRITING_OPS = {"normal_", "uniform_", "fill_", "zero_", "copy_"}  # operations that ignore earlier values
INITS = ("trunc_normal_", "orthogonal_", "dirac_", "sparse_")  # functions of torch.nn.init that need values
Storage = int  # address of a storage


class NeedsMaterialization(Exception):
    """A constructor needs the values of its tensors, so the model must be built with values."""


@dataclass(frozen=True)
class _Ref:
    """Reference to a tensor: storage, shape, strides and offset."""

    storage: Storage
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class _Op:
    """Recorded operation, with a `_Ref` for each tensor without values."""

    func: Callable[..., Any]
    args: Any
    kwargs: Any
    touches: tuple[Storage, ...]  # storages that it reads, changes or creates
    changes: Storage | None
    overwrites: bool  # whether it overwrites the whole storage
    gives: tuple[_Ref, ...]  # results in new storages
    random: bool


class DeferredInit(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class has no types
    """Context that records the initialization of a model. It may be entered several times.

    The random state is that of the first entry, and does not change until `numbers` is called. Raises
    NeedsMaterialization within the context if an operation needs values.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._random = torch.get_rng_state()
        self._ops: list[_Op] = []
        self._storages: dict[Storage, Any] = {}  # kept alive, so that addresses are unique
        self._files: dict[Storage, Callable[[], Tensor]] = {}

    def __enter__(self) -> DeferredInit:
        self._inits = {name: getattr(nn.init, name) for name in INITS}
        for name, init in self._inits.items():
            setattr(nn.init, name, functools.partial(self._initialize, init))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        for name, init in self._inits.items():
            setattr(nn.init, name, init)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record operations that create or take tensors without values, and run all others."""
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        name = func.overloadpacket.__name__
        random = torch.Tag.nondeterministic_seeded in func.tags
        if not any(self._knows(x) for x in given):
            elsewhere = any(x.is_meta for x in given) or _on_meta(kwargs.get("device"))
            makes = name.removeprefix("new_").removesuffix("_like") in CREATION_OPS
            if elsewhere or not (makes or random):
                return func(*args, **kwargs)
            if random and given and not makes:
                raise NeedsMaterialization(f"{name} of a tensor that has its numbers")
        elif any(x.is_meta and not self._knows(x) for x in given):  # such as the value in x[i] = 1
            raise NeedsMaterialization(f"{name} of a tensor that has no numbers")
        changed = [x for x in _written_args(func, args, kwargs) if isinstance(x, Tensor)]
        if changed:
            if len(changed) > 1 or not self._knows(changed[0]):
                raise NeedsMaterialization(name)
            self._write(func, args, kwargs, changed[0], (), random, name in OVERWRITING_OPS)
            return changed[0]
        if name == "equal" and all(_storage(x) in self._files for x in given):
            return func(*(self._files[_storage(x)]() for x in given))
        if not all(isinstance(x.type, torch.TensorType | torch.ListType) for x in func._schema.returns):
            raise NeedsMaterialization(f"{name} asks for a number")
        result = _run_on_meta(func, args, kwargs)
        fresh = [x for x in tree_leaves(result) if not self._knows(x)]
        for x in fresh:
            self._know(x)
        if fresh and not name.removeprefix("new_").startswith("empty"):  # otherwise it is a view or uninitialized
            self._write(func, args, kwargs, None, fresh, random)
        return result

    @staticmethod
    def current() -> DeferredInit | None:
        """Return the active context, or None."""
        mode = _get_current_dispatch_mode()
        return mode if isinstance(mode, DeferredInit) else None

    def from_file(self, read: Callable[[], Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a tensor whose values are read when they are needed."""
        x = torch.empty(shape, dtype=dtype, device="meta")
        self._know(x)
        self._files[_storage(x)] = read
        return x

    @torch.no_grad()
    def numbers(self, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """Yield every parameter and buffer of a model that was built here, under all its names.

        A tensor that the caller does not keep is released at the next step. Random numbers are drawn as by building the
        model.
        """
        names: dict[Storage, list[tuple[str, _Ref]]] = defaultdict(list)
        for name, x in named_tensors(model):
            if self._knows(x):
                names[_storage(x)].append((name, _ref(x)))
            else:
                yield name, x.detach()
        torch.set_rng_state(self._random)
        found = _Replay(self._ops, self._files, {key: x.nbytes() for key, x in self._storages.items()})
        for storage in found.finished(set(names)):
            for name, ref in names[storage]:
                yield name, found.tensor(ref)

    def fill(self, model: nn.Module) -> None:
        """Materialize all values of a model that was built here."""
        found = list(self.numbers(model))  # storages are found by the tensors that `give_memory` replaces
        allocate_meta_tensors(model)
        own = dict(named_tensors(model))
        with torch.no_grad():
            for name, x in found:
                own[name].copy_(x)

    # --- recording ------------------------------------------------------------------------------------------

    def _knows(self, x: Tensor) -> bool:
        return x.is_meta and _storage(x) in self._storages

    def _know(self, x: Tensor) -> None:
        self._storages[_storage(x)] = x.untyped_storage()

    def _initialize(self, init: Callable[..., Tensor], tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Record a function of torch.nn.init as one operation."""
        if not self._knows(tensor):
            return init(tensor, *args, **kwargs)
        self._write(init, (tensor, *args), kwargs, tensor, (), random=True, overwrites=True)
        return tensor

    def _write(
        self,
        func: Callable[..., Any],
        args: Any,
        kwargs: Any,
        changed: Tensor | None,
        fresh: Any,
        random: bool,
        overwrites: bool = False,
    ) -> None:
        """Record one operation: its arguments, the storages that it touches, and what it changes."""

        def known(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            return _ref(x) if self._knows(x) else x.clone()

        args, kwargs, gives = tree_map(known, args), tree_map(known, kwargs), tuple(map(_ref, fresh))
        refs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, _Ref)]
        changes = None if changed is None else _storage(changed)
        overwrites = (
            overwrites
            and changed is not None
            and [x.storage for x in refs].count(_storage(changed)) == 1
            and changed.nbytes == changed.untyped_storage().nbytes()
        )
        touches = tuple(dict.fromkeys(x.storage for x in (*refs, *gives)))
        self._ops.append(_Op(func, args, kwargs, touches, changes, overwrites, gives, random))


class _Replay:
    """Replay of recorded operations with values."""

    def __init__(self, ops: list[_Op], files: dict[Storage, Callable[[], Tensor]], sizes: dict[Storage, int]) -> None:
        self._ops, self._files, self._sizes = ops, files, sizes
        self._there: dict[Storage, torch.UntypedStorage] = {}
        self._left = Counter(storage for op in ops for storage in op.touches)  # remaining operations of each storage
        changed = {op.changes for op in ops}
        # Operations without randomness and changed inputs can be delayed until their result is needed.
        waits = [op for op in ops if not op.random and op.changes is None and changed.isdisjoint(op.touches)]
        self._makers = {ref.storage: op for op in waits for ref in op.gives}
        self._waiting = {id(op) for op in waits}

    def finished(self, wanted: set[Storage]) -> Iterator[Storage]:
        """Yield each wanted storage as soon as no later operation changes it."""
        now = [op for op in self._ops if id(op) not in self._waiting]
        after: dict[Storage, list[_Op]] = defaultdict(list)  # the last entry is the next operation
        for op in reversed(now):
            for storage in op.touches:
                after[storage].append(op)
        wanted = set(wanted)
        for op in now:
            self._carry_out(op)
            for storage in op.touches:
                after[storage].pop()
                following = after[storage][-1] if after[storage] else None
                if following is not None and following.changes == storage and following.overwrites:
                    self._there.pop(storage, None)
                elif not self._left[storage]:
                    if storage in wanted:
                        wanted.remove(storage)
                        yield storage
                    self._there.pop(storage, None)
        for storage in wanted:
            yield storage
            self._there.pop(storage, None)

    def tensor(self, ref: _Ref) -> Tensor:
        """Return the tensor with its current values."""
        if ref.storage not in self._there:
            self._make(ref.storage)
        return torch.empty(0, dtype=ref.dtype).set_(self._there[ref.storage], ref.offset, ref.shape, ref.strides)

    def _make(self, storage: Storage) -> None:
        if (read := self._files.get(storage)) is not None:
            self._there[storage] = read().contiguous().untyped_storage()
        elif (maker := self._makers.get(storage)) is not None:
            self._carry_out(maker)
            for used in maker.touches:
                if not self._left[used] and all(used != ref.storage for ref in maker.gives):
                    self._there.pop(used, None)
        else:  # uninitialized memory
            self._there[storage] = torch.UntypedStorage(self._sizes[storage])  # type: ignore[no-untyped-call]

    def _carry_out(self, op: _Op) -> None:
        def real(x: Any) -> Any:
            return self.tensor(x) if isinstance(x, _Ref) else x

        result = op.func(*tree_map(real, op.args), **tree_map(real, op.kwargs))
        if op.gives:
            for ref, x in zip(op.gives, tree_leaves(result), strict=True):
                if (x.stride(), x.storage_offset()) != (ref.strides, ref.offset):
                    x = torch.empty_strided(ref.shape, ref.strides, dtype=ref.dtype).copy_(x)
                self._there[ref.storage] = x.untyped_storage()
        self._left.subtract(op.touches)


def materialized_tensors() -> AbstractContextManager[object]:
    """Return a context in which tensors have values again, for files that are read completely."""
    context: AbstractContextManager[object] = _disable_current_modes()
    return context


def copy_to_meta(model: nn.Module) -> nn.Module:
    """Return a copy of the model on the meta device, without copying values. Shared tensors stay shared."""
    found: dict[int, Any] = {}
    for x in (*model.parameters(), *model.buffers()):
        shape = torch.empty_like(x, device="meta")
        found[id(x)] = nn.Parameter(shape, x.requires_grad) if isinstance(x, nn.Parameter) else shape
    return copy.deepcopy(model, found)  # deepcopy uses the entries of its memo as existing copies


def move_parameters_to_meta(model: nn.Module) -> None:
    """Move the parameters of a model to the meta device. Shared tensors stay shared. Buffers keep memory."""
    _replace(model, lambda x: isinstance(x, nn.Parameter), "meta")
    _replace(model, lambda x: x.is_meta and not isinstance(x, nn.Parameter), "cpu")


def allocate_meta_tensors(model: nn.Module) -> None:
    """Allocate uninitialized CPU memory for all meta tensors of a model."""
    _replace(model, lambda x: x.is_meta, "cpu")


def _replace(model: nn.Module, which: Callable[[Tensor], bool], device: str) -> None:
    made: dict[int, tuple[Tensor, Tensor]] = {}  # kept alive, so that ids are unique
    for module in model.modules():
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, x in own:
            if which(x):
                empty = torch.empty_like(x, device=device)  # uninitialized memory
                new = nn.Parameter(empty, x.requires_grad) if isinstance(x, nn.Parameter) else empty
                setattr(module, name, made.setdefault(id(x), (x, new))[1])


def named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every parameter and buffer under all its names."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _storage(x: Tensor) -> Storage:
    return int(x.untyped_storage()._cdata)


def _ref(x: Tensor) -> _Ref:
    return _Ref(_storage(x), x.dtype, tuple(x.shape), x.stride(), int(x.storage_offset()))


def _on_meta(device: Any) -> bool:
    return device is not None and torch.device(device).type == "meta"


def _written_args(func: OpOverload, args: Any, kwargs: Any) -> Iterator[Any]:
    """Yield the arguments that an operation writes to."""
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield args[i] if i < len(args) else kwargs.get(argument.name)


def _run_on_meta(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run an operation on meta tensors."""
    args, kwargs = tree_map(lambda x: x.to("meta") if isinstance(x, Tensor) else x, (args, kwargs))
    if any(argument.name == "device" for argument in func._schema.arguments):
        kwargs = {**kwargs, "device": torch.device("meta")}
    return func(*args, **kwargs)
