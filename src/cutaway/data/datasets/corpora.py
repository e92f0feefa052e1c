"""Built-in text corpora: a concatenation of plays by character, Wikipedia and novels by word."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from ...core.config import as_text
from ...core.errors import DataError, SettingError
from ...core.spec import Context, NextToken
from ..dataset_base import DataSet
from ..settings import DataSettings
from ..splits import split_by_position
from ..text.corpus import predicts_masked, read_text, running_dataset
from ..text.corpus_files import TextFile, split_documents, to_documents
from .catalog import NamedSet, Request, remote_files
from .download import Remote
from .published import published_source

TRAINING = 0.9  # training fraction of tiny Shakespeare in published results
LINE_END = "<eos>"
TITLE = re.compile(r"^ = [^=\n].* = $", re.MULTILINE)  # title of an article; sections have two or more signs
ALL_WORDS = 1_000_000  # more than any of these texts contains
BOOKS = {"135.txt": "Les Misérables", "2600.txt": "War and Peace", "2701.txt": "Moby Dick"}
_GITENBERG = "https://raw.githubusercontent.com/GITenberg/"

NAMED: dict[str, NamedSet] = {
    "tinyshakespeare": NamedSet(
        title="Tiny Shakespeare: plays as one text",
        kind="text",
        task="language modelling",
        sizes="1 115 394 characters, 65 different; the first 90 % train, the rest validates",
        licence="public domain; MIT for its compilation",
        citation="A. Karpathy, The unreasonable effectiveness of recurrent neural networks, 2015; W. Shakespeare",
        target="next token",
        folder="tinyshakespeare",
        files=remote_files(
            "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/"
            "data/tinyshakespeare/",
            ("input.txt", 1_115_394, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"),
        ),
    ),
    "wikitext2": NamedSet(
        title="WikiText-2: good articles of Wikipedia, cut into words",
        kind="text",
        task="language modelling",
        sizes="217 646 and 245 569 words for validation and test; train.txt, 2 088 628 words, must be put beside them",
        licence="CC BY-SA 3.0",
        citation="S. Merity et al., Pointer sentinel mixture models, 2016, https://arxiv.org/abs/1609.07843",
        target="next token",
        folder="wikitext2_eval",
        files=remote_files(
            "https://raw.githubusercontent.com/pytorch/examples/77f55b912142e11fcfdf5b530231fb9c52f181e8/"
            "word_language_model/data/wikitext-2/",
            ("valid.txt", 1_121_681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
            ("test.txt", 1_256_449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
        ),
    ),
    "gutenberg": NamedSet(
        title="Three novels: War and Peace, Moby Dick, Les Misérables",
        kind="text",
        task="language modelling",
        sizes="1.3 million words",
        licence="public domain in the USA; the licence of Project Gutenberg stands in each file",
        citation="L. Tolstoy (translated by L. and A. Maude), H. Melville, V. Hugo (translated by I. F. Hapgood); "
        "Project Gutenberg",
        target="next token",
        folder="gutenberg",
        files=(
            Remote(
                "135.txt",
                f"{_GITENBERG}Les-Mis-rables_135/913d26c4e33bc23cc91d79104ad0e939b4cd91ea/135.txt",
                "39051f5b13ce33faa4795e82eec13bcdb5bbb315d02073548b8d29b8c0d9da19",
                3_322_679,
            ),
            Remote(
                "2600.txt",
                f"{_GITENBERG}War-and-Peace_2600/fa22ab90f00f627e83d14acabe32d91602d2365d/2600.txt",
                "31b5d23be25fe9ad27eca1e78f9f449ae2e17adf07ce62238a79425c53a96646",
                3_226_652,
            ),
            Remote(
                "2701.txt",
                f"{_GITENBERG}Moby-Dick--Or-The-Whale_2701/bdf1948e6cd00963730971e5624e764a35f238c3/2701.txt",
                "f17ab08e0ad8c6e43d1e85e3cdae4e1b617ae35069cee7db8dcd457c87b1ec76",
                1_257_304,
            ),
        ),
    ),
}


def open_shakespeare(request: Request) -> DataSet:
    """Load tiny Shakespeare with the split of published results."""
    if _word_vectors(request):
        return _context(request, [read_text(request.place / "input.txt").text], [])
    _reject_fractions(request, ("val", "test"))
    read = read_text(request.place / "input.txt")
    whole = read.text
    cut = int(TRAINING * len(whole))
    note = (
        "The first 90 % of the text train and the last 10 % validate, as where losses are published; no split is kept "
        "for a test, and the score of record is the one on validation."
    )
    splits = {"train": whole[:cut], "val": whole[cut:]}
    if not request.settings.documents:
        return _dataset(request, splits, ["input.txt"], [note, *read.notes], tokenizer="characters")
    speeches, what = to_documents({split: [TextFile("", text)] for split, text in splits.items()})
    return _dataset(request, speeches, ["input.txt"], [note, what, *read.notes], tokenizer="characters")


def open_wikitext2(request: Request) -> DataSet:
    """Load WikiText-2. Without train.txt its validation split is used for training."""
    place, settings = request.place, request.settings
    whole = (place / "train.txt").is_file()
    files = [*(["train.txt"] if whole else []), "valid.txt", "test.txt"]
    texts = {file: read_text(place / file).text for file in files}
    if whole:
        _reject_fractions(request, ("val", "test"))
        notes: list[str] = []
        given = {"train": texts["train.txt"], "val": texts["valid.txt"], "test": texts["test.txt"]}
        splits = given
    else:
        _reject_fractions(request, ("test",))
        given = {"train": texts["valid.txt"], "test": texts["test.txt"]}
        splits, notes = (given, []) if settings.documents else split_by_position(given, settings, whole_words=True)
        notes.insert(
            0,
            "This is the small part of WikiText-2: train.txt is not there, so valid.txt trains, a tenth of the text "
            f"that it should be. Scores do not compare with published ones. Put train.txt into {place} to have it all.",
        )
    if settings.tokenizer in ("auto", "words") and settings.vocab_size == DataSettings().vocab_size:
        settings = dataclasses.replace(settings, vocab_size=ALL_WORDS)  # rare words are <unk> already
    if _word_vectors(request):
        return _context(request, given, notes[:1], files)  # this function splits what has no predefined split
    request = dataclasses.replace(request, settings=settings)
    if settings.documents:
        articles, split_notes = split_documents(
            {split: split_articles(text) for split, text in given.items()}, settings
        )
        counts = ", ".join(f"{split} {len(of_split):,}" for split, of_split in articles.items())
        notes += [f"No step reaches from one document into another; each article is one ({counts}).", *split_notes]
        return _dataset(request, articles, files, notes, tokenizer="words", blanks=True, line_end=LINE_END)
    return _dataset(request, splits, files, notes, tokenizer="words", blanks=True, line_end=LINE_END)


def open_gutenberg(request: Request) -> DataSet:
    """Load three books without the Project Gutenberg header and footer, each split by position."""
    texts: dict[str, str] = {}
    notes: list[str] = []
    for file in request.named.needed:
        read = read_text(request.place / file)
        texts[file] = extract_book(read.text, request.place / file)
        notes += read.notes
    notes.append(
        "What stands before the line *** START OF THIS PROJECT GUTENBERG EBOOK and after *** END OF THIS PROJECT "
        "GUTENBERG EBOOK is cut off each book."
    )
    if _word_vectors(request):
        return _context(request, list(texts.values()), notes)
    books: dict[str, list[TextFile]] = {}
    for file, text in texts.items():
        of_book, _ = split_by_position({"train": text}, request.settings, whole_words=True)
        for split, piece in of_book.items():
            books.setdefault(split, []).append(TextFile(BOOKS[file], piece))
    splits: Mapping[str, str | Sequence[TextFile]] = books
    if request.settings.documents:
        notes.append("No step reaches from one book into another.")
    else:
        splits = {split: "".join(read.text for read in of_split) for split, of_split in books.items()}
    if len(splits) > 1:
        notes.append(
            f"Each of {', '.join(BOOKS.values())} is split by position: its beginning trains, its end is for "
            f"{' and '.join(split for split in splits if split != 'train')}."
        )
    return _dataset(request, splits, list(request.named.needed), notes, tokenizer="words")


def split_articles(text: str) -> list[TextFile]:
    """Split WikiText into articles. Each starts with a title line such as = Valkyria Chronicles III =.

    Text before the first title is an article too.
    """
    places = [found.start() for found in TITLE.finditer(text)]
    cuts = [0, *(place for place in places if place), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(cuts)]
    return [TextFile(" ".join(piece.split("\n", 2)[0].strip(" =").split()), piece) for piece in pieces if piece.strip()]


def extract_book(text: str, file: Path) -> str:
    """Return the text between the start and end markers of Project Gutenberg. Raises DataError without them."""
    lines = r"^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG.*$", r"^\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG.*$"
    start, end = (re.search(line, text, re.MULTILINE) for line in lines)
    if start is None or end is None or end.start() < start.end():
        raise DataError(
            f"{file} has not the lines *** START OF … and *** END OF … between which Project Gutenberg puts a book.",
            fix="Take it from its source again.",
        )
    return text[start.end() : end.start()].strip("\n") + "\n"


def _dataset(
    request: Request,
    splits: Mapping[str, str | Sequence[TextFile]],
    files: list[str],
    notes: list[str],
    *,
    tokenizer: str,
    blanks: bool = False,
    line_end: str = "",
) -> DataSet:
    if predicts_masked(request.targets) and not blanks:
        tokenizer = "wordpiece"  # the default for raw text
    return running_dataset(
        splits,
        published_source(request, notes, files),
        request.settings,
        tokenizer=tokenizer,
        blanks=blanks,
        line_end=line_end,
        targets=request.targets,
    )


def _word_vectors(request: Request) -> bool:
    """Return whether the model learns only word vectors from running text."""
    return Context in request.targets and NextToken not in request.targets


def _context(
    request: Request, texts: Mapping[str, str] | Sequence[str], notes: list[str], files: Sequence[str] = ()
) -> DataSet:
    """Build the data set for word vectors from the text of each split, or from texts to split."""
    from ..text.word2vec_dataset import context_dataset

    return context_dataset(texts, published_source(request, notes, files), request.settings)


def _reject_fractions(request: Request, fixed: tuple[str, ...]) -> None:
    """Raise SettingError for the fraction of a predefined split."""
    usual = DataSettings()
    for key in fixed:
        value = getattr(request.settings, key)
        if value != getattr(usual, key):
            raise SettingError(
                f"{key}={as_text(value)} would cut another split, and {request.name} has its own: leave it out."
            )


OPENERS: dict[str, Callable[[Request], DataSet]] = {
    "tinyshakespeare": open_shakespeare,
    "wikitext2": open_wikitext2,
    "gutenberg": open_gutenberg,
}
