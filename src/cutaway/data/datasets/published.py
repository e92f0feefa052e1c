"""Built-in data sets that are read from published files: images, tables, series to forecast, and graphs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from ...core.errors import DataError
from ...core.spec import Classes, SeriesSpec, Views
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet, TensorSplit
from ..graphs.dataset import graph_dataset
from ..graphs.graph_files import EDGE_LABEL, GRAPH_CLASS, LABEL, read_planetoid, read_tu
from ..graphs.molecules import read_molecules
from ..graphs.splits import RawGraphs
from ..images.dataset import image_dataset
from ..series.dataset import series_dataset
from ..series.transforms import SeriesPreprocessing
from ..settings import DataSettings
from ..splits import complete_split, split_indices
from ..tables.dataset import table_dataset
from ..tables.delimited import Form
from ..tables.table_files import Table, frame_table, read_table
from .catalog import NamedSet, Remote, Request, file_sha256, remote_files
from .formats import checked_labels, read_cifar, read_labelled_idx, read_pickle

DIGITS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_FILE = 10_000  # images per file of CIFAR-10
# Redundant columns of the Titanic table, and columns derived from others (sex and age; sibsp, parch).
TITANIC_TWINS = (("survived", "alive"), ("pclass", "class"), ("embarked", "embark_town"))
TITANIC_DERIVED = ("who", "adult_male", "alone")


def open_idx(request: Request, classes: Sequence[str]) -> DataSet:
    """Load MNIST or a data set of the same format: four IDX files, a training and a test split."""
    place = request.place
    train, train_labels = read_labelled_idx(
        place / "train-images-idx3-ubyte.gz", place / "train-labels-idx1-ubyte.gz", len(classes)
    )
    test, test_labels = read_labelled_idx(
        place / "t10k-images-idx3-ubyte.gz", place / "t10k-labels-idx1-ubyte.gz", len(classes)
    )
    return image_dataset(
        np.concatenate([train, test])[:, None],  # (n, 1, 28, 28)
        np.concatenate([train_labels, test_labels]),
        classes,
        published_source(request),
        request.settings,
        request.sizes,
        _consecutive(len(train), len(test)),
        request.targets,
    )


def open_cifar10(request: Request) -> DataSet:
    """Load CIFAR-10, or the files of it that are available."""
    named, place = request.named, request.place
    files = [file for file in named.sums if (place / file).is_file()]  # the test file is the last
    read = [read_cifar(place / file) for file in files]
    *batches, test = (len(labels) for _, labels in read)
    sums = file_hashes(place, files)
    whole = {file: sums[file] for file, (_, labels) in zip(files, read) if len(labels) == CIFAR_FILE}
    notes = unpublished_notes(named, whole)
    if len(whole) < len(named.sums):
        absent = ", ".join(Path(file).name for file in named.sums if file not in files)
        notes.append(
            f"This is a part of CIFAR-10: {sum(batches):,} of 50,000 training images and {test:,} of 10,000 test "
            f"images{f' (not there: {absent})' if absent else ''}. Scores do not compare with published ones."
        )
    return image_dataset(
        np.concatenate([images for images, _ in read]),
        np.concatenate([labels for _, labels in read]),
        CIFAR_CLASSES,
        DataSource(request.name, request.name, hash_fingerprint(sums), notes),
        request.settings,
        request.sizes,
        _consecutive(sum(batches), test),
        request.targets,
    )


def open_mnist1d(request: Request) -> DataSet:
    """Load MNIST-1D: a pickle of arrays x (4 000, 40), y, x_test (1 000, 40), y_test."""
    (name,) = request.named.needed
    file = request.place / name
    content = read_pickle(file)
    try:
        series = np.concatenate([content["x"], content["x_test"]])[:, :, None].astype(np.float64)  # (n, 40, 1)
        numbers = np.concatenate([content["y"], content["y_test"]])
        count = len(content["x"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"{file} does not hold the arrays x, y, x_test and y_test of MNIST-1D ({error}).") from error
    if len(series) != len(numbers):
        raise DataError(f"{file} holds {len(series):,} series and {len(numbers):,} labels.")
    labels = checked_labels(numbers, len(DIGITS), file)
    indices = complete_split(labels, DIGITS, _consecutive(count, len(labels) - count), request.settings)
    spec = SeriesSpec(series.shape[1], 1, Views(DIGITS) if Views in request.targets else Classes(DIGITS))
    preprocessing = SeriesPreprocessing.fitted(spec, series[indices["train"]])
    splits = {
        split: TensorSplit(
            preprocessing.prepare(series[rows]), torch.from_numpy(labels[rows]), [f"series {i}" for i in rows]
        )
        for split, rows in indices.items()
    }
    return build_dataset(published_source(request), request.settings, indices, preprocessing, splits)


def open_csv(request: Request, notes: Sequence[str] = ()) -> DataSet:
    """Load a table from one CSV file."""
    (file,) = request.named.needed
    table = frame_table(read_table(request.place / file).frame, request.name)
    return table_dataset(table, published_source(request, notes), request.settings)


def open_titanic(request: Request) -> DataSet:
    """Load the Titanic table without redundant columns."""
    settings = request.settings
    twins = [other for pair in TITANIC_TWINS for other in pair if other != _preferred_column(pair, settings.target)]
    repeated = [column for column in (*twins, *TITANIC_DERIVED) if column != settings.target]
    note = (
        f"Left out: {', '.join(repeated)}. Each says in other words what another column says, or follows from others."
    )
    ignore = (*settings.ignore, *(column for column in repeated if column not in settings.ignore))
    return open_csv(dataclasses.replace(request, settings=dataclasses.replace(settings, ignore=ignore)), [note])


def _preferred_column(pair: tuple[str, str], target: str | None) -> str:
    """Return which of two equivalent columns to keep: the target, otherwise the first."""
    return pair[1] if pair[1] == target else pair[0]


def _consecutive(train: int, test: int) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return splits of a data set whose training examples come first."""
    return {"train": np.arange(train), "test": np.arange(train, train + test)}


def published_source(request: Request, notes: Sequence[str] = (), files: Sequence[str] = ()) -> DataSource:
    """Return the source of a data set read from these files, or from all that it needs.

    It has a note for each file whose hash differs from the published one, if that is known.
    """
    sums = file_hashes(request.place, files or request.named.needed)
    known = {file: sha256 for file, sha256 in sums.items() if file in request.named.sums}
    return DataSource(
        request.name, request.name, hash_fingerprint(sums), [*notes, *unpublished_notes(request.named, known)]
    )


def file_hashes(place: Path, files: Iterable[str]) -> dict[str, str]:
    """Compute the sha256 of each file."""
    return {file: file_sha256(place / file) for file in files}


def hash_fingerprint(sums: dict[str, str]) -> str:
    """Compute the sha256 of all files read."""
    return hashlib.sha256("".join(f"{sha256}  {file}\n" for file, sha256 in sums.items()).encode()).hexdigest()


def unpublished_notes(named: NamedSet, sums: dict[str, str]) -> list[str]:
    """Return a note for each file that differs from the published one."""
    return [
        f"{file} is not the published file: its sha256 is {sha256}, and that of the published one {named.sums[file]}."
        for file, sha256 in sums.items()
        if sha256 != named.sums[file]
    ]


_CIFAR = "cifar-10-batches-bin/"  # the folder in CIFAR-10's archive

FILE_SETS = {
    "mnist": NamedSet(
        title="MNIST: handwritten digits",
        kind="image",
        task="classification",
        sizes="60 000 training and 10 000 test images, 28 × 28, grey",
        licence="none stated at its home; CC BY-SA 3.0 at several mirrors",
        citation="Y. LeCun et al., Gradient-based learning applied to document recognition, Proc. IEEE 86(11), 1998",
        folder="mnist",
        files=remote_files(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            (
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
    ),
    "fashion_mnist": NamedSet(
        title="Fashion-MNIST: articles of clothing",
        kind="image",
        task="classification",
        sizes="60 000 training and 10 000 test images, 28 × 28, grey",
        licence="MIT",
        citation="H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST, 2017, https://arxiv.org/abs/1708.07747",
        folder="fashion_mnist",
        files=remote_files(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            (
                "train-images-idx3-ubyte.gz",
                26_421_880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                29_515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                4_422_102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                5_148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ),
    ),
    "cifar10": NamedSet(
        title="CIFAR-10: small photographs",
        kind="image",
        task="classification",
        sizes="50 000 training and 10 000 test images, 32 × 32, RGB",
        licence="none stated; its author asks to be cited",
        citation="A. Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        folder="cifar10",
        files=(
            Remote(
                "cifar-10-binary.tar.gz",
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                170_052_171,
                members=(
                    (_CIFAR + "data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
                    (_CIFAR + "data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
                    (_CIFAR + "data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
                    (_CIFAR + "data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
                    (_CIFAR + "data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
                    (_CIFAR + "test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
                ),
            ),
        ),
        enough=(_CIFAR + "data_batch_1.bin", _CIFAR + "test_batch.bin"),
    ),
    "mnist1d": NamedSet(
        title="MNIST-1D: digits as signals",
        kind="series",
        task="classification",
        sizes="4 000 training and 1 000 test series of 40 steps, 10 classes",
        licence="Apache-2.0",
        citation="S. Greydanus, D. Kobak, Scaling down deep learning with MNIST-1D, ICML 2024",
        folder="mnist1d",
        files=remote_files(
            "https://raw.githubusercontent.com/greydanus/mnist1d/7878d96082abd200c546a07a4101fa90b30fdf7e/",
            (
                "mnist1d_data.pkl",
                1_642_012,
                "e95257676e9fb04568e46dda007da22cc8664ccba1451456afde55d7f6dd6aa5",
            ),
        ),
    ),
    "california_housing": NamedSet(
        title="California housing: median house values of 1990 by district",
        kind="table",
        task="regression",
        sizes="20 640 rows, 9 columns",
        licence="Apache-2.0 where it is fetched from",
        citation="R. K. Pace, R. Barry, Sparse spatial autoregressions, Statistics and Probability Letters 33, 1997",
        target="median_house_value",
        folder="california_housing",
        files=remote_files(
            "https://raw.githubusercontent.com/ageron/handson-ml2/1e2115277b50f6c584cd668fa30e3af309a5b136/"
            "datasets/housing/",
            ("housing.csv", 1_423_529, "8a3727f4cf54ac1a327f69b1d5b4db54c5834ea81c6e4efc0d163300022a685e"),
        ),
    ),
    "titanic": NamedSet(
        title="Titanic: who survived",
        kind="table",
        task="classification",
        sizes="891 rows, 14 columns, of which 6 repeat others",
        licence="none stated where it is fetched from",
        citation="the Titanic competition of Kaggle, as kept by seaborn",
        target="survived",
        folder="tabular_seaborn",
        files=remote_files(
            "https://raw.githubusercontent.com/mwaskom/seaborn-data/71e2436a092d714350de0fc409ca8a8714e7e78f/",
            ("titanic.csv", 57_018, "81787d320d7f7b03df935e91de8bd19e11d45c5bbcab86ef4d4a76dc91b7d4f2"),
        ),
    ),
}
FILE_OPENERS: dict[str, Callable[[Request], DataSet]] = {
    "mnist": partial(open_idx, classes=DIGITS),
    "fashion_mnist": partial(open_idx, classes=GARMENTS),
    "cifar10": open_cifar10,
    "mnist1d": open_mnist1d,
    "california_housing": open_csv,
    "titanic": open_titanic,
}


_HOURS = 30 * 24  # a month of the Informer paper
ETT_BORDERS = (12 * _HOURS, 16 * _HOURS, 20 * _HOURS)  # 8 640, 11 520, 14 400
AIRLINE_BORDERS = (96, 120, 144)  # the last two years are the test, the two before them validation
_BROWNLEE = "https://raw.githubusercontent.com/jbrownlee/Datasets/d20fcb6402ae34e653d4513b00f39257bb37ed7f/"


def open_series_file(
    request: Request,
    own: Mapping[str, Any],
    borders: Sequence[int] | None = None,
    notes: Sequence[str] = (),
) -> DataSet:
    """Load a series from one CSV file. `own` are its defaults for settings that the user did not change."""
    (file,) = request.named.needed
    plain = DataSettings()
    given = request.settings
    taken = {key: value for key, value in own.items() if getattr(given, key) == getattr(plain, key)}
    table = read_table(request.place / file)
    if borders is not None and len(table) < borders[-1]:
        raise DataError(
            f"{request.place / file} has {len(table):,} rows, and {borders[-1]:,} are needed.",
            fix="It is truncated or damaged: download it again.",
        )
    return series_dataset(table, published_source(request, notes), replace(given, **taken), borders)


SERIES_SETS: dict[str, NamedSet] = {
    "ett": NamedSet(
        title="ETTh1: oil temperature of an electricity transformer by the hour",
        kind="series",
        task="forecasting",
        sizes="17 420 hours of 7 variables; 14 400 of them in the fixed split of 12, 4 and 4 months",
        licence="CC BY-ND 4.0",
        citation="H. Zhou et al., Informer: beyond efficient transformer for long sequence time-series forecasting, "
        "AAAI 2021",
        target="OT",
        folder="ett",
        files=remote_files(
            "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/1d16c8f4f943005d613b5bc962e9eeb06058cf07/ETT-small/",
            ("ETTh1.csv", 2_589_657, "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066"),
        ),
    ),
    "airline": NamedSet(
        title="Airline passengers by the month, 1949 to 1960",
        kind="series",
        task="forecasting",
        sizes="144 months; the last two years are the test split, the two before validation",
        licence="none stated where it is fetched from",
        citation="G. E. P. Box, G. M. Jenkins, G. C. Reinsel, Time series analysis: forecasting and control",
        target="Passengers",
        folder="timeseries",
        files=remote_files(
            _BROWNLEE,
            ("airline-passengers.csv", 2_180, "8cb51be753a718d9be5d76d7e238cc224792754676adc21faa59e954b0201621"),
        ),
    ),
    "sunspots": NamedSet(
        title="Sunspots by the month, 1749 to 1983",
        kind="series",
        task="forecasting",
        sizes="2 820 months",
        licence="none stated where it is fetched from",
        citation="SIDC, World Data Center for the Sunspot Index, Royal Observatory of Belgium",
        target="Sunspots",
        folder="timeseries",
        files=remote_files(
            _BROWNLEE,
            ("monthly-sunspots.csv", 45_039, "c4ec8cc57d9f6fb6ecdb3e1f37f25b6f4badd5124c55931052b0cd2fc3bc71f3"),
        ),
    ),
    "temperatures": NamedSet(
        title="Lowest temperature of the day in Melbourne, 1981 to 1990",
        kind="series",
        task="forecasting",
        sizes="3 650 days, and 2 that are missing",
        licence="none stated where it is fetched from",
        citation="Australian Bureau of Meteorology",
        target="Temp",
        folder="timeseries",
        files=remote_files(
            _BROWNLEE,
            ("daily-min-temperatures.csv", 67_921, "8b9de63ed6789492bf497625e7f9beb96a63d367b4b0a21754006f749fa5e5da"),
        ),
    ),
}

SERIES_OPENERS: dict[str, Callable[[Request], DataSet]] = {
    "ett": partial(
        open_series_file,
        own={"forecast": ("OT",), "horizon": 24},
        borders=ETT_BORDERS,
        notes=[
            "The split is that of the Informer paper: 12 months of 30 days for training, 4 for validation, 4 for the "
            "test; val= and test= change nothing, and the 3,020 hours after it are not used."
        ],
    ),
    "airline": partial(
        open_series_file,
        own={"forecast": ("Passengers",), "horizon": 12, "lookback": 24},
        borders=AIRLINE_BORDERS,
        notes=[
            "The split is fixed: the last two years are the test split, the two before them validation; val= and test= "
            "change nothing."
        ],
    ),
    "sunspots": partial(
        open_series_file,
        own={"forecast": ("Sunspots",), "horizon": 12, "season_length": 1},
        notes=["Sunspots know no calendar, and their cycle of about 11 years has no fixed length: no season is taken."],
    ),
    "temperatures": partial(
        open_series_file,
        own={"forecast": ("Temp",), "horizon": 7, "season_length": 1, "gaps": "fill"},
        notes=["The last days of 1984 and 1988, leap years, are missing: gaps=fill is this set's own setting."],
    ),
}


ESOL = "delaney-processed.csv"

GRAPH_SETS = {
    "cora": NamedSet(
        title="Cora: papers on machine learning that cite each other",
        kind="graph",
        task="classification",
        sizes="one graph of 2 708 nodes and 5 278 links, 1 433 words, 7 classes; 140, 500 and 1 000 nodes in the "
        "splits",
        licence="MIT where it is fetched from",
        citation="Z. Yang, W. Cohen, R. Salakhutdinov, Revisiting semi-supervised learning with graph embeddings, "
        "ICML 2016; P. Sen et al., Collective classification in network data, AI Magazine 29(3), 2008",
        folder="planetoid",
        files=remote_files(
            "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/",
            ("ind.cora.x", 22_119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
            ("ind.cora.tx", 148_025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
            ("ind.cora.allx", 257_305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
            ("ind.cora.y", 4_054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
            ("ind.cora.ty", 28_135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
            ("ind.cora.ally", 47_959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
            ("ind.cora.graph", 59_847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
            ("ind.cora.test.index", 5_000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
        ),
    ),
    "esol": NamedSet(
        title="ESOL: how well molecules dissolve in water",
        kind="graph",
        task="regression",
        sizes="1 128 molecules of 1 to 55 atoms, with SMILES",
        licence="MIT where it is fetched from (DeepChem)",
        citation="J. S. Delaney, ESOL: estimating aqueous solubility directly from molecular structure, Journal of "
        "Chemical Information and Computer Sciences 44(3), 2004; Z. Wu et al., MoleculeNet, Chemical Science 9, 2018",
        target="measured log solubility in mols per litre",
        folder="esol",
        files=remote_files(
            "https://raw.githubusercontent.com/deepchem/deepchem/fbe3b911a94a6eb8c84c1a9e7ac67a472c49ea80/datasets/",
            (ESOL, 96_699, "8c06a76f0c6487d29ab0f903e6a7a7139f189ab3c1178f159c8be8964602f189"),
        ),
    ),
    "karate": NamedSet(
        title="Zachary's karate club: who follows whom when it splits",
        kind="graph",
        task="classification",
        sizes="one graph of 34 nodes and 78 links, 2 classes; 2 nodes for training",
        licence="none stated; comes with networkx",
        citation="W. W. Zachary, An information flow model for conflict and fission in small groups, "
        "Journal of Anthropological Research 33, 1977",
        target="club",
    ),
    "mutag": NamedSet(
        title="MUTAG: molecules that change the genes of a bacterium",
        kind="graph",
        task="classification",
        sizes="188 graphs of 10 to 28 nodes, 7 kinds of atoms, 2 classes",
        licence="BSD-3 where it is fetched from",
        citation="A. K. Debnath et al., Journal of Medicinal Chemistry 34(2), 1991; N. Kriege, P. Mutzel, Subgraph "
        "matching kernels for attributed graphs, ICML 2012",
        folder="tu_mutag",
        files=remote_files(
            "https://raw.githubusercontent.com/ysig/GraKeL/24d496d8dac448bd520ac8d83b571fbaafc0db71/"
            "grakel/tests/data/MUTAG/",
            ("MUTAG_A.txt", 76_940, "d9656ca7493f3445d737c711710bb36fd432dddd1c0ea32e1d4713c86ebd28e2"),
            ("MUTAG_edge_labels.txt", 14_884, "4669ce755075ff86c3240709345745886400908fa637a49310459b9c267b3e56"),
            ("MUTAG_graph_indicator.txt", 11_532, "7d520a4d6c7961c0cdeabe076d8fe27e795b6d373485c9a2b744987e560a2056"),
            ("MUTAG_graph_labels.txt", 439, "a1518ea39ba3426bd42f57396b9c4baffe68e9adc718caeeab0119c6591a5f2c"),
            ("MUTAG_node_labels.txt", 6_742, "678f429965490e84dd27713017538c995fc05d1621beac910848b600015ee863"),
        ),
        enough=("MUTAG_A.txt", "MUTAG_graph_indicator.txt", "MUTAG_graph_labels.txt", "MUTAG_node_labels.txt"),
    ),
}

# The numbers in the files, as described in their README.
ATOMS = {
    "label 0": "C",
    "label 1": "N",
    "label 2": "O",
    "label 3": "F",
    "label 4": "I",
    "label 5": "Cl",
    "label 6": "Br",
}
BONDS = {"label 0": "aromatic", "label 1": "single", "label 2": "double", "label 3": "triple"}
MUTAGENIC = {"-1": "not mutagenic", "1": "mutagenic"}
LEADERS = (0, 33)  # the instructor and the administrator, who led the two factions
KARATE_KNOWN = "Training knows the instructor and the administrator alone, one of each side. "
KARATE_VALIDATION = 8 / 32  # of the other members


def open_cora(request: Request) -> DataSet:
    """Load Cora with the public split: 20 nodes of each class for training, 500 for validation, 1 000 for the test."""
    return _dataset(request, read_planetoid(request.place))


def open_mutag(request: Request) -> DataSet:
    """Load MUTAG with the names of atoms and classes."""
    graphs = read_tu(request.place)
    assert graphs.table is not None
    assert graphs.targets is not None
    atom = f"{LABEL} 1"
    atoms = graphs.table.frame[atom].replace(ATOMS).alias("atom")
    classes = graphs.targets.frame[GRAPH_CLASS].replace(MUTAGENIC).alias(GRAPH_CLASS)
    bonds = None
    if graphs.edge_table is not None:  # an optional file
        bonds = Table("", pl.DataFrame([graphs.edge_table.frame[f"{EDGE_LABEL} 1"].replace(BONDS).alias("bond")]))
    graphs = dataclasses.replace(
        graphs,
        table=Table("", pl.DataFrame([atoms])),
        edge_table=bonds,
        columns=("atom",),
        targets=Table("", pl.DataFrame([classes])),
    )
    return _dataset(request, graphs)


def open_esol(request: Request) -> DataSet:
    """Load ESOL: log solubility in mol/l of molecules, split at random."""
    settings = request.settings
    target, smiles = settings.target or request.named.target, settings.smiles or "smiles"
    graphs = read_molecules(request.place / ESOL, smiles, Form.from_settings(settings), settings.missing == "drop")
    settings = dataclasses.replace(settings, target=target, smiles=smiles)
    return graph_dataset(graphs, published_source(request), settings)


def open_karate(request: Request) -> DataSet:
    """Load the karate club. Only the two leaders are labelled; all other members are classified from the links."""
    import networkx  # imported here because it is slow to import

    club = networkx.karate_club_graph()
    links = np.array(club.edges, np.int64).T  # (2, 78)
    sides = [str(club.nodes[i]["club"]) for i in range(len(club))]
    others = np.setdiff1d(np.arange(len(club)), LEADERS)
    strata = np.array([sides[i] == sides[0] for i in others])
    seed = request.settings.split_seed
    drawn = split_indices(len(others), val=KARATE_VALIDATION, test=0.0, seed=seed, strata=strata)
    digest = hashlib.sha256(links.astype("<i8").tobytes() + "".join(sides).encode()).hexdigest()
    graphs = RawGraphs(
        title="the karate club",
        edges=np.concatenate([links, links[::-1]], axis=1),
        names=[f"member {i + 1}" for i in range(len(club))],
        targets=Table("", pl.DataFrame({"club": sides})),
        target="club",
        target_kind="category",
        splits={"train": np.array(LEADERS), "val": others[drawn["val"]], "test": others[drawn["train"]]},
    )
    known = "" if request.settings.links else KARATE_KNOWN
    note = f"{known}How often members met, which networkx has as weights of links, is not used."
    return graph_dataset(graphs, DataSource(request.name, request.name, digest, [note]), request.settings)


def _dataset(request: Request, graphs: RawGraphs) -> DataSet:
    """Build a data set from published graph files."""
    files = [file for file in request.named.sums if (request.place / file).is_file()]
    return graph_dataset(graphs, published_source(request, files=files), request.settings)


GRAPH_OPENERS = {"cora": open_cora, "esol": open_esol, "karate": open_karate, "mutag": open_mutag}

NAMED = FILE_SETS | SERIES_SETS | GRAPH_SETS
OPENERS = FILE_OPENERS | SERIES_OPENERS | GRAPH_OPENERS
