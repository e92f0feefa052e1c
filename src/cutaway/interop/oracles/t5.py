"""Oracle of T5: transformers' network, by its own plain attention."""

from __future__ import annotations

import dataclasses

from torch import Tensor, nn

from ...models.t5 import EPS, PRESETS, Config
from ..huggingface.t5 import FAMILY
from . import Oracle
from .hugging import transformers_oracle
from .pairs import ragged_pairs


class Rescaled(nn.Module):
    """g · x / √(mean(x²) + ε) in the digits of x: that of transformers takes the mean in float32, whatever x is."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        """(…, dim) to (…, dim)."""
        return self.weight * (x / ((x * x).sum(-1, keepdim=True) / x.shape[-1] + EPS).sqrt())


def transformers_t5(config: Config) -> Oracle:
    """T5ForConditionalGeneration, its normalizations in float64."""
    oracle = transformers_oracle(FAMILY, config, inputs=ragged_pairs(config.vocabulary))
    for module in list(oracle.module.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == "T5LayerNorm":
                setattr(module, name, Rescaled(child.weight))  # type: ignore[arg-type]  # its gains
    return oracle


ORACLES = dict.fromkeys(PRESETS, transformers_t5)
# Dropout stands in the fused kernel here, and is drawn in another order there. The few buckets are all reached.
REDUCED = {
    name: dataclasses.replace(
        preset,
        vocabulary=50,
        dim=24,
        layers=preset.layers // 3,
        heads=3,
        key_dim=10,
        buckets=8,
        furthest=8,
        dropout=0.0,
    )
    for name, preset in PRESETS.items()
}
