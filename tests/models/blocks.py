"""The blocks of every Transformer, small, and one way to run them all."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.models import bart, bert, gpt2, parallel_transformer, t5, transformer, vit
from cutaway.nn.masks import causal_mask, merge_masks

DIM = 8
CROSS: dict[str, Any] = {"cross_attends": True}
# By name: the file, what its Config has besides, and what the block is told.
FORMS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "gpt2": (gpt2, {}, {}),
    "vit": (vit, {}, {}),
    "bert": (bert, {}, {}),
    "t5": (t5, {"head_dim": 5}, {}),
    "t5, decoder": (t5, {"head_dim": 5}, CROSS),
    "bart": (bart, {}, {}),
    "bart, decoder": (bart, {}, CROSS),
    "transformer, post": (transformer, {"order": "post"}, {}),
    "transformer, post, decoder": (transformer, {"order": "post"}, CROSS),
    "transformer, pre": (transformer, {"order": "pre"}, {}),
    "transformer, pre, decoder": (transformer, {"order": "pre"}, CROSS),
    "parallel": (parallel_transformer, {}, {}),
    "parallel, strengths": (parallel_transformer, {"strengths": (0.5, -2.0), "kv_heads": 1}, {}),
    "parallel, pre": (parallel_transformer, {"order": "pre", "strengths": (0.5, 2.0), "kv_heads": 1}, {}),
    "parallel, post": (parallel_transformer, {"order": "post", "strengths": (0.5, 2.0)}, {}),
}
CROSSING = [form for form in FORMS if "decoder" in form]
CACHED = [*CROSSING, *(form for form in FORMS if form.startswith(("gpt2", "parallel")))]


def block(form: str, **changes: Any) -> Any:
    """A block in float64 and evaluation mode, none of whose numbers is 0 or 1."""
    file, own, more = FORMS[form]
    preset = next(iter(file.PRESETS.values()))
    config = dataclasses.replace(preset, **{"dim": DIM, "heads": 2, "ffn_dim": 12, **own, **changes})
    torch.manual_seed(0)
    made: nn.Module = file.Block(config, **more).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def through(block: nn.Module, x: Tensor, mask: Tensor | None = None, *, causal: bool = False, **more: Any) -> Tensor:
    """The block on x (N, T, dim), which is told what it asks for: its mask and `causal`, or both as a bias, and of
    `cache`, `positions`, `source`, `source_mask` and `cross_kv` those that it knows."""
    names = inspect.signature(type(block).forward).parameters
    if "bias" in names:
        hidden = causal_mask(x.shape[1], x.shape[1]) if causal else None
        more["bias"] = merge_masks(mask, hidden)
    else:
        more |= {"mask": mask, "causal": causal}
    y: Tensor = block(x, **{name: more.get(name) for name in names if name not in ("self", "x", "z")})
    return y
