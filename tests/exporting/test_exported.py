"""A run as one file: it answers as the run does, for raw files too, and says when it was changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import cutaway
from cutaway.commands import main
from cutaway.errors import FileError, ModelError
from cutaway.interop.export.artefact import TOLERANCE, difference, from_json, reject_different, to_json, trace

SMALL: dict[str, Any] = {"max_samples": 128, "batch_size": 32, "epochs": 1, "tensorboard": False, "threads": 1}
DYNAMIC = torch.export.Dim.DYNAMIC


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    return cutaway.train("lenet5-modern", "digits", out=tmp_path_factory.mktemp("whole") / "run", **SMALL)


@pytest.fixture(scope="module")
def exported(run: cutaway.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxruntime")
    return cutaway.export(run, tmp_path_factory.mktemp("exported") / "digits.onnx")


def test_a_raw_file_is_answered_as_by_the_run(run: cutaway.Run, exported: Path, tmp_path: Path) -> None:
    levels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    files = [tmp_path / "one.jpg", tmp_path / "two.png"]
    Image.fromarray(levels).save(files[0])
    Image.fromarray(levels[:9, :9]).save(files[1])
    expected, found = run.predict(files), cutaway.load(exported).predict(files)
    assert [row["input"] for row in found] == [row["input"] for row in expected]
    for ours, theirs in zip(found, expected, strict=True):
        numbers = [key for key, value in theirs.items() if isinstance(value, float)]
        assert numbers
        assert [ours[key] for key in numbers] == pytest.approx([theirs[key] for key in numbers], abs=1e-5)


def test_onnxruntime_alone_is_enough(exported: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    document = json.loads(session.get_modelmeta().custom_metadata_map["cutaway"])
    pair = document["golden"]
    (answered,) = session.run(None, {name: from_json(x).numpy() for name, x in pair["inputs"].items()})
    assert difference(torch.from_numpy(answered), from_json(pair["output"])) <= TOLERANCE
    assert document["labels"] == [str(i) for i in range(10)]


def test_a_changed_file_is_refused(exported: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(exported)
    weights = next(one for one in model.graph.initializer if len(one.raw_data) > 100)
    weights.raw_data = bytes([weights.raw_data[0] ^ 1]) + weights.raw_data[1:]
    onnx.save(model, tmp_path / "changed.onnx")
    with pytest.raises(FileError, match="checksum"):
        cutaway.load(tmp_path / "changed.onnx")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "foreign.onnx")
    with pytest.raises(FileError, match="not written by"):
        cutaway.load(tmp_path / "foreign.onnx")
    (tmp_path / "none.onnx").write_bytes(exported.read_bytes()[:1000])
    with pytest.raises(FileError, match="cut short"):
        cutaway.load(tmp_path / "none.onnx")


def test_pt2_is_written_and_never_read(run: cutaway.Run, tmp_path: Path) -> None:
    path = cutaway.export(run, tmp_path / "digits.pt2")
    extra = {"cutaway.json": ""}
    program = torch.export.load(path, extra_files=extra).module()  # our own file, in a test
    pair = json.loads(extra["cutaway.json"])["golden"]
    answered = program(*(from_json(x) for x in pair["inputs"].values()))
    assert difference(answered, from_json(pair["output"])) <= TOLERANCE
    with pytest.raises(FileError, match="unpickles"):
        cutaway.load(path)


def test_what_cannot_be_is_one_paragraph(
    run: cutaway.Run, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for out, said in ((exported, "exists"), (tmp_path / "digits.tflite", "no format")):
        assert main(["export", str(run.folder), str(out)]) == 2
        assert said in capsys.readouterr().err


class Last(nn.Module):
    """Two stacked recurrent layers, whose length the exporter fixes."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 4, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.rnn(x)[0][:, -1]
        return out


def test_a_length_that_is_fixed_is_refused() -> None:
    inputs = [(torch.randn(2, 5, 3),), (torch.randn(3, 7, 3),), (torch.randn(1, 4, 3),)]
    with pytest.raises(ModelError, match="cannot be traced"):
        trace(Last().eval(), ("x",), ({0: DYNAMIC, 1: DYNAMIC},), inputs)


def test_an_answer_that_differs_is_refused() -> None:
    inputs = [(torch.randn(n, 3),) for n in (2, 3, 1)]
    traced = trace(nn.Linear(3, 2).eval(), ("x",), ({0: DYNAMIC},), inputs)
    with pytest.raises(ModelError, match="answers otherwise"):
        reject_different(traced, lambda x: traced.program.module()(x) + 1e-3, "a converter")


def test_a_tensor_comes_back() -> None:
    for x in (torch.randn(2, 3), torch.tensor([[True, False]]), torch.arange(4)):
        assert torch.equal(from_json(to_json(x)), x)
