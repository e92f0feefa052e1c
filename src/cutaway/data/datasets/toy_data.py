"""Built-in data sets without files: scikit-learn's tables, and two-dimensional toy data.

The toy data have two or three classes, a curve, or the truth table of XOR.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ..build import DataSource
from ..dataset_base import DataSet
from ..images.dataset import image_dataset
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import Rows
from ..tables.dataset import table_dataset
from ..tables.table_files import frame_table
from .catalog import NamedSet, Request

TOY_POINTS = 1000
TOY_NOISE = {"moons": 0.15, "circles": 0.08, "spirals": 0.03}
TOY_SEED = 0
WAVE_NOISE = 0.1
TOYS = ("xor", *TOY_NOISE)  # data sets with `noise` and `count`


def open_bunch(request: Request) -> DataSet:
    """Load one of scikit-learn's tables: iris, wine, breast_cancer or diabetes, in original units."""
    from sklearn import datasets  # imported here because it takes a second

    name, target = request.name, request.named.target
    bunch: Any = datasets.load_diabetes(scaled=False) if name == "diabetes" else getattr(datasets, f"load_{name}")()
    columns = {str(column): bunch.data[:, i] for i, column in enumerate(bunch.feature_names)}
    classes = bunch.get("target_names")
    columns[target] = bunch.target if classes is None else np.array(classes)[bunch.target]
    return _table(request, pl.DataFrame(columns))


def toy_parameters(name: str, settings: DataSettings) -> tuple[float, int]:
    """Return the noise and the number of points of a toy data set.

    XOR is the truth table of four rows without noise, unless one of the two is set.
    """
    noise, count = settings.noise, settings.count
    if name == "xor" and noise is None and count is None:
        return 0.0, 4
    return TOY_NOISE.get(name, 0.0) if noise is None else noise, count or TOY_POINTS


def open_toy(request: Request) -> DataSet:
    """Generate points in the plane: moons, circles or spirals."""
    noise, count = toy_parameters(request.name, request.settings)
    generate = {"moons": moons, "circles": circles, "spirals": spirals}[request.name]
    points, labels = generate(count, noise, TOY_SEED)
    return _table(request, pl.DataFrame({"x1": points[:, 0], "x2": points[:, 1], request.named.target: labels}))


def open_wave(request: Request) -> DataSet:
    """Generate a curve over one variable."""
    x, y = wave(TOY_POINTS, WAVE_NOISE, TOY_SEED)
    return _table(request, pl.DataFrame({"x": x, request.named.target: y}))


def open_xor(request: Request) -> DataSet:
    """Load the truth table of XOR, identical in all three splits; with `noise` or `count`, points around its rows."""
    noise, count = toy_parameters(request.name, request.settings)
    if count > len(xor()[1]):
        points, labels = noisy_xor(count, noise, TOY_SEED)
        return _table(request, pl.DataFrame({"a": points[:, 0], "b": points[:, 1], request.named.target: labels}))
    reject_changed(
        request.settings,
        ("val", "test", "fold", "split_seed", "max_samples"),
        "would change nothing: the four rows of XOR are every split alike; count=200 draws points around them",
    )
    points, labels = xor()
    rows = np.arange(len(labels))
    return _table(
        request,
        pl.DataFrame({"a": points[:, 0], "b": points[:, 1], request.named.target: labels}),
        fixed={"train": rows, "val": rows, "test": rows},
        notes=[
            "The four rows of the truth table are training, validation and test split alike: a score tells how well "
            "they are learned, not how well anything generalises."
        ],
    )


def open_digits(request: Request) -> DataSet:
    """Load handwritten digits, 8 × 8."""
    from sklearn import datasets

    bunch: Any = datasets.load_digits()
    # Levels 0…16 become 0…255, so that a digit saved as an image file has the same pixels when it is read.
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)[:, None]  # (n, 1, 8, 8)
    labels = bunch.target.astype(np.int64)
    return image_dataset(
        pixels,
        labels,
        [str(digit) for digit in range(10)],
        DataSource(
            request.name,
            request.name,
            hashlib.sha256(pixels.tobytes() + labels.tobytes()).hexdigest(),
            ["The pixels' levels 0 to 16 are read as 0 to 255."],
        ),
        request.settings,
        request.sizes,
        targets=request.targets,
    )


def _table(
    request: Request, frame: pl.DataFrame, fixed: Mapping[str, Rows] | None = None, notes: Sequence[str] = ()
) -> DataSet:
    digest = hashlib.sha256(frame.write_csv().encode()).hexdigest()
    settings = request.settings
    if request.name in TOYS:  # the generation settings do not apply to the table itself
        settings = dataclasses.replace(settings, noise=None, count=None)
    origin = DataSource(request.name, request.name, digest, notes)
    return table_dataset(frame_table(frame, request.name), origin, settings, fixed)


_UCI = "CC BY 4.0 at the UCI repository; comes with scikit-learn"
_OURS = "none needed: it is computed here"

NAMED = {
    "digits": NamedSet(
        title="Handwritten digits",
        kind="image",
        task="classification",
        sizes="1 797 images, 8 × 8, grey",
        licence=_UCI,
        citation="E. Alpaydin, C. Kaynak, Cascading classifiers, Kybernetika 34, 1998",
    ),
    "iris": NamedSet(
        title="Iris: three species by the size of their flowers",
        kind="table",
        task="classification",
        sizes="150 rows, 4 columns",
        licence=_UCI,
        citation="R. A. Fisher, The use of multiple measurements in taxonomic problems, Ann. Eugenics 7, 1936",
        target="species",
    ),
    "wine": NamedSet(
        title="Wine: three cultivars by chemical analysis",
        kind="table",
        task="classification",
        sizes="178 rows, 13 columns",
        licence=_UCI,
        citation="M. Forina et al., PARVUS, Institute of Pharmaceutical and Food Analysis, Genoa, 1988",
        target="cultivar",
    ),
    "breast_cancer": NamedSet(
        title="Breast cancer Wisconsin (diagnostic)",
        kind="table",
        task="classification",
        sizes="569 rows, 30 columns",
        licence=_UCI,
        citation="W. N. Street et al., Nuclear feature extraction for breast tumor diagnosis, SPIE 1905, 1993",
        target="diagnosis",
    ),
    "diabetes": NamedSet(
        title="Diabetes: progression within a year",
        kind="table",
        task="regression",
        sizes="442 rows, 10 columns",
        licence="none stated; comes with scikit-learn",
        citation="B. Efron et al., Least angle regression, Annals of Statistics 32, 2004",
        target="progression",
    ),
    "xor": NamedSet(
        title="The truth table of exclusive or",
        kind="table",
        task="classification",
        sizes="4 rows, 2 columns; every split holds all of them",
        licence=_OURS,
        citation="M. Minsky, S. Papert, Perceptrons, 1969",
        target="xor",
    ),
    "moons": NamedSet(
        title="Two half circles that interlock",
        kind="table",
        task="classification",
        sizes="1 000 points in the plane, 2 classes",
        licence=_OURS,
        citation="after scikit-learn's make_moons",
    ),
    "circles": NamedSet(
        title="A circle within a circle",
        kind="table",
        task="classification",
        sizes="1 000 points in the plane, 2 classes",
        licence=_OURS,
        citation="after scikit-learn's make_circles",
    ),
    "spirals": NamedSet(
        title="Three arms of a spiral",
        kind="table",
        task="classification",
        sizes="1 000 points in the plane, 3 classes",
        licence=_OURS,
        citation="after K. J. Lang, M. J. Witbrock, Learning to tell two spirals apart, 1988",
    ),
    "wave": NamedSet(
        title="A curve over one number, to see how a network is made of its neurons",
        kind="table",
        task="regression",
        sizes="1 000 points of y = sin(2x) + x/3, with noise of 0.1",
        licence=_OURS,
        citation="ours",
        target="y",
    ),
}
OPENERS = {
    "digits": open_digits,
    "iris": open_bunch,
    "wine": open_bunch,
    "breast_cancer": open_bunch,
    "diabetes": open_bunch,
    "xor": open_xor,
    "moons": open_toy,
    "circles": open_toy,
    "spirals": open_toy,
    "wave": open_wave,
}


Points = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]  # (n, 2), (n,)


def wave(count: int, noise: float, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Generate y = sin(2x) + x/3 with noise at x uniform from −3 to 3; returns x and y, (n,) each."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, count)
    return x, np.sin(2 * x) + x / 3 + noise * rng.standard_normal(count)


def xor() -> Points:
    """Return the truth table: (0, 0) → 0, (0, 1) → 1, (1, 0) → 1, (1, 1) → 0."""
    return np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([0, 1, 1, 0])


def noisy_xor(count: int, noise: float, seed: int) -> Points:
    """Generate points around the four rows of the truth table, in equal numbers up to one."""
    corners, labels = xor()
    row = np.arange(count) % len(labels)
    return _noisy(corners[row], noise, np.random.default_rng(seed)), labels[row]


def moons(count: int, noise: float, seed: int) -> Points:
    """Generate two interlocking half circles of radius 1: (cos t, sin t) and (1 − cos t, ½ − sin t), t in [0, π]."""
    rng, labels, t = _draw(count, seed, classes=2)
    t *= np.pi
    upper = np.stack([np.cos(t), np.sin(t)], 1)
    lower = np.stack([1 - np.cos(t), 0.5 - np.sin(t)], 1)
    return _noisy(np.where(labels[:, None] == 0, upper, lower), noise, rng), labels


def circles(count: int, noise: float, seed: int) -> Points:
    """Generate a circle of radius 1 (class 0) around one of radius ½ (class 1)."""
    rng, labels, t = _draw(count, seed, classes=2)
    t *= 2 * np.pi
    radius = np.where(labels == 0, 1.0, 0.5)
    return _noisy(np.stack([radius * np.cos(t), radius * np.sin(t)], 1), noise, rng), labels


def spirals(count: int, noise: float, seed: int) -> Points:
    """Generate three spiral arms around the origin: radius t, angle 2π·(0.75 t + class / 3), t in [0, 1]."""
    rng, labels, t = _draw(count, seed, classes=3)
    angle = 2 * np.pi * (0.75 * t + labels / 3)
    return _noisy(np.stack([t * np.cos(angle), t * np.sin(angle)], 1), noise, rng), labels


def _draw(
    count: int, seed: int, classes: int
) -> tuple[np.random.Generator, npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return a generator, balanced classes, and a position in [0, 1) on the curve for each point."""
    rng = np.random.default_rng(seed)
    return rng, np.arange(count) % classes, rng.random(count)


def _noisy(points: npt.NDArray[np.float64], noise: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Add normal noise of standard deviation `noise` to each coordinate."""
    return points + noise * rng.standard_normal(points.shape)
