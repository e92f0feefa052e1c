"""Numbers in English and German words: a small translation task with a real grammar, for chapter 10.

German writes a number below a million in one word; here it is cut into its parts. Tens and ones change places, and
zeros are not said:

    423105  four hundred and twenty three thousand one hundred and five
            vier hundert drei und zwanzig tausend ein hundert fünf
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

ONES = [
    *["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"],
    *["fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"],
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
EINS = [
    *["ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf", "dreizehn"],
    *["vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"],
]
ZEHN = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]

PADDING, BEGIN, END = 0, 1, 2  # ids before those of the words
SOURCE = ["", "", "", *sorted({*ONES, *TENS, "hundred", "thousand", "and"})]
TARGET = ["", "", "", *sorted({*EINS, *ZEHN, "hundert", "tausend", "und"})]


def english(n: int) -> list[str]:
    """Return the English words of a number from 1 to 999999."""
    if n >= 1000:
        small = ["and"] * (0 < n % 1000 < 100)
        return [*english(n // 1000), "thousand", *small, *english(n % 1000)]
    if n >= 100:
        small = ["and"] * (n % 100 > 0)
        return [ONES[n // 100 - 1], "hundred", *small, *english(n % 100)]
    if n >= 20:
        return [TENS[n // 10 - 2], *english(n % 10)]
    return [ONES[n - 1]] if n else []


def german(n: int) -> list[str]:
    """Return the parts of the German word of a number from 1 to 999999."""
    if n >= 1000:
        return [*german(n // 1000), "tausend", *german(n % 1000)]
    if n >= 100:
        return [EINS[n // 100 - 1], "hundert", *german(n % 100)]
    if n >= 20:
        return [*([EINS[n % 10 - 1], "und"] if n % 10 else []), ZEHN[n // 10 - 2]]
    return [EINS[n - 1]] if n else []


def token_ids(numbers: Iterable[int]) -> tuple[Tensor, Tensor]:
    """Return the token ids of the English and of the German words of each number.

    Returns:
        Sources (N, T) and targets (N, S), int64, padded on the right. A target ends with END.
    """
    numbers = list(numbers)
    source = [[SOURCE.index(word) for word in english(n)] for n in numbers]
    target = [[*(TARGET.index(word) for word in german(n)), END] for n in numbers]
    return pad(source), pad(target)


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return rows of token ids as one tensor (N, T), with PADDING after the end of each."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PADDING] * (longest - len(row))] for row in rows])
