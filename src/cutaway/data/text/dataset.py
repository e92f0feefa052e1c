"""Text data sets: texts with one target each, and the choice between these, tagged text and running text.

Texts with one target are tables with a text column, class folders of .txt files, or two line-aligned files. They are
split before tokenization, and the tokenizer is fitted on the training split only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...core.errors import (
    IncompatibleSettingError,
    MissingFileError,
    MissingSettingError,
    Problem,
    SettingError,
)
from ...core.spec import Classes, Simple, Target
from ..build import DataSource, DuplicateKeys, ExampleClasses
from ..dataset_base import DataSet, SequenceSplit
from ..findings import missing_class_findings, reject_fill
from ..folders import SPLIT_FOLDERS, TEXTS, find_examples, list_entries, subfolders
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import Rows, remaining_fractions
from ..tables.column_roles import (
    check_learnable,
    complete_rows,
    find_column,
    group_numbers,
    incomplete_rows,
    read_labels,
    reject_incomplete,
)
from ..tables.dataset import TABLE_SUFFIXES
from ..tables.delimited import Form
from ..tables.table_files import Table
from .tagging import open_tagged
from .text_files import (
    LABEL,
    TAGGED,
    TEXT,
    digest_lines,
    drop_empty_texts,
    pair_table,
    read_files,
    read_pair,
    read_text_table,
    tagged_lines,
)
from .tokenizer_files import fit_tokenizer, spec_for
from .transforms import AUTO_LENGTH, FOR_RUNNING_TEXT, OTHER_LENGTH, TextPreprocessing, TokenizedBuilder

Numbers = npt.NDArray[np.int64]


def text_dataset(
    texts: Sequence[str],
    labels: Numbers,
    classes: Sequence[str],
    origin: DataSource,
    settings: DataSettings,
    *,
    splits: Mapping[str, Rows] | None = None,
    names: Sequence[str] | None = None,
    tokenizer: str = "words",
    blanks: bool = False,
    column: str = LABEL,
) -> DataSet:
    """Build a data set of texts with `labels` (n,), class k named `classes[k]`.

    `splits` are predefined splits; missing ones are drawn from the training examples. `names` are display names of the
    texts. `tokenizer` is the default for tokenizer=auto; with `blanks`, words are already separated by blanks.
    """
    names = names if names is not None else [f"text {i + 1}" for i in range(len(texts))]
    target = Classes(tuple(classes), column)
    targets = TextTargets(
        ExampleClasses(labels, classes, splits),
        lambda train: target,
        lambda fitted, rows: torch.from_numpy(labels[rows]),
    )
    return TextBuilder(texts, names, targets, origin, settings, tokenizer=tokenizer, blanks=blanks).build()


def open_table(path: Path, settings: DataSettings) -> DataSet:
    """Build the data set of a table with a text column and a column of classes or of numbers.

    Raises FileError, DataError (with every bad row in `problems`), UnknownName or SettingError.
    """
    return table_dataset(read_text_table(path, Form.from_settings(settings)), DataSource.of_file(path), settings)


def table_dataset(
    table: Table, origin: DataSource, settings: DataSettings, given: Mapping[str, Rows] | None = None
) -> DataSet:
    """Build the data set of a table whose columns are named in `settings`.

    `given` are the rows of predefined splits, train among them. Raises as `open_table`.
    """
    listed = ", ".join(map(repr, table.columns[:40]))
    if settings.text is None or settings.target is None:
        missing = "holds the text? Say text=COLUMN" if settings.text is None else "is predicted? Say target=COLUMN"
        raise MissingSettingError(f"Which column of {table.title} {missing}. Its columns are: {listed}.")
    text = find_column(table, "text", settings.text)
    target = find_column(table, "target", settings.target)
    group = None if settings.group is None else find_column(table, "group", settings.group)
    if text == target or group in (text, target):
        raise SettingError(f"text={text}, target={target} and group={group} must be columns of their own: {listed}.")
    notes = list(table.notes)
    if others := [column for column in table.columns if column not in (text, target, group)]:
        notes.append(f"Only text and target are read; these columns are not: {', '.join(others[:10])}.")
    if group is not None:
        notes.append(f"Column {group} keeps rows together in the split and is not an input.")
    data = dataset_from_columns(table, text, target, group, dataclasses.replace(origin, notes=notes), settings, given)
    assert isinstance(data.preprocessing, TextPreprocessing)
    data.preprocessing = dataclasses.replace(data.preprocessing, written=table.form.as_default())
    return data


def open_lines(
    texts: Path, lines: Sequence[str], labels: Sequence[str], digest: str, settings: DataSettings
) -> DataSet:
    """Build the data set of two line-aligned files: a text on each line of one, its class or number in the other."""
    table = pair_table(texts, lines, labels)
    return dataset_from_columns(table, TEXT, LABEL, None, DataSource(texts.stem, str(texts), digest), settings)


def open_folder(path: Path, settings: DataSettings) -> DataSet:
    """Build the data set of class folders of .txt files, one text each; split folders are kept.

    Raises DataError that names every unreadable or empty file.
    """
    for key in ("text", "target", "group"):
        if getattr(settings, key) is not None:
            raise IncompatibleSettingError(
                f"{key}= names a column of a table, and {path} is a folder of texts: leave it out."
            )
    found = find_examples(path, TEXTS)
    names = found.names
    reject_fill(settings)
    read, empty = read_files(found.files, names, settings.missing)
    at = {name: i for i, name in enumerate(names)}
    without = {at[problem.where]: problem for problem in empty}
    kept, left_out = drop_empty_texts(np.arange(len(names)), without, settings.missing, "file")
    splits = found.splits or {"train": np.arange(len(names))}
    digest = digest_lines(f"{digest}  {name}" for digest, name in zip(read.digests, names))
    return text_dataset(
        read.texts,
        found.labels,
        found.classes,
        DataSource(path.resolve().name, str(path), digest, [*found.notes, *left_out]),
        settings,
        splits={split: np.intersect1d(rows, kept) for split, rows in splits.items()},
        names=names,
    )


def dataset_from_columns(
    table: Table,
    text: str,
    target: str,
    group: str | None,
    origin: DataSource,
    settings: DataSettings,
    given: Mapping[str, Rows] | None = None,
    tokenizer: str = "words",
) -> DataSet:
    """Build the data set of the texts in one column of a table and the targets in another; splits as in
    `table_dataset`.

    `tokenizer` is the default for tokenizer=auto, or says that the texts are token ids.
    """
    labels = read_labels(table, target, None)
    incomplete = incomplete_rows(table, labels, group)
    reject_incomplete(table, incomplete, settings.missing)
    rows, without_target = complete_rows(table, incomplete)
    texts = table.frame[text].fill_null("").to_list()
    empty = {i: Problem(table.where(i, text), "the text is empty") for i, t in enumerate(texts) if not t.strip()}
    rows, without_text = drop_empty_texts(rows, empty, settings.missing, "row")
    own = {split: np.intersect1d(of_split, rows) for split, of_split in (given or {"train": rows}).items()}
    fractions = remaining_fractions(settings, own)
    check_learnable(labels, own["train"], splits=1 + sum(fraction > 0 for fraction in fractions))
    classes: Simple = labels.fit(rows)
    numbers = np.zeros(len(table), np.int64)
    if classes.classes:
        numbers[rows] = labels.tensor(classes, rows).numpy()
    groups = None if group is None else group_numbers(table, group, own["train"], settings)
    targets = TextTargets(
        ExampleClasses(numbers, classes.classes or [target], own, groups),
        lambda train: classes if classes.classes else labels.fit(train),
        labels.tensor,
    )
    origin = dataclasses.replace(origin, notes=[*origin.notes, *labels.notes(), *without_target, *without_text])
    names = [table.place(i) for i in range(len(table))]
    return TextBuilder(texts, names, targets, origin, settings, tokenizer=tokenizer, text_column=text).build()


class TextTargets(NamedTuple):
    """The targets of texts."""

    classes: ExampleClasses  # of all texts, for the split
    fit: Callable[[Rows], Simple]  # returns the target that training texts have
    tensor: Callable[[Simple, Rows], Tensor]  # returns the targets of texts


class TextBuilder(TokenizedBuilder[TextPreprocessing]):
    """The steps from texts with one target each to their data set."""

    noun = "texts"

    def __init__(
        self,
        texts: Sequence[str],
        names: Sequence[str],
        targets: TextTargets,
        origin: DataSource,
        settings: DataSettings,
        *,
        tokenizer: str = "words",
        blanks: bool = False,
        text_column: str = TEXT,
    ) -> None:
        super().__init__(origin, settings)
        self.texts, self.names, self.targets, self.classes = texts, names, targets, targets.classes
        self.default, self.blanks, self.text_column = tokenizer, blanks, text_column

    def fit(self) -> TextPreprocessing:
        """Fit the tokenizer."""
        settings, train = self.settings, self.indices["train"]
        reject_changed(settings, FOR_RUNNING_TEXT, "is for running text, and each of these texts has a target")
        self.target = self.targets.fit(train)
        training = [self.texts[i] for i in train]
        self.tokenizer, self.pretrained = fit_tokenizer(settings, self.default, training, blanks=self.blanks)
        length = settings.length or AUTO_LENGTH.get(self.tokenizer.kind, OTHER_LENGTH)
        spec = spec_for(self.tokenizer, settings, length, self.target)
        return TextPreprocessing(spec, self.tokenizer, length, self.text_column)

    def encode(self, split: str, rows: Rows) -> SequenceSplit:
        """Return the tokens of texts."""
        texts, names = [self.texts[i] for i in rows], [self.names[i] for i in rows]
        target = self.targets.tensor(self.target, rows)
        return self.preprocessing.as_split(texts, target, names, f"the {split} split's texts")

    def notes(self) -> list[str | None]:
        """Return notes on tokens, and findings on absent classes."""
        values = {split: self.targets.tensor(self.target, rows) for split, rows in self.indices.items()}
        return [*self.token_notes(), *missing_class_findings(values, self.target)]

    def duplicate_keys(self) -> DuplicateKeys:
        """Return the texts."""
        return DuplicateKeys(self.texts, self.names.__getitem__)


__all__ = ["has_classes", "open_text"]


def open_text(path: Path, settings: DataSettings, targets: tuple[type[Target], ...] = ()) -> DataSet:
    """Build the data set of a table with a text column, of a folder or file of texts, or of a file of tagged text.

    A .txt file with target=FILE is read together with that line-aligned file, which has a class on each line, or a tag
    for each word. Without a target, and in a folder without class folders, it is running text. `targets` are those of
    the model, if it restricts them. Raises FileError, DataError, UnknownName or SettingError.
    """
    if path.suffix.lower() not in TABLE_SUFFIXES:
        reject_changed(
            settings,
            ("separator", "decimal", "encoding", "header", "quoting", "missing_values"),
            f"is for tables, and {path} is not a table",
        )
    if path.is_dir() and has_classes(path):
        return open_folder(path, settings)
    suffix = path.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        return open_table(path, settings)
    if suffix in TAGGED:
        return open_tagged(path, settings)
    if settings.target is not None and path.is_file():
        return _open_with_labels(path, settings.target, settings)
    for key in ("text", "target", "group"):
        if getattr(settings, key) is not None:
            raise IncompatibleSettingError(
                f"{key}= is for texts in tables, and {path} is text that runs on: leave it out."
            )
    from .corpus import open_running

    return open_running(path, settings, targets)


def has_classes(path: Path) -> bool:
    """Return whether a folder holds class folders of .txt files, not running text."""
    folders = subfolders(path)
    splits = [folder for folder in folders if folder.name.lower() in SPLIT_FOLDERS]
    inside = [c for split in splits for c in subfolders(split)]
    classes = [c for c in (*inside, *(f for f in folders if f not in splits)) if any(map(TEXTS.fits, list_entries(c)))]
    if not classes:
        return False
    return bool(len(classes) > 1 or not any(map(TEXTS.fits, list_entries(path))))


def _open_with_labels(path: Path, target: str, settings: DataSettings) -> DataSet:
    """Build the data set of a .txt file and the file of its labels, relative to it or to the working directory."""
    given = Path(target).expanduser()
    labels = next((p for p in (path.parent / given, given) if p.is_file()), None)
    if labels is None:
        raise MissingFileError(
            f"target={target}: for a .txt file it names the file of its labels, and there is no such file "
            "in the folder of "
            f"{path} or in {Path.cwd()}.",
            fix="Leave target= out to learn the language of the text.",
        )
    for key in ("text", "group"):
        if getattr(settings, key) is not None:
            raise IncompatibleSettingError(f"{key}= is a column of a table, and {path} is not a table: leave it out.")
    lines, beside, digest = read_pair(path, labels)
    tagged = tagged_lines(path, labels, lines, beside)
    if tagged is None:
        return open_lines(path, lines, beside, digest, settings)
    return open_tagged(path, settings, tagged, digest)
