"""Preprocessing without the steps that an exported graph performs itself. Its splits hold pixels, samples and cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ..core.errors import Problem
from ..core.spec import Spelled, Transcript
from ..data.audio.audio_files import Recording, read_samples, unusable_audio_error
from ..data.audio.transforms import AudioPreprocessing, SpelledSplit, inspect_recordings
from ..data.dataset_base import Batch, Preprocessing, SequenceSplit
from ..data.images.captioning import CaptionPreprocessing
from ..data.images.detection import BoxPreprocessing
from ..data.images.segmentation import MaskPreprocessing
from ..data.images.transforms import ImagePreprocessing
from ..data.parallel import map_in_threads
from ..data.series.transforms import ForecastPreprocessing, SeriesPreprocessing, WindowSplit
from ..data.tables.column_types import Category, decode
from ..data.tables.transforms import Cells, TablePreprocessing
from ..data.video.transforms import VideoPreprocessing


class _Pixels:
    """Images as uint8 pixels (n, H, W, C), resized when they are read so that a batch is one tensor.

    The graph could resize them, but leaves images of that size unchanged.
    """

    def normalise(self, pixels: Tensor) -> Tensor:
        """Convert uint8 (n, C, H, W) to (n, H, W, C)."""
        return pixels.permute(0, 2, 3, 1)


class RawImages(_Pixels, ImagePreprocessing):
    """Raw preprocessing of images."""


class RawMasks(_Pixels, MaskPreprocessing):
    """Raw preprocessing of images with masks."""


class RawBoxes(_Pixels, BoxPreprocessing):
    """Raw preprocessing of images with boxes."""


class RawTable(TablePreprocessing):
    """Rows as float64 (n, columns): numbers, NaN if missing, followed by the codes of categories."""

    def encode(self, cells: Cells) -> Tensor:
        """Return the numbers of all numeric columns, followed by the codes of the categories."""
        numbers = [decode(cells[e.name], e.type) for e in self.encoders if not isinstance(e, Category)]
        codes = [_codes(e, cells[e.name]) for e in self.encoders if isinstance(e, Category)]
        return torch.from_numpy(np.stack([*numbers, *codes], axis=1))  # (n, columns)


class RawSeries(SeriesPreprocessing):
    """Series with the values of the file, in float64."""

    def prepare(self, series: Any) -> Tensor:
        """Return the same values."""
        return torch.from_numpy(series)


class RawWindows(WindowSplit):
    """Windows of series in their original units. With several series, each window has the scale of its series."""

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield inputs (N, T, F) and variables that are known in advance.

        With several series, means and deviations, (N, F) each, follow.
        """
        of_batches = list(order)
        for index, batch in zip(of_batches, super().batches(of_batches, seed)):
            scales = self.several.scales(index) if self.several else ()
            yield Batch((*batch.inputs, *scales), batch.target)


class RawForecast(ForecastPreprocessing):
    """Windows of series in their original units, in float64."""

    windows = RawWindows

    def prepare(self, values: Any, scale: Any = None) -> Tensor:
        """Return the same values."""
        del scale
        return torch.from_numpy(np.asarray(values, np.float64))


class RawAudio(AudioPreprocessing):
    """Recordings as samples at the rate of training."""

    def _as_split(self, files: Sequence[Recording], target: Tensor | None, names: Sequence[str]) -> SequenceSplit:
        inspect_recordings(files)
        most = None if isinstance(self.spec.target, Transcript) else self.seconds
        read = list(map_in_threads(lambda path: read_samples(path, self.rate, most), files))
        problems = [one for one in read if isinstance(one, Problem)]
        if problems:
            raise unusable_audio_error(problems, len(files))
        found = [torch.from_numpy(one) for one in read if not isinstance(one, Problem)]
        kind = SpelledSplit if isinstance(self.spec.target, Spelled) else SequenceSplit
        return kind(torch.cat(found), torch.tensor([len(one) for one in found]), target, names)


RAW: dict[type, type] = {
    ImagePreprocessing: RawImages,
    MaskPreprocessing: RawMasks,
    BoxPreprocessing: RawBoxes,
    TablePreprocessing: RawTable,
    SeriesPreprocessing: RawSeries,
    ForecastPreprocessing: RawForecast,
    AudioPreprocessing: RawAudio,
}


def raw_preprocessing(preprocessing: Preprocessing) -> Preprocessing:
    """Return the preprocessing without the steps of the graph, or the same object if the graph performs no step."""
    given: Any = preprocessing
    if isinstance(given, CaptionPreprocessing | VideoPreprocessing):
        made: Preprocessing = dataclasses.replace(given, images=raw_preprocessing(given.images))  # type: ignore[arg-type]
        return made
    if type(given) not in RAW:
        return preprocessing
    fields = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
    return RAW[type(given)](**fields)  # type: ignore[no-any-return]


def _codes(encoder: Category, cells: pl.Series) -> np.ndarray[Any, np.dtype[np.float64]]:
    codes: np.ndarray[Any, np.dtype[np.float64]] = encoder.encode(cells).argmax(1).astype(np.float64)
    return codes
