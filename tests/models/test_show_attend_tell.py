"""Show, attend and tell: counts, one word at a time, what attention gives, what is rejected."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import ImageSpec, Tokens
from cutaway.inspect.layers import layer_table
from cutaway.models.show_attend_tell import CARD, Config, Model
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare
from cutaway.views.attention_capture import capture_attention

SMALL = Config((4, 6), 1, embedding_dim=6, hidden_dim=5, attention_dim=7, dropout=0.0, in_channels=1,
               target_vocab_size=11)  # fmt: skip


def small(seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return Model(SMALL).double().eval()


def test_counts_are_the_cards() -> None:
    held = CARD.published["show-attend-tell"]
    e, n, a, d, v = 96, 192, 96, 64, 10_000
    convs = [(3, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64)]
    cnn = sum(9 * i * o + 2 * o for i, o in convs)
    attention = a * n + (a * d + a) + a
    cell = 4 * n * (e + d + n) + 8 * n
    assert (
        held.parameters == cnn + v * e + 2 * (n * d + n) + attention + (n + 1) + cell + (e * n + e) + e * d + v * e + v
    )
    places = [64**2] * 2 + [32**2] * 2 + [16**2] * 2
    cnn = sum(9 * i * o * p for (i, o), p in zip(convs, places))
    each = a * n + 256 * a + 256 * d + n + 4 * n * (e + d + n) + e * n + e * d + v * e  # of the caption
    assert held.multiply_adds == cnn + 256 * a * d + 2 * n * d + 8 * each
    model = create_model("show-attend-tell")
    layers = layer_table(model, torch.zeros(1, 3, 64, 64), torch.ones(1, 8, dtype=torch.long))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


@pytest.mark.parametrize("layers", [1, 2])
def test_it_is_its_oracle_with_other_stages(layers: int) -> None:
    config = Config((4, 6, 9), layers, 6, 5, 7, 0.3, 2, 11)
    assert compare(Model(config), oracle_for("show-attend-tell", config), torch.Generator().manual_seed(layers)).equal


@settings(max_examples=10, deadline=None)
@given(count=st.integers(1, 3), steps=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_word_hangs_on_its_image_and_on_the_words_before_it_alone(count: int, steps: int, seed: int) -> None:
    model, generator = small(), torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, 6, 7, generator=generator, dtype=torch.float64)
    words = torch.randint(0, 11, (count, steps), generator=generator)
    together = model(images, words)
    assert together.shape == (count, steps, 11)
    state = model.begin(images)
    for t in range(steps):
        logits, state = model.step(words[:, t], state)
        torch.testing.assert_close(logits, together[:, t], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(model(images[-1:], words[-1:]), together[-1:], rtol=1e-10, atol=1e-12)


def test_the_places_that_it_looks_at_are_those_of_the_map() -> None:
    model = small()
    images, words = torch.randn(1, 1, 6, 8, dtype=torch.float64), torch.tensor([[2, 5, 7]])
    (look,) = capture_attention(model, (images, words), lambda look: look)
    grid = model.token_grid(6, 8)
    assert (grid.rows, grid.columns, grid.before) == (3, 4, 0)
    weights = look.weights(0)
    assert weights.shape == (3, 12)
    torch.testing.assert_close(weights.sum(1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(weights @ look.v[0], look.output, rtol=1e-10, atol=1e-12)


def test_position_of_a_patch_changes_the_output() -> None:
    """Without positions a map of equal places would be equal everywhere."""
    places = small().places(torch.zeros(1, 1, 16, 16, dtype=torch.float64))[0].view(8, 8, -1)  # (H', W', D)
    middle = places[3:5, 3:5].flatten(0, 1)
    assert torch.cdist(middle, middle).fill_diagonal_(1).min() > 1e-3


def test_it_is_fitted_to_the_captions() -> None:
    spec = ImageSpec(1, 20, 24, Tokens(31, 2, 3, 9, "caption"))
    fitted = Config.for_spec(Config(), spec)
    assert (fitted.in_channels, fitted.target_vocab_size) == (1, 31)


def test_too_small_images_are_rejected() -> None:
    with pytest.raises(ModelError, match="at least 2×2 pixels, and these are 1×5"):
        small()(torch.zeros(1, 1, 1, 5, dtype=torch.float64), torch.tensor([[2]]))
