"""Text out of a model: with what was read kept as by reading everything anew, alone as in a batch, seeded, and the
model left as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.core.errors import ModelError, SettingError
from cutaway.inference import text
from cutaway.inference.text import NONE, generate, stream
from cutaway.models import gpt2
from cutaway.models.registry import create_model

V = 11


@dataclass(frozen=True)
class Limits:
    """How many tokens a model reads at once."""

    context_length: int = 0


class Anew(nn.Module):
    """A recurrent language model that is asked for whole contexts."""

    def __init__(self, context_length: int = 0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.config = Limits(context_length)
        self.embedding = nn.Embedding(V, 8)
        self.cells = nn.GRU(8, 16, batch_first=True)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(16, V)
        nn.init.normal_(self.head.weight)
        self.read: list[int] = []

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """(N, T) to (N, T, V)."""
        return self.pass_on(tokens, mask, None)[0]

    def pass_on(self, tokens: Tensor, mask: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same from a state on, (1, N, 16)."""
        self.read.append(tokens.shape[1])
        found, last = self.cells(self.embedding(tokens), state)
        if mask is not None:
            assert mask.any(1).all()
            last = found[torch.arange(len(found)), mask.sum(1) - 1][None]
        return self.head(self.dropout(found)), last


class Carrying(Anew):
    """The same model with a state that can be carried."""

    def advance(self, tokens: Tensor, mask: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """(N, T) and a state to (N, T, V) and the state after them."""
        return self.pass_on(tokens, mask, state)


class Whole(nn.Module):
    """A model that is asked for whole contexts, whatever it could do."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """(N, T) to (N, T, V)."""
        found: Tensor = self.model(tokens, mask)
        return found


def decoder(context_length: int) -> gpt2.Model:
    """A GPT-2 whose next token depends much on those before it."""
    torch.manual_seed(context_length)
    model = gpt2.Model(gpt2.Config(vocab_size=V, context_length=context_length, dim=8, layers=2, heads=2)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.5)
    return model


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unequal(seed: int, n: int, longest: int) -> tuple[Tensor, Tensor]:
    """Prompts (N, T) of 1 to `longest` tokens, with what is no token at all after them, and their mask."""
    generator = seeded(seed)
    lengths = torch.randint(1, longest + 1, (n, 1), generator=generator)
    mask = torch.arange(int(lengths.max())) < lengths
    return torch.randint(2, V, mask.shape, generator=generator).where(mask, -7), mask


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
    model = Anew(context_length=4)
    generate(model, torch.full((1, 3), 2), 6)
    assert model.read == [3, 4, 2, 3, 4, 2]  # when it is full, the last half of it is read, with the newest token


settings_of = st.sampled_from(
    [{"temperature": 0.0}, {}, {"top_k": 4, "temperature": 0.8}, {"repetition_penalty": 1.4}, {"top_p": 0.8}]
)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 25),
    st.integers(0, 999),
    settings_of,
    st.sampled_from([2, 512]),
)
def test_a_cache_gives_the_tokens_that_reading_anew_gives(
    context_length: int, n: int, count: int, seed: int, settings_: dict[str, Any], piece: int
) -> None:
    """Of unequal prompts too, and when the window slides."""
    model, was = decoder(context_length), text.PIECE
    prompt, mask = unequal(seed, n, context_length)
    given_: dict[str, Any] = {"mask": mask, **settings_}
    anew = generate(Whole(model), prompt, count, generator=seeded(seed), **given_)
    text.PIECE = piece
    try:
        found = generate(model, prompt, count, generator=seeded(seed), **given_)
    finally:
        text.PIECE = was
    assert torch.equal(found, anew)
    assert found.shape == (n, count)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["cached", "carried", "anew"]), st.integers(1, 12), st.integers(0, 999), settings_of)
def test_each_row_is_what_it_is_alone(kind: str, longest: int, seed: int, settings_: dict[str, Any]) -> None:
    """With a generator for each row."""
    model = decoder(9) if kind == "cached" else {"carried": Carrying, "anew": Anew}[kind]().double()
    prompt, mask = unequal(seed, 4, longest)
    given_: dict[str, Any] = {"window": True, "ends": (5,), **settings_}
    together = generate(model, prompt, 15, mask=mask, generator=[seeded(seed + i) for i in range(4)], **given_)
    for i in range(4):
        alone = generate(model, prompt[i : i + 1][mask[i : i + 1]][None], 15, generator=seeded(seed + i), **given_)
        assert together[i][together[i] != NONE].tolist() == alone[0].tolist()
        assert 5 not in together[i].tolist()


def test_unequal_prompts_of_a_recurrent_model_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE", 3)
    model = create_model("lstm", vocab_size=V, pooling="every", num_classes=V, hidden_dim=6, embedding_dim=5).double()
    mask = torch.arange(9) < torch.tensor([[9], [8], [9]])
    prompt = torch.randint(2, V, (3, 9), generator=seeded())
    together = generate(model, prompt, 12, mask=mask, temperature=0.0)
    for row, real, found in zip(prompt, mask, together):
        assert torch.equal(found[None], generate(model, row[real][None], 12, temperature=0.0))


def test_an_end_ends_its_row_and_all_ends_end_the_text() -> None:
    model = Carrying()
    prompt = torch.tensor([[2], [3], [4]])
    ends = tuple(range(2, 7))
    free = generate(model, prompt, 30, generator=[seeded(i) for i in range(3)])
    found = generate(model, prompt, 30, generator=[seeded(i) for i in range(3)], ends=ends)
    expected = [next((k for k, token in enumerate(row) if token in ends), 30) for row in free.tolist()]
    assert 0 < max(expected) < 30
    assert found.shape == (3, max(expected))
    for row, whole, length in zip(found.tolist(), free.tolist(), expected):
        assert row[:length] == whole[:length]
        assert set(row[length:]) <= {NONE}
    assert generate(model, prompt, 30, temperature=0.0, ends=range(V)).shape == (3, 0)


def test_a_prompt_longer_than_the_context_is_rejected_or_its_end_is_read() -> None:
    model, prompt = decoder(8), torch.randint(2, V, (1, 11), generator=seeded())
    with pytest.raises(ModelError, match=r"11 tokens, and the context of this model is 8.*--window"):
        stream(model, prompt, 5)
    last = generate(model, prompt[:, 3:], 20, generator=seeded())
    assert torch.equal(generate(model, prompt, 20, generator=seeded(), window=True), last)


@pytest.mark.parametrize("bad", [V, -1])
def test_a_token_outside_the_vocabulary_is_named(bad: int) -> None:
    with pytest.raises(ModelError, match=f"token id {bad} in the prompt: must be from 0 to {V - 1}"):
        stream(decoder(8), torch.tensor([[3, bad]]), 5)


@pytest.mark.parametrize("kind", ["cached", "carried", "anew"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_padding_stands_in_front_of_a_prompt_as_well_as_behind(kind: str, dtype: torch.dtype) -> None:
    model = decoder(9) if kind == "cached" else {"carried": Carrying, "anew": Anew}[kind]().double()
    after = torch.tensor([[2, 3, 4, 5], [3, 6, 0, 0]])
    front = torch.tensor([[2, 3, 4, 5], [0, 0, 3, 6]])
    found = [
        generate(model, prompt, 12, mask=(prompt > 0).to(dtype), generator=[seeded(0), seeded(1)])
        for prompt in (after, front)
    ]
    assert torch.equal(*found)


def test_a_prompt_without_a_token_is_rejected() -> None:
    prompt = torch.full((2, 3), 2)
    with pytest.raises(ModelError, match="Invalid mask: each prompt must have at least one token"):
        stream(Anew(), prompt, 5, mask=torch.tensor([[True] * 3, [False] * 3]))
    with pytest.raises(ModelError, match="one entry for each place"):
        stream(Anew(), prompt, 5, mask=torch.ones(2, 2, dtype=torch.bool))
    with pytest.raises(SettingError, match="Invalid number of generators, 3"):
        stream(Anew(), prompt, 5, generator=[seeded()] * 3)


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


def test_what_cannot_be_asked_for_is_rejected_at_once() -> None:
    model = Carrying()
    with pytest.raises(ModelError, match=r"prompt of shape \(1, 0\): must be \(N, T\) with at least one token"):
        generate(model, torch.zeros(1, 0, dtype=torch.int64), 3)
    with pytest.raises(SettingError, match="count=0"):
        stream(model, torch.tensor([[2]]), 0)
    with pytest.raises(SettingError, match="min_p=2"):
        stream(model, torch.tensor([[2]]), 1, min_p=2)
    with pytest.raises(SettingError, match="top_p=2"):
        stream(model, torch.tensor([[2]]), 1, top_p=2.0)
    assert model.read == []
