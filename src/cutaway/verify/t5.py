"""Oracle of T5: the network of transformers with eager attention."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from torch import Tensor, nn

from ..checkpoints.huggingface.t5 import FAMILY
from ..models.t5 import PRESETS, Config
from . import Oracle
from .hugging import transformers_oracle
from .pairs import ragged_pairs


class Rescaled(nn.Module):
    """RMS normalization, g · x / √(mean(x²) + ε), in the precision of x.

    That of transformers always averages in float32.
    """

    def __init__(self, weight: nn.Parameter, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weight, eps

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, dim) to (…, dim)."""
        return self.weight * (x / ((x * x).sum(-1, keepdim=True) / x.shape[-1] + self.eps).sqrt())


def transformers_t5(name: str, config: Config) -> Oracle:
    """Build T5ForConditionalGeneration with normalizations in float64. Sources are long enough for most distances."""
    drawn = ragged_pairs(config.vocab_size, lengths=(40, 4, 7, 1), steps=24)
    # As version 5 of transformers configures a file with a separate output matrix.
    own = {} if config.tie_weights else {"scale_decoder_outputs": False}
    oracle = transformers_oracle(FAMILY, name, config, inputs=drawn, **own)
    for module in list(oracle.module.modules()):
        for part, child in list(module.named_children()):
            if type(child).__name__ == "T5LayerNorm":
                eps: Any = child.variance_epsilon
                setattr(module, part, Rescaled(child.weight, eps))  # type: ignore[arg-type]  # its gains
    return oracle


ORACLES = {name: functools.partial(transformers_t5, name) for name in PRESETS}
# Fewer words, dimensions and layers.
REDUCED = {
    name: dataclasses.replace(preset, vocab_size=50, dim=24, layers=2, head_dim=5) for name, preset in PRESETS.items()
}
