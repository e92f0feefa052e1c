"""3-D residual networks: counts, padding that leaves no trace, a field over time, rejections."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, Tags, Value, VideoSpec
from cutaway.inspect.layers import layer_table
from cutaway.inspect.receptive_field import gradient_extent
from cutaway.models.r3d import CARD, PRESETS, R3D, Config
from cutaway.models.registry import preset

from .contract import assert_keeps_the_contract

SMALL = Config(layers=(1, 1, 1), width=3, stem="small", in_channels=2, num_classes=3)


def built(config: Config = SMALL) -> R3D:
    torch.manual_seed(0)
    return R3D(config).double()


def videos(*lengths: int) -> tuple[Tensor, Tensor]:
    """Videos whose padding is noise, and their mask."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(lengths), max(lengths), 2, 9, 7, generator=generator, dtype=torch.float64)
    return x, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def test_the_published_counts() -> None:
    held = CARD.published["r3d-18"]
    layers = layer_table(build_on_meta(preset("r3d-18"), PRESETS["r3d-18"]), torch.empty(1, *held.at, device="meta"))
    assert layers.parameters == held.parameters == 33_371_472
    assert layers.multiply_adds == held.multiply_adds
    assert round(layers.multiply_adds / 1e9, 3) == 40.697  # torchvision's _ops


def test_it_keeps_the_contract() -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(R3D(SMALL), torch.randn(4, 5, 2, 9, 11), 3)


@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), more=st.integers(0, 3))
def test_padding_changes_no_answer(lengths: list[int], more: int) -> None:
    model = built().eval()
    x, mask = videos(*lengths, max(lengths) + more)
    together = model(x, mask)
    for i, length in enumerate(lengths):
        torch.testing.assert_close(model(x[i : i + 1, :length]), together[i : i + 1])


def test_padding_leaves_no_trace_in_training() -> None:
    x, mask = videos(4, 1, 3)
    results = []
    for more in (0, 3):
        model = built().train()
        frames = torch.cat([x, torch.full((3, more, *x.shape[2:]), 1e6, dtype=x.dtype)], 1).requires_grad_()
        real = torch.cat([mask, torch.zeros(3, more, dtype=torch.bool)], 1)
        model(frames, real).sum().backward()
        assert frames.grad is not None
        assert not frames.grad[~real].any()
        results.append((frames.grad[real], [b for name, b in model.named_buffers() if "running" in name]))
    torch.testing.assert_close(results[0], results[1])


def test_the_field_reaches_over_time_and_space() -> None:
    model = R3D(Config(layers=(1, 1), width=1, stem="small", in_channels=1))
    table = layer_table(model, torch.zeros(1, 30, 1, 48, 48))
    for layer, seen in (("stem", (3, 3)), ("layer1.0", (7, 11)), ("layer2.0", (13, 23))):
        row = table.blocks[layer]
        frames, pixels = row.frames or 0, row.receptive_field or 0
        assert gradient_extent(model, (30, 1, 48, 48), layer) == (frames, pixels, pixels)
        if layer != "layer2.0":
            assert (frames, pixels) == seen


def test_it_fits_itself_to_data() -> None:
    fitted = Config.for_spec(SMALL, VideoSpec(16, 1, 24, 24, Classes(("a", "b"))))
    assert (fitted.in_channels, fitted.num_classes) == (1, 2)
    assert Config.for_spec(SMALL, VideoSpec(16, 1, 24, 24, Value())).num_classes == 1
    with pytest.raises(ModelError, match="a class or a number of each video, and not tag"):
        Config.for_spec(SMALL, VideoSpec(16, 1, 24, 24, Tags(("a", "b"))))  # type: ignore[arg-type]


def test_padding_before_a_frame_is_rejected() -> None:
    x, mask = videos(4, 2)
    with pytest.raises(ModelError, match="Video 1 of the batch has padding before a real frame"):
        built()(x, mask.flip(1))
