"""Oracle of BART: transformers' network, by its own plain attention."""

from __future__ import annotations

import dataclasses

from ...models.bart import PRESETS, Config
from ..huggingface.bart import FAMILY
from . import Oracle
from .hugging import transformers_oracle
from .pairs import ragged_pairs


def transformers_bart(config: Config) -> Oracle:
    """BartForConditionalGeneration. Ids of padding (1) are never drawn: no gradient reaches their embedding there."""
    return transformers_oracle(FAMILY, config, inputs=ragged_pairs(config.vocabulary))


ORACLES = dict.fromkeys(PRESETS, transformers_bart)
# Dropout stands in the fused kernel here, and is drawn in another order there.
REDUCED = {
    name: dataclasses.replace(
        preset,
        vocabulary=50,
        context=16,
        dim=24,
        layers=preset.layers // 3,
        heads=preset.heads // 4,
        dropout=0.0,
        attention_dropout=0.0,
        hidden_dropout=0.0,
    )
    for name, preset in PRESETS.items()
}
