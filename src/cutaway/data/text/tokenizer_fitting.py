"""Which tokenizer a data set has, and the frame that its texts stand in.

Of the kinds that are fitted here, with V ids, the frame begins with id V, ends with V + 1, and V + 2 hides a token;
others have such tokens of their own. A framed text and masked text have V + 3 ids whatever is learned of them, so that
a model which was trained on the one fits the other.
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
from .token_ids import IDS, fit_ids
from .tokenizer_files import open_tokenizer
from .tokenizers import KINDS, PRETRAINED, Tokenizer, train_tokenizer

AUTO = "auto"
OF_ITS_OWN = ("vocab_size", "min_count", "lower")  # settings of a tokenizer that is yet to be fitted
LEAST_FRAMED = 3  # tokens: the frame and one within


class Frame(NamedTuple):
    """The tokens that stand around a text."""

    begin: int
    end: int


def given_tokenizer(settings: DataSettings) -> Tokenizer | None:
    """The tokenizer whose path the settings name; None where they name a kind, to be fitted.

    Raises SettingError where it is neither, or where settings say how a tokenizer is to be fitted; FileError.
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
    """The tokenizer that the settings ask for, fitted on `texts` unless they name one that is fitted already; and
    whether that is so. `usual` is the kind for auto, or says that texts are ids already; `blanks` cuts at blanks, where
    it is words.

    Raises as `given_tokenizer` and `train_tokenizer`.
    """
    if usual == IDS:
        return fit_ids(settings, texts), False
    given = given_tokenizer(settings)
    if given is not None:
        return given, True
    kind = usual if settings.tokenizer == AUTO else settings.tokenizer
    lower, blanks = bool(settings.lower), blanks and kind == "words"
    return train_tokenizer(kind, texts, settings.vocab_size, settings.min_count, lower, blanks=blanks), False


def frame_for(tokenizer: Tokenizer) -> Frame:
    """The tokens that texts of this tokenizer are framed by. Raises SettingError where it has none of its own."""
    if tokenizer.kind != PRETRAINED:
        return Frame(len(tokenizer), len(tokenizer) + 1)
    if tokenizer.begin is None or tokenizer.end is None:
        lacks = " and ".join(side for side in ("begin", "end") if getattr(tokenizer, side) is None)
        raise SettingError(
            f"special_tokens=true: the tokenizer has no token for the {lacks} of a text, such as [CLS] and [SEP]. Take "
            "special_tokens=false, another tokenizer, or one that is fitted on this text (tokenizer=wordpiece)."
        )
    return Frame(tokenizer.begin, tokenizer.end)


def frame_of(spec: TextSpec) -> Frame | None:
    """The frame that the texts of a spec stand in, if they do."""
    return Frame(spec.begin, spec.end) if spec.begin is not None and spec.end is not None else None


def framed(tokenizer: Tokenizer, length: int) -> Frame:
    """The frame of texts of at most `length` tokens. Raises SettingError where nothing fits into it, as `frame_for`."""
    if length < LEAST_FRAMED:
        raise SettingError(f"length={length} leaves nothing within the frame of a text: give at least {LEAST_FRAMED}.")
    return frame_for(tokenizer)


def spec_for(tokenizer: Tokenizer, settings: DataSettings, length: int, target: Simple | Tags) -> TextSpec:
    """The spec of texts of at most `length` tokens, in a frame where that is asked for; their longest is not measured
    yet. Raises as `framed`."""
    frame = framed(tokenizer, length) if settings.special_tokens else ()
    return TextSpec(vocabulary_of(tokenizer, bool(settings.special_tokens)), 1, target, *frame)


def mask_for(tokenizer: Tokenizer) -> int:
    """The token that hides others. Raises SettingError where the tokenizer has none of its own."""
    if tokenizer.kind != PRETRAINED:
        return len(tokenizer) + 2
    if tokenizer.mask is None:
        raise SettingError(
            "The tokenizer has no token that hides others, such as [MASK], and masked-language modelling needs one. "
            "Take another tokenizer, or one that is fitted on this text (tokenizer=wordpiece)."
        )
    return tokenizer.mask


def vocabulary_of(tokenizer: Tokenizer, with_frame: bool) -> int:
    """How many ids there are: with those of the frame and of the mask, where texts have these."""
    return len(tokenizer) + (3 if with_frame and tokenizer.kind != PRETRAINED else 0)


def stand_in(tokenizer: Tokenizer) -> int:
    """The token of a text that has none: the unknown one, or the nearest that there is."""
    return next((i for i in (tokenizer.unknown, tokenizer.end, tokenizer.padding) if i is not None), 0)


def padding_of(tokenizer: Tokenizer) -> int:
    """What stands where a batch has no token."""
    return tokenizer.padding or 0


def special_of(tokenizer: Tokenizer) -> set[int]:
    """The ids that are no text, those of the frame left out where they lie beyond the vocabulary."""
    own = {tokenizer.padding, tokenizer.unknown, tokenizer.begin, tokenizer.end, tokenizer.mask}
    return {i for i in own if i is not None} | set(getattr(tokenizer, "special", ()))


def tokenizer_note(tokenizer: Tokenizer, given: bool) -> str:
    """How text becomes tokens, in a sentence."""
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


def frame_note(tokenizer: Tokenizer, frame: Frame | None) -> str | None:
    """A sentence on the frame, where there is one."""
    if frame is None:
        return None
    begin, end = (
        tokenizer.tokens[i] if tokenizer.kind == PRETRAINED else f"a token of its own (id {i:,})" for i in frame
    )
    return f"Each text stands in a frame: {begin} before it, {end} after it; both count in its length."
