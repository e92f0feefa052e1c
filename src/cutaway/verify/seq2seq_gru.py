"""Oracle of the encoder–decoder with attention: one example at a time, without padding, with loops and sums."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.seq2seq_gru import Config
from . import Oracle

LENGTHS = (5, 2, 7, 1)  # tokens of each source: a ragged batch
STEPS = 6  # of the target


class LoopedSeq2Seq(nn.Module):
    """Network that reads each source, cut to its length, with `GRUCell`s in both directions.

    Attention is a sum over positions.

    Dropout is drawn for the whole batch first, in the order of the model. Between layers it is not used.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        e, n, a, r = config.embedding_dim, config.hidden_dim, config.attention_dim, config.readout_dim
        self.source_words = nn.Parameter(torch.zeros(config.vocab_size, e))
        self.target_words = nn.Parameter(torch.zeros(config.target_vocab_size, e))
        inputs = [e] + [2 * n] * (config.layers - 1)
        self.forwards = nn.ModuleList(nn.GRUCell(size, n) for size in inputs)
        self.backwards = nn.ModuleList(nn.GRUCell(size, n) for size in inputs)
        self.decoder = nn.GRUCell(e + 2 * n, n)
        shapes = {
            "initial": (n, n),
            "initial_bias": (n,),
            "query": (a, n),
            "key": (a, 2 * n),
            "key_bias": (a,),
            "score": (a,),
            "readout": (2 * r, 3 * n + e),
            "readout_bias": (2 * r,),
            "head": (config.target_vocab_size, r),
            "head_bias": (config.target_vocab_size,),
        }
        self.w = nn.ParameterDict({name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()})

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """Return the logits (N, S, vocab_size) of source ids (N, T), their mask and the target so far (N, S)."""
        config = self.config
        kept = [
            F.dropout(torch.ones(*places, width, dtype=torch.float64), config.dropout, self.training)
            for places, width in (
                (source.shape, config.embedding_dim),
                (target.shape, config.embedding_dim),
                (target.shape, config.readout_dim),
            )
        ]
        examples = [(source[i][mask[i]], target[i], *(k[i] for k in kept)) for i in range(len(source))]
        return torch.stack([self._one(*example) for example in examples])

    def _one(self, source: Tensor, target: Tensor, kept_in: Tensor, kept_out: Tensor, kept_read: Tensor) -> Tensor:
        h = [self._row(self.source_words, token) * kept for token, kept in zip(source, kept_in)]
        for ahead, behind in zip(self.forwards, self.backwards):
            onward, back = self._read(ahead, h), self._read(behind, h[::-1])[::-1]
            h = [torch.cat(both) for both in zip(onward, back)]
        w = self.w
        s = torch.tanh(torch.einsum("ij,j->i", w["initial"], back[0]) + w["initial_bias"])
        logits = []
        for token, kept, read in zip(target, kept_out, kept_read):
            energies = []
            for place in h:
                compared = torch.einsum("aj,j->a", w["query"], s) + torch.einsum("aj,j->a", w["key"], place)
                energies.append(torch.einsum("a,a->", w["score"], torch.tanh(compared + w["key_bias"])))
            exponentials = torch.stack(energies).sub(max(energies)).exp()
            context = sum((x * place for x, place in zip(exponentials, h)), torch.zeros_like(h[0])) / sum(exponentials)
            word = self._row(self.target_words, token) * kept
            s = self.decoder(torch.cat([word, context])[None], s[None])[0]
            t = torch.einsum("ij,j->i", w["readout"], torch.cat([s, context, word])) + w["readout_bias"]
            t = torch.maximum(t[0::2], t[1::2]) * read
            logits.append(torch.einsum("ij,j->i", w["head"], t) + w["head_bias"])
        return torch.stack(logits)

    @staticmethod
    def _row(table: Tensor, token: Tensor) -> Tensor:
        """Return a row of the table as a product with a one-hot vector."""
        return F.one_hot(token, len(table)).to(table.dtype) @ table

    @staticmethod
    def _read(cell: nn.Module, xs: list[Tensor]) -> list[Tensor]:
        """Return the states after each of `xs`."""
        state, states = xs[0].new_zeros(1, int(cell.hidden_size)), []  # type: ignore[arg-type]
        for x in xs:
            state = cell(x[None], state)
            states.append(state[0])
        return states


def looped_seq2seq(config: Config) -> Oracle:
    """Build the looped network and the key map from our weights."""
    key_map = {
        "embedding.weight": "source_words",
        "target_embedding.weight": "target_words",
        "attention.query.weight": "w.query",
        "attention.v": "w.score",
    }
    for ours, theirs in (("initial",) * 2, ("attention.key", "key"), ("readout",) * 2, ("head",) * 2):
        key_map |= {f"{ours}.weight": f"w.{theirs}", f"{ours}.bias": f"w.{theirs}_bias"}
    for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        key_map[f"decoder.{kind}"] = f"decoder.{kind}"
        for k in range(config.layers):
            key_map[f"encoder.{kind}_l{k}"] = f"forwards.{k}.{kind}"
            key_map[f"encoder.{kind}_l{k}_reverse"] = f"backwards.{k}.{kind}"

    def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
        lengths = torch.tensor(LENGTHS)
        mask = torch.arange(int(lengths.max())) < lengths[:, None]  # (N, T)
        source = torch.randint(1, config.vocab_size, mask.shape, generator=generator).where(mask, 0)
        target = torch.randint(0, config.target_vocab_size, (len(LENGTHS), STEPS), generator=generator)
        return source, mask, target

    return Oracle(LoopedSeq2Seq(config), inputs, key_map)


ORACLES = {"seq2seq-gru": looped_seq2seq}
