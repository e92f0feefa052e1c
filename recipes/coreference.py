"""The attention of "it" to the two nouns that it could refer to, head by head, in real BERT weights.

Each pair of sentences differs in the last words alone, and so does the noun that "it" refers to. A head that resolves
"it" prefers the first noun in the first sentence and the second noun in the second one. A head with a fixed preference,
such as the nearer noun, is right in one of the two; one whose preference changes the wrong way is wrong in both. Two
measures: the attention weight α from "it" to a noun, and the norm of what the head adds from there, ‖α W_O v‖ (G.
Kobayashi et al., Attention is not only a weight, 2020, <https://arxiv.org/abs/2004.10102>).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cutaway.checkpoints.huggingface.folders import read_folder
from cutaway.data.text.tokenizer_files import open_tokenizer
from cutaway.nn.attention import AttentionRecord, MultiHeadAttention, recording

from . import minilm, spring

PRONOUN = "it"


class Pair(NamedTuple):
    """A sentence with two endings: with the first, "it" is the first noun, with the second, the second noun."""

    start: str
    nouns: tuple[str, str]
    ends: tuple[str, str]


PAIRS = (
    Pair("the animal did not cross the street because it was", ("animal", "street"), ("tired", "too wide")),
    Pair("the trophy did not fit in the suitcase because it was", ("trophy", "suitcase"), ("too big", "too small")),
    Pair("the ball broke the table because it was made of", ("ball", "table"), ("steel", "glass")),
    Pair("the dog did not eat the meat because it was", ("dog", "meat"), ("full", "rotten")),
    Pair("the truck passed the bus because it was", ("truck", "bus"), ("fast", "slow")),
    Pair("the car did not enter the garage because it was", ("car", "garage"), ("too wide", "too narrow")),
    Pair("the bird did not leave the cage because it was", ("bird", "cage"), ("asleep", "locked")),
    Pair("the horse did not drink the water because it was", ("horse", "water"), ("sick", "dirty")),
)
MEASURES = ("weight", "norm")


def preferences() -> dict[str, Tensor]:
    """Return for each measure the preference of every head for the first noun, (pairs, 2 endings, layers, heads).

    The preference is the measure at the first noun minus that at the second.
    """
    folder = minilm.folder()
    tokenizer, loaded = open_tokenizer(folder), read_folder(folder)
    rows: dict[str, list[Tensor]] = {name: [] for name in MEASURES}
    for pair in PAIRS:
        for end in pair.ends:
            words, found = attention_from(loaded.model, tokenizer, f"{pair.start} {end}", PRONOUN)
            first, second = (words.index(noun) for noun in pair.nouns)
            for name in MEASURES:
                rows[name].append(found[name][..., first] - found[name][..., second])
    return {name: torch.stack(found).unflatten(0, (len(PAIRS), 2)) for name, found in rows.items()}


@torch.no_grad()
def attention_from(model: nn.Module, tokenizer: Any, sentence: str, query: str) -> tuple[list[str], dict[str, Tensor]]:
    """Return the tokens of a sentence, and both measures of the attention from a word to each, (layers, heads, T)."""
    ids = [tokenizer.begin, *tokenizer.encode(sentence), tokenizer.end]
    at = ids.index(tokenizer.encode(query)[0])
    inputs: dict[str, Tensor] = {}
    attentions = {name: m for name, m in model.named_modules() if isinstance(m, MultiHeadAttention)}
    hooks = [
        module.register_forward_pre_hook(lambda _, given, name=name: inputs.update({name: given[0]}))
        for name, module in attentions.items()
    ]
    try:
        with recording(model) as seen:
            model(torch.tensor([ids]))
    finally:
        for hook in hooks:
            hook.remove()
    weights, norms = [], []
    for name, (record,) in seen.items():
        assert isinstance(record, AttentionRecord)
        weights.append(record.weights[0, :, at])  # (heads, T)
        norms.append(weights[-1] * value_norms(attentions[name], inputs[name]))
    return [tokenizer.tokens[i] for i in ids], {"weight": torch.stack(weights), "norm": torch.stack(norms)}


def value_norms(attention: MultiHeadAttention, x: Tensor) -> Tensor:
    """Return ‖W_O v‖ of each head for each token of x (1, T, dim), (heads, T)."""
    v = attention.project_qkv(x, None, None, None)[2][0]  # (heads, T, d_v)
    out = attention.out.weight.unflatten(1, (len(v), -1))  # (dim, heads, d_v)
    return torch.einsum("dhv,htv->htd", out, v).norm(dim=2)


def from_spring() -> tuple[list[str], dict[str, Tensor]]:
    """Return the words that "spring" attends to where it is water, without itself, and both measures of each.

    The measures are (layers, heads, words).
    """
    folder = minilm.folder()
    sentence = spring.SENTENCES["water"]
    words, found = attention_from(read_folder(folder).model, open_tokenizer(folder), sentence, spring.WORD)
    kept = [i for i in range(1, len(words) - 1) if words[i] != spring.WORD]
    return [words[i] for i in kept], {name: values[..., kept] for name, values in found.items()}


def counts(preference: Tensor) -> dict[str, Tensor]:
    """Count for each head the pairs in which it is right in both sentences, in neither, and in one, (layers, heads).

    Args:
        preference: For the first noun, shape (pairs, 2, layers, heads).

    Returns:
        The counts by name: both, neither, one.
    """
    right = torch.stack([preference[:, 0] > 0, preference[:, 1] < 0])  # (2, pairs, layers, heads)
    both, neither = right.all(0).sum(0), (~right).all(0).sum(0)
    return {"both": both, "neither": neither, "one": len(preference) - both - neither}
