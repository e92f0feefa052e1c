"""Distributed checkpoints: each process writes its parts of the tensors, and any number of processes can read them.

`torch.distributed.checkpoint` plans who writes what, copies tensors so that training continues meanwhile, and finds the
slices that each process needs. This module defines the files. PyTorch's own writer stores a pickle (`.metadata`) next
to the parts, and Cutaway reads no pickle from a user's file. PyTorch's writer for Hugging Face stores no pickle, but
neither checksums nor tensor sizes, so a missing part would not be detected. Here a checkpoint is a folder:

    00001-of-00002.safetensors, …   the parts of each process, with a checksum
    index.json                      the shape and dtype of every tensor; the slices in each file; the checksums of the
                                    files; JSON values of the caller; a checksum of all of that

The folder has a temporary name until it is complete.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..checkpoints.saving import open_safetensors, tensor_metadata
from ..core.errors import FileError
from ..core.files import read_json, write_text
from ..core.schema import Between, validate_document

INDEX = "index.json"
NUMBERED = re.compile(r"(.+)-(\d+)")


def complete_checkpoints(folder: Path, name: str) -> list[Path]:
    """Return the complete checkpoints of that name, in the order in which they were written."""
    found = [(path, NUMBERED.fullmatch(path.name)) for path in folder.glob(f"{name}-*") if (path / INDEX).is_file()]
    numbered = {int(match[2]): path for path, match in found if match is not None and match[1] == name}
    return [numbered[number] for number in sorted(numbered)]


def remove(checkpoint: Path) -> None:
    """Remove a checkpoint. The index goes first, so that a half-removed checkpoint does not count as complete."""
    (checkpoint / INDEX).unlink(missing_ok=True)
    shutil.rmtree(checkpoint, ignore_errors=True)


SIZES = [Between(0, 2**62)]
SLICE = {"file": str, "offset": SIZES, "shape": SIZES}
INDEX_SCHEMA = {
    "sha256": str,
    "checkpoint": {
        "meta": dict,
        "files": {...: str | None},
        "tensors": {...: {"shape": SIZES, "dtype": str, "slices": [SLICE, ...]}},
    },
}


class Checkpoint:
    """Checkpoint on disk."""

    def __init__(self, folder: Path) -> None:
        """Read the index. Raises FileError if it is missing or damaged."""
        self.folder = folder
        written = read_json(folder / INDEX)
        validate_document(written, INDEX_SCHEMA, folder / INDEX, "Take the folder from a copy, or train again.")
        about = written["checkpoint"]
        if written["sha256"] != _sha256(about):
            raise FileError(
                f"{folder / INDEX} is not as it was written: its checksum does not fit. Take the folder from a copy, "
                "or train again."
            )
        self.meta: dict[str, Any] = about["meta"]
        self.sums: dict[str, str | None] = about["files"]
        try:
            self.tensors = {  # shapes and dtypes only
                name: torch.empty(one["shape"], dtype=getattr(torch, one["dtype"]), device="meta")
                for name, one in about["tensors"].items()
            }
        except (TypeError, AttributeError, RuntimeError) as error:
            raise FileError(f"{folder / INDEX} is no index of a checkpoint: take the folder from a copy.") from error
        self.slices: dict[str, list[dict[str, Any]]] = {k: one["slices"] for k, one in about["tensors"].items()}


class SingleFileCheckpoint(Checkpoint):
    """Checkpoint of whole tensors in one file. Each process reads only its own parts."""

    def __init__(self, file: Path) -> None:
        """Read the header. Raises FileError if it is damaged."""
        self.folder = file.parent
        with open_safetensors(file) as opened:
            self.meta = json.loads((opened.metadata() or {}).get("cutaway", '{"meta": {}}'))["meta"]
            heads = {name: tensor_metadata(opened, name) for name in opened.keys()}  # noqa: SIM118  # not a mapping
        self.sums = {file.name: None}
        self.tensors = {k: torch.empty(shape, dtype=dtype, device="meta") for k, (shape, dtype) in heads.items()}
        self.slices = {
            k: [{"file": file.name, "offset": [0] * len(shape), "shape": [*shape]}] for k, (shape, _) in heads.items()
        }


def write_index(folder: Path, meta: Mapping[str, Any], files: Mapping[str, str], tensors: Mapping[str, Any]) -> None:
    """Write the index of a checkpoint folder.

    Args:
        folder: Folder of the checkpoint.
        meta: JSON values of the caller.
        files: Checksum of each file, by name.
        tensors: Shape, dtype and slices of each tensor, by name.

    Raises:
        FileError: If the index cannot be written.
    """
    about = {"meta": meta, "files": files, "tensors": tensors}
    write_text(folder / INDEX, json.dumps({"sha256": _sha256(about), "checkpoint": about}))


def _sha256(about: Mapping[str, Any]) -> str:
    """Return the SHA-256 of JSON values in hexadecimal."""
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()
