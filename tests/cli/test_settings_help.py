"""`--help` of commands that train: the settings used most, topics, one setting, all. Topics are those of the groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import pytest

from cutaway.apps.cli import COMMANDS as CLI
from cutaway.apps.cli.settings_help import training_settings
from cutaway.core.config import Topic, describe, field_names, group_by_topic, setting

from .conftest import Answer

Cli = Callable[..., Answer]
COMMANDS = ("train", "check", "compare", "search", "plan")  # which take settings of training
TOPICS = {topic.name: [entry.key for entry in entries] for topic, entries in group_by_topic(*training_settings())}
KEY = re.compile(r"^  (\w+)=", re.MULTILINE)


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def own(command: str) -> list[str]:
    """The settings of a command itself."""
    groups = getattr(import_module(f"cutaway.apps.cli.{CLI[command].module}"), f"{command}_settings")()
    return field_names(*(group for group in groups if group not in training_settings()))


def test_every_setting_of_training_has_one_topic() -> None:
    assert sorted(key for keys in TOPICS.values() for key in keys) == sorted(field_names(*training_settings()))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_prints_the_15_settings_used_most_and_the_topics(cli: Cli, command: str) -> None:
    said = cli(command, "--help").out
    common = [entry.key for group in training_settings() for entry in describe(group) if entry.common]
    assert len(common) == 15
    assert sorted(KEY.findall(said)) == sorted([*own(command), *common])
    assert [word for word in TOPICS if f"\n  {word} " not in said] == []
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_prints_its_settings_alone(cli: Cli, topic: str) -> None:
    said = cli("train", "--help", topic).out
    assert KEY.findall(said) == TOPICS[topic]
    assert max(map(len, said.splitlines())) <= 80
    assert cli("help", "plan", topic.upper()).out == said  # in any command, in any case of letters


@pytest.mark.parametrize("command", COMMANDS)
def test_all_prints_every_setting(cli: Cli, command: str) -> None:
    said = cli(command, "--help", "all").out
    assert sorted(KEY.findall(said)) == sorted([*own(command), *field_names(*training_settings())])
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("typed", ["grad_clip", "grad-clip", "grad_clip=1", "clip"])
def test_a_setting_is_printed_with_its_topic(cli: Cli, typed: str) -> None:
    said = cli("train", "-h", typed).out
    assert KEY.findall(said) == ["grad_clip"]
    assert said.endswith("\nMore of optimizer: cutaway train --help optimizer\n")


def test_a_setting_of_the_command_itself_is_printed(cli: Cli) -> None:
    assert KEY.findall(cli("search", "--help", "pruner").out) == ["pruner"]


@pytest.mark.parametrize(
    ("typed", "similar"),
    [("optimiser", "optimizer"), ("spli", "splits"), ("self_supervized", "self-supervised"), ("lrr", "lr")],
)
def test_an_unknown_topic_is_answered_by_the_nearest(cli: Cli, typed: str, similar: str) -> None:
    answer = cli("train", "--help", typed)
    assert (answer.status, answer.out) == (2, "")
    assert answer.said == (
        f"cutaway: There is no help topic or setting '{typed}'. Similar: {similar}. "
        "`cutaway train --help` lists the topics. CUT-102: `cutaway help CUT-102` explains it."
    )


def test_a_command_without_topics_prints_its_help(cli: Cli) -> None:
    assert cli("report", "--help", "optimizer").out == cli("report", "--help").out
    assert "TOPIC" not in cli("report", "--help").out


def test_topics_are_the_headings_of_a_group() -> None:
    @dataclass(frozen=True)
    class Group:
        above: int = setting(1, "above any topic")
        FAR_AWAY = Topic("places")
        first: int = setting(1, "one")
        SPEED = Topic("speed")
        second: float = setting(2.0, "two; and more", common=True)
        FAR_AWAY_TOO = Topic("empty")

    found = group_by_topic(Group)
    assert [(topic.name, topic.title, [entry.key for entry in entries]) for topic, entries in found] == [
        ("far-away", "places", ["first"]),
        ("speed", "speed", ["second"]),
        ("far-away-too", "empty", []),
    ]
    assert found[1][1][0].summary == "two"
    assert found[1][1][0].common
    assert Group().second == 2.0
