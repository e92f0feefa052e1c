"""Image files: listing, validation and decoding.

Images are read upright, as grey or RGB, then resized. Pixels are uint8 throughout.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.ExifTags import Base
from PIL.TiffImagePlugin import TiffImageFile

from ...core.errors import DataError, Problem, UnsupportedDataError
from ...core.files import exists, missing_file_error, require_regular_file
from ..findings import REPAIR
from ..folders import IMAGES, list_entries, subfolders
from ..streaming.file_index import PackedSequence, Stored, open_source, read_content

Arrays = dict[str, npt.NDArray[Any]]

THREADS = 8  # of file checks, which mostly wait for the disk


@dataclass(frozen=True)
class ImageFileInfo:
    """Properties of one checked image file."""

    digest: str  # sha256 of its bytes
    facts: ImageHeader


class ImageFileTable(PackedSequence[ImageFileInfo]):
    """Properties of many checked image files, stored as arrays."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Store the arrays that `packed` returns."""
        super().__init__(np.arange(len(arrays["digest"])))
        self.arrays = arrays

    def item(self, row: int) -> ImageFileInfo:
        """Return the properties of one file."""
        height, width, grey, moving = (self.arrays[key][row].item() for key in ("height", "width", "grey", "moving"))
        return ImageFileInfo(self.arrays["digest"][row].tobytes().hex(), ImageHeader((height, width), grey, moving))

    def column(self, key: str) -> npt.NDArray[Any]:
        """Return one property of all files, (n,): `height`, `width`, `grey` or `moving`."""
        return self.arrays[key][self.rows]

    @property
    def sizes(self) -> set[Size]:
        """Return the distinct image sizes."""
        both = np.unique(np.stack([self.column("height"), self.column("width")], 1), axis=0)
        return {(height, width) for height, width in both.tolist()}

    @property
    def alike(self) -> npt.NDArray[np.uint64]:
        """Return a number for each file, (n,), equal for identical files: the first 64 bits of the sha256."""
        return np.ascontiguousarray(self.column("digest")[:, :8]).view(np.uint64)[:, 0]


def pack_image_info(looks: Sequence[ImageFileInfo]) -> Arrays:
    """Pack file properties into arrays: `digest` (n, 32), `height`, `width`, `grey`, `moving` (n,)."""
    if isinstance(looks, ImageFileTable):
        return dict(looks.arrays)
    sizes = np.array([look.facts.size for look in looks], np.int32).reshape(-1, 2)
    return {
        "digest": np.frombuffer(b"".join(bytes.fromhex(look.digest) for look in looks), np.uint8).reshape(-1, 32),
        "height": sizes[:, 0].copy(),
        "width": sizes[:, 1].copy(),
        "grey": np.array([look.facts.grey for look in looks], bool),
        "moving": np.array([look.facts.moving for look in looks], bool),
    }


def list_image_files(path: Path) -> list[Path]:
    """Return the image file itself, or the sorted image files directly in a folder.

    Raises DataError if there are none.
    """
    if path.is_dir():
        found = [p for p in list_entries(path) if IMAGES.fits(p)]
        if not found:
            inside = next((p for p in subfolders(path) if any(IMAGES.fits(file) for file in list_entries(p))), None)
            raise UnsupportedDataError(
                f"{path} is a folder without image files ({', '.join(IMAGES.suffixes)}).",
                fix=f"Those in its folders are taken where the folder is given: {inside}" if inside else "",
            )
        return found
    if not exists(path):
        raise missing_file_error(path, "image")
    if not IMAGES.fits(path):
        raise UnsupportedDataError(f"{path} is not an image file: those end in {', '.join(IMAGES.suffixes)}.")
    return [path]


def inspect_images(paths: Sequence[Path]) -> ImageFileTable:
    """Check every file once: hash and header. Raises DataError that names every unusable file."""
    with warnings.catch_warnings(), ThreadPoolExecutor(THREADS) as threads:
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # such images are rejected by name instead
        looks = list(threads.map(inspect_image, paths))
    if problems := [seen for seen in looks if isinstance(seen, Problem)]:
        raise unusable_images_error(problems, len(paths))
    return ImageFileTable(pack_image_info([seen for seen in looks if isinstance(seen, ImageFileInfo)]))


def inspect_image(source: Path | Stored) -> ImageFileInfo | Problem:
    """Hash one file and read its header. Returns a Problem if it is not a usable image."""
    try:
        data = read_content(source)
        return ImageFileInfo(hashlib.sha256(data).hexdigest(), read_header(data, str(source)))
    except OSError as error:
        return Problem(str(source), f"it cannot be read ({error.strerror or error})")
    except DataError as error:
        return error.problems[0]


def check_decodable(source: Path | Stored, seen: ImageFileInfo) -> Problem | None:
    """Decode an image fully. Returns a Problem if decoding fails."""
    try:
        read_image(source, str(source))
    except DataError as error:
        return error.problems[0]
    return None


def unusable_images_error(problems: Sequence[Problem], total: int) -> DataError:
    """Build the error that names these of `total` image files."""
    some = f"{len(problems):,} of {total:,} image files" if total > 1 else "The image file"
    return DataError(f"{some} cannot be used:", problems, fix=REPAIR)


Pixels = npt.NDArray[np.uint8]
Size = tuple[int, int]  # height, width
Source = Path | Stored | Image.Image | np.ndarray[Any, Any]  # an array is (H, W), (H, W, 3) or (H, W, 4)

MAX_MEGAPIXELS = 64
GREY_MODES = ("1", "L", "LA", "La", "I", "F")
DAMAGE = Exception  # Pillow raises arbitrary exceptions for damaged files


@dataclass(frozen=True)
class ImageHeader:
    """Header data of an image, read without decoding pixels."""

    size: Size  # after EXIF rotation
    grey: bool
    moving: bool  # True for several frames or pages; only the first is read


def read_header(data: bytes, name: str) -> ImageHeader:
    """Read the header of the file in `data`. Raises DataError, with a Problem, if it is not a usable image."""
    if not data:
        raise _unusable(name, "it is empty (0 bytes)")
    try:
        with Image.open(io.BytesIO(data)) as image:
            reject_size(image, name)
            moving = image.format != "MPO" and getattr(image, "is_animated", False)  # MPO: phone JPEG
            return ImageHeader(_upright_size(image), _is_grey(image), moving)
    except Image.DecompressionBombError as error:
        raise _unusable(name, f"it is far too large: {error}") from error
    except UnidentifiedImageError as error:
        raise _unusable(name, "it is not readable as an image") from error
    except (DataError, MemoryError):
        raise
    except DAMAGE as error:
        raise _unusable(name, f"it is damaged or cut short ({error})") from error


def read_image(
    source: Source, name: str, channels: int | None = None, drawn_at: Callable[[Size], Size] | None = None
) -> Image.Image:
    """Decode an image upright, in mode L (`channels` 1) or RGB (3). None keeps grey images grey.

    16 bits are scaled to 8, transparency is composited on white, palettes and CMYK are converted. `drawn_at` maps the
    full size to the size at which the image will be drawn. A JPEG is then decoded at the smallest of 1/1, 1/2, 1/4, 1/8
    of its size that is not smaller, which is much faster. Raises DataError, with a Problem, if the image cannot be
    read. `name` identifies images without a path.
    """
    name = str(source) if isinstance(source, Path | Stored) else name
    try:
        if isinstance(source, Image.Image):
            return _to_grey_or_rgb(source, channels, name)
        if isinstance(source, np.ndarray):
            return _to_grey_or_rgb(_from_array(source, name), channels, name)
        if isinstance(source, Path):
            require_regular_file(source)
        with Image.open(open_source(source)) as image:
            reject_size(image, name)
            if drawn_at is not None and image.format in ("JPEG", "MPO"):
                upright = _upright_size(image)
                drawn = drawn_at(upright)
                image.draft(None, drawn[::-1] if upright == image.size[::-1] else drawn)
            image.load()
            return _to_grey_or_rgb(image, channels, name)
    except (DataError, MemoryError):
        raise
    except DAMAGE as error:
        raise _unusable(name, f"it is damaged, cut short or of an unknown form ({error})") from error


def resize(
    image: Image.Image,
    size: Size,
    box: tuple[float, float, float, float] | None = None,
    resample: Image.Resampling = Image.Resampling.BILINEAR,
) -> Image.Image:
    """Resize the image, or its part `box` (left, top, right, bottom), to `size`.

    The default is antialiased bilinear resampling.
    """
    if box is None and image.size == size[::-1]:
        return image
    return image.resize(size[::-1], resample, box=box)


def crop_to(image: Image.Image, size: Size, resample: Image.Resampling = Image.Resampling.BILINEAR) -> Image.Image:
    """Crop the largest central part with the aspect ratio of `size` and resize it to `size`."""
    (width, height), (rows, columns) = image.size, size
    wide = width * rows > height * columns
    if height == rows if wide else width == columns:  # no scaling: crop whole pixels instead of interpolating
        left, top = (width - columns) // 2, (height - rows) // 2
        return image.crop((left, top, left + columns, top + rows))
    aside = (width - height * columns / rows) / 2 if wide else 0.0
    above = 0.0 if wide else max(0.0, (height - width * rows / columns) / 2)  # rounding must not give a negative offset
    return resize(image, size, (aside, above, width - aside, height - above), resample)


def pad_to(
    image: Image.Image,
    size: Size,
    box: Size,
    background: tuple[int, ...],
    resample: Image.Resampling = Image.Resampling.BILINEAR,
) -> Image.Image:
    """Resize the whole image to fit into `box` and center it on a background of `size`."""
    image = resize(image, size_within(image.size[::-1], box), resample=resample)
    if image.size == size[::-1]:
        return image
    padded = Image.new(image.mode, size[::-1], background[0] if len(background) == 1 else background)
    padded.paste(image, ((size[1] - image.size[0]) // 2, (size[0] - image.size[1]) // 2))
    return padded


def size_within(size: Size, box: Size) -> Size:
    """Return the largest size with the aspect ratio of `size` that fits into `box`."""
    scale = min(box[0] / size[0], box[1] / size[1])
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def size_covering(size: Size, box: Size) -> Size:
    """Return the smallest size with the aspect ratio of `size` that covers `box`."""
    scale = max(box[0] / size[0], box[1] / size[1])
    return round(size[0] * scale), round(size[1] * scale)


def as_pixels(image: Image.Image) -> Pixels:
    """Convert an image in mode L or RGB to an array (H, W, C)."""
    array = np.asarray(image)
    return array[:, :, None] if array.ndim == 2 else array


def as_image(pixels: Pixels) -> Image.Image:
    """Convert pixels (H, W, C) with one or three channels to an image."""
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def _to_grey_or_rgb(image: Image.Image, channels: int | None, name: str) -> Image.Image:
    """Convert an image to 8-bit grey or RGB, upright and without transparency, over white."""
    reject_size(image, name)
    negative = isinstance(image, TiffImageFile) and image.tag_v2.get(Base.PhotometricInterpretation) == 0
    if image.getexif().get(Base.Orientation, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if channels is None:
        channels = 1 if _is_grey(image) else 3
    if image.mode.startswith("I"):
        image = _from_16_bits(image, name)
        image = ImageOps.invert(image) if negative else image  # 0 is white there; Pillow inverts 8-bit images only
    elif image.mode == "F":
        raise _unusable(name, "its pixels are floating-point numbers, of unknown range: save it with 8 or 16 bits")
    elif image.has_transparency_data:
        above = image.convert("RGBA")
        image = Image.new("RGBA", image.size, "white")
        image.alpha_composite(above)
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _is_grey(image: Image.Image) -> bool:
    return image.mode.split(";")[0] in GREY_MODES


def _from_array(pixels: np.ndarray[Any, Any], name: str) -> Image.Image:
    grey = pixels.ndim == 2 and pixels.dtype in (np.uint8, np.uint16)
    if not grey and not (pixels.ndim == 3 and pixels.shape[2] in (3, 4) and pixels.dtype == np.uint8):
        raise _unusable(
            name,
            f"it is an array of {pixels.dtype} of shape {pixels.shape}: give (H, W), (H, W, 3) or (H, W, 4) of uint8, "
            "0 to 255, or (H, W) of uint16",
        )
    if not pixels.size:
        raise _unusable(name, f"it has no pixels (shape {pixels.shape})")
    return Image.fromarray(pixels)


def _upright_size(image: Image.Image) -> Size:
    """Return the upright size from the header.

    The orientation of a PNG that stores it after the pixels, which is rare, is not applied.
    """
    width, height = image.size
    if isinstance(image, TiffImageFile):  # whether Pillow reports the upright size here depends on its version
        width, height = image.tag_v2[Base.ImageWidth], image.tag_v2[Base.ImageLength]
    in_head = image.format != "PNG" or "exif" in image.info  # reading more would decode a whole PNG
    turned = in_head and image.getexif().get(Base.Orientation, 1) in (5, 6, 7, 8)
    return (width, height) if turned else (height, width)


def _from_16_bits(image: Image.Image, name: str) -> Image.Image:
    values = np.asarray(image).astype(np.int64)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise _unusable(name, f"its pixels run from {low} to {high}: save it with 8 or 16 bits")
    return Image.fromarray(np.round(values / 257).astype(np.uint8))  # 65535 / 257 = 255


def reject_size(image: Image.Image, name: str) -> None:
    """Raise DataError, with a Problem, for an image without pixels or above the size limit."""
    width, height = image.size
    if not width * height:
        raise _unusable(name, f"it has no pixels ({width} × {height})")
    if width * height > MAX_MEGAPIXELS * 1_000_000:
        raise _unusable(
            name,
            f"it has {width} × {height} pixels, {width * height / 1e6:.0f} megapixels, and more than {MAX_MEGAPIXELS} "
            "are not read: save it smaller",
        )


def reject_unreadable(image: Image.Image, name: str) -> None:
    """Raise DataError, with a Problem, for a PIL image that is closed, damaged, empty or too large."""
    reject_size(image, name)
    try:
        image.load()
    except DAMAGE as error:
        raise _unusable(name, f"it cannot be read ({error})") from error


def _unusable(name: str, what: str) -> DataError:
    return DataError("An image cannot be used:", [Problem(name, what)], fix=REPAIR)
