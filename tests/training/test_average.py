"""The moving average of weights is its formula, and evaluation uses it; the mean of the last epochs is their mean, and
is what a run keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from cutaway.apps.cli.train import result_lines
from cutaway.checkpoints.saving import read_tensors
from cutaway.core.errors import SettingError
from cutaway.core.files import read_json
from cutaway.runs.train import train_model
from cutaway.training.callbacks import AverageRecord, Callback, LastEpochs, MovingAverage, Progress, swap_weights
from cutaway.training.checkpoint import TrainingState, load_weights
from cutaway.training.trainer import Trainer

from .conftest import fitted


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_it_is_the_formula_for_weights_and_a_copy_for_statistics() -> None:
    model = network().double()
    average = MovingAverage(model, decay=0.5)
    expected = {k: p.detach().clone() for k, p in model.named_parameters()}
    for step in range(20):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        model(torch.randn(8, 3, dtype=torch.float64))
        average.update(step)
        d = min(0.5, (1 + step) / (10 + step))
        expected = {k: d * expected[k] + (1 - d) * p.detach() for k, p in model.named_parameters()}
    for key, value in expected.items():
        assert torch.allclose(average.weights[key], value, rtol=1e-12)
    for key, buffer in model.named_buffers():
        assert torch.equal(average.weights[key], buffer)


def test_it_is_applied_for_a_while_and_the_weights_come_back() -> None:
    model = network()
    average = MovingAverage(model, decay=0.9)
    before = model[0].weight.detach().clone()
    average.weights["0.weight"].zero_()

    def fail_inside() -> None:
        with average.applied():
            assert model[0].weight.abs().sum() == 0
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_inside()
    assert torch.equal(model[0].weight, before)


def test_the_mean_is_of_the_last_epochs_alone_and_the_files_of_others_go(tmp_path: Path) -> None:
    last, model, seen = LastEpochs(tmp_path, 3), network(), []
    for epoch in range(1, 6):
        model(torch.randn(8, 3))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        last.keep(epoch, model.state_dict())
        seen.append({k: v.detach().clone() for k, v in model.state_dict().items()})
        mean, first = last.mean(epoch)
        assert first == max(1, epoch - 2)
        for key, value in mean.items():
            of_key = [s[key].double() for s in seen[first - 1 :]]
            expected = torch.stack(of_key).mean(0) if value.is_floating_point() else of_key[-1]
            assert value.dtype == seen[-1][key].dtype
            torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-7)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"epoch-{e}.safetensors" for e in (3, 4, 5)]


def test_lent_weights_are_given_back() -> None:
    model = network()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with swap_weights(model, {k: torch.zeros_like(v) for k, v in before.items()}):
        assert not model[0].weight.any()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("average", [1, 2, 9])
def test_training_ends_with_the_mean_and_its_score(make_trainer: Callable[..., Trainer], average: int) -> None:
    ends = []

    class Note(Callback):
        def on_epoch_end(self, state: TrainingState) -> None:
            ends.append({k: v.clone() for k, v in self.trainer.model.state_dict().items()})

    trainer = make_trainer(epochs=4, average_epochs=average, lr=0.05, callbacks=[Note()])
    trainer.fit()
    assert isinstance(trainer.mean, AverageRecord)
    assert (trainer.mean.first, trainer.mean.last) == (max(1, 5 - average), 4)
    mean = load_weights(trainer.checkpoints / "average.safetensors")
    for key, value in mean.items():
        expected = torch.stack([e[key].double() for e in ends[-average:]]).mean(0)
        torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-7)
        assert torch.equal(trainer.model.state_dict()[key], ends[-1][key])  # training could go on
    with swap_weights(trainer.model, mean):
        assert trainer.validate(trainer.val)["accuracy"] == pytest.approx(trainer.mean.score)  # type: ignore[arg-type]


@pytest.mark.parametrize("stop_at", [1, 9, 17, 24])
def test_a_stop_does_not_change_the_mean(make_trainer: Callable[..., Trainer], tmp_path: Path, stop_at: int) -> None:
    given = {"epochs": 4, "average_epochs": 2, "dropout": 0.3}
    whole = fitted(lambda: make_trainer(folder=tmp_path / "whole", **given))
    again = fitted(lambda: make_trainer(folder=tmp_path / "again", **given), stop_at)
    assert whole.mean == again.mean
    a, b = (read_tensors(t.checkpoints / "average.safetensors")[0] for t in (whole, again))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_a_run_keeps_the_mean_and_says_so(tmp_path: Path) -> None:
    given = {"max_samples": 200, "epochs": 3, "average_epochs": 2, "tensorboard": False, "threads": 1}
    run = train_model("lenet5-modern", "digits", given, out=tmp_path / "run", progress=Progress(shown=False))
    mean = load_weights(run.folder / "checkpoints" / "average.safetensors")
    kept, _ = read_tensors(run.folder / "model" / "model.safetensors")
    assert all(torch.equal(kept[k], mean[k]) for k in kept)
    about = read_json(run.folder / "run.json")
    assert (about["average"]["first"], about["average"]["last"]) == (2, 3)
    assert about["best"]["epoch"] >= 1
    assert any(
        "Kept the mean of the weights after epochs 2 to 3, validation accuracy" in line for line in result_lines(run)
    )
    off = {**given, "average_epochs": 0}
    plain = train_model("lenet5-modern", "digits", off, out=tmp_path / "p", progress=Progress(shown=False))
    assert read_json(plain.folder / "run.json")["average"] is None
    assert not any("mean of the weights" in line for line in result_lines(plain))


def test_two_averages_are_rejected_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"average_epochs=2 and ema=0\.9 are two averages"):
        train_model(
            "lenet5-modern", "digits", {"max_samples": 50, "average_epochs": 2, "ema": 0.9}, out=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()
