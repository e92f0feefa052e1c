"""Problems solved in writing: forms of a sum beside each other, chains and trees of thought, one's own solutions."""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cutaway
from cutaway.apps.cli.arguments import flatten
from cutaway.data.text.puzzles import PuzzlePreprocessing, PuzzleSplit, SearchablePuzzle
from cutaway.inference.thought_search import Method
from cutaway.runs.run import Run

from .intervals import student

SEVERAL = 20  # chains of a problem
METHODS = {
    "answer alone": Method(form="answer"),
    "chain": Method(),
    f"majority of {SEVERAL} chains": Method("consistency", samples=SEVERAL),
    f"likeliest of {SEVERAL}": Method("likelihood", samples=SEVERAL),
    f"{SEVERAL} chains, verified": Method("verifier", samples=SEVERAL),
    "tree, b = 1": Method("tree", breadth=1),
    "tree, b = 5": Method("tree", breadth=5),
}
SHOWN = 3  # solutions of each kind of error


def addition(recipe: dict[str, Any]) -> dict[str, Any]:
    """Exact sums by form and number of examples, as a row of results: the score of `form` with most examples."""
    scores: dict[str, list[list[float]]] = {form: [] for form in recipe["forms"]}
    seconds, run = 0.0, None
    with tempfile.TemporaryDirectory() as folder:
        for form, rows in scores.items():
            for count in recipe["examples"]:
                rows.append([])
                for seed in recipe["seeds"]:
                    given = flatten(recipe["settings"]) | {"form": form, "max_samples": count, "seed": seed}
                    out = Path(folder) / f"{form}-{count}-{seed}"
                    run = cutaway.train(recipe["model"], "addition", out=out, **given)
                    rows[-1].append(run.evaluate()["solved"].value)
                    seconds += run.about["seconds"]
                    print(form, count, seed, rows[-1][-1], flush=True)
    assert run is not None
    return {
        **student(scores[recipe["form"]][-1]),
        **_about(recipe, run, seconds),
        "beside": [
            [f"{form}, {count:,} examples", statistics.mean(found), "solved"]
            for form, rows in scores.items()
            for count, found in zip(recipe["examples"], rows)
        ],
        "count": 1000,
        "split": "test sums",
        "scores": scores,
    }


def thoughts(recipe: dict[str, Any]) -> dict[str, Any]:
    """One network a seed, asked by every method, as a row of results: what a tree of breadth 5 solves."""
    solved: dict[str, list[float]] = {name: [] for name in METHODS}
    tokens: dict[str, list[float]] = {name: [] for name in METHODS}
    seconds, errors = 0.0, Errors()
    with tempfile.TemporaryDirectory() as folder:
        for seed in recipe["seeds"]:
            run = cutaway.train(
                recipe["model"], recipe["data"], out=Path(folder) / str(seed), seed=seed, **flatten(recipe["settings"])
            )
            seconds += run.about["seconds"]
            for name, method in METHODS.items():
                found = run.evaluate(method=method)
                solved[name].append(found["solved"].value)
                tokens[name].append(found["tokens_per_problem"].value)
                print(seed, name, solved[name][-1], tokens[name][-1], flush=True)
            errors.add(run)
    pairs = (("chain", "answer alone"), ("tree, b = 1", "chain"), ("tree, b = 5", "tree, b = 1"))
    return {
        **student(solved["tree, b = 5"]),
        **_about(recipe, run, seconds),
        "beside": [[name, statistics.mean(of), "solved"] for name, of in solved.items() if name != "tree, b = 5"],
        "count": 100,
        "split": "test puzzles",
        "methods": {name: {"solved": solved[name], "tokens": tokens[name]} for name in METHODS},
        "gains": {
            f"{one} over {other}": student([a - b for a, b in zip(solved[one], solved[other])]) for one, other in pairs
        },
        "errors": errors.to_json(),
    }


def own_answers(recipe: dict[str, Any]) -> dict[str, Any]:
    """What a greedy chain solves before and after learning from its own solutions: the gain of the first objective.

    An objective may have fewer `seeds` than the recipe, the first of them. Of a `record`, the row that there is, the
    scores are taken, and only the seeds after them are trained. The row is kept after every seed, so that whoever kills
    it loses none that is whole.
    """
    record: dict[str, Any] = recipe["record"]
    names = [stage["name"] for stage in recipe["then"]]
    solved: dict[str, list[float]] = record.get("solved") or {name: [] for name in ("before", *names)}
    seconds, row = float(record.get("seconds", 0)), record
    with tempfile.TemporaryDirectory() as folder:
        for seed in recipe["seeds"][len(solved["before"]) :]:
            first = cutaway.train(
                recipe["model"], recipe["data"], out=Path(folder) / f"{seed}", seed=seed, **flatten(recipe["settings"])
            )
            solved["before"].append(first.evaluate(method=Method())["solved"].value)
            seconds += first.about["seconds"]
            for stage in recipe["then"]:
                if seed not in stage.get("seeds", recipe["seeds"]):
                    continue
                given = flatten(stage["settings"]) | {"seed": seed, "weights": str(first.folder)}
                out = Path(folder) / f"{seed}-{stage['name']}"
                run = cutaway.train(recipe["model"], recipe["data"], out=out, **given)
                solved[stage["name"]].append(run.evaluate(method=Method())["solved"].value)
                seconds += run.about["seconds"]
                print(seed, solved["before"][-1], stage["name"], solved[stage["name"]][-1], flush=True)
            if len(solved["before"]) >= 2:  # of which there is an interval
                row = _learned(solved, names) | _about(recipe, first, seconds) | {"runs": len(solved["before"])}
                recipe["keep"](row)
    return row


def _learned(solved: dict[str, list[float]], names: list[str]) -> dict[str, Any]:
    """The gain of each objective over what was solved before it, by those seeds that it has, as a row of results."""
    gains = {name: student([a - b for a, b in zip(solved[name], solved["before"])]) for name in names}
    told = [["before", statistics.mean(solved["before"]), "solved"]]
    for name in names:
        told.append([name, statistics.mean(solved[name]), "solved"])
        runs = "" if len(solved[name]) == len(solved["before"]) else f", {len(solved[name])} runs"
        told.append([f"gain of {name} ({_points(gains[name])}{runs})", gains[name]["value"], "accuracy_gain"])
    return {**gains[names[0]], "beside": told, "count": 100, "split": "test puzzles", "solved": solved}


class Errors:
    """How greedy chains fail: where the first wrong step is, and examples of each kind of error."""

    def __init__(self) -> None:
        self.chains = self.solved = self.ended_right = 0
        self.steps: Counter[int] = Counter()  # the first wrong one
        self.lost: Counter[int] = Counter()  # the first after which no solution can follow
        self.examples: dict[str, list[dict[str, str]]] = {}

    def add(self, run: Run) -> None:
        """Those of a run on its test problems."""
        preprocessing, split = run.preprocessing, run.data().splits["test"]
        assert isinstance(preprocessing, PuzzlePreprocessing)
        assert isinstance(split, PuzzleSplit)
        for found in run.think(split.problems):
            problem = found.root.text
            verdict = preprocessing.kind.judge(problem, preprocessing.form, found.solution)
            self.chains += 1
            self.solved += verdict.solved
            if verdict.solved:
                continue
            self.ended_right += verdict.right
            self.steps[verdict.wrong or 0] += 1
            assert isinstance(preprocessing.kind, SearchablePuzzle)
            lines = found.solution.split("\n")
            so_far = ("\n".join(lines[:k]) for k in range(1, len(lines) + 1))
            leads = [preprocessing.kind.so_far(problem, written).leads for written in so_far]
            self.lost[leads.index(False) + 1] += 1
            own = self.examples.setdefault(_kind(verdict.why), [])
            if len(own) < SHOWN:
                own.append(
                    {"problem": problem, "written": found.solution, "wrong": str(verdict.wrong), "why": verdict.why}
                )

    def to_json(self) -> dict[str, Any]:
        """Counts and examples."""
        return {
            "chains": self.chains,
            "solved": self.solved,
            "wrong_with_the_right_end": self.ended_right,
            "first_wrong_step": {str(k): n for k, n in sorted(self.steps.items())},
            "first_lost_step": {str(k): n for k, n in sorted(self.lost.items())},
            "examples": self.examples,
        }


def _kind(why: str) -> str:
    """The kind of an error, by its description."""
    for part, kind in (
        ("not both left", "a number that is not there"),
        ("are left", "a wrong remainder"),
        ("is no step", "no step"),
        ("ends with", "a right chain to a wrong end"),
    ):
        if part in why:
            return kind
    return "wrong arithmetic"


def _about(recipe: dict[str, Any], run: Run, seconds: float) -> dict[str, Any]:
    about = run.about
    return {
        "command": f"python -m recipes {recipe['name']}",
        "runs": len(recipe["seeds"]),
        "parameters": about["parameters"],
        "seconds": seconds,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{about['machine']['threads']} threads, {about['machine']['device']}, PyTorch "
        f"{about['versions']['torch']}",
    }


def _points(gain: dict[str, float]) -> str:
    return " to ".join(f"{100 * gain[end]:+.1f}" for end in ("low", "high"))
