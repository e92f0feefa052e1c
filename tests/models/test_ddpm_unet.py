"""DDPM's U-Net: counts, its oracle in other shapes, timesteps and classes, sampling, rejections."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import ImageSpec, Noise
from cutaway.inspect.layers import layer_table
from cutaway.models.ddpm_unet import CARD, DDPM, PRESETS, Config
from cutaway.models.registry import presets
from cutaway.nn.diffusion import add_noise
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

SMALL = Config(
    in_channels=1, classes=3, widths=(8, 16), layers=1, attention_levels=(2,), groups=4, timesteps=20, dropout=0.0
)


def network(**changes: object) -> DDPM:
    """A small one whose weights are all at work: those that begin as 0 are moved."""
    torch.manual_seed(0)
    model = DDPM(dataclasses.replace(SMALL, **changes)).double().eval()  # type: ignore[arg-type]  # settings
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2)
    return model


def test_parameters_are_those_of_the_paper() -> None:
    model = build_on_meta(presets()["ddpm-unet"], PRESETS["ddpm-unet"])
    assert sum(p.numel() for p in model.parameters()) == CARD.published["ddpm-unet"].parameters == 35_746_307


def test_counts_are_those_of_the_card() -> None:
    held = CARD.published["ddpm-unet-small"]
    layers = layer_table(create_model("ddpm-unet-small"), torch.zeros(1, *held.at))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


@settings(max_examples=4, deadline=None)
@given(
    widths=st.lists(st.sampled_from([4, 8]), min_size=1, max_size=3),
    layers=st.integers(1, 2),
    classes=st.sampled_from([0, 2]),
    schedule=st.sampled_from(["linear", "cosine"]),
    data=st.data(),
)
def test_any_shape_is_the_oracles(
    widths: list[int], layers: int, classes: int, schedule: str, data: st.DataObject
) -> None:
    pytest.importorskip("diffusers")
    levels = tuple(data.draw(st.sets(st.integers(1, len(widths)), max_size=2)))
    config = Config(
        in_channels=1, classes=classes, widths=tuple(widths), layers=layers, groups=2, dropout=0.1,
        attention_levels=levels, timesteps=50, noise_schedule=schedule,
    )  # fmt: skip
    torch.manual_seed(0)
    measured = compare(DDPM(config), oracle_for("ddpm-unet", config), torch.Generator().manual_seed(0))
    assert measured.equal, measured


def test_at_first_it_tells_no_noise() -> None:
    assert not DDPM(SMALL)(torch.randn(2, 1, 8, 8)).any()


def test_noise_is_added_as_the_closed_form_adds_it() -> None:
    model, (x, noise) = network(), torch.randn(2, 3, 1, 8, 8, dtype=torch.float64)
    t = torch.tensor([0, 7, 19])
    xt = add_noise(x, model.config.signal[t].view(3, 1, 1, 1), noise)
    torch.testing.assert_close(model(x, t, noise), model(xt, t))
    torch.testing.assert_close(model(x, torch.tensor([0.04, 0.3999, 0.9999]), noise), model(xt, t))  # fractions of T


def test_without_classes_all_are_none_and_training_hides_some() -> None:
    model, x = network(class_dropout=0.5), torch.randn(1, 1, 8, 8, dtype=torch.float64).expand(64, -1, -1, -1)
    t, classes = torch.zeros(64, dtype=torch.int64), torch.ones(64, dtype=torch.int64)
    none, one = model(x[:1]), model(x[:1], t[:1], None, classes[:1])
    torch.testing.assert_close(none, model(x[:1], t[:1], None, torch.tensor([3])))
    assert not torch.allclose(none, one)
    torch.manual_seed(0)
    answers = model.train()(x, t, None, classes).detach()
    hidden = (answers - none).abs().amax((1, 2, 3)) < 1e-9
    shown = (answers - one).abs().amax((1, 2, 3)) < 1e-9
    assert (hidden ^ shown).all()
    assert 16 < hidden.sum() < 48


@torch.no_grad()
def test_images_are_drawn_the_same_alone_and_together() -> None:
    model = network(widths=(8, 8))
    noise, classes = torch.randn(3, 1, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 2])
    told: list[int] = []
    together = model.draw(noise, classes, steps=4, guidance=2.0, watch=lambda t, xt, start: told.append(t))
    alone = torch.cat([model.draw(noise[i : i + 1], classes[i : i + 1], steps=4, guidance=2.0) for i in range(3)])
    torch.testing.assert_close(together, alone)
    assert told == [19, 13, 6, 0]
    assert together.abs().max() <= 1


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(Config(), ImageSpec(1, 28, 28, Noise(("a", "b"), 784)))
    assert (fitted.in_channels, fitted.classes) == (1, 2)
    assert (fitted.size_step, fitted.least_size) == (8, 16)


def test_sizes_that_cannot_be_halved_are_rejected() -> None:
    with pytest.raises(ModelError, match=r"halves images 1 times, and these are 7×8: .* multiple of 2"):
        network()(torch.zeros(1, 1, 7, 8, dtype=torch.float64))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"widths": (8, 10)}, "Invalid groups=4: must be a divisor of each of widths"),
        ({"attention_levels": (3,)}, r"Invalid attention_levels=\(3,\): .* the 2 that widths has"),
        ({"noise_schedule": "sigmoid"}, "Invalid noise_schedule='sigmoid': must be linear or cosine"),
        ({"timesteps": 1}, "Invalid timesteps=1"),
    ],
)
def test_invalid_settings_are_rejected_by_name(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        network(**changes)
