"""Text generation with a language model: prompts, token-by-token generation, and streaming.

Tokens are not processed again, where the model supports it:

- `extend(tokens, mask, cache) -> (logits (N, V), cache)`: the prompt is processed once, in pieces, then one token at a
  time; the cache stores keys and values in preallocated memory;
- `advance(tokens, mask, state) -> (outputs (N, T, V), state)`: the same with the state of a recurrent network;
- a model with neither processes the whole text for each token.

All three give the same tokens, up to rounding.

A model with `config.context_length` processes at most that many tokens. When a text becomes longer, the window slides:
the last half of the context, including the newest token, is processed again, and then one token at a time. With half
the context this is rare. The text depends only on the prompt, the seed and the settings.

Prompts of a batch may differ in length. A mask (N, T) marks the real tokens, wherever padding is. With one generator
per row, or if the likeliest token is always taken, each row gives the same tokens as alone, up to rounding.

Streamed text has whole characters only, and no text that may belong to a stop string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoints.match_config import get_origin
from ..core.errors import DataError, InputShapeError, SettingError, check_value
from ..data.text.corpus_transforms import RunningPreprocessing
from ..models.base import SupportsKVCache, SupportsState
from ..nn.decode_fast_path import DecodeFastPath
from ..nn.masks import normalize_padding_mask
from .sampling import Sampling, Settings, draw, uniform

NAMED = 10  # largest number of unknown pieces in a message


class TokenBounds(NamedTuple):
    """Tokens that are never generated, and tokens that end a text, as `generate` and `stream` take them.

    Attributes:
        never: Token ids that are never generated, in ascending order.
        ends: Token ids that end a text, in ascending order; empty if texts have no end.

    Example:
        >>> bounds = TokenBounds(never=[0, 1], ends=[2])
        >>> model = cutaway.create_model("lstm", vocab_size=9, num_classes=9, pooling="every", hidden_dim=8)
        >>> tokens = generate(model, torch.tensor([[5, 6]]), 4, **bounds._asdict())
        >>> set(tokens.flatten().tolist()) & {0, 1, 2}
        set()
    """

    never: list[int]
    ends: list[int]


def token_bounds(model: nn.Module, text: RunningPreprocessing) -> TokenBounds:
    """Return the tokens that a model never generates, and those that end a text.

    A text ends with the tokenizer's end token, or with an end token that the Hugging Face folder of the model's weights
    names. Padding, the unknown token, the begin token and the mask are never generated, unless they end a text.

    Args:
        model: A language model.
        text: The preprocessing of the model's texts, such as `run.preprocessing` of a run with a language model.

    Returns:
        Both lists, for the arguments `never` and `ends` of `generate` and `stream`.

    Example:
        >>> from cutaway.core.spec import NextToken, TextSpec
        >>> from cutaway.data.text.tokenizers import Characters
        >>> text = RunningPreprocessing(TextSpec(5, 8, NextToken(5)), Characters(["<pad>", "<unk>", *"abc"]))
        >>> token_bounds(cutaway.create_model("lstm", vocab_size=5, num_classes=5, pooling="every"), text)
        TokenBounds(never=[0, 1], ends=[])
    """
    known, origin = text.tokenizer, get_origin(model)
    ends = {*([] if known.end is None else [known.end]), *(origin.ends if origin else ())}
    special = (known.padding, known.unknown, known.begin, known.mask)
    return TokenBounds(sorted({token for token in special if token is not None} - ends), sorted(ends))


def encode_prompt(text: RunningPreprocessing, prompt: str) -> tuple[Tensor, str]:
    """Encode a prompt, and check that the model knows its tokens.

    A prompt without tokens, such as "", is replaced by the default beginning: the tokenizer's begin or end token, a
    line end, a full stop, or the first token of the vocabulary.

    Args:
        text: The preprocessing of the model's texts, such as `run.preprocessing` of a run with a language model.
        prompt: The text.

    Returns:
        The token ids, shape (T,), int64, and a warning: that some parts of the prompt are unknown to the tokenizer, or
        that it has no tokens; "" if there is none.

    Raises:
        DataError: If all tokens are unknown.

    Example:
        >>> from cutaway.core.spec import NextToken, TextSpec
        >>> from cutaway.data.text.tokenizers import Characters
        >>> text = RunningPreprocessing(TextSpec(5, 8, NextToken(5)), Characters(["<pad>", "<unk>", *"abc"]))
        >>> encode_prompt(text, "cab")
        (tensor([4, 2, 3]), '')
        >>> encode_prompt(text, "cat")
        (tensor([4, 2, 1]), "unknown to the model: 't'; each is replaced by the unknown token.")
    """
    ids = text.encode(prompt)
    if not len(ids):
        said = f"the prompt {prompt!r} has no tokens of this model; the text starts without a prompt."
        return text.beginning(), said if prompt else ""
    unknown = text.unknown(prompt)
    if not unknown:
        return ids, ""
    named = ", ".join(map(repr, unknown[:NAMED])) + (", …" if len(unknown) > NAMED else "")
    if set(ids.tolist()) == {text.tokenizer.unknown}:
        raise DataError(
            f"The prompt has only unknown tokens: {named} did not occur in the training text, or is not in the "
            "vocabulary.",
            fix="Use a prompt in the language and script of that text.",
        )
    return ids, f"unknown to the model: {named}; each is replaced by the unknown token."


PIECE = 512  # tokens of a prompt that are processed at a time, to limit memory
NEVER = (0, 1)  # tokens that are never generated: padding and the unknown token
NONE = -1  # in place of tokens after the end of a row
BLOCK = 64  # number of steps whose random numbers are drawn at once

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
    """Generate `count` tokens after each prompt.

    Args:
        model: A language model. One with neither `extend` nor `advance` is called as `model(tokens, mask)` for logits
            (N, T, V). It is run in evaluation mode without gradients, and returns to its previous mode.
        prompt: Token ids, shape (N, T), at least one, on the model's device.
        count: Number of tokens, at least 1.
        mask: True for real tokens, shape (N, T), with padding anywhere; None if all tokens are real.
        generator: One generator for all rows, or one per row, with which a row does not depend on the rest of the
            batch; None for PyTorch's default generator.
        never: Tokens that are never generated. None for 0 and 1, padding and the unknown token of Cutaway's tokenizers,
            or for no tokens if the model is from a Hugging Face folder.
        ends: Tokens that end a row. None for no tokens, or for those that the Hugging Face folder of the model names.
        window: Whether to use the last tokens of a prompt that is longer than the model's context.
        **settings: Fields of `sampling.Sampling`, such as `temperature=0.8`. The repetition penalty applies to tokens
            of the prompt too.

    Returns:
        Token ids, shape (N, count), int64, without the prompt. Rows are −1 from their end on; there are fewer columns
        if all rows end earlier.

    Raises:
        InputShapeError: If a prompt has no real token, has a token outside the vocabulary, or is longer than the
            model's context without `window`.
        ModelError: If outputs are not finite.
        SettingError: If a setting is invalid, `count` is less than 1, or the number of generators is neither 1 nor N.

    Example:
        >>> model = cutaway.create_model("gpt2", vocab_size=30, context_length=16, dim=8, heads=2, layers=1)
        >>> prompt = torch.tensor([[5, 6, 7], [8, 0, 0]])
        >>> mask = torch.tensor([[True, True, True], [True, False, False]])
        >>> tokens = generate(model, prompt, 20, mask=mask, generator=torch.Generator().manual_seed(0), top_k=5)
        >>> tokens.shape, bool((tokens > 1).all())
        (torch.Size([2, 20]), True)
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
    """Generate tokens as `generate` does, and return each token as soon as it is known.

    Arguments are validated by the call itself. The model is run only when the iterator is read.

    Args:
        model: A language model. It returns to its previous mode after each token.
        prompt: Token ids, shape (N, T), at least one, on the model's device.
        count: Largest number of tokens, at least 1.
        mask: True for real tokens, shape (N, T), with padding anywhere; None if all tokens are real.
        generator: One generator for all rows, or one per row; None for PyTorch's default generator.
        never: Tokens that are never generated; None as in `generate`.
        ends: Tokens that end a row; None as in `generate`.
        window: Whether to use the last tokens of a prompt that is longer than the model's context.
        **settings: Fields of `sampling.Sampling`, such as `temperature=0.8`.

    Returns:
        An iterator of one token per row, shape (N,), int64: −1 from a row's end on. It ends when all rows have ended.

    Raises:
        InputShapeError: If a prompt has no real token, has a token outside the vocabulary, or is longer than the
            model's context without `window`.
        ModelError: If outputs are not finite, while the iterator is read.
        SettingError: If a setting is invalid, `count` is less than 1, or the number of generators is neither 1 nor N.

    Example:
        >>> model = cutaway.create_model("gpt2", vocab_size=30, context_length=16, dim=8, heads=2, layers=1)
        >>> for token in stream(model, torch.tensor([[5, 6, 7]]), 3, temperature=0):
        ...     print(token.shape)
        torch.Size([1])
        torch.Size([1])
        torch.Size([1])
    """
    sampling, origin = Sampling(**settings), get_origin(model)
    if never is None:
        never = () if origin else NEVER
    if ends is None:
        ends = origin.ends if origin else ()
    check_value(count >= 1, "count", count, "at least 1", SettingError)
    prompts = _prompts(prompt, mask)
    _reject_unknown(model, prompts)
    context, longest = context_length(model), max(map(len, prompts))
    if context is not None and longest > context and not window:
        raise InputShapeError(
            f"The prompt has {longest:,} tokens, and the context of this model is {context:,}: shorten it, or "
            f"use a sliding window (window=True; `cutaway generate --window`) over the last {context:,} tokens."
        )
    generators = to_generators(generator, len(prompt), sampling)
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
    """Yield a token for each prompt, (N,): NONE after its end. Returns once all have ended."""
    modules, lean = list(model.modules()), DecodeFastPath(model)
    token: Tensor | None = None
    forbidden = closing = over = numbers = written = None
    for step in range(count):
        with _answering(modules, lean):
            logits = reader.read(token)  # (N, V)
            logits = logits if logits.dtype == torch.float64 else logits.float()
            if forbidden is None:  # the size of the vocabulary is known now
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


def to_generators(generator: Generators, rows: int, sampling: Sampling) -> list[torch.Generator | None]:
    """Return the generators as a list: one for all rows or one per row; empty for greedy decoding.

    Args:
        generator: A generator, a sequence of them, or None.
        rows: Number of rows.
        sampling: The sampling settings.

    Returns:
        The generators.

    Raises:
        SettingError: If their number is neither 1 nor `rows`.
    """
    found: list[torch.Generator | None] = [*generator] if isinstance(generator, Sequence) else [generator]
    if len(found) not in (1, rows):
        raise SettingError(f"Invalid number of generators, {len(found)}: must be 1 or {rows}, one per row.")
    return [] if sampling.greedy else found


def random_numbers(generators: list[torch.Generator | None], rows: int, device: torch.device) -> Tensor:
    """Draw the random numbers of the next steps.

    Args:
        generators: One generator for all rows, or one per row.
        rows: Number of rows N.
        device: Device of the result.

    Returns:
        Numbers in [0, 1), shape (BLOCK, N), float64.
    """
    if len(generators) == 1:
        return uniform(BLOCK * rows, generators[0], device).view(BLOCK, rows)
    return torch.stack([uniform(BLOCK, g, device) for g in generators], dim=1)


class _History:
    """The tokens of each row so far, and the start of the model's window."""

    def __init__(self, prompts: list[Tensor], context: int | None) -> None:
        self.prompts = prompts
        self.drawn: list[Tensor] = []  # each (N,)
        self.context = context
        self.starts = [max(0, len(row) - context) if context else 0 for row in prompts]

    def windows(self) -> tuple[Tensor, Tensor | None]:
        """Return the model's input of each row: tokens (N, T), padded on the right, and the mask; None without
        padding.
        """
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
        """Return which tokens of the vocabulary occur in each prompt, (N, V)."""
        found = torch.zeros_like(logits, dtype=torch.bool)
        for row, prompt in zip(found, self.prompts):
            row[prompt] = True
        return found


class _Reader(Protocol):
    """Protocol of the ways in which a model computes the next logits."""

    history: _History

    def __init__(self, model: Any, history: _History) -> None: ...

    def read(self, token: Tensor | None) -> Tensor:
        """Return the logits (N, V) after the prompt, or after the last sampled `token` (N,)."""
        ...


class _Cached:
    """A reader for a model with a key-value cache."""

    def __init__(self, model: Any, history: _History) -> None:
        self.model, self.history, self.cache = model, history, None
        self.width = 0  # tokens of each row in the cache, including padding

    def read(self, token: Tensor | None) -> Tensor:
        """Return the logits (N, V)."""
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
            # The logits of a row that ended before this piece come from an earlier piece.
            logits = found if logits is None or real is None else torch.where(real.any(1, keepdim=True), found, logits)
        assert logits is not None
        return logits


class _Carried:
    """A reader for a recurrent model with a state."""

    def __init__(self, model: Any, history: _History) -> None:
        self.model, self.history, self.state = model, history, None

    def read(self, token: Tensor | None) -> Tensor:
        """Return the logits (N, V)."""
        outputs: Tensor
        if token is not None:
            outputs, self.state = self.model.advance(token[:, None], None, self.state)
            return outputs[:, -1]
        tokens, mask = self.history.windows()
        # There is no padding up to the last token of the shortest row. The rest is one piece with a token of every row.
        common = tokens.shape[1] if mask is None else int(mask.sum(1).min()) - 1
        for piece in torch.split(tokens[:, :common], PIECE, dim=1) if common else ():
            outputs, self.state = self.model.advance(piece, None, self.state)
        if mask is None:
            return outputs[:, -1]
        outputs, self.state = self.model.advance(tokens[:, common:], mask[:, common:], self.state)
        return _last(outputs, mask[:, common:])


class _Anew:
    """A reader for a model that processes the whole text for each token."""

    def __init__(self, model: Any, history: _History) -> None:
        self.model, self.history = model, history

    def read(self, token: Tensor | None) -> Tensor:
        """Return the logits (N, V)."""
        if token is not None:
            self.history.drawn.append(token)
        tokens, mask = self.history.windows()
        outputs: Tensor = self.model(tokens, mask)  # (N, T, V)
        return outputs[:, -1] if mask is None else _last(outputs, mask)


def _reader(model: nn.Module) -> type[_Reader]:
    """Return the most efficient reader that the model supports."""
    if isinstance(model, SupportsKVCache):
        return _Cached
    return _Carried if isinstance(model, SupportsState) else _Anew


def _last(outputs: Tensor, mask: Tensor) -> Tensor:
    """Return the outputs (N, T, V) at the last real token of each row, (N, V)."""
    return outputs[torch.arange(len(outputs), device=outputs.device), mask.sum(1) - 1]


def _prompts(prompt: Tensor, mask: Tensor | None) -> list[Tensor]:
    """Return the real tokens of each prompt. Raises ModelError for an empty one."""
    if prompt.ndim != 2 or not prompt.numel():
        raise InputShapeError(f"Invalid prompt of shape {tuple(prompt.shape)}: must be (N, T) with at least one token.")
    if mask is None:
        return list(prompt)
    real = normalize_padding_mask(mask, prompt.shape)
    assert real is not None
    if not bool(real.any(1).all()):
        raise InputShapeError("Invalid mask: each prompt must have at least one token.")
    return [row[some] for row, some in zip(prompt, real)]


def _reject_unknown(model: nn.Module, prompts: list[Tensor]) -> None:
    """Raise ModelError if a token is not in the model's vocabulary."""
    size = getattr(getattr(model, "config", None), "vocab_size", None)
    if not isinstance(size, int):
        return
    for row in prompts:
        bad = row[(row < 0) | (row >= size)]
        if len(bad):
            raise InputShapeError(
                f"Invalid token id {int(bad[0])} in the prompt: must be from 0 to "
                f"{size - 1:,}. Encode the prompt with the tokenizer of the model."
            )


def context_length(model: nn.Module) -> int | None:
    """Return the largest number of tokens that a language model processes at once.

    Args:
        model: A language model.

    Returns:
        `config.context_length` or else `config.steps` of the model, if it is above 0. None if there is no limit, as for
        a recurrent model, which carries its state.

    Example:
        >>> context_length(cutaway.create_model("gpt2", context_length=16, dim=8, heads=2, layers=1))
        16
        >>> context_length(cutaway.create_model("lstm", vocab_size=9, num_classes=9, pooling="every")) is None
        True
    """
    if _reader(model) is _Carried:
        return None
    config = getattr(model, "config", None)
    for field in ("context_length", "steps"):
        found = getattr(config, field, None)
        if isinstance(found, int) and found > 0:
            return found
    return None


@contextmanager
def _answering(modules: list[nn.Module], lean: DecodeFastPath) -> Iterator[None]:
    """Switch the model to evaluation mode without gradients; afterwards each module returns to its own mode.

    This applies to a single token and not to the whole loop, so that the caller can use the model between tokens.
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


BROKEN = "\ufffd"  # result of decoding an incomplete character
CHARACTER = 4  # largest number of bytes, and thus tokens, of a character
BEFORE = 8  # tokens of the prompt that are decoded together with the tokens after it

Decode = Callable[[Sequence[int]], str]


class TextStreamer:
    """Incremental decoding: the text of a sequence of tokens, one piece for each new token.

    Pieces have whole characters only, although a token may be part of a character, and no text that may belong to a
    stop string. Joined, they are the text of all tokens, up to a stop string.

    Args:
        decode: Returns the text of token ids, such as `run.preprocessing.decode`. It must decode an incomplete
            character at the end as U+FFFD.
        before: Token ids before the text, such as those of the prompt, because the blank before a word may depend on
            them. They are not part of the text.
        stop: Stop strings. The text ends before the one that is complete first; of several that end at the same
            position, before the longest. Empty for none.

    Attributes:
        over: True once a stop string was found. Further tokens add nothing.

    Raises:
        SettingError: If a stop string is empty.

    Example:
        >>> pieces = TextStreamer(lambda ids: bytes(ids).decode(errors="replace"), stop=["!!"])
        >>> [pieces.add(byte) for byte in "né!!no".encode()]
        ['n', '', 'é', '', '', '', '']
        >>> pieces.rest(), pieces.over
        ('', True)
    """

    def __init__(self, decode: Decode, before: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        if not all(stop):
            raise SettingError("Invalid stop='': must have at least one character.")
        self.decode, self.stop = decode, list(stop)
        self.over = False  # whether a stop string was found
        self._shown = self._ids = list(before[-BEFORE:])
        self._held = ""  # text that could begin a stop string

    def add(self, token: int) -> str:
        """Add a token and return the text that is certain now.

        Only few tokens are decoded at a time: those since the last piece, and the tokens of the piece before, because
        the characters between two tokens may depend on both.

        Args:
            token: The token id.

        Returns:
            The next piece of the text; "" while a character or a possible stop string is incomplete, and once the text
            is over.
        """
        if self.over:
            return ""
        self._ids = [*self._ids, token]
        known, now = self.decode(self._shown), self.decode(self._ids)
        if now.endswith(BROKEN) and len(self._ids) - len(self._shown) < CHARACTER:
            return ""
        self._shown = self._ids = self._ids[len(self._shown) :]
        return self._certain(now[len(known) :])

    def rest(self) -> str:
        """Return the text that was held back, after the last token; "" if the text is over."""
        if self.over:
            return ""
        piece = ""
        if len(self._ids) > len(self._shown):
            piece = self._certain(self.decode(self._ids)[len(self.decode(self._shown)) :])
            self._shown = self._ids
        piece, self._held = piece + self._held, ""
        return piece

    def _certain(self, piece: str) -> str:
        """Append a piece and return the text that can be shown."""
        text = self._held + piece
        found = [(text.find(stop) + len(stop), text.find(stop)) for stop in self.stop if stop in text]
        if found:
            self.over, self._held = True, ""
            return text[: min(found)[1]]
        most = max((k for stop in self.stop for k in range(1, len(stop)) if text.endswith(stop[:k])), default=0)
        self._held = text[len(text) - most :]
        return text[: len(text) - most]


def as_text(drawn: Iterable[int], pieces: TextStreamer) -> Iterator[str]:
    """Yield the pieces of a text while its tokens are generated, up to a stop string or to the end of the tokens.

    Args:
        drawn: Token ids, such as those of one row of `stream`. −1 ends the text.
        pieces: The decoder of this text, at its beginning.

    Yields:
        A piece for each token, possibly "", and the text that was held back at the end.

    Example:
        >>> pieces = TextStreamer(lambda ids: bytes(ids).decode(errors="replace"), stop=["."])
        >>> list(as_text(b"Hi. And", pieces))
        ['H', 'i', '']
    """
    for token in drawn:
        if token == NONE or pieces.over:
            break
        yield pieces.add(token)
        if pieces.over:
            return
    yield pieces.rest()


def as_texts(drawn: Iterable[Tensor], rows: Sequence[TextStreamer]) -> list[str]:
    """Return the texts of several rows of tokens, which are generated only until all texts are over.

    Args:
        drawn: The next token of each row, (N,) each, as from `stream`. −1 ends a row.
        rows: The decoder of each row, N of them, at its beginning.

    Returns:
        The N texts.

    Example:
        >>> def decode(ids):
        ...     return bytes(ids).decode(errors="replace")
        >>> tokens = torch.tensor([[72, 105, 46], [79, 107, -1]]).unbind(1)  # as from `stream`
        >>> as_texts(tokens, [TextStreamer(decode), TextStreamer(decode)])
        ['Hi.', 'Ok']
    """
    texts = [""] * len(rows)
    ended = [False] * len(rows)
    for tokens in drawn:
        for i, token in enumerate(tokens.tolist()):
            if ended[i]:
                continue
            if token != NONE:
                texts[i] += rows[i].add(token)
            ended[i] = token == NONE or rows[i].over
        if all(ended):
            break
    return [text + row.rest() for text, row in zip(texts, rows)]
