"""Reading texts out of frames: beside all paths one by one, and beside a plain loop of prefix beam search."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict

import pytest
import torch
from benchmarks.speech import Text, log_sum, plain_prefix_beam
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import SettingError
from cutaway.inference.sequence_decoding import best_path, prefix_beam, transcribe
from cutaway.nn.losses import SILENT


def frames(batch: int, count: int, tokens: int, seed: int = 0, scale: float = 2) -> Tensor:
    z = torch.randn(batch, count, tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (scale * z).log_softmax(2)


def texts(found: Tensor) -> list[Text]:
    return [tuple(k for k in row if k >= 0) for row in found.tolist()]


def test_a_wide_beam_finds_the_likeliest_text_of_all_paths() -> None:
    y = frames(6, 6, 3, scale=1)
    found, scores = prefix_beam(y, 200)
    for i in range(len(y)):
        by_text: dict[Text, list[float]] = defaultdict(list)
        for path in itertools.product(range(3), repeat=6):
            read = tuple(token for token, _ in itertools.groupby(path) if token)
            by_text[read].append(float(y[i, range(6), path].sum()))
        likeliest = max(by_text, key=lambda text: log_sum(*by_text[text]))
        assert texts(found)[i] == likeliest
        assert scores[i].item() == pytest.approx(log_sum(*by_text[likeliest]))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), tokens=st.integers(2, 5), beams=st.integers(1, 6), count=st.integers(1, 10))
def test_a_beam_is_that_of_the_plain_loop(seed: int, tokens: int, beams: int, count: int) -> None:
    y = frames(3, count, tokens, seed)
    found, scores = prefix_beam(y, beams)
    for i, row in enumerate(y.tolist()):
        text, score = plain_prefix_beam(row, beams)
        assert texts(found)[i] == text
        assert scores[i].item() == pytest.approx(score, rel=1e-9, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), beams=st.integers(1, 5), silent=st.integers(0, 4))
def test_neither_batch_nor_padding_changes_a_text(seed: int, beams: int, silent: int) -> None:
    y = frames(4, 8, 4, seed)
    silence = torch.tensor([0.0] + [SILENT] * 3, dtype=torch.float64).log_softmax(0).expand(4, silent, 4)
    together = texts(transcribe(torch.cat([y, silence], 1), beams))
    assert together == [texts(transcribe(y[i : i + 1], beams))[0] for i in range(4)]


def test_the_best_path_is_read_without_repeats_and_blanks() -> None:
    path = torch.tensor([[1, 1, 0, 1, 2, 2], [0, 0, 0, 0, 0, 0], [3, 2, 3, 3, 0, 3]])
    y = torch.nn.functional.one_hot(path, 4).double().log()
    assert texts(best_path(y)) == [(1, 1, 2), (), (3, 2, 3, 3)]
    assert texts(best_path(y[1:2])) == [()]
    assert texts(transcribe(y, 3)) == [(1, 1, 2), (), (3, 2, 3, 3)]


def test_a_beam_adds_up_paths_where_greedy_search_takes_one() -> None:
    y = torch.tensor([[[0.4, 0.35, 0.25], [0.4, 0.35, 0.25]]]).log()
    assert texts(transcribe(y)) == [()]  # 0.16, against 0.4 of the three paths that read 1
    assert texts(transcribe(y, 4)) == [(1,)]


def test_a_beam_is_five_times_as_fast_as_the_plain_loop() -> None:
    y = frames(32, 60, 28, scale=3)
    rows, ratios = y[:2].tolist(), []
    for _ in range(3):
        started = time.perf_counter()
        prefix_beam(y, 8)
        ours = time.perf_counter() - started
        started = time.perf_counter()
        for row in rows:
            plain_prefix_beam(row, 8)
        ratios.append((time.perf_counter() - started) * len(y) / len(rows) / ours)
    assert max(ratios) > 5, ratios


def test_fewer_than_one_beam_is_rejected() -> None:
    with pytest.raises(SettingError, match="Invalid num_beams=0: must be at least 1"):
        transcribe(frames(1, 2, 3), 0)
