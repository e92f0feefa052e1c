"""BERT: a bidirectional Transformer encoder, pre-trained by predicting masked tokens.

J. Devlin, M.-W. Chang, K. Lee, K. Toutanova, BERT: Pre-training of deep bidirectional Transformers for language
understanding, 2018 (NAACL 2019). <https://arxiv.org/abs/1810.04805>

    z⁰_t = LN(E[token_t] + S[segment_t] + P[t])
    z ← LN(z + MHA(z)),   z ← LN(z + MLP(z))               bidirectional: every token attends to all tokens
    masked:    p(token_t | the others) = softmax(E LN(GELU(W z_t + b)) + c)
    classes:   p(class) = softmax(W_c tanh(W_p z_1 + b_p) + b_c)           z_1 is the first token, [CLS]
    tags:      p(tag_t) = softmax(W_g z_t + b_g)

Shapes, from token ids (N, T):
    embedding, segments, positions           (N, T, embedding_dim)
    where that is not dim: projected         (N, T, dim)
    each block                               (N, T, dim)
    masked                                   (N, T, vocab_size)
    classes                                  (N, classes), from the first token (N, dim)
    tags                                     (N, T, tags)

RoBERTa, DistilBERT and ALBERT are the same network with other values in the Config; their files document them:
`roberta.py`, `distilbert.py`, `albert.py`. A text is enclosed in [CLS] and [SEP]; of two texts the second has segment
1. No token attends to padding, and the outputs of padding have no meaning. Padding comes after the real tokens. Left
padding takes up positions, as in the common implementations, except in RoBERTa, whose positions count real tokens.

All parts of the head are in `head`, so that a backbone trained with one head can be loaded under another.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.errors import InputShapeError, check_value
from ..core.spec import Classes, Masked, Tags, TextSpec, Value
from ..nn.attention import MultiHeadAttention
from ..nn.masks import attention_mask, normalize_padding_mask
from ..nn.transformer import ACTIVATIONS, MLP, Unembedding
from .base import BaseModel
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, fraction, min_value, positive

STD = 0.02  # standard deviation of the initialization, truncated at two of them
HEADS = ("masked", "classes", "tags")
POOLERS = ("tanh", "relu")


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network, with all differences between BERT, RoBERTa, DistilBERT and ALBERT."""

    vocab_size: int = positive(30_522)  # size of the vocabulary
    context_length: int = positive(512)  # maximum number of tokens: the size of the position table
    dim: int = positive(768)  # model dimension
    layers: int = positive(12)  # number of blocks
    heads: int = positive(12)  # attention heads, each with dim / heads channels
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    embedding_dim: int | None = positive(None)  # numbers in an embedding, projected to dim; auto: dim, not projected
    share_layers: bool = False  # whether all layers share one block
    token_types: int = min_value(0, 2)  # number of segments; 0 for none
    first_position: int = min_value(0, 0)  # the row of the first token in the table of positions
    activation: str = choice("gelu", ACTIVATIONS)  # of the MLP and the masked head: gelu, gelu-tanh, relu, silu, tanh
    pooler_activation: str = choice("tanh", POOLERS)  # activation of the pooler: tanh or relu
    eps: float = 1e-12  # ε of the normalizations
    dropout: float = fraction(0.1)  # dropout rate of the embedding and of the output of attention and MLP; see drops_…
    attention_dropout: float | None = fraction(None)  # dropout rate of the attention weights; auto: dropout
    head_dropout: float | None = fraction(None)  # rate before the last layer of classes and tags; auto: dropout
    drops_before: bool = False  # whether head_dropout is also applied before the pooled layer
    drops_tags_as_backbone: bool = False  # whether tags use dropout instead of head_dropout
    drops_attention: bool = True  # whether dropout is applied to the output of attention
    drops_mlp: bool = True  # whether dropout is applied to the output of the MLP
    tie_weights: bool = True  # use the embedding as the output matrix W_U; else W_U is a separate matrix
    head: str = choice("masked", HEADS)  # masked, the token there; classes, one answer for a text; tags, one a token
    num_classes: int = positive(2)  # size of the output for classes and tags

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")
        check_value(self.eps > 0, "eps", self.eps, "above 0")

    @classmethod
    def for_spec(cls, preset: Config, spec: TextSpec) -> Config:
        """Return the preset with the vocabulary and the head that the target of `spec` asks for."""
        if isinstance(spec.target, Masked):
            return dataclasses.replace(preset, vocab_size=spec.vocab_size, head="masked")
        head = "tags" if isinstance(spec.target, Tags) else "classes"
        return dataclasses.replace(preset, vocab_size=spec.vocab_size, head=head, num_classes=spec.target.outputs)


class Block(nn.Module):
    """Attention over all tokens, then an MLP on each; after each sum a normalization."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim, dropout = config.dim, config.dropout
        self.norm1 = nn.LayerNorm(dim, eps=config.eps)
        self.attention = MultiHeadAttention(dim, config.heads, dropout=_or(config.attention_dropout, dropout))
        self.norm2 = nn.LayerNorm(dim, eps=config.eps)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, config.activation)
        self.dropout1 = nn.Dropout(dropout if config.drops_attention else 0.0)
        self.dropout2 = nn.Dropout(dropout if config.drops_mlp else 0.0)

    def forward(self, z: Tensor, mask: Tensor | None) -> Tensor:
        """Map (N, T, dim) to (N, T, dim). `mask` (N, 1, 1, T) is True where a token is real."""
        z = self.norm1(z + self.dropout1(self.attention(z, mask=mask)))  # (N, T, dim)
        y: Tensor = self.norm2(z + self.dropout2(self.mlp(z)))  # (N, T, dim)
        return y


class MaskedHead(nn.Module):
    """The head that predicts masked tokens: E LN(g(W z + b)) + c, (…, dim) to (…, vocabulary)."""

    def __init__(self, config: Config, embedding: nn.Embedding) -> None:
        super().__init__()
        width = embedding.embedding_dim
        self.dense = nn.Linear(config.dim, width)  # W
        self.activation = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(width, eps=config.eps)
        self.words = Unembedding(embedding, tied=config.tie_weights, bias=True)  # W_U, E unless it is untied, and c

    def forward(self, z: Tensor) -> Tensor:
        """Map (…, dim) to (…, vocabulary)."""
        logits: Tensor = self.words(self.last(z)[0])
        return logits

    def last(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the input of the last matrix, (…, embedding_dim), the matrix and the bias."""
        return self.norm(self.activation(self.dense(z))), self.words.weight, self.words.bias


class ClassHead(nn.Module):
    """The head that classifies a text by its first token: W_c tanh(W_p z_1 + b_p) + b_c, (N, dim) to (N, classes)."""

    def __init__(self, config: Config, dropout: float) -> None:
        super().__init__()
        self.before = nn.Dropout(dropout if config.drops_before else 0.0)
        self.pooler = nn.Linear(config.dim, config.dim)  # W_p
        self.activation = ACTIVATIONS[config.pooler_activation]
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(config.dim, config.num_classes)  # W_c

    def forward(self, z: Tensor) -> Tensor:
        """Map (N, dim) to (N, classes)."""
        logits: Tensor = self.linear(self.dropout(self.activation(self.pooler(self.before(z)))))
        return logits


class Bert(BaseModel):
    """(N, T) token ids to logits: (N, T, vocab_size), (N, classes) or (N, T, tags)."""

    takes = (TextSpec,)
    targets = (Masked, Classes, Value, Tags)
    special_tokens = True  # a text is enclosed in [CLS] and [SEP]

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width = config.embedding_dim or config.dim
        self.embedding = nn.Embedding(config.vocab_size, width)  # E
        self.positions = nn.Embedding(config.first_position + config.context_length, width)  # P
        if config.token_types:
            self.types = nn.Embedding(config.token_types, width)  # S
        self.norm = nn.LayerNorm(width, eps=config.eps)
        self.dropout = nn.Dropout(config.dropout)
        if config.embedding_dim:
            self.project = nn.Linear(width, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(1 if config.share_layers else config.layers))
        self.block_passes = config.layers if config.share_layers else 1
        head_dropout = _or(config.head_dropout, config.dropout)
        tags_dropout = config.dropout if config.drops_tags_as_backbone else head_dropout
        self.tags_dropout = nn.Dropout(tags_dropout if config.head == "tags" else 0.0)
        self.head: nn.Module
        if config.head == "masked":
            self.head = MaskedHead(config, self.embedding)
        elif config.head == "classes":
            self.head = ClassHead(config, head_dropout)
        else:
            self.head = nn.Linear(config.dim, config.num_classes)  # W_g
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 2:
                nn.init.trunc_normal_(parameter, std=STD, a=-2 * STD, b=2 * STD)

    def embed(self, tokens: Tensor, types: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Return z⁰, the input of the first block, (N, T, dim).

        `mask` (N, T) is used only if positions count real tokens. Raises ModelError if the context is exceeded, and for
        segments if the network has none.
        """
        self._reject(tokens.shape[1], types)
        z = self.embedding(tokens)  # (N, T, embedding_dim)
        if self.config.token_types:
            z = z + self.types(types if types is not None else torch.zeros_like(tokens))
        z = z + self.positions(self._rows(tokens, normalize_padding_mask(mask, tokens.shape)))
        z = self.dropout(self.norm(z))
        y: Tensor = self.project(z) if self.config.embedding_dim else z  # (N, T, dim)
        return y

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """Return the output of the last block, (N, T, dim).

        `mask` (N, T) is True where a token is real; `types` (N, T) are segments, 0 by default. Raises ModelError if the
        context is exceeded.
        """
        return self._through(tokens, _without_full_mask(normalize_padding_mask(mask, tokens.shape)), types)

    def _through(self, tokens: Tensor, mask: Tensor | None, types: Tensor | None) -> Tensor:
        z = self.embed(tokens, types, mask)
        seen = attention_mask(mask, causal=False, length=tokens.shape[1])
        for i in range(self.config.layers):
            z = self.blocks[0 if self.config.share_layers else i](z, seen)  # (N, T, dim)
        return z

    def features(self, tokens: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """Return the input of the head: each token, (N, T, dim), or for classes the first token, (N, dim).

        Raises ModelError if the first token is padding.
        """
        mask = _without_full_mask(normalize_padding_mask(mask, tokens.shape))
        if self.config.head == "classes" and mask is not None and not _starts_with_token(mask):
            raise InputShapeError(
                "The class is predicted from the first token of a text, and a row of this mask has padding there: pad "
                "on the right."
            )
        z = self._through(tokens, mask, types)
        y: Tensor = z[:, 0] if self.config.head == "classes" else self.tags_dropout(z)
        return y

    def forward(self, tokens: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """Return the logits, shape (N, T, vocab_size), (N, classes) or (N, T, tags), of token ids (N, T)."""
        logits: Tensor = self.head(self.features(tokens, mask, types))
        return logits

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the position embeddings P, from the row of the first token on."""
        return {"positions": self.positions.weight[self.config.first_position :]}

    def _rows(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Return the rows of P for the tokens, (T,) or (N, T). The row before the first is that of padding."""
        first = self.config.first_position
        if mask is None or not first:
            return first + torch.arange(tokens.shape[1], device=tokens.device)
        return first - 1 + mask.cumsum(1) * mask

    def _reject(self, length: int, types: Tensor | None) -> None:
        if length > self.config.context_length:
            raise InputShapeError(
                f"Positions are learned for {self.config.context_length:,} tokens, and these are {length:,}: give "
                "fewer, or a larger model.context_length in training."
            )
        if types is not None and not self.config.token_types:
            raise InputShapeError(
                "This model has no segment embeddings (token_types=0): leave segments out, or set model.token_types=2."
            )


def _without_full_mask(mask: Tensor | None) -> Tensor | None:
    """Return the mask, or None if all tokens are real, because attention is faster without a mask.

    On the meta device, and in compiled or exported graphs, this cannot be determined.
    """
    if mask is None or mask.is_meta:
        return None
    return mask if torch.compiler.is_compiling() or not bool(mask.all()) else None


def _starts_with_token(mask: Tensor) -> bool:
    """Return whether the first token of each text is real; in a compiled graph this cannot be determined."""
    return torch.compiler.is_compiling() or bool(mask[:, 0].all())


def _or(p: float | None, otherwise: float) -> float:
    return otherwise if p is None else p


Model = Bert

PRESETS = {
    "bert-base-uncased": Config(),
    "bert-large-uncased": Config(dim=1024, layers=24, heads=16),
}

_COUNTED = (
    "Google's repository states 110M and 340M, with the pooler and the next-sentence head; here with only the masked "
    "head: parameters as in transformers' BertForMaskedLM, multiply-adds from the sizes, including the output layer"
)
_SHAPE = (128,)


def pre_training(**others: object) -> dict[str, object]:
    """Return the pre-training settings of appendix A.2, adapted to less data.

    Learning rate 1e-4 and weight decay as in the paper, with linear warm-up and decay; batches of 32 texts instead of
    256, and gradients clipped at 1 as in its code. Small networks learn faster at 1e-3.
    """
    return {
        "optimizer": "adamw",
        "lr": 1e-4,
        "weight_decay": 0.01,
        "batch_size": 32,
        "schedule": "wsd",
        "warmup": 0.1,
        "decay": 0.9,
        "grad_clip": 1.0,
        **others,
    }


def fine_tuning(**others: object) -> dict[str, object]:
    """Return the fine-tuning settings of appendix A.3: batches of 16 or 32, learning rates 2e-5 to 5e-5, 2 to 4 epochs.

    All layers have the same learning rate from the first step.
    """
    return {"lr": 3e-5, "epochs": 3, "freeze_epochs": 0, "layer_decay": 1.0, **others}


_TASKS = ("average", "MNLI-m", "MNLI-mm", "QQP F1", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC F1", "RTE")


def _glue(*scores: float) -> Result:
    return Result("GLUE", dict(zip(_TASKS, scores, strict=True)), "test set", "the paper, table 1", unit="")


CARD = Card(
    title="BERT: Pre-training of deep bidirectional Transformers for language understanding",
    authors="J. Devlin, M.-W. Chang, K. Lee, K. Toutanova",
    year=2018,
    link="https://arxiv.org/abs/1810.04805",
    family="transformer",
    equation="z ← LN(z + MHA(z));  z ← LN(z + MLP(z));  p = softmax(E LN(GELU(W z + b)) + c)",
    oracle="transformers' BertForMaskedLM, BertForSequenceClassification and BertForTokenClassification",
    published={
        "bert-base-uncased": Published(109_514_298, 14_249_558_016, _SHAPE, _COUNTED),
        "bert-large-uncased": Published(335_174_458, 43_594_809_344, _SHAPE, _COUNTED),
    },
    divergences=(
        Divergence(
            "GELU",
            paper="GELU; the released code uses the tanh approximation",
            here="exact",
            common="exact (transformers), with weights that were trained with the tanh approximation",
        ),
        Divergence(
            "pre-training",
            paper="masked tokens and next-sentence prediction",
            here="masked tokens only; there is no next-sentence head",
            common="both (transformers' BertForPreTraining); later work omits next-sentence prediction",
        ),
        Divergence(
            "pooler",
            paper="trained with the next-sentence head",
            here="part of the class head; loaded from checkpoints that have it",
            common="part of the backbone (transformers' BertModel), trained or not",
        ),
        Divergence(
            "initialization",
            paper="not specified; the released code: normal, standard deviation 0.02, truncated at two standard "
            "deviations",
            here="as in the released code",
            common="normal, standard deviation 0.02, not truncated (transformers)",
        ),
        Divergence(
            "optimizer",
            paper="Adam with decoupled weight decay; in the released code without bias correction, ε = 1e-6",
            here="AdamW as in PyTorch, with bias correction",
            common="as here",
        ),
        Divergence(
            "parameters",
            paper="110M and 340M",
            here="109.5M and 335.2M with the masked head; 109.5M and 335.1M with the pooler instead",
        ),
    ),
    results={
        "bert-base-uncased": (
            _glue(79.6, 84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4),
            Result("SQuAD 1.1", {"EM": 80.8, "F1": 88.5}, "one network, development set", "the paper, table 2"),
        ),
        "bert-large-uncased": (
            _glue(82.1, 86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1),
            Result("SQuAD 1.1", {"EM": 84.1, "F1": 90.9}, "one network, development set", "the paper, table 2"),
        ),
    },
    settings=dict.fromkeys(PRESETS, pre_training()),
    fine_tuning={"bert-base-uncased": fine_tuning(), "bert-large-uncased": fine_tuning(lr=2e-5)},
)
