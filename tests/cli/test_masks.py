"""Masks from the command line: check, train, evaluate, predict, report and inspect, on a folder of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cutaway.core.files import read_json
from cutaway.data.images.segmentation import palette

from ..data.images.test_masks import scene, write
from .conftest import Answer

CLI = Callable[..., Answer]
TINY = ("model.width=4", "model.levels=2", "image_size=16", "batch_size=4", "tensorboard=false")


def test_a_folder_of_masks_from_check_to_inspect(cli: CLI, tmp_path: Path) -> None:
    write(tmp_path / "own", 24)
    checked = cli("check", "unet-small", "own", "--json", *TINY)
    assert checked.status == 0, checked.said
    trained = cli("train", "unet-small", "own", "--out", "run", "epochs=12", "lr=1e-2", "flip=true", "tta=true", *TINY)
    assert trained.status == 0, trained.said
    evaluation = read_json(tmp_path / "run" / "evaluation.json")
    reached = evaluation["metrics"]["mean_iou"]["value"]
    assert evaluation["baseline"]["name"] == "constant baseline ('ground')"
    assert reached > evaluation["baseline"]["value"] + 0.1
    assert evaluation["watch"] == "mean_iou"
    assert all(example["picture"].startswith("data:image/png") for example in evaluation["worst"])
    again = json.loads(cli("evaluate", "run", "--json").out)
    assert again["mean_iou"]["value"] == pytest.approx(reached)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Intersection over union of each class" in page

    image, mask = scene(100, (15, 20))
    for part, pixels in (("images", image), ("masks", mask)):
        (tmp_path / "new" / part).mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / "new" / part / "a.png")
    said = cli("predict", "run", "new/images/a.png", "--out", "said.csv")
    assert said.status == 0, said.said
    with Image.open(tmp_path / "said-masks" / "a.png") as written:
        assert (written.mode, written.size) == ("P", (20, 15))
        assert written.getpalette()[:9] == palette()[:9]  # type: ignore[index]
        values = np.asarray(written)
    assert set(np.unique(values)) <= {0, 1, 2, 255}
    assert (values[:, 3:17] != 255).all()  # a square was seen, from the middle
    with Image.open(tmp_path / "said-pictures" / "a.png") as picture:
        assert (picture.mode, picture.size) == ("RGB", (20, 15))
        pixels = np.asarray(picture)
    assert (pixels[values == 0] == image[values == 0]).all()  # the ground shows through
    said_of = (values > 0) & (values < 255)
    assert (pixels[said_of] != image[said_of]).any()
    (row,) = json.loads(cli("predict", "run", "new/images/a.png", "--json").out)
    assert sum(row[name] for name in ("ground", "class 1", "class 2")) == pytest.approx(1)
    refused = cli("predict", "run", "new/images/a.png", "--out", "said.csv", "--overwrite")
    assert refused.status == 0, refused.said
    (tmp_path / "said.csv").unlink()
    assert "said-masks already exists" in cli("predict", "run", "new/images/a.png", "--out", "said.csv").said
    assert cli("evaluate", "run", "new").status == 0

    views = cli("inspect", "run", "--view", "results", "--view", "attribution", "method=grad_cam", "--out", "see.html")
    assert views.status == 0, views.said
    assert ", summed over all pixels" in (tmp_path / "see.html").read_text()


def test_a_resumed_run_ends_as_one_that_was_not_stopped(cli: CLI, tmp_path: Path) -> None:
    write(tmp_path / "own", 12)
    settings = ("schedule=constant", "flip=true", "crop=2", *TINY)
    assert cli("train", "unet-small", "own", "--out", "whole", "epochs=2", *settings).status == 0
    assert cli("train", "unet-small", "own", "--out", "parts", "epochs=1", *settings).status == 0
    assert cli("train", "--resume", "parts", "epochs=2").status == 0
    whole, parts = (tmp_path / run / "model" / "model.safetensors" for run in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()
