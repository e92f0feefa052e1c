"""Transformer forecaster: a causal decoder that reads a series step by step, followed by the steps to forecast.

S. Li, X. Jin, Y. Xuan, X. Zhou, W. Chen, Y.-X. Wang, X. Yan, Enhancing the locality and breaking the memory bottleneck
of Transformer on time series forecasting, 2019 (NeurIPS). <https://arxiv.org/abs/1907.00235>

Section 3 of the paper: a decoder with full attention on values and covariates, without the paper's convolutions and
sparse attention. x_t are the F variables of step t, of which those known in advance, k_t, continue after the last step:

    x̃_t = (x_t − μ) / σ                            μ and σ of this window; known future variables are unchanged
    z⁰_t = W_x [x̃_t, k_t] + b + P[t]               for t ≤ T;      W_x [0, k_t] + b + P[t]      for T < t ≤ T + H
    z ← z + MHA(LN(z)),   z ← z + MLP(LN(z))       causal: step t looks at steps ≤ t
    ŷ_t = σ · (W_y LN(z_t) + b_y) + μ              for T < t ≤ T + H, the C variables to forecast

The whole horizon is predicted in one pass, with a position for each step, and all steps are trained together. This
matches how forecasts are used and measured, and no forecast error is fed back as input. A decoder that only predicts
the next step has more training targets, but it needs such feedback. For classes and numbers there are no steps to
forecast, and a linear layer takes the last step, which attends to all others, or the mean.

Shapes, from (N, T, F) and, if K variables are known in advance, those of the steps to forecast, (N, H, K):
    values and known future                   (N, T + H, F)
    each block                                (N, T + H, dim)
    head                                      (N, H, C), given as (N, H · C), step after step
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.errors import InputShapeError, check_value
from ..core.spec import Classes, Horizon, SeriesSpec, Value
from ..nn.attention import MultiHeadAttention
from ..nn.transformer import MLP
from .base import BaseModel, SeriesPatches
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, fraction, min_value, positive

EPS = 1e-5  # added to the variance of a window
POOLING = ("last", "mean")


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    steps: int = positive(96)  # T, the length of a window
    in_features: int = positive(7)  # F, the variables at each step
    known_future: int = min_value(0, 0)  # K, number of the last variables, which are known in advance
    horizon: int = min_value(0, 24)  # H, number of steps to forecast; 0 for one output for the whole series
    num_classes: int = positive(168)  # size of the output: horizon times variables, or classes
    dim: int = positive(64)  # model dimension
    layers: int = positive(3)  # number of blocks
    heads: int = positive(4)  # attention heads, each with dim / heads channels
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    dropout: float = fraction(0.0)  # dropout rate after positions, and of the output of each layer
    instance_norm: bool = True  # normalize each window to mean 0 and standard deviation 1
    pooling: str = choice("last", POOLING)  # last or mean: the input of the head without a forecast

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")

    def check(self) -> None:
        """Raise ModelError if settings contradict each other; before the data is known they cannot be judged."""
        if not self.horizon:
            check_value(not self.known_future, "known_future", self.known_future, "0 where nothing is forecast")
            return
        own = self.in_features - self.known_future
        words = f"below in_features={self.in_features}, of which some are forecast"
        check_value(own > 0, "known_future", self.known_future, words)
        words = f"a multiple of the {self.horizon} steps of horizon, for at most {own} variables"
        check_value(
            self.num_classes % self.horizon == 0 and self.columns <= own, "num_classes", self.num_classes, words
        )

    @property
    def columns(self) -> int:
        """C, the variables to forecast."""
        return self.num_classes // max(self.horizon, 1)

    @classmethod
    def for_spec(cls, preset: Config, spec: SeriesSpec) -> Config:
        """Return the preset fitted to the windows of `spec`."""
        horizon = spec.target.steps if isinstance(spec.target, Horizon) else 0
        return dataclasses.replace(
            preset,
            steps=spec.steps,
            in_features=spec.features,
            known_future=spec.known_future if horizon else 0,
            horizon=horizon,
            num_classes=spec.target.outputs,
        )


class Block(nn.Module):
    """Attention over the steps so far, then an MLP on each, both added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim)
        self.attention = MultiHeadAttention(config.dim, config.heads)
        self.norm2 = nn.LayerNorm(config.dim)
        self.mlp = MLP(config.dim, config.ffn_dim or 4 * config.dim, "gelu")
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, z: Tensor) -> Tensor:
        """Map (N, T + H, dim) to (N, T + H, dim)."""
        z = z + self.dropout(self.attention(self.norm1(z), causal=True))
        y: Tensor = z + self.dropout(self.mlp(self.norm2(z)))
        return y


class TransformerForecast(BaseModel):
    """(N, T, F) series to forecasts (N, H · C), step after step, or to (N, classes) logits."""

    takes = (SeriesSpec,)
    targets = (Classes, Value, Horizon)

    def __init__(self, config: Config) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.values = nn.Linear(config.in_features, config.dim)  # W_x and b
        self.positions = nn.Embedding(config.steps + config.horizon, config.dim)  # P
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim)
        self.head = nn.Linear(config.dim, config.columns)  # W_y and b_y

    def forward(self, x: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the forecasts (N, H · C), or logits (N, classes).

        `known` holds the known future values, (N, H, K). Raises ModelError if shapes do not fit.
        """
        x, mean, std = self._normalized(x)
        answers: Tensor = self.head(self._head_input(x, known))  # (N, H, C)
        if self.config.horizon:
            answers = (answers * std + mean).flatten(1)  # (N, H · C)
        return answers

    def features(self, x: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the input of the head: the steps to forecast, (N, H, dim), or the last step or the mean, (N, dim)."""
        return self._head_input(self._normalized(x)[0], known)

    def _head_input(self, x: Tensor, known: Tensor | None) -> Tensor:
        z = self.hidden(self._with_future(x, known))
        if self.config.horizon:
            return z[:, self.config.steps :]  # (N, H, dim)
        return z[:, -1] if self.config.pooling == "last" else z.mean(1)

    def hidden(self, steps: Tensor) -> Tensor:
        """Return the normalized output of the last block, (N, T + H, dim), given the steps (N, T + H, F)."""
        z = self.dropout(self.values(steps) + self.positions.weight)
        for block in self.blocks:
            z = block(z)  # (N, T + H, dim)
        y: Tensor = self.norm(z)
        return y

    def series_patches(self) -> SeriesPatches:
        """Return each step as a patch, all variables together; the steps to forecast follow the window."""
        config = self.config
        return SeriesPatches(1, [(t, t) for t in range(config.steps + config.horizon)], config.steps)

    def _normalized(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the windows, normalized to mean 0 and standard deviation 1, and the statistics of the C forecast
        variables.

        Known future variables are not normalized. The statistics have shape (N, 1, C). Raises ModelError if the series
        have another shape.
        """
        config = self.config
        expected = (config.steps, config.in_features)
        if x.shape[1:] != expected:
            raise InputShapeError(
                f"This transformer-forecast takes series of shape {expected}, steps and variables, and these are "
                f"{tuple(x.shape[1:])}: cut them, or build one with other steps and in_features."
            )
        if not (config.horizon and config.instance_norm):
            return x, x.new_zeros(1), x.new_ones(1)
        count = config.in_features - config.known_future
        own, known = x[..., :count], x[..., count:]
        variance, mean = torch.var_mean(own, dim=1, correction=0, keepdim=True)  # (N, 1, F − K)
        std = (variance + EPS).sqrt()
        seen = torch.cat([(own - mean) / std, known], dim=2)  # (N, T, F)
        return seen, mean[..., : config.columns], std[..., : config.columns]

    def _with_future(self, x: Tensor, known: Tensor | None) -> Tensor:
        """Return the observed steps followed by the steps to forecast, (N, T + H, F): their known values, else 0.

        Raises ModelError if the known values are missing or have another shape.
        """
        config = self.config
        if not config.known_future:
            if known is not None:
                raise InputShapeError("This forecaster takes one argument: it was built for nothing known in advance.")
            return torch.cat([x, x.new_zeros(x.shape[0], config.horizon, config.in_features)], dim=1)
        expected = (x.shape[0], config.horizon, config.known_future)
        if known is None or known.shape != expected:
            found = "nothing" if known is None else str(tuple(known.shape))
            raise InputShapeError(
                f"This forecaster needs the known values of the steps to forecast, of shape {expected}, as its second "
                f"argument, and was given {found}."
            )
        unknown = x.new_zeros(x.shape[0], config.horizon, config.in_features - config.known_future)
        return torch.cat([x, torch.cat([unknown, known], dim=2)], dim=1)  # (N, T + H, F)


Model = TransformerForecast

PRESETS = {"transformer-forecast": Config()}

_COUNTED = "computed from the definition in this file, for this form has no published count"

CARD = Card(
    title="Enhancing the locality and breaking the memory bottleneck of Transformer on time series forecasting",
    authors="S. Li, X. Jin, Y. Xuan, X. Zhou, W. Chen, Y.-X. Wang, X. Yan",
    year=2019,
    link="https://arxiv.org/abs/1907.00235",
    family="transformer",
    equation="z⁰ = W_x [x̃, k] + P;  z ← z + MHA(LN(z));  z ← z + MLP(LN(z));  ŷ = σ (W_y LN(z)) + μ",
    oracle="torch.nn.TransformerEncoderLayer with a causal mask, and the rest written out",
    published={"transformer-forecast": Published(158_727, 23_288_832, (96, 7), _COUNTED)},
    divergences=(
        Divergence(
            "target and output",
            paper="a normal distribution of the next step; forecasts are autoregressive",
            here="the values of the whole horizon at once, with squared error",
            common="autoregressive (transformers' TimeSeriesTransformer) or at once (TimesFM, by patches)",
        ),
        Divergence(
            "attention",
            paper="queries and keys by causal convolutions, few keys for each query; full attention for comparison",
            here="full attention of single steps",
            common="as here (transformers)",
        ),
        Divergence(
            "positions and series",
            paper="learned positions, and a learned vector for each series",
            here="learned positions, initialized with variance 1, the scale of the values: with standard deviation "
            "0.02 the error on the 61 windows of airline was 50 % larger. No vector for a series",
            common="fixed sinusoids (transformers)",
        ),
        Divergence(
            "scale of a window",
            paper="not stated for values; DeepAR, on whose code it is based, divides by the mean",
            here="mean 0 and standard deviation 1 of each window, reversed in the forecast (instance_norm)",
            common="mean of absolute values, or mean and standard deviation (transformers)",
        ),
        Divergence(
            "dropout",
            paper="tuned for each data set, for example 0.1 in the authors' code",
            here="none: it changes the scale of the residual stream, from which the forecast is computed; on airline, "
            "0.1 increased the error by 25 %",
            common="0.1 (transformers)",
        ),
        Divergence(
            "sizes",
            paper="tuned for each data set: 3 to 10 layers, 8 or more heads",
            here="3 layers, 4 heads, dim 64",
            common="2 layers, 2 heads, dim 64 (transformers)",
        ),
    ),
    settings={
        "transformer-forecast": {
            "optimizer": "adamw",
            "lr": 1e-3,
            "weight_decay": 0.01,
            "schedule": "warmup-cosine",
            "grad_clip": 1.0,
            "batch_size": 32,
            "epochs": 10,
        }
    },
)
