"""What a quantized model observes of its inputs, and what is reported of a smaller model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cutaway
from cutaway.deploy.compression import compare_runs
from cutaway.deploy.quantize import _calibration_batches, observe_ranges, quantize_model
from cutaway.nn.low_precision import quantization_scheme
from cutaway.nn.quantized import QuantizedConv2d


def test_ranges_are_those_of_all_batches() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Conv2d(1, 1, 1, bias=False))
    nn.init.constant_(model[0].weight, -2.0)  # type: ignore[arg-type]
    ends = ((-1.0, 9.0), (-7.0, 2.0), (-0.5, 0.5))  # the largest is in the first batch, the least in the second
    batches = [(torch.tensor([low, high]).view(2, 1, 1, 1),) for low, high in ends]
    assert observe_ranges(model, batches) == {"0": (-7.0, 9.0), "1": (-18.0, 14.0)}
    made = quantize_model(model, "static", 8, 32, batches)
    first = made[0]  # type: ignore[index]
    assert isinstance(first, QuantizedConv2d)
    low = -int(first.x_zero) * float(first.x_scale)
    high = (255 - int(first.x_zero)) * float(first.x_scale)
    assert low == pytest.approx(-7.0, abs=float(first.x_scale))
    assert high >= 9.0 - float(first.x_scale)


def test_calibration_is_spread_over_the_training_split(tmp_path: Path) -> None:
    given: dict[str, Any] = {"max_samples": 200, "max_steps": 2, "tensorboard": False, "model.widths": (4, 6)}
    run = cutaway.train("simplecnn", "digits", out=tmp_path / "run", **given)
    data = run.data()
    count = len(data.splits["train"])
    (found,) = zip(*_calibration_batches(run, data, 5))
    rows = torch.tensor([0, (count - 1) // 4, (count - 1) // 2, 3 * (count - 1) // 4, count - 1])
    first, *_, last = torch.cat(found)
    (batch,) = data.splits["train"].batches([rows[[0, -1]]])
    assert torch.equal(torch.stack([first, last]), batch.inputs[0])
    small = cutaway.quantize(run, out=tmp_path / "small", calibration=5)
    assert small.about["quantized"]["calibration"] == 5
    kinds = list(quantization_scheme(small.model)["layers"].values())  # type: ignore[index]
    counts = {kind: kinds.count(kind) for kind in ("static", "stored")}
    assert counts["static"] == 2
    assert sum(counts.values()) == len(kinds)
    said = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
    assert f"(static, 8 bits; layers: {said})" in small.about["notes"][-1]


def test_ranges_hold_zero() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1))
    assert observe_ranges(model, [(torch.full((1, 1, 1, 1), 3.0),)]) == {"0": (0.0, 3.0)}


def test_what_is_reported_of_models_is_that_of_each(tmp_path: Path) -> None:
    given: dict[str, Any] = {"max_samples": 60, "max_steps": 2, "tensorboard": False, "model.hidden_dims": (8,)}
    whole = cutaway.train("mlp", "digits", out=tmp_path / "whole", **given)
    small = cutaway.prune(whole, tmp_path / "small", sparsity=0.75, epochs=1)
    before, after = compare_runs([whole, small])
    assert (before.run, after.run) == (str(whole.folder), str(small.folder))
    assert before.metric == after.metric == "accuracy"
    for one, run in ((before, whole), (after, small)):
        assert one.score == run.evaluate()["accuracy"]
        assert one.parameters == sum(p.numel() for p in run.model.parameters())
        matrices = [m.weight for m in run.model.modules() if isinstance(m, nn.Linear)]
        zeros = sum(int((w == 0).sum()) for w in matrices)
        assert one.sparsity == pytest.approx(zeros / sum(w.numel() for w in matrices))
        assert one.bytes == (run.folder / "model" / "model.safetensors").stat().st_size
        assert set(one.milliseconds) == {1, 32}
        assert one.to_json()["score"] == one.score.to_json()
    assert before.sparsity < 0.01
    assert after.sparsity == pytest.approx(0.75, abs=0.01)
