"""Leaks that are put into real sets are found, with their rows; the sets as they are raise no alarm."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.datasets import load_breast_cancer

from cutaway.apps.cli import main
from cutaway.data.dataset_base import DataSet
from cutaway.data.open_data import open_data, open_validated
from cutaway.data.quality import near_duplicates
from cutaway.data.quality.validation import validate_dataset
from cutaway.data.settings import DataSettings

RAW = load_breast_cancer()
TABLE = pl.DataFrame(RAW.data[:, :8], schema=[f"x{k}" for k in range(8)]).with_columns(
    y=pl.Series(RAW.target).cast(str)
)
RNG = np.random.default_rng(0)


def findings(frame: pl.DataFrame, path: Path) -> list[str]:
    frame.write_csv(path / "t.csv")
    return open_validated(str(path / "t.csv"), DataSettings(target="y", missing="fill")).findings


def test_a_clean_table_raises_no_alarm(tmp_path: Path) -> None:
    assert findings(TABLE, tmp_path) == []


def test_rows_with_a_little_noise_are_near_duplicates(tmp_path: Path) -> None:
    copies = TABLE.head(40).with_columns(
        [pl.col(c) + pl.Series(RNG.normal(0, 0.003 * TABLE[c].std(), 40)) for c in TABLE.columns[:-1]]  # type: ignore[operator]
    )
    (finding,) = findings(pl.concat([TABLE, copies]), tmp_path)
    assert finding.startswith("Possible leakage by near-duplicates across splits")
    own = [[int(name.split()[1]) for name in pair] for pair in finding.examples]  # type: ignore[attr-defined]
    assert len(own) >= 10
    assert all(abs(a - b) == len(TABLE) for a, b in own)  # each beside the row that it was made of


def test_fewer_near_duplicates_than_chance_brings_about_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = TABLE.tail(2).with_columns([pl.col(c) * 1.0001 for c in TABLE.columns[:-1]])
    for share, told in ((0.0, 1), (0.02, 0)):
        monkeypatch.setattr(near_duplicates, "BY_CHANCE", share)
        assert len(findings(pl.concat([TABLE, copy]), tmp_path)) == told


def test_a_column_that_gives_the_target_away(tmp_path: Path) -> None:
    wrong = RNG.random(len(TABLE)) < 0.01
    leak = np.where(wrong, 1 - RAW.target, RAW.target)
    (finding,) = findings(TABLE.with_columns(leak=pl.Series([f"code {k}" for k in leak])), tmp_path)
    assert finding.startswith("Possible target leakage by column leak")
    assert "ignore=leak" in finding


def test_groups_that_the_split_parts(tmp_path: Path) -> None:
    some = TABLE.head(200).with_columns(who=pl.Series([f"patient {i}" for i in range(200)]))
    many = pl.concat([some] * 3).with_columns(
        [pl.col(c) + pl.Series(RNG.normal(0, 0.1 * TABLE[c].std(), 600)) for c in TABLE.columns[:-1]]  # type: ignore[operator]
    )
    found = findings(many, tmp_path)
    assert any(
        said.startswith("Rows of one group of column who are in several splits") and "group=who" in said
        for said in found
    )


def test_copies_of_rows_make_no_measured_column_a_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(900, 3)) @ rng.normal(size=(3, 6)) + rng.normal(size=(900, 6))
    decimals = [1, 2, 1, 0, 0, 3]  # quantities as they are measured, which repeat
    columns = {f"q{k}": np.round(30 + 8 * mixed[:, k] * 10.0 ** (k % 2 - 1), d) for k, d in enumerate(decimals)}
    frame = pl.DataFrame(columns).with_columns(y=pl.Series(rng.integers(3, 8, 900).astype(str)))
    copies = frame[rng.choice(900, 400)]
    found = findings(pl.concat([frame, copies]).sample(fraction=1, shuffle=True, seed=1), tmp_path)
    assert [said.split(" splits")[0] for said in found] == ["Possible leakage by duplicates across"]


@pytest.mark.parametrize("of", ["whole numbers", "places"])
def test_groups_named_by_numbers_are_still_told(tmp_path: Path, of: str) -> None:
    rng = np.random.default_rng(0)
    names = rng.permutation(100_000)[:150] if of == "whole numbers" else rng.normal(50, 3, 150).round(4)
    some = TABLE.head(150).with_columns(site=pl.Series(names))
    many = pl.concat([some] * 4).with_columns(
        [pl.col(c) + pl.Series(rng.normal(0, 0.03 * TABLE[c].std(), 600)) for c in TABLE.columns[:-1]]  # type: ignore[operator]
    )
    assert any(
        said.startswith("Rows of one group of column site are in several splits") for said in findings(many, tmp_path)
    )


@pytest.fixture(scope="module")
def digits() -> DataSet:
    return open_data("digits", DataSettings())


def changed(data: DataSet) -> DataSet:
    """A copy whose splits can be changed."""
    data = copy.copy(data)
    data.splits = {name: copy.copy(split) for name, split in data.splits.items()}
    return data


def test_digits_raise_no_alarm_and_their_copies_do(digits: DataSet) -> None:
    assert validate_dataset(digits) == []
    data = changed(digits)
    train, test = data.splits["train"], data.splits["test"]
    x = train.inputs[:20]  # type: ignore[attr-defined]
    test.inputs = test.inputs.clone()  # type: ignore[attr-defined]
    test.inputs[:20] = 0.8 * x + 0.02 * x.std() * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))  # type: ignore[attr-defined]
    (finding,) = validate_dataset(data)
    assert {a for a, _ in finding.examples} == {f"{test.name(i)} (test)" for i in range(20)}


def test_shuffled_labels_are_found(digits: DataSet) -> None:
    data, wrong = changed(digits), set()
    for name, split in data.splits.items():
        assert split.target is not None
        flips = torch.from_numpy(np.random.default_rng(len(name)).random(len(split)) < 0.1)
        split.target = torch.where(flips, (split.target + 3) % 10, split.target)
        wrong |= {split.name(int(i)) for i in flips.nonzero()[:, 0]}
    (finding,) = validate_dataset(data)
    told = [where for where, _, _ in finding.examples]
    assert finding.startswith("Labels are probably wrong")
    assert np.mean([name in wrong for name in told]) > 0.9  # nearly all that are named are wrong
    assert len(told) > 0.5 * len(wrong)


def test_texts_but_for_a_word(tmp_path: Path) -> None:
    words = [f"w{k}" for k in range(400)]
    texts = [" ".join(RNG.choice(words, 15)) for _ in range(300)]
    texts += [" ".join([*text.split()[:-1], "changed"]) for text in texts[:40]]
    frame = pl.DataFrame({"text": texts, "y": [str(i % 2) for i in range(340)]})
    frame.write_csv(tmp_path / "t.csv")
    data = open_validated(str(tmp_path / "t.csv"), DataSettings(target="y", text="text"))
    (finding,) = data.findings
    pairs = [[int(name.split()[1]) for name in pair] for pair in finding.examples]  # type: ignore[attr-defined]
    assert len(pairs) >= 10
    assert all(abs(a - b) == 300 for a, b in pairs)


def test_check_names_the_rows_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pl.concat([TABLE, TABLE.head(40)]).write_csv(tmp_path / "t.csv")
    assert main(["check", "mlp", str(tmp_path / "t.csv"), "target=y", "--json"]) == 0
    (evidence,) = json.loads(capsys.readouterr().out)["data"]["evidence"]
    assert evidence["finding"].startswith("Possible leakage by duplicates across splits")
    assert len(evidence["examples"]) >= 10
