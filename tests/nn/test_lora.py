"""LoRA: the layer of the paper and of PEFT, and one matrix afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cutaway.models.registry import create_model
from cutaway.nn.lora import LoRALinear, adapt, adaptable, merge
from cutaway.verify.libraries import make_torchvision_importable

make_torchvision_importable()
from peft.tuners.lora import LoraConfig, LoraModel  # noqa: E402


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_pefts_with_the_same_numbers(bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(6, 5, bias=bias).double()
    theirs = LoraModel(
        nn.ModuleDict({"fc": nn.Linear(6, 5, bias=bias).double()}),
        LoraConfig(r=3, lora_alpha=7, target_modules=["fc"], lora_dropout=0.0),
        "default",
    )
    other = theirs.model["fc"]
    other.base_layer.load_state_dict(linear.state_dict())
    ours = LoRALinear(linear, 3, 7)
    x = torch.randn(4, 2, 6, dtype=torch.float64)
    assert torch.equal(ours(x), linear(x))  # B is 0
    with torch.no_grad():
        ours.lora_B.normal_()
        other.lora_A["default"].weight.copy_(ours.lora_A)
        other.lora_B["default"].weight.copy_(ours.lora_B)
    y, expected = ours(x), other(x)
    assert torch.allclose(y, expected, rtol=0, atol=1e-12)
    slope = torch.randn_like(y)
    found = torch.autograd.grad(y, [ours.lora_A, ours.lora_B], slope)
    wanted = torch.autograd.grad(expected, [other.lora_A["default"].weight, other.lora_B["default"].weight], slope)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(found, wanted))
    other.merge()
    merged = ours.merged()
    assert torch.allclose(merged.weight, other.base_layer.weight, rtol=0, atol=1e-12)
    assert torch.allclose(merged(x), y, rtol=0, atol=1e-12)
    assert (merged.bias is not None) == bias


def test_a_model_that_was_adapted_is_one_like_any_other_again() -> None:
    torch.manual_seed(0)
    small = {"layers": 2, "dim": 16, "heads": 2, "context_length": 8, "vocab_size": 11}
    model = create_model("gpt2", **small).double().eval()
    tokens, kinds = torch.randint(11, (3, 8)), {name: type(m) for name, m in model.named_modules()}
    before = model(tokens)
    names = adaptable(model)
    assert names == ["blocks.0.attention.qkv", "blocks.1.attention.qkv"]
    adapt(model, names, 4, 8)
    learns = {name for name, p in model.named_parameters() if p.requires_grad}
    assert learns == {f"{name}.lora_{part}" for name in names for part in "AB"}
    assert torch.equal(model(tokens), before)
    for name in names:
        nn.init.normal_(model.get_submodule(name).lora_B)  # type: ignore[arg-type]
    after = model(tokens)
    assert not torch.allclose(after, before)
    merge(model)
    assert torch.allclose(model(tokens), after, rtol=0, atol=1e-11)
    assert {name: type(m) for name, m in model.named_modules()} == kinds
    assert adaptable(model, ("*.fc1", "head")) == ["blocks.0.mlp.fc1", "blocks.1.mlp.fc1"]
