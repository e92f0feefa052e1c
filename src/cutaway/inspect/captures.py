"""Results of a capture by kind and name, from the model's last recorded call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ..core.errors import SettingError, UnknownName, check_value

Value = Tensor | Callable[[], Tensor]  # a tensor, or a function that computes it on demand


class CapturedTensors(Mapping[str, Tensor]):
    """Tensors of one kind, by name. Expensive ones are computed on each access."""

    def __init__(self, capture: Captures, kind: str) -> None:
        self._capture, self._kind = capture, kind

    def _values(self) -> dict[str, Value]:
        return self._capture.results.get(self._kind, {})

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor. Raises UnknownName if it was not captured, or not yet."""
        values = self._values()
        if name not in values:
            waits = "No gradient has reached it" if self._capture.results else "The model has not been called"
            way_out = "" if values else f"{waits} in the block yet."
            raise UnknownName(f"captured {self._kind}", name, values, way_out)
        value = values[name]
        if isinstance(value, Tensor):
            return value
        with torch.no_grad():
            return value()

    def __contains__(self, name: object) -> bool:
        return name in self._values()

    def get(self, name: str, default: Tensor | None = None) -> Tensor | None:  # type: ignore[override]
        """Return the tensor with that name, or `default`."""
        if name not in self:
            return default
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._values()))

    def __len__(self) -> int:
        return len(self._values())


class Captures(Mapping[str, CapturedTensors]):
    """Captured tensors, `seen[kind][name]`: those of the last call, also after the block ends."""

    def __init__(self, kinds: Sequence[str], keep: int | None, every: int) -> None:
        check_value(keep is None or keep >= 1, "keep", keep, "at least 1, or None for all", SettingError)
        check_value(every >= 1, "every", every, "at least 1", SettingError)
        self.kinds, self.keep, self.every = tuple(kinds), keep, every
        self.results: dict[str, dict[str, Value]] = {}
        self.calls = 0  # calls of the model within the block
        self.inside = False  # whether a call of the model is running
        self.looking = True  # whether the current call is recorded
        self._times: Counter[tuple[str, str]] = Counter()
        self._parts: dict[tuple[str, str], tuple[str, list[Tensor]]] = {}
        self._open = True

    def __getitem__(self, kind: str) -> CapturedTensors:
        if kind not in self.kinds:
            raise UnknownName("captured kind", kind, self.kinds)
        return CapturedTensors(self, kind)

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __len__(self) -> int:
        return len(self.kinds)

    def __repr__(self) -> str:
        return f"Captured({', '.join(f'{kind}: {len(self[kind])}' for kind in self.kinds)})"

    def begin(self) -> None:
        """Start a call of the model, and drop the results of the call before if this one is recorded."""
        self.inside = True
        self.looking = self.calls % self.every == 0
        self.calls += 1
        if self.looking:
            self.results, self._parts = {}, {}
            self._times.clear()

    def end(self) -> None:
        """End the call. Results outside a call are recorded too."""
        self.inside = False

    def close(self) -> None:
        """End the block: nothing more is recorded."""
        self.looking, self._open = False, False

    @property
    def on(self) -> bool:
        """True if current results are recorded."""
        return self._open and (self.looking or not self.inside)

    def rows(self, x: Tensor) -> Tensor:
        """Return a detached copy of x, or of its first `keep` rows."""
        return (x if self.keep is None or x.ndim == 0 else x[: self.keep]).detach().clone()

    def name(self, kind: str, module: str) -> str:
        """Return the name of a module's next result: the module's name, followed by #2 for the second in a call."""
        if not self.inside:  # each result replaces the one before
            return module
        self._times[kind, module] += 1
        times = self._times[kind, module]
        return module if times == 1 else f"{module}#{times}"

    def put(self, kind: str, name: str, value: Value) -> None:
        """Store a result."""
        self.results.setdefault(kind, {})[name] = value

    def join(self, kind: str, module: str, x: Tensor, dim: int, *, goes_on: bool = True) -> str:
        """Append x along `dim` to the module's result before, for steps of one sequence, and return its name."""
        name, parts = self._parts.get((kind, module), ("", []))
        if not parts or not self.inside or not goes_on or not _alike(parts[0], x, dim):
            name, parts = self.name(kind, module), []
            self._parts[kind, module] = (name, parts)
            self.put(kind, name, lambda: parts[0] if len(parts) == 1 else torch.cat(parts, dim))
        parts.append(x)
        return name


def _alike(a: Tensor, b: Tensor, dim: int) -> bool:
    """Return whether the shapes are equal except along `dim`."""
    return a.ndim == b.ndim and all(i == dim or m == n for i, (m, n) in enumerate(zip(a.shape, b.shape)))
