"""What bad input gets: one paragraph that says what, where and how to fix it; status 2; nothing written."""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch
from PIL import Image

import cutaway
from cutaway.views.run.summary import compare_command

from .conftest import Answer

Cli = Callable[..., Answer]

GOOD = "size,colour,kind\n" + "".join(f"{i},{'red' if i % 3 else 'blue'},{'a' if i % 2 else 'b'}\n" for i in range(60))


def expect_rejection(answer: Answer, *words: str) -> None:
    """Status 2, one paragraph without a traceback that says all of `words`; no run was begun."""
    assert answer.status == 2, answer
    assert answer.out == ""
    assert "Traceback" not in answer.err
    assert "\n\n" not in answer.err.strip()
    for word in words:
        assert word in answer.said, (word, answer.said)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("trian", "mlp", "iris"), ["no command 'trian'", "train"]),
        (("train", "lenet", "digits"), ["no model 'lenet'", "lenet5"]),
        (("train", "mlp", "irsi"), ["'irsi'", "Similar: iris"]),
        (("train", "mlp", "iris", "epoch=3"), ["no setting 'epoch'", "epochs"]),
        (("train", "mlp", "iris", "model.hiden=3"), ["'hiden'", "hidden_dims"]),
        (("train", "mlp", "iris", "epochs=many"), ["epochs=many", "must be an integer"]),
        (("train", "mlp", "iris", "val=1.5"), ["val=1.5", "0 to 0.9"]),
        (("train", "mlp", "iris", "optimizer=adamm"), ["optimizer=adamm", "adamw"]),
        (("train", "mlp", "iris", "epochs"), ["'epochs' is not a setting", "key=value"]),
        (("train", "mlp", "iris", "@none.toml"), ["no file or folder 'none.toml'"]),
        (("train", "mlp", "iris", "out=here"), ["out=here is an option, not a setting", "--out DIR"]),
        (("train", "mlp", "iris", "resume=runs/a"), ["resume=runs/a is an option, not a setting", "--resume RUN"]),
        (("train", "mlp", "iris", "data=iris"), ["data=iris is not a setting", "MODEL and DATA are the first"]),
        (("train", "mlp"), ["Missing data: cutaway train [MODEL] DATA"]),
        (("train", "resnet18", "iris"), ["takes image data", "table", "mlp"]),
        (("train", "mlp", "iris", "flip=true"), ["flip"]),
        (("train", "linear", "iris"), ["linear", "softmax"]),
        (("train", "mlp", "nowhere.csv", "target=x"), ["no file or folder 'nowhere.csv'"]),
        (("evaluate", "nowhere"), ["There is no run 'nowhere'"]),
        (("predict", "nowhere", "a.png"), ["There is no run 'nowhere'"]),
        (("show", "resnet19"), ["no model 'resnet19'", "resnet18"]),
        (("data", "minst"), ["'minst'", "mnist"]),
        (("train", "mlp", "iris", "device=cuda:9"), ["device=cuda:9"]),
        (("train", "mlp", "iris", "max_samples=2"), []),
        (("train", "mlp", "iris", "epochs=0"), ["epochs=0", "at least 1"]),
        (("train", "lenet5", "digits", "mixup=0.2"), ["mixup", "loss=map"]),
    ],
)
def test_names_and_settings(cli: Cli, words: tuple[str, ...], said: list[str]) -> None:
    expect_rejection(cli(*words), *said)


@pytest.mark.parametrize(
    ("content", "settings", "said"),
    [
        (b"", ["target=kind"], ["empty"]),
        (b"   \n \n", ["target=kind"], ["it is empty (6 bytes)", "CUT-202"]),
        (b"size,kind\n", ["target=kind"], ["no rows"]),
        (b"kind\n" + b"a\nb\n" * 30, ["target=kind"], ["the only one of t.csv"]),
        (GOOD.encode().replace(b"red", b"r\xe9d"), ["target=kind"], ["UTF-8", "line"]),
        (GOOD.encode()[:-4] + b'"unfinished', ["target=kind"], ["line 61"]),
        (GOOD.encode() + b"1,2,3,4\n", ["target=kind"], ["line 62", "4"]),
        (GOOD.encode(), ["target=kinds"], ["'kinds'", "kind", "size, colour, kind"]),
        (GOOD.replace("kind", "Kind").encode(), ["target=kind"], ["capitals"]),
        (GOOD.encode(), [], ["target=", "size, colour, kind"]),
        (b"x,y\n" + b"1,a\n2,a\n" * 30, ["target=y"], ["'a' in all 60 rows"]),
        (b"x,y\n" + b"1,a\n2,b\n" * 30 + b"3,c\n", ["target=y"], ["'c'", "one"]),
        (b"x,y\n" + b"1,\n" * 30, ["target=y"], ["y"]),
        (b"x,y\n" + b",a\n,b\n" * 30, ["target=y"], ["x"]),
        (b"x,y\n" + b"1,a\n2,b\n" * 30 + b"oops,a\n", ["target=y"], ["line 62", "oops", "x"]),
        (GOOD.encode(), ["target=kind", "group=who"], ["who"]),
        (GOOD.encode(), ["target=kind", "ignore=who"], ["who"]),
    ],
)  # fmt: skip
def test_tables(cli: Cli, tmp_path: Path, content: bytes, settings: list[str], said: list[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    for command in ("train", "check"):
        expect_rejection(cli(command, "mlp", "t.csv", *settings), *said)
    assert path.read_bytes() == content


def photos(root: Path, count: int = 6) -> Path:
    """Two classes of small photographs."""
    for kind, colour in (("sea", "blue"), ("sun", "yellow")):
        for i in range(count):
            path = root / kind / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40 + i, 48), colour).save(path)
    return root


def test_a_folder_without_images(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    expect_rejection(cli("train", "simplecnn", "p"), "p is a folder that holds no kind of data that can be read")


def test_an_empty_class_folder(cli: Cli, tmp_path: Path) -> None:
    (photos(tmp_path / "p") / "moon").mkdir()
    expect_rejection(cli("train", "simplecnn", "p"), "moon")


def test_corrupt_images_are_named(cli: Cli, tmp_path: Path) -> None:
    root = photos(tmp_path / "p")
    (root / "sea" / "bad.png").write_bytes(b"not an image")
    (root / "sun" / "none.jpg").write_bytes(b"")
    whole = (root / "sea" / "1.png").read_bytes()
    (root / "sea" / "cut.png").write_bytes(whole[: len(whole) // 2])
    for command in ("train", "check"):
        expect_rejection(cli(command, "simplecnn", "p", "image_size=32"), "bad.png", "none.jpg")
    (root / "sea" / "bad.png").unlink()
    (root / "sun" / "none.jpg").unlink()
    expect_rejection(cli("check", "simplecnn", "p", "image_size=32"), "cut.png")


def test_an_enormous_image_is_named_and_not_read(cli: Cli, tmp_path: Path) -> None:
    root = photos(tmp_path / "p")
    Image.new("1", (10_000, 10_001)).save(root / "sea" / "huge.png")
    expect_rejection(cli("train", "simplecnn", "p", "image_size=32"), "huge.png", "10000")


def test_a_symbolic_link_loop(cli: Cli, tmp_path: Path) -> None:
    root = photos(tmp_path / "p")
    (root / "loop").symlink_to(root)
    expect_rejection(cli("train", "simplecnn", "p", "image_size=32"), "loop")


def test_images_too_small_for_the_network(cli: Cli) -> None:
    expect_rejection(cli("train", "lenet5-modern", "digits", "image_size=8"), "image_size=8", "at least 16")


@pytest.fixture
def run(cli: Cli) -> Path:
    """A finished run."""
    assert cli("train", "mlp", "iris", "epochs=2", "tensorboard=false", "--out", "r").status == 0
    return Path("r")


def test_a_run_folder_that_exists_is_not_overwritten(cli: Cli, run: Path) -> None:
    before = (run / "run.json").read_bytes()
    expect_rejection(cli("train", "mlp", "iris", "--out", "r"), "r exists already", "--resume r")
    assert (run / "run.json").read_bytes() == before


@pytest.mark.parametrize("damage", ["cut short", "one byte", "pickle", "torch.save"])
@pytest.mark.parametrize("file", ["checkpoints/last.safetensors", "model/model.safetensors"])
def test_damaged_and_foreign_files_are_rejected(cli: Cli, run: Path, damage: str, file: str) -> None:
    path = run / file
    content = bytearray(path.read_bytes())
    if damage == "cut short":
        content = content[:-7]
    elif damage == "one byte":
        content[-20] ^= 1
    elif damage == "pickle":
        content = bytearray(pickle.dumps({"a": 1}))
    else:
        torch.save({"a": torch.zeros(1)}, path)
        content = bytearray(path.read_bytes())
    path.write_bytes(content)
    words = ("train", "--resume", "r", "epochs=3") if file.startswith("checkpoints") else ("evaluate", "r")
    expect_rejection(cli(*words), path.name)
    assert path.read_bytes() == content


class Bomb:
    """Unpickling this would leave a file behind."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, ("exploded",)


def test_a_pickle_offered_as_a_model_is_rejected_unread(cli: Cli, run: Path) -> None:
    (run / "model" / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
    expect_rejection(cli("evaluate", "r"), "pickle")
    assert not Path("exploded").exists()


def test_settings_that_cannot_change_on_resume(cli: Cli, run: Path) -> None:
    expect_rejection(cli("train", "--resume", "r", "lr=1"), "lr cannot change")
    expect_rejection(cli("train", "mlp", "wine", "--resume", "r"), "data is iris, not wine")


def test_a_full_disk_while_saving_leaves_the_last_checkpoint_good(
    cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (run / "checkpoints" / "last.safetensors").read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        expect_rejection(cli("train", "--resume", "r", "epochs=4"), "No space left on device")
    assert (run / "checkpoints" / "last.safetensors").read_bytes() == before
    assert not list(run.rglob("*.part"))
    assert cli("train", "--resume", "r", "epochs=4").status == 0


def test_a_place_that_cannot_be_written(cli: Cli) -> None:
    expect_rejection(
        cli("train", "mlp", "iris", "epochs=1", "--out", "/proc/nowhere/r"),
        "Cannot create /proc/nowhere/r",
        "written to",
    )


def test_predicting_on_the_wrong_columns(cli: Cli, run: Path) -> None:
    Path("x.csv").write_text("a,b\n1,2\n")
    expect_rejection(cli("predict", "r", "x.csv"), "x.csv", "sepal length (cm)")
    expect_rejection(cli("predict", "r", "none.csv"), "none.csv")


def test_a_file_without_characters_gets_one_answer_from_every_command(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text(GOOD)
    assert cli("train", "mlp", "good.csv", "target=kind", "epochs=1", "--out", "run").status == 0
    for content in (b"", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\xff\xfe\n\0", b"\r\n"):
        (tmp_path / "t.csv").write_bytes(content)
        commands = (("train", "mlp", "t.csv", "target=kind"), ("check", "mlp", "t.csv", "target=kind"))
        commands += (("predict", "run", "t.csv"), ("evaluate", "run", "t.csv"))
        answers = [cli(*words) for words in commands]
        for answer in answers:
            expect_rejection(answer, f"t.csv: it is empty ({len(content)} bytes)", "CUT-202")
        assert len({answer.said for answer in answers}) == 1
        if content.endswith((b"\n", b"\0")):
            continue  # a text may be line ends
        (tmp_path / "t.txt").write_bytes(content)
        expect_rejection(cli("train", "lstm", "t.txt"), f"t.txt: it is empty ({len(content)} bytes)", "CUT-202")


def test_a_comparison_that_cannot_start_leaves_no_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    expect_rejection(cli("compare", "mlp", "t.csv"), "Say target=COLUMN")
    expect_rejection(cli("compare", "mlp", "t.csv", "--out", "new"), "Say target=COLUMN")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.csv"]


def test_the_commands_that_are_suggested_have_the_settings_of_the_data(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "my table.csv").write_text(GOOD.replace(",", ";").replace("\n3;", "\nn.a.;", 1))
    given = ("target=kind", "missing_values=auto,n.a.", "separator=;", "split_seed=3", "missing=drop")
    assert cli("train", "mlp", "my table.csv", *given, "epochs=1", "--out", "run").status == 0
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    command = shlex.split(compare_command(about))
    assert command[:4] == ["cutaway", "compare", "mlp", "my table.csv"]
    assert sorted(command[4:]) == sorted(given)
    own = compare_command({**about, "own": "net.Net", "model": "Net"})
    assert own.startswith("cutaway.compare([('Net', Net)], 'my table.csv', target='kind', missing='drop', ")
    check = cli("check", "mlp", "my table.csv", *given, "processes=2")
    command = shlex.split(re.search(r"`cutaway (plan [^`]*)`", check.said)[1])  # type: ignore[index]
    assert command == ["plan", "mlp", "my table.csv", *given, "processes=2"]


def messy_table() -> list[list[str]]:
    """200 rows with unreadable numbers, days and targets, and one row with two of them."""
    rows = [[str(i % 37), f"2020-01-{1 + i % 28:02}", "a" if i % 37 > 15 else "b"] for i in range(200)]
    for i in (0, 20, 40, 60, 80, 100, 120):
        rows[i][0] = "n.a."
    for i in (9, 29, 40):
        rows[i][1] = "unknown"
    for i in (7, 57):
        rows[i][2] = ""
    return rows


def write_rows(path: Path, rows: list[list[str]]) -> None:
    path.write_text("\n".join(["size,day,kind", *(",".join(row) for row in rows)]) + "\n")


def test_check_lists_every_kind_of_problem_and_what_each_setting_costs(cli: Cli, tmp_path: Path) -> None:
    write_rows(tmp_path / "t.csv", messy_table())
    answer = cli("check", "mlp", "t.csv", "target=kind")
    assert answer.status == 2
    assert answer.err.splitlines()[:5] == [
        "column kind: 2 rows (lines 9, 59): the target is missing",
        "column size: 7 cells such as 'n.a.' (lines 2, 22, 42, 62, 82, …): not a number; missing_values=auto,n.a. if "
        "it means missing",
        "column day: 3 cells such as 'unknown' (lines 11, 31, 42): not a date written like 2020-12-31; "
        "missing_values=auto,unknown if it means missing",
        "missing=drop leaves out 11 of 200 rows (5.5%), because of: kind 2, size 7, day 3",
        "missing=fill counts 10 unreadable cells as missing: the training median with a missing-value indicator; a "
        "missing target or group is not filled",
    ]
    trained = cli("train", "mlp", "t.csv", "target=kind", "epochs=1")
    expect_rejection(trained, "2 of 200 rows cannot be used because the target or group is missing, 10 cells cannot")
    fixed = ("missing=drop", "missing_values=auto,n.a.,unknown")
    assert cli("check", "mlp", "t.csv", "target=kind", *fixed).status == 0


def test_a_drop_of_more_than_5_percent_is_said_before_training(cli: Cli, tmp_path: Path) -> None:
    write_rows(tmp_path / "t.csv", messy_table())
    answer = cli("train", "mlp", "t.csv", "target=kind", "epochs=1", "missing=drop", "--out", "run")
    lines = answer.err.splitlines()
    (begun,) = (k for k, line in enumerate(lines) if "epoch 1/1" in line)
    assert not any("because the target" in line for line in lines[:begun])  # 1 %
    assert not any("unreadable cells" in line for line in lines[:begun])  # 4.5 %
    rows = messy_table()
    for i in range(101, 110):
        rows[i][0] = "n.a."
    write_rows(tmp_path / "t.csv", rows)
    answer = cli("train", "mlp", "t.csv", "target=kind", "epochs=1", "missing=drop", "--out", "run2")
    lines = answer.err.splitlines()
    (begun,) = (k for k, line in enumerate(lines) if "epoch 1/1" in line)
    (dropped,) = (line for line in lines if "unreadable cells" in line)
    assert "missing=drop left out 18 of 198 rows (9.1%) with unreadable cells: " in dropped
    assert lines.index(dropped) < begun


def test_new_tables_take_missing_as_training_does(cli: Cli, tmp_path: Path) -> None:
    rows = [f"{i % 37},{'red' if i % 3 else 'blue'},{'a' if i % 2 else 'b'}" for i in range(60)]
    (tmp_path / "good.csv").write_text("\n".join(["size,colour,kind", *rows]) + "\n")
    assert cli("train", "mlp", "good.csv", "target=kind", "epochs=1", "--out", "run").status == 0
    (tmp_path / "new.csv").write_text("size,colour,kind\n1,red,a\nn.a.,red,a\n,blue,b\n3,red,\n4,red,b\n5,red,a\n")
    assert "missing=fill" in cli("predict", "run", "new.csv").said
    filled = cli("predict", "run", "new.csv", "missing=fill")
    assert (filled.status, len(filled.out.splitlines())) == (0, 6)
    assert "Column size: 2 missing cells of new.csv replaced by the training median, " in filled.said
    refused = cli("predict", "run", "new.csv", "missing=drop")
    assert (refused.status, "there is one prediction for each row" in refused.said) == (2, True)
    assert "missing=drop" in cli("evaluate", "run", "new.csv").said
    dropped = cli("evaluate", "run", "new.csv", "missing=drop")
    assert dropped.status == 0
    assert "missing=drop left out 2 of 6 rows (33.3%)" in dropped.said
    assert "unknown" not in dropped.out
    assert "missing='fil': must be error, drop or fill" in cli("evaluate", "run", "new.csv", "missing=fil").said
    assert "only for other data" in cli("evaluate", "run", "missing=drop").said
    run = cutaway.load("run")
    frame = pl.read_csv("new.csv", infer_schema=False)
    with pytest.warns(cutaway.CutawayWarning, match="left out 2 of 6 rows"):
        assert run.evaluate(frame, missing="drop")["accuracy"].value is not None
    with pytest.warns(cutaway.CutawayWarning, match="2 missing cells"):
        assert len(run.predict(frame, missing="fill")) == 6
