"""DARTS: the mixed operation against the discrete cell, the gradient of α against differences, what it ends in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.core.errors import SettingError
from cutaway.experiments.search.darts import (
    MixedOperation,
    Supernet,
    alpha_gradient,
    batches,
    mean_loss,
    search_cell,
    split_halves,
)
from cutaway.experiments.search.space import parse_space, reject_other_than_cells
from cutaway.experiments.settings import SearchSettings
from cutaway.inspect.layers import layer_table
from cutaway.models import cellnet
from cutaway.models.registry import preset
from cutaway.training.setup import TrainingSetup, setup_training

GIVEN = {"max_samples": 40, "batch_size": 10, "threads": 1, "model.channels": 2}
CELL = ("nor_conv_3x3", "skip_connect", "nor_conv_1x1", "none", "avg_pool_3x3", "nor_conv_3x3")


@pytest.fixture
def ready() -> TrainingSetup:
    return setup_training("cellnet-small", "digits", GIVEN)


def moved(net: torch.nn.Module) -> Any:
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return net


def discrete(net: Supernet, operations: tuple[str, ...]) -> cellnet.CellNet:
    """The network of one cell with the supernet's weights."""
    config = net.network.config
    found = cellnet.Model(
        type(config)(cellnet.format_cell(operations), config.cells, config.channels, config.in_channels)
    )
    state = {key: value for key, value in net.network.state_dict().items() if ".edges." not in key}
    mixed = {name: module for name, module in net.network.named_modules() if isinstance(module, MixedOperation)}
    for name, module in mixed.items():
        chosen = operations[int(name.rpartition(".")[2])]
        own = module.operations[cellnet.OPERATIONS.index(chosen)].state_dict()
        state |= {f"{name}.{key}": value for key, value in own.items()}
    missing, unexpected = found.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(key.endswith((".2.weight", ".2.bias")) for key in missing), "the scale and shift that a supernet has not"
    return found


@pytest.mark.parametrize("training", [True, False])
def test_with_all_weight_on_one_operation_it_is_the_discrete_cell(ready: TrainingSetup, training: bool) -> None:
    torch.manual_seed(0)
    net = moved(Supernet(ready.model.config)).double().train(training)  # type: ignore[arg-type]
    one = torch.zeros(6, 5, dtype=torch.float64)
    for edge, operation in enumerate(CELL):
        one[edge, cellnet.OPERATIONS.index(operation)] = 1
    x = torch.randn(5, 1, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(net.weighed(x, one), discrete(net, CELL).double().train(training)(x))
    assert not torch.allclose(net(x), net.weighed(x, one))


def test_an_edge_is_the_weighed_sum_of_its_operations() -> None:
    torch.manual_seed(0)
    edge, x = MixedOperation(3).double(), torch.randn(4, 3, 8, 8, dtype=torch.float64)
    edge.weights = torch.tensor([0.1, 0.2, 0.3, 0.25, 0.15], dtype=torch.float64)
    parts = [weight * operation(x) for weight, operation in zip(edge.weights, edge.operations)]
    torch.testing.assert_close(edge(x), parts[0] + parts[1] + parts[2] + parts[3] + parts[4])
    assert not parts[0].any()


def test_all_cells_share_alpha_and_the_largest_weight_is_taken(ready: TrainingSetup) -> None:
    net = Supernet(ready.model.config)  # type: ignore[arg-type]
    assert net.alpha.shape == (6, 5)
    assert len(net.cells) == 3
    with torch.no_grad():
        net.alpha.zero_()
        for edge, operation in enumerate(CELL):
            net.alpha[edge, cellnet.OPERATIONS.index(operation)] = 1
    assert net.operations() == CELL


class Still:
    """A supernet whose normalization has no memory, so that a function of the weights is one."""

    @staticmethod
    def of(ready: TrainingSetup) -> Supernet:
        torch.manual_seed(1)
        net: Supernet = moved(Supernet(ready.model.config)).double()  # type: ignore[arg-type]
        for module in net.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.track_running_stats = False
                module.running_mean = module.running_var = None
        with torch.no_grad():
            net.alpha.mul_(300)
        return net


def two_batches(ready: TrainingSetup) -> Iterator[Any]:
    for half in split_halves(len(ready.data.splits["train"]), 0):
        batch = next(batches(ready, half, 10, 0))
        yield batch._replace(inputs=(batch.inputs[0].double(),))


def unrolled(net: Supernet, ready: TrainingSetup, train: Any, val: Any, xi: float, alpha: Tensor) -> float:
    """L_val(w − ξ ∇_w L_train(w, α), α), by hand."""
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    weights = [p for name, p in net.named_parameters() if name != "alpha"]
    with torch.no_grad():
        net.alpha.copy_(alpha)
    step = torch.autograd.grad(mean_loss(net, ready, train), weights)
    with torch.no_grad():
        for w, g in zip(weights, step):
            w.sub_(xi * g)
        loss = mean_loss(net, ready, val).item()
        for name, p in net.named_parameters():
            p.copy_(before[name])
    return loss


@pytest.mark.parametrize("xi", [0.0, 0.05])
def test_the_gradient_of_alpha_is_that_of_the_unrolled_loss(ready: TrainingSetup, xi: float) -> None:
    net = Still.of(ready)
    train, val = two_batches(ready)
    before = [p.detach().clone() for p in net.parameters()]
    gradient = alpha_gradient(net, ready, train, val, xi)
    assert all(torch.equal(p, was) for p, was in zip(net.parameters(), before))
    small, alpha = 1e-5, net.alpha.detach().clone()
    expected = torch.zeros_like(alpha)
    for i in range(6):
        for j in range(5):
            step = torch.zeros_like(alpha)
            step[i, j] = small
            ends = [unrolled(net, ready, train, val, xi, alpha + sign * step) for sign in (1, -1)]
            expected[i, j] = (ends[0] - ends[1]) / (2 * small)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-7)
    if xi:
        assert not torch.allclose(alpha_gradient(net, ready, train, val, 0.0), expected, rtol=1e-2)


def test_halves_share_no_example() -> None:
    one, two = split_halves(41, 3)
    assert len(one) == len(two) == 20
    assert not set(one.tolist()) & set(two.tolist())


@pytest.mark.parametrize("order", [1, 2])
def test_a_cell_is_found_and_the_same_seed_finds_it_again(ready: TrainingSetup, order: int) -> None:
    settings = SearchSettings(sampler="darts", darts_epochs=2, darts_lr=0.05, darts_order=order)
    seen: list[tuple[int, int]] = []
    found = search_cell(ready, settings, 5, lambda done, of: seen.append((done, of)))
    again = search_cell(setup_training("cellnet-small", "digits", GIVEN), settings, 5)
    assert found == again
    assert seen == [(1, 2), (2, 2)]
    torch.testing.assert_close(torch.tensor(found.weights).sum(1), torch.ones(6))
    largest = [cellnet.OPERATIONS[row.index(max(row))] for row in map(list, found.weights)]
    assert list(found.parts.values()) == largest
    macs = layer_table(Supernet(ready.model.config), torch.zeros(1, 1, 8, 8)).multiply_adds  # type: ignore[arg-type]
    assert macs is not None
    assert found.work == 2 * 20 * macs * (2 if order == 1 else 3)
    other = search_cell(setup_training("cellnet-small", "digits", GIVEN), settings, 6)
    assert other.weights != found.weights


def test_only_cells_are_learned_by_gradient() -> None:
    found = preset("cellnet-small")
    reject_other_than_cells(parse_space(found, {"model.arch": "cells"}, {}))
    for typed in ({"lr": "0.1..1"}, {"model.arch": "cells", "lr": "0.1..1"}):
        with pytest.raises(SettingError, match="Invalid space for sampler=darts"):
            reject_other_than_cells(parse_space(found, typed, {}))
