"""Kernels of image processing on a photo: the numbers of scipy, and a page from one command."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from scipy import ndimage

import cutaway
from cutaway.core.errors import DataError, FileError, ModelError, SettingError, UnknownName
from cutaway.nn.textbook.convolution import correlate
from cutaway.views.convolution import draw_arithmetic, draw_filters
from cutaway.views.image_kernels import KERNELS, SIDE, FixedKernels, parse_kernel
from cutaway.views.registry import suitable_views
from cutaway.views.subject import open_subject

from ..small import small


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A colour photo, 40 wide and 30 high: noise, and a bright square."""
    pixels = np.random.default_rng(0).integers(0, 90, (30, 40, 3)).astype(np.uint8)
    pixels[10:20, 12:25] = 240
    path = tmp_path / "photo.png"
    Image.fromarray(pixels).save(path)
    return path


def levels(path: Path) -> np.ndarray[Any, Any]:
    return np.array(Image.open(path).convert("L"), np.float64) / 255


def image_of(tile: dict[str, Any]) -> torch.Tensor:
    png = base64.b64decode(tile["image"].split(",")[1])
    return torch.from_numpy(np.array(Image.open(io.BytesIO(png))).astype(np.float32))


def test_the_derivatives_are_scipys(photo: Path) -> None:
    x = levels(photo)
    for name, other in (("sobel", ndimage.sobel), ("prewitt", ndimage.prewitt)):
        subject = open_subject(photo, options={"kernel": name})
        y = subject.model(subject.inputs[0]).double()[0].numpy()
        across, down = other(x, axis=1, mode="nearest"), other(x, axis=0, mode="nearest")
        assert np.allclose(y, [across, down], atol=1e-5)
        rows = {row[0]: row[1:] for row in draw_filters(subject)["table"]["rows"]}
        magnitude = np.hypot(across, down)
        assert rows["gradient magnitude"] == pytest.approx([magnitude.min(), magnitude.max(), magnitude.mean()], 1e-3)
        assert rows["horizontal derivative x"][1] == pytest.approx(across.max(), rel=1e-3)


@pytest.mark.parametrize("name", [*KERNELS, "1,2;3,4;-5,6", "0.5"])
def test_every_kernel_is_scipys_correlation(name: str, photo: Path) -> None:
    given = parse_kernel(name)
    x = torch.from_numpy(levels(photo)).float()
    y = FixedKernels(given)(x[None, None])[0].detach()
    assert y.shape[1:] == x.shape
    for part, weights in zip(y, given.weights, strict=True):
        origin = [(n % 2) - 1 for n in weights.shape]  # scipy's centre of an even kernel is one further
        expected = ndimage.correlate(x.double().numpy(), weights.double().numpy(), mode="nearest", origin=origin)
        assert np.allclose(part.double().numpy(), expected, atol=1e-5)


def test_known_kernels_have_their_known_sums_and_directions() -> None:
    sums = {name: parse_kernel(name).weights.sum((1, 2)).tolist() for name in KERNELS}
    for name, total in sums.items():
        expected = 0 if name in ("sobel", "prewitt", "scharr", "laplacian") else 1
        assert total == pytest.approx([expected] * len(total), abs=1e-6), name
    ramp = torch.arange(5.0).repeat(5, 1)  # it grows to the right by 1 for each pixel
    for name, slope in (("sobel", 8), ("prewitt", 6), ("scharr", 32)):
        x, y = parse_kernel(name).weights
        assert correlate(ramp, x)[0, 0].item() == slope
        assert correlate(ramp, y)[0, 0].item() == 0
        assert correlate(ramp.T.contiguous(), y)[0, 0].item() == slope


def test_a_photo_is_shown_with_its_edges(photo: Path) -> None:
    found = cutaway.look(photo, view="filters", kernel="sobel")["filters"]
    original, across, down, magnitude = found["drawings"][0]["tiles"]
    assert [t["label"] for t in (original, across, down, magnitude)] == [
        "original",
        "horizontal derivative x",
        "vertical derivative y",
        "gradient magnitude",
    ]
    assert torch.equal(image_of(original), torch.from_numpy(np.array(Image.open(photo)).astype(np.float32)))
    assert image_of(across)[15, 11:13].min() > 230  # the left side of the square: from dark to bright
    assert image_of(across)[15, 24:26].max() < 20  # its right side
    assert image_of(down)[9:11, 18].min() > 230  # its upper side
    assert image_of(magnitude)[15, [11, 25]].min() > 200
    assert image_of(magnitude)[13:17, 15:22].max() == 0  # within it nothing changes
    json.dumps(found, allow_nan=False)


def test_a_photo_without_views_shows_its_edges_and_their_arithmetic(photo: Path) -> None:
    look = cutaway.look(photo)
    assert [view["id"] for view in look.views] == ["filters", "arithmetic"]
    assert look.page["title"] == "Inside photo.png"
    subject = open_subject(photo, options={"kernel": "scharr", "channel": "0"})
    assert {"filters", "arithmetic", "features"} <= set(suitable_views(subject))
    drawing = draw_arithmetic(dataclasses.replace(subject, options={"channel": "0"}))["drawings"][0]
    assert drawing["channels"][0]["weights"] == [[-3, 0, 3], [-10, 0, 10], [-3, 0, 3]]
    assert drawing["channels"][0]["sums"][0][0] == pytest.approx(drawing["output"][0][0], abs=1e-3)


def test_a_large_photo_is_reduced(tmp_path: Path) -> None:
    path = tmp_path / "wide.jpg"
    Image.new("RGB", (1200, 300), (200, 10, 10)).save(path)
    subject = open_subject(path)
    assert subject.inputs[0].shape == (1, 1, 112, SIDE)
    assert draw_filters(subject)["summary"].startswith("448×112 pixels in gray")
    path = tmp_path / "dot.png"
    Image.new("L", (1, 1), 7).save(path)
    assert draw_filters(open_subject(path))["table"]["rows"][2][1:] == [0, 0, 0]


def test_a_run_filters_the_image_that_it_is_given(photo: Path, tmp_path: Path) -> None:
    run = cutaway.train("lenet5-modern", "digits", epochs=1, out=tmp_path / "run", tensorboard=False)
    found = cutaway.look(run, photo, view="filters", kernel="laplacian")["filters"]
    x = levels(photo)
    assert found["table"]["rows"][0][2] == pytest.approx(ndimage.laplace(x, mode="nearest").max(), rel=1e-3)
    assert cutaway.look(run, photo, view="filters")["filters"]["title"] == "Filters"


WRONG = {
    "no kernel": ("sobl", UnknownName, "Similar: sobel"),
    "no name": ("edges", UnknownName, "rows as numbers"),
    "ragged": ("1,2;3", SettingError, "rows of equal length"),
    "words": ("1,two", SettingError, "must be rows of numbers"),
    "empty row": ("1;;2", SettingError, "rows of equal length"),
    "not finite": ("1,1e999", SettingError, "finite"),
    "too large": (";".join(["1"] * 40), SettingError, "at most 31×31"),
}


@pytest.mark.parametrize(("kernel", "error", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_kernel_is_rejected(kernel: str, error: type[Exception], says: str, photo: Path) -> None:
    with pytest.raises(error, match=says):
        cutaway.look(photo, view="filters", kernel=kernel)


def test_wrong_files_are_rejected_in_a_sentence(photo: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(photo.read_bytes()[:60])
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "text.jpg").write_text("no image")
    with pytest.raises(DataError, match="There is no image"):
        cutaway.look(tmp_path / "missing.png")
    for name in ("broken.png", "text.jpg"):
        with pytest.raises(DataError, match="The image file cannot be used"):
            cutaway.look(tmp_path / name)
    with pytest.raises(FileError, match=r"notes.txt is a file, .*The name of a photo ends in \.jpg"):
        cutaway.look(tmp_path / "notes.txt", view="filters", kernel="sobel")
    with pytest.raises(SettingError, match="inspected alone"):
        cutaway.look(photo, photo)
    model, inputs = small("lenet5-modern")
    with pytest.raises(ModelError, match="not image files"):
        cutaway.look(model, *inputs, view="filters", kernel="sobel")


def test_the_border_has_no_edge_of_its_own() -> None:
    flat = torch.full((1, 1, 6, 7), 0.5)
    assert FixedKernels(parse_kernel("sobel"))(flat).abs().max() == 0
    assert F.conv2d(flat, parse_kernel("sobel").weights[:, None], padding=1).abs().max() > 1  # with zeros it would
