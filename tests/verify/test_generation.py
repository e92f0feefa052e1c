"""What a model writes, held to transformers: beams on the same weights, and how a token is drawn."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.checkpoints.huggingface import families, to_transformers_names
from cutaway.core.spec import Tokens
from cutaway.inference.sampling import probabilities
from cutaway.inference.sequence_decoding import NONE, decode, decode_scored
from cutaway.inference.text import generate
from cutaway.models import bart, gpt2, t5

pytest.importorskip("transformers")

import transformers
from transformers.generation import logits_process as processors

V, LONGEST = 10, 12
# Padding begins T5's answers, and the end begins BART's.
TARGETS = {"t5": Tokens(V, begin=0, end=1, longest=6), "bart": Tokens(V, begin=2, end=2, longest=6, padding=1)}
CONFIGS: dict[str, Any] = {
    "t5": lambda: t5.Model(t5.Config(vocab_size=V, dim=16, layers=2, heads=2, head_dim=8)),
    "bart": lambda: bart.Model(bart.Config(vocab_size=V, context_length=32, dim=16, layers=2, heads=2)),
    "gpt2": lambda: gpt2.Model(gpt2.Config(vocab_size=V, context_length=64, dim=16, layers=2, heads=2)),
}


def both(kind: str, seed: int) -> tuple[nn.Module, Any]:
    """Our network with weights large enough that its answers differ, and transformers' with the same weights."""
    torch.manual_seed(seed)
    ours = CONFIGS[kind]().eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.4)
    family = families()[kind]
    theirs = getattr(transformers, family.architecture(ours.config))
    theirs = theirs(theirs.config_class(**family.settings(ours.config))).eval()
    missing = theirs.load_state_dict(to_transformers_names(family, dict(ours.state_dict())), strict=False).missing_keys
    assert not [key for key in missing if "embed" not in key and "lm_head" not in key and "bias" not in key]
    theirs.tie_weights()
    return ours, theirs


def sources(seed: int, n: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(7) < torch.randint(1, 8, (n, 1), generator=generator)
    return torch.randint(3, V, (n, 7), generator=generator).where(mask, 0), mask


def theirs_of(model: Any, source: Tensor, mask: Tensor, target: Tokens, **more: Any) -> tuple[list[list[int]], Tensor]:
    """Its answers without begin, end and what stands behind, and their scores."""
    found = model.generate(
        source,
        attention_mask=mask.long(),
        max_new_tokens=LONGEST,
        suppress_tokens=sorted({target.padding, target.begin} - {target.end}),
        forced_eos_token_id=None,
        return_dict_in_generate=True,
        output_scores=True,
        do_sample=False,
        early_stopping=False,
        **more,
    )
    answers = [list(itertools.takewhile(lambda i: i != target.end, row[1:])) for row in found.sequences.tolist()]
    return [[i for i in answer if i != target.padding] for answer in answers], getattr(
        found, "sequences_scores", torch.empty(0)
    )


@pytest.mark.parametrize("kind", ["t5", "bart"])
@pytest.mark.parametrize("beams", [2, 3, 5])
@pytest.mark.slow
def test_a_beam_gives_the_answers_and_scores_of_transformers(kind: str, beams: int) -> None:
    target, lengths = TARGETS[kind], set()
    for seed, alpha in itertools.product(range(3), [0.0, 0.6, 1.0, 2.0]):
        ours, theirs = both(kind, seed)
        source, mask = sources(seed)
        ids, scores = decode_scored(ours, source, mask, target, LONGEST, beams, alpha, penalty="length")
        answers = [[i for i in row if i != NONE] for row in ids.tolist()]
        expected, their_scores = theirs_of(theirs, source, mask, target, num_beams=beams, length_penalty=alpha)
        assert answers == expected
        torch.testing.assert_close(scores, their_scores.double(), rtol=1e-5, atol=1e-5)
        if alpha == 0:
            either = decode_scored(ours, source, mask, target, LONGEST, beams, alpha)
            assert torch.equal(either[0], ids)
            assert torch.equal(either[1], scores)
        lengths |= set(map(len, answers))
    assert len(lengths) > 1  # some ended by themselves


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_greedy_gives_the_answers_of_transformers(kind: str) -> None:
    target = TARGETS[kind]
    for seed in range(5):
        ours, theirs = both(kind, seed)
        source, mask = sources(seed)
        answers = [[i for i in row if i != NONE] for row in decode(ours, source, mask, target, LONGEST).tolist()]
        assert answers == theirs_of(theirs, source, mask, target)[0]


# --- text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_text_of_unequal_prompts_is_that_of_transformers(penalty: float) -> None:
    for seed in range(3):
        ours, theirs = both("gpt2", seed)
        prompt, mask = sources(seed)
        found = generate(ours, prompt, 20, mask=mask, temperature=0.0, repetition_penalty=penalty, never=(), ends=(2,))
        for row, real, written in zip(prompt, mask, found.tolist()):
            expected = theirs.generate(
                row[real][None],
                attention_mask=torch.ones(1, int(real.sum()), dtype=torch.long),
                max_new_tokens=20,
                do_sample=False,
                repetition_penalty=penalty,
                eos_token_id=2,
                pad_token_id=2,
            )[0, int(real.sum()) :].tolist()
            assert [i for i in written if i != NONE] == [i for i in expected if i != 2]


def sampled(logits: Tensor, before: Tensor, given_: dict[str, Any]) -> Tensor:
    """The distribution that transformers draws from: its processors in the order in which `generate` applies them."""
    chain: list[Any] = []
    if "repetition_penalty" in given_:
        chain.append(processors.RepetitionPenaltyLogitsProcessor(given_["repetition_penalty"]))
    if "temperature" in given_:
        chain.append(processors.TemperatureLogitsWarper(given_["temperature"]))
    if "top_k" in given_:
        chain.append(processors.TopKLogitsWarper(given_["top_k"]))
    if "top_p" in given_:
        chain.append(processors.TopPLogitsWarper(given_["top_p"]))
    if "min_p" in given_:
        chain.append(processors.MinPLogitsWarper(given_["min_p"]))
    found: Tensor = processors.LogitsProcessorList(chain)(before, logits).softmax(1)
    return found


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "repetition_penalty": st.floats(0.5, 2.0),
        "temperature": st.floats(0.25, 3.0),
        "top_k": st.integers(2, 12),
        "top_p": st.floats(0.05, 0.999),
        "min_p": st.floats(0.0, 1.0),
    },
)


@settings(max_examples=150, deadline=None)
@given(given_=SETTINGS, seed=st.integers(0, 10_000), size=st.sampled_from([2, 11, 700]))
def test_tokens_are_drawn_from_the_distribution_of_transformers(given_: dict[str, Any], seed: int, size: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(3, size, dtype=torch.float64, generator=generator)
    before = torch.randint(0, size, (3, 5), generator=generator)
    written = torch.zeros(3, size, dtype=torch.bool).scatter_(1, before, True)
    found = probabilities(logits, written=written, **given_)
    torch.testing.assert_close(found, sampled(logits, before, given_), rtol=1e-9, atol=1e-12)
