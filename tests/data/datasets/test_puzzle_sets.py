"""Named sets of problems: nothing that is tested on is trained on, in any order and for whatever target."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from cutaway.core.errors import SettingError
from cutaway.core.spec import NextToken
from cutaway.data.dataset_base import IGNORED
from cutaway.data.datasets.pairs import SUMS, evaluation_multisets, generate_sums
from cutaway.data.open_data import open_named
from cutaway.data.settings import DataSettings
from cutaway.data.text.puzzles import END, PuzzlePreprocessing, PuzzleSplit, parse_countdown


def opened(name: str, **settings: object) -> dict[str, PuzzleSplit]:
    data = open_named(name, DataSettings(**settings), targets=(NextToken,))  # type: ignore[arg-type]
    return {split: found for split, found in data.splits.items() if isinstance(found, PuzzleSplit)}


@pytest.mark.parametrize("name", ["countdown", "game24"])
def test_no_numbers_of_a_test_are_trained_on(name: str) -> None:
    splits = opened(name)
    held = {state for of_split in evaluation_multisets().values() for state in of_split}
    assert len(held) == 200
    trained = {parse_countdown(problem)[0] for problem in splits["train"].problems}
    assert not trained & held
    assert all(len(state) == 4 for state in trained)  # so that no test stands within a larger one
    for split in ("val", "test"):
        assert {parse_countdown(problem)[0] for problem in splits[split].problems} <= set(evaluation_multisets()[split])
    for i in range(600):  # whatever the form and what is drawn
        asked, _ = splits["train"].example(i, seed=i)
        assert tuple(map(int, asked.split("=>")[0].split()[1:])) in trained


def test_three_numbers_of_a_test_are_in_no_other_split() -> None:
    splits = opened("countdown3")
    states = {split: {parse_countdown(problem)[0] for problem in of.problems} for split, of in splits.items()}
    assert {split: len(of.problems) for split, of in splits.items()} == {"train": 3060, "val": 366, "test": 311}
    assert not states["train"] & states["val"]
    assert not states["train"] & states["test"]
    assert not states["val"] & states["test"]
    assert {len(state) for of in states.values() for state in of} == {3}
    assert {parse_countdown(problem)[1] for problem in splits["train"].problems} == set(range(1, 31))


def test_the_test_of_the_game_of_24_is_the_published_one(shared_data: Path) -> None:
    with (shared_data / "game24" / "24.csv").open() as file:
        rows = list(csv.DictReader(file))
    published = [tuple(sorted(map(int, row["Puzzles"].split()))) for row in rows if 901 <= int(row["Rank"]) <= 1000]
    assert evaluation_multisets()["test"] == published


def test_sums_are_different_ones_in_each_split() -> None:
    found = generate_sums()
    assert {split: len(of_split) for split, of_split in found.items()} == SUMS
    assert len({problem for of_split in found.values() for problem in of_split}) == sum(SUMS.values())


def test_only_the_solution_is_learned_and_which_one_changes_with_the_seed() -> None:
    split = opened("game24", form=("steps", "tree"))["train"]
    preprocessing = split.preprocessing
    (batch,) = split.batches([torch.tensor([0, 1])], seed=5)
    ids, mask = batch.inputs
    for k in range(2):
        asked, solution = split.example(k, seed=5)
        n = len(preprocessing.encode(asked))
        assert preprocessing.words(ids[k][mask[k]].tolist()).startswith(asked)
        assert (batch.target[k, : n - 1] == IGNORED).all()
        learned = batch.target[k][batch.target[k] != IGNORED].tolist()
        assert learned[-1] == END
        assert preprocessing.words(learned) == solution
    assert len({split.example(0, seed)[1] for seed in range(30)}) > 1
    assert split.example(0, 3) == split.example(0, 3)


def test_a_preprocessing_is_read_back_and_another_vocabulary_is_refused() -> None:
    preprocessing = opened("addition")["train"].preprocessing
    document = preprocessing.to_json()
    assert PuzzlePreprocessing.from_json(document) == preprocessing
    document["spec"]["vocab_size"] += 1
    document["spec"]["target"]["vocab_size"] += 1
    with pytest.raises(ValueError, match="other tokens"):
        PuzzlePreprocessing.from_json(document)


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(SettingError, match="Invalid form=steps for addition: must be one of plain"):
        opened("addition", form=("steps",))
    with pytest.raises(SettingError, match="tokenizer=words would change nothing: addition is generated"):
        opened("addition", tokenizer="words")
