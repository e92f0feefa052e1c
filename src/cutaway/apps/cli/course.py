"""cutaway course: the chapters, their exercises, and a check of answers."""

from __future__ import annotations

import argparse
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..course.answer_check import Result
    from ..course.exercises import Chapter

COURSE_DETAILS = """\
  cutaway course                       the chapters
  cutaway course 05                    exercises of chapter 5
  cutaway course start 05 answers.py   create a file with a stub per exercise
  cutaway course check 05 answers.py   check the answers in it

`check` runs your file like `python answers.py`: only check code that you trust.
The exit status of `check` is 0 if all exercises are correct, 1 if any is wrong or
missing, and 2 if the arguments or the file cannot be used."""

STUB = '''
def {signature}:
    """{gives}

    Level: {level}.
    """
    ...
'''
HEAD = '''"""Answers to chapter {number} of the course, {title}: cutaway course check {number:02} {name}

{rules}
"""

import numpy as np

'''


def add_course_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = COURSE_DETAILS
    parser.add_argument("words", metavar="[start|check] CHAPTER FILE", nargs="*", help="see below")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_course(args: argparse.Namespace) -> int:
    """Execute the subcommand: list, show, start or check."""
    from ...core.errors import IncompatibleSettingError, MissingSettingError
    from ..course.exercises import chapter

    what, *rest = args.words or ["list"]
    if what in ("start", "check"):
        if not rest:
            raise MissingSettingError(f"Missing chapter: `cutaway course {what} 05 answers.py`.")
        asked = chapter(rest[0])
        path = Path(rest[1] if len(rest) > 1 else f"answers-{asked.number:02}.py")
        if len(rest) > 2:
            raise IncompatibleSettingError(
                f"`cutaway course {what}` takes one chapter and one file, not also {rest[2]!r}."
            )
        return _write_stubs(asked, path, args.json) if what == "start" else _check_answers(asked, path, args.json)
    if rest:
        raise IncompatibleSettingError(
            f"`cutaway course {what}` takes no more arguments. Did you mean `course check` or `course start`?"
        )
    return _print_chapters(args.json) if what == "list" else _print_exercises(chapter(what), args.json)


def _print_chapters(as_json: bool) -> int:
    from ..course.exercises import CHAPTERS
    from .output import emit_json, say

    if as_json:
        emit_json([_chapter_document(one) for one in CHAPTERS])
        return 0
    for one in CHAPTERS:
        say(f"{one.number:02}  {one.title} ({len(one.exercises)} exercises)", indent=4)
    say("\nThe text is in docs/course; `cutaway course 01` lists the exercises of the first chapter.")
    return 0


def _print_exercises(asked: Chapter, as_json: bool) -> int:
    from ..course.exercises import RULES
    from .output import emit_json, say

    if as_json:
        emit_json(_chapter_document(asked))
        return 0
    say(f"{asked.number:02}  {asked.title}\n")
    for one in asked.exercises:
        say(f"{one.signature}  ({one.level})")
        say(f"    {one.gives}", indent=4)
    say("")
    for line in _unwrapped(RULES):
        say(line, indent=2)
    say(f"\nTo start: cutaway course start {asked.number:02} answers.py")
    return 0


def _write_stubs(asked: Chapter, path: Path, as_json: bool) -> int:
    """Write a file with a stub for each exercise of a chapter."""
    from ...core.errors import AlreadyExistsError, shorten
    from ...core.files import exists, write_text
    from ..course.exercises import RULES
    from .output import emit_json, say

    if exists(path):
        raise AlreadyExistsError(f"{shorten(path)} already exists. Choose another file name.")
    head = HEAD.format(number=asked.number, title=asked.title, name=path.name, rules=RULES)
    stubs = [
        STUB.format(signature=one.signature, gives=_docstring(one.gives), level=one.level) for one in asked.exercises
    ]
    write_text(path, head + "\n".join(stubs))
    if as_json:
        emit_json({"written": str(path), "functions": [one.name for one in asked.exercises]})
    else:
        say(f"Wrote {path}, with {len(stubs)} stubs. Next: cutaway course check {asked.number:02} {path}")
    return 0


def _unwrapped(text: str) -> list[str]:
    """Return the lines of a text, each with those that continue it."""
    return re.sub(r"\n {2}", " ", text).splitlines()


def _docstring(text: str) -> str:
    return textwrap.fill(text, 110, initial_indent="", subsequent_indent="    ")


def _check_answers(asked: Chapter, path: Path, as_json: bool) -> int:
    from ..course.answer_check import check_file
    from .output import emit_json, note_if_slow

    with note_if_slow(f"Running {path} …"):
        found = check_file(asked.number, path)
    right = sum(one.right for one in found)
    if as_json:
        rows = [{"name": one.name, "state": one.state, "words": one.words} for one in found]
        emit_json({"chapter": asked.number, "file": str(path), "right": right, "exercises": rows})
    else:
        _print_results(asked, found)
    return 0 if right == len(found) else 1


def _print_results(asked: Chapter, found: list[Result]) -> None:
    from .output import say

    wide = max(len(one.name) for one in found)
    for one in found:
        words = f" {one.words}" if one.words else ""
        say(f"{one.state:<8} {one.name:<{wide}} {words}".rstrip(), indent=wide + 11)
    right, total = sum(one.right for one in found), len(found)
    say(f"\nAll {total} are correct." if right == total else f"\n{right} of {total} are correct.")
    if right == total:
        say(f"Chapter {asked.number}, {asked.title}: done.")


def _chapter_document(one: Chapter) -> dict[str, Any]:
    exercises = [
        {"name": each.name, "signature": each.signature, "level": each.level, "gives": each.gives}
        for each in one.exercises
    ]
    return {"number": one.number, "title": one.title, "exercises": exercises}
