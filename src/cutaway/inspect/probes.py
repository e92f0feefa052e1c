"""Capture of intermediate results, with temporary hooks that change nothing.

with cutaway.inspect.capture(model, "attention") as seen:
    model(x)
seen["attention"]["blocks.0.attention"]        # (N, heads, T, S)

    kind        seen[kind][name], for each module that supports the kind
    features    a copy of the module's output
    attention   weights (N, heads, T, S) before dropout, from the queries and keys of the fused kernel
    gates       rnn.l0.forget etc., (N, T, hidden) each, recomputed step by step (`gates.py`)
    messages    the coefficient of each edge, (E, heads); also seen["edges"], (2, E), sources in the first row
    gradients   ∂L/∂output of the module, of a backward pass within the block; also seen["weights"], ∂L/∂weight

The rules, the same for all kinds:
- A call is a call of the model, `model(x)`. The results are those of the last call. `every=10` records the first call,
  the eleventh and so on, and costs the others nothing.
- A module with several runs in a call has its first result under its name and the others under name#2, name#3: the
  shared block of ALBERT is `blocks.0.attention`, `blocks.0.attention#2`, … Steps of one sequence are concatenated
  instead: a cell's gates and the attention of a decoder that processes one token at a time have all steps along T.
- Runs outside a call of the whole model, as in `model.step(…)`, are recorded too; each result replaces the one before.
- `keep=8` stores the first eight rows of each tensor: examples, or what the first axis holds otherwise (nodes, frames,
  positions). Messages and ∂L/∂weight have no examples and are stored whole. Memory is thus limited to `keep` rows of
  each for one call, for any number of calls.

Concept activation vectors (TCAV): whether a layer represents a concept, and its effect on a class.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import DataError, ModelError, UnknownName
from ..nn.attention import AnyRecord, Attention, AttentionRecord, StepRecord
from ..nn.graphs import CSRPattern, MessagePassing
from ..nn.recurrent import reject_projections
from .attribution.differentiable_input import Entry, build_entry
from .attribution.request import isolated
from .attribution.target import explained_outputs, input_kind, sum_pixels
from .captures import CapturedTensors, Captures
from .example_inputs import first_tensor, output_carriers, reject_compiled
from .gates import cell_gates, draws, parse_call, replay

Undo = Callable[[], None]
Probe = Callable[[Captures, str, nn.Module], Iterator[Undo]]

# The modules that support each kind; every module has features and gradients.
OF: dict[str, tuple[type[nn.Module], ...]] = {
    "features": (nn.Module,),
    "attention": (Attention,),
    "gates": (nn.RNNBase, nn.RNNCellBase),
    "messages": (MessagePassing,),
    "gradients": (nn.Module,),
}
KINDS = tuple(OF)
ATTENTION = (
    " Attention weights are kept by cutaway.nn.attention.MultiHeadAttention and other subclasses of Attention: build "
    "the model with it. torch.nn.MultiheadAttention returns its own where it is called with need_weights=True and "
    "average_attn_weights=False; F.scaled_dot_product_attention returns none."
)
BESIDE = {"messages": "edges", "gradients": "weights"}  # additional results of a kind


def capturable_kinds(model: nn.Module) -> tuple[str, ...]:
    """Return the kinds that can be captured in a model."""
    inside = [module for name, module in model.named_modules() if name]
    return tuple(kind for kind in KINDS if any(isinstance(module, OF[kind]) for module in inside))


@contextmanager
def capture(
    model: nn.Module,
    kind: str | Sequence[str] = "features",
    *names: str,
    keep: int | None = None,
    every: int = 1,
) -> Iterator[Captures]:
    """Record the model's intermediate results within the context.

    Outputs and gradients of the model are unchanged, bit for bit, and all hooks are removed afterwards, also if the
    block raises. Captures can be nested.

    Args:
        model: The model.
        kind: One or several of features, attention, gates, messages and gradients.
        names: Names of modules or patterns, such as `layer1` or `layer*.conv1`. Default: all that support the kind.
        keep: Number of rows to store of each tensor. Default: all.
        every: Interval between recorded calls.

    Yields:
        The results, `seen[kind][name]`.

    Raises:
        UnknownName: If a kind or a module does not exist.
        ModelError: If the model does not support the kind, or is compiled.
        SettingError: If `keep` or `every` is below 1.
    """
    reject_compiled(model)
    kinds = (kind,) if isinstance(kind, str) else tuple(kind)
    chosen = {k: _select_modules(model, k, names, kinds) for k in kinds}
    seen = Captures((*kinds, *(BESIDE[k] for k in kinds if k in BESIDE)), keep, every)
    with ExitStack() as undo:
        undo.callback(seen.close)
        undo.callback(model.register_forward_pre_hook(lambda module, args: seen.begin()).remove)
        for k, modules in chosen.items():
            for name, module in modules:
                for step in PROBES[k](seen, name, module):
                    undo.callback(step)
            if k == "gradients":
                for step in _weights(seen, model, [module for _, module in modules] if names else [model]):
                    undo.callback(step)
        undo.callback(model.register_forward_hook(lambda *_: seen.end(), always_call=True).remove)
        yield seen


def _select_modules(
    model: nn.Module, kind: str, names: tuple[str, ...], kinds: tuple[str, ...]
) -> list[tuple[str, nn.Module]]:
    """Return the modules that support the kind and match a name."""
    if kind not in KINDS:
        raise UnknownName("kind of capture", kind, KINDS)
    if kind not in capturable_kinds(model):
        raise ModelError(
            f"{type(model).__name__} has no {kind} to capture. It has these kinds:"
            f" {', '.join(capturable_kinds(model))}.{ATTENTION if kind == 'attention' else ''}"
        )
    every = [(k, m) for k, m in model.named_modules(remove_duplicate=False) if k]
    for wanted in names:
        # With several kinds, a name may apply to only one of them.
        known = [k for k, m in every if any(isinstance(m, OF.get(other, ())) for other in kinds)]
        if not any(fnmatchcase(k, wanted) for k in known):
            raise UnknownName("module" if "features" in kinds else f"module with {' or '.join(kinds)}", wanted, known)
    once = dict(model.named_modules())
    return [
        (k, m)
        for k, m in every
        if isinstance(m, OF[kind]) and (any(fnmatchcase(k, wanted) for wanted in names) if names else k in once)
    ]


# --- hooks of each kind, and their removal ---------------------------------------------------------------------------


def _features(seen: Captures, name: str, module: nn.Module) -> Iterator[Undo]:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        first = first_tensor(module, output) if seen.on else None
        if first is not None:
            seen.put("features", seen.name("features", name), seen.rows(first))

    yield module.register_forward_hook(hook).remove


def _attention(seen: Captures, name: str, module: nn.Module) -> Iterator[Undo]:
    assert isinstance(module, Attention)
    before = module.seen
    module.seen = _Listener(lambda used: _attended(seen, name, used), before)
    yield lambda: setattr(module, "seen", before)


def _attended(seen: Captures, name: str, used: AnyRecord) -> None:
    """Store queries and keys; the weights are computed on demand."""
    if not seen.on:
        return
    if isinstance(used, StepRecord):
        seen.join("attention", name, seen.rows(used.weights), dim=2)
        return
    mask = None if used.mask is None else used.mask.detach()
    q, k = used.q, used.k
    if seen.keep is not None:
        q, k = seen.rows(q), seen.rows(k)
        mask = mask[: seen.keep] if mask is not None and len(mask) > 1 else mask
    kept = AttentionRecord(q, k, mask, used.causal, used.scale)
    seen.put("attention", seen.name("attention", name), lambda: kept.weights)


class _Listener(list[AnyRecord]):
    """A list in place of an attention's records, which reports each record and passes it on to an outer listener."""

    def __init__(self, tell: Callable[[AnyRecord], None], before: list[AnyRecord] | None) -> None:
        super().__init__()
        self._tell, self._before = tell, before

    def append(self, used: AnyRecord) -> None:
        self._tell(used)
        if self._before is not None:
            self._before.append(used)


def _gates(seen: Captures, name: str, module: nn.Module) -> Iterator[Undo]:
    if isinstance(module, nn.RNNCellBase):

        def after_cell(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if seen.on:
                for gate, values in cell_gates(module, args, kwargs).items():  # type: ignore[arg-type]  # it is a cell
                    seen.join("gates", f"{name}.l0.{gate}", seen.rows(values), dim=1)

        yield module.register_forward_hook(after_cell, with_kwargs=True).remove
        return
    assert isinstance(module, nn.RNNBase)
    reject_projections(module)
    random: list[Tensor] = []

    def before_layer(layer: nn.Module, args: Any, kwargs: Any) -> None:
        random.clear()
        given = args[0] if args else kwargs.get("x", kwargs.get("input"))
        if seen.on and draws(layer, given):  # type: ignore[arg-type]  # it is a layer
            random.append(torch.get_rng_state())

    def after_layer(layer: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not seen.on:
            return
        assert isinstance(layer, nn.RNNBase)
        reading = parse_call(layer, args, kwargs, random[0] if random else None).first(seen.keep)
        with torch.random.fork_rng(devices=[], enabled=bool(random)):
            if random:
                torch.set_rng_state(random.pop())
            found = replay(layer, reading)
        for gate, values in found.items():
            seen.join("gates", f"{name}.{gate}", seen.rows(values), 1, goes_on=reading.state is not None)

    yield module.register_forward_pre_hook(before_layer, with_kwargs=True).remove
    yield module.register_forward_hook(after_layer, with_kwargs=True).remove


def _messages(seen: Captures, name: str, module: nn.Module) -> Iterator[Undo]:
    assert isinstance(module, MessagePassing)

    def hook(coefficients: Tensor, pattern: CSRPattern, first: int) -> Tensor:
        if seen.on:
            own = seen.join("messages", name, coefficients.detach().t().clone(), 1, goes_on=first > 0)  # (E, heads)
            seen.put("edges", own, pattern.pairs)
        return coefficients

    yield module.register_edge_hook(hook)


def _gradients(seen: Captures, name: str, module: nn.Module) -> Iterator[Undo]:
    handles: list[Any] = []

    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not seen.on:
            return
        of_this_call = seen.results.setdefault("gradients", {})
        _release(handles, of=of_this_call if seen.inside else None)  # gradients of earlier calls are no longer needed
        key = seen.name("gradients", name)
        parts: dict[int, Tensor] = {}  # the latest gradient of each part

        def keep(gradient: Tensor, part: int) -> None:
            parts[part] = seen.rows(gradient)
            of_this_call[key] = parts[part] if len(parts) == 1 else lambda: torch.stack([*parts.values()]).sum(0)

        for i, (part, as_output) in enumerate(output_carriers(module, args, kwargs, output)):
            if part.requires_grad:
                hooked = part.register_hook(lambda g, i=i, whole=as_output: keep(whole(g), i))  # type: ignore[no-untyped-call]
                handles.append((of_this_call, hooked))

    yield module.register_forward_hook(hook, with_kwargs=True).remove
    yield lambda: _release(handles)


def _weights(seen: Captures, model: nn.Module, modules: list[nn.Module]) -> Iterator[Undo]:
    """Hook ∂L/∂weight of these modules and their submodules."""
    inside = {parameter for module in modules for parameter in module.parameters()}
    for name, parameter in model.named_parameters():
        if parameter in inside and parameter.requires_grad:
            yield parameter.register_hook(_of_weight(seen, name)).remove  # type: ignore[no-untyped-call]


def _of_weight(seen: Captures, name: str) -> Callable[[Tensor], None]:
    def backward(gradient: Tensor) -> None:
        if seen.looking:
            own = gradient.detach().clone()
            seen.put("weights", name, own.to_dense if own.is_sparse else own)

    return backward


def _release(handles: list[Any], of: Any = None) -> None:
    """Remove the hooks, except those of one call."""
    for call, handle in handles:
        if call is not of:
            handle.remove()
    handles[:] = [entry for entry in handles if entry[0] is of]


PROBES: Mapping[str, Probe] = {
    "features": _features,
    "attention": _attention,
    "gates": _gates,
    "messages": _messages,
    "gradients": _gradients,
}


__all__ = ["KINDS", "CapturedTensors", "Captures", "capturable_kinds", "capture"]


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
        found += f"; told from others in {self.accuracy:.0%} of unseen cases)."
        if not self.known:
            return f"{found} The layer cannot tell these examples from others: nothing can be said of the concept."
        if self.p >= LEVEL:
            return f"{found} The layer knows the concept, but it counts no more than random examples do."
        way = "for" if self.score > sum(self.chance) / len(self.chance) else "against"
        return f"{found} The concept counts {way} the class."


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
    """Compute the TCAV score of the concept that `examples` have in common.

    The model is left unchanged.

    Args:
        model: The model.
        inputs: Arguments of `forward` for examples of the class.
        examples: Arguments of `forward` for examples of the concept.
        others: Arguments of `forward` for random examples of the data.
        layer: Name of the layer; "fc:input" is the input of the layer fc. Default: the last layer before the output.
        target: The class. Default: the most frequent prediction for `inputs`.
        sets: Number of random sets.
        seed: Seed of random numbers.

    Returns:
        The result.

    Raises:
        DataError: If there are too few examples.
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
        raise ModelError("A concept is told from several examples, and the nodes of a graph are not apart.")
    for count, what in ((len(those[0]), "the concept"), (len(pool[0]), "the data, to compare them with")):
        if count < LEAST:
            raise DataError(f"A concept takes at least {LEAST} examples of {what}, and there are {count}.")


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
    raise ModelError(f"{type(entry.model).__name__} has no layer before its answer: there is nowhere to look.")


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
        raise ModelError("This layer does not give its numbers example by example: name another layer.")
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
