"""How often intervals hold the truth, and equal models are called different: python -m benchmarks statistics.

Models are simulated whose true metrics are known. Example j is hard by c_j for all models, by b_mj for one of them,
by e_msj for one of its seeds; and seed s of model m is better or worse by a_ms:

    z = √r₁ c + √r₂ b + √r₃ e                 c, b, e normal, or Student's t with 5 degrees of freedom
    accuracy   right where z + a + μ > 0       truth Φ(μ / √(1 + τ²)), τ the standard deviation of a
    RMSE       error  exp(a + μ) z             truth E exp(a + μ) √E z²

In each trial there are two equal models and another. Resamples are drawn anew after every 20 trials.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import special

from cutaway.statistics.comparison import Difference, compare_rows, measure_rows
from cutaway.statistics.intervals import LEVEL, Metric, Resamples, Values

from .pages import replace_section

PAGE = Path("docs/statistics.md")
BEGIN, END = "<!-- measured by python -m benchmarks statistics -->\n", "<!-- end -->\n"
EXAMPLES = (20, 50, 200)
TRIALS, ANEW, DRAWS = 1_000, 20, 1_999
ALIKE, SHARED = (0.5, 0.2, 0.3), (0.8, 0.1, 0.1)  # r₁, r₂, r₃
WITHIN = 0.015  # of the stated level


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    metric: str  # accuracy, RMSE or heavy RMSE
    seeds: tuple[int, int]  # of the one model and of the others
    spread: float  # τ
    parts: tuple[float, float, float] = ALIKE
    others: bool = False  # whether the truth is that of other seeds, also where there is one

    @property
    def words(self) -> str:
        """The row's first cells."""
        alike = "0.9" if self.parts == SHARED else "0.7"
        other = ", of other seeds" if self.others else ""
        return f"{self.metric}{other} | {self.seeds[0]} and {self.seeds[1]} | {self.spread:g} | {alike}"


@dataclass
class Found:
    """How many of the trials went how."""

    trials: int = 0
    equal: int = 0  # the interval of a difference that is 0 holds it
    unequal: int = 0
    single: int = 0
    called: int = 0  # equal models are called different


SETTINGS = [
    *(
        Setting(metric, seeds, spread)
        for metric in ("accuracy", "RMSE")
        for seeds, spread in (
            ((1, 1), 0.0), ((2, 2), 0.05), ((2, 5), 0.05), ((3, 3), 0.0), ((3, 3), 0.05), ((3, 3), 0.15),
            ((5, 5), 0.05), ((10, 10), 0.05), ((3, 1), 0.05), ((3, 1), 0.15),
        )
    ),
    Setting("accuracy", (1, 1), 0.0, SHARED),
    Setting("accuracy", (5, 5), 0.05, SHARED),
    Setting("RMSE, heavy tails", (1, 1), 0.0),
    Setting("RMSE, heavy tails", (5, 5), 0.05),
    Setting("accuracy", (1, 1), 0.05, others=True),
    Setting("RMSE", (1, 1), 0.05, others=True),
]  # fmt: skip


def trial(setting: Setting, examples: int, rng: np.random.Generator) -> tuple[dict[str, Values], dict[str, float]]:
    """Contributions (seeds, examples) of three models, and their true metrics: b is equal to a, c is not."""
    heavy = "heavy" in setting.metric
    rights = setting.metric == "accuracy"

    def drawn(rows: int) -> Values:
        if not heavy:
            return rng.standard_normal((rows, examples))
        return rng.standard_t(5, (rows, examples)) / math.sqrt(5 / 3)

    r1, r2, r3 = map(math.sqrt, setting.parts)
    shared = drawn(1)
    made: dict[str, Values] = {}
    truths: dict[str, float] = {}
    for name, seeds, shift in (
        ("a", setting.seeds[0], 0.0),
        ("b", setting.seeds[1], 0.0),
        ("c", setting.seeds[1], 0.3),
    ):
        chance = seeds > 1 or setting.others  # one row is of a model that learns without chance
        tau = setting.spread if chance else 0.0
        z = r1 * shared + r2 * drawn(1) + r3 * drawn(seeds)  # (S, n)
        a = tau * rng.standard_normal((seeds, 1))
        if rights:
            # Equal models are right equally often, whether or not their seeds differ.
            base = special.ndtri(special.ndtr(1.1 + shift)) * math.sqrt(1 + tau**2)
            made[name] = (z + a + base > 0).astype(np.float64)
            truths[name] = float(special.ndtr(1.1 + shift))
        else:
            made[name] = np.square(np.exp(a - tau**2 / 2 + shift) * z)
            truths[name] = math.exp(shift)
    return made, truths


def simulated(setting: Setting, examples: int, trials: int, seed: int = 0) -> Found:
    """So many trials of one setting."""
    rng = np.random.default_rng([seed, examples, *setting.seeds, int(1000 * setting.spread)])
    finish = None if setting.metric == "accuracy" else np.sqrt
    found = Found()
    for number in range(trials):
        if number % ANEW == 0:
            resamples = Resamples(examples, seed=number, draws=DRAWS)
        made, truths = trial(setting, examples, rng)
        pairs = {(d.a, d.b): d for d in compare_rows(made, finish is None, finish, resamples, LEVEL)}
        found.trials += 1
        found.equal += held(pairs["a", "b"], 0.0)
        found.unequal += held(pairs["a", "c"], truths["a"] - truths["c"])
        found.called += pairs["a", "b"].p_value <= 1 - LEVEL
        found.single += held(measure_rows(made["a"], finish, resamples), truths["a"])
    return found


def held(interval: Metric | Difference, truth: float) -> bool:
    """Whether the truth is in the interval."""
    return interval.low <= truth <= interval.high


HEAD = (
    "metric", "seeds", "spread of seeds", "alike", "n",
    "equal models: coverage", "called different", "unequal models: coverage", "one model: coverage",
)  # fmt: skip


def rows() -> Iterator[str]:
    """The table, row by row."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"| --- | --- {'| ---: ' * (len(HEAD) - 2)}|"
    for setting in SETTINGS:
        yield from (row(setting, examples) for examples in EXAMPLES)


def row(setting: Setting, examples: int) -> str:
    """One setting with so many test examples."""
    found = simulated(setting, examples, TRIALS)
    held = [told(count, found.trials) for count in (found.equal, found.unequal, found.single)]
    return f"| {setting.words} | {examples:,} | {held[0]} | {called(found)} | {held[1]} | {held[2]} |"


def told(count: int, trials: int) -> str:
    """A coverage in percent, marked where it is not within 1.5 points of what is stated."""
    fraction = count / trials
    mark = "" if abs(fraction - LEVEL) <= WITHIN else " low" if fraction < LEVEL else " high"
    return f"{100 * fraction:.1f}{mark}"


def called(found: Found) -> str:
    """How often equal models are called different, in percent, marked where that is more than 5 and chance aside."""
    fraction, most = found.called / found.trials, 1 - LEVEL
    chance = 2 * math.sqrt(most * (1 - most) / found.trials)
    return f"{100 * fraction:.1f}{' high' if fraction > most + chance else ''}"


def main() -> int:
    """Simulate all settings, print the table and write it to the page."""
    lines = []
    for line in rows():
        lines.append(line)
        print(line, flush=True)
    replace_section(PAGE, BEGIN, END, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
