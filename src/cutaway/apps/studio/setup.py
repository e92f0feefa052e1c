"""State of a side of the studio, and the model and data that are built from it.

The state is flat key-value pairs, as in the page's URL:

    data=spirals  model=mlp  model.hidden_dims=8,8  lr=0.01  seed=0  noise=0.1
    steps=200     number of steps to train after opening
    log=120:lr=0.1;130:weight:head.weight[0,1]=0.5    changes by hand with their steps, which are replayed

For each kind of data, the defaults are a small model that trains quickly and settings with which it learns within a
minute. All other values come from the model's card or the data.

The learner and the viewer both build model and data here. The memory of a training step is extrapolated from two
examples before the first full batch.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

from ...core.config import as_text, build, field_names, parse, pick, split_model_settings, unknown_setting
from ...core.errors import CutawayError, IncompatibleSettingError, MemoryLimitError, ModelError, SettingError
from ...core.memory_budget import format_bytes, free_memory
from ...core.spec import Context, Masked, NextToken, Solution, Target
from ...data.datasets.toy_data import TOYS
from ...data.open_data import open_data
from ...data.settings import DataSettings
from ...models.registry import Preset, preset
from ...runs.run import Run
from ...training.config import TrainSettings
from ...training.memory import measure_activations
from ...training.run_folder import data_source
from ...training.setup import TrainingSetup, setup_training
from ...training.trainer import Trainer

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
            raise IncompatibleSettingError(f"Invalid {key}: not available in the studio; use `cutaway train`.")
        if key not in TRAINING and key not in DATA and not key.startswith("model."):
            raise unknown_setting(key, [*TRAINING, *DATA])
        given[key] = value
    tokenizer = given.get("tokenizer")
    if tokenizer is not None and not re.fullmatch(r"\w+", tokenizer):
        raise IncompatibleSettingError("Tokenizer files cannot be opened from the page: choose a tokenizer by name.")
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


RUNNING = (NextToken, Masked, Context)  # possible targets of a corpus of text


@dataclasses.dataclass
class Built:
    """The model, data and settings of an opening."""

    ready: TrainingSetup
    run: Run | None = None  # the run that the weights come from
    notes: tuple[str, ...] = ()


def build_side(opening: Opening) -> Built:
    """Build the model, its data and its training settings.

    For a run, these are the run's, with its saved weights; a different model is initialized, and trained on the run's
    data. Raises what reading and building raise.
    """
    if opening.run is None:
        return Built(setup_training(opening.model, opening.source, {**USUAL, **opening.given, **ALWAYS}))
    run = Run(opening.run)
    about = run.about
    source = data_source(about["data"])
    same = not opening.anew and opening.model == about["model"] and _same_model(run, opening.given)
    own = run.with_own_tokenizer(about["settings"])
    if not same:
        of_data = pick(own, DataSettings)
        built = Built(setup_training(opening.model, source, {**of_data, **USUAL, **opening.given, **ALWAYS}))
        built.notes = (
            "These are not the weights of the run: this model is trained from scratch on the data of the run.",
        )
    else:
        kept = {key: value for key, value in own.items() if key not in NOT_HERE}
        of_model = {f"model.{key}": value for key, value in about["model_settings"].items()}
        built = Built(
            setup_training(opening.model, source, {**kept, **of_model, **opening.given, **ALWAYS}, resumed=True), run
        )
        built.ready.model.load_state_dict(run.model.state_dict())
    run.reject_other(built.ready.data, "or open the studio without the run.")
    return built


def with_data(ready: TrainingSetup, changes: Mapping[str, Any]) -> TrainingSetup:
    """Return a copy with data drawn again under other settings. Raises SettingError if it no longer fits the model, and
    what reading raises."""
    given = {f.name: getattr(ready.data_settings, f.name) for f in dataclasses.fields(DataSettings)}
    settings = build(DataSettings, {**given, **changes})
    data = open_data(ready.data.source, settings, ready.sizes, ready.preset.targets)
    if data.spec.shape != ready.data.spec.shape or data.spec.target != ready.data.spec.target:
        said = ", ".join(f"{key}={value}" for key, value in changes.items())
        raise IncompatibleSettingError(f"{said} changes the shape of the data: open the model again.")
    return dataclasses.replace(ready, data=data, data_settings=settings)


def with_settings(ready: TrainingSetup, changes: Mapping[str, Any]) -> TrainingSetup:
    """Return a copy with other model settings and the same weights, such as another dropout or activation.

    Raises ModelError if the shapes of the weights would change, and all errors of the model's config.
    """
    found, parsed = ready.preset, {**ready.model_settings, **ready.preset.parse(changes)}
    config = found.configure(ready.data.spec, parsed)
    with torch.random.fork_rng([]):
        model = found.build(config)
    if _shapes(model) != _shapes(ready.model):
        said = " and ".join(f"model.{key}={as_text(value)}" for key, value in changes.items())
        raise ModelError(f"{said} changes the shape of the weights: open the model again.")
    model.load_state_dict(ready.model.state_dict())
    return dataclasses.replace(ready, model=model, model_settings=parsed)


def compatible_models(ready: TrainingSetup, names: list[Preset]) -> list[str]:
    """Return the models that can train on this data. For a corpus of text, the model determines the target."""
    spec = ready.data.spec
    targets: tuple[type[Target], ...] = (type(spec.target),)
    if isinstance(spec.target, Solution):
        targets = (NextToken,)
    elif isinstance(spec.target, RUNNING):
        targets = RUNNING
    return [p.name for p in names if spec.kind in p.takes and set(p.targets) & set(targets)]


def _same_model(run: Run, given: Mapping[str, Any]) -> bool:
    """Return whether the given settings are those of the run's model, including its seed."""
    found, config = preset(run.about["model"]), run.model.config
    try:
        asked = found.parse(split_model_settings(given)[0])
    except CutawayError:
        return False
    seed = parse("seed", given.get("seed", run.about["seed"]), int)
    return seed == run.about["seed"] and all(getattr(config, key) == value for key, value in asked.items())


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


FEW = 2  # examples in the trial batch
FRACTION = 0.5  # of free memory for one step, at most: a second model may train at the same time
AND_BACK = 2  # activations of the forward pass, plus as much for gradients


def reject_large_steps(trainer: Trainer, settings: TrainSettings) -> None:
    """Raise SettingError if a training step would need too much memory. Neither the model nor random state changes."""
    free = free_memory()
    batches = trainer.epoch_batches(0)
    if free is None or not batches or settings.batch_tokens or not settings.batch_size:
        return  # batches of another kind have no fixed number of examples
    few = batches[0][:FEW]
    inputs, _ = trainer.place.batch(next(iter(trainer.train.batches([few]))))
    kept = measure_activations(trainer.model, inputs, trainer.place)
    needed = AND_BACK * kept * min(settings.batch_size, len(trainer.train)) / max(1, len(few))
    if needed > FRACTION * free:
        raise MemoryLimitError(
            f"A step of batch_size={settings.batch_size} examples would need about {format_bytes(int(needed))} of"
            f" memory with this model; {format_bytes(free)} are free, of which the studio uses at most half."
            " Use a narrower model or a smaller batch."
        )
