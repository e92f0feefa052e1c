"""Text out of a model: with carried state as by reading everything anew, seeded, and the model left as it was."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.errors import ModelError, SettingError
from cutaway.generation import text
from cutaway.generation.text import generate, stream

V = 11


@dataclass(frozen=True)
class Limits:
    """How many tokens a model reads at once."""

    context: int = 0


class Anew(nn.Module):
    """A recurrent language model that is asked for whole contexts."""

    def __init__(self, context: int = 0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.config = Limits(context)
        self.embedding = nn.Embedding(V, 8)
        self.cells = nn.GRU(8, 16, batch_first=True)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(16, V)
        nn.init.normal_(self.head.weight)
        self.read: list[int] = []

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """(N, T) to (N, T, V)."""
        return self.pass_on(tokens, None)[0]

    def pass_on(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same from a state on."""
        self.read.append(tokens.shape[1])
        found, state = self.cells(self.embedding(tokens), state)
        return self.head(self.dropout(found)), state


class Carrying(Anew):
    """The same model with a state that can be carried."""

    def advance(self, tokens: Tensor, mask: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """(N, T) and a state to (N, T, V) and the state behind them."""
        return self.pass_on(tokens, state)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 8), st.integers(1, 12), st.integers(0, 99), st.sampled_from([0.0, 0.7, 1.5]))
def test_carried_state_gives_the_tokens_that_reading_anew_gives(
    n: int, steps: int, count: int, seed: int, temperature: float
) -> None:
    prompt = torch.randint(2, V, (n, steps), generator=seeded(seed))
    anew, carrying = Anew().double(), Carrying().double()
    found = [generate(m, prompt, count, temperature=temperature, generator=seeded(seed)) for m in (anew, carrying)]
    assert torch.equal(*found)
    assert found[0].shape == (n, count)
    assert anew.read == [steps + k for k in range(count)]
    assert carrying.read == [steps] + [1] * (count - 1)


def test_a_long_prompt_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = torch.randint(2, V, (2, 10), generator=seeded())
    whole = generate(Carrying().double(), prompt, 5, generator=seeded())
    monkeypatch.setattr(text, "PIECE", 4)
    in_pieces = Carrying().double()
    assert torch.equal(generate(in_pieces, prompt, 5, generator=seeded()), whole)
    assert in_pieces.read[:3] == [4, 4, 2]


def test_a_model_with_a_context_reads_no_more_than_that() -> None:
    model = Anew(context=4)
    generate(model, torch.full((1, 3), 2), 5)
    assert model.read == [3, 4, 4, 4, 4]


def test_the_same_seed_writes_the_same_and_streams_the_same() -> None:
    model, prompt = Carrying(), torch.tensor([[2, 5]])
    first = generate(model, prompt, 40, generator=seeded(1))
    streamed = torch.stack(list(stream(model, prompt, 40, generator=seeded(1))), dim=1)
    assert torch.equal(first, streamed)
    assert torch.equal(first[:, :7], generate(model, prompt, 7, generator=seeded(1)))
    assert not torch.equal(first, generate(model, prompt, 40, generator=seeded(2)))


@pytest.mark.parametrize("training", [True, False])
def test_every_module_is_left_in_the_mode_that_it_was_in(training: bool) -> None:
    model = Carrying().train(training)
    model.cells.train(not training)
    modes = [module.training for module in model.modules()]
    tokens = stream(model, torch.tensor([[2]]), 3)
    for _ in range(2):
        next(tokens)
        assert [module.training for module in model.modules()] == modes
        assert torch.is_grad_enabled()
    tokens.close()  # type: ignore[attr-defined]
    quiet = generate(model, torch.tensor([[2]]), 20, generator=seeded())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(quiet, generate(model.eval(), torch.tensor([[2]]), 20, generator=seeded()))  # without dropout


def test_the_mode_is_given_back_where_the_model_fails() -> None:
    model = Carrying().train()
    with torch.no_grad():
        model.head.bias.fill_(torch.nan)
    with pytest.raises(ModelError, match="not finite"):
        generate(model, torch.tensor([[2]]), 3)
    assert model.dropout.training


def test_padding_and_unknown_are_never_written() -> None:
    model = Carrying()
    with torch.no_grad():
        model.head.bias[:2] = 100.0
    found = generate(model, torch.tensor([[2]]), 200, generator=seeded())
    assert found.min() >= 2
    assert generate(model, torch.tensor([[2]]), 20, generator=seeded(), never=()).max() < 2


def test_what_cannot_be_asked_for_is_refused_at_once() -> None:
    model = Carrying()
    with pytest.raises(ModelError, match=r"not \(1, 0\)"):
        generate(model, torch.zeros(1, 0, dtype=torch.int64), 3)
    with pytest.raises(SettingError, match="count=0"):
        stream(model, torch.tensor([[2]]), 0)
    with pytest.raises(SettingError, match="top_p=2"):
        stream(model, torch.tensor([[2]]), 1, top_p=2.0)
    assert model.read == []
