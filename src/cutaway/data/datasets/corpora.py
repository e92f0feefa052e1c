"""Built-in texts.

Corpora for language modelling: a concatenation of plays by character, Wikipedia and novels by word.

Texts with targets: sentiment, spam, names by language, and truecasing.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from ...core.config import as_text
from ...core.errors import DataError, IncompatibleSettingError, Problem
from ...core.spec import Context, NextToken
from ..dataset_base import DataSet
from ..settings import DataSettings
from ..splits import SPLITS, Rows, split_by_position
from ..text.corpus import predicts_masked, read_text, running_dataset
from ..text.text_files import TextFile, split_documents, to_documents
from .catalog import NamedSet, Remote, Request, remote_files
from .published import published_source

TRAINING = 0.9  # training fraction of tiny Shakespeare in published results
LINE_END = "<eos>"
TITLE = re.compile(r"^ = [^=\n].* = $", re.MULTILINE)  # title of an article; sections have two or more signs
ALL_WORDS = 1_000_000  # more than any of these texts contains
BOOKS = {"135.txt": "Les Misérables", "2600.txt": "War and Peace", "2701.txt": "Moby Dick"}
_GITENBERG = "https://raw.githubusercontent.com/GITenberg/"

CORPORA: dict[str, NamedSet] = {
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
        sizes="217 646 and 245 569 words for validation and test; train.txt, 2 088 628 words, must be added to "
        "the same folder",
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
        licence="public domain in the USA; each file contains the licence of Project Gutenberg",
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
        "The text before the line *** START OF THIS PROJECT GUTENBERG EBOOK and after *** END OF THIS PROJECT "
        "GUTENBERG EBOOK is removed from each book."
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
            fix="Copy or download it again.",
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
            raise IncompatibleSettingError(
                f"{key}={as_text(value)} would cut another split, and {request.name} has its own: leave it out."
            )


CORPUS_OPENERS: dict[str, Callable[[Request], DataSet]] = {
    "tinyshakespeare": open_shakespeare,
    "wikitext2": open_wikitext2,
    "gutenberg": open_gutenberg,
}


TEXTS: dict[str, NamedSet] = {
    "sst2": NamedSet(
        title="SST-2: sentences of film reviews, for or against",
        kind="text",
        task="classification",
        sizes="6 920 training, 872 validation and 1 821 test sentences, 2 classes",
        licence="none stated where it is fetched from; the Stanford Sentiment Treebank, published for research",
        citation="R. Socher et al., Recursive deep models for semantic compositionality over a sentiment treebank, "
        "EMNLP 2013",
        target="sentiment",
        folder="sst2",
        files=remote_files(
            "https://raw.githubusercontent.com/clairett/pytorch-sentiment-classification/457ffd83de90a9d6d472d8ffc31bbffe40a8b236/data/SST2/",
            ("train.tsv", 720_259, "ec192f833a64da08f475488a77b0d0b47db47acd0f458bd18433fc793b569920"),
            ("dev.tsv", 92_057, "eddea6b39e601dd4e7a672b53cc40fdf6019fa80522f351206c24340ca5d9359"),
            ("test.tsv", 188_749, "831169c7e2e429d6026e1bdbb542f33b636e3e596caad9602ebc953c205928b7"),
        ),
    ),
    "sms_spam": NamedSet(
        title="SMS spam: text messages, wanted or not",
        kind="text",
        task="classification",
        sizes="5 574 messages, 2 classes",
        licence="CC BY 4.0 at the UCI repository; none stated where it is fetched from",
        citation="T. A. Almeida, J. M. Gómez Hidalgo, A. Yamakami, Contributions to the study of SMS spam filtering, "
        "DocEng 2011",
        folder="sms_spam",
        files=remote_files(
            "https://raw.githubusercontent.com/justmarkham/pycon-2016-tutorial/5339710562cc46c4a32a369d63f1e8751a18a54e/data/",
            ("sms.tsv", 477_907, "7d039a24a6083ed9ef0f806ebad56bbb976e3aeb8de05669173bfdc4996c239d"),
        ),
    ),
    "names": NamedSet(
        title="Family names by their language",
        kind="text",
        task="classification",
        sizes="20 050 names in 18 languages",
        licence="MIT where it is fetched from",
        citation="S. Robertson, Practical PyTorch: classifying names with a character-level RNN, 2017",
        target="language",
        folder="names_by_language",
        files=remote_files(
            "https://raw.githubusercontent.com/spro/practical-pytorch/c520c52e68e945d88fff563dba1c028b6ec0197b/data/names/",
            ("Arabic.txt", 13_190, "6f424a8dbe51cbbbabab7a57d38b617210125e4e3991f3c657cb79b8f104bafc"),
            ("Chinese.txt", 1_246, "09ba8f1f7e38dbc99372d461b26ad4433b811fc6bfa6a3ecca6fe11a9a777465"),
            ("Czech.txt", 3_916, "e17ab0ec47616a72c39cb85c783f70c3663ab64488721e5d8378f146d2226be7"),
            ("Dutch.txt", 2_351, "924f32b635170eae561f84538632138fc07d4c8bbd70ba3fb980de1ecc4d2af3"),
            ("English.txt", 27_125, "9cca037066d3d5989e24bc01801416162de506b5e28e15b7c092a47905d29bf2"),
            ("French.txt", 2_178, "81e65b36c60ed5b89a17422f6edcadbb89546f38ad69e960e64e7ba682012a95"),
            ("German.txt", 5_610, "7449cd590b97a733e18d613a4155decd77ec35dc5f8aadd7a82204dce4f051db"),
            ("Greek.txt", 1_981, "3555b5186de7f401e6d991b088e9e644ca3099116477818c25ab5793801389e6"),
            ("Irish.txt", 1_858, "cf8c7013256252a88d2503127b87282a11f21b2ff6db1bded68834c19a1ec058"),
            ("Italian.txt", 5_657, "f88414c27d0606a11a678b4859277828c2565d6cc4d9ee932deef6e94f3b35e4"),
            ("Japanese.txt", 7_622, "e0e717e114fec3e7eade4d9dabe0067c475f43147e36a22b47902ee76ad9e67f"),
            ("Korean.txt", 423, "cd54221ccb362a6cba4c78828838cf3268a0e59744767a37cf6ec4b74036b136"),
            ("Polish.txt", 1_165, "45bab898af2f60ed3a728bbf6980e28821011a7caa53227553b5785903a40826"),
            ("Portuguese.txt", 554, "50a8735f41f4f73757c8ce5b16cb0275cd86b2b214bcbc8c9805f508cb131c53"),
            ("Russian.txt", 85_168, "0cfe53ac18041e8f63666aa77313e0a3ff378facb132abee052d8ebdc8c3d62c"),
            ("Scottish.txt", 752, "78d0252711d87d948ea86fe34826c51d2d794a8e52d15b5d6f7b6244d45d62dd"),
            ("Spanish.txt", 2_284, "1bcb462ed3316756a85781d68232bddae04498fdddd5d9219c53fd1fbdeba7a7"),
            ("Vietnamese.txt", 339, "f3f9e4164ab47601178a6e45b216464a64122f49d05541f24bf18a757253281d"),
        ),
    ),
    "truecase": NamedSet(
        title="Casing to be restored, made from WikiText-2: each word in lower case, tagged with how it was written",
        kind="text",
        task="tagging",
        sizes="the lines of the small part of WikiText-2: its validation split to learn from, its test split to test",
        licence="CC BY-SA 3.0 (Wikipedia)",
        citation="S. Merity et al., Pointer sentinel mixture models, 2016, https://arxiv.org/abs/1609.07843",
        target="casing",
        folder="wikitext2_eval",
        files=remote_files(
            "https://raw.githubusercontent.com/pytorch/examples/77f55b912142e11fcfdf5b530231fb9c52f181e8/word_language_model/data/wikitext-2/",
            ("valid.txt", 1_121_681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
            ("test.txt", 1_256_449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
        ),
    ),
}
SENTIMENTS = ("negative", "positive")
MESSAGES = ("ham", "spam")


def open_sst2(request: Request) -> DataSet:
    """Load SST-2: tab-separated sentences and 0 or 1, without a header; tokenized and in lower case as published."""
    from ..text.dataset import text_dataset

    texts: list[str] = []
    labels: list[int] = []
    names: list[str] = []
    sizes = []
    for file in ("train.tsv", "dev.tsv", "test.tsv"):
        rows = _rows(request.place / file, ("0", "1"), label=1)
        texts += [text for text, _ in rows]
        labels += [number for _, number in rows]
        names += [f"line {i} of {file}" for i in range(1, len(rows) + 1)]
        sizes.append(len(rows))
    return text_dataset(
        texts,
        np.array(labels),
        SENTIMENTS,
        published_source(request),
        request.settings,
        splits=_consecutive(sizes),
        names=names,
        blanks=True,
        column=request.named.target,
    )


def open_sms_spam(request: Request) -> DataSet:
    """Load SMS spam: ham or spam, a tab, the message. Quotes are ordinary characters."""
    from ..text.dataset import text_dataset

    (file,) = request.named.needed
    rows = _rows(request.place / file, MESSAGES, label=0)
    return text_dataset(
        [text for text, _ in rows],
        np.array([number for _, number in rows]),
        MESSAGES,
        published_source(request),
        request.settings,
        names=[f"line {i} of {file}" for i in range(1, len(rows) + 1)],
        column=request.named.target,
    )


def open_names(request: Request) -> DataSet:
    """Load names by language: a file for each with one name a line, tokenized to characters."""
    from ..text.dataset import text_dataset
    from ..text.text_files import read_lines

    texts: list[str] = []
    labels: list[int] = []
    places: list[str] = []
    languages: defaultdict[str, set[int]] = defaultdict(set)
    for k, file in enumerate(request.named.needed):
        for i, line in enumerate(read_lines(request.place / file)[0], 1):
            if name := line.strip():
                texts.append(name)
                labels.append(k)
                places.append(f"line {i} of {file}")
                languages[name].add(k)
    several = [name for name, of_it in languages.items() if len(of_it) > 1]
    note = (
        f"{len(several):,} of {len(languages):,} different names occur in more than one language, for example "
        f"{', '.join(several[:3])}. They are kept: no model can be right about all of them."
    )
    return text_dataset(
        texts,
        np.array(labels),
        [Path(file).stem for file in request.named.needed],
        published_source(request, [note] if several else []),
        request.settings,
        names=places,
        tokenizer="characters",
        column=request.named.target,
    )


def open_truecase(request: Request) -> DataSet:
    """Load truecasing data: the words of WikiText-2 in lower case, each tagged with its original casing."""
    from ..text.tagging import tagged_dataset
    from ..text.text_files import Tagged, read_lines

    sentences: list[list[str]] = []
    tags: list[list[str]] = []
    names: list[str] = []
    sizes = []
    for file in ("valid.txt", "test.txt"):
        before = len(sentences)
        for i, line in enumerate(read_lines(request.place / file)[0], 1):
            if words := line.split():
                sentences.append([word.lower() for word in words])
                tags.append([casing(word) for word in words])
                names.append(f"line {i} of {file}")
        sizes.append(len(sentences) - before)
    note = (
        "This set is made here, not annotated by people: the words of WikiText-2 are written in lower case, and the "
        "tag of each says how it was written. valid.txt is learned from, test.txt tested on."
    )
    return tagged_dataset(
        Tagged(sentences, tags, names),
        published_source(request, [note]),
        request.settings,
        _consecutive([sizes[0], 0, sizes[1]]),
        request.named.target,
    )


def casing(word: str) -> str:
    """Return the casing of a word: lower (also words without letters), Title, UPPER or other.

    A single capital is Title.
    """
    if word == word.lower():
        return "lower"
    if word[0] != word[0].lower() and word[1:] == word[1:].lower():
        return "Title"
    return "UPPER" if word == word.upper() else "other"


def _rows(path: Path, classes: tuple[str, ...], label: int) -> list[tuple[str, int]]:
    """Read text and class number of each line of two tab-separated cells, of which cell `label` is the class.

    Raises DataError that names each malformed line.
    """
    from ..text.text_files import read_lines

    rows: list[tuple[str, int]] = []
    problems = []
    for i, line in enumerate(read_lines(path)[0], 1):
        cells = line.split("\t")
        if len(cells) != 2:
            problems.append(Problem(f"{path.name}, line {i}", f"{len(cells)} cells, 2 expected"))
        elif cells[label] not in classes:
            problems.append(Problem(f"{path.name}, line {i}", f"{cells[label]!r} is none of {', '.join(classes)}"))
        else:
            rows.append((cells[1 - label], classes.index(cells[label])))
    if problems or not rows:
        raise DataError(
            f"{path} is not the file that was published:" if problems else f"{path} is empty.",
            problems,
            "Delete it to have it fetched again, or download it again.",
        )
    return rows


def _consecutive(sizes: list[int]) -> dict[str, Rows]:
    """Return consecutive splits: train, val, test. Splits without examples are left out."""
    ends = [0, *accumulate(sizes)]
    return {split: np.arange(start, end) for split, (start, end) in zip(SPLITS, pairwise(ends)) if end > start}


TEXT_OPENERS: dict[str, Callable[[Request], DataSet]] = {
    "sst2": open_sst2,
    "sms_spam": open_sms_spam,
    "names": open_names,
    "truecase": open_truecase,
}
NAMED = CORPORA | TEXTS
OPENERS = CORPUS_OPENERS | TEXT_OPENERS
