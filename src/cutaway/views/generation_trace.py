"""What a language model computed as it wrote some tokens: how likely each was to it, and where its heads looked.

All is read at the places where the tokens were predicted: of a token those of the token before it. Beside a tree of
thoughts the lines of one text are looked at one by one, each with all that stands before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..draw.description import Drawing
from ..nn.eval_mode import resting
from .attention_capture import AttentionLook, watch
from .json_values import thousandths

LIKELIEST, LEAST = 8, 0.001  # next tokens that are shown at each place, and the least probability of one


@dataclass(frozen=True)
class Written:
    """L tokens after S − L + 1 others."""

    before: list[int]
    tokens: list[int]
    log_p: Tensor  # (L, V): of every token that could have been written at each place
    looks: dict[str, Tensor]  # name of a layer → its heads' weights on all tokens but the last, (h, L, S)

    def own(self) -> Tensor:
        """log p of the tokens that were written, (L,)."""
        return self.log_p.gather(1, torch.tensor(self.tokens)[:, None])[:, 0]


def as_written(
    model: nn.Module, before: list[int], tokens: list[int], never: Sequence[int], *, looks: bool = True
) -> Written:
    """The text read at once, which gives what writing it token by token gave; tokens of `never` are not written."""
    device = next(model.parameters()).device
    ids = torch.tensor([[*before, *tokens[:-1]]], device=device)  # (1, S)
    inputs = (ids, torch.ones_like(ids, dtype=torch.bool))
    rows = slice(len(before) - 1, None)

    def see(look: AttentionLook) -> tuple[str, Tensor]:
        return look.name, torch.stack([look.weights(h)[rows] for h in range(look.heads)]).cpu()  # (h, L, S)

    with torch.no_grad(), resting(model):
        logits = model(*inputs)[0, rows].double().cpu()  # (L, V)
    logits[:, never] = -torch.inf
    return Written(before, tokens, logits.log_softmax(1), dict(watch(model, inputs, see)) if looks else {})


def drawing_of(written: Written, names: Sequence[str], maps: Sequence[str], title: str) -> Drawing:
    """The tokens as they were written: each by its probability, with what stood before it by the weight of the head
    that is chosen, and the likeliest next tokens. `names` are those of all tokens, `maps` the layers of which each head
    is shown; of the others the mean of the heads is."""
    own = written.own().exp()
    likely = []
    for p, token in zip(written.log_p.exp(), written.tokens):
        best = [i for i in p.topk(min(LIKELIEST, len(names))).indices.tolist() if p[i] >= LEAST]
        shown = best if token in best else [*best[: LIKELIEST - 1], token]
        likely.append([[names[i], float(f"{p[i]:.3g}")] for i in shown])
    return {
        "kind": "tokens",
        "title": title,
        "scale": "amount",
        "items": [
            _item("What stood before", [names[i] for i in (*written.before, *written.tokens[:-1])], []),
            _item("As it is written", [names[i] for i in written.tokens], [round(p, 4) for p in own.tolist()]),
        ],
        "maps": [{"name": name, "weights": _seen(weights)} for name, weights in _maps(written, maps)],
        "query": 0,
        "likely": likely,
    }


def numbers_of(written: Written, maps: Sequence[str]) -> int:
    """How many weights its drawing has."""
    return sum(weights.numel() for _, weights in _maps(written, maps))


def _maps(written: Written, whole: Sequence[str]) -> list[tuple[str, Tensor]]:
    """Weights (L, S) by what they are of: the mean of all heads, of each layer its heads, or their mean."""
    if not written.looks:
        return []
    found = [("mean of all heads", torch.cat(list(written.looks.values())).mean(0))]
    for name, heads in written.looks.items():
        if name in whole:
            found += [(f"{name}, head {h}" if len(heads) > 1 else name, weights) for h, weights in enumerate(heads)]
        elif len(heads) > 1:
            found.append((f"{name}, mean of {len(heads)} heads", heads.mean(0)))
        else:
            found.append((name, heads[0]))
    return found if len(found) > 2 else found[1:]


def _seen(weights: Tensor) -> list[list[float | None]]:
    """Weights (L, S), None where a token was not written yet: the last row saw all."""
    first = weights.shape[1] - len(weights) + 1  # tokens that the first row saw
    return [[*row[: first + k], *[None] * (len(row) - first - k)] for k, row in enumerate(thousandths(weights))]


def _item(label: str, tokens: list[str], values: list[float]) -> dict[str, Any]:
    return {"label": label, "tokens": tokens, "values": values, "warning": None}
