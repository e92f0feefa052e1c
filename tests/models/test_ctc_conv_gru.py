"""Speech to text: counts, the oracle in every setting, padding that says nothing, what is rejected."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import AudioSpec, Classes, Transcript
from cutaway.inspect.layers import layer_table
from cutaway.models.ctc_conv_gru import CARD, Config, Model
from cutaway.models.registry import preset
from cutaway.nn.losses import SILENT
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

SMALL = Config(in_features=3, channels=(4, 5), kernel=3, hidden_dim=4, num_classes=3)


def recordings(lengths: list[int], config: Config = SMALL) -> tuple[Tensor, Tensor]:
    """Frames (N, T, F) of these lengths in double precision, whose padding is noise, and their mask."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(lengths), max(lengths), config.in_features, generator=generator, dtype=torch.float64)
    return x, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def built(config: Config = SMALL) -> Model:
    torch.manual_seed(0)
    return Model(config).double().eval()


def test_counts_are_those_of_the_definition() -> None:
    held = CARD.published["ctc-conv-gru"]
    layers = layer_table(create_model("ctc-conv-gru"), torch.zeros(1, *held.at))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    first, second, gates = 11 * 64 * 128, 11 * 128 * 128, 2 * 3 * 128 * (128 + 128)
    assert held.parameters == first + second + 2 * 128 + gates + 2 * 2 * 3 * 128 + (256 + 1) * 28
    assert held.multiply_adds == 50 * first + 25 * (second + gates + 256 * 28)


@settings(max_examples=15, deadline=None)
@given(
    strides=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    kernel=st.sampled_from([1, 3, 5]),
    hidden=st.integers(1, 4),
    layers=st.integers(1, 2),
    dropout=st.sampled_from([0.0, 0.4]),
)
def test_every_setting_is_the_oracles(
    strides: list[int], kernel: int, hidden: int, layers: int, dropout: float
) -> None:
    channels = tuple(range(2, 2 + len(strides)))
    dropout = dropout if layers == 1 else 0.0  # between layers the oracle has none
    config = Config(3, channels, kernel, tuple(strides), hidden, layers, dropout, num_classes=4)
    torch.manual_seed(hidden)
    measured = compare(Model(config), oracle_for("ctc-conv-gru", config), torch.Generator().manual_seed(kernel))
    assert measured.equal, measured


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    more=st.integers(0, 5),
    strides=st.sampled_from([(2, 1), (1, 1), (2, 2), (1, 3)]),
)
def test_padding_changes_no_answer_and_says_nothing(lengths: list[int], more: int, strides: tuple[int, int]) -> None:
    model = built(Config(3, (4, 5), 3, strides, 4, num_classes=3))
    x, mask = recordings([*lengths, max(lengths) + more])
    together = model(x, mask)
    left = model.output_frames(torch.tensor(lengths))
    for i, length in enumerate(lengths):
        alone = model(x[i : i + 1, :length])
        assert alone.shape[1] == left[i]
        torch.testing.assert_close(alone[0], together[i, : left[i]])
        assert together[i, left[i] :].tolist() == [[0, SILENT, SILENT]] * (together.shape[1] - int(left[i]))


def test_no_gradient_reaches_padding() -> None:
    x, mask = recordings([9, 4])
    x.requires_grad_()
    built().train()(x, mask).square().sum().backward()
    assert x.grad is not None
    assert not x.grad[~mask].any()
    assert x.grad[mask].abs().sum(1).all()


def test_the_head_sees_both_directions() -> None:
    model = built()
    x, _ = recordings([12])
    assert model.features(x).shape == (1, 3, 8)
    assert model(x).shape == (1, 3, 3)
    changed = x.clone()
    changed[:, -1] += 1
    assert (model(x)[:, 0] - model(changed)[:, 0]).abs().max() > 1e-9


def test_it_fits_itself_to_data() -> None:
    fitted = preset("ctc-conv-gru").configure(AudioSpec(90, 40, Transcript(("a", "b"))))
    assert (fitted.in_features, fitted.num_classes) == (40, 3)
    with pytest.raises(ModelError, match="ctc-conv-gru does not learn what this audio data asks for, class"):
        preset("ctc-conv-gru").configure(AudioSpec(90, 40, Classes(("a", "b"))))
    with pytest.raises(ModelError, match="these models learn it: ctc-conv-gru"):
        preset("gru").configure(AudioSpec(90, 40, Transcript(("a", "b"))))


def test_inputs_of_another_shape_are_rejected() -> None:
    x, mask = recordings([5, 4])
    with pytest.raises(ModelError, match=r"frames of shape \(N, T, 3\), and these are \(2, 5, 2\)"):
        built()(x[..., :2], mask)
    with pytest.raises(ModelError, match="padding before a real step"):
        built()(x, mask.flip(1))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("in_features", 0),
        ("channels", ()),
        ("channels", (4, 0)),
        ("kernel", 4),
        ("strides", (2,)),
        ("strides", (0, 1)),
        ("hidden_dim", 0),
        ("layers", 0),
        ("dropout", 1.0),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}="):
        Config(**{field: value})  # type: ignore[arg-type]
