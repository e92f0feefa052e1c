"""Catalog of the built-in data sets: contents, licence, citation and source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...core.spec import ImageSizes, Target
from ..settings import DataSettings
from .download import Remote


@dataclass(frozen=True)
class NamedSet:
    """Catalog entry of a data set."""

    title: str
    kind: str  # table, image, text, seq2seq, series, audio, video or graph
    task: str  # classification, regression, …
    sizes: str  # number and kind of examples
    licence: str
    citation: str
    target: str = "class"  # default target column
    folder: str = ""  # folder of its files, below $CUTAWAY_DATA and the cache
    files: tuple[Remote, ...] = ()  # downloads; empty if no file is needed
    enough: tuple[str, ...] = ()  # required files, if not all are

    @property
    def sums(self) -> dict[str, str]:
        """Return the published sha256 of each file below the folder."""
        return {name: sha256 for remote in self.files for name, sha256 in remote.contents}

    @property
    def needed(self) -> tuple[str, ...]:
        """Return the required files below the folder."""
        return self.enough or tuple(self.sums)


@dataclass(frozen=True)
class Request:
    """Arguments of the function that loads a built-in data set."""

    name: str
    named: NamedSet
    place: Path  # folder of its files
    settings: DataSettings
    sizes: ImageSizes  # input sizes that the model accepts
    targets: tuple[type[Target], ...] = ()  # target types that the model requests, if any


def remote_files(home: str, *files: tuple[str, int, str]) -> tuple[Remote, ...]:
    """Create the downloads of files (name, bytes, sha256) in the same remote folder."""
    return tuple(Remote(name, home + name, sha256, size) for name, size, sha256 in files)


_UCI = "CC BY 4.0 at the UCI repository; comes with scikit-learn"
_OURS = "none needed: it is computed here"
_CIFAR = "cifar-10-batches-bin/"  # the folder in CIFAR-10's archive

NAMED: dict[str, NamedSet] = {
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
