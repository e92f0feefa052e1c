"""What every model owes, whatever it is."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.core.spec import Mask
from cutaway.models.base import as_base_model
from cutaway.verify.compare import fixed_dropout


def assert_keeps_the_contract(model: nn.Module, x: Tensor, outputs: int) -> None:
    """Outputs of the right shape, from a batch of one too; features; a gradient at every parameter; a state dict that
    goes out and in again; the same answers twice in evaluation."""
    model.eval()
    y = model(x)
    shape = (len(x), outputs, *x.shape[2:]) if as_base_model(model).targets == (Mask,) else (len(x), outputs)
    assert y.shape == shape
    assert y.isfinite().all()
    atol = 1e-5 * max(1.0, float(y.abs().max()))  # float32, in sums as large as the outputs
    torch.testing.assert_close(model(x[:1]), y[:1], rtol=1e-4, atol=atol)
    assert model.features(x).shape[0] == len(x)

    model.train()
    model.zero_grad()
    with fixed_dropout():  # chance may leave out a whole branch
        y = model(x)
    answers = y if isinstance(y, tuple) else (y,)  # a tuple where auxiliary heads answer too
    generator = torch.Generator().manual_seed(0)
    assert all(answer.shape == shape for answer in answers)
    torch.autograd.backward(answers, [torch.randn(answer.shape, generator=generator) for answer in answers])
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name

    model.eval()
    other = type(model)(model.config).eval()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(other(x), model(x))
    x = x.double() if x.is_floating_point() else x  # numbers of tokens stay what they are
    assert copy.deepcopy(model).double()(x).dtype == torch.float64


def compile_whole(model: nn.Module, **options: Any) -> Any:
    """The model, compiled as one graph: a break in it is an error.

    What was compiled before in this process is forgotten first. Once a function has been compiled for eight sorts of
    inputs, PyTorch runs it uncompiled for any other, and a whole graph is then an error that depends on earlier tests.
    """
    torch._dynamo.reset()
    return torch.compile(model, backend="eager", fullgraph=True, **options)
