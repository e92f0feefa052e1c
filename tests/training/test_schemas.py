"""The documents of a run are held to their schemas: what is wrong in one is said by file and key, nothing breaks."""

from __future__ import annotations

import copy
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cutaway
from cutaway.core.config import RENAMED
from cutaway.core.errors import CutawayError, FileError
from cutaway.data.synthetic.examples import spelled
from cutaway.reports.run_report import build_report
from cutaway.runs.train import train_model
from cutaway.training.callbacks import Progress
from cutaway.training.run_folder import read_evaluation, read_metrics, read_run
from cutaway.views.run.documents import read_documents

from ..cli import own_files

OTHERS = (None, [], {}, "x", 3, -0.5, True, ["x"], {"x": 1})


@pytest.fixture(scope="module", params=["table", "series", "pairs"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    """A run on a small table, on a series, or on pairs of texts."""
    folder = tmp_path_factory.mktemp("runs")
    own_files.visits(folder / "visits.csv")
    own_files.numbers(folder / "pairs.tsv")
    model, data, given = {
        "table": ("mlp", "iris", {"epochs": 1}),
        "series": ("lstm", folder / "visits.csv", {"forecast": "visits", "max_samples": 200, "max_steps": 2}),
        "pairs": ("seq2seq-gru", folder / "pairs.tsv", {"pairs": True, "max_samples": 40, "max_steps": 2}),
    }[request.param]
    return cutaway.train(model, data, tensorboard=False, out=folder / "run", **given)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    """A run on a small table."""
    out = tmp_path_factory.mktemp("table") / "run"
    return cutaway.train("mlp", "iris", epochs=1, tensorboard=False, out=out)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a document, the first of each list."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, within in inside:
        yield from places(within, (*at, key))


def test_a_run_with_old_names_is_read_and_resumed(tmp_path: Path) -> None:
    given = {"max_samples": 60, "grad_clip": 1.0, "color": "gray", "tensorboard": False, "model.hidden_dims": (4,)}
    run = cutaway.train("mlp", "digits", epochs=1, out=tmp_path / "run", **given)
    before = run.evaluate()
    path = run.folder / "run.json"
    about = json.loads(path.read_text(encoding="utf-8"))
    olds = {new: old for old, new in RENAMED.items()}
    then = {key: value for key, value in about["settings"].items() if key not in RENAMED}  # alpha was another
    settings = {olds.get(key, key): value for key, value in then.items()} | {"color": "grey"}
    settings |= {"missing": "refuse", "gaps": "refuse"}
    assert {"limit", "clip", "beams"} <= {*settings}
    data = {**about["data"]}
    data["parts"] = data.pop("splits")
    olds = {("verdict" if key == "summary" else key): value for key, value in about.items()}
    document = olds | {"settings": settings, "model_settings": {"hidden": [4]}, "data": data}
    path.write_text(json.dumps(document), encoding="utf-8")
    about["settings"].pop("alpha")
    assert read_run(run.folder) == about
    path.write_text(json.dumps(document | {"task": "transduction"}), encoding="utf-8")
    assert read_run(run.folder) == about | {"task": "sequence-to-sequence"}
    path.write_text(json.dumps(document), encoding="utf-8")
    path = run.folder / "evaluation.json"
    scores = json.loads(path.read_text(encoding="utf-8"))
    older = json.loads(path.read_text(encoding="utf-8"))
    for curve in older["discrimination"]["classes"]:
        curve["share"] = curve.pop("fraction")
    was = {"split": "part", "metrics": "measures"}
    path.write_text(json.dumps({was.get(key, key): value for key, value in older.items()}), encoding="utf-8")
    assert read_evaluation(run.folder) == scores
    assert cutaway.Run(run.folder).evaluate() == before
    more = train_model(None, None, {"epochs": 2}, resume=run.folder, progress=Progress(shown=False))
    assert read_run(more.folder)["settings"] == about["settings"] | {"epochs": 2, "alpha": 0.99}


@pytest.mark.parametrize("name", ["run.json", "evaluation.json"])
def test_whatever_else_stands_at_a_place_is_shown_or_rejected(run: cutaway.Run, name: str, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    before = json.loads((tmp_path / "run" / name).read_text(encoding="utf-8"))
    build_report(read_documents(tmp_path / "run"))
    rejected = []
    for at, other in zip(places(before), itertools.cycle(OTHERS)):
        changed = {"": copy.deepcopy(before)}
        within: Any = changed
        for key in ("", *at)[:-1]:
            within = within[key]
        within[("", *at)[-1]] = other
        (tmp_path / "run" / name).write_text(json.dumps(changed[""]), encoding="utf-8")
        try:
            build_report(read_documents(tmp_path / "run"))
        except FileError as error:  # anything else names neither the file nor the key
            rejected.append(str(error))
    assert len(rejected) > 20
    assert all(said.startswith(f"{tmp_path / 'run' / name}: ") for said in rejected)


@pytest.mark.parametrize(("kind", "before"), [("seq2seq", "pairs"), ("audio", "sound")])
def test_kinds_of_data_have_had_other_names(kind: str, before: str, tmp_path: Path) -> None:
    if kind == "audio":
        own_files.sounds(tmp_path / "tones", 4)
        given: dict[str, Any] = {"n_mels": 8, "model.hidden_dim": 4}
        run = cutaway.train("gru", tmp_path / "tones", epochs=1, tensorboard=False, out=tmp_path / "run", **given)
    else:
        own_files.numbers(tmp_path / "pairs.tsv")
        given = {"pairs": True, "max_samples": 40, "max_steps": 2, "model.hidden_dim": 4}
        run = cutaway.train("seq2seq-gru", tmp_path / "pairs.tsv", tensorboard=False, out=tmp_path / "run", **given)
    assert run.about["data"]["kind"] == run.spec.kind == kind
    scores = run.evaluate()
    for path in (run.folder / "run.json", run.folder / "model" / "preprocessing.json"):
        path.write_text(path.read_text(encoding="utf-8").replace(f'"kind": "{kind}"', f'"kind": "{before}"'), "utf-8")
        assert f'"kind": "{before}"' in path.read_text(encoding="utf-8")
    again = cutaway.Run(run.folder)
    assert again.about["data"]["kind"] == again.spec.kind == kind
    assert again.evaluate() == scores


@pytest.mark.parametrize(("model", "sizes"), [
    ("ctc-conv-gru", {"model.channels": "3,3", "model.hidden_dim": 3}),
    ("transformer-asr", {"model.dim": 8, "model.heads": 2, "model.layers": 1, "model.decoder_layers": 1}),
])  # fmt: skip
def test_an_alphabet_of_another_size_than_the_models_is_rejected(
    model: str, sizes: dict[str, Any], tmp_path: Path
) -> None:
    spelled(tmp_path / "spelled", count=20)
    folder = tmp_path / "run"
    cutaway.train(
        model, tmp_path / "spelled", out=folder, n_mels=4, max_steps=1, tensorboard=False, val=0, test=0, **sizes
    )
    path = folder / "model" / "preprocessing.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    target = document["spec"]["target"]
    assert cutaway.Run(folder).predict([tmp_path / "spelled" / "000.wav"])
    target["alphabet"] = target["alphabet"][:-1]
    path.write_text(json.dumps(document), encoding="utf-8")
    count = 1 + len(target["alphabet"])
    with pytest.raises(FileError, match=f"has {count} classes, and the model in the folder {count + 1}"):
        cutaway.Run(folder).predict([tmp_path / "spelled" / "000.wav"])


@pytest.mark.parametrize(
    ("name", "key", "value", "said"),
    [
        ("run.json", ("settings", "epochs"), "soon", "Invalid epochs=soon: must be an integer"),
        ("run.json", ("settings", "batch_size"), 10**30, "batch_size=10"),
        ("run.json", ("seed",), 2**63, "seed is 9223372036854775808, and must be an integer"),
        ("layers.json", ("rows", 0, "type"), None, "rows[0].type is null, and must be a string"),
        ("layers.json", ("input", 0), "4", "input[0] is a string, and must be an integer"),
        ("layers.json", ("card", "divergences"), {"a": 1}, "card.divergences is an object, and must be a list"),
        ("evaluation.json", ("classes", "names", 0), 3, "classes.names[0] is an integer, and must be a string"),
        ("evaluation.json", ("classes", "names"), ["one"], "classes.names has 1 and classes.per_class has 3"),
        (
            "model/preprocessing.json",
            ("spec", "target", "names"),
            ["one"],
            "has 1 classes, and the model in the folder",
        ),
        ("model/preprocessing.json", ("columns", 1, "mean"), "x", "columns[1].mean is a string, and must be a number"),
    ],
)
def test_a_field_that_cannot_be_is_named_with_its_file(
    table: cutaway.Run, name: str, key: tuple[Any, ...], value: Any, said: str, tmp_path: Path
) -> None:
    shutil.copytree(table.folder, tmp_path / "run")
    path = tmp_path / "run" / name
    document = json.loads(path.read_text(encoding="utf-8"))
    within = document
    for one in key[:-1]:
        within = within[one]
    within[key[-1]] = value
    path.write_text(json.dumps(document), encoding="utf-8")

    def read(folder: Path) -> None:
        build_report(read_documents(folder))
        run = cutaway.Run(folder)
        _ = run.preprocessing, run.model

    with pytest.raises(CutawayError) as rejection:
        read(tmp_path / "run")
    assert str(rejection.value).startswith(str(path))
    assert said in str(rejection.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"epoch,step,train_loss\n1,x,0.5\n", "line 2, column step: 'x' is not a number"),
        (b"epoch,step\n1,2\n{},3\n", "line 3, column epoch: '{}' is not a number"),
        (b"epoch,step\n1,\xff\n", "is not a valid CSV file"),
    ],
)
def test_metrics_that_are_no_numbers_are_named(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(FileError) as rejection:
        read_metrics(tmp_path / "metrics.csv")
    assert str(rejection.value).startswith(str(tmp_path / "metrics.csv"))
    assert said in str(rejection.value)
    (tmp_path / "metrics.csv").write_bytes(b"\xef\xbb\xbfepoch,train_loss,val_loss\n1,nan,\n2,0.5,0.25\n")
    first, second = read_metrics(tmp_path / "metrics.csv")
    assert first == {"epoch": 1.0, "train_loss": "nan", "val_loss": None}
    assert second == {"epoch": 2.0, "train_loss": 0.5, "val_loss": 0.25}
