"""Images to be drawn: what is drawn belongs to the seed and the example; folders without classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import Classes, Image, ImageSizes, Noise
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings


def flat(path: Path, *sides: int) -> Path:
    rng = np.random.default_rng(0)
    path.mkdir()
    for k in range(20):
        side = sides[k % len(sides)]
        Pillow.fromarray(rng.integers(0, 256, (side, side), dtype=np.uint8)).save(path / f"{k}.png")
    return path


def test_noise_belongs_to_the_seed_and_the_example() -> None:
    split = open_data("digits", DataSettings(), targets=(Noise,)).splits["train"]
    ((x, t, noise, classes), target) = next(iter(split.batches([torch.tensor([3, 7, 9])], seed=5)))
    ((_, t1, noise1, _), _) = next(iter(split.batches([torch.tensor([9])], seed=5)))
    ((_, t2, noise2, _), _) = next(iter(split.batches([torch.tensor([9])], seed=6)))
    assert torch.equal(t1[0], t[2])
    assert torch.equal(noise1[0], noise[2])
    assert t1 != t2
    assert not torch.equal(noise1, noise2)
    assert torch.equal(target, noise)
    assert (x.min(), x.max()) == (-1, 1)
    assert classes.shape == (3,)
    ((_, t, noise, _), _) = next(iter(split.batches([torch.arange(1000)])))
    assert abs(noise.mean()) < 5 / noise.numel() ** 0.5
    assert abs(noise.var() - 1) < 5 * (2 / noise.numel()) ** 0.5
    assert abs(t.mean() - 0.5) < 5 / 12000**0.5


def test_a_flat_folder_is_for_models_that_draw(tmp_path: Path) -> None:
    folder = flat(tmp_path / "pictures", 8)
    data = open_data(folder, DataSettings(), targets=(Image,))
    assert data.spec.target == Image((), 64)
    inputs, _ = next(iter(data.splits["train"].batches([torch.arange(2)])))
    assert [tuple(part.shape) for part in inputs] == [(2, 1, 8, 8), (2, 1, 8, 8)]
    assert len(data.preprocessing.labelled(folder)) == 20
    with pytest.raises(DataError, match="no class folders, so their classes are unknown"):
        open_data(folder, DataSettings(), targets=(Classes,))


def test_images_of_several_sizes_are_brought_to_one_and_it_is_said(tmp_path: Path) -> None:
    data = open_data(flat(tmp_path / "mixed", 8, 12), DataSettings(), ImageSizes(usual=16), (Noise,))
    assert any("several sizes: the middle of each is drawn at 16×16" in note for note in data.notes)
    assert len(next(iter(data.splits["train"].batches([torch.arange(2)]))).inputs) == 3, "no classes, no class"


def test_what_blends_classes_is_rejected() -> None:
    with pytest.raises(SettingError, match=r"mixup=0.2 blends images and their classes"):
        open_data("digits", DataSettings(mixup=0.2), targets=(Noise,))
