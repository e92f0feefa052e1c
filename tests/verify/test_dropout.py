"""Where each network of transformers drops in training, with every head and every rate its own, held to the reference.

`compare` replaces dropout on both sides by factors (`dropping.py`): whoever drops at another place, at another rate or
not at all gives other outputs. Each preset at its own rates is in test_every_model.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from cutaway.core.errors import ModelError
from cutaway.models.registry import preset
from cutaway.verify import compared_config, oracle_for
from cutaway.verify.compare import BOUND, compare
from cutaway.verify.published import TRANSFORMERS

pytest.importorskip("transformers")

HEADS = ("masked", "classes", "tags", "next")
ALIKE = {"vocab_size": 40, "dim": 24, "embedding_dim": 8, "layers": 2, "heads": 3}  # sizes of BERT's kin


def configs() -> Iterator[tuple[str, str, Any]]:
    """Each preset that transformers has, with each head, every rate its own; what is equal is there once."""
    known = []
    for name in TRANSFORMERS:
        found = preset(name)
        config = compared_config(name, found.config)
        fields = [f.name for f in dataclasses.fields(config) if f.name.endswith("dropout")]
        rates: dict[str, Any] = {field: 0.1 + 0.1 * i for i, field in enumerate(fields)}
        if name.startswith("albert"):
            rates |= ALIKE
        for head in HEADS if hasattr(config, "head") else ("",):
            try:
                changed = dataclasses.replace(config, **rates, **({"head": head} if head else {}))
            except ModelError:  # this family has no such head
                continue
            if fields and (found.module, changed) not in known:
                known.append((found.module, changed))
                yield name, head, changed


CASES = [pytest.param(name, config, id=f"{name}-{head}".rstrip("-")) for name, head, config in configs()]


@pytest.mark.parametrize(("name", "config"), CASES)
def test_each_network_drops_where_the_reference_does(name: str, config: Any) -> None:
    torch.manual_seed(0)
    model, oracle = preset(name).build(config), oracle_for(name, config)
    found = compare(model, oracle, torch.Generator().manual_seed(0))
    assert found.outputs <= BOUND
    assert found.gradients <= BOUND, found.worst
