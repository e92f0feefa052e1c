"""Folders of shards: their manifest, `cutaway prepare DATA OUT`, which writes them, and opening OUT as data.

    OUT/
      train-00000.bin …   shards, each written to a temporary name, flushed, then renamed
      manifest.json       written last: a folder that has one is complete
      preparing.json      until then: the request and the plan, from which a killed preparation is resumed

Opening checks only names and sizes. `find_damaged` compares every checksum, which reads every byte.

A kind of data has an entry in `SHARDED`, which names two functions of a module of this folder:

    prepare(source: Path, out: Path, settings: DataSettings, how: ShardSettings, progress: Progress) -> Manifest
        Write the shards and the manifest. It rejects settings that do not apply or are chosen at training time, by
        name, and reads its input in parts.
    open(folder: Path, manifest: Manifest, settings: DataSettings, *, sizes: ImageSizes, targets: …) -> DataSet
        Build the data set, whose splits read from the shards. It rejects settings that were fixed by the preparation,
        by name (`reject_fixed_settings`). A split that reads shards has `damaged(progress)`, which compares all
        checksums for `cutaway check` (`find_damaged`).

Shards are written by one job each, in worker processes, resumable after a kill. A kind of data calls, in this order:

    found = begin_preparation(out, …)         # empty, or what exists of the same preparation
    if found.manifest: return it              # it is complete already
    plan = found.plan or …                    # inspect the data, which may take long; then
    save_plan(out, …, plan)
    require_disk_space(out, …)                # before hours of work, not after
    for made in write_shards(out, jobs, …): … # a job for each shard; existing shards are only inspected
    finish_preparation(out, manifest)         # written last

A shard depends only on its job, and a job only on the plan, so the result is the same for any number of processes and
any number of kills. Two simultaneous preparations of the same data do the work twice without harm.

Shards of text are streams of tokens: consecutive little-endian integers, read on demand and never kept in memory.
They are read by `pread`, not through a memory map. Pages read through a map count as memory of the process, up to the
whole corpus (3.7 GB after 60 000 windows of a corpus of 6 GB, where `pread` takes none). A shard truncated while mapped
kills the process (SIGBUS), and here raises an error with its name. A batch takes the same time, and the page cache
keeps frequently read pages in both cases.

During a training step the system prefetches the next batch (`prefetch_windows`). For a corpus that is not cached, a
batch of 32 windows then takes 0.4 ms instead of 4.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ...core.config import as_text, build, pick
from ...core.errors import (
    AlreadyExistsError,
    CutawayError,
    DataError,
    FileError,
    IncompatibleSettingError,
    Problem,
    SettingError,
    UnsupportedDataError,
    WriteError,
    join,
    shorten,
)
from ...core.files import atomic_write, error_reason, exists, is_temp_file, open_regular, read_json, write_json
from ...core.schema import NUMBER, Choice, name_document_in_errors, validate_document
from ...core.spec import ANY_SIZE, ImageSizes, Target
from ..dataset_base import DataSet
from ..modalities import KINDS
from ..parallel import Progress, ignore_interrupts, iterate_workers, map_in_threads, num_cpus
from ..settings import DataSettings, ShardSettings
from ..text.tokenizer_files import TOKENIZERS

MANIFEST, PLAN = "manifest.json", "preparing.json"
FORMAT, VERSION = "cutaway shards", 1
AGAIN = "Prepare the data again: cutaway prepare DATA OUT, into another folder; or take the folder from a copy."
SHARD = {"name": str, "bytes": int, "sha256": str, "count": int}
SCHEMA = {
    "format": str, "version": int, "kind": str, "name": str, "source": str, "fingerprint": str,
    "splits": {...: [SHARD, ...]}, "settings": dict, "notes": [str], "about": dict, "asked": dict, "cutaway": str,
}  # fmt: skip
FRACTIONS = {"val": NUMBER, "test": NUMBER}
DTYPES = Choice(("uint8", "uint16", "uint32"))  # of the tokens of text
OF_TEXT = {
    "settings": {**FRACTIONS, "tokenizer": str},
    "about": {"tokenizer": TOKENIZERS, "given": bool, "dtype": DTYPES, "counts": {...: [int]}},
}
OF_MEDIA = {"settings": FRACTIONS, "about": {"classes": [str], "index": str}}
PLANNED = {"format": str, "version": int, "asked": dict, "plan": dict}


@dataclass(frozen=True)
class Shard:
    """One file of a folder of shards."""

    name: str  # of the file, in the folder
    bytes: int
    sha256: str
    count: int  # number of tokens of text, or of examples


@dataclass(frozen=True)
class Manifest:
    """The content of a folder of shards."""

    kind: str  # of the data: a key of data.kinds.KINDS
    name: str  # short, for the run's folder
    source: str  # as the user gave it
    fingerprint: str  # sha256 of the content that was read
    splits: Mapping[str, Sequence[Shard]]  # train, val, test: shards in their order
    settings: Mapping[str, Any]  # of the data, as they were when it was prepared
    asked: Mapping[str, Any]  # identifies the same preparation
    notes: Sequence[str] = ()  # messages for the user
    about: Mapping[str, Any] = field(default_factory=dict)  # entries of the kind of data, as JSON values

    @property
    def shards(self) -> Iterator[Shard]:
        """All shards, split by split."""
        for of_split in self.splits.values():
            yield from of_split

    def count(self, split: str) -> int:
        """Return the number of tokens or examples of a split."""
        return sum(shard.count for shard in self.splits[split])

    def write(self, folder: Path) -> None:
        """Write manifest.json, completely or not at all; it is the last file written."""
        from ...core.version import __version__

        head = {"format": FORMAT, "version": VERSION, "cutaway": __version__}
        write_json(folder / MANIFEST, {**head, **asdict(self)})


def is_prepared(source: Any) -> bool:
    """Return whether a source is a folder of shards, including one whose preparation has not finished."""
    if not isinstance(source, str | os.PathLike) or not os.path.isdir(os.path.expanduser(source)):
        return False
    return any((Path(source).expanduser() / name).is_file() for name in (MANIFEST, PLAN))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder of shards, and check that its files exist with the right sizes.

    Raises DataError if the preparation has not finished, or shards are missing or truncated, each by name; FileError if
    manifest.json is from another program, damaged, or of a newer version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(
            f"{folder} is not whole: its preparation has begun and not ended.",
            fix="Run the `cutaway prepare` command again to continue.",
        )
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileError(
            f"{path} is not a manifest of shards: its format is not {FORMAT!r}. Run `cutaway prepare` again."
        )
    if isinstance(version := document.get("version"), int) and version > VERSION:
        raise FileError(
            f"{path} is of version {version}, which a newer version of cutaway has written; this one reads {VERSION}. "
            "Install the newer one, or prepare the data with this one, into another folder."
        )
    validate_document(document, SCHEMA, path, AGAIN)
    with name_document_in_errors(path, AGAIN):
        build(DataSettings, document["settings"])
    splits = {split: [Shard(**shard) for shard in of_split] for split, of_split in document["splits"].items()}
    own = [one.name for one in fields(Manifest) if one.name != "splits"]
    manifest = Manifest(splits=splits, **{key: document[key] for key in own})
    if astray := next((shard.name for shard in manifest.shards if Path(shard.name).name != shard.name), None):
        raise FileError(f"{path} names a shard {astray!r}, which is not a file in its folder. {AGAIN}")
    _reject_sizes(folder, manifest)
    return manifest


def validate_manifest_entries(folder: Path, manifest: Manifest, schema: Mapping[str, Any]) -> None:
    """Raise FileError if `settings` and `about` of the manifest do not match `schema`."""
    added = {"settings": dict(manifest.settings), "about": dict(manifest.about)}
    validate_document(added, schema, folder / MANIFEST, AGAIN)


def find_damaged(
    folder: Path, manifest: Manifest, splits: Sequence[str] = (), progress: Progress | None = None
) -> list[Problem]:
    """Return every shard of these splits, or of all, whose checksum differs. Reads all of them, in parallel."""
    shards, found = [shard for split in splits or manifest.splits for shard in manifest.splits[split]], []
    for done, (shard, sum_) in enumerate(
        zip(shards, map_in_threads(lambda s: file_sha256(folder / s.name), shards)), 1
    ):
        if sum_ != shard.sha256:
            said = f"its sha256 is {sum_[:16]}…, and {shard.sha256[:16]}… was written: it is damaged"
            found.append(Problem(str(folder / shard.name), said))
        if progress is not None:
            progress(done, len(shards))
    return found


def unusable_shards_error(folder: str | Path, problems: list[Problem]) -> DataError:
    """Return the error for shards with these problems."""
    return DataError(f"{len(problems):,} of the shards in {folder} cannot be read:", problems, AGAIN)


def describe_shard(path: Path, count: int) -> Shard:
    """Return the entry of a written shard: its size and its checksum."""
    return Shard(path.name, path.stat().st_size, file_sha256(path), count)


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, or the reason why it cannot be read."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"not to be had ({error.strerror})"


def _reject_sizes(folder: Path, manifest: Manifest) -> None:
    """Raise DataError that names every shard that is missing or has another size."""
    found = []
    for shard in manifest.shards:
        path = folder / shard.name
        size = path.stat().st_size if exists(path) and path.is_file() else None
        if size is None:
            found.append(Problem(shorten(path, 200), "it is missing"))
        elif size != shard.bytes:
            found.append(Problem(str(path), f"it has {size:,} bytes, and {shard.bytes:,} were written"))
    if found:
        raise unusable_shards_error(folder, found)


@dataclass(frozen=True)
class ShardFormat:
    """A kind of data that can be prepared: a module of this folder, and the names of its two functions."""

    module: str
    prepare: str
    open: str

    def member(self, name: str) -> Any:
        """Import the function of that name."""
        return getattr(import_module(f".{self.module}", __package__), name)


_MEDIA = ShardFormat("media_shards", "prepare_media", "open_media")
SHARDED = {
    "text": ShardFormat("text_shards", "prepare_text", "open_text"),
    "image": _MEDIA,
    "audio": _MEDIA,
    "video": _MEDIA,
    "table": ShardFormat("parquet_shards", "prepare_table", "open_table_shards"),
}


def prepare_data(
    kind: str, source: Path, out: Path, given: Mapping[str, Any], progress: Progress = lambda done, of: None
) -> Manifest:
    """Prepare data of this kind into the folder `out`, or resume.

    `given` are settings of the data and of `ShardSettings`. Raises DataError for a kind that cannot be prepared,
    SettingError, FileError, and the errors of the kind.
    """
    if is_prepared(source):
        raise UnsupportedDataError(f"{source} is prepared already.", fix=f"Train on it: cutaway train MODEL {source}")
    if kind not in SHARDED:
        raise UnsupportedDataError(
            f"{KINDS[kind].plural.capitalize()} cannot be prepared into shards; what can is "
            f"{join([KINDS[k].plural for k in SHARDED], 'and')}.",
            fix=f"Train on it directly: cutaway train MODEL {source}",
        )
    own = pick(given, ShardSettings)
    how = build(ShardSettings, own)
    settings = build(DataSettings, {key: value for key, value in given.items() if key not in own})
    if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        raise SettingError(f"{out} stands within {source}, which is read: give a folder elsewhere.")
    found: Manifest = SHARDED[kind].member(SHARDED[kind].prepare)(source, out, settings, how, progress)
    return found


def kind_of_prepared(folder: Path) -> str:
    """Return the kind of data in a folder of shards. Raises as `read_manifest`, and DataError for an unknown kind."""
    kind = read_manifest(folder).kind
    if kind not in SHARDED:
        raise UnsupportedDataError(
            f"{folder} holds shards of {kind!r} data, which this version of cutaway does not read.",
            fix="Install the version that wrote them, or a newer one.",
        )
    return kind


def open_prepared(
    folder: Path, settings: DataSettings, sizes: ImageSizes = ANY_SIZE, targets: tuple[type[Target], ...] = ()
) -> DataSet:
    """Build the data set of a folder of shards.

    Raises as `read_manifest`, and SettingError for settings that were fixed by the preparation.
    """
    manifest = read_manifest(folder)
    found = SHARDED[manifest.kind]
    data: DataSet = found.member(found.open)(folder, manifest, settings, sizes=sizes, targets=targets)
    return data


def reject_fixed_settings(settings: DataSettings, manifest: Manifest, folder: Path, free: Iterable[str]) -> None:
    """Raise SettingError for the first changed setting that is not `free` and differs from the preparation."""
    usual = DataSettings()
    for key in (one.name for one in fields(settings)):
        value = getattr(settings, key)
        then = manifest.settings.get(key, getattr(usual, key))
        if key not in free and value not in (getattr(usual, key), then, _as_tuple(then)):
            raise IncompatibleSettingError(
                f"Invalid {key}={shorten(as_text(value))}: {folder} was prepared with {key}={shorten(as_text(then))}."
                " Leave it out, or prepare the data again with it, into another folder."
            )


def _as_tuple(value: Any) -> Any:
    """Convert JSON's lists to the tuples of settings."""
    return tuple(value) if isinstance(value, list) else value


KEPT = "Finished shards are kept: run the same command again to continue."
LITTLE = 1 << 24  # bytes of data that are read faster than processes start
SPARE = 1 << 26  # bytes kept free on the disk

Item = TypeVar("Item")
Result = TypeVar("Result")


class Job(Protocol):
    """A job that writes one shard. It is sent to a worker process, or is inherited by fork."""

    @property
    def name(self) -> str:
        """The shard's file name in the folder of shards."""
        ...

    def write(self, path: Path) -> None:
        """Write the complete shard to this path, which is temporary."""
        ...

    def look(self, path: Path) -> tuple[int, Any]:
        """Return the number of tokens or examples of a finished shard, and other results to combine over all shards."""
        ...


class ShardWriteResult(NamedTuple):
    """A finished shard."""

    shard: Shard
    found: Any  # the other results of the job's `look`


@dataclass(frozen=True)
class PreparationState:
    """The existing part of the same preparation in OUT: nothing, its plan, or all of it."""

    manifest: Manifest | None = None
    plan: dict[str, Any] | None = None


def begin_preparation(out: Path, asked: Mapping[str, Any]) -> PreparationState:
    """Create the folder, or return what exists of the same preparation, which `asked` (plain JSON values) identifies.

    Files left by a kill are removed. Raises FileError if the folder holds anything else, or cannot be created.
    """
    another = "Give another folder, or remove this one."
    if out.is_file():
        raise WriteError(f"{out} is a file, and shards need a folder. {another}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        names = sorted(p.name for p in out.iterdir() if not is_temp_file(p))
        for left in [p for p in out.iterdir() if is_temp_file(p)]:
            shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        raise WriteError(f"{out} cannot be a folder of shards: {error.strerror}. Give another folder.") from error
    if not names:
        return PreparationState()
    if MANIFEST not in names and PLAN not in names:
        raise AlreadyExistsError(
            f"{out} is not empty, and `cutaway prepare` did not write it: {names[0]} is there. {another}"
        )
    if MANIFEST in names:
        manifest = read_manifest(out)
        _reject_other(out, manifest.asked, asked)
        (out / PLAN).unlink(missing_ok=True)  # of a preparation killed between its last two steps
        return PreparationState(manifest=manifest)
    document = read_json(out / PLAN)
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise FileError(f"{out / PLAN} is not what this version of `cutaway prepare` writes. {another}")
    validate_document(document, PLANNED, out / PLAN, another)
    _reject_other(out, document["asked"], asked)
    return PreparationState(plan=document["plan"])


def save_plan(out: Path, asked: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Save the request and the plan, so that a killed preparation can be resumed."""
    write_json(out / PLAN, {"format": FORMAT, "version": VERSION, "asked": asked, "plan": plan})


def finish_preparation(out: Path, manifest: Manifest) -> Manifest:
    """Write the manifest as the last file, and return it."""
    manifest.write(out)
    (out / PLAN).unlink(missing_ok=True)
    return manifest


def require_disk_space(out: Path, jobs: Sequence[Job], size: int) -> None:
    """Raise FileError if the disk has no room for shards of about `size` bytes in total, including existing ones."""
    there = sum((out / job.name).stat().st_size for job in jobs if (out / job.name).is_file())
    free, wanted = shutil.disk_usage(out).free, size - there + SPARE
    if free < wanted:
        raise WriteError(
            f"{out} has {_in_bytes(free)} of free space, and the shards take about {_in_bytes(wanted)} more. Free some "
            f"space, or give a folder on another disk.{f' {KEPT}' if there else ''}"
        )


def write_shards(
    out: Path, jobs: Sequence[Job], workers: int, progress: Progress = lambda done, of: None
) -> Iterator[ShardWriteResult]:
    """Write the shard of each job in `workers` processes (0: in this one), and yield each in order.

    Raises the CutawayErrors of a job, and FileError if the disk is full; finished shards are kept.
    """
    for done, made in enumerate(map_in_processes(partial(_run_job, out), jobs, workers), 1):
        progress(done, len(jobs))
        yield made


def map_in_processes(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """Apply `function` to each item in `workers` processes (0: in this one) and yield the results in order.

    Raises its CutawayErrors, after which no further items are started.
    """
    if not workers or len(items) < 2:
        yield from map(function, items)
        return
    found = _through_workers(_Work(function, items), min(workers, len(items)))
    for one in found:
        if isinstance(one, CutawayError):
            found.close()  # ends the workers now, not when the exception is garbage-collected
            raise one
        yield one


def num_processes(asked: int | None, size: int) -> int:
    """Return the number of processes for `size` bytes: `asked`, or one per processor; 0 if there is little to do."""
    return asked if asked is not None else num_cpus() if size > LITTLE else 0


def _run_job(out: Path, job: Job) -> ShardWriteResult:
    """Write the shard of a job unless it exists, and return its result."""
    path = out / job.name
    try:
        if not path.is_file():
            with atomic_write(path) as temporary:
                job.write(temporary)
    except FileError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WriteError(f"{path} could not be written: the disk is full. Free some space. {KEPT}") from error
        raise
    count, found = job.look(path)
    return ShardWriteResult(describe_shard(path, count), found)


class _Work(Dataset[Any]):
    """The data set of a worker process: a function and its items."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.function, self.items = function, items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, k: int) -> Any:
        """Return the result for item k, or the CutawayError for the parent to raise."""
        try:
            return self.function(self.items[k])
        except CutawayError as error:
            return error


def _through_workers(work: _Work, workers: int) -> Generator[Any, None, None]:
    """Yield the result of each job, in order, from forked processes where available."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each worker uses one thread; avoids the library's warning
    made: Iterator[Any] = iter(())
    try:
        with _delay_interrupts(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about more workers than processors
            loader = DataLoader(
                work,
                batch_size=None,
                num_workers=workers,
                worker_init_fn=ignore_interrupts,
                collate_fn=_identity,
            )
            made = iter(loader)
        yield from iterate_workers(made, "prepares shards", f"(workers=1). {KEPT}")
    finally:
        del made  # ends the workers
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


@contextlib.contextmanager
def _delay_interrupts() -> Iterator[None]:
    """Delay Ctrl-C during the block: while processes are forked, Python would print it and ignore it."""
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


def _identity(found: Any) -> Any:
    return found


def _reject_other(out: Path, then: Any, now: Mapping[str, Any]) -> None:
    """Raise FileError, with the differences, if the folder is of another preparation."""
    if then == now:
        return
    changed = [key for key in {**then, **now} if not isinstance(then, dict) or then.get(key) != now.get(key)]
    raise AlreadyExistsError(
        f"{out} was prepared of other data or with other settings ({', '.join(changed)}), and nothing is written over. "
        "Give another folder, or remove this one."
    )


def _in_bytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


AT_ONCE = 1 << 20  # tokens counted together
OPEN_AT_MOST = 256  # open shards; the oldest is closed first


class ShardTokens:
    """Token ids (n,) with the indexing of a tensor: a slice, or places (N, T) that are consecutive in each row."""

    def __init__(self, folder: Path, manifest: Manifest, split: str, most: int | None = None) -> None:
        """Initialize with the tokens of a split in a folder of shards, or its first `most` tokens."""
        self.folder, self.manifest, self.split = folder, manifest, split
        self.dtype = np.dtype(manifest.about["dtype"]).newbyteorder("<")
        self._shards = manifest.splits[split]
        self._ends = np.cumsum([shard.count for shard in self._shards])
        self._files: dict[int, int] = {}  # shard → descriptor
        self._length = int(self._ends[-1])
        self.counts = torch.tensor(manifest.about["counts"][split])  # (V,) count of each token
        if most is not None and most < self._length:
            self._length = most
            parts = (self[at : at + AT_ONCE] for at in range(0, most, AT_ONCE))
            self.counts = sum((part.bincount(minlength=len(self.counts)) for part in parts), self.counts * 0)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: slice | Tensor) -> Tensor:
        """Return the tokens at these places, int64. Raises DataError that names a shard that cannot be read."""
        if isinstance(place, slice):
            start, end, _ = place.indices(len(self))
            found = self._read(start, end)
            self._reject_strange(found[None], [start])
            return torch.from_numpy(found.astype(np.int64))
        width = min(place.shape[1], len(self))
        starts = place[:, 0].clamp(max=len(self) - width)
        rows = self._rows(starts.tolist(), width)  # (N, width)
        self._reject_strange(rows, starts.tolist())
        within = place - starts[:, None]  # 0, 1, 2, …, except where a row repeats a place at the stream's ends
        return torch.from_numpy(rows.astype(np.int64)).gather(1, within)

    def ask_for(self, starts: Sequence[int], width: int) -> None:
        """Ask the system to prefetch `width` tokens from each start on, without waiting."""
        if not hasattr(os, "posix_fadvise"):
            return
        size, shards = self.dtype.itemsize, np.searchsorted(self._ends, starts, side="right").tolist()
        for start, shard in zip(starts, shards):
            at = (start - int(self._ends[shard]) + self._shards[shard].count) * size
            os.posix_fadvise(self._file(shard), at, width * size, os.POSIX_FADV_WILLNEED)

    def _rows(self, starts: Sequence[int], width: int) -> npt.NDArray[Any]:
        """Return `width` tokens from each start on, (N, width), with one read per row unless it crosses shards."""
        size, shards = self.dtype.itemsize, np.searchsorted(self._ends, starts, side="right").tolist()
        parts = []
        for start, shard in zip(starts, shards):
            if start + width <= self._ends[shard]:
                first = self._ends[shard] - self._shards[shard].count
                parts.append(self._bytes(shard, int(start - first) * size, width * size))
            else:
                parts.append(self._read(start, start + width).tobytes())
        return np.frombuffer(b"".join(parts), self.dtype).reshape(len(starts), width)

    def _read(self, start: int, end: int) -> npt.NDArray[Any]:
        """Return the tokens from `start` to `end`, across shards."""
        size, parts = self.dtype.itemsize, []
        shard = int(np.searchsorted(self._ends, start, side="right"))
        while start < end:
            last = min(end, int(self._ends[shard]))
            first = int(self._ends[shard]) - self._shards[shard].count
            parts.append(self._bytes(shard, (start - first) * size, (last - start) * size))
            start, shard = last, shard + 1
        return np.frombuffer(b"".join(parts), self.dtype)

    def _bytes(self, shard: int, offset: int, count: int) -> bytes:
        try:
            found = os.pread(self._file(shard), count, offset)
        except OSError as error:
            raise self._lost(shard, error_reason(error)) from error
        if len(found) < count:
            written = self._shards[shard].bytes
            raise self._lost(shard, f"it ends after {offset + len(found):,} bytes, and {written:,} were written")
        return found

    def _reject_strange(self, rows: npt.NDArray[Any], starts: Sequence[int]) -> None:
        """Raise DataError that names the shard if the tokens (N, width) from these starts include an invalid id."""
        if rows.size and rows.max() >= len(self.counts):
            row, column = divmod(int(rows.argmax()), rows.shape[1])
            shard = int(np.searchsorted(self._ends, starts[row] + column, side="right"))
            said = f"it holds token {rows[row, column]:,}, of a vocabulary of {len(self.counts):,}: it is damaged"
            raise self._lost(shard, said)

    def _file(self, shard: int) -> int:
        """Return the descriptor of a shard, and open it if necessary."""
        if shard not in self._files:
            if len(self._files) >= OPEN_AT_MOST:
                os.close(self._files.pop(next(iter(self._files))))
            try:
                with open_regular(self.folder / self._shards[shard].name) as file:
                    self._files[shard] = os.dup(file.fileno())
            except OSError as error:
                raise self._lost(shard, error_reason(error)) from error
        return self._files[shard]

    def _lost(self, shard: int, said: str) -> DataError:
        path = self.folder / self._shards[shard].name
        return DataError("A shard cannot be read any more:", [Problem(str(path), said)], AGAIN)

    def __del__(self) -> None:
        for descriptor in self.__dict__.pop("_files", {}).values():
            os.close(descriptor)


def prefetch_windows(
    tokens: Tensor | ShardTokens, order: Iterable[Tensor], grid: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the starts and lengths of the windows of each batch, (N,) each, as computed by `grid`.

    If they are read from shards, the system prefetches those of the next batch.
    """
    batches = map(grid, order)
    if isinstance(tokens, Tensor):
        yield from batches
        return
    found = next(batches, None)
    while found is not None:
        following = next(batches, None)
        if following is not None:
            starts, lengths = following
            tokens.ask_for(starts.tolist(), int(lengths.max()) + 1)
        yield found
        found = following


def concatenate_streams(streams: Sequence[Tensor | ShardTokens]) -> Tensor | ShardTokens:
    """Return the concatenated tokens of streams, (Σ n,); a stream in shards is returned unchanged."""
    (first, *others) = streams
    if isinstance(first, ShardTokens):
        assert not others, "shards hold one stream"
        return first
    return _concatenate([stream for stream in streams if isinstance(stream, Tensor)])


def _concatenate(streams: list[Tensor]) -> Tensor:
    """Concatenate tensors; a single one is not copied."""
    return streams[0] if len(streams) == 1 else torch.cat(streams)


def damaged_token_shards(tokens: Tensor | ShardTokens, progress: Progress | None = None) -> list[Problem]:
    """Return every shard of these tokens whose checksum differs; empty for a tensor."""
    if isinstance(tokens, Tensor):
        return []
    return find_damaged(tokens.folder, tokens.manifest, (tokens.split,), progress)


def stream_targets(streams: Sequence[Tensor | ShardTokens], first: int) -> tuple[Tensor, Tensor | None]:
    """Return the tokens to be predicted: those of each stream from its `first` on, (n,).

    For a stream in shards these are read with each window, so the tensor is empty, (0,), and the count of each token
    among them, (V,), is returned too.
    """
    tokens = concatenate_streams(streams)
    if isinstance(tokens, Tensor):
        return _concatenate([stream[first:] for stream in streams if isinstance(stream, Tensor)]), None
    counts = tokens.counts.clone()
    counts[tokens[:first]] -= 1  # of one token, or none
    return torch.empty(0, dtype=torch.int64), counts
