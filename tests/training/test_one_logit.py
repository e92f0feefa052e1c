"""model.num_classes=1 on two classes: one logit, σ(z) and binary cross-entropy, everywhere where two logits work."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import cutaway
from cutaway.apps.cli import main
from cutaway.core.errors import CutawayError, ModelError, SettingError
from cutaway.core.spec import Classes, ImageSpec, SeriesSpec, TableSpec, TextSpec, VideoSpec
from cutaway.data.synthetic import write_example
from cutaway.estimators import Classifier
from cutaway.models.registry import preset, presets
from cutaway.nn.losses import expand_binary_logits
from cutaway.runs.run import Run
from cutaway.tasks.classification import Classification
from cutaway.tasks.roc_curves import scores

from ..small import DIFFERENT
from .conftest import stopping

TWO = Classes(("no", "yes"))
QUICK: dict[str, Any] = {"epochs": 1, "threads": 1, "tensorboard": False, "seed": 0, "device": "cpu"}
ONE = {"model.num_classes": 1}


def table(rows: int = 160) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Four columns, two of which tell the classes apart."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    return rng.normal(size=(rows, 4)) + 1.5 * np.outer(2 * y - 1, [1, -1, 0, 0]), np.where(y, "yes", "no")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A network with one output that tells two classes apart."""
    out = tmp_path_factory.mktemp("one") / "run"
    return cutaway.train("mlp", table(), out=out, **{**QUICK, "epochs": 6}, **ONE)


# --- the same numbers as two logits ---------------------------------------------------------------------------


def answers() -> tuple[Tensor, Tensor]:
    """Logits of 300 examples (300, 1), none exactly 0, and their classes."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(2, (300,), generator=generator)
    return torch.randn(300, 1, generator=generator).double() * 2 + (2 * target[:, None] - 1), target


def close(a: Any, b: Any) -> None:
    """The same document, numbers to rounding."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            close(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            close(x, y)
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-12)
    else:
        assert a == b


def test_all_metrics_are_those_of_the_two_logits_0_and_z() -> None:
    z, target = answers()
    two, task = expand_binary_logits(z), Classification(TWO)
    assert two.shape == (300, 2)
    ours, theirs = task.metrics(z, target), task.metrics(two, target)
    assert set(ours) == {"accuracy", "balanced_accuracy", "macro_f1", "calibration_error", "loss"}
    close({key: value.to_json() for key, value in ours.items()}, {k: v.to_json() for k, v in theirs.items()})
    close(task.details(z, target), task.details(two, target))
    close(task.predictions(z), task.predictions(two))
    close(task.example_results(z, target), task.example_results(two, target))
    held_out = (z[:150], target[:150])
    ours, theirs = scores(task, z, target, held_out), scores(task, two, target, (two[:150], target[:150]))
    assert set(ours) == {"discrimination", "calibration"}  # the ROC curve with its area, and the reliability diagram
    assert "scaled" in ours["calibration"]
    close(ours, theirs)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, (0.3, 2.0)])
def test_the_training_loss_and_its_gradient_are_those_of_two_logits(smoothing: float, weights: Any) -> None:
    z, target = answers()
    task = Classification(TWO, "cross_entropy", smoothing, None if weights is None else torch.tensor(weights).double())
    mixed = torch.rand(300, 1, generator=torch.Generator().manual_seed(1)).double()
    for wanted in (target, torch.cat([1 - mixed, mixed], 1)):
        found = []
        for way in (lambda x: x, expand_binary_logits):
            x = z.clone().requires_grad_()
            loss = task.loss(way(x), wanted)
            found.append((loss.detach(), torch.autograd.grad(loss, x)[0]))
        torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", ["mse", "half_squared_error"])
def test_a_single_output_of_squared_errors_is_compared_with_one_half(loss: str) -> None:
    task = Classification(TWO, loss)
    assert task.decide(torch.tensor([[0.4], [0.6], [-1.0], [1.2]])).tolist() == [0, 1, 0, 1]
    assert task.fast_metrics(torch.tensor([[0.2], [0.9]]), torch.tensor([0, 1])) == {"accuracy": 1.0}


# --- every classifier -----------------------------------------------------------------------------------------

SPECS: dict[str, Any] = {
    "table": TableSpec(tuple(f"c{i}" for i in range(6)), TWO),
    "image": ImageSpec(1, 32, 32, TWO),
    "series": SeriesSpec(20, 3, TWO),
    "text": TextSpec(50, 12, TWO),
    "video": VideoSpec(8, 1, 24, 24, TWO),
}
OWN_OUTPUT = ("lenet5", "softmax")  # codes of characters; a softmax, which needs two outputs


def classifies(name: str) -> bool:
    """Whether the preset takes one of the specs above, with two classes."""
    kind = next((kind for kind in presets()[name].takes if kind in SPECS), None)
    with contextlib.suppress(CutawayError):
        return kind is not None and bool(preset(name).configure(SPECS[kind]))
    return False


@pytest.mark.parametrize("name", [name for name in DIFFERENT if name not in OWN_OUTPUT and classifies(name)])
def test_every_classifier_takes_it(name: str) -> None:
    own = preset(name)
    kind = next(kind for kind in own.takes if kind in SPECS)
    shares = getattr(own.config, "shares_output", False)
    assert own.configure(SPECS[kind], {"num_classes": "1"}).num_classes == (2 if shares else 1)


@pytest.mark.parametrize("name", OWN_OUTPUT)
def test_a_model_with_outputs_of_its_own_kind_says_what_it_needs(name: str) -> None:
    kind = next(kind for kind in preset(name).takes if kind in SPECS)
    with pytest.raises(ModelError, match="Invalid num_classes=1: must be at least 2"):
        preset(name).configure(SPECS[kind], {"num_classes": 1})


@pytest.mark.parametrize("name", ["mlp", "logistic", "perceptron", "softmax", "textcnn", "lenet5"])
def test_more_than_two_classes_need_an_output_each(name: str) -> None:
    classes = Classes(("a", "b", "c"))
    spec: Any = {"textcnn": TextSpec(50, 12, classes), "lenet5": ImageSpec(1, 32, 32, classes)}.get(
        name, TableSpec(("x", "y"), classes)
    )
    with pytest.raises(SettingError, match="one logit is for two classes, and the data has 3"):
        preset(name).configure(spec, {"num_classes": 1})


def test_the_message_names_the_setting_the_number_and_the_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mlp", "iris", "model.num_classes=1"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "Invalid model.num_classes=1: one logit is for two classes, and the data has 3 (species)" in said
    with pytest.raises(SettingError, match=r"Invalid model\.num_classes=3: the data sets num_classes to 2"):
        preset("mlp").configure(SPECS["table"], {"num_classes": 3})


# --- from training to a server --------------------------------------------------------------------------------


def test_a_table_is_learned_evaluated_and_predicted(run: Run) -> None:
    X, y = table()
    assert run.model.config.num_classes == 1  # type: ignore[union-attr]
    assert run.model(torch.zeros(3, 4)).shape == (3, 1)
    evaluation = json.loads((run.folder / "evaluation.json").read_text())
    assert evaluation["metrics"]["accuracy"]["value"] > 0.8
    assert {"discrimination", "calibration"} <= evaluation.keys()
    assert (run.folder / "report.html").stat().st_size > 10_000
    assert run.evaluate()["accuracy"].value == evaluation["metrics"]["accuracy"]["value"]
    rows = cutaway.load(run.folder).predict(X[:20])
    for row in rows:
        assert row["probability no"] + row["probability yes"] == pytest.approx(1)
        assert row["target"] == ("yes" if row["probability yes"] > 0.5 else "no")
    assert np.mean([row["target"] == one for row, one in zip(rows, y[:20])]) > 0.7


@pytest.mark.slow
def test_the_exported_file_predicts_the_same(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    X, _ = table()
    file = cutaway.load(cutaway.export(run, tmp_path / "one.onnx"))
    for a, b in zip(file.predict(X[:9]), run.predict(X[:9]), strict=True):
        assert a.keys() == b.keys()
        assert a["target"] == b["target"]
        assert a["probability yes"] == pytest.approx(b["probability yes"], abs=1e-5)


def test_the_exported_program_returns_the_logit(run: Run, tmp_path: Path) -> None:
    X, _ = table()
    program: Any = torch.export.load(cutaway.export(run, tmp_path / "one.pt2")).module()
    with torch.no_grad():
        z = program(torch.tensor(X[:5]))
    assert z.shape == (5, 1)
    for p, row in zip(z.sigmoid()[:, 0].tolist(), run.predict(X[:5]), strict=True):
        assert p == pytest.approx(row["probability yes"], abs=1e-5)


def test_a_resumed_run_is_bit_identical(tmp_path: Path) -> None:
    given = {**QUICK, "epochs": 2, "batch_size": 32, "max_samples": 160}
    whole = cutaway.train("mlp", "breast_cancer", out=tmp_path / "whole", **given, **ONE)
    with stopping(5):
        cutaway.train("mlp", "breast_cancer", out=tmp_path / "cut", **given, **ONE)
    resumed = cutaway.train(resume=tmp_path / "cut")
    assert resumed.model.config.num_classes == 1  # type: ignore[union-attr]
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])


def one_logit() -> torch.nn.Module:
    """A network of one output, as a comparison builds it for each seed."""
    return cutaway.create_model("mlp", in_features=4, num_classes=1)


def test_a_comparison_has_it_beside_one_with_two_logits(tmp_path: Path) -> None:
    given = {key: value for key, value in QUICK.items() if key != "seed"}
    pair = [("one", one_logit), "logistic"]
    found = cutaway.compare(pair, table(80), seeds=2, baselines=False, out=tmp_path / "c", **given)
    assert {"one", "logistic"} <= {row["name"] for row in found.results[0]["models"]}
    difference = found.difference("one", "logistic")
    assert difference is not None
    assert difference["low"] <= difference["value"] <= difference["high"]


def test_an_estimator_has_the_probabilities_of_both_classes() -> None:
    X, y = table()
    found = Classifier("mlp", epochs=3, model__num_classes=1, random_state=0).fit(X, y)
    p = found.predict_proba(X)
    assert p.shape == (len(X), 2)
    assert np.allclose(p.sum(1), 1)
    assert (found.predict(X) == found.classes_[p.argmax(1)]).all()
    assert found.score(X, y) > 0.8


def test_the_view_shows_the_sigmoid_the_step_through_the_loss_and_delta(run: Run) -> None:
    found = cutaway.look(run, view="backprop")["backprop"]
    assert "δ = a − y with a = σ(z)" in found["summary"]
    (output,) = found["drawings"][0]["layers"][-1:]
    (neuron,) = output["neurons"]
    y = int(neuron["how"].rpartition(" ")[2])
    a = 1 / (1 + np.exp(-neuron["z"]))
    assert (output["activation"], neuron["name"]) == ("sigmoid", "yes")
    assert neuron["a"] == pytest.approx(a, rel=2e-3)
    assert neuron["delta"] == pytest.approx(a - y, rel=5e-3, abs=1e-3)
    assert neuron["back"] == pytest.approx(-y / a + (1 - y) / (1 - a), rel=5e-3)
    assert neuron["back"] * neuron["slope"] == pytest.approx(neuron["delta"], rel=5e-3)


def kinds(folder: Path) -> dict[str, tuple[str, Any, dict[str, Any]]]:
    """A model, data of two classes and settings, of each kind of data."""
    rng = np.random.default_rng(0)
    y = np.where(rng.integers(0, 2, 60), "yes", "no")
    up = (y == "yes")[:, None]
    texts = [f"{'good' if one == 'yes' else 'bad'} film number {i}" for i, one in enumerate(y)]
    series = rng.normal(size=(60, 12, 2)).astype(np.float32) + np.where(up, 1, -1)[..., None] * np.ones((60, 12, 2))
    images = (rng.random((60, 16, 16)) * 100 + 100 * up[..., None]).astype(np.uint8)
    return {
        "image": ("simplecnn", (images, y), {}),
        "text": ("textcnn", (texts, y), {"model.filters": 4}),
        "series": ("gru", (series, y), {"model.hidden_dim": 8}),
        "graph": ("gcn", folder / "graph", {"target": "club", "test": 0.4}),
        "audio": ("gru", folder / "sounds", {"model.hidden_dim": 8}),
        "video": ("cnn-lstm", folder / "videos", {"image_size": 16, "model.channels": "4,4", "model.hidden_dim": 8}),
    }


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples that are files, with two of their classes."""
    folder = tmp_path_factory.mktemp("examples")
    for name, kept in (("graph/", ()), ("sounds/", ("1", "2")), ("videos/", ("left", "right"))):
        write_example(name, folder)
        for one in (folder / name).iterdir() if kept else ():
            if one.is_dir() and one.name not in kept:
                shutil.rmtree(one)
    return folder


@pytest.mark.parametrize(
    "kind",
    ["series", "graph", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("image", "text", "audio", "video"))],
)
def test_data_of_every_kind(kind: str, examples: Path, tmp_path: Path) -> None:
    model, data, settings = kinds(examples)[kind]
    run = cutaway.train(model, data, out=tmp_path / "run", **QUICK, **ONE, **settings)
    assert run.model.config.num_classes == 1  # type: ignore[union-attr]
    assert {"accuracy", "calibration_error", "loss"} <= run.evaluate().keys()
    evaluation = json.loads((run.folder / "evaluation.json").read_text())
    assert "discrimination" in evaluation
    page = cutaway.look(run)
    assert page.views
    if kind == "graph":
        (drawing, *_) = cutaway.look(run, view="graph").views[0]["drawings"] or [None]
        assert "prediction" in json.dumps(drawing)
