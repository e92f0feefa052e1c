"""The network, block by block: what it counts is what was counted, and its arithmetic comes out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import cutaway
from cutaway.inspect.layers import Row, layer_table
from cutaway.models.registry import preset
from cutaway.views import network
from cutaway.views.subject import open_model, open_preset

from ..small import DIFFERENT, small

THIN = "\u202f"


def lines_of(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every line of a tree."""
    for row in rows:
        yield row
        yield from lines_of(row.get("inside", []))


def tree_of(name: str) -> tuple[dict[str, Any], Any]:
    """The drawing of a preset, and its layer table."""
    model, inputs = small(name)
    subject = open_model(model, *inputs)
    layers = network.subject_layers(subject)
    return network.tree_drawing(layers, model), layers


@pytest.mark.parametrize("name", DIFFERENT)
def test_lines_add_up_to_what_was_counted(name: str) -> None:
    drawing, layers = tree_of(name)
    heads = [column["name"] for column in drawing["columns"]]
    for k, whole in (("parameters", layers.parameters), ("MACs", layers.multiply_adds)):
        if k in heads:
            assert sum(row["cells"][heads.index(k)] or 0 for row in drawing["rows"]) == whole
        else:
            assert whole == 0
    for line in lines_of(drawing["rows"]):
        assert len(line["cells"]) == len(heads)
        assert ("inside" in line) != ("words" in line)
        if "inside" in line and "parameters" in heads:
            assert line["cells"][0] == sum(inner["cells"][0] for inner in line["inside"])
    names = [line["full"] for line in lines_of(drawing["rows"])]
    assert len(set(names)) == len(names)
    assert set(drawing["open"]) <= {line["full"] for line in lines_of(drawing["rows"]) if "inside" in line}


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_product_that_is_written_comes_to_its_count(name: str) -> None:
    drawing, _ = tree_of(name)
    written = 0
    for line in lines_of(drawing["rows"]):
        for words in line.get("words", ()):
            words = words.replace(THIN, "")
            if match := re.search(r"(\d+) products? for each of ([\d·]+) numbers = (\d+) MACs", words):
                product = int(match[1])
                for factor in match[2].split("·"):
                    product *= int(factor)
                assert product == int(match[3])
                written += 1
            if match := re.search(r"(\d+) weights? × (\d+) positions?.* = (\d+) MACs", words):
                assert int(match[1]) * int(match[2]) == int(match[3])
                written += 1
            if match := re.fullmatch(r"\w+: ([\d·]+) = (\d+)", words):
                product = 1
                for factor in match[1].split("·"):
                    product *= int(factor)
                assert product == int(match[2])
            if match := re.match(r"(\d+(?:×\d+)*) window × (\d+) channels? = (\d+) products", words):
                product = int(match[2])
                for factor in match[1].split("×"):
                    product *= int(factor)
                assert product == int(match[3])
    if name.startswith(("resnet", "vgg", "vit", "gpt2", "bert")):
        assert written > 5


def test_resnet18_is_what_its_paper_counts() -> None:
    view = network.draw_network(open_preset("resnet18"))
    said = view["summary"].replace(THIN, " ")
    assert "11 689 512 parameters; 1 814 073 344 MACs (multiply-adds)" in said
    rows = {line["full"]: line for line in lines_of(view["drawings"][0]["rows"])}
    words = [words.replace(THIN, " ") for words in rows["layer1.0.conv1"]["words"]]
    assert words == [
        "weight: 64·64·3·3 = 36 864",
        "3×3 window × 64 channels = 576 products for each of 64·56·56 numbers = 115 605 504 MACs",
    ]
    assert rows["layer1.1"]["times"] == 1
    assert "same structure as layer1.0" in rows["layer1.1"]["words"][0]
    assert rows["layer4.1.conv2"]["cells"][3] == 435


@pytest.mark.slow
def test_blocks_that_are_alike_stand_as_one_line() -> None:
    rows = {line["full"]: line for line in lines_of(network.draw_network(open_preset("gpt2"))["drawings"][0]["rows"])}
    same = rows["blocks.1"]
    assert same["name"] == "1 to 11"
    assert same["times"] == 11
    assert same["cells"][0] == 11 * (12 * 768**2 + 13 * 768)
    assert "blocks.2" not in rows


@pytest.mark.slow
def test_nothing_is_computed_for_what_has_shapes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = open_preset("bert-base-uncased", {"layers": 2})
    monkeypatch.setattr(subject.model, "forward", lambda *inputs: pytest.fail("the model ran"))
    assert network.draw_network(subject)["table"]["rows"]


def test_the_table_is_that_of_the_example_that_was_opened() -> None:
    model = cutaway.create_model("resnet20", num_classes=3)
    layers = network.subject_layers(open_model(model, torch.zeros(4, 3, 48, 48)))
    assert layers.input == (1, 3, 48, 48)
    assert layers == layer_table(model, torch.zeros(1, 3, 48, 48))


def test_memory_is_of_the_precision_of_the_weights() -> None:
    single, double = (
        network.draw_network(open_model(*(lambda m, x: (m, *x))(*small("lenet5-modern", dtype=dtype))))
        for dtype in (torch.float32, torch.float64)
    )
    memory = [row[5] for row in single["table"]["rows"]]
    assert [row[5] for row in double["table"]["rows"]] == pytest.approx([2 * kb for kb in memory])
    assert memory[0] == 6 * 28 * 28 * 4 / 1000


def test_what_is_not_known_is_said_to_be() -> None:
    row = Row("fft", "operation", (1, 8), 0, None, None, ("fft",))
    assert network.arithmetic(row, None) == ["the MACs of fft are unknown"]
    assert network.arithmetic(Row("x", "Linear", (1, 3), 8, 7, None), nn.Linear(2, 3))[-1] == "7 MACs"


def test_the_report_draws_the_same(tmp_path: Any) -> None:
    run = cutaway.train("softmax", "iris", epochs=1, tensorboard=False, out=tmp_path / "run")
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert '"kind": "tree"' in page
    assert preset("softmax")
