"""What stands in the graph before a model computes what the run's own preprocessing does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from cutaway.core.config import build
from cutaway.core.spec import AudioSpec, Boxes, Classes, ImageSpec, TableSpec
from cutaway.data.audio.transforms import AudioPreprocessing, log_mel
from cutaway.data.images.detection import BoxPreprocessing
from cutaway.data.images.transforms import ImagePreprocessing
from cutaway.data.open_data import open_data
from cutaway.data.series.transforms import ForecastPreprocessing
from cutaway.data.settings import DataSettings
from cutaway.data.tables.column_types import ColumnType, fit_encoder
from cutaway.data.tables.transforms import TablePreprocessing
from cutaway.deploy.onnx import Column, to_cells
from cutaway.deploy.preprocessing_graph import (
    LogMelFrontend,
    PerSeriesStandardizer,
    ResizeNormalize,
    TableEncoder,
    graph_inputs,
)
from cutaway.deploy.runtime import raw_preprocessing
from cutaway.tasks.detection import Detection

sides = st.integers(1, 40)


@given(
    fit=st.sampled_from(["crop", "stretch", "pad"]),
    height=sides,
    width=sides,
    to=st.tuples(sides, sides),
    seed=st.integers(0, 9),
)
@example(fit="pad", height=30, width=40, to=(8, 8), seed=0)  # a height of 4.5 rows, before it is rounded
@settings(max_examples=25, deadline=None)
def test_pixels_are_those_of_pillow(fit: str, height: int, width: int, to: tuple[int, int], seed: int) -> None:
    spec = ImageSpec(3, *to, Classes(("a", "b")))
    box = (max(1, to[0] - 3), max(1, to[1] - 2))
    plain = ImagePreprocessing(spec, (0.0,) * 3, (1 / 255,) * 3, fit, box, (9, 8, 7))
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    (found,) = ResizeNormalize(plain)(torch.from_numpy(pixels)[None])
    expected = torch.from_numpy(plain.pixels(pixels, "drawn").copy()).permute(2, 0, 1)[None]
    # Pillow 13 rounds rows before columns where that is cheaper: two ways to round twice, each off by 1 at most.
    assert (found - expected).abs().max() <= 2
    if fit == "stretch" and (height == to[0] or width == to[1]):  # one direction alone, which has no order
        assert torch.equal(found, expected.float())


@pytest.mark.parametrize("rate", [8000, 16000])
def test_log_mel_is_that_of_the_reader(rate: int) -> None:
    generator = torch.Generator().manual_seed(0)
    spec = AudioSpec(50, 24, Classes(("a", "b")))
    audio = AudioPreprocessing(spec, rate, None, (0.0,) * 24, (1.0,) * 24)
    lengths = torch.tensor([rate // 3, rate // 5 + 7, 1, round(0.025 * rate)])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    samples = torch.randn(mask.shape, generator=generator, dtype=torch.float64).masked_fill(~mask, 3.0)  # of padding
    frames, real = LogMelFrontend(audio)(samples, mask)
    for row, length in enumerate(lengths.tolist()):
        expected = log_mel(samples[row, :length], rate, 24)
        assert int(real[row].sum()) == len(expected)
        assert torch.allclose(frames[row, real[row]].double(), expected, rtol=0, atol=1e-6)  # float32 of up to 23
        assert not frames[row, ~real[row]].any()


COLUMNS: dict[str, tuple[ColumnType, list[str | None]]] = {
    "rooms": (ColumnType("number"), ["1", "2.5", None, "1000", "-3"]),
    "city": (ColumnType("category"), ["Bern", "Genève", "Bern", None, "Basel"]),
    "sold": (ColumnType("date", "%Y-%m-%d"), ["2020-02-29", "1999-12-31", "2021-07-01", None, "2020-01-01"]),
    "new": (ColumnType("yes/no", "yes/no"), ["yes", "no", None, "yes", "no"]),
    "kind": (ColumnType("category"), ["a", "b", "a", "b", "c"]),
}


@pytest.mark.parametrize("scale", ["standard", "quantile", "none"])
def test_columns_are_encoded_as_by_the_run(scale: str) -> None:
    cells = {name: pl.Series(name, values, dtype=pl.String) for name, (_, values) in COLUMNS.items()}
    encoders = tuple(fit_encoder(name, type, cells[name], scale) for name, (type, _) in COLUMNS.items())
    assert all(encoders)
    features = tuple(name for encoder in encoders if encoder for name in encoder.features)
    run = TablePreprocessing(TableSpec(features, Classes(("a", "b"))), encoders)  # type: ignore[arg-type]
    new = {
        name: pl.Series(name, ["7" if name == "rooms" else None, *values[:4]], dtype=pl.String)
        for name, (_, values) in COLUMNS.items()
    }
    new["kind"][0] = "never seen"
    cut: Any = raw_preprocessing(run)
    rows = cut.encode(new)
    (found,) = TableEncoder(run.encoders)(rows[:, :3], rows[:, 3:].long())
    assert torch.allclose(found, run.encode(new), rtol=0, atol=1e-6)  # sines of float64, by two libraries


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shops, one with a hundred times the visits of the other, and sales that are known for three days more."""
    path = tmp_path_factory.mktemp("shops") / "shops.csv"
    lines = ["shop,day,visits,warm,sale"]
    for shop, size in (("Mill", 3), ("Market", 300)):
        for day in range(1, 29):
            measured = f"{size * (day % 7) + 1},{day / size}" if day < 26 else ","
            lines.append(f"{shop},2024-01-{day:02d},{measured},{day % 2}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def forecasts(shops: Path) -> ForecastPreprocessing:
    settings = build(
        DataSettings, {"forecast": "visits", "id": "shop", "known_future": "sale", "lookback": 4, "horizon": 3}
    )
    found = open_data(str(shops), settings).preprocessing
    assert isinstance(found, ForecastPreprocessing)
    return found


def test_several_series_go_in_as_they_stand_in_the_file(shops: Path) -> None:
    run = forecasts(shops)
    cut: Any = raw_preprocessing(run)
    new = shops.with_name("new.csv")  # and a series that training did not know
    new.write_text(shops.read_text(encoding="utf-8").replace("Mill", "Corner"), encoding="utf-8")
    front = PerSeriesStandardizer()
    for of_run, of_file in ((run.examples([new]), cut.examples([new])), (run.labelled(shops), cut.labelled(shops))):
        order = [torch.arange(len(of_run)).flip(0)]
        (expected,), (found,) = of_run.batches(order), of_file.batches(order)
        assert found.inputs[0].max() > 1000  # the visits themselves
        assert all(map(torch.equal, front(*found.inputs), expected.inputs))
        assert torch.equal(found.target, expected.target)
        assert torch.equal(
            of_file.inverse_transform(found.target, order[0]), of_run.inverse_transform(expected.target, order[0])
        )
    form = graph_inputs(run)
    assert form.names == ("series", "known_future", "mean", "std")
    assert [x.shape for x in form.inputs()[0]] == [(2, 4, 3), (2, 3, 1), (2, 3), (2, 3)]


def test_one_series_is_evaluated_on_the_scale_that_the_model_answers_on(shops: Path) -> None:
    one = shops.with_name("one.csv")
    one.write_text("".join(shops.read_text(encoding="utf-8").splitlines(keepends=True)[:29]), encoding="utf-8")
    settings = {"forecast": "visits", "known_future": "sale", "lookback": 4, "horizon": 3, "ignore": "shop"}
    run = open_data(str(one), build(DataSettings, settings)).preprocessing
    expected = run.labelled(one)
    assert torch.equal(raw_preprocessing(run).labelled(one).target, expected.target)  # type: ignore[arg-type]


def test_images_with_boxes_reach_the_network_as_in_the_run(tmp_path: Path) -> None:
    """What is said of boxes comes after the graph, by the same lines, from the size of the image as it is."""
    levels = np.random.default_rng(0).integers(0, 256, (40, 61, 3), dtype=np.uint8)
    for name in ("wide.jpg", "tall.png"):
        Image.fromarray(levels if name == "wide.jpg" else levels.transpose(1, 0, 2)).save(tmp_path / name)
    spec = ImageSpec(1, 24, 24, Boxes(("a",), 2))
    run = BoxPreprocessing(spec, (0.3,), (0.2,), "pad", (24, 24), (9,))
    files = [tmp_path / "wide.jpg", tmp_path / "tall.png"]
    of_run, of_file = run.examples(files), raw_preprocessing(run).examples(files)
    (expected,), (found,) = (split.batches([torch.arange(2)]) for split in (of_run, of_file))
    assert torch.equal(ResizeNormalize(run)(*found.inputs)[0], expected.inputs[0])
    outputs = torch.tensor([[[4.0, 1.0, 1.0, 1.5, 2.0, 3.0, 9.0, 11.0, 4.0]]]).expand(2, 1, 9)
    task = Detection(Boxes(("a",), 2), (1, 24, 24))
    kept = task.summarize_outputs(outputs, torch.empty(2, 0))
    rows = task.prediction_rows(kept, of_file, raw_preprocessing(run))  # type: ignore[arg-type]
    assert rows == task.prediction_rows(kept, of_run, run)
    assert len(rows) == 2
    assert rows[1]["y2"] > 24  # in the pixels of the file


def test_a_category_is_written_as_the_graph_reads_it() -> None:
    column = Column("city", "category", ("Basel", "Bern"), missing=True)
    codes = torch.tensor([[0], [1], [2], [3]])
    (cells,) = to_cells((codes,), [column])
    assert [column.codes.get(cell, column.unknown) for cell in cells] == [0, 1, 2, 3]
    assert Column.from_json(column.to_json()) == column
    assert dataclasses.replace(column, missing=False).unknown == 2
