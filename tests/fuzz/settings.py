"""The command line: random settings of all commands, with hostile values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from cutaway.core.config import field_names
from cutaway.data.settings import DataSettings
from cutaway.data.synthetic import write_example
from cutaway.deploy.quantize_config import QuantizeSettings
from cutaway.models.registry import presets
from cutaway.training.config import TrainSettings

from .documents import command
from .kinds import Case, Kind, read_whole

VALUES = (
    "0", "1", "-1", "2", "7", "0.5", "-0.5", "1e-9", "1e308", "-1e308", "1e999", "nan", "inf", "-inf", "1e5", "0x10",
    "9223372036854775807", "9223372036854775808", "1" + "0" * 30, "9" * 5000, "", " ", "none", "auto", "true", "false",
    "text", "x" * 5000, "1,2", ",", "1,,2", "(1,2)", "[]", "[[1]]", "{}", "a=b", "../..", "/", "/dev/zero", "~", "*",
    "\x00", "\ud800", "\u202e", "é", "１", "cultivar", "hue", "hue,ash", "alcohol:category", "cosine", "sgd", "adam",
    "relu",
    "l1", "crop", "balanced", "tpe", "1..2", "1..0", "1e-3..1:log", "a|b",
)  # fmt: skip
MODELS = ("mlp", "linear", "gru", "gpt2", "lenet5", "gcn", "textcnn", "nothing", "", "-", "MLP", "x" * 500)
NOT = ("out", "resume", "tensorboard", "compile", "device", "workers", "threads", "minutes")
DATA = ("wine.csv", "days.txt", "wine.csv,wine.csv", "nothing.csv", ".", "", "digits", "/dev/null", "https://a.b/c.csv")


def prepare(home: Path) -> None:
    """Write the data of the commands."""
    for name in ("wine.csv", "days.txt"):
        write_example(name, home / "examples")


def cases(home: Path, own: Path, random: Random) -> Iterator[Case]:
    """`cutaway check` and `show` with settings that cannot be, one to four at a time."""
    names = [name for name in field_names(TrainSettings, DataSettings) if name not in NOT]
    names += [*field_names(QuantizeSettings), "model.x", "model.", "", "lr.x", "no_such", "Target"]
    models = sorted(presets())
    usual = ["check", "mlp", str(home / "examples" / "wine.csv"), "target=cultivar"]
    yield Case("nothing hostile", partial(read_whole, partial(command, usual)))
    while True:
        model = random.choice(MODELS) if random.random() < 0.3 else "mlp"
        source = random.choice(DATA) if random.random() < 0.25 else "wine.csv"
        source = str(home / "examples" / source) if source in DATA[:2] else source
        fields = [f"model.{field}" for field in vars(presets()["mlp"].config)]
        words = []
        for _ in range(random.choice((1, 1, 2, 4))):
            key = random.choice(names if random.random() < 0.8 else fields)
            words.append(f"{key}={random.choice(VALUES)}")
        if random.random() < 0.15:
            found = presets()[random.choice(models)]
            words = [f"model.{random.choice(list(vars(found.config)))}={random.choice(VALUES)}"]
            argv = ["show", found.name, *words]
        else:
            target = ["target=cultivar"] if random.random() < 0.8 else []
            argv = ["check", model, source, *target, *words]
        if random.random() < 0.05:
            random.shuffle(argv)
        yield Case(" ".join(word[:60] for word in argv), partial(command, argv))


KINDS = [Kind("settings", prepare, cases, seconds=60, quick=True)]
