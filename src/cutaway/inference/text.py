"""Text out of a language model, token by token, each from all those before it.

What was read is not read again, where the model can help it:

- `extend(tokens, mask, cache) -> (logits (N, V), cache)`: the prompt is read once, in pieces, then each token alone;
  the cache keeps keys and values in memory that was taken at the start;
- `advance(tokens, mask, state) -> (outputs (N, T, V), state)`: the same with the state of a recurrent network;
- a model with neither reads everything anew for each token.

All three give the same tokens, but for the rounding of the model's own sums.

A model with `config.context_length` reads at most so many tokens. When a text outgrows it, the window slides: the last
half of the context, the newest token in it, is read anew, and from there on token by token. Half, so that this is rare;
the text at a place depends on nothing but the prompt, the seed and the settings.

Prompts of one batch may differ in length: a mask (N, T) says what is real, wherever padding stands. Each row is what it
would be alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoints.origin import origin_of
from ..core.errors import ModelError, SettingError, require
from ..models.base import Advances, Extends
from ..nn.decode_fast_path import Unrolled
from ..nn.masks import real_places
from .sampling import Sampling, Settings, draw, uniform

PIECE = 512  # tokens of a prompt that are read at a time: what is computed of all its tokens can be much
NEVER = (0, 1)  # tokens that are never written: padding, and the one that stands for all unknown ones
NONE = -1  # stands for the tokens of a row that has ended
BLOCK = 64  # steps whose random numbers are drawn at once

Generators = torch.Generator | Sequence[torch.Generator] | None


def generate(
    model: nn.Module,
    prompt: Tensor,
    count: int,
    *,
    mask: Tensor | None = None,
    generator: Generators = None,
    never: Sequence[int] | None = None,
    ends: Sequence[int] | None = None,
    window: bool = False,
    **settings: Unpack[Settings],
) -> Tensor:
    """`count` tokens that go on where each row of `prompt` (N, T) ends: (N, count) int64.

    `mask` (N, T) is True where a token is real. How each is drawn is said by `settings`, those of
    `sampling.Sampling`; the repetition penalty counts the prompt's tokens. Tokens of `never` are not drawn; one of
    `ends` ends its row, where NONE stands from there on, and the result is shorter where all rows have ended. Unless
    they are given, nothing ends a row, and padding and the unknown token, 0 and 1, are never drawn; of a model from a
    Hugging Face folder the ends are those that the folder names, and every token can be drawn.

    One `generator` draws for all rows; of several, one a row, each row is the same whatever the batch it stands in. The
    model is left in the mode that it was in. Raises ModelError for a prompt that is empty, has a token outside the
    vocabulary, or is longer than the model's context; with `window` the last tokens of a longer one are read. Raises
    ModelError for outputs that are not finite, and SettingError for bad settings.
    """
    tokens = stream(
        model, prompt, count, mask=mask, generator=generator, never=never, ends=ends, window=window, **settings
    )
    drawn = list(tokens)
    return torch.stack(drawn, dim=1) if drawn else prompt.new_empty(len(prompt), 0)  # (N, count)


def stream(
    model: nn.Module,
    prompt: Tensor,
    count: int,
    *,
    mask: Tensor | None = None,
    generator: Generators = None,
    never: Sequence[int] | None = None,
    ends: Sequence[int] | None = None,
    window: bool = False,
    **settings: Unpack[Settings],
) -> Iterator[Tensor]:
    """The same, one token of each row at a time, (N,), as soon as it is drawn. Raises as `generate` does."""
    sampling, origin = Sampling(**settings), origin_of(model)
    if never is None:
        never = () if origin else NEVER
    if ends is None:
        ends = origin.ends if origin else ()
    require(count >= 1, "count", count, "at least 1", SettingError)
    prompts = _prompts(prompt, mask)
    _reject_unknown(model, prompts)
    context, longest = context_of(model), max(map(len, prompts))
    if context is not None and longest > context and not window:
        raise ModelError(
            f"The prompt has {longest:,} tokens, and this model reads {context:,} at most: give a shorter one, or "
            f"let the window slide (window=True; `cutaway generate --window`), and the last {context:,} are read."
        )
    generators = generators_of(generator, len(prompt), sampling)
    reader = _reader(model)(model, _History(prompts, context))
    return _stream(model, reader, count, sampling, generators, list(never), list(ends))


def _stream(
    model: nn.Module,
    reader: _Reader,
    count: int,
    sampling: Sampling,
    generators: list[torch.Generator | None],
    never: list[int],
    ends: list[int],
) -> Iterator[Tensor]:
    modules, lean = list(model.modules()), Unrolled(model)
    token: Tensor | None = None
    forbidden = closing = over = numbers = written = None
    for step in range(count):
        with _answering(modules, lean):
            logits = reader.read(token)  # (N, V)
            logits = logits if logits.dtype == torch.float64 else logits.float()
            if forbidden is None:  # now the vocabulary is known
                forbidden = logits.new_zeros(logits.shape[1])
                forbidden[never] = -torch.inf
                closing = torch.tensor(ends, dtype=torch.int64, device=logits.device)
                written = reader.history.written(logits) if sampling.repetition_penalty != 1 else None
            if generators and step % BLOCK == 0:
                numbers = random_numbers(generators, len(logits), logits.device).unbind()  # BLOCK of (N,)
            drawn = numbers[step % BLOCK] if numbers is not None else None
            token = draw(logits + forbidden, sampling, drawn, written)
            if written is not None:
                written.scatter_(1, token[:, None], True)
            shown = token
            if ends:
                assert closing is not None
                ended = torch.isin(token, closing)
                over = ended if over is None else over | ended
                if over.all():
                    return
                shown = token.masked_fill(over, NONE)
        yield shown


def generators_of(generator: Generators, rows: int, sampling: Sampling) -> list[torch.Generator | None]:
    """One generator for all rows or one for each; none where nothing is drawn. Raises SettingError for another number
    of them."""
    found: list[torch.Generator | None] = [*generator] if isinstance(generator, Sequence) else [generator]
    if len(found) not in (1, rows):
        raise SettingError(f"{len(found)} generators for {rows} rows cannot be: give one, or one a row.")
    return [] if sampling.greedy else found


def random_numbers(generators: list[torch.Generator | None], rows: int, device: torch.device) -> Tensor:
    """Random numbers for the next steps, (BLOCK, N)."""
    if len(generators) == 1:
        return uniform(BLOCK * rows, generators[0], device).view(BLOCK, rows)
    return torch.stack([uniform(BLOCK, g, device) for g in generators], dim=1)


class _History:
    """The tokens of each row so far, and where the window begins that the model reads of them."""

    def __init__(self, prompts: list[Tensor], context: int | None) -> None:
        self.prompts = prompts
        self.drawn: list[Tensor] = []  # each (N,)
        self.context = context
        self.starts = [max(0, len(row) - context) if context else 0 for row in prompts]

    def windows(self) -> tuple[Tensor, Tensor | None]:
        """What the model reads of each row: (N, T), padding after, and the mask; None where all is real."""
        drawn = torch.stack(self.drawn, dim=1) if self.drawn else None  # (N, tokens)
        found = []
        for i, prompt in enumerate(self.prompts):
            row = prompt if drawn is None else torch.cat([prompt, drawn[i]])
            if self.context and len(row) - self.starts[i] > self.context:
                self.starts[i] = len(row) - max(1, self.context // 2)
            found.append(row[self.starts[i] :])
        lengths = torch.tensor([len(row) for row in found], device=found[0].device)
        longest = int(lengths.max())
        tokens = torch.stack([F.pad(row, (0, longest - len(row))) for row in found])  # (N, T)
        if (lengths == longest).all():
            return tokens, None
        return tokens, torch.arange(longest, device=tokens.device) < lengths[:, None]

    def written(self, logits: Tensor) -> Tensor:
        """Which tokens of the vocabulary stand in each prompt, (N, V) as the logits are."""
        found = torch.zeros_like(logits, dtype=torch.bool)
        for row, prompt in zip(found, self.prompts):
            row[prompt] = True
        return found


class _Reader(Protocol):
    """How a model is asked for what comes next."""

    history: _History

    def __init__(self, model: Any, history: _History) -> None: ...

    def read(self, token: Tensor | None) -> Tensor:
        """Logits (N, V) after the prompt, or after the `token` (N,) that was drawn last."""
        ...


class _Cached:
    """A model that extends a cache."""

    def __init__(self, model: Any, history: _History) -> None:
        self.model, self.history, self.cache = model, history, None
        self.width = 0  # tokens that the cache holds of each row, padding among them

    def read(self, token: Tensor | None) -> Tensor:
        """Logits (N, V)."""
        if token is not None:
            self.history.drawn.append(token)
            self.width += 1
            if self.history.context is None or self.width <= self.history.context:
                after: Tensor
                after, self.cache = self.model.extend(token[:, None], None, self.cache)
                return after
        tokens, mask = self.history.windows()
        self.width, self.cache = tokens.shape[1], None
        logits: Tensor | None = None
        for begin in range(0, self.width, PIECE):
            piece = tokens[:, begin : begin + PIECE]
            real = None if mask is None else mask[:, begin : begin + PIECE]
            found, self.cache = self.model.extend(piece, real, self.cache)
            # A row that has ended before this piece was answered in an earlier one.
            logits = found if logits is None or real is None else torch.where(real.any(1, keepdim=True), found, logits)
        assert logits is not None
        return logits


class _Carried:
    """A recurrent model, which carries a state."""

    def __init__(self, model: Any, history: _History) -> None:
        self.model, self.history, self.state = model, history, None

    def read(self, token: Tensor | None) -> Tensor:
        """Logits (N, V)."""
        outputs: Tensor
        if token is not None:
            outputs, self.state = self.model.advance(token[:, None], None, self.state)
            return outputs[:, -1]
        tokens, mask = self.history.windows()
        # Up to the last token of the shortest row all is real. The rest is one piece, in which every row has a token.
        common = tokens.shape[1] if mask is None else int(mask.sum(1).min()) - 1
        for piece in torch.split(tokens[:, :common], PIECE, dim=1) if common else ():
            outputs, self.state = self.model.advance(piece, None, self.state)
        if mask is None:
            return outputs[:, -1]
        outputs, self.state = self.model.advance(tokens[:, common:], mask[:, common:], self.state)
        return _last(outputs, mask[:, common:])


class _Anew:
    """A model that reads everything anew."""

    def __init__(self, model: Any, history: _History) -> None:
        self.model, self.history = model, history

    def read(self, token: Tensor | None) -> Tensor:
        """Logits (N, V)."""
        if token is not None:
            self.history.drawn.append(token)
        tokens, mask = self.history.windows()
        outputs: Tensor = self.model(tokens, mask)  # (N, T, V)
        return outputs[:, -1] if mask is None else _last(outputs, mask)


def _reader(model: nn.Module) -> type[_Reader]:
    """The way of asking that suits the model best."""
    if isinstance(model, Extends):
        return _Cached
    return _Carried if isinstance(model, Advances) else _Anew


def _last(outputs: Tensor, mask: Tensor) -> Tensor:
    """The outputs (N, T, V) at the last real token of each row, (N, V)."""
    return outputs[torch.arange(len(outputs), device=outputs.device), mask.sum(1) - 1]


def _prompts(prompt: Tensor, mask: Tensor | None) -> list[Tensor]:
    """The real tokens of each prompt. Raises ModelError where there is none."""
    if prompt.ndim != 2 or not prompt.numel():
        raise ModelError(f"A prompt has the shape (N, T) with at least one token, not {tuple(prompt.shape)}.")
    if mask is None:
        return list(prompt)
    real = real_places(mask, prompt.shape)
    assert real is not None
    if not bool(real.any(1).all()):
        raise ModelError("Each prompt needs at least one token, and by the mask one has none.")
    return [row[some] for row, some in zip(prompt, real)]


def _reject_unknown(model: nn.Module, prompts: list[Tensor]) -> None:
    """Raise ModelError where a token is none of the model's."""
    size = getattr(getattr(model, "config", None), "vocab_size", None)
    if not isinstance(size, int):
        return
    for row in prompts:
        bad = row[(row < 0) | (row >= size)]
        if len(bad):
            raise ModelError(
                f"The prompt has the token id {int(bad[0])}, and this model's vocabulary has the ids from 0 to "
                f"{size - 1:,}: encode the prompt with the tokenizer that belongs to the model."
            )


def context_of(model: nn.Module) -> int | None:
    """The most tokens that the model can read at once; None where there is no end."""
    if _reader(model) is _Carried:
        return None
    config = getattr(model, "config", None)
    for field in ("context_length", "steps"):
        found = getattr(config, field, None)
        if isinstance(found, int) and found > 0:
            return found
    return None


@contextmanager
def _answering(modules: list[nn.Module], lean: Unrolled) -> Iterator[None]:
    """The model in evaluation mode without gradients, each of its modules then in the mode that it was in.

    Around a single token, not around the loop: who asks for tokens one by one has the model to himself in between.
    """
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad(), lean():
            yield
    finally:
        for module in training:
            module.training = True
