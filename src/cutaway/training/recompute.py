"""Activation checkpointing: what a block computed is not kept for the backward pass, and is computed again there.

T. Chen, B. Xu, C. Zhang, C. Guestrin, Training deep nets with sublinear memory cost, 2016
<https://arxiv.org/abs/1604.06174>; selectively: V. A. Korthikanti et al., Reducing activation recomputation in large
Transformer models, 2022 <https://arxiv.org/abs/2205.05198>.

    none        all that a block computes is kept
    selective   what products with weights, convolutions and fused attention gave is kept, the rest computed again
    full        what enters a block is kept, and the block computed again: a third more arithmetic

PyTorch's `checkpoint` does it, in its form that is not reentrant. Dropout draws again what it drew. Hooks on the
modules within a block (`cutaway.inspect`) are called twice in a step, once in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from ..core.errors import SettingError
from .config import TrainSettings
from .parameter_groups import NORMS, blocks

# What costs much time for the memory that it takes. Attention written out, whose scores are as large as a text is long
# squared, is made of `bmm`, and computed again. What processes sent one another is not sent twice.
KEPT = {
    "aten::mm",
    "aten::addmm",
    "aten::convolution",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "_c10d_functional::all_reduce",
    "_c10d_functional::all_gather_into_tensor",
    "_c10d_functional::reduce_scatter_tensor",
}


Context = AbstractContextManager[Any]


@contextmanager
def recomputing(
    recomputed: Sequence[nn.Module], how: str, within: Callable[[], Context] = nullcontext
) -> Iterator[None]:
    """Within this context, of a forward and a backward pass, these blocks keep as much as `how` says. What is computed
    again is computed in the context `within`: the backward pass has left those of the forward pass."""
    if how == "none":
        yield
        return
    for block in recomputed:
        contexts = partial(_contexts, block, within, selective=how == "selective")
        vars(block)["forward"] = partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)
    try:
        yield
    finally:
        for block in recomputed:
            del vars(block)["forward"]


def reject_for_recompute(settings: TrainSettings, model: nn.Module, weighable: bool) -> None:
    """Raise SettingError where nothing of this model can be computed again; `weighable` is the objective's."""
    asked = f"recompute={settings.recompute}"
    if settings.recompute == "none":
        return
    if not blocks(model):
        raise SettingError(f"{asked} computes blocks again, and {type(model).__name__} has none: leave it out.")
    if not weighable:
        raise SettingError(
            f"{asked} computes a backward pass in another way than objective={settings.objective} does, which takes "
            "derivatives of derivatives: leave it out."
        )
    if settings.compile:
        raise SettingError(f"{asked} and compile=true each decide what is kept: give one of them.")


def _contexts(block: nn.Module, within: Callable[[], Context], selective: bool) -> tuple[Context, Context]:
    """The contexts in which a block is computed, and computed again."""
    if not selective:
        return nullcontext(), _again(block, within(), nullcontext())
    first, kept = create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]
    return first, _again(block, within(), kept)


def _policy(context: object, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Whether the outcome of an operation is kept. One that draws at random is computed again: else what is drawn
    after it would be drawn otherwise."""
    kept = operation.name().partition(".")[0] in KEPT and not _argument("dropout_p", operation, args, kwargs)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def _argument(name: str, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operation is given as the argument of that name; None where it has none, or is not given it."""
    names = [argument.name for argument in operation._schema.arguments]
    return kwargs.get(name, dict(zip(names, args)).get(name))


@contextmanager
def _again(block: nn.Module, *contexts: Context) -> Iterator[None]:
    """Those contexts, in which no batch norm of the block takes the batch, which it has seen already, into its running
    statistics."""
    norms: list[Any] = [module for module in block.modules() if isinstance(module, NORMS)]
    own = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        with ExitStack() as held:
            for context in contexts:
                held.enter_context(context)
            yield
    finally:
        for norm, (momentum, count) in zip(norms, own):
            norm.momentum, norm.num_batches_tracked = momentum, count
