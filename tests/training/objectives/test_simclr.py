"""Contrastive pre-training: runs that learn without labels, and what can be done with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

import cutaway
from cutaway.apps.cli import main
from cutaway.core.errors import DataError, ModelError, SettingError
from cutaway.core.spec import Views
from cutaway.runs.run import Run
from cutaway.tasks.contrastive import TEMPERATURE, Contrastive
from cutaway.training.callbacks import Progress
from cutaway.training.objectives.simclr import linear_head
from cutaway.training.setup import setup_training
from cutaway.training.trainer import Trainer

from ..conftest import stopping
from .unlabelled import is_judged_by_neighbours, photographs

GIVEN: dict[str, Any] = {
    "objective": "simclr", "max_samples": 96, "batch_size": 48, "epochs": 2, "tensorboard": False,
}  # fmt: skip


def pretrain(out: Path, **given: Any) -> Run:
    """A small network after a few steps on scanned digits."""
    return cutaway.train("simplecnn", "digits", out=out, **{**GIVEN, **given})


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether all weights are equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that was pre-trained."""
    return pretrain(tmp_path_factory.mktemp("simclr") / "run")


def test_labels_are_not_looked_at(tmp_path: Path) -> None:
    ends = []
    for k in range(2):
        ready = setup_training("simplecnn", "digits", GIVEN)
        train = ready.data.splits["train"]
        assert train.target is not None
        train.target = (train.target + k) % 10
        given = (ready.model, ready.data, ready.task, ready.settings, ready.place, tmp_path, Progress(shown=False))
        torch.manual_seed(0)
        trainer = Trainer(*given)
        trainer.fit()
        ends.append(trainer.model.state_dict())
    assert same(*ends)
    assert "projection.0.weight" in ends[0]


def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, run: Run) -> None:
    with stopping(3):
        pretrain(tmp_path / "run")
    assert same(run.model.state_dict(), cutaway.train(resume=tmp_path / "run").model.state_dict())


def test_the_projection_is_thrown_away_and_the_head_is_new(tmp_path: Path, run: Run) -> None:
    assert not any(key.startswith("projection") for key in run.model.state_dict())
    tuned = setup_training("simplecnn", "digits", {"weights": str(run.folder)})
    assert tuned.taken is not None
    assert tuned.taken.new == ("head",)
    assert tuned.settings.freeze_epochs == 1
    assert torch.equal(tuned.model.get_submodule("conv1").weight, run.model.get_submodule("conv1").weight)  # type: ignore[arg-type]
    # As many classes as views are compared by are no reason to take the head.
    many = tmp_path / "classes"
    for k in range(128):
        (many / f"{k:03}").mkdir(parents=True)
        for i in range(3):
            Image.fromarray(np.full((8, 8), (k + 40 * i) % 256, np.uint8)).save(many / f"{k:03}" / f"{i}.png")
    own = setup_training("simplecnn", many, {"weights": str(run.folder), "image_size": 16, "val": 0, "test": 0})
    assert own.taken is not None
    assert own.taken.new == ("head",)
    assert not torch.equal(own.model.get_submodule("head").weight, run.model.get_submodule("head").weight)  # type: ignore[arg-type]


@pytest.mark.usefixtures("shared_data")
def test_series_are_pre_trained_too(tmp_path: Path) -> None:
    given = {**GIVEN, "out": tmp_path / "run"}
    run = cutaway.train("cnn1d", "mnist1d", **given)
    assert 0 <= run.evaluate()["knn_accuracy"].value <= 1
    with stopping(3):
        cutaway.train("cnn1d", "mnist1d", **{**given, "out": tmp_path / "again"})
    assert same(run.model.state_dict(), cutaway.train(resume=tmp_path / "again").model.state_dict())
    tuned = setup_training("cnn1d", "mnist1d", {"weights": str(run.folder)})
    assert tuned.taken is not None
    assert len(tuned.taken.new) == 1
    line = tmp_path / "series.txt"
    line.write_text("3 " + " ".join(["0.5"] * 40))
    assert "knn_accuracy" in run.evaluate(line)


def test_views_are_compared_by_the_networks_own_head() -> None:
    for name in ("simplecnn", "resnet20"):
        ready = setup_training(name, "digits", {"objective": "simclr"})
        head = linear_head(ready.model)
        assert head.out_features == 128
        assert head is not ready.model.get_submodule("projection.0")
        assert ready.model.get_submodule("projection.0").in_features == head.in_features


def test_neighbours_vote_as_scikit_learns_do() -> None:
    generator = torch.Generator().manual_seed(0)
    known, asked = torch.randn(60, 5, generator=generator), torch.randn(40, 5, generator=generator)
    labels = torch.randint(0, 3, (60,), generator=generator)
    task = Contrastive(Views(("a", "b", "c")))
    assert task.summarize_outputs(asked, labels[:40]) is asked
    task.remember(known, labels)
    outputs = task.summarize_outputs(asked, labels[:40])
    library = KNeighborsClassifier(20, metric="cosine", weights=lambda distance: np.exp(-distance / TEMPERATURE))
    library.fit(known, labels)
    assert outputs.argmax(1).tolist() == library.predict(asked).tolist()
    expected = library.predict_proba(asked)
    assert np.allclose(outputs.exp(), expected.clip(1e-6), rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(task.summarize_outputs(asked, labels[:40]), outputs)


def test_it_is_evaluated_and_predicts_by_neighbours(run: Run) -> None:
    is_judged_by_neighbours(run)


def test_images_without_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photographs(tmp_path / "photos", 16, 16)
    given = {**GIVEN, "batch_size": 8, "epochs": 1}
    run = cutaway.train("simplecnn", folder, out=tmp_path / "run", **given)
    assert not (run.folder / "evaluation.json").exists()
    with pytest.raises(DataError, match="without classes"):
        run.evaluate()
    assert main(["quantize", str(run.folder), str(tmp_path / "small")]) == 0
    assert "score and time are not measured" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "small" / "evaluation.json").exists()


@pytest.mark.parametrize(
    ("model", "data", "given", "error", "said"),
    [
        ("mlp", "moons", {}, SettingError, "objective=simclr makes views of images"),
        ("simplecnn", "digits", {"batch_size": 1}, SettingError, "batch_size=1 has no others"),
        ("simplecnn", "digits", {"flip": True}, SettingError, "flip=true varies a batch"),
        ("simplecnn", "digits", {"tta": True}, SettingError, "views have none"),
        ("simplecnn", "digits", {"compile": True}, SettingError, "compile=true"),
        ("simplecnn", "digits", {"snapshots": 3}, SettingError, "snapshots=3 keeps copies"),
        ("simplecnn", "digits", {"class_weights": "balanced"}, SettingError, "class_weights"),
        ("simplecnn", "digits", {"sampling": "balanced"}, SettingError, "sampling=balanced"),
        ("lenet5", "digits", {}, ModelError, "needs a model with a linear head, which LeNet5 does not have"),
        ("unet-small", "digits", {}, ModelError, "does not learn"),
    ],
)
def test_what_cannot_be_is_rejected(model: str, data: str, given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        setup_training(model, data, {"objective": "simclr", **given})
