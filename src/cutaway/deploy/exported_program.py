"""torch.export: a traced model in a .pt2 file, for PyTorch without this package.

Cutaway writes such files but never reads them, because `torch.export.load` unpickles their content.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..core.files import atomic_write
from .artifact import KEY, TracedModel, golden_example, silence_exporters

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
