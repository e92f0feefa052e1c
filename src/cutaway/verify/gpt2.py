"""Oracles of GPT-2: the networks of transformers with eager attention."""

from __future__ import annotations

import dataclasses
import functools

from ..checkpoints.huggingface.gpt2 import FAMILY
from ..models.gpt2 import PRESETS, Config
from . import Oracle
from .hugging import transformers_oracle


def transformers_gpt2(name: str, config: Config) -> Oracle:
    """Build GPT2LMHeadModel, or GPT2ForSequenceClassification.

    The latter predicts at the last token that is not padding (0).
    """
    return transformers_oracle(FAMILY, name, config, pad_token_id=0, bos_token_id=None, eos_token_id=None)


ORACLES = {name: functools.partial(transformers_gpt2, name) for name in PRESETS}
# Fewer words, dimensions and layers: the same number of heads, with two dimensions each.
REDUCED = {
    name: dataclasses.replace(preset, vocab_size=50, context_length=16, dim=2 * preset.heads, layers=2)
    for name, preset in PRESETS.items()
}
