"""TCAV on a concept that decides, on one that does not, and on none."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import cutaway
from cutaway.core.errors import DataError, ModelError, UnknownName
from cutaway.inspect.concepts import concept, vector, welch
from tests.small import small

DECIDES = 3  # the column


def planted() -> nn.Module:
    """A network whose class 1 is column 3 alone: the hidden layer hands columns on, and the head reads one of them."""
    model = cutaway.create_model("mlp", in_features=10, hidden_dims=(10,), num_classes=2).eval()
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    with torch.no_grad():
        linears[0].weight.copy_(torch.eye(10))
        linears[0].bias.fill_(4.0)  # so that no unit is cut off
        linears[1].weight.zero_()
        linears[1].weight[1, DECIDES] = 1.0
        linears[1].bias.zero_()
    return model


def rows(count: int, seed: int, column: int | None = None) -> Tensor:
    x = torch.randn(count, 10, generator=torch.Generator().manual_seed(seed))
    if column is not None:
        x[:, column] += 3
    return x


def test_a_concept_that_decides_counts_and_one_that_does_not_is_no_more_than_chance() -> None:
    model, inputs, others = planted(), rows(40, 0), rows(200, 1)
    decides = concept(model, inputs, rows(30, 2, DECIDES), others, target=1)
    assert decides.score == 1.0
    assert decides.significant
    assert decides.known
    assert "influences the score for the class" in decides.says
    turned = rows(30, 2, DECIDES) * torch.tensor([1.0, 1, 1, -1, 1, 1, 1, 1, 1, 1])
    against = concept(model, inputs, turned, others, target=1)
    assert against.score == 0.0
    assert against.significant
    assert "against the class" in against.says


@pytest.mark.parametrize("seed", range(6))
def test_random_examples_are_no_concept(seed: int) -> None:
    found = concept(planted(), rows(40, 0), rows(30, 100 + seed), rows(200, 1), target=1, seed=seed)
    assert not found.significant
    assert "does not separate" in found.says or "not larger than that of random" in found.says


def test_the_vector_points_at_the_concept_and_parts_it_from_the_rest() -> None:
    v, bias = vector(rows(50, 0, DECIDES), rows(50, 1))
    assert int(v.abs().argmax()) == DECIDES
    assert float(v[DECIDES]) > 0
    unseen = rows(100, 2, DECIDES) @ v + bias
    assert float((unseen > 0).float().mean()) > 0.8


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0, 1, width=32), min_size=2, max_size=12),
    st.lists(st.floats(0, 1, width=32), min_size=2, max_size=12),
)
def test_welch_is_scipys(one: list[float], other: list[float]) -> None:
    from scipy.stats import ttest_ind

    if max(one) - min(one) < 1e-3 or max(other) - min(other) < 1e-3:
        assert 0 <= welch(tuple(one), tuple(other)) <= 1
        return
    assert welch(tuple(one), tuple(other)) == pytest.approx(ttest_ind(one, other, equal_var=False).pvalue, abs=1e-9)


@pytest.mark.parametrize("name", ["lenet5", "resnet20", "vit-small/16", "lstm", "cnn1d", "cnn-lstm", "mlp"])
def test_a_layer_is_found_in_models_of_numbers(name: str) -> None:
    model, inputs = small(name, count=8)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    found = concept(model, inputs, tuple(x[:4] for x in inputs), tuple(x[4:] for x in inputs), sets=3)
    assert found.layer
    assert len(found.scores) == len(found.chance) == 3
    assert 0 <= found.p <= 1
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("name", ["textcnn", "gpt2", "bert-base-uncased", "collobert-sentence"])
def test_texts_of_other_lengths_can_be_the_concept(name: str) -> None:
    model, inputs = small(name, count=8)
    shorter = tuple(x[:4, :5] for x in inputs)
    found = concept(model, inputs, shorter, tuple(x[4:] for x in inputs), sets=3)
    assert found.layer


def test_what_cannot_be_asked_is_rejected() -> None:
    model = planted()
    with pytest.raises(DataError, match="at least 4"):
        concept(model, rows(5, 0), rows(2, 1), rows(50, 2))
    with pytest.raises(UnknownName, match="layer"):
        concept(model, rows(5, 0), rows(9, 1), rows(50, 2), layer="nowhere")
    graph = small("gcn")
    with pytest.raises(ModelError, match="graph"):
        concept(graph[0], graph[1], graph[1], graph[1])
