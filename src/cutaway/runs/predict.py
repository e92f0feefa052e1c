"""Predictions of a run for new data sets, images, masked texts, generated texts, few-shot episodes and links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ..core.errors import (
    DataError,
    DataMismatchError,
    IncompatibleSettingError,
    MissingSettingError,
    SettingError,
    UnsupportedDataError,
    check_value,
)
from ..core.files import exists, missing_file_error
from ..core.spec import Classes, Episodes, ImageSpec, Spec, Transcript
from ..data.dataset_base import Batch, DataSet, Preprocessing, Split
from ..data.folders import IMAGES, class_folders
from ..data.graphs.splits import LinkSplit, Pairs
from ..data.images.segmentation import MaskPreprocessing, palette
from ..data.text.corpus_transforms import GAP, MaskedPreprocessing
from ..data.text.puzzles import PuzzlePreprocessing, SearchablePuzzle
from ..inference.sequence_decoding import sample
from ..inference.text import NONE
from ..inference.thought_search import CHAINS, Method
from ..nn.graphs import Bilinear, DotProduct
from ..nn.modules import eval_mode
from ..statistics.intervals import Metric
from ..tasks.classification import Classification
from ..tasks.few_shot import FewShot
from ..tasks.sequences import SequenceToSequence
from ..tasks.task import Task
from ..training.device import DeviceContext
from ..training.evaluation import evaluate_split, evaluation_batch_size, mirrored_outputs, sequential_batches

Prediction = dict[str, str | float | None]  # one row: the columns by name, such as a class and probabilities


def reject_beams(spec: Spec, num_beams: int | None, length_penalty: float | None) -> None:
    """Raise SettingError for settings of beam search if the run does not decode, or does not have that setting."""
    if length_penalty is not None and type(spec.target) is Transcript:
        raise IncompatibleSettingError(
            "Invalid length_penalty: only for autoregressive decoding, and this run is trained with CTC. Leave it out."
        )
    if (num_beams is not None or length_penalty is not None) and not spec.target.written:
        raise IncompatibleSettingError(
            "Invalid num_beams or length_penalty: only for sequence-to-sequence and captioning runs; the target of "
            f"this run is {spec.target.column} of {spec.kind} data. Leave them out."
        )


def reject_method(preprocessing: Preprocessing, method: Method | None) -> None:
    """Raise SettingError for a search method if the run solves no problems or does not support the method."""
    if method is None:
        return
    if not isinstance(preprocessing, PuzzlePreprocessing):
        raise IncompatibleSettingError(
            f"Invalid method={method.method}: only for problem solving; the target of this run is "
            f"{preprocessing.spec.target.column} of {preprocessing.spec.kind} data. Leave it out."
        )
    if method.method in CHAINS:
        preprocessing.in_form(method.form)
        return
    kind, forms = preprocessing.kind, preprocessing.forms
    if not isinstance(kind, SearchablePuzzle) or kind.tree not in forms:
        raise IncompatibleSettingError(
            f"Invalid method={method.method}: needs a run that is trained to propose and value steps; this run is "
            f"trained on {kind.name} with form={','.join(forms)}. Train with form=steps,tree on countdown or game24, "
            "or use a chain method (greedy, sample, consistency, likelihood, verifier)."
        )


ImageAnswers = Iterable[tuple[str, Image.Image, Tensor]]  # name of an image, the image, and the answer for it


def predict_images(
    model: nn.Module, task: Task, split: Split, place: DeviceContext, flip: bool
) -> Iterator[tuple[str, Image.Image, Tensor]]:
    """Yield the name of each image of a split, the original image, and the task's answer for it.

    With `flip` the answer is computed from the mean of the outputs for the image and its mirror image.
    """
    answers: Callable[[Tensor], list[Tensor]] = task.predicted_targets  # type: ignore[attr-defined]  # tasks of images have it
    for i in range(len(split)):
        batch = next(iter(split.batches([torch.tensor([i])])))
        with torch.no_grad():
            inputs = place.batch(batch)[0]
            outputs = model(*inputs)
            if flip:
                outputs = (outputs + mirrored_outputs(model, inputs)) / 2
        image = split.image(i)
        assert image is not None, "a split of images has them"
        yield split.name(i), image, answers(outputs)[0]


def predict_masks(answers: ImageAnswers, preprocessing: MaskPreprocessing) -> Iterator[tuple[str, Image.Image]]:
    """Yield the name of each image and its predicted mask, of the size of the image and with a palette."""
    for name, image, said in answers:
        mask = Image.fromarray(preprocessing.restored(said.numpy(), (image.height, image.width)), "P")
        mask.putpalette(palette())
        yield name, mask


def prepare_other_test_split(
    data: DataSet, preprocessing: Preprocessing, task: Task, about: Mapping[str, Any]
) -> Split:
    """Return the test split of another data set, prepared with the preprocessing of a run.

    The examples are taken before the other set's own preprocessing. `about` is the content of run.json. Raises
    DataError if the data is of another kind or has another type of target.
    """
    spec = preprocessing.spec
    if data.spec.kind != spec.kind or type(data.spec.target) is not type(spec.target):
        raise DataMismatchError(
            f"{data.name} does not match the training data of this run "
            f"({about['data']['source']}, {spec.kind}, {task.name}), so the run cannot be evaluated on it."
        )
    adopted: Callable[[Split, Preprocessing], Split] | None = getattr(preprocessing, "adopted", None)
    if adopted is None:
        raise UnsupportedDataError(
            f"{data.name} is a named data set of {data.spec.kind} data: give a path to evaluate on other data."
        )
    return adopted(data.splits["test"], data.preprocessing)


TOP_TOKENS = 5  # predicted tokens for each gap


@torch.no_grad()
def fill_masks(
    model: nn.Module, place: DeviceContext, text: MaskedPreprocessing, texts: Sequence[Any]
) -> list[dict[str, Any]]:
    """Return one row for each text, with the most likely tokens for each gap and their probabilities.

    The model is already on its device. Raises DataError if some texts have a gap and others have none.
    """
    if whole := [given for given in texts if GAP not in str(given)]:
        raise DataError(f"{str(whole[0])!r} has no gap ({GAP}).", fix="Fill gaps and score texts in separate calls.")
    others = torch.from_numpy(text.masking.others)
    rows = []
    for given in texts:
        ids = text.with_gaps(str(given))
        tokens = ids[None].to(place.device)
        real = torch.ones_like(tokens, dtype=torch.bool)  # an exported graph requires a mask
        outputs = model(tokens, real)[0].float().cpu()  # (T, V)
        p, best = outputs[ids == text.masking.mask].softmax(1)[:, others].topk(min(TOP_TOKENS, len(others)), 1)
        gaps = [
            ", ".join(f"{text.tokenizer.tokens[others[i]]} {p:.3f}" for i, p in zip(*gap))
            for gap in zip(best.tolist(), p.tolist())
        ]
        rows.append({"input": str(given), "filled": "; ".join(gaps)})
    return rows


SOURCES_PER_BATCH = 64  # sources in a batch


def generate_texts(
    model: nn.Module,
    split: Split,
    place: DeviceContext,
    task: SequenceToSequence,
    samples: int,
    seed: int,
    longest: int | None,
    settings: Any,
) -> list[list[str]]:
    """Return `samples` generated texts for each example of the split.

    Sample k of every example uses its own generator with seed `seed` + k, so it does not depend on the rest of the
    batch. `settings` are those of `inference.sampling`. Raises SettingError for an invalid number of samples or seed.
    """
    check_value(samples >= 1, "samples", samples, "at least 1", SettingError)
    check_value(0 <= seed < 2**63 - samples, "seed", seed, "at least 0, and below 2**63", SettingError)
    found: list[list[str]] = [[] for _ in range(len(split))]
    plan = sequential_batches(split, SOURCES_PER_BATCH)
    for index, batch in zip(plan, split.batches(plan)):
        inputs, _ = place.batch(batch)
        source, *mask = inputs[:-1]  # the last is the target so far
        for k in range(samples):
            generators = [torch.Generator().manual_seed(seed + k) for _ in index]
            with place.autocast():
                ids = sample(
                    model, source, mask[0] if mask else None, task.target, longest, generator=generators, **settings
                )
            for i, row in zip(index.tolist(), ids.tolist()):
                found[i].append(task.words([token for token in row if token != NONE]))
    for i in getattr(split, "empty", ()):
        found[i] = [""] * samples
    return found


def evaluate_episodes(
    model: nn.Module,
    place: DeviceContext,
    spec: Spec,
    split: Split,
    asked: dict[str, int],
    batch_size: int | None = None,
) -> dict[str, Metric]:
    """Return metrics on episodes with other ways, shots, queries or inner_steps than in training.

    The model is already on its device, and `batch_size` episodes are evaluated at a time. Raises SettingError if the
    run or the split does not support such episodes.
    """
    target, said = spec.target, " ".join(f"{key}={value}" for key, value in asked.items())
    if not isinstance(target, Episodes):
        raise IncompatibleSettingError(
            f"Invalid {said}: only for few-shot learning; the target of this run is {target.column} of {spec.kind} "
            "data. Leave it out."
        )
    for key, least in (("ways", 2), ("shots", 1), ("queries", 1), ("inner_steps", 0)):
        if asked.get(key, least) < least:
            raise SettingError(f"Invalid {key}={asked[key]}: must be at least {least}.")
    if target.inner_lr is None and "inner_steps" in asked:
        raise IncompatibleSettingError(
            f"Invalid {said}: only for objective=maml, and this run uses prototypes. Leave it out."
        )
    _reject_ways(target, asked.get("ways", target.ways))
    told = replace(target, **asked)  # type: ignore[arg-type]  # they are numbers
    again: Split = split.again(told)  # type: ignore[attr-defined]  # splits of episodes have it
    other: Any = replace(spec, target=told)  # type: ignore[arg-type]
    task = FewShot(told)
    return task.metrics(*evaluate_split(model, again, place, evaluation_batch_size(batch_size, other), task))


@torch.no_grad()
def classify_by_support(
    model: nn.Module,
    place: DeviceContext,
    preprocessing: Preprocessing,
    sources: Sequence[Any],
    support: str | Path | None,
) -> list[dict[str, Any]]:
    """Return one row for each image, with its class among those of the support.

    The support is a folder with one subfolder of a few images for each class. Batch normalization that uses the
    statistics of the current batch computes them over support and images together. Raises DataError if no support is
    given, or if it does not fit the run.
    """
    target, spec = preprocessing.spec.target, preprocessing.spec
    assert isinstance(target, Episodes)
    if not isinstance(spec, ImageSpec):
        raise UnsupportedDataError("Predictions are not available for runs on sinusoids: use `cutaway evaluate`.")
    if support is None:
        raise MissingSettingError(
            "Missing --support: this few-shot run needs a few examples of each new class. "
            "Give a folder with a folder for each class: cutaway predict RUN IMAGE --support FOLDER."
        )
    folder = Path(support).expanduser()
    if not exists(folder):
        raise missing_file_error(support, "folder", "A support is a folder with one folder of images per class.")
    by_class, _ = class_folders(folder, IMAGES)
    _reject_ways(target, len(by_class), folder)
    known = preprocessing.examples([file for files in by_class.values() for file in files])
    asked = preprocessing.examples(sources)
    y = torch.tensor([k for k, files in enumerate(by_class.values()) for _ in files], device=place.device)
    x, queries = _images(place, known), _images(place, asked)
    told = FewShot(replace(target, ways=len(by_class)))
    outputs = told.adapt_and_predict(model, x[None], y[None], torch.cat([x, queries])[None])[0, len(x) :].float().cpu()
    rows = Classification(Classes(tuple(by_class))).predictions(outputs)
    return [{"input": asked.name(i), **row} for i, row in enumerate(rows)]


def _images(place: DeviceContext, split: Split) -> Tensor:
    """Return all images of a split, (n, C, H, W)."""
    (batch,) = split.batches([torch.arange(len(split))])
    inputs, _ = place.batch(batch)
    return inputs[0]


def _reject_ways(target: Episodes, ways: int, folder: Path | None = None) -> None:
    """Raise SettingError for a number of classes that the run does not support."""
    said = f"{folder} holds {ways} class folder{'s' if ways != 1 else ''}" if folder else f"Invalid ways={ways}"
    if folder and ways < 2:
        raise SettingError(f"{said}: at least two classes are needed.")
    if target.inner_lr is not None and ways != target.ways:
        raise SettingError(
            f"{said}: this run is trained with objective=maml and {target.ways or 'no'} ways, which is the number of "
            "outputs of its head. Runs of objective=prototypes support any number of classes."
        )


TOP_LINKS = 50  # links that are returned
PAIRS_PER_CHUNK = 1 << 22  # pairs that are scored at a time
MAX_NODES = 100_000  # largest graph whose pairs are all scored: 5 · 10⁹ pairs


def predict_links(model: nn.Module, task: Task, split: LinkSplit, place: DeviceContext) -> list[dict[str, Any]]:
    """Return one row for each pair of nodes: the predicted link, its probability, and whether the graph has it already.

    If no pairs are given, the rows are the most likely pairs that are not in the graph, the most likely first.
    """
    asked = len(split) > 0
    pairs = split.rows.numpy() if asked else most_likely_links(model, split, place)
    if not asked:
        split = split.with_pairs(pairs)
    if not len(split):
        return []
    outputs = evaluate_split(model, split, place, PAIRS_PER_CHUNK, task).outputs
    rows = zip(task.predictions(outputs), outputs[:, 0].double().sigmoid().tolist(), split.are_linked(pairs).tolist())
    said = []
    for i, (row, p, known) in enumerate(rows):
        source, target = split.ends(i)
        given = {"source": source, "target": target, **({"in the graph": "yes" if known else "no"} if asked else {})}
        said.append({"input": split.name(i), "link": row["link"], "probability": p, **given})
    return said


@torch.no_grad()
def most_likely_links(model: Any, split: LinkSplit, place: DeviceContext, most: int = TOP_LINKS) -> Pairs:
    """Return the pairs of nodes without an edge that the model finds most likely, the most likely first, (n, 2).

    Every pair is scored. The pairs of some nodes with all others are scored at a time, so that memory grows linearly
    with the number of nodes. Raises DataError for a graph with too many nodes.
    """
    nodes = len(split.x)
    if nodes > MAX_NODES:
        raise UnsupportedDataError(
            f"Too many nodes to score all pairs: {nodes:,}; at most {MAX_NODES:,} are supported.",
            fix="Give pairs: cutaway predict RUN GRAPH PAIRS.csv, a table with a source and a target in each row.",
        )
    decoder = model.head
    assert isinstance(decoder, DotProduct | Bilinear), "link prediction models have a decoder"
    graph, _ = place.batch(Batch((split.x, split.edges), split.x[:0, 0]))
    with eval_mode(model):
        z: Tensor = model.features(*graph)
    best, where = torch.empty(0), torch.empty((0, 2), dtype=torch.int64)
    rows = max(1, PAIRS_PER_CHUNK // max(1, nodes))
    for start in range(0, nodes, rows):
        scores = decoder.between(z[start : start + rows], z).float().cpu()  # (n, V)
        first = torch.arange(start, start + len(scores))
        scores[torch.arange(nodes)[None] <= first[:, None]] = -torch.inf  # each pair once, no self-loops
        for ends in (split.edges, split.edges.flip(0)):
            own = (ends[0] >= start) & (ends[0] < start + len(scores))
            scores[ends[0][own] - start, ends[1][own]] = -torch.inf
        values, at = scores.flatten().topk(min(most, scores.numel()))
        pairs = torch.stack([at // nodes + start, at % nodes], 1)
        order = torch.cat([best, values]).argsort(descending=True, stable=True)[:most]
        best, where = torch.cat([best, values])[order], torch.cat([where, pairs])[order]
    return np.asarray(where[best > -torch.inf])
