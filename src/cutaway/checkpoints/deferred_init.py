"""Models that are built without numbers, which come later, one tensor after another.

A model that is held in parts by many processes need nowhere be whole, not even when it begins. Within a `Deferred`
context its constructor runs as it always does, on tensors that have shapes and no numbers, and what would have filled
them is written down. `numbers` carries that out afterwards in the same order, from the same random state: each
parameter comes to what it would have been, bit for bit, is handed over when nothing changes it any more, and is then
forgotten. Values that are drawn only to be drawn anew, as a layer's own are where the model initializes it, are drawn
and dropped; tensors of files are read when they are needed. So little more than one parameter is there at a time.
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

MADE = {"empty", "empty_strided", "empty_permuted", "zeros", "ones", "full", "rand", "randn", "randint", "normal"}
OVERWRITES = {"normal_", "uniform_", "fill_", "zero_", "copy_"}  # what was there before does not matter to these
INITS = ("trunc_normal_", "orthogonal_", "dirac_", "sparse_")  # of torch.nn.init: those that see no shapes alone
Storage = int  # the address by which a storage is known


class NeedsNumbers(Exception):
    """A constructor looks at the numbers of its tensors: such a model is built with them."""


@dataclass(frozen=True)
class _Ref:
    """A tensor: where it lies in which storage."""

    storage: Storage
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class _Op:
    """An operation that was written down, with `_Ref`s for tensors without numbers."""

    func: Callable[..., Any]
    args: Any
    kwargs: Any
    touches: tuple[Storage, ...]  # that it reads, changes or makes
    changes: Storage | None
    overwrites: bool  # all of what it changes
    gives: tuple[_Ref, ...]  # in storages of their own
    random: bool


class Deferred(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class has no types
    """What was written down within this context, which may be entered several times; the random state is that of the
    first time, and stays as it is until `numbers` are asked for.

    Raises NeedsNumbers, within the context, where something asks for a number that is not there.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._random = torch.get_rng_state()
        self._ops: list[_Op] = []
        self._storages: dict[Storage, Any] = {}  # kept, so that no address is another's
        self._files: dict[Storage, Callable[[], Tensor]] = {}

    def __enter__(self) -> Deferred:
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
        """Write the operation down where it makes or takes a tensor without numbers, else carry it out."""
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        name = func.overloadpacket.__name__
        random = torch.Tag.nondeterministic_seeded in func.tags
        if not any(self._knows(x) for x in given):
            elsewhere = any(x.is_meta for x in given) or _on_meta(kwargs.get("device"))
            makes = name.removeprefix("new_").removesuffix("_like") in MADE
            if elsewhere or not (makes or random):
                return func(*args, **kwargs)
            if random and given and not makes:
                raise NeedsNumbers(f"{name} of a tensor that has its numbers")
        elif any(x.is_meta and not self._knows(x) for x in given):  # as of a number that is set by x[i] = 1
            raise NeedsNumbers(f"{name} of a tensor that has no numbers")
        changed = [x for x in _changed(func, args, kwargs) if isinstance(x, Tensor)]
        if changed:
            if len(changed) > 1 or not self._knows(changed[0]):
                raise NeedsNumbers(name)
            self._write(func, args, kwargs, changed[0], (), random, name in OVERWRITES)
            return changed[0]
        if name == "equal" and all(_storage(x) in self._files for x in given):
            return func(*(self._files[_storage(x)]() for x in given))
        if not all(isinstance(x.type, torch.TensorType | torch.ListType) for x in func._schema.returns):
            raise NeedsNumbers(f"{name} asks for a number")
        result = _shapes_of(func, args, kwargs)
        fresh = [x for x in tree_leaves(result) if not self._knows(x)]
        for x in fresh:
            self._know(x)
        if fresh and not name.removeprefix("new_").startswith("empty"):  # else it is a view, or holds nothing yet
            self._write(func, args, kwargs, None, fresh, random)
        return result

    @staticmethod
    def current() -> Deferred | None:
        """The one within whose context this is, if it is within one."""
        mode = _get_current_dispatch_mode()
        return mode if isinstance(mode, Deferred) else None

    def from_file(self, read: Callable[[], Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor, whose numbers are read when they are needed."""
        x = torch.empty(shape, dtype=dtype, device="meta")
        self._know(x)
        self._files[_storage(x)] = read
        return x

    @torch.no_grad()
    def numbers(self, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """Every parameter and buffer of a model that was built here with its name, under each where it has several.
        Those that nobody keeps are gone at the next. Draws what building the model would have drawn."""
        names: dict[Storage, list[tuple[str, _Ref]]] = defaultdict(list)
        for name, x in tensors_of(model):
            if self._knows(x):
                names[_storage(x)].append((name, _ref(x)))
            else:
                yield name, x.detach()
        torch.set_rng_state(self._random)
        found = _Numbers(self._ops, self._files, {key: x.nbytes() for key, x in self._storages.items()})
        for storage in found.finished(set(names)):
            for name, ref in names[storage]:
                yield name, found.tensor(ref)

    def fill(self, model: nn.Module) -> None:
        """Give a model that was built here all its numbers."""
        found = list(self.numbers(model))  # whose storages are known by the tensors that they stand for
        give_memory(model)
        own = dict(tensors_of(model))
        with torch.no_grad():
            for name, x in found:
                own[name].copy_(x)

    # --- what is written down -------------------------------------------------------------------------------

    def _knows(self, x: Tensor) -> bool:
        return x.is_meta and _storage(x) in self._storages

    def _know(self, x: Tensor) -> None:
        self._storages[_storage(x)] = x.untyped_storage()

    def _initialize(self, init: Callable[..., Tensor], tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """What a function of torch.nn.init does to a tensor, written down as one operation."""
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


class _Numbers:
    """Operations, carried out with numbers."""

    def __init__(self, ops: list[_Op], files: dict[Storage, Callable[[], Tensor]], sizes: dict[Storage, int]) -> None:
        self._ops, self._files, self._sizes = ops, files, sizes
        self._there: dict[Storage, torch.UntypedStorage] = {}
        self._left = Counter(storage for op in ops for storage in op.touches)  # operations that are still to come
        changed = {op.changes for op in ops}
        # What draws nothing, and takes only what nothing changes, can wait until it is asked for.
        waits = [op for op in ops if not op.random and op.changes is None and changed.isdisjoint(op.touches)]
        self._makers = {ref.storage: op for op in waits for ref in op.gives}
        self._waiting = {id(op) for op in waits}

    def finished(self, wanted: set[Storage]) -> Iterator[Storage]:
        """Each wanted storage when nothing is to come that changes it."""
        now = [op for op in self._ops if id(op) not in self._waiting]
        after: dict[Storage, list[_Op]] = defaultdict(list)  # the last is the next
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
        """The tensor, with its numbers so far."""
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
        else:  # memory as it is found
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


def with_numbers() -> AbstractContextManager[object]:
    """The context in which tensors have numbers after all, as those of a file that is read whole."""
    context: AbstractContextManager[object] = _disable_current_modes()
    return context


def without_numbers(model: nn.Module) -> nn.Module:
    """A copy of the model on the meta device, for which no number is copied; what shares a tensor still does."""
    found: dict[int, Any] = {}
    for x in (*model.parameters(), *model.buffers()):
        shape = torch.empty_like(x, device="meta")
        found[id(x)] = nn.Parameter(shape, x.requires_grad) if isinstance(x, nn.Parameter) else shape
    return copy.deepcopy(model, found)  # which takes what it finds there for copies that have been made


def take_memory(model: nn.Module) -> None:
    """Leave the model the shapes of its parameters alone; what shares a tensor still does. Buffers have memory."""
    _replace(model, lambda x: isinstance(x, nn.Parameter), "meta")
    _replace(model, lambda x: x.is_meta and not isinstance(x, nn.Parameter), "cpu")


def give_memory(model: nn.Module) -> None:
    """Give what of the model has shapes alone memory on the CPU, as it is found there."""
    _replace(model, lambda x: x.is_meta, "cpu")


def _replace(model: nn.Module, which: Callable[[Tensor], bool], device: str) -> None:
    made: dict[int, tuple[Tensor, Tensor]] = {}  # each kept, so that no other has its id
    for module in model.modules():
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, x in own:
            if which(x):
                empty = torch.empty_like(x, device=device)  # memory as it is found
                new = nn.Parameter(empty, x.requires_grad) if isinstance(x, nn.Parameter) else empty
                setattr(module, name, made.setdefault(id(x), (x, new))[1])


def tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer with its name, under each where it has several."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _storage(x: Tensor) -> Storage:
    return int(x.untyped_storage()._cdata)


def _ref(x: Tensor) -> _Ref:
    return _Ref(_storage(x), x.dtype, tuple(x.shape), x.stride(), int(x.storage_offset()))


def _on_meta(device: Any) -> bool:
    return device is not None and torch.device(device).type == "meta"


def _changed(func: OpOverload, args: Any, kwargs: Any) -> Iterator[Any]:
    """What the operation writes to."""
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield args[i] if i < len(args) else kwargs.get(argument.name)


def _shapes_of(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """What the operation gives, without numbers."""
    args, kwargs = tree_map(lambda x: x.to("meta") if isinstance(x, Tensor) else x, (args, kwargs))
    if any(argument.name == "device" for argument in func._schema.arguments):
        kwargs = {**kwargs, "device": torch.device("meta")}
    return func(*args, **kwargs)
