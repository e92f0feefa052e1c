"""Oracles of recurrent networks and of the encoder–decoder with attention: one sequence and one step at a time.

There is no batch, padding, packing or fused layer. `nn.RNNCell`, `nn.LSTMCell` or `nn.GRUCell` is called once for each
real step of each sequence, forwards and backwards, and the readout uses the list of states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import gru, lstm, rnn, seq2seq_gru
from ..models.config import RecurrentConfig as Config
from . import Oracle, valid_mask

CellFactory = Callable[[int], nn.Module]  # from the number of inputs of a step
State = Any  # h, or h and c


class CellStack(nn.Module):
    """Layers of cells, each in one direction or both. `cells` are forward, backward, forward, backward, …"""

    def __init__(self, make: CellFactory, inputs: int, hidden: int, layers: int, ways: int) -> None:
        super().__init__()
        self.ways = ways
        widths = [inputs] + [hidden * ways] * (layers - 1)
        self.cells = nn.ModuleList(make(width) for width in widths for _ in range(ways))

    def forward(self, steps: list[Tensor], states: list[State] | None = None) -> tuple[list[Tensor], list[State]]:
        """Return the outputs of the last layer at each step, and each cell's last state.

        The input is one sequence, a list of (F,).
        """
        after: list[State] = []
        for level in range(0, len(self.cells), self.ways):
            shown: list[list[Tensor]] = [[] for _ in steps]
            for way in range(self.ways):
                cell = self.cells[level + way]
                state = states[level + way] if states else None
                order = reversed(range(len(steps))) if way else range(len(steps))
                for t in order:
                    state = cell(steps[t], state)
                    shown[t].append(state[0] if isinstance(state, tuple) else state)
                after.append(state)
            steps = [torch.cat(both) for both in shown]
        return steps, after


class StepByStep(nn.Module):
    """Network that processes one sequence after another."""

    def __init__(self, config: Config, make: CellFactory) -> None:
        super().__init__()
        self.config = config
        ways = 1 + config.bidirectional
        if config.vocab_size:
            self.words = nn.Parameter(torch.zeros(config.vocab_size, config.input_dim))
        self.reader = CellStack(make, config.input_dim, config.hidden_dim, config.layers, ways)
        forecasts_by_step = config.horizon > 0 and (config.known_future > 0 or config.recursive)
        if config.known_future and not config.recursive:
            self.writer = CellStack(make, config.known_future, config.hidden_dim, config.layers, 1)
        outputs = config.num_classes // config.horizon if forecasts_by_step else config.num_classes
        seen = config.hidden_dim * ways * (config.steps if config.pooling == "flat" else 1)
        self.matrix = None if config.tie_weights else nn.Parameter(torch.zeros(outputs, seen))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def head(self, seen: Tensor) -> Tensor:
        """Compute W r + b after dropout, for one readout (R,) or for one at each step."""
        dropped = F.dropout(seen, self.config.dropout, self.training)
        return dropped @ (self.words if self.matrix is None else self.matrix).T + self.bias

    def forward(self, x: Tensor, beside: Tensor | None = None) -> Tensor:
        """Return the outputs for every sequence. Beyond the end of a sequence they are those of zeros."""
        answers = []
        for i, sequence in enumerate(x):
            if self.config.horizon:
                answers.append(self.forecast(sequence, None if beside is None else beside[i]))
                continue
            length = len(sequence) if beside is None else int(beside[i].sum())
            steps = [self.words[int(k)] for k in sequence[:length]] if self.config.vocab_size else [*sequence[:length]]
            shown, after = self.reader(steps)
            if self.config.pooling == "every":
                zeros = [torch.zeros_like(shown[0])] * (len(sequence) - length)
                answers.append(torch.stack(shown + zeros))
            else:
                answers.append(self.read(shown, after))
        if self.config.horizon:
            return torch.stack(answers)
        return self.head(torch.stack(answers))

    def read(self, shown: list[Tensor], after: list[State]) -> Tensor:
        """Return the input of the head for one sequence."""
        if self.config.pooling in ("auto", "last"):
            top = after[-self.reader.ways :]
            return torch.cat([state[0] if isinstance(state, tuple) else state for state in top])
        if self.config.pooling == "flat":
            return torch.cat(shown)
        stacked = torch.stack(shown)
        return stacked.sum(0) / len(shown) if self.config.pooling == "mean" else stacked.max(0).values

    def forecast(self, sequence: Tensor, future: Tensor | None) -> Tensor:
        """Return the forecast of one series, shape (H · C,)."""
        config, columns = self.config, self.config.num_classes // self.config.horizon
        relative = config.relative is None or config.relative
        base = sequence[-1, :columns] if relative else torch.zeros_like(sequence[-1, :columns])
        if relative:  # variables known in advance are not normalized
            own = torch.tensor([float(i < config.in_features - config.known_future) for i in range(config.in_features)])
            sequence = sequence - own.to(sequence) * sequence[-1]
        if config.recursive:
            told = [*sequence[1:, columns:], *(sequence[:0] if future is None else future)]
            values, said = [*sequence[:, :columns]], []
            for _ in range(config.horizon):  # restarts from the beginning
                steps = [torch.cat([v, told[t]]) if config.known_future else v for t, v in enumerate(values)]
                value = self.head(self.reader(steps)[0][-1])
                value = value + values[-1] if relative else value
                values.append(value)
                said.append(value)
            return torch.cat(said) + base.repeat(config.horizon)
        shown, after = self.reader([*sequence])
        if future is None:
            return self.head(self.read(shown, after)) + base.repeat(config.horizon)
        return torch.cat([self.head(h) + base for h in self.writer([*future], after)[0]])


def step_by_step(config: Config) -> Oracle:
    """Build the cells and the key map from our weights. There is no dropout between layers."""
    if isinstance(config, rnn.Config):
        activation = config.activation

        def make(inputs: int) -> nn.Module:
            return nn.RNNCell(inputs, config.hidden_dim, nonlinearity=activation)
    else:
        cell = nn.LSTMCell if isinstance(config, lstm.Config) else nn.GRUCell
        assert isinstance(config, lstm.Config | gru.Config)

        def make(inputs: int) -> nn.Module:
            return cell(inputs, config.hidden_dim)

    module = StepByStep(config, make)
    key_map = {"head.weight": "words" if config.tie_weights else "matrix", "head.bias": "bias"}
    if config.vocab_size:
        key_map["embedding.weight"] = "words"
    stacks = {"rnn": "reader", "decoder": "writer"} if hasattr(module, "writer") else {"rnn": "reader"}
    for ours, theirs in stacks.items():
        stack: CellStack = getattr(module, theirs)
        for i in range(len(stack.cells)):
            level, way = divmod(i, stack.ways)
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                key_map[f"{ours}.{name}_l{level}{'_reverse' * way}"] = f"{theirs}.cells.{i}.{name}"
    return Oracle(module, recurrent_inputs(config), key_map)


def recurrent_inputs(
    config: Config, count: int = 4, longest: int = 7
) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a function that draws inputs: sequences of several lengths, if supported, with nonzero padding."""

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        steps = config.steps if config.pooling == "flat" else longest
        if config.vocab_size:
            x = torch.randint(config.vocab_size, (count, steps), generator=generator)
        else:
            x = torch.randn(count, steps, config.in_features, generator=generator, dtype=torch.float64)
        if config.known_future:
            return x, torch.randn(count, config.horizon, config.known_future, generator=generator, dtype=torch.float64)
        if config.horizon or config.pooling == "flat":
            return (x,)
        lengths = torch.randint(1, steps + 1, (count,), generator=generator)
        return x, torch.arange(steps) < lengths[:, None]

    return draw


SOURCE_LENGTHS = (5, 2, 7, 1)  # tokens of each source: a ragged batch
TARGET_STEPS = 6  # of the target


class LoopedSeq2Seq(nn.Module):
    """Network that reads each source, cut to its length, with `GRUCell`s in both directions.

    Attention is a sum over positions.

    Dropout is drawn for the whole batch first, in the order of the model. Between layers it is not used.
    """

    def __init__(self, config: seq2seq_gru.Config) -> None:
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
        """Return the logits (S, vocab_size) of one example, with its dropout factors."""
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


def looped_seq2seq(config: seq2seq_gru.Config) -> Oracle:
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
        mask = valid_mask(SOURCE_LENGTHS)  # (N, T)
        source = torch.randint(1, config.vocab_size, mask.shape, generator=generator).where(mask, 0)
        target = torch.randint(0, config.target_vocab_size, (len(SOURCE_LENGTHS), TARGET_STEPS), generator=generator)
        return source, mask, target

    return Oracle(LoopedSeq2Seq(config), inputs, key_map)


ORACLES = {
    **{name: step_by_step for family in (rnn, lstm, gru) for name in family.PRESETS},
    "seq2seq-gru": looped_seq2seq,
}
