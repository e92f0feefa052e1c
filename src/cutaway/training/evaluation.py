"""Running a model over a split without learning from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.spec import Episodes, ImageSpec, Mask, Spec, Spelled, Tokens
from ..data.dataset_base import IGNORED, Split
from ..data.samplers import Batches
from ..data.text.problems import ProblemSplit
from ..inference.ctc import transcribe
from ..inference.language_model_thinker import solved
from ..inference.sequence_decoding import decode_likely
from ..inference.thought_search import GREEDY, Method
from ..models.base import Advances
from ..nn.eval_mode import resting
from ..tasks.task import Task
from .chunked_head import words_of
from .device import Placement

AT_ONCE = 256  # examples that are evaluated together
PIXELS = 1 << 20  # and pixels, where each has an answer


class Results(NamedTuple):
    """What a model answered for a split, in the order of its examples, on the CPU."""

    outputs: Tensor  # (n, …): the raw outputs, or what the task keeps of them
    target: Tensor  # (n, …)


@torch.no_grad()
def results_of(
    model: nn.Module,
    split: Split,
    place: Placement,
    batch_size: int,
    task: Task | None = None,
    *,
    flip: bool = False,
    decodes: bool = False,
    num_beams: int = 1,
    length_penalty: float = 0.6,
    method: Method = GREEDY,
    tokens: int = 0,
    ticked: Callable[[int], None] = lambda n: None,
) -> Results:
    """The answers for every example of the split, with its targets.

    With `flip` outputs are the means of those for each image (N, C, H, W) and for its mirror image. A task with a
    `keep` is asked what of a batch's outputs to keep; sequences of different lengths are padded, with NaN and with
    targets that are ignored. With `decodes` a task that asks for it is given the sequences that the model writes by
    itself too, with so many `num_beams` and that `length_penalty` (`inference.sequence_decoding`); one that transcribes
    is given what is read out of the outputs, or spelled, by greedy search unless it `decodes`; one of problems is given
    the solutions that a search by `method` writes (`inference.thought_search`). `tokens` bounds a batch as
    in `batches_in_order`. `ticked` is told how many examples each batch held. The outputs of models that predict tokens
    are held for some texts at a time. The model is left in the mode that it was in, each layer in its own: a frozen
    batch norm answers as in evaluation while the others learn.
    """
    keep, keep_target = getattr(task, "keep", None), getattr(task, "keep_target", None)
    words = words_of(model, task)
    asked: Callable[..., Tensor] | None = getattr(task, "asked", None)
    answers: Callable[..., Tensor] = model.features if getattr(task, "of_features", False) else model  # type: ignore[assignment]
    plan = batches_in_order(split, batch_size, tokens)
    shared = place.processes > 1 and not carries(model, split)
    read = plan[place.rank :: place.processes] if shared else plan  # by this process
    if len(read) * place.processes < len(plan):
        read = [*read, plan[0]]  # where processes hold parts of the weights, all compute as often; its answer is left
    state, outputs, targets = None, [], []
    with resting(model):
        for index, batch in zip(read, split.batches(read)):
            inputs, target = place.batch(batch)
            with place.autocast():
                asked_for = (num_beams, length_penalty, method)
                own = _written(model, inputs, split, index, task, *asked_for) if decodes else ()
                if keep is not None and words is not None:
                    answer = _kept(keep, words.outputs(inputs), target, own)
                elif carries(model, split):
                    answer, state = model.advance(*inputs, going_on(state, len(target)))  # type: ignore[operator]
                elif asked is not None:
                    answer = asked(model, inputs[0], target)
                else:
                    answer = answers(*inputs)
                answer = _precise(answer)
                if flip:
                    answer = (answer + mirrored(answers, inputs)) / 2
                if getattr(task, "transcribes", False):
                    own = _heard(model, inputs, answer, task, num_beams if decodes else 1, length_penalty)
                if keep is not None and words is None:
                    answer = keep(answer, target, *own)
            outputs.append(answer.cpu())
            targets.append((keep_target(target) if keep_target else target).cpu())
            ticked(len(target))
    if shared:  # each process has answered for some batches
        of_each, count = place.together((outputs, targets)), place.processes
        outputs = [of_each[k % count][0][k // count] for k in range(len(plan))]
        targets = [of_each[k % count][1][k // count] for k in range(len(plan))]
    places = torch.split(torch.cat([*plan]).argsort().argsort(), [len(batch) for batch in plan])
    return Results(_joined(outputs, places, float("nan")), _joined(targets, places, IGNORED))


def mirrored(model: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
    """The outputs for the mirror images of inputs (N, C, H, W), (N, …); maps of them are mirrored back."""
    outputs = _precise(model(inputs[0].flip(3), *inputs[1:]))
    return outputs.flip(3) if outputs.ndim == 4 else outputs


def at_once(asked: int | None, spec: Spec, usual: int = AT_ONCE) -> int:
    """How many examples are evaluated together: what is asked for, else the usual number, and fewer where they are
    large images and each of their pixels has an answer, or episodes, which have many examples each."""
    if isinstance(spec.target, Episodes) and not asked:
        return max(1, AT_ONCE // spec.target.size)
    if asked or not isinstance(spec, ImageSpec) or not isinstance(spec.target, Mask):
        return asked or usual
    return max(1, min(usual, PIXELS // (spec.height * spec.width)))


def batches_in_order(split: Split, batch_size: int, tokens: int = 0) -> Batches:
    """The example numbers of each batch when a split is only read: as the split groups them, else one after another.
    With `tokens` > 0 a batch has at most so many of them, padding included, instead of `batch_size` examples."""
    if hasattr(split, "plan"):
        return planned(split, batch_size, None, tokens)
    return list(torch.split(torch.arange(len(split)), batch_size))


def planned(split: Split, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> Batches:
    """The example numbers of each batch, as the split groups them: so many examples, or at most so many tokens."""
    plan: Callable[..., Batches] = split.plan  # type: ignore[attr-defined]  # the caller has looked
    return plan(batch_size, generator, tokens=tokens) if tokens else plan(batch_size, generator)


def carries(model: nn.Module, split: Split) -> bool:
    """Whether each batch goes on where the one before it ended, with the state that the model had there."""
    return getattr(split, "carries", False) and isinstance(model, Advances)


def going_on(state: tuple[Tensor, ...] | None, rows: int) -> tuple[Tensor, ...] | None:
    """The state, each part (layers, N, hidden), of the first rows alone: the texts of the others have ended."""
    if not state or state[0].shape[1] == rows:
        return state or None
    return tuple(part[:, :rows].contiguous() for part in state)


def _kept(
    keep: Callable[..., Tensor], made: Iterable[tuple[slice, Tensor]], target: Tensor, own: tuple[Any, ...]
) -> Tensor:
    """What is kept of outputs that come for some texts after others; `own` as from `_written`."""
    return torch.cat(
        [
            keep(_precise(outputs), target[rows], *(x[rows] if x is not None else None for x in own))
            for rows, outputs in made
        ]
    )


def _written(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    split: Split,
    index: Tensor,
    task: Task | None,
    num_beams: int,
    length_penalty: float,
    method: Method,
) -> tuple[Any, ...]:
    """Where problems are the task, their solutions, as `solved` gives them. Where sequences are: those that the model
    writes by itself for the sources of a batch, and all right answers to each, where the split knows several; as ids,
    and as text, where they are sentences; and the scores of what is written as log p. The last of the inputs is the
    target so far, and those before it are the source."""
    if isinstance(split, ProblemSplit):
        return solved(model, split.preprocessing, [split.problem(i) for i in index.tolist()], method)
    target = getattr(task, "target", None)
    if not isinstance(target, Tokens):
        return ()
    known = getattr(split, "references", None)
    references = [known(i) for i in index.tolist()] if known is not None else None
    written = getattr(split, "texts", None)
    texts = [written(i) for i in index.tolist()] if written is not None else None
    source, *mask = inputs[:-1]
    written, log_p = decode_likely(model, source, mask[0] if mask else None, target, num_beams, length_penalty)
    return written, references, texts, log_p


def _heard(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    outputs: Tensor,
    task: Any,
    num_beams: int,
    length_penalty: float,
) -> tuple[Tensor, ...]:
    """The transcripts of a batch, ids (N, L), NONE after their ends: read out of the outputs, or, where they are
    spelled, decoded, and then log p of each too."""
    if not isinstance(task.target, Spelled):
        return (transcribe(outputs.float().log_softmax(2), num_beams),)
    return decode_likely(model, inputs[0], inputs[1], task.target.tokens, num_beams, length_penalty)


def _joined(batches: list[Tensor], places: Sequence[Tensor], filler: float) -> Tensor:
    """(n, …) of all batches, the rows of each at their `places`; those that are shorter in their second dimension are
    filled up at its end. The list is emptied on the way, so that all of it is never held twice."""
    shape = list(batches[0].shape)
    shape[0] = sum(map(len, batches))
    uneven = len(shape) > 1 and len({b.shape[1] for b in batches}) > 1
    if uneven:
        shape[1] = max(b.shape[1] for b in batches)
    joined = batches[0].new_full(shape, filler) if uneven else batches[0].new_empty(shape)
    for place in reversed(places):
        batch = batches.pop()
        rows = joined[:, : batch.shape[1]] if batch.ndim > 1 else joined
        rows[place] = batch
    return joined


def _precise(outputs: Tensor) -> Tensor:
    """bfloat16 holds too few digits to add up scores in."""
    return outputs.float() if outputs.dtype == torch.bfloat16 else outputs
