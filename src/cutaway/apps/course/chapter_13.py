"""Exercises of chapter 13: tokens, masked words, perplexity, and the parameters of BERT and LoRA."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .exercises import Answer, Exercises, as_array, expect, format_numbers, same

EXERCISES = exercise = Exercises()


@exercise(
    "merge(tokens, a, b)",
    "The list of tokens, strings, in which each pair a, b that stands side by side has become one token, from left "
    "to right. A token that was joined is used up. The given list must not change.",
    level="medium",
)
def merge(answer: Answer) -> None:
    """Check that pairs are merged from left to right, and none twice."""
    for tokens, a, b, right in (
        (["l", "o", "w", "e", "r"], "l", "o", ["lo", "w", "e", "r"]),
        (["n", "a", "n", "a", "n", "a"], "n", "a", ["na", "na", "na"]),
        (["a", "a", "a"], "a", "a", ["aa", "a"]),
        (["t", "o"], "o", "t", ["t", "o"]),
        (["o", "t"], "o", "t", ["ot"]),
    ):
        given = list(tokens)
        when = f"For {' '.join(tokens)} and the pair {a}, {b}"
        found = answer(given, a, b)
        if found is None:
            as_array(found, when)  # raises if the return is missing
        expect(given == tokens, f"{when} it changes the list that it was given: make a new one.")
        words = f"{when} it gives {found!r}, and {right!r} was to come."
        if isinstance(found, Sequence) and list(found) == [a + b if token in (a, b) else token for token in tokens]:
            words += " Merge pairs: a alone, or b alone, stays."
        if tokens == ["a", "a", "a"] and list(found) == ["aa", "aa"]:
            words += " The one in the middle is used up by the first pair."
        expect(list(found) == right, words)


TOKENS = np.array([7, 8, 9, 7, 5, 6])
CHOSEN = np.array([True, True, False, True, True, False])
FATE = np.array([0.1, 0.85, 0.2, 0.95, 0.79, 0.82])
OTHERS = np.array([11, 12, 13, 14, 15, 16])


@exercise(
    "hide(tokens, chosen, fate, others, mask)",
    "What BERT sees of the tokens (T,), a new array: of those that are `chosen`, bool (T,), each becomes `mask` "
    "where its `fate`, drawn from [0, 1), is below 0.8, the token in `others` (T,) where it is below 0.9, and "
    "stays where it is not. All others stay.",
    level="medium",
)
def hide(answer: Answer) -> None:
    """Check the proportions of 8:1:1, and that other tokens are not changed."""
    right = np.array([3, 12, 9, 7, 3, 6])
    wrong = (
        (np.where(CHOSEN, 3, TOKENS), "That hides all that were chosen: a tenth becomes another, a tenth stays."),
        (np.where(FATE < 0.8, 3, np.where(FATE < 0.9, OTHERS, TOKENS)), "Only tokens that were chosen may change."),
        (
            np.where(CHOSEN, np.where(FATE < 0.8, 3, OTHERS), TOKENS),
            "From 0.9 on, a selected token is unchanged.",
        ),
        (np.where(CHOSEN & (FATE < 0.8), 3, TOKENS), "Between 0.8 and 0.9 the token is the one in `others`."),
        (
            np.where(CHOSEN, np.where(FATE < 0.8, 3, np.where(FATE < 0.9, TOKENS, OTHERS)), TOKENS),
            "Between 0.8 and 0.9 comes another token; from 0.9 on it stays.",
        ),
    )
    given = TOKENS.copy()
    found = answer(given, CHOSEN.copy(), FATE.copy(), OTHERS.copy(), 3)
    same(found, right, f"For tokens {format_numbers(TOKENS)}", wrong)
    expect(np.array_equal(given, TOKENS), "It changes its input tokens: the targets are lost then.")


@exercise(
    "perplexity(p)",
    "The perplexity of a model that gave the tokens of a text the probabilities p (T,): e to the mean of -ln p.",
    level="easy",
)
def perplexity(answer: Answer) -> None:
    """Check that perplexity is e to the mean loss."""
    for p in (np.array([0.5, 0.125, 0.25]), np.array([0.9, 0.01]), np.array([1.0])):
        right = np.exp(-np.log(p).mean())
        wrong = (
            (np.mean(1 / p), "That is the mean of each token's perplexity: take e to the mean of -ln p."),
            (1 / np.mean(p), "Take the mean of the logarithms: probabilities of one text multiply."),
            (-np.log(p).mean(), "That is the loss: perplexity is e to it."),
            (1 / np.prod(p), "That is of the whole text: it is a mean over tokens."),
            (2 ** (-np.log(p).mean()), "The logarithm was to base e, so the power has to be: or take both to base 2."),
        )
        same(answer(p.copy()), right, f"For p = {format_numbers(p)}", wrong)


@exercise(
    "bits_a_character(loss, tokens, characters)",
    "Bits per character of a model with this mean loss in nats per token, on a text with these numbers of tokens "
    "and characters.",
    level="easy",
)
def bits_a_character(answer: Answer) -> None:
    """Check the total in bits, divided by the number of characters."""
    for loss, tokens, characters in ((math.log(2), 10, 20), (3.2, 250, 1000)):
        right = loss * tokens / math.log(2) / characters
        wrong = (
            (loss / math.log(2), "Those are bits a token."),
            (loss * tokens / characters, "Those are nats: a bit is ln 2 of them."),
            (loss * math.log(2) * tokens / characters, "There are more bits than nats: divide by ln 2."),
            (loss / math.log(2) * characters / tokens, "A character has less than its token: the other way round."),
        )
        same(answer(loss, tokens, characters), right, f"For {loss:.3g} nats, {tokens} tokens, {characters}", wrong)


@exercise(
    "bert_parameters(V, T, d, L)",
    "How many numbers BERT learns with the head for hidden words: V tokens, T positions, 2 segments, model "
    "dimension d, a normalization (2d numbers) after the embedding, L blocks with MLPs of 4d and two "
    "normalizations each; the head has a layer d×d, a normalization, the embedding as output matrix, which counts "
    "once, and a bias for each token. All linear layers have biases.",
    level="medium",
)
def bert_parameters(answer: Answer) -> None:
    """Check embeddings, blocks and head."""
    for V, T, d, L in ((30_522, 512, 768, 12), (100, 16, 8, 2)):
        norm = 2 * d
        block = 4 * (d * d + d) + 8 * d * d + 5 * d + 2 * norm
        head = d * d + d + norm + V
        right = (V + T + 2) * d + norm + L * block + head
        wrong = (
            (right + V * d, "The output matrix is the embedding: it is there once."),
            (right - head, "The head is missing: a layer d×d, a normalization, a bias for each token."),
            (right - V, "The head has a bias for each token."),
            (right - norm, "There is a normalization after the embedding, and one in the head."),
            (right - 2 * d, "There is a row for each of the two segments."),
            (right - L * 2 * norm, "Each block has two normalizations."),
            (right - L * 9 * d, "Linear layers have biases: 4d in attention, 5d in the MLP, d in the head."),
            (right - L * 9 * d - d, "Linear layers have biases: 4d in attention, 5d in the MLP, d in the head."),
            (right - T * d, "Positions are learned: T rows of d."),
        )
        same(answer(V, T, d, L), right, f"For V = {V}, T = {T}, d = {d}, L = {L}", wrong, within=1e-12)


@exercise(
    "lora(W, A, B, alpha, x)",
    "The output W x + (alpha / r) B A x of a linear layer W (d, k) for x (k,) with LoRA matrices A (r, k) and B "
    "(d, r).",
    level="easy",
)
def lora(answer: Answer) -> None:
    """Check W x + (α / r) B A x."""
    rng = np.random.default_rng(0)
    W, A, B, x = (rng.integers(-3, 4, shape).astype(float) for shape in ((3, 5), (2, 5), (3, 2), (5,)))
    wrong = (
        (W @ x + B @ A @ x, "The scale is missing: α / r."),
        (W @ x + 8 * B @ A @ x, "The scale is α / r, and r is the number of A's rows."),
        (4 * B @ A @ x, "The frozen matrix still answers: W x is missing."),
        (W @ x + 8 / 5 * B @ A @ x, "r is the number of A's rows, not of its columns."),
        (W @ x + 8 / 3 * B @ A @ x, "r is the number of B's columns, not of its rows."),
        (4 * (W @ x + B @ A @ x), "The scale is that of B A alone."),
    )
    same(answer(W, A, B, 8.0, x), W @ x + 4 * (B @ (A @ x)), "For r = 2 and α = 8", wrong)
