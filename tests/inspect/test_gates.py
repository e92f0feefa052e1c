"""Gates: those of the equations, and a recurrence that is the fused layer's own."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.inspect.captures import capture
from cutaway.nn import recurrent as layers
from tests.small import of_family, small

LAYERS: dict[str, Any] = {"rnn": layers.RNN, "lstm": layers.LSTM, "gru": layers.GRU}
GATES = {
    "rnn": {"state"},
    "lstm": {"input", "forget", "candidate", "output", "cell", "state"},
    "gru": {"reset", "update", "candidate", "state"},
}
CLOSE: dict[str, Any] = {"atol": 1e-6, "rtol": 0}


class Holds(nn.Module):
    """A model that is one layer, handed on whatever it is given."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.rnn = layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.rnn(*args, **kwargs)


def states(found: Any, layer: Any) -> Tensor:
    """The top layer's states in both directions, (N, T, ways · hidden)."""
    top = layer.num_layers - 1
    ways = ["", "_reverse"] if layer.bidirectional else [""]
    return torch.cat([found[f"rnn.l{top}{way}.state"] for way in ways], dim=2)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(LAYERS)),
    levels=st.integers(1, 3),
    both=st.booleans(),
    bias=st.booleans(),
    first=st.booleans(),
    path=st.sampled_from(["plain", "packed", "lengths"]),
    dropout=st.sampled_from([0.0, 0.5]),
    begins=st.booleans(),
    seed=st.integers(0, 99),
)
def test_replayed_states_are_the_fused_layers(
    kind: str, levels: int, both: bool, bias: bool, first: bool, path: str, dropout: float, begins: bool, seed: int
) -> None:
    """In every form that PyTorch's layers have, in training too: the very numbers that were dropped are dropped."""
    torch.manual_seed(seed)
    first = first or path == "lengths"
    many = {"num_layers": levels, "bidirectional": both, "bias": bias, "batch_first": first}
    layer = LAYERS[kind](3, 4, **many, dropout=dropout if levels > 1 else 0.0)
    n, steps = 4, 6
    x, lengths = torch.randn(n, steps, 3), torch.tensor([4, 6, 1, 3])
    state: Any = None
    if begins and path != "lengths":
        parts = torch.randn(2, levels * (1 + both), n, 4)
        state = tuple(parts) if kind == "lstm" else parts[0]
    model = Holds(layer)
    with capture(model, ("gates", "features")) as seen:
        if path == "packed":
            bundle = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            outputs = pad_packed_sequence(model(bundle, state)[0], batch_first=True)[0]
        elif path == "lengths":
            outputs = model(x, lengths=lengths)[0]
        else:
            outputs = model(x if first else x.transpose(0, 1), state)[0]
            outputs = outputs if first else outputs.transpose(0, 1)
    found = seen["gates"]
    names = {
        f"rnn.l{k}{way}.{gate}" for k in range(levels) for way in ["", "_reverse"][: 1 + both] for gate in GATES[kind]
    }
    assert set(found) == names
    assert all(gate.shape == (n, steps, 4) for gate in found.values())
    torch.testing.assert_close(states(found, layer), outputs, **CLOSE)
    if path != "plain":
        beyond = torch.arange(steps) >= lengths[:, None]
        assert all((gate[beyond] == 0).all() for gate in found.values())


@pytest.mark.parametrize("both", [False, True], ids=["forwards", "both"])
@pytest.mark.parametrize("share", [0.2, 0.9], ids=["ragged", "even"])
def test_large_batches_in_rectangles_drop_the_same(both: bool, share: float) -> None:
    torch.manual_seed(0)
    layer = layers.GRU(3, 40, num_layers=2, bidirectional=both, dropout=0.5, batch_first=True)
    lengths = (torch.rand(128) * 10 * (1 - share) + 10 * share).ceil().long().clamp(1, 10)
    assert (len(layers.bucket_boundaries(lengths.sort(descending=True)[0], 10, 40)) == 1) == (share == 0.9)
    model = Holds(layer)
    with capture(model, "gates") as seen:
        outputs = model(torch.randn(128, 10, 3), lengths=lengths)[0]
    torch.testing.assert_close(states(seen["gates"], layer), outputs, **CLOSE)


@pytest.mark.parametrize("name", of_family("rnn"))
@pytest.mark.parametrize("ends", [None, 2], ids=["all real", "padded"])
def test_every_recurrent_preset(name: str, ends: int | None) -> None:
    model, inputs = small(name)
    if ends and len(inputs) > 1:
        inputs[1][0, ends:] = False
    with torch.no_grad(), capture(model, ("gates", "features")) as seen:
        model(*inputs)
    for layer, module in model.named_modules():
        if isinstance(module, nn.RNNBase):
            ways = ["", "_reverse"] if module.bidirectional else [""]
            top = [seen["gates"][f"{layer}.l{module.num_layers - 1}{way}.state"] for way in ways]
            torch.testing.assert_close(torch.cat(top, 2), seen["features"][layer], **CLOSE)
    if name == "seq2seq-gru":
        found = seen["gates"]["decoder.l0.state"]
        cells = [seen["features"]["decoder" + (f"#{t}" if t > 1 else "")] for t in range(1, inputs[2].shape[1] + 1)]
        torch.testing.assert_close(found, torch.stack(cells, 1), **CLOSE)


def test_one_step_by_hand() -> None:
    """An LSTM of one unit with all weights 1 and no biases: x = 1 and h = c = 0 make every sum 1."""
    layer = nn.LSTM(1, 1, bias=False, batch_first=True)
    for weight in layer.parameters():
        nn.init.ones_(weight)
    model = Holds(layer)
    with capture(model, "gates") as seen:
        model(torch.ones(1, 1, 1))
    gate, squashed = 1 / (1 + math.exp(-1)), math.tanh(1)
    cell = gate * squashed
    expected = {"input": gate, "forget": gate, "candidate": squashed, "output": gate, "cell": cell}
    expected["state"] = gate * math.tanh(cell)
    assert {k: float(seen["gates"][f"rnn.l0.{k}"]) for k in expected} == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_cells_one_step_after_another(kind: str) -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            cells: dict[str, Any] = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}
            self.cell = cells[kind](3, 4)

        def forward(self, x: Tensor) -> Tensor:
            state, found = None, []
            for step in x.unbind(1):
                state = self.cell(step, state)
                found.append(state[0] if kind == "lstm" else state)
            return torch.stack(found, 1)

    torch.manual_seed(0)
    model = Steps()
    with capture(model, "gates") as seen:
        for _ in range(2):
            outputs = model(torch.randn(2, 5, 3))
    assert set(seen["gates"]) == {f"cell.l0.{gate}" for gate in GATES[kind]}
    torch.testing.assert_close(seen["gates"]["cell.l0.state"], outputs, **CLOSE)


def test_a_sequence_that_goes_on_is_one() -> None:
    """A recursive forecaster reads what it saw, then each of its forecasts, from the state that it has."""
    model = create_model("gru", in_features=1, hidden_dim=4, num_classes=3, horizon=3, recursive=True)
    with torch.no_grad(), capture(model, "gates") as seen:
        model(torch.randn(2, 6, 1))
    assert seen["gates"]["rnn.l0.update"].shape == (2, 6 + 3 - 1, 4)


def test_a_layer_that_reads_twice_has_two_results() -> None:
    layer = layers.GRU(3, 4, batch_first=True)

    class Twice(Holds):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.rnn(x)[0], self.rnn(x.flip(1))[0]])

    model = Twice(layer)
    with torch.no_grad(), capture(model, "gates") as seen:
        outputs = model(torch.randn(2, 5, 3))
    both = [seen["gates"][k] for k in ("rnn.l0.state", "rnn.l0.state#2")]
    torch.testing.assert_close(torch.cat(both), outputs, **CLOSE)


def test_kept_sequences_are_the_first_even_where_numbers_are_dropped() -> None:
    torch.manual_seed(0)
    layer = layers.LSTM(3, 4, num_layers=2, dropout=0.5, batch_first=True)
    model = Holds(layer)
    with capture(model, "gates", keep=2) as seen:
        outputs = model(torch.randn(5, 6, 3), lengths=torch.tensor([3, 6, 2, 5, 1]))[0]
    torch.testing.assert_close(seen["gates"]["rnn.l1.state"], outputs[:2, :6], **CLOSE)


def test_unbatched_sequences_are_one_example() -> None:
    layer = nn.GRU(3, 4)
    model = Holds(layer)
    with capture(model, "gates") as seen:
        outputs = model(torch.randn(6, 3))[0]
    torch.testing.assert_close(seen["gates"]["rnn.l0.state"], outputs[None], **CLOSE)


def test_projections_are_rejected() -> None:
    model = Holds(nn.LSTM(3, 4, proj_size=2))
    with pytest.raises(ModelError, match="Invalid proj_size=2"), capture(model, "gates"):
        pass
