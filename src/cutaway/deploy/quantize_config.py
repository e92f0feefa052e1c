"""The settings of `cutaway quantize`; without torch, so that `--help` is fast."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.config import HALVES, setting
from ..core.errors import SettingError

METHODS = ("static", "dynamic", "weight-only", *HALVES)
BITS = (8, 4)


@dataclass(frozen=True)
class QuantizeSettings:
    """Settings of quantization."""

    method: str = setting(
        "auto",
        "static: inputs and weights, their ranges observed; dynamic: inputs as they come; weight-only: the file alone; "
        "bfloat16, float16: 16 bits of both, for hardware that has them; auto takes the integers that suit the model",
        choices=("auto", *METHODS),
    )
    bits: int = setting(
        8, "of each weight, 8 or 4; of 4 the method is weight-only, and embeddings have 8", low=1, high=8
    )
    group: int = setting(32, "with bits=4: weights that share a scale", low=2, high=1024)
    calibration: int = setting(256, "static: examples of the training split whose ranges are observed", low=1)

    qat: int = setting(
        0,
        "quantization-aware training: epochs that the model learns on before, with weights and inputs rounded; 0: none",
        low=0,
    )
    qat_lr: float | None = setting(
        None, "of these epochs: the learning rate; auto: 0.3 times the run's", low=0.0, high=1e30
    )

    def __post_init__(self) -> None:
        if self.qat and self.method in HALVES:
            raise SettingError(f"qat={self.qat} is for integers, and 16 bits lose next to nothing: leave it out.")
        if self.bits not in BITS:
            raise SettingError(f"bits={self.bits} cannot be: a weight has 8 bits, or 4 with method=weight-only.")
