"""Word vectors of the three novels, beside gensim's of the same words: rank correlations with WordSim-353."""

from __future__ import annotations

import os
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from benchmarks.words import WORKERS, books, gensims, ours, sentences

from cutaway.checkpoints.word_vectors import Vectors
from cutaway.core.errors import FileError
from cutaway.tasks.word_vectors import word_similarity

from .intervals import student


def train(recipe: dict[str, Any]) -> dict[str, Any]:
    """Ours and gensim's for each seed, as a row of results: means, and Student's interval of the mean of ours."""
    pairs = Path(os.environ.get("CUTAWAY_DATA", "")) / "word_vectors" / "wordsim353.tsv"
    if not pairs.is_file():
        raise FileError("wordsim353.tsv is not in word_vectors/ of the folder that CUTAWAY_DATA names.")
    torch.set_num_threads(WORKERS)
    name, epochs, data = recipe["model"], recipe["epochs"], books()
    paragraphs, tokens = sentences(data), data.preprocessing.tokenizer.tokens  # type: ignore[attr-defined]
    first, second, seconds, known, parameters = [], [], 0.0, 0, 0
    for seed in recipe["seeds"]:
        trainer = ours(name, data, epochs, seed)
        began = time.perf_counter()
        trainer.fit()
        seconds += time.perf_counter() - began
        similarity = word_similarity(Vectors.of(trainer.model.embedding, tokens), pairs)  # type: ignore[arg-type]
        first.append(similarity.spearman.value)
        known = similarity.covered
        parameters = sum(p.numel() for p in trainer.model.parameters())
        model, learn = gensims(name, paragraphs, epochs, seed)
        learn()
        theirs = Vectors(model.wv.index_to_key, model.wv.vectors)
        second.append(word_similarity(theirs, pairs).spearman.value)
    return {
        "command": f"python -m recipes {name}-gutenberg",
        **student(first),
        "runs": len(first),
        "count": known,
        "split": "known pairs of 353",
        "beside": [["gensim", statistics.mean(second)]],
        "parameters": parameters,
        "seconds": seconds,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{WORKERS} threads, cpu, PyTorch {torch.__version__}",
    }
