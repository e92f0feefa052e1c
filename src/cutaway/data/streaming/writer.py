"""How a folder of shards comes about: jobs that make a shard each, in worker processes, resumed after a kill.

What a kind of data does, in this order:

    found = begin(out, asked)             # empty, or what stands there of the same preparation
    if found.manifest: return it          # it is whole already
    plan = found.plan or …                # look at the data, which may take long; then
    keep(out, asked, plan)
    reject_full(out, bytes)               # before hours of work, not after
    for made in make(out, jobs, …): …     # a job for each shard; those that stand there are only looked at
    end(out, manifest)                    # written last

A shard follows from its job alone, and a job from the plan: so what is made is the same however many processes make it,
and however often they were killed. Two that prepare the same at once do it twice, and spoil nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from torch.utils.data import DataLoader, Dataset

from ...core.errors import CutawayError, FileError
from ...core.files import is_leftover, read_json, replacing, write_json
from ...core.schema import reject_unlike
from ..parallel import Progress, cores, leave_interrupts_to_the_parent, results
from .manifest import FORMAT, MANIFEST, PLAN, PLANNED, VERSION, Manifest, Shard, read_manifest, shard_of

KEPT = "What is done is kept: the same command goes on from there."
LITTLE = 1 << 24  # bytes of data that are sooner read than processes started
SPARE = 1 << 26  # bytes that stay free on the disk

Item = TypeVar("Item")
Result = TypeVar("Result")


class Job(Protocol):
    """What makes one shard. It travels to a worker process, or is there already where that is a fork of this one."""

    @property
    def name(self) -> str:
        """The shard's file, in the folder of shards."""
        ...

    def write(self, path: Path) -> None:
        """Write the whole shard to that path, which is a temporary one."""
        ...

    def look(self, path: Path) -> tuple[int, Any]:
        """How many tokens or examples a finished shard holds, and what else is to be added up over all of them."""
        ...


class Made(NamedTuple):
    """A shard that is finished."""

    shard: Shard
    found: Any  # what the job's `look` saw beside the count


@dataclass(frozen=True)
class Begun:
    """What stands in OUT already of the same preparation: nothing, its plan, or all of it."""

    manifest: Manifest | None = None
    plan: dict[str, Any] | None = None


def begin(out: Path, asked: Mapping[str, Any]) -> Begun:
    """Make the folder, or look at what stands there of a preparation of the same: `asked`, plain JSON values, by which
    it is known. What a kill left half-written is removed.

    Raises FileError where the folder holds anything else, or cannot be made.
    """
    another = "Give another folder, or remove this one."
    if out.is_file():
        raise FileError(f"{out} is a file, and shards need a folder. {another}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        names = sorted(p.name for p in out.iterdir() if not is_leftover(p))
        for left in [p for p in out.iterdir() if is_leftover(p)]:
            shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        raise FileError(f"{out} cannot be a folder of shards: {error.strerror}. Give another folder.") from error
    if not names:
        return Begun()
    if MANIFEST not in names and PLAN not in names:
        raise FileError(f"{out} is not empty, and `cutaway prepare` did not write it: {names[0]} is there. {another}")
    if MANIFEST in names:
        manifest = read_manifest(out)
        _reject_other(out, manifest.asked, asked)
        (out / PLAN).unlink(missing_ok=True)  # of one that was killed between its last two steps
        return Begun(manifest=manifest)
    document = read_json(out / PLAN)
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise FileError(f"{out / PLAN} is not what this version of `cutaway prepare` writes. {another}")
    reject_unlike(document, PLANNED, out / PLAN, another)
    _reject_other(out, document["asked"], asked)
    return Begun(plan=document["plan"])


def keep(out: Path, asked: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Write down what was asked for and planned, so that a preparation that is killed goes on."""
    write_json(out / PLAN, {"format": FORMAT, "version": VERSION, "asked": asked, "plan": plan})


def end(out: Path, manifest: Manifest) -> Manifest:
    """Write the manifest, the last of all, and give it."""
    manifest.write(out)
    (out / PLAN).unlink(missing_ok=True)
    return manifest


def reject_full(out: Path, jobs: Sequence[Job], size: int) -> None:
    """Raise FileError where the disk has no room for shards of about `size` bytes, those that stand there counted."""
    there = sum((out / job.name).stat().st_size for job in jobs if (out / job.name).is_file())
    free, wanted = shutil.disk_usage(out).free, size - there + SPARE
    if free < wanted:
        raise FileError(
            f"{out} has {_in_bytes(free)} of free space, and the shards take about {_in_bytes(wanted)} more. Free some "
            f"space, or give a folder on another disk.{f' {KEPT}' if there else ''}"
        )


def make(out: Path, jobs: Sequence[Job], workers: int, progress: Progress = lambda done, of: None) -> Iterator[Made]:
    """Make the shard of each job in so many processes (0: in this one); give each in the order of the jobs.

    Raises what a job raises that a person can fix, and FileError where the disk is full; what is done is kept.
    """
    for done, made in enumerate(in_processes(partial(_made, out), jobs, workers), 1):
        progress(done, len(jobs))
        yield made


def in_processes(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """`function` of each item, in order, by so many processes (0: by this one). Raises what it raises that a person can
    fix; then no more is begun."""
    if not workers or len(items) < 2:
        yield from map(function, items)
        return
    found = _through_workers(_Work(function, items), min(workers, len(items)))
    for one in found:
        if isinstance(one, CutawayError):
            found.close()  # the workers end now, not whenever the error is forgotten
            raise one
        yield one


def processes(asked: int | None, size: int) -> int:
    """How many processes work on so many bytes: as many as are asked for, else one for each processor, and none beside
    this one where there is little to do."""
    return asked if asked is not None else cores() if size > LITTLE else 0


def _made(out: Path, job: Job) -> Made:
    """The shard of a job, which is made if it is not there."""
    path = out / job.name
    try:
        if not path.is_file():
            with replacing(path) as temporary:
                job.write(temporary)
    except FileError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FileError(f"{path} could not be written: the disk is full. Free some space. {KEPT}") from error
        raise
    count, found = job.look(path)
    return Made(shard_of(path, count), found)


class _Work(Dataset[Any]):
    """What a worker process holds."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.function, self.items = function, items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, k: int) -> Any:
        """What the function gives for item k; or what a person can fix, for the parent to raise."""
        try:
            return self.function(self.items[k])
        except CutawayError as error:
            return error


def _through_workers(work: _Work, workers: int) -> Generator[Any, None, None]:
    """What each job makes, in their order, by processes that are forks of this one where the system has that."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each worker is one thread; and no warning of the library's
    made: Iterator[Any] = iter(())
    try:
        with _interrupts_later(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that there are more workers than processors
            loader = DataLoader(
                work,
                batch_size=None,
                num_workers=workers,
                worker_init_fn=leave_interrupts_to_the_parent,
                collate_fn=_as_it_is,
            )
            made = iter(loader)
        yield from results(made, "prepares shards", f"(workers=1). {KEPT}")
    finally:
        del made  # which ends the workers
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back for the block: while processes are forked Python would print it, and forget it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def _as_it_is(found: Any) -> Any:
    return found


def _reject_other(out: Path, then: Any, now: Mapping[str, Any]) -> None:
    """Raise FileError where the folder is of another preparation, with what differs."""
    if then == now:
        return
    changed = [key for key in {**then, **now} if not isinstance(then, dict) or then.get(key) != now.get(key)]
    raise FileError(
        f"{out} was prepared of other data or with other settings ({', '.join(changed)}), and nothing is written over. "
        "Give another folder, or remove this one."
    )


def _in_bytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
