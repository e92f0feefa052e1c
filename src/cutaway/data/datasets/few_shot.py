"""Built-in data sets for few-shot learning: Omniglot and sinusoids.

Omniglot: characters of many alphabets, each drawn once by 20 people.

The files hold a PNG of 105 × 105 pixels, black on white, for each drawing: SET/ALPHABET/CHARACTER/NUMBER.png. As in A.
Santoro, S. Bartunov, M. Botvinick, D. Wierstra, T. Lillicrap, Meta-learning with memory-augmented neural networks,
2016, section 4.1 <https://arxiv.org/abs/1605.06065>, and later work, drawings are resized to 28 × 28 and inverted. For
episodes each training character rotated by 90°, 180° and 270° is a separate class.

Papers sample 1 200 of all 1 623 characters at random for training. The split of the whole set here is its author's: no
alphabet is in two splits. This is harder, because the characters of a test alphabet have no related ones in training.
The two small sets have only eight alphabets, and the score would depend on the choice of test alphabets, so characters
are sampled at random instead.

Sinusoid regression for meta-learning: each task is a function known at a few points.

After C. Finn, P. Abbeel, S. Levine, Model-agnostic meta-learning for fast adaptation of deep networks, 2017, section
5.1 <https://arxiv.org/abs/1703.03400>:

    y = A sin(x − φ),   A uniform in [0.1, 5], φ in [0, π], x in [−5, 5]

In an episode all points belong to one sinusoid. Without episodes each point belongs to another one, and a model learns
the mean over all of them.
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from ...core.errors import DataError, UnsupportedDataError
from ...core.spec import Episodes, TableSpec, Value
from ..build import DataSource, build_dataset
from ..dataset_base import Batch, DataSet, Split
from ..episodes import COUNTS, SingleExamples, split_by_class
from ..images.dataset import image_dataset
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import Rows
from ..tables.column_types import Numeric
from ..tables.transforms import TablePreprocessing
from ..text.corpus_transforms import uniform
from .catalog import NamedSet, Request, remote_files
from .published import file_hashes, hash_fingerprint, unpublished_notes

SIDE = 28
TURNS = (90, 180, 270)  # degrees
WHOLE = ("images_background.zip", "images_evaluation.zip")
PART = ("images_background_small1.zip", "images_background_small2.zip")
SHOWN = 10  # alphabets listed in a note

Drawings = npt.NDArray[np.uint8]

OMNIGLOT = {
    "omniglot": NamedSet(
        title="Omniglot: handwritten characters of many alphabets",
        kind="image",
        task="classification",
        sizes="1 623 characters of 50 alphabets, 20 drawings of each, 28 × 28, grey; the two small background sets "
        "alone: 242 of 8",
        licence="MIT",
        citation="B. M. Lake, R. Salakhutdinov, J. B. Tenenbaum, Human-level concept learning through probabilistic "
        "program induction, Science 350, 2015",
        folder="omniglot",
        files=remote_files(
            "https://raw.githubusercontent.com/brendenlake/omniglot/057f034baf2ecb8530bc5710e5a23584d2a519cc/python/",
            (WHOLE[0], 9_464_212, "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640"),
            (WHOLE[1], 6_462_886, "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee"),
            (PART[0], 1_319_022, "f38eb80f801274ac2b4dff5b24289016bfaba4a7d5bb50deebf27104ad6cb8a4"),
            (PART[1], 1_580_917, "3ccaa407515a8778e5d0861875af38b17e418f301ad5bb3b5a6b65d901a41c7f"),
        ),
        enough=PART,
    )
}


def open_omniglot(request: Request) -> DataSet:
    """Load Omniglot, or the two small background sets if the whole is not available.

    For episodes, the split is by alphabet for the whole set and by character for the small ones. Otherwise each
    character is a class, and its drawings are split.
    """
    place, settings = request.place, request.settings
    whole = all((place / file).is_file() for file in WHOLE)
    files = WHOLE if whole else PART
    pixels, labels, classes, first = read_drawings([place / file for file in files])
    sums = file_hashes(place, files)
    notes = unpublished_notes(request.named, sums)
    if not whole:
        notes.append(
            f"This is a part of Omniglot, its two small background sets: {len(classes)} of 1,623 characters. Scores do "
            "not compare with published ones."
        )
    splits = None
    if Episodes in request.targets:
        given, alphabets = None, None
        if whole:
            given = {"train": np.arange(first), "test": np.arange(first, len(labels))}
            alphabets = np.unique([name.split("/")[0] for name in classes], return_inverse=True)[1]
        splits, _ = split_by_class(labels, classes, given, settings, alphabets)
        if whole:
            notes.append(_alphabets(labels, classes, splits))
        settings = replace(settings, fold=None, max_samples=None)
        pixels, labels, classes, splits["train"] = add_rotations(pixels, labels, classes, splits["train"])
        notes.append("Each training character turned by 90°, 180° and 270° is a class of its own.")
    origin = DataSource(request.name, request.name, hash_fingerprint(sums), notes)
    return image_dataset(pixels, labels, classes, origin, settings, request.sizes, splits, request.targets)


def read_drawings(files: Sequence[Path]) -> tuple[Drawings, Rows, list[str], int]:
    """Read drawings (n, 1, 28, 28), white on black, their classes, the class names and the size of the first file.

    Class names are ALPHABET/CHARACTER. A character in several files is read once. Raises DataError for a file that is
    not an archive of such drawings.
    """
    found: dict[str, list[Drawings]] = {}
    counts = []
    for file in files:
        try:
            with zipfile.ZipFile(file) as archive:
                images = sorted(name for name in archive.namelist() if name.endswith(".png") and name.count("/") == 3)
                before = set(found)
                for name in images:
                    character = "/".join(name.split("/")[1:3])
                    if character not in before:
                        found.setdefault(character, []).append(_drawing(archive.read(name)))
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise DataError(
                f"{file} cannot be read as an archive of Omniglot's drawings: {error}.",
                fix="Download the file again.",
            ) from error
        if not images:
            raise UnsupportedDataError(f"{file} holds no drawings, SET/ALPHABET/CHARACTER/NUMBER.png.")
        counts.append(sum(map(len, found.values())))
    pixels = np.stack([drawing for drawings in found.values() for drawing in drawings])[:, None]
    labels = np.repeat(np.arange(len(found)), [len(drawings) for drawings in found.values()])
    return pixels, labels, list(found), counts[0]


def add_rotations(
    pixels: Drawings, labels: Rows, classes: Sequence[str], train: Rows
) -> tuple[Drawings, Rows, list[str], Rows]:
    """Append rotated training drawings at each of the TURNS as additional classes, and return the training rows too."""
    own = np.unique(labels[train])
    number = np.zeros(len(classes), np.int64)
    number[own] = np.arange(len(own))
    all_pixels, all_labels, names = [pixels], [labels], list(classes)
    for k, degrees in enumerate(TURNS, 1):
        all_pixels.append(np.rot90(pixels[train], k, (2, 3)))
        all_labels.append(len(names) + number[labels[train]])
        names += [f"{classes[c]} at {degrees}°" for c in own]
    more = np.arange(len(labels), len(labels) + len(TURNS) * len(train))
    return np.concatenate(all_pixels), np.concatenate(all_labels), names, np.concatenate([train, more])


def _drawing(content: bytes) -> Drawings:
    """Decode one drawing (28, 28), white on black."""
    with Image.open(io.BytesIO(content)) as image:
        small = image.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    return 255 - np.asarray(small, np.uint8)


def _alphabets(labels: Rows, classes: Sequence[str], splits: dict[str, Rows]) -> str:
    """Return a note on the alphabets of each split."""
    parts = []
    for split, rows in splits.items():
        names = list(dict.fromkeys(classes[k].split("/")[0] for k in np.unique(labels[rows])))
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        parts.append(f"{split} {', '.join(names[:SHOWN])}{more}")
    return f"Alphabets are split, none is in two splits: {'; '.join(parts)}."


OMNIGLOT_OPENERS = {"omniglot": open_omniglot}


AMPLITUDES, PHASES, INPUTS = (0.1, 5.0), (0.0, math.pi), (-5.0, 5.0)
ROWS = {"train": 10_000, "val": 2_000, "test": 10_000}  # without episodes
NOT_THESE = ("val", "test", "fold", "split_seed", "max_samples", "ways", "ignore", "types", "group", "missing", "scale")

SINUSOIDS = {
    "sinusoids": NamedSet(
        title="Sinusoids: functions of one number, each learned from a few points",
        kind="table",
        task="regression",
        sizes="as many sinusoids as are asked for, 1 column",
        licence="none needed: it is computed here",
        citation="C. Finn, P. Abbeel, S. Levine, Model-agnostic meta-learning, 2017",
        target="y",
    )
}


class SinusoidSplit(Split):
    """A split of sinusoids, each with `points` points.

    Example i depends on the seed and i, or on `as_read` without a seed.

    A batch of E has inputs (E · points, 1) and targets (E, points), or (E,) if `row` is set, with one point for each.
    """

    def __init__(
        self, count: int, points: int, as_read: int, row: bool = False, target: Episodes | None = None
    ) -> None:
        self.count, self.points, self.as_read, self.rows, self.episodes = count, points, as_read, row, target
        self.target = self._points(torch.arange(count), as_read)[1]

    def __len__(self) -> int:
        return self.count

    def again(self, target: Episodes) -> SinusoidSplit:
        """Return the same number of episodes with another form."""
        return SinusoidSplit(self.count, target.size, self.as_read, target=target)

    def single_examples(self) -> Split:
        """Return one point of each sinusoid as single examples without targets, for views."""
        return SingleExamples(SinusoidSplit(self.count, 1, self.as_read, row=True))

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of these examples, generated from the seed."""
        for index in order:
            x, y = self._points(index, self.as_read if seed is None else seed)
            yield Batch((x.view(-1, 1),), y)

    def name(self, i: int) -> str:
        """Return the number of the sinusoid and its formula."""
        amplitude, phase = (float(v[0]) for v in self.functions(torch.tensor([i])))
        return f"sinusoid {i}: {amplitude:.2f} sin(x − {phase:.2f})"

    def row(self, i: int) -> dict[str, str] | None:
        """Return the point of a single-point example, otherwise None."""
        if not self.rows:
            return None
        x, y = self._points(torch.tensor([i]), self.as_read)
        return {"x": f"{x.item():.6g}", "y": f"{y.item():.6g}"}

    def functions(self, index: Tensor, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return amplitude and phase of these examples, (E,) each."""
        seed, places = self.as_read if seed is None else seed, index.cpu().numpy()
        return tuple(  # type: ignore[return-value]
            low + (high - low) * uniform(seed, places, draw) for draw, (low, high) in enumerate((AMPLITUDES, PHASES))
        )

    def _points(self, index: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Generate the points x (E, points) of these examples, and y."""
        amplitude, phase = (v[:, None] for v in self.functions(index, seed))
        places = index.cpu().numpy()[:, None] * self.points + np.arange(self.points)
        x = INPUTS[0] + (INPUTS[1] - INPUTS[0]) * uniform(seed, places, 2)
        y = amplitude * np.sin(x - phase)
        found = (torch.from_numpy(v).float() for v in (x, y[:, 0] if self.rows else y))
        return tuple(found)  # type: ignore[return-value]


def open_sinusoids(request: Request) -> DataSet:
    """Load sinusoids, in episodes if the model learns from these."""
    settings, episodic = request.settings, Episodes in request.targets
    reject_changed(settings, NOT_THESE, "would change nothing: sinusoids are generated on demand")
    reject_changed(replace(settings, target=None if settings.target == "y" else settings.target), ("target",),
                   "is no number to predict of sinusoids, whose y is")  # fmt: skip
    target: Value | Episodes = Episodes(0, settings.shots, settings.queries, column="value of a sinusoid")
    if not episodic:
        target = Value("y")
    counts, points = (COUNTS, target.size) if isinstance(target, Episodes) else (ROWS, 1)
    numeric = Numeric("x", "number", "", fill=0.0, missing=False, mean=0.0, scale=1.0)
    splits: dict[str, Split] = {
        name: SinusoidSplit(count, points, k, not episodic, target if isinstance(target, Episodes) else None)
        for k, (name, count) in enumerate(counts.items())
    }
    notes = ["Sinusoids are sampled again in every training epoch; those of validation and test are fixed."]
    preprocessing = TablePreprocessing(TableSpec(("x",), target), (numeric,))
    # The digest covers the generation parameters, because values may differ in the last bit between machines.
    parameters = f"sinusoids {AMPLITUDES} {PHASES} {INPUTS} {counts} {points}"
    digest = hashlib.sha256(parameters.encode()).hexdigest()
    return build_dataset(
        DataSource(request.name, request.name, digest, notes), DataSettings(), digest, preprocessing, splits
    )


SINUSOID_OPENERS = {"sinusoids": open_sinusoids}
NAMED = OMNIGLOT | SINUSOIDS
OPENERS = OMNIGLOT_OPENERS | SINUSOID_OPENERS
