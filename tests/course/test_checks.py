"""Each exercise: the solution on the page is right, and a common wrong answer is told what is wrong with it."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from cutaway.apps.course.exercises import CHAPTERS, LEVELS, NotYet, chapter, check_answer

from .pages import run
from .wrong import WRONG

ALL = [(one.number, exercise.name) for one in CHAPTERS for exercise in one.exercises]
for one in CHAPTERS:
    import_module(f"tests.course.wrong.chapter_{one.number:02}")


@pytest.fixture(scope="module", params=[one.number for one in CHAPTERS], ids=str)
def solutions(request: pytest.FixtureRequest) -> tuple[int, dict[str, Any]]:
    """A chapter and the functions that its page answers the exercises with: its imports and solutions alone are run."""
    mpl.use("agg")
    page = run.PAGES[f"{request.param:02}"]
    found = [cell.code for cell in run.cells(page) if cell.solution]
    names: dict[str, Any] = {"math": math, "np": np, "check": lambda *_: None}
    for code in found:
        exec(code, names)
    return request.param, names


def test_the_solutions_of_the_page_are_right(solutions: tuple[int, dict[str, Any]]) -> None:
    number, names = solutions
    for exercise in chapter(number).exercises:
        check_answer(exercise, names[exercise.name])


@pytest.mark.parametrize(("number", "name"), ALL, ids=[f"{number}-{name}" for number, name in ALL])
def test_what_gives_nothing_is_not_right(number: int, name: str) -> None:
    exercise = next(one for one in chapter(number).exercises if one.name == name)
    with pytest.raises(NotYet, match="None"):
        check_answer(exercise, lambda *given: None)
    assert 4 <= len(chapter(number).exercises) <= 8
    assert exercise.gives.endswith(".")


def test_every_exercise_has_a_wrong_answer() -> None:
    assert {(number, name) for number, name, *_ in WRONG} == set(ALL)


def test_a_wrong_answer_is_told_what_is_wrong() -> None:
    for number, name, answer, said in WRONG:
        exercise = next(one for one in chapter(number).exercises if one.name == name)
        with pytest.raises(NotYet) as raised:
            check_answer(exercise, answer)
        assert said in str(raised.value), (number, name)


# What a checker demands beyond the formula: each is a message of its `wrong` answers, or an input that it tries.
DEMANDS = {
    (1, "fires"): ("exactly 0", "any number of entries"),
    (1, "correct"): ("rate 1", "stay if the neuron is right", "bias's input is 1"),
    (1, "train"): (
        "in order",
        "from w = 0, b = 0",
        "no further than the first pass without a mistake",
        "all corrections",
    ),
    (1, "novikoff"): ("Append a 1 to each example, and b to w", "(R/γ)²"),
    (1, "xor_network"): ("above 0", "Any network"),
    (2, "dense"): ("in rows",),
    (2, "parameters"): ("inputs have none",),
    (2, "softmax"): ("last axis", "a vector or a matrix", "1000"),
    (2, "through"): ("at least two points", "from the first point to the last", "for each point but the last"),
    (3, "cross_entropy"): ("mean", "ln", "finite"),
    (3, "output_delta"): ("mean over N",),
    (3, "weight_gradient"): ("sums over the examples",),
    (3, "numeric_gradient"): ("w's shape", "unchanged"),
    (3, "adjoints"): ("of the last value itself it is 1", "does not depend on 0", "terms add up"),
    (4, "largest_rate"): ("not necessarily diagonal",),
    (4, "adam_step"): ("counted from 1", "without the correction", "outside"),
    (4, "decayed_step"): ("rate·decay·w", "before the step"),
    (4, "clip"): ("one factor", "root of the sum of all squares", "unchanged if it already is"),
    (4, "warmup_cosine"): ("one number", "warmup may be 0"),
    (5, "correlate"): ("inside", "n - k + 1", "not flipped"),
    (5, "convolve"): ("n + k - 1", "0 beyond its ends"),
    (5, "output_size"): ("does not fit", "either end"),
    (5, "toeplitz"): ("rows are outputs", "not flipped"),
    (5, "layer_cost"): ("all input channels", "one bias", "biases are additions"),
    (5, "operator_matrix"): ("single call",),
    (6, "table_parameters"): ("one bias",),
    (6, "bottleneck"): ("at every place", "`width` to `width`", "back to `channels`"),
    (6, "input_channels"): ("`layers` numbers",),
    (7, "normalize"): ("mean of the squared deviations",),
    (7, "running"): ("fraction of the new", "m - 1"),
    (7, "batch_norm_backward"): ("depend on x", "sums over the batch"),
    (7, "fold"): ("evaluation", "(out, in)"),
    (7, "rms_norm"): ("each row for itself", "no mean is subtracted"),
    (8, "cooccurrences"): ("before or after", "not its own neighbour"),
    (8, "ppmi"): ("sum of all of C", "without infinities"),
    (8, "noise"): ("sum to 1",),
    (8, "analogy"): ("number of the row", "length 1", "without a, b and c"),
    (8, "merge"): ("used up", "from left to right"),
    (9, "through_time"): ("Rows of dW", "sums over the steps"),
    (9, "clip"): ("root of the sum of all squares",),
    (9, "lstm"): ("i, f, g, o", "the candidate g a tanh", "new cell"),
    (9, "gru"): ("before the product", "r, z, n", "z keeps the old state"),
    (9, "repeat_season"): ("last season", "exactly `horizon` values"),
    (10, "teacher_forced"): ("last word of y is left out",),
    (10, "context"): ("0 elsewhere", "1000"),
    (10, "beam"): ("not in the list",),
    (10, "best"): ("index, from 0",),
    (10, "ngram_precision"): ("at most as often",),
    (11, "attention"): ("keys of each query", "thousands"),
    (11, "causal"): ("may look at itself", "last T of S"),
    (11, "sinusoid"): ("sine first",),
    (11, "rotate"): ("neighbours", "against the clock", "stay where they are"),
    (11, "circuits"): ("without the division",),
    (11, "cost"): ("four matrices", "all T² pairs", "for every token"),
    (11, "induction"): ("added up", "left out of the mean"),
    (12, "block"): ("nowhere else",),
    (12, "weights"): ("biases", "d gains and d biases"),
    (12, "embed"): ("√d", "first T rows"),
    (12, "masks"): ("rows queries", "looks at padding", "no later token"),
    (12, "smoothed"): ("right one among them",),
    (12, "noam"): ("counted from 1",),
    (12, "cached"): ("√d_k", "last row", "n may be 0", "itself"),
    (13, "merge"): ("used up", "must not change"),
    (13, "hide"): ("a new array", "All others stay"),
    (13, "perplexity"): ("mean of -ln p",),
    (13, "bert_parameters"): ("after the embedding", "counts once", "bias for each token", "have biases"),
    (13, "lora"): ("alpha / r",),
    (14, "patches"): ("row by row", "P² numbers"),
    (14, "token_pairs"): ("class token", "itself among them"),
    (14, "vit_parameters"): ("for the class token", "two normalizations", "have biases"),
    (14, "mae_split"): ("at least one",),
    (14, "rollout"): ("mean over the heads", "half of the identity", "from the left"),
    (14, "occlusion"): ("above 0 where it falls", "stays as it was given"),
    (15, "adjacency"): ("counts once", "diagonal is 0", "both ways"),
    (15, "a_hat"): ("A + I", "with the loops"),
    (15, "sums"): ("counts twice", "only if an edge says so"),
    (15, "attention"): ("same target", "0.2"),
    (15, "colours"): ("own color", "how many neighbors have each color"),
    (16, "alphas_bar"): ("and including step t",),
    (16, "elbo"): ("Exact", "Constants"),
    (16, "step_posterior"): ("one number",),
    (16, "noise_weights"): ("t = 1 is left out",),
    (17, "contrastive_loss"): ("k≠i", "all 2n views", "must not overflow"),
    (17, "masked_error"): ("Visible patches do not count",),
    (17, "class_means"): ("not all equally many",),
    (17, "probabilities"): ("*squared*", "must not be 0"),
    (18, "consistent"): ("None for a chain that did not end", "likeliest chain"),
    (18, "vote"): ("more than half", "k is odd"),
    (18, "pass_at"): ("fewer than k samples are wrong",),
    (18, "next_level"): (
        "may be empty",
        "earlier proposal comes first",
        "the best first",
        "The given thoughts are not returned",
    ),
    (19, "prune"): ("round(fraction", "absolute value"),
    (19, "quantize"): ("each row", "rounded to the nearest"),
    (19, "attack"): ("clipped", "nothing moves"),
    (19, "calibration"): ("includes its lower edge", "p = 1", "Empty bins do not count"),
}


@pytest.mark.parametrize(("number", "name"), DEMANDS, ids=[f"{number}-{name}" for number, name in DEMANDS])
def test_the_text_states_what_the_checker_demands(number: int, name: str) -> None:
    text = next(one for one in chapter(number).exercises if one.name == name).gives
    for phrase in DEMANDS[number, name]:
        assert phrase in text


def test_every_chapter_has_easy_and_medium_exercises() -> None:
    for one in CHAPTERS:
        assert {exercise.level for exercise in one.exercises} == set(LEVELS)
