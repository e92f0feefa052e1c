"""Oracles of BERT, RoBERTa, DistilBERT and ALBERT: the networks of transformers with eager attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..checkpoints.huggingface import Family
from ..checkpoints.huggingface.albert import FAMILY as ALBERT
from ..checkpoints.huggingface.bert import FAMILY as BERT
from ..checkpoints.huggingface.distilbert import FAMILY as DISTILBERT
from ..checkpoints.huggingface.roberta import FAMILY as ROBERTA
from ..models import bert, distilbert, roberta
from ..models.bert import Config
from . import Oracle
from .hugging import ragged_tokens, transformers_oracle, where_real


class WithTypes(nn.Module):
    """Network of transformers with token types: token ids, mask and types to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Return the raw outputs."""
        logits: Tensor = self.model(input_ids=tokens, attention_mask=mask, token_type_ids=types).logits
        return logits


def encoder_oracle(family: Family, name: str) -> Callable[[Config], Oracle]:
    """Return a function of the config that builds the oracle with the head of the config."""

    def build(config: Config) -> Oracle:
        padding = max(config.first_position - 1, 0)

        def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
            tokens, mask = ragged_tokens(config.vocab_size)(generator)
            tokens = tokens.where(mask, padding)
            if not config.token_types:
                return tokens, mask
            return tokens, mask, torch.randint(0, config.token_types, tokens.shape, generator=generator)

        found = transformers_oracle(family, name, config, inputs=draw)
        if not config.token_types:
            return found
        model = found.module.model
        assert isinstance(model, nn.Module)
        return dataclasses.replace(
            found, module=WithTypes(model), compared=lambda inputs, outputs: where_real(inputs[:2], outputs)
        )

    return build


ORACLES = {
    name: encoder_oracle(family, name) for family in (BERT, ROBERTA, DISTILBERT, ALBERT) for name in family.presets
}
# ALBERT is compared completely. The others have fewer words and layers, and as many heads of two dimensions.
REDUCED = {
    name: dataclasses.replace(preset, vocab_size=50, context_length=16, dim=2 * preset.heads, layers=2)
    for name, preset in (bert.PRESETS | roberta.PRESETS | distilbert.PRESETS).items()
}
