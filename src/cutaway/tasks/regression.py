"""Regression: outputs (N, 1) on the standardized scale of the target, metrics in the target's own units."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from ..core.spec import Value
from ..nn import losses
from ..statistics.intervals import Metric, jackknife, mean, quotient, root_mean_square


class Regression:
    """Squared error; root mean squared error, mean absolute error and R² in the target's units."""

    NOUN = "numbers"
    name = "regression"
    default_monitor = "rmse"
    monitors: tuple[str, ...] = ("rmse", "mae", "r2", "loss")
    LOSSES = ("mse", "half_squared_error")
    OPTIONS = ("loss",)

    def __init__(self, target: Value, loss: str = "mse") -> None:
        self.target = target
        self.loss_name = loss

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the batch, (), on the standardized scale: the sum of `losses`, in one fused
        call.
        """
        total = F.mse_loss(outputs[:, 0], target, reduction="sum")
        return total if self.loss_name == "mse" else total / 2

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of examples in the batch."""
        return len(target)

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each example, (N,), on the standardized scale."""
        return losses.LOSSES[self.loss_name](outputs, target[:, None])

    def training_losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the training loss of each example, (N,)."""
        return self.losses(outputs, target)

    def example_weights(self, target: Tensor) -> Tensor:
        """Return the weight of each example, (N,): 1."""
        return target.new_ones(len(target))

    def values(self, outputs: Tensor) -> Tensor:
        """Return the prediction in the target's units, (N,) float64."""
        return self.in_units(outputs[:, 0])

    def in_units(self, standardised: Tensor) -> Tensor:
        """Convert values on the standardized scale, (N,), to the target's units, float64."""
        return standardised.double() * self.target.scale + self.target.mean

    def fast_metrics(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """Return the root mean squared error, in the target's units."""
        return {"rmse": (outputs[:, 0].double() - target.double()).square().mean().sqrt().item() * self.target.scale}

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return RMSE and MAE in the target's units, R² = 1 − Σ error²/Σ (y − ȳ)², and loss."""
        actual = self.in_units(target).cpu().numpy()
        error = self.values(outputs).cpu().numpy() - actual

        def unexplained(sums: np.ndarray) -> np.ndarray:
            """Return 1 − R² from sums (R, 4) of 1, (y − ȳ), (y − ȳ)² and error²; NaN where y is constant."""
            total = sums[:, 2] - sums[:, 1] ** 2 / sums[:, 0]
            return sums[:, 3] / np.where(total > 1e-12 * sums[:, 2], total, np.nan)

        apart = actual - actual.mean()
        if np.ptp(actual) <= 1e-12 * np.abs(actual).max():  # a constant, up to rounding, has no variance to explain
            apart = np.zeros_like(apart)
        sums = np.stack([np.ones_like(apart), apart, apart**2, error**2], 1)
        return {
            "rmse": root_mean_square(error),
            "mae": mean(np.abs(error)),
            "r2": jackknife(sums, unexplained, quotient).map(lambda x: 1 - x),
            "loss": mean(self.losses(outputs, target).double().cpu().numpy()),
        }

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """Return predicted and actual values; an even subsample of more than 2,000 examples."""
        step = max(1, -(-len(target) // 2000))
        actual = self.in_units(target)
        return {
            "values": {
                "column": self.target.column,
                "predicted": self.values(outputs)[::step].tolist(),
                "actual": actual[::step].tolist(),
            }
        }

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the RMSE of the training mean."""
        error = (target.double() - train_target.double().mean()).square().mean().sqrt().item() * self.target.scale
        return {"name": f"mean baseline ({self.target.mean:.6g})", "value": error}

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Return the value of each example, in the target's units."""
        return [{self.target.column: v} for v in self.values(outputs).tolist()]

    def example_results(self, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return the actual and the predicted value of each example, in the target's units."""
        actual = self.in_units(target).tolist()
        rows = zip(self.values(outputs).tolist(), actual, self.losses(outputs, target).tolist())
        return [
            {"actual": f"{a:.6g}", "predicted": f"{v:.6g}", "confidence": None, "loss": loss, "wrong": True}
            for v, a, loss in rows
        ]
