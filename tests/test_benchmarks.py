"""Tests of the benchmarks as commands."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import NoReturn
from urllib.error import URLError

import pytest
from benchmarks.__main__ import main


@pytest.mark.parametrize("group", ["loops", "graphs", "processes", "words"])
def test_a_group_whose_data_set_cannot_be_downloaded_is_skipped(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(*given: object, **settings: object) -> NoReturn:
        raise URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path))
    monkeypatch.delenv("CUTAWAY_DATA", raising=False)
    assert main([group]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Skipped {group}: ")
    assert "set CUTAWAY_DATA" in out
