"""Inputs of text generation: the prompt's tokens, forbidden tokens, and end tokens."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from ..checkpoints.origin import get_origin
from ..core.errors import DataError
from ..data.text.corpus_transforms import RunningPreprocessing

NAMED = 10  # largest number of unknown pieces in a message


class TokenBounds(NamedTuple):
    """Tokens that are never generated, and tokens that end a text, as `inference.text.stream` expects them."""

    never: list[int]
    ends: list[int]


def token_bounds(model: nn.Module, text: RunningPreprocessing) -> TokenBounds:
    """Return the bounds of a model, from its tokenizer and the folder of its weights."""
    known, origin = text.tokenizer, get_origin(model)
    ends = {*([] if known.end is None else [known.end]), *(origin.ends if origin else ())}
    special = (known.padding, known.unknown, known.begin, known.mask)
    return TokenBounds(sorted({token for token in special if token is not None} - ends), sorted(ends))


def encode_prompt(text: RunningPreprocessing, prompt: str) -> tuple[Tensor, str]:
    """Return the prompt's tokens, (T,), and a warning or "". Raises DataError if all of its tokens are unknown."""
    ids = text.encode(prompt)
    if not len(ids):
        said = f"nothing of the prompt {prompt!r} is a token of this model: the text begins as without one."
        return text.beginning(), said if prompt else ""
    unknown = text.unknown(prompt)
    if not unknown:
        return ids, ""
    named = ", ".join(map(repr, unknown[:NAMED])) + (", …" if len(unknown) > NAMED else "")
    if set(ids.tolist()) == {text.tokenizer.unknown}:
        raise DataError(
            f"This model knows nothing of the prompt: {named} did not stand in what it learned from, or was left "
            "out of its vocabulary.",
            fix="Give a prompt in the language and the letters of that text.",
        )
    return ids, f"the model does not know {named}: each is read as the one unknown token."
