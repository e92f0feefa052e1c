"""Show, attend and tell: image captioning with visual attention, word by word.

K. Xu, J. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. Zemel, Y. Bengio, Show, attend and tell: neural image
caption generation with visual attention, 2015 (ICML 2015). <https://arxiv.org/abs/1502.03044> Its soft attention:

    a_1 … a_L = CNN(image)                                           a vector for each place of the last map
    c_0 = f_c(mean a_i),   h_0 = f_h(mean a_i)                       f(x) = tanh(W x + b)
    e_ti = vᵀ tanh(W h_{t−1} + U a_i),   α_t = softmax_i(e_t)        f_att, the attention of Bahdanau et al.
    ẑ_t = β_t Σ_i α_ti a_i,   β_t = σ(f_β(h_{t−1}))                  (equation 13, section 4.2.1: one gate a step)
    h_t, c_t = LSTM([E y_{t−1} ; ẑ_t], h_{t−1}, c_{t−1})             (equations 1 to 3)
    p(y_t) ∝ exp(L_o(E y_{t−1} + L_h h_t + L_z ẑ_t))                 (equation 7, the deep output)

Shapes, from images (N, C, H, W) and the caption so far (N, S), which begins with its `begin`; with three stages:
    stage: conv 3×3, BN, ReLU, twice            (N, 16, H, W)
    max over 2×2, stage                         (N, 32, H/2, W/2)
    max over 2×2, stage                         (N, 64, H/4, W/4)
    places row by row, with their positions     (N, L, 64)                L = HW/16
    keys U a_i, the same for every word         (N, L, attention)
    for each of S: weights α_t                  (N, L)
                   context ẑ_t                  (N, 64)
                   state h_t                    (N, hidden)
    deep output                                 (N, S, embedding)
    linear                                      (N, S, target vocabulary)

The context is computed from the state before the word, so that ẑ_t is an input of h_t. The loop contains only what
depends on the word before.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.spec import ImageSpec, Tokens
from ..nn.position import grid_sinusoids
from ..nn.recurrent import scan_steps
from .base import BaseModel, TokenGrid, validate_image_size
from .card import Card, Divergence, Published
from .config import ValidatedConfig, fraction, positive
from .seq2seq_gru import AdditiveAttention

State = tuple[Tensor, Tensor, Tensor, Tensor]  # h, c (N, hidden), keys (N, L, attention), a (N, L, D)


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    widths: tuple[int, ...] = positive((16, 32, 64))  # channels of each stage; the map is halved between stages
    stage_layers: int = positive(2)  # convolutions of a stage
    embedding_dim: int = positive(96)  # dimension of the word embedding and of the deep output
    hidden_dim: int = positive(192)  # dimension of the LSTM's state
    attention_dim: int = positive(96)  # dimension of the attention scores' hidden layer
    dropout: float = fraction(0.1)  # dropout rate of the words and of the input of the head
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    target_vocab_size: int = positive(10_000)  # size of the caption vocabulary

    @property
    def least_size(self) -> int:
        """The smallest height and width of an image: one pixel is left after the halvings."""
        return int(2 ** (len(self.widths) - 1))

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and the vocabulary of `spec`; images of any size are accepted."""
        return dataclasses.replace(preset, in_channels=spec.channels, target_vocab_size=spec.target.outputs)


class Stage(nn.Module):
    """Convolutions 3×3, each normalized and rectified: (N, C, H, W) to (N, width, H, W)."""

    def __init__(self, before: int, width: int, layers: int) -> None:
        super().__init__()
        inputs = [before] + [width] * (layers - 1)
        self.convs = nn.ModuleList(nn.Conv2d(n, width, kernel_size=3, padding=1, bias=False) for n in inputs)
        self.bns = nn.ModuleList(nn.BatchNorm2d(width) for _ in inputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, width, H, W)."""
        for conv, bn in zip(self.convs, self.bns):
            x = F.relu(bn(conv(x)), inplace=True)
        return x


class ShowAttendTell(BaseModel):
    """Images (N, C, H, W) and the caption so far (N, S) to logits of the words that come next, (N, S, vocab_size)."""

    takes = (ImageSpec,)
    targets = (Tokens,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        embedding, hidden, width = config.embedding_dim, config.hidden_dim, config.widths[-1]
        inputs = (config.in_channels, *config.widths)
        self.stages = nn.ModuleList(
            Stage(before, after, config.stage_layers) for before, after in zip(inputs, config.widths)
        )
        self.embedding = nn.Embedding(config.target_vocab_size, embedding)  # E
        self.initial_c = nn.Linear(width, hidden)  # f_c
        self.initial_h = nn.Linear(width, hidden)  # f_h
        self.attention = AdditiveAttention(hidden, width, config.attention_dim)  # f_att
        self.gate = nn.Linear(hidden, 1)  # f_β
        self.decoder = nn.LSTMCell(embedding + width, hidden)
        self.read_state = nn.Linear(hidden, embedding)  # L_h
        self.read_context = nn.Linear(width, embedding, bias=False)  # L_z
        self.head = nn.Linear(embedding, config.target_vocab_size)  # L_o
        self.dropout = nn.Dropout(config.dropout)

    def token_grid(self, height: int, width: int) -> TokenGrid:
        """Return the places of the last map."""
        return TokenGrid(height // self.config.least_size, width // self.config.least_size)

    def places(self, images: Tensor) -> Tensor:
        """Return a_1 … a_L: the last map row by row, with positions added, (N, L, D).

        Half of the channels encode the row, the other half the column, by sinusoids.
        """
        validate_image_size(images, self.config.least_size, "show-attend-tell")
        x = images
        for i, stage in enumerate(self.stages):
            x = stage(F.max_pool2d(x, 2) if i > 0 else x)
        where = grid_sinusoids(x.shape[2], x.shape[3], x.shape[1], like=x)  # (L, D)
        a: Tensor = x.flatten(2).transpose(1, 2) + where  # (N, L, D)
        return a

    def features(self, images: Tensor, target_so_far: Tensor) -> Tensor:
        """Return the input of the head at each place of the caption, (N, S, embedding)."""
        h, c, keys, a = self.begin(images)
        words = self.dropout(self.embedding(target_so_far))  # (N, S, embedding)

        def step(state: tuple[Tensor, ...], word: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
            h, c, z = self._advance(word, state[0], state[1], keys, a)
            return (h, c), (h, z)

        states, contexts = scan_steps(step, (h, c), words)
        return self._read(states, contexts, words)

    def forward(self, images: Tensor, target_so_far: Tensor) -> Tensor:
        """Return the logits of the word after each position of the caption so far, (N, S, vocab_size).

        The caption begins with `begin`. Later words do not affect earlier positions.
        """
        logits: Tensor = self.head(self.features(images, target_so_far))
        return logits

    def begin(self, images: Tensor, source_mask: Tensor | None = None) -> State:
        """Encode the images (N, C, H, W) and return the state for `step`, whose tensors all have N first.

        Images have no mask.
        """
        del source_mask
        a = self.places(images)  # (N, L, D)
        mean = a.mean(1)  # (N, D)
        return torch.tanh(self.initial_h(mean)), torch.tanh(self.initial_c(mean)), self.attention.key(a), a

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the logits of the next word, (N, vocab_size), and the state after `token` (N,)."""
        h, c, keys, a = state
        word = self.dropout(self.embedding(token))  # (N, embedding)
        h, c, z = self._advance(word, h, c, keys, a)
        return self.head(self._read(h, z, word)), (h, c, keys, a)

    def _advance(self, word: Tensor, h: Tensor, c: Tensor, keys: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return h_t and c_t (N, hidden) and ẑ_t (N, D), from the previous word (N, embedding) and state."""
        everywhere = torch.ones_like(a[:, :, 0], dtype=torch.bool)  # (N, L): no place is padding
        context, _ = self.attention(h, keys, a, everywhere)
        z = torch.sigmoid(self.gate(h)) * context  # (N, 1) · (N, D)
        h, c = self.decoder(torch.cat([word, z], 1), (h, c))
        return h, c, z

    def _read(self, h: Tensor, z: Tensor, word: Tensor) -> Tensor:
        """Return the deep output without its last layer, (…, embedding)."""
        y: Tensor = self.dropout(word + self.read_state(h) + self.read_context(z))
        return y


Model = ShowAttendTell

PRESETS = {"show-attend-tell": Config()}

CARD = Card(
    title="Show, attend and tell: neural image caption generation with visual attention",
    authors="K. Xu, J. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. Zemel, Y. Bengio",
    year=2015,
    link="https://arxiv.org/abs/1502.03044",
    family="rnn",
    equation="ẑ_t = β_t Σ_i α_ti a_i;  h_t = LSTM([E y_{t−1}; ẑ_t], h_{t−1});  "
    "p(y_t) ∝ exp(L_o(E y_{t−1} + L_h h_t + L_z ẑ_t))",
    oracle="a network built by hand from torch.nn.Conv2d, BatchNorm2d and LSTMCell, one image and one word at a time",
    published={
        "show-attend-tell": Published(
            2_348_769,
            51_631_616,
            (3, 64, 64),
            "computed from the definition above, for 8 words of 10 000 different ones",
        )
    },
    divergences=(
        Divergence(
            "the convolutional network",
            paper="VGG's, learned on ImageNet, its map of 14×14 places with 512 numbers each",
            here="three stages of two convolutions, learned with the rest; model.widths makes it wider or deeper",
        ),
        Divergence(
            "positions",
            paper="none: a location has the features of the convolutions only",
            here="sinusoids of row and column are added to each location, so that left and right differ",
        ),
        Divergence(
            "size",
            paper="an LSTM of 1 000 to 1 800 numbers, a vocabulary of 10 000 words",
            here="192 numbers; all of it can be set",
        ),
        Divergence(
            "β",
            paper="one number a step (section 4.2.1)",
            here="as in the paper",
            common="one for each of the context's numbers",
        ),
        Divergence(
            "the deep output",
            paper="a sum (equation 7); the authors' code takes tanh of it",
            here="the sum, with dropout before the last layer",
            common="a linear layer of only h_t",
        ),
        Divergence(
            "doubly stochastic attention",
            paper="λ Σ_i (1 − Σ_t α_ti)² is added to the loss, so that every location gets attention (equation 14)",
            here="not added: most locations of a scene are background, and few words need them all",
        ),
        Divergence("hard attention", paper="a second form, which samples one place", here="left out"),
    ),
    # Chosen on scenes of digits, at equal CPU time: batches of 64 come less far.
    settings={
        "show-attend-tell": {
            "optimizer": "adamw",
            "lr": 2e-3,
            "weight_decay": 0.01,
            "batch_size": 32,
            "grad_clip": 1.0,
            "schedule": "warmup-cosine",
            "warmup": 0.1,
            "epochs": 20,
        }
    },
)
