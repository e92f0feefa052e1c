"""Distributed checkpoints: each process writes the parts of tensors that it holds, and any number of processes reads
them again, each what it is to hold then.

PyTorch's own (torch.distributed.checkpoint) plans who writes what, copies tensors so that training goes on meanwhile,
and finds for each process the slices that it needs. Where things lie is said here. Its own writer leaves a pickle
beside the parts (`.metadata`), and no pickle is read from a person's file; its writer for Hugging Face leaves none, but
neither checksums nor the sizes of tensors, so that a part which is missing would not be missed. Here a checkpoint is a
folder:

    00001-of-00002.safetensors, …   what each process wrote, with a checksum
    index.json                      the shape and type of every tensor; which slice of it stands in which file; the
                                    files' checksums; JSON values of the caller's; a checksum of all that

The folder has another name until all of it is written.
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

from ..checkpoints.saving import head_of, opened_weights
from ..core.errors import FileError
from ..core.files import read_json, write_text
from ..core.schema import Between, reject_unlike

INDEX = "index.json"
NUMBERED = re.compile(r"(.+)-(\d+)")


def complete(folder: Path, name: str) -> list[Path]:
    """The whole checkpoints of that name, in the order in which they were written."""
    found = [(path, NUMBERED.fullmatch(path.name)) for path in folder.glob(f"{name}-*") if (path / INDEX).is_file()]
    numbered = {int(match[2]): path for path, match in found if match is not None and match[1] == name}
    return [numbered[number] for number in sorted(numbered)]


def remove(checkpoint: Path) -> None:
    """Remove a checkpoint; what a kill leaves of it is none."""
    (checkpoint / INDEX).unlink(missing_ok=True)
    shutil.rmtree(checkpoint, ignore_errors=True)


SIZES = [Between(0, 2**62)]
SLICE = {"file": str, "offset": SIZES, "shape": SIZES}
WRITTEN = {
    "sha256": str,
    "checkpoint": {
        "meta": dict,
        "files": {...: str | None},
        "tensors": {...: {"shape": SIZES, "dtype": str, "slices": [SLICE, ...]}},
    },
}


class Checkpoint:
    """A checkpoint on the disk."""

    def __init__(self, folder: Path) -> None:
        """Reads its index. Raises FileError where that is missing or damaged."""
        self.folder = folder
        written = read_json(folder / INDEX)
        reject_unlike(written, WRITTEN, folder / INDEX, "Take the folder from a copy, or train again.")
        about = written["checkpoint"]
        if written["sha256"] != _digest(about):
            raise FileError(
                f"{folder / INDEX} is not as it was written: its checksum does not fit. Take the folder from a copy, "
                "or train again."
            )
        self.meta: dict[str, Any] = about["meta"]
        self.sums: dict[str, str | None] = about["files"]
        try:
            self.tensors = {  # without their numbers
                name: torch.empty(one["shape"], dtype=getattr(torch, one["dtype"]), device="meta")
                for name, one in about["tensors"].items()
            }
        except (TypeError, AttributeError, RuntimeError) as error:
            raise FileError(f"{folder / INDEX} is no index of a checkpoint: take the folder from a copy.") from error
        self.slices: dict[str, list[dict[str, Any]]] = {k: one["slices"] for k, one in about["tensors"].items()}


class OneFile(Checkpoint):
    """A checkpoint of whole tensors, in one file, of which processes read what they are to hold."""

    def __init__(self, file: Path) -> None:
        """Reads its head. Raises FileError where that is damaged."""
        self.folder = file.parent
        with opened_weights(file) as opened:
            self.meta = json.loads((opened.metadata() or {}).get("cutaway", '{"meta": {}}'))["meta"]
            heads = {name: head_of(opened, name) for name in opened.keys()}  # noqa: SIM118  # no mapping
        self.sums = {file.name: None}
        self.tensors = {k: torch.empty(shape, dtype=dtype, device="meta") for k, (shape, dtype) in heads.items()}
        self.slices = {
            k: [{"file": file.name, "offset": [0] * len(shape), "shape": [*shape]}] for k, (shape, _) in heads.items()
        }


def write_index(folder: Path, meta: Mapping[str, Any], files: Mapping[str, str], tensors: Mapping[str, Any]) -> None:
    """Say what is in a folder: `files` with their checksums, and for each of the `tensors` its shape, type and slices.
    Raises FileError where it cannot be written."""
    about = {"meta": meta, "files": files, "tensors": tensors}
    write_text(folder / INDEX, json.dumps({"sha256": _digest(about), "checkpoint": about}))


def _digest(about: Mapping[str, Any]) -> str:
    """SHA-256 in hexadecimal of JSON values."""
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()
