"""The sides of a studio: open models, their latest frames, and the clients that have not received them.

A frame is made only if a client waits for one and there is news. Training continues while a frame is made and sent; the
states in between are never drawn.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...core.errors import DataError, MissingFileError, MissingSettingError, SettingError, UnknownName
from ...data.open_data import NAMED, where
from ...training.run_folder import read_run
from .choices import SUFFIXES, Uploads, strip_folders
from .ipc import Message
from .setup import FIRST, FURTHEST, Opening, parse_log, parse_number, state_settings
from .workers import Fault, Pair, WorkerEnded

SIDES = ("a", "b")
CONTROLS = ("play", "pause", "step", "epoch", "reset", "seek")
OFTEN, SELDOM = 0.05, 5.0  # minimum and maximum seconds between two frames
SHARE = 3.0  # the pause after a frame, as a multiple of its time: frames take a quarter of a core at most
STILL_HERE = 15.0  # seconds between keep-alive comments on a connection without frames


class Side:
    """One model on the page."""

    def __init__(self, studio: Studio, name: str) -> None:
        self.studio, self.name = studio, name
        self.state: dict[str, str] = {}
        self.watch: dict[str, Any] = {"views": [], "options": {}, "example": None, "try": None}
        self.pair: Pair | None = None
        self.frame: bytes | None = None
        self.number = 0  # number of the frame
        self.step = 0  # step of training at the last reply
        self.heard = 0  # number of changes: a frame holds the number at its start
        self.fresh = asyncio.Event()  # set if the frame is out of date
        self.asked = asyncio.Event()  # set if the change was requested by a client
        self.frames: asyncio.Task[None] | None = None
        self.lock = asyncio.Lock()

    async def open(self, state: dict[str, str]) -> None:
        """Build the model and data of a state. If that fails, the old ones stay. Raises CutawayError."""
        opening = self.studio.resolve_opening(state)
        async with self.lock:
            if self.pair is None or self.pair.ended:
                await self._start()
            assert self.pair is not None
            message = {"do": "open", "opening": opening.to_json()}
            self.pair.viewer.send(message)
            if self.frame is None:
                await self.publish(bare_frame(self.name, state, notes=["Opening …"]))
            try:
                reply, _ = await self.pair.learner.ask(message)
            except Exception as error:
                if not self.state:
                    await self.publish(bare_frame(self.name, state, error=str(error)))
                raise
            self.state, self.step = state, reply["step"]
            self.news()

    async def ask(self, message: Message) -> None:
        """Have the learner execute a message. Raises its errors, and SettingError if the side is closed."""
        if self.pair is None:
            raise MissingSettingError(f"No model is open on side {self.name} yet.")
        reply, _ = await self.pair.learner.ask(message)
        self.step = reply["step"]
        self.news()

    async def save(self, write: bool) -> Message:
        """Return the command and Python code that train the same model; with `write`, also a run. Raises as `ask`."""
        if self.pair is None:
            raise MissingSettingError(f"No model is open on side {self.name} yet.")
        reply, _ = await self.pair.learner.ask({"do": "save", "write": write, "shared": self.shared()})
        self.news()
        return {key: reply[key] for key in ("command", "python", "says", "folder")}

    def shared(self) -> str:
        """Return the command that opens this side in a new studio, without any training since then."""
        state = "&".join(f"{quote(key)}={quote(value, safe=',:;[]@$')}" for key, value in self.state.items())
        return shlex.join(["cutaway", "studio", *([str(self.studio.run)] if self.studio.run else []), f"#{state}"])

    async def weighed(self, name: str, index: list[int]) -> float:
        """Return the current value of one weight. Raises as `ask`."""
        if self.pair is None:
            raise MissingSettingError(f"No model is open on side {self.name} yet.")
        reply, _ = await self.pair.learner.ask({"do": "weigh", "name": name, "index": index})
        return float(reply["value"])

    def news(self) -> None:
        """Mark the frame as out of date after a change."""
        self.heard += 1
        self.asked.set()
        self.fresh.set()

    async def publish(self, frame: bytes) -> None:
        """Make a frame the latest."""
        if self.studio.uploads.files:
            frame = strip_folders(frame.decode(), self.studio.folder).encode()
        self.frame, self.number = frame, self.number + 1
        await self.studio.tell()

    async def close(self) -> None:
        """End the processes of the side."""
        if self.frames is not None:
            self.frames.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.frames
        if self.pair is not None:
            await asyncio.to_thread(self.pair.close)
        self.pair = self.frames = None

    async def _start(self) -> None:
        """Start new processes."""
        await self.close()
        self.pair = Pair(str(self.studio.folder), self.name, self._on_event)
        self.frames = asyncio.create_task(self._make_frames(self.pair))

    def _on_event(self, event: Message) -> None:
        """Request a frame after an event: training has paused, or a process has ended."""
        self.asked.set()
        self.fresh.set()

    async def _make_frames(self, pair: Pair) -> None:
        """Make frames while there are clients."""
        while True:
            await self.fresh.wait()
            await self.studio.wait_for_client(self)
            self.fresh.clear()
            self.asked.clear()
            heard = self.heard
            try:
                head, body = await pair.viewer.ask({"do": "frame", "watch": self.watch})
                if pair.learner.ended:
                    raise WorkerEnded(pair.learner.exit_message())
            except WorkerEnded as error:
                await self.publish(bare_frame(self.name, self.state, error=str(error)))
                await asyncio.to_thread(pair.close)  # both processes are needed
                return
            except Fault as error:
                await self.publish(bare_frame(self.name, self.state, error=str(error)))
                continue
            if head.get("empty"):
                continue
            if head["playing"]:
                self.fresh.set()
            state = {**self.state, "steps": str(head["step"])}
            more = json.dumps({"frame": self.number + 1, "heard": heard, "state": state})
            await self.publish(body[:-1] + b", " + more[1:].encode())
            await self._rest(SHARE * head["seconds"])

    async def _rest(self, seconds: float) -> None:
        """Pause to leave the machine to training; a request of a client ends the pause."""
        await asyncio.sleep(OFTEN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, SELDOM) - OFTEN):
                await self.asked.wait()


class Watcher:
    """A client that receives frames."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}  # number of the last frame received, by side


class Studio:
    """The state of one studio server."""

    def __init__(self, folder: Path, run: Path | None = None) -> None:
        self.folder, self.run = folder, run
        self.uploads = Uploads(folder)
        self.sides = {name: Side(self, name) for name in SIDES}
        self.watchers: set[Watcher] = set()
        self.changed = asyncio.Condition()
        self.closing = False

    # --- opening ----------------------------------------------------------------------------------------------

    def resolve_opening(self, state: Mapping[str, str]) -> Opening:
        """Resolve a state to an opening. Its data must be a named data set on this machine, an uploaded file, or the
        opened run.

        Raises SettingError, UnknownName and DataError.
        """
        data, model = state.get("data", ""), state.get("model", "")
        if not data or not model:
            raise MissingSettingError("Missing data or model: e.g. data=moons and model=mlp.")
        parse_log(state.get("log", ""))
        source, run = self._source(data)
        return Opening(
            model=model,
            source=source,
            given=state_settings(state)
            if data in NAMED or run
            else {**self._upload_defaults(data), **state_settings(state)},
            run=run,
            uploaded=self.uploads.files[data].name if data in self.uploads.files else "",
            anew=state.get("begin") == "seed",
            steps=int(parse_number(state, "steps", FURTHEST)),
            log=state.get("log", ""),
            speed=parse_number(state, "speed", 1e6),
        )

    def _source(self, data: str) -> tuple[str, str | None]:
        """Return the source of the data and the run's folder, if it is the run's."""
        if data == "run":
            if self.run is None:
                raise MissingSettingError("No run is open: start `cutaway studio RUN`.")
            return "", str(self.run)
        if data in self.uploads.files:
            return str(self.uploads.files[data].path), None
        if data not in NAMED and Path(data).suffix.lower() in SUFFIXES and Path(data).name == data:
            raise DataError(
                f"{data} was uploaded to a studio that has stopped.",
                fix="Upload it again, under Data: Your own file.",
            )
        if data not in NAMED:
            raise UnknownName("data set", data, [*NAMED, *self.uploads.files], "Paths cannot be opened from the page.")
        if where(data) is None:
            raise MissingFileError(
                f"{data} is not on this machine, and the studio downloads nothing.",
                fix=f"`cutaway check MODEL {data}` downloads it.",
            )
        return data, None

    def _upload_defaults(self, data: str) -> dict[str, str]:
        """Return the default settings for an uploaded file: the target is its last column."""
        file = self.uploads.files[data]
        return {"target": file.columns[-1]} if file.columns else {}

    def first_state(self) -> dict[str, str]:
        """Return the state to open by default."""
        if self.run is None:
            return dict(FIRST)
        return {"data": "run", "model": str(read_run(self.run)["model"])}

    # --- sides ------------------------------------------------------------------------------------------------

    def side(self, name: Any) -> Side:
        """Return a side by its name. Raises SettingError."""
        if name not in SIDES:
            raise SettingError("Invalid side: must be a or b.")
        return self.sides[name]

    def both(self, name: Any) -> list[Side]:
        """Return one side, or all open sides for the name "both"."""
        return [side for side in self.sides.values() if side.pair] if name == "both" else [self.side(name)]

    async def close(self) -> None:
        """Close all sides and delete the studio's folder."""
        self.closing = True
        await self.tell()
        await asyncio.gather(*(side.close() for side in self.sides.values()))
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- clients ----------------------------------------------------------------------------------------------

    async def tell(self) -> None:
        """Wake all waiting clients."""
        async with self.changed:
            self.changed.notify_all()

    async def wait_for_client(self, side: Side) -> None:
        """Wait until a client has received the last frame of this side and waits for the next."""
        async with self.changed:
            await self.changed.wait_for(lambda: any(w.seen.get(side.name, 0) == side.number for w in self.watchers))

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the latest frames of all sides as server-sent events."""
        watcher = Watcher()
        self.watchers.add(watcher)
        try:
            yield b"retry: 1000\n\n"
            while not self.closing:
                new = self._new(watcher)
                for side in new:
                    number, frame = side.number, side.frame
                    yield b"event: frame\nid: %s-%d\ndata: %s\n\n" % (side.name.encode(), number, frame)
                    watcher.seen[side.name] = number  # it was sent: the server's buffer has room again
                    await self.tell()
                if not new:
                    yield await self._news(watcher)
        finally:
            self.watchers.discard(watcher)

    def _new(self, watcher: Watcher) -> list[Side]:
        """Return the sides with a frame that a client has not received."""
        return [s for s in self.sides.values() if s.frame is not None and watcher.seen.get(s.name, 0) != s.number]

    async def _news(self, watcher: Watcher) -> bytes:
        """Wait for a new frame, or return a keep-alive comment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STILL_HERE), self.changed:
                await self.changed.wait_for(lambda: self.closing or bool(self._new(watcher)))
                return b""
        return b": still here\n\n"


def bare_frame(side: str, state: Mapping[str, str], error: str | None = None, notes: list[str] | None = None) -> bytes:
    """Return a frame without views, for a side that is being opened or failed to open."""
    frame = {
        "side": side, "epoch": 0, "step": 0, "at": 0, "playing": False, "replaying": False, "rate": 0.0, "lr": None,
        "loss": {"train": None, "val": None}, "metrics": {}, "history": {"step": [], "train": [], "val": []},
        "snapshots": [], "views": [], "names": {"weights": [], "layers": [], "views": []}, "notes": notes or [],
        "state": dict(state), "log": "", "error": error,
    }  # fmt: skip
    return json.dumps(frame).encode()


__all__ = ["CONTROLS", "SIDES", "Side", "Studio", "bare_frame"]
