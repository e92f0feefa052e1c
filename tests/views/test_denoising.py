"""Images on their way out of noise: what is shown is what the network computes at those timesteps."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from cutaway.core.errors import CutawayError
from cutaway.inference.image_generation import as_levels
from cutaway.nn.diffusion import add_noise, classifier_free_guidance, predict_x0, sample, sampling_timesteps
from cutaway.views import denoising
from cutaway.views.subject import Subject, open_preset

SETTINGS = {
    "in_channels": 1, "classes": 3, "widths": (4, 8), "layers": 1, "attention_levels": (2,), "groups": 2,
    "timesteps": 20,
}  # fmt: skip


def opened(**options: str) -> Subject:
    """A small network whose weights are all at work, with two random images."""
    subject = open_preset("ddpm-unet-small", SETTINGS, options, count=2)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in subject.model.parameters():
            p.normal_(0, 0.2, generator=generator)
    return subject


def drawn(view: Any) -> dict[str, Any]:
    return {drawing["title"]: drawing for drawing in view["drawings"]}


def levels_of(tiles: list[dict[str, Any]]) -> Tensor:
    """The pixels of pictures, (n, H, W)."""
    urls = [tile["image"].removeprefix("data:image/png;base64,") for tile in tiles]
    return torch.stack([torch.from_numpy(np.array(Image.open(io.BytesIO(base64.b64decode(url))))) for url in urls])


@torch.no_grad()
def test_the_pictures_are_those_of_sampling_at_the_timesteps_that_they_name() -> None:
    subject = opened(steps="5", guidance="3", seed="7")
    found = drawn(denoising.view(subject))
    model: Any = subject.model
    shape = tuple(subject.inputs[0].shape[1:])
    generators = [torch.Generator().manual_seed(7 + k) for k in range(3)]
    noise = torch.stack([torch.randn(shape, generator=generator) for generator in generators])
    told: list[tuple[int, Tensor, Tensor]] = []

    def predict(x: Tensor, t: Tensor, classes: Tensor) -> Tensor:
        return model(x, t, None, classes)  # type: ignore[no-any-return]

    def more(x: Tensor) -> Tensor:
        return torch.stack([torch.randn(shape, generator=generator) for generator in generators])

    towards, times = classifier_free_guidance(predict, torch.arange(3), 3, 3.0), sampling_timesteps(20, 5)
    end = sample(towards, noise, model.config.signal, times, 1.0, more, watch=lambda *moment: told.append(moment))
    for k in range(3):
        tiles = found[f"Sampling of image {k + 1}, class {k}"]["tiles"]
        assert [tile["label"] for tile in tiles] == [f"t = {t}" for t in times] * 2
        assert torch.equal(levels_of(tiles[:5]), torch.cat([as_levels(xt[k]) for _, xt, _ in told]))
        assert torch.equal(levels_of(tiles[5:]), torch.cat([as_levels(x[k]) for _, _, x in told]))
        assert torch.equal(levels_of(tiles[-1:]), as_levels(end[k]))
    assert len(found["The same noise with increasing guidance"]["tiles"]) == 3 * len(denoising.SCALES)


@torch.no_grad()
def test_the_loss_at_a_timestep_is_that_of_the_noise_in_the_examples() -> None:
    subject = opened(steps="1")
    view = denoising.view(subject)
    (x0,), model = subject.inputs, subject.model
    noise = torch.randn(x0.shape, generator=torch.Generator().manual_seed(0))
    signal: Tensor = subject.config.signal
    for t, part, ratio, loss in view["table"]["rows"]:
        xt = add_noise(x0, float(signal[t]), noise)
        predicted = model(xt, torch.full((2,), t))
        assert loss == pytest.approx(float((predicted - noise).square().mean()), rel=1e-4)
        assert part / (1 - part) == pytest.approx(ratio)
        torch.testing.assert_close(predict_x0(xt, noise, float(signal[t])), x0, atol=1e-3, rtol=1e-3)
    worst = max(view["table"]["rows"], key=lambda row: row[3])
    assert f"largest at t = {worst[0]}" in view["summary"]


def test_without_classes_nothing_is_guided() -> None:
    subject = open_preset("ddpm-unet-small", SETTINGS | {"classes": 0}, {"steps": "1"})
    view = denoising.view(subject)
    assert "The same noise with increasing guidance" not in drawn(view)
    assert "Sampling of image 1" in drawn(view)
    assert "at every timestep" in view["summary"], "it predicts no noise yet"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": "21"}, "Invalid steps=21"),
        ({"steps": "0"}, "Invalid steps=0: must be 1 to 20"),
        ({"guidance": "much"}, "Invalid guidance=much: must be a number"),
        ({"guidance": "nan"}, "Invalid guidance=nan"),
        ({"class": "seven"}, "Invalid class=seven"),
        ({"seed": "-1"}, "Invalid seed=-1"),
    ],
)
def test_invalid_settings_are_rejected_by_name(options: dict[str, str], words: str) -> None:
    with pytest.raises(CutawayError, match=words):
        denoising.view(opened(**options))


def test_it_is_for_networks_that_take_noise_away() -> None:
    assert denoising.suits(opened())
    assert not denoising.suits(open_preset("vae"))
    assert not denoising.suits(open_preset("lenet5-modern"))
