"""What every encoder–decoder owes: padding and company change nothing, steps are one pass, rows can be chosen."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.core.errors import ModelError

VOCABULARY = 13  # ids of either side, where there is one vocabulary


def ragged(lengths: list[int], steps: int, seed: int = 0, vocab_size: int = VOCABULARY) -> tuple[Tensor, ...]:
    """Source ids (N, T), their mask, and target ids (N, S)."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    source = torch.randint(1, vocab_size, mask.shape, generator=generator).where(mask, 0)
    return source, mask, torch.randint(0, vocab_size, (len(lengths), steps), generator=generator)


def moved(model: nn.Module, seed: int = 0) -> Any:
    """The model in float64 and evaluation, its weights moved, so that ones and zeros of the beginning hide nothing."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model


def assert_padding_changes_nothing(model: Any, lengths: list[int], steps: int, seed: int) -> None:
    """Each source gives the same alone and without a mask as in a padded batch, whatever stands in the padding."""
    source, mask, so_far = ragged(lengths, steps, seed)
    together = model(source, mask, so_far)
    assert together.shape[:2] == (len(lengths), steps)
    torch.testing.assert_close(model(source.where(mask, 5), mask, so_far), together, rtol=1e-10, atol=1e-12)
    for i, length in enumerate(lengths):
        alone = model(source[i : i + 1, :length], None, so_far[i : i + 1])
        torch.testing.assert_close(alone[0], together[i], rtol=1e-10, atol=1e-12)


@torch.no_grad()
def assert_steps_are_one_pass(model: Any, lengths: list[int], steps: int, seed: int) -> None:
    """Token after token gives what one pass gives, and so does a choice of rows in the middle of it."""
    source, mask, so_far = ragged(lengths, steps, seed)
    expected = model(source, mask, so_far)  # (N, S, V)
    state = model.begin(source, mask)
    assert len(state) == len(lengths)
    read_again: list[nn.Module] = []
    for block in model.decoder:
        block.cross_attention.kv.register_forward_pre_hook(lambda module, args: read_again.append(module))
    rows = torch.arange(len(lengths))
    for i in range(steps):
        logits, state = model.step(so_far[rows, i], state)
        torch.testing.assert_close(logits, expected[rows, i], rtol=1e-10, atol=1e-12)
        if i == steps // 2:  # the last first, the first twice
            rows = torch.tensor([*range(len(lengths) - 1, -1, -1), 0])
            state = state.select(rows)
            assert len(state) == len(rows)
    assert not read_again


def assert_sees_nothing_ahead(model: Any) -> None:
    """What stands behind a place of the target changes nothing there, and all that stands before it does."""
    source, mask, so_far = ragged([4, 3], 6)
    before = model(source, mask, so_far)
    so_far[:, 4] = (so_far[:, 4] + 1) % VOCABULARY
    after = model(source, mask, so_far)
    torch.testing.assert_close(after[:, :4], before[:, :4], rtol=1e-12, atol=1e-12)
    assert all((after[:, i] - before[:, i]).abs().amax(1).min() > 1e-6 for i in (4, 5))


def assert_empty_sources_are_rejected(model: Any) -> None:
    """A source without a token is rejected where an answer is asked for; one pass looks over nothing and gets 0."""
    source, mask, so_far = ragged([3, 4, 2], 3)
    expected = model(source, mask, so_far)
    mask[1] = False
    outputs = model(source, mask, so_far)
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    torch.testing.assert_close(outputs[::2], expected[::2], rtol=1e-10, atol=1e-12)
    other, _, _ = ragged([3, 4, 2], 3, seed=1)
    torch.testing.assert_close(model(other, mask, so_far)[1], outputs[1], rtol=1e-10, atol=1e-12)
    with pytest.raises(ModelError, match="without a single token"):
        model.begin(source, mask)
    with pytest.raises(ModelError, match="without a single token"):
        model.begin(source[:, :0])


def assert_keeps_the_contract(model: Any, dim: int) -> None:
    """Features are what the head sees, every parameter learns, dropout acts in training alone, weights go out and in,
    and the first logits have a scale that a softmax can learn from."""
    source, mask, so_far = ragged([5, 3, 5], 4)
    model.eval()
    y = model(source, mask, so_far)
    features = model.features(source, mask, so_far)
    assert features.shape == (3, 4, dim)
    assert torch.equal(model.head(features), y)
    assert 0.05 < y.std() < 3
    trained = model.train()(source, mask, so_far)
    trained.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(0)))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        if not name.endswith(("attention.qkv.bias", "attention.kv.bias")):  # a third or half of those has none
            assert parameter.grad.abs().max() > 0, name
    assert not torch.equal(trained, y)
    assert not torch.equal(model(source, mask, so_far), trained)
    other = type(model)(model.config).eval()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(other(source, mask, so_far), model.eval()(source, mask, so_far))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert (model(source, mask, so_far).float() - y).abs().max() < 0.2
