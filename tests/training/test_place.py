"""The place of training: memory formats change speed, never what is computed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cutaway.data.sets import Batch
from cutaway.errors import SettingError
from cutaway.models.registry import create_model
from cutaway.training.place import LARGE_KERNEL, find_place


def test_memory_formats_change_no_result() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 3, 64, 64, dtype=torch.float64)
    plain = create_model("resnet18", num_classes=4)
    placed = create_model("resnet18", num_classes=4)
    placed.load_state_dict(plain.state_dict())
    place = find_place("cpu", "float64", None, placed)
    placed = place.model(place.model(placed))  # twice is as once
    (inputs,), _ = place.batch(Batch((x,), torch.zeros(2)))
    a, b = plain.double()(x), placed(inputs)
    assert torch.allclose(a, b, rtol=1e-10)
    a.sum().backward()
    b.sum().backward()
    for (name, p), q in zip(plain.named_parameters(), placed.parameters()):
        assert (p.grad - q.grad).abs().max() <= 1e-9 * p.grad.abs().max(), name  # type: ignore[operator,union-attr]
    assert all(len(m._forward_pre_hooks) <= 1 for m in placed.modules())


def test_small_kernels_are_channels_last_and_large_ones_are_not() -> None:
    model = create_model("resnet18")
    find_place("cpu", "float32", None, model).model(model)
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.kernel_size != (1, 1):
            last = module.weight.is_contiguous(memory_format=torch.channels_last)
            assert last == (module.weight.numel() <= LARGE_KERNEL)


def test_a_network_without_convolutions_has_plain_tensors() -> None:
    assert not find_place("cpu", "auto", None, nn.Linear(2, 2)).channels_last
    assert find_place("cpu", "auto", None, nn.Conv2d(1, 1, 1)).channels_last
    assert not find_place("cpu", "auto", False, nn.Conv2d(1, 1, 1)).channels_last


def test_a_cpu_is_not_asked_for_bfloat16_it_emulates() -> None:
    assert find_place("cpu", "auto", None, nn.Linear(2, 2)).autocast_dtype is None
    assert find_place("cpu", "bfloat16", None, nn.Linear(2, 2)).autocast_dtype is torch.bfloat16


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "tpu"])
def test_a_device_that_is_not_here_is_refused(device: str) -> None:
    with pytest.raises(SettingError, match=f"device={device} is not here"):
        find_place(device, "auto", None, nn.Linear(2, 2))
