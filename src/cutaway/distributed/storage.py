"""How PyTorch's distributed checkpoints are written to and read from the folders of checkpoint.py."""

from __future__ import annotations

import contextlib
import os
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

from ..checkpoints.saving import verified, write_tensors
from ..core.errors import CutawayError, FileError
from ..core.files import cause, make_folder
from .checkpoint import Checkpoint, complete, remove, write_index
from .dtensors import blocks_of
from .group import PATIENCE

Offset = tuple[int, ...]  # where a block begins in the whole


class Saver:
    """Writes the checkpoints of several processes, one at a time, while they go on with their work."""

    def __init__(self) -> None:
        self._group: Any = None
        self._running: Future[Any] | None = None

    def save(self, folder: Path, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Begin to write `tensors` and JSON values to folder/NAME-1, or the next number; they may change at once. All
        processes ask for it, with the same tensors, whole or in parts. Waits for the checkpoint before."""
        self.wait()
        if self._group is None:  # what is said of a checkpoint goes beside what is said of training
            self._group = dist.new_group(backend="gloo", timeout=PATIENCE)
        blocks = {(name, offset): view for name, tensor in tensors.items() for offset, view in blocks_of(tensor)}
        sizes = {name: tensor.shape for name, tensor in tensors.items()}
        self._writer = _Writer(folder, name, meta)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what PyTorch will call differently
            self._running = async_save(  # type: ignore[assignment]
                {_key(*index): view for index, view in blocks.items()},
                storage_writer=self._writer,
                planner=_SavePlanner([*blocks], sizes),
                process_group=self._group,
            )

    def wait(self) -> None:
        """Wait until the checkpoint is whole, if one is being written. Raises FileError, in all processes, where one of
        them could not write it; what was saved before is still there."""
        running, self._running = self._running, None
        if running is None:
            return
        try:
            with _told():
                running.result()
        except FileError:
            self._writer.clear()
            raise


def read(checkpoint: Checkpoint, tensors: dict[str, Tensor]) -> None:
    """Fill the tensors, whole or in parts, with what was written under their names. In a group all processes ask for
    it. Raises FileError, in all of them, which names the file that is missing or damaged."""
    with warnings.catch_warnings(), _told():
        warnings.simplefilter("ignore")  # a process without a group is told so
        load(
            tensors,
            storage_reader=_Reader(checkpoint),
            planner=_LoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
        )


def _key(name: str, offset: Sequence[int]) -> str:
    """What a block is called in a file."""
    return f"{name}@{','.join(map(str, offset))}" if any(offset) else name


class _SavePlanner(DefaultSavePlanner):
    """Says what a process holds, block by block; PyTorch's own knows of one block of each tensor."""

    def __init__(self, blocks: list[tuple[str, Offset]], sizes: Mapping[str, torch.Size]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.blocks, self.sizes = blocks, sizes

    def create_local_plan(self) -> SavePlan:
        """What this process could write; of what several hold one will."""
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
        """The block that is to be written."""
        found: Tensor = self.state_dict[_key(write_item.index.fqn, write_item.index.offset or ())]
        return found


class _LoadPlanner(DefaultLoadPlanner):
    """Asks for what a process is to hold, block by block."""

    def create_local_plan(self) -> LoadPlan:
        """The slices of what was written that make up each block."""
        assert self.metadata is not None
        items = []
        self.blocks: dict[tuple[str, Offset], Tensor] = {}
        for name, tensor in self.state_dict.items():
            blocks = dict(blocks_of(tensor))
            self.blocks |= {(name, offset): view for offset, view in blocks.items()}
            wanted = [ChunkStorageMetadata(torch.Size(offset), view.shape) for offset, view in blocks.items()]
            stored = self.metadata.state_dict_metadata[name]
            assert isinstance(stored, TensorStorageMetadata), "nothing else is written"
            items += create_read_items_for_chunk_list(name, stored, wanted)
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """The block that is to be filled."""
        return self.blocks[index.fqn, tuple(index.offset or ())]


class _Writer(StorageWriter):
    """Where the parts of one checkpoint are written."""

    def __init__(self, folder: Path, name: str, meta: Mapping[str, Any]) -> None:
        self.folder, self.name, self.meta = folder, name, meta
        self.place: Path | None = None  # the folder until it is whole; the first process alone knows it from here

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """In the first process: where each of them writes."""
        numbers = [int(path.name.rpartition("-")[2]) for path in complete(self.folder, self.name)]
        self.final = self.folder / f"{self.name}-{max(numbers, default=0) + 1}"
        self.place = self.folder / f".{self.final.name}.{os.getpid()}.part"  # what a kill leaves is known by that
        try:
            make_folder(self.place)
        except OSError as error:
            raise _unwritten(self.place, error) from error
        files = [self.place / f"{i:05d}-of-{len(plans):05d}.safetensors" for i in range(1, len(plans) + 1)]
        return [replace(plan, storage_data=file) for plan, file in zip(plans, files)]

    def write_data(self, plan: SavePlan, planner: Any) -> torch.futures.Future[list[WriteResult]]:
        """Write the blocks that are this process's to write to a file of its own."""
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
        """In the first process, when all have written: the index, and the name that says that all is there. What was
        saved before under that name is no longer needed."""
        assert self.place is not None
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
        write_index(self.place, self.meta, sums, tensors)
        shutil.rmtree(self.final, ignore_errors=True)  # what is left of one that was being removed
        try:
            self.place.rename(self.final)
        except OSError as error:
            raise _unwritten(self.final, error) from error
        (self.folder / f"{self.name}.safetensors").unlink(missing_ok=True)
        for older in complete(self.folder, self.name)[:-1]:
            remove(older)

    def _reject_unseen(self, files: list[str]) -> None:
        """Raise FileError where machines write to folders of the same name that are not the same."""
        assert self.place is not None
        unseen = [name for name in files if not (self.place / name).is_file()]
        if unseen:
            raise FileError(
                f"Of the {len(files)} files of a checkpoint in {self.folder}, {len(unseen)} cannot be seen by the "
                f"first process, the first {unseen[0]}: another machine wrote them, to a folder of its own. Give a "
                "folder that all machines share."
            )

    def clear(self) -> None:
        """Remove what was begun."""
        if self.place is not None:
            shutil.rmtree(self.place, ignore_errors=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan as it is."""
        return plan

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing is needed before the plan is known."""

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept: a writer is for one checkpoint."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """No writer is found by the name of a checkpoint."""
        return False


class _Reader(StorageReader):
    """Reads what a plan asks for."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What is there, as PyTorch describes it."""
        found: dict[str, Any] = {}
        for name, tensor in self.checkpoint.tensors.items():
            slices = [
                ChunkStorageMetadata(torch.Size(one["offset"]), torch.Size(one["shape"]))
                for one in self.checkpoint.slices[name]
            ]
            found[name] = TensorStorageMetadata(TensorProperties(dtype=tensor.dtype), tensor.shape, slices)
        return Metadata(found)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> torch.futures.Future[None]:
        """Read file after file, each of which is held to its checksum first."""
        files = {
            MetadataIndex(name, one["offset"]): one["file"]
            for name, slices in self.checkpoint.slices.items()
            for one in slices
        }
        by_file = sorted(plan.items, key=lambda item: files[item.storage_index])
        for name, items in groupby(by_file, key=lambda item: files[item.storage_index]):
            with verified(self.checkpoint.folder / name, self.checkpoint.sums[name]) as opened:
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
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans as they are."""
        return plans

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing is needed before the plan is known."""

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept: a reader is for one checkpoint."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """No reader is found by the name of a checkpoint."""
        return False


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Raise, in all processes, what went wrong in the first of those where something did, instead of PyTorch's list."""
    try:
        yield
    except CheckpointException as error:
        first = error.failures[min(error.failures)][0]
        if isinstance(first, CutawayError):
            first.shared = True
        raise first from None


def _unwritten(path: Path, error: OSError) -> FileError:
    return FileError(
        f"{path} could not be written: {cause(error)}. The checkpoint before it is untouched. Free some space, or "
        "check the permissions, and resume the run."
    )
