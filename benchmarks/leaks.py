"""Real sets as a person has them in hand, and leaks put into them by seed.

A leak is put into the raw rows, images, series, texts or recordings, before anything is split or prepared, and the set
is then opened as a person's own is; `benchmarks.guard` holds what is said of it to what was put in.
"""

from __future__ import annotations

import re
import wave
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from cutaway.core.spec import ANY_SIZE
from cutaway.data.dataset_base import DataSet
from cutaway.data.datasets.catalog import data_roots
from cutaway.data.in_memory.source import InMemorySource
from cutaway.data.open_data import open_data, open_validated
from cutaway.data.settings import DataSettings

COPIES = 30
CLASSES = 20  # a number of more values is a quantity
WRONG = 0.1  # of the labels
WORDS = 12  # of a text that loses one
NOISE = 0.003  # of a column's standard deviation, on the numbers of a row
SIGNAL = 0.03  # of the standard deviation, on pixels and samples
FILES = {"penguins.csv": "species", "mpg.csv": "mpg", "diamonds.csv": "price"}  # tables and what is predicted
AFTERWARDS = {"titanic": ("alive",)}  # columns that are the target in other words
RATE, RECORDINGS = 8000, 1000  # samples in a second; of a set, no more are written
Rng = np.random.Generator
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Raw:
    """A set as it is in hand: a table with its target, or images, series, texts or recordings with theirs beside."""

    name: str
    kind: str
    x: Any  # pl.DataFrame; (n, …); or a list of texts, or of the samples of recordings
    y: Array  # (n,) numbers, or words
    target: str = "y"  # the column of a table
    test: Raw | None = None  # where the splits are given

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def classes(self) -> bool:
        """Whether the target is classes, not a quantity."""
        return self.y.dtype.kind not in "if" or len(np.unique(self.y)) <= CLASSES

    @cached_property
    def continuous(self) -> list[str]:
        """The numbers of a table, of many values, but for the target."""
        return [c.name for c in self.x if c.dtype.is_numeric() and c.name != self.target and c.n_unique() > 20]

    def take(self, rows: Array) -> Raw:
        """Some of its examples, in that order."""
        x = [self.x[i] for i in rows.tolist()] if isinstance(self.x, list) else self.x[rows]
        return replace(self, x=x, y=self.y[rows])

    def labelled(self, y: Array) -> Raw:
        """The same with other targets."""
        x = self.x.with_columns(pl.Series(self.target, y)) if self.kind == "table" else self.x
        return replace(self, x=x, y=y)

    def column(self, name: str, values: Any) -> Raw:
        """A table with one more column."""
        return replace(self, x=self.x.with_columns(pl.Series(name, values)))

    def below(self, other: Raw) -> Raw:
        """The examples of both."""
        x = self.x + other.x if isinstance(self.x, list) else None
        if x is None:
            x = pl.concat([self.x, other.x]) if self.kind == "table" else np.concatenate([self.x, other.x])
        return replace(self, x=x, y=np.concatenate([self.y, other.y]))

    def opened(self, folder: Path, seed: int = 0) -> DataSet:
        """As a person's own, with what the guard finds; `seed` draws the splits."""
        if self.kind == "audio":
            return open_validated(str(self._written(folder)), DataSettings(split_seed=seed))
        both = [one and (one.x if one.kind == "table" else (one.x, one.y)) for one in (self, self.test)]
        target = self.target if self.kind == "table" else None
        return open_validated(
            InMemorySource(both[0], test=both[1]),
            DataSettings(split_seed=seed, target=target),
            ANY_SIZE,
            (),
            (self.kind,),
        )

    def _written(self, folder: Path) -> Path:
        for split, one in {"train": self, "test": self.test}.items():
            for i, (samples, label) in enumerate(zip(one.x, one.y) if one else ()):
                path = folder / (split if self.test else "") / str(label) / f"{i}.wav"
                path.parent.mkdir(parents=True, exist_ok=True)
                with wave.open(str(path), "wb") as file:
                    file.setparams((1, 2, RATE, 0, "NONE", ""))
                    file.writeframes(samples.astype("<i2").tobytes())
        return folder


def number(name: str, kind: str) -> int:
    """Which example of a raw set goes by that name, where its splits were drawn."""
    return int(re.findall(r"\d+", name)[-1]) - (kind != "audio")


def raw(name: str) -> Raw:
    """A set by its name, or a table by its file."""
    if name in FILES:
        path = next(p for root in data_roots() if (p := root / "tabular_seaborn" / name).exists())
        frame, target = pl.read_csv(path, null_values=["", "NA"]).drop_nulls(FILES[name]), FILES[name]
        return Raw(name, "table", frame, frame[target].to_numpy(), target)
    data = open_data(name, DataSettings())
    kind, split = data.spec.kind, data.splits["train"]
    if kind == "table":
        whole, target = split.at(0)[0].frame, data.spec.target.column  # type: ignore[attr-defined]
        frame = pl.read_csv(whole.drop_nulls(target).write_csv().encode(), null_values=["", "NA"])
        frame = frame.drop(AFTERWARDS.get(name, ()))
        return Raw(name, kind, frame, frame[target].to_numpy(), target)
    each = [(one, i) for one in data.splits.values() for i in range(len(one))]
    words = np.array(data.spec.target.classes)
    y = words[torch.cat([one.target for one in data.splits.values() if one.target is not None]).numpy()]
    if kind == "audio":
        folder = next(p for root in data_roots() if (p := root / name / "recordings").exists())
        some = range(0, len(each), len(each) // RECORDINGS)
        return Raw(name, kind, [_samples(folder / each[k][0].name(each[k][1])) for k in some], y[list(some)])
    if kind == "text":
        return Raw(name, kind, [next(iter(one.row(i).values())) for one, i in each], y)  # type: ignore[union-attr]
    if kind == "image":
        return Raw(name, kind, np.stack([np.asarray(one.image(i)) for one, i in each]), y)
    return Raw(name, kind, np.concatenate([one.inputs.numpy() for one in data.splits.values()]), y)  # type: ignore[attr-defined]


def _samples(path: Path) -> Array:
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


@dataclass(frozen=True)
class Leak:
    """A set with a leak: pairs of copy and source, by number; or the examples that are wrong; or the column or split
    that a finding must name."""

    raw: Raw
    pairs: list[tuple[int, int]] = field(default_factory=list)
    wrong: Array | None = None  # (n,) bool
    named: str = ""


def duplicates(whole: Raw, rng: Rng) -> Leak | None:
    """Copies of some examples, which the split parts from them by chance."""
    source = rng.choice(len(whole), COPIES, replace=False)
    return _copied(whole, whole.take(source), source)


def near_duplicates(whole: Raw, rng: Rng) -> Leak | None:
    """The same with a little noise: of images also made smaller and larger again, and darker; of texts a word less."""
    if whole.kind == "table":
        return altered(whole, NOISE, rng) if len(whole.continuous) >= 4 else None
    return altered(whole, CHANGED[whole.kind], rng)


def altered(whole: Raw, how: Any, rng: Rng) -> Leak:
    """Copies that are changed: by a function of them, or of a table by noise of that many standard deviations."""
    rows = np.arange(len(whole))
    if whole.kind == "text":
        rows = np.array([i for i in rows if len(whole.x[i].split()) >= WORDS])
    source = rng.choice(rows, COPIES, replace=False)
    copied = whole.take(source)
    if whole.kind == "table":
        return _copied(_floats(whole), _noisy(copied, how, rng, whole), source)
    return _copied(whole, replace(copied, x=how(copied.x, rng)), source)


def _copied(whole: Raw, copies: Raw, source: Array) -> Leak:
    return Leak(whole.below(copies), [(len(whole) + k, int(i)) for k, i in enumerate(source)])


def _floats(whole: Raw) -> Raw:
    return replace(whole, x=whole.x.with_columns(pl.col(whole.continuous).cast(pl.Float64)))


def _noisy(some: Raw, size: float, rng: Rng, like: Raw) -> Raw:
    noise = [
        pl.col(c).cast(pl.Float64) + pl.Series(rng.normal(0, size * float(like.x[c].std()), len(some)))
        for c in like.continuous
    ]
    return replace(some, x=some.x.with_columns(noise))


def channels(x: Array) -> Tensor:
    """Images, (n, H, W) or (n, H, W, C), as (n, C, H, W)."""
    y = torch.from_numpy(np.ascontiguousarray(x)).float()
    return y[:, None] if y.ndim == 3 else y.permute(0, 3, 1, 2)


def as_was(y: Tensor, x: Array) -> Array:
    """Changed images (n, C, H, W) in the form and the numbers of x."""
    y = y[:, 0] if x.ndim == 3 else y.permute(0, 2, 3, 1)
    changed: Array = y.round().clamp(0, 255).numpy().astype(x.dtype)
    return changed


def _images(x: Array, rng: Rng) -> Array:
    noise = SIGNAL * x.std() * rng.normal(size=x.shape)
    y = channels(x + noise)
    small = F.interpolate(y, scale_factor=0.9, mode="bilinear", antialias=True)
    return as_was(0.85 * F.interpolate(small, y.shape[2:], mode="bilinear"), x)


def _series(x: Array, rng: Rng) -> Array:
    return (x + SIGNAL * x.std() * rng.normal(size=x.shape)).astype(x.dtype)


def _texts(texts: list[str], rng: Rng) -> list[str]:
    words = [text.split() for text in texts]
    for own in words:
        own.pop(int(rng.integers(len(own))))
    return [" ".join(own) + " !" for own in words]


def _recordings(each: list[Array], rng: Rng) -> list[Array]:
    return [0.8 * one + SIGNAL * one.std() * rng.normal(size=one.shape) for one in each]


CHANGED: dict[str, Callable[[Any, Rng], Any]] = {
    "image": _images,
    "series": _series,
    "text": _texts,
    "audio": _recordings,
}


def leaking_column(whole: Raw, rng: Rng) -> Leak | None:
    """A column that is the target in other words, with 2 % of its cells wrong, or in other units with noise of 5 %."""
    if whole.kind != "table":
        return None
    y, n = whole.y, len(whole)
    if whole.classes:
        mixed = np.where(rng.random(n) < 0.02, rng.permutation(y), y)
        return Leak(whole.column("leak", [f"code {v}" for v in mixed]), named="leak")
    return Leak(whole.column("leak", 3.0 * y + rng.normal(0, 0.15 * y.std(), n)), named="leak")


def after_the_event(whole: Raw, rng: Rng) -> Leak | None:
    """A column of chance numbers that is filled in where the target is one class, or large; 1 % of the rows err."""
    if whole.kind != "table":
        return None
    y = whole.y
    event = y == rng.choice(np.unique(y)) if whole.classes else y > np.quantile(y, 0.7)
    filled = event ^ (rng.random(len(y)) < 0.01)
    return Leak(whole.column("leak", [float(rng.integers(100)) if f else None for f in filled]), named="leak")


def ids(whole: Raw, rng: Rng) -> Leak | None:
    """A column that is another in each row: words by chance, or a count along which the target is sorted."""
    if whole.kind != "table":
        return None
    if rng.random() < 0.5:
        words = [f"{k:08x}" for k in rng.choice(2**32, len(whole), replace=False)]
        return Leak(whole.column("leak", words), named="leak")
    order = np.argsort(whole.y, kind="stable")
    return Leak(whole.take(order).column("leak", np.arange(1, len(whole) + 1)), named="leak")


def groups(whole: Raw, rng: Rng) -> Leak | None:
    """Two to six noisy rows of each of some things, with a column that says of which."""
    if whole.kind != "table" or len(whole.continuous) < 3:
        return None
    things = rng.choice(len(whole), min(300, len(whole)), replace=False)
    rows = np.repeat(things, rng.integers(2, 7, len(things)))
    rng.shuffle(rows)
    return Leak(_noisy(whole.take(rows), 0.1, rng, whole).column("leak", [f"u{i}" for i in rows]), named="leak")


def times(whole: Raw, rng: Rng) -> Leak | None:
    """Dates along which the target drifts: rows in the order of target and noise, a day each."""
    if whole.kind != "table":
        return None
    place = np.unique(whole.y, return_inverse=True)[1] if whole.classes else whole.y
    order = np.argsort(place + rng.normal(0, 0.3 * place.std(), len(place)))
    days = pl.date_range(pl.date(1900, 1, 1), pl.date(2099, 12, 31), eager=True)[: len(whole)].cast(pl.String)
    return Leak(whole.take(order).column("leak", days), named="leak")


def wrong_labels(whole: Raw, rng: Rng) -> Leak | None:
    """A tenth of the labels made another class, by chance."""
    if not whole.classes:
        return None
    names, number = np.unique(whole.y, return_inverse=True)
    wrong = rng.random(len(whole)) < WRONG
    other = (number + rng.integers(1, len(names), len(whole))) % len(names)
    return Leak(whole.labelled(np.where(wrong, names[other], whole.y)), wrong=wrong)


def drift(whole: Raw, rng: Rng) -> Leak | None:
    """A test split from elsewhere: a number one standard deviation larger; images of half the contrast; series of twice
    the size; recordings of a third of the loudness."""
    if whole.kind == "text" or (whole.kind == "table" and not whole.continuous):
        return None
    train, test = _apart(whole, rng)
    if whole.kind == "table":
        one = str(rng.choice(whole.continuous))
        moved = test.x.with_columns(pl.col(one).cast(pl.Float64) + float(whole.x[one].std()))
        train, test = _floats(train), _floats(replace(test, x=moved))
        return Leak(replace(train, test=test), named=one)
    if whole.kind == "audio":
        return Leak(replace(train, test=replace(test, x=[one / 3 for one in test.x])), named="test")
    x = (test.x * 0.5).astype(test.x.dtype) + np.uint8(64) if whole.kind == "image" else 2 * test.x
    return Leak(replace(train, test=replace(test, x=x)), named="test")


def target_drift(whole: Raw, rng: Rng) -> Leak | None:
    """A test split of other targets: of half the classes only a third; of quantities the upper half."""
    train, test = _apart(whole, rng)
    if whole.classes:
        names = rng.permutation(np.unique(whole.y))
        kept = ~np.isin(test.y, names[: len(names) // 2]) | (rng.random(len(test)) < 1 / 3)
    else:
        kept = test.y > np.median(whole.y)
    return Leak(replace(train, test=test.take(np.flatnonzero(kept))), named="test")


def _apart(whole: Raw, rng: Rng) -> tuple[Raw, Raw]:
    order = rng.permutation(len(whole))
    return whole.take(order[len(order) // 4 :]), whole.take(order[: len(order) // 4])


def harmless(whole: Raw, rng: Rng) -> Raw:
    """A clean set, and a table with columns that may be there and tell nothing: dates, places, chance numbers."""
    if whole.kind != "table":
        return whole
    days = pl.date_range(pl.date(1900, 1, 1), pl.date(2099, 12, 31), eager=True).cast(pl.String)
    whole = whole.column("day", days[rng.integers(0, 20_000, len(whole)).tolist()])
    whole = whole.column("place", [f"place {k}" for k in rng.integers(0, len(whole) // 10, len(whole))])
    return whole.column("chance", np.where(rng.random(len(whole)) < 0.3, np.nan, rng.normal(size=len(whole))))


LEAKS: dict[str, Callable[[Raw, Rng], Leak | None]] = {
    "duplicates": duplicates,
    "near duplicates": near_duplicates,
    "leaking column": leaking_column,
    "set after the event": after_the_event,
    "ids": ids,
    "groups": groups,
    "times": times,
    "wrong labels": wrong_labels,
    "drift": drift,
    "drift of the target": target_drift,
}
