"""Catalog entries of the built-in data sets: contents, licence, citation and source, and the download of their files.

A file is downloaded only if its data set was requested by name, under a temporary name, and is kept only if its sha256
is the published one.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ...core.errors import DataError, DownloadError, FileError
from ...core.files import atomic_write, open_regular
from ...core.spec import ImageSizes, Target
from ..settings import DataSettings


@dataclass(frozen=True)
class NamedSet:
    """Catalog entry of a data set."""

    title: str
    kind: str  # table, image, text, seq2seq, series, audio, video or graph
    task: str  # classification, regression, …
    sizes: str  # number and kind of examples
    licence: str
    citation: str
    target: str = "class"  # default target column
    folder: str = ""  # folder of its files, below $CUTAWAY_DATA and the cache
    files: tuple[Remote, ...] = ()  # downloads; empty if no file is needed
    enough: tuple[str, ...] = ()  # required files, if not all are

    @property
    def sums(self) -> dict[str, str]:
        """Return the published sha256 of each file below the folder."""
        return {name: sha256 for remote in self.files for name, sha256 in remote.contents}

    @property
    def needed(self) -> tuple[str, ...]:
        """Return the required files below the folder."""
        return self.enough or tuple(self.sums)


@dataclass(frozen=True)
class Request:
    """Arguments of the function that loads a built-in data set."""

    name: str
    named: NamedSet
    place: Path  # folder of its files
    settings: DataSettings
    sizes: ImageSizes  # input sizes that the model accepts
    targets: tuple[type[Target], ...] = ()  # target types that the model requests, if any


def remote_files(home: str, *files: tuple[str, int, str]) -> tuple[Remote, ...]:
    """Create the downloads of files (name, bytes, sha256) in the same remote folder."""
    return tuple(Remote(name, home + name, sha256, size) for name, size, sha256 in files)


CHUNK = 1 << 18  # bytes read at a time
TIMEOUT = 30.0  # seconds without a byte

OnBytes = Callable[[int], None]  # called with the number of new bytes


@dataclass(frozen=True)
class Remote:
    """A file and its URL."""

    name: str
    url: str
    sha256: str
    size: int  # bytes
    members: tuple[tuple[str, str], ...] = ()  # of a .tar.gz: files to extract, and the sha256 of each
    whole: str = ""  # of a .tar.gz: a folder to extract; `members` are its first and last file

    @property
    def contents(self) -> tuple[tuple[str, str], ...]:
        """Return the resulting files and the sha256 of each."""
        return self.members or ((self.name, self.sha256),)


def data_roots() -> list[Path]:
    """Return the folders to search for data sets in order: $CUTAWAY_DATA, if set, and the cache."""
    own = os.environ.get("CUTAWAY_DATA")
    return [*([Path(own).expanduser()] if own else []), cache()]


def cache() -> Path:
    """Return $CUTAWAY_CACHE, or the platform's cache folder of the user."""
    given = os.environ.get("CUTAWAY_CACHE")
    if given:
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "cutaway"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "cutaway" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutaway"


def download_missing(remotes: Sequence[Remote], folder: str) -> Path:
    """Download the missing files of `remotes` into the cache's `folder`, with a progress bar on a terminal.

    Returns the folder. Raises FileError that says where to put the file manually if the download fails.
    """
    place = cache() / folder
    missing = [r for r in remotes if not all((place / name).is_file() for name, _ in r.contents)]
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        for remote in missing:
            task = progress.add_task(remote.name, total=remote.size)
            try:
                download_file(remote, place, partial(progress.advance, task))
            except FileError as error:
                wanted = ", ".join(name for remote in missing for name, _ in remote.contents)
                raise DownloadError(
                    f"{error} To put the files there by hand, set CUTAWAY_DATA to a folder of yours and place in its "
                    f"{folder}/: {wanted}."
                ) from error
    return place


def download_file(remote: Remote, place: Path, on_bytes: OnBytes = lambda count: None) -> None:
    """Download one file into the folder `place`, verify its hash, and extract it if it is an archive.

    An existing file of that name is replaced only by a complete file. Raises FileError otherwise.
    """
    path = place / remote.name
    with atomic_write(path) as temporary:
        found = _transfer(remote.url, temporary, on_bytes)
        if found != remote.sha256:
            raise FileError(
                f"{remote.url} was downloaded and is not the published file: its sha256 is {found}, and should be "
                f"{remote.sha256}. Nothing of it was kept."
            )
    if remote.members:
        unpack(path, [name for name, _ in remote.members], place, remote.whole)
        path.unlink()


def unpack(archive: Path, members: Sequence[str], place: Path, whole: str = "") -> None:
    """Extract these members of a .tar.gz below `place`, or all files of its folder `whole`.

    Files of `whole` keep their path from that folder's name on. Raises DataError if a member is missing.
    """
    missing = set(members)
    above = whole.rpartition("/")[0] + "/" if "/" in whole else ""
    with tarfile.open(archive, "r|gz") as opened:  # read sequentially
        for member in opened:
            name = member.name.removeprefix(above)
            wanted = name in missing or (whole and member.name.startswith(f"{whole}/") and ".." not in name.split("/"))
            stream = opened.extractfile(member) if wanted else None
            if stream is not None:
                with atomic_write(place / name) as temporary:
                    temporary.write_bytes(stream.read())
                missing.discard(name)
    if missing:
        raise DataError(f"{archive} has no file {', '.join(sorted(missing))}.")


def file_sha256(path: Path) -> str:
    """Compute the sha256 of a file's bytes."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _transfer(url: str, path: Path, on_bytes: OnBytes) -> str:
    """Download `url` to `path` and return its sha256. Raises FileError if that fails or is incomplete."""
    digest, received = hashlib.sha256(), 0
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "cutaway"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response, path.open("wb") as out:
            length = response.headers.get("Content-Length")
            while chunk := response.read(CHUNK):
                out.write(chunk)
                digest.update(chunk)
                received += len(chunk)
                on_bytes(len(chunk))
    except urllib.error.HTTPError as error:
        raise DownloadError(
            f"{url} could not be downloaded: the server answers {error.code} {error.reason}."
        ) from error
    except urllib.error.URLError as error:
        raise DownloadError(f"{url} could not be downloaded: {error.reason}. Is there a network?") from error
    except (TimeoutError, ConnectionError, HTTPException) as error:
        raise DownloadError(f"{url} broke off after {received:,} bytes: {error or type(error).__name__}.") from error
    if length is not None and received != int(length):
        raise DownloadError(f"{url} broke off after {received:,} of {int(length):,} bytes.")
    return digest.hexdigest()
