"""Networks of transformers at full size, with our own tensors in them: no weight is copied, so that it is quick."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cutaway.checkpoints.huggingface import Family, to_transformers_names
from cutaway.verify import Oracle
from cutaway.verify.compare import NOISE, difference


def filled(oracle: Oracle, family: Family, model: nn.Module) -> Any:
    """The oracle's network, built on the meta device, with the tensors of the model under its names."""
    theirs: Any = oracle.module.model
    theirs.load_state_dict(to_transformers_names(family, model.state_dict()), strict=False, assign=True)
    theirs.tie_weights()
    assert not [name for name, p in (*theirs.named_parameters(), *theirs.named_buffers()) if p.is_meta]
    return oracle.module.eval()


def differences(ours: nn.Module, theirs: nn.Module, inputs: tuple[Tensor, ...], family: Family) -> tuple[float, float]:
    """The largest relative difference of outputs, and of gradients, in evaluation."""
    answers = [module(*inputs) for module in (ours, theirs)]
    upstream = torch.randn(answers[0].shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for answer in answers:
        answer.backward(upstream)
    expected = {name.removeprefix("model."): p.grad for name, p in theirs.named_parameters()}
    named = {name: p.grad for name, p in ours.named_parameters() if p.grad is not None}
    assert len(named) == len(list(ours.parameters()))
    floor = NOISE * max(float(grad.abs().max()) for grad in expected.values() if grad is not None)
    found = {
        name: difference(grad, expected.pop(name), floor) for name, grad in to_transformers_names(family, named).items()
    }
    assert not expected
    return difference(answers[0].detach(), answers[1].detach()), max(found.values())
