"""`cutaway.load`: a run opened again, or a model out of our folder, Hugging Face's, or torchvision's file."""

from __future__ import annotations

import os
import warnings
from typing import Any, overload

from torch import nn

from ..errors import FileError
from ..interop.convert import open_model, refuse_absent
from ..interop.hub import here
from ..interop.huggingface.reading import is_folder
from ..models.saving import CONFIG
from ..training.run import Run


@overload
def load(path: str | os.PathLike[str], model: None = None) -> Any: ...
@overload
def load(path: str | os.PathLike[str], model: str) -> nn.Module: ...
def load(path: str | os.PathLike[str], model: str | None = None) -> Run | nn.Module:
    """Open a run, to evaluate, predict, look inside; or, with `model=NAME`, the bare model, in eval mode on the CPU.

        load("runs/lenet5-digits-1").predict(["seven.png"])
        load("resnet18.pth", model="resnet18")(images)       # torchvision's checkpoint
        load("runs/lenet5-digits-1", model="lenet5")         # what the run trained
        load("minilm/")(tokens, mask)                        # a Hugging Face folder, which says itself what it is
        load("hub:ORG/NAME@REVISION")                        # the same, fetched from the Hugging Face Hub

    A checkpoint's shapes tell channels, classes and image size; which preset it is for must be said. What should be
    known of one, such as counters that it lacks, is warned of. Raises FileError where `path` is not what was asked
    for, UnknownName or ModelError for a preset that does not exist, or that the other format does not have.
    """
    if not isinstance(path, str | os.PathLike):
        raise FileError(
            f"load opens a path: a run's folder, a model's, or Hugging Face's, or a file of weights; and this is a "
            f"{type(path).__name__}. cutaway.look(model, x) looks inside a model at hand."
        )
    path = here(path)
    refuse_absent(path)
    if model is not None or is_folder(path):
        found, _, notes = open_model(path, model)
        for sentence in notes:
            warnings.warn(f"{path}: {sentence}", stacklevel=2)
        return found
    if path.is_file():
        raise FileError(
            f"{path} is a file, not a run's folder. If it is torchvision's checkpoint, say for which model, as in "
            f'load("{path}", model="resnet18").'
        )
    if (path / CONFIG).is_file():
        raise FileError(f'{path} is a model without its run: name the model too, as in load("{path}", model=NAME).')
    return Run(path)
