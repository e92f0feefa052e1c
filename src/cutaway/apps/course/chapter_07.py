"""Exercises of chapter 7: axes that share a mean, running statistics, and the gradient of normalization."""

from __future__ import annotations

import numpy as np

from .exercises import Answer, Exercises, format_numbers, pair, same

EXERCISES = exercise = Exercises()

X = np.array([[1.0, 4.0], [3.0, 0.0], [2.0, -2.0], [6.0, 1.0]])  # (N, C)
EPS = 0.1  # large enough to be felt


@exercise(
    "sets(kind, shape, groups)",
    "(sets, entries): how many means are taken of maps of that shape (N, C, H, W), and of how many entries each; "
    "kind is batch, layer, instance or group. Of layer, instance and group, each example has sets of its own.",
    level="easy",
)
def sets(answer: Answer) -> None:
    """Check which axes are shared."""
    for N, C, H, W, groups in ((8, 6, 5, 4, 3), (2, 32, 7, 7, 8)):
        whole = N * C * H * W
        counts = {"batch": C, "layer": N, "instance": N * C, "group": N * groups}
        for kind, count in counts.items():
            when = f"For {kind}, (N, C, H, W) = {(N, C, H, W)}, {groups} groups"
            found = pair(answer(kind, (N, C, H, W), groups), ("sets", "entries"), when)
            wrong = (
                ((whole // count, count), "The other way round: how many sets first, then how many entries in each."),
                ((N, whole // N), "That is layer normalization: one set for each example."),
                ((C, whole // C), "That is batch normalization: one set for each channel."),
                ((groups, whole // groups), "Each example has groups of its own: no example touches another."),
                ((count, N), "All places of a map are in it too: count H and W."),
            )
            same(found, (count, whole // count), when, wrong)


@exercise(
    "normalize(x, axes, eps)",
    "(x - mean) / sqrt(variance + eps), mean and variance over `axes`, a tuple of axes of x, of the same shape as "
    "x. The variance is the mean of the squared deviations.",
    level="easy",
)
def normalize(answer: Answer) -> None:
    """Check the root, ε inside it, and that axes are kept."""
    x = np.arange(24.0).reshape(2, 3, 2, 2) ** 1.5
    for name, one, axes in (("(4, 2)", X, (0,)), ("(2, 3, 2, 2)", x, (0, 2, 3)), ("(2, 3, 2, 2)", x, (1, 2, 3))):
        off, var = one - one.mean(axes, keepdims=True), one.var(axes, keepdims=True)
        sample = one.var(axes, keepdims=True, ddof=1)
        wrong = (
            (off, "That has the mean off, and is to be divided by the standard deviation too."),
            (off / (var + EPS), "Divide by the root of the variance: the standard deviation."),
            (off / (np.sqrt(var) + EPS), "ε is under the root, added to the variance."),
            (off / np.sqrt(var), "ε is missing: without it a set of equal numbers is divided by 0."),
            (off / np.sqrt(sample + EPS), "The variance here is the mean of the squares: divide by m, not by m - 1."),
            (one / np.sqrt(var + EPS), "The mean is to be taken off first."),
            ((one - one.mean()) / np.sqrt(one.var() + EPS), "That is over all entries: only `axes` share a mean."),
        )
        same(answer(one.copy(), axes, EPS), off / np.sqrt(var + EPS), f"For x {name}, axes = {axes}", wrong)


@exercise(
    "running(mean, var, batches, momentum)",
    "(mean, var) as PyTorch keeps them after these batches (arrays of one channel's m entries), one after another, "
    "from the given ones on; momentum is the fraction of the new. The variance that is kept divides by m - 1.",
    level="medium",
)
def running(answer: Answer) -> None:
    """Check which fraction is new, and which variance is kept."""
    for batches, m in (([np.array([1.0, 3.0])], 0.1), ([X[:, 0], X[:, 1], np.array([0.0, 5.0])], 0.25)):
        when = f"For mean = 0, var = 1, {len(batches)} batch{'es' * (len(batches) > 1)}, momentum = {m:g}, of"
        found = pair(answer(0.0, 1.0, [b.copy() for b in batches], m), ("mean", "var"), when.removesuffix(", of") + ",")
        (mean, var), (mean_old, var_old) = (_running_statistics(batches, a, 1) for a in (m, 1 - m))
        keras = "The momentum of PyTorch is the fraction of the new: (1 - m) of the old and m of the batch's."
        last = "That is the value of the last batch: mix it with the previous running value."
        same(found[0], mean, f"{when} mean", ((mean_old, keras), (batches[-1].mean(), last)))
        biased = "The variance that is kept divides by m - 1, though the one that normalizes divides by m."
        root = "The variance is kept, not its root."
        wrong = (
            (_running_statistics(batches, m, 0)[1], biased),
            (var_old, keras),
            (batches[-1].var(ddof=1), last),
            (np.sqrt(var), root),
        )
        same(found[1], var, f"{when} var", wrong)


def _running_statistics(batches: list[np.ndarray], m: float, ddof: int) -> tuple[float, float]:
    mean, var = 0.0, 1.0
    for batch in batches:
        mean = (1 - m) * mean + m * float(batch.mean())
        var = (1 - m) * var + m * float(batch.var(ddof=ddof))
    return mean, var


@exercise(
    "batch_norm_backward(x, gamma, g, eps)",
    "(dx, dgamma, dbeta) of y = gamma (x - mean)/sqrt(var + eps) + beta in training, x (N, C) and gamma (C,), from "
    "g (N, C), the gradient in y. Mean and variance (which divides by N) depend on x; dgamma and dbeta (C,) are "
    "sums over the batch.",
    level="medium",
)
def batch_norm_backward(answer: Answer) -> None:
    """Check that the gradient passes through the mean and the variance too."""
    gamma, g = np.array([2.0, -1.0]), np.array([[1.0, 0.0], [0.5, -1.0], [0.0, 2.0], [-1.0, 1.0]])
    s = np.sqrt(X.var(0) + EPS)
    normal = (X - X.mean(0)) / s
    own = gamma * g
    right = (own - own.mean(0) - normal * (own * normal).mean(0)) / s
    when = "For x (4, 2), of"
    dx, dgamma, dbeta = pair(answer(X.copy(), gamma, g, EPS), ("dx", "dgamma", "dbeta"), "For x (4, 2)")
    plain = g - g.mean(0) - normal * (g * normal).mean(0)
    wrong = (
        (own / s, "That takes mean and variance for constants, as in evaluation: x moves them too."),
        ((own - own.mean(0)) / s, "The way through the variance is missing: x̂ times the mean of ĝ x̂."),
        ((own - normal * (own * normal).mean(0)) / s, "The way through the mean is missing: less the mean of ĝ."),
        (plain / s, "γ is missing: what comes to x̂ is γ g."),
        (right * s, "All of it is divided by the standard deviation."),
        ((own - own.sum(0) - normal * (own * normal).sum(0)) / s, "Means over the batch, not sums."),
    )
    same(dx, right, f"{when} dx", wrong)
    wrong_gamma = (
        ((g * X).sum(0), "γ multiplies x̂, the normalized x."),
        ((g * normal).mean(0), "Every example has its part in it: the sum over the batch."),
        (g * normal, "γ is the same for all examples: sum over them."),
    )
    same(dgamma, (g * normal).sum(0), f"{when} dgamma", wrong_gamma)
    same(dbeta, g.sum(0), f"{when} dbeta", ((g.mean(0), "The sum over the batch, not the mean."),))


@exercise(
    "fold(W, b, gamma, beta, mean, var, eps)",
    "(W', b') of the one layer that does what z = W a + b and then gamma (z - mean)/sqrt(var + eps) + beta, batch "
    "normalization in evaluation, do; W is (out, in), all else (out,).",
    level="medium",
)
def fold(answer: Answer) -> None:
    """Check that rows are outputs, and that the bias is folded too."""
    W, b = np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([1.0, -2.0])
    gamma, beta, mean, var = np.array([2.0, 0.5]), np.array([0.1, 0.2]), np.array([0.5, -1.0]), np.array([4.0, 0.25])
    k = gamma / np.sqrt(var + EPS)
    found = pair(answer(W.copy(), b.copy(), gamma, beta, mean, var, EPS), ("W'", "b'"), "For W (2, 2)")
    wrong = (
        (W * k, "Each output has a factor of its own, and outputs are W's rows: scale[:, None]."),
        (W * (gamma / (var + EPS))[:, None], "Divide by the root of var + eps."),
        (W * gamma[:, None], "The division by the standard deviation is missing."),
        (W, "W takes the factor γ/√(var + eps) too."),
    )
    same(found[0], W * k[:, None], "For W (2, 2), of W'", wrong)
    wrong_b = (
        (beta - mean * k, "The layer has a bias of its own: it goes through the normalization with the rest."),
        (beta + b - mean * k, "b is multiplied by the factor as well: it is part of z."),
        (b * k + beta, "The mean is to be taken off: (b - mean) times the factor."),
        ((b - mean) * k, "β is missing."),
        (beta + (b - mean), "b - mean takes the factor γ/√(var + eps) too."),
    )
    same(found[1], beta + (b - mean) * k, "For W (2, 2), of b'", wrong_b)


@exercise(
    "rms_norm(x, gamma, eps)",
    "gamma x / sqrt(mean of x² + eps), the mean over the last axis of x (N, d), each row for itself; no mean is "
    "subtracted.",
    level="easy",
)
def rms_norm(answer: Answer) -> None:
    """Check that rows are normalized separately, without subtraction of a mean."""
    gamma = np.array([1.0, 2.0])
    right = gamma * X / np.sqrt((X**2).mean(-1, keepdims=True) + EPS)
    off = X - X.mean(-1, keepdims=True)
    wrong = (
        (gamma * off / np.sqrt(off.var(-1, keepdims=True) + EPS), "That is layer normalization: no mean is taken off."),
        (X / np.sqrt((X**2).mean(-1, keepdims=True) + EPS), "γ is missing."),
        (gamma * X / np.sqrt((X**2).sum(-1, keepdims=True) + EPS), "The mean of the squares, not their sum."),
        (gamma * X / np.sqrt((X**2).mean(0) + EPS), "Normalize each token separately: the mean is over the last axis."),
        (gamma * X / np.sqrt((X**2).mean() + EPS), "Normalize each token separately: the mean is over the last axis."),
        (gamma * X / ((X**2).mean(-1, keepdims=True) + EPS), "Divide by the root."),
    )
    same(answer(X.copy(), gamma, EPS), right, "For x (4, 2), gamma = (1, 2)", wrong)


@exercise(
    "weight_norm_gradient(v, g, grad)",
    "(dv, dg): the gradients in v (n,) and the number g, of which w = g v/‖v‖, from grad (n,), that in w.",
    level="medium",
)
def weight_norm_gradient(answer: Answer) -> None:
    """Check that the gradient of the direction has no part along v."""
    v, g, grad = np.array([3.0, 4.0]), 2.0, np.array([1.0, -0.5])
    along = v @ grad / 5
    when = f"For v = {format_numbers(v)}, g = 2, grad = {format_numbers(grad)}, of"
    dv, dg = pair(answer(v.copy(), g, grad.copy()), ("dv", "dg"), when.removesuffix(", of"))
    right = g / 5 * (grad - along * v / 5)
    wrong = (
        (g / 5 * grad, "A longer v is the same w: the part of the gradient along v has to go."),
        ((grad - along * v / 5) / 5, "w is g times v/‖v‖: the factor g is missing."),
        (g * (grad - along * v / 5), "Divide by ‖v‖: the longer v, the less a step turns it."),
        (g / 5 * (grad - along * v), "The direction is v/‖v‖, not v."),
    )
    same(dv, right, f"{when} dv", wrong)
    same(dg, along, f"{when} dg", ((v @ grad, "Divide by ‖v‖: w grows along the unit vector v/‖v‖."),))
