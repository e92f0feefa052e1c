"""Every preset on a GPU: the outputs and gradients that it has on a CPU, in float64, of the same weights and inputs."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import nn

from cutaway.models.base import as_output_tuple
from cutaway.models.registry import presets
from cutaway.verify import OracleMissing, compared_config, oracle_for
from cutaway.verify.compare import BOUND, NOISE, difference, fixed_dropout, named_gradients

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("name", presets())
def test_outputs_and_gradients_are_those_of_the_cpu(name: str) -> None:
    found = presets()[name]
    torch.manual_seed(0)
    config = compared_config(name, found.config)
    try:
        draw = oracle_for(name, config).inputs
    except OracleMissing as missing:
        pytest.skip(str(missing))
    if "graph" in found.takes and hasattr(config, "dropout"):
        config = dataclasses.replace(config, dropout=0.0)  # they draw it themselves, each device otherwise
    here: nn.Module = found.build(config).double()
    there = copy.deepcopy(here).cuda()
    generator = torch.Generator().manual_seed(0)
    for training in (True, False):
        inputs = draw(generator)
        moved = tuple(x.cuda() if isinstance(x, torch.Tensor) else x for x in inputs)
        with fixed_dropout():
            expected = as_output_tuple(here.train(training)(*inputs))
            answers = as_output_tuple(there.train(training)(*moved))
        upstream = [torch.randn(y.shape, generator=generator, dtype=y.dtype) for y in expected]
        here.zero_grad(), there.zero_grad()
        torch.autograd.backward(expected, upstream)
        torch.autograd.backward(answers, [x.cuda() for x in upstream])
        for a, b in zip(answers, expected, strict=True):
            assert difference(a.detach().cpu(), b.detach()) <= BOUND
        gradients, of_gpu = named_gradients(here), named_gradients(there)
        largest = max(float(g.abs().max()) for g in gradients.values() if g is not None)
        for key, grad in gradients.items():
            found_there = of_gpu[key]
            moved_back = None if found_there is None else found_there.cpu()
            assert difference(moved_back, grad, floor=NOISE * largest) <= BOUND, key
