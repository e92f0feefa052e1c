"""Masked running text: framed steps whose hidden tokens follow from the seed and the place alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import SettingError
from cutaway.core.spec import Classes, Masked, NextToken, TextSpec
from cutaway.data.dataset_base import IGNORED, DataSet
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.text.corpus_transforms import MaskedPreprocessing, MaskedSplit, Masking
from cutaway.data.text.tokenizer_files import SpecialTokens

from .tokenizer_files import bert_like, gpt2_like

POEM = "Tiger, tiger, burning bright\nIn the forests of the night,\nWhat immortal hand or eye\n" * 12
BEGIN, END, MASK, PADDING = 1000, 1001, 1002, 1003  # beyond every token
few = settings(max_examples=40, deadline=None)


def split_of(streams: list[int], length: int, frame: bool = True, fraction: float = 0.15) -> MaskedSplit:
    """Streams whose tokens all differ: 0, 1, 2, …"""
    whole = torch.arange(sum(streams))
    masking = Masking(MASK, whole.numpy(), fraction)
    around = SpecialTokens(BEGIN, END) if frame else None
    names = [f"text {k}" for k in range(len(streams))]
    return MaskedSplit(torch.split(whole, streams), length, masking, str, names, frame=around, padding=PADDING)


def opened(path: Path, **given_: Any) -> DataSet:
    return open_data(path, DataSettings(**given_), targets=(Masked, Classes))


def poem(tmp_path: Path) -> Path:
    (tmp_path / "poem.txt").write_text(POEM, "utf-8")
    return tmp_path / "poem.txt"


@few
@given(
    streams=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    length=st.integers(3, 12),
    frame=st.booleans(),
    batch_size=st.integers(1, 5),
    seed=st.none() | st.integers(0, 9),
)
def test_each_step_stands_in_its_frame(
    streams: list[int], length: int, frame: bool, batch_size: int, seed: int | None
) -> None:
    split = split_of(streams, length, frame)
    plan = split.plan(batch_size, None if seed is None else torch.Generator().manual_seed(seed))
    assert sorted(torch.cat(plan).tolist()) == list(range(len(split)))
    covered = []
    for (tokens, mask), target in split.batches(plan, seed):
        assert tokens.shape == mask.shape == target.shape
        assert tokens.shape[1] <= length
        assert (tokens[~mask] == PADDING).all()
        assert (target[~mask] == IGNORED).all()
        for ids, real, wanted in zip(tokens, mask, target):
            inside, chosen = ids[real], wanted[real]
            if frame:
                assert (inside[0], inside[-1]) == (BEGIN, END)
                assert chosen[0] == chosen[-1] == IGNORED
                inside, chosen = inside[1:-1], chosen[1:-1]
            assert not set(inside.tolist()) & {BEGIN, END, PADDING}
            assert int((chosen != IGNORED).sum()) == max(1, round(0.15 * len(inside)))
            text = torch.where(chosen == IGNORED, inside, chosen)
            assert torch.equal(text, torch.arange(int(text[0]), int(text[0]) + len(text)))
            covered += text.tolist()
    if seed is None:
        assert sorted(covered) == list(range(sum(streams)))


def test_what_is_hidden_changes_with_the_seed_and_is_fixed_without() -> None:
    split = split_of([400], 22)
    order = [torch.arange(len(split))]
    targets = [next(split.batches(order, seed)).target for seed in (None, None, 1, 1, 2)]
    assert torch.equal(targets[0], targets[1])
    assert torch.equal(targets[2], targets[3])
    assert not torch.equal(targets[2], targets[4])
    shuffled = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))
    assert torch.equal(next(split.batches([shuffled])).target, targets[0][shuffled])
    by_one = torch.cat([batch.target for batch in split.batches(torch.arange(len(split)).split(1), 1)])
    assert torch.equal(by_one, targets[2])  # alone as in a batch


def test_training_goes_on_as_it_would_have() -> None:
    split = split_of([500], 12)
    plan = split.plan(4, torch.Generator().manual_seed(0))
    whole, rest = list(split.batches(plan, 5)), list(split.batches(plan[7:], 5))
    for one, other in zip(whole[7:], rest, strict=True):
        assert torch.equal(one.inputs[0], other.inputs[0])
        assert torch.equal(one.target, other.target)


@pytest.mark.parametrize("frame", [True, False])
def test_running_text_for_a_model_of_masked_tokens(tmp_path: Path, frame: bool) -> None:
    data = opened(poem(tmp_path), special_tokens=frame, length=16, mask_prob=0.2, val=0.2, test=0.1)
    preprocessing = data.preprocessing
    assert isinstance(preprocessing, MaskedPreprocessing)
    assert preprocessing.tokenizer.kind == "wordpiece"
    size = len(preprocessing.tokenizer)
    around = (size, size + 1) if frame else (None, None)
    assert data.spec == TextSpec(size + 3, 16, Masked(size + 3, size + 2, mask_prob=0.2), *around)
    (tokens, mask), target = next(data.splits["train"].batches([torch.arange(4)], 3))
    assert tokens.max() < size + 3
    assert ((tokens == size).sum(1) == int(frame)).all()
    assert (target[target != IGNORED] < size).all()
    assert mask.all()
    assert ((target != IGNORED).sum(1) == round(0.2 * (14 if frame else 16))).all()
    assert any(note.startswith("20 % of the tokens are predicted") for note in data.notes)
    assert any("is added before each text" in note for note in data.notes) == frame
    assert data.splits["train"].row(0)["text"].startswith("Tiger , tiger , burning")  # type: ignore[index]


def test_a_text_with_gaps_is_seen_as_it_is_written(tmp_path: Path) -> None:
    data = opened(poem(tmp_path), length=40)
    text = data.preprocessing
    assert isinstance(text, MaskedPreprocessing)
    given_ = "burning [MASK] forests of the [MASK]"
    batch = next(iter(text.examples([given_]).batches([torch.tensor([0])])))
    assert torch.equal(batch.inputs[0][0], text.with_gaps(given_))
    assert (batch.inputs[0] == text.masking.mask).sum() == 2
    assert (batch.target == IGNORED).all()  # what stood there nobody says
    assert (next(iter(text.examples(["burning forests"]).batches([torch.tensor([0])]))).target != IGNORED).any()


def test_a_model_of_the_next_token_gets_that(tmp_path: Path) -> None:
    data = open_data(poem(tmp_path), DataSettings(length=16), targets=(Masked, NextToken))
    assert isinstance(data.spec.target, NextToken)


@pytest.mark.parametrize("whole_words", [True, False])
@pytest.mark.parametrize("documents", [True, False])
def test_json_gives_an_equal_preprocessing_back(tmp_path: Path, whole_words: bool, documents: bool) -> None:
    (tmp_path / "p.txt").write_text(POEM.replace("eye\n", "eye\n\n"), "utf-8")
    data = opened(tmp_path / "p.txt", special_tokens=True, length=16, whole_words=whole_words, documents=documents)
    document = json.loads(json.dumps(data.preprocessing.to_json()))
    again = preprocessing_from_json(document)
    assert isinstance(again, MaskedPreprocessing)
    assert again.to_json() == document
    assert (again.whole_words, again.documents) == (whole_words, documents)
    text = "In the forests of the night, what immortal eye burns?"
    one, other = (next(p.examples([text]).batches([torch.tensor([0])])) for p in (again, data.preprocessing))
    assert torch.equal(one.target, other.target)
    assert (one.target != IGNORED).any()
    labelled = again.labelled(tmp_path / "p.txt")
    assert labelled.name(0).startswith("document 1") == documents


def test_whole_words_are_hidden_whole(tmp_path: Path) -> None:
    data = opened(poem(tmp_path), length=32, whole_words=True, vocab_size=60, val=0, test=0)
    tokens = data.preprocessing.tokenizer.tokens  # type: ignore[attr-defined]
    for (ids, _), target in data.splits["train"].batches([torch.arange(len(data.splits["train"]))], 1):
        for row, wanted in zip(ids, target):
            chosen = wanted != IGNORED
            text = torch.where(chosen, wanted, row)
            goes_on = [tokens[i].startswith("##") for i in text.tolist()]
            assert sum(goes_on) > 3
            for k in range(1, len(text)):
                assert not goes_on[k] or chosen[k] == chosen[k - 1]


def test_with_a_tokenizer_of_others_its_own_tokens_stand_around(tmp_path: Path) -> None:
    bert = bert_like(tmp_path / "bert")
    data = opened(poem(tmp_path), tokenizer=str(bert), special_tokens=True, length=12)
    size = len(data.preprocessing.tokenizer)  # type: ignore[attr-defined]
    assert data.spec == TextSpec(size, 12, Masked(size, 4), 2, 3)
    (tokens, _), target = next(data.splits["train"].batches([torch.arange(len(data.splits["train"]))], 1))
    assert (tokens[:, 0] == 2).all()
    assert (tokens[:, -1] == 3).all()
    assert (tokens == 4).sum() / (target != IGNORED).sum() == pytest.approx(0.8, abs=0.1)
    assert not ((tokens[target == IGNORED] == 4).any())
    with pytest.raises(SettingError, match="no token that hides others"):
        opened(poem(tmp_path), tokenizer=str(gpt2_like(tmp_path / "gpt2")), special_tokens=True)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"stateful": True}, "stateful=true is for models that predict the next"),
        ({"tokenizer": "words", "whole_words": True}, "tokens are words"),
        ({"special_tokens": True, "length": 2}, "length=2 leaves nothing within the frame"),
        ({"target": None, "group": "x"}, "group"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, given_: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        opened(poem(tmp_path), **given_)


@pytest.mark.parametrize("given_", [{"mask_prob": 0.3}, {"whole_words": True}, {"special_tokens": True}])
def test_settings_of_masked_text_mean_nothing_for_the_next_token(tmp_path: Path, given_: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(given_))):
        open_data(poem(tmp_path), DataSettings(**given_), targets=(NextToken,))
