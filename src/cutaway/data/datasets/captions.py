"""Built-in image captioning data sets: scenes of handwritten digits, described by relative position."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.errors import DataError
from ..dataset_base import DataSet
from ..images.build import prepare_in_memory
from ..modalities import reject_changed
from ..splits import Rows, complete_split
from .catalog import NAMED as PUBLISHED
from .catalog import NamedSet, Request
from .formats import read_labelled_idx
from .published import published_source
from .scenes import Pixels, Placed, generate_scenes

Labels = npt.NDArray[np.int64]
SEED = 0
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


MNIST = SceneParameters(32, 10, 13, {"train": 20_000, "val": 1_000, "test": 2_000}, captions=1)
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
    return _scenes(request, parts, MNIST)


def open_digit_captions_small(request: Request) -> DataSet:
    """Compose smaller scenes of scikit-learn's digits, with no digit in two splits."""
    digits, labels = scikit_learn_digits()
    return _scenes(request, {name: (digits[part], labels[part]) for name, part in SMALL_PARTS.items()}, SMALL)


def scikit_learn_digits() -> tuple[Pixels, Labels]:
    """Load scikit-learn's digits (n, 8, 8) and their labels (n,)."""
    from sklearn import datasets  # imported here because it takes a second

    bunch: Any = datasets.load_digits()
    return np.round(bunch.images * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)


def _scenes(request: Request, parts: dict[str, tuple[Pixels, Labels]], form: SceneParameters) -> DataSet:
    """Build the data set of scenes from the digits (n, h, w) and labels (n,) of each split in `parts`."""
    from ..images.captioning import captions_dataset, fit_captions  # needs the text packages

    settings = request.settings
    reject_changed(settings, ("val", "test", "fold", "split_seed", "missing"), "is for data without splits of its own")
    pixels: list[Pixels] = []
    texts: list[list[str]] = []
    splits: dict[str, Rows] = {}
    for number, (name, (digits, labels)) in enumerate(parts.items()):
        drawn, captions = compose_described(digits, labels, form.counts[name], form, SEED + number)
        splits[name] = np.arange(len(texts), len(texts) + len(captions))
        pixels.append(drawn)
        texts += _sample_captions(captions, form.captions) if name == "train" else captions
    indices = complete_split(np.zeros(len(texts), np.int64), ["image"], splits, settings)
    side, texts, indices, notes = fit_captions(texts, indices, settings)
    scenes = np.concatenate(pixels)[:, None]  # (n, 1, side, side)
    numbers = np.arange(len(scenes))
    images, held, found = prepare_in_memory(scenes, numbers, indices, lambda _: side.target, settings, request.sizes)
    about = (
        "These scenes are made of handwritten digits, two or three in each; no digit of a test scene is in a training "
        "scene. A digit is left of another where its ink ends before the other's begins, and so above, right and "
        "below. Whoever gives one of the true captions is right."
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
        raise DataError(f"{count:,} scenes were to be composed, and {len(found):,} could be.")
    return np.stack([pixels for pixels, _ in found]), [true_captions(placed) for _, placed in found]


def _is_unambiguous(placed: Sequence[Placed]) -> bool:
    return len(placed) == 2 or (len(placed) == 3 and len({digit.label for digit in placed}) == 3)


def _sample_captions(captions: Sequence[list[str]], most: int) -> list[list[str]]:
    """Sample at most `most` captions of each scene."""
    rng = np.random.default_rng(SEED)
    return [[scene_captions[k] for k in rng.permutation(len(scene_captions))[:most]] for scene_captions in captions]


_MADE = "the captions are made here"
_AFTER = "after K. Xu et al., Show, attend and tell, 2015"

NAMED = {
    "digit_captions": NamedSet(
        title="Scenes of handwritten digits, and which stands where in words",
        kind="image",
        task="image captioning",
        sizes="20 000 training, 1 000 validation and 2 000 test scenes, 32 × 32, grey, of MNIST's digits",
        licence=f"as MNIST's, {PUBLISHED['mnist'].licence}; {_MADE}",
        citation=_AFTER,
        target="caption",
        folder="mnist",
        files=PUBLISHED["mnist"].files,
    ),
    "digit_captions_small": NamedSet(
        title="The same of scikit-learn's digits, small",
        kind="image",
        task="image captioning",
        sizes="2 000 training, 250 validation and 500 test scenes, 24 × 24, grey",
        licence=f"{PUBLISHED['digits'].licence}; {_MADE}",
        citation=_AFTER,
        target="caption",
    ),
}
OPENERS = {"digit_captions": open_digit_captions, "digit_captions_small": open_digit_captions_small}
