"""Activation checkpointing: activations of a block are not kept for the backward pass but recomputed there.

T. Chen, B. Xu, C. Zhang, C. Guestrin, Training deep nets with sublinear memory cost, 2016
<https://arxiv.org/abs/1604.06174>; selectively: V. A. Korthikanti et al., Reducing activation recomputation in large
Transformer models, 2022 <https://arxiv.org/abs/2205.05198>.

    none        all activations of a block are kept
    selective   results of products with weights, convolutions and fused attention are kept, the rest is recomputed
    full        the input of a block is kept, and the block recomputed: a third more arithmetic

It uses PyTorch's `checkpoint` in its non-reentrant form. Dropout repeats its random numbers. Hooks on the modules in a
block (`cutaway.inspect`) are called twice in a step, once of them in the backward pass.
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
from .parameter_groups import NORMS, find_blocks

# Operations that take much time relative to their memory. Unfused attention, whose scores are quadratic in the text
# length, consists of `bmm` and is recomputed. Communication is not repeated.
SAVED_OPERATIONS = {
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
def checkpointed(
    recomputed: Sequence[nn.Module], how: str, within: Callable[[], Context] = nullcontext
) -> Iterator[None]:
    """Recompute these blocks as `how` says within this context, which spans a forward and a backward pass.

    The recomputation runs in the context `within`, since the backward pass is outside of the contexts of the forward
    pass.
    """
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
    """Raise SettingError if this model cannot recompute; `weighable` is the attribute of the objective."""
    asked = f"recompute={settings.recompute}"
    if settings.recompute == "none":
        return
    if not find_blocks(model):
        raise SettingError(f"{asked} computes blocks again, and {type(model).__name__} has none: leave it out.")
    if not weighable:
        raise SettingError(
            f"{asked} computes a backward pass in another way than objective={settings.objective} does, which takes "
            "derivatives of derivatives: leave it out."
        )
    if settings.compile:
        raise SettingError(f"{asked} and compile=true both decide which activations are stored: give only one of them.")


def _contexts(block: nn.Module, within: Callable[[], Context], selective: bool) -> tuple[Context, Context]:
    """Return the contexts for computing and recomputing a block."""
    if not selective:
        return nullcontext(), _recompute_contexts(block, within(), nullcontext())
    first, kept = create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]
    return first, _recompute_contexts(block, within(), kept)


def _policy(context: object, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Return the checkpoint policy of an operation: to keep or to recompute its result.

    Random operations are recomputed, since skipping one would change the random numbers of those after it.
    """
    kept = operation.name().partition(".")[0] in SAVED_OPERATIONS and not _operation_argument(
        "dropout_p", operation, args, kwargs
    )
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def _operation_argument(name: str, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the argument of that name of an operation; None if it has none or it is not given."""
    names = [argument.name for argument in operation._schema.arguments]
    return kwargs.get(name, dict(zip(names, args)).get(name))


@contextmanager
def _recompute_contexts(block: nn.Module, *contexts: Context) -> Iterator[None]:
    """Enter the contexts with frozen running statistics of batch norms, which have already seen the batch."""
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
