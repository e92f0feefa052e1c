"""A run as one file: it answers as the run does, for raw files too, and says when it was changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import cutaway
from cutaway.apps.cli import main
from cutaway.core.errors import FileError, ModelError
from cutaway.core.spec import Classes, ImageSpec, VideoSpec
from cutaway.data.images.transforms import ImagePreprocessing
from cutaway.data.tables.column_types import ColumnType, fit_encoder
from cutaway.data.video.transforms import VideoPreprocessing
from cutaway.deploy.exported_program import (
    KEY,
    TOLERANCE,
    array_from_json,
    array_to_json,
    reject_different,
    relative_difference,
    trace,
)
from cutaway.deploy.onnx import CHECKSUM, Session, _convert, _digest, write_onnx
from cutaway.deploy.preprocessing_graph import ExportModule, IdentityPreprocessing, TableEncoder, graph_inputs
from cutaway.models.r3d import R3D
from cutaway.models.r3d import Config as R3DConfig

SMALL: dict[str, Any] = {"max_samples": 128, "batch_size": 32, "epochs": 1, "tensorboard": False, "threads": 1}
DYNAMIC = torch.export.Dim.DYNAMIC


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    return cutaway.train("lenet5-modern", "digits", out=tmp_path_factory.mktemp("whole") / "run", **SMALL)


@pytest.fixture(scope="module")
def exported(run: cutaway.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxruntime")
    return cutaway.export(run, tmp_path_factory.mktemp("exported") / "digits.onnx")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A JPEG and a PNG that are not of the network's size."""
    folder = tmp_path_factory.mktemp("photographs")
    levels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(levels).save(folder / "one.jpg")
    Image.fromarray(levels[:9, :9]).save(folder / "two.png")
    return [folder / "one.jpg", folder / "two.png"]


def equal(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Rows of predictions that say the same, numbers within the tolerance of float32."""
    assert len(found) == len(expected) > 0
    for ours, theirs in zip(found, expected, strict=True):
        numbers = [key for key, value in theirs.items() if isinstance(value, float)]
        assert {k: v for k, v in ours.items() if k not in numbers} == {
            k: v for k, v in theirs.items() if k not in numbers
        }
        assert [ours[key] for key in numbers] == pytest.approx([theirs[key] for key in numbers], rel=1e-5, abs=1e-5)


def test_an_exported_run_can_be_printed_and_shown_in_a_notebook(exported: Path) -> None:
    found = cutaway.load(exported)
    assert str(found) == repr(found) == f"ExportedRun({str(exported)!r})"
    assert "digits.onnx" in found._repr_html_()


def test_a_raw_file_is_answered_as_by_the_run(run: cutaway.Run, exported: Path, photographs: list[Path]) -> None:
    equal(cutaway.load(exported).predict(photographs), run.predict(photographs))


def test_the_graph_itself_resizes(run: cutaway.Run, exported: Path, photographs: list[Path]) -> None:
    """What docs/export.md shows: decoded pixels of any size are all that onnxruntime needs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    png = photographs[1]  # of a JPEG, what is decoded depends on the size that is asked for
    with Image.open(png) as image:
        pixels = np.asarray(image.convert("L"))[None, :, :, None]  # (1, h, w, 1)
    (logits,) = session.run(None, {"pixels": pixels})
    said = torch.from_numpy(logits).double().softmax(1)[0]
    expected = run.predict([png])[0]
    assert [expected[f"probability {k}"] for k in range(10)] == pytest.approx(said.tolist(), abs=1e-5)


def test_the_lines_of_the_page_run_without_this_package(
    run: cutaway.Run, exported: Path, photographs: list[Path], tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    lines = page.partition("```python\n")[2].partition("```")[0]
    assert "cutaway." not in lines
    shutil.copy(exported, tmp_path / "digits.onnx")
    shutil.copy(photographs[1], tmp_path / "seven.png")
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.split() == [run.predict([photographs[1]])[0]["class"]]


def test_onnxruntime_alone_is_enough(exported: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    document = json.loads(session.get_modelmeta().custom_metadata_map["cutaway"])
    pair = document["golden"]
    (answered,) = session.run(None, {name: array_from_json(x) for name, x in pair["inputs"].items()})
    expected = torch.from_numpy(array_from_json(pair["output"]))
    assert relative_difference(torch.from_numpy(answered), expected) <= TOLERANCE
    assert document["labels"] == [str(i) for i in range(10)]
    settings = document["settings"]  # those that decoding and evaluation go by
    assert settings.keys() == {"num_beams", "length_penalty", "batch_tokens"}
    assert settings["length_penalty"] == 0.6


def resealed(model: Any, path: Path) -> Path:
    """A changed model with the checksum of what it is now, as somebody who knows how would write it."""
    for prop in list(model.metadata_props):
        if prop.key == CHECKSUM:
            model.metadata_props.remove(prop)
    model.metadata_props.add(key=CHECKSUM, value=_digest(model))
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path


def test_a_changed_file_is_refused(exported: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(exported)
    weights = next(one for one in model.graph.initializer if len(one.raw_data) > 10_000)
    weights.raw_data = bytes(len(weights.raw_data))
    onnx.save(model, tmp_path / "changed.onnx")
    with pytest.raises(FileError, match="checksum"):
        cutaway.load(tmp_path / "changed.onnx")
    with pytest.raises(FileError, match="its stored example differ"):
        cutaway.load(resealed(model, tmp_path / "resealed.onnx"))
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "foreign.onnx")
    with pytest.raises(FileError, match="has no preprocessing from"):
        cutaway.load(tmp_path / "foreign.onnx")
    (tmp_path / "none.onnx").write_bytes(exported.read_bytes()[:1000])
    with pytest.raises(FileError, match="truncated"):
        cutaway.load(tmp_path / "none.onnx")


@pytest.mark.parametrize("place", ["../../etc/passwd", "/dev/zero", "weights.bin"])
@pytest.mark.parametrize("where", ["initializer", "attribute"])
def test_no_other_file_is_opened(exported: Path, tmp_path: Path, place: str, where: str) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(exported)
    if where == "initializer":
        tensor = model.graph.initializer[0]
    else:
        node = model.graph.node.add(op_type="Constant", output=["elsewhere"])
        attribute = node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
        tensor = attribute.t
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros(4, np.float32)))
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", place), ("offset", "0"), ("length", str(1 << 40))):
        tensor.external_data.add(key=key, value=value)
    with pytest.raises(FileError, match="in external files"):
        cutaway.load(resealed(model, tmp_path / "hostile.onnx"))


@pytest.mark.parametrize(
    "document",
    ["[", "{}", "[" * 5000 + "]" * 5000, '{"golden": {"inputs": {}, "output": {"dtype": "object", "shape": [1]}}}'],
    ids=["cut", "empty", "deep", "object"],
)
def test_a_document_that_says_nothing_is_one_paragraph(exported: Path, tmp_path: Path, document: str) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(exported)
    onnx.helper.set_model_props(model, {KEY: document})
    with pytest.raises(FileError, match="Export the run again"):
        cutaway.load(resealed(model, tmp_path / "odd.onnx"))


def test_without_the_libraries_one_sentence_says_what_to_install(
    exported: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["predict", str(exported), "seven.png"]) == 2
    said = capsys.readouterr().err
    assert "pip install 'cutaway[export]'" in " ".join(said.split())
    assert said.count("\n") <= 3


READ_ELSEWHERE = """
import base64, json, sys, numpy, torch
extra = {"cutaway.json": ""}
program = torch.export.load(sys.argv[1], extra_files=extra).module()
pair = json.loads(extra["cutaway.json"])["golden"]
def array(x): return numpy.frombuffer(base64.b64decode(x["base64"]), x["dtype"]).reshape(x["shape"]).copy()
with torch.no_grad():
    answered = program(*(torch.from_numpy(array(x)) for x in pair["inputs"].values())).numpy()
assert "cutaway" not in sys.modules
print(abs(answered - array(pair["output"])).max())
"""


@pytest.mark.slow
def test_pt2_is_written_and_never_read(run: cutaway.Run, tmp_path: Path) -> None:
    path = cutaway.export(run, tmp_path / "digits.pt2")
    command = [sys.executable, "-W", "ignore", "-c", READ_ELSEWHERE, str(path)]  # PyTorch alone, on our own file
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert float(done.stdout) <= TOLERANCE
    with pytest.raises(FileError, match="unpickles"):
        cutaway.load(path)


def test_invalid_arguments_give_one_paragraph(
    run: cutaway.Run, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for out, said in (
        (exported, "already exists"),
        (tmp_path / "digits.tflite", "must end in .onnx (onnxruntime) or .pt2 (torch.export)."),
    ):
        assert main(["export", str(run.folder), str(out)]) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_an_exported_file_is_evaluated_as_the_run(
    run: cutaway.Run, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(exported), "digits", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for name, metric in run.evaluate("digits").items():
        assert found[name]["value"] == pytest.approx(metric.value, abs=1e-5)
    assert main(["evaluate", str(exported), "digits", "--attack", "fgsm"]) == 2
    assert "needs gradients" in " ".join(capsys.readouterr().err.split())


def test_what_takes_a_run_says_so_of_an_exported_file(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(exported)]) == 2
    assert "is an exported file, not the folder of a run" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ModelError, match="is already an export"):
        cutaway.export(cutaway.load(exported), tmp_path / "again.onnx")


def test_a_module_that_is_no_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="must be the path of a run"):
        cutaway.export(nn.Linear(2, 2), tmp_path / "net.onnx")  # type: ignore[arg-type]


def test_weights_that_are_not_float32_name_the_setting(tmp_path: Path) -> None:
    run = cutaway.train("mlp", "wine", out=tmp_path / "run", precision="float64", max_steps=1, tensorboard=False)
    with pytest.raises(ModelError, match="precision=float32"):
        cutaway.export(run, tmp_path / "wine.pt2")
    assert not (tmp_path / "wine.pt2").exists()


def test_convolutions_over_time_take_videos_of_any_length() -> None:
    """Where all that is left of the frames at the end is one place, too."""
    spec = VideoSpec(6, 1, 16, 16, Classes(("left", "right")))
    images = ImagePreprocessing(ImageSpec(1, 16, 16, spec.target), (0.3,), (0.2,), "crop", (16, 16), (0,))
    form = graph_inputs(VideoPreprocessing(spec, images, spec.frames))
    model = R3D(R3DConfig(in_channels=1, num_classes=2, width=2, layers=(1, 1, 1), stem="small"))
    traced = trace(ExportModule(model, form.front).eval(), form.names, form.dynamic(), form.inputs())
    assert [inputs[1].shape[1] for inputs, _ in traced.checks] == [6, 3]  # at the end 2 and 1


class Last(nn.Module):
    """Two stacked recurrent layers of PyTorch's own, whose length the exporter fixes."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 4, num_layers=2, batch_first=True)

    def forward(self, *x: Tensor) -> Tensor:
        out: Tensor = self.rnn(x[0])[0][:, -1]
        return out


def test_a_length_that_is_fixed_is_refused() -> None:
    inputs = [(torch.randn(2, 5, 3),), (torch.randn(3, 7, 3),), (torch.randn(1, 4, 3),)]
    with pytest.raises(ModelError, match="cannot be traced"):
        trace(Last().eval(), ("x",), ({0: DYNAMIC, 1: DYNAMIC},), inputs)


class Sum(nn.Module):
    """Four pixels added up, by an argument that the exporter to ONNX loses."""

    def forward(self, *x: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(x[0], 2, divisor_override=1)


def test_a_conversion_that_is_silently_wrong_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    inputs = [(torch.randn(n, 1, 4, 4),) for n in (2, 3, 1)]
    traced = trace(Sum().eval(), ("x",), ({0: DYNAMIC},), inputs)
    with pytest.raises(ModelError, match="differ for inputs"):
        write_onnx(traced, tmp_path / "sum.onnx", {})
    assert not list(tmp_path.iterdir())


def test_dates_keep_their_digits_in_onnx() -> None:
    pytest.importorskip("onnxscript")
    days = pl.Series("sold", ["2020-02-29", "1999-12-31", "2021-07-01", None], dtype=pl.String)
    encoder = fit_encoder("sold", ColumnType("date", "%Y-%m-%d"), days, "standard")
    assert encoder is not None
    front = ExportModule(nn.Identity(), TableEncoder((encoder,))).eval()
    inputs = [(torch.tensor([[16543.21], [torch.nan], [19000.0]], dtype=torch.float64)[-n:],) for n in (2, 3, 1)]
    traced = trace(front, ("numbers",), ({0: DYNAMIC},), inputs)
    session = Session(_convert(traced).SerializeToString())
    for given, expected in traced.checks:
        assert torch.allclose(session(*given), expected, rtol=0, atol=1e-6)  # an angle in float32 is off by 1e-5


def test_an_answer_that_differs_is_refused() -> None:
    inputs = [(torch.randn(n, 3),) for n in (2, 3, 1)]
    traced = trace(ExportModule(nn.Linear(3, 2), IdentityPreprocessing()).eval(), ("x",), ({0: DYNAMIC},), inputs)
    with pytest.raises(ModelError, match="differ for inputs"):
        reject_different(traced, lambda x: traced.program.module()(x) + 1e-3, "a converter")


def test_an_array_comes_back() -> None:
    for x in (
        np.ones((2, 3), np.float32),
        np.array([[True, False]]),
        np.arange(4),
        np.array(["a", "né"], dtype=object),
    ):
        assert np.array_equal(array_from_json(array_to_json(x)), x)
