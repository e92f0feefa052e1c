"""A folder for each subject, with one image in every form that people's folders hold: formats, palettes, inks,
depths, turned and cut out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageOps
from PIL.ExifTags import Base

LARGEST = 192  # pixels of the longer side, so that everything stays small
AT_MOST = 4  # subjects


@dataclass(frozen=True)
class Form:
    """One way in which a photograph comes: how it is written, and what a person sees of it."""

    write: Callable[[Image.Image, Path], None]
    seen: Callable[[Image.Image], Image.Image] = lambda photo: photo
    error: float = 0.0  # the mean difference in levels that the form itself costs


# --- what a person sees -------------------------------------------------------------------------------------------


def grey(photo: Image.Image) -> Image.Image:
    """The photograph in grey."""
    return photo.convert("L")


def on_white(photo: Image.Image) -> Image.Image:
    """The photograph through its mask, on white."""
    return Image.composite(photo, Image.new(photo.mode, photo.size, "white"), mask(photo))


def mask(photo: Image.Image) -> Image.Image:
    """How opaque a cut-out is: an ellipse whose edge fades, from 255 inside to 0 in the corners."""
    width, height = photo.size
    y, x = np.mgrid[0:height, 0:width]
    distance = np.hypot(2 * (x + 0.5) / width - 1, 2 * (y + 0.5) / height - 1)
    return Image.fromarray(np.uint8(255 * np.clip(5 - 5 * distance, 0, 1)))


def with_hole(photo: Image.Image) -> Image.Image:
    """The photograph with its upper left quarter cut out, on white."""
    holed = photo.copy()
    holed.paste("white", (0, 0, photo.width // 2, photo.height // 2))
    return holed


# --- how it is written --------------------------------------------------------------------------------------------


def plainly(**options: Any) -> Callable[[Image.Image, Path], None]:
    """By Pillow, in the format that the file's suffix means unless `options` says otherwise."""
    return lambda photo, path: photo.save(path, **options)


def turned(orientation: int, **options: Any) -> Callable[[Image.Image, Path], None]:
    """As a camera held otherwise stores it: turned or mirrored pixels, and in EXIF how to look at them."""
    back = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }

    def write(photo: Image.Image, path: Path) -> None:
        exif = Image.Exif()
        exif[Base.Orientation] = orientation
        stored = photo.transpose(back[orientation]) if orientation in back else photo
        stored.save(path, exif=exif, **options)

    return write


def in_palette(photo: Image.Image, path: Path) -> None:
    """256 colours, chosen for this photograph."""
    photo.quantize(256, dither=Image.Dither.NONE).save(path)


def in_palette_with_hole(photo: Image.Image, path: Path) -> None:
    """255 colours, and one that is transparent in the upper left quarter."""
    indexed = photo.quantize(255, dither=Image.Dither.NONE)
    indexed.putpalette([*(indexed.getpalette() or [])[: 3 * 255], 255, 0, 255])
    indexed.paste(255, (0, 0, photo.width // 2, photo.height // 2))
    indexed.save(path, transparency=255)


def cut_out(photo: Image.Image, path: Path) -> None:
    """With a channel that says how opaque each pixel is; what lies under the transparent ones is black."""
    shown = Image.composite(photo, Image.new(photo.mode, photo.size), mask(photo).point(lambda a: 255 * (a > 0)))
    shown.putalpha(mask(photo))
    shown.save(path, lossless=True)


def deep(photo: Image.Image, path: Path) -> None:
    """Grey in 16 bits, with something in the lower eight."""
    levels = np.asarray(grey(photo)).astype(np.uint16)
    Image.fromarray(levels * 257 - (levels > 0) * np.uint16(100)).save(path)


def deep_negative(photo: Image.Image, path: Path) -> None:
    """Grey in 16 bits in a TIFF in which 0 is white, as scanners write them."""
    deep(ImageOps.invert(photo), path)
    black_is_zero, white_is_zero = (struct.pack("<HHIH", Base.PhotometricInterpretation, 3, 1, v) for v in (1, 0))
    path.write_bytes(path.read_bytes().replace(black_is_zero, white_is_zero))


def inks(photo: Image.Image) -> Image.Image:
    """The photograph in CMYK, as much of it as can be in black."""
    levels = np.asarray(photo).astype(float)
    lightest = np.maximum(levels.max(2, keepdims=True), 1)
    planes = np.concatenate([255 - 255 * levels / lightest, 255 - lightest], 2)
    return Image.fromarray(np.uint8(planes.round()), "CMYK")


def cmyk(photo: Image.Image, path: Path) -> None:
    """In inks. In a JPEG Adobe's way, which is Pillow's too: 255 is no ink."""
    inks(photo).save(path, quality=95)


def ycck(photo: Image.Image, path: Path) -> None:
    """In inks as Photoshop writes them: the first three as luminance and two colour differences."""
    *colours, black = inks(photo).split()
    planes = Image.merge("RGB", colours).convert("YCbCr").split()
    stored = Image.merge("CMYK", [*planes, ImageChops.invert(black)])
    ImageChops.invert(stored).save(path, quality=95, subsampling=0)  # Pillow inverts what it writes, once more
    marker = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00"  # APP14; its last byte says how to read the planes
    data = path.read_bytes()
    path.write_bytes(data.replace(marker + b"\x00", marker + b"\x02"))


def moving(photo: Image.Image, path: Path) -> None:
    """Two frames, the second a negative."""
    frames = [frame.quantize(256, dither=Image.Dither.NONE) for frame in (photo, ImageOps.invert(photo))]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=200)


FORMS = {
    "plain.png": Form(plainly()),
    "plain.bmp": Form(plainly()),
    "plain.jpg": Form(plainly(quality=90), error=4),
    "plain.jfif": Form(plainly(format="JPEG", quality=92), error=4),  # what browsers on Windows call a JPEG
    "plain.webp": Form(plainly(quality=90), error=4),
    "progressive.jpg": Form(plainly(quality=90, progressive=True), error=4),
    "a jpeg in truth.png": Form(plainly(format="JPEG", quality=88), error=4),
    **{f"turned {k}.jpg": Form(turned(k, quality=90), error=4) for k in range(1, 9)},
    "turned 6.png": Form(turned(6)),
    "turned 6.tiff": Form(turned(6)),
    "turned 6.webp": Form(turned(6, lossless=True)),
    "grey.jpg": Form(lambda photo, path: grey(photo).save(path, quality=90), grey, error=4),
    "grey.png": Form(lambda photo, path: grey(photo).save(path), grey),
    "palette.png": Form(in_palette, error=4),
    "palette.gif": Form(in_palette, error=4),
    "palette with a hole.png": Form(in_palette_with_hole, with_hole, error=4),
    "palette with a hole.gif": Form(in_palette_with_hole, with_hole, error=4),
    "cut out.png": Form(cut_out, on_white, error=0.5),
    "cut out.webp": Form(cut_out, on_white, error=0.5),
    "cut out, grey.png": Form(
        lambda photo, path: cut_out(grey(photo), path), lambda photo: on_white(grey(photo)), error=0.5
    ),
    "deep.png": Form(deep, grey, error=0.5),
    "deep.tiff": Form(deep, grey, error=0.5),
    "deep, 0 is white.tiff": Form(deep_negative, grey, error=1),
    "cmyk.jpg": Form(cmyk, error=4),
    "cmyk.tiff": Form(cmyk, error=1),
    "ycck.jpg": Form(ycck, error=4),
    "moving.gif": Form(moving, error=4),
}


# --- the folders --------------------------------------------------------------------------------------------------


def photographs(folder: Path | None = None) -> dict[str, Image.Image]:
    """The coloured photographs of a folder by name, at most a few and none large; or two that are drawn."""
    found: dict[str, Image.Image] = {}
    for path in sorted(folder.glob("*")) if folder is not None else []:
        if path.suffix.lower() in (".png", ".jpg", ".jpeg") and len(found) < AT_MOST:
            with Image.open(path) as image:
                if image.mode == "RGB":
                    found[path.stem] = ImageOps.contain(image, (LARGEST, LARGEST))
    return found if len(found) >= 2 else {"sunset": sunset(), "meadow": meadow()}


def sunset(width: int = 150, height: int = 100) -> Image.Image:
    """A sun that sinks into the sea, to the left."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    sky = np.stack([230 - 60 * y, 90 + 80 * y, 60 + 40 * x], 2)
    sea = np.stack([30 + 120 * (1 - y), 50 + 20 * x, 90 + 60 * y], 2)
    image = Image.fromarray(np.uint8(np.where(y[:, :, None] < 0.65, sky, sea)))
    ImageDraw.Draw(image).ellipse((20, 35, 60, 75), fill=(255, 220, 120))
    return image


def meadow(width: int = 90, height: int = 140) -> Image.Image:
    """A tree in the grass, to the right."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    sky = np.stack([120 + 80 * y, 170 + 40 * y, 235 - 10 * x], 2)
    grass = np.stack([60 + 30 * x, 150 - 60 * y, 40 + 20 * y], 2)
    image = Image.fromarray(np.uint8(np.where(y[:, :, None] < 0.6, sky, grass)))
    draw = ImageDraw.Draw(image)
    draw.rectangle((62, 60, 70, 110), fill=(90, 60, 30))
    draw.ellipse((42, 20, 88, 75), fill=(20, 90, 30))
    return image


def write(folder: Path, photos: dict[str, Image.Image]) -> None:
    """Every photograph in every form, as folder/SUBJECT/FORM."""
    for subject, photo in photos.items():
        (folder / subject).mkdir(parents=True, exist_ok=True)
        for name, form in FORMS.items():
            form.write(photo, folder / subject / name)


def cut_short(path: Path) -> None:
    """Leave the first two thirds of a file, as a download does that was broken off."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def whole(folder: Path) -> None:
    """Two drawn images in every form."""
    write(folder, photographs())


def damaged(folder: Path) -> None:
    """The same, and two of the files cut short, for `cutaway check` to name."""
    whole(folder)
    subject = min(folder.iterdir())
    for name in ("progressive.jpg", "plain.png"):
        cut_short(subject / name)
