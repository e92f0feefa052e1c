"""cutaway inspect: views of the inside of a model, trained or not, as one page."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import MissingSettingError, UnknownName
from ...core.files import exists
from .arguments import PAIR, reject_spaces

if TYPE_CHECKING:
    from ...api import Look

WIDTH = 80

INSPECT_EXAMPLES = """\
examples:
  cutaway inspect runs/lenet5-modern-digits-1
  cutaway inspect runs/lenet5-modern-digits-1 seven.png --view filters features
  cutaway inspect resnet18 --view network model.num_classes=10
  cutaway inspect gpt2 --view attention layer=blocks.3.attention
  cutaway inspect minilm/ "The spring is broken." --view embeddings
  cutaway inspect photo.jpg --view filters kernel=sobel

A run is shown with the first examples of its test split, an untrained model
with random numbers, unless INPUT is given. A photo needs no model.
"""


def add_inspect_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "cutaway inspect RUN [INPUT ...] [--view NAME ...] [key=value ...]\n"
        "                       [--out FILE.html] [--overwrite] [--open]\n"
        "                       [--model NAME] [--json]"
    )
    parser.add_argument(
        "words",
        metavar="RUN [INPUT ...] [key=value ...]",
        nargs="*",
        help="folder of a run, name of a model, folder with weights, hub:ORG/NAME or a photo; files or texts; options",
    )
    parser.add_argument(
        "--view", metavar="NAME", nargs="+", action="extend", default=[], help="views to show (default: all)"
    )
    parser.add_argument("--out", metavar="FILE", help="output page (default: RUN/inspect.html, or inspect-NAME.html)")
    parser.add_argument("--overwrite", action="store_true", help="overwrite the page if it exists")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--model", metavar="NAME", help="model of a torchvision file")
    parser.add_argument("--json", action="store_true", help="print the page's description as one JSON document")
    parser.epilog = INSPECT_EXAMPLES + "\n".join(_views())


def _views() -> list[str]:
    """Return the help text of all views and their options."""
    from ...views.registry import VIEWS

    lines = ["\nviews and their options (layer=c1: for all views, filters.layer=c1: for one)"]
    for name, view in VIEWS.items():
        lines += _wrap_option(f"  {name}", view.says[:1].lower() + view.says[1:], 16)
        for option, what in view.options.items():
            lines += _wrap_option(f"    {option}=", what, 16)
    return [*lines, "", "  model.KEY=value configures an untrained model: `cutaway show NAME` lists them."]


def _wrap_option(left: str, right: str, at: int) -> list[str]:
    """Wrap `right` from column `at` on, after `left`, in lines of 80 columns."""
    rows = textwrap.wrap(right, WIDTH - at, break_on_hyphens=False) or [""]
    first = [f"{left:<{at}}{rows[0]}"] if len(left) < at else [left, " " * at + rows[0]]
    return [*first, *(" " * at + row for row in rows[1:])]


def run_inspect(args: argparse.Namespace) -> int:
    """Open the model, compute the views, write the page and print one line per view."""
    import warnings

    from ...api import Look
    from ...core.files import reject_overwriting
    from ...views.subject import open_subject
    from .output import emit_json, note, open_page

    reject_spaces(args.view)
    reject_spaces(args.words)
    names, words = _split_views(args.view, args.words)
    options = dict(word.split("=", 1) for word in words if _is_setting(word))
    given = [word for word in words if not _is_setting(word)]
    if not given:
        raise MissingSettingError(
            "Missing model: give the folder of a run or the name of a model, e.g. cutaway inspect resnet18."
        )
    what, *inputs = given
    if args.out is not None:
        read = inputs if (Path(what) / "run.json").is_file() else [what, *inputs]
        reject_overwriting(args.out, read, args.overwrite)  # before anything is computed
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        subject = open_subject(what, inputs, options, args.model)
        look = Look(subject, names)
    path = (
        None
        if args.json and args.out is None and not args.open
        else look.save(args.out or _default_path(look, what), args.overwrite)
    )
    for sentence in (*(str(warning.message) for warning in caught), *look.notes):
        note(f"note: {sentence}")
    if args.open and path is not None:
        open_page(path)
    if args.json:
        emit_json(look.page)
    elif path is not None:
        _print_views(look, path)
    return 0


def _is_setting(word: str) -> bool:
    return PAIR.match(word) is not None and not exists(word)


def _split_views(after: list[str], words: list[str]) -> tuple[list[str], list[str]]:
    """Split words into views and other words: the values of --view may be followed by a run, files and options.

    Raises UnknownName for a word that is none of these.
    """
    from ...views.registry import VIEWS

    views: list[str] = []
    others: list[str] = []
    named = any(not _is_setting(word) for word in words)
    for word in after:
        if all(part in VIEWS for part in word.split(",")):
            views += word.split(",")
        elif _is_setting(word) or exists(word) or (others and named):
            others.append(word)
        elif not named and views:
            named = True
            others.append(word)
        else:
            raise UnknownName("view", word, VIEWS, "`cutaway inspect --help` lists them.")
    return views, [*words, *others]


def _default_path(look: Look, what: str) -> Path:
    """Return the default path of the page: in the run's folder, or in the working folder."""
    run = look.subject.run
    if run is not None:
        return run.folder / "inspect.html"
    name = Path(what).resolve().stem if Path(what).exists() else look.subject.preset.file_name
    return Path(f"inspect-{name}.html")


def _print_views(look: Look, path: Path) -> None:
    """Print the path of the page and one line for each view."""
    from .output import console

    console().print(str(path), markup=False)
    width = max(len(view["id"]) for view in look.views) + 2
    for view in look.views:
        line = f"{view['id']:<{width}}{' '.join(view['summary'].split())}"
        for row in textwrap.wrap(line, WIDTH, subsequent_indent=" " * width, break_on_hyphens=False):
            console().print(row, markup=False, soft_wrap=True)
