"""A GRU encoder–decoder with additive attention, for sequence-to-sequence tasks.

D. Bahdanau, K. Cho, Y. Bengio, Neural machine translation by jointly learning to align and translate, 2014 (ICLR 2015).
<https://arxiv.org/abs/1409.0473>

    h_j = [h→_j ; h←_j]                              the source, read in both directions
    s_0 = tanh(W_s h←_1)                             the decoder starts from the backward state
    e_ij = vᵀ tanh(W s_{i−1} + U h_j)                how well place j of the source suits the next token
    α_ij = exp(e_ij) / Σ_k exp(e_ik),   c_i = Σ_j α_ij h_j
    s_i = GRU([E y_{i−1} ; c_i], s_{i−1})
    t_i = maxout(R [s_i ; c_i ; E y_{i−1}]),   logits_i = W_o t_i

Attention uses the state before the token, s_{i−1}, so that c_i is an input of s_i. U h_j is the same for every i and is
computed once; so is everything after the last state. The loop over the target contains only what depends on the token
before.

Shapes, from source ids (N, T) and the target so far (N, S), which begins with its `begin`:
    embedding of the source                  (N, T, embedding)
    GRU in both directions, packed           (N, T, 2·hidden)
    keys U h_j                               (N, T, attention)
    for each of S: weights α_i               (N, T)
                   context c_i               (N, 2·hidden)
                   state s_i                 (N, hidden)
    maxout over pairs                        (N, S, readout)
    linear                                   (N, S, target vocabulary)

Padding changes nothing: the encoder reads packed sequences, and attention weights of padding are 0.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.errors import ModelError
from ..core.spec import PairSpec, Tokens
from ..nn.attention import Attention, StepRecord
from ..nn.masks import normalize_padding_mask
from ..nn.recurrent import cudnn_backward_guard, run_packed, scan_steps, sequence_lengths
from .base import BaseModel
from .card import Card, Divergence, Published
from .config import ValidatedConfig, fraction, min_value, positive

State = tuple[Tensor, Tensor, Tensor, Tensor]  # s (N, hidden), keys (N, T, attention), h (N, T, 2·hidden), mask (N, T)


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = min_value(2, 32)  # size of the source vocabulary, with padding and unknown
    target_vocab_size: int = positive(48)  # size of the target vocabulary
    embedding_dim: int = positive(128)  # dimension of the token embeddings of source and target
    hidden_dim: int = positive(256)  # dimension of the decoder's state, and of the encoder's in each direction
    attention_dim: int = positive(128)  # dimension of the attention scores' hidden layer
    readout_dim: int = positive(128)  # dimension after the maxout: the input of the head
    layers: int = positive(1)  # bidirectional layers of the encoder
    dropout: float = fraction(0.2)  # dropout rate of the embeddings, between the encoder's layers and before the head

    @classmethod
    def for_spec(cls, preset: Config, spec: PairSpec) -> Config:
        """Return the preset with the vocabularies of `spec`.

        Raises ModelError if the target is no sequence of tokens.
        """
        if not isinstance(spec.target, Tokens):
            raise ModelError(
                f"seq2seq-gru predicts a sequence of tokens, and the target {spec.target.column!r} is not one: use "
                "another model of `cutaway list`."
            )
        return dataclasses.replace(preset, vocab_size=spec.vocab_size, target_vocab_size=spec.target.outputs)


class AdditiveAttention(Attention):
    """vᵀ tanh(W s + U h_j), made weights by a softmax over the real places j of the source."""

    def __init__(self, state: int, source: int, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(state, width, bias=False)  # W
        self.key = nn.Linear(source, width)  # U; its bias serves the sum
        self.v = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))

    def forward(self, s: Tensor, keys: Tensor, h: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the context (N, D) and the weights (N, T), from s (N, hidden), keys = U h (N, T, attention), h (N, T,
        D) and the mask (N, T), True where a place is real.

        """
        scores = torch.tanh(self.query(s)[:, None] + keys) @ self.v  # (N, T)
        weights = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=1)
        if self.seen is not None:
            self.seen.append(StepRecord(weights.detach()[:, None, None]))
        return (weights[:, None] @ h)[:, 0], weights

    def compared(self, *args: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return W s, U h, h, the mask and v, from which scores and context are computed."""
        s, keys, h, mask = args
        return self.query(s), keys, h, mask, self.v


class Seq2SeqGRU(BaseModel):
    """Source ids (N, T) and the target so far (N, S) to logits of the tokens that come next, (N, S, vocab_size)."""

    takes = (PairSpec,)
    targets = (Tokens,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        embedding, hidden = config.embedding_dim, config.hidden_dim
        self.embedding = nn.Embedding(config.vocab_size, embedding)
        self.encoder = nn.GRU(
            embedding,
            hidden,
            config.layers,
            batch_first=True,
            bidirectional=True,
            dropout=config.dropout if config.layers > 1 else 0.0,
        )
        self.initial = nn.Linear(hidden, hidden)  # W_s
        self.target_embedding = nn.Embedding(config.target_vocab_size, embedding)  # E
        self.attention = AdditiveAttention(hidden, 2 * hidden, config.attention_dim)
        self.decoder = nn.GRUCell(embedding + 2 * hidden, hidden)
        self.readout = nn.Linear(hidden + 2 * hidden + embedding, 2 * config.readout_dim)  # R
        self.head = nn.Linear(config.readout_dim, config.target_vocab_size)  # W_o
        self.dropout = nn.Dropout(config.dropout)

    def features(self, source: Tensor, source_mask: Tensor | None, target_so_far: Tensor) -> Tensor:
        """Return the input of the head at each place of the target, (N, S, readout)."""
        s, keys, h, mask = self.begin(source, source_mask)
        words = self.dropout(self.target_embedding(target_so_far))  # (N, S, embedding)

        def step(state: tuple[Tensor, ...], word: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
            context, _ = self.attention(state[0], keys, h, mask)
            s = self.decoder(torch.cat([word, context], 1), state[0])
            return (s,), (s, context)

        states, contexts = scan_steps(step, (s,), words)
        return self._read(states, contexts, words)

    def forward(self, source: Tensor, source_mask: Tensor | None, target_so_far: Tensor) -> Tensor:
        """Return the logits of the token after each position of the target so far, (N, S, vocab_size).

        Args:
            source: Source ids, shape (N, T).
            source_mask: True where a source token is real, shape (N, T); None if all are.
            target_so_far: Target ids, shape (N, S), which begin with `begin`. Later tokens do not affect earlier
                positions.
        """
        logits: Tensor = self.head(self.features(source, source_mask, target_so_far))
        return logits

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> State:
        """Encode the source and return the state for `step`, whose tensors all have N first.

        Raises ModelError for an empty source, and for a mask with padding elsewhere than on the right.
        """
        source_mask = normalize_padding_mask(source_mask, source.shape)
        lengths = sequence_lengths(source_mask, source.shape[1])
        x = self.dropout(self.embedding(source))  # (N, T, embedding)
        if source_mask is None:
            source_mask = torch.ones_like(source, dtype=torch.bool)
        with cudnn_backward_guard(self.encoder, x):
            if lengths is None:
                h, last = self.encoder(x)
            else:
                h, (last,) = run_packed(self.encoder, x, lengths)
        s = torch.tanh(self.initial(last[-1]))  # the last layer's backward state has read h←_1 last: (N, hidden)
        return s, self.attention.key(h), h, source_mask

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the logits of the next token, (N, vocab_size), and the state after `token` (N,)."""
        s, keys, h, mask = state
        word = self.dropout(self.target_embedding(token))  # (N, embedding)
        context, _ = self.attention(s, keys, h, mask)
        s = self.decoder(torch.cat([word, context], 1), s)
        return self.head(self._read(s, context, word)), (s, keys, h, mask)

    def _read(self, s: Tensor, context: Tensor, word: Tensor) -> Tensor:
        """Return the deep output: the larger of each pair of (…, 2·readout) numbers, (…, readout)."""
        pairs = self.readout(torch.cat([s, context, word], -1)).unflatten(-1, (-1, 2))  # (…, readout, 2)
        t: Tensor = self.dropout(pairs.amax(-1))
        return t


Model = Seq2SeqGRU

PRESETS = {"seq2seq-gru": Config()}

CARD = Card(
    title="Neural machine translation by jointly learning to align and translate",
    authors="D. Bahdanau, K. Cho, Y. Bengio",
    year=2014,
    link="https://arxiv.org/abs/1409.0473",
    family="rnn",
    equation="e_ij = vᵀ tanh(W s_{i−1} + U h_j), c_i = Σ_j softmax_j(e_ij) h_j, s_i = GRU([E y_{i−1}; c_i], s_{i−1})",
    oracle="GRU cells in loops, one example at a time, sums by einsum",
    published={
        "seq2seq-gru": Published(
            1_692_976,
            16_247_296,
            (10,),
            "computed from the definition above, for 10 tokens on either side, of 32 and 48 different ones",
        )
    },
    divergences=(
        Divergence(
            "size",
            paper="1 000 numbers in a state and in the attention, embeddings of 620, maxout to 500, 30 000 words",
            here="256 in a state, 128 elsewhere, for spelling to sound; all of it can be set",
        ),
        Divergence(
            "the reset gate",
            paper="before the product with the recurrent matrix, U (r ∘ s)",
            here="after it, r ∘ (U s + b), as in PyTorch and cuDNN; and every gate has biases",
        ),
        Divergence(
            "the state that the output sees",
            paper="s_i in its equation 4, s_{i−1} in its appendix",
            here="s_i",
        ),
        Divergence(
            "training",
            paper="no dropout; Adadelta, orthogonal recurrent matrices, other weights from N(0, 0.01²)",
            here="dropout; PyTorch's initialization, and the settings of the card",
        ),
    ),
    # Chosen on the validation part of CMUdict, at equal CPU time: 2e-3 comes less far, and so do batches of 128.
    settings={
        "seq2seq-gru": {
            "optimizer": "adamw",
            "lr": 4e-3,
            "weight_decay": 0.01,
            "batch_size": 64,
            "grad_clip": 1.0,
            "schedule": "warmup-cosine",
            "warmup": 0.05,
            "epochs": 10,
        }
    },
)
