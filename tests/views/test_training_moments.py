"""Views scrubbed through the weights that a run kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import cutaway
from cutaway.core.errors import CutawayError, ModelError, SettingError
from cutaway.runs.run import Run
from cutaway.training.callbacks import list_snapshots
from cutaway.training.checkpoint import load_weights
from cutaway.views import training_moments as over_time
from cutaway.views.inspect_page import build_page, describe_view
from cutaway.views.registry import draw_view, suits
from cutaway.views.run.documents import saved_moments
from cutaway.views.subject import Subject, open_preset, open_run

pytestmark = pytest.mark.slow  # processes, or runs that are trained


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with snapshots."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    return cutaway.train("lenet5-modern", "digits", epochs=3, snapshots=6, tensorboard=False, out=folder)


def opened(run: Run, **options: str) -> Subject:
    """The run with its first test examples."""
    return open_run(Run(run.folder), options=options)


def test_every_moment_is_the_view_of_its_weights(run: Run) -> None:
    view = over_time.draw_time(opened(run, of="filters"))
    (choice,) = view["drawings"]
    assert choice["kind"] == "choice"
    assert choice["slider"]
    assert choice["start"] == len(choice["options"]) - 1
    for option, path in zip(choice["options"], list_snapshots(run.folder).values()):
        subject = opened(run)
        subject.model.load_state_dict(load_weights(path))
        assert option["drawings"] == draw_view("filters", subject)["drawings"]
    firsts = [json.dumps(option["drawings"]) for option in choice["options"]]
    assert len(set(firsts)) == len(firsts)


def test_moments_are_in_order_and_the_best_is_named(run: Run) -> None:
    names = [moment.name for moment in saved_moments(run)]
    steps = [int(name.replace("\u202f", "").split()[1].rstrip(",")) for name in names]
    assert steps == sorted(set(steps))
    assert steps[0] == 0
    assert sum("best" in name for name in names) == 1


def test_the_table_says_how_far_weights_moved_and_the_loss_then(run: Run) -> None:
    subject = opened(run)
    rows = over_time.draw_time(subject)["table"]["rows"]
    assert rows[0][2] == 0
    assert [row[2] for row in rows] == sorted(row[2] for row in rows)
    with torch.no_grad():
        assert rows[-1][1] == pytest.approx(float(subject.loss()), rel=1e-5)
    assert rows[-1][1] < rows[0][1]


def test_the_model_is_left_as_it_was(run: Run) -> None:
    subject = opened(run)
    before = {k: x.clone() for k, x in subject.model.state_dict().items()}
    once = describe_view("time", subject)
    assert all(torch.equal(before[k], x) for k, x in subject.model.state_dict().items())
    assert describe_view("time", subject) == once


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"of": "network"}, ModelError, "must be one of "),
        ({"of": "nix"}, ModelError, "must be one of "),
        ({"moments": "1"}, SettingError, "2 to 24"),
        ({"moments": "many"}, SettingError, "2 to 24"),
        ({"moments": "-3"}, SettingError, "2 to 24"),
        ({"of": "filters", "layer": "nix"}, CutawayError, "nix"),
    ],
    ids=str,
)
def test_what_cannot_be_is_rejected(run: Run, options: dict[str, str], error: type[CutawayError], said: str) -> None:
    with pytest.raises(error, match=said):
        over_time.draw_time(opened(run, **options))


def test_options_of_the_view_within_are_options_too(run: Run) -> None:
    page = build_page(opened(run, of="features", layer="c3", moments="3"), ["time"])
    (choice,) = page["views"][1]["drawings"]
    assert len(choice["options"]) == 3
    assert "c1" not in json.dumps(choice["options"][0]["drawings"][0]["title"])


def test_the_whole_stays_small_however_large_a_moment_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    every = len(over_time.draw_time(opened(run, of="features"))["drawings"][0]["options"])
    monkeypatch.setattr(over_time, "MOST", 60_000)
    view = over_time.draw_time(opened(run, of="features"))
    assert len(view["drawings"][0]["options"]) < every
    assert f"of {every} moments are shown" in view["summary"]


def test_without_snapshots_the_best_and_the_last_are_shown(run: Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run.folder, tmp_path / "run"))
    shutil.rmtree(folder / "snapshots")
    subject = open_run(Run(folder))
    moments = saved_moments(Run(folder))
    assert len(moments) == (1 if subject.run and subject.run.about["best"]["epoch"] == 3 else 2)
    assert suits("time", subject) == (len(moments) > 1)


def test_an_untrained_model_has_no_time() -> None:
    assert not suits("time", open_preset("lenet5-modern"))
