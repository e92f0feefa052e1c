"""cutaway generate and evaluate on runs that solve problems: chains and trees, and what they cannot be asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import cutaway

from .conftest import Answer

Cli = Callable[..., Answer]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A run that has learned a little of the game of 24, and one of sums."""
    folder = tmp_path_factory.mktemp("runs")
    small = {"model.dim": 16, "model.layers": 1, "model.heads": 2, "max_samples": 64, "tensorboard": False}
    for name, data, form in (("game", "game24", ("steps", "tree")), ("sums", "addition", ("reversed",))):
        cutaway.train("gpt2", data, out=folder / name, form=form, epochs=6, lr=1e-2, **small)
    return {name: str(folder / name) for name in ("game", "sums")}


def test_a_tree_is_printed_with_what_it_cost(cli: Cli, runs: dict[str, str], tmp_path: Path) -> None:
    asked = ("generate", runs["game"], "--prompt", "13 4 10 9", "--method", "tree", "--breadth", "2", "--depth", "2")
    answer = cli(*asked)
    assert answer.status == 0, answer.err
    assert answer.out.startswith("4 9 10 13 => 24\n")
    assert " tokens\n" in answer.out
    assert answer.out == cli(*asked).out
    found = json.loads(cli(*asked, "--json").out)
    assert found["problem"] == "4 9 10 13 => 24"
    assert found["tokens"] > 8
    assert len(found["thoughts"]) >= 1
    assert all(0 <= thought["value"] <= 1 for thought in found["thoughts"])
    assert {thought["parent"] for thought in found["thoughts"]} - {None} <= {*range(len(found["thoughts"]))}


def test_a_chain_is_judged(cli: Cli, runs: dict[str, str]) -> None:
    answer = cli("generate", runs["sums"], "--prompt", "128+367")
    assert answer.status == 0, answer.err
    assert answer.out.startswith("128+367\n")
    assert "not solved: step 1: is 495; 1 thoughts" in answer.out or "solved; 1 thoughts" in answer.out


def test_a_run_is_evaluated_by_a_method(cli: Cli, runs: dict[str, str]) -> None:
    for method in (("greedy",), ("verifier", "--samples", "3"), ("tree", "--breadth", "2", "--proposals", "2")):
        answer = cli("evaluate", runs["game"], "--method", *method, "--json")
        assert answer.status == 0, answer.err
        found = json.loads(answer.out)
        assert 0 <= found["solved"]["value"] <= found["answer_accuracy"]["value"] <= 1
        assert found["tokens_per_problem"]["value"] > 8


def test_problems_of_ones_own_are_evaluated_and_solved(cli: Cli, runs: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("1 2 3 4\n\n3 8\n")
    assert "solved" in cli("evaluate", runs["game"], str(file)).out
    assert "solved" in cli("evaluate", runs["game"], "countdown").out
    rows = json.loads(cli("predict", runs["game"], "1 2 3 4", "--json").out)
    assert "solution" in str(rows)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("generate", "game", "--prompt", "1 1 1 1"), "24 cannot be made of 1 1 1 1"),
        (("generate", "game", "--prompt", "4 9 10 99"), "give numbers from 1 to 13"),
        (("generate", "game", "--prompt", "hello"), "is not a problem of this kind"),
        (("generate", "game"), "Missing --prompt: give a problem"),
        (("generate", "game", "--prompt", "3 8", "--count", "9"), "--count is not supported for problem solving"),
        (("generate", "game", "--prompt", "3 8", "--method", "tree", "--breadth", "0"), "Invalid breadth=0"),
        (("generate", "game", "--prompt", "3 8", "--form", "answer"), "form=answer was not learned"),
        (("generate", "sums", "--prompt", "1+1", "--method", "tree"), "trained to propose and value steps"),
        (("evaluate", "sums", "--method", "depth-first"), "trained to propose and value steps"),
        (("evaluate", "sums", "game24"), "problems are not addition"),
        (("evaluate", "sums", "nowhere.txt"), "There is no file"),
    ],
)
def test_what_cannot_be_is_refused_in_a_paragraph(
    cli: Cli, runs: dict[str, str], words: tuple[str, ...], named: str
) -> None:
    answer = cli(*(runs.get(word, word) for word in words))
    assert answer.status == 2
    assert named.lower() in " ".join(answer.err.split()).lower()
    assert "Traceback" not in answer.err
