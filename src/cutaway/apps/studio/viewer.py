"""The process that computes the views of one side, with its own copy of the model and data.

It requests a copy of the weights when a client waits for a frame, and runs at the lowest priority.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core.errors import CutawayError
from ...draw.description import View
from ...views.registry import VIEWS, draw_view, find_view, suits
from ...views.subject import FEW, Subject, open_data, with_examples
from .ipc import Layout, Message, MessagePipe, end_with_parent, lower_priority, shared_row
from .playground import input_form, run_input
from .setup import Built, build_side
from .state import Opening

# Default view: the first of these that suits.
USUAL = ("boundary", "attention", "gates", "graph", "features", "filters", "embeddings", "results")
ALWAYS = "gradients"
LETTERS = 4_000_000  # maximum size of one view in characters; a larger one is left out
FITTING = ("seed", "lr", "batch_size", "weight_decay", "optimizer", "momentum", "grad_clip", "schedule", "epochs")


def view(commands: Connection, learner: Connection, folder: str) -> None:
    """Run the viewer until the studio ends. This is the main function of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lower_priority()
    torch.set_num_threads(1)
    viewer = Viewer(Path(folder), MessagePipe(learner, "learner", at_end=lambda: os._exit(0)))
    studio = MessagePipe(commands, "studio", at_end=end_with_parent(folder))
    while True:
        _, message = studio.inbox.get()
        if message["do"] == "open":
            viewer.expect(Opening(**message["opening"]))
        else:
            studio.send(*answer(viewer, message))


def answer(viewer: Viewer, message: Message) -> tuple[Message, bytes]:
    """Return the reply for the server, and the requested frame as JSON."""
    began, head = time.thread_time(), {"id": message["id"]}
    try:
        frame = viewer.frame(message["watch"])
        body = json.dumps(frame, allow_nan=False).encode() if frame else b""
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return {
            **head,
            "fault": f"Internal error: {type(error).__name__}: {error}. The server log has the details.",
        }, b""
    if frame is None:
        return {**head, "empty": True}, b""
    seconds = (
        0.0 if viewer.anew else time.thread_time() - began
    )  # one-time work does not predict the time of the next frame
    return {**head, "seconds": seconds, "playing": frame["playing"], "step": frame["step"]}, body


class Viewer:
    """The display of one side."""

    def __init__(self, folder: Path, learner: MessagePipe) -> None:
        """Set up the viewer; `folder` holds the user's input images."""
        self.folder, self.learner = folder, learner
        self.key, self.file, self.asked = "", "", ""
        self.anew = True  # whether the last frame was the first of its subject
        self.found: tuple[Subject, list[str], list[str]] | None = None
        self.built: Built | None = None
        self.layout: Layout | None = None
        self.way: dict[str, Any] | None = None  # form of the user's own input
        self.row: Tensor | None = None

    def expect(self, opening: Opening) -> None:
        """Build the model while the learner does the same. The learner reports errors, so they are ignored here."""
        try:
            self._build(opening)
        except Exception:
            self.key = ""

    def frame(self, watch: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the current frame, or None if nothing is open."""
        self.learner.send({"do": "hand over"})
        _, given = self.learner.inbox.get()
        if "empty" in given:
            return None
        frame: dict[str, Any] = given["frame"]
        try:
            self._build(Opening(**given["opening"]))
            assert self.built is not None
            assert self.layout is not None
            if given["file"] != self.file:
                self.file, self.row = given["file"], shared_row(Path(given["file"]), given["size"])
            assert self.row is not None
            self.layout.read(self.row)
            subject, suit, notes = self._subject(watch)
        except CutawayError as error:
            return {**frame, "views": [], "notes": [*frame["notes"], str(error)]}
        views, more = build_views(subject, watch.get("views") or default_views(suit), suit)
        names = {**frame["names"], "views": suit, "examples": num_examples(subject)}
        asked = watch.get("try")
        return {
            **frame,
            "views": views,
            "names": names,
            "notes": [*frame["notes"], *notes, *more],
            "try": self.way,
            "tried": run_input(self.built, asked, self.folder) if asked and self.way else None,
        }

    def _subject(self, watch: Mapping[str, Any]) -> tuple[Subject, list[str], list[str]]:
        """Return the model with the requested examples and options, the views that suit it, and notes on views that
        failed to say.

        The result is cached as long as the request does not change.
        """
        assert self.built is not None
        asked = json.dumps([self.key, watch.get("example"), watch.get("options")], sort_keys=True)
        self.anew = self.found is None or asked != self.asked
        if self.anew:
            subject = select_examples(self.built, watch)
            self.found, self.asked = (subject, *suitable_views(subject)), asked
        assert self.found is not None
        return self.found

    def _build(self, opening: Opening) -> None:
        """Build the model and data, unless they are already built."""
        given = {key: value for key, value in opening.given.items() if key not in FITTING}
        key = json.dumps([opening.model, opening.source, opening.run, opening.anew, given], sort_keys=True)
        if key != self.key:
            built = build_side(opening)
            built.ready.model.eval()
            self.way, self.layout = input_form(built), Layout(built.ready.model)
            self.built, self.key, self.found = built, key, None  # the cached subject belongs to the old model


def select_examples(built: Built, watch: Mapping[str, Any]) -> Subject:
    """Return the model with the requested examples and options."""
    ready = built.ready
    ready.model.eval()
    subject = open_data(ready.model, ready.preset, ready.data, ready.task, built.run)
    subject = dataclasses.replace(subject, options=dict(watch.get("options") or {}))
    first = watch.get("example")
    if first is not None and subject.split is not None and len(subject.split) > len(subject.rows):
        first = min(max(int(first), 0), len(subject.split) - 1)
        rows = [(first + i) % len(subject.split) for i in range(FEW)]
        subject = with_examples(subject, subject.split, rows)
    return subject


def default_views(suit: Sequence[str]) -> list[str]:
    """Return the default views among those that suit."""
    return [name for name in USUAL if name in suit][:1] + [name for name in suit if name == ALWAYS]


def build_views(subject: Subject, names: Sequence[str], suit: Sequence[str]) -> tuple[list[View], list[str]]:
    """Return the named views, and notes on those that failed."""
    views, notes = [], []
    for name in dict.fromkeys(names):
        if name not in suit:
            notes.append(f"The view {name} does not apply to {subject.preset.name} on this data.")
            continue
        try:
            views.append(validate_view(draw_view(name, _with_view_options(subject, name))))
        except CutawayError as error:
            notes.append(f"The view {name}: {error}")
        except Exception as error:  # a view that fails must not affect the others
            traceback.print_exc(file=sys.stderr)
            notes.append(f"The view {name} could not be computed: {type(error).__name__}: {error}")
    return views, notes


def suitable_views(subject: Subject) -> tuple[list[str], list[str]]:
    """Return the views that suit, and notes on those whose check failed."""
    suit, notes = [], []
    for name in VIEWS:
        try:
            if suits(name, subject):
                suit.append(name)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            notes.append(f"The view {name} could not be computed: {type(error).__name__}: {error}")
    return suit, notes


def _with_view_options(subject: Subject, name: str) -> Subject:
    """Return the subject with the options of one view: "layer" applies to all views that have it, "features.layer" to
    one."""
    known = find_view(name).options
    options = {key: value for key, value in subject.options.items() if key in known}
    own = {key.removeprefix(f"{name}."): value for key, value in subject.options.items() if key.startswith(f"{name}.")}
    return dataclasses.replace(subject, options={**options, **own})


def validate_view(view: View) -> View:
    """Return the view with NaN and infinity replaced by null. Raises ValueError if it is too large for a page."""
    try:
        text = json.dumps(view, allow_nan=False)
    except ValueError:
        view = _finite(view)
        text = json.dumps(view, allow_nan=False)
    if len(text) > LETTERS:
        raise ValueError(f"it has {len(text):,} characters, more than the limit of {LETTERS:,}")
    return view


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and value - value != 0 else value


def num_examples(subject: Subject) -> int:
    """Return the number of examples to choose from."""
    return len(subject.split) if subject.split is not None else subject.count
