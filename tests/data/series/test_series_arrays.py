"""Series to tensors: fitted on the training split, saved as JSON, and bad ones named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cutaway.core.errors import DataError
from cutaway.core.spec import Classes, SeriesSpec
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.series.transforms import SeriesPreprocessing

SPEC = SeriesSpec(5, 2, Classes(("up", "down")))
SERIES = np.random.default_rng(0).normal([3.0, -1.0], [2.0, 0.5], (7, 5, 2))


def fitted() -> SeriesPreprocessing:
    return SeriesPreprocessing.fitted(SPEC, SERIES)


def inputs(split: object) -> torch.Tensor:
    held = split.inputs  # type: ignore[attr-defined]
    assert isinstance(held, torch.Tensor)
    return held


def test_each_variable_gets_mean_0_and_deviation_1() -> None:
    x = fitted().prepare(SERIES)
    assert x.dtype == torch.float32
    assert x.shape == (7, 5, 2)
    torch.testing.assert_close(x.mean((0, 1)), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(x.var((0, 1), correction=0), torch.ones(2), atol=1e-5, rtol=0)
    still = SeriesPreprocessing.fitted(SPEC, np.full((3, 5, 2), 4.0))
    assert torch.equal(still.prepare(np.full((3, 5, 2), 4.0)), torch.zeros(3, 5, 2))


def test_what_was_saved_comes_back_equal() -> None:
    assert preprocessing_from_json(json.loads(json.dumps(fitted().to_json()))) == fitted()


def test_arrays_and_lines_are_prepared_as_training_was(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text("\n".join(",".join(map(repr, s.ravel().tolist())) for s in SERIES[:3]) + "\n\n")
    spaced = tmp_path / "series.txt"
    spaced.write_text("\n".join("\t ".join(map(repr, s.ravel().tolist())) for s in SERIES[3:]))
    split = fitted().examples([path, spaced])
    assert torch.equal(inputs(split), fitted().prepare(SERIES))
    assert split.target is None
    assert split.name(2) == f"{path}, line 3"
    arrays = fitted().examples([SERIES[0], SERIES[1].ravel(), SERIES[2].tolist()])
    assert torch.equal(inputs(arrays), fitted().prepare(SERIES[:3]))


def test_labelled_lines_begin_with_the_class(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text(
        "\n".join(f"{c}\t" + "\t".join(map(repr, s.ravel().tolist())) for c, s in zip(("down", "up"), SERIES))
    )
    split = fitted().labelled(path)
    assert split.target is not None
    assert split.target.tolist() == [1, 0]
    assert torch.equal(inputs(split), fitted().prepare(SERIES[:2]))
    path.write_text("sideways " + "1 " * 10)
    with pytest.raises(DataError, match=r"test\.tsv, line 1: 'sideways' is none of the classes up, down"):
        fitted().labelled(path)


def test_bad_series_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    good = ",".join("1" * 10)
    path.write_text(f"{good}\n1,2,3\n{good[:-1]}x\n{good[:-1]}nan\n")
    with pytest.raises(DataError) as caught:
        fitted().examples([path])
    problems = [str(p) for p in caught.value.problems]
    assert len(problems) == 3
    assert "line 2: it has 3 numbers, and the model takes 5 steps of 2" in problems[0]
    assert "line 3: could not convert string to float" in problems[1]
    assert "line 4: it has numbers that are not finite" in problems[2]
    with pytest.raises(DataError, match="No series was given"):
        fitted().examples([])
    with pytest.raises(DataError, match=r"There is no file or folder .*absent\.csv"):
        fitted().examples([tmp_path / "absent.csv"])
