"""What is the same of every exported file: the sizes it is traced and compared at, how near is near enough, and the
document that says what a program elsewhere must know."""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core.errors import CutawayError, ModelError

TOLERANCE = 1e-5  # of the largest output, or of 1: float32 has 7 digits, and other kernels add in another order
KEY = "cutaway"  # under which the document stands


@dataclass(frozen=True)
class Traced:
    """A model, what it was traced with, and what it answers at two other sizes."""

    program: torch.export.ExportedProgram
    names: tuple[str, ...]  # of the inputs
    checks: list[tuple[tuple[Tensor, ...], Tensor]]  # inputs of two other sizes, and the model's outputs


def trace(
    model: nn.Module, names: tuple[str, ...], dynamic: tuple[dict[int, Any], ...], inputs: list[tuple[Tensor, ...]]
) -> Traced:
    """The model traced with the first of three inputs, whose dimensions in `dynamic` may have any size.

    `model` takes any number of tensors. Raises ModelError where it cannot be traced, or a size that should be free was
    fixed on the way.
    """
    example, *others = inputs
    with torch.no_grad(), quiet():
        try:
            torch.compiler.reset()  # what was traced before must fix no size of this
            program = torch.export.export(model, example, dynamic_shapes=(dynamic,), strict=False)
        except CutawayError:
            raise
        except Exception as error:  # whatever tracing meets, in any operator
            raise ModelError(
                f"This model cannot be traced with a free batch size and length by torch.export ({first_line(error)}). "
                "An operator whose result's size depends on values, a loop over time, and len() of a tensor fix one. "
                "Its weights go elsewhere by `cutaway convert`."
            ) from error
        checks = [(other, model(*other)) for other in others]
    traced = Traced(program, names, checks)
    reject_different(traced, program.module(), "torch.export")
    return traced


def reject_different(traced: Traced, run: Any, by: str) -> None:
    """Raise ModelError unless `run` answers as the model does at both other sizes."""
    for inputs, expected in traced.checks:
        sizes = " and ".join("x".join(map(str, x.shape)) for x in inputs)
        try:
            with torch.no_grad():
                found = run(*inputs)
        except Exception as error:  # a size that was fixed shows at run time
            raise ModelError(
                f"Nothing was written: what {by} made of the model fails for inputs of {sizes} ({first_line(error)})."
            ) from error
        off = difference(found, expected)
        if not off <= TOLERANCE:
            raise ModelError(
                f"Nothing was written: what {by} made of the model answers otherwise for inputs of {sizes}: by "
                f"{off:.2g} of the largest output, where {TOLERANCE:g} is rounding."
            )


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a fraction of the largest expected output, or of 1; infinite for another shape."""
    if found.shape != expected.shape:
        return float("inf")
    found, expected = found.detach(), expected.detach()
    scale = max(1.0, float(expected.abs().max()))
    return float((found.double() - expected.double()).abs().max()) / scale


def to_json(array: NDArray[Any]) -> dict[str, Any]:
    """An array as a JSON value: its type, its shape, and its bytes in base64, little-endian; of texts a list."""
    if array.dtype.kind not in "biuf":
        return {"dtype": "string", "shape": list(array.shape), "values": [str(x) for x in array.ravel()]}
    content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"dtype": str(array.dtype), "shape": list(array.shape), "base64": content}


def from_json(data: Mapping[str, Any]) -> NDArray[Any]:
    """The array that `to_json` wrote. Raises KeyError, TypeError or ValueError where the document is not one."""
    if data["dtype"] == "string":
        return np.array(data["values"], dtype=object).reshape(data["shape"])
    dtype = np.dtype(data["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(base64.b64decode(data["base64"]), dtype=dtype).reshape(data["shape"]).copy()


def golden(inputs: Mapping[str, NDArray[Any]], output: Tensor) -> dict[str, Any]:
    """Inputs by name and the output, for whoever opens the file elsewhere."""
    return {"inputs": {name: to_json(x) for name, x in inputs.items()}, "output": to_json(output.numpy())}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within it torch's exporters say nothing: what fails is raised, and said in one paragraph."""
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
    """The first line of what a library says, as many of its words as have at most 160 characters."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return textwrap.shorten(lines[0], 160, placeholder=" …").rstrip(".:")
