"""The arithmetic of one query of one head: q Kᵀ, / √d, + mask, softmax, · V, with the real numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..draw.description import Drawing
from ..draw.number_format import count, number, percent, plural
from .attention_capture import AttentionCapture
from .json_values import to_lists

KEYS, NUMBERS = 12, 8  # most keys, and most numbers of a vector, that are shown


def arithmetic(look: AttentionCapture, head: int, query: int, asks: str, keys: Sequence[str]) -> list[Drawing]:
    """Return the attention of the query at position `query` as equations.

    `asks` is the name of the query, `keys` are the names of the keys. Of more than 12 keys, the ones with the largest
    weights are shown, in their order; of vectors, the first 8 numbers. Products and sums are over all keys and numbers.
    """
    weights = look.weights(head)[query][: len(keys)]  # (S,)
    shown = _largest(weights, KEYS)
    labels = [keys[i] for i in shown.tolist()]
    d = min(look.q.shape[-1], NUMBERS)
    result = look.weights(head)[query] @ look.v[head]  # (d_v,)
    said = _hidden_note(look, weights, shown, len(keys))
    first = _additive if look.compared is not None else _products
    return [
        *first(look, head, query, asks, shown, labels, d),
        _equation(
            "Softmax: weights that sum to 1",
            [
                _part("scores", _row(_scores(look, head, query)[shown]), rows=[asks], columns=labels),
                "softmax",
                _part("weights", _row(weights[shown]), rows=[asks], columns=labels, scale="amount", note=said),
            ],
        ),
        _equation(
            "Output: the weighted sum of the values",
            [
                _part("weights", _row(weights[shown]), rows=[asks], columns=labels, scale="amount"),
                "·",
                _part(
                    "V",
                    look.v[head][shown, :d],
                    rows=labels,
                    columns=_numbers(d),
                    note=_width_note(look.v.shape[-1], "values"),
                ),
                "=",
                _part(
                    "result",
                    _row(result[:d]),
                    rows=[asks],
                    columns=_numbers(d),
                    note="of all keys" if len(keys) > len(shown) else None,
                ),
            ],
        ),
    ]


def _products(
    look: AttentionCapture, head: int, query: int, asks: str, shown: Tensor, labels: list[str], d: int
) -> list[Drawing]:
    """Return q Kᵀ, then scale and mask applied to it."""
    q, k = look.q[head][query], look.k[head]  # (d,), (S, d)
    products = look.products(head)[query][shown]  # (S,)
    turned = ", rotated by position" if getattr(look.module, "rotates", False) else ""
    found = [
        _equation(
            "Dot product of the query with each key",
            [
                _part(
                    "q",
                    _row(q[:d]),
                    rows=[asks],
                    columns=_numbers(d),
                    note=_width_note(look.q.shape[-1], f"numbers{turned}"),
                ),
                "·",
                _part("Kᵀ", k[shown, :d].T, rows=_numbers(d), columns=labels),
                "=",
                _part("q Kᵀ", _row(products), rows=[asks], columns=labels, note=_sum_note(look.q.shape[-1], d)),
            ],
        )
    ]
    mask = look.mask_of(head)
    scaled = products * look.scale
    usual = math.isclose(look.scale, 1 / math.sqrt(look.q.shape[-1]))
    name = f"q Kᵀ / √{look.q.shape[-1]}" if usual else f"{number(look.scale)} · q Kᵀ"
    steps: list[Any] = [_part("q Kᵀ", _row(products), rows=[asks], columns=labels), "·"]
    steps.append(_part("1 / √d" if usual else "scale", torch.tensor([[look.scale]]), scale="amount"))
    steps += ["=", _part(name, _row(scaled), rows=[asks], columns=labels)]
    if look.scale == 1.0:
        steps = [_part("q Kᵀ", _row(scaled), rows=[asks], columns=labels, note="not scaled: the queries are small")]
    if mask is None or not bool(_additive_mask(mask)[query].any()):  # the mask hides nothing from this query
        return [*found, _equation("Divided by √d: the scores", steps)] if look.scale != 1.0 else found
    added = _additive_mask(mask)[query][shown]
    words = "mask" if mask.dtype == torch.bool else "bias"
    hidden = "empty: −∞, masked" if bool(added.isinf().any()) else None
    start = _part(name if look.scale != 1.0 else "q Kᵀ", _row(scaled), rows=[asks], columns=labels)
    sums: list[Any] = [
        start,
        "+",
        _part(words, _row(added), rows=[asks], columns=labels, note=hidden),
        "=",
        _part("scores", _row(scaled + added), rows=[asks], columns=labels),
    ]
    if look.scale != 1.0:
        found.append(_equation("Divided by √d", steps))
    return [*found, _equation(f"With the {words}: the scores", sums)]


def _additive(
    look: AttentionCapture, head: int, query: int, asks: str, shown: Tensor, labels: list[str], d: int
) -> list[Drawing]:
    """Return vᵀ tanh(W s + U h): a small network compares state and source (Bahdanau et al. 2014)."""
    assert look.compared is not None, "the score is additive"
    q, k = look.q[head][query], look.k[head][shown]  # (d,), (S, d)
    width = look.q.shape[-1]
    return [
        _equation(
            "State and source",
            [
                _part("W s", _row(q[:d]), rows=[asks], columns=_numbers(d), note=_width_note(width, "numbers")),
                "+",
                _part("U h", k[:, :d], rows=labels, columns=_numbers(d), note="the state is added to each row"),
            ],
        ),
        _equation(
            "Scores of the source positions",
            [
                _part("tanh(W s + U h)", torch.tanh(q + k)[:, :d], rows=labels, columns=_numbers(d)),
                "·",
                _part("v", look.compared[:d, None], rows=_numbers(d), columns=["v"]),
                "=",
                _part(
                    "scores",
                    _scores(look, head, query)[shown][:, None],
                    rows=labels,
                    columns=[asks],
                    note=_sum_note(width, d),
                ),
            ],
        ),
    ]


def _scores(look: AttentionCapture, head: int, query: int) -> Tensor:
    """Return the scores that enter the softmax, (S,): −∞ for masked keys."""
    scaled = look.products(head)[query] * look.scale
    mask = look.mask_of(head)
    return scaled if mask is None else scaled + _additive_mask(mask)[query]


def _additive_mask(mask: Tensor) -> Tensor:
    """Return a boolean mask as a term added to the scores: 0 or −∞."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)


def _largest(weights: Tensor, most: int) -> Tensor:
    """Return the indices of the `most` largest weights, in ascending order."""
    if len(weights) <= most:
        return torch.arange(len(weights))
    return torch.sort(weights.topk(most).indices).values


def _hidden_note(look: AttentionCapture, weights: Tensor, shown: Tensor, keys: int) -> str | None:
    """Return a note on the keys that are not shown, or None."""
    if len(shown) == keys:
        return None
    return f"{len(shown)} of {plural(keys, 'key')}, with {percent(float(weights[shown].sum()))} of the total weight"


def _width_note(width: int, what: str) -> str | None:
    return f"{NUMBERS} of {count(width)} {what}" if width > NUMBERS else (what if "rotated" in what else None)


def _sum_note(width: int, shown: int) -> str | None:
    return f"of all {count(width)} numbers" if width > shown else None


def _numbers(d: int) -> list[str]:
    return [str(i) for i in range(d)]


def _row(x: Tensor) -> Tensor:
    return x[None]  # (1, n)


def _part(
    name: str,
    values: Tensor,
    rows: list[str] | None = None,
    columns: list[str] | None = None,
    scale: str = "signed",
    note: str | None = None,
) -> dict[str, Any]:
    part: dict[str, Any] = {"name": name, "values": to_lists(values), "scale": scale}
    return part | {k: v for k, v in (("rows", rows), ("columns", columns), ("note", note)) if v is not None}


def _equation(title: str, parts: list[Any]) -> Drawing:
    return {"kind": "equation", "title": title, "parts": parts}
