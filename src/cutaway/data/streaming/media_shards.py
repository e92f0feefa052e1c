"""Class folders of images, recordings or videos as tar shards in the WebDataset convention, with an index.

    photos/cats/1.jpg        OUT/train-00000.tar      cats/1.jpg  cats/1.cls  dogs/7.jpg  dogs/7.cls  …
    photos/dogs/7.jpg …      OUT/index.safetensors    location, class, checksum, size in pixels of each

Files are copied unchanged. They are split here and shuffled within the shards of their split, so that programs that
read shards sequentially get a random order too. The index allows random access by one seek.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import math
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ...core.config import as_text, shorten
from ...core.errors import DataError, IncompatibleSettingError, Problem, UnsupportedDataError
from ...core.files import MEBIBYTE, read_bytes, unreadable_error
from ...core.spec import ImageSizes, Mask, Target
from ..dataset_base import DataSet
from ..folders import FileKind, FolderContents, dominant_kind, find_examples, has_captions
from ..images.detection import is_box_folder
from ..images.segmentation import is_mask_folder
from ..modalities import KINDS as KINDS_OF_DATA
from ..parallel import Progress
from ..settings import DataSettings, ShardSettings
from ..splits import SPLITS, complete_split
from .file_index import Arrays, Index, Names
from .shards import (
    OF_MEDIA,
    Manifest,
    ShardWriteResult,
    begin_preparation,
    file_sha256,
    find_damaged,
    finish_preparation,
    is_prepared,
    num_processes,
    read_manifest,
    reject_fixed_settings,
    require_disk_space,
    save_plan,
    validate_manifest_entries,
    write_shards,
)
from .webdataset import BLOCK, INDEX, KINDS, FileInspector, examples, member_locations

SETTLED = (
    "val",
    "test",
    "split_seed",
    "fold",
    "folds",
    "missing",
)  # fixed when shards are written; all others at training time
OVERHEAD = 4 * BLOCK  # extra bytes of an example in a tar: two headers, its class, padding


@dataclass(frozen=True)
class TarShardJob:
    """A job that writes one shard of these files, in this order."""

    name: str
    looking: FileInspector
    folder: Path
    files: tuple[str, ...]  # in the folder
    keys: tuple[str, ...]
    labels: tuple[int, ...]
    drop: bool  # whether unusable files are left out

    def write(self, path: Path) -> None:
        """Copy the files. Raises DataError that names every unusable file."""
        looks = [self.looking.look(self.folder / file) for file in self.files]
        problems = [look for look in looks if isinstance(look, Problem)]
        if problems and not self.drop:
            raise self.looking.unusable(problems, len(self.files))
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            for file, key, label, look in zip(self.files, self.keys, self.labels, looks):
                if not isinstance(look, Problem):
                    _add(tar, key + Path(file).suffix.lower(), read_bytes(self.folder / file))
                    _add(tar, f"{key}.cls", str(label).encode())

    def look(self, path: Path) -> tuple[int, Arrays]:
        """Return the number of examples in the shard, and their entries for the index."""
        found, problems = examples(path, self.looking.kind)
        looks = [self.looking.look(example.media) for example in found]
        problems += [look for look in looks if isinstance(look, Problem)]
        if problems:
            raise self.looking.unusable(problems, len(self.files))
        members = [example.media for example in found]
        names = Names.pack(f"{self.name}/{member.name}" for member in members)
        label = np.array([example.label for example in found], np.int64)
        own: Arrays = {"label": label, "names": names.data, "lengths": np.diff(names.ends, prepend=0)}
        return len(found), {**member_locations(members, 0), **self.looking.pack(looks), **own}


def prepare_media(
    source: Path, out: Path, settings: DataSettings, how: ShardSettings, progress: Progress = lambda done, of: None
) -> Manifest:
    """Write tar shards of class folders, or resume.

    Raises DataError that names unusable files, SettingError for a setting that does not apply, and FileError.
    """
    kind = _kind(source)
    _reject_training_settings(settings)
    if how.sample != ShardSettings().sample:
        raise IncompatibleSettingError(
            f"sample={how.sample} is for text, of which a tokenizer is fitted: leave it out."
        )
    settled = {key: getattr(settings, key) for key in SETTLED}
    begun = begin_preparation(out, asked := {"data": str(source.resolve()), **settled, "shard_size": how.shard_size})
    if begun.manifest:
        return begun.manifest
    found = find_examples(source, kind)
    if folders := [file for file in found.files if file.is_dir()]:
        raise UnsupportedDataError(
            f"{folders[0]} is a folder of frames, and a shard holds files.", fix="Make a video file of each."
        )
    sizes = [_size(file) for file in found.files]
    listing = hashlib.sha256("".join(f"{size} {name}\n" for size, name in zip(sizes, found.names)).encode(
        errors="surrogateescape")).hexdigest()  # fmt: skip
    if begun.plan is not None and begun.plan != {"files": listing}:
        raise DataError(
            f"The files of {source} are not those that were there when {out} was begun.",
            fix="Prepare them again, into another folder.",
        )
    jobs = _jobs(source, found, sizes, settings, how, file_inspector(kind))
    save_plan(out, asked, {"files": listing})
    flat = [job for of_split in jobs.values() for job in of_split]
    require_disk_space(out, flat, sum(sizes) + OVERHEAD * len(sizes))
    made = [*write_shards(out, flat, num_processes(how.workers, sum(sizes)), progress)]
    index = _index(kind, found.classes, jobs, made)
    index.save(out / INDEX)
    left = len(found.files) - len(index)
    shards = iter(made)
    return finish_preparation(
        out,
        Manifest(
            kind=kind.kind,
            name=source.resolve().name,
            source=str(source),
            fingerprint=index.fingerprint,
            splits={split: [next(shards).shard for _ in of_split] for split, of_split in jobs.items()},
            settings=settled,
            asked=asked,
            notes=[*found.notes, *([f"missing=drop left out {left:,} files that cannot be used."] if left else [])],
            about={"classes": list(found.classes), "index": file_sha256(out / INDEX)},
        ),
    )


def open_media(
    folder: Path, manifest: Manifest, settings: DataSettings, *, sizes: ImageSizes, targets: tuple[type[Target], ...]
) -> DataSet:
    """Build the data set of such shards. Raises SettingError for settings that were fixed when they were written."""
    validate_manifest_entries(folder, manifest, OF_MEDIA)
    free = [field.name for field in dataclasses.fields(settings) if field.name not in SETTLED]
    reject_fixed_settings(settings, manifest, folder, free)
    shares = {key: manifest.settings[key] for key in ("val", "test")}  # 0 if there is no such split
    own = dataclasses.replace(settings, **shares, fold=None, missing="error")
    kind, asked = KINDS_OF_DATA[manifest.kind], {"sizes": sizes, "targets": targets}
    data: DataSet = kind.member(f"dataset.{kind.opens}")(folder, own, **{name: asked[name] for name in kind.asks})
    return dataclasses.replace(data, name=manifest.name, notes=[*manifest.notes, *data.notes])


def damaged_shards(source: str | Path) -> list[Problem]:
    """Return every such shard whose checksum differs; empty for sources that are not shards."""
    path = Path(source).expanduser()
    kinds = [kind.kind for kind in KINDS]
    if not is_prepared(path) or (manifest := read_manifest(path)).kind not in (*kinds, "table"):
        return []
    return find_damaged(path, manifest)


def file_inspector(kind: FileKind) -> FileInspector:
    """Return how files of a kind are inspected; its libraries are imported on demand."""
    folder = KINDS_OF_DATA[kind.kind].folder
    looking: FileInspector = import_module(f"..{folder}.transforms", __package__).SHARDED
    return looking


def _kind(source: Path) -> FileKind:
    """Return the kind of files in class folders. Raises DataError for anything else."""
    other = is_mask_folder(source, (Mask,)) or is_box_folder(source) or has_captions(source)
    kind = None if other or not source.is_dir() else dominant_kind(source)
    for one in KINDS:
        if one.kind == kind:
            return one
    raise UnsupportedDataError(
        f"{source} is not a folder of class folders, and images, audio and videos are prepared from those alone.",
        fix=f"Train on it directly: cutaway train MODEL {source}",
    )


def _reject_training_settings(settings: DataSettings) -> None:
    """Raise SettingError for a setting that does not apply to `prepare`: those of training, and missing=fill."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name not in SETTLED and value != field.default:
            raise IncompatibleSettingError(
                f"{field.name}={shorten(as_text(value))} is chosen in training: files are copied unchanged. "
                "Leave it out."
            )
    if settings.missing == "fill":
        raise IncompatibleSettingError(
            "missing=fill is for tables: files that cannot be used are left out by missing=drop."
        )


def _jobs(
    source: Path,
    found: FolderContents[Any],
    sizes: Sequence[int],
    settings: DataSettings,
    how: ShardSettings,
    looking: FileInspector,
) -> dict[str, list[TarShardJob]]:
    """Return the shards of each split: its files in random order, about `shard_size` MiB each."""
    indices = complete_split(found.labels, found.classes, found.splits, settings)
    keys = _keys(found.names)
    rng = np.random.default_rng(settings.split_seed)
    jobs: dict[str, list[TarShardJob]] = {}
    for split in (name for name in SPLITS if name in indices):
        order = rng.permutation(indices[split])
        bytes_before = np.cumsum([sizes[i] + OVERHEAD for i in order]) - 1
        number = bytes_before // (how.shard_size * MEBIBYTE)
        parts = [order[number == k] for k in np.unique(number)]
        digits = max(5, math.ceil(math.log10(len(parts) + 1)))
        jobs[split] = [
            TarShardJob(
                f"{split}-{k:0{digits}}.tar",
                looking,
                source,
                tuple(found.names[i] for i in part),
                tuple(keys[i] for i in part),
                tuple(found.labels[part].tolist()),
                settings.missing == "drop",
            )
            for k, part in enumerate(parts)
        ]
    return jobs


def _keys(names: Sequence[str]) -> list[str]:
    """Return the key of each file: its name without suffix or dots, with a number if two would be the same."""
    keys: dict[str, None] = {}
    for name in names:
        path = Path(name)
        key = wanted = path.with_name(path.stem.replace(".", "_") or "_").as_posix()
        count = 1
        while key in keys:
            count += 1
            key = f"{wanted}_{count}"
        keys[key] = None
    return list(keys)


def _index(
    kind: FileKind, classes: tuple[str, ...], jobs: dict[str, list[TarShardJob]], made: Sequence[ShardWriteResult]
) -> Index:
    """Build the index of all shards from the results of the jobs."""
    parts: list[Arrays] = []
    splits = [split for split, of_split in jobs.items() for _ in of_split]
    for number, (split, one) in enumerate(zip(splits, made)):
        count = one.shard.count
        own: Arrays = {
            "shard": np.full(count, number, np.int32),
            "split": np.full(count, SPLITS.index(split), np.uint8),
        }
        parts.append({**one.found, **own})
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    names = Names(arrays.pop("names"), np.cumsum(arrays.pop("lengths")))
    return Index(kind.kind, classes, names, arrays, {one.shard.name: [one.shard.bytes] for one in made})


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file with these bytes. Time and owner are left empty, so that a shard depends only on its job."""
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise unreadable_error(file, error) from error
