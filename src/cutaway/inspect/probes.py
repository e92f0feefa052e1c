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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, UnknownName
from ..nn.attention import AnyRecord, Attention, AttentionRecord, StepRecord
from ..nn.graphs import CSRPattern, MessagePassing
from ..nn.recurrent import reject_projections
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
    " Attention weights are recorded by cutaway.nn.attention.MultiHeadAttention and other subclasses of Attention: "
    "build the model with it. torch.nn.MultiheadAttention returns weights itself if called with need_weights=True and "
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
            f"{type(model).__name__} has no {kind} to capture. Kinds that it has:"
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
