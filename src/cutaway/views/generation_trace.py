"""A trace of text generation: the probability of each token and the attention of each head when it was written.

Values are read at the position that predicted a token, which is that of the previous token. In a tree of thoughts, each
line of a text is traced on its own with all of the text before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..draw.description import Drawing
from ..nn.eval_mode import eval_mode
from .attention_capture import AttentionCapture, capture_attention
from .json_values import thousandths

LIKELIEST, LEAST = 8, 0.001  # most next tokens at each position, and the least probability of one


@dataclass(frozen=True)
class GenerationTrace:
    """A trace of L generated tokens after S − L + 1 other tokens."""

    before: list[int]
    tokens: list[int]
    log_p: Tensor  # (L, V): log probabilities of the vocabulary at each position
    looks: dict[str, Tensor]  # name of a layer → its heads' weights on all tokens but the last, (h, L, S)

    def own(self) -> Tensor:
        """Return log p of the generated tokens, (L,)."""
        return self.log_p.gather(1, torch.tensor(self.tokens)[:, None])[:, 0]


def trace_text(
    model: nn.Module, before: list[int], tokens: list[int], never: Sequence[int], *, looks: bool = True
) -> GenerationTrace:
    """Trace the text in one forward pass, which equals generating it token by token.

    Tokens of `never` have probability 0.
    """
    device = next(model.parameters()).device
    ids = torch.tensor([[*before, *tokens[:-1]]], device=device)  # (1, S)
    inputs = (ids, torch.ones_like(ids, dtype=torch.bool))
    rows = slice(len(before) - 1, None)

    def see(look: AttentionCapture) -> tuple[str, Tensor]:
        return look.name, torch.stack([look.weights(h)[rows] for h in range(look.heads)]).cpu()  # (h, L, S)

    with torch.no_grad(), eval_mode(model):
        logits = model(*inputs)[0, rows].double().cpu()  # (L, V)
    logits[:, never] = -torch.inf
    return GenerationTrace(
        before, tokens, logits.log_softmax(1), dict(capture_attention(model, inputs, see)) if looks else {}
    )


def trace_drawing(written: GenerationTrace, names: Sequence[str], maps: Sequence[str], title: str) -> Drawing:
    """Return the tokens of a trace, shaded by their probability, with attention maps and the most probable next tokens.

    `names` are the names of all tokens. `maps` are the layers whose heads are shown separately; the other layers show
    the mean of their heads.
    """
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
            _item("Context", [names[i] for i in (*written.before, *written.tokens[:-1])], []),
            _item("Generated tokens", [names[i] for i in written.tokens], [round(p, 4) for p in own.tolist()]),
        ],
        "maps": [{"name": name, "weights": _mask_future(weights)} for name, weights in _maps(written, maps)],
        "query": 0,
        "likely": likely,
    }


def num_weights(written: GenerationTrace, maps: Sequence[str]) -> int:
    """Return the number of attention weights in the drawing."""
    return sum(weights.numel() for _, weights in _maps(written, maps))


def _maps(written: GenerationTrace, whole: Sequence[str]) -> list[tuple[str, Tensor]]:
    """Return weights (L, S) by name: the mean of all heads, and for each layer its heads or their mean."""
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


def _mask_future(weights: Tensor) -> list[list[float | None]]:
    """Return weights (L, S) as rows, with None for tokens that were not written yet."""
    first = weights.shape[1] - len(weights) + 1  # tokens before the first row
    return [[*row[: first + k], *[None] * (len(row) - first - k)] for k, row in enumerate(thousandths(weights))]


def _item(label: str, tokens: list[str], values: list[float]) -> dict[str, Any]:
    return {"label": label, "tokens": tokens, "values": values, "warning": None}
