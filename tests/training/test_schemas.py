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
from cutaway.errors import FileError
from cutaway.report.contents import describe
from cutaway.settings import RENAMED
from cutaway.training.progress import Progress
from cutaway.training.schemas import read_evaluation, read_run
from cutaway.training.session import fit
from cutaway.views.run.documents import read_documents

from ..commands import own_files

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
    more = fit(None, None, {"epochs": 2}, resume=run.folder, progress=Progress(shown=False))
    assert read_run(more.folder)["settings"] == about["settings"] | {"epochs": 2, "alpha": 0.99}


@pytest.mark.parametrize("name", ["run.json", "evaluation.json"])
def test_whatever_else_stands_at_a_place_is_shown_or_rejected(run: cutaway.Run, name: str, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    before = json.loads((tmp_path / "run" / name).read_text(encoding="utf-8"))
    describe(read_documents(tmp_path / "run"))
    rejected = []
    for at, other in zip(places(before), itertools.cycle(OTHERS)):
        changed = {"": copy.deepcopy(before)}
        within: Any = changed
        for key in ("", *at)[:-1]:
            within = within[key]
        within[("", *at)[-1]] = other
        (tmp_path / "run" / name).write_text(json.dumps(changed[""]), encoding="utf-8")
        try:
            describe(read_documents(tmp_path / "run"))
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
