"""The process that computes the views of one side, and the current model's output for the user's own input.

It has its own copy of the model and data, requests a copy of the weights when a client waits for a frame, and runs at
the lowest priority. Inputs (a text, an image, a prompt or a problem) take the same path as in `cutaway predict` and
`cutaway generate`, with their preprocessing.
"""

from __future__ import annotations

import base64
import dataclasses
import io
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

from ...core.errors import CutawayError, DataError, SettingError, UnsupportedDataError
from ...core.spec import Classes, ImageSpec, Mask, Masked, NextToken, PairSpec, Solution, Tags, TextSpec, Value
from ...data.text.corpus_transforms import GAP, MaskedPreprocessing, RunningPreprocessing
from ...data.text.puzzles import PuzzlePreprocessing
from ...draw.description import View
from ...inference.sampling import probabilities
from ...inference.text import TextStreamer, as_text, context_length, stream, token_bounds
from ...training.evaluation import evaluate_split
from ...views.problem_solving import search_problem, verdict_text
from ...views.registry import VIEWS, draw_view, find_view, suits
from ...views.subject import FEW, Subject, open_data, with_examples
from .ipc import Layout, Message, MessagePipe, end_with_parent, lower_priority, shared_row
from .setup import Built, Opening, build_side

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


LIKELIEST = 10  # classes or tokens that are shown
SAMPLES, MOST_TOKENS = 3, 200
MAX_LETTERS = 5_000  # maximum length of an input text
DARK = 0.5  # mean brightness below which images are drawn light on dark


def input_form(built: Built) -> dict[str, Any] | None:
    """Return the form of input that this model accepts: {"kind": "image", "text", "masked", "next", "problem" or
    "pairs"} with details; None if no input can be typed or drawn."""
    spec, data = built.ready.data.spec, built.ready.data
    if isinstance(spec, ImageSpec) and isinstance(spec.target, Mask):
        return None
    if isinstance(spec, ImageSpec):
        image = data.splits["train"].image(0)
        return {"kind": "image", "dark": image is not None and _is_dark(image)}
    if isinstance(spec, PairSpec):
        return {"kind": "pairs", "like": _example_cell(data.splits["train"], "source")}
    if isinstance(spec, TextSpec):
        if isinstance(spec.target, Solution):
            return {"kind": "problem", "like": _example_cell(data.splits["train"], "problem")}
        if isinstance(spec.target, NextToken):
            return {"kind": "next", "like": ""}
        if isinstance(spec.target, Masked):
            return {"kind": "masked", "like": GAP}
        if isinstance(spec.target, Classes | Value | Tags):
            return {"kind": "text", "like": _example_cell(data.splits["train"], "text")}
    return None


def run_input(built: Built, asked: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the model's output, {"answers": [{"name", "probability"}], ...}, or {"error": message}."""
    way = input_form(built)
    try:
        if way is None:
            raise UnsupportedDataError(f"Inputs of {built.ready.data.spec.kind} data cannot be typed or drawn.")
        with torch.random.fork_rng([]), torch.no_grad():
            if way["kind"] == "image":
                return _predict_image(built, folder / f"image-{int(asked['image'])}.png") if "image" in asked else {}
            text = str(asked.get("text", ""))[:MAX_LETTERS]
            if way["kind"] == "next":
                return _continue_text(built, text, asked)
            if not text.strip():
                return {}
            ways = {"masked": _fill_gap, "problem": _solve_problem}
            return ways.get(way["kind"], _predict_text)(built, text)
    except CutawayError as error:
        return {"error": str(error)}


# --- predictions -----------------------------------------------------------------------------------------------------


def _predict_image(built: Built, path: Path) -> dict[str, Any]:
    """Return the prediction for an image, and the image after preprocessing."""
    if not path.is_file():
        return {}
    ready = built.ready
    split = ready.data.preprocessing.examples([path])
    seen = next(iter(split.batches([torch.tensor([0])]))).inputs[0][0]  # (C, H, W)
    return {**_answers(built, split), "seen": _to_data_url(seen.float())}


def _predict_text(built: Built, text: str) -> dict[str, Any]:
    """Return the prediction for a text, which is never used as a path."""
    ready = built.ready
    if isinstance(ready.data.spec, PairSpec):
        sources: list[Any] = [text + " " * os.path.exists(os.path.expanduser(text))]
    else:
        sources = [{"text": text}]
    split = ready.data.preprocessing.examples(sources)
    return {**_answers(built, split), "notes": list(getattr(split, "notes", ()))}


def _answers(built: Built, split: Any) -> dict[str, Any]:
    """Return the predictions for the first example of a split, likeliest first."""
    ready = built.ready
    outputs = evaluate_split(
        ready.model, split, ready.place, 1, ready.task, flip=ready.settings.tta, decodes=True,
        num_beams=ready.settings.num_beams, length_penalty=ready.settings.length_penalty,
    ).outputs  # fmt: skip
    row = ready.task.predictions(outputs)[0]
    target = ready.data.spec.target
    word = next((w for w in ("probability", "score") if any(key.startswith(f"{w} ") for key in row)), None)
    if word is None or not isinstance(target, Classes):
        said = row[target.column]
        return {"said": said if isinstance(said, str) else f"{said:.6g}", "column": target.column}
    ranked = sorted(((key.removeprefix(f"{word} "), p) for key, p in row.items() if key.startswith(f"{word} ")),
                    key=lambda pair: -pair[1])  # fmt: skip
    answers = [{"name": name, word: float(f"{p:.4g}")} for name, p in ranked[:LIKELIEST]]
    return {"said": row[target.column], "column": target.column, "answers": answers}


def _fill_gap(built: Built, text: str) -> dict[str, Any]:
    """Return the likeliest tokens for the first gap of a text."""
    ready, found = built.ready, built.ready.data.preprocessing
    assert isinstance(found, MaskedPreprocessing)
    if GAP not in text:
        raise DataError(f"Missing gap: write {GAP} in place of a word.")
    ids = found.with_gaps(text)
    others = torch.from_numpy(found.masking.others)
    outputs = ready.model(ids[None].to(ready.place.device), None)[0].float().cpu()  # (T, V)
    gaps = outputs[ids == found.masking.mask].softmax(1)[:, others]
    return {"answers": _likeliest(gaps[0], [found.tokenizer.tokens[i] for i in others])}


def _solve_problem(built: Built, text: str) -> dict[str, Any]:
    """Search for a solution of a problem; return it with the drawing of the search and the verdict."""
    preprocessing = built.ready.data.preprocessing
    assert isinstance(preprocessing, PuzzlePreprocessing)
    (problem,) = preprocessing.examples([text]).problems
    found, _, drawing = search_problem(built.ready.model, preprocessing, problem)
    solution, verdict = found.solution.strip("\n"), verdict_text(found, preprocessing)
    return {"said": solution or "–", "notes": [verdict], "drawing": drawing}


# --- a language model ----------------------------------------------------------------------------------------------


def _continue_text(built: Built, prompt: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the likeliest next tokens at a temperature, and sampled continuations."""
    ready, text = built.ready, built.ready.data.preprocessing
    assert isinstance(text, RunningPreprocessing)
    temperature, count = float(asked.get("temperature", 0.8)), int(asked.get("count", 60))
    if not 0 <= temperature <= 5 or not 1 <= count <= MOST_TOKENS:
        raise SettingError(f"Invalid temperature or tokens: must be from 0 to 5 and from 1 to {MOST_TOKENS}.")
    ids = text.encode(prompt)
    notes = [f"Unknown to the model: {', '.join(map(repr, text.unknown(prompt)[:5]))}."] if text.unknown(prompt) else []
    if not len(ids):
        ids = text.beginning()
    context = context_length(ready.model)
    ids = (ids if context is None else ids[-context:]).to(ready.place.device)
    never, ends = token_bounds(ready.model, text)
    logits = _logits(ready.model, ids)
    logits[never] = -torch.inf
    p = probabilities(logits[None], temperature=temperature)[0]
    samples = []
    for number in range(SAMPLES if temperature else 1):
        drawn = stream(
            ready.model, ids[None], count, generator=torch.Generator().manual_seed(number), never=never, ends=ends,
            window=True, temperature=temperature,
        )  # fmt: skip
        pieces = TextStreamer(text.decode, ids.tolist() if prompt else [])
        samples.append("".join(as_text(map(int, drawn), pieces)))
    names = [text.decode([i]) for i in p.topk(min(LIKELIEST, len(p))).indices.tolist()]
    best = p.topk(min(LIKELIEST, len(p))).values.tolist()
    answers = [{"name": name, "probability": float(f"{value:.4g}")} for name, value in zip(names, best)]
    return {"answers": answers, "samples": samples, "prompt": prompt, "notes": notes}


def _logits(model: Any, ids: Tensor) -> Tensor:
    """Return the model's logits after the tokens `ids`, shape (V,)."""
    was = [module for module in model.modules() if module.training]
    model.eval()
    try:
        outputs: Tensor = model(ids[None], None)
    finally:
        for module in was:
            module.training = True
    return outputs[0, -1].float().cpu()


def _likeliest(p: Tensor, names: list[str]) -> list[dict[str, Any]]:
    best, places = p.topk(min(LIKELIEST, len(p)))
    return [
        {"name": names[i], "probability": float(f"{value:.4g}")} for i, value in zip(places.tolist(), best.tolist())
    ]


# --- images ------------------------------------------------------------------------------------------------------


def _is_dark(image: Any) -> bool:
    """Return whether an image is light on dark, as in MNIST."""
    grey = image.convert("L").resize((8, 8))
    edge = [grey.getpixel((x, y)) for x in range(8) for y in (0, 7)]
    return bool(sum(edge) / len(edge) < 255 * DARK)


def _to_data_url(pixels: Tensor) -> str:
    """Encode an example (C, H, W) as a PNG data URL, scaled from its minimum to its maximum."""
    from PIL import Image

    low, high = pixels.amin(), pixels.amax()
    levels = ((pixels - low) / (high - low).clamp(min=1e-12) * 255).round().byte()
    levels = levels[:3] if len(levels) >= 3 else levels[:1]
    buffer = io.BytesIO()
    array = levels.permute(1, 2, 0).numpy() if len(levels) == 3 else levels[0].numpy()
    Image.fromarray(array).save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _example_cell(split: Any, key: str) -> str:
    """Return the cell of the first example in column `key`, or in its first column: at most 200 characters."""
    row = split.row(0) or {}
    return str(row.get(key) or next(iter(row.values()), ""))[:200]


__all__ = ["input_form", "run_input"]
