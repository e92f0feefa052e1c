"""Word vectors: the equations, what is learned from and what is not, and that words in like places become alike."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.checkpoints.word_vectors import Vectors
from cutaway.core.errors import ModelError
from cutaway.core.spec import Context, TextSpec
from cutaway.data.build import DataSource
from cutaway.data.settings import DataSettings
from cutaway.data.text.word2vec_dataset import ContextPreprocessing, context_dataset
from cutaway.inspect.layers import preset_layer_table
from cutaway.models.registry import presets
from cutaway.models.word2vec import (
    CARD,
    PRESETS,
    Config,
    Model,
    NegativeSampling,
    WindowMean,
    negative_sampling,
    window_mean,
)
from cutaway.tasks.word_vectors import WordVectors
from cutaway.verify import oracle_for

NAMES = sorted(PRESETS)


def small(**given_: Any) -> Config:
    return Config(**{"vocab_size": 12, "dim": 5, "window": 2, **given_})


def moved(config: Config, seed: int = 0) -> Model:
    """A model whose vectors are all different, in float64."""
    torch.manual_seed(seed)
    model = Model(config).double()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_()
    return model


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    return {k: p.grad.to_dense() for k, p in model.named_parameters() if p.grad is not None}


@settings(max_examples=20, deadline=None)
@given(
    architecture=st.sampled_from(["skipgram", "cbow"]),
    output=st.sampled_from(["negative", "softmax"]),
    whole_error=st.booleans(),
    window=st.integers(1, 4),
    negative=st.integers(1, 7),
    seed=st.integers(0, 999),
)
def test_outputs_and_gradients_are_the_sums_over_pairs(seed: int, **given_: Any) -> None:
    config = small(**given_)
    model, oracle = moved(config, seed), oracle_for("word2vec-skipgram", config)
    theirs = oracle.module.double()
    assert oracle.key_map is not None
    theirs.load_state_dict({oracle.key_map[k]: v for k, v in model.state_dict().items()})
    inputs = oracle.inputs(torch.Generator().manual_seed(seed))
    ours, expected = model(*inputs), theirs(*inputs)
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)
    upstream = torch.randn_like(ours)
    ours.backward(upstream)
    expected.backward(upstream)
    found, wanted = gradients(model), gradients(theirs)
    for key, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[oracle.key_map[key]], rtol=1e-10, atol=1e-10)


def test_gradients_are_numerically_right() -> None:
    h, others = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 7, 4, dtype=torch.float64)
    predicted, weight = torch.randint(0, 2, (2, 3, 5)).double(), torch.rand(2, 3, dtype=torch.float64)
    arguments = (h.requires_grad_(), others.requires_grad_(), predicted, weight)
    assert torch.autograd.gradcheck(NegativeSampling.apply, arguments)
    inside = torch.tensor([[[1, 0, 1], [0, 0, 0]]]).double()
    vectors = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: WindowMean.apply(v, inside, False), (vectors,))


def test_the_gradients_by_hand_are_those_of_the_plain_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    h, others = (torch.randn(2, n, 4, dtype=torch.float64, generator=generator).requires_grad_() for n in (3, 7))
    predicted, weight = torch.randint(0, 2, (2, 3, 5)).double(), torch.rand(2, 3, dtype=torch.float64)
    plain, by_hand = (f(h, others, predicted, weight) for f in (negative_sampling, NegativeSampling.apply))
    torch.testing.assert_close(by_hand, plain, rtol=1e-12, atol=1e-12)
    upstream = torch.randn(2, 3, dtype=torch.float64, generator=generator)
    for found, expected in zip(*(torch.autograd.grad(y, (h, others), upstream) for y in (by_hand, plain))):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    inside = torch.tensor([[[1, 0, 1, 1], [0, 0, 0, 0]]]).double()
    vectors = torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True)
    means = window_mean(vectors, inside), WindowMean.apply(vectors, inside, False)
    torch.testing.assert_close(means[1], means[0], rtol=1e-12, atol=1e-12)
    slopes = [torch.autograd.grad(y.square().sum(), vectors)[0] for y in means]
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-12, atol=1e-12)


def test_the_whole_error_is_the_gradient_of_the_sum() -> None:
    inside = torch.tensor([[[1.0, 1, 0, 1]]])
    vectors = torch.randn(1, 4, 2, requires_grad=True)
    mean = WindowMean.apply(vectors, inside, True)
    torch.testing.assert_close(mean[0, 0], vectors[0, [0, 1, 3]].mean(0))
    mean.backward(torch.ones_like(mean))
    assert torch.equal(vectors.grad, inside[0, 0][None, :, None].expand(1, 4, 2))


def test_large_scores_overflow_nothing() -> None:
    h = torch.full((1, 1, 1), 200.0, requires_grad=True)
    others = torch.tensor([[[1.0], [-1.0], [1.0]]], requires_grad=True)  # predicted, predicted, noise
    given_ = NegativeSampling.apply(h, others, torch.ones(1, 1, 2), torch.tensor([[0.0]]))
    given_.sum().backward()
    assert given_.isfinite().all()
    torch.testing.assert_close(others.grad[0, :, 0], torch.tensor([0.0, 200.0, 0.0]))


@pytest.mark.parametrize("name", NAMES)
def test_without_noise_the_outputs_are_probabilities_of_all_words(name: str) -> None:
    model = moved(dataclasses.replace(PRESETS[name], vocab_size=9, dim=4, window=1))
    middle = torch.stack([torch.tensor([3, w, 3]) for w in range(9)])
    sums = model(middle)
    if name == "word2vec-cbow":  # p(w | 3, 3) over all w
        torch.testing.assert_close(sums[:, 1].exp().sum(), torch.ones((), dtype=torch.float64))
    else:  # the first word predicts the second: p(w | 3) over all w
        torch.testing.assert_close(sums[:, 0].exp().sum(), torch.ones((), dtype=torch.float64))


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_nothing_and_words_alone_have_nothing(name: str) -> None:
    model = moved(dataclasses.replace(PRESETS[name], vocab_size=9, dim=4))
    words = torch.randint(2, 9, (1, 6))
    padded = torch.cat([words, torch.zeros(1, 5, dtype=torch.int64)], 1)
    longer = model(padded, padded > 0)
    torch.testing.assert_close(longer[:, :6], model(words))
    assert not longer[:, 6:].any()
    assert torch.equal(model(torch.tensor([[4]])), torch.zeros(1, 1, dtype=torch.float64))
    assert model.features(words).shape == (1, 6, 4)


@pytest.mark.parametrize("name", NAMES)
def test_reach_is_the_window_where_it_is_whole(name: str) -> None:
    model = moved(dataclasses.replace(PRESETS[name], vocab_size=9, dim=4, window=2))
    words = torch.randint(2, 9, (3, 8))
    whole = model(words)
    reach = torch.full((3, 4, 2), 2)
    torch.testing.assert_close(model(words, None, reach), whole[:, 2:-2])
    torch.testing.assert_close(model.features(words, None, reach), model.features(words)[:, 2:-2])


@pytest.mark.parametrize("name", NAMES)
def test_only_rows_that_are_used_have_gradients(name: str) -> None:
    torch.manual_seed(0)
    model = Model(dataclasses.replace(PRESETS[name], vocab_size=1000))
    words, reach = torch.tensor([[0, 5, 6, 0]]), torch.tensor([[[0, 1], [1, 0]]])
    model(words, words > 0, reach, torch.tensor([[7, 8]])).sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.is_sparse
    assert set(model.context.weight.grad.coalesce().indices()[0].tolist()) <= {0, 5, 6, 7, 8}
    used = model.context.weight.grad.to_dense().abs().sum(1).nonzero().flatten().tolist()
    assert used == [5, 6, 7, 8]  # padding stands in no window
    assert set(model.embedding.weight.grad.coalesce().indices()[0].tolist()) <= {0, 5, 6}


def test_a_step_of_the_optimizer_is_that_of_the_sum_of_all_pairs() -> None:
    model = moved(small())
    before = {k: v.clone() for k, v in model.state_dict().items()}
    words, reach = torch.tensor([[4, 4, 4, 4]]), torch.tensor([[[0, 1], [1, 1], [1, 1], [1, 0]]])
    task = WordVectors(Context(12))
    outputs = model(words, words > 0, reach, torch.tensor([[9, 9]]))
    assert task.loss_denominator(reach.sum(2)) == 4
    task.loss(outputs, reach.sum(2)).backward()
    wanted = gradients(model)
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    for key, now in model.state_dict().items():
        torch.testing.assert_close(now, before[key] - 0.5 * wanted[key])


def test_first_values() -> None:
    torch.manual_seed(0)
    model = Model(Config())
    assert not model.context.weight.any()
    assert model.embedding.weight.abs().max() <= 0.005
    assert model.embedding.weight.std().item() == pytest.approx(0.01 / math.sqrt(12), rel=0.01)
    assert not Model(small(output="softmax")).context.sparse


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_those_of_the_card(name: str) -> None:
    table, published = preset_layer_table(presets()[name], PRESETS[name]), CARD.published[name]
    assert (table.parameters, table.multiply_adds, table.complete) == (
        published.parameters,
        published.multiply_adds,
        True,
    )


def test_a_config_fits_a_data_set_and_bad_values_are_rejected() -> None:
    fitted = Config.for_spec(Config(), TextSpec(77, 26, Context(77, window=3)))
    assert (fitted.vocab_size, fitted.window) == (77, 3)
    for field, value in {"dim": 0, "architecture": "glove", "output": "tree", "negative": 0, "window": 0}.items():
        with pytest.raises(ModelError, match=f"^Invalid {field}="):
            Config(**{field: value})
    with pytest.raises(ModelError, match=r"^Invalid vocab_size=2: must be at least 3"):
        Config(vocab_size=2)


def test_under_autocast_sums_stay_in_float32() -> None:
    model = Model(small())
    words = torch.randint(2, 12, (2, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        given_ = model(words, None, torch.ones(2, 4, 2, dtype=torch.int64), torch.randint(2, 12, (2, 3)))
    assert given_.dtype == torch.float32
    given_.sum().backward()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("output", ["negative", "softmax"])
def test_words_in_like_places_become_alike(name: str, output: str) -> None:
    """cat and dog stand in the same places, and so do red and blue."""
    generator = torch.Generator().manual_seed(0)

    def one(*words: str) -> str:
        return words[int(torch.randint(len(words), (), generator=generator))]

    lines = []
    for _ in range(1500):
        lines.append(f"the {one('cat', 'dog')} {one('eats', 'sleeps', 'runs')} at {one('home', 'night')}")
        lines.append(f"a {one('red', 'blue')} {one('car', 'door', 'house')} with {one('paint', 'glass')}")
    settings_ = DataSettings(val=0.0, test=0.0)
    data = context_dataset(["\n".join(lines)], DataSource("", "", ""), settings_)
    assert isinstance(data.preprocessing, ContextPreprocessing)
    torch.manual_seed(0)
    config = dataclasses.replace(PRESETS[name], dim=8, output=output)
    model, part, task = Model(Config.for_spec(config, data.spec)), data.splits["train"], WordVectors(Context(3))  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), lr=CARD.settings[name]["lr"])
    losses = []
    for epoch in range(6):
        plan = data.splits["train"].plan(32, torch.Generator().manual_seed(epoch))  # type: ignore[attr-defined]
        total = count = 0.0
        for batch in part.batches(plan, seed=epoch):
            optimizer.zero_grad()
            loss = task.loss(model(*batch.inputs), batch.target)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total, count = total + loss.item(), count + task.loss_denominator(batch.target)
        losses.append(total / count)
    assert losses[-1] < 0.9 * losses[0]
    vectors = Vectors.from_embedding(model.embedding, data.preprocessing.tokenizer.tokens)
    for word, like in {"cat": "dog", "red": "blue", "blue": "red"}.items():
        assert vectors.neighbours(word, 1)[0][0] == like
