"""The networks of NAS-Bench-201: the published counts, the notation, any cell against its oracle, rejections."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, ImageSpec
from cutaway.inspect.layers import layer_table
from cutaway.models.cellnet import CARD, EDGES, LARGEST, OPERATIONS, Config, Model, all_cells, format_cell, parse_cell
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

from .contract import assert_keeps_the_contract

CELLS = st.tuples(*[st.sampled_from(OPERATIONS)] * len(EDGES))
SKIPS = format_cell(["skip_connect"] * 6)


def counts(**given: object) -> tuple[int, int | None]:
    layers = layer_table(create_model("cellnet", **given), torch.empty(1, 3, 32, 32))
    return layers.parameters, layers.multiply_adds


def test_the_largest_and_the_smallest_count_to_what_is_published() -> None:
    # For CIFAR-10 the benchmark goes from 0.073306 to 1.531546 million parameters and from 7.78305 to 220.11969 million
    # multiply-adds, which count the ten biases of the head.
    assert counts() == (1_531_546, 220_119_690 - 10)
    assert counts(arch=SKIPS) == (73_306, 7_783_050 - 10)
    assert counts(arch=format_cell(["none"] * 6)) == counts(arch=SKIPS)
    held = CARD.published["cellnet"]
    assert (held.parameters, held.multiply_adds) == counts()


def test_there_are_15_625_cells() -> None:
    cells = set(all_cells())
    assert len(cells) == 5**6
    assert {LARGEST, SKIPS} <= cells


@given(operations=CELLS)
def test_the_notation_is_read_as_it_is_written(operations: tuple[str, ...]) -> None:
    assert parse_cell(format_cell(operations)) == operations


@settings(max_examples=20, deadline=None)
@given(operations=CELLS)
def test_any_cell_is_what_its_notation_says(operations: tuple[str, ...]) -> None:
    config = Config(arch=format_cell(operations), cells=1, channels=2, in_channels=1, num_classes=3)
    torch.manual_seed(0)
    assert compare(Model(config), oracle_for("cellnet", config), torch.Generator().manual_seed(0)).equal


def test_nodes_are_sums_over_their_edges() -> None:
    model = Model(Config(arch=SKIPS, cells=1))
    x = torch.randn(2, 16, 4, 4)
    torch.testing.assert_close(model.blocks[0](x), 4 * x)  # x1 = x, x2 = x + x1, x3 = x + x1 + x2
    empty = Model(Config(arch=format_cell(["none"] * 6), cells=1))
    assert not empty.blocks[0](x).any()


@pytest.mark.parametrize(("height", "width"), [(8, 8), (28, 32)])
def test_the_contract(height: int, width: int) -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(create_model("cellnet-small"), torch.randn(4, 3, height, width), outputs=10)


def test_it_fits_itself_to_data() -> None:
    config = Config.for_spec(Config(), ImageSpec(1, 28, 28, Classes(("a", "b", "c"))))
    assert config == Config(in_channels=1, num_classes=3)


@pytest.mark.parametrize(
    ("arch", "said"),
    [
        ("", "must be a cell as in"),
        (
            "|skip_conect~0|+|none~0|none~1|+|none~0|none~1|none~2|",
            "no operation 'skip_conect': similar is skip_connect",
        ),
        ("|none~0|+|none~0|none~1|", "must be a cell"),
        (LARGEST.replace("~2", "~1"), "must be a cell"),
        (LARGEST + "|", "must be a cell"),
    ],
)
def test_invalid_cells_are_rejected(arch: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        Config(arch=arch)


@pytest.mark.parametrize(("side", "said"), [(2, "at least 4×4"), (30, "image_size=32")])
def test_images_that_cannot_be_halved_twice_are_rejected(side: int, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        create_model("cellnet-small")(torch.zeros(1, 3, side, side))


@pytest.mark.parametrize("field", ["cells", "channels", "in_channels", "num_classes"])
def test_bad_values_are_rejected_by_name(field: str) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}=0"):
        Config(**{field: 0})
