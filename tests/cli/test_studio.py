"""cutaway studio, as far as it says no before it serves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cutaway.apps.studio import server
from cutaway.apps.studio.guard import reject_open_host

from .conftest import Answer


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been served; nothing is."""
    calls: list[Any] = []
    monkeypatch.setattr(server, "serve", lambda *words: calls.append(words))
    monkeypatch.setattr("cutaway.apps.studio.workers.warm_up", lambda: None)
    return calls


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "8.8.8.8", "example.org", ""])
def test_other_machines_reach_it_only_where_that_is_asked_for(
    host: str, cli: Callable[..., Answer], started: list[Any]
) -> None:
    answer = cli("studio", "--host", host)
    assert answer.status == 2
    assert "--open-to-the-network" in answer.said
    assert started == []
    answer = cli("studio", "--host", host, "--open-to-the-network")
    assert answer.status == 0
    assert answer.said.startswith("warning: the studio listens on")
    assert len(started) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_this_machine_needs_no_leave(host: str) -> None:
    reject_open_host(host, to_all=False)


def test_it_is_served_here_unless_told_otherwise(cli: Callable[..., Answer], started: list[Any]) -> None:
    assert cli("studio").status == 0
    run, host, port, to_all, _, state = started[0]
    assert (run, host, port, to_all, state) == (None, "127.0.0.1", None, False, "")


@pytest.mark.parametrize("typed", [
    ["#data=moons&model=mlp"], ["http://127.0.0.1:8765/an-old-token/#data=moons&model=mlp"],
    ["runs/a", "#data=moons&model=mlp"], ["#data=moons&model=mlp", "runs/a"],
])  # fmt: skip
def test_a_shared_state_is_opened(typed: list[str], cli: Callable[..., Answer], started: list[Any]) -> None:
    assert cli("studio", *typed).status == 0
    assert started[0][5] == "data=moons&model=mlp"
    assert started[0][0] == ("runs/a" if len(typed) == 2 else None)


def test_two_of_a_kind_are_rejected(cli: Callable[..., Answer], started: list[Any]) -> None:
    answer = cli("studio", "#data=moons", "#data=circles")
    assert answer.status == 2
    assert "Quote the state" in answer.said
    assert started == []


def test_what_is_no_run_is_rejected(
    cli: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cutaway.apps.studio.workers.warm_up", lambda: None)
    answer = cli("studio", str(tmp_path))
    assert answer.status == 2
    assert "is not a run" in answer.said
