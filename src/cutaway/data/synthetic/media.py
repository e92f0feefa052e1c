"""Example images, sounds and videos.

Image folders have one folder for each subject, with one image in every common file format. The formats cover palettes,
CMYK, bit depths, EXIF orientation and transparency.

Scenes of handwritten digits come with boxes in COCO format, with masks, and with captions. Images, sounds and videos
come in class folders, and sounds also with transcripts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageDraw, ImageOps
from PIL.ExifTags import Base

from ..datasets.digit_scenes import (
    CLASSES,
    SMALL,
    SMALL_SIDE,
    compose_described,
    compose_splits,
    scikit_learn_digits,
    small_digits,
    small_scenes,
)
from ..folders import CAPTIONS
from ..images.segmentation import palette

LARGEST = 192  # pixels of the longer side, to keep files small
AT_MOST = 4  # maximal number of subjects


@dataclass(frozen=True)
class FileFormat:
    """One file format of a photograph: how it is written and how it should look."""

    write: Callable[[Image.Image, Path], None]
    seen: Callable[[Image.Image], Image.Image] = lambda photo: photo
    error: float = 0.0  # mean difference in levels due to the format


# --- expected appearance -------------------------------------------------------------------------------------------


def grey(photo: Image.Image) -> Image.Image:
    """Convert the photograph to grey."""
    return photo.convert("L")


def on_white(photo: Image.Image) -> Image.Image:
    """Composite the masked photograph on white."""
    return Image.composite(photo, Image.new(photo.mode, photo.size, "white"), mask(photo))


def mask(photo: Image.Image) -> Image.Image:
    """Return the opacity of a cut-out: an ellipse with a soft edge, from 255 inside to 0 in the corners."""
    width, height = photo.size
    y, x = np.mgrid[0:height, 0:width]
    distance = np.hypot(2 * (x + 0.5) / width - 1, 2 * (y + 0.5) / height - 1)
    return Image.fromarray(np.uint8(255 * np.clip(5 - 5 * distance, 0, 1)))


def with_hole(photo: Image.Image) -> Image.Image:
    """Return the photograph with its upper left quarter cut out, on white."""
    holed = photo.copy()
    holed.paste("white", (0, 0, photo.width // 2, photo.height // 2))
    return holed


# --- writers --------------------------------------------------------------------------------------------------------


def plain_writer(**options: Any) -> Callable[[Image.Image, Path], None]:
    """Return a writer that saves with Pillow in the format of the file's suffix unless `options` gives another."""
    return lambda photo, path: photo.save(path, **options)


def orientation_writer(orientation: int, **options: Any) -> Callable[[Image.Image, Path], None]:
    """Return a writer that stores rotated or mirrored pixels with an EXIF orientation, as cameras do."""
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


def write_palette(photo: Image.Image, path: Path) -> None:
    """Save with a palette of 256 colors that fits this photograph."""
    photo.quantize(256, dither=Image.Dither.NONE).save(path)


def write_palette_with_hole(photo: Image.Image, path: Path) -> None:
    """Save with a palette of 255 colors and one that is transparent in the upper left quarter."""
    indexed = photo.quantize(255, dither=Image.Dither.NONE)
    indexed.putpalette([*(indexed.getpalette() or [])[: 3 * 255], 255, 0, 255])
    indexed.paste(255, (0, 0, photo.width // 2, photo.height // 2))
    indexed.save(path, transparency=255)


def write_cut_out(photo: Image.Image, path: Path) -> None:
    """Save with an alpha channel. Fully transparent pixels are black."""
    shown = Image.composite(photo, Image.new(photo.mode, photo.size), mask(photo).point(lambda a: 255 * (a > 0)))
    shown.putalpha(mask(photo))
    shown.save(path, lossless=True)


def write_16_bit(photo: Image.Image, path: Path) -> None:
    """Save as 16-bit grey with non-zero lower bits."""
    levels = np.asarray(grey(photo)).astype(np.uint16)
    Image.fromarray(levels * 257 - (levels > 0) * np.uint16(100)).save(path)


def write_16_bit_negative(photo: Image.Image, path: Path) -> None:
    """Save as 16-bit grey in a TIFF in which 0 is white, as scanners write."""
    write_16_bit(ImageOps.invert(photo), path)
    black_is_zero, white_is_zero = (struct.pack("<HHIH", Base.PhotometricInterpretation, 3, 1, v) for v in (1, 0))
    path.write_bytes(path.read_bytes().replace(black_is_zero, white_is_zero))


def to_cmyk(photo: Image.Image) -> Image.Image:
    """Convert the photograph to CMYK with maximal black."""
    levels = np.asarray(photo).astype(float)
    lightest = np.maximum(levels.max(2, keepdims=True), 1)
    planes = np.concatenate([255 - 255 * levels / lightest, 255 - lightest], 2)
    return Image.fromarray(np.uint8(planes.round()), "CMYK")


def write_cmyk(photo: Image.Image, path: Path) -> None:
    """Save as CMYK. JPEGs use Adobe's and Pillow's convention: 255 is no ink."""
    to_cmyk(photo).save(path, quality=95)


def write_ycck(photo: Image.Image, path: Path) -> None:
    """Save as YCCK, as Photoshop writes CMYK: the first three inks as luminance and two color differences."""
    *colours, black = to_cmyk(photo).split()
    planes = Image.merge("RGB", colours).convert("YCbCr").split()
    stored = Image.merge("CMYK", [*planes, ImageChops.invert(black)])
    ImageChops.invert(stored).save(path, quality=95, subsampling=0)  # Pillow inverts again on writing
    marker = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00"  # APP14; its last byte is the color transform
    data = path.read_bytes()
    path.write_bytes(data.replace(marker + b"\x00", marker + b"\x02"))


def write_animation(photo: Image.Image, path: Path) -> None:
    """Save two frames, the second a negative."""
    frames = [frame.quantize(256, dither=Image.Dither.NONE) for frame in (photo, ImageOps.invert(photo))]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=200)


FORMS = {
    "plain.png": FileFormat(plain_writer()),
    "plain.bmp": FileFormat(plain_writer()),
    "plain.jpg": FileFormat(plain_writer(quality=90), error=4),
    "plain.jfif": FileFormat(
        plain_writer(format="JPEG", quality=92), error=4
    ),  # the name of a JPEG in browsers on Windows
    "plain.webp": FileFormat(plain_writer(quality=90), error=4),
    "progressive.jpg": FileFormat(plain_writer(quality=90, progressive=True), error=4),
    "a jpeg in truth.png": FileFormat(plain_writer(format="JPEG", quality=88), error=4),
    **{f"turned {k}.jpg": FileFormat(orientation_writer(k, quality=90), error=4) for k in range(1, 9)},
    "turned 6.png": FileFormat(orientation_writer(6)),
    "turned 6.tiff": FileFormat(orientation_writer(6)),
    "turned 6.webp": FileFormat(orientation_writer(6, lossless=True)),
    "grey.jpg": FileFormat(lambda photo, path: grey(photo).save(path, quality=90), grey, error=4),
    "grey.png": FileFormat(lambda photo, path: grey(photo).save(path), grey),
    "palette.png": FileFormat(write_palette, error=4),
    "palette.gif": FileFormat(write_palette, error=4),
    "palette with a hole.png": FileFormat(write_palette_with_hole, with_hole, error=4),
    "palette with a hole.gif": FileFormat(write_palette_with_hole, with_hole, error=4),
    "cut out.png": FileFormat(write_cut_out, on_white, error=0.5),
    "cut out.webp": FileFormat(write_cut_out, on_white, error=0.5),
    "cut out, grey.png": FileFormat(
        lambda photo, path: write_cut_out(grey(photo), path), lambda photo: on_white(grey(photo)), error=0.5
    ),
    "deep.png": FileFormat(write_16_bit, grey, error=0.5),
    "deep.tiff": FileFormat(write_16_bit, grey, error=0.5),
    "deep, 0 is white.tiff": FileFormat(write_16_bit_negative, grey, error=1),
    "cmyk.jpg": FileFormat(write_cmyk, error=4),
    "cmyk.tiff": FileFormat(write_cmyk, error=1),
    "ycck.jpg": FileFormat(write_ycck, error=4),
    "moving.gif": FileFormat(write_animation, error=4),
}


# --- the folders --------------------------------------------------------------------------------------------------


def photographs(folder: Path | None = None) -> dict[str, Image.Image]:
    """Load at most a few small color photographs of a folder by name, or draw two."""
    found: dict[str, Image.Image] = {}
    for path in sorted(folder.glob("*")) if folder is not None else []:
        if path.suffix.lower() in (".png", ".jpg", ".jpeg") and len(found) < AT_MOST:
            with Image.open(path) as image:
                if image.mode == "RGB":
                    found[path.stem] = ImageOps.contain(image, (LARGEST, LARGEST))
    return found if len(found) >= 2 else {"sunset": sunset(), "meadow": meadow()}


def sunset(width: int = 150, height: int = 100) -> Image.Image:
    """Draw a sun that sets in the sea, to the left."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    sky = np.stack([230 - 60 * y, 90 + 80 * y, 60 + 40 * x], 2)
    sea = np.stack([30 + 120 * (1 - y), 50 + 20 * x, 90 + 60 * y], 2)
    image = Image.fromarray(np.uint8(np.where(y[:, :, None] < 0.65, sky, sea)))
    ImageDraw.Draw(image).ellipse((20, 35, 60, 75), fill=(255, 220, 120))
    return image


def meadow(width: int = 90, height: int = 140) -> Image.Image:
    """Draw a tree in the grass, to the right."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    sky = np.stack([120 + 80 * y, 170 + 40 * y, 235 - 10 * x], 2)
    grass = np.stack([60 + 30 * x, 150 - 60 * y, 40 + 20 * y], 2)
    image = Image.fromarray(np.uint8(np.where(y[:, :, None] < 0.6, sky, grass)))
    draw = ImageDraw.Draw(image)
    draw.rectangle((62, 60, 70, 110), fill=(90, 60, 30))
    draw.ellipse((42, 20, 88, 75), fill=(20, 90, 30))
    return image


def write_folder(folder: Path, photos: dict[str, Image.Image]) -> None:
    """Write every photograph in every format, as folder/SUBJECT/FORM."""
    for subject, photo in photos.items():
        (folder / subject).mkdir(parents=True, exist_ok=True)
        for name, form in FORMS.items():
            form.write(photo, folder / subject / name)


def truncate_file(path: Path) -> None:
    """Truncate a file to its first two thirds, as an interrupted download does."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def write_photo_folder(folder: Path) -> None:
    """Write two drawn images in every format."""
    write_folder(folder, photographs())


def write_damaged_folder(folder: Path) -> None:
    """Write two drawn images in every format, with two truncated files that `cutaway check` should report."""
    write_photo_folder(folder)
    subject = min(folder.iterdir())
    for name in ("progressive.jpg", "plain.png"):
        truncate_file(subject / name)


COUNTS = {"train": 900, "val": 100, "test": 200}


def scenes(folder: Path) -> None:
    """Write scenes of scikit-learn's digits as PNG files in train/, val/ and test/, each with an annotations.json.

    No digit is in the scenes of two splits.
    """
    composed = compose_splits(small_digits(), COUNTS, SMALL_SIDE, smallest=12, largest=24)
    for split, of_split in composed.items():
        (folder / split).mkdir(parents=True)
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for i, (pixels, placed) in enumerate(zip(of_split.pixels, of_split.placed)):
            name = f"{i:04}.png"
            Image.fromarray(pixels).save(folder / split / name)
            images.append({"id": i, "file_name": name, "width": SMALL_SIDE, "height": SMALL_SIDE})
            for d in placed:
                box = [d.left, d.top, d.right - d.left, d.bottom - d.top]
                annotations.append(
                    {
                        "id": len(annotations),
                        "image_id": i,
                        "category_id": d.label,
                        "bbox": box,
                        "area": box[2] * box[3],
                    }
                )
        categories = [{"id": k, "name": name} for k, name in enumerate(DIGIT_NAMES)]
        document = {"images": images, "annotations": annotations, "categories": categories}
        (folder / split / "annotations.json").write_text(json.dumps(document))


def masks(path: Path) -> None:
    """Write the scenes of `digit_scenes_small` to train/ and test/, which share no digit."""
    colours = palette()
    for split, scenes in zip(("train", "test"), small_scenes()):
        for folder in ("images", "masks"):
            (path / split / folder).mkdir(parents=True)
        for i, (pixels, mask) in enumerate(zip(scenes.pixels, scenes.classes()), 1):
            Image.fromarray(pixels).save(path / split / "images" / f"{i}.png")
            classes = Image.fromarray(mask)
            classes.putpalette(colours)
            classes.save(path / split / "masks" / f"{i}.png")
    (path / "classes.txt").write_text("\n".join(CLASSES) + "\n", encoding="utf-8")


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


Array = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

DIGIT_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000  # samples per second
LOW, HIGH = (697, 770, 852, 941), (1209, 1336, 1477)  # Hz, of the rows and columns of a telephone keypad
KEYS = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "star", "0", "hash")
FRAMES, SIDE, SPRITE = 12, 32, 12  # of a video: frames, side in pixels, and side of the moving object in pixels
WAYS = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}  # rows and columns


def scans(folder: Path) -> None:
    """Write 1 797 scanned handwritten digits as PNG files in the folders zero to nine."""
    from sklearn.datasets import load_digits

    data = load_digits()
    for i, (image, k) in enumerate(zip(data.images, data.target, strict=True)):
        path = folder / DIGIT_NAMES[k] / f"{i:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.uint8(image * (255 / 16))).resize((32, 32)).save(path)


def sounds(folder: Path, each: int = 25) -> None:
    """Write telephone key tones (ITU-T Q.23) as .wav files in the folders 0 to 9, star and hash.

    They are generated with line effects: hum, hiss and a slightly wrong pitch.
    """
    import soundfile

    rng = np.random.default_rng(0)
    for key, (low, high) in zip(KEYS, product(LOW, HIGH), strict=True):
        (folder / key).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            time = np.arange(int(RATE * rng.uniform(0.15, 0.3))) / RATE
            soundfile.write(folder / key / f"{i:02}.wav", _key_tone(time, low, high, rng), RATE)


def spelled(folder: Path, count: int = 300) -> None:
    """Write telephone numbers of 3 to 8 digits as .wav files, with transcripts.tsv.

    The keys of a number are dialled one after another on the same line.
    """
    import soundfile

    rng = np.random.default_rng(0)
    tones = dict(zip(KEYS, product(LOW, HIGH), strict=True))
    folder.mkdir(parents=True)
    lines = ["file\ttranscript"]
    for i in range(count):
        digits = [str(digit) for digit in rng.integers(0, 10, rng.integers(3, 9))]
        keys = [np.arange(int(RATE * rng.uniform(0.15, 0.3))) / RATE for _ in digits]
        samples = np.concatenate([_key_tone(time, *tones[digit], rng) for time, digit in zip(keys, digits)])
        soundfile.write(folder / f"{i:03}.wav", samples, RATE)
        lines.append(f"{i:03}.wav\t{' '.join(digits)}")
    (folder / "transcripts.tsv").write_text("\n".join([*lines, ""]), encoding="utf-8")


def _key_tone(time: Array, low: int, high: int, rng: np.random.Generator) -> Array:
    """Generate the samples (n,) at these times of a key that is pressed and released, within −1 and 1."""
    tone = np.zeros(len(time))
    for pitch in (low, high):
        heard = pitch * rng.uniform(0.985, 1.015)
        tone += rng.uniform(0.5, 1) * np.sin(2 * np.pi * (heard * time + rng.uniform()))
    down, up = rng.uniform(0, 0.2), rng.uniform(0.7, 1)
    part = np.linspace(0, 1, len(time))
    hum = rng.uniform(0, 0.4) * np.sin(2 * np.pi * (50 * time + rng.uniform()))
    return 0.25 * (tone * ((part > down) & (part < up)) + hum + rng.normal(0, 0.4, len(time))).clip(-4, 4)


def videos(folder: Path, each: int = 80) -> None:
    """Write handwritten digits that move left, right, up or down as .avi files in the folders of those names."""
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(0)
    images = load_digits().images
    room = SIDE - SPRITE
    for way, step in WAYS.items():
        (folder / way).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            digit = Image.fromarray(np.uint8(images[rng.integers(len(images))] * (255 / 16)))
            sprite = np.asarray(digit.resize((SPRITE, SPRITE), Image.Resampling.BILINEAR))
            begin, length = rng.uniform(0, room, 2), rng.uniform(10, room)
            begin = np.where(step, rng.uniform(0, room - length), begin)  # starts so that it stays inside
            frames = rng.normal(20, 10, (FRAMES, SIDE, SIDE)).clip(0, 60).astype(np.uint8)
            for t, frame in enumerate(frames):
                gone = length * t / (FRAMES - 1)
                top, left = (round(b + (gone if s > 0 else length - gone) * bool(s)) for b, s in zip(begin, step))
                frame[top : top + SPRITE, left : left + SPRITE] |= sprite
            _film(folder / way / f"{i:02}.avi", frames)


def _film(path: Path, frames: Bytes) -> None:
    """Write grey frames (T, H, W) as a lossless video file."""
    import av

    stream: Any
    with av.open(str(path), "w", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("ffv1", rate=12, width=SIDE, height=SIDE, pix_fmt="gray")
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="gray")))
        container.mux(stream.encode(None))
