"""Divided attention over space and time: counts, padding that leaves no trace, rejections."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, VideoSpec
from cutaway.inspect.layers import layer_table
from cutaway.models.registry import preset
from cutaway.models.video_transformer import CARD, PRESETS, Config, VideoTransformer

from .contract import assert_keeps_the_contract

SMALL = Config(4, 8, 4, dim=12, layers=2, heads=3, ffn_dim=16, in_channels=2, num_classes=3)


def built(config: Config = SMALL) -> VideoTransformer:
    torch.manual_seed(0)
    return VideoTransformer(config).double()


def videos(*lengths: int) -> tuple[Tensor, Tensor]:
    """Videos whose padding is noise, and their mask."""
    x = torch.randn(len(lengths), max(lengths), 2, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    return x, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def test_counts() -> None:
    """The paper prints 121.4 million, which its definition has with the 174 classes of Something-Something."""
    held = CARD.published["timesformer"]
    config = dataclasses.replace(PRESETS["timesformer"], num_classes=174)
    layers = layer_table(build_on_meta(preset("timesformer"), config), torch.empty(1, *held.at, device="meta"))
    assert round(layers.parameters / 1e6, 1) == 121.4
    assert round(3 * layers.multiply_adds / 1e12, 2) == 0.59  # of three crops


def test_it_keeps_the_contract() -> None:
    model = VideoTransformer(SMALL)
    torch.nn.init.normal_(model.times)
    assert_keeps_the_contract(model, torch.randn(3, 4, 2, 8, 8), 3)


@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4), training=st.booleans())
def test_padding_changes_no_answer(lengths: list[int], training: bool) -> None:
    model = built().train(training)
    x, mask = videos(*lengths, 4)
    together = model(x, mask)
    for i, length in enumerate(lengths):
        torch.testing.assert_close(model(x[i : i + 1, :length]), together[i : i + 1])


def test_the_order_of_frames_matters_by_their_times_alone() -> None:
    x, _ = videos(4, 4)
    model = built()
    assert not torch.allclose(model(x), model(x.flip(1)))  # they are there from the first step on
    torch.nn.init.zeros_(model.times)
    torch.testing.assert_close(model(x), model(x.flip(1)))


def test_what_does_not_fit_is_rejected() -> None:
    with pytest.raises(ModelError, match=r"have 5 frames, and this model has learned times for 4"):
        built()(torch.zeros(1, 5, 2, 8, 8).double())
    with pytest.raises(ModelError, match=r"patches of 4×4 pixels, and these are 8×10: .* image_size=12"):
        built()(torch.zeros(1, 2, 2, 8, 10).double())
    with pytest.raises(ModelError, match=r"^Invalid heads="):
        Config(dim=16, heads=3)


def test_it_fits_itself_to_data() -> None:
    fitted = Config.for_spec(SMALL, VideoSpec(6, 1, 24, 16, Classes(("a", "b"))))
    assert (fitted.frames, fitted.image_size, fitted.in_channels, fitted.num_classes) == (6, 24, 1, 2)


def test_weights_of_another_length_and_size_are_adapted() -> None:
    longer = VideoTransformer(dataclasses.replace(SMALL, frames=6, image_size=16))
    model = VideoTransformer(SMALL)
    model.load_state_dict(model.adapt_state(longer.state_dict()))
    assert torch.equal(model.times, longer.times[:, :4])
