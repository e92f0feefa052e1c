"""A studio of its own, as a person starts it, and a page that watches it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PATIENCE = 120.0  # seconds; a machine may be busy
# As the command starts: its own folder is on the path, and the working folder is not.
COMMAND = [sys.executable, "-c", "import sys; del sys.path[0]; from cutaway.apps.cli import main; sys.exit(main())"]
IMPORTED_EARLY = ("random", "tempfile", "selectors", "struct", "json", "numpy", "torch", "cutaway_page")


class Page:
    """What a page sees, and what it can ask."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.frames: dict[str, dict[str, Any]] = {}
        self.counts: dict[str, int] = {}
        self.changed = threading.Condition()
        self.away = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(f"{self.url}events") as events:
            for line in events:
                if self.away:
                    return
                if line.startswith(b"data: "):
                    frame = json.loads(line[6:])
                    with self.changed:
                        self.frames[frame["side"]] = frame
                        self.counts[frame["side"]] = self.counts.get(frame["side"], 0) + 1
                        self.changed.notify_all()

    def close(self) -> None:
        """Look no more."""
        self.away = True

    def post(self, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        """Ask, and give the status and what was said."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def do(self, path: str, **body: Any) -> None:
        """Ask what must be granted, and wait until it is seen."""
        status, said = self.post(path, **body)
        assert status == 200, said
        if path != "close" and body["side"] != "both":
            self.wait(lambda f: f.get("heard", -1) >= said["heard"], body["side"])

    def wait(
        self, what: Callable[[dict[str, Any]], bool], side: str = "a", patience: float = PATIENCE
    ) -> dict[str, Any]:
        """The first frame of a side, from now on, of which that is true."""
        with self.changed:
            found = self.changed.wait_for(lambda: side in self.frames and what(self.frames[side]), patience)
            last = {key: self.frames.get(side, {}).get(key) for key in ("step", "epoch", "playing", "error", "notes")}
            assert found, last
            return self.frames[side]

    def open(self, side: str = "a", **state: str) -> dict[str, Any]:
        """Open a side, and wait until it is seen."""
        self.do("open", side=side, state={key.replace("__", "."): value for key, value in state.items()})
        return self.frames[side]

    def next(self, side: str = "a") -> dict[str, Any]:
        """The next frame of a side."""
        before = self.counts.get(side, 0)
        return self.wait(lambda f: self.counts[side] > before, side)


class Served:
    """A running studio."""

    def __init__(self, *words: str, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*COMMAND, "studio", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=working_folder(self.work),
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.page: Page | None = None

    @property
    def port(self) -> int:
        """The port that it has found."""
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/[\w-]{32}/", self.url)
        assert found, self.url
        return int(found[1])

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal and give the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return status

    def family(self) -> set[int]:
        """Its process and all that came from it."""
        found, parents = {self.process.pid}, _parents()
        for _ in range(5):
            found |= {pid for pid, parent in parents.items() if parent in found}
        return found


def working_folder(folder: Path) -> Path:
    """A folder that a person works in, with files of theirs that are named as modules are: whoever runs one of them
    writes its name into the file `ran`."""
    folder.mkdir(exist_ok=True)
    for name in IMPORTED_EARLY:
        text = f"open({str(folder / 'ran')!r}, 'a').write('{name} ')\nraise SystemExit(3)\n"
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


@contextlib.contextmanager
def served(*words: str, folder: Path) -> Iterator[Served]:
    """A studio for as long as the context lasts."""
    studio = Served(*words, folder=folder)
    try:
        yield studio
    finally:
        if studio.process.poll() is None:
            studio.stop()


def gone(pids: set[int], patience: float = 30.0) -> set[int]:
    """Those of the processes that are still there after a while."""
    end = time.monotonic() + patience
    while time.monotonic() < end and (left := {pid for pid in pids if _runs(pid)}):
        time.sleep(0.1)
    return left


def resident(pid: int) -> int:
    """KiB of a process that lie in memory and are its own."""
    text = Path(f"/proc/{pid}/status").read_text()
    return sum(int(found) for found in re.findall(r"^RssAnon:\s+(\d+) kB", text, re.MULTILINE))


def _parents() -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def _runs(pid: int) -> bool:
    """Whether it is there and more than a name in a list."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
