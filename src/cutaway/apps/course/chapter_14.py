"""Exercises of chapter 14: patches, the cost of a Vision Transformer, and maps of its attention."""

from __future__ import annotations

import numpy as np

from .exercises import Answer, Array, Exercises, expect, format_numbers, pair, same

EXERCISES = exercise = Exercises()


@exercise(
    "patches(image, P)",
    "The patches of an image (H, W), row by row, each a square of P×P pixels as a row of P² numbers, pixel rows "
    "one after another: (HW/P², P²). H and W are multiples of P.",
    level="medium",
)
def patches(answer: Answer) -> None:
    """Check that patches are squares and not stripes."""
    for H, W, P in ((4, 6, 2), (6, 6, 3)):
        image = np.arange(H * W, dtype=float).reshape(H, W)
        blocks = image.reshape(H // P, P, W // P, P)
        right = blocks.transpose(0, 2, 1, 3).reshape(-1, P * P)
        wrong = (
            (image.reshape(-1, P * P), "Those are pieces of rows: a patch takes P pixels from each of P rows."),
            (blocks.transpose(2, 0, 1, 3).reshape(-1, P * P), "Patches go row by row; those go column by column."),
            (blocks.transpose(0, 2, 3, 1).reshape(-1, P * P), "Each patch is turned: its own pixels go row by row."),
            (blocks.transpose(0, 2, 1, 3), "Each patch is a row of P² numbers: one more reshape."),
            (right.reshape(-1, P, P), "Each patch is a row of P² numbers: one more reshape."),
        )
        same(answer(image.copy(), P), right, f"For an image of {H}×{W} and P = {P}", wrong)


@exercise(
    "token_pairs(height, width, P)",
    "How many pairs of a query and a key a head of a ViT compares for an image of these sides, which are multiples "
    "of P, with a class token: each token with each, itself among them.",
    level="easy",
)
def token_pairs(answer: Answer) -> None:
    """Check that every token meets every token, including itself."""
    for height, width, P in ((224, 224, 16), (32, 48, 8)):
        count = (height // P) * (width // P)
        wrong = (
            (count**2, "The class token asks, and is asked, too."),
            (count + 1, "Those are the tokens: each compares with all."),
            ((count + 1) * count // 2, "Attention has both directions, and each token with itself."),
            ((count + 1) * count, "A token looks at itself too."),
            ((height * width + 1) ** 2, "Tokens are patches, not pixels."),
        )
        same(answer(height, width, P), (count + 1) ** 2, f"For {height}×{width} and P = {P}", wrong, within=1e-12)


@exercise(
    "vit_parameters(P, C, N, D, L, classes)",
    "How many numbers a ViT learns: a linear layer for patches of P×P pixels with C channels, N of them, D numbers "
    "in a token, a class token, a position for each patch and for the class token, L blocks with four matrices of "
    "attention, MLPs of 4D and two normalizations (2D numbers each), a normalization at the end, a linear head. "
    "All linear layers have biases.",
    level="medium",
)
def vit_parameters(answer: Answer) -> None:
    """Check embedding, blocks and head."""
    for P, C, N, D, L, classes in ((16, 3, 196, 768, 12, 1000), (2, 1, 16, 8, 2, 10)):
        block = 4 * (D * D + D) + 8 * D * D + 5 * D + 4 * D
        right = P * P * C * D + D + D + (N + 1) * D + L * block + 2 * D + D * classes + classes
        wrong = (
            (right - D, "The class token has a position too, is learned itself, and the patches' layer has a bias."),
            (right - 2 * D, "Is the class token there, its position, and the last normalization?"),
            (right - L * 4 * D, "Each block has two normalizations, of 2D numbers each."),
            (right - L * 9 * D, "Linear layers have biases: 4D in attention, 5D in the MLP."),
            (right - (N + 1) * D, "Positions are learned: one for each patch, and one for the class token."),
            (right - P * P * C * D + P * P * D, "A patch has all channels: P²C numbers."),
            (right - classes, "The head has a bias for each class."),
        )
        when = f"For P = {P}, C = {C}, N = {N}, D = {D}, L = {L} and {classes} classes"
        same(answer(P, C, N, D, L, classes), right, when, wrong, within=1e-12)


@exercise(
    "mae_split(noise, ratio)",
    "(seen, hidden): the numbers of the patches that MAE shows, those with the least noise (N,), and of those that "
    "it hides, the rest, each in the order of their noise. ⌊(1 - ratio) N⌋ are seen, and at least one.",
    level="easy",
)
def mae_split(answer: Answer) -> None:
    """Check the split by the order of the noise."""
    for noise, ratio in (
        (np.array([0.7, 0.1, 0.9, 0.4, 0.6, 0.2, 0.8, 0.3]), 0.75),
        (np.array([0.5, 0.2, 0.9]), 0.75),
    ):
        when = f"For noise {format_numbers(noise)} and ratio {ratio}"
        order = np.argsort(noise)
        count = max(1, int((1 - ratio) * len(noise)))
        seen, hidden = pair(answer(noise.copy(), ratio), ("seen", "hidden"), when)
        wrong = (
            (order[-count:], "Those have the most noise: the least is seen."),
            (order[::-1][:count], "Those have the most noise: the least is seen."),
            (order[: len(noise) - count], "`ratio` is the fraction that is hidden."),
            (np.sort(noise)[:count], "Those are the values of the noise: the numbers of the patches are asked for."),
            (order[: int((1 - ratio) * len(noise))], "At least one patch is seen."),
        )
        same(seen, order[:count], f"{when}, of those that are seen", wrong)
        same(hidden, order[count:], f"{when}, of those that are hidden")


@exercise(
    "rollout(weights)",
    "Attention roll-out (T, T) of the layers' attention weights (L, heads, T, T), the first layer first: of each "
    "layer the mean over the heads, half of it plus half of the identity; later layers multiply from the left.",
    level="medium",
)
def rollout(answer: Answer) -> None:
    """Check the means over heads, the halves of the shortcut, and products from the left."""
    rng = np.random.default_rng(0)
    weights = rng.random((3, 2, 4, 4))
    weights /= weights.sum(-1, keepdims=True)
    eye = np.eye(4)

    def through(layers: Array, mixed: bool = True, left: bool = True) -> Array:
        R = eye
        for W in layers:
            A = (W + eye) / 2 if mixed else W
            R = A @ R if left else R @ A
        return R

    means = weights.mean(1)
    wrong = (
        (through(means, mixed=False), "The way around the attention is missing: half of each token is itself."),
        (through(means, left=False), "Later layers stand to the left: R ← (W/2 + I/2) R."),
        (means.mean(0), "Layers follow each other: multiply."),
        (through(weights.sum(1)), "Take the mean over the heads, so that rows sum to 1."),
        (through(2 * means + eye), "Take half of each: W/2 + I/2, so that rows sum to 1."),
        (through(weights.max(1)), "Take the mean over the heads, not the largest."),
    )
    found = answer(weights.copy())
    same(found, through(means), "For three layers of two heads and four tokens", wrong)
    expect(np.allclose(np.asarray(found).sum(1), 1), "Each row sums to 1.")


@exercise(
    "occlusion(f, image, P, fill)",
    "By how much the score f(image), a number, falls where one patch of the image (H, W) is set to `fill`: (H/P, "
    "W/P), above 0 where it falls. The image stays as it was given.",
    level="medium",
)
def occlusion(answer: Answer) -> None:
    """Check the score of the whole image minus the score without the patch."""
    rng = np.random.default_rng(1)
    image, weights = rng.integers(1, 9, (4, 6)).astype(float), rng.integers(-2, 3, (4, 6)).astype(float)

    def f(x: Array) -> float:
        return float((weights * x).sum())

    def of_blocks(x: Array) -> Array:
        found: Array = x.reshape(2, 2, 3, 2).sum(axis=(1, 3))
        return found

    right = of_blocks(weights * (image - 1))
    wrong = (
        (-right, "Where a patch speaks for the class the score falls: that is positive."),
        (of_blocks(weights * image), "Patches are set to `fill`, which need not be 0."),
        (f(image) - right, "That is the score without the patch: by how much does it fall?"),
    )
    given = image.copy()
    found = answer(f, given, 2, 1.0)
    same(found, right, "For an image of 4×6, P = 2, fill = 1", wrong)
    expect(np.array_equal(given, image), "It changes the image that it was given: put each patch back, or copy.")
