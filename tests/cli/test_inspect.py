"""cutaway inspect, and cutaway.look: the same in Python."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

import cutaway
from cutaway.apps.cli import main
from cutaway.core.errors import DataError, FileError, ModelError, SettingError, UnknownName
from cutaway.views.registry import VIEWS

from .conftest import Answer

Cli = Callable[..., Answer]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on handwritten digits, with weights kept on the way."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    cutaway.train("lenet5-modern", "digits", epochs=2, snapshots=3, tensorboard=False, out=folder)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """The run, where it may be written to."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def views_of(page: Path) -> list[str]:
    """The views of a page that was written."""
    text = page.read_text(encoding="utf-8")
    found = text.partition('<script type="application/json" id="page">')[2].partition("</script>")[0]
    return [view["id"] for view in json.loads(found)["views"]]


# --- the command ----------------------------------------------------------------------------------------------------


def test_a_run_opens_with_all_applicable_views_and_is_overwritten(cli: Cli, run: Path) -> None:
    answer = cli("inspect", run)
    assert (answer.status, answer.err) == (0, "")
    page, *lines = answer.out.splitlines()
    assert Path(page) == run / "inspect.html"
    names = [line.split()[0] for line in lines if not line.startswith(" ")]  # what is long goes on below
    assert {"network", "curves", "results", "gradients", "time"} <= set(names)
    assert names == [name for name in VIEWS if name in names]
    assert all(len(line) <= 80 for line in lines)
    assert views_of(run / "inspect.html") == ["opened", *names]
    assert cli("inspect", run, "--view", "network").status == 0
    assert views_of(run / "inspect.html") == ["opened", "network"]


def test_a_preset_opens_untrained_and_says_that_its_examples_are_random(cli: Cli, tmp_path: Path) -> None:
    answer = cli("inspect", "lenet5-modern", "--view", "network", "model.num_classes=3")
    assert answer.status == 0
    assert "random numbers" in answer.err
    assert answer.out.splitlines()[0] == "inspect-lenet5-modern.html"
    page = json.loads(cli("inspect", "lenet5-modern", "--view", "network", "model.num_classes=3", "--json").out)
    assert page["views"][1]["table"]["rows"][-1][2] == "3"


def test_files_are_shown_as_predict_takes_them(cli: Cli, run: Path, tmp_path: Path) -> None:
    for i in range(2):
        Image.new("L", (8, 8), 40 + 90 * i).save(tmp_path / f"{i}.png")
    page = json.loads(cli("inspect", run, tmp_path / "0.png", tmp_path / "1.png", "--view", "network", "--json").out)
    head = page["views"][0]
    assert "2 examples" in head["says"]
    assert [Path(row[0]).name for row in head["table"]["rows"]] == ["0.png", "1.png"]
    assert all("," in row[1] for row in head["table"]["rows"])  # a class and how sure that is


def test_pictures_are_shown_to_a_network_that_has_met_none(cli: Cli, tmp_path: Path) -> None:
    Image.new("RGB", (60, 40), (200, 30, 30)).save(tmp_path / "red.jpg")
    answer = cli("inspect", "resnet20", "red.jpg", "--view", "network")
    assert answer.status == 0
    assert "cropped to 32 × 32" in answer.said


def test_a_photo_is_filtered_without_a_model(cli: Cli, tmp_path: Path) -> None:
    Image.linear_gradient("L").save(tmp_path / "ramp.png")  # from 0 at the top to 255 at the bottom, 256 rows
    answer = cli("inspect", "ramp.png", "--view", "filters", "kernel=sobel")
    assert (answer.status, answer.err) == (0, "")
    first, *lines = answer.out.splitlines()
    assert first == "inspect-ramp.html"
    assert "256×256 pixels in gray" in lines[0]
    assert all(len(line) <= 80 for line in lines)
    assert views_of(tmp_path / "inspect-ramp.html") == ["opened", "filters"]
    page = json.loads(cli("inspect", "ramp.png", "--view", "filters", "kernel=sobel", "--json").out)
    rows = {row[0]: row[1:] for row in page["views"][1]["table"]["rows"]}
    assert rows["horizontal derivative x"] == [0, 0, 0]
    assert rows["vertical derivative y"][1] == pytest.approx(8 / 255, rel=1e-3)  # 8 times the slope
    for words, says in (
        (("gone.png",), "There is no image 'gone.png'"),
        (("ramp.png", "--view", "filters", "kernel=sobl"), "Similar: sobel"),
        (("ramp.png", "--view", "curves"), "does not apply to ramp.png"),
    ):
        wrong = cli("inspect", *words)
        assert wrong.status == 2
        assert says in wrong.said
        assert "Traceback" not in wrong.said


def test_words_can_stand_behind_the_views(cli: Cli, run: Path) -> None:
    for words in (
        ("--view", "filters", "features", run),
        ("--view", "filters,features", run),
        (run, "--view", "filters", "features", "features.layer=c3"),
        (run, "--view", "filters", "--view", "features"),
    ):
        page = json.loads(cli("inspect", "--json", *words).out)
        assert [view["id"] for view in page["views"]] == ["opened", "filters", "features"]


def test_options_go_to_the_views_that_have_them(cli: Cli, run: Path) -> None:
    page = json.loads(cli("inspect", run, "--view", "time", "of=features", "layer=c3", "moments=2", "--json").out)
    (choice,) = page["views"][1]["drawings"]
    assert choice["options"][0]["name"] == "update 0"
    assert len(choice["options"]) == 2


def test_a_model_folder_and_a_page_of_ones_own(cli: Cli, run: Path, tmp_path: Path) -> None:
    assert cli("inspect", run / "model", "--view", "network", "--out", "a/b.html").status == 0
    assert views_of(tmp_path / "a" / "b.html") == ["opened", "network"]
    again = cli("inspect", run / "model", "--view", "network", "--out", "a/b.html")
    assert again.status == 2
    assert "b.html already exists. Choose another name, or add --overwrite." in again.said
    assert cli("inspect", run / "model", "--view", "network", "--out", "a/b.html", "--overwrite").status == 0


BAD = {
    "nothing": ((), "Missing model"),
    "no such model": (("lenet55",), "Similar: lenet5"),
    "no such folder": (("runs/nix",), "no run, folder or model 'runs/nix'"),
    "an empty folder": (("empty",), "is not a run or a model folder"),
    "a text file": (("notes.txt",), "is a file, not the folder of a run"),
    "a view that is none": (("lenet5-modern", "--view", "netwrok"), "Similar: network"),
    "a view that does not suit": (("lenet5-modern", "--view", "curves"), "does not apply to lenet5-modern"),
    "an option that is none": (("lenet5-modern", "--view", "network", "layr=c1"), "no option of the view network"),
    "an option of another view": (("RUN", "--view", "network", "of=filters"), "The option belongs to: time"),
    "a setting that is none": (("lenet5-modern", "model.layers=3"), "no setting of lenet5-modern named 'layers'"),
    "a setting of a run": (
        ("RUN", "model.num_classes=3"),
        "only an untrained preset takes model settings, and this is a model with weights. Leave it out.",
    ),
    "a file that is not there": (("RUN", "seven.png"), "seven.png"),
    "a file that is no picture": (("RUN", "notes.txt"), "notes.txt"),
    "a text for a preset": (("gpt2", "Once upon a time"), "no tokenizer"),
    "a table for a preset": (("mlp", "notes.txt"), "no column encoders"),
    "a page over another file": (("lenet5-modern", "--view", "network", "--out", "notes.txt"), "already exists"),
    "a folder for a page": (("lenet5-modern", "--view", "network", "--out", "empty"), "is a folder"),
    "moments that cannot be": (("RUN", "--view", "time", "moments=0"), "from 2 to 24"),
    "a view over time that is none": (("RUN", "--view", "time", "of=network"), "must be one of"),
}


@pytest.mark.parametrize(("words", "said"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_rejected_in_one_paragraph(
    cli: Cli, run: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("Buy milk.\n")
    answer = cli("inspect", *(run if word == "RUN" else word for word in words))
    assert (answer.status, answer.out) == (2, "")
    assert said in answer.said
    assert answer.err.startswith("cutaway: ")
    assert (tmp_path / "notes.txt").read_text() == "Buy milk.\n"
    assert not list(tmp_path.glob("inspect-*.html"))


def test_help_lists_every_view_without_torch() -> None:
    code = (
        "import sys, cutaway.apps.cli as c; status = c.main(['inspect', '--help']);"
        "sys.exit(status or ('torch' in sys.modules and 'torch was imported'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[0] for line in lines if line.startswith("  ") and line[2:].split(" ")[0] in VIEWS] == [*VIEWS]


@pytest.mark.parametrize("words", [("inspect", "--help"), ("train", "--help", "all")])
def test_help_is_there_at_once(words: tuple[str, ...]) -> None:
    def seconds(*words: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], capture_output=True, check=True)
        return time.perf_counter() - start

    helped = min(seconds("-m", "cutaway", *words) for _ in range(3))
    assert helped < 0.4 * seconds("-c", "import torch")


@pytest.mark.parametrize("name", VIEWS)
def test_what_help_says_is_what_the_view_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    view = VIEWS[name]
    assert view.says[1:] in said
    assert all(f"{option}= {what}" in said for option, what in view.options.items())


def test_usage_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "cutaway inspect runs/lenet5-modern-digits-1" in capsys.readouterr().out


# --- in Python ------------------------------------------------------------------------------------------------------


def test_look_at_a_model_at_hand_with_its_inputs() -> None:
    model = cutaway.create_model("lenet5-modern").train()
    look = cutaway.look(model, torch.zeros(3, 1, 32, 32), view=["network", "features"])
    assert [view["id"] for view in look.views] == ["network", "features"]
    assert "3 " in look.page["views"][0]["says"]
    assert look["network"]["table"]["rows"]
    assert json.loads(look.to_json()) == json.loads(json.dumps(look.page))
    assert "network, features" in repr(look)
    with pytest.raises(UnknownName, match="on this page"):
        look["curves"]


def test_a_run_whose_document_is_another_is_rejected(cli: Cli, run: Path) -> None:
    (run / "run.json").write_text("[]", encoding="utf-8")
    answer = cli("inspect", str(run))
    assert answer.status == 2
    assert "run.json" in answer.said


def test_a_model_in_training_is_left_in_training() -> None:
    model = cutaway.create_model("lenet5-modern").train()
    model.c1.eval()
    cutaway.look(model, torch.zeros(3, 1, 32, 32), view="features")
    assert model.training
    assert model.c3.training
    assert not model.c1.training


def test_look_takes_runs_and_paths_and_options(run: Path, tmp_path: Path) -> None:
    by_path = cutaway.look(run, view="time", of="filters", moments=2)
    by_run = cutaway.look(cutaway.load(run), view="time", of="filters", moments=2)
    assert by_path.page == by_run.page
    assert by_path.save(tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_look_rejects_what_is_none(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not known: pass an example batch"):
        cutaway.look(torch.nn.Linear(2, 2))
    with pytest.raises(DataError, match="tensors"):
        cutaway.look(cutaway.create_model("lenet5-modern"), "seven.png")
    with pytest.raises(SettingError, match="Leave it out"):
        cutaway.look(cutaway.create_model("lenet5-modern"), **{"model.num_classes": 2})
    with pytest.raises(SettingError, match="Invalid view=3: must be the name of a view or a list of names"):
        cutaway.look("lenet5-modern", view=3)  # type: ignore[arg-type]
    for opened in (cutaway.Run, cutaway.Vectors.load, cutaway.load):
        with pytest.raises(FileError, match=r"not of type int\.$"):
            opened(3)
    (tmp_path / "letter.txt").write_text("Dear all")
    with pytest.raises(FileError, match="already exists"):
        cutaway.look("lenet5-modern", view="network").save(tmp_path / "letter.txt")


def test_a_preset_looked_at_twice_is_the_same_and_the_random_state_stays() -> None:
    before = torch.get_rng_state()
    first, second = (cutaway.look("mlp", view=["network", "gradients"]) for _ in range(2))
    assert first.page == second.page
    assert torch.equal(torch.get_rng_state(), before)


def test_no_command_imports_torch_for_its_help() -> None:
    code = (
        "import contextlib, io, sys, cutaway.apps.cli as c\n"
        "for name in c.COMMANDS:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        c.main([name, '--help'])\n"
        "        c.main([name, '--help', 'all'])\n"
        "    if 'torch' in sys.modules: sys.exit(f'{name} --help imports torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
