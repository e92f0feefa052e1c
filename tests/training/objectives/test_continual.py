"""Tasks one after another: plain, with elastic weight consolidation, with rehearsal, and all at once."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import cutaway
from cutaway.core.errors import SettingError
from cutaway.data.task_sequence import PermutedSplit
from cutaway.runs.run import Run
from cutaway.training.callbacks import Progress
from cutaway.training.checkpoint import load_weights
from cutaway.training.objectives.choice import total_epochs
from cutaway.training.objectives.continual import EWC, Rehearsal
from cutaway.training.setup import setup_training
from cutaway.training.trainer import Trainer

from ..conftest import stopping

GIVEN: dict[str, Any] = {
    "tasks": "classes:5", "epochs": 2, "batch_size": 64, "max_samples": 256, "tensorboard": False,
    "model.hidden_dims": "16", "fisher_samples": 20, "buffer": 5,
}  # fmt: skip
WIDE: dict[str, Any] = {"batch_size": 16, "max_samples": 800, "model.hidden_dims": "64", "model.dropout": 0.0}
OWN = {"fisher_samples": "ewc", "buffer": "rehearsal", "ewc_lambda": "ewc"}


def settings(objective: str, **given: Any) -> dict[str, Any]:
    """Settings of a short sequence, without those of other objectives."""
    flat = {**GIVEN, "objective": objective, **given}
    return {key: value for key, value in flat.items() if OWN.get(key, objective) == objective}


def learn(out: Path, objective: str, model: str = "mlp", **given: Any) -> Run:
    """A run of a short sequence."""
    return cutaway.train(model, "digits", out=out, **settings(objective, **given))


def trainer_of(folder: Path, objective: str, **given: Any) -> Trainer:
    """A trainer of a short sequence, before it has begun."""
    ready = setup_training("mlp", "digits", settings(objective, **given))
    torch.manual_seed(0)
    return Trainer(
        ready.model, ready.data, ready.task, ready.settings, ready.place, folder / "checkpoints", Progress(False)
    )


def weights(run: Run) -> dict[str, Tensor]:
    """The weights that were kept."""
    return run.model.state_dict()


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether all weights are equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("tasks", ["classes:5", "permuted:3"])
def test_an_epoch_is_of_one_task_and_each_task_has_its_schedule(tmp_path: Path, tasks: str) -> None:
    trainer = trainer_of(tmp_path, "supervised", tasks=tasks, schedule="linear")
    of = trainer.task_schedule.task_ids
    assert of is not None
    count = int(of.max()) + 1
    assert trainer.task_schedule.epochs == 2 * count == total_epochs(trainer.settings, trainer.objective.data)
    for epoch in range(2 * count):
        rows = torch.cat(trainer.batches_of(epoch))
        assert sorted(rows.tolist()) == (of == epoch // 2).nonzero()[:, 0].tolist()
    trainer.fit()
    assert trainer.state.epoch == 2 * count
    ends = [row for row in trainer.state.history if "val_loss" in row]
    rates = {epoch: next(row["lr"] for row in trainer.state.history if row["epoch"] == epoch + 1) for epoch in (0, 2)}
    assert rates[0] == pytest.approx(rates[2], rel=0.3)  # a task begins at the rate that the first one began at
    assert len(ends) >= 2 * count


@pytest.mark.parametrize("objective", ["supervised", "ewc", "rehearsal", "joint"])
@pytest.mark.parametrize("update", [3, 7])  # in the first task, and in the second; there are 8 or 9
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, objective: str, update: int) -> None:
    whole = learn(tmp_path / "whole", objective)
    with stopping(update):
        learn(tmp_path / "run", objective)
    resumed = cutaway.train(resume=tmp_path / "run")
    assert same(weights(whole), weights(resumed))
    assert json.loads((whole.folder / "evaluation.json").read_text()) == json.loads(
        (resumed.folder / "evaluation.json").read_text()
    )


def test_what_ewc_remembers_is_in_the_checkpoint(tmp_path: Path) -> None:
    one, other = trainer_of(tmp_path, "ewc"), trainer_of(tmp_path, "ewc")
    one.fit()
    other.resume()
    remembered = one.objective.state()
    assert {name.split(".")[0] for name in remembered} == {"fisher", "held"}
    assert same(remembered, other.objective.state())


def test_a_penalty_of_no_strength_is_fine_tuning_to_the_last_bit(tmp_path: Path) -> None:
    plain = learn(tmp_path / "plain", "supervised")
    none = learn(tmp_path / "none", "ewc", ewc_lambda=0.0)
    some = learn(tmp_path / "some", "ewc", ewc_lambda=100.0)
    assert same(weights(plain), weights(none))
    assert not same(weights(plain), weights(some))


def test_the_gradient_of_the_penalty_is_that_of_every_tasks_own(tmp_path: Path) -> None:
    """λ Σ_A F_A (θ − θ*_A) of all tasks before, with F and θ* held apart, as the paper has it."""
    trainer = trainer_of(tmp_path, "ewc", tasks="classes:2", precision="float64", ewc_lambda=30.0)
    ewc, model = trainer.objective, trainer.model
    assert isinstance(ewc, EWC)
    generator, tasks = torch.Generator().manual_seed(0), []
    for task in range(3):
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.1 * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        before = {name: F.clone() for name, F in ewc.fisher.items()}
        ewc.end_task(trainer.train, trainer.place, 2 * task + 1)
        fisher = {name: F - before.get(name, torch.zeros_like(F)) for name, F in ewc.fisher.items()}
        tasks.append((fisher, {name: p.detach().clone() for name, p in model.named_parameters()}))
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    found = torch.autograd.grad(ewc.penalty(), list(model.parameters()))
    for (name, weight), slope in zip(model.named_parameters(), found):
        by_hand = sum(30.0 * fisher[name] * (weight - theirs[name]) for fisher, theirs in tasks)
        assert isinstance(by_hand, Tensor)
        assert float(by_hand.detach().abs().max()) > 0
        assert torch.allclose(slope, by_hand, rtol=1e-8, atol=1e-12)


def test_a_step_has_the_penalty_once_however_large_the_batch(tmp_path: Path) -> None:
    ends = []
    for accumulate in (1, 2):
        trainer = trainer_of(
            tmp_path, "ewc", precision="float64", ewc_lambda=50.0, schedule="constant", optimizer="sgd", lr=0.1,
            batch_size=32 // accumulate, accumulate=accumulate, **{"model.dropout": 0.0},
        )  # fmt: skip
        trainer.fit()
        ends.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]))
    assert torch.allclose(*ends, rtol=0, atol=1e-9)


def test_the_fisher_information_asks_for_nothing_random_of_the_training(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, "ewc")
    before = torch.get_rng_state()
    trainer.objective.end_task(trainer.train, trainer.place, 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert trainer.model.training


def test_rehearsal_stores_so_many_of_each_class_and_draws_them_alike(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, "rehearsal", tasks="classes:2")
    rehearsal, train, of = trainer.objective, trainer.train, trainer.task_schedule.task_ids
    assert isinstance(rehearsal, Rehearsal)
    assert of is not None
    assert train.target is not None
    assert len(rehearsal.stored(train, 0)) == 0
    stored = rehearsal.stored(train, 3)
    assert train.target[stored].bincount(minlength=10).tolist() == [5] * 6 + [0] * 4
    assert set(rehearsal.stored(train, 2).tolist()) < set(stored.tolist())  # what is stored stays
    assert (
        torch.cat(trainer.batches_of(1)).tolist()
        == torch.cat(trainer.task_schedule.batches(train, trainer.settings, 1)).tolist()
    )
    for epoch in (6, 7):
        drawn = torch.cat(trainer.batches_of(epoch))
        counts = drawn.bincount(minlength=len(train))
        new = of == 3
        assert int(counts[new].min()) == int(counts[new].max()) == 1
        assert int(counts[stored].sum()) == int(new.sum())  # as many again
        assert int(counts[stored].max() - counts[stored].min()) <= 1
        assert len(drawn) == 2 * int(new.sum())


def test_a_buffer_of_everything_learns_every_example_of_all_tasks(tmp_path: Path) -> None:
    """Nothing but the tasks before is stored, and all of it: with tasks of one size each is drawn exactly once."""
    ready = trainer_of(tmp_path, "joint", tasks="permuted:2", max_samples=200)
    assert total_epochs(ready.settings, ready.objective.data) == ready.task_schedule.epochs == 2  # not 4
    assert isinstance(ready.train, PermutedSplit)
    most = int(ready.train.base.target.bincount().max())  # type: ignore[union-attr]
    trainer = trainer_of(tmp_path, "rehearsal", tasks="permuted:2", max_samples=200, buffer=most)
    joint = sorted(torch.cat(ready.batches_of(0)).tolist())
    assert sorted(torch.cat(trainer.batches_of(2)).tolist()) == joint == list(range(400))
    with pytest.raises(SettingError, match="is more than a class of a task has: at most"):
        trainer_of(tmp_path, "rehearsal", tasks="permuted:2", max_samples=200, buffer=most + 1)


def test_joint_training_is_training_on_all_examples_at_once(tmp_path: Path) -> None:
    plain = cutaway.train(
        "mlp", "digits", out=tmp_path / "plain",
        **{key: value for key, value in settings("supervised").items() if key != "tasks"},
    )  # fmt: skip
    joint = learn(tmp_path / "joint", "joint")
    if plain.about["best"]["epoch"] != 2:
        pytest.skip("the best epoch was not the last")
    assert same(weights(plain), weights(joint))
    assert set(joint.evaluate()) - set(plain.evaluate()) == {"average_accuracy"}


def test_the_matrix_is_of_the_weights_after_each_task(tmp_path: Path) -> None:
    run = learn(tmp_path / "run", "supervised", tasks="classes:2", epochs=3, lr=0.01, **WIDE)
    evaluation = json.loads((run.folder / "evaluation.json").read_text())
    matrix = evaluation["tasks"]["accuracy"]
    assert evaluation["split"] == "test"
    assert [len(row) for row in matrix] == [5] * 5
    test = run.data().splits["test"]
    batch = next(iter(test.batches([torch.arange(len(test))])))
    for t in range(4):
        run.model.load_state_dict(load_weights(run.folder / "checkpoints" / f"task-{t + 1}.safetensors"))
        with torch.no_grad():
            right = run.model(*batch.inputs).argmax(1) == batch.target
        expected = [right[batch.target // 2 == j].double().mean().item() for j in range(5)]
        assert matrix[t] == pytest.approx(expected)
    again = Run(run.folder)
    found = again.evaluate()
    for key in ("average_accuracy", "forgetting", "backward_transfer"):
        assert found[key].value == pytest.approx(evaluation["metrics"][key]["value"])
    assert found["average_accuracy"].value == pytest.approx(sum(matrix[-1]) / 5)
    # What was learned is forgotten: that is what the measures are for.
    assert matrix[0][0] > 0.9
    assert found["forgetting"].value > 0.3
    assert found["backward_transfer"].value < -0.3
    for path in (run.folder / "checkpoints").glob("task-*"):
        path.unlink()
    assert "forgetting" not in Run(run.folder).evaluate()


def test_the_last_weights_are_kept_and_validation_is_of_the_tasks_so_far(tmp_path: Path) -> None:
    run = learn(tmp_path / "run", "supervised", epochs=3, lr=0.01, **WIDE)
    last = load_weights(run.folder / "checkpoints" / "last.safetensors")
    assert same(last, load_weights(run.folder / "checkpoints" / "best.safetensors"))
    rows = list(csv.DictReader((run.folder / "metrics.csv").open()))
    first = next(row for row in reversed(rows) if row["epoch"] == "3")
    assert float(first["val_accuracy"]) > 0.75  # of five classes that are known, not of ten
    page = (run.folder / "report.html").read_text()
    assert "Task by task" in page
    assert "The weights after the last task were kept" in page


def test_a_network_of_images_learns_permuted_ones(tmp_path: Path) -> None:
    given = settings("ewc", tasks="permuted:2", epochs=1)
    del given["model.hidden_dims"]
    found = cutaway.train("simplecnn", "digits", out=tmp_path / "run", **given)
    assert {"average_accuracy", "forgetting"} <= set(found.evaluate())
    assert found.evaluate(attack="fgsm").keys() == found.evaluate().keys() - {
        "average_accuracy", "forgetting", "backward_transfer",
    }  # fmt: skip


def test_texts_come_in_tasks_too(tmp_path: Path) -> None:
    words = ("red", "blue", "green", "black")
    rows = [f"{word} {'very ' * (i % 4)}good\t{word}" for i in range(40) for word in words]
    (tmp_path / "texts.tsv").write_text("text\tcolour\n" + "\n".join(rows) + "\n")
    run = cutaway.train(
        "textcnn", tmp_path / "texts.tsv", out=tmp_path / "run", text="text", target="colour", tasks="classes:2",
        objective="rehearsal", epochs=1, batch_size=16, tensorboard=False, buffer=3,
    )  # fmt: skip
    assert "forgetting" in run.evaluate()


@pytest.mark.parametrize(
    ("objective", "given", "said"),
    [
        ("ewc", {"tasks": None}, "objective=ewc holds what mattered to the tasks before, and there are no tasks"),
        ("rehearsal", {"tasks": None}, "there are no tasks: give tasks=permuted:10"),
        ("joint", {"tasks": None}, "objective=joint learns all tasks at once, and there are no tasks"),
        ("rehearsal", {"buffer": 1000}, "buffer=1000 is more than a class of a task has"),
        ("supervised", {"patience": 3}, "patience=3 cannot be used with tasks"),
        ("supervised", {"max_steps": 3}, "max_steps=3 cannot be used with tasks"),
        ("supervised", {"minutes": 3}, "minutes=3 cannot be used with tasks"),
        ("supervised", {"average_epochs": 3}, "average_epochs=3 cannot be used with tasks"),
        ("supervised", {"ema": 0.9}, "ema=0.9 cannot be used with tasks"),
        ("supervised", {"monitor": "loss"}, "monitor=loss cannot be used with tasks"),
        ("supervised", {"lora": 2}, "lora=2 cannot be used with tasks"),
        ("supervised", {"loss": "perceptron"}, "loss=perceptron ends training"),
        ("ewc", {"loss": "mse"}, "objective=ewc asks how likely each class is"),
        ("ewc", {"attack": "fgsm"}, "attack=fgsm and objective"),
        ("simclr", {}, "tasks=classes:5 makes tasks of examples with classes"),
        ("supervised", {"tasks": "classes:3"}, "there are 10 classes"),
    ],
)
def test_what_cannot_be_is_rejected(objective: str, given: dict[str, Any], said: str) -> None:
    flat = {key: value for key, value in settings(objective, **given).items() if value is not None}
    if objective == "simclr":
        flat.pop("model.hidden_dims")
    with pytest.raises(SettingError) as rejection:
        setup_training("simplecnn" if objective == "simclr" else "mlp", "digits", flat)
    assert said in str(rejection.value)


def test_settings_of_other_objectives_would_change_nothing() -> None:
    for key, value in (("ewc_lambda", 5.0), ("fisher_samples", 7), ("buffer", 3)):
        with pytest.raises(SettingError, match=f"{key}={value:g} would change nothing"):
            setup_training("mlp", "digits", {"tasks": "classes:2", key: value})


def test_epochs_cannot_change_when_tasks_are_resumed(tmp_path: Path) -> None:
    with stopping(3):
        learn(tmp_path / "run", "supervised")
    with pytest.raises(SettingError, match="epochs=5 cannot change in a run of tasks, each of which has 2"):
        cutaway.train(resume=tmp_path / "run", epochs=5)
