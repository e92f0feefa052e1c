"""The command line: commands by name, in modules of related ones. Only commands that need slow imports make them."""

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
from typing import Any, NamedTuple, NoReturn

from ...core.config import RENAMED
from ...core.error_codes import explanation, is_code
from ...core.errors import (
    CutawayError,
    MemoryLimitError,
    MissingFileError,
    MissingSettingError,
    SettingError,
    UnknownName,
    WriteError,
    closest_names,
    code_line,
    memory_message,
    printable,
    shorten,
)
from ...core.extras import LIBRARIES, MissingPackageError, missing_package_text
from ...core.files import address_limit
from ...core.version import __version__
from ...distributed.launch import is_launched, rank
from .settings_help import HelpAction


class Command(NamedTuple):
    """Command with its module, which has functions for its arguments, its run and, for some, its settings."""

    module: str
    summary: str


COMMANDS = {
    "examples": Command("data", "write small example files of every kind of data"),
    "list": Command("models", "list the models by family: name, parameters, source"),
    "show": Command("models", "card of a model: equation, layers, settings, changes from the paper"),
    "data": Command("data", "list the named data sets, or describe one"),
    "prepare": Command("data", "convert data larger than memory to shards for training"),
    "check": Command("plan", "check the data, trace a batch, estimate time and memory"),
    "plan": Command("plan", "estimate memory, time and cost of a training, here or on GPUs"),
    "train": Command("train", "train a model on data and save the run"),
    "compare": Command("experiments", "compare models on your data, with significance tests"),
    "search": Command("experiments", "hyperparameter and architecture search by validation score"),
    "evaluate": Command("runs", "metrics of a run with 95 % intervals, on its test split or new data"),
    "predict": Command("runs", "predictions of a trained model for new files"),
    "generate": Command("generate", "generate text, sequences or images with a trained model"),
    "serve": Command("servers", "serve predictions and generated text of a run over HTTP"),
    "report": Command("runs", "rewrite the report.html of a run or a search"),
    "inspect": Command("inspect", "views of the internals of a model, trained or not"),
    "studio": Command("servers", "train a model interactively on a live page"),
    "course": Command("course", "chapters and exercises of the course, and a check of your answers"),
    "prune": Command("deploy", "prune weights or channels of a run's model and fine-tune it"),
    "quantize": Command("deploy", "quantize a run to 8- or 4-bit integers, or 16-bit floats"),
    "export": Command("deploy", "export a run with its preprocessing to ONNX or torch.export"),
    "verify": Command("verify", "check models against their cards and independent implementations"),
    "convert": Command("deploy", "convert checkpoints and word vectors between formats"),
}

GROUPS = {  # of commands, in `cutaway --help`
    "Models and data": ("list", "show", "data", "examples", "prepare", "course"),
    "Training": ("check", "plan", "train", "compare", "search", "studio"),
    "Using a run": ("evaluate", "predict", "generate", "serve", "report", "inspect"),
    "Compression, export, checks": ("prune", "quantize", "export", "convert", "verify"),
}
OUTPUT_OPTIONS = ("out", "resume", "overwrite", "open", "json")  # options of some commands, settings of none
WITH_SETTINGS = (  # as key=value
    "prepare", "check", "plan", "train", "compare", "search", "inspect", "show", "prune", "quantize",
)  # fmt: skip
WITH_LIBRARIES = (*WITH_SETTINGS, "evaluate", "predict", "generate", "serve", "studio", "export")  # polars, PyTorch
# GiB of address space that these libraries need (2.2 on two cores) before model and data; with less they abort.
MIN_ADDRESS_SPACE = 2.5
COMMANDS_ELSEWHERE = {  # names of commands in other tools
    "onnx": "export", "eval": "evaluate", "test": "evaluate", "score": "evaluate", "fit": "train",
    "resume": "train --resume", "infer": "predict", "classify": "predict", "sample": "generate",
    "server": "serve", "deploy": "serve", "api": "serve",
    "ls": "list", "models": "list", "info": "show", "summary": "show", "describe": "show", "datasets": "data",
    "tokenize": "prepare", "shard": "prepare", "preprocess": "prepare",
    "learn": "course", "tutorial": "course", "lesson": "course", "exercise": "course",
    "demo": "examples", "explain": "inspect", "visualize": "inspect", "plot": "report", "ui": "studio",
    "completion": "--print-completion bash", "estimate": "plan", "cost": "plan", "profile": "plan",
    "sparsify": "prune", "compress": "prune", "int8": "quantize", "quantise": "quantize",
    "benchmark": "compare", "versus": "compare", "vs": "compare",
    "tune": "search", "sweep": "search", "optimize": "search", "hpo": "search", "nas": "search",
}  # fmt: skip

PACKAGES = {  # import names that differ from the package name
    "PIL": "pillow", "sklearn": "scikit-learn",
}  # fmt: skip

COMMAND = re.compile(r'`[^`\n]*`|python -c "[^"]*"')  # in a message
UNBROKEN = "\0"  # a space within a command: `printable` leaves no such character

USAGE = """\
usage: cutaway COMMAND ... [--help] [--json]

Train neural networks on your own data, verify them and inspect them.

First steps:
  cutaway train lenet5-modern digits            handwritten digits, in seconds
  cutaway inspect runs/lenet5-modern-digits-1   views of what it learned
  cutaway examples                              example files of every kind

Your own data:
  cutaway train mlp houses.csv target=price     a table
  cutaway train resnet18 photos/                photographs in class folders
  cutaway train lstm book.txt                   a language model of a text

{commands}

`cutaway COMMAND --help` describes a command, `cutaway help CODE` an error.
`cutaway --print-completion bash` prints a script for completion by Tab."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 2 an error to fix, 1 an internal error, 130 interrupted."""
    if argv is None:
        _remove_cwd_from_path()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout = Output(sys.stdout.buffer, sys.stdout.encoding, line_buffering=sys.stdout.line_buffering)
    if is_launched():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hides notices that each process would print
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):  # escape names that are not UTF-8, so that printing them does not fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if sys.stdout is None:  # the command was started without one, as by `>&-`
            raise WriteError("Cannot write to standard output: it is closed. Redirect it to a file or to /dev/null.")
        status = _run(words)
        sys.stdout.flush()  # an error that comes later, as the process ends, could not be reported
        return status
    except CutawayError as error:
        if not (rank() > 0 if error.silent is None else error.silent):
            _print_error(str(error), error.code)
        return 2
    except ModuleNotFoundError as error:
        module = (error.name or "cutaway").partition(".")[0]
        if module == "cutaway" or module in sys.modules:
            return _fault()
        package = PACKAGES.get(module, module)
        message_text = (
            missing_package_text(module, "This")
            if module in LIBRARIES
            else f"The package {package} is not installed. Install it: {sys.executable} -m pip install {package}"
        )
        _print_error(message_text, MissingPackageError.code)
        return 2
    except KeyboardInterrupt as error:
        if rank() > 0:  # only the first process of torchrun prints it
            return 130
        resumable = error.args[0] if error.args else None
        print(
            f"\nInterrupted. Continue with: cutaway {getattr(error, 'command', 'train')} --resume {resumable}"
            if resumable
            else "\nInterrupted.",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:  # the reader, such as head or less, has exited
        _discard_output()
        return 0
    except SystemExit:
        raise
    except BaseException as error:  # a panic of a Rust library is not an Exception
        if (short_of := memory_message(error)) is not None:
            _print_error(short_of, MemoryLimitError.code)
            return 2
        if isinstance(error, OSError) and error.filename == Output.NAME:
            _discard_output()
            message_text = f"Cannot write to {error.filename}: {error.strerror}. Redirect it to another file."
            _print_error(message_text, WriteError.code)
            return 2
        if isinstance(error, OSError) and error.filename is not None:
            # An error about a path (too long, no permission, a loop of links) is for the user to fix.
            path = shorten(error.filename, 110)
            kind = MissingFileError if isinstance(error, FileNotFoundError) else WriteError
            _print_error(f"{path}: {error.strerror}. Check this path.", kind.code)
            return 2
        return _fault()


class Output(io.TextIOWrapper):
    """Standard output, with errors that name it as the file that could not be written."""

    NAME = "standard output"

    def write(self, text: str, /) -> int:
        """Write text. Raises OSError with a file name."""
        with self._named():
            return super().write(text)

    def flush(self) -> None:
        """Flush the buffer. Raises OSError with a file name."""
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
    """An argparse parser whose errors are one paragraph that says what to type, in place of the whole usage."""

    def error(self, message: str) -> NoReturn:
        """Raise SettingError with a message that says what is allowed, in place of argparse's."""
        if found := re.match(r"argument (\S+?)(?:/\S+)*: (.+)", message, re.DOTALL):
            self._reject_value(found[1], found[2])
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            raise SettingError(
                f"{self.prog} {self._unknown(unknown.split())} See `{self.prog} --help`.", code="CUT-102"
            )
        message_text = message.replace("the following arguments are required: ", "needs ")
        kind = MissingSettingError if message_text != message else SettingError
        raise kind(f"{self.prog}{' ' if message_text != message else ': '}{message_text}. See `{self.prog} --help`.")

    def _reject_value(self, option: str, problem: str) -> None:
        """Raise SettingError for an option without its value or with an invalid one; other problems pass."""
        action = self._option_string_actions.get(option)
        positional = next((one for one in self._actions if option in (one.dest, one.metavar)), None)
        known = action or positional
        if problem.startswith("expected ") and action is not None:
            value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
            raise MissingSettingError(
                f"{option} needs a value: {self.prog} {option} {value}. See `{self.prog} --help`."
            )
        if problem.startswith("ignored explicit argument"):
            raise SettingError(f"{option} takes no value: {self.prog} {option}. See `{self.prog} --help`.")
        if number := re.match(r"invalid (int|float) value: '(.*)'", problem, re.DOTALL):
            allowed = "an integer" if number[1] == "int" else "a number"
            raise SettingError(f"Invalid {option} {shorten(number[2])}: must be {allowed}.")
        if known is None or not known.choices or not problem.startswith("invalid choice: "):
            return
        given = problem.removeprefix("invalid choice: ").rpartition(" (choose from ")[0].strip("'\"")
        choices = [str(one) for one in known.choices]
        close = closest_names(given, choices, 1)
        similar = f" Similar: {close[0]}." if close else ""
        raise SettingError(f"Invalid {option} {shorten(given)}: must be one of {', '.join(choices)}.{similar}")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a message. Unlike argparse, raise if printing fails."""
        (file or sys.stderr).write(message)

    def _unknown(self, words: list[str]) -> str:
        """Return the error message for unknown options, with a suggestion if possible."""
        option, _, value = words[0].partition("=")
        key = option.lstrip("-").replace("-", "_")
        new = f"--{RENAMED[key].replace('_', '-')}" if key in RENAMED else ""
        if new in self._option_string_actions:
            return f"has no option {option}: it is now {new}."
        close = closest_names(option, self._option_string_actions, 1)
        if close:
            return f"has no option {shorten(option)}. Similar: {close[0]}."
        usage = (self.usage or "").splitlines()[:1]
        if usage and key.isidentifier() and key.upper() in usage[0].split():
            return f"has no option {shorten(option)}: {key.upper()} is typed without it, as in `{usage[0].strip()}`."
        if option.startswith("-") and (key in OUTPUT_OPTIONS or self.prog.split()[-1] not in WITH_SETTINGS):
            return f"has no option {shorten(option)}."
        if option.startswith("-") and key:
            value = value or (words[1] if len(words) > 1 else "VALUE")
            return f"has no option {shorten(option)}. Settings have no dashes: {shorten(key)}={shorten(value)}."
        return f"does not take {shorten(words[0])!r}."


def _fault() -> int:
    """Print the traceback of an internal error and how to report it."""
    print(printable(traceback.format_exc()), file=sys.stderr)
    print(
        "\nInternal error. Please report it in the issue tracker of Cutaway, with the lines above, the command and the "
        f"versions: Cutaway {__version__}, Python {platform.python_version()}, {platform.system()}.",
        file=sys.stderr,
    )
    return 1


def _discard_output() -> None:
    """Drop the buffer of standard output, which Python would otherwise try to write again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    """Run the command that the words name, and return its exit status."""
    if not words or words[0] in ("-h", "--help") or words == ["help"]:
        print(usage())
        return 0
    if words[0] == "help" and is_code(words[1]):
        print(explanation(words[1], min(shutil.get_terminal_size().columns, 100)))
        return 0
    if words[0] == "help":
        asks_setting = words[1] not in COMMANDS and _is_setting(words[1])
        words = ["train", "--help", words[1]] if asks_setting else [words[1], "--help", *words[2:]]
    if words[0] in ("-V", "--version"):
        print(f"cutaway {__version__}")
        return 0
    if words[0] == "--print-completion":
        from .completion import completion_script

        print(completion_script(" ".join(words[1:])))
        return 0
    name = words[0]
    if name not in COMMANDS:
        if name in COMMANDS_ELSEWHERE:
            raise SettingError(
                f"There is no command {name!r}: use `cutaway {COMMANDS_ELSEWHERE[name]}`.", code="CUT-102"
            )
        if name.startswith("-"):
            close = closest_names(name, ("--help", "--version", "--print-completion"), 1)
            similar = f" Similar: `cutaway {close[0]}`." if close else ""
            raise SettingError(
                f"cutaway has no option {shorten(name)}.{similar} `cutaway --help` lists the commands.", code="CUT-102"
            )
        raise UnknownName("command", name, COMMANDS, "`cutaway --help` lists them.")
    parser = build_parser(name)
    try:
        args = parser.parse_intermixed_args(words[1:])
    except SystemExit as stop:  # argparse has printed its help
        return int(stop.code or 0)
    most = address_limit()
    if name in WITH_LIBRARIES and most is not None and most < MIN_ADDRESS_SPACE * 2**30:
        raise MemoryLimitError(
            f"The memory limit of this process is {most / 2**30:.3g} GiB (ulimit -v), and `cutaway {name}` needs "
            f"{MIN_ADDRESS_SPACE} GiB in addition to the model and the data: raise it, e.g. with `ulimit -v unlimited`."
        )
    return int(_function(name, f"run_{name}")(args))


def build_parser(name: str) -> Parser:
    """Build the parser of a command."""
    parser = Parser(
        prog=f"cutaway {name}",
        description=COMMANDS[name].summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action=HelpAction, settings=_function(name, f"{name}_settings", None))
    _function(name, f"add_{name}_arguments")(parser)
    return parser


def _is_setting(name: str) -> bool:
    """Return whether a word is a setting of training, or a topic of them."""
    from ...core.config import group_by_topic
    from .settings_help import training_settings

    topics = group_by_topic(*training_settings())
    return any(name in (topic.name, *(entry.key for entry in entries)) for topic, entries in topics)


def _function(name: str, function: str, *default: Any) -> Any:
    """Return a function of the module of a command."""
    return getattr(import_module(f"{__package__}.{COMMANDS[name].module}"), function, *default)


def _remove_cwd_from_path() -> None:
    """Remove the working folder from the import path, for this process and the processes that it starts.

    A `random.py` in that folder is the user's data, and not a module to import.
    """
    here = os.path.realpath(os.curdir)
    if here == os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir)):
        return  # `python -m cutaway` in the folder of the package needs it

    def elsewhere(places: Sequence[str]) -> list[str]:
        return [place for place in places if os.path.realpath(place or os.curdir) != here]

    sys.path[:] = elsewhere(sys.path)
    os.environ["PYTHONSAFEPATH"] = "1"  # no '' at the front of theirs
    if "PYTHONPATH" in os.environ:  # an empty entry in it means the working folder
        os.environ["PYTHONPATH"] = os.pathsep.join(elsewhere(os.environ["PYTHONPATH"].split(os.pathsep)))


def usage() -> str:
    """Return the text of `cutaway --help`."""
    lines = []
    for title, names in GROUPS.items():
        lines += [f"{title}:", *(f"  {name:<10}{COMMANDS[name].summary}" for name in names), ""]
    return USAGE.format(commands="\n".join(lines[:-1]))


def _print_error(message: str, code: str) -> None:
    """Print an error as one paragraph, and its code on a last line."""
    print(_paragraph(f"cutaway: {message}"), code_line(code), sep="\n", file=sys.stderr)


def _paragraph(text: str) -> str:
    """Wrap a message between words, but not within a command, so that commands can be copied."""
    whole = COMMAND.sub(lambda found: found[0].replace(" ", UNBROKEN), printable(text))
    return textwrap.fill(
        whole,
        width=min(shutil.get_terminal_size().columns, 100),
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(UNBROKEN, " ")
