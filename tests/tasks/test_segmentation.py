"""Segmentation: losses as PyTorch and NumPy have them, intersection over union as scikit-learn counts it."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import SettingError
from cutaway.core.spec import Classes, ImageSpec, Mask
from cutaway.data.dataset_base import Batch, TensorSplit
from cutaway.tasks.segmentation import Segmentation
from cutaway.tasks.task import task_for
from cutaway.training.device import select_device
from cutaway.training.evaluation import evaluate_split, evaluation_batch_size

NAMES = ("ground", "cat", "dog", "cow")
TARGET = Mask(NAMES)
TASK = Segmentation(TARGET)


def drawn(seed: int = 0, images: int = 12) -> tuple[Tensor, Tensor]:
    """Logits and masks in which a fifth of the pixels is not labelled, and nothing is of the last class."""
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(images, 4, 5, 6, generator=generator)
    outputs[:, 3] -= 9  # nor said to be
    target = torch.randint(0, 3, (images, 5, 6), generator=generator)
    target[torch.rand(target.shape, generator=generator) < 0.2] = TARGET.ignored
    return outputs, target.to(torch.uint8)


def test_cross_entropy_is_that_of_labelled_pixels() -> None:
    outputs, target = drawn()
    real = target != 255
    rows = outputs.movedim(1, -1)[real]  # (pixels, K)
    assert TASK.loss_denominator(target) == real.sum()
    expected = F.cross_entropy(rows.double(), target[real].long(), reduction="sum").item()
    assert TASK.loss(outputs, target).item() == pytest.approx(expected, rel=1e-5)


def test_dice_is_its_formula() -> None:
    outputs, target = drawn()
    task = task_for(ImageSpec(1, 5, 6, TARGET), "dice")
    real = (target != 255).numpy()
    p = outputs.double().softmax(1).movedim(1, -1).numpy()[real]  # (pixels, K)
    actual = target.numpy()[real]
    terms = [2 * p[actual == k, k].sum() / (p[:, k].sum() + (actual == k).sum()) for k in range(3)]
    assert task.loss(outputs, target).item() / task.loss_denominator(target) == pytest.approx(
        1 - np.mean(terms), rel=1e-5
    )
    perfect = F.one_hot(torch.tensor([[[0, 1], [2, 3]]]), 4).movedim(-1, 1) * 50.0
    assert task.loss(perfect, perfect.argmax(1).to(torch.uint8)).item() == pytest.approx(0, abs=1e-5)
    with pytest.raises(SettingError, match="Invalid loss=dice for classes: must be one of cross_entropy"):
        task_for(ImageSpec(1, 5, 6, Classes(("a", "b"))), "dice")


def test_metrics_are_those_of_scikit_learn() -> None:
    outputs, target = drawn()
    real = target != 255
    actual, said = target[real].numpy(), outputs.argmax(1)[real].numpy()
    kept, counts = TASK.summarize_outputs(outputs, target), TASK.summarize_target(target)
    found = TASK.metrics(kept, counts)
    each = sk.jaccard_score(actual, said, labels=[0, 1, 2], average=None)  # of the fourth class there is no pixel
    assert found["mean_iou"].value == pytest.approx(each.mean(), rel=1e-12)
    assert found["pixel_accuracy"].value == pytest.approx(sk.accuracy_score(actual, said), rel=1e-12)
    assert found["mean_iou"].low < found["mean_iou"].value < found["mean_iou"].high
    details = TASK.details(kept, counts)["masks"]
    assert [row["iou"]["value"] for row in details["per_class"]] == [*map(pytest.approx, each), None]
    assert details["confusion"] == sk.confusion_matrix(actual, said, labels=range(4)).tolist()
    assert sum(row["pixels"] for row in details["per_class"]) == real.sum()
    assert TASK.fast_metrics(kept, counts)["mean_iou"] == found["mean_iou"].value
    losses = [F.cross_entropy(o[:, r].T, t[r].long()) for o, t, r in zip(outputs.double(), target, real)]
    assert found["loss"].value == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)
    assert counts.tolist() == [np.bincount(t[r].numpy(), minlength=4).tolist() for t, r in zip(target, real)]


def test_the_baseline_is_the_ground_everywhere() -> None:
    _, target = drawn()
    actual = target[target != 255].numpy()
    expected = sk.jaccard_score(actual, np.zeros_like(actual), labels=[0, 1, 2], average="macro")
    counts = TASK.summarize_target(target)
    assert TASK.baseline(counts, counts) == {"name": "constant baseline ('ground')", "value": pytest.approx(expected)}


def test_what_is_kept_without_masks_and_said_in_words() -> None:
    outputs, target = drawn(images=3)
    kept = TASK.summarize_outputs(outputs, torch.empty(3, 0))
    rows = TASK.predictions(kept)
    assert rows == TASK.predictions(TASK.summarize_outputs(outputs, target))
    said, p = outputs.argmax(1), outputs.softmax(1).amax(1)
    for row, one, sure in zip(rows, said, p):
        assert [row[name] for name in NAMES] == pytest.approx([(one == k).double().mean().item() for k in range(4)])
        assert row["mean probability"] == pytest.approx(sure.mean().item(), rel=1e-5)
    right = TASK.example_results(
        TASK.summarize_outputs(F.one_hot(said, 4).movedim(-1, 1) * 9.0, said.to(torch.uint8)), target
    )
    assert [(row["wrong"], row["predicted"]) for row in right] == [(False, "no pixel wrong")] * 3
    wrong = TASK.example_results(TASK.summarize_outputs(outputs, target), target)[0]
    assert wrong["wrong"]
    assert wrong["actual"] == "ground, cat, dog"
    assert " % of its pixels wrong: " in wrong["predicted"]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 100))
def test_the_order_of_images_and_of_pixels_changes_nothing(seed: int) -> None:
    outputs, target = drawn(seed, images=4)
    order = torch.randperm(4 * 30, generator=torch.Generator().manual_seed(seed))
    moved_outputs = outputs.movedim(1, 0).flatten(1)[:, order].unflatten(1, (4, 5, 6)).movedim(0, 1)
    moved = target.flatten()[order].unflatten(0, (4, 5, 6))
    first, second = (
        TASK.fast_metrics(TASK.summarize_outputs(o, t), t) for o, t in ((outputs, target), (moved_outputs, moved))
    )
    assert first["mean_iou"] == second["mean_iou"]
    assert first["pixel_accuracy"] == second["pixel_accuracy"]
    assert TASK.loss(outputs, target).item() == pytest.approx(TASK.loss(moved_outputs, moved).item(), rel=1e-5)


def test_nothing_labelled_is_no_number_and_no_fault() -> None:
    outputs, target = drawn(images=2)
    target[0] = 255
    kept = TASK.summarize_outputs(outputs, target)
    assert TASK.example_results(kept, target)[0]["loss"] == 0
    assert np.isfinite(TASK.fast_metrics(kept, target)["loss"])
    empty = torch.full_like(target, 255)
    assert Segmentation(TARGET, "dice").loss(outputs, empty) == 0


class Left(torch.nn.Module):
    """Says of every pixel whether it is in the left half, surely: the mirror image's answer is another."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[:, 0], -x[:, 0]], 1)


def test_the_answer_for_the_mirror_image_is_mirrored_back() -> None:
    task, x = Segmentation(Mask(("a", "b"))), torch.randn(3, 1, 4, 6)
    masks = (x[:, 0] < 0).to(torch.uint8)
    split = TensorSplit(x, masks)
    place = select_device("cpu", "float32", False, Left())
    found = evaluate_split(Left(), split, place, 2, task, flip=True)
    assert task.fast_metrics(*found)["pixel_accuracy"] == 1
    assert found.target.shape == (3, 2)  # pixels of each class
    assert isinstance(next(split.batches([torch.tensor([0])])), Batch)


def test_large_images_are_evaluated_few_at_a_time() -> None:
    large, small = ImageSpec(3, 512, 512, TARGET), ImageSpec(3, 64, 64, TARGET)
    assert [evaluation_batch_size(None, spec) for spec in (large, small)] == [4, 256]
    assert evaluation_batch_size(None, ImageSpec(3, 4000, 4000, TARGET)) == 1
    assert evaluation_batch_size(None, ImageSpec(3, 512, 512, Classes(NAMES))) == 256
    assert evaluation_batch_size(7, large) == 7
