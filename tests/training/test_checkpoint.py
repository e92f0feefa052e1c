"""A checkpoint puts everything back as it was, in memory too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cutaway.core.errors import FileError
from cutaway.training.checkpoint import TrainingState, checkpoint_tensors, load_checkpoint, read_state, save_whole


@pytest.mark.parametrize(
    ("kind", "given"), [(torch.optim.AdamW, {}), (torch.optim.SGD, {"momentum": 0.9})], ids=["adamw", "momentum"]
)
def test_fused_optimizers_go_on_alike_with_channels_last(tmp_path: Path, kind: Any, given: dict[str, float]) -> None:
    """They go through memory in order, so that what they remember must lie there as the weights do."""

    def new() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        return model, kind(model.parameters(), lr=0.1, fused=True, **given)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(2, 3, 5, 5, generator=generator).to(memory_format=torch.channels_last)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    model, optimizer = new()
    step(model, optimizer, seed=1)
    save_whole(tmp_path, checkpoint_tensors(model, [optimizer], None), TrainingState())
    step(model, optimizer, seed=2)

    resumed, again = new()
    load_checkpoint(tmp_path, resumed, [again], None)
    step(resumed, again, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), resumed.parameters()))


def test_each_process_goes_on_with_its_own_random_numbers(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    states = []
    for seed in range(3):
        torch.manual_seed(seed)
        states.append({"cpu": torch.get_rng_state()})
    save_whole(tmp_path, checkpoint_tensors(model, [], None, random=states), TrainingState())
    for rank in range(3):
        load_checkpoint(tmp_path, model, [], None, rank)
        assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(rank)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epoch": "x"}, "state.epoch is a string, and must be an integer"),
        ({"epoch": -1}, "state.epoch is -1, and must be an integer from 0"),
        ({"best_score": ["x"]}, "state.best_score is a list, and must be a number or null"),
        ({"lr": float("inf")}, "state.lr is inf, and must be a finite number"),
        ({"history": [None]}, "state.history[0] is null, and must be an object"),
        ({"history": [{"epoch": 1, "step": -3}]}, "step is -3, and must be an integer from 0"),
    ],
)
def test_a_state_that_cannot_be_is_named_by_its_key(change: dict[str, Any], said: str) -> None:
    whole = {"state": TrainingState(epoch=2, history=[{"epoch": 1, "step": 4, "train_loss": 0.5}]).to_json()}
    assert read_state(whole, Path("last.safetensors")).to_json() == whole["state"]
    with pytest.raises(FileError) as rejection:
        read_state({"state": {**whole["state"], **change}}, Path("last.safetensors"))
    assert str(rejection.value).startswith("last.safetensors: ")
    assert said in str(rejection.value)
