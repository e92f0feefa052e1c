"""Which models processes can share by heads and hidden units; the rest is refused by name.

The numbers are held to those of one process in `test_same_numbers.py`.
"""

from __future__ import annotations

import pytest

from cutaway.core.errors import SettingError
from cutaway.distributed.tensor_parallel import reject_for_tensor_parallel
from cutaway.models.registry import preset
from cutaway.training.setup import setup_training

SMALL = {"dim": 24, "layers": 1, "vocab_size": 20}


@pytest.mark.parametrize(
    ("name", "settings", "count", "said"),
    [
        ("gpt2", {**SMALL, "heads": 3}, 2, r"must be a divisor of the 3 heads of blocks\.0\.attention of gpt2"),
        (
            "gpt2",
            {**SMALL, "heads": 4, "ffn_dim": 41},
            2,
            r"must be a divisor of the 41 hidden units of blocks\.0\.mlp of gpt2",
        ),
        ("parallel-transformer", {**SMALL, "heads": 4, "kv_heads": 2}, 2, "2 key heads for 4 query heads"),
        ("transformer-asr", {"dim": 24, "layers": 1, "heads": 4}, 2, r"is a LinearNoKeyBias"),
        ("lstm", {"vocab_size": 20, "hidden_dim": 8}, 2, "lstm has no attention or MLPs that it can split"),
        ("resnet20", {}, 2, "resnet20 has no attention or MLPs that it can split"),
    ],
)
def test_what_cannot_be_shared_is_refused_by_name(name: str, settings: dict[str, int], count: int, said: str) -> None:
    found = preset(name)
    model = found.build(found.configure(settings=settings), 0)
    with pytest.raises(SettingError, match=said):
        reject_for_tensor_parallel(model, name, count)


def test_processes_that_are_no_multiple_are_refused() -> None:
    with pytest.raises(SettingError, match="Invalid processes=1: must be a multiple of tensor_parallel=2"):
        setup_training("vit-tiny/16", "digits", {"model.patch_size": 4, "tensor_parallel": 2})
