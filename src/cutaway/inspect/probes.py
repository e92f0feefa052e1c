"""Seeing what a model computes while it computes it: with hooks that are gone afterwards, and nothing changed.

with cutaway.inspect.capture(model, "features", "layer*") as seen:
    model(x)
seen["features"]["layer2"]        # (N, 128, 28, 28)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from ..errors import UnknownName

KINDS = ("features",)
Seen = dict[str, dict[str, Tensor]]


@contextmanager
def capture(model: nn.Module, kind: str = "features", *names: str) -> Iterator[Seen]:
    """While the block runs, keep what the model computes: seen[kind][module's name].

    `features` are the outputs of modules: those whose name fits one of `names` (as `layer1` or `layer*.conv1`), else
    all but the model itself. Each is a copy without its gradient, because what follows may write over the original;
    of a module that is called again, the last output is kept. Outputs and gradients of the model are what they are
    without this, and no hook stays, also where the block raises. Raises UnknownName for what is not there.
    """
    if kind not in KINDS:
        raise UnknownName("kind of capture", kind, KINDS)
    found: dict[str, Tensor] = {}
    handles = [module.register_forward_hook(_keep(found, name)) for name, module in _chosen(model, names)]
    try:
        yield {kind: found}
    finally:
        for handle in handles:
            handle.remove()


def _chosen(model: nn.Module, names: tuple[str, ...]) -> list[tuple[str, nn.Module]]:
    """The modules with a name that fits."""
    modules = {name: module for name, module in model.named_modules() if name}
    for wanted in names:
        if not any(fnmatchcase(name, wanted) for name in modules):
            raise UnknownName("module", wanted, modules)
    return [(k, m) for k, m in modules.items() if not names or any(fnmatchcase(k, wanted) for wanted in names)]


def _keep(found: dict[str, Tensor], name: str) -> Any:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, Tensor):
            found[name] = first.detach().clone()

    return hook
