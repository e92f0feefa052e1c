"""Addition of two numbers, written in three forms.

N. Lee, K. Sreenivasan, J. D. Lee, K. Lee, D. Papailiopoulos, Teaching arithmetic to small transformers, 2023
<https://arxiv.org/abs/2307.03381>. The first digit of a sum depends on all carries, so a model that writes it first
must compute all of them. In reversed order each digit needs one carry. A scratchpad also writes the carries:

    plain 128+367=495
    reversed 128+367=594
    scratchpad 128+367=8+7+0:5,1;2+6+1:9,0;1+3+0:4,0;495          digits and the carry: their sum's digit, the carry

Each character is one token.
"""

from __future__ import annotations

import re
from random import Random

from ...core.errors import DataError
from .problem import Verdict

DIGITS = 3


class Addition:
    """Addition of two numbers of up to three digits."""

    name = "addition"
    forms: tuple[str, ...] = ("plain", "reversed", "scratchpad")
    usual: tuple[str, ...] = ("reversed",)
    vocabulary: tuple[str, ...] = (*"0123456789+=:,;", *forms)

    def cut(self, text: str) -> list[str]:
        """Split a text into the form's name and single characters."""
        return re.findall(r"[a-z]+|\S", text)

    def join(self, tokens: list[str]) -> str:
        """Join tokens, with a blank after the form's name."""
        return "".join(f"{token} " if token in self.forms else token for token in tokens)

    def read(self, text: str) -> str:
        """Parse a problem such as `128+367`."""
        found = re.fullmatch(r"\s*([0-9]+)\s*\+\s*([0-9]+)\s*=?\s*", text)
        if not found or any(len(n) > DIGITS for n in found.groups()):
            raise DataError(
                f"{text!r} is no sum of two numbers of at most {DIGITS} digits.", fix="Give one, as 128+367."
            )
        return format_problem(int(found[1]), int(found[2]))

    def ask(self, problem: str, form: str) -> str:
        """Return the prompt: the form, the problem and =."""
        return f"{form} {problem}="

    def example(self, problem: str, form: str, random: Random) -> tuple[str, str]:
        """Return the prompt and the only solution."""
        del random
        a, b = problem.split("+")
        total = str(int(a) + int(b))
        written = {"plain": total, "reversed": total[::-1], "scratchpad": ";".join([*_columns(a, b), total])}
        return self.ask(problem, form), written[form]

    def judge(self, problem: str, form: str, written: str) -> Verdict:
        """Check a solution; every column of a scratchpad must be right."""
        a, b = problem.split("+")
        total = str(int(a) + int(b))
        *columns, answer = written.split(";")
        said = answer[::-1] if form == "reversed" else answer
        right = said == total
        if form != "scratchpad":
            return Verdict(right, said, right, 1, None if right else 1, "" if right else f"is {total}")
        wanted = _columns(a, b)
        for k, column in enumerate(wanted, 1):
            if k > len(columns) or columns[k - 1] != column:
                return Verdict(False, said, right, len(columns) + 1, k, f"column {k} is {column}")
        solved = right and len(columns) == len(wanted)
        last = len(columns) + 1
        return Verdict(solved, said, right, last, None if solved else last, "" if solved else f"the sum is {total}")


def format_problem(a: int, b: int) -> str:
    """Return a problem in its canonical form, with leading zeros."""
    return f"{a:0{DIGITS}}+{b:0{DIGITS}}"


def _columns(a: str, b: str) -> list[str]:
    """Return the scratchpad entry of each column, the last digits first."""
    found, carry = [], 0
    for x, y in zip(reversed(a), reversed(b)):
        total = int(x) + int(y) + carry
        found.append(f"{x}+{y}+{carry}:{total % 10},{total // 10}")
        carry = total // 10
    return found
