"""One image under attack: what is shown is what the attacks give and what the model says of it."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cutaway
from cutaway.core.errors import SettingError
from cutaway.runs.run import Run
from cutaway.views import adversarial
from cutaway.views.registry import suits
from cutaway.views.subject import Subject, open_preset, open_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small network that has learned digits."""
    out = tmp_path_factory.mktemp("adversarial") / "run"
    return cutaway.train("simplecnn", "digits", out=out, epochs=3, max_samples=600, lr=5e-3, tensorboard=False)


def pixels_of(tile: dict[str, Any]) -> np.ndarray:  # type: ignore[type-arg]
    """The pixels of a tile, 0…255."""
    url = tile["image"].removeprefix("data:image/png;base64,")
    return np.array(Image.open(io.BytesIO(base64.b64decode(url)))).astype(float)


def opened(run: Run, **options: str) -> Subject:
    """The run with the first of its test images."""
    return open_run(run, options=options)


def test_the_pictures_are_within_eps_and_the_change_is_drawn_as_large_as_it_says(run: Run) -> None:
    subject = opened(run, example="2", eps="0.24", steps="5")
    view = adversarial.draw_adversarial(subject)
    slider = view["drawings"][0]
    assert slider["slider"]
    assert len(slider["options"]) == adversarial.POINTS
    plain = np.array(subject.image(2)).astype(float)
    for e, option in enumerate(slider["options"]):
        eps = 0.24 * e / (adversarial.POINTS - 1)
        tiles = option["drawings"][0]["tiles"]
        assert [tile["group"] for tile in tiles] == ["FGSM"] * 3 + ["PGD"] * 3
        for first, added, changed in (tiles[:3], tiles[3:]):
            before, after = pixels_of(first), pixels_of(changed)
            assert abs(after - before).max() <= 255 * eps + 1.01
            if e == 0:
                assert (after == before).all()
                assert (pixels_of(added) == 128).all()
                continue
            # Grey is no change, and ±ε are white and black.
            assert abs(pixels_of(added) - (127.5 + (after - before) * 0.5 / eps)).max() < 1.5 / eps + 1
            assert float(added["label"].split("× ")[1].replace("\u202f", "")) == pytest.approx(0.5 / eps, abs=0.06)
    # Digits are padded where the network asks for more than 8 pixels.
    shown = pixels_of(slider["options"][0]["drawings"][0]["tiles"][0])
    assert shown.shape >= plain.shape


def test_what_it_says_is_what_the_model_says_of_fgsms_image(run: Run) -> None:
    """By hand: one step of ε along the sign of the gradient of the loss, in pixels."""
    subject = opened(run, example="1", eps="0.3")
    view = adversarial.draw_adversarial(subject)
    given: Any = subject.preprocessing
    x = subject.inputs[0][1:2].clone().requires_grad_()
    assert subject.target is not None
    loss = torch.nn.functional.cross_entropy(subject.model(x), subject.target[1:2])
    (slope,) = torch.autograd.grad(loss, x)
    names = run.spec.target.names  # type: ignore[union-attr]
    rows = view["table"]["rows"]
    for e in (0, 4, 12):
        pixels = (x.detach() * given.std[0] + given.mean[0] + rows[e][0] * slope.sign()).clamp(0, 1)
        p = subject.model.eval()((pixels - given.mean[0]) / given.std[0]).softmax(1)[0].detach()
        assert rows[e][1] == names[int(p.argmax())]
        assert rows[e][2] == pytest.approx(float(p.max()), abs=1e-4)
        assert rows[e][3] == pytest.approx(float(p[subject.target[1]]), abs=1e-4)


def test_pgd_lowers_the_right_class_and_the_curves_say_where_it_errs(run: Run) -> None:
    subject = opened(run, eps="1")
    view = adversarial.draw_adversarial(subject)
    rows, actual = view["table"]["rows"], int(subject.target[0])  # type: ignore[index]
    name = run.spec.target.names[actual]  # type: ignore[union-attr]
    assert rows[0][4] == name
    errs = next(row for row in rows if row[4] != name)
    curve = view["drawings"][2]
    assert curve["series"][0]["name"] == name
    assert len(curve["series"]) == adversarial.CURVES
    assert curve["mark"] == {"x": pytest.approx(errs[0]), "label": f"predicts {errs[4]}"}
    assert [s["name"] for s in curve["series"]] == [s["name"] for s in view["drawings"][1]["series"]]
    assert f"PGD changes the prediction to {errs[4]} from ε = " in view["summary"]
    assert view["drawings"][0]["start"] == rows.index(errs)


def test_what_is_wrong_already_and_what_holds_out_is_said(run: Run) -> None:
    subject = opened(run, eps="0.0001")
    assert "does not change the prediction up to ε = 0.0001" in adversarial.draw_adversarial(subject)["summary"]
    assert subject.target is not None
    subject.target[0] = (subject.target[0] + 1) % 10
    assert "already wrong" in adversarial.draw_adversarial(subject)["summary"]


def test_an_image_without_a_label_is_moved_from_what_the_model_says(run: Run, tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)).save(tmp_path / "x.png")
    view = adversarial.draw_adversarial(open_run(run, [tmp_path / "x.png"]))
    assert "which the model classifies as" in view["says"]


def test_it_is_for_classifiers_of_images_that_have_learned(run: Run) -> None:
    assert suits("adversarial", opened(run))
    assert not suits("adversarial", open_preset("simplecnn"))
    for key, value, said in (
        ("example", "8", "Invalid example=8"),
        ("eps", "0", "Invalid eps=0: must be above 0 and at most 1"),
        ("eps", "2", "Invalid eps=2"),
        ("eps", "nan", "Invalid eps=nan"),
        ("eps", "much", "Invalid eps=much"),
        ("steps", "0", "Invalid steps=0"),
        ("steps", "5000", "Invalid steps=5000"),
    ):
        with pytest.raises(SettingError) as rejection:
            adversarial.draw_adversarial(opened(run, **{key: value}))
        assert said in str(rejection.value)
