"""Settings as people type them: read into their types, rejected by name."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

import pytest

from cutaway.core.config import (
    RENAMED,
    VALUES_RENAMED,
    as_text,
    build,
    describe,
    exact_text,
    field_names,
    parse,
    setting,
    shell_command,
    upgrade_settings,
)
from cutaway.core.errors import CutawayError, SettingError, UnknownName
from cutaway.data.settings import DataSettings
from cutaway.training.config import TrainSettings


@dataclass(frozen=True)
class Some:
    whole: int = setting(3, "a count", low=0, high=10)
    number: float = setting(0.5, "a fraction", low=0.0, high=1.0)
    maybe: float | None = setting(None, "a budget", low=0.0)
    yes: bool = setting(False, "a switch")
    word: str = setting("a", "a choice", choices=("a", "b"))
    many: tuple[float, ...] = setting((0.1, 0.2), "a list", low=0.0, high=1.0)


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("whole", "7", 7),
        ("whole", "1e1", 10),
        ("whole", 4, 4),
        ("number", "5e-1", 0.5),
        ("maybe", "2.5", 2.5),
        ("maybe", "auto", None),
        ("maybe", "none", None),
        ("yes", "true", True),
        ("yes", "off", False),
        ("yes", True, True),
        ("word", "b", "b"),
        ("many", "0.3", (0.3,)),
        ("many", "0.3, 0.4", (0.3, 0.4)),
        ("many", (0.5,), (0.5,)),
        ("many", 0.5, (0.5,)),
        ("many", "[0.3, 0.4]", (0.3, 0.4)),
        ("many", "", ()),
    ],
)
def test_what_is_typed_becomes_its_type(key: str, typed: object, value: object) -> None:
    assert getattr(build(Some, {key: typed}), key) == value


@pytest.mark.parametrize(
    ("key", "typed", "said"),
    [
        ("whole", "11", "0 to 10"),
        ("whole", "2.5", "an integer"),
        ("whole", "x", "an integer"),
        ("whole", True, "an integer"),
        ("number", "nan", "a finite number"),
        ("number", "inf", "a finite number"),
        ("number", "1e400", "a finite number"),
        ("number", True, "a number"),
        ("number", "9" * 5000, "a finite number"),
        ("whole", "9" * 5000, r"an integer below 2\^63"),
        ("whole", 2**70, r"an integer below 2\^63"),
        ("word", ["a"], "text"),
        ("word", "b" * 5000, "a, b"),
        pytest.param("whole", 10**5000, r"an integer below 2\^63", id="whole-large"),
        ("many", {"a": 1}, "a number"),
        ("number", "", "a number"),
        ("maybe", "-1", "at least 0"),
        ("yes", "maybe", "true or false"),
        ("word", "c", "a, b"),
        ("many", "0.5,2", "0 to 1"),
        ("many", "a,b", "a number"),
        ("whole", None, "must not be empty. Give an integer"),
    ],
)
def test_invalid_fields_are_rejected_by_name(key: str, typed: object, said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        build(Some, {key: typed})
    assert str(caught.value).startswith(f"Invalid {key}")
    assert len(str(caught.value)) < 130


@pytest.mark.parametrize(
    ("key", "typed", "said"),
    [
        ("lr", "-1", "must be at least 0."),
        ("lr", "1e31", "must be 0 to 1e+30."),
        ("momentum", "2", "must be at least 0 and less than 1."),
        ("momentum", "0.99999", "must be 0 to 0.9999."),
        ("val", "2", "must be 0 to 0.9."),
    ],
)
def test_a_range_is_written_in_round_numbers(key: str, typed: str, said: str) -> None:
    group = TrainSettings if key != "val" else DataSettings
    with pytest.raises(SettingError, match=f"{re.escape(said)}$"):
        build(group, {key: typed})
    ranges = {entry.key: entry.meaning for one in (TrainSettings, DataSettings) for entry in describe(one)}
    assert not [meaning for meaning in ranges.values() if re.search(r"1e\+|\.999", meaning)]


def test_an_unknown_key_is_rejected_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Similar: epochs"):
        build(TrainSettings, {"epoch": 3})


def test_no_key_means_two_things() -> None:
    both = field_names(DataSettings, TrainSettings)
    assert len(both) == len(set(both))


@pytest.mark.parametrize("group", [DataSettings, TrainSettings, Some])
def test_every_default_is_itself_allowed_and_reads_back(group: type) -> None:
    defaults = group()
    for row in describe(group):
        value = getattr(defaults, row.key)
        if value != ():
            assert getattr(build(group, {row.key: as_text(value)}), row.key) == value
        assert row.help
        assert not row.help.endswith(".")


def test_parse_keeps_what_has_its_type() -> None:
    assert parse("hidden_dim", (3, 4), tuple[int, ...]) == (3, 4)
    assert issubclass(SettingError, CutawayError)


@pytest.mark.parametrize("words", [(), ("a",), ("a,b", 'say "c"', "[d]", "(e), f"), ("none",), ("x:number", "=")])
def test_a_list_of_names_is_read_back_from_its_text(words: tuple[str, ...]) -> None:
    for text in (as_text(words), exact_text(words)):
        assert build(DataSettings, {"ignore": text}).ignore == words


def test_an_old_name_is_answered_by_the_new_one() -> None:
    groups = (TrainSettings, DataSettings)
    assert {*RENAMED} & {*field_names(*groups)} == {"alpha"}  # was length_penalty, and is a constant of rmsprop now
    assert {*RENAMED.values()} <= {*field_names(*groups)}
    assert upgrade_settings({"alpha": 0.7}) == {"length_penalty": 0.7}
    assert upgrade_settings({"alpha": 0.9, "length_penalty": 0.7}) == {"alpha": 0.9, "length_penalty": 0.7}
    for old, new in RENAMED.items():
        if old == "alpha":
            continue
        with pytest.raises(SettingError, match=f"^{old} is now {new}: "):
            build(TrainSettings, {old: "1"})


def test_an_old_value_is_answered_by_the_new_one() -> None:
    for key, values in VALUES_RENAMED.items():
        for old, new in values.items():
            with pytest.raises(SettingError, match=f"^{key}={old} is now {key}={new}"):
                build(DataSettings, {key: old})
            assert getattr(build(DataSettings, upgrade_settings({key: old})), key) == new


def test_a_command_says_its_settings_digit_for_digit() -> None:
    given = {"lr": 0.00012345678, "betas": (0.9, 0.123456789), "nesterov": True, "target": "two words", "epochs": 3}
    typed = shlex.split(shell_command("train", "mlp", "my data.csv", given, "--out", "here"))
    assert typed[:4] == ["cutaway", "train", "mlp", "my data.csv"]
    assert typed[4:] == [
        "lr=0.00012345678", "betas=0.9,0.123456789", "nesterov=true", "target=two words", "epochs=3", "--out", "here",
    ]  # fmt: skip
