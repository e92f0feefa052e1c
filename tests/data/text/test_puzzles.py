"""Problems: which can be solved at all, that every solution given is right, and that a wrong one is found out."""

from __future__ import annotations

import csv
from itertools import combinations_with_replacement
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError
from cutaway.data.text.puzzles import (
    MOST,
    PUZZLES,
    Addition,
    Countdown,
    SearchablePuzzle,
    format_countdown,
    is_solvable,
    parse_countdown,
    possible_steps,
    reachable_numbers,
)

HANDS = list(combinations_with_replacement(range(1, 14), 4))
COUNTDOWN, ADDITION = Countdown(), Addition()
states = st.lists(st.integers(1, 13), min_size=2, max_size=4).map(lambda n: tuple(sorted(n)))


def test_the_solver_finds_exactly_the_published_number_of_hands() -> None:
    assert len(HANDS) == 1820
    assert sum(is_solvable(hand) for hand in HANDS) == 1362


def test_the_solvable_hands_are_those_of_the_list(shared_data: Path) -> None:
    with (shared_data / "game24" / "24.csv").open() as file:
        listed = {tuple(sorted(map(int, row["Puzzles"].split()))) for row in csv.DictReader(file)}
    assert listed == {hand for hand in HANDS if is_solvable(hand)}


@settings(max_examples=60, deadline=None)
@given(states)
def test_whole_numbers_reach_nothing_that_fractions_do_not(state: tuple[int, ...]) -> None:
    assert all(is_solvable(state, target) for target in list(reachable_numbers(state))[:20])
    for step in possible_steps(state):
        assert len(step.left) == len(state) - 1
        assert all(0 <= n <= MOST for n in step.left)


@settings(max_examples=60, deadline=None)
@given(states, st.integers(0, 1 << 30))
def test_every_solution_that_is_given_is_right(state: tuple[int, ...], seed: int) -> None:
    random = Random(seed)
    problem = format_countdown(state, random.choice(sorted(reachable_numbers(state) - {0}) or [0]))
    for form in ("steps", "answer"):
        asked, solution = COUNTDOWN.example(problem, form, random)
        assert asked == COUNTDOWN.ask(problem, form)
        assert COUNTDOWN.judge(problem, form, solution).solved, (problem, form, solution)
        assert set(COUNTDOWN.cut(asked + solution)) <= {*COUNTDOWN.vocabulary}
        assert COUNTDOWN.join(COUNTDOWN.cut(solution)) == solution


@settings(max_examples=200, deadline=None)
@given(states, st.integers(0, 1 << 30))
def test_a_tree_has_steps_of_all_kinds_and_says_what_they_are_worth(state: tuple[int, ...], seed: int) -> None:
    random = Random(seed)
    target = random.choice(sorted(reachable_numbers(state) - {0}) or [0])
    problem = format_countdown(state, target)
    asked, solution = COUNTDOWN.example(problem, "tree", random)
    assert asked.startswith(COUNTDOWN.ask(problem, "tree"))
    assert set(COUNTDOWN.cut(asked + solution)) <= {*COUNTDOWN.vocabulary}
    written = asked.removeprefix(COUNTDOWN.ask(problem, "tree")) + " " + solution
    *lines, last = COUNTDOWN.join(COUNTDOWN.cut(written)).strip().split("\n")
    last, answer = last.split(" ? ")
    left: tuple[int, ...] = state
    for line in lines:
        left = {str(step): step.left for step in possible_steps(left)}[line]
    able = {str(step): step.left for step in possible_steps(left)}
    assert (answer == "sure") is (last in able and target in reachable_numbers(able[last]))
    if last not in able:  # a temptation, which is not learned to be written
        assert solution == "impossible"
        why = COUNTDOWN.judge(format_countdown(left, target), "tree", last).why
        assert why
        assert not why.startswith("ends with") or last.split(" (")[0] not in {one.split(" (")[0] for one in able}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), st.integers(0, 999))
def test_every_sum_that_is_given_is_right(a: int, b: int) -> None:
    problem = ADDITION.read(f"{a} + {b}")
    for form in ADDITION.forms:
        asked, solution = ADDITION.example(problem, form, Random(0))
        verdict = ADDITION.judge(problem, form, solution)
        assert verdict.solved
        assert verdict.answer == str(a + b)
        assert set(ADDITION.cut(asked + solution)) <= {*ADDITION.vocabulary}
        wrong = solution[:-1] + str((int(solution[-1]) + 1) % 10)
        assert not ADDITION.judge(problem, form, wrong).solved


@pytest.mark.parametrize(
    ("written", "step", "why"),
    [
        ("13 - 9 = 4 (left: 4 4 10)\n10 - 4 = 5 (left: 4 5)\n4 * 5 = 24 (left: 24)", 2, "10 - 4 is not 5"),
        ("13 - 8 = 5 (left: 4 5 10)", 1, "13 and 8 are not both left"),
        ("13 - 9 = 4 (left: 4 4 11)", 1, "not 4 4 11 are left"),
        ("13 - 9 = 4 (left: 4 4 10)\n10 - 4 = 6", 2, "is not a step"),
        ("13 - 9 = 4 (left: 4 4 10)\n10 - 4 = 6 (left: 4 6)\n4 + 6 = 10 (left: 10)", 3, "ends with 10, not with 24"),
        ("", 0, "ends with 4 9 10 13"),
    ],
)
def test_the_first_wrong_step_is_named(written: str, step: int, why: str) -> None:
    verdict = COUNTDOWN.judge("4 9 10 13 => 24", "steps", written)
    assert not verdict.solved
    assert verdict.wrong == step
    assert why in verdict.why


def test_a_right_answer_by_a_wrong_step_is_no_solution() -> None:
    written = "13 - 9 = 4 (left: 4 4 10)\n10 - 4 = 5 (left: 4 5)\n4 * 5 = 24 (left: 24)"
    verdict = COUNTDOWN.judge("4 9 10 13 => 24", "steps", written)
    assert verdict.right
    assert not verdict.solved


@pytest.mark.parametrize(
    ("written", "solved"),
    [
        ("(13 - 9) * (10 - 4)", True),
        ("(13 - 9) * (9 - 4)", False),
        ("13 - 9 * (10 - 4)", False),
        ("(13 - 9) * (10 - 4", False),
        ("4 / (9 - 9) + 10", False),
        ("__import__('os')", False),
        ("", False),
    ],
)
def test_an_expression_is_computed_and_must_use_each_number_once(written: str, solved: bool) -> None:
    assert COUNTDOWN.judge("4 9 10 13 => 24", "answer", written).solved is solved


@pytest.mark.parametrize(
    "text", ["1 1 1 1", "hello", "", "1 2 3 4 5", "7", "4 9 10 14", "4 9 10 13 => x", "1 2 => 999"]
)
def test_what_is_no_problem_is_told_so(text: str) -> None:
    with pytest.raises(DataError):
        COUNTDOWN.read(text)


def test_an_unsolvable_hand_is_refused_because_all_ways_were_tried() -> None:
    with pytest.raises(DataError, match="24 cannot be made of 1 1 1 1: all ways were tried"):
        COUNTDOWN.read("1 1 1 1")
    assert parse_countdown(COUNTDOWN.read("13, 4, 10, 9")) == ((4, 9, 10, 13), 24)


@pytest.mark.parametrize("text", ["12", "1000+1", "a+b", "1+2+3", "-1+2"])
def test_what_is_no_sum_is_told_so(text: str) -> None:
    with pytest.raises(DataError, match="Give one, as 128"):
        ADDITION.read(text)


def test_steps_of_countdown_can_be_searched_and_digits_of_a_sum_cannot() -> None:
    assert isinstance(COUNTDOWN, SearchablePuzzle)
    assert not isinstance(ADDITION, SearchablePuzzle)


def test_kinds_are_known_by_their_names() -> None:
    assert {name: kind.name for name, kind in PUZZLES.items()} == {"addition": "addition", "countdown": "countdown"}


@settings(max_examples=60, deadline=None)
@given(states, st.integers(0, 1 << 30))
def test_steps_so_far_are_judged_one_by_one(state: tuple[int, ...], seed: int) -> None:
    random = Random(seed)
    target = random.choice(sorted(reachable_numbers(state)))
    problem = format_countdown(state, target)
    lines, left = [], state
    while len(left) > 1:
        step = random.choice(possible_steps(left))
        lines.append(str(step))
        left = step.left
        found = COUNTDOWN.so_far(problem, "\n".join(lines))
        assert (found.wrong, found.why, found.last) == (None, "", "")
        assert found.leads is (target in reachable_numbers(left))
    assert found.leads is COUNTDOWN.judge(problem, "steps", "\n".join(lines)).solved
    place = random.randrange(len(lines))
    whole = lines[place].replace("= ", "= 9")
    wrong = COUNTDOWN.so_far(problem, "\n".join([*lines[:place], whole, *lines[place + 1 :]]))
    assert wrong.wrong == place + 1
    assert wrong.why
    assert not wrong.leads
    assert bool(wrong.last) is (place == len(lines) - 1)  # those after it are right, taking what it says is left
    assert COUNTDOWN.so_far(problem, "") == COUNTDOWN.so_far(problem, "\n")


def test_a_line_that_is_no_step_leaves_what_was_left() -> None:
    found = COUNTDOWN.so_far("1 2 3 4 => 24", "I think\n3 * 4 = 12 (left: 1 2 12)")
    assert (found.wrong, found.why, found.last) == (1, "'I think' is not a step", "")
