"""Concept activation vectors (TCAV): whether a layer represents a concept, and its effect on a class.
B. Kim, M. Wattenberg, J. Gilmer, C. Cai, J. Wexler, F. Viegas, R. Sayres, Interpretability beyond feature attribution:
quantitative testing with concept activation vectors (TCAV), 2017 (ICML 2018). <https://arxiv.org/abs/1711.11279>

    v_C    the normal of a linear classifier between a layer's activations f for examples of the concept and for others
    S(x) = ∇h_k(f(x)) · v_C            sensitivity of class k in the direction of the concept           (equation 1)
    TCAV = |{x of class k : S(x) > 0}| / |{x of class k}|                                                (equation 2)

Any set of examples has such a direction. The score is therefore computed several times, against different random
examples of the data, and as often with random examples in place of the concept. A two-sided test (Welch's t) compares
the two sets of scores (section 3.2). The paper's test alone is passed too easily, because its classifiers share the
concept's examples. Here the classifiers must also recognize the concept on unseen examples.

The classifier is a ridge regression on ±1. Where a layer has more than one position (tokens, steps, large maps), its
means over the positions are used, and the direction applies to every position.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InputShapeError, ModelError, NotEnoughDataError, UnknownName
from .attribution.explained_output import Entry, build_entry, explained_outputs, input_kind, sum_pixels
from .attribution.result import isolated

Inputs = Tensor | tuple[Tensor, ...]

SETS = 10  # number of random sets
LEAST = 4  # smallest number of examples of a concept
LEVEL = 0.05  # significance level
FLAT = 4096  # largest map, in numbers, whose positions are kept apart
BEFORE = ":input"  # suffix of a layer's name that selects its input instead of its output
RIDGE = 0.1  # relative to the mean square of a layer's outputs
UNSEEN = 3  # one of this many examples is held out to test a classifier


@dataclass(frozen=True)
class Concept:
    """The effect of a concept on a class at one layer."""

    layer: str
    output: int  # the class
    scores: tuple[float, ...]  # TCAV against each set of random examples
    chance: tuple[float, ...]  # TCAV of random examples in place of the concept
    p: float  # p value of their difference, two-sided
    accuracy: float  # of the classifiers on unseen examples: 0.5 is chance
    examples: int  # number of examples of the concept

    @property
    def score(self) -> float:
        """The mean fraction of the class's examples with positive sensitivity."""
        return sum(self.scores) / len(self.scores)

    @property
    def known(self) -> bool:
        """True if the classifiers recognize the concept by two standard errors above chance."""
        return self.accuracy > 0.5 + 2 * math.sqrt(0.25 / self.examples)

    @property
    def significant(self) -> bool:
        """True if the layer represents the concept, and scores differ from those of random examples."""
        return self.known and self.p < LEVEL

    @property
    def says(self) -> str:
        """The finding as text."""
        found = f"TCAV {self.score:.2f} at {self.layer} (p = {self.p:.2g} against random examples"
        found += f"; classifier accuracy {self.accuracy:.0%} on unseen examples)."
        if not self.known:
            return f"{found} The layer does not separate the concept from other examples, so the test is inconclusive."
        if self.p >= LEVEL:
            return (
                f"{found} The layer encodes the concept, but its influence is not larger than that of random examples."
            )
        way = "for" if self.score > sum(self.chance) / len(self.chance) else "against"
        return f"{found} The concept influences the score {way} the class."


def concept(
    model: nn.Module,
    inputs: Inputs,
    examples: Inputs,
    others: Inputs,
    *,
    layer: str | None = None,
    target: int | None = None,
    sets: int = SETS,
    seed: int = 0,
) -> Concept:
    """Compute the TCAV score of a concept: the fraction of a class's examples whose score increases with the concept.

    The model is left unchanged.

    Args:
        model: The model.
        inputs: Examples of the class, a tensor (N, …) or several arguments of `forward`.
        examples: Examples that have the concept in common, in the same form; at least 4.
        others: Random examples of the data, in the same form; at least 4, better more than of the concept.
        layer: Name of the layer; "fc:input" is the input of the layer fc. By default, the last layer before the output.
        target: The class. By default, the most frequent prediction for `inputs`.
        sets: Number of random sets with which the concept is compared.
        seed: Seed of the random sets.

    Returns:
        The result: `score`, the TCAV score from 0 to 1; `p`, the p value of its difference from random examples;
        `accuracy`, that of the classifier of the concept on unseen examples; `significant`; and `says`, a summary.

    Raises:
        DataError: If there are fewer than 4 examples of the concept or of the data.
        UnknownName: If the layer does not exist.
        ModelError: If the inputs are graphs, or the layer has no activations per example.
    """
    given, those, pool = (_tuple(x) for x in (inputs, examples, others))
    _reject(given, those, pool)
    with isolated(model, seed):
        if target is None:
            with torch.no_grad():
                target = _most(model, given)
        entry = build_entry(model, given, target)
        name = layer or last_layer(entry)
        if not name.removesuffix(BEFORE) or name.removesuffix(BEFORE) not in dict(model.named_modules()):
            raise UnknownName("layer", name, [n for n, _ in model.named_modules() if n])
        slopes = _slopes(entry, name)  # (N, D)
        generator = torch.Generator().manual_seed(seed)
        c, r = _activations(model, those, name), _activations(model, pool, name)
        lots = [_random_rows(r, len(c), generator) for _ in range(sets + 1)]
        found = [_tcav_score(c, lot, slopes, generator) for lot in lots[:sets]]
        chance = [_tcav_score(one, another, slopes, generator) for one, another in pairwise(lots)]
    scores, by_chance = tuple(s for s, _ in found), tuple(s for s, _ in chance)
    accuracy = sum(a for _, a in found) / sets
    return Concept(name, target, scores, by_chance, welch(scores, by_chance), accuracy, len(c))


def _reject(given: tuple[Tensor, ...], those: tuple[Tensor, ...], pool: tuple[Tensor, ...]) -> None:
    if input_kind(given) == "graph":
        raise ModelError("A concept needs several independent examples, and the nodes of a graph are not independent.")
    for count, what in ((len(those[0]), "the concept"), (len(pool[0]), "the data, to compare them with")):
        if count < LEAST:
            raise NotEnoughDataError(f"A concept needs at least {LEAST} examples of {what}; there are {count}.")


def _tuple(inputs: Inputs) -> tuple[Tensor, ...]:
    return (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)


def _most(model: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """Return the most frequent prediction, or 0 for a single output."""
    return int(sum_pixels(explained_outputs(model, inputs)).flatten(0, -2).argmax(1).mode().values)


# --- activations ---------------------------------------------------------------------------------------------------


def last_layer(entry: Entry) -> str:
    """Return the last module before the output with activations per example that affect the output.

    Without one, return the input of the output module. Raises ModelError if neither exists.
    """
    found: list[str] = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor) and first.ndim >= 2 and len(first) == len(entry.z):
                found.append(name)

        return hook

    modules = [(n, m) for n, m in entry.model.named_modules() if n and n.partition(".")[0] != "head"]
    handles = [m.register_forward_hook(watch(name)) for name, m in modules]
    try:
        with torch.no_grad():
            entry.score(entry.z, entry.rows)
            answer = explained_outputs(entry.model, entry.inputs)
    finally:
        for handle in handles:
            handle.remove()
    answering = ""
    for name in reversed(dict.fromkeys(found)):
        with torch.no_grad(), _capture_leaves(entry.model, [name]) as kept:
            entry.score(entry.z, entry.rows)
        said = kept[name].shape == answer.shape and torch.equal(kept[name], answer)  # it is the output itself
        if said:
            answering = name
        elif bool((_slopes(entry, name) != 0).any()):
            return name
    if answering:
        return answering + BEFORE
    raise ModelError(f"{type(entry.model).__name__} has no hidden layer to test a concept at.")


@contextmanager
def _capture_leaves(model: nn.Module, names: list[str]) -> Iterator[dict[str, Tensor]]:
    """Record outputs or inputs of these modules as leaves for gradients; later modules continue from a copy."""
    found: dict[str, Tensor] = {}

    def keep(name: str, given: Any) -> Any:
        first = given[0] if isinstance(given, tuple) else given
        leaf = first.detach().clone().requires_grad_(torch.is_grad_enabled())
        found[name] = leaf
        onward = leaf.clone()  # may be modified in place
        return (onward, *given[1:]) if isinstance(given, tuple) else onward

    def after(name: str) -> Any:
        return lambda module, args, output: keep(name, output)

    def before(name: str) -> Any:
        return lambda module, args: keep(name, args)

    modules = dict(model.named_modules())
    handles = [
        modules[name.removesuffix(BEFORE)].register_forward_pre_hook(before(name))
        if name.endswith(BEFORE)
        else modules[name].register_forward_hook(after(name))
        for name in names
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def _activations(model: nn.Module, inputs: tuple[Tensor, ...], name: str) -> Tensor:
    """Return the layer's activations for each example, (n, D)."""
    with _capture_leaves(model, [name]) as kept:
        model(*inputs)
    return _flat(kept[name], len(inputs[0]), torch.mean)


def _slopes(entry: Entry, name: str) -> Tensor:
    """Return ∇h_k at the layer, (N, D); summed over positions where activations are averaged over them."""
    with _capture_leaves(entry.model, [name]) as kept:
        score = entry.score(entry.z, entry.rows).sum()
    (slope,) = torch.autograd.grad(score, kept[name], allow_unused=True)
    slope = torch.zeros_like(kept[name]) if slope is None else slope
    return _flat(slope, len(entry.z), torch.sum)


def _flat(x: Tensor, examples: int, over: Any) -> Tensor:
    """Flatten (n, …) to (n, D).

    Small maps (n, C, …) are kept, large ones are reduced over positions. Tokens and steps (n, T, d) are reduced over
    their varying number of positions. Raises ModelError for outputs that are not per example.
    """
    x = x.detach()
    if len(x) != examples:
        raise InputShapeError("The output of this layer has no batch dimension: choose another layer.")
    if x.ndim == 3:
        flat: Tensor = over(x, 1)  # (n, d)
    elif x.ndim > 3 and x[0].numel() > FLAT:
        flat = over(x.flatten(2), 2)  # (n, C)
    else:
        flat = x.flatten(1)
    return flat


# --- the classifier and the test -----------------------------------------------------------------------------------


def _random_rows(pool: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return as many random rows as the concept has examples, or all."""
    return pool[torch.randperm(len(pool), generator=generator)[: max(count, LEAST)]]


def _tcav_score(one: Tensor, other: Tensor, slopes: Tensor, generator: torch.Generator) -> tuple[float, float]:
    """Return the TCAV score of one set against another, and the accuracy of a classifier on unseen examples."""
    direction, _ = vector(one, other)
    score = float((slopes @ direction > 0).float().mean())
    halves = [torch.randperm(len(x), generator=generator) for x in (one, other)]
    seen, unseen = zip(*((x[o[len(x) // UNSEEN :]], x[o[: len(x) // UNSEEN]]) for x, o in zip((one, other), halves)))
    v, bias = vector(*seen)
    right = [(unseen[0] @ v + bias > 0).float().mean(), (unseen[1] @ v + bias <= 0).float().mean()]
    return score, float(sum(right) / 2)


def vector(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Fit a ridge regression that is 1 for rows of `one` (n, D), −1 for those of `other`; return its normal (D,) and
    bias.

    It is solved in the space of the examples, which are fewer than features.
    """
    x = torch.cat([one, other])
    y = torch.cat([x.new_full((len(one),), 1 / len(one)), x.new_full((len(other),), -1 / len(other))])
    centre = (one.mean(0) + other.mean(0)) / 2
    x = x - centre
    products = x @ x.T  # (n, n)
    ridge = RIDGE * products.diagonal().mean().clamp(min=1e-12)
    v = x.T @ torch.linalg.solve(products + ridge * torch.eye(len(x), dtype=x.dtype, device=x.device), y)
    return v, -(centre @ v)


def welch(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Return the two-sided p value of B. L. Welch's t test of equal means (1947); 1 or 0 if neither varies."""
    from scipy.special import stdtr  # comes with scikit-learn

    means = [sum(x) / len(x) for x in (one, other)]
    errors = [sum((v - m) ** 2 for v in x) / (len(x) - 1) / len(x) for x, m in zip((one, other), means)]
    if sum(errors) == 0:
        return float(means[0] == means[1])
    t = (means[0] - means[1]) / math.sqrt(sum(errors))
    freedom = sum(errors) ** 2 / sum(e**2 / (len(x) - 1) for e, x in zip(errors, (one, other)))
    return float(2 * stdtr(freedom, -abs(t)))
