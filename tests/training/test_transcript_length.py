"""Transcripts that need more frames than the network leaves: named, or left out and counted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cutaway.core.errors import DataError
from cutaway.data.dataset_base import SequenceSplit
from cutaway.data.open_data import NAMED
from cutaway.data.synthetic.examples import spelled
from cutaway.models.ctc_conv_gru import Config, Model
from cutaway.runs.run import Run
from cutaway.training.output_check import reject_too_long_transcripts, too_long_transcripts
from cutaway.training.setup import setup_training

SMALL = {"n_mels": 4, "model.channels": "3,3", "model.hidden_dim": 3, "val": 0.2, "test": 0.2}


def test_repeats_need_frames_of_their_own() -> None:
    target = torch.tensor([[1, 2, 3], [1, 1, 2], [1, 1, 1]])
    split = SequenceSplit(torch.zeros(36, 2), torch.tensor([12, 12, 12]), target, ["a.wav", "b.wav", "c.wav"])
    assert too_long_transcripts(Model(Config(2, strides=(2, 1))), split) == {}
    found = too_long_transcripts(Model(Config(2, strides=(3, 1))), split)  # leaves 4 frames
    assert list(found) == [2]
    assert str(found[2]) == "c.wav: its transcript needs 5 frames, and the network leaves 4 of it"
    with pytest.raises(DataError, match=r"One transcript does not fit into the recording: c\.wav: .* model\.strides"):
        reject_too_long_transcripts(Model(Config(2, strides=(3, 1))), split)


def test_they_are_named_or_left_out_by_every_command(tmp_path: Path) -> None:
    assert "spelled" not in NAMED
    spelled(tmp_path / "spelled", count=30)
    table = tmp_path / "spelled" / "transcripts.tsv"
    lines = table.read_text(encoding="utf-8").splitlines()
    table.write_text("\n".join([*lines[:-1], f"029.wav\t{'1' * 60}"]), encoding="utf-8")
    with pytest.raises(DataError, match=r"029\.wav: its transcript needs 119 frames, and the network leaves \d+ of it"):
        setup_training("ctc-conv-gru", tmp_path / "spelled", SMALL)
    ready = setup_training("ctc-conv-gru", tmp_path / "spelled", {**SMALL, "missing": "drop"})
    assert sum(len(split) for split in ready.data.splits.values()) == 29
    assert any(
        note.startswith("missing=drop left out one recording: 029.wav: its transcript") for note in ready.data.notes
    )
    for split in ready.data.splits.values():
        assert isinstance(split, SequenceSplit)
        assert split.target is not None
        assert len(split) == len(split.lengths) == len(split.target)
        assert split.lengths.sum() == len(split.values)

    import cutaway

    given = {**SMALL, "missing": "drop", "epochs": 1, "tensorboard": False}
    run: Run = cutaway.train("ctc-conv-gru", tmp_path / "spelled", out=tmp_path / "run", **given)
    assert sum(len(split) for split in run.data().splits.values()) == 29
    with pytest.raises(DataError, match=r"029\.wav: its transcript needs 119 frames"):
        run.evaluate(tmp_path / "spelled")
