"""Magnitude pruning: what becomes 0 is smallest, follows the schedule, stays 0, and outlives a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cutaway
from cutaway.core.errors import SettingError
from cutaway.training.compression import PatternPruning, Pruning, measure_sparsity, prunable_weights

from ..small import small
from .conftest import stopping

NOT_PRUNED = ("embedding", "positions", "norm", "norm1", "norm2")
SMALL: dict[str, Any] = {"max_samples": 128, "batch_size": 32, "epochs": 4, "tensorboard": False, "threads": 1}


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))


def zeros(model: nn.Module) -> list[torch.Tensor]:
    return [weight == 0 for weight in prunable_weights(model).values()]


def test_the_schedule_is_that_of_zhu_and_gupta() -> None:
    model = layers()
    pruning = Pruning(model, 0.8, "global", 0.5, begun=False)
    count = 20 * 30 + 30 * 10
    for done in (0.0, 0.1, 0.25, 0.4, 0.5, 0.9):
        pruning.step(done)
        expected = 0.8 * (1 - max(0.0, 1 - done / 0.5) ** 3)
        assert pruning.zeros == round(expected * count) == sum(int(mask.sum()) for mask in zeros(model))


def test_the_smallest_of_all_weights_go_or_those_of_each_layer() -> None:
    for scope in ("global", "layer"):
        model = layers()
        before = [weight.detach().clone() for weight in prunable_weights(model).values()]
        Pruning(model, 0.6, scope, 0.0, begun=False).step(0.0)
        together = torch.cat([weight.abs().flatten() for weight in before])
        for weight, gone in zip(before, zeros(model)):
            sizes = together if scope == "global" else weight.abs().flatten()
            threshold = sizes.sort().values[round(0.6 * len(sizes))]
            assert torch.equal(gone, weight.abs() < threshold)


def test_what_an_update_moves_is_0_again_and_never_comes_back() -> None:
    model = layers()
    pruning = Pruning(model, 0.5, "global", 0.5, begun=False)
    gone: list[torch.Tensor] = [
        torch.zeros_like(weight, dtype=torch.bool) for weight in prunable_weights(model).values()
    ]
    for step in range(20):
        with torch.no_grad():
            for weight in prunable_weights(model).values():
                weight += 0.1 * torch.randn(weight.shape)
        pruning.step(step / 20)
        now = zeros(model)
        assert all((before <= after).all() for before, after in zip(gone, now))
        gone = now
    assert sum(int(mask.sum()) for mask in gone) == round(0.5 * 900)


def test_a_pruned_model_that_is_pruned_on_keeps_its_zeros() -> None:
    model = layers()
    Pruning(model, 0.7, "layer", 0.0, begun=False).step(0.0)
    gone = zeros(model)
    Pruning(model, 0.3, "global", 0.0, begun=True).step(0.0)
    assert all(torch.equal(before, after) for before, after in zip(gone, zeros(model)))
    Pruning(model, 0.9, "global", 0.0, begun=True).step(0.0)
    assert measure_sparsity(model) == pytest.approx(0.9)
    assert all((before <= after).all() for before, after in zip(gone, zeros(model)))


def test_in_the_pattern_the_smaller_two_of_each_four_inputs_are_0_and_stay_so() -> None:
    torch.manual_seed(0)
    fits: list[Any] = [nn.Linear(12, 5), nn.Conv1d(8, 4, 3), nn.Conv2d(16, 8, 3, groups=4)]
    others: list[nn.Module] = [nn.Linear(6, 3), nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.LSTM(8, 4)]
    before = [layer.weight.detach().clone() for layer in fits]
    pruning = PatternPruning(nn.ModuleList([*fits, *others]))
    for layer, old in zip(fits, before):
        new, old = layer.weight.unfold(1, 4, 4), old.unfold(1, 4, 4)  # (outputs, inputs / 4, …, 4)
        assert torch.equal((new == 0).sum(-1), torch.full(new.shape[:-1], 2))
        assert torch.equal(new, old.where(old.abs() >= old.abs().sort(-1).values[..., 2:3], torch.zeros(())))
    assert measure_sparsity(nn.ModuleList(others)) == 0
    gone = [layer.weight == 0 for layer in fits]
    with torch.no_grad():
        for layer in fits:
            layer.weight += 1
    pruning.step(0.5)
    assert all(torch.equal(layer.weight == 0, zero) for layer, zero in zip(fits, gone))
    with pytest.raises(SettingError, match="multiple of four inputs"):
        PatternPruning(nn.ModuleList(others))


def test_norms_biases_and_embeddings_are_not_pruned() -> None:
    model, _ = small("gpt2")  # whose head is the embedding
    left = {name for name, _ in model.named_parameters()} - set(prunable_weights(model))
    assert left == {name for name in left if name.endswith("bias") or name.split(".")[-2] in NOT_PRUNED}
    assert prunable_weights(model)
    assert not any(name.endswith("bias") for name in prunable_weights(model))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    return cutaway.train(
        "lenet5-modern", "digits", out=tmp_path_factory.mktemp("pruned") / "run", sparsity=0.8, **SMALL
    )


def test_a_run_is_kept_at_the_sparsity_that_was_asked_for(whole: cutaway.Run) -> None:
    count = sum(weight.numel() for weight in prunable_weights(whole.model).values())
    assert sum(int(mask.sum()) for mask in zeros(whole.model)) == round(0.8 * count)
    assert whole.about["best"]["epoch"] >= 2  # those before were not pruned so far


@pytest.mark.parametrize("update", [3, 9])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, whole: cutaway.Run, update: int) -> None:
    with stopping(update):
        cutaway.train("lenet5-modern", "digits", out=tmp_path / "run", sparsity=0.8, **SMALL)
    resumed = cutaway.train(resume=tmp_path / "run").model.state_dict()
    assert all(torch.equal(value, resumed[name]) for name, value in whole.model.state_dict().items())


@pytest.mark.parametrize(
    "given", [{"ema": 0.9}, {"average_epochs": 2}, {"parallel": "fsdp"}, {"freeze_epochs": 1}, {"prune_pattern": "2:4"}]
)
def test_what_does_not_go_with_pruning_is_rejected_by_name(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=f"sparsity=0.5.*{next(iter(given.values()))}"):
        cutaway.train("lenet5-modern", "digits", out=tmp_path / "run", sparsity=0.5, **{**SMALL, **given})


def test_a_schedule_without_pruning_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"prune_until.*sparsity=0.8 asks for"):
        cutaway.train("lenet5-modern", "digits", out=tmp_path / "run", prune_until=0.2, **SMALL)
