"""Oracle of BART: the network of transformers with eager attention."""

from __future__ import annotations

import dataclasses
import functools

from ..checkpoints.huggingface.bart import FAMILY
from ..models.bart import PRESETS, Config
from . import Oracle
from .hugging import transformers_oracle
from .pairs import ragged_pairs


def transformers_bart(name: str, config: Config) -> Oracle:
    """Build BartForConditionalGeneration.

    Padding ids (1) are never drawn, because their embedding has no gradient there.
    """
    return transformers_oracle(FAMILY, name, config, inputs=ragged_pairs(config.vocab_size))


ORACLES = {name: functools.partial(transformers_bart, name) for name in PRESETS}
# Fewer words, dimensions and layers: the same number of heads, with two dimensions each.
REDUCED = {
    name: dataclasses.replace(preset, vocab_size=50, context_length=16, dim=2 * preset.heads, layers=2)
    for name, preset in PRESETS.items()
}
