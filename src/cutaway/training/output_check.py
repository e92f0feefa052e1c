"""Checks of a network's outputs: shapes of custom modules, lengths of transcripts, and non-finite values.

A custom module is tried on one batch before training.

Connectionist temporal classification needs a frame for each character, and one more between two equal characters. A
longer text has probability 0 and infinite loss. A network that spells has a maximum number of characters plus an end
token. The check needs the network, which determines the number of output frames or characters.

The layer with the first non-finite values is searched after a loss was not finite, so that normal steps cost nothing.
"""

from __future__ import annotations

import inspect
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..checkpoints.custom import BATCH_TENSORS, CustomPreset, adapt_module
from ..core.errors import CutawayError, DataError, ModelError, NotEnoughDataError, Problem, join, shorten
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
from ..data.dataset_base import IGNORED, DataSet, SequenceSplit, Split
from ..distributed.tensor_parallel import is_sharded, local_part
from ..models.base import SupportsDecoding, SupportsImageGeneration, SupportsKVCache, as_base_model
from ..nn.losses import frames_needed
from ..nn.modules import eval_mode
from .batches import largest_batch
from .config import TrainSettings

EXAMPLES = 2  # in the trial batch


def check_outputs(found: CustomPreset, data: DataSet, settings: TrainSettings) -> None:
    """Run the module once on a batch of the training split.

    Lazy layers, which infer their input size from the first batch, are initialized by it; nothing else is changed.
    Raises ModelError, with the actual and the required shape, if the module cannot take the batch, if its output has
    the wrong shape, or if it calls `view` on tensors in the channels-last format that was requested.
    """
    split, module = data.splits["train"], found.custom_module
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
            f"{found.name} returns a {type(given).__name__}, but training needs one tensor: let its forward "
            f"return only the {'logits' if data.spec.target.classes else 'values'}."
        )
    needed, said = required_shape(data.spec, batch.target, inputs, as_base_model(module))
    single = isinstance(data.spec.target, Classes) and data.spec.target.outputs == 2 and given.shape[1:] == (1,)
    if needed is not None and tuple(given.shape) != needed and not (single and len(given) == needed[0]):
        raise ModelError(
            f"{found.name} gives {_shape(given)} for {held}, and the target of this data, {data.spec.target.column}, "
            f"needs {needed}: {said}."
        )
    if not given.is_floating_point():
        raise ModelError(f"{found.name} returns {_shape(given)}, but training needs floating-point logits or values.")


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


MAX_LISTED = 3  # recordings listed in a note


def drop_too_long_transcripts(model: nn.Module, data: DataSet, missing: str) -> None:
    """Reject recordings whose transcripts are too long, by name; with `missing` drop, remove them from their splits.

    Removed recordings are listed in the notes of the data. The hash of the splits stays that of the data, which does
    not depend on the network. Raises DataError, also if a split would be left empty.
    """
    if not isinstance(data.spec.target, Transcript):
        return
    named: list[Problem] = []
    for name, split in data.splits.items():
        crowded = too_long_transcripts(model, split)
        named += crowded.values()
        if crowded and missing == "drop":
            left = [i for i in range(len(split)) if i not in crowded]
            if not left:
                raise NotEnoughDataError(
                    f"missing=drop would leave the {name} split empty:", named, fix="Repair some of them."
                )
            assert isinstance(split, SequenceSplit), "recordings are in memory"
            data.splits[name] = split.part(torch.tensor(left))
    if named and missing != "drop":
        raise _length_error(model, named, "; or missing=drop skips these examples")
    if named:
        more = f"; and {len(named) - MAX_LISTED:,} more" if len(named) > MAX_LISTED else ""
        count = "one recording" if len(named) == 1 else f"{len(named):,} recordings"
        data.notes.append(f"missing=drop left out {count}: {'; '.join(map(str, named[:MAX_LISTED]))}{more}.")


def reject_too_long_transcripts(model: nn.Module, split: Split) -> None:
    """Raise DataError for labelled recordings whose transcripts are too long."""
    if crowded := too_long_transcripts(model, split):
        raise _length_error(model, list(crowded.values()), "")


def too_long_transcripts(model: nn.Module, split: Split) -> dict[int, Problem]:
    """Return the problem of each recording whose transcript is too long for the network, by example index."""
    assert isinstance(split, SequenceSplit), "recordings are in memory"
    assert split.target is not None, "with their transcripts"
    texts = [text[text != IGNORED] for text in split.target]
    if isinstance(model, SupportsDecoding):
        most = int(cast(Any, model).config.context_length) - 1  # one position is the end token
        what = "its transcript has {:,} characters, and the network writes at most {:,}"
        long = {i: len(text) for i, text in enumerate(texts) if len(text) > most}
        return {i: Problem(split.name(i), what.format(n, most)) for i, n in long.items()}
    found = {}
    for i, (frames, text) in enumerate(zip(as_base_model(model).output_frames(split.lengths).tolist(), texts)):
        if (needed := frames_needed(text)) > frames:
            what = f"its transcript needs {needed:,} frames, and the network leaves {frames:,} of it"
            found[i] = Problem(split.name(i), what)
    return found


def _length_error(model: nn.Module, named: list[Problem], way_out: str) -> DataError:
    count = "One transcript does" if len(named) == 1 else f"{len(named):,} transcripts do"
    look, where = "Look whether it belongs to that recording", "the recording"
    if isinstance(model, SupportsDecoding):
        fix, where = (
            f"{look}; a larger model.context_length takes longer ones{way_out}.",
            "the output length of the network",
        )
    else:
        fix = (
            f"{look} (a character takes a frame, and one more where it is doubled); smaller model.strides leave more "
            f"frames{way_out}."
        )
    return DataError(f"{count} not fit into {where}:", named, fix=fix)


@torch.no_grad()
def find_nonfinite(model: nn.Module, inputs: tuple[Tensor, ...]) -> str:
    """Return where the first non-finite values are: inputs, weights, outputs in order of computation, or gradients.

    The result is empty if all values are finite. For sharded weights only those of this process are checked, and
    outputs are skipped, since all processes would have to compute them together.
    """
    if not all(torch.isfinite(x).all() for x in inputs if x.is_floating_point()):
        return "the input"
    for name, p in model.named_parameters():
        if not torch.isfinite(local_part(p)).all():
            return f"the weights of {name}"
    found: list[str] = []

    def look(name: str) -> object:
        def hook(module: nn.Module, args: object, output: object) -> None:
            if isinstance(output, Tensor) and not torch.isfinite(output).all():
                found.append(name)

        return hook

    hooks = [m.register_forward_hook(look(n)) for n, m in model.named_modules() if n]
    try:
        if inputs and not any(is_sharded(p) for p in model.parameters()):
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return f"the output of {found[0]}"
    for name, p in model.named_parameters():
        if p.grad is not None and not torch.isfinite(local_part(p.grad)).all():
            return f"the gradient of {name}"
    return ""
