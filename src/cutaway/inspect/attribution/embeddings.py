"""Input embeddings of a model, and their replacement by other vectors.

The input embeddings of a model are its `nn.Embedding` modules with a name that ends in "embedding" (positions and
segments have other names). The output of each call in a forward pass can be recorded or replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ...core.errors import ModelError
from .target import input_kind


def embeddings(model: nn.Module) -> list[nn.Embedding]:
    """Return the input embeddings. Raises ModelError if there are none."""
    found = [m for name, m in model.named_modules() if isinstance(m, nn.Embedding) and name.endswith("embedding")]
    if not found:
        raise ModelError(
            f"{type(model).__name__} has no input embedding: no nn.Embedding in it has a name that ends in "
            "'embedding', so that it cannot be told where its tokens enter."
        )
    return found


@contextmanager
def _hooked(model: nn.Module, hook: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for module in embeddings(model):
            handle: RemovableHandle = module.register_forward_hook(hook)
            stack.callback(handle.remove)
        yield


@contextmanager
def replace_lookups(model: nn.Module, parts: tuple[Tensor, ...]) -> Iterator[None]:
    """Replace the outputs of the lookups, in order, by the given parts within the context."""
    left = iter(parts)
    with _hooked(model, lambda module, args, output: next(left)):
        yield


@dataclass(frozen=True)
class LookUp:
    """One call of an embedding."""

    module: nn.Embedding
    output: Tensor  # (N, L, d)
    side: int  # 1: the target so far of a pair; 0: all others

    @property
    def mean(self) -> Tensor:
        """The mean embedding of the vocabulary at each position, (N, L, d)."""
        return self.module.weight.detach().mean(0).expand_as(self.output)


def record_lookups(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[LookUp]:
    """Return the output of each embedding call in one forward pass, in order."""
    found: list[LookUp] = []
    pairs = input_kind(inputs) == "seq2seq"

    def keep(module: nn.Embedding, args: Any, output: Tensor) -> None:
        # The source of a pair comes first, also where both sides share one embedding.
        found.append(LookUp(module, output.detach().clone(), int(pairs and bool(found))))

    with _hooked(model, keep), torch.no_grad():
        model(*inputs)
    return found
