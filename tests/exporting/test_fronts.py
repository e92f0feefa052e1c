"""What stands in the graph before a model computes what the run's own preprocessing does."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.data.audio.preprocessing import AudioPreprocessing
from cutaway.data.audio.spectrogram import log_mel
from cutaway.data.images.preprocessing import ImagePreprocessing
from cutaway.data.tables.columns import ColumnType
from cutaway.data.tables.encoders import fit_encoder
from cutaway.data.tables.preprocessing import TablePreprocessing
from cutaway.exporting.fronts import Encoded, Fitted, LogMel
from cutaway.exporting.raw import raw
from cutaway.interop.export.columns import Column, cells_of
from cutaway.spec import AudioSpec, Classes, ImageSpec, TableSpec

sides = st.integers(1, 40)


@given(
    fit=st.sampled_from(["crop", "stretch", "pad"]),
    height=sides,
    width=sides,
    to=st.tuples(sides, sides),
    seed=st.integers(0, 9),
)
@settings(max_examples=25, deadline=None)
def test_pixels_are_those_of_pillow(fit: str, height: int, width: int, to: tuple[int, int], seed: int) -> None:
    spec = ImageSpec(3, *to, Classes(("a", "b")))
    box = (max(1, to[0] - 3), max(1, to[1] - 2))
    plain = ImagePreprocessing(spec, (0.0,) * 3, (1 / 255,) * 3, fit, box, (9, 8, 7))
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    (found,) = Fitted(plain)(torch.from_numpy(pixels)[None])
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
    frames, real = LogMel(audio)(samples, mask)
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
    cut: Any = raw(run)
    rows = cut.encode(new)
    (found,) = Encoded(run.encoders)(rows[:, :3], rows[:, 3:].long())
    assert torch.allclose(found, run.encode(new), rtol=0, atol=1e-6)  # sines of float64, by two libraries


def test_a_category_is_written_as_the_graph_reads_it() -> None:
    column = Column("city", "category", ("Basel", "Bern"), missing=True)
    codes = torch.tensor([[0], [1], [2], [3]])
    (cells,) = cells_of((codes,), [column])
    assert [column.codes.get(cell, column.unknown) for cell in cells] == [0, 1, 2, 3]
    assert Column.from_json(column.to_json()) == column
    assert dataclasses.replace(column, missing=False).unknown == 2
