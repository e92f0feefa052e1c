"""Numbers in sentences are written as they are in drawings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.metric_names import column_name, metric
from cutaway.draw.number_format import count, duration, format_value, number, percent, plural, signed, timestamp_text

FORMATS = json.loads(Path(__file__).with_name("formats.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("value", "format", "text"), FORMATS)
def test_numbers_are_written_as_the_drawings_write_them(value: float | None, format: str, text: str) -> None:
    assert format_value(value, format) == text


@given(st.floats(0, 1))
def test_a_fraction_is_all_or_nothing_only_where_it_is(value: float) -> None:
    text = percent(value).replace("\u202f", " ")
    assert (text == "100 %") == (100 * value == 100)
    assert (text == "0 %") == (100 * value == 0)


@given(st.floats(-1e300, 1e300))
def test_a_number_keeps_four_digits(value: float) -> None:
    digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-", "\u202f")
    read = float(number(value).translate(digits).replace("×10", "e"))
    assert read == pytest.approx(value, rel=5e-3, abs=0)


def test_times_are_in_the_units_a_person_would_use() -> None:
    assert [duration(s).replace("\u202f", " ") for s in (0.04, 12.34, 250, 7500)] == [
        "0.0 s",
        "12.3 s",
        "4 min 10 s",
        "2 h 5 min",
    ]
    assert timestamp_text("2026-01-31T14:05:12+00:00") == "2026-01-31 14:05 UTC"
    assert timestamp_text(None) == "unknown"


def test_names_and_counts() -> None:
    assert (plural(1, "epoch"), plural(1200, "epoch")) == ("1 epoch", "1\u202f200 epochs")
    assert metric("macro_f1") == ("macro F1", "fraction")
    assert metric("top_5_error") == ("top 5 error", "number")
    assert [column_name(k) for k in ("lr", "step", "val_map", "train_loss", "val_r2")] == [
        *("learning rate", "step", "val mAP@[.5:.95]", "train loss", "val R²")
    ]
    assert (signed(2.5), signed(-2.5), signed(0)) == ("+2.5", "−2.5", "0")
    assert count(-0.2) == "0"
    assert number(-0.0) == "0"
