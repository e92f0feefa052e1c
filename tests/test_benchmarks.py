"""Tests of the benchmarks as commands."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import NoReturn
from urllib.error import URLError

import pytest
from benchmarks import activations, convolution
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


def test_methods_of_convolution_agree_and_the_page_has_a_row_for_each_case() -> None:
    small, large = convolution.Case(16, 3, 2, 1), convolution.Case(64, 21, 16, 64)
    times = convolution.measure(small, rounds=1)
    assert {*times} == {*convolution.NAMES}
    assert large.work > convolution.MOST_DIRECT
    rows = [(small, {**times, "fft": 1.0, "fused": 2.0}), (large, {"fft": 3.0, "fused": 2.0})]
    head, _, first, second = convolution.table(rows)
    assert head.count("|") == first.count("|") == second.count("|")
    assert first.endswith("| 0.50 |")
    assert second.startswith("| 64×64 | 21×21 | 16 | 64 | – | – | **3e+03** |")
    words = convolution.findings([
        (convolution.Case(64, 9, 1, 1), {"fft": 1.0, "fused": 2.0}),
        (convolution.Case(64, 9, 1, 64), {"fft": 3.0, "fused": 2.0}),
    ])  # fmt: skip
    assert (
        "PyTorch’s convolution, more channels made the FFT relatively faster in 0 of 1 series and relatively" in words
    )
    page = (Path(__file__).parent.parent / convolution.PAGE).read_text(encoding="utf-8")
    measured = page.partition(convolution.BEGIN)[2].partition(convolution.END)[0]
    assert measured.count("\n| 16×16 |") + measured.count("\n| 64×64 |") == len([*convolution.cases()])


def test_each_activation_is_measured_beside_a_layer() -> None:
    times = activations.measure(rounds=1)
    assert {*times} == {*activations.ACTIVATIONS} - {"identity"} | {activations.LAYER}
    assert all(once > 0 and both > 0 for once, both in times.values())
    found = {"relu": (1.0, 2.0), "gelu": (2.0, 6.0), "tanh": (3.0, 8.0), activations.LAYER: (10.0, 40.0)}
    assert activations.table(found)[3] == "| gelu | 2000.000 | 6000.000 | 3.00 |"
    words = "ReLU needs 5 % of the time of the layer before it, GELU 15 %, and the most expensive, tanh, 20 %."
    assert activations.findings(found) == f"In training, {words}"
    page = (Path(__file__).parent.parent / activations.PAGE).read_text(encoding="utf-8")
    measured = page.partition(activations.BEGIN)[2].partition(activations.END)[0]
    assert all(f"\n| {name.replace('_', ' ')} |" in measured for name in times)
