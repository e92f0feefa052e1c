"""What a run gets right and wrong: classes, values and forecasts."""

from __future__ import annotations

from pathlib import Path

import cutaway
from cutaway.core.files import read_json
from cutaway.views.registry import suits
from cutaway.views.run import summary
from cutaway.views.subject import open_preset, open_run


def test_classes_have_their_confusion_and_the_worst_mistakes(tmp_path: Path) -> None:
    run = cutaway.train("lenet5-modern", "digits", epochs=1, tensorboard=False, out=tmp_path / "run")
    view = summary.draw_results(open_run(run))
    assert view["drawings"][0]["kind"] == "heat"
    evaluation = read_json(run.folder / "evaluation.json")
    counts = view["drawings"][0]["counts"]
    right = sum(counts[k][k] for k in range(10)) / evaluation["count"]
    assert abs(right - evaluation["metrics"]["accuracy"]["value"]) < 1e-9
    assert any(drawing["kind"] == "gallery" for drawing in view["drawings"])
    assert "test images right" in view["summary"]


def test_values_have_residuals(tmp_path: Path) -> None:
    table = tmp_path / "line.csv"
    table.write_text("x,y\n" + "".join(f"{i},{2.5 * i + i % 3}\n" for i in range(60)))
    run = cutaway.train(
        "linear", table, target="y", types="x:number", epochs=2, tensorboard=False, out=tmp_path / "run"
    )
    view = summary.draw_results(open_run(run))
    assert "points" in [drawing["kind"] for drawing in view["drawings"]]
    assert view["table"]["rows"]


def test_forecasts_have_theirs(tmp_path: Path) -> None:
    series = tmp_path / "visits.csv"
    series.write_text("time,visits\n" + "".join(f"{i},{i % 7}\n" for i in range(200)))
    run = cutaway.train(
        "rnn", series, forecast="visits", horizon=3, epochs=1, tensorboard=False, out=tmp_path / "run",
        **{"model.hidden_dim": 8},
    )  # fmt: skip
    view = summary.draw_results(open_run(run))
    assert view["drawings"]
    assert view["summary"].endswith(".")


def test_what_was_not_tested_has_none() -> None:
    assert not suits("results", open_preset("softmax"))
