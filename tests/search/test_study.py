"""A search as a whole: the same seed, kills, several processes, limits, the winner, and what cannot be."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cutaway
from cutaway.core.errors import CutawayError, FileError, SettingError
from cutaway.experiments import experiment
from cutaway.experiments.experiment import ExperimentInterrupted
from cutaway.experiments.search import study as study_module
from cutaway.experiments.search.result import Search, SearchProgress
from cutaway.experiments.search.study import drop_unused_settings, search
from cutaway.models.registry import preset

from .conftest import FIXED, SPACE, Stop, Stopping, alike

Small = Callable[..., Search]


def resumed(folder: Path, **given: Any) -> Search:
    return search(None, None, given, resume=folder, progress=SearchProgress(shown=False))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of four trials that nobody stopped."""
    folder = tmp_path_factory.mktemp("four") / "search"
    settings = {**FIXED, "trials": 4}
    return search("mlp", "iris", settings, space=SPACE, out=folder, progress=SearchProgress(shown=False)).folder


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2", "evolution"])
def test_the_same_seed_gives_the_same_trials(small: Small, four: Path, sampler: str) -> None:
    if sampler == "tpe":  # the one that is usual
        one, two = Search(four), small("two")
    else:
        more = {"trials": 3, **({"population": 2} if sampler in ("nsga2", "evolution") else {})}
        one, two = (small(name, sampler=sampler, **more) for name in ("one", "two"))
    assert alike(one) == alike(two)
    assert len(one.trials) == (4 if sampler == "tpe" else 3)
    if sampler == "random":
        other = small("other", sampler=sampler, seed=1, trials=1)
        assert other.trials[0]["lr"] != one.trials[0]["lr"]


def test_a_search_that_broke_off_goes_on_to_the_same_trials(small: Small, four: Path, tmp_path: Path) -> None:
    whole = Search(four)
    with pytest.raises(Stop):
        small("broken", Stopping(2))
    half = Search(tmp_path / "broken")
    assert len(half.trials) == 2
    before = half.trials
    again = resumed(tmp_path / "broken")
    assert again.trials[:2] == before
    assert alike(again) == alike(whole)
    assert again.run.about["best"] == whole.run.about["best"]


def test_a_search_is_stopped_within_a_trial(small: Small, four: Path, tmp_path: Path) -> None:
    count = 0

    class Pressed(SearchProgress):
        def epoch(self, number: int, epoch: int, score: float) -> None:
            nonlocal count
            count += 1
            if count == 5:  # in the third trial
                raise KeyboardInterrupt

    with pytest.raises(ExperimentInterrupted) as stop:
        small("stopped", Pressed(shown=False))
    assert stop.value.args == (tmp_path / "stopped",)
    assert stop.value.command == "search"
    assert len(Search(tmp_path / "stopped").trials) == 2
    assert (tmp_path / "stopped" / "report.html").is_file()
    assert alike(resumed(tmp_path / "stopped")) == alike(Search(four))
    assert not list((tmp_path / "stopped" / "trials").glob("*/checkpoints"))


TYPED = [
    "mlp",
    "iris",
    *(f"{key}={value}" for key, value in SPACE.items()),
    "epochs=2",
    "tensorboard=false",
    "threads=1",
]


def start(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "cutaway", "search", *TYPED, "pruner=none", *more, "--out", str(folder)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ})


@pytest.mark.slow
@pytest.mark.waits
def test_a_search_that_is_killed_loses_no_finished_trial(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    process = start(folder, "trials=60")
    deadline = time.monotonic() + 600  # of a machine that much else may run on
    found: list[dict[str, Any]] = []
    while len(found) < 3:
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.5)
        if (folder / "study.db").is_file() and (folder / "search.json").is_file():
            try:
                found = Search(folder).trials
            except FileError:  # its tables are being made
                continue
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = Search(folder).trials
    assert 3 <= len(before) < 60
    again = resumed(folder, trials=len(before) + 2)
    assert again.trials[: len(before)] == before
    assert len(again.trials) == len(before) + 2
    assert again.run.evaluate()["accuracy"].value >= 0


@pytest.mark.slow
@pytest.mark.waits
def test_two_processes_share_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    both = [start(folder, "trials=6") for _ in range(2)]
    errors = [process.communicate(timeout=300)[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    found = Search(folder)
    assert len(found.trials) == 6
    assert len({row["trial"] for row in found.trials}) == 6
    assert len({row["lr"] for row in found.trials}) == 6, "no draw is drawn twice"
    assert found.about["tested"] == [found.best and found.best["trial"]]
    assert found.run.about["status"] == "finished"


def test_a_trial_that_another_process_is_at_is_counted_and_left(small: Small, tmp_path: Path) -> None:
    from cutaway.training.run_folder import lock_run

    with pytest.raises(Stop):
        small("shared", Stopping(1), trials=2)
    half = Search(tmp_path / "shared")
    trial = half.study.ask()
    held = tmp_path / "shared" / "trials" / str(trial.number)
    held.mkdir(parents=True)
    with lock_run(held):
        waiting = resumed(tmp_path / "shared")
        assert len(waiting.trials) == 1
        with pytest.raises(FileError, match="no best run yet"):
            _ = waiting.run
    assert len(resumed(tmp_path / "shared").trials) == 2


# --- the winner -------------------------------------------------------------------------------------------------------


def test_the_winner_is_a_run_and_the_test_split_was_opened_for_it_alone(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("a trial has opened the test split")

        def __len__(self) -> int:
            return 1

    opened = experiment.open_validated

    def without_test(*asked: Any) -> Any:
        data = opened(*asked)
        data.splits["test"] = Closed()  # type: ignore[assignment]
        return data

    monkeypatch.setattr(experiment, "open_validated", without_test)
    found = small()
    best = found.best
    assert best is not None
    assert found.run.about["best"]["value"] == best["accuracy"]
    assert found.run.about["parameters"] == best["parameters"]
    assert found.about["tested"] == [best["trial"]]
    for key in ("lr", "optimizer"):
        assert found.run.about["settings"][key] == best[key]
    layers = json.loads((found.folder / "best" / "layers.json").read_text())["rows"]
    assert sum(row["multiply_adds"] or 0 for row in layers) == best["macs"]
    assert found.run.evaluate()["accuracy"].value <= 1
    assert len(found.run.predict([dict.fromkeys(found.run.spec.columns, 1.0)])) == 1  # type: ignore[union-attr]


def test_a_search_that_is_over_is_not_tested_again(small: Small, four: Path, tmp_path: Path) -> None:
    shutil.copytree(four, tmp_path / "search")
    found = Search(tmp_path / "search")
    when = (found.folder / "best" / "evaluation.json").stat().st_mtime_ns
    again = small()  # the same, in the same folder
    assert again.trials == found.trials
    assert (found.folder / "best" / "evaluation.json").stat().st_mtime_ns == when


def test_more_trials_may_find_another_winner_and_that_is_said(small: Small) -> None:
    found = small(trials=1, sampler="random")
    more = resumed(found.folder, trials=7)
    assert len(more.trials) == 7
    assert more.best is not None
    assert more.best["trial"] != 0
    assert more.about["tested"] == [0, more.best["trial"]]
    assert "evaluated 2 times" in more.report.read_text(encoding="utf-8")


# --- limits, failures, pruning ----------------------------------------------------------------------------------------


def test_what_is_beyond_a_limit_is_rejected_untrained(small: Small) -> None:
    found = small(max_macs=60, trials=3)  # 4 features and 3 classes: 7 for each hidden unit
    trained = [row for row in found.trials if row["state"] == "finished"]
    rejected = [row for row in found.trials if row["state"] == "rejected"]
    assert len(trained) == 3
    assert rejected
    assert all(row["macs"] == 7 * row["model.hidden_dims"] for row in found.trials)
    assert all(row["macs"] <= 60 for row in trained)
    assert all(row["macs"] > 60 and row["epochs"] == 0 for row in rejected)
    assert rejected[0]["why"] == f"{rejected[0]['macs']} MACs are more than max_macs=60"
    few = small("few", max_parameters=60, trials=2)
    assert all((row["parameters"] <= 60) == (row["state"] == "finished") for row in few.trials)


def test_where_nothing_fits_it_is_said_what_the_smallest_has(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_module, "MAX_REJECTED_DRAWS", 8)
    with pytest.raises(
        SettingError, match=r"None of 8 samples can be trained: .* MACs are more than max_macs=5. The sma"
    ):
        small(max_macs=5)


def test_a_trial_whose_loss_is_no_number_is_told_and_counted(small: Small) -> None:
    space = {"lr": [1e-2, 1e30], "seed": "0..99"}
    found = small(space=space, optimizer="sgd", sampler="random", trials=6)
    states = {row["lr"]: row["state"] for row in found.trials}
    assert states == {"0.01": "finished", "1e+30": "diverged"}
    assert "not finite" in next(row["why"] for row in found.trials if row["state"] == "diverged")
    with pytest.raises(SettingError, match="No trial finished"):
        small("none", space={"seed": "0..9"}, lr=1e30, optimizer="sgd", trials=2)


def test_a_combination_that_cannot_be_is_rejected_and_another_is_drawn(small: Small) -> None:
    found = small(space={"average_epochs": "0,1", "ema": "0,0.9", "seed": "0..99"}, trials=5, sampler="random")
    both = [row for row in found.trials if (row["average_epochs"], row["ema"]) == ("1", "0.9")]
    assert both
    assert all(row["state"] == "rejected" and "two averages" in row["why"] for row in both)
    assert sum(row["state"] == "finished" for row in found.trials) == 5


def test_pruning_ends_what_is_behind(small: Small) -> None:
    found = small(
        space={"lr": "1e-7..1e-1:log"}, pruner="median", sampler="random", epochs=5, trials=11, optimizer="adam"
    )
    pruned = [row for row in found.trials if row["state"] == "pruned"]
    assert pruned
    assert all(1 < row["epochs"] < 5 for row in pruned)
    assert found.best is not None
    assert found.best["state"] == "finished"


def test_a_grid_tries_every_combination_and_ends(small: Small) -> None:
    space = {"lr": [0.001, 0.01], "optimizer": ["adam", "sgd"]}
    found = small(space=space, sampler="grid", trials=99)
    assert sorted((row["lr"], row["optimizer"]) for row in found.trials) == [
        ("0.001", "adam"), ("0.001", "sgd"), ("0.01", "adam"), ("0.01", "sgd"),
    ]  # fmt: skip


def test_what_an_optimizer_has_no_use_for_is_left_out() -> None:
    given = {"optimizer": "adam", "momentum": 0.5, "lr": 0.1, "warmup": 0.1}
    found = preset("mlp")
    assert drop_unused_settings(given, {"schedule": "constant"}, found) == {"optimizer": "adam", "lr": 0.1}
    with_momentum = {**given, "optimizer": "nesterov"}
    assert drop_unused_settings(with_momentum, {"schedule": "warmup-cosine"}, found) == with_momentum


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trials": 0}, "Invalid trials=0: must be at least 1"),
        ({"val": 0}, "Invalid val=0: a search needs a validation split"),
        ({"monitor": "f2"}, "Invalid monitor=f2"),
        ({"sampler": "tpr"}, "Invalid sampler=tpr: must be one of tpe"),
        (
            {"population": 5},
            "Invalid population=5: only for sampler=evolution or nsga2, and sampler is tpe. Leave it out",
        ),
        ({"sampler": "nsga2", "pruner": "median"}, "two metrics of sampler=nsga2"),
        ({"sampler": "darts"}, "Invalid space for sampler=darts"),
        ({"sampler": "grid"}, "must be a list of values"),
        ({"lr": 0.1}, "lr is both searched"),
        ({"lr": "0.1..0.2"}, "lr is given twice"),
        ({"space": {}}, "Empty search space"),
        ({"space": {"trials": "1..2"}}, "Invalid trials: a setting of the search itself cannot be searched"),
        ({"epoch": 3}, "no setting 'epoch'. Similar: epochs"),
    ],
)
def test_bad_input_is_one_sentence_with_the_way_out(small: Small, tmp_path: Path, given: Any, said: str) -> None:
    with pytest.raises(CutawayError, match=said):
        small(**given)
    assert not (tmp_path / "search" / "search.json").exists()


def test_a_model_and_data_are_needed() -> None:
    with pytest.raises(SettingError, match="Missing model, data or range"):
        cutaway.search("mlp", space=SPACE)
    with pytest.raises(CutawayError, match="X has no targets"):
        cutaway.search("mlp", [[1, 2]], space=SPACE)  # type: ignore[arg-type]


def test_only_more_trials_can_be_asked_of_a_search_that_goes_on(small: Small, tmp_path: Path) -> None:
    found = small(trials=1)
    for given, said in (
        ({"lr": "0.5..0.6"}, "Invalid lr=0.5..0.6: cannot change when a search is resumed"),
        ({"epochs": 9}, "Invalid epochs=9: cannot change when a search is resumed"),
        ({"sampler": "random"}, "Invalid sampler=random: cannot change when a search is resumed"),
    ):
        with pytest.raises(SettingError, match=said):
            resumed(found.folder, **given)
    with pytest.raises(SettingError, match="The model of this search is mlp, not linear"):
        search("linear", None, {}, resume=found.folder)
    with pytest.raises(SettingError, match=r"holds a search with another space: lr=0.001..0.1:log there, lr=none here"):
        small(space={"weight_decay": "0..0.1"})
    with pytest.raises(SettingError, match="another fixed: epochs=2 there, epochs=3 here"):
        small(epochs=3)


def test_what_is_no_search_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"is not a search: it has no search\.json"):
        resumed(tmp_path)
    with pytest.raises(FileError, match=r"There is no search '.*nowhere'"):
        resumed(tmp_path / "nowhere")
    (tmp_path / "search.json").write_text("{}")
    with pytest.raises(FileError, match=r"search\.json is not complete: it needs model, data"):
        resumed(tmp_path)


def test_nothing_in_a_folder_is_overwritten(small: Small, tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "mine.txt").write_text("mine")
    with pytest.raises(FileError, match="is not a search, and nothing in it is overwritten"):
        small()
    assert (tmp_path / "search" / "mine.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").write_text("a file, not a folder")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match=r"Cannot create runs/search-mlp-iris-1: Not a directory"):
        experiment.create_experiment_folder(None, "search", "mlp-iris", "search.json")
    with pytest.raises(FileError, match=r"Cannot create runs/mine: Not a directory"):
        experiment.create_experiment_folder("runs/mine", "search", "mlp-iris", "search.json")


def test_a_damaged_storage_is_named(small: Small, tmp_path: Path) -> None:
    found = small(trials=1)
    (found.folder / "study.db").write_bytes(b"no database at all, but some text that is long enough" * 40)
    with pytest.raises(FileError, match=r"study\.db could not be read"):
        resumed(found.folder, trials=2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"typed": 3}, "typed is an integer, and must be an object"),
        ({"fixed": None}, "fixed is null, and must be an object"),
        ({"data": 3}, "data is an integer, and must be a string"),
        ({"directions": ["up"]}, "directions[0] is 'up', and must be one of 'maximize', 'minimize'"),
        ({"trials": 10**30}, "trials is 1"),
        ({"tested": ["0"]}, "tested[0] is a string, and must be an integer"),
        ({"model": "mpl"}, "There is no model 'mpl'"),
        ({"space": {"lr": "3..1"}}, "lr="),
        ({"search": {"sampler": "magic"}}, "Invalid sampler=magic"),
        ({"search": {"key": "value"}}, "search.sampler is missing"),
    ],
)
def test_a_damaged_description_is_named_by_file_and_key(
    four: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    shutil.copytree(four, tmp_path / "search")
    path = tmp_path / "search" / "search.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FileError) as rejection:
        resumed(tmp_path / "search", trials=5)
    assert str(rejection.value).startswith(f"{path}: ")
    assert said in str(rejection.value)


def test_trials_that_say_nothing_are_named_by_their_number(four: Path, tmp_path: Path) -> None:
    shutil.copytree(four, tmp_path / "search")
    with sqlite3.connect(tmp_path / "search" / "study.db") as database:
        database.execute("delete from trial_params where trial_id = (select trial_id from trials where number = 1)")
    with pytest.raises(FileError, match=r"study\.db, trial 1: .* has no value"):
        _ = Search(tmp_path / "search").trials
    with sqlite3.connect(tmp_path / "search" / "study.db") as database:
        database.execute("delete from trial_user_attributes where key = 'outcome'")
    with pytest.raises(FileError, match=r"study\.db, trial 0: outcome is missing"):
        _ = Search(tmp_path / "search").trials


def test_a_path_of_any_letters_holds_a_search(tmp_path: Path) -> None:
    out = tmp_path / "a%20{b} ?c=#d"
    found = search("mlp", "iris", {**FIXED, "trials": 1}, space=SPACE, out=out, progress=SearchProgress(shown=False))
    assert (out / "study.db").is_file()
    assert len(Search(out).trials) == len(found.trials) == 1


def test_a_table_of_ones_own_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{n},{n % 7},{'even' if n % 2 else 'odd'}" for n in range(60)]
    (tmp_path / "numbers.csv").write_text("\n".join(["a,b,parity", *rows]))
    monkeypatch.chdir(tmp_path)
    given = {**FIXED, "trials": 1, "target": "parity", "lr": "1e-3..1e-1"}
    found = search("mlp", "numbers.csv", given, progress=SearchProgress(shown=False))
    assert found.folder == Path("runs/search-mlp-numbers-1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert len(resumed(tmp_path / found.folder, trials=2).trials) == 2
    with (tmp_path / "numbers.csv").open("a") as file:
        file.write("\n61,5,even")
    with pytest.raises(SettingError, match="another fingerprint"):
        resumed(tmp_path / found.folder, trials=3)


def test_a_fixed_number_is_kept_to_the_last_digit(small: Small) -> None:
    found = small(trials=1, weight_decay=0.012345678901234567)
    assert found.about["fixed"]["weight_decay"] == repr(0.012345678901234567)
    assert found.run.about["settings"]["weight_decay"] == 0.012345678901234567
    assert len(resumed(found.folder, trials=2).trials) == 2


def test_without_optuna_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SettingError, match=r"A search needs Optuna, .*pip install 'cutaway\[search\]'"):
        cutaway.search("mlp", "iris", space=SPACE)
