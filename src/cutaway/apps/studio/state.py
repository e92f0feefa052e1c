"""State of a side of the studio: flat key-value pairs, as in the page's URL, their meaning and their defaults.

    data=spirals  model=mlp  model.hidden_dims=8,8  lr=0.01  seed=0  noise=0.1
    steps=200     number of steps to train after opening
    log=120:lr=0.1;130:weight:head.weight[0,1]=0.5    changes by hand with their steps, which are replayed

For each kind of data, the defaults are a small model that trains quickly and settings with which it learns within a
minute. All other values come from the model's card or the data.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...core.config import field_names, unknown_setting
from ...core.errors import SettingError
from ...data.datasets.toy_data import TOYS
from ...data.settings import DataSettings
from ...models.registry import Preset
from ...training.config import TrainSettings

KEYS_AT_MOST, LETTERS_AT_MOST, LOG_AT_MOST = 100, 2_000, 200_000
FURTHEST = 10_000_000  # maximum steps in a URL
# Keys of the display and the playground, which do not affect training.
OF_PAGE = ("views", "example", "hide", "sides", "try", "temperature", "tokens", "tour")
OF_SIDE = ("data", "model", "steps", "log", "speed", "begin")
# Settings with paths or for output folders: the page must not open paths.
NOT_HERE = (
    *("weights", "vectors", "tensorboard", "snapshots", "save_minutes", "minutes", "max_steps", "average_epochs"),
    *("workers", "threads", "compile", "memory_fraction"),
)
TRAINING = tuple(key for key in field_names(TrainSettings) if key not in NOT_HERE)
DATA = tuple(key for key in field_names(DataSettings) if key not in NOT_HERE)
FIRST = {  # the default state
    "data": "spirals",
    "model": "mlp",
    "model.hidden_dims": "8,8",
    "model.activation": "tanh",
    "model.dropout": "0",
    "lr": "0.01",
    "batch_size": "64",
    "speed": "60",
}
USUAL = {"schedule": "constant"}  # training here has no end, so the schedule has none
ALWAYS = {
    "snapshots": "0",  # nothing is written
    "tensorboard": "false",
    "memory_fraction": "0.25",  # a side takes two processes and snapshots, and there may be two sides
}
CHANGE = re.compile(r"(\d+):(?:weight:([\w.]+)\[([\d,]*)\]|([\w.]+))=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Change:
    """A change by hand: of a setting or of a weight."""

    step: int
    key: str  # name of a setting or of a parameter
    value: str
    index: tuple[int, ...] | None = None  # position of the weight; None for a setting

    def __str__(self) -> str:
        if self.index is None:
            return f"{self.step}:{self.key}={self.value}"
        return f"{self.step}:weight:{self.key}[{','.join(map(str, self.index))}]={self.value}"


@dataclass(frozen=True)
class Opening:
    """The data that a process needs to build a side: plain values, sent as JSON."""

    model: str
    source: str  # a data set's name, or the path of a file that was opened
    given: dict[str, str] = field(default_factory=dict)  # settings of training and data, and the model's own
    run: str | None = None  # the run's folder; the data is the run's, and the weights too if the model is the run's
    uploaded: str = ""  # name of an uploaded file, or empty
    anew: bool = False  # whether the run's model is initialized again
    steps: int = 0
    log: str = ""
    speed: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; `Opening(**values)` reads them."""
        return asdict(self)


def validate_state(state: Any) -> dict[str, str]:
    """Return a state without its empty values, if it is flat text of a size that fits a URL. Raises SettingError."""
    if not isinstance(state, dict) or not all(isinstance(k, str) and isinstance(v, str) for k, v in state.items()):
        raise SettingError("Invalid state: must be an object of strings, e.g. {'data': 'moons', 'lr': '0.1'}.")
    if len(state) > KEYS_AT_MOST:
        raise SettingError(f"Invalid state with {len(state)} keys: must have at most {KEYS_AT_MOST}.")
    for key, value in state.items():
        if len(key) > 200 or len(value) > (LOG_AT_MOST if key == "log" else LETTERS_AT_MOST):
            raise SettingError(f"The value of {key[:200]} is too long: {len(value):,} characters.")
    return {key: value for key, value in state.items() if value != ""}


def state_settings(state: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of training, data and model in the state of a page, which is its URL.

    Raises UnknownName for an unknown key, SettingError for one that the page may not set.
    """
    given = {}
    for key, value in state.items():
        if key in OF_SIDE or key in OF_PAGE or key.startswith("view."):
            continue
        if key in NOT_HERE:
            raise SettingError(f"Invalid {key}: not available in the studio; use `cutaway train`.")
        if key not in TRAINING and key not in DATA and not key.startswith("model."):
            raise unknown_setting(key, [*TRAINING, *DATA])
        given[key] = value
    tokenizer = given.get("tokenizer")
    if tokenizer is not None and not re.fullmatch(r"\w+", tokenizer):
        raise SettingError("Tokenizer files cannot be opened from the page: choose a tokenizer by name.")
    return given


def parse_number(state: Mapping[str, str], key: str, most: float) -> float:
    """Return a number from 0 to `most`, by default 0. Raises SettingError."""
    try:
        value = float(state.get(key, "0"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise SettingError(f"Invalid {key}={state[key]}: must be a number from 0 to {most:,.0f}.")
    return value


def parse_log(log: str) -> list[Change]:
    """Parse a log to changes, in order. Raises SettingError for an invalid log."""
    changes = []
    for entry in filter(None, log.split(";")):
        found = CHANGE.fullmatch(entry)
        if found is None:
            raise SettingError(f"Invalid log={entry[:80]}: must be STEP:KEY=VALUE, separated by ;.")
        step, weight, index, key, value = found.groups()
        place = tuple(int(i) for i in index.split(",") if i) if weight is not None else None
        changes.append(Change(int(step), weight or key, value, place))
    if any(later.step < earlier.step for earlier, later in itertools.pairwise(changes)):
        raise SettingError("Invalid log: steps must not decrease.")
    return changes


def format_log(changes: list[Change]) -> str:
    """Format changes for a URL."""
    return ";".join(map(str, changes))


# Possible targets of each task, as class names in spec.py: a model without any of them is not offered. For a corpus
# of text, the model determines the target.
LEARNS = {
    "classification": ("Classes",),
    "regression": ("Value",),
    "tagging": ("Tags",),
    "semantic segmentation": ("Mask",),
    "language modelling": ("NextToken", "Masked", "Context"),
    "problem solving": ("NextToken",),
    "forecasting": ("Horizon",),
    "sequence-to-sequence": ("Tokens",),
    "object detection": ("Boxes",),
    "image captioning": ("Tokens",),
    "speech recognition": ("Transcript", "Spelled"),
}
ALSO = {"cora": ("Links",), "karate": ("Links",)}  # single graphs, which also support link prediction
TOY = {
    "model": "mlp", "model.hidden_dims": "8,8", "model.activation": "tanh", "model.dropout": "0", "lr": "0.01",
    "batch_size": "64",
}  # fmt: skip
WIDE = {"ffn_dim": "256", "head_dim": "16"}  # only for models with these settings
SMALL = {"model.layers": "2", "model.heads": "4", "model.dim": "64"}
BEGINNINGS: Mapping[tuple[str, str], dict[str, str]] = {
    ("table", "classification"): {"model": "mlp", "model.hidden_dims": "16,16", "lr": "0.01", "batch_size": "64"},
    ("table", "regression"): {"model": "mlp", "model.hidden_dims": "32,32", "lr": "0.005", "batch_size": "128"},
    ("image", "classification"): {"model": "lenet5-modern"},
    ("image", "semantic segmentation"): {"model": "unet-small"},
    ("image", "object detection"): {"model": "fcos-resnet18-small"},
    ("image", "image captioning"): {"model": "show-attend-tell"},
    ("series", "classification"): {"model": "cnn1d"},
    ("series", "forecasting"): {"model": "gru", "model.hidden_dim": "32", "lr": "0.005"},
    ("text", "classification"): {"model": "textcnn", "model.dim": "64", "model.filters": "32"},
    ("text", "tagging"): {"model": "gru", "model.hidden_dim": "64", "lr": "0.005"},
    ("text", "language modelling"): {
        "model": "gpt2", **SMALL, "model.dropout": "0", "lr": "0.004", "batch_size": "16", "length": "64",
    },
    ("text", "problem solving"): {
        "model": "gpt2", **SMALL, "model.dropout": "0", "lr": "0.004", "batch_size": "64",
    },
    ("graph", "classification"): {"model": "gcn"},
    ("graph", "regression"): {"model": "gine"},
    ("seq2seq", ""): {
        "model": "seq2seq-gru", "model.hidden_dim": "64", "model.embedding_dim": "32",
        "batch_size": "32",
    },
    ("audio", "classification"): {"model": "gru", "model.hidden_dim": "64"},
    ("audio", "speech recognition"): {"model": "ctc-conv-gru"},
    ("video", "classification"): {"model": "cnn-lstm", "model.hidden_dim": "64"},
}  # fmt: skip
OF_ONE = {
    # One hidden layer, so that the page can show how its neurons add up to the curve.
    "wave": {
        "model.hidden_dims": "16",
        "model.activation": "tanh",
        "model.dropout": "0",
        "lr": "0.05",
        "batch_size": "32",
    },
    # Long texts: character tokens are fast, and a small validation split is enough.
    "wikitext2": {"tokenizer": "characters"},
    "gutenberg": {"tokenizer": "characters", "val": "0.02", "test": "0.02"},
}


def default_state(name: str, kind: str, task: str) -> dict[str, str]:
    """Return the default state of a data set; empty if its kind is unknown."""
    if name in TOYS:
        return dict(TOY)
    return {**(BEGINNINGS.get((kind, task)) or BEGINNINGS.get((kind, "")) or {}), **OF_ONE.get(name, {})}


def small_settings(preset: Preset) -> dict[str, str]:
    """Return settings that make a large attention model small enough for a CPU."""
    own: dict[str, Any] = {key: getattr(preset.config, key, None) for key in ("dim", "layers", "heads", *WIDE)}
    if not all(isinstance(own[key], int) for key in ("dim", "layers", "heads")) or own["dim"] <= 64:
        return {}
    return {**SMALL, **{f"model.{key}": value for key, value in WIDE.items() if own[key]}}
