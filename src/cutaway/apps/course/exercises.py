"""Exercises of the course: chapters, checks of answers, and helpers for the pages.

The chapters are in order. The text of chapter 5 is docs/course/05-….md; its exercises are in chapter_05.py. The pages
of the chapters show source code of the library, interactive drawings, and figures in one style.
"""

from __future__ import annotations

import copy
import inspect
import os
import textwrap
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.errors import SettingError, join, shorten_repr
from ...core.extras import require
from ...draw.description import Drawing, View, table
from ...draw.html_page import render_view


@dataclass(frozen=True)
class Chapter:
    """One chapter: its number and title."""

    number: int
    title: str

    @property
    def exercises(self) -> tuple[Exercise, ...]:
        """Exercises of the chapter, in the order of the text."""
        module = import_module(f"{__package__}.chapter_{self.number:02}")
        return tuple(module.EXERCISES)


CHAPTERS = (
    Chapter(1, "The neuron and the perceptron rule"),
    Chapter(2, "Layers, activations and universal approximation"),
    Chapter(3, "Losses, and back-propagation by hand"),
    Chapter(4, "Optimizers and schedules"),
    Chapter(5, "Convolution, from signals to networks"),
    Chapter(6, "LeNet to DenseNet: depth and shortcuts"),
    Chapter(7, "Normalization"),
    Chapter(8, "Word vectors"),
    Chapter(9, "Recurrent networks: RNN, LSTM and GRU"),
    Chapter(10, "Sequence-to-sequence models and attention"),
    Chapter(11, "Self-attention, W_QK and the residual stream"),
    Chapter(12, "The Transformer"),
    Chapter(13, "BERT and GPT: pre-training and fine-tuning"),
    Chapter(14, "The Vision Transformer"),
    Chapter(15, "Graph neural networks"),
    Chapter(16, "Generative models: variational autoencoders and diffusion"),
    Chapter(17, "Self-supervised and few-shot learning"),
    Chapter(18, "Reasoning and search"),
    Chapter(19, "Compression and robustness"),
)


def chapter(number: str | int) -> Chapter:
    """Return the chapter with a number such as 5 or "05". Raises SettingError if it does not exist."""
    found = {one.number: one for one in CHAPTERS}
    words = str(number)
    if not (words.isdecimal() and len(words) < 4 and int(words) in found):
        raise SettingError(
            f"There is no chapter {shorten_repr(number)}: chapters are 1 to {len(CHAPTERS)}. `cutaway course` lists "
            "them.",
            code="CUT-102",
        )
    return found[int(words)]


# M. Okabe's and K. Ito's colours, which are distinct in any colour vision, on light and dark backgrounds.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK = "#7d848c"  # colour of axes and text: enough contrast with white and with black


class Source:
    """Source code of an object of the library, read from its file."""

    def __init__(self, *objects: Any) -> None:
        # A decorator such as torch.no_grad() returns a wrapper, whose file is torch's.
        self.objects = tuple(one if inspect.isclass(one) else inspect.unwrap(one) for one in objects)

    def __repr__(self) -> str:
        return "\n\n".join(textwrap.dedent(inspect.getsource(one)).rstrip() for one in self.objects)

    def _repr_markdown_(self) -> str:
        package = Path(__file__).parents[2]
        files = dict.fromkeys(
            Path(inspect.getsourcefile(one) or "").resolve().relative_to(package.resolve()).as_posix()
            for one in self.objects
        )
        names = ", ".join(f"`src/cutaway/{name}`" for name in files)
        return f"```python\n{self!r}\n```\n\n{names}\n"


def source(*objects: Any) -> Source:
    """Return the source code of functions, methods or classes of the library."""
    return Source(*objects)


class Frame:
    """A view in an iframe, which reacts to pointer and keyboard and has no other rights."""

    def __init__(self, view: View, height: int) -> None:
        self.view, self.height = view, height

    def __repr__(self) -> str:
        return f"Frame({self.view['title']!r})"

    def _repr_html_(self) -> str:
        return render_view(self.view, self.height)


def frame(first: Any, *more: Drawing, title: str = "", says: str = "", height: int = 480) -> Frame:
    """Return an interactive frame with a View, such as `cutaway.look(...)["boundary"]`, or with drawings of draw/ and a
    title.

    `says` is the sentence below the title. `height` in pixels is the height until it is drawn.
    """
    if "drawings" in first:
        view: Any = {**first, "title": title or first["title"], "says": says or first["says"]}
    else:
        view = View(id="drawing", title=title, says=says, summary="", table=table({}, []), drawings=[first, *more])
    return Frame(view, height)


def style() -> None:
    """Set the matplotlib style of the course: a transparent background, for light and dark pages. Raises SettingError
    if matplotlib is not installed."""
    plt = require("matplotlib.pyplot", "Drawing the figures of the chapters")
    from cycler import cycler

    plt.rcParams.update(
        {
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
            "legend.framealpha": 0.0,
            "figure.figsize": (7.2, 3.4),
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.titlesize": 10,
            "axes.titleweight": "bold",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=COLOURS),
            "image.cmap": "PuOr",
            "svg.fonttype": "path",
            "svg.hashsalt": "cutaway",  # makes the file of a figure reproducible
            **dict.fromkeys(
                ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"),
                INK,
            ),
        }
    )
    if "inline" in plt.get_backend().lower():
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        inline: Any = set_matplotlib_formats
        inline("svg", bbox_inches="tight", metadata={"Date": None})
    elif not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))):
        plt.switch_backend("agg")


Array = npt.NDArray[np.float64]
Answer = Callable[..., Any]
Check = Callable[[Answer], None]


LEVELS = ("easy", "medium")  # of the exercises with a check; each chapter also has an open one, on its page
RULES = """\
Rules for all exercises
- Inputs are NumPy arrays, lists and numbers, unless the text says otherwise. They must not be changed: `w = w + …`
  makes a new array, `w += …` changes the given one.
- Results are numbers, NumPy arrays, lists or PyTorch tensors of the shape in the text. Several results are returned as
  a tuple in that order.
- Numbers are compared with a tolerance of 1e-6 of the largest entry.
- The function keeps its name and parameters, and returns within 20 seconds. It may use functions of the same file."""


class NotYet(Exception):
    """Raised for an answer that is not correct yet."""


@dataclass(frozen=True)
class Exercise:
    """A function to write: its name, its parameters, its result, and its check."""

    name: str
    takes: str  # parameters in parentheses: (w, b, x)
    gives: str  # the result with all its rules, as docstring of the stub
    check: Check
    level: str  # of LEVELS

    @property
    def signature(self) -> str:
        """Call of the function: fires(w, b, x)."""
        return f"{self.name}{self.takes}"


class Exercises(list[Exercise]):
    """The exercises of a chapter, to which a decorator adds each check."""

    def __call__(self, signature: str, gives: str, level: str) -> Callable[[Check], Check]:
        """Return a decorator that adds a check for the function with this signature; `gives` has the rules of its
        result."""
        name, parenthesis, takes = signature.partition("(")

        def add(check: Check) -> Check:
            self.append(Exercise(name, parenthesis + takes, gives, check, level))
            return check

        return add


def check_answer(exercise: Exercise, answer: Answer) -> None:
    """Check one answer. Raises NotYet with a message for the reader, also for other exceptions of the answer."""
    wants = [word for word in exercise.takes.strip("()").split(", ") if word]
    try:
        inspect.signature(answer).bind(*wants)
    except (TypeError, ValueError) as error:
        raise NotYet(f"it must be callable as {exercise.signature}: {error}.") from error
    changed: list[str] = []

    def called(*given: Any, **named: Any) -> Any:
        before = copy.deepcopy((given, named))
        try:
            return answer(*given, **named)
        finally:
            after = [*given, *named.values()]
            for name, was, now in zip(wants, [*before[0], *before[1].values()], after):
                if not _equal(was, now) and name not in changed:
                    changed.append(name)

    try:
        exercise.check(called)
        expect(not changed, f"it changes the `{', '.join(changed)}` that it was given: make a new array or list.")
    except NotYet:
        raise
    except Exception as error:
        line = innermost_line(error, lambda frame: frame.f_globals.get("__name__") in (READERS, "__main__"))
        where = f" (line {line})" if line else ""
        raise NotYet(f"it raises {type(error).__name__}: {error}{where}.") from error


def _equal(was: Any, now: Any) -> bool:
    """Return whether an argument is as it was before a call. Functions count as unchanged."""
    if isinstance(was, np.ndarray):
        return was.shape == now.shape and np.array_equal(was, now, equal_nan=was.dtype.kind in "fc")
    if isinstance(was, list | tuple):
        return len(was) == len(now) and all(map(_equal, was, now))
    return callable(was) or bool(was == now)


def innermost_line(error: BaseException, of_reader: Callable[[FrameType], bool]) -> int | None:
    """Return the innermost line of the reader's code in the traceback, or None if there is no such line."""
    frames = traceback.walk_tb(error.__traceback__)
    return next((line for frame, line in reversed([*frames]) if of_reader(frame)), None)


READERS = "answers"  # __name__ of the reader's file


# --- helpers for checks -------------------------------------------------------------------------------------------


def expect(truth: Any, words: str) -> None:
    """Raise NotYet with `words` unless `truth`."""
    if not truth:
        raise NotYet(words)


def same(given: Any, right: Any, when: str, wrong: Sequence[tuple[Any, str]] = (), *, within: float = 1e-6) -> None:
    """Raise NotYet unless `given` equals `right` in shape and, relative to its largest entry, in value.

    `when` names the input, such as "for x = (1, 2)". `wrong` holds known wrong answers, each with its own message.
    """
    wanted = np.asarray(right, dtype=float)
    found = as_array(given, when)
    for mistaken, words in wrong:
        other = np.asarray(mistaken, dtype=float)
        if _close(found, other, within) and not _close(other, wanted, within):
            raise NotYet(f"{when} it returns {format_numbers(found)}. {words}")
    if found.shape != wanted.shape:
        raise NotYet(f"{when} it returns {_shaped(found)}, expected {_shaped(wanted)}.")
    if not _close(found, wanted, within):
        raise NotYet(f"{when} it returns {format_numbers(found)}, expected {format_numbers(wanted)}.")


def pair(given: Any, names: Sequence[str], when: str) -> list[Any]:
    """Return the parts of an answer with several parts: `pair(answer, ("w", "b"), …)`. Raises NotYet for another
    number."""
    if given is None:
        raise NotYet(f"{when} it returns None: is a `return` missing?")
    if not isinstance(given, tuple | list) or len(given) != len(names):
        raise NotYet(f"{when} it must return {len(names)} values, {join(names, 'and')}, not {_kind(given)}.")
    return list(given)


def as_array(given: Any, when: str) -> Array:
    """Convert an answer to an array of numbers. Raises NotYet if that is impossible."""
    if given is None or given is Ellipsis:
        raise NotYet(f"{when} it returns None: is a `return` missing?")
    if hasattr(given, "detach"):  # a PyTorch tensor
        given = given.detach().cpu().numpy()
    try:
        return np.asarray(given, dtype=float)
    except (TypeError, ValueError) as error:
        raise NotYet(f"{when} it returns {_kind(given)}, expected numbers.") from error


def softmax(z: Array, axis: int = -1) -> Array:
    """Compute the softmax along an axis, without overflow."""
    powers = np.exp(z - z.max(axis, keepdims=True))
    shares: Array = powers / powers.sum(axis, keepdims=True)
    return shares


def format_numbers(values: Any) -> str:
    """Format numbers for a message: 0.5, (1, 2), ((1, 0), (0, 1)); of long arrays, only the first numbers."""
    array = np.asarray(values, dtype=float)
    if array.ndim == 0:
        number = float(array)
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.4g}"
    most = 6
    words = ", ".join(format_numbers(value) for value in array[:most])
    return f"({words}{', …' if len(array) > most else ''})"


def _close(a: Array, b: Array, within: float) -> bool:
    if a.shape != b.shape:
        return False
    scale = float(np.abs(b).max(initial=0.0)) or 1.0
    return bool(np.allclose(a, b, rtol=0.0, atol=within * scale))


def _shaped(values: Array) -> str:
    if values.ndim == 0:
        return f"one number, {format_numbers(values)}"
    return f"an array of shape {tuple(values.shape)}" + (f", {format_numbers(values)}" if values.size <= 6 else "")


def _kind(given: Any) -> str:
    return f"{type(given).__name__} {str(given)[:60]!r}" if isinstance(given, str) else f"a {type(given).__name__}"
