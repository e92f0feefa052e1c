"""Frames through a CNN and then an LSTM: counts, padding that leaves no trace, time that matters, rejections."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, Tags, Value, VideoSpec
from cutaway.inspect.layers import layer_table
from cutaway.models.cnn_lstm import CARD, Config, Model
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

from .contract import assert_keeps_the_contract

SMALL = Config(in_channels=2, channels=(3, 4), grid=2, hidden_dim=5, num_classes=3)
LENGTHS = (4, 1, 3)


def videos(config: Config = SMALL, lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Videos (N, T, C, H, W) of these lengths in double precision, whose padding is noise, and their mask."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths), config.in_channels, config.least_size + 3, config.least_size)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.randn(shape, generator=generator, dtype=torch.float64), mask


def built(config: Config = SMALL) -> nn.Module:
    torch.manual_seed(0)
    return Model(config).double()


def test_counts_are_those_of_the_definition() -> None:
    held = CARD.published["cnn-lstm"]
    layers = layer_table(create_model("cnn-lstm"), torch.zeros(1, *held.at))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    convolutions = 9 * (3 * 16 + 16 * 32 + 32 * 64)
    assert held.parameters == convolutions + 2 * (16 + 32 + 64) + 4 * 128 * (576 + 128 + 2) + 129 * 10
    each = 9 * (3 * 16 * 64**2 + 16 * 32 * 32**2 + 32 * 64 * 16**2) + 4 * 128 * (576 + 128)
    assert held.multiply_adds == 16 * each + 128 * 10


@settings(max_examples=20, deadline=None)
@given(
    channels=st.lists(st.integers(1, 4), min_size=1, max_size=2),
    grid=st.integers(1, 3),
    hidden=st.integers(1, 4),
    layers=st.integers(1, 3),
    readout=st.sampled_from(["last", "mean"]),
    dropout=st.sampled_from([0.0, 0.4]),
)
def test_every_setting_is_the_oracles(
    channels: list[int], grid: int, hidden: int, layers: int, readout: str, dropout: float
) -> None:
    config = Config(1, tuple(channels), grid, hidden, layers, readout, dropout, num_classes=2)
    torch.manual_seed(hidden)
    measured = compare(Model(config), oracle_for("cnn-lstm", config), torch.Generator().manual_seed(grid))
    assert measured.equal, measured


@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("classes", [3, 1])
def test_it_keeps_the_contract(readout: str, classes: int) -> None:
    torch.manual_seed(0)
    model = Model(Config(1, (3, 4), 2, 6, 2, readout, num_classes=classes))
    assert_keeps_the_contract(model, torch.randn(4, 3, 1, 9, 11), classes)
    assert model.features(torch.randn(4, 3, 1, 9, 11)).shape == (4, 6)


@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("training", [True, False])
def test_no_mask_means_that_all_frames_are_real(readout: str, training: bool) -> None:
    model = built(Config(2, (3, 4), 2, 5, 2, readout)).train(training)
    x, _ = videos()
    torch.testing.assert_close(model(x), model(x, torch.ones(x.shape[:2], dtype=torch.bool)))


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    more=st.integers(0, 3),
    readout=st.sampled_from(["last", "mean"]),
)
def test_padding_changes_no_answer(lengths: list[int], more: int, readout: str) -> None:
    config = Config(2, (3, 4), 2, 5, 2, readout)
    model = built(config).eval()
    x, mask = videos(config, (*lengths, max(lengths) + more))
    together = model(x, mask)
    for i, length in enumerate(lengths):
        torch.testing.assert_close(model(x[i : i + 1, :length]), together[i : i + 1])


def test_padding_leaves_no_trace_in_the_statistics() -> None:
    """In training too: what normalization learns is of real frames, and no gradient reaches the others."""
    x, mask = videos()
    longer = torch.cat([x, 1e6 * torch.ones_like(x)], 1)
    longer_mask = torch.cat([mask, torch.zeros_like(mask)], 1)
    results = []
    for frames, real in ((x, mask), (longer, longer_mask)):
        model = built().train()
        frames = frames.clone().requires_grad_()
        model(frames, real).sum().backward()
        assert frames.grad is not None
        assert not frames.grad[~real].any()
        results.append((frames.grad[real], [b for name, b in model.named_buffers() if "running" in name]))
    torch.testing.assert_close(results[0], results[1])
    values = x[mask]  # the first convolution's outputs over real frames alone
    first = built()
    maps = first.cnn[0].conv(values)  # type: ignore[index]
    torch.testing.assert_close(results[0][1][0], 0.1 * maps.mean((0, 2, 3)))


def test_masks_as_people_have_them() -> None:
    model, (x, mask) = built().eval(), videos()
    for dtype in (torch.int64, torch.uint8, torch.float32):
        assert torch.equal(model(x, mask.to(dtype)), model(x, mask))
    with pytest.raises(ModelError, match="padding before a real step"):
        model(x, mask.flip(1))
    with pytest.raises(ModelError, match="by True and False or by 1 and 0"):
        model(x, torch.zeros(mask.shape).masked_fill(~mask, -torch.inf))
    with pytest.raises(ModelError, match="one entry for each place"):
        model(x, mask[:, :-1])


def test_padding_costs_nothing() -> None:
    model, seen = built(), []
    model.cnn.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))  # type: ignore[union-attr]
    model(*videos())
    assert seen == [sum(LENGTHS)]


def test_the_order_of_frames_matters() -> None:
    x, _ = videos(lengths=(4, 4))
    for readout in ("last", "mean"):
        model = built(Config(2, (3, 4), 2, 5, pooling=readout)).eval()
        assert not torch.allclose(model(x), model(x.flip(1)))


def test_the_input_is_left_as_it_is() -> None:
    x, mask = videos()
    before = copy.deepcopy((x, mask))
    built().train()(x, mask)
    assert torch.equal(x, before[0])
    assert torch.equal(mask, before[1])


def test_a_single_video_of_a_single_frame_can_be_learned_from() -> None:
    assert built().train()(*videos(lengths=(1,))).isfinite().all()


def test_it_fits_itself_to_data() -> None:
    fitted = Config.for_spec(Config(), VideoSpec(16, 1, 24, 24, Classes(("a", "b"))))
    assert (fitted.in_channels, fitted.num_classes) == (1, 2)
    assert Config.for_spec(Config(), VideoSpec(16, 1, 24, 24, Value())).num_classes == 1
    with pytest.raises(ModelError, match="learns a class or a number of each video, and not tag"):
        Config.for_spec(Config(), VideoSpec(16, 1, 24, 24, Tags(("a", "b"))))


def test_too_small_a_frame_names_the_least_size() -> None:
    assert Config().least_size == 24
    with pytest.raises(ModelError, match="at least 24×24 pixels, and these are 30×23"):
        create_model("cnn-lstm")(torch.zeros(1, 2, 3, 30, 23))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("in_channels", 0),
        ("channels", ()),
        ("channels", (4, 0)),
        ("grid", 0),
        ("hidden_dim", 0),
        ("layers", 0),
        ("pooling", "first"),
        ("dropout", 1.0),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}="):
        Config(**{field: value})  # type: ignore[arg-type]
