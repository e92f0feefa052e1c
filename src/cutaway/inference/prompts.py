"""What a text is written with: the tokens of its prompt, those that are never drawn, those that end it."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from ..checkpoints.origin import origin_of
from ..core.errors import DataError
from ..data.text.corpus_transforms import RunningPreprocessing

NAMED = 10  # unknown pieces of a prompt that are named


class Bounds(NamedTuple):
    """Tokens that are never drawn, and those that end a text: as `inference.text.stream` takes them."""

    never: list[int]
    ends: list[int]


def bounds_of(model: nn.Module, text: RunningPreprocessing) -> Bounds:
    """Those of a model and its tokenizer, and of the folder that its weights came from."""
    known, origin = text.tokenizer, origin_of(model)
    ends = {*([] if known.end is None else [known.end]), *(origin.ends if origin else ())}
    special = (known.padding, known.unknown, known.begin, known.mask)
    return Bounds(sorted({token for token in special if token is not None} - ends), sorted(ends))


def prompt_of(text: RunningPreprocessing, prompt: str) -> tuple[Tensor, str]:
    """The prompt's tokens, (T,), and what a person should know of them, if anything. Raises DataError where the model
    knows none of it."""
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
