"""`make model NAME=…` names what an architecture lacks, and is silent about a complete one."""

from __future__ import annotations

import dataclasses

import pytest

from cutaway.models.card import PresetCard, Published
from cutaway.models.registry import Preset, preset

from . import model


def lacking(name: str) -> list[str]:
    found = preset(name)
    return model.missing(found.module.__name__.rpartition(".")[2], [found])


@pytest.mark.parametrize("name", ["mobilenet-v2", "squeezenet-1.1", "lenet5", "gcn", "mlp"])
def test_nothing_is_missing_of_a_complete_one(name: str) -> None:
    assert lacking(name) == []


def test_a_missing_row_of_the_exports_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "kept", lambda: {"found": {}})
    (line,) = lacking("squeezenet-1.0")
    assert line.startswith("tests/deploy/exports.json, docs/export.md: no row of squeezenet-1.0.")
    assert line.endswith("python -m tests.deploy.presets squeezenet-1.0")


def test_a_missing_line_of_published_settings_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(model.SETTINGS, "squeezenet-1.0")  # type: ignore[attr-defined]
    assert lacking("squeezenet-1.0") == ["src/cutaway/verify/published.py: SETTINGS has no line for squeezenet-1.0"]


def test_missing_counts_are_named_with_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    found = preset("squeezenet-1.1")
    card = dataclasses.replace(found.card.card, published={found.name: Published(1_235_496, at=(3, 224, 224))})
    monkeypatch.setattr(Preset, "card", property(lambda self: PresetCard(self.name, card)))
    (line,) = lacking("squeezenet-1.1")
    assert "has no exact counts of squeezenet-1.1" in line
    assert "1,235,496 parameters and 349,151,936 multiply-adds" in line


def test_a_name_that_is_no_file_lists_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert model.main("squeeze") == 2
    assert "mobilenet_v2" in capsys.readouterr().out
