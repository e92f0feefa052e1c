"""What is tried in the studio is what `predict` and `generate` say, and what is saved is a run like any other."""

from __future__ import annotations

import csv
import io
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import cutaway
from cutaway.apps.cli import main
from cutaway.apps.studio.learner import reproduction_code, save
from cutaway.apps.studio.setup import Opening, build_side, compatible_models
from cutaway.apps.studio.trainer import LiveTrainer
from cutaway.apps.studio.viewer import input_form, run_input
from cutaway.core.errors import SettingError
from cutaway.core.files import read_json
from cutaway.inference.thought_search import Method
from cutaway.models.registry import presets

BOOK = "the cat sat on the mat and the dog sat on the log. " * 60


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def opened(opening: Opening, steps: int = 12) -> LiveTrainer:
    live = LiveTrainer(build_side(opening), Path("unused"))
    while live.step < steps:
        live.advance()
    return live


def weights(live: LiveTrainer) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in live.trainer.model.state_dict().values()]


def trying(live: LiveTrainer, **asked: Any) -> dict[str, Any]:
    from cutaway.apps.studio.setup import Built

    return run_input(Built(live.ready), asked, Path())


def test_an_image_is_said_as_predict_says_it() -> None:
    opening = Opening("mlp", "digits", {"model.hidden_dims": "16", "max_samples": "200", "schedule": "constant"})
    live = opened(opening)
    image = Image.new("L", (90, 140), 0)
    image.paste(255, (30, 20, 60, 120))
    image.save("image-7.png")
    found = trying(live, image=7)
    folder = save(live, opening, "")
    (row,) = cutaway.load(folder).predict(["image-7.png"])
    assert found["said"] == row["class"]
    assert found["answers"][0]["name"] == row["class"]
    assert found["answers"][0]["probability"] == pytest.approx(row["probability"], rel=1e-3)
    assert len(found["answers"]) == 10
    assert found["seen"].startswith("data:image/png;base64,")
    assert trying(live) == {}
    assert trying(live, image=99) == {}


def test_a_text_is_a_text_and_never_a_path(tmp_path: Path) -> None:
    rows = [["a fine film", "good"], ["a dull film", "bad"], ["fine and funny", "good"], ["dull and long", "bad"]] * 20
    with Path("reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "label"], *rows])
    Path("secret.txt").write_text("fine fine fine")
    given = {"text": "text", "target": "label", "model.dim": "8", "model.filters": "4", "batch_size": "8"}
    live = opened(Opening("textcnn", "reviews.csv", given), 5)
    found = trying(live, text="a fine film")
    assert {answer["name"] for answer in found["answers"]} == {"good", "bad"}
    assert sum(answer["probability"] for answer in found["answers"]) == pytest.approx(1, abs=1e-3)
    assert trying(live, text="secret.txt") != trying(live, text="fine fine fine"), "no file is opened"
    assert trying(live, text="   ") == {}


def test_the_next_token_follows_temperature_and_the_samples_are_those_of_generate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("book.txt").write_text(BOOK)
    opening = Opening("gru", "book.txt", {"model.hidden_dim": "16", "length": "16", "batch_size": "8", "lr": "0.01"})
    live = opened(opening, 25)
    before = weights(live)
    cold, hot = (trying(live, text="the ", temperature=t, count=20) for t in (0.1, 2.0))
    assert cold["answers"][0]["probability"] > hot["answers"][0]["probability"]
    assert len(hot["samples"]) == 3
    assert len(trying(live, text="the ", temperature=0, count=20)["samples"]) == 1
    assert trying(live, text="", temperature=1.0, count=5)["answers"]
    assert trying(live, text="\N{SNOWMAN}", temperature=1.0, count=5)["notes"]
    assert "error" in trying(live, text="a", temperature=99.0)
    assert all(map(torch.equal, before, weights(live))), "trying changes nothing"
    folder = save(live, opening, "")
    assert main(["generate", str(folder), "--prompt", "the ", "--count", "20", "--temperature", "2"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == ("the " + hot["samples"][0]).rstrip("\n")


def test_gaps_are_filled_and_pairs_are_answered() -> None:
    Path("book.txt").write_text(BOOK)
    small = {"model.layers": "1", "model.heads": "1", "model.dim": "8", "length": "16", "batch_size": "4"}
    masked = opened(Opening("bert-base-uncased", "book.txt", small), 2)
    assert len(trying(masked, text="the [MASK] sat")["answers"]) >= 5
    assert "[MASK]" in trying(masked, text="the cat")["error"]
    Path("pairs.tsv").write_text("".join(f"{i}\t{i}{i}\n" for i in range(60)))
    pairs = opened(Opening("seq2seq-gru", "pairs.tsv", {"pairs": "true", "model.hidden_dim": "8"}), 2)
    Path("5").write_text("a file")
    assert isinstance(trying(pairs, text="5")["said"], str)
    assert input_form(build_side(Opening("gcn", "karate", {}))) is None


def test_a_problem_is_solved_as_the_run_solves_it_and_one_without_a_solution_is_said() -> None:
    small = {"model.layers": "1", "model.heads": "1", "model.dim": "8", "batch_size": "8", "max_samples": "16"}
    opening = Opening("gpt2", "game24", small)
    live = opened(opening, 2)
    assert input_form(build_side(opening))["kind"] == "problem"
    before = weights(live)
    found = trying(live, text=" 13 10,9 4")
    assert all(map(torch.equal, before, weights(live))), "trying changes nothing"
    assert found["drawing"]["question"] == "4 9 10 13 => 24"
    run = cutaway.load(save(live, opening, ""))
    method = Method("tree", breadth=3, samples=8, budget=30)
    (expected,) = run.think(["4 9 10 13"], method)
    assert [node["text"] for node in found["drawing"]["nodes"]] == [
        t.text.strip() or "(the end)" for t in expected.thoughts
    ]
    assert found["said"] == expected.solution.strip("\n")
    assert found["notes"][0].startswith(("Not solved", "No solution"))
    assert "24 cannot be made of 1 1 1 1" in trying(live, text="1 1 1 1")["error"]
    assert "is not a problem of this kind" in trying(live, text="hello")["error"]
    assert trying(live, text="  ") == {}
    assert {"gpt2", "lstm"} <= set(compatible_models(live.ready, list(presets().values())))
    assert "bert-base-uncased" not in compatible_models(live.ready, list(presets().values()))


def test_a_network_without_a_cache_says_that_it_cannot_search() -> None:
    live = opened(Opening("gru", "addition", {"model.hidden_dim": "8", "max_samples": "64"}), 1)
    assert "has no shareable key-value cache" in trying(live, text="128+367")["error"]


def test_what_is_saved_is_a_whole_run_and_training_goes_on_as_if_it_was_not() -> None:
    opening = Opening("mlp", "moons", {"model.hidden_dims": "4", "count": "200", "model.dropout": "0.3"})
    alone, saved = opened(opening, 30), opened(opening, 17)
    before = weights(saved)
    folder = save(saved, opening, "")
    assert folder == Path("runs/mlp-moons-1")
    assert all(map(torch.equal, before, weights(saved)))
    while saved.step < 30:
        saved.advance()
    assert all(map(torch.equal, weights(alone), weights(saved)))
    run = cutaway.load(folder)
    assert all(map(torch.equal, before, run.model.state_dict().values()))
    assert 0 <= run.evaluate()["accuracy"].value <= 1
    assert (folder / "report.html").is_file()
    about = read_json(folder / "run.json")
    assert about["status"] == "finished"
    assert about["studio"] == {"step": 17, "changes": []}
    for words in (["evaluate", folder], ["report", folder], ["inspect", folder, "--out", "x.html"]):
        assert main([str(word) for word in words]) == 0
    assert main(["train", "--resume", str(folder), f"epochs={about['settings']['epochs'] + 1}"]) == 0
    assert save(saved, opening, "") == Path("runs/mlp-moons-2")


def test_the_command_trains_the_same_weights() -> None:
    opening = Opening("mlp", "moons", {"model.hidden_dims": "4", "count": "200", "lr": "0.02", "seed": "3"})
    live = opened(opening, 10)
    again = reproduction_code(live, opening, "moons", "")
    words = shlex.split(again["command"])
    assert main([*words[1:], "--out", "same"]) == 0
    kept = cutaway.training.checkpoint.load_weights(Path("same/checkpoints/last.safetensors"))
    own = live.trainer.model.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in kept.items())
    compile(again["python"], "python", "exec")
    live.change("lr", "0.1")
    again = reproduction_code(live, opening, "moons", "cutaway studio '#data=moons'")
    assert again["command"] == "cutaway studio '#data=moons'"
    assert "by hand" in again["says"]


def test_a_file_that_was_handed_over_is_kept_with_the_run() -> None:
    Path("away").mkdir()
    path = Path("away/own.csv")
    path.write_text("a,b,more\n" + "".join(f"{i % 7},{i % 5},{'yes' if i % 7 > i % 5 else 'no'}\n" for i in range(90)))
    opening = Opening("mlp", str(path), {"target": "more", "model.hidden_dims": "3"}, uploaded="own.csv")
    folder = save(opened(opening, 3), opening, "")
    path.unlink()
    assert cutaway.load(folder).evaluate()["accuracy"].value >= 0


def test_nothing_is_saved_before_a_step() -> None:
    opening = Opening("mlp", "xor", {})
    with pytest.raises(SettingError, match="The model is not trained yet"):
        save(opened(opening, 0), opening, "")
    assert not Path("runs").exists()


def test_what_cannot_be_written_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = Opening("mlp", "xor", {})
    live = opened(opening, 2)
    before = weights(live)

    def fails(*words: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("cutaway.apps.studio.learner.write_csv", fails)
    with pytest.raises(OSError, match="full"):
        save(live, opening, "")
    assert list(Path("runs").iterdir()) == []
    assert all(map(torch.equal, before, weights(live)))


def test_an_image_of_any_kind_is_kept_as_one_that_is_read(tmp_path: Path) -> None:
    from cutaway.apps.studio.choices import _save_as_png

    for mode in ("1", "L", "P", "RGBA", "CMYK", "I;16"):
        buffer = io.BytesIO()
        Image.new(mode, (5, 9)).save(buffer, format="TIFF")
        _save_as_png(buffer.getvalue(), tmp_path / "x.png")
        assert Image.open(tmp_path / "x.png").size == (5, 9)
    with pytest.raises(cutaway.CutawayError, match="not a readable image"):
        _save_as_png(b"MZ", tmp_path / "y.png")
    assert not (tmp_path / "y.png").exists()
