"""Oracles of GPT-2: transformers' networks, by their own plain attention."""

from __future__ import annotations

import dataclasses

from ...models.gpt2 import PRESETS, Config
from ..huggingface.gpt2 import FAMILY
from . import Oracle
from .hugging import transformers_oracle


def transformers_gpt2(config: Config) -> Oracle:
    """GPT2LMHeadModel, or GPT2ForSequenceClassification, which answers at the last token that is no padding (0)."""
    return transformers_oracle(FAMILY, config, pad_token_id=0, bos_token_id=None, eos_token_id=None)


ORACLES = dict.fromkeys(PRESETS, transformers_gpt2)
# Dropout stands in the fused kernel here, and is drawn in another order there.
REDUCED = {
    name: dataclasses.replace(preset, vocabulary=50, context=16, dim=24, layers=2, heads=3, dropout=0.0)
    for name, preset in PRESETS.items()
}
