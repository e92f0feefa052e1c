"""Distributed checkpoints: killed, resumed with another number of processes, damaged, on a full disk."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kills import Order, differences, log_to, order_of

from cutaway.apps.cli import main
from cutaway.checkpoints.saving import read_tensors, write_tensors
from cutaway.core.errors import CutawayError, FileError, LostProcess, SettingError
from cutaway.core.files import read_json
from cutaway.distributed.checkpoint import Checkpoint, Saver, complete_checkpoints, read
from cutaway.distributed.group import process_group, rank_and_size
from cutaway.distributed.tensor_parallel import local_part
from cutaway.models.registry import create_model
from cutaway.runs.train import train_model
from cutaway.training.callbacks import Progress
from cutaway.training.checkpoint import (
    TrainingState,
    checkpoint_tensors,
    latest_checkpoint,
    load_checkpoint,
    save_whole,
)
from cutaway.training.config import TrainSettings
from cutaway.training.device import DeviceContext
from cutaway.training.optim import find_blocks
from cutaway.training.parallel import reject_parallel

from .ranks import ended, start, together

pytestmark = pytest.mark.slow  # processes, or runs that are trained

GIVEN = {
    "epochs": 2, "max_samples": 70, "batch_size": 12, "ema": 0.9, "grad_clip": 1.0, "crop": 0, "mixup": 0.0,
    "flip": False, "save_minutes": 0, "tensorboard": False, "threads": 1, "seed": 7,
}  # fmt: skip


def train(base: Path, sitting: int, given: dict[str, Any], resume: bool) -> None:
    """Begin base/run or go on with it, and log what is learned from; leave what a person would be told in base/said."""
    log_to(base / "log" / str(sitting))
    run = base / "run"
    try:
        if resume:
            train_model(None, None, given, resume=run, progress=Progress(shown=False))
        else:
            train_model("lenet5-modern", "digits", {**GIVEN, **given}, out=run, progress=Progress(shown=False))
    except CutawayError as error:
        if not error.silent:
            with (base / "said").open("a") as file:
                file.write(json.dumps([type(error).__name__, str(error)]) + "\n")
        sys.exit(2)


def train_on_a_small_disk(base: Path, sitting: int, given: dict[str, Any], resume: bool, rank: int) -> None:
    """The same, where the process of that rank cannot write files of more than 100 KB."""
    if int(os.environ["RANK"]) == rank:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    train(base, sitting, given, resume)


def given(count: int, **more: object) -> dict[str, Any]:
    """The settings for so many processes."""
    return {**({"parallel": "fsdp"} if count > 1 else {}), **more}


def said(base: Path) -> list[list[str]]:
    """What was told of errors: kind and words of each."""
    return [json.loads(line) for line in (base / "said").read_text().splitlines()] if (base / "said").exists() else []


def wait_for(found: Callable[[], object], children: list[BaseProcess]) -> None:
    """Until something is there."""
    while not found() and all(child.is_alive() for child in children):
        time.sleep(0.005)


def left(base: Path) -> dict[str, torch.Tensor]:
    """The weights that a run left."""
    return read_tensors(base / "run" / "model" / "model.safetensors")[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Order]:
    """The run of two processes that nobody stopped, and what it learned from."""
    base = tmp_path_factory.mktemp("whole")
    assert together(train, base, 0, given(2), False, count=2) == [0, 0]
    return base, order_of(base / "log")


def test_each_process_leaves_its_part_and_no_pickle(whole: tuple[Path, Order]) -> None:
    base, order = whole
    last = latest_checkpoint(base / "run" / "checkpoints")
    assert last is not None
    assert {path.name for path in last.parent.iterdir()} == {last.name, "best.safetensors"}
    assert sorted(path.name for path in last.iterdir()) == [
        "00001-of-00002.safetensors", "00002-of-00002.safetensors", "index.json",
    ]  # fmt: skip
    sizes = [path.stat().st_size for path in last.glob("*.safetensors")]
    assert max(sizes) < 0.6 * sum(sizes)
    for epoch in range(2):  # every example once an epoch
        numbers = sorted(one for at, examples in order.items() if at[0] == epoch for one, _ in examples)
        assert numbers == [*range(len(numbers))]


def test_killed_three_times_and_gone_on_with_by_other_numbers_no_example_is_lost(
    whole: tuple[Path, Order], tmp_path: Path
) -> None:
    base, order = whole
    sizes = [2, 3, 1, 2]
    for sitting, count in enumerate(sizes):
        before = latest_checkpoint(tmp_path / "run" / "checkpoints")
        children = start(train, tmp_path, sitting, given(count), sitting > 0, count=count, launch=f"sitting {sitting}")
        if sitting < 3:
            wait_for(lambda before=before: latest_checkpoint(tmp_path / "run" / "checkpoints") != before, children)
            children[-1].kill()
            assert 0 not in ended(children)
    assert ended(children) == [0, 0], said(tmp_path)
    assert differences(order_of(tmp_path / "log"), order) == 0
    about, expected = (read_json(one / "run" / "run.json") for one in (tmp_path, base))
    assert about["resumed"] == 3
    assert about["best"]["value"] == pytest.approx(expected["best"]["value"], abs=0.05)
    # Sums of other lengths differ by rounding, which 16 updates carry on.
    for key, value in left(base).items():
        torch.testing.assert_close(left(tmp_path)[key], value, rtol=1e-2, atol=1e-3, msg=lambda m, k=key: f"{k}: {m}")


def test_killed_and_then_on_a_full_disk_the_checkpoint_before_stays_and_the_end_is_bit_for_bit(
    whole: tuple[Path, Order], tmp_path: Path
) -> None:
    base, order = whole
    children = start(train, tmp_path, 0, given(2), False, count=2)
    wait_for(lambda: latest_checkpoint(tmp_path / "run" / "checkpoints"), children)
    for child in children:
        child.kill()
    ended(children)
    before = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert before is not None
    content = {path.name: path.read_bytes() for path in before.iterdir()}
    assert together(train_on_a_small_disk, tmp_path, 1, given(2), True, 1, count=2, launch="full") == [2, 2]
    ((kind, words),) = said(tmp_path)
    assert kind == "WriteError"
    assert "00002-of-00002.safetensors could not be written: " in words
    assert "\n" not in words
    assert latest_checkpoint(tmp_path / "run" / "checkpoints") == before
    assert {path.name: path.read_bytes() for path in before.iterdir()} == content
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))
    assert together(train, tmp_path, 2, given(2), True, count=2, launch="free") == [0, 0]
    assert differences(order_of(tmp_path / "log"), order) == 0
    assert all(left(tmp_path)[key].equal(value) for key, value in left(base).items())


def test_whole_weights_stay_too_where_the_disk_is_full(tmp_path: Path) -> None:
    ddp = {"parallel": "ddp"}
    assert together(train, tmp_path, 0, {**ddp, "epochs": 1}, False, count=2, launch="free") == [0, 0]
    before = tmp_path / "run" / "checkpoints" / "last.safetensors"
    content = before.read_bytes()
    # The first process writes for both.
    assert together(train_on_a_small_disk, tmp_path, 1, {**ddp, "epochs": 2}, True, 0, count=2) == [2, 2]
    ((kind, words),) = said(tmp_path)
    assert kind == "WriteError"
    assert re.search(r"run/checkpoints/\w+\.safetensors could not be written: .*[Ff]ile too large", words), words
    assert "\n" not in words
    assert before.read_bytes() == content
    assert load_checkpoint(before.parent, create_model("lenet5-modern", num_classes=10), [], None)[0].epoch == 1
    assert {path.name for path in before.parent.iterdir()} == {"last.safetensors", "best.safetensors"}


def save_and_change(base: Path) -> None:
    """Save tensors while writing waits for a file, change them meanwhile, and look at what there is."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    from cutaway.distributed import checkpoint

    write = checkpoint.write_tensors

    def later(*given: Any) -> str:
        while not (base / "now").exists():
            time.sleep(0.005)
        return write(*given)

    checkpoint.write_tensors = later
    with process_group():
        mesh = init_device_mesh("cpu", (2,))
        uneven = distribute_tensor(torch.arange(15.0).view(5, 3), mesh, [Shard(0)])  # 3 rows and 2
        single = distribute_tensor(torch.arange(3.0).view(1, 3), mesh, [Shard(0)])  # 1 row and none
        both, number = torch.arange(4), torch.tensor(7.0)
        saver = Saver()
        saver.save(base / "saved", "last", {"uneven": uneven, "single": single, "both": both, "n": number}, {"k": 1})
        for tensor in (uneven, single, both, number):
            tensor.zero_()
        assert not complete_checkpoints(base / "saved", "last")
        (base / "now").touch()
        saver.wait()
        assert [path.name for path in complete_checkpoints(base / "saved", "last")] == ["last-1"]
        shutil.copytree(base / "saved" / "last-1", base / f"kept-{rank_and_size()[0]}")
        saver.save(base / "saved", "last", {"uneven": uneven}, {"k": 2})
        uneven.add_(1)
        saver.save(base / "saved", "last", {"uneven": uneven}, {"k": 3})  # when the one before is written
        saver.wait()
        assert [path.name for path in complete_checkpoints(base / "saved", "last")] == ["last-3"]


def test_training_goes_on_while_a_checkpoint_of_what_was_is_written(tmp_path: Path) -> None:
    assert together(save_and_change, tmp_path, count=2) == [0, 0]
    first = {
        "uneven": torch.arange(15.0).view(5, 3),
        "single": torch.arange(3.0).view(1, 3),
        "both": torch.arange(4),
        "n": torch.tensor(7.0),
    }
    last = {"uneven": torch.ones(5, 3)}
    for folder, k, expected in ((tmp_path / "kept-0", 1, first), (tmp_path / "saved" / "last-3", 3, last)):
        checkpoint = Checkpoint(folder)
        assert checkpoint.meta == {"k": k}
        found = {name: torch.full_like(like, -1, device="cpu") for name, like in checkpoint.tensors.items()}
        read(checkpoint, found)  # in one process, without a group
        assert found.keys() == expected.keys()
        assert all(found[name].equal(value) for name, value in expected.items())


def save_apart(base: Path) -> None:
    """Save where what the second process calls by the same name is another folder."""
    from cutaway.distributed import checkpoint

    write = checkpoint.write_tensors
    with process_group():
        if rank_and_size()[0] == 1:
            checkpoint.write_tensors = lambda path, *given: write(base / "another machine" / path.name, *given)
        saver = Saver()
        saver.save(base / "saved", "last", {f"only {rank_and_size()[0]}": torch.ones(3)}, {})
        with pytest.raises(
            FileError,
            match=r"1 of the 2 files of a checkpoint in .* are not visible to the first process, e.g. 00002-of-00002",
        ):
            saver.wait()


def test_machines_that_share_no_folder_are_told(tmp_path: Path) -> None:
    assert together(save_apart, tmp_path, count=2) == [0, 0]
    assert [*(tmp_path / "saved").iterdir()] == []


def small_gpt() -> torch.nn.Module:
    """Always with the same weights."""
    torch.manual_seed(0)
    return create_model("gpt2", layers=1, dim=12, heads=2, vocab_size=23, context_length=8)


def save_cut_twice(base: Path) -> None:
    """Save a model that is cut by heads and by rows, and read it back into the same parts."""
    from cutaway.distributed.fsdp import build_mesh, shard
    from cutaway.distributed.tensor_parallel import parallelize

    with process_group():
        model, mesh = small_gpt(), build_mesh(torch.device("cpu"), 2, "fsdp", tensor=2)
        parallelize(model, mesh["tensor"])
        shard(model, mesh, find_blocks(model), None)
        held = model.state_dict()
        saver = Saver()
        saver.save(base, "last", held, {})
        saver.wait()
        found = {key: torch.zeros_like(value) for key, value in held.items()}
        read(Checkpoint(base / "last-1"), found)
        assert all(local_part(found[key]).equal(local_part(value)) for key, value in held.items())


def test_weights_that_are_cut_by_heads_and_by_rows_are_whole_again(tmp_path: Path) -> None:
    assert together(save_cut_twice, tmp_path, count=4) == [0] * 4
    checkpoint, expected = Checkpoint(tmp_path / "last-1"), small_gpt().state_dict()
    qkv = checkpoint.slices["blocks.0.attention.qkv.weight"]
    assert len({(*one["offset"],) for one in qkv}) == len(qkv) > 4  # three matrices, of which each process has rows
    found = {key: torch.zeros_like(value) for key, value in expected.items()}
    read(checkpoint, found)
    assert all(found[key].equal(value) for key, value in expected.items())


def flip(path: Path) -> None:
    """Change one bit of a file's last byte."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def of_another_time(path: Path) -> None:
    """A whole file with other values in the place of one."""
    write_tensors(path, {key: value + 1 for key, value in read_tensors(path)[0].items()}, {})


def change_a_number(path: Path) -> None:
    """Have the index tell of another epoch."""
    path.write_text(path.read_text().replace('"epoch": 2', '"epoch": 1'))


def cut(path: Path) -> None:
    """Lose the end of a text."""
    path.write_text(path.read_text()[:-9])


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("00002-of-00002.safetensors", Path.unlink, "00002-of-00002.safetensors'"),
        ("00002-of-00002.safetensors", flip, "00002-of-00002.safetensors has changed since it was written"),
        ("00001-of-00002.safetensors", of_another_time, "00001-of-00002.safetensors is intact, but it is not the file"),
        ("index.json", change_a_number, "index.json is damaged: its checksum differs. Restore the folder"),
        ("index.json", cut, "index.json is not a complete JSON document"),
    ],
    ids=["missing", "damaged", "another", "edited index", "cut index"],
)  # fmt: skip
def test_a_part_that_is_missing_or_damaged_is_named(
    whole: tuple[Path, Order], tmp_path: Path, name: str, change: Callable[[Path], Any], words: str
) -> None:
    last = latest_checkpoint(whole[0] / "run" / "checkpoints")
    assert last is not None
    shutil.copytree(last, tmp_path / last.name)
    change(tmp_path / last.name / name)
    model = create_model("lenet5-modern", in_channels=1, num_classes=10)
    with pytest.raises(FileError, match=re.escape(words)):
        load_checkpoint(tmp_path, model, [torch.optim.AdamW(model.parameters())], None)


def test_what_is_damaged_is_told_in_one_paragraph_and_nothing_is_lost(
    whole: tuple[Path, Order], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole[0] / "run", run)
    last = latest_checkpoint(run / "checkpoints")
    assert last is not None
    flip(last / "00001-of-00002.safetensors")
    files = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    assert main(["train", "--resume", str(run), "processes=1", "epochs=3"]) == 2
    _, err = capsys.readouterr()
    assert "00001-of-00002.safetensors has changed since it was written" in " ".join(err.split())
    assert err.count("cutaway:") == 1
    assert "Traceback" not in err
    assert {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()} == files


def test_a_checkpoint_of_another_model_is_rejected(whole: tuple[Path, Order], tmp_path: Path) -> None:
    other = create_model("mlp", in_features=64, num_classes=10)
    with pytest.raises(FileError, match=r"last-\d+ is the checkpoint of another model: .* of the model's"):
        load_checkpoint(whole[0] / "run" / "checkpoints", other, [], None)
    save_whole(tmp_path, checkpoint_tensors(other, [], None), TrainingState())
    with pytest.raises(FileError, match=r"last.safetensors is the checkpoint of another model: .* of the model's"):
        load_checkpoint(tmp_path, create_model("lenet5-modern"), [], None)


def test_two_jobs_on_one_run_the_second_is_told_of_the_first(tmp_path: Path) -> None:
    first = start(train, tmp_path, 0, given(2, epochs=5000), False, count=2, launch="first")
    wait_for(lambda: latest_checkpoint(tmp_path / "run" / "checkpoints"), first)
    assert together(train, tmp_path, 1, given(2), True, count=2, launch="second") == [2, 2]
    ((kind, words),) = said(tmp_path)
    assert kind == "RunInUse"
    assert f"process {first[0].pid} on" in words
    assert all(child.is_alive() for child in first)
    for child in first:
        child.kill()
    ended(first)


def arrive(base: Path, seconds: float) -> None:
    """Wait for the others, and leave what a person would be told."""
    try:
        with process_group(timedelta(seconds=seconds)):
            pass
    except LostProcess as error:
        (base / "said").write_text(json.dumps([type(error).__name__, str(error)]))
        sys.exit(2)


def test_a_process_that_never_comes_is_told_of_with_the_time(tmp_path: Path) -> None:
    first, other = start(arrive, tmp_path, 2.0, count=2, launch="alone")
    os.kill(other.pid or 0, signal.SIGKILL)
    assert ended([first, other]) == [2, -signal.SIGKILL]
    ((_, words),) = said(tmp_path)
    assert words.startswith("Not all of 2 processes joined within 2 seconds.")


def test_a_number_of_processes_that_machines_cannot_share_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    place = DeviceContext(torch.device("cpu"), torch.float32, None, False, rank=0, processes=3)
    with pytest.raises(SettingError, match="of 3 processes 2 are on this one: take parallel=fsdp"):
        reject_parallel(TrainSettings(parallel="hsdp"), create_model("lenet5-modern"), place)


def test_of_two_kinds_of_checkpoints_the_newer_one_counts(whole: tuple[Path, Order], tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(whole[0] / "run" / "checkpoints", folder)
    last = latest_checkpoint(folder)
    assert last is not None
    (folder / "last.safetensors").write_bytes(b"older")
    os.utime(folder / "last.safetensors", ns=(0, 0))
    assert latest_checkpoint(folder) == last
    os.utime(last / "index.json", ns=(0, 0))
    os.utime(folder / "last.safetensors", ns=(1, 1))
    assert latest_checkpoint(folder) == folder / "last.safetensors"
    (last / "index.json").unlink()
    (folder / "last.safetensors").unlink()
    assert latest_checkpoint(folder) is None
    with pytest.raises(FileError, match="has no checkpoint to resume from"):
        load_checkpoint(folder, create_model("lenet5-modern"), [], None)
