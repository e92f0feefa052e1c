"""What is answered is what `Run.predict` says, alone or in a batch, and to nobody else."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openapi_spec_validator
import pytest
from openapi_schema_validator import OAS31Validator
from starlette.testclient import TestClient

import cutaway
from cutaway.apps.serve.inputs import Inputs, PredictionRequest
from cutaway.apps.serve.prediction import Prediction, Predictor
from cutaway.runs.run import Run

Client = Callable[..., TestClient]
Runs = Callable[[str], Run]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [dict(row) for row in csv.DictReader(file)]


def documents(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Requests about each run, an example each."""
    images = sorted((folder / "scans").rglob("*.png"))[:12]
    return {
        "table": [{"rows": [row]} for row in rows_of(folder / "wine.csv")[:12]],
        "texts": [{"texts": [text]} for text in ("a goal in the last minute", "the bread rises", "it rains", "zzz")],
        "images": [
            {"files": [{"name": f"{p.parent.name}.png", "data": base64.b64encode(p.read_bytes()).decode()}]}
            for p in images
        ],
    }


def near(said: dict[str, Any], wanted: dict[str, Any]) -> None:
    """The same words, and numbers to the rounding of float32."""
    assert said.keys() == wanted.keys()
    for key, value in wanted.items():
        if isinstance(value, float):
            assert said[key] == pytest.approx(value, rel=1e-4, abs=1e-6), key
        else:
            assert said[key] == value, key


@pytest.mark.parametrize("name", ["table", "texts", "images"])
def test_in_a_batch_as_alone_as_by_the_run(
    name: str, run_of: Runs, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    run = run_of(name)
    inputs, predictor = Inputs(run), Predictor(run, tmp_path)
    asked = [inputs.of_document(document) for document in documents(_all(run_of))[name]]
    together = predictor(asked)
    for given, said in zip(asked, together):
        assert isinstance(said, Prediction)
        (alone,) = predictor([given])
        assert isinstance(alone, Prediction)
        assert said.notes == alone.notes
        for one, other in zip(said.rows, alone.rows, strict=True):
            near(one, other)
    if name == "images":
        paths = sorted((folder(name) / "scans").rglob("*.png"))[:12]
        for said, wanted in zip(together, run.predict(paths)):
            assert isinstance(said, Prediction)
            near({**said.rows[0], "input": ""}, {**wanted, "input": ""})


def _all(run_of: Runs) -> Path:
    """The folder of all examples, once they are there."""
    runs = [run_of(name) for name in ("table", "texts", "images")]
    return runs[0].folder.parent


def test_what_is_wrong_with_one_is_told_to_that_one_alone(run_of: Runs, tmp_path: Path) -> None:
    run = run_of("table")
    good = rows_of(run.folder.parent / "wine.csv")
    inputs, predictor = Inputs(run), Predictor(run, tmp_path)
    bad = {**good[0], "alcohol": "strong"}
    asked = [inputs.of_document({"rows": [row]}) for row in (*good[:5], bad, *good[5:9])]
    answers = predictor(asked)
    assert [isinstance(said, Prediction) for said in answers] == [True] * 5 + [False] + [True] * 4
    assert "'strong'" in str(answers[5])
    assert "row 1" in str(answers[5])  # its own first, not the batch's sixth


def test_a_note_is_told_to_whom_it_concerns(run_of: Runs, tmp_path: Path) -> None:
    run = run_of("texts")
    asked = [PredictionRequest([{"text": text}]) for text in ("the green jacket", "qqq", "lunch .", "xyzzy qqq")]
    answers = [said for said in Predictor(run, tmp_path)(asked) if isinstance(said, Prediction)]
    assert [bool(said.notes) for said in answers] == [False, True, False, True]
    assert "1 of 1" in answers[1].notes[0]
    assert "2 of 2" in answers[3].notes[0]


def test_requests_of_several_examples_get_their_own(run_of: Runs, tmp_path: Path) -> None:
    run = run_of("table")
    rows = rows_of(run.folder.parent / "wine.csv")
    inputs = Inputs(run)
    sizes, asked, at = (1, 3, 2), [], 0
    for size in sizes:
        asked.append(inputs.of_document({"rows": rows[at : at + size]}))
        at += size
    answers = Predictor(run, tmp_path)(asked)
    found = [row for said in answers if isinstance(said, Prediction) for row in said.rows]
    assert [len(said.rows) for said in answers if isinstance(said, Prediction)] == [*sizes]
    for said, wanted in zip(found, run.predict(rows[:6]), strict=True):
        near(said, {key: value for key, value in wanted.items() if key != "input"})


def test_a_file_as_it_is(served: Client, folder: Callable[[str], Path]) -> None:
    client = served("images")
    path = sorted((folder("images") / "scans" / "seven").iterdir())[0]
    for media in ("image/png", "application/octet-stream"):
        answer = client.post("/predict?name=my seven.png", content=path.read_bytes(), headers={"content-type": media})
        assert answer.status_code == 200
        (row,) = answer.json()["predictions"]
        assert row["input"] == "my seven.png"
        assert sum(p for key, p in row.items() if key.startswith("probability ")) == pytest.approx(1, abs=1e-4)
    table = served("table").post(
        "/predict?name=wine.csv",
        content=(folder("table") / "wine.csv").read_bytes(),
        headers={"content-type": "text/csv"},
    )
    assert len(table.json()["predictions"]) == 178
    assert table.json()["predictions"][0]["input"] == "line 2 of wine.csv"


@pytest.mark.parametrize("name", ["words", "texts", "dates"])
def test_a_text_is_never_taken_for_a_path(name: str, served: Client, tmp_path: Path, run_of: Runs) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret is out\n" * 40, encoding="utf-8")
    asked = served(name).post("/predict", json={"texts": [str(secret)]}).json()
    secret.unlink()
    again = served(name).post("/predict", json={"texts": [str(secret)]}).json()
    assert asked["predictions"] == again["predictions"]
    assert "secret is out" not in str(asked)


@pytest.mark.parametrize("given", ["../../etc/passwd", "/etc/passwd", "a/b\\c.png", "", ".", "..", "x" * 999, "\0.png"])
def test_a_name_never_says_where_a_file_lies(given: str, served: Client, folder: Callable[[str], Path]) -> None:
    path = sorted((folder("images") / "scans").rglob("*.png"))[0]
    data = base64.b64encode(path.read_bytes()).decode()
    answer = served("images").post("/predict", json={"files": [{"name": given, "data": data}]})
    assert answer.status_code == (200 if given else 422)


def test_columns_that_training_had_not_are_noted(served: Client, folder: Callable[[str], Path]) -> None:
    row = rows_of(folder("table") / "wine.csv")[0]
    answer = served("table").post("/predict", json={"rows": [{**row, "colour": "red", "cultivar": "?"}]}).json()
    assert answer["notes"] == ["Columns that are not in the training data are ignored: 'colour'."]


def test_no_file_stays(run_of: Runs, served: Client, folder: Callable[[str], Path]) -> None:
    client = served("table")
    desk: Path = client.routes.engine.small.process.files  # type: ignore[attr-defined]
    body = (folder("table") / "wine.csv").read_bytes()
    assert client.post("/predict", content=body, headers={"content-type": "text/csv"}).status_code == 200
    assert client.post("/predict", content=b"a;b", headers={"content-type": "text/csv"}).status_code == 422
    assert list(desk.iterdir()) == []


def test_the_example_of_the_document_is_answered(served: Client) -> None:
    for name in ("table", "images", "texts", "words", "dates"):
        client = served(name)
        document = client.get("/openapi.json").json()
        openapi_spec_validator.validate(document, cls=openapi_spec_validator.OpenAPIV31SpecValidator)
        for path, ways in document["paths"].items():
            if "post" not in ways:
                assert client.get(path).status_code == 200
                continue
            content = ways["post"]["requestBody"]["content"]["application/json"]
            OAS31Validator(content["schema"]).validate(content["example"])
            answer = client.post(path, json=content["example"])
            assert answer.status_code == 200, (name, path, answer.text)
        assert json.dumps(document, allow_nan=False)


def test_a_server_of_one_logit_says_both_probabilities(served: Client, tmp_path: Path) -> None:
    given = {"epochs": 1, "max_samples": 64, "tensorboard": False, "model.num_classes": 1}
    run = cutaway.train("mlp", "breast_cancer", out=tmp_path / "run", **given)
    row = dict.fromkeys(run.spec.columns, 10.0)
    (said,) = served(run).post("/predict", json={"rows": [row]}).json()["predictions"]
    near(said, {key: value for key, value in run.predict([row])[0].items() if key != "input"})
    assert said["probability malignant"] + said["probability benign"] == pytest.approx(1)
