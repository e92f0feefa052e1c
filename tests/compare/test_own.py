"""Modules of one's own in a comparison and a search: made anew from each seed, as named models are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cutaway
from cutaway.checkpoints.factory import to_builder
from cutaway.core.errors import ModelError, SettingError, UnknownName
from cutaway.experiments.compare.comparison_page import repeat_command
from cutaway.experiments.compare.result import Comparison
from cutaway.training.trainer import Trainer

pytestmark = pytest.mark.slow  # processes, or runs that are trained

SHORT: dict[str, Any] = {"epochs": 2, "seeds": 2, "threads": 1, "baselines": False}


class Net(nn.Module):
    """Two layers for iris."""

    def __init__(self, width: int = 8, dropout: float = 0.0, act: type[nn.Module] = nn.Tanh) -> None:
        super().__init__()
        self.hidden, self.act, self.out = nn.Linear(4, width), act(), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        given: Tensor = self.out(self.act(self.hidden(x)))
        return given


def wide() -> nn.Module:
    """A wider one."""
    return Net(32)


def wrong() -> nn.Module:
    """Two classes, and iris has three."""
    return nn.Linear(4, 2)


def same(width: Any) -> nn.Module:
    """Of a parameter whose type nothing says."""
    return Net(width)


MODELS: list[Any] = ["softmax", Net, ("wider", wide), wrong]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return cutaway.compare(MODELS, "iris", out=tmp_path_factory.mktemp("own") / "c", **SHORT)


def test_modules_of_ones_own_are_compared_as_named_ones_are(found: Comparison) -> None:
    (result,) = found.results
    rows = {row["name"]: row for row in result["models"]}
    assert set(rows) == {"softmax", "Net", "wider"}
    assert [one["model"] for one in result["excluded"]] == ["wrong"]
    assert "needs (2, 3)" in result["excluded"][0]["why"]
    assert rows["Net"]["parameters"] == 4 * 8 + 8 + 8 * 3 + 3
    assert rows["Net"]["macs"] == 4 * 8 + 8 * 3
    own = [cutaway.load(folder, model=Net) for folder in rows["Net"]["runs"]]
    assert rows["Net"]["scores"] == pytest.approx([run.evaluate()["accuracy"].value for run in own])
    assert repeat_command(found).startswith(
        'cutaway.compare(["softmax", ("Net", Net), ("wider", wide), ("wrong", wrong)], "iris"'
    )


def test_each_seed_begins_with_weights_of_its_own(found: Comparison, tmp_path: Path) -> None:
    """The second seed's training is that of a module which was built by hand from that seed."""
    torch.manual_seed(1)
    net = Net()
    cutaway.train(net, "iris", out=tmp_path / "r", epochs=2, threads=1, seed=1, tensorboard=False)
    there = cutaway.load(found.folder / "iris" / "Net" / "seed-1", model=Net).model.state_dict()
    assert all(torch.equal(there[name], value) for name, value in net.state_dict().items())


def test_it_goes_on_with_the_same_makers_alone(found: Comparison) -> None:
    before = {path: path.stat().st_mtime_ns for path in found.folder.glob("iris/*/*/run.json")}
    again = cutaway.compare([Net, ("wider", wide), wrong], resume=found.folder, seeds=3)
    assert all(len(row["scores"]) == 3 for row in again.results[0]["models"])
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    with pytest.raises(SettingError, match=r'built by .*test_own\.Net: .*\("Net", make\)'):
        cutaway.compare(resume=found.folder)
    with pytest.raises(SettingError, match="uses the models and data"):
        cutaway.compare([Net, ("wider", wide), wrong, "mlp"], resume=found.folder)


def test_what_is_in_memory_goes_on_after_a_stop(tmp_path: Path) -> None:
    """A training that was stopped between two checkpoints comes to the same weights, of data and module in memory."""
    x = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    settings = {**SHORT, "seeds": 1, "batch_size": 16}
    once = Trainer.step

    def step(self: Trainer, group: list[Any], steps: int) -> None:
        once(self, group, steps)
        self._stop.requested = self.state.update == 4

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", step)
        with pytest.raises(KeyboardInterrupt):
            cutaway.compare([Net], (x, y), out=tmp_path / "stopped", **settings)
    cutaway.compare([Net], data=(x, y), resume=tmp_path / "stopped")
    whole = cutaway.compare([Net], (x, y), out=tmp_path / "whole", **settings)
    one, other = (
        cutaway.load(folder / "data" / "Net" / "seed-0", model=Net) for folder in (tmp_path / "stopped", whole.folder)
    )
    assert one.about["resumed"]
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters()))


def test_trials_draw_what_the_maker_takes(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="trials are Optuna's")
    found = cutaway.compare([Net], "iris", out=tmp_path / "c", trials=2, **{**SHORT, "seeds": 1})
    assert set(found.results[0]["chosen"]["Net"]) == {"lr", "weight_decay", "model.dropout"}


def test_a_search_draws_the_parameters_of_what_makes_the_module(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="a search is Optuna's")
    space = {"model.width": "4..16", "lr": "1e-3..1e-1:log"}
    given: dict[str, Any] = {"epochs": 2, "tensorboard": False, "threads": 1, "trials": 2}
    found = cutaway.search(Net, "iris", space=space, out=tmp_path / "s", **given)
    best = found.best
    assert best is not None
    assert found.run.model.state_dict()["hidden.weight"].shape[0] == best["model.width"]
    assert found.run.about["settings"]["lr"] == best["lr"]
    assert found.run.evaluate("iris")["accuracy"].value >= 0
    assert all(row["parameters"] == 8 * row["model.width"] + 3 for row in found.trials)
    assert len(cutaway.search(Net, resume=tmp_path / "s", trials=3).trials) == 3
    with pytest.raises(
        SettingError, match=r"is built by tests\.compare\.test_own\.Net: pass it again, e\.g\. search\(Net"
    ):
        cutaway.search(resume=tmp_path / "s")
    with pytest.raises(SettingError, match="with another space"):
        cutaway.search(("Net", wide), "iris", space={"lr": space["lr"]}, out=tmp_path / "s", **given)
    with pytest.raises(UnknownName, match=r"'widht'\. Similar: width"):
        cutaway.search(Net, "iris", space={"model.widht": "4..8"}, out=tmp_path / "no")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Net(), r'This Net is an instance.*\("mine", lambda: Net'),
        (3, "3 is not a model"),
        (lambda: Net(), "has no name that a folder can have"),
        (("a/b", wide), "'a/b' cannot be the name"),
        (("mlp", wide), "mlp is a model of `cutaway list`"),
        (same, "must be given width, and nothing says what that is"),
        (("x", dict), "makes a dict, and no torch.nn.Module"),
        (nn.Flatten(), "This Flatten is an instance"),
        (nn.Linear, "needs in_features, out_features"),
    ],
)
def test_what_makes_no_module_is_told(make: Any, said: str) -> None:
    with pytest.raises((ModelError, SettingError), match=said):
        to_builder(make).new({})


def test_a_module_that_has_learned_is_not_taken_for_a_new_one() -> None:
    net = Net()
    made = to_builder(("mine", lambda: net))
    made.new({})
    with pytest.raises(ModelError, match="gave the same module twice"):
        made.new({})


def test_the_parameters_of_a_maker_are_settings_with_their_types() -> None:
    def make(  # type: ignore[no-untyped-def]
        width: int,
        sizes: tuple[int, ...] = (3,),
        rate: float | None = None,
        *,
        deep=True,  # which is told by its default
        act: type[nn.Module] = nn.ReLU,
    ) -> nn.Module:
        return nn.Linear(width, sizes[0])

    made = to_builder(make)
    assert made.kinds == {"width": "int", "sizes": "ints", "rate": "float", "deep": "bool"}
    module, rest = made.new({"model.width": "5", "model.sizes": "7,8", "lr": 0.1})
    assert module.weight.shape == (7, 5)
    assert rest == {"lr": 0.1}
