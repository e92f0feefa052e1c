"""Preparing data from the command line, and what is then done with it: the same as with the text itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cutaway.checkpoints.saving import read_tensors

from .conftest import Answer

Cli = Callable[..., Answer]
TEXT = "Tiger, tiger, burning bright\nIn the forests of the night,\nWhat immortal hand or eye\n" * 150
SETTINGS = ["model.layers=1", "model.heads=1", "model.dim=8", "length=16", "tensorboard=false"]


@pytest.fixture
def shards(cli: Cli) -> str:
    """A folder of shards beside the text that they are of."""
    Path("poem.txt").write_text(TEXT)
    assert cli("prepare", "poem.txt", "shards").status == 0
    return "shards"


def test_a_model_learns_from_shards_what_it_learns_from_the_text(cli: Cli, shards: str) -> None:
    for data in (shards, "poem.txt"):
        run = f"run-{Path(data).stem}"
        assert cli("train", "gpt2", data, *SETTINGS, "max_steps=5", "--out", run).status == 0
        assert cli("train", "--resume", run, "max_steps=8").status == 0
    ours, theirs = (read_tensors(Path(f"run-{name}/model/model.safetensors"))[0] for name in ("shards", "poem"))
    assert all(torch.equal(ours[key], theirs[key]) for key in {**ours, **theirs})
    evaluations = [json.loads(Path(f"run-{name}/evaluation.json").read_text()) for name in ("shards", "poem")]
    assert evaluations[0] == evaluations[1]
    assert json.loads(cli("evaluate", "run-shards", "--json").out) == evaluations[0]["metrics"]
    assert json.loads(cli("evaluate", "run-poem", shards, "--json").out) == evaluations[0]["metrics"]
    said = cli("predict", "run-shards", shards)
    assert said.out.startswith("tokens 0 to 15")
    assert "The test split of shards is read." in said.said
    assert cli("generate", "run-shards", "--prompt", "In the", "--count", "5", "--seed", "1").status == 0


def test_what_was_made_is_told(cli: Cli, shards: str) -> None:
    again = cli("prepare", "poem.txt", shards, "--json")
    made = json.loads(again.out)
    assert made["folder"] == shards
    assert sum(made["splits"].values()) == len(TEXT) == made["bytes"]
    answer = cli("prepare", "poem.txt", shards)
    assert "cutaway train MODEL shards" in answer.out
    assert "split by position" in answer.said
    assert "tokens; 3 shards" in answer.out


def test_check_compares_checksums(cli: Cli, shards: str) -> None:
    words = ("check", "gpt2", shards, *SETTINGS)
    answer = cli(*words)
    assert answer.status == 0
    assert "No problems found in the data." in answer.out
    with Path("shards/val-00000.bin").open("r+b") as file:
        file.seek(7)
        file.write(b"\0")
    answer = cli(*words)
    assert answer.status == 2
    assert "shards/val-00000.bin: its sha256 is" in answer.said
    Path("shards/val-00000.bin").unlink()
    answer = cli("train", "gpt2", shards)
    assert answer.status == 2
    assert "1 of the shards in shards cannot be read: shards/val-00000.bin: it is missing." in answer.said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Missing data or output folder"),
        (("poem.txt", "shards", "workers=-1"), "Invalid workers=-1"),
        (("poem.txt", "shards", "epochs=3"), "no setting 'epochs'"),
        (("poem.txt", "poem.txt"), "poem.txt is a file, and shards need a folder"),
        (("poem.txt", ".."), "is not empty"),
        (("poem.txt", "new", "tokenizer=nowhere.json"), "no file or folder 'nowhere.json'"),
        (("poem.txt", "new", "val=0.6", "test=0.5"), "leave nothing to train on"),
    ],
)  # fmt: skip
def test_invalid_arguments_give_one_paragraph(cli: Cli, shards: str, words: tuple[str, ...], said: str) -> None:
    answer = cli("prepare", *words)
    assert answer.status == 2
    assert said in answer.said
    assert Path("poem.txt").read_text() == TEXT


@pytest.mark.slow
def test_it_resumes_after_a_kill_and_after_ctrl_c(cli: Cli, tmp_path: Path) -> None:
    Path("poem.txt").write_text(TEXT * 600)  # more than is done before a signal comes, on a busy machine too
    words = ["prepare", "poem.txt", "shards", "shard_size=1", "tokenizer=bpe", "vocab_size=300", "workers=2"]
    out = tmp_path / "shards"
    for ends, there in ((signal.SIGINT, "preparing.json"), (signal.SIGKILL, "*.bin")):
        command = subprocess.Popen(
            [sys.executable, "-m", "cutaway", *words], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        while not [*out.glob(there)]:
            time.sleep(0.02)
            assert command.poll() is None
        command.send_signal(ends)
        _, said = command.communicate(timeout=30)
        assert command.returncode == (130 if ends == signal.SIGINT else -signal.SIGKILL)
        assert not (out / "manifest.json").exists()
        assert ("run the same command again to resume" in said) == (ends == signal.SIGINT)
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("*.bin")}
    answer = cli("train", "gpt2", "shards")
    assert answer.status == 2
    assert "its preparation has begun and not ended" in answer.said
    assert cli(*words).status == 0
    assert kept.items() <= {path.name: path.stat().st_mtime_ns for path in out.glob("*.bin")}.items()
    assert {path.suffix for path in out.iterdir()} == {".bin", ".json"}
