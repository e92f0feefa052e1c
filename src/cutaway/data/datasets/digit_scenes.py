"""Built-in data sets composed of real handwritten digits: scenes with boxes, masks and captions, and videos.

The scenes replace labelled photographs for masks, boxes and captions. Each is composed from a seed of digits of one
split, so that no handwriting of a test scene occurs in training. The digits are MNIST's or scikit-learn's. Captions
describe relative positions. In the videos scikit-learn's digits move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...core.errors import NotEnoughDataError
from ..build import DataSource
from ..dataset_base import DataSet
from ..folders import FolderContents
from ..images.dataset import box_dataset, mask_dataset, prepare_in_memory
from ..images.detection import Rectangles
from ..modalities import reject_changed
from ..splits import SPLITS, Rows, complete_split
from .catalog import NamedSet, Request
from .formats import read_labelled_idx
from .published import DIGITS, published_source
from .published import NAMED as PUBLISHED
from .toy_data import NAMED as BUILTIN

Pixels = npt.NDArray[np.uint8]
MNIST, SMALL_DIGITS = PUBLISHED["mnist"], BUILTIN["digits"]  # the sources of the digits
INK = 128  # smallest level of ink pixels
TRIES = 30  # attempts to find a free place, after which the scene has one digit fewer


@dataclass(frozen=True)
class Placed:
    """A digit in a scene: the box of its ink, [left, right) × [top, bottom), in pixels."""

    label: int
    source: int  # index of the source digit
    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True)
class Scenes:
    """Grey scenes (n, side, side) with the owner of each pixel, (n, side, side), and the digits of each scene.

    The owner 0 is the background and i + 1 is the i-th digit in order of placement.
    """

    pixels: Pixels
    owners: Pixels
    placed: list[list[Placed]]

    def classes(self) -> Pixels:
        """Return the mask of each scene, (n, side, side): 0 is the background, label + 1 a digit of that label."""
        masks = np.zeros_like(self.owners)
        for mask, owners, placed in zip(masks, self.owners, self.placed):
            lookup = np.array([0, *(digit.label + 1 for digit in placed)], np.uint8)
            mask[:] = lookup[owners]
        return masks


def compose(digits: Pixels, labels: npt.NDArray[np.int64], count: int, side: int, seed: int, **sizes: Any) -> Scenes:
    """Compose `count` scenes. See `composed`."""
    scenes = list(islice(generate_scenes(digits, labels, side, seed, **sizes), count))
    pixels, owners, placed = zip(*scenes)
    return Scenes(np.stack(pixels), np.stack(owners), list(placed))


def generate_scenes(
    digits: Pixels,
    labels: npt.NDArray[np.int64],
    side: int,
    seed: int,
    *,
    fewest: int = 1,
    most: int = 4,
    smallest: float = 16,
    largest: float = 32,
    gap: int = 1,
) -> Iterator[tuple[Pixels, Pixels, list[Placed]]]:
    """Generate scenes endlessly, each of side × side pixels with `fewest` to `most` digits.

    `digits` is (n, h, w), `labels` (n,). Yields the pixels, their owners and the digits, as in `Scenes`. A digit's ink
    is `smallest` to `largest` pixels high with its aspect ratio, and boxes are at least `gap` pixels apart, so that
    each pixel belongs to at most one digit. A scene has fewer digits if no free place is found.
    """
    rng = np.random.default_rng(seed)
    boxes = ink_boxes(digits).tolist()  # of all digits once, because each is drawn several times
    while True:
        scene, owner = np.zeros((2, side, side), np.uint8)
        placed: list[Placed] = []
        for _ in range(int(rng.integers(fewest, most + 1))):
            source = int(rng.integers(len(digits)))
            first, last, near, far = boxes[source]
            ink = scale_ink(digits[source, first:last, near:far], rng.uniform(smallest, largest), side)
            found = _free_place(rng, placed, ink.shape, side, gap)
            if found is None:
                continue
            top, left = found
            bottom, right = top + ink.shape[0], left + ink.shape[1]
            scene[top:bottom, left:right] = ink
            owner[top:bottom, left:right][ink >= INK] = len(placed) + 1
            placed.append(Placed(int(labels[source]), source, left, top, right, bottom))
        yield scene, owner, placed


def ink_boxes(digits: Pixels) -> npt.NDArray[np.int64]:
    """Return the box of the ink of each digit (n, h, w), (n, 4): [top, bottom) × [left, right), in pixels."""
    ink = digits >= np.minimum(INK, digits.max((1, 2), keepdims=True))
    ends = []
    for inked in (ink.any(2), ink.any(1)):  # rows, columns
        ends += [inked.argmax(1), inked.shape[1] - inked[:, ::-1].argmax(1)]
    return np.stack(ends, 1)


def scale_ink(ink: Pixels, height: float, side: int) -> Pixels:
    """Resize the ink (h, w) to this height with its aspect ratio, at most `side` wide, and crop it to its ink box."""
    factor = min(height / ink.shape[0], side / ink.shape[1])
    size = (max(1, round(ink.shape[1] * factor)), max(1, round(ink.shape[0] * factor)))
    # Conversion via bytes: Pillow's array conversion takes longer than resizing so few pixels.
    image = Image.frombytes("L", ink.shape[::-1], ink.tobytes()).resize(size, Image.Resampling.BICUBIC)
    found = np.frombuffer(image.tobytes(), np.uint8).reshape(size[::-1])
    inked = found >= min(INK, int(found.max()))
    rows, columns = np.flatnonzero(inked.any(1)), np.flatnonzero(inked.any(0))
    return found[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _free_place(
    rng: np.random.Generator, placed: list[Placed], shape: tuple[int, ...], side: int, gap: int
) -> tuple[int, int] | None:
    """Find the top and left of a box of this shape at least `gap` pixels from all others, or None."""
    height, width = shape[:2]
    for _ in range(TRIES):
        top, left = int(rng.integers(side - height + 1)), int(rng.integers(side - width + 1))
        bottom, right = top + height, left + width
        if all(
            right + gap <= d.left or d.right + gap <= left or bottom + gap <= d.top or d.bottom + gap <= top
            for d in placed
        ):
            return top, left
    return None


Digits = tuple[Pixels, npt.NDArray[np.int64]]  # (n, h, w), (n,)

SIDE, COUNTS = 64, {"train": 4000, "val": 400, "test": 1000}
KEPT_FOR_VAL = 6000  # of MNIST's training digits
SMALL_SIDE, SMALL_COUNTS = 48, {"train": 1200, "val": 150, "test": 300}


def open_digit_boxes(request: Request) -> DataSet:
    """Compose scenes of MNIST's digits: test scenes of its test digits, validation scenes of other training digits."""
    place = request.place
    train, labels = read_labelled_idx(place / "train-images-idx3-ubyte.gz", place / "train-labels-idx1-ubyte.gz", 10)
    test, test_labels = read_labelled_idx(place / "t10k-images-idx3-ubyte.gz", place / "t10k-labels-idx1-ubyte.gz", 10)
    digits = {
        "train": (train[:-KEPT_FOR_VAL], labels[:-KEPT_FOR_VAL]),
        "val": (train[-KEPT_FOR_VAL:], labels[-KEPT_FOR_VAL:]),
        "test": (test, test_labels),
    }
    return _scenes(request, digits, COUNTS, SIDE, smallest=16, largest=32)


def open_digit_boxes_small(request: Request) -> DataSet:
    """Compose scenes of scikit-learn's digits of 8×8 pixels, with no digit in two splits."""
    return _scenes(request, small_digits(), SMALL_COUNTS, SMALL_SIDE, smallest=12, largest=24)


def small_digits() -> dict[str, Digits]:
    """Load scikit-learn's digits, 0…255, in three splits."""
    from sklearn import datasets

    bunch: Any = datasets.load_digits()
    pixels, labels = np.round(bunch.images * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    return {split: (pixels[rows], labels[rows]) for split, rows in zip(SPLITS, np.split(order, [1200, 1400]))}


def compose_splits(digits: dict[str, Digits], counts: dict[str, int], side: int, **sizes: float) -> dict[str, Scenes]:
    """Compose `counts` scenes for each split from its digits, with a separate seed for each."""
    return {
        split: compose(*digits[split], count, side, seed, smallest=sizes["smallest"], largest=sizes["largest"])
        for seed, (split, count) in enumerate(counts.items())
    }


def rectangles(scenes: Scenes) -> list[Rectangles]:
    """Return the boxes of each scene, (m, 5): x1, y1, x2, y2 and the digit."""
    rows = [[(d.left, d.top, d.right, d.bottom, d.label) for d in placed] for placed in scenes.placed]
    return [np.array(own, np.float32).reshape(-1, 5) for own in rows]


def _scenes(request: Request, digits: dict[str, Digits], counts: dict[str, int], side: int, **sizes: float) -> DataSet:
    scenes = compose_splits(digits, counts, side, **sizes)
    ends = np.cumsum([0, *counts.values()])
    splits = {split: np.arange(ends[i], ends[i + 1]) for i, split in enumerate(counts)}
    pixels = np.concatenate([s.pixels for s in scenes.values()])[:, None]  # (n, 1, side, side)
    boxes = [own for s in scenes.values() for own in rectangles(s)]
    content = hashlib.sha256(pixels.tobytes() + np.concatenate(boxes).tobytes()).hexdigest()
    return box_dataset(
        pixels,
        boxes,
        DIGITS,
        replace(published_source(request), fingerprint=content),
        request.settings,
        request.sizes,
        splits,
    )


def _named(title: str, counts: dict[str, int], side: int, of: NamedSet, citation: str) -> NamedSet:
    sizes_text = ", ".join(f"{count:,} {split}".replace(",", " ") for split, count in counts.items())
    return NamedSet(
        title=title,
        kind="image",
        task="object detection",
        sizes=f"{sizes_text} scenes of 1 to 4 digits, {side} × {side}, grey",
        licence=of.licence,
        citation=citation,
        target="boxes",
        folder=of.folder,
        files=of.files,
    )


BOX_SETS = {
    "digit_boxes": _named("Digits in scenes: a box around each", COUNTS, SIDE, MNIST, MNIST.citation),
    "digit_boxes_small": _named(
        "Small digits in scenes: a box around each", SMALL_COUNTS, SMALL_SIDE, SMALL_DIGITS, SMALL_DIGITS.citation
    ),
}

BOX_OPENERS = {"digit_boxes": open_digit_boxes, "digit_boxes_small": open_digit_boxes_small}


CLASSES = ("ground", *"0123456789")
TRAIN, TEST, MASK_SIDE = 2000, 500, 64
SMALL_TRAIN, SMALL_TEST, SMALL_MASK_SIDE, SMALL_MOST = 800, 100, 32, 3
TRAIN_DIGITS = 1400  # of scikit-learn's 1 797: those of the training scenes
SEED = 0


def open_digit_scenes(request: Request) -> DataSet:
    """Compose scenes of MNIST's digits."""
    made = []
    for i, (part, count) in enumerate((("train", TRAIN), ("t10k", TEST))):
        images, labels = (request.place / f"{part}-{what}-ubyte.gz" for what in ("images-idx3", "labels-idx1"))
        made.append(compose(*read_labelled_idx(images, labels, 10), count, MASK_SIDE, SEED + i))
    return _dataset(request, made, 4)


def open_digit_scenes_small(request: Request) -> DataSet:
    """Compose scenes of scikit-learn's digits."""
    return _dataset(request, small_scenes(), SMALL_MOST)


def small_scenes() -> list[Scenes]:
    """Compose training and test scenes of scikit-learn's digits, with no digit in both."""
    from sklearn import datasets  # imported here because it takes a second

    bunch: Any = datasets.load_digits()
    digits = np.round(bunch.images * (255 / 16)).astype(np.uint8)  # (n, 8, 8)
    made = []
    for i, (rows, count) in enumerate(((slice(TRAIN_DIGITS), SMALL_TRAIN), (slice(TRAIN_DIGITS, None), SMALL_TEST))):
        scale = {"smallest": 10, "largest": 16}
        made.append(
            compose(digits[rows], bunch.target[rows], count, SMALL_MASK_SIDE, SEED + i, most=SMALL_MOST, **scale)
        )
    return made


def _dataset(request: Request, made: list[Scenes], most: int) -> DataSet:
    """Build the data set of scenes with up to `most` digits. The second item of `made` is the test split."""
    pixels = np.concatenate([scenes.pixels for scenes in made])[:, None]  # (n, 1, side, side)
    masks = np.concatenate([scenes.classes() for scenes in made])
    note = (
        f"These scenes are composed, not photographed: up to {most} digits that people wrote, at random places and "
        "sizes. The digits of test scenes occur in no other scene; those of validation scenes may."
    )
    fingerprint = hashlib.sha256(pixels.tobytes() + masks.tobytes()).hexdigest()
    origin = DataSource(request.name, request.name, fingerprint, [note])
    train, test = (len(scenes.pixels) for scenes in made)
    splits = {"train": np.arange(train), "test": np.arange(train, train + test)}
    return mask_dataset(pixels, masks, CLASSES, origin, request.settings, request.sizes, splits)


MASK_SETS = {
    "digit_scenes": NamedSet(
        title="Scenes of MNIST's digits: which digit each pixel is of",
        kind="image",
        task="semantic segmentation",
        sizes=f"2 000 training and {TEST} test images with masks, {MASK_SIDE} × {MASK_SIDE}, grey, 11 classes",
        licence=MNIST.licence,
        citation=MNIST.citation,
        target="mask",
        folder=MNIST.folder,
        files=MNIST.files,
    ),
    "digit_scenes_small": NamedSet(
        title="Small scenes of scikit-learn's digits: which digit each pixel is of",
        kind="image",
        task="semantic segmentation",
        sizes=f"{SMALL_TRAIN} training and {SMALL_TEST} test images with masks, "
        f"{SMALL_MASK_SIDE} × {SMALL_MASK_SIDE}, grey, 11 classes",
        licence=SMALL_DIGITS.licence,
        citation=SMALL_DIGITS.citation,
        target="mask",
    ),
}

MASK_OPENERS = {"digit_scenes": open_digit_scenes, "digit_scenes_small": open_digit_scenes_small}


Labels = npt.NDArray[np.int64]
CAPTION_SEED = 0
SPARE = 1.25  # largest number of composed scenes per kept one: digits may not fit, or have equal labels

OPPOSITES = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}


def relations(a: Placed, b: Placed) -> list[str]:
    """Return the relations of digit a to digit b, such as left of if a's ink ends before b's begins.

    Boxes do not overlap, so that at least one relation holds; two hold for diagonal positions.
    """
    true = {
        "left of": a.right <= b.left,
        "right of": b.right <= a.left,
        "above": a.bottom <= b.top,
        "below": b.bottom <= a.top,
    }
    return [relation for relation, holds in true.items() if holds]


def true_captions(placed: Sequence[Placed]) -> list[str]:
    """Return every true caption of two or three digits with distinct labels:

    a 3 left of a 7                              two digits, in either order
    a 2 above a 5 and a 1 right of the 5         three digits, any of them as the reference
    """
    return list(dict.fromkeys(_pairs(placed) if len(placed) == 2 else _triples(placed)))


def _pairs(placed: Sequence[Placed]) -> Iterator[str]:
    for a, b in permutations(placed):
        for relation in relations(a, b):
            yield f"{_a(a)} {relation} {_a(b)}"


def _triples(placed: Sequence[Placed]) -> Iterator[str]:
    for a, b, c in permutations(placed):
        for first in relations(a, b):
            for second in relations(c, b):
                yield f"{_a(a)} {first} {_a(b)} and {_a(c)} {second} the {b.label}"


def _a(digit: Placed) -> str:
    """Return the digit with its article: a 3, an 8."""
    return f"a{'n' * (digit.label == 8)} {digit.label}"


@dataclass(frozen=True)
class SceneParameters:
    """Parameters of the scenes, and the number of scenes in each split."""

    side: int  # pixels
    smallest: float  # smallest ink height of a digit in pixels
    largest: float  # largest
    counts: dict[str, int]
    captions: int  # sampled captions of a training scene; validation and test keep all


MNIST_CAPTIONS = SceneParameters(32, 10, 13, {"train": 20_000, "val": 1_000, "test": 2_000}, captions=1)
SMALL = SceneParameters(24, 7, 9, {"train": 2_000, "val": 250, "test": 500}, captions=2)
MNIST_VAL = 10_000  # the last digits of MNIST's training set, used for validation scenes
SMALL_PARTS = {"train": slice(0, 1_300), "val": slice(1_300, 1_450), "test": slice(1_450, None)}  # of 1 797


def open_digit_captions(request: Request) -> DataSet:
    """Compose scenes of MNIST's digits: test scenes of its test digits, validation scenes of other training digits."""
    place = request.place
    train, test = (
        read_labelled_idx(place / f"{name}-images-idx3-ubyte.gz", place / f"{name}-labels-idx1-ubyte.gz", 10)
        for name in ("train", "t10k")
    )
    parts = {
        "train": (train[0][:-MNIST_VAL], train[1][:-MNIST_VAL]),
        "val": (train[0][-MNIST_VAL:], train[1][-MNIST_VAL:]),
        "test": test,
    }
    return _distinct_scenes(request, parts, MNIST_CAPTIONS)


def open_digit_captions_small(request: Request) -> DataSet:
    """Compose smaller scenes of scikit-learn's digits, with no digit in two splits."""
    digits, labels = scikit_learn_digits()
    return _distinct_scenes(request, {name: (digits[part], labels[part]) for name, part in SMALL_PARTS.items()}, SMALL)


def scikit_learn_digits() -> tuple[Pixels, Labels]:
    """Load scikit-learn's digits (n, 8, 8) and their labels (n,)."""
    from sklearn import datasets  # imported here because it takes a second

    bunch: Any = datasets.load_digits()
    return np.round(bunch.images * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)


def _distinct_scenes(request: Request, parts: dict[str, tuple[Pixels, Labels]], form: SceneParameters) -> DataSet:
    """Build the data set of scenes from the digits (n, h, w) and labels (n,) of each split in `parts`."""
    from ..images.captioning import caption_target, captions_dataset, fit_captions  # needs the text packages

    settings = request.settings
    reject_changed(settings, ("val", "test", "fold", "split_seed", "missing"), "is for data without splits of its own")
    pixels: list[Pixels] = []
    texts: list[list[str]] = []
    splits: dict[str, Rows] = {}
    for number, (name, (digits, labels)) in enumerate(parts.items()):
        drawn, captions = compose_described(digits, labels, form.counts[name], form, CAPTION_SEED + number)
        splits[name] = np.arange(len(texts), len(texts) + len(captions))
        pixels.append(drawn)
        texts += _sample_captions(captions, form.captions) if name == "train" else captions
    indices = complete_split(np.zeros(len(texts), np.int64), ["image"], splits, settings)
    side, texts, indices, notes = fit_captions(texts, indices, settings, request.targets)
    learned = caption_target(side, settings, request.targets)
    scenes = np.concatenate(pixels)[:, None]  # (n, 1, side, side)
    numbers = np.arange(len(scenes))
    images, held, found = prepare_in_memory(scenes, numbers, indices, learned, settings, request.sizes)
    about = (
        "These scenes are made of handwritten digits, two or three in each; no digit of a test scene is in a training "
        "scene. A digit is left of another where its ink ends before the other's begins, and so above, right and "
        "below. An answer that equals one of the true captions is right."
    )
    content = hashlib.sha256(scenes.tobytes() + repr(texts).encode()).hexdigest()
    origin = replace(published_source(request, [about]), fingerprint=content)
    return captions_dataset(origin, images, side, held, indices, texts, settings, [*notes, *found])


def compose_described(
    digits: Pixels, labels: Labels, count: int, form: SceneParameters, seed: int, most: int = 3
) -> tuple[Pixels, list[list[str]]]:
    """Compose `count` scenes (count, side, side) of two to `most` digits, with all true captions of each.

    Three digits have distinct labels, because "the 5" must be unique.
    """
    scenes = generate_scenes(
        digits, labels, form.side, seed, fewest=2, most=most, smallest=form.smallest, largest=form.largest
    )
    tried = islice(scenes, round(SPARE * count))
    found = list(islice(((pixels, placed) for pixels, _, placed in tried if _is_unambiguous(placed)), count))
    if len(found) < count:
        raise NotEnoughDataError(f"{count:,} scenes were to be composed, and {len(found):,} could be.")
    return np.stack([pixels for pixels, _ in found]), [true_captions(placed) for _, placed in found]


def _is_unambiguous(placed: Sequence[Placed]) -> bool:
    return len(placed) == 2 or (len(placed) == 3 and len({digit.label for digit in placed}) == 3)


def _sample_captions(captions: Sequence[list[str]], most: int) -> list[list[str]]:
    """Sample at most `most` captions of each scene."""
    rng = np.random.default_rng(CAPTION_SEED)
    return [[scene_captions[k] for k in rng.permutation(len(scene_captions))[:most]] for scene_captions in captions]


_MADE = "the captions are made here"
_AFTER = "after K. Xu et al., Show, attend and tell, 2015"

CAPTION_SETS = {
    "digit_captions": NamedSet(
        title="Scenes of handwritten digits, and which stands where in words",
        kind="image",
        task="image captioning",
        sizes="20 000 training, 1 000 validation and 2 000 test scenes, 32 × 32, grey, of MNIST's digits",
        licence=f"as MNIST's, {MNIST.licence}; {_MADE}",
        citation=_AFTER,
        target="caption",
        folder="mnist",
        files=MNIST.files,
    ),
    "digit_captions_small": NamedSet(
        title="The same of scikit-learn's digits, small",
        kind="image",
        task="image captioning",
        sizes="2 000 training, 250 validation and 500 test scenes, 24 × 24, grey",
        licence=f"{SMALL_DIGITS.licence}; {_MADE}",
        citation=_AFTER,
        target="caption",
    ),
}
CAPTION_OPENERS = {"digit_captions": open_digit_captions, "digit_captions_small": open_digit_captions_small}
VIDEO_SIDE, FRAMES = 24, 16
VIDEO_SEED = 0
# Each direction is a step in pixels, down and to the right.
DIRECTIONS = {
    "east": (0, 1),
    "north-east": (-1, 1),
    "north": (-1, 0),
    "north-west": (-1, -1),
    "west": (0, -1),
    "south-west": (1, -1),
    "south": (1, 0),
    "south-east": (1, 1),
}
FOUR = ("east", "north", "west", "south")  # directions in which the digit is a class too


def open_moving_digits(request: Request) -> DataSet:
    """Generate videos of scikit-learn's digits, each moving in one of eight directions, which is the class."""
    digits, _ = _digits()
    labels = assign_directions(len(digits))
    which = np.arange(len(digits))
    each = "Each digit is in one video, so no digit is in two splits."
    return _build_dataset(request, digits, which, labels, tuple(DIRECTIONS), labels, each)


def open_moving_digits_named(request: Request) -> DataSet:
    """Generate videos of each digit moving in each of four directions; digit and direction form the class."""
    digits, shown = _digits()
    which, way = np.divmod(np.arange(len(FOUR) * len(digits)), len(FOUR))
    directions = np.array([list(DIRECTIONS).index(name) for name in FOUR])[way]
    classes = tuple(f"{digit} {name}" for digit in range(10) for name in FOUR)
    each = "Each digit moves in each of four directions, and its four videos are in one split."
    return _build_dataset(request, digits, which, directions, classes, shown[which] * len(FOUR) + way, each)


def _digits() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Load scikit-learn's digits (n, 8, 8) and their labels (n,)."""
    from sklearn import datasets

    bunch: Any = datasets.load_digits()
    return np.round(bunch.images * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)


def _build_dataset(
    request: Request,
    digits: npt.NDArray[np.uint8],
    which: npt.NDArray[np.int64],
    directions: npt.NDArray[np.int64],
    classes: tuple[str, ...],
    labels: npt.NDArray[np.int64],
    each: str,
) -> DataSet:
    """Build the data set in which video i shows the digit which[i]. `each` describes the split of digits in a note."""
    from ..video.dataset import video_dataset  # imported here because it needs a video library

    several, names = len(which) > len(digits), list(DIRECTIONS)
    videos = FolderContents(
        classes,
        list(move_digits(digits[which], directions)),
        [f"digit {i} {names[way]}" if several else f"digit {i}" for i, way in zip(which, directions)],
        labels,
        notes=[
            f"These videos are made, not filmed: each of scikit-learn's {len(digits):,} digits moves by a pixel a "
            f"frame over {VIDEO_SIDE}×{VIDEO_SIDE} pixels and comes back in on the other side. {each} One frame tells "
            "nothing of the direction, and all of them in no order leave a direction and its opposite alike: the best "
            "score without time is one half."
        ],
    )
    groups = which if several else None
    return video_dataset(videos, request.name, request.name, request.settings, request.sizes, groups)


def assign_directions(count: int) -> npt.NDArray[np.int64]:
    """Assign a direction to each video, (count,), balanced and in random order."""
    return np.random.default_rng(VIDEO_SEED).permutation(np.arange(count) % len(DIRECTIONS))


def move_digits(digits: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Generate videos (n, FRAMES, SIDE, SIDE) of digits (n, h, w), each moving in its direction from a random place.

    Movement wraps around at the edges, so that positions are uniform in every frame and for every direction.
    """
    n, height, width = digits.shape
    starts = np.random.default_rng(VIDEO_SEED + 1).integers(0, VIDEO_SIDE, (n, 2))
    steps = np.array(list(DIRECTIONS.values()))[labels]  # (n, 2)
    corners = starts[:, None] + np.arange(FRAMES)[:, None] * steps[:, None]  # (n, FRAMES, 2)
    rows = (corners[:, :, :1] + np.arange(height)) % VIDEO_SIDE  # (n, FRAMES, h)
    columns = (corners[:, :, 1:] + np.arange(width)) % VIDEO_SIDE  # (n, FRAMES, w)
    videos = np.zeros((n, FRAMES, VIDEO_SIDE, VIDEO_SIDE), np.uint8)
    video, frame = np.ogrid[:n, :FRAMES]
    videos[video[:, :, None, None], frame[:, :, None, None], rows[:, :, :, None], columns[:, :, None, :]] = digits[
        :, None
    ]
    return videos


VIDEO_SETS = {
    "moving_digits": NamedSet(
        title="Moving digits: which way each goes",
        kind="video",
        task="classification",
        sizes=f"1 797 videos of {FRAMES} frames, {VIDEO_SIDE} × {VIDEO_SIDE}, grey, 8 classes",
        licence="CC BY 4.0 at the UCI repository, for the digits, which come with scikit-learn; the rest is made here",
        citation="after N. Srivastava et al., Unsupervised learning of video representations using LSTMs, 2015",
        target="direction",
    ),
    "moving_digits_named": NamedSet(
        title="Moving digits: which digit goes which way",
        kind="video",
        task="classification",
        sizes=f"7 188 videos of {FRAMES} frames, {VIDEO_SIDE} × {VIDEO_SIDE}, grey, 40 classes: 10 digits × 4 "
        "directions",
        licence="CC BY 4.0 at the UCI repository, for the digits, which come with scikit-learn; the rest is made here",
        citation="after N. Srivastava et al., Unsupervised learning of video representations using LSTMs, 2015",
        target="digit and direction",
    ),
}

VIDEO_OPENERS = {"moving_digits": open_moving_digits, "moving_digits_named": open_moving_digits_named}

NAMED = CAPTION_SETS | BOX_SETS | MASK_SETS | VIDEO_SETS
OPENERS = CAPTION_OPENERS | BOX_OPENERS | MASK_OPENERS | VIDEO_OPENERS
