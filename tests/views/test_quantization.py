"""The view of a quantized run: errors and costs by hand, what is left as it was, and what is not available."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import cutaway
from cutaway.core.errors import FileError, UnknownName
from cutaway.nn.quantized import dequantize_groups, dequantize_rows, quantize_groups, quantize_rows
from cutaway.nn.textbook.folding import fold_batch_norm
from cutaway.runs.run import Run
from cutaway.views.inspect_page import describe_view
from cutaway.views.quantization import _weights, compare_layers, draw_quantization, is_same_model, load_float_model
from cutaway.views.registry import suits
from cutaway.views.subject import Subject, open_model, open_run

from .test_every_preset import assert_same, assert_whole, state_of

SMALL: dict[str, Any] = {"batch_size": 32, "tensorboard": False, "threads": 1}


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Run:
    shape = {"model.layers": (1, 1), "model.width": 8, "model.shortcut": "B", "max_samples": 120, "epochs": 1}
    return cutaway.train("resnet20", "digits", out=tmp_path_factory.mktemp("resnet") / "run", **SMALL, **shape)


@pytest.fixture(scope="module")
def static(resnet: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return cutaway.quantize(resnet, tmp_path_factory.mktemp("static") / "run", calibration=32)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("words")
    (folder / "text.txt").write_text("abcabdabe" * 200)
    shape = {"model.hidden_dim": 16, "length": 16, "max_steps": 4}
    return cutaway.train("lstm", str(folder / "text.txt"), out=folder / "run", **SMALL, **shape)


def off(y: Tensor, right: Tensor) -> float:
    return float((y.detach().double() - right.detach().double()).norm() / right.detach().double().norm())


def layer_of(shown: Any, name: str) -> dict[str, Any]:
    """A row of the table."""
    heads = [column["name"] for column in shown["table"]["columns"]]
    return next(dict(zip(heads, row)) for row in shown["table"]["rows"] if row[0] == name)


def test_weights_that_are_all_the_same_are_counted_where_they_are() -> None:
    layer = nn.Sequential(nn.Linear(3, 5))
    nn.init.constant_(layer[0].weight, 100.0)  # type: ignore[arg-type]
    (drawn,) = _weights(layer, None, "0", {"bits": 8})
    points = drawn["series"][0]["points"]
    assert [value for _, value in points] == [1.0] + [0.0] * (len(points) - 1)
    assert 100 <= points[0][0] <= points[-1][0] < 100.001


def test_errors_and_costs_of_a_static_network_are_those_by_hand(resnet: Run, static: Run) -> None:
    subject = open_run(static)
    before = state_of(static.model)
    shown = describe_view("quantization", subject)
    assert_whole("quantization", shown)
    assert_same(before, state_of(static.model))
    assert describe_view("quantization", subject) == shown

    data = static.data()
    (batch,) = data.splits["test"].batches([torch.arange(min(256, len(data.splits["test"])))])
    (x,) = batch.inputs
    whole = fold_batch_norm(resnet.model, x[:1])
    first, second = "conv1", next(n for n, m in whole.named_modules() if isinstance(m, nn.Conv2d) and n != "conv1")
    alone, without = copy.deepcopy(whole), copy.deepcopy(static.model)
    alone.set_submodule(second, copy.deepcopy(static.model.get_submodule(second)))
    without.set_submodule(second, whole.get_submodule(second))
    with torch.no_grad():
        right, seen = whole(x), layer_of(shown, second)
        assert seen["output, this only"] == pytest.approx(off(alone(x), right), rel=1e-2)
        assert seen["output, all but this"] == pytest.approx(off(without(x), right), rel=1e-2)
        loss = nn.functional.cross_entropy(alone(x), batch.target)
        assert seen["loss, this only"] == pytest.approx(float(loss), rel=1e-3)
        own = off(static.model.get_submodule(first)(x), whole.get_submodule(first)(x))
    weight = whole.get_submodule(second).weight
    assert isinstance(weight, Tensor)
    assert seen["weight error"] == pytest.approx(off(dequantize_rows(*quantize_rows(weight)), weight), rel=1e-3)
    assert layer_of(shown, first)["own error"] == pytest.approx(own, rel=1e-2)
    assert layer_of(shown, first)["accumulated"] == layer_of(shown, first)["own error"]  # nothing is before it


def test_recurrent_layers_that_are_stored_with_4_bits(words: Run, tmp_path: Path) -> None:
    small = cutaway.quantize(words, tmp_path / "q", bits=4)
    shown = describe_view("quantization", open_run(small))
    assert_whole("quantization", shown)
    rnn = layer_of(shown, "rnn")
    weights = [p.detach() for key, p in words.model.rnn.named_parameters() if p.ndim > 1]
    rounded = [dequantize_groups(*quantize_groups(w, 32), 32, w.shape) for w in weights]
    both = [torch.cat([w.flatten() for w in some]) for some in (rounded, weights)]
    assert rnn["weight error"] == pytest.approx(off(*both), rel=1e-3)
    assert rnn["weights"] == len(both[0])
    assert 0 < rnn["own error"] < 1
    options = {o["name"]: o["drawings"] for d in shown["drawings"] if d["kind"] == "choice" for o in d["options"]}
    integers = options["rnn"][1]
    assert (integers["edges"][0], integers["edges"][-1], sum(integers["counts"])) == (-8.5, 7.5, len(both[0]))
    assert options["embedding"][1]["edges"][0] == -127.5  # 8 bits whatever the others have
    assert sum(options["embedding"][1]["counts"]) == words.model.embedding.weight.numel()


def test_a_network_beside_itself_has_no_error(words: Run, tmp_path: Path) -> None:
    small = cutaway.quantize(words, tmp_path / "q")
    found = compare_layers(open_run(small), copy.deepcopy(small.model))
    assert found.small.error == 0
    assert all(layer.alone == found.whole and layer.after[0] == layer.own[0] == 0 for layer in found.layers)


def test_only_quantized_runs_have_it(resnet: Run, static: Run) -> None:
    assert suits("quantization", open_run(static))
    assert not suits("quantization", open_run(resnet))
    alone = open_model(static.model, torch.randn(1, 1, 32, 32))  # the float network is not known
    assert not suits("quantization", alone)
    with pytest.raises(UnknownName, match="conv1"):
        draw_quantization(open_run(static, options={"layer": "conv_1"}))


def test_where_the_float_run_is_not_at_hand(resnet: Run, static: Run, words: Run, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(static.folder, moved)
    away = Run(moved)
    away.about["quantized"]["from"] = str(tmp_path / "gone")
    shown = describe_view("quantization", open_run(away))
    assert_whole("quantization", shown)
    assert "was not found" in shown["summary"]
    there = open_run(away, options={"before": str(resnet.folder)})
    assert describe_view("quantization", there)["table"] == describe_view("quantization", open_run(static))["table"]
    with pytest.raises(FileError, match="is not a run"):
        draw_quantization(open_run(away, options={"before": str(tmp_path)}))
    other = copy.deepcopy(resnet.model)
    assert is_same_model(fold_batch_norm(other, torch.zeros(1, 1, 32, 32)), static.model)
    nn.init.normal_(other.conv1.weight)  # learned anew
    assert not is_same_model(fold_batch_norm(other, torch.zeros(1, 1, 32, 32)), static.model)
    model, why = load_float_model(open_run(away, options={"before": str(words.folder)}))
    assert model is None
    assert "is not the model that was quantized" in why


def test_files_of_ones_own_have_no_loss(static: Run) -> None:
    subject = open_run(static)
    bare = Subject(static.model, static.preset, subject.inputs, run=static, preprocessing=static.preprocessing)
    shown = draw_quantization(bare)
    assert "loss" not in shown["summary"]
    assert len(shown["drawings"]) == 3  # no drawing of losses
