"""What stands in the gaps of a text, as a masked-language model says."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import cutaway
from cutaway.core.errors import DataError
from cutaway.data.text.corpus_transforms import GAP, MaskedPreprocessing
from cutaway.runs.predict import TOP_TOKENS, fill_masks
from cutaway.runs.run import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small BERT that has read two sentences again and again."""
    folder = tmp_path_factory.mktemp("filling")
    sentences = ["the cat sat on the mat .", "a dog lay in a basket ."]
    (folder / "two.txt").write_text("\n".join(sentences[i % 2] for i in range(200)) + "\n")
    size = {f"model.{key}": value for key, value in {"dim": 32, "layers": 1, "heads": 2, "dropout": 0.0}.items()}
    return cutaway.train(
        "bert-base-uncased",
        folder / "two.txt",
        out=folder / "run",
        tokenizer="words",
        length=16,
        epochs=2,
        lr=3e-3,
        tensorboard=False,
        seed=0,
        **size,
    )


@pytest.mark.parametrize("text", [f"the {GAP} sat on the {GAP} .", f"{GAP} dog lay in a {GAP}"])
def test_every_gap_is_filled_with_the_likeliest_tokens(run: Run, text: str) -> None:
    tokenizer, vocab_size = run.preprocessing.tokenizer, len(run.preprocessing.tokenizer)  # type: ignore[attr-defined]
    begin, end, mask = vocab_size, vocab_size + 1, vocab_size + 2
    inside = [mask if word == GAP else tokenizer.encode(word)[0] for word in text.split()]
    ids = torch.tensor([[begin, *inside, end]])
    with torch.no_grad():
        p = run.model(ids).softmax(2)[0]
    (row,) = run.predict([text])
    assert row["input"] == text
    gaps = row["filled"].split("; ")
    places = (ids[0] == mask).nonzero()[:, 0].tolist()
    assert len(gaps) == len(places) == 2
    for gap, place in zip(gaps, places):
        likeliest = p[place, 2:vocab_size].topk(TOP_TOKENS)  # neither padding nor unknown, nor what is no text
        expected = [
            f"{tokenizer.tokens[2 + i]} {fraction:.3f}" for fraction, i in zip(*(x.tolist() for x in likeliest))
        ]
        assert gap.split(", ") == expected


def test_a_model_that_takes_no_call_without_a_mask_fills_gaps_too(run: Run) -> None:
    class Asks(nn.Module):
        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            assert mask.all()
            return run.model(tokens, mask)  # type: ignore[no-any-return]

    texts = [f"the {GAP} sat"]
    assert isinstance(run.preprocessing, MaskedPreprocessing)
    assert fill_masks(Asks(), run.place, run.preprocessing, texts) == run.predict(texts)


def test_texts_with_and_without_gaps_are_not_mixed(run: Run) -> None:
    with pytest.raises(DataError, match="has no gap"):
        run.predict([f"the {GAP} sat", "the cat sat"])


def test_more_tokens_than_training_had_are_rejected(run: Run) -> None:
    with pytest.raises(DataError, match="tokens, and training had at most"):
        run.predict([f"{GAP} " + "cat " * 100])
