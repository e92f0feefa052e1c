"""Image GPT: counts, order of pixels, probabilities, hidden classes, fitting. Oracles are beside this, in verify."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import ImageSpec, ImageTokens
from cutaway.inspect.layers import layer_table
from cutaway.models.image_gpt import CARD, PRESETS, Config, ImageGPT
from cutaway.models.registry import preset

SMALL = Config(colors=3, classes=2, sides=(2, 2), dim=12, layers=2, heads=3)
START = 3  # the first start token


def small(**changes: object) -> ImageGPT:
    """A small network in float64 and evaluation mode."""
    torch.manual_seed(0)
    return ImageGPT(dataclasses.replace(SMALL, **changes)).double().eval()


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_those_of_the_card(name: str) -> None:
    config, held = PRESETS[name], CARD.published[name]
    d, layers, length, k = config.dim, config.layers, 1024, config.colors
    assert held.parameters == (k + 1) * d + length * d + layers * (12 * d * d + 13 * d) + 2 * d + d * k
    assert held.multiply_adds == length * (layers * (12 * d * d + 2 * length * d) + k * d)
    counted = layer_table(build_on_meta(preset(name), config), torch.zeros(1, length, dtype=torch.long, device="meta"))
    assert (counted.parameters, counted.multiply_adds) == (held.parameters, held.multiply_adds)


@torch.no_grad()
@pytest.mark.parametrize("label", [0, 1, 2])
def test_probabilities_of_all_images_sum_to_one(label: int) -> None:
    images = torch.tensor(list(itertools.product(range(3), repeat=4)))  # (81, 4)
    start = torch.full((len(images), 1), START + label)
    log_p = small()(torch.cat([start, images[:, :-1]], dim=1)).log_softmax(2).gather(2, images[..., None]).sum((1, 2))
    assert float(log_p.exp().sum()) == pytest.approx(1, abs=1e-12)
    assert log_p.std() > 0


@torch.no_grad()
def test_a_pixel_is_predicted_from_those_before_it() -> None:
    model = small()
    tokens = torch.tensor([[START, 0, 1, 2]])
    other = torch.tensor([[START, 0, 2, 2]])  # pixel 1, the input of position 2, is another
    before, after = model(tokens)[0], model(other)[0]
    assert torch.equal(before[:2], after[:2])
    assert (before[2:] - after[2:]).abs().min() > 0


@torch.no_grad()
def test_the_cache_gives_the_same_logits() -> None:
    model, tokens = small(), torch.tensor([[START, 0, 1, 2], [START + 2, 2, 2, 0]])
    cache = None
    for t in range(4):
        logits, cache = model.extend(tokens[:, t : t + 1], None, cache)
        torch.testing.assert_close(logits, model(tokens)[:, t])


def test_the_class_is_hidden_in_training_alone() -> None:
    model = small(class_dropout=0.25)
    tokens = torch.cat([torch.full((4000, 1), START), torch.randint(3, (4000, 3))], dim=1)
    assert torch.equal(model.hide_class(tokens), tokens)
    model.train()
    torch.manual_seed(0)
    hidden = model.hide_class(tokens)
    assert torch.equal(hidden[:, 1:], tokens[:, 1:])
    assert set(hidden[:, 0].tolist()) == {START, START + 2}
    assert (hidden[:, 0] == START + 2).double().mean().item() == pytest.approx(0.25, abs=5 * (0.1875 / 4000) ** 0.5)


def test_every_parameter_has_a_gradient() -> None:
    model = small(class_dropout=0.0).train()
    tokens = torch.tensor([[START, 0, 1, 2], [START + 1, 2, 0, 0], [START + 2, 1, 1, 1]])
    logits: Tensor = model(tokens)
    assert logits.shape == (3, 4, 3)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_it_is_fitted_to_data() -> None:
    spec = ImageSpec(1, 6, 8, ImageTokens(("a", "b"), 48, cells=(1,) * 17))
    config = Config.for_spec(PRESETS["image-gpt"], spec)
    assert (config.colors, config.classes, config.sides, config.dim) == (17, 2, (6, 8), 128)
    assert (config.vocab_size, config.context_length) == (20, 48)
    large = ImageSpec(3, 65, 64, ImageTokens((), 3 * 65 * 64, cells=(1,) * 9))
    with pytest.raises(ModelError, match=r"images of 65×64 have 4,160: at most 4,096 are allowed. Add image_size=32"):
        Config.for_spec(PRESETS["image-gpt"], large)
    with pytest.raises(ModelError, match="Invalid heads=5"):
        Config(heads=5)


CAPTIONED = dataclasses.replace(SMALL, classes=0, words=4, caption=2)
NO_CLASS, PADDING = 3, 4  # the start token, and the first of the words


def prompts(*captions: tuple[int, int]) -> Tensor:
    """The inputs before the first pixel: a caption of word ids and the start token."""
    return torch.tensor([[*(PADDING + word for word in caption), NO_CLASS] for caption in captions])


def captioned(**changes: object) -> ImageGPT:
    """A small network with captions, in float64 and evaluation mode."""
    torch.manual_seed(0)
    return ImageGPT(dataclasses.replace(CAPTIONED, **changes)).double().eval()


@torch.no_grad()
def test_probabilities_given_a_caption_sum_to_one() -> None:
    model, images = captioned(), torch.tensor(list(itertools.product(range(3), repeat=4)))  # (81, 4)
    found = []
    for caption in ((1, 2), (2, 1), (0, 0)):
        tokens = torch.cat([prompts(caption).expand(81, -1), images[:, :-1]], dim=1)
        logits = model(tokens)
        assert logits.shape == (81, 4, 3)
        log_p = logits.log_softmax(2).gather(2, images[..., None]).sum((1, 2))
        assert float(log_p.exp().sum()) == pytest.approx(1, abs=1e-12)
        found.append(log_p)
    assert min((one - other).abs().max() for one, other in itertools.combinations(found, 2)) > 0


@torch.no_grad()
def test_the_cache_continues_after_a_caption() -> None:
    model, pixels = captioned(), torch.tensor([[0, 1, 2], [2, 2, 0]])
    tokens = torch.cat([prompts((1, 3), (2, 0)), pixels], dim=1)
    logits, cache = model.extend(tokens[:, :3], None, None)
    for t in range(4):
        torch.testing.assert_close(logits, model(tokens)[:, t])
        if t < 3:
            logits, cache = model.extend(tokens[:, 3 + t : 4 + t], None, cache)


def test_the_caption_is_hidden_in_training_alone() -> None:
    model = captioned(class_dropout=0.25)
    tokens = torch.cat([prompts((1, 3)).expand(4000, -1), torch.randint(3, (4000, 3))], dim=1)
    assert torch.equal(model.hide_class(tokens), tokens)
    model.train()
    torch.manual_seed(0)
    hidden = model.hide_class(tokens)
    assert torch.equal(hidden[:, 2:], tokens[:, 2:])
    is_hidden = (hidden[:, :2] == PADDING).all(1)
    assert torch.equal(hidden[~is_hidden], tokens[~is_hidden])
    assert is_hidden.double().mean().item() == pytest.approx(0.25, abs=5 * (0.1875 / 4000) ** 0.5)


def test_it_is_fitted_to_captions() -> None:
    spec = ImageSpec(1, 6, 8, ImageTokens((), 48, cells=(1,) * 17, words=30, caption=7))
    config = Config.for_spec(PRESETS["image-gpt"], spec)
    assert (config.words, config.caption, config.no_class, config.vocab_size) == (30, 7, 17, 48)
    assert config.context_length == 55
    assert spec.target.vocab_size == 48  # type: ignore[union-attr]
