"""The rows of recipes/chain_weaknesses.py, measured on networks whose behaviour is known exactly."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import cutaway
from cutaway.core.spec import Solution, TextSpec
from cutaway.data.text.puzzles import (
    END,
    FIRST,
    Countdown,
    PuzzlePreprocessing,
    PuzzleSplit,
    draw_solution,
    parse_countdown,
    possible_steps,
    reachable_numbers,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
weaknesses: Any = importlib.import_module("recipes.chain_weaknesses")

SIZE = len(Countdown.vocabulary) + FIRST
PREPROCESSING = PuzzlePreprocessing(TextSpec(SIZE, 60, Solution(SIZE, problem="countdown", forms=("steps", "tree"))))
KIND = Countdown()
PROBLEMS = [  # with and without first steps after which the target cannot be reached, and one of four numbers
    *("1 2 3 => 6", "2 3 4 => 24", "1 1 1 => 3", "2 5 9 => 16", "7 7 10 => 21", "1 2 3 4 => 24"),
]


class Writer(torch.nn.Module):
    """A network that continues each prompt as a function of its text does, each token with the same probability."""

    def __init__(self, write: Callable[[str], str], margin: float = 20.0) -> None:
        super().__init__()
        self.write, self.margin = write, margin
        self.next: dict[tuple[int, ...], int] = {}

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (N, T, V), of the last token alone."""
        logits = torch.zeros(*ids.shape, SIZE)
        for k, row in enumerate(ids.tolist()):
            if tuple(row) not in self.next and END not in row:
                written = row
                for token in [*PREPROCESSING.encode(self.write(PREPROCESSING.words(row))), END]:
                    self.next[tuple(written)] = token
                    written = [*written, token]
            if tuple(row) in self.next:  # after the end of its text, all tokens are equally probable
                logits[k, -1, self.next[tuple(row)]] = self.margin
        return logits


def lost_steps(problem: str) -> list[Any]:
    """The valid first steps after which the target cannot be reached."""
    state, target = parse_countdown(problem)
    return [step for step in possible_steps(state) if target not in reachable_numbers(step.left)]


def claim(state: tuple[int, ...], target: int) -> str:
    """A last line that computes something else and says that the target is left."""
    a, b = sorted(state)[-2:]
    return f"{a} + {b} = {a + b} (left: {target})" if a + b != target else f"{a} - {b} = {a} (left: {target})"


def solve(prompt: str, ascending: bool = False, honest: bool = False) -> str:
    """Solve what can be solved; where it cannot, end with the target, or honestly with something else."""
    question, _, done = prompt.removeprefix("steps ").partition(" :\n")
    numbers, target = parse_countdown(question)
    left = done.rstrip().rpartition("(left:")[2].strip(" )").split() if done else map(str, numbers)
    state = tuple(sorted(map(int, left)))
    if target not in reachable_numbers(state) or (ascending and list(numbers) != sorted(numbers)):
        if honest:
            return str(possible_steps(state)[0])
        return claim(state, target)
    return "\n".join(map(str, draw_solution(state, target, Random(0))))


def lose(prompt: str) -> str:
    """Take a first step that loses the target wherever there is one, then claim the target."""
    question, _, done = prompt.removeprefix("steps ").partition(" :\n")
    numbers, target = parse_countdown(question)
    lost = lost_steps(f"{' '.join(map(str, sorted(numbers)))} => {target}")
    if done or not lost:
        return solve(prompt)
    return f"{lost[0]}\n{claim(lost[0].left, target)}" if len(numbers) > 2 else str(lost[0])


def run_of(model: torch.nn.Module, problems: list[str] = PROBLEMS) -> Any:
    """What the recipe asks of a run: its network, its preprocessing, and its test problems."""
    split = PuzzleSplit(PREPROCESSING, problems, ("steps", "tree"))
    return SimpleNamespace(
        model=model, preprocessing=PREPROCESSING, data=lambda: SimpleNamespace(splits={"test": split})
    )


def measured(model: torch.nn.Module) -> dict[str, tuple[float, int]]:
    """The rows by the first words of their names."""
    return {what.partition(",")[0]: (value, n) for what, value, n in weaknesses.measure(run_of(model))}


FIRST_VALID = "error accumulation: the first step is valid"
REACHABLE = "error accumulation: the target can still be reached after the first step"
SECOND = "error accumulation: the second step is right"
UNFAITHFUL = "unfaithful conclusion: failed chains that end with the target"
CONFIDENT = "confident errors: failed chains whose every token has a probability above 90%"
FORCED = "unfaithful conclusion: a first step is forced that loses"
ORDER = "order: solved with the numbers in descending order"
RANGE = "range: targets from 31 to 60"
LENGTH = "length: two numbers"


def test_a_network_that_solves_everything_has_no_weakness_but_what_is_forced() -> None:
    found = measured(Writer(solve))
    n = len(PROBLEMS)
    assert found["problems solved"] == found[FIRST_VALID] == found[REACHABLE] == found[SECOND] == (1, n)
    assert found[UNFAITHFUL] == found[CONFIDENT] == (0, 0)
    assert found[FORCED] == (1, sum(map(bool, map(lost_steps, PROBLEMS))))  # it claims the target, which it lost
    assert found[ORDER] == (1, n)
    assert found[RANGE][0] == found[LENGTH][0] == 1
    assert found[RANGE][1] == 8  # 31 to 60 of 1 2 3 4 and of 2 5 9 among them
    assert found[LENGTH][1] == 200


def test_a_network_that_knows_one_order_fails_at_the_other() -> None:
    found = measured(Writer(lambda prompt: solve(prompt, ascending=True)))
    assert found["problems solved"] == (1, len(PROBLEMS))
    same = sum(len(set(parse_countdown(problem)[0])) == 1 for problem in PROBLEMS)  # 1 1 1 has one order
    assert found[ORDER] == (pytest.approx(same / len(PROBLEMS)), len(PROBLEMS))


@pytest.mark.parametrize(("margin", "confident"), [(20.0, 1), (1.0, 0)])
def test_a_network_that_loses_the_target_and_claims_it(margin: float, confident: int) -> None:
    found = measured(Writer(lose, margin))
    failed = sum(map(bool, map(lost_steps, PROBLEMS)))
    solved = len(PROBLEMS) - failed
    assert failed > 0
    assert found["problems solved"] == found[REACHABLE] == (pytest.approx(solved / len(PROBLEMS)), len(PROBLEMS))
    assert found[FIRST_VALID] == (1, len(PROBLEMS))
    assert found[SECOND] == (1 if solved else 0, solved)
    assert found[UNFAITHFUL] == (1, failed)
    assert found[CONFIDENT] == (confident, failed)
    assert found[LENGTH][0] < 0.1  # a single step is all there is


def test_an_invalid_first_step_is_seen() -> None:
    found = measured(Writer(lambda prompt: "1 + 1 = 3 (left: 3 3)\n3 + 3 = 6 (left: 6)"))
    assert found[FIRST_VALID] == found[REACHABLE] == found["problems solved"] == (0, len(PROBLEMS))
    assert found[UNFAITHFUL] == (pytest.approx(1 / 6), 6)  # the target of one of them is 6


def test_a_network_that_does_not_claim_what_it_lost() -> None:
    found = measured(Writer(lambda prompt: solve(prompt, honest=True)))
    assert found["problems solved"] == (1, len(PROBLEMS))
    assert found[FORCED] == (0, sum(map(bool, map(lost_steps, PROBLEMS))))


def test_what_follows_the_end_of_a_chain_does_not_count() -> None:
    """Two prompts of one length, one of which is continued by one token and the other by many."""
    long = "2 + 3 = 5 (left: 5 4)"
    model = Writer(lambda prompt: long if "2 3 4" in prompt else "7")
    short, other = weaknesses.write_chains(run_of(model), ["steps 1 1 1 => 3 :\n", "steps 2 3 4 => 9 :\n"])
    assert (short.text, other.text) == ("7", long)
    assert short.confidence == other.confidence > 0.99


def test_chains_of_a_batch_are_those_that_are_written_alone() -> None:
    """With random weights: the text of the most likely tokens, and the least of their probabilities."""
    model: Any = cutaway.create_model("gpt2", vocab_size=SIZE, context_length=60, dim=16, layers=1, heads=2).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(40)  # so that tokens differ in probability
    prompts = [KIND.ask(problem, form) for problem in (*PROBLEMS, "3 8 => 24") for form in ("steps", "answer")]
    chains = weaknesses.write_chains(run_of(model), prompts)
    for prompt, chain in zip(prompts, chains, strict=True):
        ids, least = PREPROCESSING.encode(prompt), 1.0
        start = len(ids)
        while len(ids) < min(60, start + weaknesses.LONGEST):
            with torch.no_grad():
                logits = model(torch.tensor([ids]))[0, -1]
            logits[PREPROCESSING.never] = -torch.inf
            p, token = logits.softmax(0).max(0)
            least = min(least, float(p))
            ids.append(int(token))
            if token == END:
                break
        assert chain.text == PREPROCESSING.words(ids[start:])
        assert chain.confidence == pytest.approx(least, rel=1e-4)
    assert len({chain.text for chain in chains}) > 1


def test_fractions_and_targets_are_counted() -> None:
    assert weaknesses.row("x", [True, False, False, True]) == ("x", 0.5, 4)
    assert weaknesses.row("x", []) == ("x", 0.0, 0)
    assert weaknesses.targets((3, 4)) == [1, 7, 12]
    assert weaknesses.targets((6, 12)) == [2, 6, 18]  # 72 is above 30


def test_a_run_has_every_row(tmp_path: Path) -> None:
    tiny: dict[str, Any] = {"model.dim": 8, "model.layers": 1, "model.heads": 1, "model.dropout": 0, "threads": 1}
    run = cutaway.train("gpt2", "countdown3", form="steps", max_steps=1, out=tmp_path / "run", **tiny)
    rows = {what: (value, n) for what, value, n in weaknesses.measure(run)}
    assert len(rows) == 10
    assert all(0 <= value <= 1 for value, _ in rows.values())
    assert [n for _, n in rows.values()][:3] == [311] * 3
    assert rows["problems solved"][0] == 0  # it has learned nothing
