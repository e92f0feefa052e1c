"""Where each network drops in training, and at which rate, held to the independent implementations.

Dropout is replaced on both sides by a factor that its rate decides: whoever drops at another place, at another rate or
not at all then gives other outputs and other gradients, and no random number is in the way. Networks that draw the same
random numbers as their oracle are compared with their dropout in test_every_model.py already; here are the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway.errors import ModelError
from cutaway.interop.oracles import compared_config, oracle_for
from cutaway.interop.oracles.compare import BOUND, compare
from cutaway.models.registry import preset, presets
from cutaway.nn import attention

pytest.importorskip("torchvision")
pytest.importorskip("transformers")

HEADS = ("masked", "classes", "tags", "next")
ALIKE = {"vocabulary": 40, "dim": 24, "embedding": 8, "layers": 2, "heads": 3}  # sizes of BERT's kin
# Whose reference has no dropout, or has it at places that the card says are others.
WITHOUT = ("parallel-transformer", "densenet121", "densenet161", "densenet169", "densenet201")


def configs() -> Iterator[tuple[str, str, Any]]:
    """Each preset that is compared without dropout elsewhere, with each head that it has, every rate its own; what is
    equal is there once."""
    known = []
    for name, found in presets().items():
        config = compared_config(name, found.config)
        fields = [f.name for f in dataclasses.fields(config) if f.name.endswith("dropout")]
        rates: dict[str, Any] = {field: 0.1 + 0.1 * i for i, field in enumerate(fields)}
        if name in WITHOUT or config.__dict__.get("dropout"):
            continue
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


def scaled(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """What stands for dropout."""
    return x * (1 + p) if training else x


def scaled_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The fused attention, written out, with the weights that it drops scaled."""
    own = attention.causal_mask(q.shape[-2], k.shape[-2]) if is_causal else None
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    weights = attention.attention_weights(q, k, attention.combined(mask, own), scale=scale)
    return scaled(weights, dropout_p) @ v


@pytest.mark.parametrize(("name", "config"), CASES)
def test_each_network_drops_where_the_reference_does(name: str, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, oracle = preset(name).build(config), oracle_for(name, config)
    monkeypatch.setattr(F, "dropout", scaled)
    monkeypatch.setattr(F, "scaled_dot_product_attention", scaled_attention)
    found = compare(model, oracle, torch.Generator().manual_seed(0))
    assert found.outputs <= BOUND
    assert found.gradients <= BOUND, found.worst
