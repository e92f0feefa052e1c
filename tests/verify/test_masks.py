"""Masks as tokenizers give them, padding in front among them, held to transformers at every real token."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.checkpoints.huggingface import find_family, to_transformers_names
from cutaway.models.registry import preset
from cutaway.verify import compared_config, oracle_for
from cutaway.verify.compare import BOUND, difference

pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 40,
    "context_length": 16,
    "dim": 24,
    "layers": 2,
    "heads": 3,
    "dropout": 0.0,
    "head_dropout": 0.0,
}
FORMS = [
    *((name, head) for name in ("bert-base-uncased", "roberta-base", "distilbert-base") for head in ("masked", "tags")),
    *(("albert-base-v2", head) for head in ("masked", "tags")),
    *(("gpt2", head) for head in ("next", "classes")),
    *(("t5-small", ""), ("bart-base", "")),
]
ROOM = torch.arange(9)
MASKS = {
    "behind": torch.tensor([[9], [4], [1]]) > ROOM,
    "in front": torch.tensor([[0], [5], [8]]) <= ROOM,
    "on either side": (torch.tensor([[0], [2], [4]]) <= ROOM) & (torch.tensor([[9], [8], [5]]) > ROOM),
    "between": torch.tensor([[1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0, 0, 1, 0]])
    > 0,
}


def both(name: str, head: str) -> tuple[Any, Any]:
    """Our network and transformers', small, with the same weights."""
    known = compared_config(name, preset(name).config)
    fields = {f.name for f in dataclasses.fields(known)}
    changes = {key: value for key, value in SIZES.items() if key in fields} | ({"head": head} if head else {})
    config = dataclasses.replace(known, **changes)
    torch.manual_seed(0)
    ours = preset(name).build(config).double().eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    theirs = oracle_for(name, config).module.model.double().eval()  # type: ignore[union-attr,operator]
    family = find_family(name)
    assert family is not None
    theirs.load_state_dict(to_transformers_names(family, dict(ours.state_dict())), strict=False)
    theirs.tie_weights()
    return ours, theirs


@pytest.mark.parametrize("where", MASKS)
@pytest.mark.parametrize(("name", "head"), FORMS)
@torch.no_grad()
def test_padding_is_where_it_is_for_transformers(name: str, head: str, where: str) -> None:
    ours, theirs = both(name, head)
    mask = MASKS[where]
    padding = theirs.config.pad_token_id or 0
    tokens = torch.randint(3, 40, mask.shape, generator=torch.Generator().manual_seed(1)).where(mask, padding)
    more: dict[str, Tensor] = {}
    args: tuple[Tensor, ...] = ()
    if name == "gpt2":  # as its `generate` has them
        more["position_ids"] = (mask.cumsum(1) - 1).masked_fill(~mask, 0)
        theirs.config.pad_token_id = padding
    if name in ("t5-small", "bart-base"):
        args = (torch.randint(3, 40, (3, 4), generator=torch.Generator().manual_seed(2)),)
        more["decoder_input_ids"] = args[0]
    expected = theirs(input_ids=tokens, attention_mask=mask.long(), **more).logits
    for dtype in (torch.bool, torch.int64, torch.float32):
        found = ours(tokens, mask.to(dtype), *args)
        if found.ndim == 3 and not args:
            assert difference(found[mask], expected[mask]) <= BOUND
        else:
            assert difference(found, expected) <= BOUND
