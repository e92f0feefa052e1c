"""Export of a run's tokenizer as a tokenizer.json of the `tokenizers` library, for Rust, JavaScript and others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import ModelError
from ..data.text.tokenizers import PAD, UNKNOWN, Characters, LibraryTokenizer, Tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

TEST_TEXTS = ("", "Don't stop, 3.14!", "naïve café — 你好, мир", "  two  spaces\nand a line\t", "x" * 120)


def tokenizer_files(preprocessing: Any, path: Path) -> dict[Path, Tokenizer]:
    """Return the paths of the tokenizers of a run next to its file at `path`: one for texts, two for pairs."""
    ours = {"": getattr(preprocessing, "tokenizer", None)}
    for name, attribute in (("source", "source_tokenizer"), ("target", "target_tokenizer")):
        ours[f".{name}"] = getattr(preprocessing, attribute, None)
    return {path.with_name(f"{path.stem}{end}.tokenizer.json"): one for end, one in ours.items() if one is not None}


def tokenizer_contents(files: Mapping[Path, Tokenizer]) -> dict[Path, str]:
    """Return the content of each file. Raises ModelError if the library would tokenize a text differently."""
    found: dict[Path, str] = {}
    for path, ours in files.items():
        library = to_library_tokenizer(ours)
        for text in TEST_TEXTS:
            if list(library.encode(text, add_special_tokens=False).ids) != ours.encode(text):
                raise ModelError(f"The tokenizers library splits the {ours.kind} of this run differently: {text!r}.")
        found[path] = library.to_str(pretty=False)
    return found


def to_library_tokenizer(ours: Tokenizer) -> Library:
    """Convert the tokenizer to one of the library."""
    if isinstance(ours, LibraryTokenizer):
        return ours._library
    assert isinstance(ours, Characters), "all other tokenizers are of the library"
    from tokenizers import Regex, models, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Library

    ids = {token: i for i, token in enumerate(ours.tokens)}
    special = ours.tokens[UNKNOWN]
    library = Library(models.WordLevel(ids, unk_token=special))
    if ours.lower:
        library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    assert ids[ours.tokens[PAD]] == PAD
    return library
