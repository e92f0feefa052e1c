"""Entry point for data larger than memory: `cutaway prepare DATA OUT`, and opening OUT as data.

A kind of data has an entry in `SHARDED`, which names two functions of a module of this folder:

    prepare(source: Path, out: Path, settings: DataSettings, how: ShardSettings, progress: Progress) -> Manifest
        Write the shards, by `writer.py`, and the manifest. It rejects settings that do not apply or are chosen at
        training time, by name, and reads its input in parts.
    open(folder: Path, manifest: Manifest, settings: DataSettings, *, sizes: ImageSizes, targets: …) -> DataSet
        Build the data set, whose splits read from the shards. It rejects settings that were fixed by the preparation,
        by name (`reject_settled`). A split that reads shards has `damaged(progress)`, which compares all checksums
        for `cutaway check` (`manifest.damaged`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from ...core.config import as_text, build, pick, shorten
from ...core.errors import DataError, SettingError, join
from ...core.spec import ANY_SIZE, ImageSizes, Target
from ..dataset_base import DataSet
from ..modalities import KINDS
from ..parallel import Progress
from ..settings import DataSettings
from .manifest import Manifest, is_prepared, read_manifest
from .settings import ShardSettings


@dataclass(frozen=True)
class ShardFormat:
    """A kind of data that can be prepared: a module of this folder, and the names of its two functions."""

    module: str
    prepare: str
    open: str

    def member(self, name: str) -> Any:
        """Import the function of that name."""
        return getattr(import_module(f".{self.module}", __package__), name)


_MEDIA = ShardFormat("media", "prepare_media", "open_media")
SHARDED = {
    "text": ShardFormat("text", "prepare_text", "open_text"),
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
        raise DataError(f"{source} is prepared already.", fix=f"Train on it: cutaway train MODEL {source}")
    if kind not in SHARDED:
        raise DataError(
            f"{KINDS[kind].plural.capitalize()} cannot be prepared into shards; what can is "
            f"{join([KINDS[k].plural for k in SHARDED], 'and')}.",
            fix=f"Train on it as it is: cutaway train MODEL {source}",
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
        raise DataError(
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
    for key in (field.name for field in fields(settings)):
        value = getattr(settings, key)
        then = manifest.settings.get(key, getattr(usual, key))
        if key not in free and value not in (getattr(usual, key), then, _as_tuple(then)):
            raise SettingError(
                f"{key}={shorten(as_text(value))} cannot be: {folder} was prepared with {key}={shorten(as_text(then))}."
                " Leave it out, or prepare the data again with it, into another folder."
            )


def _as_tuple(value: Any) -> Any:
    """Convert JSON's lists to the tuples of settings."""
    return tuple(value) if isinstance(value, list) else value
