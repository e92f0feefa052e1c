"""Maps by name: right, copied, and without a trace."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import cutaway
from cutaway.errors import UnknownName
from cutaway.inspect.probes import capture


def small() -> nn.Module:
    torch.manual_seed(0)
    return cutaway.create_model("resnet20", blocks=(1, 1), num_classes=3)


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_maps_by_name_are_what_the_modules_gave() -> None:
    model, x = small().eval(), torch.randn(2, 3, 16, 16)
    with cutaway.inspect.capture(model, "features", "bn1", "layer*", "fc") as seen, torch.no_grad():
        y = model(x)
    maps = seen["features"]
    assert {"bn1", "layer1", "layer2", "layer1.0.conv1", "fc"} <= set(maps)
    assert maps["layer1"].shape == (2, 16, 16, 16)
    assert torch.equal(maps["fc"], y)
    # ReLU writes over what bn1 gave; the copy is from before
    assert torch.equal(maps["bn1"], model.get_submodule("bn1")(model.get_submodule("conv1")(x)))
    assert (maps["bn1"] < 0).any()


def test_outputs_and_gradients_are_the_same_bits() -> None:
    results = []
    for watched in (False, True):
        model, x = small().train(), torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
        if watched:
            with capture(model) as seen:
                y = model(x)
                y.sum().backward()
            assert not any(m.requires_grad for m in seen["features"].values())
        else:
            y = model(x)
            y.sum().backward()
        results.append([y, *(p.grad for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_nothing_stays_hooked_even_after_an_error() -> None:
    model = small()

    def look() -> None:
        with capture(model):
            assert hooks(model) > 0
            model(torch.randn(1, 5, 8, 8))

    with pytest.raises(RuntimeError, match="channels"):
        look()
    assert hooks(model) == 0


def test_what_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="layer1"), capture(small(), "features", "layer_1"):
        pass
    with pytest.raises(UnknownName, match="features"), capture(small(), "feature"):
        pass
