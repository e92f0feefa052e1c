"""The descriptions of views: pure functions of a run's documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cutaway.core.errors import FileError
from cutaway.data.splits import split_hash
from cutaway.draw.description import View
from cutaway.reports.run_report import build_report, result_head
from cutaway.views.run.classification import confusion, per_class
from cutaway.views.run.documents import Documents, read_documents
from cutaway.views.run.summary import metric_phrase, worst_mistakes
from cutaway.views.run.task_results import bins, residuals
from cutaway.views.run.training import curves, data, network, reproduction

from . import samples


def documents(
    folder: Path, evaluation: dict[str, Any] | None = None, kind: str = "image", whole: bool = True
) -> Documents:
    return read_documents(samples.write(folder, evaluation, kind, whole))


def plain(text: str) -> str:
    """Without the narrow spaces of numbers and units."""
    return text.replace("\u202f", " ")


def cells(view: View, column: str) -> list[Any]:
    """What stands in a column of a view's table."""
    k = [c["name"] for c in view["table"]["columns"]].index(column)
    return [row[k] for row in view["table"]["rows"]]


# --- the page -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evaluation", "kind", "ids"),
    [
        (
            samples.classification(),
            "image",
            ["result", "curves", "confusion", "classes", "worst", "data", "network", "repeat"],
        ),
        (samples.regression(), "table", ["result", "curves", "residuals", "worst", "data", "network", "repeat"]),
        (None, "image", ["result", "missing", "curves", "data", "network", "repeat"]),
    ],
)
def test_every_view_has_words_and_numbers(
    tmp_path: Path, evaluation: dict[str, Any] | None, kind: str, ids: list[str]
) -> None:
    page = build_report(documents(tmp_path, evaluation, kind))
    assert [v["id"] for v in page["views"]] == ids
    for view in page["views"]:
        assert view["title"]
        assert view["says"].endswith(".")
        assert view["summary"].endswith(".")
        assert view["table"]["columns"]
        assert view["table"]["rows"]
        assert all(len(row) == len(view["table"]["columns"]) for row in view["table"]["rows"])
    assert json.loads(json.dumps(page, allow_nan=False)) == page


def test_what_a_run_has_not_is_named(tmp_path: Path) -> None:
    page = build_report(documents(tmp_path, whole=False))
    absent = next(v for v in page["views"] if v["id"] == "missing")
    assert cells(absent, "document") == ["metrics.csv", "evaluation.json", "layers.json"]
    assert "cutaway train --resume" in absent["summary"]


def test_a_run_that_has_only_begun_can_be_described() -> None:
    run = samples.run()
    for key in ("finished", "seconds", "epochs_done", "stopped", "best", "summary", "resumed"):
        del run[key]
    page = build_report(Documents(run | {"status": "running"}))
    assert page["views"][0]["summary"] == "There are no metrics yet."
    assert "running" in page["views"][1]["summary"]


def test_documents_that_are_damaged_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no run\.json"):
        read_documents(tmp_path)
    samples.write(tmp_path)
    (tmp_path / "evaluation.json").write_text('{"split": "te')
    with pytest.raises(FileError, match=r"evaluation\.json"):
        read_documents(tmp_path)


# --- the head -------------------------------------------------------------------------------------------------


def test_an_evaluation_that_holds_something_else_is_rejected(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.classification())
    (tmp_path / "evaluation.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FileError, match=r"evaluation\.json"):
        read_documents(tmp_path)


def test_the_head_says_how_much_was_right_and_how_sure_that_is() -> None:
    view = result_head(samples.run(), samples.classification())
    assert view["title"] == "lenet5-modern on digits"
    assert plain(view["says"]).startswith("61 706 parameters, trained on 1 077 images in 3 epochs, 12.3 s on cpu.")
    assert "Evaluated once" in view["says"]
    assert plain(view["summary"]).startswith("90.0 % of 40 test images right; 95 % interval: 77.0 % to 96.0 %")
    drawing = view["drawings"][0]
    assert (drawing["kind"], drawing["value"], drawing["low"], drawing["end"]) == ("figure", 0.9, 0.77, 1)


def test_the_title_says_where_the_model_is_not_its_preset() -> None:
    other = samples.run() | {"model": "gpt2", "model_settings": {"layers": 2, "num_classes": 3}}
    assert result_head(other, None)["title"] == "gpt2 with layers=2 on digits"


def test_the_head_of_a_regression_names_the_column() -> None:
    view = result_head(samples.run("table"), samples.regression())
    assert view["drawings"][0]["phrase"] == "RMSE of price, over 6 test rows"
    assert cells(view, "metric") == ["RMSE", "R²", "mean baseline (100)"]
    assert cells(view, "95 % from")[1] == "−0.2"


@pytest.mark.parametrize(
    ("split", "warning"), [("val", "also used to select the weights"), ("train", "trained on the 40")]
)
def test_metrics_that_flatter_say_so(split: str, warning: str) -> None:
    says = result_head(samples.run(), samples.classification() | {"split": split})["says"]
    assert warning in says
    assert says.endswith("the metrics are optimistic.")


def test_a_test_on_what_was_learned_from_says_so() -> None:
    run = samples.run()
    rows = np.arange(4)
    run["data"] |= {"source": "mine.csv", "splits": {"train": 4, "val": 4, "test": 4}}
    assert "which are also the training data" not in result_head(run, samples.classification())["says"]
    run["data"]["split_hash"] = split_hash({"train": rows, "val": rows, "test": rows})
    assert "which are also the training data" in result_head(run, samples.classification())["says"]


def test_an_unfinished_run_says_its_best_and_a_verdict_is_shown() -> None:
    view = result_head(samples.run() | {"summary": "It never will."}, None)
    assert plain(view["summary"]) == "The best validation accuracy so far is 93.8 %, in epoch 3."
    assert view["drawings"] == [{"kind": "prose", "sentences": ["It never will."]}]


# --- classes --------------------------------------------------------------------------------------------------


def test_confusions_are_named_with_their_share() -> None:
    view = confusion(samples.classification()["classes"])
    assert plain(view["summary"]) == "Most frequent confusion: cat predicted as dog, 2 of 20, 10.0 %."
    assert list(zip(cells(view, "actual"), cells(view, "predicted"), cells(view, "examples"))) == [
        ("cat", "cat", 18),
        ("cat", "dog", 2),
        ("dog", "cat", 1),
        ("dog", "dog", 18),
        ("dog", "owl", 1),
    ]
    assert [d["kind"] for d in view["drawings"]] == ["heat", "rows"]


@pytest.mark.parametrize(("n", "kinds"), [(100, ["heat"]), (101, [])])
def test_a_matrix_is_drawn_for_up_to_a_hundred_classes(n: int, kinds: list[str]) -> None:
    view = confusion({"names": [f"c{i}" for i in range(n)], "confusion": np.eye(n, dtype=int).tolist()})
    assert [d["kind"] for d in view["drawings"]] == kinds
    assert view["summary"] == "No example is misclassified."


def test_classes_stand_by_recall_and_those_without_examples_last() -> None:
    view = per_class(samples.classification()["classes"], "test")
    assert cells(view, "class") == ["dog", "cat", "owl"]
    assert cells(view, "recall") == [0.85, 0.9, None]
    assert "lowest for dog" in view["summary"]
    assert view["drawings"][0]["columns"][0]["domain"] == [0.0, 1]  # owl's precision is 0
    assert view["drawings"][0]["rows"][2]["tip"] == [
        "owl, 0 examples",
        "recall unknown",
        "precision 0\u202f% (0\u202f% – 5.0\u202f%)",
        "F1 unknown",
    ]


# --- values ---------------------------------------------------------------------------------------------------


def test_residuals_are_predicted_less_actual() -> None:
    view = residuals(samples.regression()["values"], 6)
    assert cells(view, "error") == [10, -10, 0, 30, -20, 0]
    assert view["summary"] == "The median absolute error is 10; the mean error is +1.667, the largest +30."
    histogram = view["drawings"][1]
    assert sum(histogram["counts"]) == 6
    assert "A sample of" in residuals(samples.regression()["values"], 6000)["says"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=200))
@example([-445214.0, -452425.0, -451785.0])  # far from 0, and close to each other
@example([0.1, 0.1 + 2**-55, 0.1 + 2**-54])  # different in their last bits alone
@example([5e-324, 1e-320])  # too small for a float of full precision
@example([3e38, -3.2e38, 1.0])
def test_bins_hold_every_error_and_none_mixes_signs(errors: list[float]) -> None:
    array = np.array(errors)
    edges = bins(array)
    assert 0 in edges
    assert np.histogram(array, edges)[0].sum() == len(array)
    assert 2 <= len(edges) <= 52
    assert (np.diff(edges) > 0).all()


# --- mistakes -------------------------------------------------------------------------------------------------


def test_the_worst_are_shown_with_their_images() -> None:
    view = worst_mistakes(samples.run(), samples.classification())
    item = view["drawings"][0]["items"][0]
    assert (item["words"], plain(item["note"]), item["image"]) == ("cat → dog", "99.0 % confidence", samples.PICTURE)
    assert plain(view["summary"]) == "The worst is a/1.png: actual cat, predicted dog, 99.0 % confidence."


def test_columns_of_the_data_stay_apart_from_the_tables_own() -> None:
    view = worst_mistakes(samples.run("table"), samples.regression())
    assert [c["name"] for c in view["table"]["columns"]][-3:] == ["loss", "rooms", "loss (data)"]
    assert view["table"]["rows"][0][-3:] == [9.0, "3", "none"]
    assert view["drawings"][0]["items"][0]["words"] == "100 → 130.1"


def test_class_names_that_look_like_numbers_stay_as_they_are() -> None:
    evaluation = samples.classification(("007", "1e3", "x"))
    evaluation["worst"][0]["confidence"] = None  # a perceptron has scores, and no probabilities
    view = worst_mistakes(samples.run(), evaluation)
    assert view["drawings"][0]["items"][0]["words"] == "007 → 1e3"


def test_a_model_without_mistakes_has_none_to_show() -> None:
    view = worst_mistakes(samples.run(), samples.classification() | {"worst": []})
    assert (view["summary"], view["drawings"]) == ("All examples are correct.", [])


# --- how it was made ------------------------------------------------------------------------------------------


def test_curves_are_grouped_by_figure_and_broken_where_a_value_is_not_finite(tmp_path: Path) -> None:
    known = documents(tmp_path)
    view = curves(known.run, known.metrics)
    assert [d["title"] for d in view["drawings"]] == ["Loss", "Accuracy", "Learning rate"]
    loss = view["drawings"][0]
    assert [s["name"] for s in loss["series"]] == ["train", "val"]
    assert loss["series"][1]["points"] == [[1, 1.5], [2, None], [3, 0.125]]
    assert loss["log"]  # from 2.25 to 0.0625
    assert not view["drawings"][1]["log"]
    assert loss["mark"]["x"] == 3
    assert cells(view, "gradient norm") == [3.1, 2.2, None]  # a column that we do not know is shown all the same
    assert cells(view, "val loss")[1] == "nan"
    assert plain(view["summary"]) == "Loss: train 2.25 to 0.0625, val 1.5 to 0.125. Accuracy: val 50.0 % to 93.8 %."


def test_rows_within_an_epoch_stand_between_its_ends() -> None:
    rows = [(1, 5, 2.0, None), (1, 10, 1.0, 0.9), (1, 20, 0.5, 0.8), (2, 30, 0.4, None), (2, 40, 0.3, 0.7)]
    metrics: list[dict[str, Any]] = [
        dict(zip(("epoch", "step", "train_loss", "val_loss"), (float(e), float(s), train, val)))
        for e, s, train, val in rows
    ]
    train, val = curves(samples.run(), metrics)["drawings"][0]["series"]
    assert train["points"] == [[0.25, 2.0], [0.5, 1.0], [1.0, 0.5], [1.5, 0.4], [2.0, 0.3]]
    assert val["points"] == [[0.5, 0.9], [1.0, 0.8], [2.0, 0.7]]


def test_curves_need_neither_validation_nor_a_best_epoch() -> None:
    view = curves(samples.run() | {"best": None}, [{"train_loss": 1.0}, {"train_loss": 0.5}])
    assert [d["title"] for d in view["drawings"]] == ["Loss"]
    assert view["drawings"][0]["series"][0]["points"] == [[1, 1.0], [2, 0.5]]
    assert view["drawings"][0]["mark"] is None


def test_weights_that_are_a_mean_are_not_called_those_of_an_epoch(tmp_path: Path) -> None:
    known = documents(tmp_path)
    assert "epoch 3, whose weights were kept." in curves(known.run, known.metrics)["says"]
    view = curves(known.run | {"average": {"first": 2, "last": 3, "score": 0.1}}, known.metrics)
    assert view["says"].endswith("epoch 3; the mean after epochs 2 to 3 was kept.")


def test_data_says_with_what_weights_it_began() -> None:
    begun = {"notes": ["The mlp begins with the weights of a.safetensors."]}
    assert data(samples.run("table") | {"weights": begun})["drawings"][1]["sentences"][-1:] == begun["notes"]


def test_data_shows_parts_notes_and_columns() -> None:
    run = samples.run("table")
    run["data"]["columns"] = [{"name": "rooms", "type": "number", "role": "input", "missing": "0", "example": "3"}]
    view = data(run)
    assert cells(view, "examples") == [1077, 360, 360]
    assert sum(cells(view, "fraction")) == pytest.approx(1)
    assert view["drawings"][1]["sentences"] == ["Images of 8×8 were enlarged."]
    assert view["drawings"][-1]["table"]["rows"] == [["rooms", "number", "input", "0", "3"]]


def test_the_network_tells_unknown_from_nothing() -> None:
    view = network(samples.layers())
    assert cells(view, "MACs") == [117600, None]
    assert cells(view, "output") == ["6 × 28 × 28", "84"]
    assert "at least" in view["summary"]
    assert "unknown MACs" in view["drawings"][0]["rows"][1]["tip"]
    assert view["drawings"][1]["facts"][0][1]["link"] == "https://doi.org/10.1109/5.726791"
    assert network(samples.layers() | {"card": None})["drawings"] == view["drawings"][:1]


def test_everything_needed_to_repeat_is_there() -> None:
    view = reproduction(samples.run() | {"resumed": 2})
    assert view["drawings"][0]["command"] == "cutaway train lenet5-modern digits epochs=3"
    named = dict(zip(cells(view, "name"), cells(view, "value")))
    assert (
        named | {"lr": "0.002", "target": "auto", "milestones": "0.5,0.75", "num_classes": "3", "torch": "2.13.0"}
        == named
    )
    facts = dict(view["drawings"][-1]["facts"])
    assert facts["seed"] == "7"
    assert plain(facts["took"]) == "12.3 s for 3 epochs; resumed 2 times"


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"task": "tagging"}, "of the tokens of 40 test sentences right"),
        ({"data": samples.run("graph")["data"] | {"example": "graph"}}, "of 40 test graphs right"),
        ({"data": samples.run("graph")["data"]}, "of 40 test nodes right"),
    ],
    ids=["tags", "graphs", "nodes"],
)
def test_a_share_is_of_what_was_counted(about: dict[str, Any], said: str) -> None:
    assert metric_phrase(samples.run("text") | about, samples.classification()) == said


def test_nothing_that_was_said_is_said() -> None:
    evaluation = samples.classification()
    evaluation["worst"] = [{**evaluation["worst"][0], "actual": "one", "predicted": "", "confidence": None}]
    assert worst_mistakes(samples.run(), evaluation)["summary"].endswith("actual one, predicted nothing.")
    assert "predicted" not in worst_mistakes(samples.run() | {"task": "word vectors"}, evaluation)["summary"]
