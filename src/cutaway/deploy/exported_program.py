"""Exported programs: tracing of a model, comparison with the original, and .pt2 files.

ONNX and .pt2 files share the traced program and the JSON document of the preprocessing.

A .pt2 file of torch.export runs in PyTorch without this package.

Cutaway writes these files but never reads them, because `torch.export.load` unpickles their content.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import os
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core.errors import CutawayError, ModelError
from ..core.files import atomic_write

TOLERANCE = (
    1e-5  # relative to the largest output, or to 1: float32 has 7 digits, and other kernels add in another order
)
KEY = "cutaway"  # key of the document


@dataclass(frozen=True)
class TracedModel:
    """Traced model with its outputs at two sizes other than the traced one."""

    program: torch.export.ExportedProgram
    names: tuple[str, ...]  # of the inputs
    checks: list[tuple[tuple[Tensor, ...], Tensor]]  # inputs of two other sizes, and the model's outputs


def trace(
    model: nn.Module, names: tuple[str, ...], dynamic: tuple[dict[int, Any], ...], inputs: list[tuple[Tensor, ...]]
) -> TracedModel:
    """Trace the model with the first of three inputs. The dimensions in `dynamic` may have any size.

    Args:
        model: Model that takes any number of tensors.
        names: Names of the inputs.
        dynamic: Free dimensions of each input.
        inputs: Three inputs of different sizes.

    Raises:
        ModelError: If the model cannot be traced, or tracing fixed a size that should be free.
    """
    example, *others = inputs
    with torch.no_grad(), silence_exporters():
        try:
            torch.compiler.reset()  # earlier traces must not fix sizes of this one
            program = torch.export.export(model, example, dynamic_shapes=(dynamic,), strict=False)
        except CutawayError:
            raise
        except Exception as error:  # tracing can raise anything, in any operator
            raise ModelError(
                f"This model cannot be traced with a free batch size and length by torch.export ({first_line(error)}). "
                "Operators with data-dependent sizes, loops over time and len() of a tensor prevent it. "
                "`cutaway convert` converts its weights."
            ) from error
        checks = [(other, model(*other)) for other in others]
    traced = TracedModel(program, names, checks)
    reject_different(traced, program.module(), "torch.export")
    return traced


def reject_different(traced: TracedModel, run: Any, by: str) -> None:
    """Raise ModelError unless `run` gives the outputs of the model at both other sizes."""
    for inputs, expected in traced.checks:
        sizes = " and ".join("x".join(map(str, x.shape)) for x in inputs)
        try:
            with torch.no_grad():
                found = run(*inputs)
        except Exception as error:  # a fixed size fails at run time
            raise ModelError(
                f"Nothing was written: the model converted by {by} fails for inputs of {sizes} ({first_line(error)})."
            ) from error
        off = relative_difference(found, expected)
        if not off <= TOLERANCE:
            raise ModelError(
                f"Nothing was written: the outputs of the model converted by {by} differ for inputs of {sizes}, by "
                f"{off:.2g} of the largest output (tolerance {TOLERANCE:g})."
            )


def relative_difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference relative to the largest expected output, or to 1. Infinite for different shapes."""
    if found.shape != expected.shape:
        return float("inf")
    found, expected = found.detach(), expected.detach()
    scale = max(1.0, float(expected.abs().max()))
    return float((found.double() - expected.double()).abs().max()) / scale


def array_to_json(array: NDArray[Any]) -> dict[str, Any]:
    """Convert an array to a JSON value: dtype, shape and little-endian bytes in base64.

    An array of strings has a list.
    """
    if array.dtype.kind not in "biuf":
        return {"dtype": "string", "shape": list(array.shape), "values": [str(x) for x in array.ravel()]}
    content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"dtype": str(array.dtype), "shape": list(array.shape), "base64": content}


def array_from_json(data: Mapping[str, Any]) -> NDArray[Any]:
    """Return the array that `to_json` wrote. Raises KeyError, TypeError or ValueError if the document is invalid."""
    if data["dtype"] == "string":
        return np.array(data["values"], dtype=object).reshape(data["shape"])
    dtype = np.dtype(data["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(base64.b64decode(data["base64"]), dtype=dtype).reshape(data["shape"]).copy()


def golden_example(inputs: Mapping[str, NDArray[Any]], output: Tensor) -> dict[str, Any]:
    """Return example inputs by name and their output, to test the file in other programs."""
    return {"inputs": {name: array_to_json(x) for name, x in inputs.items()}, "output": array_to_json(output.numpy())}


@contextlib.contextmanager
def silence_exporters() -> Iterator[None]:
    """Silence torch's exporters within this context. Failures are raised and reported in one paragraph."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    before = [(logger.level, logger.disabled) for logger in loggers]
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere:
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                yield
        finally:
            for logger, (level, disabled) in zip(loggers, before):
                logger.setLevel(level)
                logger.disabled = disabled


def first_line(error: BaseException) -> str:
    """Return the first line of a library's error message, shortened to 160 characters."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return textwrap.shorten(lines[0], 160, placeholder=" …").rstrip(".:")


EXTRA = f"{KEY}.json"  # the extra file that holds the document


def write_program(traced: TracedModel, path: Path, document: Mapping[str, Any]) -> None:
    """Write the traced program, with the document as an extra file."""
    inputs, output = traced.checks[-1]
    pair = golden_example({name: x.numpy() for name, x in zip(traced.names, inputs)}, output)
    buffer = io.BytesIO()
    with silence_exporters():
        extra = {EXTRA: json.dumps({**document, "golden": pair}, ensure_ascii=False)}
        torch.export.save(traced.program, buffer, extra_files=extra)
    with atomic_write(path) as temporary:
        temporary.write_bytes(buffer.getvalue())
