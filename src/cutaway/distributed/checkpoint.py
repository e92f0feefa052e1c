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

import contextlib
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult

from ..checkpoints.saving import open_safetensors, open_verified, tensor_metadata, write_tensors
from ..core.errors import CutawayError, FileError, WriteError
from ..core.files import error_reason, make_folder, read_json, write_text
from ..core.schema import Between, validate_document
from .group import COLLECTIVE_TIMEOUT
from .tensor_parallel import local_blocks

Offset = tuple[int, ...]  # position of a block in the whole tensor


class Saver:
    """Asynchronous writer of checkpoints of several processes, one at a time."""

    def __init__(self) -> None:
        self._group: Any = None
        self._running: Future[Any] | None = None

    def save(self, folder: Path, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Start to write a checkpoint to folder/NAME-1, or the next number.

        The tensors may change as soon as this returns. All processes must call it, with the same tensors. It waits for
        the previous checkpoint.

        Args:
            folder: Folder of the checkpoints.
            name: Name of the checkpoint.
            tensors: Whole or sharded tensors, by name.
            meta: JSON values.
        """
        self.wait()
        if self._group is None:  # a group of its own, so that training can communicate meanwhile
            self._group = dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
        blocks = {(name, offset): view for name, tensor in tensors.items() for offset, view in local_blocks(tensor)}
        sizes = {name: tensor.shape for name, tensor in tensors.items()}
        self._writer = _Writer(folder, name, meta)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names that PyTorch will change
            self._running = async_save(  # type: ignore[assignment]
                {_key(*index): view for index, view in blocks.items()},
                storage_writer=self._writer,
                planner=_SavePlanner([*blocks], sizes),
                process_group=self._group,
            )

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is complete.

        Raises:
            FileError: In all processes, if one of them could not write. The previous checkpoint still exists.
        """
        running, self._running = self._running, None
        if running is None:
            return
        try:
            with _raise_first_failure():
                running.result()
        except FileError:
            self._writer.clear()
            raise


def read(checkpoint: Checkpoint, tensors: dict[str, Tensor]) -> None:
    """Fill whole or sharded tensors with the values of a checkpoint, by name. All processes of a group must call this.

    Raises:
        FileError: In all processes, if a file is missing or damaged. The message names the file.
    """
    with warnings.catch_warnings(), _raise_first_failure():
        warnings.simplefilter("ignore")  # PyTorch warns in a process without a group
        load(
            tensors,
            storage_reader=_Reader(checkpoint),
            planner=_LoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
        )


def _key(name: str, offset: Sequence[int]) -> str:
    """Return the name of a block in a file."""
    return f"{name}@{','.join(map(str, offset))}" if any(offset) else name


class _SavePlanner(DefaultSavePlanner):
    """Planner that lists the blocks of a process. PyTorch's own planner has one block for each tensor."""

    def __init__(self, blocks: list[tuple[str, Offset]], sizes: Mapping[str, torch.Size]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.blocks, self.sizes = blocks, sizes

    def create_local_plan(self) -> SavePlan:
        """Return the blocks that this process can write. Of equal blocks of several processes only one is written."""
        items = []
        for name, offset in self.blocks:
            block, at = self.state_dict[_key(name, offset)], torch.Size(offset)
            about = TensorWriteData(
                ChunkStorageMetadata(at, block.shape), TensorProperties(dtype=block.dtype), self.sizes[name]
            )
            items.append(WriteItem(MetadataIndex(name, at), WriteItemType.SHARD, tensor_data=about))
        self.plan = SavePlan(items)
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        """Return the block to write."""
        found: Tensor = self.state_dict[_key(write_item.index.fqn, write_item.index.offset or ())]
        return found


class _LoadPlanner(DefaultLoadPlanner):
    """Planner that requests the blocks of a process."""

    def create_local_plan(self) -> LoadPlan:
        """Return the stored slices that make up each block."""
        assert self.metadata is not None
        items = []
        self.blocks: dict[tuple[str, Offset], Tensor] = {}
        for name, tensor in self.state_dict.items():
            blocks = dict(local_blocks(tensor))
            self.blocks |= {(name, offset): view for offset, view in blocks.items()}
            wanted = [ChunkStorageMetadata(torch.Size(offset), view.shape) for offset, view in blocks.items()]
            stored = self.metadata.state_dict_metadata[name]
            assert isinstance(stored, TensorStorageMetadata), "only tensors are written"
            items += create_read_items_for_chunk_list(name, stored, wanted)
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Return the block to fill."""
        return self.blocks[index.fqn, tuple(index.offset or ())]


class _Writer(StorageWriter):
    """Writer of the parts of one checkpoint.

    `name` is the prefix of the checkpoint's folder, such as `last`, which is followed by its number: `last-3`.
    """

    def __init__(self, folder: Path, name: str, meta: Mapping[str, Any]) -> None:
        self.folder, self.name, self.meta = folder, name, meta
        self.temporary: Path | None = None  # folder that is renamed when it is complete; only rank 0 sets it

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Assign a file to each process. Called on rank 0."""
        numbers = [int(path.name.rpartition("-")[2]) for path in complete_checkpoints(self.folder, self.name)]
        self.final = self.folder / f"{self.name}-{max(numbers, default=0) + 1}"
        self.temporary = (
            self.folder / f".{self.final.name}.{os.getpid()}.part"
        )  # marks what a killed process leaves behind
        try:
            make_folder(self.temporary)
        except OSError as error:
            raise _write_error(self.temporary, error) from error
        files = [self.temporary / f"{i:05d}-of-{len(plans):05d}.safetensors" for i in range(1, len(plans) + 1)]
        return [replace(plan, storage_data=file) for plan, file in zip(plans, files)]

    def write_data(self, plan: SavePlan, planner: Any) -> torch.futures.Future[list[WriteResult]]:
        """Write the blocks of this process to its file."""
        file, found = plan.storage_data, []
        blocks: dict[MetadataIndex, Tensor] = {item.index: planner.resolve_data(item) for item in plan.items}
        named = {_key(index.fqn, index.offset or ()): block for index, block in blocks.items()}
        sha256 = write_tensors(file, named, {}) if named else ""
        for index, block in blocks.items():
            where = {"file": file.name, "offset": [*(index.offset or ())], "shape": [*block.shape], "sha256": sha256}
            found.append(WriteResult(index, block.nbytes, where))
        done: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        done.set_result(found)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the index, rename the folder to its final name and remove older checkpoints. Called on rank 0."""
        assert self.temporary is not None
        slices: dict[str, list[dict[str, Any]]] = {name: [] for name in metadata.state_dict_metadata}
        sums: dict[str, str] = {}
        for result in (one for of_process in results for one in of_process):
            where = dict(result.storage_data)
            sums[where["file"]] = where.pop("sha256")
            slices[result.index.fqn].append(where)
        self._reject_unseen(list(sums))
        tensors = {
            name: {"shape": list(one.size), "dtype": str(one.properties.dtype)[6:], "slices": slices[name]}
            for name, one in metadata.state_dict_metadata.items()
            if isinstance(one, TensorStorageMetadata)
        }
        write_index(self.temporary, self.meta, sums, tensors)
        shutil.rmtree(self.final, ignore_errors=True)  # the rest of a checkpoint whose removal was interrupted
        try:
            self.temporary.rename(self.final)
        except OSError as error:
            raise _write_error(self.final, error) from error
        (self.folder / f"{self.name}.safetensors").unlink(missing_ok=True)
        for older in complete_checkpoints(self.folder, self.name)[:-1]:
            remove(older)

    def _reject_unseen(self, files: list[str]) -> None:
        """Raise FileError if machines write to different folders of the same name."""
        assert self.temporary is not None
        unseen = [name for name in files if not (self.temporary / name).is_file()]
        if unseen:
            raise FileError(
                f"{len(unseen)} of the {len(files)} files of a checkpoint in {self.folder} are not visible to the "
                f"first process, e.g. {unseen[0]}: another machine wrote them to a local folder. Use a "
                "folder that all machines share."
            )

    def clear(self) -> None:
        """Remove an incomplete checkpoint."""
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan unchanged."""
        return plan

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: all work needs the plan."""

    def reset(self, checkpoint_id: Any = None) -> None:
        """Do nothing: a writer is for one checkpoint."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Return False: writers are not looked up by checkpoint name."""
        return False


class _Reader(StorageReader):
    """Reader of the slices of a plan."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the metadata of the checkpoint in PyTorch's format."""
        found: dict[str, Any] = {}
        for name, tensor in self.checkpoint.tensors.items():
            slices = [
                ChunkStorageMetadata(torch.Size(one["offset"]), torch.Size(one["shape"]))
                for one in self.checkpoint.slices[name]
            ]
            found[name] = TensorStorageMetadata(TensorProperties(dtype=tensor.dtype), tensor.shape, slices)
        return Metadata(found)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> torch.futures.Future[None]:
        """Read file by file, and verify the checksum of each first."""
        files = {
            MetadataIndex(name, one["offset"]): one["file"]
            for name, slices in self.checkpoint.slices.items()
            for one in slices
        }
        by_file = sorted(plan.items, key=lambda item: files[item.storage_index])
        for name, items in groupby(by_file, key=lambda item: files[item.storage_index]):
            with open_verified(self.checkpoint.folder / name, self.checkpoint.sums[name]) as opened:
                for item in items:
                    key = _key(item.storage_index.fqn, item.storage_index.offset or ())
                    at = tuple(slice(a, a + n) for a, n in zip(item.storage_offsets, item.lengths))
                    target = planner.resolve_tensor(item).detach()
                    target.copy_(opened.get_slice(key)[at] if at else opened.get_tensor(key))
                    planner.commit_tensor(item, target)
        done: torch.futures.Future[None] = torch.futures.Future()
        done.set_result(None)
        return done

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans unchanged."""
        return plans

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: all work needs the plan."""

    def reset(self, checkpoint_id: Any = None) -> None:
        """Do nothing: a reader is for one checkpoint."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Return False: readers are not looked up by checkpoint name."""
        return False


@contextlib.contextmanager
def _raise_first_failure() -> Iterator[None]:
    """Raise in all processes the error of the first process that failed, instead of PyTorch's list of errors."""
    try:
        yield
    except CheckpointException as error:
        first = error.failures[min(error.failures)][0]
        if isinstance(first, CutawayError):
            first.shared = True
        raise first from None


def _write_error(path: Path, error: OSError) -> FileError:
    return WriteError(
        f"{path} could not be written: {error_reason(error)}. The checkpoint before it is untouched. Free some space,"
        " or check the permissions, and resume the run."
    )


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
        validate_document(written, INDEX_SCHEMA, folder / INDEX, "Restore the folder from a backup, or train again.")
        about = written["checkpoint"]
        if written["sha256"] != _sha256(about):
            raise FileError(
                f"{folder / INDEX} is damaged: its checksum differs. Restore the folder from a backup, or train again."
            )
        self.meta: dict[str, Any] = about["meta"]
        self.sums: dict[str, str | None] = about["files"]
        try:
            self.tensors = {  # shapes and dtypes only
                name: torch.empty(one["shape"], dtype=getattr(torch, one["dtype"]), device="meta")
                for name, one in about["tensors"].items()
            }
        except (TypeError, AttributeError, RuntimeError) as error:
            raise FileError(
                f"{folder / INDEX} is not a valid checkpoint index. Restore the folder from a backup."
            ) from error
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
