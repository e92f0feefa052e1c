"""Exercises of chapter 12: the block, its weights, its input, masks, training rules, and the cache."""

from __future__ import annotations

import math

import numpy as np

from .exercises import Answer, Array, Exercises, format_numbers, pair, same

EXERCISES = exercise = Exercises()


def _attention(x: Array) -> Array:
    mixed: Array = x @ np.array([[0.0, 1.0], [-2.0, 0.5]]) + x.mean(0)
    return mixed


def _mlp(x: Array) -> Array:
    squares: Array = np.maximum(0.0, x - 0.25) ** 2
    return squares


def _norm(x: Array) -> Array:
    centred = x - x.mean(1, keepdims=True)
    normalized: Array = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1.0)
    return normalized


@exercise(
    "block(x, attention, mlp, norm, order)",
    "The output of a block for x (T, d): attention, then the MLP, each added to the stream, with the normalization "
    'after each sum ("post") or before each layer ("pre"), and nowhere else. attention, mlp and norm are '
    "functions of (T, d).",
    level="medium",
)
def block(answer: Answer) -> None:
    """Check both orders of normalization, and that the residual stream is not normalized."""
    x = np.array([[1.0, -0.5], [2.0, 3.0], [0.0, 1.5]])
    a, m, n = _attention, _mlp, _norm
    for order in ("post", "pre"):
        y = n(x + a(x))
        z = x + a(n(x))
        post, pre = n(y + m(y)), z + m(n(z))
        right, other = (post, pre) if order == "post" else (pre, post)
        beside = x + a(x) + m(x) if order == "post" else x + a(n(x)) + m(n(x))
        wrong = (
            (other, "That is the other order: post normalizes the sum, pre what enters a layer."),
            (m(n(a(n(x)))), "Nothing is added: each layer adds to the stream."),
            (n(m(n(a(x)))), "Nothing is added: each layer adds to the stream."),
            (n(n(x) + a(n(x))), "The MLP is missing."),
            (n(x) + a(n(x)), "In pre-norm the stream itself is not normalized: x + F(norm(x))."),
            (beside, "Those are side by side: the MLP sees what attention has added."),
            (z + m(z), "The MLP has a normalization of its own."),
            (n(pre), "That normalizes once more: in a network that is done after the last block alone."),
        )
        same(answer(x.copy(), a, m, n, order), right, f"For order = “{order}”", wrong)


@exercise(
    "weights(d, d_ff, cross)",
    "How many weights and biases a block has: attention's four matrices, over a source as many again where `cross` "
    "is true, the two layers of the MLP, and a normalization, of d gains and d biases, for each of these.",
    level="easy",
)
def weights(answer: Answer) -> None:
    """Check that biases and normalizations count, and that the number of heads does not matter."""
    for d, f, cross in ((512, 2048, False), (512, 2048, True), (64, 128, False)):
        looks = 1 + cross
        matrices = looks * 4 * d * d + 2 * d * f
        biases = looks * 4 * d + f + d
        norms = (looks + 1) * 2 * d
        wrong = (
            (matrices, "Those are the matrices: biases and normalizations count too."),
            (matrices + biases, "The normalizations are missing: 2d numbers each."),
            (matrices + norms, "The biases are missing: of attention's four matrices, and of both layers of the MLP."),
            (matrices + biases + norms // 2, "A normalization has d gains and d biases."),
            (matrices + biases + 4 * d, "There is a normalization for the look at the source too."),
            (matrices + biases + norms - looks * (d * d + d), "W_O is a matrix too: four in all."),
        )
        when = f"For d = {d}, d_ff = {f}, cross = {cross}"
        same(answer(d, f, cross), matrices + biases + norms, when, wrong)


@exercise(
    "embed(E, PE, tokens)",
    "What enters the first block, (T, d), of token ids (T,): rows of E (words, d) times √d, plus the positions, "
    "the first T rows of PE.",
    level="easy",
)
def embed(answer: Answer) -> None:
    """Check that the factor applies to the embedding only."""
    table = np.arange(20.0).reshape(5, 4) / 7 - 1
    positions = np.cos(np.arange(24.0).reshape(6, 4))
    tokens = np.array([3, 0, 3])
    rows, first = table[tokens], positions[:3]
    wrong = (
        ((rows + first) * 2, "The factor is the embedding's alone: √d · E + PE."),
        (rows + first, "The factor √d is missing."),
        (4 * rows + first, "That is d: the factor is its square root."),
        (2 * rows, "The positions are missing."),
        (2 * rows + positions[tokens], "A position is that of the place, not of the token's id."),
    )
    same(answer(table, positions, tokens), 2 * rows + first, f"For d = 4 and tokens {format_numbers(tokens)}", wrong)


@exercise(
    "masks(source_real, target_real)",
    "(encoder, decoder, cross), True where a query may look: (T, T), (S, S) and (S, T), rows queries, of which "
    "tokens of the source (T,) and of the target so far (S,) are real. No query, real or not, looks at padding; "
    "the decoder looks at no later token.",
    level="medium",
)
def masks(answer: Answer) -> None:
    """Check that one of three masks is causal."""
    source, target = np.array([True, True, False, True]), np.array([True, True, True])
    for t in (target, np.array([True, True, False])):
        when = f"For a source of reality {format_numbers(source)} and a target of {format_numbers(t)}"
        names = ("encoder", "decoder", "cross")
        encoder, decoder, cross = pair(answer(source.copy(), t.copy()), names, when)
        right = np.tile(source, (4, 1))
        causal = ((np.tril(right), "The encoder reads the whole source: it looks forward too."),)
        same(encoder, right, f"{when}, of the encoder's", ((right.T, "It is keys that are hidden: columns."), *causal))
        own = np.tril(np.tile(t, (3, 1)))
        wrong = (
            (np.tile(t, (3, 1)), "The decoder may not look at what comes after: a triangle."),
            (own.T, "Rows are queries: the first sees itself alone."),
            (np.tril(np.ones((3, 3))), "Padding of the target is hidden as well."),
        )
        same(decoder, own, f"{when}, of the decoder's", wrong)
        over = np.tile(source, (3, 1))
        wrong = (
            (np.tril(over), "All of the source has been read: the look at it is not causal."),
            (over.T, "Queries come from the target: (S, T)."),
            (np.ones((3, 4)), "Padding of the source is hidden."),
        )
        same(cross, over, f"{when}, of the cross-attention's", wrong)


@exercise(
    "smoothed(logits, target, eps)",
    "The cross-entropy, with the natural logarithm, of logits (K,) with the target's one-hot times 1 - eps, plus "
    "eps/K for every word, the right one among them.",
    level="easy",
)
def smoothed(answer: Answer) -> None:
    """Check that all K classes share eps, including the correct one."""
    z = np.array([2.0, -1.0, 0.5, 0.0])
    log_p = z - math.log(float(np.exp(z).sum()))
    for target, eps in ((0, 0.1), (1, 0.2), (2, 0.0)):
        plain, mean = -log_p[target], -log_p.mean()
        others = -(log_p.sum() - log_p[target]) / 3
        right = (1 - eps) * plain + eps * mean
        wrong = (
            (plain, "That is without smoothing."),
            ((1 - eps) * plain, "The other part is missing: eps/K for every word."),
            ((1 - eps) * plain + eps * others, "eps is spread over all K words, the right one among them."),
            ((1 - eps) * plain + eps * mean * 4, "Each word gets eps/K, not eps."),
            (plain + eps * mean, "The right word's part is 1 - eps, so that all parts sum to 1."),
            (-right, "A loss is the negative of it."),
        )
        same(
            answer(z.copy(), target, eps),
            right,
            f"For logits {format_numbers(z)}, target {target}, eps = {eps:g}",
            wrong,
        )


@exercise(
    "noam(s, d, w)",
    "The paper's learning rate at update s, counted from 1: d^-½ · min(s^-½, s · w^-3/2).",
    level="easy",
)
def noam(answer: Answer) -> None:
    """Check the rise, the peak and the decay."""
    for s, d, w in ((2, 512, 4000), (4000, 512, 4000), (100_000, 1024, 8000)):
        rise, fall = s * w**-1.5, s**-0.5
        right = d**-0.5 * min(rise, fall)
        wrong = (
            (d**-0.5 * max(rise, fall), "The smaller of both: it rises first, and falls then."),
            (min(rise, fall), "The factor d^-½ is missing: wider networks take smaller steps."),
            (d**-0.5 * min((s + 1) * w**-1.5, (s + 1) ** -0.5), "s is counted from 1 here already."),
            (d**-0.5 * min((s - 1) * w**-1.5, fall), "s is counted from 1: the first rate is not 0."),
            (d**-0.5 * fall, "That is without the warm-up."),
            (d**-0.5 * min(s * w**-0.5, fall), "w has the exponent -3/2, so that both meet at s = w."),
        )
        same(answer(s, d, w), right, f"For s = {s}, d = {d}, w = {w}", wrong)


@exercise(
    "cached(q, k, v, keys, values)",
    "(result, keys, values): the attention output softmax(q·k/√d_k) of a new token with q, k (d_k,) and v (d_v,) "
    "over the previous keys (n, d_k) and values (n, d_v) and itself, and both with the new token as the last row. "
    "n may be 0.",
    level="medium",
)
def cached(answer: Answer) -> None:
    """Check that a token attends to itself, an empty cache, and equality with the whole sequence."""
    rng = np.random.default_rng(3)
    q, k, v = rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), rng.normal(size=(4, 3))
    keys, values = np.zeros((0, 2)), np.zeros((0, 3))
    for t in range(4):
        when = f"For token {t}, with {t} before it"
        parts = pair(answer(q[t], k[t], v[t], keys, values), ("result", "keys", "values"), when)
        seen_keys, seen_values = np.vstack([keys, k[t]]), np.vstack([values, v[t]])

        def look(scores: Array, rows: Array) -> Array:
            powers = np.exp(scores - scores.max())
            taken: Array = powers @ rows / powers.sum()
            return taken

        right = look(seen_keys @ q[t] / math.sqrt(2), seen_values)
        wrong = [
            (look(seen_keys @ q[t], seen_values), "The division by √d_k is missing."),
            (seen_keys @ q[t] / math.sqrt(2) @ seen_values, "The softmax is missing."),
        ]
        if t:
            before = look(keys @ q[t] / math.sqrt(2), values)
            wrong.append((before, "A token looks at itself too: keep its key and value first, then look."))
        same(parts[0], right, f"{when}, of the result", wrong)
        first = np.vstack([k[t], keys])
        same(
            parts[1],
            seen_keys,
            f"{when}, of keys",
            ((keys, "The new key is not kept."), (first, "It is the last.")),
        )
        same(parts[2], seen_values, f"{when}, of values", ((values, "The new value is not kept."),))
        keys, values = seen_keys, seen_values
