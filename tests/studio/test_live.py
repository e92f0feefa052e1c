"""Training held by hand: the very same training, done again by its log, looked back at, changed."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import cutaway
from cutaway.apps.studio.ipc import Layout, shared_row
from cutaway.apps.studio.setup import Opening, build_side, format_log, parse_log
from cutaway.apps.studio.trainer import LiveTrainer
from cutaway.core.errors import CutawayError, ModelError, SettingError, TrainingError, UnknownName

SMALL = {"model.hidden_dims": "6,5", "model.dropout": "0.2", "batch_size": "50", "lr": "0.02"}


def opened(
    folder: Path, model: str = "mlp", source: str = "moons", run: str | None = None, **given: str
) -> LiveTrainer:
    return LiveTrainer(build_side(Opening(model, source, given, run=run)), folder)


def small(folder: Path, **more: str) -> LiveTrainer:
    return opened(folder, **SMALL, **more)


def forward(live: LiveTrainer, updates: int) -> LiveTrainer:
    """So many updates, and no more."""
    goal = live.step + updates
    while live.step < goal:
        live.advance()
    return live


def epochs(live: LiveTrainer, count: int) -> LiveTrainer:
    for _ in range(count):
        while not live.advance():
            pass
    return live


def weights(live: LiveTrainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in live.trainer.model.state_dict().items()}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


# --- the same training ---------------------------------------------------------------------------------------------

SAME: list[tuple[str, str, dict[str, str]]] = [
    ("mlp", "moons", {"model.hidden_dims": "8,8", "model.dropout": "0.1"}),
    ("perceptron", "iris", {}),
    ("lenet5-modern", "digits", {"max_samples": "200", "batch_size": "50"}),
    ("gcn", "karate", {}),
    ("gae", "karate", {}),
    ("mlp", "spirals", {"noise": "0.1", "count": "200", "model.hidden_dims": "4"}),
]


@pytest.mark.parametrize(("model", "source", "given"), SAME, ids=[f"{m}-{s}" for m, s, _ in SAME])
def test_weights_are_those_of_train_bit_for_bit(model: str, source: str, given: dict[str, str], tmp_path: Path) -> None:
    usual = {"schedule": "constant", "tensorboard": False, "seed": "3"}
    run = cutaway.train(model, source, out=tmp_path / "run", epochs=2, **{**given, **usual})
    kept = cutaway.training.checkpoint.load_weights(run.folder / "checkpoints" / "last.safetensors")
    live = epochs(opened(tmp_path, model, source, **given, seed="3"), 2)
    assert equal(weights(live), kept)
    assert live.state.epoch == 2
    val = dict(live.curves.val)
    last = [line.split(",") for line in (run.folder / "metrics.csv").read_text().splitlines()]
    column = last[0].index("step")
    assert int(last[-1][column]) == live.step
    if "val_loss" in last[0]:
        assert math.isclose(val[live.step], float(last[-1][last[0].index("val_loss")]), rel_tol=1e-9)


@pytest.mark.parametrize("objective", ["ewc", "rehearsal"])
def test_tasks_are_learned_one_after_another_as_train_does(objective: str, tmp_path: Path) -> None:
    given = {
        "tasks": "classes:5",
        "objective": objective,
        "max_samples": "200",
        "epochs": "1",
        "model.hidden_dims": "8",
    }
    given |= {"fisher_samples": "10"} if objective == "ewc" else {"buffer": "3"}
    run = cutaway.train("mlp", "digits", out=tmp_path / "run", **given, schedule="constant", tensorboard=False)
    kept = cutaway.training.checkpoint.load_weights(run.folder / "checkpoints" / "last.safetensors")
    folder = tmp_path / "held"
    live = epochs(opened(folder, "mlp", "digits", **given), 2)
    assert equal(weights(live), kept)
    assert not list(folder.glob("*.safetensors"))  # nothing is written while it is held
    remembered = {name: value.clone() for name, value in live.trainer.objective.state().items()}
    live.change("model.dropout", "0.3")  # another trainer, which goes on from what the first remembers
    assert equal(live.trainer.objective.state(), remembered)
    assert bool(remembered) == (objective == "ewc")


@pytest.mark.parametrize(("model", "source", "given", "steps"), [
    ("mlp", "moons", {"model.hidden_dims": "3", "count": "1000"}, 450),
    ("mlp", "moons", {"model.hidden_dims": "3", "count": "500", "batch_size": "17"}, 450),
    ("linear", "diabetes", {"batch_size": "1"}, 700),
])  # fmt: skip
def test_the_validation_curve_goes_on_to_the_end(
    model: str, source: str, given: dict[str, str], steps: int, tmp_path: Path
) -> None:
    live = forward(opened(tmp_path, model, source, **given), steps)
    measured = [step for step, _ in live.curves.val]
    assert measured[-1] >= 0.8 * steps
    assert max(b - a for a, b in itertools.pairwise(measured)) <= 0.2 * steps
    columns = live.curves.to_json()
    assert {step for step, y in zip(columns["step"], columns["val"]) if y is not None} == set(measured)


def test_what_was_measured_before_training_is_soon_replaced(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat. " * 300)
    live = opened(
        tmp_path, "gru", str(book), **{"model.hidden_dim": "4", "batch_size": "1", "length": "20", "max_samples": "200"}
    )
    untrained = live.metrics(patient=True)["perplexity"]
    assert live.measured_at == 0
    forward(live, 40)
    assert not live.state.epoch, "the first epoch is not over"
    assert 0 < (live.measured_at or 0) <= 40
    assert live.metrics(patient=False)["perplexity"] != untrained


def test_nothing_is_written(tmp_path: Path) -> None:
    epochs(small(tmp_path), 2)
    assert list(tmp_path.iterdir()) == []
    assert not any(path.name.startswith("snapshots") for path in tmp_path.parent.iterdir())


def test_looking_changes_nothing(tmp_path: Path) -> None:
    alone, watched = small(tmp_path), small(tmp_path)
    row = torch.empty(watched.layout.size, dtype=torch.uint8)
    torch.manual_seed(5)
    forward(alone, 40)
    torch.manual_seed(5)
    for _ in range(40):
        forward(watched, 1)
        watched.write(row)
        watched.seek(watched.step // 2)
        watched.metrics(patient=True)
        watched.write(row)
        watched.seek(watched.step)
    assert equal(weights(alone), weights(watched))


# --- a log ---------------------------------------------------------------------------------------------------------

CHANGES = [("lr", "0.1"), ("weight_decay", "0.3"), ("batch_size", "30"), ("noise", "0.3"), ("count", "300"),
           ("model.dropout", "0.5"), ("model.dropout", "0"), ("model.activation", "tanh"), ("optimizer", "sgd"),
           ("grad_clip", "0.01")]  # fmt: skip


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 25), st.sampled_from(CHANGES)), max_size=5), st.floats(-2, 2))
def test_a_log_gives_the_same_weights_again(changes: list[tuple[int, tuple[str, str]]], weight: float) -> None:
    folder = Path("unused")
    live = small(folder)
    for steps, (key, value) in changes:
        forward(live, steps)
        live.change(key, value)
    live.weigh("hidden.0.linear.weight", (2, 1), weight)
    forward(live, 7)
    log = format_log(live.log)

    again = small(folder)
    for change in parse_log(log):
        forward(again, change.step - again.step)
        again.do_again(change)
    forward(again, live.step - again.step)
    assert equal(weights(live), weights(again))
    assert format_log(again.log) == log
    assert live.state.epoch == again.state.epoch


@pytest.mark.parametrize(("key", "value"), CHANGES, ids=[f"{k}={v}" for k, v in CHANGES])
def test_a_change_makes_a_difference(key: str, value: str, tmp_path: Path) -> None:
    plain, changed = small(tmp_path), small(tmp_path)
    random = torch.get_rng_state()
    forward(plain, 30)
    torch.set_rng_state(random)
    forward(changed, 10).change(key, value)
    forward(changed, 20)
    assert not equal(weights(plain), weights(changed))
    assert format_log(changed.log) == f"10:{key}={value}"


def test_what_is_changed_to_itself_changes_nothing(tmp_path: Path) -> None:
    plain, changed = small(tmp_path), small(tmp_path)
    random = torch.get_rng_state()
    forward(plain, 20)
    torch.set_rng_state(random)
    forward(changed, 7)
    for key, value in (
        ("lr", "0.02"),
        ("model.dropout", "0.2"),
        ("weight_decay", "0.01"),
        ("model.activation", "relu"),
    ):
        changed.change(key, value)
    forward(changed, 13)
    assert equal(weights(plain), weights(changed))


def test_of_changes_at_one_step_the_last_counts(tmp_path: Path) -> None:
    live = forward(small(tmp_path), 3)
    for value in ("0.5", "0.4", "0.3"):
        live.change("lr", value)
    assert format_log(live.log) == "3:lr=0.3"
    assert forward(live, 1).state.lr == 0.3


def test_decay_begins_where_there_was_none(tmp_path: Path) -> None:
    live = small(tmp_path, weight_decay="0")
    live.change("weight_decay", "0.5")
    decays = {g["weight_decay"] for o in live.trainer.optimizers for g in o.param_groups}
    assert decays == {0.0, 0.5}


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("model.hidden_dims", "9", ModelError, "open the model again"),
        ("model.norm", "batch", ModelError, "open the model again"),
        ("model.hiden", "9", UnknownName, "hidden_dims"),
        ("model.dropout", "2", ModelError, "below 1"),
        ("model.activation", "rilu", ModelError, "relu"),
        ("lr", "-1", SettingError, "must be at least 0"),
        ("lr", "nan", SettingError, "a finite number"),
        ("lr", "fast", SettingError, "a number"),
        ("optimizer", "best", SettingError, "adamw"),
        ("seed", "1", SettingError, "open the model again with seed=1"),
        ("data", "iris", SettingError, "open the model again"),
        ("weights", "/etc/passwd", SettingError, "open the model again"),
        ("noise", "-1", SettingError, "0 to 10"),
        ("lr", "1;2", SettingError, "semicolon"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_what_cannot_change_is_rejected_with_words(
    key: str, value: str, error: type[CutawayError], words: str, tmp_path: Path
) -> None:
    live = forward(small(tmp_path), 5)
    before = weights(live)
    with pytest.raises(error, match=words):
        live.change(key, value)
    assert equal(weights(live), before)
    assert live.log == []
    forward(live, 3)


def test_noise_is_for_points_that_are_drawn(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="moons"):
        opened(tmp_path, "mlp", "iris").change("noise", "0.1")


# --- a weight ------------------------------------------------------------------------------------------------------


def test_a_weight_is_set(tmp_path: Path) -> None:
    live = forward(small(tmp_path), 2)
    live.weigh("head.bias", (1,), 0.25)
    assert live.trainer.model.head.bias[1].item() == 0.25
    assert format_log(live.log) == "2:weight:head.bias[1]=0.25"


@pytest.mark.parametrize(
    ("name", "index", "value", "words"),
    [
        ("head.weigth", (0, 0), 0.0, "head.weight"),
        ("head.weight", (0,), 0.0, "shape"),
        ("head.weight", (2, 0), 0.0, "shape"),
        ("head.weight", (-1, 0), 0.0, "shape"),
        ("head.weight", (0, 0, 0), 0.0, "shape"),
        ("head.weight", (0, 0), math.nan, "Invalid weight nan: must be from"),
        ("head.weight", (0, 0), math.inf, "Invalid weight inf: must be from"),
        ("head.weight", (0, 0), 1e9, "Invalid weight 1e[+]09: must be from"),
    ],
)
def test_a_weight_that_is_not_there_is_rejected(
    name: str, index: tuple[int, ...], value: float, words: str, tmp_path: Path
) -> None:
    live = small(tmp_path)
    before = weights(live)
    with pytest.raises(CutawayError, match=words):
        live.weigh(name, index, value)
    assert equal(weights(live), before)


# --- back and forth ------------------------------------------------------------------------------------------------


def test_seek_shows_older_weights_and_loses_none(tmp_path: Path) -> None:
    live = small(tmp_path)
    row, first = torch.empty(live.layout.size, dtype=torch.uint8), live.layout.copy()
    forward(live, 30)
    newest = live.layout.copy()
    live.seek(0)
    live.write(row)
    assert live.at == 0
    assert torch.equal(row, first)
    assert torch.equal(live.layout.copy(), newest)
    live.seek(13)
    assert live.at == 13
    live.seek(10**12)
    live.write(row)
    assert live.at is None
    assert torch.equal(row, newest)


def test_metrics_are_of_what_is_looked_at(tmp_path: Path) -> None:
    live = small(tmp_path)
    at_first = live.metrics(patient=True)
    forward(live, 60)
    now = live.metrics(patient=True)
    live.seek(0)
    assert live.metrics(patient=True) == at_first != now
    live.seek(live.step)
    assert live.metrics(patient=True) == now
    live.weigh("head.bias", (0,), 50.0)
    assert live.metrics(patient=True)["loss"] > now["loss"]


def test_beginning_again_is_the_same_again(tmp_path: Path) -> None:
    live = forward(small(tmp_path), 25)
    once = weights(live)
    live.change("model.activation", "tanh")
    live.change("noise", "0.4")
    forward(live, 25)
    live.begin()
    assert (live.step, live.state.epoch, live.log, live.curves.train, live.snapshots.steps) == (0, 0, [], [], [0])
    assert equal(weights(forward(live, 25)), once)


def test_a_loss_that_is_not_finite_is_said(tmp_path: Path) -> None:
    live = forward(small(tmp_path, optimizer="sgd"), 2)
    live.change("lr", "1e30")
    with pytest.raises(TrainingError, match="not finite"):
        forward(live, 20)
    live.begin()
    forward(live, 2)


def test_a_schedule_comes_to_its_end_and_goes_on(tmp_path: Path) -> None:
    live = epochs(small(tmp_path, schedule="cosine", epochs="2"), 2)
    assert live.ended
    assert "schedule of 2 epochs" in live.notes[0]
    assert forward(live, 1).state.lr == 0.02


# --- a run ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("run") / "mine"
    return cutaway.train("mlp", "moons", out=folder, epochs=2, schedule="constant", **{"model.hidden_dims": (5,)})


def test_a_run_goes_on_where_it_stood(run: Any, tmp_path: Path) -> None:
    files = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    live = opened(tmp_path, "mlp", "", run=str(run.folder))
    assert live.state.epoch == 2
    assert live.step == live.curves.train[-1][0] > 0
    kept = cutaway.training.checkpoint.load_weights(run.folder / "checkpoints" / "last.safetensors")
    assert equal(weights(live), kept)
    went_on = weights(epochs(live, 2))
    further = cutaway.train("mlp", "moons", out=tmp_path / "longer", epochs=4, schedule="constant",
                            **{"model.hidden_dims": (5,)})  # fmt: skip
    longer = cutaway.training.checkpoint.load_weights(further.folder / "checkpoints" / "last.safetensors")
    assert equal(went_on, longer)
    assert files == {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    live.begin()
    assert equal(weights(live), kept)


def test_a_run_without_a_checkpoint_goes_on_from_its_model(run: Any, tmp_path: Path) -> None:
    import shutil

    bare = tmp_path / "bare"
    shutil.copytree(run.folder, bare)
    shutil.rmtree(bare / "checkpoints")
    live = opened(tmp_path, "mlp", "", run=str(bare))
    assert live.step == 0
    assert equal(weights(live), run.model.state_dict())
    forward(live, 3)


def test_another_model_learns_from_the_data_of_a_run(run: Any, tmp_path: Path) -> None:
    live = opened(tmp_path, "mlp", "", run=str(run.folder), **{"model.hidden_dims": "7"})
    assert live.step == 0
    assert "not the weights of the run" in live.notes[0]
    assert live.ready.data.fingerprint == run.data().fingerprint


# --- handing over --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18", "mlp", "lstm", "gcn"])
def test_weights_go_through_a_file(name: str, tmp_path: Path) -> None:
    from tests.small import small as small_model

    model, other = (small_model(name)[0] for _ in range(2))
    for parameter in other.parameters():
        torch.nn.init.constant_(parameter, 3.0)
    out, back = Layout(model), Layout(other)
    assert out.size == back.size
    out.write(shared_row(tmp_path / "row", out.size))
    back.read(shared_row(tmp_path / "row", out.size))
    assert equal(model.state_dict(), other.state_dict())
