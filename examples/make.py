"""Write data to try Cutaway with into the current folder: a table, photographs, and small files of every other kind.

wine.csv and photos/ are real, and come with scikit-learn; sequences.py, beside this file, says what the others are.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image
from sequences import write as write_sequences
from sklearn.datasets import load_digits, load_wine


def wine(path: Path) -> None:
    """178 wines: 13 measurements of each, and which of three cultivars it comes from."""
    data = load_wine()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "cultivar"])
        writer.writerows([*row, data.target_names[k]] for row, k in zip(data.data, data.target, strict=True))


def photos(folder: Path) -> None:
    """1 797 scanned digits as PNG files, in the folders zero to nine."""
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    data = load_digits()
    for i, (image, k) in enumerate(zip(data.images, data.target, strict=True)):
        path = folder / names[k] / f"{i:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.uint8(image * (255 / 16))).resize((32, 32)).save(path)


if __name__ == "__main__":
    wine(Path("wine.csv"))
    photos(Path("photos"))
    print("wrote", ", ".join(["wine.csv", "photos/", *write_sequences(Path())]))
