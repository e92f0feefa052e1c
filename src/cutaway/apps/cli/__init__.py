"""The command line: one file per command, found by its name; nothing slow is imported before a command needs it."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import platform
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn

from ...core.config import RENAMED
from ...core.errors import CutawayError, SettingError, UnknownName, memory_message, nearest, short, visible
from ...core.files import address_limit
from ...core.version import __version__
from ...distributed.environment import launched, rank

COMMANDS = (
    "examples", "list", "show", "data", "prepare", "check", "plan", "train", "compare", "search", "evaluate", "predict",
    "generate", "serve", "report", "inspect", "studio", "course", "prune", "quantize", "export", "verify",
    "convert",
)  # fmt: skip

WITH_SETTINGS = (  # as key=value
    "prepare", "check", "plan", "train", "compare", "search", "inspect", "show", "prune", "quantize",
)  # fmt: skip
WITH_LIBRARIES = (*WITH_SETTINGS, "evaluate", "predict", "generate", "serve", "studio", "export")  # polars, PyTorch
ADDRESSES = 2.5  # GiB that those libraries map, 2.2 on two cores, before the model and the data; without it they abort
MEANT = {  # what other tools call it
    "onnx": "export", "eval": "evaluate", "test": "evaluate", "score": "evaluate", "fit": "train",
    "resume": "train --resume", "infer": "predict", "classify": "predict", "sample": "generate",
    "server": "serve", "deploy": "serve", "api": "serve",
    "ls": "list", "models": "list", "info": "show", "summary": "show", "describe": "show", "datasets": "data",
    "tokenize": "prepare", "shard": "prepare", "preprocess": "prepare",
    "learn": "course", "tutorial": "course", "lesson": "course", "exercise": "course",
    "demo": "examples", "explain": "inspect", "visualize": "inspect", "plot": "report", "ui": "studio",
    "estimate": "plan", "cost": "plan", "profile": "plan",
    "sparsify": "prune", "compress": "prune", "int8": "quantize", "quantise": "quantize",
    "benchmark": "compare", "versus": "compare", "vs": "compare",
    "tune": "search", "sweep": "search", "optimize": "search", "hpo": "search", "nas": "search",
}  # fmt: skip

PACKAGES = {  # by what is imported, where the package is called otherwise
    "PIL": "pillow", "sklearn": "scikit-learn", "torch_pruning": "torch-pruning", "umap": "umap-learn",
}  # fmt: skip

COMMAND = re.compile(r'`[^`\n]*`|python -c "[^"]*"')  # in a message
UNBROKEN = "\0"  # a space within a command: `visible` leaves no such character

USAGE = """\
usage: cutaway COMMAND ... [--help] [--json]

Neural networks that you can read, trust, train on your own data, and see into.

{commands}

Try:
  cutaway train lenet5-modern digits             handwritten digits, in seconds
  cutaway train mlp houses.csv target=price      your own table
  cutaway train resnet18 photos/ image_size=128  photographs in class folders
  cutaway train lstm book.txt                    a text, to write more like it
  cutaway show resnet18                          what a model is made of
  cutaway inspect resnet18                       what can be seen inside it

`cutaway COMMAND --help` says more of each."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 2 an error to fix, 1 an internal error, 130 interrupted."""
    if argv is None:
        _leave_the_working_folder_alone()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout = Output(sys.stdout.buffer, sys.stdout.encoding, line_buffering=sys.stdout.line_buffering)
    if launched():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # notices that each process would give
    # Not list(...): in this package, once it is imported, that name is the command's module.
    words = [*(sys.argv[1:] if argv is None else argv)]
    for stream in (sys.stdout, sys.stderr):  # a name that is not UTF-8 is shown by its bytes, and stops nothing
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if sys.stdout is None:  # the command was started without one, as by `>&-`
            raise SettingError("Cannot write to standard output: it is closed. Redirect it to a file or to /dev/null.")
        status = _run(words)
        sys.stdout.flush()  # an error that comes later, as the process ends, could not be reported
        return status
    except CutawayError as error:
        if not (rank() > 0 if error.silent is None else error.silent):
            print(_paragraph(f"cutaway: {error}"), file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        module = (error.name or "cutaway").partition(".")[0]
        if module == "cutaway" or module in sys.modules:
            return _fault()
        package = PACKAGES.get(module, module)
        said = f"The package {package} is not installed. Install it: {sys.executable} -m pip install {package}"
        print(_paragraph(f"cutaway: {said}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        if rank() > 0:  # of the processes that torchrun started the first tells it
            return 130
        resumable = error.args[0] if error.args else None
        print(
            f"\nInterrupted. Go on with: cutaway {getattr(error, 'command', 'train')} --resume {resumable}"
            if resumable
            else "\nInterrupted.",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:  # the reader, head or less, has seen enough
        _discard_output()
        return 0
    except SystemExit:
        raise
    except BaseException as error:  # a panic of a library in Rust is no Exception
        if (short_of := memory_message(error)) is not None:
            print(_paragraph(f"cutaway: {short_of}"), file=sys.stderr)
            return 2
        if isinstance(error, OSError) and error.filename == Output.NAME:
            _discard_output()
            said = f"cutaway: Cannot write to {error.filename}: {error.strerror}. Redirect it to another place."
            print(_paragraph(said), file=sys.stderr)
            return 2
        if isinstance(error, OSError) and error.filename is not None:
            # Whatever the system says of a name (too long, no permission, a loop of links) is the person's to fix.
            path = short(error.filename, 110)
            print(_paragraph(f"cutaway: {path}: {error.strerror}. Check this path."), file=sys.stderr)
            return 2
        return _fault()


class Output(io.TextIOWrapper):
    """Standard output, whose errors name it as the file that could not be written."""

    NAME = "standard output"

    def write(self, text: str, /) -> int:
        """Write, or raise OSError with a name."""
        with self._named():
            return super().write(text)

    def flush(self) -> None:
        """Write what is held back, or raise OSError with a name."""
        with self._named():
            super().flush()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = self.NAME
            raise


class Parser(argparse.ArgumentParser):
    """argparse, whose errors are ours: a paragraph that says what to type, in place of the whole usage."""

    def error(self, message: str) -> NoReturn:
        """Raise SettingError in argparse's words, or in better ones."""
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            raise SettingError(f"{self.prog} {self._unknown(unknown.split())} `{self.prog} --help` says what it takes.")
        said = message.replace("the following arguments are required: ", "needs ")
        raise SettingError(f"{self.prog}{' ' if said != message else ': '}{said}. `{self.prog} --help` says more.")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print, and raise where that cannot be done, which argparse does not."""
        (file or sys.stderr).write(message)

    def _unknown(self, words: list[str]) -> str:
        """What is wrong with words that are no options, and what was meant, perhaps."""
        option, _, value = words[0].partition("=")
        key = option.lstrip("-").replace("-", "_")
        new = f"--{RENAMED[key].replace('_', '-')}" if key in RENAMED else ""
        if new in self._option_string_actions:
            return f"has no option {option}: it is now {new}."
        close = nearest(option, self._option_string_actions, 1)
        if close:
            return f"has no option {short(option)}. Similar: {close[0]}."
        if self.prog.removeprefix("cutaway ") in WITH_SETTINGS and option.startswith("-") and key:
            value = value or (words[1] if len(words) > 1 else "VALUE")
            return f"has no option {short(option)}. Settings are typed without dashes: {short(key)}={short(value)}."
        return f"does not take {short(words[0])!r}."


def _fault() -> int:
    """Print the traceback of an internal error, and what to report."""
    print(visible(traceback.format_exc()), file=sys.stderr)
    print(
        "\nInternal error. Please report it in the issue tracker of Cutaway, with the lines above, the command and the "
        f"versions: Cutaway {__version__}, Python {platform.python_version()}, {platform.system()}.",
        file=sys.stderr,
    )
    return 1


def _discard_output() -> None:
    """Drop what standard output still holds, which Python would try to write again as the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help") or words == ["help"]:
        print(usage())
        return 0
    if words[0] == "help":
        words = [words[1], "--help"]
    if words[0] in ("-V", "--version"):
        print(f"cutaway {__version__}")
        return 0
    name = words[0]
    if name not in COMMANDS:
        if name in MEANT:
            raise SettingError(f"There is no command {name!r}: here it is `cutaway {MEANT[name]}`.")
        raise UnknownName("command", name, COMMANDS, "`cutaway --help` lists them.")
    command = import_module(f"{__package__}.{name}")
    parser = Parser(
        prog=f"cutaway {name}",
        description=command.SUMMARY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.arguments(parser)
    try:
        args = parser.parse_intermixed_args(words[1:])
    except SystemExit as stop:  # argparse has printed its help
        return int(stop.code or 0)
    most = address_limit()
    if name in WITH_LIBRARIES and most is not None and most < ADDRESSES * 2**30:
        raise SettingError(
            f"This process may map {most / 2**30:.3g} GiB of memory (ulimit -v), and `cutaway {name}` needs "
            f"{ADDRESSES} GiB beside the model and the data: raise the limit, as by `ulimit -v unlimited`."
        )
    return int(command.run(args))


def _leave_the_working_folder_alone() -> None:
    """Import nothing from the folder that a person works in: a `random.py` that lies there is data, and no program that
    they asked to run. Processes that are started from here look there no more than this one does."""
    here = os.path.realpath(os.curdir)
    if here == os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir)):
        return  # `python -m cutaway` beside the package itself finds it there

    def elsewhere(places: Sequence[str]) -> list[str]:
        return [place for place in places if os.path.realpath(place or os.curdir) != here]

    sys.path[:] = elsewhere(sys.path)
    os.environ["PYTHONSAFEPATH"] = "1"  # no '' at the front of theirs
    if "PYTHONPATH" in os.environ:  # in which a colon too many stands for the working folder
        os.environ["PYTHONPATH"] = os.pathsep.join(elsewhere(os.environ["PYTHONPATH"].split(os.pathsep)))


def usage() -> str:
    """What `cutaway --help` prints."""
    lines = [f"  {name:<10}{import_module(f'{__package__}.{name}').SUMMARY}" for name in COMMANDS]
    return USAGE.format(commands="\n".join(lines))


def _paragraph(text: str) -> str:
    """Break a message into lines between words, but not within a command, which is copied as it stands."""
    whole = COMMAND.sub(lambda found: found[0].replace(" ", UNBROKEN), visible(text))
    return textwrap.fill(
        whole,
        width=min(shutil.get_terminal_size().columns, 100),
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(UNBROKEN, " ")
