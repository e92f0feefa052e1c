"""The settings of `cutaway quantize`; without torch, so that `--help` is fast."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.config import HALVES, setting
from ..core.errors import IncompatibleSettingError, SettingError

METHODS = ("static", "dynamic", "weight-only", *HALVES)
BITS = (8, 4)


@dataclass(frozen=True)
class QuantizeSettings:
    """Settings of quantization."""

    method: str = setting(
        "auto",
        "static: 8-bit inputs and weights, with calibrated ranges; dynamic: ranges of inputs computed at inference; "
        "weight-only: stored weights only; bfloat16, float16: 16 bits for both; auto selects by the model",
        choices=("auto", *METHODS),
    )
    bits: int = setting(8, "bits of each weight, 8 or 4; 4 needs weight-only, and embeddings keep 8", low=1, high=8)
    group: int = setting(32, "with bits=4: number of weights that share a scale", low=2, high=1024)
    calibration: int = setting(256, "static: number of training examples for calibration", low=1)

    qat: int = setting(
        0,
        "epochs of quantization-aware training before the conversion, with rounded weights and inputs; 0: none",
        low=0,
    )
    qat_lr: float | None = setting(
        None, "learning rate of these epochs; auto: 0.3 times that of the run", low=0.0, high=1e30
    )

    def __post_init__(self) -> None:
        if self.qat and self.method in HALVES:
            raise IncompatibleSettingError(f"Invalid qat={self.qat}: only for integer methods. Leave it out.")
        if self.bits not in BITS:
            raise SettingError(f"Invalid bits={self.bits}: must be 8, or 4 with method=weight-only.")
