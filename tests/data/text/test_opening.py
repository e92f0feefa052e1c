"""The door to text: what runs on is told from what has classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutaway.core.errors import SettingError
from cutaway.data.settings import DataSettings
from cutaway.data.text import dataset


def files(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("some words", "utf-8")
    return root


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["a.txt", "b.txt"], False),
        (["train.txt", "val.txt"], False),
        (["train/a.txt", "test/b.txt"], False),
        (["good/a.txt", "bad/b.txt"], True),
        (["good/a.txt", "bad/b.txt", "README.txt"], True),
        (["book.txt", "notes/a.txt"], False),
        (["only/a.txt"], True),
        (["train/good/a.txt", "train/bad/b.txt", "test/good/c.txt"], True),
    ],
)
def test_which_folders_have_classes(tmp_path: Path, names: list[str], classes: bool) -> None:
    assert dataset.has_classes(files(tmp_path, *names)) is classes


def test_a_column_of_running_text_is_rejected(tmp_path: Path) -> None:
    path = files(tmp_path, "book.txt") / "book.txt"
    with pytest.raises(SettingError, match="text= is for texts in tables"):
        dataset.open_text(path, DataSettings(text="words"))
    with pytest.raises(SettingError, match="target= is for"):
        dataset.open_text(files(tmp_path / "f", "a.txt"), DataSettings(target="words"))
