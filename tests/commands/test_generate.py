"""cutaway generate: text as it is drawn, seeded; prompts that a model does not know; runs that write no text."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.commands import generate
from cutaway.data.settings import DataSettings
from cutaway.data.text.running import RunningPreprocessing, running_dataset
from cutaway.errors import CutawayError, DataError, SettingError
from cutaway.spec import Classes, PairSpec, TextSpec, Tokens
from cutaway.training import run as runs
from cutaway.training.place import find_place

TEXT = "the cat sat on the mat. the dog sat on the log.\n" * 20
WORDY = "naïve café 😀 – “so” naïve café 😀 " * 20


class Next(nn.Module):
    """A language model that knows which token stands behind which, and a little of chance."""

    def __init__(self, preprocessing: RunningPreprocessing, text: str) -> None:
        super().__init__()
        ids = preprocessing.encode(text)
        counts = torch.zeros(len(preprocessing.tokenizer), len(preprocessing.tokenizer))
        counts.index_put_((ids[:-1], ids[1:]), torch.ones(len(ids) - 1), accumulate=True)
        self.logits = nn.Parameter(counts.clamp(min=1e-6).log())

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """(N, T) to (N, T, V)."""
        return self.logits[tokens]


def language_run(text: str = TEXT, **settings: Any) -> SimpleNamespace:
    data = running_dataset({"train": text}, DataSettings(length=8, **settings), name="t", source="t", fingerprint="")
    assert isinstance(data.preprocessing, RunningPreprocessing)
    model = Next(data.preprocessing, text)
    return run_of(data.spec, data.preprocessing, model)


def run_of(spec: Any, preprocessing: Any, model: nn.Module) -> SimpleNamespace:
    about = {"model": "textcnn", "data": {"source": "sst2"}}
    place = find_place("cpu", "float32", None, model)
    return SimpleNamespace(spec=spec, preprocessing=preprocessing, model=model, place=place, about=about)


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """`say(run, "--prompt", "the")` gives standard output and standard error."""

    def answer(opened: SimpleNamespace, *words: str) -> tuple[str, str]:
        monkeypatch.setattr(runs, "Run", lambda folder: opened)
        parser = argparse.ArgumentParser()
        generate.arguments(parser)
        assert generate.run(parser.parse_args(["runs/x", *words])) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    return answer


def test_text_begins_with_the_prompt_and_has_the_length_asked_for(say: Callable[..., tuple[str, str]]) -> None:
    out, err = say(language_run(), "--prompt", "the c", "--count", "40")
    assert out.startswith("the c")
    assert len(out) == len("the c") + 40 + 1
    assert set(out) <= set(TEXT)
    assert err == ""
    assert len(say(language_run())[0]) == generate.COUNT + 1


def test_without_a_prompt_text_begins_behind_a_line(say: Callable[..., tuple[str, str]]) -> None:
    out, _ = say(language_run(), "--temperature", "0", "--count", "5")
    assert out == "the t\n"  # a line of the text begins so, and behind "the " a t is not rarer than any other


def test_the_seed_decides(say: Callable[..., tuple[str, str]]) -> None:
    first, again, other = (say(language_run(), "--seed", seed, "--temperature", "1.5")[0] for seed in ("1", "1", "2"))
    assert first == again != other


@pytest.mark.parametrize(
    ("text", "settings", "prompt"),
    [
        (TEXT, {}, "the "),
        (TEXT, {"tokenizer": "words"}, "the cat"),
        (WORDY, {"tokenizer": "bpe", "vocabulary": 262}, "naï"),  # nearly every byte is a token of its own
        (WORDY, {"tokenizer": "wordpiece", "vocabulary": 60}, "café"),
    ],
)
def test_what_is_streamed_is_what_the_tokens_say(
    say: Callable[..., tuple[str, str]], text: str, settings: dict[str, Any], prompt: str
) -> None:
    opened = language_run(text, **settings)
    preprocessing, words = opened.preprocessing, ("--prompt", prompt, "--count", "60", "--top-k", "3")
    out, _ = say(opened, *words)
    document = json.loads(say(opened, *words, "--json")[0])
    assert out == prompt + document["samples"][0] + "\n"
    assert (document["prompt"], document["top_k"], document["temperature"]) == (prompt, 3, generate.TEMPERATURE)
    ids = generate_ids(opened, prompt, 60)
    whole = preprocessing.decode(ids)
    assert whole == preprocessing.decode(preprocessing.encode(prompt).tolist()) + document["samples"][0]


def generate_ids(opened: SimpleNamespace, prompt: str, count: int) -> list[int]:
    """The prompt's tokens and those that the command draws."""
    from cutaway.generation.text import generate as tokens_of

    start = opened.preprocessing.encode(prompt)[None]
    seed = torch.Generator().manual_seed(0)
    found = tokens_of(opened.model, start, count, temperature=generate.TEMPERATURE, top_k=3, generator=seed)
    ids: list[int] = torch.cat([start, found], dim=1)[0].tolist()
    return ids


def test_samples_are_drawn_one_after_the_other(say: Callable[..., tuple[str, str]]) -> None:
    words = ("--count", "12", "--temperature", "1")
    one = json.loads(say(language_run(), *words, "--json")[0])["samples"]
    three = json.loads(say(language_run(), *words, "--samples", "3", "--json")[0])["samples"]
    assert three[:1] == one
    assert len(set(three)) == 3
    assert say(language_run(), *words, "--samples", "3")[0] == "\n\n".join(three) + "\n"


def test_what_the_model_does_not_know_is_named(say: Callable[..., tuple[str, str]]) -> None:
    out, err = say(language_run(), "--prompt", "the ☃ and É", "--count", "3")
    assert out.startswith("the ☃ and É")
    assert "does not know '☃', 'É'" in err
    _, err = say(language_run(tokenizer="words"), "--prompt", "the zebra sat", "--count", "3")
    assert "does not know 'zebra'" in err
    with pytest.raises(DataError, match="knows nothing of the prompt: '☃'"):
        say(language_run(), "--prompt", "☃☃")
    _, err = say(language_run(tokenizer="words"), "--prompt", "  ", "--count", "3")
    assert "begins as without one" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--count", "0"), "count=0"),
        (("--samples", "0"), "--samples 0"),
        (("--temperature", "-1"), "temperature=-1"),
        (("--top-k", "-2"), "top_k=-2"),
        (("--top-p", "0"), "top_p=0"),
        (("--beams", "3"), "--beams is for pairs"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    say: Callable[..., tuple[str, str]], words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        say(language_run(), *words)


def test_a_run_that_writes_no_text_says_what_it_is(say: Callable[..., tuple[str, str]]) -> None:
    spec = TextSpec(10, 8, Classes(("bad", "good"), "sentiment"))
    with pytest.raises(CutawayError, match=r"textcnn learned the sentiment of text data \(sst2\).*language models"):
        say(run_of(spec, SimpleNamespace(spec=spec), nn.Linear(1, 1)))


# --- pairs --------------------------------------------------------------------------------------------------------


class Pairs:
    """What a preprocessing of pairs answers to one prompt: the codes of its letters."""

    def examples(self, sources: list[str]) -> Any:
        from cutaway.data.sets import Batch

        (text,) = sources
        source = torch.tensor([[ord(letter) for letter in text]])
        inputs = (source, torch.ones_like(source, dtype=torch.bool), torch.zeros(1, 1, dtype=torch.int64))

        class Part:
            def __len__(self) -> int:
                return 1

            def batches(self, order: Any) -> Any:
                return [Batch(inputs, torch.empty(1, 0)) for _ in order]

        return Part()

    def words(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A run that writes each sequence backwards, as many times as it has beams."""
    from cutaway.generation import decoding

    def backwards(model: nn.Module, source: Tensor, mask: Tensor, target: Tokens, beams: int) -> Tensor:
        assert mask.all()
        assert target.longest == 9
        return source.flip(1).repeat(1, beams)

    monkeypatch.setattr(decoding, "decode", backwards)
    return run_of(PairSpec(200, 9, Tokens(200, 2, 3, 9)), Pairs(), nn.Linear(1, 1))


def test_a_run_of_pairs_writes_what_the_prompt_becomes(
    say: Callable[..., tuple[str, str]], pairs: SimpleNamespace
) -> None:
    assert say(pairs, "--prompt", "abc")[0] == "cba\n"
    assert json.loads(say(pairs, "--prompt", "abc", "--beams", "2", "--json")[0])["samples"] == ["cbacba"]
    with pytest.raises(SettingError, match="--top-k is for running text"):
        say(pairs, "--prompt", "abc", "--top-k", "0")
    with pytest.raises(SettingError, match="give it with --prompt"):
        say(pairs)
