"""Choices in the studio: data, with uploaded files, models with their settings, training settings, and views.

Uploaded files are stored in the studio's folder and referred to by name.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import io
import re
import typing
from collections.abc import AsyncIterator
from dataclasses import dataclass
from filecmp import cmp
from pathlib import Path
from typing import Any

from ...core.config import as_text
from ...core.errors import DataError, UnsupportedDataError, WriteError
from ...core.files import empty_file_error
from ...data.datasets.toy_data import TOYS
from ...data.open_data import NAMED, where
from ...data.settings import DataSettings
from ...data.tables.table_files import TABLE_SUFFIXES, read_table
from ...models.config import field_descriptions
from ...models.registry import Preset, presets
from ...nn.activations import ACTIVATIONS
from ...training.config import TrainSettings
from ...views.registry import VIEWS
from .setup import ALSO, LEARNS, default_state, small_settings
from .trainer import DRAWN, LIVE

TRAINING = (
    *("lr", "batch_size", "optimizer", "weight_decay", "momentum", "grad_clip", "schedule", "epochs", "warmup", "seed"),
    *("label_smoothing", "class_weights", "sampling", "loss"),
)
DATA = (
    "noise",
    "count",
    "target",
    "text",
    "forecast",
    "horizon",
    "max_samples",
    "scale",
    "missing",
    "length",
    "tokenizer",
    "val",
    "test",
)
# Set by the data.
FITTED = (
    "in_features",
    "in_channels",
    "num_classes",
    "vocab_size",
    "target_vocab_size",
    "image_size",
    "graph_level",
    "horizon",
    "known_future",
    "token_types",
)
ALWAYS_LIVE = ("activation", "dropout")  # model settings that change no weights
SPEED = {
    "key": "speed",
    "type": "float",
    "default": "60",
    "says": "maximum steps per second; 0: no limit",
    "choices": None,
    "low": 0,
    "high": 1e6,
    "live": True,
}


def choices(run: str | None = None) -> dict[str, Any]:
    """Return all choices as JSON values; `run` is the name of the opened run, if any."""
    return {
        "data": [*([_of_run(run)] if run else []), *(_data(name) for name in NAMED)],
        "models": _models(),
        "settings": [*_settings(TrainSettings, TRAINING), *_settings(DataSettings, DATA), SPEED],
        "views": [{"name": name, "says": view.says, "options": dict(view.options)} for name, view in VIEWS.items()],
    }


def _data(name: str) -> dict[str, Any]:
    named = NAMED[name]
    here, toy = where(name) is not None, name in TOYS
    return describe_data(name, named.kind, named.title, named.task, here, toy)


def describe_data(name: str, kind: str, title: str, task: str, here: bool = True, toy: bool = False) -> dict[str, Any]:
    """Describe data to choose: its kind, its possible targets, and the default state to open it with."""
    return {
        "name": name, "kind": kind, "title": title, "task": task, "here": here, "toy": toy,
        "learns": [*LEARNS.get(task, ()), *ALSO.get(name, ())], "begins": default_state(name, kind, task),
    }  # fmt: skip


def _of_run(run: str) -> dict[str, Any]:
    return describe_data("run", "run", f"The data of {run}", "")


@functools.cache
def _models() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "family": found.card.card.family,
            "takes": list(found.takes),
            "learns": [target.__name__ for target in found.targets],
            "small": small_settings(found),
            "settings": _of_model(found),
        }
        for name, found in presets().items()
    ]


def _of_model(found: Preset) -> list[dict[str, Any]]:
    """Return the model's own settings, without those that the data sets."""
    sentences, hints = field_descriptions(type(found.config)), typing.get_type_hints(type(found.config))
    return [
        {
            "key": f"model.{field.name}",
            "type": _type(hints[field.name]),
            "default": as_text(getattr(found.config, field.name)),
            "says": sentences[field.name],
            "choices": _choices(found, field.name),
            "live": field.name in ALWAYS_LIVE,
        }
        for field in dataclasses.fields(found.config)
        if field.name not in FITTED
    ]


def _choices(found: Preset, name: str) -> list[str] | None:
    """Return the values of a categorical setting: the list under its name in the model's module (`norm`: NORMS)."""
    value = getattr(found.config, name)
    if name == "activation" and value in ACTIVATIONS:
        return list(ACTIVATIONS)
    listed = next(
        (getattr(found.module, n, None) for n in (f"{name.upper()}S", name.upper(), f"{name.upper()}ES")), None
    )
    return [str(word) for word in listed] if isinstance(value, str) and listed and value in listed else None


def _settings(group: type, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Describe settings of a group, from the metadata of its fields."""
    found, hints = {f.name: f for f in dataclasses.fields(group)}, typing.get_type_hints(group)
    return [
        {
            "key": name,
            "type": _type(hints[name]),
            "default": as_text(found[name].default),
            "says": found[name].metadata["help"],
            "choices": list(found[name].metadata["choices"]) or None,
            "low": found[name].metadata["low"],
            "high": found[name].metadata["high"],
            "live": name in (*LIVE, *DRAWN),
        }
        for name in names
    ]


def _type(hint: Any) -> str:
    """Return the name of a type: int, float, bool or str; ints, floats or strs for tuples of them."""
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)] or [hint]
    if typing.get_origin(hint) is tuple or typing.get_origin(kinds[0]) is tuple:
        inner = typing.get_args(hint if typing.get_origin(hint) is tuple else kinds[0])[0]
        return f"{inner.__name__}s"
    return str(kinds[0].__name__)


LARGEST = 64 * 2**20  # bytes of one file
LARGEST_IMAGE, IMAGES = 16 * 2**20, 8  # bytes of one input image, and number of images kept
PIXELS = 50_000_000
TOGETHER = 512 * 2**20
SUFFIXES = (*TABLE_SUFFIXES, ".txt")


class TooLarge(DataError):
    """An upload above the size limit."""

    code = "CUT-603"


@dataclass(frozen=True)
class Upload:
    """One uploaded file."""

    name: str  # its name on the page
    path: Path
    title: str  # its original name
    kind: str
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, without the path."""
        return {**self.choice(), "data": self.name, "columns": list(self.columns), "notes": list(self.notes)}

    def choice(self) -> dict[str, Any]:
        """Return the file as an entry of the data choices."""
        if self.kind == "text":
            return describe_data(self.name, "text", self.title, "language modelling")
        # The target decides whether the task is classification or regression.
        return {**describe_data(self.name, "table", self.title, "classification"), "learns": ["Classes", "Value"]}


class Uploads:
    """All uploaded files of one studio."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, dict[str, Upload]()
        self.taken, self.number, self.images = 0, 0, 0

    async def take(self, title: str, body: AsyncIterator[bytes]) -> Path:
        """Write a body to a new file under a sanitized name.

        Raises DataError for a suffix other than of tables or text, TooLarge, and FileError if writing fails.
        """
        stem, suffix = plain_name(title)
        self.number += 1
        path = self.folder / f"file-{self.number}" / f"{stem}{suffix}"
        size = 0
        try:
            path.parent.mkdir(mode=0o700)
            with path.open("xb") as file:
                async for piece in body:
                    size += len(piece)
                    if size > LARGEST:
                        raise TooLarge(
                            f"{title[:80]} is larger than {LARGEST >> 20} MiB: use its path with `cutaway train`."
                        )
                    if self.taken + size > TOGETHER:
                        raise TooLarge(
                            f"All uploads together are larger than {TOGETHER >> 20} MiB: restart the studio."
                        )
                    file.write(piece)
        except OSError as error:
            raise WriteError(f"{title[:80]} could not be saved: {error.strerror or error}.") from error
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        self.taken += size
        return path

    async def take_image(self, body: AsyncIterator[bytes]) -> int:
        """Store an image as PNG, delete old ones, and return its number. Raises DataError for an invalid image, and
        TooLarge."""
        content = bytearray()
        async for piece in body:
            content += piece
            if len(content) > LARGEST_IMAGE:
                raise TooLarge(f"The image is larger than the limit of {LARGEST_IMAGE >> 20} MiB.")
        self.images += 1
        number = self.images
        path = self.folder / f"image-{number}.png"
        await asyncio.to_thread(_save_as_png, bytes(content), path)
        (self.folder / f"image-{number - IMAGES}.png").unlink(missing_ok=True)
        return number

    def look(self, path: Path, title: str) -> Upload:
        """Read a stored file and register it. Raises what reading raises, and deletes the file in this case."""
        columns: tuple[str, ...] = ()
        notes: tuple[str, ...] = ()
        kind = "text" if path.suffix == ".txt" else "table"
        try:
            if kind == "table":
                table = read_table(path)
                columns, notes = tuple(table.columns), tuple(table.notes)
            elif not path.stat().st_size:
                raise empty_file_error(title[:80])
        except BaseException:
            self.taken -= path.stat().st_size
            path.unlink()
            raise
        name, number = path.name, 1
        while name in self.files:
            if cmp(self.files[name].path, path, shallow=False):  # uploaded before
                self.taken -= path.stat().st_size
                path.unlink()
                return self.files[name]
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        found = Upload(name, path, title[:80], kind, columns, notes)
        self.files[found.name] = found
        return found


def plain_name(title: str) -> tuple[str, str]:
    """Return a stem of letters, digits, - and _, and the suffix. Raises DataError for a suffix that is not accepted."""
    stem, dot, suffix = title.rpartition(".")
    if f"{dot}{suffix.lower()}" not in SUFFIXES:
        raise UnsupportedDataError(
            f"{title[:80]!r} is not supported: must be a table ({', '.join(TABLE_SUFFIXES)}) or a text (.txt).",
            fix="Use the path of other data with `cutaway train`, and open the run with `cutaway studio RUN`.",
        )
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem)[:40].strip("-") or "data", f".{suffix.lower()}"


def _save_as_png(content: bytes, path: Path) -> None:
    """Write an image as PNG, rotated by its EXIF orientation. Raises DataError for an invalid image."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > PIXELS:
                raise TooLarge(f"The image is larger than the limit of {PIXELS:,} pixels.")
            upright = ImageOps.exif_transpose(image)
            whole = upright if upright.mode in ("1", "L", "RGB", "RGBA") else upright.convert("RGB")
            whole.save(path, format="PNG")
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        path.unlink(missing_ok=True)
        if isinstance(error, DataError):
            raise
        raise UnsupportedDataError(
            "The file is not a readable image.", fix="Supported formats are PNG, JPEG, GIF, WebP and others."
        ) from error


def strip_folders(text: str, folder: Path) -> str:
    """Remove the folder of an uploaded file from a message."""
    return re.sub(re.escape(str(folder)) + r"/file-\d+/", "", text)
