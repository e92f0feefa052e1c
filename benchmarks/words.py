"""Word vectors beside gensim's: words per second, and what the vectors are worth.

Both learn from the same words of three novels with the same vocabulary, window, noise, subsampling, rate and epochs.
`python -m benchmarks.words` prints the correlations with WordSim-353 of both, for several seeds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from cutaway.checkpoints.word_vectors import Vectors
from cutaway.core.config import build, field_names
from cutaway.core.spec import ANY_SIZE, Context
from cutaway.data.dataset_base import DataSet
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.text.word2vec_dataset import ContextPreprocessing, ContextSplit
from cutaway.models.registry import preset
from cutaway.tasks.task import task_for
from cutaway.tasks.word_vectors import word_similarity
from cutaway.training.callbacks import Progress
from cutaway.training.config import TrainSettings
from cutaway.training.device import select_device
from cutaway.training.trainer import Trainer

from .pairs import Pair, race

CASES = {
    "words: word2vec-skipgram on three novels, an epoch": ("word2vec-skipgram", 1.0),
    "words: word2vec-cbow on three novels, an epoch": ("word2vec-cbow", 1.0),
}
WORKERS = 2  # gensim's, and as many threads of ours


def books() -> DataSet:
    """The three novels, all of them to learn from."""
    settings = DataSettings(min_count=5, lower=True, val=0.0, test=0.0)
    return open_data("gutenberg", settings, ANY_SIZE, (Context,))


def ours(name: str, data: DataSet, epochs: int, seed: int = 0) -> Trainer:
    """Our loop over the books, ready to go, with the settings of the model's card."""
    found = preset(name)
    given = {k: v for k, v in found.card.settings.items() if k in field_names(TrainSettings)}
    settings = build(TrainSettings, {**given, "epochs": epochs, "seed": seed, "save_minutes": 1e9})
    torch.manual_seed(seed)
    model = found.build(found.configure(data.spec))
    place = select_device("cpu", "float32", None, model)
    folder = Path(tempfile.mkdtemp())
    return Trainer(model, data, task_for(data.spec), settings, place, folder, Progress(shown=False))


def sentences(data: DataSet) -> list[list[str]]:
    """The words of each paragraph, as our split has them: without those that are not in the vocabulary."""
    split, preprocessing = data.splits["train"], data.preprocessing
    assert isinstance(split, ContextSplit)
    assert isinstance(preprocessing, ContextPreprocessing)
    words = [preprocessing.tokenizer.tokens[i] for i in split.ids.tolist()]
    lengths = torch.unique_consecutive(split.paragraph, return_counts=True)[1].tolist()
    found, start = [], 0
    for length in lengths:
        found.append(words[start : start + length])
        start += length
    return found


def gensims(name: str, paragraphs: list[list[str]], epochs: int, seed: int = 0):  # type: ignore[no-untyped-def]
    """gensim's model with its vocabulary built, and the call that trains it."""
    from gensim.models import Word2Vec

    skipgram = name == "word2vec-skipgram"
    settings = {"vector_size": 100, "window": 5, "negative": 5, "sample": 1e-3, "min_count": 1}
    model = Word2Vec(**settings, sg=skipgram, alpha=0.025 if skipgram else 0.05, workers=WORKERS, seed=seed + 1)
    model.build_vocab(paragraphs)

    def train() -> None:
        model.train(paragraphs, total_examples=len(paragraphs), epochs=epochs)

    return model, train


def sides(case: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """An epoch of ours and one of gensim's."""
    name, _ = CASES[case]
    data = books()
    torch.set_num_threads(WORKERS)
    trainer = ours(name, data, epochs=1)
    _, theirs = gensims(name, sentences(data), epochs=1)

    def epoch() -> None:
        trainer.state.epoch, trainer.state.update, trainer.state.stopped = 0, 0, ""
        trainer.fit()

    return epoch, theirs


def rows() -> list[tuple[Pair, float]]:
    """Every case with the most that its ratio may be: both have the same words, so their times compare."""
    return [(race(case, *sides(case), runs=5, warm_up=1), limit) for case, (_, limit) in CASES.items()]


def similarity(pairs: Path, seeds: int = 3, epochs: int = 5) -> dict[str, tuple[list[float], list[float]]]:
    """The correlations with WordSim-353 (the file `pairs`) of ours and of gensim's, for each seed."""
    data = books()
    paragraphs, tokens = sentences(data), data.preprocessing.tokenizer.tokens  # type: ignore[attr-defined]
    found: dict[str, tuple[list[float], list[float]]] = {}
    for name, _ in CASES.values():
        first, second = [], []
        for seed in range(seeds):
            trainer = ours(name, data, epochs, seed)
            trainer.fit()
            first.append(word_similarity(Vectors.from_embedding(trainer.model.embedding, tokens), pairs).spearman.value)  # type: ignore[arg-type]
            model, train = gensims(name, paragraphs, epochs, seed)
            train()
            theirs = Vectors(model.wv.index_to_key, model.wv.vectors)
            second.append(word_similarity(theirs, pairs).spearman.value)
        found[name] = first, second
    return found


def main() -> int:
    """Print the correlations: python -m benchmarks.words WORDSIM353.tsv."""
    torch.set_num_threads(WORKERS)
    for name, (first, second) in similarity(Path(sys.argv[1])).items():
        for who, values in (("ours", first), ("gensim", second)):
            print(f"{name} {who}: {' '.join(f'{v:.3f}' for v in values)}, mean {statistics.mean(values):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
