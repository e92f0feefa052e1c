"""Tokenizers of a data set: fitted, or loaded from Cutaway's JSON, a tokenizer.json, a folder, or a run.

Pretrained tokenizers: a tokenizer.json of the `tokenizers` library, with its own ids.

Text is never parsed as a special token: `[MASK]` in a text is a bracket, a word and a bracket.

Selection and fitting of the tokenizer of a data set, and its special tokens.

With V ids, Cutaway's tokenizers use V as the begin token, V + 1 as the end token and V + 2 as the mask token;
pretrained ones have their own. Text with special tokens and masked text both have V + 3 ids, so that a model trained on
one fits the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.errors import FileError, IncompatibleSettingError, SettingError, shorten
from ...core.files import exists, is_path, missing_file_error, read_json
from ...core.schema import Between, Tagged, find_mismatch
from ...core.spec import Simple, Tags, TextSpec, current_kind
from ..modalities import reject_changed
from ..settings import DataSettings
from .tokenizers import (
    IDS,
    KINDS,
    PRETRAINED,
    Characters,
    Ids,
    LibraryTokenizer,
    Subwords,
    Tokenizer,
    Words,
    fit_ids,
    library_from,
    train_tokenizer,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

TOKENIZER, PREPROCESSING = "tokenizer.json", "preprocessing.json"
HELD = (TOKENIZER, PREPROCESSING, f"model/{PREPROCESSING}", f"model/{TOKENIZER}")  # possible locations in a folder
BESIDE = ("special_tokens_map.json", "tokenizer_config.json")  # files that define special tokens
# Classes of transformers that rebuild a part of their tokenizer from tokenizer_config.json: the classes, the part of
# tokenizer.json and its type, and field → its name in that part and its default.
BERTS = ("BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast")
GPTS = tuple(f"{name}Tokenizer{fast}" for name in ("GPT2", "Roberta", "Bart") for fast in ("", "Fast"))
OF_BERT = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
CONFIGURED: tuple[tuple[tuple[str, ...], str, str, Mapping[str, tuple[str, bool | None]]], ...] = (
    (BERTS, "normalizer", "BertNormalizer", OF_BERT),
    (GPTS, "pre_tokenizer", "ByteLevel", {"add_prefix_space": ("add_prefix_space", False)}),
)
CLASS_OF = {"bert": "BertTokenizer", "distilbert": "DistilBertTokenizer", "gpt2": "GPT2Tokenizer"} | {
    "roberta": "RobertaTokenizer", "bart": "BartTokenizer"
}  # fmt: skip
WAYS = (
    "Give a tokenizer.json of the `tokenizers` library, a folder that holds one, or a run of cutaway. Of older files "
    "(vocab.txt, vocab.json and merges.txt, sentencepiece) transformers' `AutoTokenizer.from_pretrained(FOLDER)` makes "
    "one, by its `save_pretrained`."
)


ROLES = {  # role of a token, its keys in those files, and its usual names
    "padding": (("pad_token",), ("[PAD]", "<pad>")),
    "unknown": (("unk_token",), ("[UNK]", "<unk>")),
    "begin": (("cls_token", "bos_token"), ("[CLS]", "<s>", "<|endoftext|>")),
    "end": (("sep_token", "eos_token"), ("[SEP]", "</s>", "<|endoftext|>")),
    "mask": (("mask_token",), ("[MASK]", "<mask>")),
}
MOST_IDS = 10_000_000  # no vocabulary is larger; each id takes a row of the model
GAPS = 100_000  # maximum unused ids: each costs memory, here and in every embedding
AUTO = "auto"
OF_ITS_OWN = ("vocab_size", "min_count", "lower")  # settings that configure the fit of a tokenizer
LEAST_FRAMED = 3  # minimum tokens: the special tokens and one between them
TOKENIZERS = Tagged(
    "kind",
    {
        PRETRAINED: {"library": str, "special": dict.fromkeys(ROLES, int | None)},
        IDS: {"vocab_size": Between(1, MOST_IDS), "padding": int | None},
        "characters": {"lower": bool, "tokens": [str, ...]},
        "words": {"lower": bool, "blanks": bool, "tokens": [str, ...]},
        "bpe": {"lower": bool, "library": str},
        "wordpiece": {"lower": bool, "library": str},
    },
)


def open_tokenizer(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a tokenizer.json or a preprocessing.json, of a folder that holds one of these, or of a run.

    Raises FileError if none exists, or it is invalid.
    """
    path = Path(path).expanduser()
    if not exists(path):
        raise missing_file_error(path, "tokenizer", WAYS)
    file = path
    if path.is_dir():
        held = next((path / name for name in HELD if (path / name).is_file()), None)
        if held is None:
            raise FileError(f"{path} holds no tokenizer: none of {', '.join(HELD)} is there. {WAYS}")
        file = held
    document = _read(file)
    try:
        if "model" in document and "kind" not in document:
            return _load_library(file, document)
        return tokenizer_from_json(_tokenizer_document(file, document))
    except ValueError as error:
        raise FileError(
            f"{file} is not a readable tokenizer: {shorten(error, 200)}. Restore it from a copy."
        ) from error


def tokenizer_from_json(data: Any) -> Tokenizer:
    """Restore the tokenizer that `to_json` wrote. Raises ValueError if the document is invalid."""
    if fault := find_mismatch(data, TOKENIZERS):
        raise ValueError(fault)
    kind, lower = data["kind"], bool(data.get("lower"))
    if kind == PRETRAINED:
        return Pretrained.from_json(data)
    if kind == IDS:
        if data["padding"] not in (None, 0):
            raise ValueError(f"a padding of {data['padding']}, which is 0 where there is one")
        return Ids(data["vocab_size"], data["padding"])
    if kind == "characters":
        return Characters(list(data["tokens"]), lower)
    if kind == "words":
        return Words(list(data["tokens"]), lower, bool(data["blanks"]))
    return Subwords(kind, library_from(data["library"], kind), lower)


def _load_library(file: Path, document: Mapping[str, Any]) -> Pretrained:
    """Load a tokenizer of the `tokenizers` library, with the settings in the files next to it."""
    said: dict[str, Any] = {}
    for name in BESIDE:
        if (beside := file.parent / name).is_file():
            said = {**_read(beside), **said}
    library = library_from(json.dumps(_apply_config(file, document, said)), PRETRAINED)
    return Pretrained(library, special_token_ids(library, said))


def _apply_config(file: Path, document: Mapping[str, Any], said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Apply the settings in tokenizer_config.json that some classes of transformers prefer to those of tokenizer.json.

    Raises FileError for a setting that is not true or false.
    """
    kind = said.get("tokenizer_class") or CLASS_OF.get(_model_type(file.parent / "config.json"), "")
    for classes, part, of, settings in CONFIGURED:
        found = document.get(part)
        if kind not in classes or not isinstance(found, dict) or found.get("type") != of:
            continue
        for field, (own, default) in settings.items():
            value = said.get(field, default)
            if not isinstance(value, bool) and not (value is None and default is None):
                where = file.parent / "tokenizer_config.json"
                raise FileError(f"{where} has {field}={json.dumps(value)}, where true or false belongs.")
            found = {**found, own: value}
        document = {**document, part: found}
    return document


def _model_type(file: Path) -> str:
    """Return the model_type in the config.json next to a tokenizer, or in that of its original weights."""
    try:
        said = _read(file) if file.is_file() else {}
    except FileError:  # reported when the model is opened
        return ""
    origin = said.get("origin")
    if isinstance(origin, dict) and isinstance(origin.get("config"), dict):
        said = origin["config"]
    kind = said.get("model_type")
    return kind if isinstance(kind, str) else ""


def _tokenizer_document(file: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document of the tokenizer in a preprocessing, or the document itself. Raises FileError."""
    if document.get("kind") in (*KINDS, PRETRAINED):
        return document
    if isinstance(found := document.get("tokenizer"), dict):
        return found
    if current_kind(document.get("kind")) == "seq2seq":
        source, target = document.get("source"), document.get("target")
        if isinstance(source, dict) and target in (None, source):
            return source
        raise FileError(
            f"{file} holds two tokenizers, one for each side of its pairs. Give a run whose sides share one "
            "(joint_vocab=true), or one of text."
        )
    raise FileError(f"{file} is about {shorten(document.get('kind', 'no'))} data, and holds no tokenizer. {WAYS}")


def _read(file: Path) -> dict[str, Any]:
    """Read a JSON object. Raises FileError if the file holds anything else."""
    document = read_json(file)
    if not isinstance(document, dict):
        raise FileError(f"{file} is JSON, and no tokenizer: it holds a {type(document).__name__}. {WAYS}")
    return document


class Pretrained(LibraryTokenizer):
    """A tokenizer with its own ids. Texts are encoded without surrounding special tokens."""

    kind = PRETRAINED
    lower = False  # normalization is up to the library

    def __init__(self, library: Library, special: Mapping[str, int | None]) -> None:
        """Initialize with the ids of `padding`, `unknown`, `begin`, `end` and `mask`, None for missing ones."""
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True  # such a token in a text is text
        self._library = library
        ids = library.get_vocab(with_added_tokens=True)
        if len(ids) < 3:
            raise ValueError(f"a tokenizer of {len(ids)} tokens")
        if max(ids.values()) > GAPS + 2 * len(ids):
            raise ValueError(f"a tokenizer of {len(ids):,} tokens with an id of {max(ids.values()):,}")
        if not 0 <= max(ids.values()) < MOST_IDS:
            raise ValueError(f"ids up to {max(ids.values()):,}, for {len(ids):,} tokens")
        self.tokens = [""] * (1 + max(ids.values()))  # an id without a token has an empty one
        for token, i in ids.items():
            self.tokens[i] = token
        self.padding, self.unknown, self.begin, self.end, self.mask = (special[role] for role in ROLES)
        found = library.get_added_tokens_decoder()
        self.special = {i for i, token in found.items() if token.special} | {
            i for i in special.values() if i is not None
        }
        if any(not 0 <= i < len(self.tokens) for i in self.special):
            raise ValueError("a tokenizer whose special tokens have no ids")
        self._hidden = self.special - {self.unknown}
        # Some mark the start of their input, and would mark the start of every piece of a text.
        how = f"{library.normalizer!r} {library.pre_tokenizer!r}"
        self.by_pieces = not any(mark in how for mark in ("Metaspace", "Prepend", "add_prefix_space=True"))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text without special tokens."""
        return self._library.decode([i for i in ids if i not in self._hidden], skip_special_tokens=False)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for `tokenizer_from_json`."""
        special = {role: getattr(self, role) for role in ROLES}
        return {"kind": self.kind, "lower": self.lower, "library": self._library.to_str(), "special": special}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pretrained:
        """Restore the tokenizer that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        return cls(library_from(data["library"], PRETRAINED), {role: data["special"][role] for role in ROLES})


def special_token_ids(library: Library, said: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the ids of special tokens, from the files next to the tokenizer or by their usual names.

    A token that is both unknown and an end, as in GPT-2, is not used as unknown, because nothing is unknown there.
    """
    added = {token.content: i for i, token in library.get_added_tokens_decoder().items()}
    found: dict[str, int | None] = {}
    for role, (keys, names) in ROLES.items():
        told = [library.token_to_id(name) for key in keys if (name := _content(said.get(key)))]
        usual = [added[name] for name in names if name in added]
        found[role] = next((i for i in (*told, *usual) if i is not None), None)
    own = getattr(library.model, "unk_token", None)
    if found["unknown"] is None and own:
        found["unknown"] = library.token_to_id(own)
    if found["unknown"] in (found["begin"], found["end"]):
        found["unknown"] = None
    return found


def _content(token: Any) -> str:
    """Return a token's text from such a file, which stores it as text or in an object."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else ""


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
        ways = (
            f"tokenizer= takes one of {', '.join((AUTO, *KINDS))}, or the path of a tokenizer.json, of a folder with "
            "one, or of a run."
        )
        if is_path(named):
            raise missing_file_error(named, "file or folder", ways)
        raise SettingError(f"Invalid tokenizer={shorten(named)}: {ways}")
    try:
        found = open_tokenizer(named)
    except FileError as error:
        raise FileError(f"Invalid tokenizer={named}. {error}", code=error.code) from error
    reject_changed(settings, OF_ITS_OWN, f"says how a tokenizer is fitted, and that of {named} is fitted already")
    return found


def fit_tokenizer(
    settings: DataSettings, usual: str, texts: Iterable[str], *, blanks: bool = False
) -> tuple[Tokenizer, bool]:
    """Return the tokenizer that the settings select, fitted on `texts` unless it is pretrained, and whether it is.

    `usual` is the kind for auto, or says that texts are token ids; `blanks` splits words at blanks. Raises as
    `load_named_tokenizer` and `train_tokenizer`.
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
        raise IncompatibleSettingError(
            f"special_tokens=true: the tokenizer has no token for the {lacks} of a text, such as [CLS] and [SEP]. Take "
            "special_tokens=false, another tokenizer, or one that is fitted on this text (tokenizer=wordpiece)."
        )
    return SpecialTokens(tokenizer.begin, tokenizer.end)


def spec_special_tokens(spec: TextSpec) -> SpecialTokens | None:
    """Return the special tokens around the texts of a spec, if there are any."""
    return SpecialTokens(spec.begin, spec.end) if spec.begin is not None and spec.end is not None else None


def require_special_tokens(tokenizer: Tokenizer, length: int) -> SpecialTokens:
    """Return the special tokens for texts of at most `length` tokens. Raises SettingError if nothing fits, as
    `special_tokens_for`.
    """
    if length < LEAST_FRAMED:
        raise IncompatibleSettingError(
            f"length={length} leaves nothing within the frame of a text: give at least {LEAST_FRAMED}."
        )
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
        raise IncompatibleSettingError(
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
        return f"Token ids are used unchanged: {len(tokenizer):,} ids, from 0{padded}."
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
    return f"{begin} is added before each text and {end} after it; both count in its length."
