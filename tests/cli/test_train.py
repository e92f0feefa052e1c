"""Training from the command line, and what is done with the run: as a person would, word for word."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import cutaway
from cutaway.apps.cli.arguments import flatten, parse_words
from cutaway.core.errors import FileError, SettingError

from .conftest import Answer

Cli = Callable[..., Answer]


@pytest.fixture
def iris(cli: Cli) -> Path:
    """A short run on iris."""
    answer = cli("train", "mlp", "iris", "epochs=3", "tensorboard=false")
    assert answer.status == 0
    return Path("runs/mlp-iris-1")


def test_a_run_says_what_was_reached_and_where_it_is(cli: Cli) -> None:
    answer = cli("train", "mlp", "iris", "epochs=3", "model.hidden_dims=8,8", "seed=3")
    assert answer.status == 0
    assert "test accuracy" in answer.out
    assert "95 % interval" in answer.out
    assert "runs/mlp-iris-1/report.html" in answer.out
    assert "3 epochs" in answer.out
    run = Path("runs/mlp-iris-1")
    held = {p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file()}
    documents = {"run.json", "metrics.csv", "evaluation.json", "layers.json", "report.html"}
    model = {"model/config.json", "model/model.safetensors", "model/preprocessing.json"}
    assert documents | model | {"checkpoints/last.safetensors", "checkpoints/best.safetensors"} <= held
    assert any(name.startswith("events.out.tfevents") for name in held)
    about = json.loads((run / "run.json").read_text())
    assert about["command"] == "cutaway train mlp iris epochs=3 model.hidden_dims=8,8 seed=3"
    assert about["status"] == "finished"
    assert len((run / "metrics.csv").read_text().splitlines()) == 1 + 3


def test_the_second_run_has_the_next_number(cli: Cli, iris: Path) -> None:
    assert cli("train", "mlp", "iris", "epochs=1", "tensorboard=false").status == 0
    assert Path("runs/mlp-iris-2/run.json").exists()


def test_json_is_one_document_on_standard_output(cli: Cli) -> None:
    answer = cli("train", "linear", "diabetes", "epochs=2", "tensorboard=false", "--json")
    document = json.loads(answer.out)
    assert document["metrics"]["rmse"]["low"] < document["metrics"]["rmse"]["value"]
    assert document["split"] == "test"


def test_all_rows_can_be_trained_on(cli: Cli) -> None:
    answer = cli("train", "mlp", "iris", "val=0", "test=0", "epochs=2", "tensorboard=false", "--out", "r")
    assert answer.status == 0
    assert "train accuracy" in answer.out
    assert json.loads(Path("r/run.json").read_text())["data"]["splits"] == {"train": 150}
    assert cli("evaluate", "r").status == 2  # nothing was kept to evaluate on


@pytest.mark.parametrize("precision", ["float64", "bfloat16"])
def test_other_precisions_go_all_the_way(cli: Cli, precision: str) -> None:
    words = (
        "train",
        "lenet5-modern",
        "digits",
        "epochs=1",
        "max_samples=200",
        f"precision={precision}",
        "tensorboard=false",
    )
    assert cli(*words, "--out", "r").status == 0
    evaluation = json.loads(Path("r/evaluation.json").read_text())
    again = json.loads(cli("evaluate", "r", "--json").out)
    assert again["accuracy"]["value"] == pytest.approx(evaluation["metrics"]["accuracy"]["value"], abs=0.02)


def test_the_same_command_gives_the_same_weights(cli: Cli) -> None:
    for name in "ab":
        assert cli("train", "mlp", "iris", "epochs=2", "tensorboard=false", "--out", name).status == 0
    a, b = (Path(name, "model/model.safetensors").read_bytes() for name in "ab")
    assert a == b


def test_settings_stand_in_a_file_too(cli: Cli) -> None:
    Path("s.toml").write_text("epochs = 2\ntensorboard = false\n[model]\nhidden_dims = [4]\n")
    assert cli("train", "mlp", "iris", "@s.toml", "epochs=1", "--out", "r").status == 0
    about = json.loads(Path("r/run.json").read_text())
    assert about["epochs_done"] == 1
    assert about["model_settings"]["hidden_dims"] == [4]


def test_evaluate_predict_and_report(cli: Cli, iris: Path) -> None:
    answer = cli("evaluate", str(iris), "--json")
    evaluation = json.loads((iris / "evaluation.json").read_text())
    assert json.loads(answer.out) == evaluation["metrics"]
    Path("new.csv").write_text(
        "sepal length (cm),sepal width (cm),petal length (cm),petal width (cm)\n5.1,3.5,1.4,0.2\n6.7,3.0,5.2,2.3\n"
    )
    answer = cli("predict", str(iris), "new.csv")
    assert [line.split()[-3] for line in answer.out.splitlines()] == ["setosa", "virginica"]
    assert cli("predict", str(iris), "new.csv", "--out", "p.csv").status == 0
    rows = list(csv.DictReader(Path("p.csv").read_text().splitlines()))
    assert len(rows) == 2
    assert sum(float(v) for k, v in rows[0].items() if k.startswith("probability ")) == pytest.approx(1)
    (iris / "report.html").unlink()
    assert cli("report", str(iris)).status == 0
    assert (iris / "report.html").stat().st_size > 10_000


def test_predictions_write_over_nothing_that_was_not_offered(cli: Cli, iris: Path) -> None:
    table = "sepal length (cm),sepal width (cm),petal length (cm),petal width (cm)\n5.1,3.5,1.4,0.2\n"
    Path("new.csv").write_text(table)
    before = (iris / "run.json").read_bytes()
    for out, said in (
        ("new.csv", "is the input new.csv and is not overwritten"),
        (str(iris / "run.json"), "is a file of the run"),
        (str(iris / "model" / "predictions.csv"), "is a file of the run"),
    ):
        for more in ((), ("--overwrite",)):
            answer = cli("predict", str(iris), "new.csv", "--out", out, *more)
            assert answer.status == 2
            assert said in answer.said
    assert Path("new.csv").read_text() == table
    assert (iris / "run.json").read_bytes() == before
    assert cli("predict", str(iris), "new.csv", "--out", "p.csv").status == 0
    answer = cli("predict", str(iris), "new.csv", "--out", "p.csv")
    assert answer.status == 2
    assert "p.csv already exists. Choose another name, or add --overwrite." in answer.said
    assert cli("predict", str(iris), "new.csv", "--out", "p.csv", "--overwrite").status == 0


def test_labels_steer_neither_a_spreadsheet_nor_the_terminal(cli: Cli) -> None:
    Path("t.csv").write_text(
        "x,y\n" + "".join(f"{i / 4},{label}\n" for i in range(20) for label in ("=cmd|1", "\x1b[31mred"))
    )
    words = ("epochs=1", "tensorboard=false", "model.hidden_dims=2", "--out", "r")
    trained, checked = cli("train", "mlp", "t.csv", "target=y", *words), cli("check", "mlp", "t.csv", "target=y")
    predicted = cli("predict", "r", "t.csv")
    written = cli("predict", "r", "t.csv", "--out", "p.csv")
    for answer in (trained, checked, predicted, written):
        assert answer.status == 0, answer.err
        assert "\x1b" not in answer.out + answer.err
    assert "\\x1b[31mred" in checked.out
    assert "apostrophe" in written.said
    rows = list(csv.DictReader(Path("p.csv").read_text().splitlines()))
    assert {row["y"] for row in rows} <= {"'=cmd|1", "\\x1b[31mred"}


def test_evaluating_other_data_uses_the_runs_own_preprocessing(cli: Cli) -> None:
    rows = "".join(f"{i / 4},{'b' if i > 30 else 'a'}\n" for i in range(60))
    Path("t.csv").write_text("x,y\n" + rows)
    assert cli("train", "logistic", "t.csv", "target=y", "epochs=60", "lr=0.3", "--out", "r").status == 0
    Path("far.csv").write_text("x,y\n" + "1000,b\n-1000,a\n" * 5)
    assert json.loads(cli("evaluate", "r", "far.csv", "--json").out)["accuracy"]["value"] == 1.0
    Path("bad.csv").write_text("x,y\n1,c\n")
    answer = cli("evaluate", "r", "bad.csv")
    assert answer.status == 2
    assert "'c'" in answer.said


def test_the_reason_for_a_missing_interval_is_printed_once(cli: Cli) -> None:
    rows = "".join(f"{2 + i % 5},{i % 7}\n" for i in range(140))
    Path("t.csv").write_text("load,other\n" + rows)
    typed = ("forecast=load", "ignore=other", "horizon=4", "lookback=6", "epochs=1")
    said = cli("train", "gru", "t.csv", *typed, "--out", "r").out
    assert "(17 examples, no interval: 17 windows; 64 are needed because neighbors overlap); " in said
    notes = [line for line in cli("evaluate", "r").err.splitlines() if line.startswith("note:")]
    assert notes == ["note: RMSE, MAE, MASE, loss: no interval: 17 windows; 64 are needed because neighbors overlap"]


@pytest.mark.parametrize(("model", "name"), [("mlp", "iris"), ("linear", "diabetes"), ("lenet5-modern", "digits")])
def test_a_named_set_goes_through_the_runs_own_preprocessing(cli: Cli, model: str, name: str) -> None:
    assert cli("train", model, name, "epochs=2", "tensorboard=false", "--out", "r").status == 0
    own, named = (json.loads(cli("evaluate", "r", *words, "--json").out) for words in ([], [name]))
    for key, metric in own.items():
        assert named[key]["value"] == pytest.approx(metric["value"], rel=1e-5), key


def test_a_named_set_of_another_kind_is_rejected(cli: Cli, iris: Path) -> None:
    for name, said in (
        ("digits", "does not match the training data"),
        ("diabetes", "does not match the training data"),
        ("wine", ""),
    ):
        answer = cli("evaluate", str(iris), name)
        assert answer.status == 2
        assert said in answer.said


def test_an_unknown_category_is_told(cli: Cli) -> None:
    Path("t.csv").write_text("x,y\n" + "red,a\nblue,b\n" * 30)
    assert cli("train", "mlp", "t.csv", "target=y", "epochs=2", "--out", "r", "tensorboard=false").status == 0
    Path("new.csv").write_text("x\ngreen\n")
    answer = cli("predict", "r", "new.csv")
    assert answer.status == 0
    assert "note:" in answer.err
    assert "1 cell of new.csv" in answer.said


def test_photographs_from_folder_to_prediction(cli: Cli) -> None:
    for kind, colour in (("sea", (0, 0, 200)), ("sun", (250, 220, 0))):
        for i in range(20):
            path = Path("p", kind, f"{i}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 30), tuple(c + i % 5 for c in colour)).save(path)  # type: ignore[arg-type]
    answer = cli("train", "simplecnn", "p", "image_size=16", "epochs=4", "flip=true", "--out", "r", "tensorboard=false")
    assert answer.status == 0
    predicted = cutaway.load("r").predict([Path("p/sea/3.png"), Image.new("RGB", (9, 9), (250, 220, 0))])
    assert [row["class"] for row in predicted] == ["sea", "sun"]


def test_python_says_the_same_as_the_command_line(cli: Cli, iris: Path) -> None:
    run = cutaway.train("mlp", "iris", epochs=3, tensorboard=False, out="again")
    assert (run.folder / "model/model.safetensors").read_bytes() == (iris / "model/model.safetensors").read_bytes()
    accuracy = run.evaluate()["accuracy"]
    assert accuracy.low <= accuracy.value <= accuracy.high
    with pytest.raises(cutaway.CutawayError, match="no model 'mpl'"):
        cutaway.train("mpl", "iris")


def test_a_run_that_stopped_early_can_be_resumed(cli: Cli) -> None:
    words = ("epochs=1000", "patience=2", "lr=0", "tensorboard=false", "--out", "r")
    assert cli("train", "mlp", "iris", *words).status == 0
    before = json.loads(Path("r/run.json").read_text())
    assert before["epochs_done"] == 3
    assert cli("train", "--resume", "r", "threads=1").status == 0  # no longer than before
    assert json.loads(Path("r/run.json").read_text())["epochs_done"] == 3
    assert cli("train", "--resume", "r", "patience=5").status == 0
    after = json.loads(Path("r/run.json").read_text())
    assert after["epochs_done"] == 6
    assert after["settings"]["patience"] == 5


def test_a_folder_named_like_a_data_set_does_not_take_its_place(cli: Cli) -> None:
    Path("iris").mkdir()
    assert cli("train", "mlp", "iris", "epochs=1", "tensorboard=false", "--out", "r").status == 0
    assert cli("evaluate", "r").status == 0
    assert cli("train", "--resume", "r", "epochs=2").status == 0


def test_data_that_changed_is_rejected(cli: Cli) -> None:
    Path("t.csv").write_text("x,y\n" + "1,a\n2,b\n" * 30)
    assert cli("train", "mlp", "t.csv", "target=y", "epochs=1", "--out", "r", "tensorboard=false").status == 0
    Path("t.csv").write_text("x,y\n" + "1,a\n3,b\n" * 30)
    for words in (("evaluate", "r"), ("train", "--resume", "r", "epochs=2")):
        answer = cli(*words)
        assert answer.status == 2
        assert "The content of t.csv has changed since this run was trained" in answer.said


def test_check_shows_everything_and_writes_nothing(cli: Cli) -> None:
    before = set(Path().rglob("*"))
    answer = cli("check", "lenet5-modern", "digits")
    assert answer.status == 0
    for word in ("image, classification", "32", "a step", "memory", "No problems found"):
        assert word in answer.out.replace("steps of", "a step"), word
    document = json.loads(cli("check", "mlp", "iris", "--json").out)
    assert document["cost"]["memory"] > 0
    assert [column["name"] for column in document["data"]["columns"]]
    assert set(Path().rglob("*")) == before


def test_check_of_several_processes_says_what_plan_is_for(cli: Cli) -> None:
    answer = cli("check", "mlp", "iris", "processes=2", "parallel=fsdp")
    assert answer.status == 0
    assert "`cutaway plan mlp iris processes=2 parallel=fsdp`" in answer.said
    assert "a step" in answer.out.replace("steps of", "a step")


def test_data_lists_the_named_sets(cli: Cli) -> None:
    names = [row["name"] for row in json.loads(cli("data", "--json").out)]
    assert {"digits", "iris", "xor", "mnist", "cifar10", "california_housing", "titanic", "mnist1d"} <= set(names)
    assert "CC BY" in cli("data", "iris").out


@pytest.mark.slow
def test_ctrl_c_writes_a_checkpoint_and_leaves_with_130(cli: Cli, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "cutaway", "train", "mlp", "moons", "epochs=100000", "--out", "r"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        if (tmp_path / "r/checkpoints/last.safetensors").exists():
            break
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "cutaway train --resume r" in said
    assert "Traceback" not in said
    about = json.loads((tmp_path / "r/run.json").read_text())
    assert about["status"] == "interrupted"
    done = about["epochs_done"]
    assert cli("train", "--resume", "r", f"epochs={done + 1}").status == 0
    assert json.loads((tmp_path / "r/run.json").read_text())["epochs_done"] == done + 1
    assert (tmp_path / "r/report.html").exists()


def test_arguments_are_classified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a=b").mkdir()
    assert parse_words(["mlp", "a=b", "lr=1", "lr=2"], names=2) == (["mlp", "a=b"], {"lr": "2"})
    assert flatten({"a": 1, "model": {"b": [1, 2]}}) == {"a": 1, "model.b": (1, 2)}
    with pytest.raises(SettingError, match="key=value"):
        parse_words(["a", "b", "c"], names=2)
    Path("bad.toml").write_text("epochs 3")
    with pytest.raises(FileError, match="not TOML"):
        parse_words(["@bad.toml"], names=0)


def test_help_is_for_people(cli: Cli) -> None:
    answer = cli("--help")
    assert answer.status == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "lr=0.001" in cli("train", "--help").out
    assert cli("--version").out.startswith("cutaway ")
    assert cli("train", "--nonsense").status == 2


@pytest.mark.parametrize("screen", [True, False])
def test_open_opens_the_page_where_there_is_a_browser(
    cli: Cli, iris: Path, monkeypatch: pytest.MonkeyPatch, screen: bool
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    if screen:
        monkeypatch.setenv("DISPLAY", ":0")
    pages = [iris / "report.html", iris / "inspect.html", iris / "report.html"]
    for words in (
        ("report", iris, "--open"),
        ("inspect", iris, "--view", "network", "--open"),
        ("train", "--resume", iris, "epochs=4", "--open"),
    ):
        answer = cli(*words)
        assert answer.status == 0
        assert ("No browser found" in answer.said) != screen
    assert opened == ([page.resolve().as_uri() for page in pages] if screen else [])
