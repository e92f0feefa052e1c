"""Selection and fitting of the tokenizer of a data set, and its special tokens.

With V ids, Cutaway's tokenizers use V as the begin token, V + 1 as the end token and V + 2 as the mask token;
pretrained ones have their own. Text with special tokens and masked text both have V + 3 ids, so that a model trained on
one fits the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ...core.errors import FileError, SettingError
from ...core.files import exists, reject_address
from ...core.spec import Simple, Tags, TextSpec
from ..modalities import reject_changed
from ..settings import DataSettings
from .tokenizer_files import open_tokenizer
from .tokenizers import IDS, KINDS, PRETRAINED, Tokenizer, fit_ids, train_tokenizer

AUTO = "auto"
OF_ITS_OWN = ("vocab_size", "min_count", "lower")  # settings that configure the fit of a tokenizer
LEAST_FRAMED = 3  # minimum tokens: the special tokens and one between them


class SpecialTokens(NamedTuple):
    """The special tokens around a text."""

    begin: int
    end: int


def load_named_tokenizer(settings: DataSettings) -> Tokenizer | None:
    """Return the tokenizer whose path is in the settings; None if they name a kind to be fitted.

    Raises SettingError if it is neither, or if settings configure the fit of a tokenizer; FileError.
    """
    named = settings.tokenizer
    if named == AUTO or named in KINDS:
        return None
    if not exists(Path(named).expanduser()):
        reject_address(named)
        raise SettingError(
            f"tokenizer={named} is neither a kind of tokenizer ({', '.join((AUTO, *KINDS))}) nor a path here: a path "
            f"is that of a tokenizer.json, of a folder that holds one, or of a run. Seen from {Path.cwd()}."
        )
    try:
        found = open_tokenizer(named)
    except FileError as error:
        raise FileError(f"tokenizer={named} cannot be taken. {error}") from error
    reject_changed(settings, OF_ITS_OWN, f"says how a tokenizer is fitted, and that of {named} is fitted already")
    return found


def fit_tokenizer(
    settings: DataSettings, usual: str, texts: Iterable[str], *, blanks: bool = False
) -> tuple[Tokenizer, bool]:
    """Return the tokenizer that the settings select, fitted on `texts` unless it is pretrained, and whether it is.

    `usual` is the kind for auto, or says that texts are token ids; `blanks` splits words at blanks. Raises as
    `given_tokenizer` and `train_tokenizer`.
    """
    if usual == IDS:
        return fit_ids(settings, texts), False
    given = load_named_tokenizer(settings)
    if given is not None:
        return given, True
    kind = usual if settings.tokenizer == AUTO else settings.tokenizer
    lower, blanks = bool(settings.lower), blanks and kind == "words"
    return train_tokenizer(kind, texts, settings.vocab_size, settings.min_count, lower, blanks=blanks), False


def special_tokens_for(tokenizer: Tokenizer) -> SpecialTokens:
    """Return the special tokens around texts of this tokenizer. Raises SettingError if it has none."""
    if tokenizer.kind != PRETRAINED:
        return SpecialTokens(len(tokenizer), len(tokenizer) + 1)
    if tokenizer.begin is None or tokenizer.end is None:
        lacks = " and ".join(side for side in ("begin", "end") if getattr(tokenizer, side) is None)
        raise SettingError(
            f"special_tokens=true: the tokenizer has no token for the {lacks} of a text, such as [CLS] and [SEP]. Take "
            "special_tokens=false, another tokenizer, or one that is fitted on this text (tokenizer=wordpiece)."
        )
    return SpecialTokens(tokenizer.begin, tokenizer.end)


def spec_special_tokens(spec: TextSpec) -> SpecialTokens | None:
    """Return the special tokens around the texts of a spec, if there are any."""
    return SpecialTokens(spec.begin, spec.end) if spec.begin is not None and spec.end is not None else None


def require_special_tokens(tokenizer: Tokenizer, length: int) -> SpecialTokens:
    """Return the special tokens for texts of at most `length` tokens. Raises SettingError if nothing fits, as
    `frame_for`.
    """
    if length < LEAST_FRAMED:
        raise SettingError(f"length={length} leaves nothing within the frame of a text: give at least {LEAST_FRAMED}.")
    return special_tokens_for(tokenizer)


def spec_for(tokenizer: Tokenizer, settings: DataSettings, length: int, target: Simple | Tags) -> TextSpec:
    """Return the spec of texts of at most `length` tokens, with special tokens if configured; `longest` is not yet set.

    Raises as `framed`.
    """
    frame = require_special_tokens(tokenizer, length) if settings.special_tokens else ()
    return TextSpec(full_vocab_size(tokenizer, bool(settings.special_tokens)), 1, target, *frame)


def mask_for(tokenizer: Tokenizer) -> int:
    """Return the mask token. Raises SettingError if the tokenizer has none."""
    if tokenizer.kind != PRETRAINED:
        return len(tokenizer) + 2
    if tokenizer.mask is None:
        raise SettingError(
            "The tokenizer has no token that hides others, such as [MASK], and masked-language modelling needs one. "
            "Take another tokenizer, or one that is fitted on this text (tokenizer=wordpiece)."
        )
    return tokenizer.mask


def full_vocab_size(tokenizer: Tokenizer, with_frame: bool) -> int:
    """Return the number of ids, including special tokens and the mask if the texts have these."""
    return len(tokenizer) + (3 if with_frame and tokenizer.kind != PRETRAINED else 0)


def placeholder_id(tokenizer: Tokenizer) -> int:
    """Return the token for a text without tokens: unknown, or else end or padding."""
    return next((i for i in (tokenizer.unknown, tokenizer.end, tokenizer.padding) if i is not None), 0)


def padding_id(tokenizer: Tokenizer) -> int:
    """Return the id of padding in batches."""
    return tokenizer.padding or 0


def special_ids(tokenizer: Tokenizer) -> set[int]:
    """Return the ids of special tokens, without those beyond the vocabulary."""
    own = {tokenizer.padding, tokenizer.unknown, tokenizer.begin, tokenizer.end, tokenizer.mask}
    return {i for i in own if i is not None} | set(getattr(tokenizer, "special", ()))


def tokenizer_note(tokenizer: Tokenizer, given: bool) -> str:
    """Return a sentence on how text is tokenized."""
    if tokenizer.kind == IDS:
        padded = "; zeros at the ends are padding" if tokenizer.padding == 0 else ""
        return f"Token ids are learned from as they are given: {len(tokenizer):,} are told apart, from 0{padded}."
    how = {
        "characters": "characters",
        "words": "words at blanks" if getattr(tokenizer, "blanks", False) else "words and signs",
        "bpe": "subwords by byte-pair encoding",
        "wordpiece": "subwords by WordPiece",
        PRETRAINED: "the subwords of its tokenizer",
    }[tokenizer.kind]
    cased = ", in lower case" if tokenizer.lower else ""
    count = len(tokenizer) - len({i for i in (tokenizer.padding, tokenizer.unknown) if i is not None})
    told = "as the tokenizer has them that was given" if given else "as the training split has them"
    return f"Text is cut into {how}{cased}: {count:,} are told apart, {told}."


def special_tokens_note(tokenizer: Tokenizer, frame: SpecialTokens | None) -> str | None:
    """Return a sentence on the special tokens, if there are any."""
    if frame is None:
        return None
    begin, end = (
        tokenizer.tokens[i] if tokenizer.kind == PRETRAINED else f"a token of its own (id {i:,})" for i in frame
    )
    return f"Each text stands in a frame: {begin} before it, {end} after it; both count in its length."
