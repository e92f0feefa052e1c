"""Wrong answers to the exercises of chapter 4."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(4, "up to twice as much still comes nearer")
def largest_rate(H: Any) -> Any:
    return 1 / np.linalg.eigvalsh(H)[-1]


@wrong(4, "times 1 - beta it would be an average")
def momentum_step(w: Any, v: Any, g: Any, rate: Any, beta: Any) -> Any:
    v = beta * v + (1 - beta) * g
    return w - rate * v, v


@wrong(4, "divide m by 1 - beta1^t")
def adam_step(w: Any, m: Any, v: Any, g: Any, t: Any, rate: Any, beta1: Any, beta2: Any, eps: Any) -> Any:
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    return w - rate * m / (np.sqrt(v) + eps), m, v


@wrong(4, "multiplied by the rate too")
def decayed_step(w: Any, step: Any, rate: Any, decay: Any) -> Any:
    return w - rate * step - decay * w


@wrong(4, "one norm for all")
def clip(gradients: Any, most: Any) -> Any:
    return [g * min(1.0, most / np.linalg.norm(g)) for g in gradients]


@wrong(4, "the step is lost")
def warmup_cosine(step: Any, steps: Any, warmup: Any) -> Any:
    return step / warmup if step < warmup else (1 + np.cos(np.pi * (step - warmup) / (steps - warmup))) / 2
