"""The dry run of a training: its own loss, optimizer and batch, and weights of which shapes alone are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cutaway.core.config import build
from cutaway.core.errors import SettingError
from cutaway.experiments.planner import dry_runs
from cutaway.training.config import TrainSettings
from cutaway.training.setup import TrainingSetup, setup_training

SMALL = {"model.layers": 2, "model.dim": 32, "model.heads": 4, "length": 32, "batch_size": 16}


def ready(folder: Path, model: str = "gpt2", shapes: bool = True, **given: Any) -> TrainingSetup:
    """A training on a text."""
    (folder / "text.txt").write_text("Return the sum of all that is given, or zero where nothing is.\n" * 300)
    return setup_training(model, str(folder / "text.txt"), {**SMALL, **given}, shapes=shapes)


@pytest.mark.parametrize(
    ("model", "given"),
    [("gpt2", {"optimizer": "momentum"}), ("bert-base-uncased", {}), ("gpt2", {"loss_chunk": 100})],
    ids=str,
)
def test_parts_come_to_the_model_with_its_own_optimizer(model: str, given: dict[str, Any], tmp_path: Path) -> None:
    found = ready(tmp_path, model, **given)
    (run,) = dry_runs(found, TrainSettings(), ["fsdp"], 16, 8).values()
    parameters = sum(p.numel() for p in found.model.parameters())
    assert run.parameters == parameters
    assert sum(share.weights for share in run.shares) == 4 * parameters
    kept = sum(share.optimizer for share in run.shares)
    assert kept >= (4 if given.get("optimizer") == "momentum" else 8) * parameters
    assert kept < (4.1 if given.get("optimizer") == "momentum" else 8.5) * parameters
    assert all(p.is_meta for p in found.model.parameters())


def test_blocks_that_are_computed_again_are_gathered_again_and_heads_are_shared(tmp_path: Path) -> None:
    found = ready(tmp_path)
    kept, again = (
        dry_runs(found, build(TrainSettings, {"recompute": how}), ["ddp", "fsdp"], 16, 8) for how in ("none", "full")
    )
    assert kept["fsdp"].collectives == again["fsdp"].collectives  # the backward pass has the weights at hand
    shared = build(TrainSettings, {"tensor_parallel": 4})
    (run,) = dry_runs(found, shared, ["one", "ddp"], 32, 8).values()
    inside, gradients = sorted(run.collectives, key=lambda c: c.processes)
    assert (inside.processes, gradients.processes) == (4, 8)
    assert inside.count == 4 * 2  # four sums in each block
    assert inside.largest == 4 * 2 * 32 * 32  # a batch of 2 of 16 examples, of 32 tokens, of 32 numbers
    assert gradients.bytes == run.shares[0].gradients


def test_a_model_that_is_here_stays_as_it_is(tmp_path: Path) -> None:
    found = ready(tmp_path, shapes=False)
    before = {name: x.clone() for name, x in found.model.state_dict().items()}
    state = torch.get_rng_state()
    assert dry_runs(found, TrainSettings(), ["hsdp"], 16, 8)["hsdp"].parameters == sum(
        p.numel() for p in found.model.parameters()
    )
    assert all(x.equal(before[name]) for name, x in found.model.state_dict().items())
    assert torch.get_rng_state().equal(state)
    assert not torch.distributed.is_initialized()


def test_a_network_that_asks_for_numbers_and_an_objective_of_one_process_are_told(tmp_path: Path) -> None:
    found = ready(tmp_path)

    def ask(module: nn.Module, given: object, output: torch.Tensor) -> None:
        if output.sum() > 0:
            raise AssertionError("there are no numbers")

    found.model.register_forward_hook(ask)
    with pytest.raises(SettingError, match="the forward pass of gpt2 depends on values, and a dry run has shapes only"):
        dry_runs(found, TrainSettings(), ["ddp"], 2, 2)
    assert not torch.distributed.is_initialized()
    with pytest.raises(SettingError, match=r"needs several devices, e\.g\. gpus=8"):
        dry_runs(found, TrainSettings(), ["one"], 1, 1)
    other = setup_training("lenet5-modern", "digits", {"objective": "simclr"}, shapes=True)
    with pytest.raises(SettingError, match="objective=simclr does not support several processes"):
        dry_runs(other, TrainSettings(), ["ddp"], 2, 2)
