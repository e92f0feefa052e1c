"""Evaluation gives raw outputs in the split's order, of images and, where asked, of their mirror images too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from cutaway.core.files import read_json
from cutaway.data.dataset_base import TensorSplit
from cutaway.runs.train import train_model
from cutaway.training.callbacks import Progress
from cutaway.training.device import select_device
from cutaway.training.evaluation import _joined, evaluate_split


# Products of batches of 3 and of 7 are rounded apart: by one bit of bfloat16's eight, where that is the precision.
@pytest.mark.parametrize(("precision", "apart"), [("float32", 1e-5), ("bfloat16", 0.03)])
def test_logits_are_averaged_over_the_image_and_its_mirror_image(precision: str, apart: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(2 * 3 * 4, 5)).train()
    images = torch.randn(7, 2, 3, 4)
    place = select_device("cpu", precision, None, model)
    found = evaluate_split(model, TensorSplit(images, None), place, batch_size=3, flip=True).outputs
    assert found.dtype == torch.float32
    with torch.no_grad(), place.autocast():
        there, back = model(images).float(), model(images[..., [3, 2, 1, 0]]).float()
    assert torch.allclose(found, (there + back) / 2, atol=apart)
    assert not torch.allclose(found, there, atol=0.1)
    assert torch.equal(evaluate_split(model, TensorSplit(images, None), place, batch_size=7).outputs, there)
    assert model.training


def test_each_layer_is_left_in_the_mode_that_it_was_in() -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Dropout()).train()
    model[1].eval()  # as a frozen one is
    evaluate_split(
        model, TensorSplit(torch.randn(5, 2, 2), None), select_device("cpu", "float32", None, model), batch_size=3
    )
    assert [module.training for module in model.modules()] == [True, True, False, True]


def test_a_run_flips_whenever_it_is_asked_or_never(tmp_path: Path) -> None:
    given = {"max_samples": 60, "epochs": 1, "tensorboard": False, "threads": 1}
    runs = {}
    for flip in (False, True):
        folder = tmp_path / str(flip)
        runs[flip] = train_model(
            "simplecnn", "digits", {**given, "tta": flip}, out=folder, progress=Progress(shown=False)
        )
        assert read_json(folder / "run.json")["settings"]["tta"] is flip
        loss = read_json(folder / "evaluation.json")["metrics"]["loss"]["value"]
        assert runs[flip].evaluate()["loss"].value == pytest.approx(loss, rel=1e-5)
    same = [torch.equal(a, b) for a, b in zip(*(r.model.parameters() for r in runs.values()))]
    assert all(same)  # it is for evaluation alone
    plain, flipped = (r.evaluate()["loss"].value for r in runs.values())
    assert plain != pytest.approx(flipped, rel=1e-3)
    images = runs[True].data().splits["test"]
    once = [r.results(images).outputs for r in runs.values()]
    mirrored = TensorSplit(images.inputs.flip(3), None)  # type: ignore[attr-defined]
    assert torch.allclose(once[1], (once[0] + runs[False].results(mirrored).outputs) / 2, atol=1e-5)


def test_answers_of_batches_are_put_in_the_order_of_the_examples_and_held_once() -> None:
    generator = torch.Generator().manual_seed(0)
    order = torch.split(torch.randperm(7, generator=generator), [3, 3, 1])
    batches = [torch.randn(len(rows), width, 2, generator=generator) for rows, width in zip(order, (4, 2, 3))]
    padded = [torch.nn.functional.pad(b, (0, 0, 0, 4 - b.shape[1]), value=float("nan")) for b in batches]
    expected = torch.cat(padded)[torch.cat(order).argsort()]
    joined = _joined(batches, order, float("nan"))
    assert torch.equal(joined.nan_to_num(9.0), expected.nan_to_num(9.0))
    assert joined.isnan().any()
    assert batches == []  # each is let go when it is in its place
