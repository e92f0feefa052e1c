"""What recurrent layers cost: every matrix once at every real step, whichever operation PyTorch makes of it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cutaway import create_model
from cutaway.inspect.layers import layer_table
from cutaway.nn import recurrent as layers

GATES = {"rnn": 1, "lstm": 4, "gru": 3}
EACH = pytest.mark.parametrize("name", GATES)
MASK = torch.arange(6) < torch.tensor([6, 2, 2, 1])[:, None]


@EACH
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_multiply_adds_are_those_of_the_equations(name: str, device: str) -> None:
    """gates · (h · inputs + h · h) at each step of each layer and direction; an embedding costs nothing."""
    changes = {
        "vocab_size": 11,
        "embedding_dim": 7,
        "hidden_dim": 5,
        "layers": 2,
        "bidirectional": True,
        "num_classes": 3,
    }
    with torch.device(device):
        model = create_model(name, **changes)
        tokens, mask = torch.zeros(4, 6, dtype=torch.int64), torch.ones(4, 6, dtype=torch.bool)
    table = layer_table(model, tokens, mask)
    steps, gates = 4 * 6, GATES[name]
    recurrent = steps * gates * (2 * (5 * 7 + 5 * 5) + 2 * (5 * 10 + 5 * 5))
    by_name = {row.name: row for row in table.rows}
    assert table.complete
    assert {k: row.multiply_adds for k, row in by_name.items() if row.multiply_adds} == {
        "rnn": recurrent,
        "head": 4 * 10 * 3,
    }
    assert by_name["embedding"].multiply_adds == 0
    assert by_name["rnn"].shape == (4, 6, 10)
    biases = 2 * gates * 5 * 2 * 2
    assert by_name["rnn"].parameters == recurrent // steps + biases


@EACH
@pytest.mark.parametrize("read", ["last", "every"])
def test_padding_that_is_left_out_costs_nothing(name: str, read: str) -> None:
    model = create_model(name, hidden_dim=5, pooling=read, num_classes=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "LEAST_WORK", 0)
        table = layer_table(model, torch.zeros(4, 6, 1), MASK)
    each = GATES[name] * (5 + 25)
    head = 5 * 3 * (4 * 6 if read == "every" else 4)
    assert table.complete
    assert {row.name: row.multiply_adds for row in table.rows} == {"rnn": each * int(MASK.sum()), "head": head}


@EACH
def test_carried_states_are_counted_too(name: str) -> None:
    """Packed sequences, as `advance` hands them to the fused layer."""
    model = create_model(name, vocab_size=11, hidden_dim=5, pooling="every", num_classes=11)
    model.forward = model.advance  # type: ignore[method-assign]
    table = layer_table(model, torch.ones(4, 6, dtype=torch.int64), MASK)
    assert table.complete
    assert table.multiply_adds == GATES[name] * 50 * int(MASK.sum()) + 5 * 11 * 24


@pytest.mark.filterwarnings("ignore:The reduce argument")
def test_a_scatter_that_adds_up_is_not_a_copy() -> None:
    class Scatters(nn.Module):
        def __init__(self, **how: str) -> None:
            super().__init__()
            self.first, self.how = nn.Linear(4, 4), how

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return x.scatter(0, torch.zeros(1, 4, dtype=torch.int64), x, **self.how)

    x = torch.randn(2, 4)
    assert layer_table(Scatters(), x).complete
    assert not layer_table(Scatters(reduce="add"), x).complete
