"""What a code holds: what is shown is what the decoder makes of the codes that are named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cutaway.core.errors import SettingError
from cutaway.inference.image_generation import as_levels
from cutaway.views import image_generation
from cutaway.views.registry import suits
from cutaway.views.subject import Subject, open_preset

from .test_denoising import drawn, levels_of

SETTINGS = {"sides": (8, 8), "widths": (4,), "hidden_dim": 8, "latent_dim": 3}


def opened(**options: str) -> Subject:
    """A small network whose numbers say more and less, with two random images."""
    subject = open_preset("vae", SETTINGS, options, count=2)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in subject.model.parameters():
            p.normal_(0, 0.3, generator=generator)
        model: Any = subject.model
        model.code.weight[1], model.code.weight[4] = 0, 0
        model.code.bias[[1, 4]] = 0  # number 1 is the prior's
    return subject


@torch.no_grad()
def test_images_are_decoded_and_numbers_moved() -> None:
    subject = opened(example="1")
    view, model = image_generation.draw_latent(subject), subject.model
    found, (x,) = drawn(view), subject.inputs
    mean, log_var = model.encode(x)  # type: ignore[operator]
    tiles = found["Images and reconstructions"]["tiles"]
    assert torch.equal(levels_of(tiles[:2]), as_levels(x)[:, 0])
    assert torch.equal(levels_of(tiles[2:]), as_levels(model.decode(mean))[:, 0])  # type: ignore[operator]
    kl = 0.5 * (mean**2 + log_var.exp() - 1 - log_var).mean(0)
    order = [row[0] for row in view["table"]["rows"]]
    assert order == kl.argsort(descending=True).tolist()
    assert order[-1] == 1
    assert [row[1] for row in view["table"]["rows"]] == pytest.approx(kl[order].tolist(), abs=1e-6)
    z = mean[1].repeat(7, 1)
    z[:, order[0]] = torch.arange(-3.0, 4.0)
    tiles = found["Latent traversal"]["tiles"]
    assert torch.equal(levels_of(tiles[:7]), as_levels(model.decode(z))[:, 0])  # type: ignore[operator]
    still = levels_of(tiles[-7:])  # number 1 is moved too, and the decoder was drawn to use it
    assert not torch.equal(still[0], still[-1])
    assert view["summary"].startswith("2 of 3 dimensions are used")


def test_it_is_for_models_that_hold_images_as_codes() -> None:
    assert suits("latent", opened())
    assert not suits("latent", open_preset("ddpm-unet-small"))
    with pytest.raises(SettingError, match="Invalid example=2"):
        image_generation.draw_latent(opened(example="2"))
