"""Example images with captions."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from ..datasets.captions import SMALL, compose_described, scikit_learn_digits
from ..folders import CAPTIONS

COUNT = 3_000


def captions(folder: Path) -> None:
    """Write scenes of two of scikit-learn's digits as PNG files, and every true caption of each in captions.tsv."""
    pixels, texts = compose_described(*scikit_learn_digits(), COUNT, SMALL, seed=0, most=2)
    lines = ["file\tcaption"]
    (folder / "scenes").mkdir(parents=True)
    for i, (scene, of_scene) in enumerate(zip(pixels, texts, strict=True)):
        file = f"scenes/{i:04}.png"
        Image.fromarray(scene).save(folder / file)
        lines += [f"{file}\t{text}" for text in of_scene]
    (folder / CAPTIONS).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
