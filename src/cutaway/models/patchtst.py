"""PatchTST: a Transformer encoder that reads a series in patches, each variable independently.

Y. Nie, N. H. Nguyen, P. Sinthong, J. Kalagnanam, A time series is worth 64 words: long-term forecasting with
Transformers, 2022 (ICLR 2023). <https://arxiv.org/abs/2211.14730>

For each variable x (T) of each example, with the same weights for all of them:

    x̃   = (x − μ) / σ                             μ and σ of this window: instance normalization
    x_p  = patches of P steps, S apart             the last value repeated S times before: (⌊(T − P)/S⌋ + 2, P)
    z    = x_p W_p + W_pos
    z'   = BN(z + MHA(z)),   z ← BN(z' + W₂ GELU(W₁ z'))                        in each of `layers` blocks
    ŷ    = σ · (W vec(z)) + μ                      the next H steps

Attention is among the patches of one variable. Variables do not interact, which keeps the network small and its
forecasts stable. For classes and numbers the tokens of each variable are averaged, and a linear layer takes the
averages of all variables.

Shapes, from (N, T, F) of which the first C variables are forecast:
    windows, one for each variable                (N, C, T)
    patches                                       (N, C, tokens, P)
    tokens                                        (N · C, tokens, dim)
    head                                          (N, C, H), given as (N, H · C), step after step
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError, ModelError, check_value
from ..core.spec import Classes, Horizon, SeriesSpec, Value
from ..nn.attention import MultiHeadAttention
from ..nn.transformer import MLP
from .base import BaseModel, SeriesPatches
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, fraction, min_value, positive

EPS = 1e-5  # added to the variance of a window
PADDINGS = ("end", "none")
ORDERS = ("post", "pre")
PATCH = 16  # steps of a patch by the paper, which has windows of hundreds


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    steps: int = positive(336)  # T, the length of a window
    in_features: int = positive(7)  # F, the variables at each step
    horizon: int = min_value(0, 96)  # H, number of steps to forecast; 0 for one output for the whole series
    num_classes: int = positive(672)  # size of the output: horizon times variables, or classes
    patch_size: int | None = positive(None)  # P, the steps of a patch; auto: 16, or a quarter of a window below 64
    stride: int | None = positive(None)  # S, the steps from one patch to the next; auto: half of a patch
    dim: int = positive(128)  # model dimension
    layers: int = positive(3)  # number of blocks
    heads: int = positive(16)  # attention heads, each with dim / heads channels
    ffn_dim: int = positive(256)  # feed-forward dimension
    padding_patch: str = choice("end", PADDINGS)  # end: the last value S times more; none: first steps may be left out
    order: str = choice("post", ORDERS)  # order of the normalization: post, after each sum; pre, before each sub-layer
    dropout: float = fraction(0.2)  # dropout rate after positions, of both branches and in the feed-forward layer

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")

    def check(self) -> None:
        """Raise ModelError if settings contradict each other; before the data is known they cannot be judged."""
        words = f"at most the {self.steps} steps of the series"
        check_value(self.patch <= self.steps, "patch_size", self.patch_size, words)
        if self.horizon:
            words = f"a multiple of the {self.horizon} steps of horizon, for at most {self.in_features} variables"
            fits = self.num_classes % self.horizon == 0 and self.columns <= self.in_features
            check_value(fits, "num_classes", self.num_classes, words)

    @property
    def patch(self) -> int:
        """P, the patch size; by default a window has at least four patches without overlap."""
        return self.patch_size or min(PATCH, max(1, self.steps // 4))

    @property
    def apart(self) -> int:
        """S, the stride; half of a patch by default."""
        return self.stride or max(1, self.patch // 2)

    @property
    def columns(self) -> int:
        """C, the variables that are read: those to forecast, or all."""
        return self.num_classes // self.horizon if self.horizon else self.in_features

    @property
    def tokens(self) -> int:
        """Patches of a window, the one that is padded among them."""
        return (self.steps - self.patch) // self.apart + 1 + (self.padding_patch == "end")

    @property
    def first(self) -> int:
        """The first step that is read."""
        return 0 if self.padding_patch == "end" else (self.steps - self.patch) % self.apart

    @classmethod
    def for_spec(cls, preset: Config, spec: SeriesSpec) -> Config:
        """Return the preset fitted to the windows of `spec`. Raises ModelError if variables are known in advance."""
        if spec.known_future:
            raise ModelError(
                f"patchtst reads each variable separately and cannot use the {spec.known_future} that are known in "
                "advance: leave out known_future and calendar, or take transformer-forecast or gru."
            )
        horizon = spec.target.steps if isinstance(spec.target, Horizon) else 0
        return dataclasses.replace(
            preset, steps=spec.steps, in_features=spec.features, horizon=horizon, num_classes=spec.target.outputs
        )


class Block(nn.Module):
    """Self-attention and a feed-forward layer, each with batch normalization, after the sum or before the layer: each
    of the dim numbers over all tokens of all examples."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.order = config.order
        self.attention = MultiHeadAttention(config.dim, config.heads)
        self.norm1 = nn.BatchNorm1d(config.dim)
        self.mlp = MLP(config.dim, config.ffn_dim, "gelu", config.dropout)
        self.norm2 = nn.BatchNorm1d(config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, z: Tensor) -> Tensor:
        """Map (N · C, tokens, dim) to (N · C, tokens, dim)."""
        if self.order == "pre":
            z = z + self.dropout(self.attention(self._normalized(self.norm1, z)))  # (N · C, tokens, dim)
            return z + self.dropout(self.mlp(self._normalized(self.norm2, z)))  # type: ignore[no-any-return]
        z = self._normalized(self.norm1, z + self.dropout(self.attention(z)))  # (N · C, tokens, dim)
        return self._normalized(self.norm2, z + self.dropout(self.mlp(z)))

    def _normalized(self, norm: nn.Module, z: Tensor) -> Tensor:
        normalized: Tensor = norm(z.flatten(0, 1))  # (N · C · tokens, dim)
        return normalized.view_as(z)


class PatchTST(BaseModel):
    """(N, T, F) series to forecasts (N, H · C), step after step, or to (N, classes) logits."""

    takes = (SeriesSpec,)
    targets = (Classes, Value, Horizon)

    def __init__(self, config: Config) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.patches = nn.Linear(config.patch, config.dim)  # W_p
        self.positions = nn.Parameter(torch.empty(config.tokens, config.dim))  # W_pos
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        if config.horizon:
            self.head = nn.Linear(config.tokens * config.dim, config.horizon)
        else:
            self.head = nn.Linear(config.in_features * config.dim, config.num_classes)
        nn.init.uniform_(self.positions, -0.02, 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Return the forecasts (N, H · C), or logits (N, classes).

        Raises ModelError if the series have another shape.
        """
        windows, mean, std = self._normalized(x)
        answers: Tensor = self.head(self._head_input(windows))  # (N, C, H)
        if self.config.horizon:
            answers = (answers * std + mean).transpose(1, 2).flatten(1)  # (N, H · C)
        return answers

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: all tokens of each variable, (N, C, tokens · dim).

        Without a forecast it is the mean of the tokens of each variable, (N, F · dim).
        """
        return self._head_input(self._normalized(x)[0])

    def tokens(self, x: Tensor) -> Tensor:
        """Return the output of the last block: (N, C, tokens, dim), one token for each patch of each variable."""
        return self._tokens(self._normalized(x)[0])

    def _head_input(self, windows: Tensor) -> Tensor:
        z = self._tokens(windows)  # (N, C, tokens, dim)
        return z.flatten(2) if self.config.horizon else z.mean(2).flatten(1)

    def _tokens(self, windows: Tensor) -> Tensor:
        config = self.config
        windows = windows[..., config.first :]
        if config.padding_patch == "end":
            windows = F.pad(windows, (0, config.apart), mode="replicate")  # (N, C, T + S)
        z = self.patches(windows.unfold(2, config.patch, config.apart))  # (N, C, tokens, dim)
        z = self.dropout(z + self.positions).flatten(0, 1)  # (N · C, tokens, dim)
        for block in self.blocks:
            z = block(z)
        tokens: Tensor = z.unflatten(0, (-1, config.columns))  # (N, C, tokens, dim)
        return tokens

    def series_patches(self) -> SeriesPatches:
        """Return the steps of each patch; those after the last step repeat it."""
        config = self.config
        starts = (config.first + k * config.apart for k in range(config.tokens))
        return SeriesPatches(config.columns, [(s, min(s + config.patch, config.steps) - 1) for s in starts])

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the position embeddings of the patches, (patches, dim)."""
        return {"positions": self.positions}

    def _normalized(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the windows of the variables, (N, C, T), normalized to mean 0 and standard deviation 1, and both
        statistics.

        The statistics have shape (N, C, 1). Raises ModelError if the series have another shape.
        """
        expected = (self.config.steps, self.config.in_features)
        if x.shape[1:] != expected:
            raise InputShapeError(
                f"This patchtst takes series of shape {expected}, steps and variables, and these are "
                f"{tuple(x.shape[1:])}: cut them, or build one with other steps and in_features."
            )
        windows = x[..., : self.config.columns].transpose(1, 2)  # (N, C, T)
        variance, mean = torch.var_mean(windows, dim=2, correction=0, keepdim=True)
        std = (variance + EPS).sqrt()
        return (windows - mean) / std, mean, std


Model = PatchTST

PRESETS = {
    "patchtst": Config(),
    "patchtst-small": Config(dim=16, heads=4, ffn_dim=128, dropout=0.3),
}

_COUNTED = "computed from the authors' definition, without their residual attention, which has no weights"
_AT = (336, 7)

_SETTINGS = {
    "optimizer": "adam",
    "lr": 1e-3,
    "weight_decay": 0.0,
    "schedule": "cosine",
    "batch_size": 128,
    "epochs": 10,
}

CARD = Card(
    title="A time series is worth 64 words: long-term forecasting with Transformers",
    authors="Y. Nie, N. H. Nguyen, P. Sinthong, J. Kalagnanam",
    year=2022,
    link="https://arxiv.org/abs/2211.14730",
    family="transformer",
    equation="z = x_p W_p + W_pos;  z' = BN(z + MHA(z));  z ← BN(z' + FFN(z'));  ŷ = σ (W vec(z)) + μ",
    oracle="transformers' PatchTSTForPrediction and PatchTSTForClassification, its patches padded as the paper's are",
    published={
        "patchtst": Published(921_184, 129_303_552, _AT, _COUNTED),
        "patchtst-small": Published(81_728, 6_228_096, _AT, _COUNTED),
    },
    divergences=(
        Divergence(
            "sizes",
            paper="dim 128, 16 heads, ffn_dim 256, dropout 0.2; for the small data sets, ETTh1 among them, dim 16, "
            "4 heads, ffn_dim 128 (appendix A.1.4; dropout 0.3 in the authors' scripts)",
            here="patchtst and patchtst-small",
            common="transformers' defaults: patches of one step, dim 128, 4 heads, ffn_dim 512",
        ),
        Divergence(
            "patches",
            paper="16 steps, 8 apart, of windows of 336 and 512 (appendix A.1.4)",
            here="the same for windows of 64 steps or more; for shorter windows a quarter of the window, with half of "
            "that as stride",
            common="a setting (transformers)",
        ),
        Divergence(
            "scores of attention",
            paper="softmax(QKᵀ/√d_k); the authors' code adds the scores of the block before (RealFormer)",
            here="as in the paper",
            common="as in the paper (transformers)",
        ),
        Divergence(
            "position of the normalization",
            paper="not specified; the authors' code: after each sum",
            here="after each sum; order=pre sets it before each sub-layer",
            common="before each sub-layer (transformers' default)",
        ),
        Divergence(
            "end of a window",
            paper="the last value is repeated S times, so that the last steps are in two patches",
            here="as in the paper; steps after the last whole patch are dropped; padding_patch=none as in transformers",
            common="no padding; steps before the first whole patch are dropped (transformers)",
        ),
        Divergence(
            "positions",
            paper="learned; the authors' code initializes them within ±0.02",
            here="as in the authors' code",
            common="fixed sinusoids (transformers' default)",
        ),
        Divergence(
            "dropout",
            paper="not specified; the authors' code: after positions, within the feed-forward layer, of its output, "
            "and "
            "twice of attention's",
            here="after positions, of either sub-layer's output once, and within the feed-forward layer",
            common="separate settings, 0 by default (transformers)",
        ),
        Divergence(
            "classes and numbers",
            paper="only forecasts and masked pre-training",
            here="the mean of each variable's tokens, and a linear layer over all variables",
            common="as here (transformers)",
        ),
        Divergence(
            "learning rate",
            paper="not specified; the authors' script: 1e-4, from the fourth epoch on reduced by 10 % per epoch, 100 "
            "epochs",
            here="the settings of the card: fewer and larger steps",
        ),
    ),
    settings=dict.fromkeys(PRESETS, _SETTINGS),
)
