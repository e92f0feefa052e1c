"""Errors, specs and files: the words that everything else is said in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cutaway
from cutaway.core import files, spec
from cutaway.core.errors import (
    DataError,
    FileError,
    ModelError,
    Problem,
    SettingError,
    UnknownName,
    check_value,
    closest_names,
)
from cutaway.core.spec import (
    ANY_SIZE,
    AudioSpec,
    Classes,
    GraphSpec,
    Horizon,
    ImageSizes,
    ImageSpec,
    NextToken,
    PairSpec,
    SeriesSpec,
    Spec,
    TableSpec,
    TextSpec,
    Tokens,
    Value,
)


def test_importing_cutaway_imports_nothing_slow() -> None:
    code = "import sys, cutaway, cutaway.apps.cli; cutaway.apps.cli.usage(); "
    slow = "torch numpy matplotlib polars sklearn rich PIL"
    run = subprocess.run(
        [sys.executable, "-c", code + f"print([m for m in '{slow}'.split() if m in sys.modules])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout.strip() == "[]"


def test_what_the_package_offers_is_there() -> None:
    assert all(hasattr(cutaway, name) for name in cutaway.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        cutaway.nothing  # noqa: B018


@pytest.mark.parametrize(
    "example",
    [
        TableSpec(columns=("a", "b"), target=Value("price", 3.0, 2.0)),
        ImageSpec(3, 32, 48, Classes(("cat", "dog"), "animal")),
        SeriesSpec(40, 1, Classes(("0", "1"))),
    ],
)
def test_a_spec_comes_back_from_json(example: Spec) -> None:
    assert spec.from_json(spec.to_json(example)) == example


@pytest.mark.parametrize(
    "example",
    [
        TextSpec(40, 9, NextToken(40)),
        PairSpec(40, 9, Tokens(50, 2, 3, 8), joint_vocab=True),
        SeriesSpec(40, 2, Horizon(4, ("load",), (0.0,), (1.0,), season_length=24), known_future=1),
        AudioSpec(90, 40, Value()),
        GraphSpec(7, Value(), graph_level=True),
    ],
)
def test_a_spec_of_the_time_of_other_names_is_read(example: Spec) -> None:
    olds = {new: old for old, new in spec.RENAMED.items()}
    document = spec.to_json(example)
    before = {olds.get(key, key): value for key, value in document.items()}
    before["target"] = {olds.get(key, key): value for key, value in document["target"].items()}
    assert before != document
    assert spec.from_json(before) == example


def test_images_are_brought_to_a_size_that_the_model_takes() -> None:
    any_from_63, patches = ImageSizes(least=63, usual=227), ImageSizes(least=16, step=16)
    assert ANY_SIZE.choose(None, (8, 12)) == (8, 12)
    assert ANY_SIZE.choose(None, None) == (224, 224)
    assert any_from_63.choose(None, (8, 100)) == (63, 100)
    assert any_from_63.choose(None, None) == (227, 227)
    assert patches.choose(None, (17, 16)) == (32, 16)
    assert patches.choose(48, (17, 16)) == (48, 48)
    assert ImageSizes(only=32).choose(None, (8, 8)) == (32, 32)
    assert ImageSizes(only=32).choose(None, None) == (32, 32)


@pytest.mark.parametrize(
    ("asked", "said"), [(8, "at least 16.*image_size=16;"), (40, "multiple of 16.*image_size=48;")]
)
def test_a_size_that_the_model_cannot_take_is_rejected_with_one_that_it_can(asked: int, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        ImageSizes(least=16, step=16).choose(asked, (8, 8))


def test_it_is_said_that_images_are_enlarged_unless_somebody_asked_for_it() -> None:
    sizes = ImageSizes(least=63)
    assert "8×8 pixels and are resized to 63×63" in str(sizes.note((8, 8), (63, 63), asked=None))
    assert sizes.note((63, 70), (63, 70), asked=None) is None
    assert sizes.note((8, 8), (64, 64), asked=64) is None
    assert sizes.note(None, (224, 224), asked=None) is None
    assert ImageSizes(only=32).note((8, 8), (32, 32), asked=None) is None


def test_nearest_names() -> None:
    assert closest_names("resnet-18", ["resnet18", "resnet34", "mlp"])[0] == "resnet18"
    assert closest_names("MLP", ["mlp"]) == ["mlp"]
    assert "Similar: epochs" in str(UnknownName("setting", "epoch", ["epochs", "lr"]))
    assert "Available: a, b" in str(UnknownName("part", "zzzz", ["b", "a"]))


def test_a_rejection_names_field_value_and_what_is_allowed() -> None:
    with pytest.raises(ModelError, match=r"Invalid depth=7: must be 3 or more"):
        check_value(False, "depth", 7, "3 or more")


def test_bad_data_names_five_and_keeps_all() -> None:
    error = DataError("Bad rows.", [Problem(f"line {i}", "no") for i in range(8)], "Fix them.")
    assert len(error.problems) == 8
    assert "line 4: no; and 3 more" in str(error)
    assert str(error).endswith("Fix them.")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.json"
    files.write_json(path, {"a": 1})

    def fail_halfway() -> None:
        with files.atomic_write(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert files.read_json(path) == {"a": 1}
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(path, float("nan"))
    assert files.read_json(path) == {"a": 1}


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"No space left on device.*unchanged.*another writable folder"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_that_is_cut_short_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": ')
    with pytest.raises(FileError, match=r"a\.json is not a complete JSON document"):
        files.read_json(tmp_path / "a.json")
    with pytest.raises(FileError, match="There is no file"):
        files.read_json(tmp_path / "b.json")
