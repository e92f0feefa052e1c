"""Every preset, held to an independent implementation: same weights in, float64, outputs and every gradient."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from cutaway.models.registry import presets
from cutaway.verify import OracleMissing, compared_config, oracle_for
from cutaway.verify.compare import BOUND, compare


@pytest.mark.parametrize("name", presets())
def test_outputs_and_gradients_are_the_oracles(name: str) -> None:
    found = presets()[name]
    torch.manual_seed(0)
    config = compared_config(name, found.config)
    try:
        oracle = oracle_for(name, config)
    except OracleMissing as missing:
        if importlib.util.find_spec("torchvision"):
            raise
        pytest.skip(str(missing))
    measured = compare(found.build(config), oracle, torch.Generator().manual_seed(0))
    assert BOUND == 1e-9
    assert measured.outputs <= BOUND
    assert measured.gradients <= BOUND, measured.worst


# Where the presets are large, or draw dropout in another order than the oracle does.
_ONE_NETWORK = "tests/verify/test_bert.py::test_distilbert_of_the_published_width_and_depth"
WHOLE_ELSEWHERE = {
    "cutaway.models.vgg": "tests/verify/test_vgg.py::test_vgg11_of_the_published_widths",
    "cutaway.models.gpt2": "tests/verify/test_gpt2.py::test_gpt2_whole",
    "cutaway.models.t5": "tests/verify/test_t5.py::test_t5_small_whole",
    "cutaway.models.bart": "tests/verify/test_bart.py::test_bart_base_of_the_published_widths",
    "cutaway.models.bert": _ONE_NETWORK,
    "cutaway.models.roberta": _ONE_NETWORK,
    "cutaway.models.distilbert": _ONE_NETWORK,
}


@pytest.mark.parametrize("family", sorted({p.module.__name__ for p in presets().values()} - set(WHOLE_ELSEWHERE)))
def test_at_least_one_preset_of_each_family_is_compared_whole(family: str) -> None:
    of_family = [p for p in presets().values() if p.module.__name__ == family]
    assert any(compared_config(p.name, p.config) == p.config for p in of_family)
