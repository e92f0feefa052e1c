"""Copies that were changed in other ways than those of `benchmarks.leaks`, and how many of them are found:
python -m benchmarks.changes SEEDS SET ….

Multi30k's English captions are a set of texts that no threshold was chosen on; Omniglot's drawings and tiles of
photographs had been seen before the rule for images that were moved or cropped was what it is.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from cutaway.data.datasets.catalog import data_roots

from .guard import judged
from .leaks import Array, Raw, Rng, altered, as_was, channels, raw

MOST = 6000  # images of a set
CAPTIONS = 8000
TILE = 64  # pixels of a photograph


def captions() -> Raw:
    """Captions of photographs, and whether a man is seen."""
    path = next(p for root in data_roots() if (p := root / "multi30k" / "train.en.gz").exists())
    texts = gzip.decompress(path.read_bytes()).decode().splitlines()[:CAPTIONS]
    return Raw("multi30k", "text", texts, np.array(["yes" if " man " in text else "no" for text in texts]))


def drawings() -> Raw:
    """Omniglot's characters, (n, 105, 105), and of which alphabet each is."""
    path = next(p for root in data_roots() if (p := root / "omniglot" / "images_background_small1.zip").exists())
    with zipfile.ZipFile(path) as held:
        names = sorted(name for name in held.namelist() if name.endswith(".png") and "__MACOSX" not in name)
        images = [np.asarray(Image.open(held.open(name)).convert("L")) for name in names]
    return Raw("omniglot", "image", np.stack(images), np.array([name.split("/")[1] for name in names]))


def tiles() -> Raw:
    """Photographs cut into grey tiles that do not overlap, (n, 64, 64), and of which photograph each is."""
    folder = next(p for root in data_roots() if (p := root / "photos").exists())
    found, whose = [], []
    for path in sorted(p for p in folder.iterdir() if p.suffix in (".png", ".jpg")):
        x = np.asarray(Image.open(path).convert("L"))
        for top in range(0, x.shape[0] - TILE + 1, TILE):
            for left in range(0, x.shape[1] - TILE + 1, TILE):
                found.append(x[top : top + TILE, left : left + TILE])
                whose.append(path.stem)
    return Raw("photos", "image", np.stack(found), np.array(whose))


def shifted(x: Array, rng: Rng) -> Array:
    """By a pixel; what comes in at the edge is what stood there."""
    ways = [(0, 1), (1, 0), (1, 1), (-1, 1)]
    wide = F.pad(channels(x), (1, 1, 1, 1), mode="replicate")
    moved = [torch.roll(one, ways[i % len(ways)], (1, 2))[:, 1:-1, 1:-1] for i, one in enumerate(wide)]
    return as_was(torch.stack(moved), x)


def cropped(x: Array, rng: Rng) -> Array:
    """Nine tenths of each side, made large again."""
    y = channels(x)
    side = y.shape[-1]
    kept, found = round(0.9 * side), []
    for one in y:
        top, left = rng.integers(0, side - kept + 1, 2)
        part = one[None, :, top : top + kept, left : left + kept]
        found.append(F.interpolate(part, (side, side), mode="bilinear", antialias=True)[0])
    return as_was(torch.stack(found), x)


def brighter(x: Array, rng: Rng) -> Array:
    """Less contrast, and a little brighter."""
    return as_was(channels(x) * 0.7 + 25, x)


def darker(x: Array, rng: Rng) -> Array:
    """By a gamma of 1.5."""
    return as_was((channels(x) / 255) ** 1.5 * 255, x)


def edited(count: int) -> Callable[[list[str], Rng], list[str]]:
    """So many words of each text are others of that set."""

    def edit(texts: list[str], rng: Rng) -> list[str]:
        all_words, found = [word for text in texts for word in text.split()], []
        for text in texts:
            words = text.split()
            for i in rng.choice(len(words), count, replace=False):
                words[i] = all_words[int(rng.integers(len(all_words)))]
            found.append(" ".join(words))
        return found

    return edit


def shortened(texts: list[str], rng: Rng) -> list[str]:
    """The last fifth is gone."""
    return [" ".join(text.split()[: int(0.8 * len(text.split()))]) for text in texts]


OWN: dict[str, Callable[[], Raw]] = {"multi30k": captions, "omniglot": drawings, "photos": tiles}
CHANGES: dict[str, dict[str, Any]] = {
    "image": {"shifted": shifted, "cropped": cropped, "brighter": brighter, "darker": darker},
    "text": {"a word": edited(1), "two words": edited(2), "shortened": shortened},
    "table": {"noise of 0.3 %": 0.003, "of 1 %": 0.01, "of 2 %": 0.02},
}


def main(seeds: int, names: list[str]) -> None:
    """Print what was found of each change in each set."""
    torch.set_num_threads(1)
    for name in names:
        whole = OWN[name]() if name in OWN else raw(name)
        whole = whole.take(np.arange(MOST)) if whole.kind == "image" and len(whole) > MOST else whole
        with tempfile.TemporaryDirectory() as folder:
            for note in whole.opened(Path(folder)).findings:
                print(f"{name}, as it is: {note}", flush=True)
        for kind, how in CHANGES[whole.kind].items():
            put = found = 0
            for seed in range(seeds):
                rng = np.random.default_rng([seed, *kind.encode()])
                leak = altered(whole, how, rng)
                with tempfile.TemporaryDirectory() as folder:
                    score = judged("near duplicates", leak, leak.raw.opened(Path(folder), seed))
                put, found = put + score.put, found + score.found
            print(f"| {name} | {kind} | {found} of {put} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
