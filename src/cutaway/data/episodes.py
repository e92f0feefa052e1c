"""Episodes of few-shot learning: a few labelled examples of new classes, and queries for evaluation.

After O. Vinyals, C. Blundell, T. Lillicrap, K. Kavukcuoglu, D. Wierstra, Matching networks for one shot learning, 2016,
section 2.2 <https://arxiv.org/abs/1606.04080>. Examples are split by class, so no class of a validation or test episode
occurs in training. Training episodes are drawn again in every epoch; those of other splits are fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..core.errors import IncompatibleSettingError, NotEnoughDataError, join
from ..core.spec import Episodes
from .dataset_base import Batch, Split
from .modalities import reject_changed
from .settings import DataSettings
from .splits import Array, Rows, draw_splits, remaining_fractions, sample_rows

COUNTS = {"train": 1000, "val": 200, "test": 1000}  # episodes of an epoch, and of an evaluation
AS_READ = 0  # the seed for evaluation
GAP = 4  # pixels between support and queries in the image of an episode


def split_by_class(
    labels: Rows,
    classes: Sequence[str],
    given: Mapping[str, Rows] | None,
    settings: DataSettings,
    groups: Array | None = None,
) -> tuple[dict[str, Rows], list[str]]:
    """Split the examples by class into train, val and test, and return notes that describe the split.

    `given` are the splits of the data. They are kept if no class is in two of them; otherwise their examples are merged
    and split again. Classes of the same group in `groups` (one for each class) stay together. A split has at least as
    many classes as an episode. Raises SettingError or DataError if a split would have fewer, or if a class has too few
    examples.
    """
    reject_changed(settings, ("mixup",), "blends images and their classes, and an episode needs separate classes")
    given = given or {"train": np.arange(len(labels))}
    of = {name: np.unique(labels[rows]) for name, rows in given.items()}
    notes = []
    if shared := [pair for pair in combinations(of, 2) if np.intersect1d(of[pair[0]], of[pair[1]]).size]:
        notes.append(
            f"The {join([*dict.fromkeys(name for pair in shared for name in pair)], 'and')} splits of this data have "
            "classes in common: for episodes its examples are put together and split by class."
        )
        given = {"train": np.sort(np.concatenate(list(given.values())))}
        of = {"train": np.unique(labels[given["train"]])}
    split = {**_draw_classes(of["train"], given, settings, groups), **{n: of[n] for n in of if n != "train"}}
    rows = np.concatenate(list(given.values()))
    indices = {name: np.sort(rows[np.isin(labels[rows], own)]) for name, own in split.items()}
    if settings.max_samples is not None:
        train = indices["train"]
        indices["train"] = sample_rows(train, settings.max_samples, seed=settings.split_seed, strata=labels[train])
    for name in indices:
        _reject_few(name, indices[name], labels, classes, settings)
    said = ", ".join(f"{len(split[name])} {name}" for name in indices)
    return indices, [*notes, f"Classes are split, none is in two splits: {said}."]


def _draw_classes(
    train: Rows, given: Mapping[str, Rows], settings: DataSettings, groups: Array | None
) -> dict[str, Rows]:
    """Draw the classes of each missing split from those of the training split."""
    val, test = remaining_fractions(settings, given)
    least = settings.ways / len(train) if groups is None else 0.0
    val, test = (max(fraction, least) if fraction else 0.0 for fraction in (val, test))
    if val + test + least > 1 + 1e-9:
        parts = 1 + bool(val) + bool(test)
        raise IncompatibleSettingError(
            f"ways={settings.ways} is too large: an episode has this many classes, no class is in two splits, and "
            f"{len(train)} classes are fewer than {parts} times as many. Give fewer ways, or val=0."
        )
    own = None if groups is None else groups[train]
    return {n: train[rows] for n, rows in draw_splits(len(train), settings, val=val, test=test, groups=own).items()}


def _reject_few(split: str, rows: Rows, labels: Rows, classes: Sequence[str], settings: DataSettings) -> None:
    """Raise SettingError if a split has fewer classes than an episode, or DataError if a class has too few examples."""
    present, counts = np.unique(labels[rows], return_counts=True)
    if len(present) < settings.ways:
        raise IncompatibleSettingError(
            f"Invalid ways={settings.ways}: the {split} split has {len(present)} "
            f"class{'es' if len(present) != 1 else ''} ({', '.join(classes[k] for k in present[:5])}). "
            "Give fewer ways, or val and test that leave more."
        )
    wanted, least = settings.shots + settings.queries, int(counts.argmin())
    if counts[least] < wanted:
        raise NotEnoughDataError(
            f"The class {classes[present[least]]!r} has {counts[least]} examples in the {split} split, and an episode "
            f"takes {wanted} of each class: shots={settings.shots} and queries={settings.queries}.",
            fix="Give fewer of these, or leave classes out that have too few"
            f"{f' ({(counts < wanted).sum()} have)' if (counts < wanted).sum() > 1 else ''}.",
        )


class EpisodeSplit(Split):
    """Episodes of a split of labelled examples. Example i is an episode, drawn from the seed and i.

    A batch of E episodes has inputs (E · n, …), the n examples of each episode one after another, and targets (E, n):
    the class within the episode.
    """

    def __init__(self, examples: Split, target: Episodes, count: int, classes: Sequence[str]) -> None:
        assert examples.target is not None, "episodes are of labelled examples"
        self.examples, self.episodes, self.count, self.classes = examples, target, count, classes
        labels = examples.target.cpu().numpy()
        self.of_class = {int(k): np.flatnonzero(labels == k) for k in np.unique(labels)}
        within = torch.arange(target.ways)
        own = torch.cat([within.repeat_interleave(target.shots), within.repeat_interleave(target.queries)])
        self.target = own.repeat(count, 1)  # (count, n)

    def __len__(self) -> int:
        return self.count

    def again(self, target: Episodes) -> EpisodeSplit:
        """Return the same number of episodes of another form. Raises SettingError or DataError if there are too few
        examples.
        """
        return labelled_episodes(self.examples, target, self.classes, self.count)

    def single_examples(self) -> Split:
        """Return the examples that episodes are drawn from as single examples without targets, for views."""
        return SingleExamples(self.examples)

    def sample_episode(self, episode: int, seed: int | None = None) -> tuple[list[int], Tensor]:
        """Draw the classes of an episode, (ways,), and its examples (n,): the support by class, then the queries."""
        rng = np.random.default_rng((AS_READ if seed is None else seed, episode))
        target = self.episodes
        classes = rng.choice(list(self.of_class), target.ways, replace=False).tolist()
        each = target.shots + target.queries
        rows = np.stack([rng.choice(self.of_class[k], each, replace=False) for k in classes])  # (ways, each)
        support, queries = rows[:, : target.shots], rows[:, target.shots :]
        return classes, torch.from_numpy(np.concatenate([support.ravel(), queries.ravel()]))

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of these episodes, drawn from the seed."""
        plan = list(order)
        rows = [torch.cat([self.sample_episode(i, seed)[1] for i in index.tolist()]) for index in plan]
        for index, (inputs, _) in zip(plan, self.examples.batches(rows, seed)):
            yield Batch(inputs, self.target[index])

    def name(self, i: int) -> str:
        """Return the episode's number and classes."""
        return f"episode {i}: {', '.join(self.classes[k] for k in self.sample_episode(i)[0])}"

    def image(self, i: int) -> Image.Image | None:
        """Draw the episode: one row per class, with its support followed by its queries."""
        target, rows = self.episodes, self.sample_episode(i)[1]
        side = max(8, *(max(image.size) for image in (self.examples.image(int(k)) for k in rows) if image))
        support = rows[: target.support].view(target.ways, -1)  # (ways, shots)
        queries = rows[target.support :].view(target.ways, -1)  # (ways, queries)
        size = ((target.shots + target.queries) * side + GAP, target.ways * side)
        whole = Image.new("RGB", size, "white")
        for row, known, asked in zip(range(target.ways), support.tolist(), queries.tolist()):
            for column, k in enumerate([*known, *asked]):
                image = self.examples.image(k)
                if image is not None:
                    left = column * side + (GAP if column >= target.shots else 0)
                    whole.paste(image.convert("RGB").resize((side, side)), (left, row * side))
        return whole


def to_episodes(splits: dict[str, Split], target: object, classes: Sequence[str]) -> dict[str, Split]:
    """Return the splits as episodes if the target is episodes; otherwise return them unchanged."""
    if not isinstance(target, Episodes):
        return splits
    return {name: EpisodeSplit(split, target, COUNTS[name], classes) for name, split in splits.items()}


def labelled_episodes(
    examples: Split, target: Episodes, classes: Sequence[str], count: int = COUNTS["test"]
) -> EpisodeSplit:
    """Return episodes of labelled examples. Raises SettingError or DataError if there are too few examples."""
    assert examples.target is not None, "episodes are of labelled examples"
    labels = examples.target.cpu().numpy()
    asked = DataSettings(ways=target.ways, shots=target.shots, queries=target.queries)
    _reject_few("test", np.arange(len(labels)), labels, classes, asked)
    return EpisodeSplit(examples, target, count, classes)


class SingleExamples(Split):
    """Single examples of episodes, without targets: the network has no answer for a single example."""

    target = None

    def __init__(self, examples: Split) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of these examples."""
        for inputs, target in self.examples.batches(order, seed):
            yield Batch(inputs, target.new_empty(len(target), 0))

    def name(self, i: int) -> str:
        """Return the name of example i."""
        return self.examples.name(i)

    def image(self, i: int) -> Image.Image | None:
        """Return example i before preprocessing."""
        return self.examples.image(i)

    def row(self, i: int) -> dict[str, str] | None:
        """Return example i as the user's columns, if it is a row."""
        return self.examples.row(i)
