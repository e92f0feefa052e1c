"""The process that trains one side, and the export of its model.

Between two updates it executes commands, and copies its weights to the viewer on request; nothing else delays the next
update. A model is exported as a run, and as the command and Python code that train the same model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import queue
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections import deque
from dataclasses import asdict, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from ...core.config import as_text, shell_command
from ...core.errors import CutawayError, MissingSettingError, SettingError, TrainingError
from ...core.files import write_csv, write_json
from ...data.datasets.toy_data import TOYS, toy_parameters
from ...data.open_data import open_data
from ...models.registry import presets
from ...reports.run_report import write_layers_and_report
from ...runs import train
from ...runs.run import Run
from ...training.checkpoint import save_weights
from ...training.config import TrainSettings
from ...training.run_folder import atomic_run
from ...training.setup import TrainingSetup
from .ipc import Message, MessagePipe, end_with_parent, shared_row
from .setup import (
    ALWAYS,
    FURTHEST,
    USUAL,
    Change,
    Opening,
    build_side,
    compatible_models,
    format_log,
    parse_log,
    parse_number,
)
from .trainer import DRAWN, LIVE, LiveTrainer, error_message, round_digits

RATE_OVER = 0.5  # minimum seconds over which the rate is measured
SHOWN = (
    "lr",
    "batch_size",
    "weight_decay",
    "optimizer",
    "momentum",
    "grad_clip",
    "schedule",
    "seed",
)  # settings shown with their values
CHANGED = {"event": "changed"}


def learn(commands: Connection, viewer: Connection, folder: str, side: str, threads: int | None) -> None:
    """Run the learner until the studio ends. This is the main function of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the studio handles Ctrl-C, and ends this process
    if threads:
        torch.set_num_threads(threads)
    Learner(commands, viewer, Path(folder), side).run()


class Learner:
    """The training of one side, controlled by commands."""

    def __init__(self, commands: Connection, viewer: Connection, folder: Path, side: str) -> None:
        self.folder, self.side = folder, side
        self.inbox: queue.SimpleQueue[tuple[str, Message]] = queue.SimpleQueue()
        self.studio = MessagePipe(commands, "studio", self.inbox, end_with_parent(str(folder)))
        self.viewer = MessagePipe(viewer, "viewer", self.inbox)
        self.live: LiveTrainer | None = None
        self.opening: Opening | None = None
        self.playing, self.error = False, ""
        self.until: float = math.inf  # the step at which play ends
        self.to_turn = False  # whether play ends with the epoch
        self.replay: deque[Change] = deque()  # logged changes still to be replayed
        self.speed, self.next_at = 0.0, 0.0  # maximum steps per second; earliest time of the next step
        self.mark = (0.0, 0)  # a time and the step at that time
        self.rate = 0.0
        self.files = 0  # number of weight files so far

    def run(self) -> None:
        """Execute commands and train, for ever."""
        while True:
            if not self.inbox.empty() or not self.playing:
                self._answer(*self.inbox.get())
            elif self.speed and not self.replaying and (wait := self.next_at - time.perf_counter()) > 0:
                self._wait(wait)
            else:
                self._advance()

    @property
    def replaying(self) -> bool:
        """True while it trains up to the step given in a URL."""
        return self.until < math.inf and not self.to_turn

    def _wait(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._answer(*self.inbox.get(timeout=seconds))

    # --- training ---------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Do one update, after the logged changes for this step."""
        live = self.live
        assert live is not None, "it plays"
        if self.speed:
            now = time.perf_counter()
            self.next_at = max(self.next_at + 1 / self.speed, now)  # lost time is not made up for by faster steps
        try:
            self._replay_changes(live)
            if live.step >= self.until:
                self._pause()
            elif live.advance() and (self.to_turn or live.ended):
                live.ended = False
                self._pause()
        except TrainingError as error:
            self._fail(error_message(error))
        except CutawayError as error:
            self._fail(str(error))
        except RuntimeError as error:  # raised by PyTorch: out of memory, wrong input shape
            traceback.print_exc(file=sys.stderr)
            self._fail(f"Training stopped: {str(error).splitlines()[0]}")

    def _replay_changes(self, live: LiveTrainer) -> None:
        """Replay the logged changes for this step."""
        while self.replay and self.replay[0].step <= live.step:
            change = self.replay.popleft()
            try:
                live.do_again(change)
            except CutawayError as error:
                live.notes.append(f"{change} could not be replayed: {error}")

    def _pause(self) -> None:
        """Stop, and notify the studio."""
        self.playing, self.until, self.to_turn = False, math.inf, False
        self.studio.send(CHANGED)

    def _fail(self, words: str) -> None:
        self.error = words
        self._pause()

    # --- commands ---------------------------------------------------------------------------------------------

    def _answer(self, line: str, message: Message) -> None:
        """Execute a message and reply with the result or the error."""
        if line == "viewer":
            self.viewer.send(self._share_weights())
            return
        reply: Message = {"id": message.get("id")}
        try:
            reply |= getattr(self, f"do_{message['do']}")(message) or {}
            reply["step"] = self.live.step if self.live is not None else 0
        except CutawayError as error:
            reply |= {"error": str(error), "code": error.code}
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            reply["fault"] = f"Internal error: {type(error).__name__}: {error}. The server log has the details."
        self.studio.send(reply)

    def do_open(self, message: Message) -> None:
        """Build a model and its data. If that fails, the old ones stay."""
        opening = Opening(**message["opening"])
        changes = parse_log(opening.log)
        live = LiveTrainer(build_side(opening), self.folder)
        self.live, self.opening, self.error = live, opening, ""
        self.speed = opening.speed
        self.replay = deque(changes)
        goal = max([opening.steps, *(change.step for change in changes)])
        self.playing, self.until, self.to_turn = False, math.inf, False
        if goal > live.step or changes:
            self.playing, self.until = True, min(goal, FURTHEST)
        self._new_file(live)

    def do_control(self, message: Message) -> None:
        """Play, pause, do one step or epoch, reset, or seek an earlier step."""
        live, what = self._require_live(), message["what"]
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
        """Change a setting from the next update on."""
        key, value = message["key"], message["value"]
        if key == "speed":
            self.speed = parse_number({"speed": value}, "speed", 1e6)
            self.next_at = 0.0
            return
        live = self._require_live()
        self.replay.clear()  # the logged changes no longer apply
        live.change(key, value)
        self._new_file(live)

    def do_weigh(self, message: Message) -> Message:
        """Return the current value of one weight."""
        return {"value": self._require_live().weighed(message["name"], tuple(message["index"]))}

    def do_weight(self, message: Message) -> None:
        """Set one weight by hand."""
        self.replay.clear()
        self._require_live().weigh(message["name"], tuple(message["index"]), message["value"])

    def do_save(self, message: Message) -> Message:
        """Return the command and Python code that train the same model, and the folder of the saved run, if any."""
        live, opening = self._require_live(), self.opening
        assert opening is not None, "a model is open"
        # The shared command has the current steps and changes.
        shared = message["shared"] if not live.log else _with_log(message["shared"], live.step, format_log(live.log))
        folder = save(live, opening, shared) if message["write"] else None
        source = opening.uploaded or live.ready.data.source
        if folder and opening.uploaded:
            source = str(folder / "data" / opening.uploaded)
        return {**reproduction_code(live, opening, source, shared), "folder": str(folder) if folder else None}

    def _require_live(self) -> LiveTrainer:
        """Return the trainer of the open model. Raises SettingError if none is open."""
        if self.live is None:
            raise MissingSettingError("No model is open on this side yet.")
        return self.live

    # --- frames -----------------------------------------------------------------------------------------------

    def _new_file(self, live: LiveTrainer) -> None:
        """Create a new file for the weights, whose size may have changed."""
        before = self._file()
        self.files += 1
        self.row = shared_row(self._file(), live.layout.size)
        before.unlink(missing_ok=True)
        self.mark = (time.perf_counter(), live.step)

    def _file(self) -> Path:
        return self.folder / f"weights-{self.side}-{self.files}"

    def _share_weights(self) -> Message:
        """Copy the weights to the file and return their description."""
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

    def _frame(self, live: LiveTrainer, opening: Opening) -> dict[str, Any]:
        """Return a frame without its views."""
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
            "to_end": self.playing and self.to_turn,  # only to the end of the epoch
            "rate": self._rate(live),
            "lr": state.lr,
            "loss": {"train": round_digits(curves.latest), "val": round_digits(metrics.get("loss"))},
            "measured": live.measured_at if metrics else None,
            "metrics": {key: round_digits(value) for key, value in metrics.items() if key != "loss"},
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
            "models": compatible_models(ready, list(presets().values())),
            "settings": self._settings(live),
            "live": [*LIVE, *(DRAWN if ready.data.name in TOYS else ())],
            "notes": list(live.notes),
            "log": format_log(live.log),
            "error": self.error or None,
        }

    def _settings(self, live: LiveTrainer) -> dict[str, str]:
        """Return the current settings, with those of the model."""
        config: Any = live.ready.model.config
        settings = live.settings
        found = {key: as_text(getattr(settings, key)) for key in SHOWN}
        found |= {f"model.{f.name}": as_text(getattr(config, f.name)) for f in fields(config)}
        if live.ready.data.name in TOYS:
            noise, count = toy_parameters(live.ready.data.name, live.ready.data_settings)
            found |= {"noise": as_text(noise), "count": as_text(count)}
        return {**found, "speed": f"{self.speed:g}"}

    def _rate(self, live: LiveTrainer) -> float:
        """Return the steps per second over the last half second or more."""
        now, (then, step) = time.perf_counter(), self.mark
        if not self.playing or live.step < step:
            self.mark, self.rate = (now, live.step), 0.0
        elif now - then >= RATE_OVER:
            self.rate = (live.step - step) / (now - then)
            self.mark = (now, live.step)
        return float(f"{self.rate:.4g}")


def _with_log(command: str, step: int, log: str) -> str:
    """Replace the steps and changes in a command that opens a state."""
    *words, state = shlex.split(command)
    kept = [pair for pair in state.split("&") if not pair.startswith(("steps=", "log="))]
    return shlex.join([*words, "&".join([*kept, f"steps={step}", f"log={quote(log, safe=',:;[]@$=')}"])])


SAME = (
    "It takes the same {step:,} steps: the weights in its checkpoints/last are bit-identical on this machine with the "
    "same number of threads. The saved model is that of the best validation epoch."
)
TASKS = "A sequence of tasks needs whole epochs, and this training stopped within one: only the studio can repeat it."
BY_HAND = "Changes by hand during training are not settings of a command: the studio repeats them at the same steps."


def reproduction_code(live: LiveTrainer, opening: Opening, source: str, shared: str) -> dict[str, Any]:
    """Return the command and Python code that train the same model, and a sentence on the differences.

    `source` is the name of the data, `shared` the command that opens the studio's state.
    """
    if live.log or opening.run is not None:
        return {
            "command": shared,
            "python": "",
            "says": BY_HAND if live.log else "It continues from the weights of the run.",
        }
    if live.ready.data.tasks is not None:
        return {"command": shared, "python": "", "says": TASKS}
    given = {**USUAL, **opening.given, "max_steps": str(max(1, live.step))}
    keywords = [f"        {key!r}: {value!r}," for key, value in given.items()]
    call = ["run = cutaway.train(", f"    {opening.model!r},", f"    {source!r},", "    **{", *keywords, "    },", ")"]
    python = "\n".join(["import cutaway", "", *call, "run.evaluate()", ""])
    return {
        "command": shell_command("train", opening.model, source, given),
        "python": python,
        "says": SAME.format(step=max(1, live.step)),
    }


def save(live: LiveTrainer, opening: Opening, shared: str) -> Path:
    """Write a run's folder, runs/MODEL-DATA-N, with the current weights; training can continue afterwards.

    `evaluate`, `predict`, `inspect`, `generate` and `train --resume` can read it. Raises SettingError before the first
    step, FileError if the folder cannot be written.
    """
    if live.step == 0:
        raise SettingError("The model is not trained yet: press Play or take a step before you save.")
    trainer, state = live.trainer, live.trainer.state
    weights, history, stopped, kept_at = live.layout.copy(), state.history, state.stopped, trainer.checkpoints
    best = state.best_epoch, state.best_score, state.best_loss
    ready = dataclasses.replace(live.ready, settings=_run_settings(live))
    name = f"{ready.preset.file_name}-{ready.data.name}"
    try:
        with atomic_run(None, name) as folder, torch.random.fork_rng([]):
            ready = _copy_uploaded_data(ready, folder, opening)
            again = reproduction_code(live, opening, ready.data.source, shared)
            about = train.run_document(ready, {})
            about |= {
                "settings": {**asdict(ready.data_settings), **asdict(ready.settings)},
                "command": again["command"],
                "studio": {"step": live.step, "changes": [str(change) for change in live.log]},
            }
            scores = trainer.validate(trainer.val) if trainer.val is not None else {}
            state.history = [*live.rows, live.row(scores)]
            state.best_epoch = max(1, state.epoch)
            state.best_score, state.best_loss = scores.get(trainer.monitor), scores.get("loss")
            state.stopped = f"saved in the studio at step {live.step:,}"
            state.run = train.run_id(about)
            trainer.checkpoints = folder / "checkpoints"
            trainer.checkpoint_now()
            save_weights(folder / "checkpoints" / "best.safetensors", trainer.weights())
            write_csv(folder / "metrics.csv", state.history)
            write_json(folder / "run.json", {**about, "status": "running"})
            train.save_run(folder, about, ready, state, "finished")
            write_layers_and_report(Run(folder))
    finally:
        live.layout.read(weights)
        state.history, state.stopped, trainer.checkpoints = history, stopped, kept_at
        state.best_epoch, state.best_score, state.best_loss = best
    return folder


def _run_settings(live: LiveTrainer) -> TrainSettings:
    """Return the settings with the number of epochs begun, and without those that only the studio sets."""
    usual = {f.name: f.default for f in dataclasses.fields(TrainSettings) if f.name in ALWAYS}
    epochs = live.state.epoch + (live.state.batch > 0)
    return dataclasses.replace(live.settings, **usual, epochs=max(1, epochs))  # type: ignore[arg-type]


def _copy_uploaded_data(ready: TrainingSetup, folder: Path, opening: Opening) -> TrainingSetup:
    """Copy an uploaded file into the run's folder and use the copy; the studio deletes the original at the end."""
    path = Path(ready.data.source)
    if opening.run is not None or not opening.uploaded:
        return ready
    (folder / "data").mkdir()
    copied = Path(shutil.copyfile(path, folder / "data" / path.name))
    data = open_data(copied, ready.data_settings, ready.sizes, ready.preset.targets)
    return dataclasses.replace(ready, data=data)
