"""A token alone through blocks whose parts are written out: equal to the last bit, and never where somebody listens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.nn.attention import recording
from cutaway.nn.decode_fast_path import DecodeFastPath
from cutaway.nn.kv_cache import Cache
from cutaway.nn.position import rotation
from tests.models.blocks import CACHED, CROSSING, DIM, block, through

N = 3


class Stack(nn.Module):
    """Blocks one after the other, from a cache."""

    def __init__(self, form: str = "gpt2") -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block(form, dropout=0.5) for _ in range(2))
        self.cross_attends = form in CROSSING
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, x: Tensor, mask: Tensor | None, cache: Cache, source: Tensor) -> Tensor:
        """x (N, T, dim) after what the cache knows; `source` (N, S, dim)."""
        positions, seen, causal = cache.read(x[:, :, 0], mask)
        more: dict[str, Any] = {"positions": rotation(positions, DIM // 2, x.dtype)}
        for i, one in enumerate(self.blocks):
            if self.cross_attends:
                known = cache.cross_layers[i].keys is not None
                more |= {"source": None if known else source, "cross_kv": cache.cross_layers[i]}
                more["source_mask"] = (
                    torch.arange(source.shape[1])[None, None, None] < torch.tensor([5, 2, 4])[:, None, None, None]
                )
            x = through(one, x, seen, causal=causal, cache=cache.layers[i], **more)
        return x


def answers(model: Stack, mask: Tensor | None, lean: Any) -> list[Tensor]:
    """What the model gives for a prompt (N, 4) and five tokens behind it."""
    generator = torch.Generator().manual_seed(1)
    cache = Cache(2, cross_attends=model.cross_attends)
    source = torch.randn(N, 5, DIM, generator=generator, dtype=torch.float64)
    found = []
    with torch.no_grad():
        for count in (4, 1, 1, 2, 1):
            x = torch.randn(N, count, DIM, generator=generator, dtype=torch.float64)
            with lean():
                found.append(model(x, mask if count == 4 else None, cache, source))
    return found


class Counted:
    """How often a block writes its parts out."""

    def __init__(self, model: Stack) -> None:
        self.calls = 0
        self.lean = DecodeFastPath(model)
        self.lean.blocks = [(block, self.counting(function)) for block, function in self.lean.blocks]

    def counting(self, function: Any) -> Any:
        def counted(*args: Any, **more: Any) -> Any:
            self.calls += 1
            return function(*args, **more)

        return counted


def as_ever() -> Any:
    from contextlib import nullcontext

    return nullcontext()


@pytest.mark.parametrize("form", CACHED)
@pytest.mark.parametrize("padded", [False, True])
def test_a_token_alone_is_answered_to_the_last_bit(form: str, padded: bool) -> None:
    model = Stack(form).eval()
    mask = torch.arange(4) < torch.tensor([[4], [2], [1]]) if padded else None
    counted = Counted(model)
    assert len(counted.lean.blocks) == 2
    for lean, plain in zip(answers(model, mask, counted.lean), answers(model, mask, as_ever)):
        assert torch.equal(lean, plain)
    assert counted.calls == 2 * 5
    assert all("forward" not in block.__dict__ for block in model.blocks)


def test_a_parameter_that_is_replaced_is_used() -> None:
    model = Stack().eval()
    lean = DecodeFastPath(model)
    first: Any = model.blocks[0]
    first.mlp.fc1.weight = nn.Parameter(torch.ones_like(first.mlp.fc1.weight))
    first.norm1.bias = nn.Parameter(torch.ones_like(first.norm1.bias))
    for found, plain in zip(answers(model, None, lean), answers(model, None, as_ever)):
        assert torch.equal(found, plain)


def test_who_listens_hears_every_part() -> None:
    model = Stack().eval()
    lean, heard = DecodeFastPath(model), []
    second: Any = model.blocks[1]
    hook = second.mlp.fc2.register_forward_hook(lambda *_: heard.append(1))
    answers(model, None, lean)
    assert len(heard) == 5
    hook.remove()
    answers(model, None, lean)
    assert len(heard) == 5
    everywhere = nn.modules.module.register_module_forward_hook(lambda *_: heard.append(1))
    try:
        answers(model, None, lean)
    finally:
        everywhere.remove()
    assert len(heard) > 5 + 2 * 5 * 5
    with recording(model) as seen:
        answers(model, None, lean)
    assert all(len(of_layer) == 5 for of_layer in seen.values())


def test_blocks_that_were_changed_are_left_to_their_modules() -> None:
    class Louder(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    model = Stack()
    one: Any = model.blocks[0]
    one.mlp.fc1 = Louder(DIM, 12)
    assert [found for found, _ in DecodeFastPath(model).blocks] == [model.blocks[1]]
    one = model.blocks[1]
    one.attention.forward = one.attention.forward  # somebody's own
    assert DecodeFastPath(model).blocks == []
