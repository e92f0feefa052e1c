"""Number formats of the report's sentences; draw/format.js writes the same formats in drawings.

Digits are grouped in threes by a narrow no-break space, which also precedes units. A minus is a minus sign.
"""

from __future__ import annotations

from collections.abc import Sequence

THIN = "\u202f"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
UNKNOWN = "unknown"


def capitalize_name(name: str) -> str:
    """Return the name with a capital first letter: Accuracy. A name with a capital, such as mAP, is unchanged."""
    return name if name[1:2].isupper() else f"{name[:1].upper()}{name[1:]}"


def format_value(value: float | None, format: str) -> str:
    """Return the value in one of the formats count, fraction and number."""
    if value is None:
        return UNKNOWN
    return {"count": count, "fraction": percent, "number": number}[format](value)


def shape_text(sizes: Sequence[int]) -> str:
    """Return the text of a shape: 3×64×64."""
    return "×".join(map(str, sizes))


def count(value: float) -> str:
    """Return the text of a whole number: 61 706."""
    return f"{round(value):,}".replace(",", THIN).replace("-", "−")


def percent(value: float) -> str:
    """Return a fraction as a percentage with one decimal: 97.8 %.

    It uses two or three decimals where one would round to 0 % or 100 %: 99.97 %.
    """
    hundredths = 100 * value
    if abs(hundredths) in (0, 100):
        return f"{hundredths:.0f}{THIN}%".replace("-0", "0").replace("-", "−")
    decimals = next((d for d in (1, 2) if 0 < abs(float(f"{hundredths:.{d}f}")) != 100), 3)
    return f"{hundredths:.{decimals}f}{THIN}%".replace("-", "−")


def number(value: float) -> str:
    """Return a number with four significant digits and all digits before the point: 0.01235, 54 322, 1.23×10⁻⁵."""
    size = abs(value)
    if size == 0:
        return "0"  # of either sign
    if size < 1e-4 or size >= 1e15:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}×10{str(int(exponent)).translate(SUPERSCRIPT)}".replace("-", "−")
    if size >= 1000:
        return count(value)
    text = f"{float(f'{value:.4g}'):g}"
    return count(float(text)) if abs(float(text)) >= 1000 else text.replace("-", "−")


def duration(seconds: float) -> str:
    """Return a duration in readable units: 12.3 s, 4 min 10 s, 2 h 5 min."""
    if seconds < 99.95:
        return f"{seconds:.1f}{THIN}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{THIN}min {rest}{THIN}s"
    return f"{minutes // 60}{THIN}h {minutes % 60}{THIN}min"


def plural(n: int, noun: str) -> str:
    """Return a count with its noun: `plural(1, "epoch")` is "1 epoch", `plural(3, "epoch")` "3 epochs"."""
    return f"{count(n)} {noun}" if n == 1 else f"{count(n)} {noun}s"


def timestamp_text(iso: str | None) -> str:
    """Return an ISO timestamp to the minute: 2026-01-31 14:05 UTC."""
    if not iso:
        return UNKNOWN
    return iso[:16].replace("T", " ") + (" UTC" if iso.endswith(("Z", "+00:00")) else "")


def signed(value: float) -> str:
    """Return a number with an explicit sign: +12.5, −3."""
    return f"+{number(value)}" if value > 0 else number(value)
