"""Texts that part, kept as trees: each token is what it is in its own text, read from its beginning."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.models.registry import create_model
from cutaway.nn.kv_cache import Path, TreeCache, gather_paths

WORDS = 9
SIZES = {"vocab_size": WORDS, "context_length": 24, "dim": 8, "layers": 2, "heads": 2}
MODELS: dict[str, Any] = {
    "gpt2": {**SIZES, "dropout": 0.0},
    "parallel-transformer": {**SIZES, "dropout": 0.0},
    "parallel-transformer, alibi": {**SIZES, "dropout": 0.0, "positions": "alibi"},
    "parallel-transformer, bilinear": {**SIZES, "dropout": 0.0, "score": "bilinear"},
}


def made(name: str) -> Any:
    """The model in float64, its random weights large enough that what a token sees matters."""
    torch.manual_seed(3)
    model = create_model(name.partition(",")[0], **MODELS[name]).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    return model


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(sorted(MODELS)),
    begun=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    steps=st.lists(st.lists(st.integers(0, 1 << 20), min_size=1, max_size=5), min_size=1, max_size=5),
    gathers=st.sets(st.integers(0, 4)),
    seed=st.integers(0, 1 << 20),
)
def test_each_text_of_a_tree_is_what_it_is_alone(
    name: str, begun: list[int], steps: list[list[int]], gathers: set[int], seed: int
) -> None:
    """From texts of different lengths each step reads one token after each of some texts, several after one among them;
    on the way the texts are gathered, those of several caches too."""
    model, random = made(name), torch.Generator().manual_seed(seed)

    def word() -> int:
        return int(torch.randint(WORDS, (), generator=random))

    texts: list[tuple[list[int], Path]] = []
    for length in begun:
        ids = [word() for _ in range(length)]
        _, cache = model.extend(torch.tensor([ids]))
        tree = TreeCache.from_cache(cache)
        texts.append((ids, Path(tree, 0, tree.seen[0, 0])))
    for k, chosen in enumerate(steps):
        own = [texts[i % len(texts)] for i in chosen]
        if k in gathers or len({id(path.cache) for _, path in own}) > 1:
            tree, rows, seen = gather_paths([path for _, path in own])
            assert tree.length <= max(int(path.cache.length) for _, path in own)
        else:
            tree, rows = own[0][1].cache, [path.row for _, path in own]
            seen = torch.zeros(len(own), tree.length, dtype=torch.bool)
            for row, (_, path) in zip(seen, own):
                row[: len(path.seen)] = path.seen
        columns = [rows[:i].count(row) for i, row in enumerate(rows)]
        ids, real = (torch.zeros(len(tree), max(columns) + 1, dtype=d) for d in (torch.int64, torch.bool))
        before = torch.zeros(*ids.shape, tree.length, dtype=torch.bool)
        new = torch.tensor([word() for _ in own])
        ids[rows, columns], real[rows, columns], before[rows, columns] = new, True, seen
        tree.after(before)
        with torch.no_grad():
            logits, _ = model.extend(ids, real, tree, every=True)
        for (text, _), row, column, token in zip(own, rows, columns, new.tolist()):
            whole = [*text, token]
            torch.testing.assert_close(logits[row, column], alone(model, whole), rtol=1e-9, atol=1e-11)
            texts.append((whole, Path(tree, row, tree.seen[row, column])))


def alone(model: Any, ids: list[int]) -> Tensor:
    """Logits after the last token of a text, (V,), read from its beginning."""
    with torch.no_grad():
        found: Tensor = model(torch.tensor([ids]))[0, -1]
    return found


def test_what_no_text_has_is_left_behind() -> None:
    model = made("gpt2")
    _, cache = model.extend(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    tree = TreeCache.from_cache(cache)
    first = torch.tensor([True, False, True])
    found, rows, seen = gather_paths([Path(tree, 1, first), Path(tree, 1, torch.tensor([False, False, True]))])
    assert (rows, found.length, len(found)) == ([0, 0], 2, 1)
    assert seen.tolist() == [[True, True], [False, True]]
    keys, values = found.layers[1].known()
    known, held = tree.layers[1].known()
    assert torch.equal(keys, known[1:, :, [0, 2]])
    assert torch.equal(values, held[1:, :, [0, 2]])


def test_the_context_bounds_the_longest_text_and_not_the_tree() -> None:
    model = made("gpt2")
    _, cache = model.extend(torch.arange(WORDS)[None, :8])
    tree = TreeCache.from_cache(cache)
    for _ in range(4):  # 32 tokens in the row, of which a text has 9
        before = torch.zeros(1, 6, tree.length, dtype=torch.bool)
        before[:, :, :8] = True
        tree.after(before)
        model.extend(torch.ones(1, 6, dtype=torch.int64), None, tree, every=True)
    assert tree.length == 32
    before = torch.ones(1, 1, tree.length, dtype=torch.bool)
    tree.after(before)
    with pytest.raises(ModelError, match="24 tokens, and these are 33"):
        model.extend(torch.ones(1, 1, dtype=torch.int64), None, tree)
