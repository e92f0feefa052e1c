"""Trial of your own module on one batch before training: whether it accepts the data and returns the required shape."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor, nn

from ..checkpoints.custom import BATCH_TENSORS, CustomPreset, adapt_module
from ..core.errors import CutawayError, ModelError, join, shorten
from ..core.spec import (
    Classes,
    GeneratedImage,
    Horizon,
    Image,
    Mask,
    PairSpec,
    SeriesSpec,
    Solution,
    Spec,
    TableSpec,
    Tags,
    TextSpec,
    Tokens,
    TokenTarget,
    Transcript,
    Value,
)
from ..data.dataset_base import DataSet
from ..models.base import SupportsImageGeneration, SupportsKVCache, as_base_model
from ..nn.eval_mode import eval_mode
from .batches import largest_batch
from .config import TrainSettings

EXAMPLES = 2  # in the trial batch


def check_outputs(found: CustomPreset, data: DataSet, settings: TrainSettings) -> None:
    """Run the module once on a batch of the training split.

    Lazy layers, which infer their input size from the first batch, are initialized by it; nothing else is changed.
    Raises ModelError, with the actual and the required shape, if the module cannot take the batch, if its output has
    the wrong shape, or if it calls `view` on tensors in the channels-last format that was requested.
    """
    split, module = data.splits["train"], found.given
    if isinstance(data.spec.target, GeneratedImage) and not isinstance(module, SupportsImageGeneration):
        raise ModelError(
            f"{found.name} learns how images are distributed and draws none: give it draw(noise), images (N, C, H, W) "
            "of noise of that shape."
        )
    if isinstance(data.spec.target, Solution) and not isinstance(module, SupportsKVCache):
        raise ModelError(
            f"Solutions of problems are written with a KV cache, and {found.name} keeps none: give it extend(tokens, "
            "mask, cache), as in models/base.py, or take gpt2."
        )
    batch = next(iter(split.batches([largest_batch(split, settings)[:EXAMPLES]], seed=0)))
    inputs = tuple(_to_module(x, module) for x in batch.inputs)
    if settings.channels_last:
        inputs = tuple(x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x for x in inputs)
        for conv in module.modules():
            if isinstance(conv, nn.Conv2d) and not isinstance(conv.weight, nn.UninitializedParameter):
                conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    held = join([f"{names[0]} {_shape(x)}" for names, x in zip(BATCH_TENSORS[data.spec.kind], inputs)], "and")
    if isinstance(data.spec, TextSpec | PairSpec):
        held += f" (token ids are below {data.spec.vocab_size})"
    try:
        with eval_mode(module), torch.no_grad(), torch.random.fork_rng():
            given = adapt_module(module, data.spec, bool(settings.channels_last))(*inputs)
    except CutawayError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        parameters = list(inspect.signature(module.forward).parameters)
        raise ModelError(
            f"{found.name} cannot take what this {data.spec.kind} data holds, {held}; its forward takes "
            f"({', '.join(parameters)}). {type(error).__name__}: {_first_line(error)}{_id_hint(module, data.spec)}"
        ) from error
    if not isinstance(given, Tensor):
        raise ModelError(
            f"{found.name} gives a {type(given).__name__}, and what is learned from is one tensor: let its forward "
            f"return the {'logits' if data.spec.target.classes else 'values'} alone."
        )
    needed, said = required_shape(data.spec, batch.target, inputs, as_base_model(module))
    single = isinstance(data.spec.target, Classes) and data.spec.target.outputs == 2 and given.shape[1:] == (1,)
    if needed is not None and tuple(given.shape) != needed and not (single and len(given) == needed[0]):
        raise ModelError(
            f"{found.name} gives {_shape(given)} for {held}, and what this data asks for, {data.spec.target.column}, "
            f"needs {needed}: {said}."
        )
    if not given.is_floating_point():
        raise ModelError(f"{found.name} gives {_shape(given)}, and what is learned from is logits or values.")


def required_shape(
    spec: Spec, target: Tensor, inputs: tuple[Tensor, ...], network: object
) -> tuple[tuple[int, ...] | None, str]:
    """Return the required shape of a model's output for a batch, and its description; None if any shape is valid."""
    learned, n, first = spec.target, len(target), inputs[0]
    outputs = learned.outputs
    if isinstance(learned, Classes):
        also = ", or one logit for the second of two" if outputs == 2 else ""
        return (n, outputs), f"for each of {n} examples a logit for each of {outputs} classes{also}"
    if isinstance(learned, Value):
        return (n, 1), f"a value for each of {n} examples"
    if isinstance(learned, Horizon):
        steps, columns = learned.steps, len(learned.columns)
        return (n, outputs), f"{steps} steps of {columns} columns, step after step, for each of {n} windows"
    if isinstance(learned, Mask):
        return (n, outputs, *first.shape[2:]), f"a logit for each of {outputs} classes at each pixel"
    if isinstance(learned, Tokens):
        return (n, inputs[-1].shape[1], outputs), f"a logit for each of {outputs} tokens after each token of the target"
    if isinstance(learned, Tags | TokenTarget):
        what = "tags" if isinstance(learned, Tags) else "tokens"
        return (n, first.shape[1], outputs), f"a logit for each of {outputs} {what} at each token"
    if isinstance(learned, Image):
        return (n, outputs), f"for each of {n} images the bound's two terms, of the reconstruction and of the code"
    if isinstance(learned, Transcript):
        frames = network.output_frames(torch.tensor([first.shape[1]]))  # type: ignore[attr-defined]  # a Network
        return (n, int(frames), outputs), f"a logit for the blank and each of {outputs - 1} characters at each frame"
    return None, ""


def _id_hint(module: nn.Module, spec: Spec) -> str:
    """Return a hint to declare token ids, if a module with an embedding was given a table or series; else ""."""
    embeds = any(isinstance(m, nn.Embedding) for m in module.modules())
    if not embeds or spec.kind not in (TableSpec.kind, SeriesSpec.kind):
        return ""
    return ". If these are token ids, say how many there are, as in vocab_size=20000"


def _to_module(x: Tensor, module: nn.Module) -> Tensor:
    """Return the tensor on the module's device, in the precision of its weights."""
    own = next((p for p in module.parameters() if p.is_floating_point()), None)
    if own is None:
        return x
    return x.to(own.device, own.dtype if x.is_floating_point() else None)


def _shape(x: Tensor) -> str:
    return f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}"


def _first_line(error: Exception) -> str:
    return shorten(str(error).strip().splitlines()[0]) if str(error).strip() else "no more is said"
