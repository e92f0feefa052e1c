"""Leaks put by seed into real sets, and how many of them the guard finds: python -m benchmarks.guard [SEEDS [SET ...]].

A table is written anew with the leak and opened as a person's file is; images, recordings, series and texts are changed
where they lie in memory. What the guard says of the sets as they are is printed too: an alarm may be true.
Times are of the processor, in one process of one thread.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch.nn import functional as F

from cutaway.data.guard import guard
from cutaway.data.named.download import roots
from cutaway.data.opening import open_data
from cutaway.data.sets import DataSet
from cutaway.data.settings import DataSettings

TABLES = (
    "wine",
    "breast_cancer",
    "diabetes",
    "california_housing",
    "penguins.csv",
    "mpg.csv",
    "diamonds.csv",
    "titanic",
)
TARGETS = {"penguins.csv": "species", "mpg.csv": "mpg", "diamonds.csv": "price"}
HELD = ("digits", "mnist", "cifar10", "mnist1d", "fsdd", "sms_spam", "sst2")
MOST = 4000  # rows of a table
COPIES = 30
SIGNS = {
    "duplicates": "Duplicates straddle",
    "near duplicates": "Near duplicates",
    "leaking column": "Column leak alone",
    "set after the event": "Column leak alone",
    "groups": "Column who names groups",
    "shuffled labels": "Labels are probably wrong",
}
RNG = np.random.Generator


@dataclass
class Tally:
    """How many leaks of one kind were put in, and found; in which sets."""

    put: int = 0
    found: int = 0
    sets: set[str] = field(default_factory=set)
    missed: list[str] = field(default_factory=list)


def frame_of(name: str) -> tuple[pl.DataFrame, str]:
    """A table of numbers and words, and its target."""
    if name.endswith(".csv"):
        path = next(root / "tabular_seaborn" / name for root in roots() if (root / "tabular_seaborn" / name).exists())
        frame, target = pl.read_csv(path, null_values=["", "NA"]).drop_nulls(), TARGETS[name]
    else:
        data = open_data(name, DataSettings())
        split = data.splits["train"]
        frame, target = split.at(0)[0].frame, data.spec.target.column  # type: ignore[attr-defined]
        frame = frame.drop(
            [c for c in ("alive", "class", "who", "adult_male", "alone", "embark_town", "deck") if c in frame]
        )
        frame = pl.read_csv(frame.drop_nulls(target).write_csv().encode(), null_values=["", "NA"])
    return (frame.sample(min(MOST, frame.height), seed=0, shuffle=True).unique(maintain_order=True)), target


def in_table(kind: str, frame: pl.DataFrame, target: str, rng: RNG) -> pl.DataFrame | None:
    """The table with a leak of that kind; None where it cannot have one."""
    n, numbers = frame.height, [c for c, t in frame.schema.items() if t.is_numeric() and c != target]
    values = frame[target]
    classes = not (values.dtype.is_numeric() and values.n_unique() > 20)
    continuous = [c for c in numbers if frame[c].n_unique() > 20]

    def noisy(part: pl.DataFrame, size: float) -> pl.DataFrame:
        noise = [
            (pl.col(c) + pl.Series(rng.normal(0, size * float(frame[c].std()), part.height))).alias(c)
            for c in continuous
        ]  # type: ignore[arg-type]
        return part.with_columns(noise)

    cast = frame.with_columns(pl.col(continuous).cast(pl.Float64))
    if kind in ("duplicates", "near duplicates"):
        if kind == "near duplicates" and len(continuous) < 4:
            return None
        copied = cast[rng.choice(n, COPIES, replace=False).tolist()]
        return pl.concat([cast, noisy(copied, 0.003) if kind == "near duplicates" else copied])
    if kind == "leaking column":
        if classes:
            wrong = rng.random(n) < 0.02
            leak = np.where(wrong, rng.permutation(values.to_numpy()), values.to_numpy())
            return frame.with_columns(pl.Series("leak", [f"code {v}" for v in leak]))
        return frame.with_columns(pl.Series("leak", values.to_numpy() + rng.normal(0, 0.05 * values.std(), n)))  # type: ignore[operator]
    if kind == "set after the event":
        if not classes:
            return None
        event = values == values.unique(maintain_order=True)[0]
        if values.n_unique() > 2:
            return None
        filled = event.to_numpy() ^ (rng.random(n) < 0.01)
        return frame.with_columns(pl.Series("leak", [float(rng.integers(100)) if f else None for f in filled]))
    if kind == "groups":
        if len(continuous) < 3:
            return None
        some = cast.head(300)
        many = noisy(pl.concat([some.with_columns(who=pl.Series([f"u{i}" for i in range(some.height)]))] * 4), 0.1)
        return many.sample(many.height, shuffle=True, seed=int(rng.integers(1 << 30)))
    if not classes or n < 250 or target == "survived":  # nothing is to be told of labels that the rest hardly says
        return None
    y, names = values.to_numpy().copy(), values.unique(maintain_order=True).to_list()
    for i in np.flatnonzero(rng.random(n) < 0.1):
        y[i] = rng.choice([k for k in names if k != y[i]])
    return frame.with_columns(pl.Series(target, y))


def in_memory(kind: str, data: DataSet, rng: RNG) -> list[tuple[str, str]] | None:
    """Put a leak into the splits of a set that lies in memory, in place: the pairs, (test, train); None where it cannot
    have one."""
    train, test = data.splits["train"], data.splits["test"]
    count = min(COPIES, len(test) // 4)
    to, source = rng.choice(len(test), count, replace=False), rng.choice(len(train), count, replace=False)
    pairs = [(f"{test.name(int(a))} (test)", f"{train.name(int(b))} (train)") for a, b in zip(to, source)]
    if kind == "near duplicates":
        if data.spec.kind == "text":
            long = [i for i in range(len(train)) if len(text(train, i).split()) >= 12]
            source = rng.choice(long, count, replace=False)
            changed = {}
            for a, b in zip(to.tolist(), source.tolist()):
                words = text(train, b).split()
                words.pop(int(rng.integers(len(words))))
                changed[a] = " ".join(words) + " !"
            row = test.row
            test.row = lambda i: {"text": changed[i]} if i in changed else row(i)  # type: ignore[method-assign,misc]
            return [(f"{test.name(int(a))} (test)", f"{train.name(int(b))} (train)") for a, b in zip(to, source)]
        if data.spec.kind == "audio":
            return None  # their splits hold them one after another
        x = train.inputs[torch.from_numpy(source)]  # type: ignore[attr-defined]
        y = x + 0.03 * x.std() * torch.from_numpy(rng.normal(size=x.shape)).float()
        if data.spec.kind == "image":  # made smaller and larger again, darker, noisy
            small = F.interpolate(y, scale_factor=0.9, mode="bilinear", antialias=True)
            y = 0.85 * F.interpolate(small, x.shape[2:], mode="bilinear")
        test.inputs[torch.from_numpy(to)] = y  # type: ignore[attr-defined]
        return pairs
    if kind == "shuffled labels" and (data.spec.kind != "image" or data.name in ("digits", "mnist")):
        if data.name in ("mnist1d", "sst2"):  # a cheap model is wrong too often
            return None
        for split in data.splits.values():
            flips = torch.from_numpy(rng.random(len(split)) < 0.1)
            other = torch.from_numpy(rng.integers(1, len(data.spec.target.classes), len(split)))  # type: ignore[union-attr]
            split.target = torch.where(flips, (split.target + other) % len(data.spec.target.classes), split.target)  # type: ignore
        return []
    return None


def text(split: object, i: int) -> str:
    """A text, as it was given."""
    return split.row(i)["text"]  # type: ignore[attr-defined,no-any-return]


@contextlib.contextmanager
def opened(frame: pl.DataFrame, target: str) -> Iterator[DataSet]:
    """The table as a file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        frame.write_csv(Path(folder) / "t.csv")
        yield open_data(str(Path(folder) / "t.csv"), DataSettings(target=target, missing="fill"))


def judge(kind: str, data: DataSet, pairs: list[tuple[str, str]] | None, name: str, tally: Tally) -> float:
    """Whether what was put in is found; seconds of the processor. With pairs, each of them is one leak."""
    begin = time.process_time()
    findings = [*guard(data), *data.findings]
    seconds = time.process_time() - begin
    hits = [f for f in findings if f.startswith(SIGNS[kind])]
    tally.sets.add(name)
    if pairs:
        told = {p for f in hits for example in f.examples for p in example[:1]}  # type: ignore[attr-defined]
        tally.put += len(pairs)
        tally.found += sum(a in told or b in told for a, b in pairs)
    else:
        tally.put += 1
        tally.found += bool(hits)
    if (not hits) if not pairs else not all(a in told or b in told for a, b in pairs):
        tally.missed.append(name)
    return seconds


def main(seeds: int = 3, only: tuple[str, ...] = (), say: Callable[[str], None] = print) -> dict[str, Tally]:
    """Put every kind of leak into every set that can have it; print what was found."""
    torch.set_num_threads(1)
    tallies = {kind: Tally() for kind in SIGNS}
    clean: dict[str, list[str]] = {}
    times: dict[str, float] = {}
    for name in (one for one in TABLES if not only or one in only):
        frame, target = frame_of(name)
        with opened(frame, target) as data:
            begin = time.process_time()
            clean[name] = [str(f) for f in [*guard(data), *data.findings]]
            times[name] = time.process_time() - begin
        for seed in range(seeds):
            for kind, tally in tallies.items():
                rng = np.random.default_rng([seed, len(kind)])
                leaky = in_table(kind, frame, target, rng)
                if leaky is None:
                    continue
                with opened(leaky, target) as data:
                    pairs = _pairs_in(data, leaky, frame.height) if "duplicates" in kind else None
                    if pairs == []:
                        continue
                    judge(kind, data, pairs, name, tally)
        say(f"{name}: {times[name]:.2f} s; clean: {clean[name]}")
    for name in (one for one in HELD if not only or one in only):
        whole = open_data(name, DataSettings())
        begin = time.process_time()
        clean[name] = [str(f) for f in guard(whole)]
        times[name] = time.process_time() - begin
        for seed in range(seeds):
            for kind in ("near duplicates", "shuffled labels"):
                data = copy.copy(whole)
                data.splits = {k: copy.copy(s) for k, s in whole.splits.items()}
                if hasattr(data.splits["test"], "inputs"):
                    data.splits["test"].inputs = data.splits["test"].inputs.clone()
                pairs = in_memory(kind, data, np.random.default_rng([seed, len(kind)]))
                if pairs is not None:
                    judge(kind, data, pairs, name, tallies[kind])
        say(f"{name}: {times[name]:.2f} s; clean: {clean[name]}")
    say("\n| leak | sets | put in | found | |\n| --- | ---: | ---: | ---: | ---: |")
    for kind, tally in tallies.items():
        share = tally.found / max(1, tally.put)
        say(f"| {kind} | {len(tally.sets)} | {tally.put} | {tally.found} | {share:.1%} |  {sorted(set(tally.missed))}")
    return tallies


def _pairs_in(data: DataSet, leaky: pl.DataFrame, n: int) -> list[tuple[str, str]]:
    """The copies (rows after the n-th), and what they copy, where the two stand in different splits."""
    split_of = {s.name(i): k for k, s in data.splits.items() for i in range(len(s))}
    words = [c for c, t in leaky.schema.items() if not t.is_float()]
    rows = leaky.rows(named=True)
    numbers = [c for c in leaky.columns if c not in words]
    values = leaky[numbers].to_numpy().astype(float) if numbers else np.zeros((len(rows), 0))
    scale = np.nanstd(values, 0) + 1e-12
    pairs = []
    for copied in range(n, leaky.height):
        far = np.nansum(np.abs(values[:n] - values[copied]) / scale, 1)
        source = int(np.argmin(far))
        a, b = (f"line {i + 2} of t.csv" for i in (copied, source))
        if a in split_of and b in split_of and split_of[a] != split_of[b]:
            pairs.append((f"{a} ({split_of[a]})", f"{b} ({split_of[b]})"))
    return pairs


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["3"])[0]), tuple(sys.argv[2:]), lambda text: print(text, flush=True))
