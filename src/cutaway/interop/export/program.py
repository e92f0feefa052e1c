"""torch.export: a traced model in a .pt2 file, for PyTorch without this package. Such a file is written here and never
read: `torch.export.load` unpickles what stands in it (torch 2.13 falls back to `weights_only=False`)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import torch

from ...files import replacing
from .artefact import KEY, Traced

EXTRA = f"{KEY}.json"  # the extra file that holds the document


def write_program(traced: Traced, path: Path, document: dict[str, Any]) -> None:
    """Write the traced program, with the document as an extra file."""
    buffer = io.BytesIO()
    extra = {EXTRA: json.dumps(document, ensure_ascii=False)}
    torch.export.save(traced.program, buffer, extra_files=extra)
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getvalue())
