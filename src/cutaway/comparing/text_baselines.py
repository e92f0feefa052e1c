"""Simple models of texts: which tokens stand in them, and which pairs of neighbours."""

from __future__ import annotations

from typing import Any

from ..data.sets import DataSet, Split
from ..spec import Classes, Value
from ..training.evaluation import batches_in_order
from .features import AT_ONCE
from .simple import Answer, Baseline, Finish, answers, target_of


def by_words(target: Classes | Value, finish: Finish) -> Baseline:
    """TF-IDF of tokens and pairs of them, with logistic regression or ridge (S. Wang, C. D. Manning, Baselines and
    bigrams, 2012, find such models hard to beat)."""

    def learn(data: DataSet, seed: int) -> Answer:
        del seed
        model = tfidf(isinstance(target, Value))
        model.fit(tokens_of(data.splits["train"]), target_of(data))
        return lambda split: finish(answers(model, tokens_of(split), target))

    last = "ridge" if isinstance(target, Value) else "logistic regression"
    said = f"How often tokens and pairs of neighbours stand in the text, weighted by how rare they are; {last}."
    return Baseline("TF-IDF", said, learn)


def tfidf(numbers: bool) -> Any:
    """The model, which takes lists of tokens."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    counted = TfidfVectorizer(
        tokenizer=_as_it_is, preprocessor=_as_it_is, token_pattern=None, ngram_range=(1, 2), sublinear_tf=True
    )
    last = Ridge() if numbers else LogisticRegression(C=10.0, max_iter=200)
    return make_pipeline(counted, last)


def tokens_of(split: Split) -> list[list[str]]:
    """The tokens of each text, as the network is given them, each by its number."""
    plan = batches_in_order(split, AT_ONCE)
    found: list[list[str]] = [[]] * len(split)
    for index, batch in zip(plan, split.batches(plan)):
        ids, mask = batch.inputs
        for i, row, real in zip(index.tolist(), ids, mask):
            found[i] = [str(token) for token in row[real].tolist()]
    return found


def _as_it_is(tokens: Any) -> Any:
    return tokens
