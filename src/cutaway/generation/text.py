"""Text out of a language model, token by token: with carried state where the model has one.

A model with `advance(tokens, mask, state) -> (outputs, state)` reads the prompt once and then each new token. One
without reads everything anew for each token, as much of it as fits. Both give the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModelError, SettingError, require
from .sampling import check, choose

PIECE = 512  # tokens of a prompt that are read at a time: the outputs of all its tokens can be many
NEVER = (0, 1)  # tokens that are never written: padding, and the one that stands for all unknown ones


def generate(
    model: nn.Module,
    prompt: Tensor,
    count: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    never: Sequence[int] = NEVER,
) -> Tensor:
    """`count` tokens that go on where each row of `prompt` (N, T) ends: (N, count) int64.

    How each is drawn is for `sampling.choose`; those of `never` are not. The model is left in the mode that it was in.
    Raises ModelError for a prompt without tokens or outputs that are not finite, SettingError for bad settings.
    """
    drawn = stream(
        model, prompt, count, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator, never=never
    )
    return torch.stack(list(drawn), dim=1)  # (N, count)


def stream(
    model: nn.Module,
    prompt: Tensor,
    count: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    never: Sequence[int] = NEVER,
) -> Iterator[Tensor]:
    """The same, one token of each row at a time, (N,), as soon as it is drawn."""
    check(temperature, top_k, top_p)
    require(count >= 1, "count", count, "at least 1", SettingError)
    if prompt.ndim != 2 or not prompt.numel():
        raise ModelError(f"A prompt has the shape (N, T) with at least one token, not {tuple(prompt.shape)}.")
    return _stream(model, prompt, count, list(never), temperature, top_k, top_p, generator)


def _stream(
    model: nn.Module,
    prompt: Tensor,
    count: int,
    never: list[int],
    temperature: float,
    top_k: int,
    top_p: float,
    generator: torch.Generator | None,
) -> Iterator[Tensor]:
    carries, window = hasattr(model, "advance"), _window(model)
    seen, state = prompt, None
    for _ in range(count):
        with _answering(model):
            if carries:
                logits, state = _go_on(model, seen, state)
            else:
                logits = model(seen if window is None else seen[:, -window:], None)[:, -1]  # (N, V)
            logits = logits.double() if logits.dtype == torch.float64 else logits.float()
            logits = logits.index_fill(1, torch.tensor(never, device=logits.device, dtype=torch.int64), -torch.inf)
            token = choose(logits, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        yield token
        seen = token[:, None] if carries else torch.cat([seen, token[:, None]], dim=1)


def _go_on(model: nn.Module, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    """The outputs behind the last of `tokens` (N, T), and the model's state there."""
    for piece in torch.split(tokens, PIECE, dim=1):
        outputs, state = model.advance(piece, None, state)  # type: ignore[operator]
    return outputs[:, -1], state


def _window(model: nn.Module) -> int | None:
    """The most tokens that the model can read at once; None where there is no end."""
    config = getattr(model, "config", None)
    for field in ("context", "steps"):
        found = getattr(config, field, None)
        if isinstance(found, int) and found > 0:
            return found
    return None


@contextmanager
def _answering(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode without gradients, each of its modules then in the mode that it was in.

    Around a single token, not around the loop: who asks for tokens one by one has the model to himself in between.
    """
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
