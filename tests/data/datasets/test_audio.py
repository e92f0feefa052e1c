"""Spoken digits: the published split, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from cutaway.core.errors import DataError
from cutaway.core.spec import ANY_SIZE, Classes
from cutaway.data.dataset_base import DataSet
from cutaway.data.datasets.catalog import Request
from cutaway.data.datasets.speech import FSDD_PUBLISHED, open_fsdd
from cutaway.data.open_data import NAMED, open_named, where
from cutaway.data.settings import DataSettings


def little(place: Path, **settings: Any) -> DataSet:
    """Two speakers, ten digits, takes 3 to 9."""
    (place / "recordings").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for digit in range(10):
        for speaker in ("ann", "bob"):
            for take in range(3, 10):
                samples = (0.1 * rng.normal(size=400 + 10 * take)).astype(np.float32)
                soundfile.write(place / "recordings" / f"{digit}_{speaker}_{take}.wav", samples, 8000)
    (place / "recordings" / "readme.txt").touch()
    return open_fsdd(Request("fsdd", NAMED["fsdd"], place, DataSettings(**settings), ANY_SIZE))


def takes(data: DataSet, split: str) -> set[int]:
    found = data.splits[split]
    return {int(found.name(i).removesuffix(".wav").split("_")[2]) for i in range(len(found))}


def test_takes_0_to_4_are_for_the_test(tmp_path: Path) -> None:
    data = little(tmp_path)
    assert {p: len(found) for p, found in data.splits.items()} == {"train": 85, "val": 15, "test": 40}
    assert takes(data, "test") == {3, 4}
    assert takes(data, "train") | takes(data, "val") == {5, 6, 7, 8, 9}
    assert data.spec.target == Classes(tuple("0123456789"))
    for found in data.splits.values():
        assert found.target is not None
        assert [found.name(i)[0] for i in range(len(found))] == [str(int(k)) for k in found.target]
    published, speakers = data.notes
    assert published.startswith("These 140 recordings are not the 3,000 published ones")
    assert data.fingerprint in published
    assert speakers.startswith("The same 2 speakers (ann, bob) speak in every split")


def test_a_folder_without_recordings_is_named(tmp_path: Path) -> None:
    (tmp_path / "recordings").mkdir()
    with pytest.raises(DataError, match="holds no recordings named DIGIT_SPEAKER_TAKE"):
        open_fsdd(Request("fsdd", NAMED["fsdd"], tmp_path, DataSettings(), ANY_SIZE))


def test_the_published_recordings() -> None:
    if where("fsdd") is None:
        pytest.skip("needs the recordings of fsdd")
    data = open_named("fsdd", DataSettings())
    assert {p: len(found) for p, found in data.splits.items()} == {"train": 2295, "val": 405, "test": 300}
    assert data.fingerprint == FSDD_PUBLISHED
    assert takes(data, "test") == {0, 1, 2, 3, 4}
    assert takes(data, "train") == set(range(5, 50))
    (speakers,) = data.notes
    assert "6 speakers (george, jackson, lucas, nicolas, theo, yweweler)" in speakers
    assert data.spec.shape == (227, 64)
