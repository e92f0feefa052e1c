"""Recordings with transcripts: both layouts, what becomes of them, and every way in which they can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import Spelled, Transcript
from cutaway.data.audio.dataset import open_audio
from cutaway.data.audio.transforms import AudioPreprocessing
from cutaway.data.dataset_base import IGNORED, DataSet, SequenceSplit
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.open_data import infer_kind
from cutaway.data.settings import DataSettings

from .test_opening import names, sound, split

TEXTS = ["one two", "two", "three one", "one", "two three", "three", "one one", "two one", "three two", "two two"]


def written(folder: Path, texts: list[str] = TEXTS, header: bool = True, seed: int = 0) -> Path:
    """Recordings 00.wav, 01.wav, … and their transcripts."""
    lines = ["File\tTranscript"] if header else []
    for i, text in enumerate(texts):
        sound(folder / f"{i:02}.wav", seed + i, 300 + 100 * i, 2000 + 200 * i)
        lines.append(f"{i:02}.wav\t{text}")
    (folder / "transcripts.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def opened(path: Path, **settings: Any) -> DataSet:
    return open_audio(path, DataSettings(**settings))


def text_of(data: DataSet, name: str, i: int) -> str:
    target = data.spec.target
    assert isinstance(target, Transcript)
    row = split(data, name).target
    assert row is not None
    return "".join(target.alphabet[k - 1] for k in row[i].tolist() if k != IGNORED)


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return written(tmp_path / "calls")


def rewrite(calls: Path, before: str, after: str) -> None:
    table = calls / "transcripts.tsv"
    table.write_text(table.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")


@pytest.mark.parametrize("header", [True, False])
def test_a_folder_with_transcripts_is_speech(tmp_path: Path, header: bool) -> None:
    calls = written(tmp_path / "calls", header=header)
    assert infer_kind(calls, DataSettings()) == "audio"
    data = opened(calls, n_mels=20)
    assert data.spec.target == Transcript(tuple(" ehnortw"))
    assert {name: len(s) for name, s in data.splits.items()} == {"train": 7, "val": 2, "test": 1}
    for name in data.splits:
        for i, file in enumerate(names(data, name)):
            assert text_of(data, name, i) == TEXTS[int(file[:2])]
    batch = next(iter(split(data, "train").batches([torch.tensor([0, 1])])))
    assert batch.target.shape == (2, max(map(len, TEXTS)))
    assert [i.ndim for i in batch.inputs] == [3, 2]


def test_the_layout_of_lj_speech(tmp_path: Path) -> None:
    lines = []
    for i, text in enumerate(TEXTS):
        sound(tmp_path / "lj" / "wavs" / f"LJ-{i}.wav", i, 500)
        lines.append(f"LJ-{i}|{i} written|{text}")
    (tmp_path / "lj" / "metadata.csv").write_text("\n".join(lines), encoding="utf-8")
    data = opened(tmp_path / "lj")
    assert infer_kind(tmp_path / "lj", DataSettings()) == "audio"
    assert names(data, "test")[0].startswith("wavs/LJ-")
    assert text_of(data, "test", 0) == TEXTS[int(names(data, "test")[0][8])]


def test_splits_of_ones_own(tmp_path: Path) -> None:
    written(tmp_path / "calls" / "train")
    written(tmp_path / "calls" / "test", TEXTS[:3], seed=50)
    data = opened(tmp_path / "calls", val=0.2)
    assert {name: len(s) for name, s in data.splits.items()} == {"train": 8, "val": 2, "test": 3}
    assert names(data, "test") == ["test/00.wav", "test/01.wav", "test/02.wav"]


def test_letters_and_blanks_have_one_form(tmp_path: Path) -> None:
    texts = ["Caf\u00e9  au lait ", "cafe\u0301", *TEXTS]
    data = opened(written(tmp_path / "calls", texts), val=0.0, test=0.0, lower=True)
    assert text_of(data, "train", 0) == "caf\u00e9 au lait"
    assert text_of(data, "train", 1) == "caf\u00e9"
    assert data.spec.target.lower  # type: ignore[union-attr]


def test_new_recordings_go_the_same_way_and_to_json_and_back(calls: Path) -> None:
    data = opened(calls, n_mels=20)
    again = preprocessing_from_json(json.loads(json.dumps(data.preprocessing.to_json())))
    assert again == data.preprocessing
    assert isinstance(again, AudioPreprocessing)
    test = split(data, "test")
    new = again.examples([calls / name for name in names(data, "test")])
    assert torch.equal(new.values, test.values)
    assert new.target is None
    labelled = again.labelled(calls)
    assert len(labelled) == len(TEXTS)
    assert labelled.target is not None
    assert (labelled.target[0] != IGNORED).sum() == len(TEXTS[0])


BAD = [
    ("01.wav\ttwo\n", "01.wav\t \n", "transcripts.tsv, line 3: the transcript of 01.wav is empty"),
    ("01.wav\ttwo\n", "01.wav two\n", "line 3: it has 1 cells, not a file and a transcript, with one tab between"),
    ("01.wav\ttwo\n", "01.wav\ttwo\tthree\n", "line 3: it has 3 cells"),
    ("01.wav\ttwo\n", "1.wav\ttwo\n", "line 3: 1.wav is not a recording in "),
    ("01.wav\ttwo\n", "01.wav\ttwo\n01.wav\tone\n", "line 4: 01.wav has a transcript already"),
    ("01.wav\ttwo\n", "", "01.wav: transcripts.tsv has no transcript of it"),
]


@pytest.mark.parametrize(("before", "after", "said"), BAD)
def test_what_has_not_both_is_named_or_left_out(calls: Path, before: str, after: str, said: str) -> None:
    rewrite(calls, before, after)
    with pytest.raises(DataError, match="cannot be used for training") as error:
        opened(calls)
    assert said in str(error.value)
    assert "missing=drop leaves these files out" in str(error.value)
    data = opened(calls, missing="drop")
    dropped = "" if said.endswith("already") else "01.wav"
    assert sum(len(s) for s in data.splits.values()) == len(TEXTS) - bool(dropped)
    assert all(dropped not in names(data, name) for name in data.splits)
    assert any(note.startswith("missing=drop left out") and said in note for note in data.notes)


def test_a_character_that_training_does_not_know_is_named_or_left_out(tmp_path: Path) -> None:
    written(tmp_path / "calls" / "train")
    written(tmp_path / "calls" / "test", ["one", "zwölf"], seed=50)
    said = "test/01.wav: its transcript has 'z' (U+007A), which no training transcript has"
    with pytest.raises(DataError) as error:
        opened(tmp_path / "calls")
    assert said in str(error.value)
    data = opened(tmp_path / "calls", missing="drop")
    assert len(data.splits["test"]) == 1
    assert any(said in note for note in data.notes)
    with pytest.raises(DataError) as error:
        data.preprocessing.labelled(tmp_path / "calls" / "test")
    assert "01.wav: its transcript has 'z' (U+007A)" in str(error.value)


def test_a_recording_that_is_too_long_is_named_or_left_out_and_never_cut(calls: Path) -> None:
    with pytest.raises(DataError, match=r"09\.wav: it lasts 0\.47 s, longer than seconds=0\.46 allows"):
        opened(calls, seconds=0.46)
    data = opened(calls, seconds=0.46, missing="drop")
    assert sum(len(s) for s in data.splits.values()) == len(TEXTS) - 1
    new = data.preprocessing.examples([calls / "09.wav"])
    assert isinstance(new, SequenceSplit)
    assert new.lengths.item() == 46  # whole


@pytest.mark.parametrize("targets", [(), (Spelled,)])
def test_a_transcript_that_is_too_long_is_named_or_left_out(calls: Path, targets: tuple[Any, ...]) -> None:
    rewrite(calls, "03.wav\tone\n", f"03.wav\t{'one ' * 512}\n")  # 2,047 characters, without the last blank
    short = open_audio(calls, DataSettings(), targets)
    rewrite(calls, "04.wav\ttwo three\n", f"04.wav\t{'one ' * 512}one\n")
    said = "04.wav: its transcript has 2,051 characters, at most 2,048 are read"
    for reject in (lambda: open_audio(calls, DataSettings(), targets), lambda: short.preprocessing.labelled(calls)):
        with pytest.raises(DataError) as error:
            reject()
        assert said in str(error.value)
        assert "03.wav" not in str(error.value)
    data = open_audio(calls, DataSettings(missing="drop"), targets)
    assert sum(len(s) for s in data.splits.values()) == len(TEXTS) - 1
    assert all("04.wav" not in names(data, name) for name in data.splits)
    assert any(said in note for note in data.notes)


def test_settings_and_folders_that_cannot_be(calls: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="missing=fill is for the cells of tables"):
        opened(calls, missing="fill")
    for i in range(4):
        sound(tmp_path / "classes" / "ab"[i % 2] / f"{i}.wav", i, 500)
    with pytest.raises(SettingError, match="lower=true is for recordings with transcripts"):
        opened(tmp_path / "classes", lower=True)
    data = opened(calls)
    with pytest.raises(DataError, match=r"is not a folder with transcripts\.tsv"):
        data.preprocessing.labelled(tmp_path / "classes")
    written(tmp_path / "own" / "test")
    with pytest.raises(DataError, match=r"has transcripts for test and none in train/"):
        opened(tmp_path / "own")
    (calls / "transcripts.tsv").write_bytes(b"00.wav\tcaf\xe9\n")
    with pytest.raises(DataError, match=r"it is not UTF-8: byte 10 \(line 1\) is 0xE9"):
        opened(calls)
    (calls / "transcripts.tsv").write_text("00.wav\tone\n", encoding="utf-8")
    (calls / "00.wav").write_bytes(b"RIFF")
    with pytest.raises(
        DataError, match=r"would leave nothing: 1 of 1 audio files .*00\.wav: it is not readable as audio"
    ):
        opened(calls, missing="drop")
    (calls / "transcripts.tsv").unlink()
    with pytest.raises(DataError, match=r"write transcripts\.tsv: file, tab, transcript"):
        infer_kind(calls, DataSettings())


def test_spelled_transcripts_stand_between_two_ends(calls: Path) -> None:
    plain, data = opened(calls), open_audio(calls, DataSettings(), (Spelled,))
    assert isinstance(data.spec.target, Spelled)
    assert data.spec.target.longest == 10  # "three two" or "two three", and the end
    assert (data.fingerprint, data.split_hash) == (plain.fingerprint, plain.split_hash)
    own, other = split(data, "train"), split(plain, "train")
    rows = torch.arange(len(own))
    (x, mask, so_far), target = next(iter(own.batches([rows])))
    (x_plain, mask_plain), characters = next(iter(other.batches([rows])))
    assert torch.equal(x, x_plain)
    assert torch.equal(mask, mask_plain)
    for row, after, right in zip(so_far.tolist(), target.tolist(), characters.tolist()):
        ids = [k for k in right if k != IGNORED]
        assert row[: len(ids) + 1] == [0, *ids]
        assert not any(row[len(ids) + 1 :])
        assert after[: len(ids) + 1] == [*ids, 0]
        assert set(after[len(ids) + 1 :]) <= {IGNORED}
    assert (
        so_far.shape == target.shape == (len(own), max(len([k for k in r if k > 0]) for r in characters.tolist()) + 1)
    )


def test_new_recordings_are_asked_from_the_first_token_on(calls: Path) -> None:
    data = open_audio(calls, DataSettings(), (Spelled,))
    again = preprocessing_from_json(json.loads(json.dumps(data.preprocessing.to_json())))
    assert again == data.preprocessing
    inputs, target = next(iter(again.examples([calls / "00.wav", calls / "03.wav"]).batches([torch.arange(2)])))
    assert inputs[2].tolist() == [[0], [0]]
    assert target.shape == (2, 0)
    labelled = next(iter(again.labelled(calls).batches([torch.tensor([1])])))
    assert labelled.inputs[2][0, 0] == 0
    assert labelled.target[0, -1] == 0
