"""Training that begins with weights: the head first, then everything with rates that fall towards the input; what is
frozen stays; and a run that was stopped goes on bit for bit, in either phase and between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.checkpoints.saving import load_model, read_tensors
from cutaway.core.errors import CutawayError, FileError, SettingError
from cutaway.core.files import read_json
from cutaway.data.dataset_base import DataSet
from cutaway.models.base import BaseModel
from cutaway.runs.train import train_model
from cutaway.training.callbacks import Callback, Interrupted, Progress
from cutaway.training.checkpoint import TrainingState
from cutaway.training.optim import layer_depths
from cutaway.training.setup import setup_training
from cutaway.training.trainer import Trainer

from .conftest import fitted

Make = Callable[..., Trainer]
GIVEN = {"max_samples": 90, "batch_size": 32, "tensorboard": False, "threads": 1}


def normed() -> nn.Sequential:
    """A network with a norm and dropout in its body, always with the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.Dropout(0.3), nn.Linear(16, 2)
    )


def left(model: nn.Module) -> dict[str, Tensor]:
    return {k: v.detach().clone() for k, v in model.state_dict().items()}


def moved(before: dict[str, Tensor], model: nn.Module) -> set[str]:
    return {k for k, v in model.state_dict().items() if not torch.equal(v, before[k])}


def test_what_is_frozen_keeps_every_bit(make_trainer: Make) -> None:
    trainer = make_trainer(model=normed(), freeze="0,1", weight_decay=0.1)
    before = left(trainer.model)
    trainer.fit()
    kept = {k for k in before if k.startswith(("0.", "1."))}
    assert "1.running_mean" in kept
    assert moved(before, trainer.model) == before.keys() - kept


def test_the_head_learns_alone_and_then_everything(make_trainer: Make) -> None:
    class Note(Callback):
        def on_epoch_end(self, state: TrainingState) -> None:
            after.append(moved(before, self.trainer.model))

    trainer = make_trainer(model=normed(), freeze_epochs=1, weight_decay=0.1, callbacks=[Note()])
    before, after = left(trainer.model), []
    trainer.fit()
    assert after[0] == {"5.weight", "5.bias"}
    assert after[1] == before.keys()


def test_each_phase_has_a_schedule_of_its_own(make_trainer: Make) -> None:
    rates: list[float] = []

    class Noting(Trainer):
        def step(self, group: list, steps: int) -> None:  # type: ignore[type-arg]
            super().step(group, steps)
            rates.append(self.state.lr)

    trainer = make_trainer(epochs=3, freeze_epochs=1, lr=0.1, schedule="cosine")
    trainer.__class__ = Noting
    trainer.fit()
    alone, rest = rates[:6], rates[6:]
    assert alone[0] == rest[0] == 0.1
    assert alone == sorted(alone, reverse=True)
    assert rest == sorted(rest, reverse=True)
    assert alone[3] == pytest.approx(0.05) == rest[6]


def test_rates_fall_with_the_distance_from_the_head(make_trainer: Make) -> None:
    model = normed()
    trainer = make_trainer(
        model=model, optimizer="sgd", lr=0.1, schedule="constant", layer_decay=0.5, epochs=1, precision="float64"
    )
    before, found = left(model), layer_depths(model)
    assert found == {
        "0.weight": 2, "0.bias": 2, "1.weight": 2, "1.bias": 2, "3.weight": 1, "3.bias": 1, "5.weight": 0, "5.bias": 0,
    }  # fmt: skip
    batch = next(trainer.train.batches(trainer.epoch_batches(0)))
    trainer.step([batch], steps=1)
    for name, p in trainer.model.named_parameters():
        assert p.grad is not None
        assert torch.allclose(p, before[name] - 0.1 * 0.5 ** found[name] * p.grad, rtol=0, atol=1e-12), name


@pytest.mark.parametrize("stop_at", [2, 6, 7, 9])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_stopped_in_either_phase_or_between_goes_on_bit_for_bit(
    make_trainer: Make, stop_at: int, optimizer: str
) -> None:
    given = {"freeze_epochs": 1, "layer_decay": 0.7, "freeze": "0.bias", "ema": 0.9, "optimizer": optimizer}
    whole, again = (fitted(lambda: make_trainer(model=normed(), **given), at) for at in (0, stop_at))
    assert not moved(left(whole.model), again.model)
    assert whole.average is not None
    assert again.average is not None
    assert all(torch.equal(whole.average.weights[k], again.average.weights[k]) for k in whole.average.weights)
    assert [{**r, "seconds": 0} for r in whole.state.history] == [{**r, "seconds": 0} for r in again.state.history]


def test_the_second_phase_has_what_is_left_of_the_time(make_trainer: Make) -> None:
    trainer = make_trainer(minutes=1.0, schedule="cosine", lr=1.0)
    trainer.state.phase_seconds, trainer.state.seconds = 20.0, 40.0
    trainer.step([next(trainer.train.batches(trainer.epoch_batches(0)))], steps=1000)
    assert trainer.state.lr == pytest.approx(0.5)


# --- runs ---------------------------------------------------------------------------------------------------------


def run(folder: Path, **given: Any) -> Path:
    train_model("simplecnn", "digits", {**GIVEN, **given}, out=folder, progress=Progress(shown=False))
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on digits: what later ones begin with."""
    return run(tmp_path_factory.mktemp("runs") / "source", epochs=1)


def test_a_run_begins_with_the_weights_of_another_and_says_so(source: Path, tmp_path: Path) -> None:
    ready = setup_training("simplecnn", "digits", {**GIVEN, "weights": str(source), "seed": 5})
    before = load_model(source / "model")[0].state_dict()
    assert not moved(before, ready.model)
    run(tmp_path / "r", epochs=2, weights=str(source), freeze="conv1,bn1", lr=0.01)
    after = load_model(tmp_path / "r" / "model")[0]
    assert moved(before, after) == {k for k in before if not k.startswith(("conv1.", "bn1."))}
    about = read_json(tmp_path / "r" / "run.json")
    assert about["weights"]["path"] == str(source / "model" / "model.safetensors")
    assert len(about["weights"]["sha256"]) == 64
    assert about["weights"]["new"] == []
    assert (about["settings"]["freeze_epochs"], about["settings"]["layer_decay"]) == (0, 0.8)
    assert read_json(source / "run.json")["weights"] is None
    assert read_json(source / "run.json")["settings"]["layer_decay"] == 1.0


def test_a_new_head_learns_alone_for_an_epoch(tmp_path: Path, source: Path) -> None:
    root = tmp_path / "two"
    from PIL import Image

    for kind in ("dark", "light"):
        (root / kind).mkdir(parents=True)
        for i in range(12):
            Image.new("L", (8, 8), (40 if kind == "dark" else 180) + i).save(root / kind / f"{i}.png")
    given = {"tensorboard": False, "weights": str(source), "epochs": 3, "workers": 0}
    ready = setup_training("simplecnn", str(root), given)
    assert ready.taken is not None
    assert ready.taken.new == ("head",)
    assert (ready.settings.freeze_epochs, ready.settings.layer_decay) == (1, 0.8)
    assert setup_training("simplecnn", str(root), {**given, "epochs": 1}).settings.freeze_epochs == 0
    assert setup_training("simplecnn", str(root), {**given, "freeze_epochs": 0}).settings.freeze_epochs == 0


def test_a_run_taken_up_again_needs_the_file_no_more(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"epochs": 3, "freeze_epochs": 1, "lr": 0.01}
    whole = run(tmp_path / "whole", weights=str(source), **given)
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes((source / "model" / "model.safetensors").read_bytes())
    step = Trainer.step

    def stopping(self: Trainer, group: Any, steps: int) -> None:
        step(self, group, steps)
        self._stop.requested = self.state.update == 4

    monkeypatch.setattr(Trainer, "step", stopping)
    with pytest.raises(Interrupted):
        run(tmp_path / "again", weights=str(copy), **given)
    monkeypatch.undo()
    copy.unlink()
    train_model(None, None, {}, resume=tmp_path / "again", progress=Progress(shown=False))
    a, b = (read_tensors(f / "checkpoints" / "last.safetensors")[0] for f in (whole, tmp_path / "again"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert read_json(tmp_path / "again" / "run.json")["weights"]["path"] == str(copy)


def test_a_run_without_a_checkpoint_begins_with_the_same_weights_or_not_at_all(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes((source / "model" / "model.safetensors").read_bytes())

    def killed(self: Trainer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "fit", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "r", weights=str(copy), epochs=2)
    monkeypatch.undo()
    other = run(tmp_path / "other", epochs=1, seed=3)
    content = copy.read_bytes()
    copy.write_bytes((other / "model" / "model.safetensors").read_bytes())
    with pytest.raises(
        FileError, match=r"copy\.safetensors has changed since this run began, and the run has no checkpoint yet"
    ):
        train_model(None, None, {}, resume=tmp_path / "r", progress=Progress(shown=False))
    copy.write_bytes(content)
    train_model(None, None, {}, resume=tmp_path / "r", progress=Progress(shown=False))
    whole = run(tmp_path / "whole", weights=str(source), epochs=2)
    a, b = (load_model(f / "model")[0].state_dict() for f in (whole, tmp_path / "r"))
    assert all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"freeze_epochs": 1}, SettingError, "freeze_epochs=1 .*without weights"),
        ({"freeze": "*"}, SettingError, r"freeze=\* leaves nothing of the model to learn"),
        ({"freeze": "convv1"}, SettingError, "freeze=convv1: .*conv1"),
        ({"weights": "nowhere"}, FileError, "There is no file or folder 'nowhere'"),
        ({"layer_decay": 0}, SettingError, "Invalid layer_decay=0: must be 0.01 to 1"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], error: type[CutawayError], said: str) -> None:
    with pytest.raises(error, match=said):
        setup_training("simplecnn", "digits", {**GIVEN, **given})


def test_settings_that_leave_the_first_phase_nothing(source: Path) -> None:
    for given, said in (
        ({"epochs": 2, "freeze_epochs": 3}, "freeze_epochs=3 .*epochs=2"),
        ({"freeze_epochs": 1, "freeze": "head"}, "freeze=head leaves nothing of the head to learn"),
    ):
        with pytest.raises(SettingError, match=said):
            setup_training("simplecnn", "digits", {**GIVEN, "weights": str(source), **given})


# --- initialization from images ------------------------------------------------------------------------------------


class Whitened(BaseModel):
    """A network that takes its initialization from training examples."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))
        self.head = nn.Linear(5, 2)
        self.seen: list[Tensor] = []

    def initialize_from(self, images: Tensor) -> None:
        self.seen.append(images)
        self.mean: Tensor = images.mean(0)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x - self.mean)
        return logits


def test_a_model_takes_its_first_weights_from_training_examples(make_trainer: Make, data: DataSet) -> None:
    trainer = make_trainer(model=Whitened(), ema=0.9)
    trainer.begin()
    (seen,) = trainer.model.seen
    train = data.splits["train"].inputs  # type: ignore[attr-defined]
    assert torch.equal(seen.sort(0).values, train.sort(0).values)
    assert trainer.average is not None
    assert torch.equal(trainer.average.weights["mean"], trainer.model.mean)
    taken = make_trainer(model=Whitened(), weights="somewhere")
    taken.begin()
    assert taken.model.seen == []


def test_a_fresh_run_begins_so_and_one_that_goes_on_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(Trainer, "begin", lambda self: begun.append(str(self.checkpoints.parent.name)))
    run(tmp_path / "r", epochs=1)
    train_model(None, None, {"epochs": 2}, resume=tmp_path / "r", progress=Progress(shown=False))
    assert begun == ["r"]
