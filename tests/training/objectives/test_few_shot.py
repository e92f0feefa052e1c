"""MAML and prototypical networks through the doors: runs that are stopped, asked anew, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

import cutaway
from cutaway.apps.cli import main
from cutaway.core.errors import CutawayError, DataError, ModelError, SettingError
from cutaway.core.spec import Episodes, ImageSpec
from cutaway.data.episodes import COUNTS
from cutaway.models.registry import preset
from cutaway.runs.run import Run
from cutaway.tasks.few_shot import FewShot
from cutaway.training.cost_estimate import estimate_cost
from cutaway.training.optim import auxiliary_head, output_layers
from cutaway.training.setup import setup_training

from ..conftest import stopping

pytestmark = pytest.mark.slow  # processes, or runs that are trained

KINDS = ["maml", "prototypes"]
GIVEN: dict[str, Any] = {
    "ways": 2, "queries": 2, "batch_size": 16, "max_steps": 30, "lr": 1e-2, "val": 0.25, "test": 0.25,
    "tensorboard": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen classes: a bar at an angle of its own, somewhere, in noise."""
    folder, rng = tmp_path_factory.mktemp("data") / "shapes", np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(16), np.arange(16)), 2).astype(float)
    for k in range(16):
        (folder / f"angle{k:02}").mkdir(parents=True)
        across = np.array([np.sin(np.pi * k / 16), np.cos(np.pi * k / 16)])
        for i in range(8):
            far = np.abs((grid - rng.uniform(6.5, 8.5, 2)) @ across)
            pixels = np.clip(255 * (far < 1.5) + rng.normal(0, 10, (16, 16)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"angle{k:02}" / f"{i}.png")
    return folder


def trained(shapes: Path, out: Path, kind: str, **given: Any) -> Run:
    return cutaway.train("conv4-strided", shapes, out=out, objective=kind, **{"model.width": 8, **GIVEN, **given})


@pytest.fixture(scope="module")
def runs(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    return {kind: trained(shapes, folder / kind, kind) for kind in KINDS}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations of few episodes, where no score is looked at."""
    for name in ("val", "test"):
        monkeypatch.setitem(COUNTS, name, 20)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether all weights are equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_classes_that_were_never_seen_are_told_better_than_by_a_guess(runs: dict[str, Run], kind: str) -> None:
    run = runs[kind]
    found = run.evaluate()
    assert found["accuracy"].low > 0.6
    assert found == run.evaluate()  # the same episodes
    written = json.loads((run.folder / "evaluation.json").read_text())
    assert written["metrics"]["accuracy"]["value"] == pytest.approx(found["accuracy"].value, abs=1e-6)
    assert written["baseline"] == {"name": "a guess", "value": 0.5}
    assert written["count"] == 1000
    assert (run.folder / "report.html").is_file()
    labels = {name: set(split.of_class) for name, split in run.data().splits.items()}  # type: ignore[attr-defined]
    assert not labels["test"] & (labels["train"] | labels["val"])


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("kind", [*KINDS, "first order"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(shapes: Path, tmp_path: Path, kind: str) -> None:
    given: dict[str, Any] = {"max_steps": 4, "flip": True}
    if kind == "first order":
        kind, given = "maml", {**given, "first_order": True, "inner_steps": 2}
    whole = trained(shapes, tmp_path / "whole", kind, **given)
    with stopping(2):
        trained(shapes, tmp_path / "run", kind, **given)
    assert same(whole.model.state_dict(), cutaway.train(resume=tmp_path / "run").model.state_dict())


@pytest.mark.usefixtures("few")
def test_first_order_and_the_inner_rate_make_other_weights(shapes: Path, tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [{}, {"first_order": True}, {"inner_lr": 0.1}]
    ends = [trained(shapes, tmp_path / f"{i}", "maml", max_steps=1, **g).model.state_dict() for i, g in enumerate(ways)]
    assert not any(same(ends[i], ends[j]) for i in range(3) for j in range(i))


def test_metrics_are_means_over_episodes() -> None:
    torch.manual_seed(0)
    task = FewShot(Episodes(3, 1, 4))
    outputs, target = torch.randn(50, 12, 3, dtype=torch.float64), torch.randint(3, (50, 12))
    found = task.metrics(outputs, target)
    right = [(o.argmax(1) == t).double().mean().item() for o, t in zip(outputs, target)]
    assert found["accuracy"].value == pytest.approx(np.mean(right))
    # Wilson's interval of as many answers as have this variance, with Student's t of 49 degrees of freedom.
    p, t = np.mean(right), 2.0095752371
    count = p * (1 - p) / (np.var(right, ddof=1) / 50)
    middle = (p + t**2 / (2 * count)) / (1 + t**2 / count)
    half = t * np.sqrt(p * (1 - p) / count + t**2 / (4 * count**2)) / (1 + t**2 / count)
    assert found["accuracy"].low == pytest.approx(middle - half, rel=1e-9)
    assert found["accuracy"].high == pytest.approx(middle + half, rel=1e-9)
    each = F.cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="none")
    assert found["loss"].value == pytest.approx(each.mean().item())
    whole = torch.cat([torch.zeros(50, 3, dtype=torch.int64), target], 1)
    assert task.loss(outputs, whole).item() == pytest.approx(each.sum().item())
    assert task.loss_denominator(whole) == len(each)
    assert torch.equal(task.summarize_target(whole), target)


@pytest.mark.parametrize("rate", [None, 0.5])
def test_what_the_queries_are_is_not_looked_at(rate: float | None) -> None:
    torch.manual_seed(0)
    model: Any = cutaway.create_model("conv4-strided", num_classes=2, width=4)
    task = FewShot(Episodes(2, 1, 3, inner_lr=rate))
    x, y = torch.randn(3 * 8, 1, 12, 12), torch.tensor([0, 1, 0, 0, 0, 1, 1, 1]).repeat(3, 1)
    with torch.no_grad():
        found = task.run_model(model.eval(), x, y)
        y[:, 2:] = 1 - y[:, 2:]
        assert torch.equal(task.run_model(model, x, y), found)
    assert found.shape == (3, 6, 2)


def test_other_shots_and_ways(runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COUNTS, "test", 200)
    for kind in KINDS:
        one, more = (runs[kind].evaluate(shots=s)["accuracy"].value for s in (1, 5))
        assert one == runs[kind].evaluate()["accuracy"].value
        assert more > one - 0.02
    assert runs["maml"].evaluate(inner_steps=0)["accuracy"].value < runs["maml"].evaluate()["accuracy"].value
    rejected: list[tuple[str, dict[str, int], str]] = [
        ("maml", {"ways": 3}, r"Invalid ways=3: this run is trained with objective=maml and 2 ways"),
        ("prototypes", {"ways": 9}, r"Invalid ways=9: the test split has 4 classes"),
        ("prototypes", {"shots": 7}, r"has 8 examples in the test split, and an episode takes 9"),
        ("prototypes", {"inner_steps": 2}, r"Invalid inner_steps=2: only for objective=maml"),
        ("prototypes", {"shots": 0}, r"Invalid shots=0: must be at least 1"),
    ]
    for kind, asked, said in rejected:
        with pytest.raises(CutawayError, match=said):
            runs[kind].evaluate(**asked)


def test_images_are_told_by_a_support_of_ones_own(
    runs: dict[str, Run], shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, source in (("flat", "angle00"), ("steep", "angle08")):
        (tmp_path / "support" / name).mkdir(parents=True)
        for i in range(3 if name == "flat" else 2):
            (tmp_path / "support" / name / f"{i}.png").write_bytes((shapes / source / f"{i}.png").read_bytes())
    asked = [str(shapes / angle / f"{i}.png") for angle in ("angle00", "angle08") for i in range(3, 8)]
    for kind in KINDS:
        rows = runs[kind].predict(asked, support=tmp_path / "support")
        right = sum(row["class"] == name for row, name in zip(rows, ["flat"] * 5 + ["steep"] * 5))
        assert right >= 7
        assert all(row["probability flat"] + row["probability steep"] == pytest.approx(1) for row in rows)
    names = [row["class"] for row in runs["maml"].predict(asked, support=tmp_path / "support")]
    assert main(["predict", str(runs["maml"].folder), *asked, "--support", str(tmp_path / "support"), "--json"]) == 0
    assert [row["class"] for row in json.loads(capsys.readouterr().out)] == names
    assert main(["evaluate", str(runs["prototypes"].folder), "--shots", "2", "--json"]) == 0
    assert "accuracy" in json.loads(capsys.readouterr().out)
    assert main(["predict", str(runs["maml"].folder), asked[0]]) == 2
    assert "--support FOLDER" in capsys.readouterr().err.replace("\n", " ")
    with pytest.raises(DataError, match="There is no folder"):
        runs["maml"].predict(asked, support=tmp_path / "nowhere")
    with pytest.raises(
        SettingError, match=r"holds 16 class folders: this run is trained with objective=maml and 2 ways"
    ):
        runs["maml"].predict(asked, support=shapes)
    assert len(runs["prototypes"].predict(asked, support=shapes)[0]) == 2 + 1 + 16


def test_a_run_of_classes_takes_no_support_and_no_ways(tmp_path: Path) -> None:
    run = cutaway.train("mlp", "moons", out=tmp_path / "run", count=40, epochs=1, tensorboard=False)
    with pytest.raises(SettingError, match="Invalid support: only for few-shot learning"):
        run.predict([{"x1": 0, "x2": 0}], support=tmp_path)
    with pytest.raises(
        SettingError, match="Invalid ways=3: only for few-shot learning; the target of this run is class"
    ):
        run.evaluate(ways=3)


SINUSOIDS: dict[str, Any] = {
    "shots": 10, "queries": 10, "batch_size": 25, "model.hidden_dims": (40, 40), "model.dropout": 0, "lr": 1e-3,
    "optimizer": "adam", "weight_decay": 0, "schedule": "constant", "tensorboard": False,
}  # fmt: skip


@pytest.mark.slow
def test_sinusoids_are_learned_from_ten_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COUNTS, "test", 200)
    given = {**SINUSOIDS, "max_steps": 400, "inner_lr": 0.01}
    run = cutaway.train("mlp", "sinusoids", out=tmp_path / "run", objective="maml", **given)
    before, after = (run.evaluate(inner_steps=steps)["mse"] for steps in (0, 1))
    assert after.high < before.low
    assert after.value == pytest.approx(run.evaluate()["mse"].value)
    with pytest.raises(DataError, match="not available for runs on sinusoids"):
        run.predict(["points.csv"])
    table = tmp_path / "points.csv"
    table.write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match="does not assign its rows to episodes"):
        run.evaluate(table)
    whole = cutaway.train("mlp", "sinusoids", out=tmp_path / "all", max_steps=20, tensorboard=False)
    assert {"rmse", "mae"} <= whole.evaluate().keys()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_checked_and_looked_into(runs: dict[str, Run], shapes: Path, kind: str) -> None:
    ready = setup_training("conv4-strided", str(shapes), {**GIVEN, "objective": kind})
    cost = estimate_cost(ready)
    assert cost.activations > 0
    assert cost.seconds_per_step > 0
    look = cutaway.look(runs[kind])
    assert "network" in {view["id"] for view in look.views}


@pytest.mark.parametrize(
    ("model", "data", "given", "error", "said"),
    [
        ("mlp", "moons", {"objective": "maml"}, SettingError, r"objective=maml learns from episodes .* is table data"),
        ("mlp", "sinusoids", {"objective": "prototypes"}, SettingError, r"sinusoids are numbers: take objective=maml"),
        ("textcnn", "digits", {"objective": "maml"}, ModelError, r"textcnn takes text data"),
        ("conv4", "digits", {"objective": "maml", "ways": 1}, SettingError, r"ways=1.*at least 2"),
        (
            "conv4",
            "digits",
            {"objective": "maml", "ways": 5},
            SettingError,
            "10 classes are fewer than 3 times as many",
        ),
        ("conv4", "digits", {"objective": "maml", "ways": 2, "compile": True}, SettingError, r"compile="),
        ("conv4", "digits", {"objective": "maml", "ways": 2, "tta": True}, SettingError, "tta"),
        ("conv4", "digits", {"objective": "prototypes", "ways": 2, "lora": 4}, SettingError, "lora=4 adapts weights"),
        ("conv4", "digits", {"objective": "prototypes", "ways": 2, "inner_lr": 0.1}, SettingError,
         r"inner_lr=0.1 would change nothing: it is for objective=maml"),
        ("conv4", "digits", {"ways": 3}, SettingError, r"ways=3 would change nothing: .*objective=maml or prototypes"),
        ("conv4", "digits", {"first_order": True}, SettingError, r"first_order=true would change nothing"),
        ("conv4", "digits", {"objective": "maml", "ways": 2, "label_smoothing": 0.1}, SettingError, "label_smoothing"),
        ("conv4", "digits", {"objective": "maml", "ways": 2, "sampling": "balanced"}, SettingError, "balanced"),
        ("conv4", "digits", {"objective": "maml", "ways": 2, "class_weights": "balanced"}, SettingError, "class"),
        ("unet", "digits", {"objective": "prototypes", "ways": 2}, ModelError, "unet does not learn"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_rejected(model: str, data: str, given: dict[str, Any], error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        setup_training(model, data, given)


@pytest.mark.usefixtures("few")
def test_what_normalization_remembers_is_left_alone(tmp_path: Path) -> None:
    """A network of another family, whose normalization remembers what it saw."""
    given = {**GIVEN, "max_steps": 2, "objective": "maml"}
    run = cutaway.train("simplecnn", "digits", out=tmp_path / "run", **given)
    norm = run.model.get_submodule("bn1")
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_mean.abs().max() == 0  # MAML takes the batch's statistics, and never the remembered ones


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_from_weights_of_another_training(
    runs: dict[str, Run], shapes: Path, tmp_path: Path, kind: str
) -> None:
    first = cutaway.train(
        "conv4-strided", shapes, out=tmp_path / "first", max_steps=2, tensorboard=False, **{"model.width": 8}
    )
    run = trained(shapes, tmp_path / "run", kind, weights=str(first.folder), max_steps=2, epochs=2)
    assert run.about["weights"]["new"] == ["head"]
    assert run.about["settings"]["freeze_epochs"] == 0
    tuned = setup_training("conv4-strided", str(shapes), {"weights": str(runs[kind].folder), "model.width": 8})
    assert tuned.taken is not None
    assert tuned.taken.new == ("head",)


@pytest.mark.parametrize("given", [{"freeze": ("convs*", "norms*")}, {"freeze_epochs": 1}])
def test_prototypes_are_of_what_learns(runs: dict[str, Run], shapes: Path, tmp_path: Path, given: Any) -> None:
    with pytest.raises(SettingError, match="objective=prototypes trains the backbone, but all of it is frozen"):
        trained(shapes, tmp_path / "run", "prototypes", weights=str(runs["prototypes"].folder), **given)


@pytest.mark.parametrize("name", ["vit-tiny/16", "cnn-attention", "googlenet"])
def test_attention_and_auxiliary_heads_are_learned_through(name: str) -> None:
    found, told = preset(name), Episodes(2, 1, 1, inner_lr=0.1)
    side = found.image_sizes(found.config).choose(None, (32, 32))[0]
    model = found.build(found.configure(ImageSpec(1, side, side, told))).train()
    task, target = FewShot(told), torch.tensor([[0, 1, 0, 1]])
    task.loss(task.run_model(model, torch.randn(4, 1, side, side), target), target).backward()  # type: ignore[no-untyped-call]
    head = model.get_submodule(next(name for name in output_layers(model) if not auxiliary_head(name)))
    slopes = [p.grad for p in head.parameters()]
    assert slopes
    assert all(slope is not None and slope.isfinite().all() for slope in slopes)
