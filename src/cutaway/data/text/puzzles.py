"""Puzzles whose solutions can be checked by computation, and their preprocessing: addition, Countdown, game of 24.

A problem is a line of text that a user can type. A prompt has a form, which defines the notation of the solution
(`answer`: without steps; `steps`: a chain of them). The prompt begins with the form's name, so that one model can be
trained on several forms. A solution is checked by computation, never by comparison with another solution.

An exact solver finds the ways of making a number from others with + − × ÷, each used once, for `countdown` and
`game24`. A state is the remaining numbers, in ascending order. A step replaces two of them, a and b, by one result.
With n numbers, n − 1 steps leave one.

Every solution can be written without negative numbers, because a − (b − c) = a + (c − b). So the smaller number is
always subtracted from the larger. `is_solvable` computes with fractions and is complete: of the 1 820 ways to choose
four numbers from 1 to 13 it finds 1 362 that make 24, as in the published list. `reachable_numbers` and
`possible_steps` use only whole numbers up to `MOST`, in which solutions are written here: 1 335 of these.

Addition of two numbers is written in three forms, after N. Lee, K. Sreenivasan, J. D. Lee, K. Lee, D. Papailiopoulos,
Teaching arithmetic to small transformers, 2023 <https://arxiv.org/abs/2307.03381>. The first digit of a sum depends on
all carries, so a model that writes it first must compute all of them. In reversed order each digit needs one carry. A
scratchpad also writes the carries:

    plain 128+367=495
    reversed 128+367=594
    scratchpad 128+367=8+7+0:5,1;2+6+1:9,0;1+3+0:4,0;495          digits and the carry: their sum's digit, the carry

Each character is one token.

In Countdown, numbers must be combined to make a target; the game of 24 is its special case with the target 24.
S. Yao et al., Tree of thoughts: deliberate problem solving with large language models, 2023
<https://arxiv.org/abs/2305.10601>, from which the notation of a step is taken. The forms:

    answer 4 9 10 13 => 24 : (13 - 9) * (10 - 4)
    steps 4 9 10 13 => 24 :
        13 - 9 = 4 (left: 4 4 10)
        10 - 4 = 6 (left: 4 6)
        4 * 6 = 24 (left: 24)

In a tree, steps need not lead to the target, and a question in place of a line end asks for their value:

    tree 4 9 10 13 => 24 :
        13 - 4 = 9 (left: 9 9 10)
        10 - 9 = 1 (left: 1 9) ? impossible                         or sure

A number is one token. The remaining numbers are in ascending order, so that each state has one notation.

As text, the loss covers only what follows the question. Id 0 is padding, 1 unknown, 2 ends a solution, and from 3 on
are the tokens of the kind of puzzle. A problem may have many solutions; one is drawn again in every epoch.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...core import spec as specs
from ...core.errors import DataError, DataMismatchError, IncompatibleSettingError
from ...core.files import require_regular_file
from ...core.spec import Solution, TextSpec
from ..dataset_base import IGNORED, Batch, Split
from ..samplers import bucket_batches


@dataclass(frozen=True)
class Verdict:
    """The result of checking a written solution."""

    solved: bool  # whether every step is right and the answer too
    answer: str = ""  # the given answer; empty if there is none
    right: bool = False  # whether that answer is right, even if steps are wrong
    steps: int = 0  # number of written steps
    wrong: int | None = None  # the number, from 1, of the first step that is wrong
    why: str = ""  # what is wrong, in words


@dataclass(frozen=True)
class PartialVerdict:
    """The result of checking the steps so far, which may be an incomplete solution."""

    wrong: int | None = None  # the number, from 1, of the first step that is wrong
    why: str = ""  # what is wrong, in words
    leads: bool = False  # whether all steps are right and a solution can follow or is reached
    last: str = ""  # what is wrong with the last step, assuming that the previous lines are right


class Puzzle(Protocol):
    """A kind of problem."""

    name: str
    forms: tuple[str, ...]  # how a solution can be written, those that are trained on first
    usual: tuple[str, ...]  # the forms that are trained on unless others are asked for
    vocabulary: tuple[str, ...]  # all tokens that problems and solutions are written with

    def cut(self, text: str) -> list[str]:
        """Split a text into tokens, including those outside the vocabulary."""
        ...

    def join(self, tokens: list[str]) -> str:
        """Join tokens into text as a user would write it."""
        ...

    def read(self, text: str) -> str:
        """Parse a typed problem into its canonical form. Raises DataError if it is invalid."""
        ...

    def ask(self, problem: str, form: str) -> str:
        """Return the prompt that a model continues."""
        ...

    def example(self, problem: str, form: str, random: Random) -> tuple[str, str]:
        """Return a prompt and a correct solution in that form, drawn from all solutions."""
        ...

    def judge(self, problem: str, form: str, written: str) -> Verdict:
        """Check a written solution."""
        ...


@runtime_checkable
class SearchablePuzzle(Protocol):
    """A kind of problem whose steps can be searched, because a model can rate the steps so far."""

    stepwise: tuple[str, ...]  # the forms that are written step by step
    tree: str  # the form in which any steps are proposed, and judged
    question: str  # the token that asks, in place of the end of a line
    sure: str  # the token that follows where the steps are right and a solution can follow them
    impossible: str  # and the one where not

    def ended(self, line: str) -> bool:
        """Return whether no step can follow this line."""
        ...

    def so_far(self, problem: str, written: str) -> PartialVerdict:
        """Check the steps so far."""
        ...


State = tuple[int, ...]
MOST = 100  # the largest number in a solution
SIGNS = ("+", "-", "*", "/")


class Step(NamedTuple):
    """A step that combines two numbers into one."""

    a: int
    sign: str
    b: int
    result: int
    left: State  # the numbers after the step, in ascending order

    def __str__(self) -> str:
        return f"{self.a} {self.sign} {self.b} = {self.result} (left: {' '.join(map(str, self.left))})"


def apply_operator(a: Fraction | int, sign: str, b: Fraction | int) -> Fraction | None:
    """Return a combined with b; None for a division by 0."""
    a, b = Fraction(a), Fraction(b)
    if sign == "/":
        return a / b if b else None
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


@cache
def possible_steps(state: State) -> tuple[Step, ...]:
    """Return all steps from a state in whole numbers from 0 to MOST, with the larger number first."""
    found = []
    for i, j in _pairs(state):
        b, a = state[i], state[j]  # b ≤ a
        rest = [*state[:i], *state[i + 1 : j], *state[j + 1 :]]
        made = [("+", a + b), ("-", a - b), ("*", a * b)]
        if b and a % b == 0:
            made.append(("/", a // b))
        found += [Step(a, sign, b, c, tuple(sorted([*rest, c]))) for sign, c in made if c <= MOST]
    return tuple(found)


@cache
def reachable_numbers(state: State) -> frozenset[int]:
    """Return all numbers that `steps` can make from the state."""
    if len(state) == 1:
        return frozenset(state)
    return frozenset().union(*(reachable_numbers(step.left) for step in possible_steps(state)))


def is_solvable(numbers: State, target: int = 24) -> bool:
    """Return whether the target can be made from the numbers, with fractions as intermediate results."""
    state = tuple(sorted(numbers))
    return target in reachable_numbers(state) or Fraction(target) in _reachable_fractions(tuple(map(Fraction, state)))


@cache
def _reachable_fractions(state: tuple[Fraction, ...]) -> frozenset[Fraction]:
    if len(state) == 1:
        return frozenset(state)
    found: set[Fraction] = set()
    for i, j in _pairs(state):
        b, a = state[i], state[j]
        rest = [*state[:i], *state[i + 1 : j], *state[j + 1 :]]
        made = {a + b, a - b, a * b} | ({a / b} if b else set()) | ({b / a} if a else set())
        for c in made:
            found |= _reachable_fractions(tuple(sorted([*rest, c])))
    return frozenset(found)


def _pairs(state: tuple[object, ...]) -> Iterator[tuple[int, int]]:
    """Yield pairs of positions of a state, each pair of values once."""
    seen = set()
    for i, j in combinations(range(len(state)), 2):
        if (state[i], state[j]) not in seen:
            seen.add((state[i], state[j]))
            yield i, j


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
                f"{text!r} is not a sum of two numbers of at most {DIGITS} digits.", fix="Give one, as 128+367."
            )
        return format_addition(int(found[1]), int(found[2]))

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


def format_addition(a: int, b: int) -> str:
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


ARROW = "=>"
TRIES = 20  # attempts to find a wrong step that would lead to the target
GOOD, WRONG = 0.5, 0.2  # probabilities in a tree: a step leads to the target; the last step is wrong
LARGEST, COUNTS = 13, (2, 3, 4)  # maximum and possible counts of the given numbers
TOKEN = re.compile(r"\d+|=>|\(left:|[a-z]+|\n|\S")
LINE = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+) \(left: ((?:\d+ )*\d+)\)")


class Countdown:
    """Combination of numbers, each used once, into a target by + − × ÷."""

    name = "countdown"
    forms: tuple[str, ...] = ("steps", "tree", "answer")
    usual: tuple[str, ...] = forms
    vocabulary: tuple[str, ...] = (
        *forms,
        ARROW,
        "?",
        "sure",
        "impossible",
        "(left:",
        *SIGNS,
        "=",
        ":",
        "(",
        ")",
        "\n",
        *map(str, range(MOST + 1)),
    )
    stepwise: tuple[str, ...] = ("steps", "tree")
    tree, question, sure, impossible = "tree", "?", "sure", "impossible"

    def cut(self, text: str) -> list[str]:
        """Split a text into numbers, signs, words and line ends."""
        return TOKEN.findall(text)

    def join(self, tokens: list[str]) -> str:
        """Join tokens with blanks, except inside brackets and at line ends."""
        text = " ".join(tokens)
        return re.sub(r" ?\n ?", "\n", text).replace("( ", "(").replace(" )", ")")

    def read(self, text: str) -> str:
        """Parse `4 9 10 13`, for the target 24, or `4 9 10 13 => 57`; numbers from 1 to 13 in any order."""
        numbers, arrow, target = text.partition("=>")
        found, aim = numbers.replace(",", " ").split(), target.strip() if arrow else "24"
        if not all(re.fullmatch(r"[0-9]{1,4}", n) for n in [*found, aim]) or len(found) not in COUNTS:
            raise DataError(
                f"{text!r} is not a problem of this kind.",
                fix="Give two to four whole numbers with blanks between them, as 4 9 10 13, which are to make 24; "
                "another target follows an arrow: 4 9 10 13 => 57.",
            )
        state = tuple(sorted(map(int, found)))
        if not all(1 <= n <= LARGEST for n in state) or not 1 <= int(aim) <= MOST:
            raise DataMismatchError(
                f"{text!r} has numbers that the model has no tokens or no training for.",
                fix=f"Give numbers from 1 to {LARGEST}, and a target from 1 to {MOST}.",
            )
        if not is_solvable(state, int(aim)):
            raise DataError(f"{aim} cannot be made of {numbers.strip()}: all ways were tried, fractions among them.")
        return format_countdown(state, int(aim))

    def ask(self, problem: str, form: str) -> str:
        """Return the prompt: the form, the problem and a colon; steps start on a new line."""
        return f"{form} {problem} :" + ("" if form == "answer" else "\n")

    def example(self, problem: str, form: str, random: Random) -> tuple[str, str]:
        """Return a prompt and a random solution.

        Each step is drawn from those that can still lead to the target. A tree has arbitrary steps, good and bad, and
        the value of the last one is learned; some trees end with a wrong step (`wrong_step`).
        """
        state, target = parse_countdown(problem)
        asked = self.ask(problem, form)
        if form != self.tree:
            chain = draw_solution(state, target, random)
            return asked, to_expression(chain, state) if form == "answer" else "\n".join(map(str, chain))
        lines, wrong = [], random.random() < WRONG
        for _ in range(random.randint(1, len(state) - 1) - wrong):
            able = (
                [s for s in possible_steps(state) if target in reachable_numbers(s.left)]
                if random.random() < GOOD
                else []
            )
            step = random.choice(able or possible_steps(state))
            lines.append(str(step))
            state = step.left
        if wrong:
            lines.append(str(wrong_step(state, target, random)))
            return asked + "\n".join(lines) + f" {self.question}", self.impossible
        said = self.sure if target in reachable_numbers(state) else self.impossible
        return asked, "\n".join(lines) + f" {self.question} {said}"

    def judge(self, problem: str, form: str, written: str) -> Verdict:
        """Check a solution: steps are recomputed one by one, and an expression is evaluated in fractions."""
        state, target = parse_countdown(problem)
        if form == "answer":
            return _judge_expression(written, state, target)
        lines = _lines(written)
        last = LINE.fullmatch(lines[-1]) if lines else None
        answer = last[5] if last else ""
        right = answer == str(target)
        found = self.so_far(problem, written)
        if found.wrong is not None:
            return Verdict(False, answer, right, len(lines), found.wrong, found.why)
        state = _left(lines[-1]) if lines else state
        solved = state == (target,)
        why = "" if solved else f"ends with {' '.join(map(str, state))}, not with {target}"
        return Verdict(solved, answer, right, len(lines), None if solved else len(lines), why)

    def ended(self, line: str) -> bool:
        """Return whether one number is left."""
        found = LINE.fullmatch(line.strip())
        return found is not None and " " not in found[5]

    def so_far(self, problem: str, written: str) -> PartialVerdict:
        """Check the steps so far, then search for a continuation to the target.

        Each step is recomputed from the numbers that the previous line leaves; the search uses whole numbers.
        """
        state, target = parse_countdown(problem)
        wrong, first, why = None, "", ""
        for k, line in enumerate(_lines(written), 1):
            why = _fault(line, state)
            if why and wrong is None:
                wrong, first = k, why
            state = _left(line) if LINE.fullmatch(line) else state
        return PartialVerdict(wrong, first, wrong is None and target in reachable_numbers(state), why)


def format_countdown(state: State, target: int) -> str:
    """Return a problem in its canonical form."""
    return f"{' '.join(map(str, state))} {ARROW} {target}"


@lru_cache(maxsize=1 << 16)
def parse_countdown(problem: str) -> tuple[State, int]:
    """Return the numbers of a problem, in ascending order, and its target."""
    numbers, _, target = problem.partition(ARROW)
    return tuple(map(int, numbers.split())), int(target)


def draw_solution(state: State, target: int, random: Random) -> list[Step]:
    """Draw a random chain of steps to the target, which must be reachable."""
    chain: list[Step] = []
    while len(state) > 1:
        step = random.choice([s for s in possible_steps(state) if target in reachable_numbers(s.left)])
        chain.append(step)
        state = step.left
    return chain


def wrong_step(state: State, target: int, random: Random) -> Step:
    """Return a step with a wrong result or wrong remaining numbers.

    Half of them leave numbers that would lead to the target, a typical error of a model that has learned to end with
    it.
    """
    step = random.choice(possible_steps(state))
    wanted, found = random.random() < 0.5, step
    for _ in range(TRIES):
        a, sign, b, c, left = step
        rest = list(state)
        rest.remove(a)
        rest.remove(b)
        kind = random.randrange(3)
        if kind == 0:
            c = random.choice((min(MOST, max(0, c + random.randint(-10, 10))), random.randint(0, 40)))
        elif kind == 1 and rest:
            rest[random.randrange(len(rest))] = random.choice((a, b, c, random.randint(1, LARGEST)))
        else:
            a = random.randint(1, LARGEST)
            made = apply_operator(a, sign, b)
            c = int(made) if made is not None and made.denominator == 1 and 0 <= made <= MOST else c
        left = tuple(sorted([*rest, c]))
        found = Step(a, sign, b, c, left)
        if _fault(str(found), state) and (not wanted or target in reachable_numbers(left)):
            break
    return found if _fault(str(found), state) else found._replace(result=(found.result + 1) % MOST)


def to_expression(chain: list[Step], state: State) -> str:
    """Return the steps as one expression, with brackets around intermediate results."""
    known = [(n, str(n)) for n in state]
    for step in chain:
        sides = []
        for number in (step.a, step.b):
            k = next(k for k, (n, _) in enumerate(known) if n == number)
            sides.append(known.pop(k)[1])
        known.append((step.result, f"({sides[0]} {step.sign} {sides[1]})"))
    return known[0][1].removeprefix("(").removesuffix(")") if chain else known[0][1]


def _fault(line: str, state: State) -> str:
    """Return the error in a step from the state, as text; empty if it is right."""
    found = LINE.fullmatch(line)
    if not found:
        return f"{line!r} is not a step"
    a, b, c, left = int(found[1]), int(found[3]), int(found[4]), found[5].split()
    rest = Counter(state)
    rest.subtract((a, b))
    if min(rest.values()) < 0:
        return f"{a} and {b} are not both left of {' '.join(map(str, state))}"
    if apply_operator(a, found[2], b) != c:
        return f"{a} {found[2]} {b} is not {c}"
    if Counter(map(int, left)) != +(rest + Counter([c])):
        return f"not {' '.join(left)} are left"
    return ""


def _lines(written: str) -> list[str]:
    """Return the lines of the written steps."""
    return written.strip("\n").split("\n") if written.strip() else []


def _left(line: str) -> State:
    found = LINE.fullmatch(line)
    assert found is not None
    return tuple(sorted(map(int, found[5].split())))


def _judge_expression(written: str, state: State, target: int) -> Verdict:
    """Return the verdict on an expression, which must use each number once."""
    numbers = Counter(map(int, re.findall(r"\d+", written)))
    if numbers != Counter(state):
        return Verdict(False, written, False, 1, 1, f"does not use {' '.join(map(str, state))}, each once")
    try:
        value = _evaluate(ast.parse(written.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return Verdict(False, written, False, 1, 1, "is not an expression that can be computed")
    solved = value == target
    return Verdict(solved, written, solved, 1, None if solved else 1, "" if solved else f"makes {value}, not {target}")


def _evaluate(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Fraction(node.value)
    signs: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
    if not isinstance(node, ast.BinOp) or type(node.op) not in signs:
        raise ValueError(node)
    found = apply_operator(_evaluate(node.left), signs[type(node.op)], _evaluate(node.right))
    if found is None:
        raise ZeroDivisionError
    return found


KINDS: tuple[Puzzle, ...] = (Addition(), Countdown())
PUZZLES: dict[str, Puzzle] = {kind.name: kind for kind in KINDS}


PADDING, UNKNOWN, END = 0, 1, 2
FIRST = 3  # the id of the first token of the vocabulary
AS_READ = 0  # the seed of the solutions for evaluation


class PuzzleSplit(Split):
    """Problems in each of the forms: example i is problem i // forms in form i % forms.

    A batch has inputs (N, T) and a mask, and targets (N, T) that are IGNORED up to the question's end.
    """

    def __init__(self, preprocessing: PuzzlePreprocessing, problems: Sequence[str], forms: Sequence[str]) -> None:
        self.preprocessing, self.problems, self.forms = preprocessing, problems, forms
        self.kind = preprocessing.kind

    def __len__(self) -> int:
        return len(self.problems) * len(self.forms)

    @cached_property
    def target(self) -> Tensor:  # type: ignore[override]  # lazy: takes as long as an epoch and is rarely needed
        """The targets of all examples, (n, T), with the solutions for evaluation."""
        return next(iter(self.batches([torch.arange(len(self))]))).target

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> list[Tensor]:
        """Return batches of one form where possible, because those have similar lengths."""
        return bucket_batches(self._lengths, batch_size, generator, tokens)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches with the solutions drawn from the seed."""
        for index in order:
            pairs = [self.example(i, AS_READ if seed is None else seed) for i in index.tolist()]
            yield Batch(*self.preprocessing.batch(pairs))

    def example(self, i: int, seed: int = AS_READ) -> tuple[str, str]:
        """Return the prompt and a solution."""
        return self.kind.example(self.problem(i), self.form(i), Random(f"{seed} {i}"))

    def problem(self, i: int) -> str:
        """Return the problem of an example."""
        return self.problems[i // len(self.forms)]

    def form(self, i: int) -> str:
        """Return the form of an example."""
        return self.forms[i % len(self.forms)]

    def name(self, i: int) -> str:
        """Return the prompt."""
        return " ".join(self.kind.ask(self.problem(i), self.form(i)).split())

    def row(self, i: int) -> dict[str, str] | None:
        """Return the problem."""
        return {"problem": self.problem(i)}

    @cached_property
    def _lengths(self) -> Tensor:
        """The approximate number of tokens of each example, that of the first example of its form, (n,)."""
        each = [sum(len(self.kind.cut(text)) for text in self.example(k)) for k in range(len(self.forms))]
        return torch.tensor(each).repeat(len(self.problems))


class QuestionSplit(PuzzleSplit):
    """Problems given by a user, without targets."""

    target = None  # type: ignore[assignment]

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches of questions only."""
        for index in order:
            ids, mask = self.preprocessing.encode_questions([self.problem(i) for i in index.tolist()])
            yield Batch((ids, mask), torch.empty(len(ids), 0))


@dataclass(frozen=True)
class PuzzlePreprocessing:
    """Conversion of problems and solutions to ids, and of ids to text."""

    spec: TextSpec

    SCHEMA: ClassVar[Mapping[str, Any]] = {"spec": specs.SCHEMA}

    @property
    def kind(self) -> Puzzle:
        """The kind of problem."""
        assert isinstance(self.spec.target, Solution)
        return PUZZLES[self.spec.target.problem]

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that are learned."""
        assert isinstance(self.spec.target, Solution)
        return self.spec.target.forms

    @property
    def form(self) -> str:
        """The form used for evaluation."""
        return self.forms[0]

    @property
    def never(self) -> list[int]:
        """The ids that are never generated: padding, unknown and the question token."""
        asking = getattr(self.kind, "question", None)
        return [PADDING, UNKNOWN, *([self.ids[asking]] if asking is not None else [])]

    def in_form(self, form: str | None) -> PuzzlePreprocessing:
        """Return the same preprocessing with solutions in another form. Raises SettingError for an unknown form."""
        if form is None or form == self.form:
            return self
        if form not in self.forms:
            raise IncompatibleSettingError(f"form={form} was not learned: this run writes {', '.join(self.forms)}.")
        assert isinstance(self.spec.target, Solution)
        target = replace(self.spec.target, forms=(form, *(f for f in self.forms if f != form)))
        return replace(self, spec=replace(self.spec, target=target))

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token."""
        return {token: FIRST + k for k, token in enumerate(self.kind.vocabulary)}

    @property
    def names(self) -> list[str]:
        """Every token by its id."""
        return ["(padding)", "(unknown)", "(end)", *self.kind.vocabulary]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return [self.ids.get(token, UNKNOWN) for token in self.kind.cut(text)]

    def words(self, ids: Iterable[int]) -> str:
        """Return the text of ids, up to the end of the solution; padding is skipped."""
        tokens = []
        for i in ids:
            if i == END:
                break
            if i >= UNKNOWN:
                tokens.append(self.kind.vocabulary[i - FIRST] if i >= FIRST else "?")
        return self.kind.join(tokens)

    def batch(self, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Return questions with their solutions: ids and mask (N, T), and the next token of each, (N, T)."""
        return pad_puzzles([(self.encode(asked), [*self.encode(solution), END]) for asked, solution in pairs])

    def encode_questions(self, problems: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return questions only: ids and mask (N, T)."""
        rows = [torch.tensor(self.encode(self.kind.ask(problem, self.form))) for problem in problems]
        ids = pad_sequence(rows, batch_first=True, padding_value=PADDING)
        return ids, ids != PADDING

    def examples(self, sources: Sequence[Any]) -> PuzzleSplit:
        """Prepare typed problems. Raises DataError for an invalid or unsolvable one."""
        sources = [sources] if isinstance(sources, str) else list(sources)
        return QuestionSplit(self, [self.kind.read(str(one)) for one in sources], (self.form,))

    def labelled(self, source: str | Path) -> PuzzleSplit:
        """Prepare a text file with a problem on each line; solutions are computed."""
        path = Path(source).expanduser()
        require_regular_file(path)
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not lines:
            raise DataError(f"{path} holds no problem.", fix="Write one on each line.")
        return PuzzleSplit(self, [self.kind.read(line) for line in lines], (self.form,))

    def adopted(self, split: Split, theirs: Any) -> PuzzleSplit:
        """Prepare the problems of another set of the same kind."""
        if not isinstance(split, PuzzleSplit) or split.kind.name != self.kind.name:
            raise DataMismatchError(
                f"These problems are not {self.kind.name}, on which this run was trained: give problems of that kind."
            )
        return PuzzleSplit(self, split.problems, (self.form,))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` restores an equal object."""
        return {"kind": "text", "form": "problems", "spec": specs.to_json(self.spec)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PuzzlePreprocessing:
        """Restore the object that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        found = cls(specs.read_spec(data["spec"], TextSpec, Solution))
        if len(found.kind.vocabulary) + FIRST != found.spec.vocab_size:
            raise ValueError("problems of this kind are written with other tokens now")
        return found


def pad_puzzles(rows: Sequence[tuple[list[int], list[int]]]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Pad questions with their solutions: ids and mask (N, T), and the next token of each, (N, T).

    The targets are IGNORED up to the question's end.
    """
    inputs = [torch.tensor([*asked, *solution[:-1]]) for asked, solution in rows]
    targets = [torch.tensor([*[IGNORED] * (len(asked) - 1), *solution]) for asked, solution in rows]
    ids = pad_sequence(inputs, batch_first=True, padding_value=PADDING)
    return (ids, ids != PADDING), pad_sequence(targets, batch_first=True, padding_value=IGNORED)
