"""Structured pruning: the network without its channels says what it said where they were silent, and is one on disk."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import cutaway
from cutaway.core.errors import ModelError, SettingError
from cutaway.nn.resizing import resize, tensor_shapes
from cutaway.training.compression import prune_channels

from ..small import small
from .conftest import stopping

SMALL: dict[str, Any] = {"max_samples": 128, "batch_size": 32, "epochs": 2, "tensorboard": False, "threads": 1}


@pytest.mark.parametrize("name", ["lenet5-modern", "mlp", "resnet20", "resnet18", "vgg11-bn", "mobilenet-v2", "gpt2"])
def test_half_of_the_channels_of_every_architecture(name: str) -> None:
    pytest.importorskip("torch_pruning")
    torch.manual_seed(0)
    model, inputs = small(name)
    built = copy.deepcopy(model)
    before = sum(p.numel() for p in model.parameters())
    changed = prune_channels(model, inputs, 0.5)
    assert sum(p.numel() for p in model.parameters()) < before
    assert model(*inputs).shape == built(*inputs).shape
    # Which depends on no weights: a run that is resumed finds the same.
    other, _ = small(name)
    assert prune_channels(other, inputs, 0.5) == changed
    # And can be built again from the shapes alone.
    resize(built, changed)
    assert tensor_shapes(built) == tensor_shapes(model)
    built.load_state_dict(model.state_dict())
    model.eval()
    assert torch.equal(built.eval()(*inputs), model(*inputs))


def test_channels_that_say_nothing_go_first_and_change_nothing() -> None:
    pytest.importorskip("torch_pruning")
    model, inputs = small("lenet5-modern", dtype=torch.float64)
    with torch.no_grad():
        for layer in (model.c1, model.c3, model.c5, model.f6):
            layer.weight[::2] = 0
            layer.bias[::2] = 0
        # What is 0 goes, and what reads it too: tanh(0) and the mean of zeros are 0.
        before = model.eval()(*inputs)
    prune_channels(model, inputs, 0.5)
    assert model.c1.out_channels == 3
    assert torch.allclose(model(*inputs), before, atol=1e-12)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    return cutaway.train("lenet5-modern", "digits", out=tmp_path_factory.mktemp("begun") / "run", **SMALL)


def test_a_run_of_a_smaller_network_opens_resumes_and_is_pruned_again(tmp_path: Path, begun: cutaway.Run) -> None:
    pytest.importorskip("torch_pruning")
    given = {**SMALL, "weights": str(begun.folder), "prune_channels": 0.5}
    whole = cutaway.train("lenet5-modern", "digits", out=tmp_path / "whole", **given)
    assert whole.model.c3.out_channels == 8
    assert whole.about["parameters"] == sum(p.numel() for p in whole.model.parameters())
    with stopping(3):
        cutaway.train("lenet5-modern", "digits", out=tmp_path / "run", **given)
    resumed = cutaway.train(resume=tmp_path / "run").model.state_dict()
    assert all(torch.equal(value, resumed[name]) for name, value in whole.model.state_dict().items())
    further = cutaway.train(
        "lenet5-modern", "digits", out=tmp_path / "further", **{**given, "weights": str(whole.folder)}
    )
    assert further.model.c3.out_channels == 4


def test_random_weights_are_not_pruned(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="weights=RUN"):
        cutaway.train("lenet5-modern", "digits", out=tmp_path / "run", prune_channels=0.5, **SMALL)


def test_a_network_without_channels_to_take_out_is_rejected() -> None:
    pytest.importorskip("torch_pruning")
    model, inputs = small("softmax")
    with pytest.raises(ModelError, match="no channels"):
        prune_channels(model, inputs, 0.5)
