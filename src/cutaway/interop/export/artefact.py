"""What is the same of every exported file: the sizes it is traced and compared at, how near is near enough, and the
document that says what a program elsewhere must know."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import ModelError

TOLERANCE = 1e-5  # of the largest output, or of 1: float32 has 7 digits, and other kernels add in another order
KEY = "cutaway"  # under which the document stands


@dataclass(frozen=True)
class Traced:
    """A model, what it was traced with, and what it answers at two other sizes."""

    program: torch.export.ExportedProgram
    names: tuple[str, ...]  # of the inputs
    checks: list[tuple[tuple[Tensor, ...], Tensor]]  # inputs of two other sizes, and the model's outputs


class FromLevels(nn.Module):
    """A model of images behind its normalisation: levels 0…255 (N, C, H, W) to the model's outputs."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.model = model
        for name, values in (("mean", mean), ("std", std)):
            levels = torch.tensor(values, dtype=torch.float64).mul(255).float().view(1, -1, 1, 1)
            self.register_buffer(name, levels, persistent=True)

    def forward(self, levels: Tensor) -> Tensor:
        """levels float32 (N, C, H, W), 0…255."""
        outputs: Tensor = self.model((levels - self.mean) / self.std)
        return outputs


def trace(
    model: nn.Module, names: tuple[str, ...], dynamic: tuple[dict[int, Any], ...], inputs: list[tuple[Tensor, ...]]
) -> Traced:
    """The model traced with the first of three inputs, whose dimensions in `dynamic` may have any size.

    Raises ModelError where it cannot be traced, or a size that should be free was fixed on the way.
    """
    example, *others = inputs
    with torch.no_grad():
        try:
            program = torch.export.export(model, example, dynamic_shapes=dynamic, strict=False)
        except Exception as error:  # whatever tracing meets, in any operator
            raise ModelError(
                f"This model cannot be traced with a free batch size and length by torch.export ({_first(error)}). "
                "Packed and stacked recurrent layers are known not to; its weights go elsewhere by `cutaway convert`."
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
                f"Nothing was written: what {by} made of the model fails for inputs of {sizes} ({_first(error)})."
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


def to_json(tensor: Tensor) -> dict[str, Any]:
    """A tensor as a JSON value: its type, its shape, and its bytes in base64, little-endian."""
    array = np.ascontiguousarray(tensor.detach().cpu().numpy())
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "base64": base64.b64encode(array.tobytes()).decode("ascii"),
    }


def from_json(data: dict[str, Any]) -> Tensor:
    """The tensor that `to_json` wrote."""
    array = np.frombuffer(base64.b64decode(data["base64"]), dtype=np.dtype(data["dtype"])).reshape(data["shape"])
    return torch.from_numpy(array.copy())


def golden(traced: Traced) -> dict[str, Any]:
    """The inputs and the output of the last check, for whoever opens the file elsewhere."""
    inputs, output = traced.checks[-1]
    return {"inputs": {name: to_json(x) for name, x in zip(traced.names, inputs)}, "output": to_json(output)}


def _first(error: Exception) -> str:
    """The first line of what a library says, at most 160 characters of it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0][:160].rstrip(".:")
