"""The views of ROC, calibration, importance, samples and translations, and of what was right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.core.spec import Classes
from cutaway.draw.description import View
from cutaway.reports.run_report import build_report, result_head
from cutaway.tasks.classification import Classification
from cutaway.tasks.roc_curves import scores
from cutaway.views.run.classification import calibration, discrimination, importance
from cutaway.views.run.documents import Documents, read_documents
from cutaway.views.run.generated_outputs import samples, translations
from cutaway.views.run.summary import worst_mistakes
from cutaway.views.run.training import data, network, settings, typed_keys

from . import samples as documents


def scored(classes: int, n: int = 80) -> dict[str, Any]:
    """The scores of some outputs."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(classes, (n,), generator=generator)
    outputs = torch.randn(n, classes, generator=generator) + torch.nn.functional.one_hot(target, classes)
    return scores(Classification(Classes(tuple(f"k{k}" for k in range(classes)))), outputs, target)


def checked(view: View) -> View:
    """A view whose table is whole and which is plain JSON."""
    json.dumps(view, allow_nan=False)
    assert all(len(row) == len(view["table"]["columns"]) for row in view["table"]["rows"])
    assert view["says"].endswith(".")
    assert view["summary"].endswith(".")
    return view


def test_two_classes_have_a_ring_where_the_model_decides() -> None:
    found = scored(2)
    view = checked(discrimination(found["discrimination"], 80))
    operating = found["discrimination"]["classes"][0]["operating"]
    roc, precision = view["drawings"]
    assert (roc["ring"]["x"], roc["ring"]["y"]) == (operating["false_positives"], operating["recall"])
    assert (precision["ring"]["x"], precision["ring"]["y"]) == (operating["recall"], operating["precision"])
    assert [s["name"] for s in roc["series"]] == ["model", "chance"]
    assert "AUC" in view["summary"]


def test_of_several_classes_each_has_a_curve_and_the_lowest_is_named() -> None:
    found = scored(4)["discrimination"]
    view = checked(discrimination(found, 80))
    assert len(view["drawings"][0]["series"]) == 5
    lowest = min(found["classes"], key=lambda c: c["auc"]["value"])
    assert f"that of {lowest['name']}, " in view["summary"]
    assert "a sample of 80 of the 500" in discrimination(found, 500)["says"].replace("\u202f", " ")


@pytest.mark.parametrize("classes", [2, 5])
def test_calibration_says_whether_it_is_too_sure(classes: int) -> None:
    found = scored(classes)["calibration"]
    view = checked(calibration(found, 80))
    assert "Expected calibration error" in view["summary"]
    found["bins"] = [{"bin": 9, "said": 0.95, "was": 0.5, "count": 10}]
    assert "overconfident, by 45.0" in calibration(found, 80)["summary"]


def test_the_column_that_counts_most_is_named_and_one_alone_is_suspected() -> None:
    columns = [
        {"name": "alive", "value": 0.4, "low": 0.3, "high": 0.5},
        {"name": "age", "value": 0.0, "low": -0.01, "high": 0.01},
    ]
    view = checked(importance({"metric": "accuracy", "rows": 30, "repeats": 5, "columns": columns}, "test"))
    assert view["summary"].startswith("alive is the most important column: shuffling it costs 40 points of accuracy.")
    assert "check it for target leakage" in view["summary"]
    nothing = [column | {"value": 0.0, "low": 0.0, "high": 0.0} for column in columns]
    assert (
        "No column is important"
        in importance({"metric": "rmse", "rows": 30, "repeats": 5, "columns": nothing}, "test")["summary"]
    )
    alike = [column | {"value": 0.4, "low": 0.3, "high": 0.5} for column in columns]
    tied = importance({"metric": "accuracy", "rows": 30, "repeats": 5, "columns": alike}, "test")["summary"]
    assert " and " in tied.split(" are the most important columns")[0]


def test_samples_and_translations_are_shown_as_they_are() -> None:
    sample = {"name": "tokens 0 to 9", "prompt": "the cat", "written": " sat\non", "actual": ""}
    view = checked(samples([sample], "test"))
    assert [term for term, _ in view["drawings"][0]["facts"]] == ["given", "generated"]
    one = {"name": "line 1", "actual": "eins", "predicted": "", "loss": 1.0, "confidence": None, "picture": None}
    view = checked(translations([one | {"row": {"source": "one", "target": "eins"}}], "test"))
    assert view["drawings"][0]["table"]["rows"] == [["one", "eins", "(nothing)"]]
    assert view["summary"].startswith("0 of 1 match")


def test_what_was_right_stands_beside_what_was_wrong() -> None:
    evaluation = documents.classification()
    right = {**evaluation["worst"][0], "predicted": evaluation["worst"][0]["actual"]}
    view = checked(worst_mistakes(documents.run(), evaluation | {"right": [right]}))
    assert [drawing["title"] for drawing in view["drawings"]] == ["Wrong, actual → predicted", "Right"]
    assert view["drawings"][1]["items"][0]["words"] == "cat"
    assert len(view["table"]["rows"]) == 3


def test_the_columns_that_count_most_come_first_in_the_gallery() -> None:
    evaluation = documents.classification()
    evaluation["worst"] = [evaluation["worst"][0] | {"picture": None, "row": {"a": "1", "b": "2"}}]
    evaluation["importance"] = {"columns": [{"name": "b"}, {"name": "a"}]}
    view = worst_mistakes(documents.run("table"), evaluation)
    assert view["drawings"][0]["items"][0]["lines"] == ["b 2", "a 1"]


def test_columns_are_drawn_as_they_are_in_training() -> None:
    run = documents.run("table")
    run["data"]["distributions"] = [
        {"name": "age", "type": "number", "counts": [1, 2], "ends": ["0", "80"], "missing": 77},
        {"name": "town", "type": "category", "counts": [3], "labels": ["b"], "different": 1, "missing": 0},
    ]
    drawing = next(d for d in checked(data(run))["drawings"] if d["kind"] == "columns")
    assert [item["note"] for item in drawing["items"]] == ["number", "category, 1 value"]
    assert drawing["items"][0]["gaps"].endswith("% missing")


def test_what_is_wrong_with_the_data_stands_beside_the_figure() -> None:
    run = documents.run("table")
    run["data"]["findings"] = ["Column alive alone gives the target."]
    shown = result_head(run, documents.classification())["drawings"][-1]
    assert shown["title"] == "1 data quality finding bears on these metrics"
    assert shown["sentences"] == run["data"]["findings"]
    assert result_head(run, None)["drawings"] == []


def test_every_setting_is_there_and_those_that_were_typed_say_so() -> None:
    chosen, every = settings(documents.run(), {"num_classes": 3, "width": 8})
    assert ["epochs", "3", "20", "set by the user"] in chosen["table"]["rows"]
    assert {row[0] for row in every["table"]["rows"]} >= {"epochs", "lr", "model.num_classes", "model.width"}
    assert next(row[3] for row in every["table"]["rows"] if row[0] == "lr")
    assert typed_keys("cutaway train mlp 'a=b.csv' target=y 'note=c d'") == {"target", "note"}


def test_the_way_inside_is_a_command_and_the_page_where_it_is_there(tmp_path: Path) -> None:
    view = network(documents.layers(), "runs/my run")
    assert view["drawings"][1] == {"kind": "prose", "title": "Look inside", "command": "cutaway inspect 'runs/my run'"}
    folder = documents.write(tmp_path / "run", documents.classification())
    assert not read_documents(folder).inside
    (folder / "inspect.html").write_text("", encoding="utf-8")
    page = build_report(read_documents(folder))
    shown = next(view for view in page["views"] if view["id"] == "network")["drawings"][1]
    assert shown["facts"][0][1]["link"] == "inspect.html"


def test_a_run_of_before_that_has_none_of_these_is_described_as_ever() -> None:
    page = build_report(Documents(documents.run(), evaluation=documents.classification(), layers=documents.layers()))
    assert not {"discrimination", "calibration", "importance", "samples"} & {view["id"] for view in page["views"]}
