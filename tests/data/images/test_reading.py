"""One image: read as a person sees it, brought to a size, and rejected by name where it cannot be."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from cutaway.core.errors import DataError
from cutaway.data.images.image_files import (
    as_image,
    as_pixels,
    crop_to,
    pad_to,
    read_header,
    read_image,
    resize,
    size_covering,
    size_within,
)


def saved(image: Image.Image, path: Path, **options: Any) -> Path:
    image.save(path, **options)
    return path


def scene(height: int = 60, width: int = 40) -> Image.Image:
    """Smooth, and different in each corner and channel, so that turning and swapping show."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([y * 255 // height, x * 255 // width, (x + y) * 255 // (height + width)], 2)
    return Image.fromarray(pixels.astype(np.uint8))


def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path: Path) -> None:
    values = np.array([[0, 257, 32768, 65535]], np.uint16)
    path = saved(Image.fromarray(values), tmp_path / "deep.png")
    assert as_pixels(read_image(path, "deep"))[0, :, 0].tolist() == [0, 1, 128, 255]
    assert as_pixels(read_image(values, "array"))[0, :, 0].tolist() == [0, 1, 128, 255]
    tiff = saved(Image.fromarray(values), tmp_path / "deep.tiff")
    assert as_pixels(read_image(tiff, "deep"))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_what_is_transparent_stands_on_white(tmp_path: Path) -> None:
    rgba = Image.new("RGBA", (2, 1), (200, 0, 0, 255))
    rgba.putpixel((1, 0), (0, 0, 0, 0))
    read = read_image(saved(rgba, tmp_path / "a.png"), "a")
    assert [read.getpixel((x, 0)) for x in (0, 1)] == [(200, 0, 0), (255, 255, 255)]
    la = Image.new("LA", (1, 1), (0, 128))
    assert read_image(saved(la, tmp_path / "la.png"), "la").getpixel((0, 0)) == 127  # half black on white
    palette = Image.new("P", (2, 1))
    palette.putpalette([0, 0, 255, 10, 20, 30])
    palette.putpixel((1, 0), 1)
    read = read_image(saved(palette, tmp_path / "p.png", transparency=0), "p")
    assert [read.getpixel((x, 0)) for x in (0, 1)] == [(255, 255, 255), (10, 20, 30)]


def test_palettes_and_cmyk_become_colours(tmp_path: Path) -> None:
    palette = scene().convert("P", palette=Image.Palette.ADAPTIVE)
    read = read_image(saved(palette, tmp_path / "p.gif"), "p")
    assert read.mode == "RGB"
    assert np.abs(np.asarray(read).astype(int) - np.asarray(scene())).mean() < 5
    cmyk = read_image(saved(scene().convert("CMYK"), tmp_path / "c.jpg", quality=95), "c")
    assert np.abs(np.asarray(cmyk).astype(int) - np.asarray(scene())).mean() < 3


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_pictures_are_read_upright(tmp_path: Path, orientation: int, suffix: str) -> None:
    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,  # the camera was turned: what is stored is turned back by 270
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = scene().transpose(turns[orientation]) if orientation in turns else scene()
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(stored, tmp_path / f"turned.{suffix}", exif=exif, quality=95)
    read = read_image(path, "turned")
    assert read.size == (40, 60)
    assert np.abs(np.asarray(read).astype(int) - np.asarray(scene())).mean() < 3
    if suffix == "jpg":
        assert read_header(path.read_bytes(), "turned").size == (60, 40)
        smaller = read_image(path, "turned", drawn_at=lambda size: (size[0] // 2, size[1] // 2))
        assert smaller.size == (20, 30)  # the decoder did the halving, and knew which side is which


def test_a_jpeg_is_decoded_no_smaller_than_it_will_be_drawn(tmp_path: Path) -> None:
    path = saved(scene(800, 1200), tmp_path / "large.jpg")
    for wanted, expected in [((100, 150), (100, 150)), ((101, 150), (200, 300)), ((401, 500), (800, 1200))]:
        read = read_image(path, "large", drawn_at=lambda size, wanted=wanted: wanted)
        assert read.size == expected[::-1]


def test_grey_stays_grey_unless_colours_are_asked_for(tmp_path: Path) -> None:
    path = saved(scene().convert("L"), tmp_path / "grey.png")
    assert read_image(path, "grey").mode == "L"
    assert read_image(path, "grey", 3).mode == "RGB"
    assert read_header(path.read_bytes(), "grey").grey
    colours = saved(scene(), tmp_path / "colour.png")
    assert read_image(colours, "colour", 1).mode == "L"
    assert not read_header(colours.read_bytes(), "colour").grey


def test_a_moving_picture_is_noticed_and_a_still_one_is_not(tmp_path: Path) -> None:
    frames = [scene(), scene().rotate(90)]
    path = saved(frames[0].convert("P"), tmp_path / "moving.gif", save_all=True, append_images=[frames[1].convert("P")])
    assert read_header(path.read_bytes(), "moving").moving
    assert not read_header(saved(frames[0], tmp_path / "still.jpg").read_bytes(), "still").moving


def png(width: int, height: int) -> bytes:
    """The head of a PNG of that size, whose pixels are missing."""
    buffer = io.BytesIO()
    Image.new("1", (1, 1)).save(buffer, "png")
    dot = buffer.getvalue()
    size = b"IHDR" + struct.pack(">II", width, height) + dot[24:29]
    return dot[:12] + size + struct.pack(">I", zlib.crc32(size)) + dot[33:]


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", r"it is empty \(0 bytes\)"),
        (b"what is this", "not readable as an image"),
        (png(10_000, 10_000), "10000 × 10000 pixels, 100 megapixels, and more than 64 are not read"),
        (png(20_000, 20_000), "far too large"),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_head_that_is_unusable_is_named(data: bytes, cause: str) -> None:
    with pytest.raises(DataError, match=cause) as caught:
        read_header(data, "cats/tom.png")
    assert caught.value.problems[0].where == "cats/tom.png"


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp", "webp", "tiff"])
def test_a_picture_cut_short_is_named(tmp_path: Path, suffix: str) -> None:
    path = saved(scene(200, 200), tmp_path / f"short.{suffix}")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(DataError, match=r"cut short") as caught:
        read_image(path, str(path))
    assert caught.value.problems[0].where == str(path)


def test_numbers_without_a_known_range_are_rejected(tmp_path: Path) -> None:
    path = saved(Image.fromarray(np.ones((2, 2), np.float32)), tmp_path / "float.tiff")
    with pytest.raises(DataError, match="floating-point"):
        read_image(path, "float")
    with pytest.raises(DataError, match="from -1 to 70000"):
        read_image(saved(Image.fromarray(np.array([[-1, 70_000]], np.int32)), tmp_path / "int.tiff"), "int")
    with pytest.raises(DataError, match=r"array of float64 of shape \(2, 2\)"):
        read_image(np.ones((2, 2)), "array")


def test_reading_does_not_change_the_image_that_was_given() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    given_image = scene()
    given_image.info["exif"] = exif.tobytes()
    before = given_image.tobytes()
    read = read_image(given_image, "given")
    assert read.size == (60, 40)
    assert given_image.size == (40, 60)
    assert given_image.tobytes() == before


sides = st.integers(1, 40)


@settings(max_examples=200, deadline=None)
@given(height=sides, width=sides, box=st.tuples(sides, sides), grey=st.booleans())
@example(height=15, width=1, box=(21, 1), grey=False)  # 1 / (21 / 15) · 21 rounds to more than 15
def test_every_fit_gives_the_size_asked_for(height: int, width: int, box: tuple[int, int], grey: bool) -> None:
    image = Image.new("L" if grey else "RGB", (width, height))
    background = (9,) if grey else (9, 8, 7)
    for fitted in (resize(image, box), crop_to(image, box), pad_to(image, box, box, background)):
        assert fitted.size == box[::-1]
        assert fitted.mode == image.mode
    assert all(a <= b for a, b in zip(size_within((height, width), box), box))
    assert all(a >= b for a, b in zip(size_covering((height, width), box), box))


def test_crop_takes_the_middle_and_keeps_proportions() -> None:
    pixels = np.zeros((30, 90, 1), np.uint8)
    pixels[:, 30:60] = 200  # the middle third of a wide image
    assert (np.asarray(crop_to(as_image(pixels), (30, 30))) == 200).all()
    assert (np.asarray(crop_to(as_image(pixels), (10, 10))) == 200)[:, 1:-1].all()
    tall = as_image(pixels.transpose(1, 0, 2))
    assert (np.asarray(crop_to(tall, (30, 30))) == 200).all()


def test_crop_without_scaling_copies_whole_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 13, 3), dtype=np.uint8)
    assert (np.asarray(crop_to(as_image(pixels), (8, 8))) == pixels[:, 2:10]).all()


def test_pad_puts_the_whole_picture_in_the_middle_of_the_background() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (28, 28, 1), dtype=np.uint8)
    padded = np.asarray(pad_to(as_image(pixels), (32, 32), (28, 28), (7,)))
    assert (padded[2:30, 2:30] == pixels[:, :, 0]).all()
    padded = padded.copy()
    padded[2:30, 2:30] = 7
    assert (padded == 7).all()
    wide = np.asarray(pad_to(Image.new("RGB", (100, 50), "white"), (32, 32), (32, 32), (1, 2, 3)))
    assert (wide[8:24] == 255).all()  # 32 × 16
    assert (wide[:8] == [1, 2, 3]).all()
    assert (wide[24:] == [1, 2, 3]).all()


def test_a_lack_of_memory_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")

    def load(self: Image.Image) -> None:
        raise MemoryError

    monkeypatch.setattr(PngImageFile, "load", load)
    with pytest.raises(MemoryError):
        read_image(tmp_path / "a.png", "")
