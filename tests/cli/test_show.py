"""cutaway show."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cutaway.models.registry import presets

from .conftest import Answer

Cli = Callable[..., Answer]


@pytest.mark.parametrize("name", presets())
def test_every_model_can_be_shown_on_one_screen_or_two(cli: Cli, name: str) -> None:
    answer = cli("show", name)
    assert answer.status == 0
    lines = answer.out.splitlines()
    start, end = (next(i for i, line in enumerate(lines) if line.startswith(word)) for word in ("layer ", "in all"))
    assert end - start <= 61
    assert presets()[name].card.card.link in answer.out
    assert presets()[name].card.card.equation in answer.out


def test_the_card_the_layers_and_the_divergences(cli: Cli) -> None:
    out = cli("show", "resnet18").out.replace("\u202f", " ")
    assert "K. He, X. Zhang, S. Ren, J. Sun, 2015" in out
    assert "published: 11 689 512 parameters and 1 814 073 344 MACs" in out
    (total,) = [line for line in out.splitlines() if line.startswith("in all")]
    assert total.split("  ")[-2:] == ["11 689 512", "1 814 073 344"]
    (row,) = [line for line in out.splitlines() if line.startswith("layer4.1.conv2")]
    assert row.split()[1:3] == ["Conv2d", "512×7×7"]
    assert row.split()[-1] == "435"
    assert "stride of the bottleneck" in out
    assert "shortcut     B" in out
    assert "A pads channels of zeros" in out  # the comment beside the field


def test_a_receptive_field_is_shown_where_there_is_one(cli: Cli) -> None:
    assert "sees" in cli("show", "lenet5").out
    text = cli("show", "gpt2").out
    assert "pixels" not in text
    assert "sees" not in text


def test_settings_change_the_model_and_then_nothing_is_called_published(cli: Cli) -> None:
    document = json.loads(cli("show", "resnet18", "num_classes=10", "model.width=16", "input=3x64x64", "--json").out)
    assert document["config"]["num_classes"] == 10
    assert document["layers"]["rows"][-1]["shape"] == [10]
    assert document["layers"]["input"] == [3, 64, 64]
    assert document["layers"]["rows"][0]["shape"] == [16, 32, 32]
    assert document["published"] is None
    assert "published:" not in cli("show", "resnet18", "num_classes=10").out


def test_blocks_that_are_alike_are_shown_once(cli: Cli) -> None:
    lines = cli("show", "gpt2").out.replace("\u202f", " ").splitlines()
    (same,) = [line for line in lines if line.startswith("blocks.1")]
    # 11 blocks of 12·768² + 13·768 weights
    assert same.split("  ")[0] == "blocks.1 to 11"
    assert "77 966 592" in same
    assert sum(line.startswith("blocks.0") for line in lines) >= 6
    unlike = cli("show", "resnet18").out.splitlines()
    assert not [
        line for line in unlike if line.startswith("layer") and "the same" in line
    ]  # each sees further than the one before


def test_channels_follow_the_settings(cli: Cli) -> None:
    assert json.loads(cli("show", "resnet20", "in_channels=1", "--json").out)["layers"]["input"] == [1, 32, 32]
    assert json.loads(cli("show", "mlp", "in_features=7", "--json").out)["layers"]["input"] == [7]


def test_json_holds_the_published_counts(cli: Cli) -> None:
    document = json.loads(cli("show", "resnet50-v1", "--json").out)
    assert document["published"]["multiply_adds"] == document["layers"]["multiply_adds"] == 3_857_973_248
    assert document["layers"]["complete"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("resnet81",), "Similar: resnet18"),
        (("resnet18", "num_class=3"), "num_classes"),
        (("resnet18", "width=0"), "Invalid width=0: must be at least 1"),
        (("resnet18", "shortcut=C"), "Invalid shortcut='C': must be A, B, none"),
        (("resnet18", "input=large"), "Invalid input=large"),
        (("resnet18", "input=1x32x32"), "does not accept an input of 1×32×32"),
        (("lenet5-modern", "input=1x8x8"), "does not accept an input of 1×8×8"),
        (("num_classes=3",), "Missing model"),
    ],
)
def test_invalid_arguments_are_rejected_with_a_message(cli: Cli, words: tuple[str, ...], said: str) -> None:
    answer = cli("show", *words)
    assert (answer.status, answer.out) == (2, "")
    assert said in answer.said
    assert "Traceback" not in answer.err


def test_published_and_computed_counts_are_shown(cli: Cli) -> None:
    for name, counted, printed in (
        ("transformer-base", "63 082 496", "65 M"),
        ("transformer-big", "214 245 376", "213 M"),
    ):
        out = cli("show", name).out.replace("\u202f", " ")
        assert f"\ncomputed: {counted} parameters" in out
        assert f"\npublished: {printed}, Table 3\n" in out
