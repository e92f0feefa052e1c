"""One word in three sentences: how far its vectors move apart, layer by layer, in real BERT weights."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.checkpoints.huggingface.folders import read_folder
from cutaway.data.text.tokenizer_files import open_tokenizer

from . import minilm

WORD = "spring"
SENTENCES = {
    "water": "we drank cold clear water from the spring at the foot of the mountain",
    "metal": "the clock stopped because its steel spring had lost its tension",
    "season": "in spring the days grow longer and the cherry trees begin to blossom",
}


def distances() -> dict[tuple[str, str], list[float]]:
    """1 − cosine between the word's vectors in each pair of sentences: after the embedding, then after each layer."""
    folder = minilm.folder()
    tokenizer, loaded = open_tokenizer(folder), read_folder(folder)
    vectors = {sense: layers(loaded.model, tokenizer, sentence) for sense, sentence in SENTENCES.items()}
    return {
        (a, b): [1 - F.cosine_similarity(x, y, dim=0).item() for x, y in zip(vectors[a], vectors[b])]
        for a, b in combinations(SENTENCES, 2)
    }


@torch.no_grad()
def layers(model: nn.Module, tokenizer: Any, sentence: str) -> list[Tensor]:
    """The word's vector as it enters the first block, and as it leaves each, (dim,)."""
    ids = [tokenizer.begin, *tokenizer.encode(sentence), tokenizer.end]
    place = ids.index(tokenizer.encode(WORD)[0])
    blocks = model.get_submodule("blocks")
    found: list[Tensor] = []
    assert isinstance(blocks, nn.ModuleList)
    hooks = [blocks[0].register_forward_pre_hook(lambda block, given: found.append(given[0][0, place]))]
    hooks += [block.register_forward_hook(lambda block, given, gave: found.append(gave[0, place])) for block in blocks]
    try:
        model(torch.tensor([ids]))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def train(recipe: dict[str, Any]) -> dict[str, Any]:
    """The distance of water and season after the last layer, as a row of results; nothing is trained."""
    began = time.perf_counter()
    found = distances()
    last = {f"{a} and {b}": values[-1] for (a, b), values in found.items()}
    value = last.pop("water and season")
    return {
        "command": f"python -m recipes {recipe['name']}",
        "value": value,
        "low": value,
        "high": value,
        "count": len(SENTENCES),
        "split": "sentences",
        "beside": [
            *([f"{pair} after the last layer", distance] for pair, distance in last.items()),
            ["water and season before the first", found["water", "season"][0]],
        ],
        "seconds": time.perf_counter() - began,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{torch.get_num_threads()} threads, cpu, PyTorch {torch.__version__}",
    }
