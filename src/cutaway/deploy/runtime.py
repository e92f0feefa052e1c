"""Exported files, opened in place of a run's folder.

The exported graph performs the preprocessing, so that its inputs are pixels, samples and cells: the preprocessing of
the run is replaced by one without these steps.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from ..core.errors import FileError, IncompatibleSettingError, Problem, UnsafeFileError
from ..core.files import EXPORTED, require_regular_file
from ..core.schema import validate_document
from ..core.spec import Spelled, Transcript
from ..data.audio.audio_files import Recording, read_samples, unusable_audio_error
from ..data.audio.transforms import AudioPreprocessing, SpelledSplit, inspect_recordings
from ..data.dataset_base import Batch, DataSet, Preprocessing, SequenceSplit
from ..data.images.captioning import CaptionPreprocessing
from ..data.images.detection import BoxPreprocessing
from ..data.images.segmentation import MaskPreprocessing
from ..data.images.transforms import ImagePreprocessing
from ..data.modalities import preprocessing_from_json
from ..data.parallel import map_in_threads
from ..data.series.transforms import ForecastPreprocessing, SeriesPreprocessing, WindowSplit
from ..data.tables.column_types import Category, decode
from ..data.tables.transforms import Cells, TablePreprocessing
from ..data.video.transforms import VideoPreprocessing
from ..runs.run import Run
from ..statistics.intervals import Metric
from ..training.device import DeviceContext, select_device
from .onnx import CATEGORY, Session, read_onnx
from .preprocessing_graph import raw_inputs

DOCUMENT = {
    "model": str, "loss": str, "settings": dict, "preprocessing": dict, "context_length": int | None, "carries?": bool,
}  # fmt: skip
State = tuple[Tensor, ...]


class ExportedRun(Run):
    """Run from an exported file. It predicts, and evaluates on other labelled data, with onnxruntime."""

    def __init__(self, path: str | Path) -> None:
        """Open the file. Raises FileError if it was not exported by Cutaway or was changed."""
        self.folder, self.module = Path(path), None
        if self.folder.suffix == ".pt2":
            raise UnsafeFileError(
                f"{path} is not opened: torch.export.load unpickles the file, and a pickle can "
                "run any code. Open it with torch if you trust it, or export the run to .onnx."
            )
        require_regular_file(self.folder)
        session, document = read_onnx(self.folder)
        validate_document(document, DOCUMENT, self.folder, "Export the run again.")
        self.about = {key: document[key] for key in ("model", "loss", "settings")}
        self.preprocessing = raw_preprocessing(preprocessing_from_json(document["preprocessing"], self.folder))
        context = document["context_length"]
        kind = (
            ExportedGenerator
            if "target_so_far" in session.names
            else ExportedStatefulModel
            if document.get("carries")
            else ExportedModel
        )
        self.model = kind(session, context)

    def __str__(self) -> str:
        return repr(self)  # the file has no metrics

    def _repr_html_(self) -> str:
        """Return the file for a notebook."""
        return html.escape(repr(self))

    @property
    def place(self) -> DeviceContext:
        """Return the CPU, where onnxruntime runs."""
        return select_device("cpu", "float32", None, self.model)

    def data(self) -> DataSet:
        """Raise FileError, because the file does not name its training data."""
        raise FileError(f"{self.folder} does not store the path of its training data: give the data to evaluate on.")

    def evaluate(self, source: Any = None, *, attack: str | None = None, **asked: Any) -> dict[str, Metric]:
        """Evaluate as a run does. Raises SettingError for an attack."""
        if attack is not None:
            raise IncompatibleSettingError(
                f"Invalid attack={attack}: needs gradients, which an export does not have. Evaluate the run that it "
                "was exported from."
            )
        return super().evaluate(source, **asked)


class ExportedModel(nn.Module):
    """ONNX session as a model that takes batches of the raw preprocessing."""

    def __init__(self, session: Session, context_length: int | None) -> None:
        super().__init__()
        self.session = session
        self.config = SimpleNamespace(context_length=context_length)  # the maximum length of texts
        self.numeric = sum(column.kind != CATEGORY for column in session.columns)
        self.kinds = ["codes"] if session.columns else session.names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the outputs of the exported model."""
        return self.session(*raw_inputs(self.kinds, inputs, self.numeric))  # type: ignore[no-any-return]


class ExportedGenerator(ExportedModel):
    """Exported model that generates token by token.

    The file has no cache, so each step processes all previous tokens.
    """

    def begin(self, source: Tensor, mask: Tensor | None = None) -> State:
        """Return the state before the first token: the source, and no tokens."""
        kept = (source,) if mask is None else (source, mask)
        return *kept, torch.empty(len(source), 0, dtype=torch.int64)

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the logits of the next token, (N, vocab_size), and the state after `token` (N,)."""
        *source, so_far = state
        so_far = torch.cat([so_far, token[:, None]], 1)  # (N, S)
        return self(*source, so_far)[:, -1], (*source, so_far)


class ExportedStatefulModel(ExportedModel):
    """Exported model whose windows of a text continue one another.

    The file has no state, so it is given all tokens so far.
    """

    def advance(self, x: Tensor, mask: Tensor | None = None, state: State | None = None) -> tuple[Tensor, State]:
        """Return the outputs at each token of x (N, T), and all tokens so far, (1, N, S), as the state."""
        so_far = x if state is None else torch.cat([state[0][0], x], 1)  # (N, S)
        real = torch.ones_like(so_far, dtype=torch.bool)
        if mask is not None:
            real[:, -x.shape[1] :] = mask
        return self(so_far, real)[:, -x.shape[1] :], (so_far[None],)


def open_run(path: str | Path) -> Run:
    """Open the run of a folder or of an exported file."""
    return ExportedRun(path) if is_exported(path) else Run(path)


def is_exported(path: str | Path) -> bool:
    """Return whether the path has the extension of an exported file and is not a folder."""
    return Path(path).suffix in EXPORTED and not Path(path).is_dir()


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
