"""cutaway generate: text as it is drawn, seeded; prompts that a model cannot read; runs that write no text."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.apps.cli import generate
from cutaway.core.errors import CutawayError, DataError, ModelError, SettingError
from cutaway.core.spec import Classes, Masked, PairSpec, TextSpec, Tokens
from cutaway.data.build import DataSource
from cutaway.data.settings import DataSettings
from cutaway.data.text.corpus import RunningPreprocessing, running_dataset
from cutaway.models import gpt2
from cutaway.runs import run as runs
from cutaway.training.device import select_device

TEXT = "the cat sat on the mat. the dog sat on the log.\n" * 20
WORDY = "naïve café 😀 – “so” naïve café 😀 " * 20


class Next(nn.Module):
    """A language model that knows which token stands after which, and a little of chance."""

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
    data = running_dataset({"train": text}, DataSource("t", "t", ""), DataSettings(length=8, **settings))
    assert isinstance(data.preprocessing, RunningPreprocessing)
    model = Next(data.preprocessing, text)
    return run_of(data.spec, data.preprocessing, model)


def run_of(spec: Any, preprocessing: Any, model: nn.Module) -> SimpleNamespace:
    about = {"model": "textcnn", "data": {"source": "sst2"}}
    place = select_device("cpu", "float32", None, model)
    return SimpleNamespace(spec=spec, preprocessing=preprocessing, model=model, place=place, about=about)


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """`say(run, "--prompt", "the")` gives standard output and standard error."""

    def answer(opened: SimpleNamespace, *words: str) -> tuple[str, str]:
        monkeypatch.setattr(runs, "Run", lambda folder: opened)
        parser = argparse.ArgumentParser()
        generate.add_generate_arguments(parser)
        assert generate.run_generate(parser.parse_args(["runs/x", *words])) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    return answer


@pytest.mark.parametrize("words", [("--guidance", "0"), ("--overwrite",), ("--class", "")])
def test_what_is_for_images_is_rejected_of_text(words: tuple[str, ...], say: Callable[..., tuple[str, str]]) -> None:
    with pytest.raises(SettingError, match=f"{words[0]} is only for image generation"):
        say(language_run(), *words)


def test_text_begins_with_the_prompt_and_has_the_length_asked_for(say: Callable[..., tuple[str, str]]) -> None:
    out, err = say(language_run(), "--prompt", "the c", "--count", "40")
    assert out.startswith("the c")
    assert len(out) == len("the c") + 40 + 1
    assert set(out) <= set(TEXT)
    assert err == ""
    assert len(say(language_run())[0]) == generate.COUNT + 1


def test_without_a_prompt_text_begins_behind_a_line(say: Callable[..., tuple[str, str]]) -> None:
    out, _ = say(language_run(), "--temperature", "0", "--count", "5")
    assert out == "the t\n"  # a line of the text begins so, and after "the " a t is not rarer than any other


def test_the_seed_decides(say: Callable[..., tuple[str, str]]) -> None:
    first, again, other = (say(language_run(), "--seed", seed, "--temperature", "1.5")[0] for seed in ("1", "1", "2"))
    assert first == again != other


def test_the_kth_sample_is_the_first_of_a_seed_of_its_own(say: Callable[..., tuple[str, str]]) -> None:
    words = ("--count", "12", "--temperature", "1.5", "--json")
    samples = json.loads(say(language_run(), "--samples", "3", "--seed", "5", *words)[0])["samples"]
    for number, sample in enumerate(samples):
        assert json.loads(say(language_run(), "--seed", str(5 + number), *words)[0])["samples"] == [sample]


@pytest.mark.parametrize(
    ("text", "settings", "prompt"),
    [
        (TEXT, {}, "the "),
        (TEXT, {"tokenizer": "words"}, "the cat"),
        (WORDY, {"tokenizer": "bpe", "vocab_size": 262}, "naï"),  # nearly every byte is a token of its own
        (WORDY, {"tokenizer": "wordpiece", "vocab_size": 60}, "café"),
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
    from cutaway.inference.text import generate as tokens_of

    start = opened.preprocessing.encode(prompt)[None]
    seed = torch.Generator().manual_seed(0)
    found = tokens_of(opened.model, start, count, temperature=generate.TEMPERATURE, top_k=3, generator=seed)
    assert (found >= 2).all()
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
    assert "unknown to the model: '☃', 'É'" in err
    _, err = say(language_run(tokenizer="words"), "--prompt", "the zebra sat", "--count", "3")
    assert "unknown to the model: 'zebra'" in err
    with pytest.raises(DataError, match="has only unknown tokens: '☃'"):
        say(language_run(), "--prompt", "☃☃")
    _, err = say(language_run(tokenizer="words"), "--prompt", "  ", "--count", "3")
    assert "starts without a prompt" in err


def decoder_run(context_length: int = 16, **settings: Any) -> SimpleNamespace:
    """A run of a GPT-2 that reads so many tokens, as it is before training."""
    opened = language_run(**settings)
    torch.manual_seed(0)
    size = len(opened.preprocessing.tokenizer)
    model = gpt2.Model(gpt2.Config(vocab_size=size, context_length=context_length, dim=8, layers=1, heads=2)).double()
    return run_of(opened.spec, opened.preprocessing, model)


def test_each_line_of_a_file_is_continued_as_it_would_be_alone(
    say: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    prompts = ["the cat", "", "the dog sat on", "a"] * 5  # more than are written side by side
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(prompts) + "\n", encoding="utf-8")
    words = ("--count", "30", "--samples", "2", "--seed", "3", "--stop", "t", "--temperature", "1.5")
    document = json.loads(say(decoder_run(), "--prompts", str(file), *words, "--json")[0])
    assert [found["prompt"] for found in document["prompts"]] == prompts
    for found in document["prompts"]:
        alone = json.loads(say(decoder_run(), "--prompt", found["prompt"], *words, "--json")[0])
        assert found["samples"] == alone["samples"]
    expected = "\n".join(f"{found['prompt']}{text}\n" for found in document["prompts"] for text in found["samples"])
    assert say(decoder_run(), "--prompts", str(file), *words)[0] == expected


def test_text_ends_before_a_stop_string(say: Callable[..., tuple[str, str]]) -> None:
    words = ("--prompt", "the c", "--count", "200", "--temperature", "1")
    free = json.loads(say(language_run(), *words, "--json")[0])["samples"][0]
    out, _ = say(language_run(), *words, "--stop", "don ", "--stop", "sat don", "--stop", "cat d")
    assert "on cat don the" in free
    assert out == "the c" + min((free.split(stop)[0] for stop in ("don ", "sat don", "cat d")), key=len) + "\n"


def test_a_prompt_longer_than_the_context_is_rejected_or_slides(
    say: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    prompt = "the cat sat on the mat."
    with pytest.raises(
        ModelError, match=r"23 tokens, and the context of this model is 16.*window=True; `cutaway generate --window`"
    ):
        say(decoder_run(), "--prompt", prompt)
    out, _ = say(decoder_run(), "--prompt", prompt, "--window", "--count", "30")
    last, _ = say(decoder_run(), "--prompt", prompt[-16:], "--count", "30")
    assert out == prompt[:-16] + last
    file = tmp_path / "prompts.txt"
    file.write_text(f"the\n{prompt}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"context of 16 tokens.*line 2 of .*prompts.txt: it has 23 tokens.*--window"):
        say(decoder_run(), "--prompts", str(file))
    assert prompt in say(decoder_run(), "--prompts", str(file), "--window", "--count", "3")[0]


def test_an_end_of_the_tokenizer_ends_the_text_and_is_not_written(
    say: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = language_run()
    tokenizer = opened.preprocessing.tokenizer
    monkeypatch.setattr(tokenizer, "end", tokenizer.encode("d")[0])
    found = json.loads(say(opened, "--prompt", "the ", "--count", "300", "--samples", "5", "--json")[0])["samples"]
    assert all(len(text) < 300 and "d" not in text for text in found)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--count", "0"), "count=0"),
        (("--samples", "0"), "--samples 0"),
        (("--temperature", "-1"), "temperature=-1"),
        (("--top-k", "-2"), "top_k=-2"),
        (("--top-p", "0"), "top_p=0"),
        (("--min-p", "1.5"), "Invalid min_p=1.5: must be at least 0 and at most 1"),
        (("--repetition-penalty", "0"), "repetition_penalty=0"),
        (("--stop", ""), "Invalid stop=''"),
        (("--seed", "-1"), "--seed -1"),
        (("--num-beams", "3"), "--num-beams is only for sequence pairs"),
        (("--length-penalty", "0.6"), "--length-penalty is only for sequence pairs"),
        (("--prompt", "a", "--prompts", "b.txt"), "exclude each other"),
    ],
)
def test_settings_that_cannot_be_are_rejected(
    say: Callable[..., tuple[str, str]], words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        say(language_run(), *words)


def test_a_file_of_prompts_that_is_not_there_is_named(say: Callable[..., tuple[str, str]]) -> None:
    with pytest.raises(DataError, match=r"There is no file or folder 'nowhere\.txt'"):
        say(language_run(), "--prompts", "nowhere.txt")


def test_a_run_that_writes_no_text_says_what_it_is(say: Callable[..., tuple[str, str]]) -> None:
    spec = TextSpec(10, 8, Masked(10, 9))
    with pytest.raises(CutawayError, match="predicts the masked token of text data"):
        say(run_of(spec, language_run().preprocessing, nn.Linear(1, 1)))
    spec = TextSpec(10, 8, Classes(("bad", "good"), "sentiment"))
    with pytest.raises(CutawayError, match=r"textcnn predicts the sentiment of text data \(sst2\).*a language model"):
        say(run_of(spec, SimpleNamespace(spec=spec), nn.Linear(1, 1)))


# --- pairs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def pairs() -> SimpleNamespace:
    """A run that writes each sequence backwards, as many times as it has beams."""
    opened = run_of(PairSpec(200, 9, Tokens(200, 2, 3, 9)), None, nn.Linear(1, 1))

    def predict(sources: list[str], *, num_beams: int | None, length_penalty: float | None) -> list[dict[str, str]]:
        assert length_penalty in (None, 0.5)
        warnings.warn("strange letters", stacklevel=1)
        return [{"input": source, "target": source[::-1] * (num_beams or 1)} for source in sources]

    opened.predict = predict
    return opened


def test_a_run_of_pairs_writes_what_the_prompt_becomes(
    say: Callable[..., tuple[str, str]], pairs: SimpleNamespace
) -> None:
    assert say(pairs, "--prompt", "abc") == ("cba\n", "note: strange letters\n")
    words = ("--prompt", "abc", "--num-beams", "2", "--length-penalty", "0.5", "--json")
    assert json.loads(say(pairs, *words)[0])["samples"] == ["cbacba"]
    with pytest.raises(SettingError, match="Missing --prompt: a run trained on pairs of sequences needs a"):
        say(pairs)


@pytest.mark.parametrize(
    "words",
    [
        ("--stop", "a"),
        ("--window",),
        ("--count", "5"),
    ],
)
def test_what_is_for_running_text_is_rejected_for_pairs(
    say: Callable[..., tuple[str, str]], pairs: SimpleNamespace, words: tuple[str, ...]
) -> None:
    with pytest.raises(SettingError, match=f"{words[0]} is only for language models"):
        say(pairs, "--prompt", "abc", *words)
    with pytest.raises(SettingError, match="cutaway predict RUN FILE"):
        say(pairs, "--prompts", "b.txt")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--temperature", "1", "--num-beams", "2"), "--num-beams and --temperature exclude each other"),
        (("--length-penalty", "1", "--seed", "2"), "--length-penalty and --seed exclude each other"),
        (("--samples", "3", "--temperature", "0"), "--samples 3 with --temperature 0 gives 3 equal texts"),
        (("--samples", "0"), "Invalid --samples 0"),
    ],
)
def test_drawing_and_what_does_not_go_with_it(
    say: Callable[..., tuple[str, str]], pairs: SimpleNamespace, words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        say(pairs, "--prompt", "abc", *words)


def test_the_help_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = argparse.ArgumentParser("cutaway generate")
    generate.add_generate_arguments(parser)
    text = parser.format_help()
    assert max(map(len, text.splitlines())) <= 80
    for key in (*generate.RUNNING, *generate.DRAWING, *generate.PAIRS):
        assert f"--{key.replace('_', '-')}" in text
