"""cutaway list."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cutaway.models.registry import presets

from .conftest import Answer

Cli = Callable[..., Answer]


def names(out: str) -> list[str]:
    """The models of a list: each has a line of its own, which tells its parameters."""
    return [line.split()[0] for line in out.splitlines() if line.split()[0:1] and line.split()[0] in presets()]


def test_one_line_a_model_by_family(cli: Cli) -> None:
    answer = cli("list")
    lines = answer.out.splitlines()
    assert answer.status == 0
    assert sorted(names(answer.out)) == sorted(presets())
    headings = [line.partition("--family ")[2].rstrip(")") for line in lines if "(--family " in line]
    assert headings == ["dense", "rnn", "cnn", "words", "graph", "transformer", "generative"]
    assert lines.index("Graph networks (--family graph)") + 1 == next(
        i for i, line in enumerate(lines) if line.startswith("gae ")
    )
    assert lines[-1].startswith(f"{len(presets())} models: 6 dense, ")
    line = next(line for line in lines if line.startswith("resnet18 "))
    assert "11\u202f689\u202f512" in line
    assert "He 2015: Deep residual learning for image recognition" in line
    assert "Chowdhery 2022: PaLM" in answer.out  # of "A. Chowdhery et al."


def test_a_narrow_terminal_has_every_word_of_the_source(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from cutaway.apps.cli import output

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    output.console.cache_clear()
    try:
        answer = cli("list")
    finally:
        output.console.cache_clear()
    lines = [line.replace("\x1b[2m", "").replace("\x1b[0m", "") for line in answer.out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert any("11\u202f689\u202f512" in line for line in lines)
    assert not any("…" in line for line in lines)
    assert "    Jordan 2024: 94% on CIFAR-10 in 3.29 seconds on a single GPU" in lines


def test_filters(cli: Cli) -> None:
    tables = names(cli("list", "--takes", "table").out)
    assert "mlp" in tables
    assert "resnet18" not in tables
    cnns = [row["name"] for row in json.loads(cli("list", "--family", "cnn", "--json").out)]
    assert "resnet110" in cnns
    assert "mlp" not in cnns


def test_a_word_is_part_of_a_name_a_family_or_a_kind_of_data(cli: Cli) -> None:
    found = names(cli("list", "ResNet").out)
    assert all("resnet" in name for name in found)
    assert {"resnet18", "resnet34", "fcos-resnet50"} <= set(found)
    assert "lstm" in names(cli("list", "rnn").out)
    answer = cli("list", "graph")
    assert names(answer.out) == ["gae", "gat", "gcn", "gin", "gin-eps", "gine", "graphconv", "graphsage", "mpnn"]
    assert answer.out.splitlines()[-1] == "9 models."
    answer = cli("list", "resnet19x")
    assert (answer.status, answer.out) == (2, "")
    assert "Similar: resnet" in answer.said


def test_json_has_every_model(cli: Cli) -> None:
    rows = json.loads(cli("list", "--json").out)
    assert [row["name"] for row in rows] == list(presets())
    assert all(row["parameters"] > 0 and row["link"].startswith("http") for row in rows)


def test_an_unknown_family_or_kind_is_rejected(cli: Cli) -> None:
    for words in (("--family", "cmn"), ("--takes", "tables")):
        answer = cli("list", *words)
        assert (answer.status, answer.out) == (2, "")
        assert "Similar: " in answer.said
