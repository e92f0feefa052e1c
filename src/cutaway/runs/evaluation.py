"""Evaluation of a run: the content of evaluation.json, with metrics, examples, samples, images, and importance.

Everything is computed once, at the end of training. From large splits an evenly spaced subset is taken, which is the
same every time.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ..core.spec import GeneratedImage, ImageSpec, NextToken, Noise, Tokens
from ..data.dataset_base import Batch, Split, TensorSplit, inverse_transform
from ..data.images.text_to_image import CaptionedTokenSplit
from ..data.images.tokens import TokenPreprocessing
from ..data.tables.transforms import TablePreprocessing
from ..data.text.corpus_transforms import StreamPreprocessing
from ..inference import image_generation
from ..inference.text import TextStreamer, as_text, context_length, stream
from ..nn.modules import eval_mode
from ..statistics.classes import independence_p_value
from ..statistics.comparison import differences
from ..statistics.intervals import LEVEL, Metric, mean
from ..tasks.classification import CELLS, Classification, linearly_separable
from ..tasks.contrastive import Contrastive
from ..tasks.importance import permutation_importance_report
from ..tasks.language import Language, MaskedLanguage
from ..tasks.regression import Regression
from ..tasks.roc_curves import scores
from ..tasks.tagging import Tagging
from ..tasks.task import HIGHER_IS_BETTER, headline_metric
from ..training.callbacks import CONVERGED
from ..training.checkpoint import TrainingState
from ..training.device import DeviceContext
from ..training.evaluation import SplitOutputs, evaluate_split, evaluate_tasks, evaluation_batch_size
from ..training.setup import TrainingSetup

MISTAKES, RIGHT, PAIRS = 24, 12, 12
IMAGE_SIDE = 96  # pixels of an image in the report
PANELS = 3  # of an image with masks: the image, with its mask, with the predicted mask
BOXED_SIDE = 192  # pixels of an image with boxes
SAMPLES, PROMPT, WRITTEN = 3, 32, 160  # texts, tokens of their prompts, and generated tokens
WORK = 4e11  # largest number of multiply-adds for samples: a few seconds on a CPU
TEMPERATURE = 0.8
DRAWN, FOLLOWED, MOMENTS = 20, 4, 8  # images; those shown during generation, and number of steps shown
BOUNDED, TIMES = 64, 32  # images for the bound of diffusion, and terms for each
AT_A_TIME = 4096  # examples that are formatted or evaluated at once

Fractions = Callable[[Tensor, tuple[int, int]], Tensor]  # maps boxes (m, 4) and (height, width) to fractions (m, 4)
MIN_PAIRED = 6  # fewer pairs cannot differ significantly: with 5, all signs agree by chance in 1 of 16 cases
MAX_SEPARABILITY_NUMBERS = 100_000  # numbers in the training split; a linear programme on more takes minutes


def evaluation_document(ready: TrainingSetup, name: str, folder: Path) -> dict[str, Any]:
    """Return the content of evaluation.json for one split: metrics, details, the worst mistakes and other examples."""
    split, task = ready.data.splits[name], ready.task
    assert split.target is not None
    size = evaluation_batch_size(ready.settings.eval_batch_size, ready.data.spec)
    if isinstance(task, Contrastive):
        task.remember(*evaluate_split(ready.model, ready.data.splits["train"], ready.place, size, task))
    outputs, target = evaluate_split(
        ready.model,
        split,
        ready.place,
        size,
        task,
        flip=ready.settings.tta,
        decodes=True,
        num_beams=ready.settings.num_beams,
        length_penalty=ready.settings.length_penalty,
        tokens=ready.settings.batch_tokens,
    )
    train = ready.data.splits["train"]
    assert train.target is not None
    counts = getattr(train, "target_counts", None)  # for tokens read from shards, which are never held in memory
    baseline = task.baseline(train.target, target) if counts is None else task.baseline_from_counts(counts, target)  # type: ignore[attr-defined]
    fractions = getattr(ready.data.preprocessing, "fractions", None)
    found = SplitOutputs(outputs, target)
    more, tasks = evaluate_tasks(ready.data.tasks, ready.model, task, split, ready.place, folder, found)
    metrics = {**task.metrics(outputs, target), **more}
    compared = {"baseline": baseline, **(task.beside(outputs, train, split) if hasattr(task, "beside") else {})}
    tested = baseline_test(
        task, outputs, target, train.target if counts is None else counts.double(), metrics, compared
    )
    return {
        "split": name,
        "count": len(split),
        "watch": headline_metric(task),
        "metrics": {k: m.to_json() for k, m in metrics.items()},
        **task.details(outputs, target),
        **tasks,
        **compared,
        **({"baseline_test": tested} if tested else {}),
        **task_details(ready, split, outputs, target),
        **select_examples(split, task, outputs, target, mask_panels(ready, split), fractions),
    }


def baseline_test(
    task: Any,
    outputs: Tensor,
    target: Tensor,
    train_target: Tensor,
    metrics: Mapping[str, Metric],
    compared: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Return whether a model is significantly better (95 %) than the trivial baseline of its task.

    Classes, numbers and tokens are compared example by example (`statistics.comparison.differences`), forecasts by the
    interval of the difference. For other tasks the baseline's score must lie outside the interval of the main metric.
    A classifier is also better if its balanced accuracy is (`statistics.classes.independence_p_value`): it may find a
    rare class at the cost of accuracy. Each of the two tests is one-sided at 2.5 %, so that at most 5 % of models
    without skill pass one of them. With fewer than 6 examples, or without an interval, the score alone decides.

    Args:
        task: The task.
        outputs: What evaluation keeps of the model's outputs.
        target: Targets of the evaluated split.
        train_target: Targets of the training split, or the counts of its tokens.
        metrics: Metrics of the evaluated split.
        compared: The baseline, as `baseline` of evaluation.json, and for forecasts `baselines`.

    Returns:
        `better`, and `only` with the class that the model predicts for every example, if it predicts one of several.
        None if there is no baseline, or nothing can be better than it.
    """
    key, baseline = headline_metric(task), compared["baseline"]
    if not baseline or key not in metrics or baseline["value"] is None:
        return None
    own, other, higher = metrics[key], baseline["value"], key in HIGHER_IS_BETTER
    ahead = own.value > other if higher else own.value < other
    if (higher and other >= 1) or (not higher and other <= 0):
        return None
    found: dict[str, Any] = {"better": bool(ahead)}
    pairs = _paired_contributions(task, outputs, target, train_target)
    if compared.get("baselines"):
        apart = next(b["difference"] for b in compared["baselines"] if b["name"] == baseline["name"])
        if apart["high"] is not None:
            found["better"] = apart["high"] < 0
    elif pairs is None:
        ends = own.low if higher else own.high
        if math.isfinite(ends):
            found["better"] = ends > other if higher else ends < other
    elif pairs[0].size >= MIN_PAIRED:
        found["better"] = ahead and differences({"model": pairs[0], "baseline": pairs[1]}, higher)[0].told_apart
    if type(task) is Classification:
        decided = task.decide(outputs)
        if not found["better"]:
            found["better"] = independence_p_value(target.cpu().numpy(), decided.cpu().numpy()) <= (1 - LEVEL) / 2
        if bool((decided == decided[0]).all()) and not bool((target == target[0]).all()):
            found |= {"better": False, "only": task.target.names[int(decided[0])]}
    return found


def _paired_contributions(
    task: Any, outputs: Tensor, target: Tensor, train_target: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the contribution of each example to the main metric, (n,), of the model and of the trivial baseline.

    An example is a sentence or a window if targets are tokens, because the tokens of one are not independent. The
    result is None for other tasks than classification, regression, tagging and language modelling.
    """
    if type(task) is Classification:
        pair = task.decide(outputs) == target, target == train_target.mode().values
    elif isinstance(task, Regression):
        pair = (outputs[:, 0].double() - target).square(), (target.double() - train_target.double().mean()).square()
    elif type(task) in (Tagging, Language, MaskedLanguage):
        pair = task.paired_with_baseline(outputs, target, train_target)
    else:
        return None
    own, other = (one.double().cpu().numpy() for one in pair)
    return own, other


def perceptron_summary(ready: TrainingSetup, state: TrainingState) -> str | None:
    """Return the result of a perceptron's training: whether it converged, or ever can. None for other losses."""
    if ready.task.loss_name != "perceptron":
        return None
    if state.stopped == CONVERGED:
        return (
            f"The perceptron converged after {state.mistakes} mistakes: epoch {state.epoch} passed without one, "
            "so the hyperplane it found separates the training examples."
        )
    split = ready.data.splits["train"]
    indices = torch.arange(len(split))
    batch = next(iter(split.batches([indices])))
    x, target = batch.inputs[0].flatten(1).double().numpy(), batch.target.numpy()
    classes = range(len(ready.data.spec.target.classes))
    one_from_rest = [target == k for k in (classes if len(classes) > 2 else [1])]
    if x.size > MAX_SEPARABILITY_NUMBERS:
        return "The perceptron did not converge: its last epoch still made mistakes."
    if all(linearly_separable(x, y) for y in one_from_rest):
        return (
            "The perceptron did not converge yet, though the classes can be separated by a hyperplane: "
            "it will converge after finitely many mistakes. Give it more epochs."
        )
    return (
        "The perceptron did not converge and never will: no hyperplane separates the classes "
        "(shown by a linear programme that has no solution). A network with a hidden layer can: try mlp."
    )


def select_examples(
    split: Split,
    task: Any,
    outputs: Tensor,
    target: Tensor,
    panels: Callable[[int], Image.Image | None] | None = None,
    fractions: Fractions | None = None,
) -> dict[str, Any]:
    """Return the worst mistakes, and examples that the model got right, evenly spaced over the split.

    If examples are not simply right or wrong, those with the smallest loss are returned in place of right ones.
    Predictions are formatted for some examples at a time. `panels` returns the image of an example, if that is not the
    original image; `fractions` converts boxes to fractions of the image.
    """
    worst: list[tuple[float, int]] = []  # (loss, example)
    best: list[tuple[float, int]] = []
    right: list[int] = []
    at_a_time = max(1, min(AT_A_TIME, CELLS // max(1, outputs[:1].numel())))
    for start in range(0, len(target), at_a_time):
        some = slice(start, start + at_a_time)
        rows = list(enumerate(task.example_results(outputs[some], target[some]), start))
        wrong = [(row["loss"], i) for i, row in rows if row["wrong"]]
        right += [i for i, row in rows if not row["wrong"]]
        worst = sorted([*worst, *wrong], key=lambda found: -found[0])[:MISTAKES]
        best = sorted([*best, *wrong], key=lambda found: found[0])[:RIGHT]
    beside = evenly_spaced(right, RIGHT)
    if not right and not isinstance(task, Classification) and len(target) > len(worst):
        beside = sorted(i for _, i in best)

    def format_all(which: Sequence[int]) -> list[dict[str, Any]]:
        """Format these examples."""
        rows = ((i, _format_mistake(split, task, i, outputs[i : i + 1], target[i : i + 1])) for i in which)
        wide = PANELS if panels else 1
        return [_format_example(split, i, row, (panels or split.image)(i), wide, fractions) for i, row in rows]

    found = {"worst": format_all([i for _, i in worst]), "right": format_all(beside)}
    if isinstance(getattr(task, "target", None), Tokens):
        found["translations"] = format_all(evenly_spaced(range(len(target)), PAIRS))
    return found


def task_details(ready: TrainingSetup, split: Split, outputs: Tensor, target: Tensor) -> dict[str, Any]:
    """Return details for some tasks: ROC and calibration curves, feature importance, text samples, images."""
    found: dict[str, Any] = {}
    task, preprocessing = ready.task, ready.data.preprocessing
    if isinstance(task, Classification):
        likely = task.probabilities(outputs[:1]) is not None
        found |= scores(task, outputs, target, _validation_results(ready, split) if likely else None)
    if isinstance(preprocessing, TablePreprocessing) and isinstance(split, TensorSplit):
        found |= _importance(ready, preprocessing, split)
    if isinstance(preprocessing, StreamPreprocessing) and isinstance(ready.data.spec.target, NextToken):
        found["samples"] = text_samples(ready.model, ready.place, preprocessing, split)
    if isinstance(ready.data.spec.target, GeneratedImage):
        found["drawn"] = generated_images(ready, split)
    return found


def _validation_results(ready: TrainingSetup, split: Split) -> SplitOutputs | None:
    """Return the outputs and targets of the validation split, unless it is the split that is reported."""
    val = ready.data.splits.get("val")
    if val is None or val is split:
        return None
    settings = ready.settings
    size = evaluation_batch_size(settings.eval_batch_size, ready.data.spec)
    tokens = settings.batch_tokens
    return evaluate_split(ready.model, val, ready.place, size, ready.task, flip=settings.tta, tokens=tokens)


def evenly_spaced(choice: Sequence[int], most: int) -> list[int]:
    """Return an evenly spaced choice of at most `most` items."""
    at = np.unique(np.linspace(0, len(choice) - 1, min(most, len(choice))).round().astype(int))
    return [int(choice[i]) for i in at]


def _format_mistake(split: Split, task: Any, i: int, outputs: Tensor, target: Tensor) -> dict[str, Any]:
    """Return the actual and predicted value of example i in its units, with its training loss."""
    own = torch.tensor([i])
    said = task.example_results(inverse_transform(split, outputs, own), inverse_transform(split, target, own))[0]
    return {**said, "loss": task.losses(outputs, target).item()} if hasattr(split, "several") else said


def mask_panels(ready: TrainingSetup, split: Split) -> Callable[[int], Image.Image | None] | None:
    """Return a function that shows an example next to its predicted mask; None if there are no masks."""
    side_by_side = getattr(ready.data.preprocessing, "panels", None)
    if side_by_side is None:
        return None

    def panels(i: int) -> Image.Image:
        batch = next(iter(split.batches([torch.tensor([i])])))
        with eval_mode(ready.model), torch.no_grad():
            outputs = ready.model(*ready.place.batch(batch)[0])  # (1, K, H, W)
        (said,) = ready.task.predicted_targets(outputs)  # type: ignore[attr-defined]  # tasks of such examples have it
        shown: Image.Image = side_by_side(batch.inputs[0][0], batch.target[0], said)
        return shown

    return panels


def _format_example(
    split: Split, i: int, row: dict[str, Any], image: Image.Image | None, wide: int, fractions: Fractions | None
) -> dict[str, Any]:
    """Return an example as evaluation.json holds it.

    `wide` is the number of images next to each other in `image`. Boxes are converted to fractions of the image's sides.
    """
    source, boxes = None, row.get("boxes")
    if image is not None:
        if boxes is not None and fractions is not None:
            own = fractions(torch.tensor([box["box"] for box in boxes]).view(-1, 4), (image.height, image.width))
            boxes = [box | {"box": [round(n, 4) for n in at]} for box, at in zip(boxes, own.tolist())]
        side = IMAGE_SIDE if boxes is None else BOXED_SIDE
        source = image_data_url(image, (side * wide, side))
    words = {k: row[k] for k in ("actual", "predicted", "confidence", "loss")}
    shown = {"name": split.name(i), **words, "picture": source, "row": split.row(i)}
    return shown if boxes is None else shown | {"boxes": boxes}


def image_data_url(image: Image.Image, size: tuple[int, int] = (IMAGE_SIDE, IMAGE_SIDE)) -> str:
    """Return the image as a PNG data URL of at most that size. The image is shrunk in place."""
    image.thumbnail(size)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


@torch.no_grad()
def _importance(ready: TrainingSetup, preprocessing: TablePreprocessing, split: TensorSplit) -> dict[str, Any]:
    """Return the loss in accuracy, or the rise of RMSE, when each column of the table is shuffled."""
    task = ready.task
    assert split.target is not None

    def predict(inputs: Tensor) -> Tensor:
        batches = [Batch((chunk,), chunk[:, :0]) for chunk in torch.split(inputs, AT_A_TIME)]  # without targets
        chunks = [ready.place.batch(batch)[0] for batch in batches]
        return torch.cat([ready.model(*chunk).float().cpu() for chunk in chunks])

    if isinstance(task, Classification):
        metric = "accuracy"
    elif isinstance(task, Regression):
        metric = "rmse"
    else:
        return {}
    sign = -1.0 if metric == "rmse" else 1.0
    was = ready.model.training
    ready.model.eval()
    try:
        found = permutation_importance_report(
            predict,
            lambda outputs, target: sign * task.fast_metrics(outputs, target)[metric],
            split.inputs,
            split.target,
            [(encoder.name, len(encoder.features)) for encoder in preprocessing.encoders],
        )
    finally:
        ready.model.train(was)
    return {"importance": {"metric": metric, **found}} if found else {}


def text_samples(model: Any, place: DeviceContext, text: StreamPreprocessing, split: Split) -> list[dict[str, Any]]:
    """Return texts that the model generates from prompts of the split, with the actual continuation.

    For a large model fewer tokens are generated.
    """
    known, context = text.tokenizer, context_length(model)
    ends = [] if known.end is None else [known.end]
    special = (known.padding, known.unknown, known.begin, known.mask)
    never = sorted({token for token in special if token is not None} - {*ends})
    size = sum(p.numel() for p in model.parameters())
    count = int(min(WRITTEN, WORK / (2 * max(size, 1) * SAMPLES)))
    given = min(PROMPT, (context or 2 * PROMPT) // 2)
    if count < 1 or given < 1:
        return []
    found = []
    for i in evenly_spaced(range(max(1, len(split) - 1)), SAMPLES):  # the last window is often short
        window = next(iter(split.batches([torch.tensor([i])])))
        tokens = window.inputs[0][0]
        if len(window.inputs) > 1 and window.inputs[1] is not None:
            tokens = tokens[window.inputs[1][0].bool()]
        begin, after = tokens[:given], tokens[given : given + count]
        generator = torch.Generator().manual_seed(i)
        settings: Any = {"temperature": TEMPERATURE, "never": never, "ends": ends, "generator": generator}
        drawn = stream(model, begin[None].to(place.device), count, **settings)
        prompt = text.decode(begin.tolist())
        found.append(
            {
                "name": split.name(i),
                "prompt": prompt,
                "written": "".join(as_text(map(int, drawn), TextStreamer(text.decode, begin.tolist()))),
                "actual": text.decode([*begin.tolist(), *after.tolist()]).removeprefix(prompt),
            }
        )
    return found


def generated_images(ready: TrainingSetup, split: Split) -> dict[str, Any]:
    """Return generated images, some of them at steps of their generation.

    For diffusion models the variational bound of some test images, in bits per dimension, is added. The result is empty
    for a model that would take minutes.
    """
    spec, model, place = ready.data.spec, ready.place.model(ready.model, learns=False), ready.place
    assert isinstance(spec, ImageSpec)
    target = spec.target
    assert isinstance(target, GeneratedImage)
    asked = image_generation.resolve_settings(spec, model, None, None, None)
    if isinstance(ready.data.preprocessing, TokenPreprocessing):
        return _images_from_tokens(ready, ready.data.preprocessing, split)
    passes = WORK / (sum(p.numel() for p in model.parameters()) * spec.height * spec.width / 8)  # about
    if place.device.type == "cpu" and passes < 2 * asked.steps * DRAWN + TIMES * BOUNDED:
        return {}
    with eval_mode(model):
        found: dict[str, Any] = {}
        classes = image_generation.classes_for(spec, DRAWN, None)
        names = target.names if classes is not None else ()
        told: list[tuple[int, Tensor, Tensor]] = []

        def watch(t: int, xt: Tensor, start: Tensor) -> None:
            told.append((t, image_generation.as_levels(xt[:FOLLOWED]), image_generation.as_levels(start[:FOLLOWED])))

        levels = image_generation.draw(model, spec, asked, classes, DRAWN, 0, place.device, watch)
        labels = classes.tolist() if classes is not None else []
        found["samples"] = [
            {"picture": image_data_url(image), "class": names[labels[k]] if labels else ""}
            for k, image in enumerate(image_generation.as_images(levels))
        ]
        found |= vars(asked)
        found["moments"] = [
            {
                "t": t,
                "noisy": [image_data_url(i) for i in image_generation.as_images(xt)],
                "start": [image_data_url(i) for i in image_generation.as_images(x)],
            }
            for t, xt, x in (told[i] for i in evenly_spaced(range(len(told)), MOMENTS))
        ]
        if isinstance(target, Noise):
            found["bound"] = _bound(ready, split, target.size)
        return found


def _images_from_tokens(ready: TrainingSetup, images: TokenPreprocessing, split: Split) -> dict[str, Any]:
    """Return images that are sampled pixel by pixel, with captions of the split if there are captions; empty for a
    model that would take minutes.
    """
    model, spec, place = ready.place.model(ready.model, learns=False), images.spec, ready.place
    work = sum(p.numel() for p in model.parameters()) * spec.height * spec.width * DRAWN
    if place.device.type == "cpu" and work > WORK:
        return {}
    classes = image_generation.classes_for(spec, DRAWN, None)
    prompt = images.prompts(classes, DRAWN)
    labels = [images.target.names[c] for c in classes.tolist()] if classes is not None else [""] * DRAWN
    if isinstance(split, CaptionedTokenSplit):
        rows = evenly_spaced(range(len(split)), DRAWN)
        prompt, labels = split.prompts(torch.tensor(rows)), [split.captions[i] for i in rows]
    levels = image_generation.sample_tokens(model, images, prompt, range(len(prompt)), place.device)
    samples = [
        {"picture": image_data_url(image), "class": label}
        for label, image in zip(labels, image_generation.as_images(levels))
    ]
    return {"samples": samples, **vars(image_generation.resolve_settings(spec, model, None, None, None)), "moments": []}


def _bound(ready: TrainingSetup, split: Split, size: int) -> dict[str, Any]:
    """Return the variational bound of an evenly spaced subset, in bits per dimension, with its confidence interval."""
    few = torch.tensor(evenly_spaced(range(len(split)), BOUNDED))
    (x, _, _, *classes), _ = ready.place.batch(next(iter(split.batches([few]))))
    nats = image_generation.variational_bound(ready.model, x, classes[0] if classes else None, TIMES)
    found = mean(nats.cpu().numpy() / (size * np.log(2)))
    return {**found.to_json(), "images": len(few), "terms": TIMES}
