"""Exercises of chapter 4: optimizer steps and learning rates."""

from __future__ import annotations

import math

import numpy as np

from .exercises import Answer, Exercises, as_array, expect, format_numbers, pair, same

EXERCISES = exercise = Exercises()

W, G = np.array([1.0, -2.0, 0.5]), np.array([0.3, -4.0, 0.0])  # weights and their gradient


@exercise(
    "largest_rate(H)",
    "The rate above which gradient descent on ½ w·Hw diverges, H symmetric with eigenvalues > 0, not necessarily "
    "diagonal.",
    level="easy",
)
def largest_rate(answer: Answer) -> None:
    """Check two divided by the largest eigenvalue."""
    for rows in ([[2.0, 0.0], [0.0, 5.0]], [[3.0, 1.0], [1.0, 3.0]]):
        H = np.array(rows)
        values = np.linalg.eigvalsh(H)
        wrong = (
            (1 / values[-1], "That rate lands in the valley in one step; up to twice as much still comes nearer."),
            (2 / values[0], "The largest curvature decides, not the smallest: there it diverges first."),
            (2 / np.trace(H), "The trace is the sum of the eigenvalues, and the largest one alone decides."),
            (2 / np.diag(H).max(), "The curvature along an axis is not the largest: take the eigenvalues."),
        )
        same(answer(H), 2 / values[-1], f"For H = {format_numbers(H)}", wrong)


@exercise(
    "momentum_step(w, v, g, rate, beta)",
    "(w, v) after one step of SGD with momentum as PyTorch has it: v ← beta v + g, then w ← w - rate v.",
    level="easy",
)
def momentum_step(answer: Answer) -> None:
    """Check that the velocity is a sum and not an average, and that the new one moves the weights."""
    v = np.array([1.0, 0.0, -1.0])
    new, new_v = pair(answer(W.copy(), v.copy(), G.copy(), 0.1, 0.9), ("w", "v"), "For three weights")
    right = 0.9 * v + G
    wrong = (
        (
            0.9 * v + 0.1 * G,
            "The gradient is added whole: times 1 - beta it would be an average, and ten times slower.",
        ),
        (v + G, "The old velocity is to be multiplied by beta."),
        (0.9 * v - 0.1 * G, "Here the rate multiplies the velocity as it moves w, not the gradient."),
    )
    same(new_v, right, "Of v, for rate 0.1 and beta 0.9,", wrong)
    wrong = (
        (W - 0.1 * v, "It moves by the old velocity: update v first."),
        (W + 0.1 * right, "Downhill is against the gradient."),
        (W - 0.1 * G, "It moves by the gradient: the velocity moves it."),
    )
    same(new, W - 0.1 * right, "Of w, for rate 0.1 and beta 0.9,", wrong)


@exercise(
    "adam_step(w, m, v, g, t, rate, beta1, beta2, eps)",
    "(w, m, v) after Adam's step number t, counted from 1. m and v are kept without the correction of their bias, "
    "only w uses the corrected values; eps is added to the root of v, outside of it.",
    level="medium",
)
def adam_step(answer: Answer) -> None:
    """Check bias correction, and eps outside the root."""
    m, v, names = np.zeros(3), np.zeros(3), ("w", "m", "v")
    w = W.copy()
    for t in (1, 2):
        when = f"At step t = {t}, of"
        given = answer(w.copy(), m.copy(), v.copy(), G * t, t, 0.1, 0.9, 0.99, 1e-2)
        new, new_m, new_v = pair(given, names, f"At step t = {t}")
        m, v = 0.9 * m + 0.1 * G * t, 0.99 * v + 0.01 * (G * t) ** 2
        same(new_m, m, f"{when} m", ((m / (1 - 0.9**t), "Keep m unchanged: only the step uses the corrected value."),))
        same(new_v, v, f"{when} v", ((v / (1 - 0.99**t), "Keep v unchanged: only the step uses the corrected value."),))
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.99**t)
        wrong = (
            (w - 0.1 * m / (np.sqrt(v) + 1e-2), "Without the correction: divide m by 1 - beta1^t, v by 1 - beta2^t."),
            (w - 0.1 * m_hat / np.sqrt(v_hat + 1e-2), "eps is added outside of the root."),
            (w - 0.1 * m_hat / (v_hat + 1e-2), "The root of v is missing."),
            (w + 0.1 * m_hat / (np.sqrt(v_hat) + 1e-2), "Downhill is against the gradient."),
        )
        w = w - 0.1 * m_hat / (np.sqrt(v_hat) + 1e-2)
        same(new, w, f"{when} w", wrong)


@exercise(
    "decayed_step(w, step, rate, decay)",
    "w after the step -rate·step of any optimizer, with decoupled weight decay: rate·decay·w less, of the w before "
    "the step.",
    level="easy",
)
def decayed_step(answer: Answer) -> None:
    """Check the decay of AdamW: learning rate times decay times w."""
    step = np.array([1.0, 1.0, -1.0])
    wrong = (
        (W - 0.1 * step - 0.5 * W, "The decay is multiplied by the rate too, so that a schedule moves both."),
        ((W - 0.1 * step) * (1 - 0.5), "The decay is multiplied by the rate too, so that a schedule moves both."),
        ((W - 0.1 * step) * (1 - 0.05), "It decays the weights as they were before the step: rate · decay · w."),
        (W - 0.1 * step, "That is without decay."),
        (W - 0.1 * step + 0.05 * W, "Decay makes weights smaller."),
    )
    right = W - 0.1 * step - 0.1 * 0.5 * W
    same(answer(W.copy(), step.copy(), 0.1, 0.5), right, "For rate 0.1 and decay 0.5", wrong)


@exercise(
    "clip(gradients, most)",
    "The list of arrays, all scaled by one factor so that their total norm, the root of the sum of all squares, is "
    "at most `most`; unchanged if it already is.",
    level="medium",
)
def clip(answer: Answer) -> None:
    """Check that one norm is used for all gradients, and that none becomes larger."""
    parts = [np.array([3.0, 0.0]), np.array([[0.0, 4.0], [12.0, 0.0]])]  # of norm 13 together
    found = pair(answer([p.copy() for p in parts], 6.5), ("first", "second"), "For two gradients of norm 13 together")
    each = [p * min(1, 6.5 / np.linalg.norm(p)) for p in parts]
    for k, name in enumerate(("the first", "the second")):
        wrong = (
            (each[k], "Each array is clipped separately, which changes the direction: use one norm for all."),
            (np.clip(parts[k], -6.5, 6.5), "It clips each number, which turns the direction: scale all by one factor."),
            (parts[k] * 6.5 / 13**2, "The norm is the square root of the sum of squares."),
        )
        same(found[k], parts[k] / 2, f"For two gradients of norm 13 together and most = 6.5, of {name}", wrong)
    left = pair(answer([p.copy() for p in parts], 20.0), ("first", "second"), "For most = 20")
    for k, part in enumerate(parts):
        hint = "The norm is 13 already: do not make gradients larger."
        same(left[k], part, "For most = 20", ((part * 20 / 13, hint),))


@exercise(
    "warmup_cosine(step, steps, warmup)",
    "The factor on the rate at step 0, 1, …, steps - 1, one number: (step + 1)/warmup for the first `warmup` of "
    "them, then half a cosine from 1 down, ½ (1 + cos π p), where p goes from 0 at step = warmup towards 1 at step "
    "= steps. warmup may be 0. `math` may be imported.",
    level="medium",
)
def warmup_cosine(answer: Answer) -> None:
    """Check that the first step has a rate above 0, and that the cosine starts at the end of the warmup."""
    for step, steps, warmup in ((0, 100, 10), (4, 100, 10), (10, 100, 10), (55, 100, 10), (99, 100, 10), (0, 50, 0)):
        p = (step - warmup) / (steps - warmup)
        cosine = (1 + math.cos(math.pi * p)) / 2
        right = (step + 1) / warmup if step < warmup else cosine
        hints = [((1 + math.cos(math.pi * step / steps)) / 2, "The cosine is to begin where the rise ends.")]
        if step < warmup:
            hints = [(step / warmup, "At step 0 that is 0, and the step is lost: take (step + 1)/warmup.")]
        value = as_array(answer(step, steps, warmup), f"At step {step} of {steps}, warmup {warmup},")
        expect(value.ndim == 0, "It is to give one number.")
        same(value, right, f"At step {step} of {steps}, warmup {warmup},", hints)
