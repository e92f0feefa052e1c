"""What the oracles from transformers have in common."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..huggingface import Family, renamed
from . import Oracle, OracleMissing
from .operators import make_torchvision_importable

LENGTHS = (9, 4, 7, 1)  # tokens of each text: a ragged batch, padded behind


class Answering(nn.Module):
    """A network of transformers that takes and gives plain tensors: token ids and their mask, to what `field` names."""

    def __init__(self, model: nn.Module, field: str = "logits", **always: Any) -> None:
        super().__init__()
        self.model, self.field, self.always = model, field, always

    def forward(self, tokens: Tensor, mask: Tensor | None = None, target: Tensor | None = None) -> Tensor:
        """The raw outputs."""
        more: dict[str, Any] = dict(self.always)
        if target is not None:
            more["decoder_input_ids"] = target
        found: Tensor = getattr(self.model(input_ids=tokens, attention_mask=mask, **more), self.field)
        return found


def transformers_oracle(
    family: Family, config: Any, *, inputs: Callable[[torch.Generator], tuple[Tensor, ...]] | None = None, **more: Any
) -> Oracle:
    """The network of `config` there, by its own plain attention, given our weights under its names. `more` goes into
    its config."""
    library = transformers_library()
    kind = getattr(library, family.architecture(config))
    module = kind(kind.config_class(**family.settings(config), **more))
    module.set_attn_implementation("eager")

    def converted(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {f"model.{key}": tensor for key, tensor in renamed(family, tensors).items()}

    drawn = inputs or ragged_tokens(config.vocabulary)
    return Oracle(Answering(module), drawn, converted=converted, compared=where_real)


def where_real(inputs: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
    """Outputs (N, T, V) of text with 0 at padding; others as they are."""
    return outputs * inputs[1][..., None] if outputs.ndim == 3 and len(inputs) == 2 else outputs


def ragged_tokens(vocabulary: int) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Token ids (N, T) of texts of different lengths, and their mask."""

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        lengths = torch.tensor(LENGTHS)
        mask = torch.arange(int(lengths.max())) < lengths[:, None]  # (N, T)
        return torch.randint(2, vocabulary, mask.shape, generator=generator).where(mask, 0), mask

    return draw


def transformers_library() -> Any:
    """The module transformers. Raises OracleMissing, saying why, where it cannot be imported here."""
    make_torchvision_importable()
    try:
        return importlib.import_module("transformers")
    except (ImportError, RuntimeError) as error:
        raise OracleMissing(f"transformers cannot be imported here ({str(error).splitlines()[0]}).") from error
