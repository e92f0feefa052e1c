"""What a side is opened with: flat words, as they stand in the page's URL, and what they mean.

data=spirals  model=mlp  model.hidden_dims=8,8  lr=0.01  seed=0  noise=0.1
steps=200     how far it is trained when it is opened
log=120:lr=0.1;130:weight:head.weight[0,1]=0.5    what was changed by hand, and at which step: done again there
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...core.config import keys, unknown_setting
from ...core.errors import SettingError
from ...data.settings import DataSettings
from ...training.config import TrainSettings

KEYS_AT_MOST, LETTERS_AT_MOST, LOG_AT_MOST = 100, 2_000, 200_000
FURTHEST = 10_000_000  # steps that a URL may ask for
# What is watched and tried, which is no matter of training.
OF_PAGE = ("views", "example", "hide", "sides", "try", "temperature", "tokens", "tour")
OF_SIDE = ("data", "model", "steps", "log", "speed", "begin")
# Settings that name files, or are about a folder that is written: the page opens no paths.
NOT_HERE = (
    *("weights", "vectors", "tensorboard", "snapshots", "save_minutes", "minutes", "max_steps", "average_epochs"),
    *("workers", "threads", "compile", "memory_fraction"),
)
TRAINING = tuple(key for key in keys(TrainSettings) if key not in NOT_HERE)
DATA = tuple(key for key in keys(DataSettings) if key not in NOT_HERE)
FIRST = {  # what is on the screen when nothing is asked for
    "data": "spirals",
    "model": "mlp",
    "model.hidden_dims": "8,8",
    "model.activation": "tanh",
    "model.dropout": "0",
    "lr": "0.01",
    "batch_size": "64",
    "speed": "60",
}
USUAL = {"schedule": "constant"}  # a schedule that ends is for training that ends
ALWAYS = {
    "snapshots": "0",  # nothing is written
    "tensorboard": "false",
    "memory_fraction": "0.25",  # two processes hold a side, with copies to go back to, and a second side beside it
}
CHANGE = re.compile(r"(\d+):(?:weight:([\w.]+)\[([\d,]*)\]|([\w.]+))=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Change:
    """One thing that was changed by hand: a setting, or a weight."""

    step: int
    key: str  # of a setting, or a weight's name
    value: str
    index: tuple[int, ...] | None = None  # of a weight; None: it is a setting

    def __str__(self) -> str:
        if self.index is None:
            return f"{self.step}:{self.key}={self.value}"
        return f"{self.step}:weight:{self.key}[{','.join(map(str, self.index))}]={self.value}"


@dataclass(frozen=True)
class Opening:
    """What a process needs to build a side: plain values, to be sent as JSON."""

    model: str
    source: str  # a data set's name, or the path of a file that was opened
    given: dict[str, str] = field(default_factory=dict)  # settings of training and data, and the model's own
    run: str | None = None  # a run's folder, whose data this is, and whose weights where the model is the run's
    uploaded: str = ""  # what a file that was handed over is called; nothing for other data
    anew: bool = False  # whether the run's model begins with its first weights all the same
    steps: int = 0
    log: str = ""
    speed: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `Opening(**values)` reads them back."""
        return asdict(self)


def checked(state: Any) -> dict[str, str]:
    """The state as it was sent, if it is flat words of a size that a URL could hold. Raises SettingError."""
    if not isinstance(state, dict) or not all(isinstance(k, str) and isinstance(v, str) for k, v in state.items()):
        raise SettingError("A state is words by name, as {'data': 'moons', 'lr': '0.1'}.")
    if len(state) > KEYS_AT_MOST:
        raise SettingError(f"A state has at most {KEYS_AT_MOST} keys, and this has {len(state)}.")
    for key, value in state.items():
        if len(key) > 200 or len(value) > (LOG_AT_MOST if key == "log" else LETTERS_AT_MOST):
            raise SettingError(f"The value of {key[:200]} is too long: {len(value):,} letters.")
    return {key: value for key, value in state.items() if value != ""}


def settings_of(state: Mapping[str, str]) -> dict[str, str]:
    """The settings among the keys of a state. Raises UnknownName for a key that is none, SettingError for one that the
    page may not set."""
    given = {}
    for key, value in state.items():
        if key in OF_SIDE or key in OF_PAGE or key.startswith("view."):
            continue
        if key in NOT_HERE:
            raise SettingError(f"{key} is not set in the studio: `cutaway train` has it.")
        if key not in TRAINING and key not in DATA and not key.startswith("model."):
            raise unknown_setting(key, [*TRAINING, *DATA])
        given[key] = value
    tokenizer = given.get("tokenizer")
    if tokenizer is not None and not re.fullmatch(r"\w+", tokenizer):
        raise SettingError("A tokenizer's file is not opened from the page: choose one by its name.")
    return given


def number_of(state: Mapping[str, str], key: str, most: float) -> float:
    """A number that is not below 0, or 0 where there is none. Raises SettingError."""
    try:
        value = float(state.get(key, "0"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise SettingError(f"{key}={state[key]} cannot be: it is a number from 0 to {most:,.0f}.")
    return value


def read_log(log: str) -> list[Change]:
    """What was changed, in order. Raises SettingError for what is no log."""
    changes = []
    for entry in filter(None, log.split(";")):
        found = CHANGE.fullmatch(entry)
        if found is None:
            raise SettingError(f"log={entry[:80]} cannot be read: a change is STEP:KEY=VALUE, changes stand between ;.")
        step, weight, index, key, value = found.groups()
        place = tuple(int(i) for i in index.split(",") if i) if weight is not None else None
        changes.append(Change(int(step), weight or key, value, place))
    if any(later.step < earlier.step for earlier, later in itertools.pairwise(changes)):
        raise SettingError("log cannot be: its steps must not go back.")
    return changes


def written_log(changes: list[Change]) -> str:
    """The changes as they stand in a URL."""
    return ";".join(map(str, changes))
