"""Transfer of weights between processes through a memory-mapped file: one copy in, one copy out."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

ALIGNED = 64  # alignment of tensors in bytes


class Layout:
    """The positions of a model's tensors in one row of bytes."""

    def __init__(self, model: nn.Module) -> None:
        self.tensors = list(model.state_dict().values())  # the model's own memory, not a copy
        self.starts: list[int] = []
        end = 0
        for tensor in self.tensors:
            self.starts.append(end)
            size = tensor.numel() * tensor.element_size()
            end += -(-size // ALIGNED) * ALIGNED
        self.size = max(end, ALIGNED)

    def within(self, row: Tensor) -> list[Tensor]:
        """Return the tensors as views of a row of bytes (size,), each in its own shape."""
        return [
            row[start : start + t.numel() * t.element_size()].view(t.dtype).view(t.shape)
            for start, t in zip(self.starts, self.tensors)
        ]

    @torch.no_grad()
    def write(self, row: Tensor) -> None:
        """Copy the model into the row."""
        for place, tensor in zip(self.within(row), self.tensors):
            place.copy_(tensor)

    @torch.no_grad()
    def read(self, row: Tensor) -> None:
        """Copy the row into the model."""
        for place, tensor in zip(self.within(row), self.tensors):
            tensor.copy_(place)

    def copy(self) -> Tensor:
        """Return a copy of the model as a new row."""
        row = torch.zeros(self.size, dtype=torch.uint8)
        self.write(row)
        return row


def shared_row(path: Path, size: int) -> Tensor:
    """Return a row of bytes (size,) that is shared by all processes that open this path."""
    return torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
