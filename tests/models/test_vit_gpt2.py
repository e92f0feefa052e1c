"""ViT and GPT-2 as one encoder–decoder: counts, one word at a time, fitting, rejections. Its oracle is in interop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import ModelError
from cutaway.core.spec import ImageSpec, Tokens
from cutaway.models.vit_gpt2 import CARD, Config, Model

SMALL = Config(8, 4, dim=8, layers=2, decoder_layers=1, heads=2, dropout=0.0, in_channels=1, target_vocab_size=11,
               context_length=6)  # fmt: skip


def small() -> Model:
    torch.manual_seed(0)
    return Model(SMALL).double().eval()


def test_the_parameters_are_those_of_the_two_halves_and_the_looks_between() -> None:
    d, v, length = 768, 50_257, 1024
    attention, mlp, norm = 4 * d * d + 4 * d, 8 * d * d + 5 * d, 2 * d
    vit = 3 * 16 * 16 * d + d + d + 197 * d + 12 * (attention + mlp + 2 * norm) + norm
    gpt2 = v * d + length * d + 12 * (attention + mlp + 2 * norm) + norm
    assert CARD.published["vit-gpt2"].parameters == vit + gpt2 + 12 * (attention + norm)


@settings(max_examples=10, deadline=None)
@given(count=st.integers(1, 3), steps=st.integers(1, 6), seed=st.integers(0, 99))
def test_a_word_hangs_on_its_image_and_on_the_words_before_it_alone(count: int, steps: int, seed: int) -> None:
    model, generator = small(), torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, 8, 12, generator=generator, dtype=torch.float64)
    words = torch.randint(0, 11, (count, steps), generator=generator)
    together = model(images, words)
    assert together.shape == (count, steps, 11)
    with torch.no_grad():
        state = model.begin(images)
        for t in range(steps):
            logits, state = model.step(words[:, t], state)
            torch.testing.assert_close(logits, together[:, t], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(model(images[-1:], words[-1:]), together[-1:], rtol=1e-10, atol=1e-12)


def test_it_is_fitted_to_images_and_captions() -> None:
    fitted = Config.for_spec(Config(), ImageSpec(1, 32, 48, Tokens(31, 2, 3, 9, "caption")))
    assert (fitted.image_size, fitted.in_channels, fitted.target_vocab_size, fitted.context_length) == (48, 1, 31, 14)


def test_positions_of_another_image_size_are_interpolated() -> None:
    larger = Model(Config(**{**vars(SMALL), "image_size": 16}))
    adapted = larger.adapt_state(small().float().state_dict())
    assert adapted["patch_positions"].shape == (1, 17, 8)
    larger.load_state_dict(adapted)


def test_broken_patches_and_long_captions_are_rejected() -> None:
    model = small()
    with pytest.raises(ModelError, match=r"vit-gpt2 cuts images into patches of 4×4 pixels, and these are 8×10"):
        model(torch.zeros(1, 1, 8, 10, dtype=torch.float64), torch.tensor([[2]]))
    with pytest.raises(ModelError, match="learned positions for 6 tokens, and this caption has 7"):
        model(torch.zeros(1, 1, 8, 8, dtype=torch.float64), torch.ones(1, 7, dtype=torch.long))
