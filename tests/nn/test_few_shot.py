"""Meta-gradients against finite differences and against a double backward by hand; prototypes against a loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

import cutaway
from cutaway.nn.few_shot import maml_outputs, negative_squared_distances, prototypes, use_batch_statistics

E, WAYS, SHOTS, QUERIES, LR = 3, 3, 2, 4, 0.5
Case = tuple[nn.Sequential, Tensor, Tensor, Tensor, Tensor]


def case(seed: int = 0) -> Case:
    """A smooth network, and three episodes: support, what it is of, queries, and what they are of; float64."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, WAYS)).double()
    y = torch.arange(WAYS).repeat_interleave(SHOTS).expand(E, -1)
    support = torch.randn(E, WAYS * SHOTS, 4, dtype=torch.float64)
    queries = torch.randn(E, QUERIES, 4, dtype=torch.float64)
    return model, support, y, queries, torch.randint(WAYS, (E, QUERIES))


def outer(given: Case, steps: int, first_order: bool = False) -> Tensor:
    """The loss of the queries after adaptation."""
    model, support, y, queries, target = given
    answers = maml_outputs(model, support, y, queries, F.cross_entropy, LR, steps, first_order)
    return F.cross_entropy(answers.flatten(0, 1), target.flatten())


def by_hand(given: Case, steps: int, first_order: bool = False) -> Tensor:
    """The same loss, one episode after another, each gradient taken by autograd with a graph of its own."""
    model, support, y, queries, target = given
    total = torch.zeros((), dtype=torch.float64)
    for x, labels, asked, wanted in zip(support, y, queries, target):
        weights: dict[str, Tensor] = dict(model.named_parameters())
        for _ in range(steps):
            loss = F.cross_entropy(functional_call(model, weights, (x,)), labels)
            slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=not first_order)
            weights = {name: w - LR * slope for (name, w), slope in zip(weights.items(), slopes)}
        total = total + F.cross_entropy(functional_call(model, weights, (asked,)), wanted)
    return total / len(support)


def gradient(loss: Tensor, model: nn.Module) -> Tensor:
    """The gradient of all parameters, as one vector."""
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("first_order", [False, True])
def test_the_gradient_is_that_of_a_double_backward_by_hand(steps: int, first_order: bool) -> None:
    given = case()
    found, expected = outer(given, steps, first_order), by_hand(given, steps, first_order)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    assert torch.allclose(gradient(found, given[0]), gradient(expected, given[0]), rtol=0, atol=1e-12)


def test_the_second_order_gradient_is_that_of_finite_differences_and_the_first_is_not() -> None:
    given = case(1)
    model = given[0]
    second, first = (gradient(outer(given, 2, order), model) for order in (False, True))
    found, eps = [], 1e-5
    with torch.no_grad():
        for p in model.parameters():
            for i in range(p.numel()):
                sides = []
                for sign in (1, -1):
                    p.view(-1)[i] += sign * eps
                    sides.append(outer(given, 2))
                    p.view(-1)[i] -= sign * eps
                found.append((sides[0] - sides[1]) / (2 * eps))
    differences = torch.stack(found)
    assert torch.allclose(second, differences, rtol=0, atol=1e-8)
    assert (first - differences).abs().max() > 1e-3


class Written(nn.Module):
    """Batch, instance and layer normalization of maps (N, C, H, W), written out: their axes differ."""

    def __init__(self, weight: Tensor, bias: Tensor, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.weight, self.bias, self.axes = nn.Parameter(weight.clone()), nn.Parameter(bias.clone()), axes

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(self.axes, keepdim=True)
        y = centred / (centred.square().mean(self.axes, keepdim=True) + 1e-5).sqrt()
        shape = (-1, 1, 1) if self.weight.ndim == 1 else self.weight.shape
        return y * self.weight.reshape(shape) + self.bias.reshape(shape)


NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "batch": (lambda: nn.BatchNorm2d(4), (0, 2, 3)),
    "instance": (lambda: nn.InstanceNorm2d(4, affine=True), (2, 3)),
    "layer": (lambda: nn.LayerNorm([4, 5, 5]), (1, 2, 3)),
    "group": (lambda: nn.GroupNorm(1, 4), (1, 2, 3)),
}


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("kind", NORMS)
def test_the_gradient_through_normalization_is_that_of_formulas(kind: str, steps: int) -> None:
    """Two tasks whose data and classes are unlike, by the layer and by its formula in a loop."""
    torch.manual_seed(2)
    make, axes = NORMS[kind]

    def network(norms: list[nn.Module]) -> nn.Sequential:
        layers = [nn.Conv2d(1, 4, 3, padding=1), norms[0], nn.Tanh(), nn.Conv2d(4, 4, 3, padding=1), norms[1]]
        return nn.Sequential(*layers, nn.Softplus(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, WAYS))

    norms = [make(), make()]
    for p in itertools.chain(*(norm.parameters() for norm in norms)):
        nn.init.normal_(p, 1.0, 0.3)
    model = network(norms).double()
    written = network([Written(norm.weight, norm.bias, axes) for norm in norms]).double()  # type: ignore[arg-type]
    written.load_state_dict({name: p.detach() for name, p in model.named_parameters()})
    support, queries = (torch.randn(2, n, 1, 5, 5, dtype=torch.float64) for n in (5, 4))
    support[1], queries[1] = 3 * support[1] + 1, 3 * queries[1] + 1
    y = torch.tensor([[0, 0, 1, 2, 2], [0, 1, 1, 1, 2]])
    target = torch.tensor([[0, 1, 2, 2], [1, 0, 1, 1]])
    found = outer((model, support, y, queries, target), steps)
    expected = by_hand((written, support, y, queries, target), steps)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    slopes = gradient(found, model)
    assert torch.allclose(slopes, gradient(expected, written), rtol=1e-9, atol=1e-12)
    first = gradient(outer((model, support, y, queries, target), steps, first_order=True), model)
    assert not torch.allclose(slopes, first, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", ["conv4-strided", "conv4"])
def test_biases_before_batch_normalization_have_no_gradient(name: str) -> None:
    torch.manual_seed(0)
    model = cutaway.create_model(name, num_classes=2, width=4).double().train()
    support, y = torch.randn(2, 3, 1, 16, 16, dtype=torch.float64), torch.tensor([[0, 1, 1], [0, 0, 1]])
    answers = maml_outputs(model, support, y, support.flip(3), F.cross_entropy, 0.4, 2, False)
    F.cross_entropy(answers.flatten(0, 1), y.flatten()).backward()  # type: ignore[no-untyped-call]
    slopes = {name: p.grad.abs().max().item() for name, p in model.named_parameters() if p.grad is not None}
    assert max(value for name, value in slopes.items() if name.startswith("convs") and name.endswith("bias")) < 1e-12
    assert min(value for name, value in slopes.items() if name.startswith("convs") and name.endswith("weight")) > 1e-3


def test_frozen_and_unused_parameters_are_no_obstacle() -> None:
    given = case(3)
    model = given[0]
    model.register_parameter("unused", nn.Parameter(torch.ones(2, dtype=torch.float64)))
    expected = outer(given, 2)
    model[0].weight.requires_grad_(False)
    found = outer(given, 2)
    assert torch.equal(found, expected)
    learned = [p for name, p in model.named_parameters() if name != "unused" and p.requires_grad]
    assert all(slope.abs().max() > 0 for slope in torch.autograd.grad(found, learned))
    with torch.no_grad():
        assert torch.allclose(outer(given, 2), expected, rtol=0, atol=1e-12)


def test_without_steps_the_network_answers_as_it_is() -> None:
    model, support, y, queries, _ = case()
    found = maml_outputs(model, support, y, queries, F.cross_entropy, LR, 0, False)
    assert torch.allclose(found, model(queries), rtol=0, atol=1e-12)


def test_order_within_the_support_does_not_matter_and_order_of_episodes_goes_along() -> None:
    model, support, y, queries, _ = case()
    whole = maml_outputs(model, support, y, queries, F.cross_entropy, LR, 2, False)
    order = torch.randperm(WAYS * SHOTS)
    again = maml_outputs(model, support[:, order], y[:, order], queries, F.cross_entropy, LR, 2, False)
    assert torch.allclose(whole, again, rtol=0, atol=1e-12)
    back = maml_outputs(model, support.flip(0), y, queries.flip(0), F.cross_entropy, LR, 2, False)
    assert torch.allclose(whole.flip(0), back, rtol=0, atol=1e-12)
    alone = maml_outputs(model, support[:1], y[:1], queries[:1], F.cross_entropy, LR, 2, False)
    assert torch.allclose(whole[:1], alone, rtol=0, atol=1e-12)


def test_permuting_the_classes_with_the_head_permutes_the_answers() -> None:
    model, support, y, queries, _ = case()
    whole = maml_outputs(model, support, y, queries, F.cross_entropy, LR, 2, False)
    new = torch.tensor([2, 0, 1])  # class k is class new[k] now
    head = model[2]
    assert isinstance(head, nn.Linear)
    with torch.no_grad():
        head.weight.copy_(head.weight[new.argsort()])
        head.bias.copy_(head.bias[new.argsort()])
    again = maml_outputs(model, support, new[y], queries, F.cross_entropy, LR, 2, False)
    assert torch.allclose(whole, again[:, :, new], rtol=0, atol=1e-12)


def test_batch_normalization_takes_the_batch_and_remembers_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, WAYS)).double()
    _, support, y, queries, _ = case()
    for mode in (True, False):
        model.train(mode)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        found = maml_outputs(model, support, y, queries, F.cross_entropy, LR, 1, False)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert model[1].training is mode
        assert model[1].track_running_stats
        model.train()
        weights: dict[str, Tensor] = dict(model.named_parameters())
        loss = F.cross_entropy(functional_call(model, weights, (support[0],)), y[0])
        slopes = torch.autograd.grad(loss, list(weights.values()))
        moved = {name: w - LR * g for (name, w), g in zip(weights.items(), slopes)}
        assert torch.allclose(found[0], functional_call(model, moved, (queries[0],)), rtol=0, atol=1e-12)
        model.load_state_dict(before)


def test_an_error_within_leaves_the_statistics_as_they_were() -> None:
    norm = nn.BatchNorm1d(2).eval()
    with pytest.raises(ValueError, match="Expected more than 1 value"), use_batch_statistics(norm):
        norm(torch.randn(1, 2))
    assert not norm.training
    assert norm.track_running_stats


def naive(support: Tensor, y: Tensor, queries: Tensor) -> Tensor:
    """Log-probabilities of prototypical networks (E, Q, K), number by number."""
    found = torch.zeros(*queries.shape[:2], WAYS, dtype=torch.float64)
    for e, q in itertools.product(range(len(queries)), range(queries.shape[1])):
        scores = []
        for k in range(WAYS):
            members = [support[e, m] for m in range(support.shape[1]) if int(y[e, m]) == k]
            centre = sum(members[1:], members[0]) / len(members)
            scores.append(-sum((float(a) - float(b)) ** 2 for a, b in zip(queries[e, q], centre)))
        total = sum(torch.tensor(scores, dtype=torch.float64).exp())
        for k in range(WAYS):
            found[e, q, k] = torch.tensor(scores[k], dtype=torch.float64) - torch.as_tensor(total).log()
    return found


def episode(draw: Callable[..., int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features of a support with at least one example of each class, their classes, and queries."""
    generator = torch.Generator().manual_seed(seed)
    more = draw(st.integers(0, 4))
    y = torch.cat([torch.arange(WAYS), torch.randint(WAYS, (more,), generator=generator)]).expand(2, -1)
    support, queries = (torch.randn(2, n, 3, generator=generator, dtype=torch.float64) for n in (y.shape[1], 4))
    return support, y, queries


@settings(max_examples=15, deadline=None)
@given(st.data(), st.integers(0, 2**31))
def test_prototypes_are_those_of_a_loop_in_any_order(data: st.DataObject, seed: int) -> None:
    support, y, queries = episode(data.draw, seed)
    logits = negative_squared_distances(queries, prototypes(support, y, WAYS))
    assert torch.allclose(logits.log_softmax(2), naive(support, y, queries), rtol=0, atol=1e-10)
    order = torch.randperm(y.shape[1], generator=torch.Generator().manual_seed(seed))
    again = negative_squared_distances(queries, prototypes(support[:, order], y[:, order], WAYS))
    assert torch.allclose(logits, again, rtol=0, atol=1e-12)
    new = torch.tensor([1, 2, 0])
    renamed = negative_squared_distances(queries, prototypes(support, new[y], WAYS))
    assert torch.allclose(logits, renamed[:, :, new], rtol=0, atol=1e-12)
