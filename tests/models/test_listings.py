"""The networks of courses in docs/own_models.md: parameter counts, training on digits and videos, attention weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import cutaway
from cutaway.core.errors import ModelError
from cutaway.models.registry import preset
from cutaway.nn.attention import MultiHeadAttention

PAGE = Path(__file__).parents[2] / "docs" / "own_models.md"
TITLE = "## Listings of courses and what is nearest here"
COUNTS = {"SimpleCNN": 87_114, "CNNLSTM": 78_026, "CNNAttention": 142_986, "RowEncoder": 18_914_304}
QUICK: dict[str, Any] = {"max_steps": 2, "batch_size": 8, "max_samples": 80, "lr": 1e-3, "tensorboard": False}


def section() -> str:
    """Return the section of the page."""
    return PAGE.read_text(encoding="utf-8").split(TITLE)[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def listings() -> dict[str, Any]:
    """Run the page's first block of code and return what it defines."""
    space: dict[str, Any] = {"__name__": "listings", "torch": torch, "nn": nn, "F": F, "cutaway": cutaway}
    exec(re.findall(r"```python\n(.*?)```", section(), re.DOTALL)[0], space)
    return space


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    """Return 80 digits as 3×32×32, and their classes."""
    from sklearn import datasets

    bunch: Any = datasets.load_digits()
    images = torch.from_numpy(bunch.images[:80]).float()[:, None] / 16
    return F.interpolate(images, size=32, mode="bilinear").expand(-1, 3, -1, -1), torch.from_numpy(bunch.target[:80])


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def train_two_steps(net: nn.Module, data: Any) -> None:
    """Train for two steps, which change every weight with a gradient, and evaluate."""
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    run = cutaway.train(net, data, **QUICK)
    assert all(not torch.equal(p, before[name]) for name, p in net.named_parameters())
    assert 0 <= run.evaluate()["accuracy"].value <= 1


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_those_of_the_listings(listings: dict[str, Any], name: str) -> None:
    net = listings[name]()
    assert count(net.encoder if name == "RowEncoder" else net) == COUNTS[name]


@pytest.mark.parametrize("name", COUNTS)
def test_the_arithmetic_of_the_page_is_that_of_the_layers(listings: dict[str, Any], name: str) -> None:
    (row,) = [line for line in section().splitlines() if line.startswith("|") and f"{COUNTS[name]:,}" in plain(line)]
    total, terms = plain(row.split("|")[2]).split(":")[0].split(" = ")
    net = listings[name]()
    if name == "RowEncoder":
        layers, each = terms.split(" · ")
        assert (int(layers), int(each.replace(",", ""))) == (len(net.encoder.layers), count(net.encoder.layers[0]))
    else:
        counts = [count(layer) for layer in net.children()]
        assert [int(term.replace(",", "")) for term in terms.split(" + ")] == [n for n in counts if n]
    assert int(total.replace(",", "")) == COUNTS[name]


def plain(text: str) -> str:
    """Return text with commas between thousands in place of spaces."""
    return re.sub(r"(?<=\d)[ \u202f\u00a0](?=\d{3}\b)", ",", text).strip()


@pytest.mark.parametrize("name", ["SimpleCNN", "CNNAttention"])
def test_image_networks_train_on_digits(listings: dict[str, Any], digits: tuple[Tensor, Tensor], name: str) -> None:
    train_two_steps(listings[name](), digits)


@pytest.mark.parametrize("name", ["SimpleCNN", "CNNAttention"])
def test_image_networks_train_on_gray_digits(listings: dict[str, Any], name: str) -> None:
    """Gray images are contiguous and channels last at once; `view` of convolutions must work on them as well."""
    train_two_steps(listings[name](channels=1, **({"size": 8} if name == "SimpleCNN" else {})), "digits")


@pytest.mark.slow
@pytest.mark.parametrize("cells", [1, 3])
def test_the_cnn_lstm_trains_on_moving_digits(listings: dict[str, Any], cells: int) -> None:
    train_two_steps(listings["CNNLSTM"](channels=1, classes=8, cells=cells), "moving_digits")


def test_the_mean_is_one_cell_of_the_map(listings: dict[str, Any]) -> None:
    """Away from the border a shift of the image does not change the mean over the map; 3×3 cells see it."""
    still = torch.zeros(1, 2, 1, 24, 24)
    still[..., 8:12, 8:12] = 1
    moved = still.roll(4, -1)
    frames: list[Tensor] = []
    for cells, equal in ((1, True), (3, False)):
        net = listings["CNNLSTM"](channels=1, cells=cells).eval()
        with net.fc.register_forward_hook(lambda module, args, output: frames.append(args[0])), torch.no_grad():
            net(still)
            net(moved)
        assert torch.allclose(*frames[-2:], atol=1e-6) == equal


@pytest.mark.slow
def test_the_transformer_encoder_trains_on_rows_of_digits(listings: dict[str, Any]) -> None:
    train_two_steps(listings["RowEncoder"](), "digits")


def test_the_preset_has_the_blocks_of_the_transformer_encoder() -> None:
    model = preset("transformer-encoder-base").build(preset("transformer-encoder-base").config)
    assert count(model.blocks) == COUNTS["RowEncoder"]
    assert count(model) == 24_036_354 == COUNTS["RowEncoder"] + 512 * 10_000 + 2 * 512 + 2 * 513


def test_attention_of_torch_is_not_captured_and_ours_has_the_same_weights(listings: dict[str, Any]) -> None:
    net = listings["CNNAttention"]().eval()
    x = torch.rand(2, 3, 16, 16)
    with pytest.raises(ModelError, match="no attention to capture"), cutaway.inspect.capture(net, "attention"):
        net(x)
    with cutaway.inspect.capture(net, "features") as seen, torch.no_grad():
        net(x)
    assert seen["features"]["attention"].shape == (2, 16, 128)

    theirs, ours = net.attention, MultiHeadAttention(128, 4)
    assert count(theirs) == count(ours)
    with torch.no_grad():
        ours.qkv.weight.copy_(theirs.in_proj_weight)
        ours.qkv.bias.copy_(theirs.in_proj_bias)
        ours.out.load_state_dict(theirs.out_proj.state_dict())
        tokens = torch.rand(2, 16, 128)
        expected, maps = theirs(tokens, tokens, tokens, average_attn_weights=False)
        holder = nn.Sequential(ours).eval()
        with cutaway.inspect.capture(holder, "attention") as recorded:
            torch.testing.assert_close(holder(tokens), expected)
    torch.testing.assert_close(recorded["attention"]["0"], maps)
