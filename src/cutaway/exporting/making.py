"""cutaway export: from a run's folder to one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import __version__
from ..data.images.preprocessing import ImagePreprocessing
from ..errors import ModelError, SettingError
from ..files import read_json, reject_overwriting
from ..inspect.example import inputs_like
from ..interop.export.artefact import FromLevels, Traced, golden, trace
from ..interop.export.onnx import need_onnx, write_onnx
from ..interop.export.program import write_program
from ..spec import AudioSpec, Classes, Horizon, ImageSpec, SeriesSpec, TableSpec, TextSpec, Value
from ..training.run import Run

FORMATS = (".onnx", ".pt2")
TAKEN = (TableSpec, ImageSpec, TextSpec, SeriesSpec, AudioSpec)
LEARNED = (Classes, Value, Horizon)
LONGEST = 256  # tokens or frames of the longer of the two sizes that are compared
ROWS = (2, 3, 1)  # in the traced batch, and in the two that are compared


def export(run: Run, path: Path, overwrite: bool = False) -> Path:
    """Write the run as one file, .onnx or .pt2 as `path` ends, with all that `predict` needs.

    Nothing is written unless the converted model answers as the run's own does, at two sizes other than the traced one.
    Raises SettingError for another ending or missing libraries, ModelError for a run that cannot be exported.
    """
    if path.suffix not in FORMATS:
        raise SettingError(f"{path} says no format: end its name in .onnx, for onnxruntime, or .pt2, for torch.export.")
    reject_overwriting(path, overwrite=overwrite)
    if path.suffix == ".onnx":
        need_onnx()
    _reject_kind(run)
    traced = _traced(run)
    document = _document(run, traced)
    (write_onnx if path.suffix == ".onnx" else write_program)(traced, path, document)
    return path


def _reject_kind(run: Run) -> None:
    """Raise ModelError for a run whose answer is more than one pass of its model over a batch."""
    spec, target = run.spec, run.spec.target
    if isinstance(spec, TAKEN) and type(target) in LEARNED and not getattr(spec, "known_future", 0):
        if any(x.dtype != torch.float32 for x in run.model.parameters()):
            raise ModelError(f"{run.folder} has weights that are not float32: train with dtype=float32 to export.")
        return
    raise ModelError(
        f"{run.folder} cannot be exported: it learned the {type(target).__name__.lower()} of {spec.kind} data. "
        "Exported are classes, values and forecasts of tables, images, texts, series and audio. Generation is "
        "a loop around the model, graphs need operators that ONNX gets wrong (scatter_reduce with mean), and "
        "others are not yet tried."
    )


def _traced(run: Run) -> Traced:
    """The run's model, behind the normalisation where it takes images, traced and compared."""
    model: nn.Module = run.model
    spec, preprocessing = run.spec, run.preprocessing
    levels = False
    if isinstance(preprocessing, ImagePreprocessing):
        levels = True
        model = FromLevels(model, preprocessing.mean, preprocessing.std).eval()
    like = inputs_like(spec)
    free = isinstance(spec, TextSpec | AudioSpec)  # so is the length of these
    names = ("tokens" if isinstance(spec, TextSpec) else "levels" if levels else "x", "mask")[: len(like)]
    top = max(4, min(like[0].shape[1], LONGEST)) if free else 0
    lengths = (max(3, 3 * top // 4), top, max(2, top // 2))
    generator = torch.Generator().manual_seed(0)
    inputs = [_drawn(like, spec, rows, T if free else None, levels, generator) for rows, T in zip(ROWS, lengths)]
    auto = torch.export.Dim.DYNAMIC
    dynamic = tuple({0: auto, 1: auto} if free else {0: auto} for _ in like)
    return trace(model, names, dynamic, inputs)


def _drawn(
    like: tuple[Tensor, ...], spec: Any, rows: int, length: int | None, levels: bool, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Random inputs with so many rows, and of that length; the last row is shorter, as its mask says."""
    first = like[0]
    shape = (rows, *first.shape[1:]) if length is None else (rows, length, *first.shape[2:])
    if first.dtype == torch.int64:
        x = torch.randint(1, spec.vocab_size, shape, generator=generator)
    elif levels:
        x = torch.randint(0, 256, shape, generator=generator).float()
    else:
        x = torch.randn(shape, generator=generator)
    if len(like) == 1:
        return (x,)
    mask = torch.ones(shape[:2], dtype=torch.bool)
    if rows > 1:
        mask[-1, -1:] = False
        x[~mask] = 0
    return x, mask


def _document(run: Run, traced: Traced) -> dict[str, Any]:
    """What stands in the file beside the model. No path of this machine does."""
    target = run.spec.target
    return {
        "cutaway": __version__,
        "model": run.about["model"],
        "loss": run.about["loss"],
        "settings": {"tta": bool(run.about["settings"].get("tta", False))},
        "inputs": list(traced.names),
        "labels": list(getattr(target, "names", ())),
        "unit": getattr(target, "unit", "") or "",
        "preprocessing": read_json(run.folder / "model" / "preprocessing.json"),
        "golden": golden(traced),
    }
