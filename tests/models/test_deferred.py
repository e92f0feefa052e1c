"""What a model is given later is what it would have had, bit for bit; and little of it is there at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cutaway.checkpoints.deferred_init import (
    DeferredInit,
    NeedsMaterialization,
    _Replay,
    allocate_meta_tensors,
    copy_to_meta,
    materialized_tensors,
    move_parameters_to_meta,
    named_tensors,
)
from cutaway.checkpoints.saving import open_safetensors, read_tensor
from cutaway.core.errors import FileError
from cutaway.models.registry import preset

from ..small import DIFFERENT, small_config


@pytest.mark.parametrize("name", {preset(name).module: name for name in DIFFERENT}.values())
def test_every_model_begins_as_it_would_have_and_draws_as_much(name: str) -> None:
    found, config = preset(name), small_config(name)
    torch.manual_seed(3)
    whole = dict(named_tensors(found.build(config)))
    state = torch.get_rng_state()
    torch.manual_seed(3)
    with (deferred := DeferredInit()):
        model = found.build(config)
    assert all(p.is_meta for p in model.parameters())
    torch.manual_seed(4)
    given = {key: x.clone() for key, x in deferred.numbers(model)}
    assert given.keys() == whole.keys()
    assert all(x.dtype == whole[key].dtype and x.equal(whole[key]) for key, x in given.items())
    assert torch.get_rng_state().equal(state)


def test_little_more_than_one_tensor_is_there_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[_Replay] = []

    class Watched(_Replay):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr("cutaway.checkpoints.deferred_init._Replay", Watched)
    found = preset("gpt2")
    with (deferred := DeferredInit()):
        model = found.build(found.configure(settings={"layers": 4, "dim": 64, "heads": 2, "vocab_size": 900}))
    sizes = [x.nbytes for x in model.parameters()]
    most = 0
    for _ in deferred.numbers(model):
        most = max(most, sum(storage.nbytes() for storage in made[0]._there.values()))
    assert max(sizes) <= most < 1.2 * max(sizes) < 0.4 * sum(sizes)


class Tied(nn.Module):
    """Its embedding is its output layer, and it has a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 6)
        self.head = nn.Linear(6, 9)
        self.head.weight = self.embedding.weight
        self.register_buffer("places", torch.ones(9).cumsum(0), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T) to (N, T, 9)."""
        logits: Tensor = self.head(self.embedding(tokens)) + self.get_buffer("places")
        return logits


def test_filled_it_is_a_model_whose_parts_share_what_they_shared() -> None:
    torch.manual_seed(5)
    whole, tokens = Tied(), torch.arange(8).view(2, 4)
    torch.manual_seed(5)
    with (deferred := DeferredInit()):
        model = Tied()
    assert sum(x.numel() for x in copy_to_meta(model).parameters()) == 9 * 6 + 9
    deferred.fill(model)
    assert model.head.weight is model.embedding.weight
    assert model(tokens).equal(whole(tokens))
    move_parameters_to_meta(model)
    assert all(p.is_meta for p in model.parameters())
    assert model.head.weight is model.embedding.weight
    allocate_meta_tensors(model)
    model.load_state_dict(whole.state_dict())
    assert model(tokens).equal(whole(tokens))


class Looks(nn.Module):
    """Looks at a number of its own."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        with torch.no_grad():
            if how == "asks":
                self.scale = float(self.layer.weight.norm())
            elif how == "sets":  # a number that PyTorch loses on the meta device
                self.layer.bias[0] = 1.0
            else:
                torch.arange(3.0).uniform_()


@pytest.mark.parametrize("how", ["asks", "sets", "draws"])
def test_a_constructor_that_needs_numbers_is_told_so(how: str) -> None:
    with pytest.raises(NeedsMaterialization), DeferredInit():
        Looks(how)
    assert DeferredInit.current() is None
    assert Looks(how).layer.weight.numel() == 9  # what was replaced meanwhile is as it was
    assert nn.init.trunc_normal_.__module__ == "torch.nn.init"


def test_tensors_of_a_file_are_read_at_their_turn(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    there = {"a": torch.randn(4, 3), "b": torch.randn(2, 3), "number": torch.tensor(2.0)}
    save_file(there, file)

    def found() -> dict[str, Tensor]:
        with open_safetensors(file) as opened:
            return {key: read_tensor(file, opened, key) for key in there}

    with (deferred := DeferredInit()):
        model = nn.Linear(3, 6)
        tensors = found()
        assert all(tensors[key].is_meta and tensors[key].shape == x.shape for key, x in there.items())
        assert torch.equal(tensors["a"], tensors["a"])
        with torch.no_grad():
            model.weight.copy_(torch.cat([tensors["a"], tensors["b"]]) * tensors["number"])
        with materialized_tensors():
            assert found()["a"].equal(there["a"])
    given = dict(deferred.numbers(model))
    assert given["weight"].equal(torch.cat([there["a"], there["b"]]) * 2)
    there["b"][0, 0] = torch.inf
    save_file(there, file)
    with pytest.raises(FileError, match="not finite"):
        list(deferred.numbers(model))
