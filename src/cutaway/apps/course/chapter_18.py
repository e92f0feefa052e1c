"""Exercises of chapter 18: votes, verified chains, and trees of thoughts."""

from __future__ import annotations

import math

from .exercises import Answer, Exercises, expect, same

EXERCISES = exercise = Exercises()


@exercise(
    "consistent(answers, likelihoods)",
    "The answer that most chains give; if there are several, the one with the likeliest chain. answers are "
    "numbers, or None for a chain that did not end; likelihoods are the log p of each chain. At least one chain "
    "ended.",
    level="medium",
)
def consistent(answer: Answer) -> None:
    """Check the majority among finished chains."""
    for answers, likelihoods, right, wrong in (
        ([24, 23, 24, 25], [-5.0, -0.5, -6.0, -2.0], 24, ((23, "That is the likeliest chain: the majority counts."),)),
        ([None, None, None, 7, 24, 24], [-1.0] * 6, 24, ((7, "Of those that ended, most say another."),)),
        ([12, 24, 12, 24], [-3.0, -1.0, -2.0, -9.0], 24, ((12, "Of equal numbers the one with the likeliest chain."),)),
        (
            [3, 24, 3, 24],
            [-1.0, -4.0, -8.0, -4.0],
            3,
            ((24, "The likeliest *chain*, not their sum or mean, decides."),),
        ),
    ):
        when = f"For the answers {answers} with log p {likelihoods}"
        found = answer(list(answers), list(likelihoods))
        if found is None and None in answers and len(answers) == 6:
            expect(False, f"{when} it gives None: chains that did not end have no vote. Is there a `return`?")
        same(found, right, when, wrong)


@exercise(
    "vote(p, k)",
    "The probability that more than half of k independent chains are right, each with probability p; k is odd. The "
    "module math may be used, with an import.",
    level="easy",
)
def vote(answer: Answer) -> None:
    """Check the binomial sum."""
    for p, k in ((0.6, 5), (0.3, 3), (0.9, 1)):
        terms = [math.comb(k, i) * p**i * (1 - p) ** (k - i) for i in range(k + 1)]
        right = sum(terms[k // 2 + 1 :])
        wrong = (
            (1 - (1 - p) ** k, "That is pass@k, one right chain: a vote needs more than half."),
            (p**k, "That is the probability that all are right."),
            (1 - right, "That is the probability that the majority is wrong."),
            (sum(terms[k // 2 :]), "*More* than half: start at k // 2 + 1."),
            (terms[k // 2 + 1], "That many *or more*: sum the larger numbers, too."),
            (
                sum(p**i * (1 - p) ** (k - i) for i in range(k // 2 + 1, k + 1)),
                "Any of the chains may be the right ones: C(k, i).",
            ),
        )
        same(answer(p, k), right, f"For p = {p}, k = {k}", wrong)


@exercise(
    "pass_at(n, c, k)",
    "The unbiased estimate of pass@k from n samples of which c are right: 1 - C(n-c, k) / C(n, k), with k ≤ n; it "
    "is 1 if fewer than k samples are wrong.",
    level="easy",
)
def pass_at(answer: Answer) -> None:
    """Check the draw without replacement, and c = 0 and c = n."""
    for n, c, k in ((10, 3, 2), (5, 0, 3), (6, 4, 3), (4, 4, 1)):
        right = 1 - math.comb(n - c, k) / math.comb(n, k)
        wrong = (
            (1 - (1 - c / n) ** k, "That draws with replacement: k *different* samples."),
            (math.comb(n - c, k) / math.comb(n, k), "That is the probability that none is right."),
            (math.comb(c, k) / math.comb(n, k), "That is the probability that all k are right: one is enough."),
            (c / n, "That is pass@1."),
        )
        same(answer(n, c, k), right, f"For {c} of {n} right and k = {k}", wrong)


@exercise(
    "next_level(thoughts, propose, value, breadth)",
    "The list of the `breadth` thoughts with the largest value among all proposals, the best first; all of them if "
    "there are fewer. propose(thought) returns a list of thoughts, which may be empty, and value(thought) a "
    "number. Of equal values, the earlier proposal comes first. The given thoughts are not returned, only their "
    "proposals.",
    level="medium",
)
def next_level(answer: Answer) -> None:
    """Check the choice among the proposals of all thoughts, ties, and too few proposals."""
    children = {1: [10, 11], 2: [20, 21, 22], 3: []}
    values = {10: 0.5, 11: 0.9, 20: 0.8, 21: 0.9, 22: 0.1, 1: 2.0, 2: 3.0, 3: 4.0}

    def propose(thought: int) -> list[int]:
        return list(children[thought])

    def value(thought: int) -> float:
        return values[thought]

    every = [one for parent in (1, 2, 3) for one in children[parent]]
    for breadth in (2, 3, 9):
        ordered = sorted(every, key=lambda one: -values[one])
        own = [max(children[parent], key=value) for parent in (1, 2)]
        mixed = sorted([1, 2, 3, *every], key=lambda one: -values[one])
        wrong = (
            (ordered[::-1][:breadth], "Those have the *smallest* values, or the best is not first."),
            (ordered[:breadth][::-1], "The best comes first."),
            (every[:breadth], "Those are the first proposals: the values decide."),
            (own, "The best of *all* proposals, not of each thought."),
            (mixed[:breadth], "The thoughts themselves do not stay: only their proposals."),
            ([values[one] for one in ordered[:breadth]], "Those are the values: the thoughts are asked for."),
            (sorted(ordered[:breadth], reverse=True), "Of equal values, the earlier proposal comes first."),
        )
        when = f"For five proposals and breadth {breadth}"
        same(answer([1, 2, 3], propose, value, breadth), ordered[:breadth], when, wrong)
    same(answer([3], propose, value, 2), [], "For a thought without proposals")
