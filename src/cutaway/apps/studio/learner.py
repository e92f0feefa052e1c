"""The process that trains one side. Between two updates it does what it is told, and hands over its weights when it is
asked for them; nothing else ever stands between one update and the next."""

from __future__ import annotations

import contextlib
import math
import queue
import shlex
import signal
import sys
import time
import traceback
from collections import deque
from dataclasses import fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from ...core.config import as_text
from ...core.errors import CutawayError, SettingError, TrainingError
from ...data.datasets.builtin import TOYS, drawn_with
from ...models.registry import presets
from .export_run import same_again, save
from .history import digits
from .ipc import Line, Message, end_with_parent
from .setup import build_side, learners_of
from .shared_memory import shared_row
from .state import FURTHEST, Change, Opening, number_of, read_log, written_log
from .trainer import DRAWN, LIVE, Live, words_of

RATE_OVER = 0.5  # seconds that a rate is measured over, at least
SHOWN = (
    "lr",
    "batch_size",
    "weight_decay",
    "optimizer",
    "momentum",
    "grad_clip",
    "schedule",
    "seed",
)  # with their values
CHANGED = {"event": "changed"}


def learn(commands: Connection, viewer: Connection, folder: str, side: str, threads: int | None) -> None:
    """What the process does until the studio is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the studio, which then ends this
    if threads:
        torch.set_num_threads(threads)
    Learner(commands, viewer, Path(folder), side).run()


class Learner:
    """A side's training, and its ear for commands."""

    def __init__(self, commands: Connection, viewer: Connection, folder: Path, side: str) -> None:
        self.folder, self.side = folder, side
        self.inbox: queue.SimpleQueue[tuple[str, Message]] = queue.SimpleQueue()
        self.studio = Line(commands, "studio", self.inbox, end_with_parent(str(folder)))
        self.viewer = Line(viewer, "viewer", self.inbox)
        self.live: Live | None = None
        self.opening: Opening | None = None
        self.playing, self.error = False, ""
        self.until: float = math.inf  # the step at which play ends
        self.to_turn = False  # whether it ends with the epoch
        self.replay: deque[Change] = deque()  # what is to be done again
        self.speed, self.next_at = 0.0, 0.0  # steps in a second, at most; when the next one may be
        self.mark = (0.0, 0)  # a moment, and the step then
        self.rate = 0.0
        self.files = 0  # that weights were handed over in

    def run(self) -> None:
        """Answer and train, for ever."""
        while True:
            if not self.inbox.empty() or not self.playing:
                self._answer(*self.inbox.get())
            elif self.speed and not self.replaying and (wait := self.next_at - time.perf_counter()) > 0:
                self._wait(wait)
            else:
                self._advance()

    @property
    def replaying(self) -> bool:
        """Whether it trains up to where a URL says that it stood."""
        return self.until < math.inf and not self.to_turn

    def _wait(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._answer(*self.inbox.get(timeout=seconds))

    # --- training ---------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """One update, and what a log asks for before it."""
        live = self.live
        assert live is not None, "it plays"
        if self.speed:
            now = time.perf_counter()
            self.next_at = max(self.next_at + 1 / self.speed, now)  # what was lost is not made good in a burst
        try:
            self._do_again(live)
            if live.step >= self.until:
                self._pause()
            elif live.advance() and (self.to_turn or live.ended):
                live.ended = False
                self._pause()
        except TrainingError as error:
            self._fail(words_of(error))
        except CutawayError as error:
            self._fail(str(error))
        except RuntimeError as error:  # PyTorch's: no memory left, an input that a layer cannot take
            traceback.print_exc(file=sys.stderr)
            self._fail(f"Training stopped: {str(error).splitlines()[0]}")

    def _do_again(self, live: Live) -> None:
        """The changes that a log has for this step."""
        while self.replay and self.replay[0].step <= live.step:
            change = self.replay.popleft()
            try:
                live.do_again(change)
            except CutawayError as error:
                live.notes.append(f"{change} was not done again: {error}")

    def _pause(self) -> None:
        """Stop, and let the studio know."""
        self.playing, self.until, self.to_turn = False, math.inf, False
        self.studio.send(CHANGED)

    def _fail(self, words: str) -> None:
        self.error = words
        self._pause()

    # --- commands ---------------------------------------------------------------------------------------------

    def _answer(self, line: str, message: Message) -> None:
        """Do what a message asks, and say so, or say why not."""
        if line == "viewer":
            self.viewer.send(self._handed_over())
            return
        reply: Message = {"id": message.get("id")}
        try:
            reply |= getattr(self, f"do_{message['do']}")(message) or {}
            reply["step"] = self.live.step if self.live is not None else 0
        except CutawayError as error:
            reply["error"] = str(error)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            reply["fault"] = f"Internal error: {type(error).__name__}: {error}. The server log has the details."
        self.studio.send(reply)

    def do_open(self, message: Message) -> None:
        """Build what is asked for; what was there goes on where this cannot be built."""
        opening = Opening(**message["opening"])
        changes = read_log(opening.log)
        live = Live(build_side(opening), self.folder)
        self.live, self.opening, self.error = live, opening, ""
        self.speed = opening.speed
        self.replay = deque(changes)
        goal = max([opening.steps, *(change.step for change in changes)])
        self.playing, self.until, self.to_turn = False, math.inf, False
        if goal > live.step or changes:
            self.playing, self.until = True, min(goal, FURTHEST)
        self._new_file(live)

    def do_control(self, message: Message) -> None:
        """Play, pause, one step, one epoch, back to the beginning, or a look at an earlier step."""
        live, what = self._opened(), message["what"]
        if what in ("play", "step", "epoch"):
            if self.error:
                raise SettingError(self.error)
            self.playing, self.to_turn = True, what == "epoch"
            self.until = live.step + 1 if what == "step" else math.inf
            live.at = None
        elif what == "pause":
            self.playing, self.until, self.to_turn = False, math.inf, False
        elif what == "reset":
            live.begin()
            self.playing, self.until, self.to_turn, self.error = False, math.inf, False, ""
            self.replay.clear()
            self._new_file(live)
        elif what == "seek":
            self.playing = False
            live.seek(int(message["to"]))

    def do_change(self, message: Message) -> None:
        """Another setting from now on."""
        key, value = message["key"], message["value"]
        if key == "speed":
            self.speed = number_of({"speed": value}, "speed", 1e6)
            self.next_at = 0.0
            return
        live = self._opened()
        self.replay.clear()  # what is changed now makes another story of it
        live.change(key, value)
        self._new_file(live)

    def do_weigh(self, message: Message) -> Message:
        """One weight as it is now."""
        return {"value": self._opened().weighed(message["name"], tuple(message["index"]))}

    def do_weight(self, message: Message) -> None:
        """One weight, by hand."""
        self.replay.clear()
        self._opened().weigh(message["name"], tuple(message["index"]), message["value"])

    def do_save(self, message: Message) -> Message:
        """The command and the Python that train the same, and where the run is that was written, if one was."""
        live, opening = self._opened(), self.opening
        assert opening is not None, "something is open"
        # What is shared has the steps and the changes of now.
        shared = message["shared"] if not live.log else _with_log(message["shared"], live.step, written_log(live.log))
        folder = save(live, opening, shared) if message["write"] else None
        source = opening.uploaded or live.ready.data.source
        if folder and opening.uploaded:
            source = str(folder / "data" / opening.uploaded)
        return {**same_again(live, opening, source, shared), "folder": str(folder) if folder else None}

    def _opened(self) -> Live:
        if self.live is None:
            raise SettingError("Nothing is open on this side yet.")
        return self.live

    # --- handing over -----------------------------------------------------------------------------------------

    def _new_file(self, live: Live) -> None:
        """A file for the weights, which may be of another size than before."""
        before = self._file()
        self.files += 1
        self.row = shared_row(self._file(), live.layout.size)
        before.unlink(missing_ok=True)
        self.mark = (time.perf_counter(), live.step)

    def _file(self) -> Path:
        return self.folder / f"weights-{self.side}-{self.files}"

    def _handed_over(self) -> Message:
        """The weights in the file, and in words what they are."""
        live, opening = self.live, self.opening
        if live is None or opening is None:
            return {"empty": True}
        live.write(self.row)
        given = {**opening.given, **{change.key: change.value for change in live.log if change.index is None}}
        return {
            "opening": {**opening.to_json(), "given": given},
            "file": str(self._file()),
            "size": live.layout.size,
            "frame": self._frame(live, opening),
        }

    def _frame(self, live: Live, opening: Opening) -> dict[str, Any]:
        """All of a frame but its views."""
        state, ready, curves = live.state, live.ready, live.curves
        metrics = live.metrics(patient=not self.playing)
        model = live.trainer.model
        return {
            "side": self.side,
            "epoch": state.epoch,
            "step": live.step,
            "at": live.step if live.at is None else live.at,
            "playing": self.playing,
            "replaying": self.playing and self.replaying,
            "to_end": self.playing and self.to_turn,  # of the epoch, and no further
            "rate": self._rate(live),
            "lr": state.lr,
            "loss": {"train": digits(curves.latest), "val": digits(metrics.get("loss"))},
            "measured": live.measured_at if metrics else None,
            "metrics": {key: digits(value) for key, value in metrics.items() if key != "loss"},
            "history": curves.to_json(),
            "snapshots": live.snapshots.steps,
            "names": {
                "weights": [{"name": name, "shape": list(p.shape)} for name, p in model.named_parameters()],
                "layers": [name for name, _ in model.named_modules() if name],
            },
            "data": {
                "name": ready.data.name,
                "kind": ready.data.spec.kind,
                "target": ready.data.spec.target.column,
                "splits": {name: len(split) for name, split in ready.data.splits.items()},
                "notes": ready.data.notes,
            },
            "models": learners_of(ready, list(presets().values())),
            "settings": self._settings(live),
            "live": [*LIVE, *(DRAWN if ready.data.name in TOYS else ())],
            "notes": list(live.notes),
            "log": written_log(live.log),
            "error": self.error or None,
        }

    def _settings(self, live: Live) -> dict[str, str]:
        """The settings as they are now, the model's own among them."""
        config: Any = live.ready.model.config
        settings = live.settings
        found = {key: as_text(getattr(settings, key)) for key in SHOWN}
        found |= {f"model.{f.name}": as_text(getattr(config, f.name)) for f in fields(config)}
        if live.ready.data.name in TOYS:
            noise, count = drawn_with(live.ready.data.name, live.ready.data_settings)
            found |= {"noise": as_text(noise), "count": as_text(count)}
        return {**found, "speed": f"{self.speed:g}"}

    def _rate(self, live: Live) -> float:
        """Steps in a second, over the last half second or more."""
        now, (then, step) = time.perf_counter(), self.mark
        if not self.playing or live.step < step:
            self.mark, self.rate = (now, live.step), 0.0
        elif now - then >= RATE_OVER:
            self.rate = (live.step - step) / (now - then)
            self.mark = (now, live.step)
        return float(f"{self.rate:.4g}")


def _with_log(command: str, step: int, log: str) -> str:
    """A command that opens a state, with the steps and the changes of now."""
    *words, state = shlex.split(command)
    kept = [pair for pair in state.split("&") if not pair.startswith(("steps=", "log="))]
    return shlex.join([*words, "&".join([*kept, f"steps={step}", f"log={quote(log, safe=',:;[]@$=')}"])])
