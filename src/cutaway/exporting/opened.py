"""An exported file opened again: what it holds stands for the run's folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..data.images.preprocessing import ImagePreprocessing
from ..data.preprocessing import preprocessing_from_json
from ..data.sets import DataSet
from ..errors import FileError
from ..files import reject_irregular
from ..interop.export.onnx import read_onnx
from ..training.placement import Placement, find_place
from ..training.run import Run


class Exported(Run):
    """A run of which one file is left: it predicts, and evaluates on other labelled data, by onnxruntime."""

    def __init__(self, path: str | Path) -> None:
        """Raises FileError where the file was not exported here, or was changed."""
        self.folder, self.module = Path(path), None
        if self.folder.suffix == ".pt2":
            raise FileError(
                f"{path} is not opened here: torch.export.load unpickles what stands in such a file, and a pickle can "
                "run any program. Open it with torch where you trust it, or export the run to .onnx."
            )
        reject_irregular(self.folder)
        model, document = read_onnx(self.folder)
        preprocessing = preprocessing_from_json(document["preprocessing"])
        if isinstance(preprocessing, ImagePreprocessing):  # the graph itself normalises levels 0…255
            channels = preprocessing.spec.channels
            preprocessing = dataclasses.replace(preprocessing, mean=(0.0,) * channels, std=(1 / 255,) * channels)
        self.about, self.model, self.preprocessing = document, model, preprocessing

    @property
    def place(self) -> Placement:
        """The CPU, where onnxruntime was told to run."""
        return find_place("cpu", "float32", None, self.model)

    def data(self) -> DataSet:
        """Raises FileError: the file does not say which data it was trained on."""
        raise FileError(f"{self.folder} does not name the data that it was trained on: name data to evaluate on.")


def is_exported(path: str | Path) -> bool:
    """Whether the name says an exported file, and a file stands there."""
    return Path(path).suffix in (".onnx", ".pt2") and Path(path).is_file()
