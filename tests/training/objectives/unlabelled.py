"""What every run must do that learned without labels, whatever its objective."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from cutaway.runs.run import Run


def is_judged_by_neighbours(run: Run) -> None:
    """It is evaluated by its nearest neighbours on images of 8×8 pixels, and predicts by them."""
    metrics = run.evaluate()
    assert {"knn_accuracy", "balanced_accuracy", "macro_f1"} <= metrics.keys()
    assert "loss" not in metrics
    assert 0 < metrics["knn_accuracy"].value <= 1
    row = run.predict([np.zeros((8, 8), np.uint8)])[0]
    assert row["class"] in run.spec.target.names  # type: ignore[union-attr]


def photographs(folder: Path, height: int, width: int) -> Path:
    """A folder of 30 images of noise, without classes."""
    folder.mkdir()
    for i, image in enumerate(np.random.default_rng(0).integers(0, 256, (30, height, width, 3), np.uint8)):
        Image.fromarray(image).save(folder / f"{i}.png")
    return folder
