"""Image tokens: palettes, nearest colours, cells, start tokens, the saved preprocessing, rejected settings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

import cutaway
from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import ImageTokens
from cutaway.data.dataset_base import DataSet
from cutaway.data.images.tokens import TokenPreprocessing, cell_sizes, fit_palette, nearest
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings


def opened(data: object = "digits", **settings: object) -> tuple[DataSet, TokenPreprocessing]:
    """The data set as tokens, and its preprocessing."""
    found = open_data(data, DataSettings(**settings), targets=(ImageTokens,))  # type: ignore[arg-type]
    assert isinstance(found.preprocessing, TokenPreprocessing)
    return found, found.preprocessing


def coloured(path: Path, count: int = 12) -> Path:
    """Random RGB images of 6×5 pixels, without classes."""
    rng = np.random.default_rng(0)
    path.mkdir()
    for k in range(count):
        Pillow.fromarray(rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)).save(path / f"{k}.png")
    return path


def test_images_with_few_levels_keep_them() -> None:
    data, known = opened()
    split = data.splits["test"]
    assert known.target.cells == (1,) * 17
    (inputs,), tokens = next(iter(split.batches([torch.arange(20)])))
    originals = np.stack([np.asarray(split.image(i)) for i in range(20)])
    assert np.array_equal(known.levels(tokens)[:, 0].numpy(), originals)
    assert torch.equal(inputs[:, 1:], tokens[:, :-1])
    assert split.target is not None
    assert torch.equal(inputs[:, 0], 17 + split.target[:20])


def test_images_without_a_class_start_with_the_last_token() -> None:
    data, known = opened()
    image = data.splits["test"].image(0)
    (inputs,), _ = next(iter(known.examples([image]).batches([torch.arange(1)])))
    assert inputs[0, 0] == 27 == known.target.vocab_size - 1


def test_more_levels_than_colours_are_quantized() -> None:
    data, known = opened(palette_size=5)
    palette = np.array(known.palette, float)[:, 0]
    assert len(palette) == 5
    assert (np.diff(palette) > 0).all()
    (_,), tokens = next(iter(data.splits["train"].batches([torch.arange(100)])))
    originals = np.stack([np.asarray(data.splits["train"].image(i)) for i in range(100)]).reshape(100, 64)
    assert np.array_equal(tokens.numpy(), np.abs(originals[..., None] - palette).argmin(2))
    # Each level belongs to one cell, and each mean is that of its cell, rounded.
    assert sum(known.target.cells) == 256
    assert list(known.target.cells) == np.bincount(np.abs(np.arange(256)[:, None] - palette).argmin(1)).tolist()
    levels = np.stack([np.asarray(data.splits["train"].image(i)) for i in range(len(data.splits["train"]))]).ravel()
    of = np.abs(levels[:, None] - palette).argmin(1)
    assert [levels[of == k].mean() for k in range(5)] == pytest.approx(palette.tolist(), abs=1.5)


@pytest.mark.parametrize("channels", [1, 3])
def test_nearest_is_that_of_the_distances(channels: int) -> None:
    generator = torch.Generator().manual_seed(0)
    palette = torch.randint(256, (9, channels), generator=generator).float()
    pixels = torch.randint(256, (50, 4, channels), generator=generator).float()
    distances = (pixels[:, :, None].double() - palette.double()).square().sum(3)
    assert torch.equal(distances.gather(2, nearest(pixels, palette)[..., None])[..., 0], distances.amin(2))


@pytest.mark.slow
def test_every_colour_is_in_one_cell() -> None:
    palette = torch.tensor([[0, 0, 0], [255, 255, 255], [128, 0, 0], [200, 30, 90]], dtype=torch.uint8)
    found = cell_sizes(palette)
    assert int(found.sum()) == 256**3
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(256, (200_000, 3), generator=generator).float()
    fractions = nearest(drawn, palette.float()).bincount(minlength=4) / len(drawn)
    assert (found / 256**3).tolist() == pytest.approx(fractions.tolist(), abs=0.006)


def test_a_palette_of_clusters_is_found() -> None:
    colors = torch.tensor([[0, 0, 0], [2, 2, 2], [200, 0, 0], [204, 0, 0], [0, 0, 250]], dtype=torch.uint8)
    found = fit_palette(colors, torch.tensor([1, 1, 3, 1, 9]), 3)
    assert sorted(map(tuple, found.tolist())) == [(0, 0, 250), (1, 1, 1), (201, 0, 0)]


def test_counts_are_those_of_the_training_tokens() -> None:
    data, known = opened()
    split = data.splits["train"]
    (_,), tokens = next(iter(split.batches([torch.arange(len(split))])))
    counts = split.target_counts  # type: ignore[attr-defined]
    assert counts.shape == (64, 17)
    assert torch.equal(counts[27], tokens[:, 27].bincount(minlength=known.target.outputs))


def test_the_preprocessing_is_saved() -> None:
    _, known = opened(palette_size=4)
    document = json.loads(json.dumps(known.to_json()))
    assert preprocessing_from_json(document) == known
    for key, value, said in (
        ("palette", [[0], [9]], "a palette of 2 colours for image tokens of 4"),
        ("palette", [[0, 1]] * 4, "not 1 levels each"),
    ):
        with pytest.raises(DataError, match=said):
            preprocessing_from_json(document | {key: value})
    del document["form"]  # it would be read as images alone
    with pytest.raises(DataError, match="its form is None, and its target ImageTokens has the form 'tokens'"):
        preprocessing_from_json(document)


def test_a_folder_of_colour_images_is_tokenized(tmp_path: Path) -> None:
    data, known = opened(coloured(tmp_path / "flat"), palette_size=4)
    assert (known.target.names, known.target.size, known.target.vocab_size) == ((), 90, 5)
    assert sum(known.target.cells) == 256**3
    (inputs,), tokens = next(iter(data.splits["train"].batches([torch.arange(2)])))
    assert (inputs.shape, tokens.shape) == ((2, 30), (2, 30))
    assert inputs[:, 0].tolist() == [4, 4]


def test_settings_that_vary_images_are_rejected() -> None:
    for key, value in (("flip", True), ("mixup", 0.2), ("cutout", 4)):
        with pytest.raises(SettingError, match=rf"{key}=.* varies images"):
            opened(**{key: value})


def test_arrays_of_other_numbers_are_rejected() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 6, 6)).astype(np.float32)
    with pytest.raises(DataError, match="images with 256 levels"):
        cutaway.train("image-gpt", (x, rng.integers(0, 2, 30)))
