"""The spiking network: its neuron by hand, its surrogate, other configs against snnTorch, and learning."""

from __future__ import annotations

import pytest
import torch

from cutaway.core.errors import ModelError
from cutaway.models.spiking import Config, LeakyIntegrateAndFire, Model, Spike
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

from .contract import assert_keeps_the_contract


def test_a_neuron_adds_leaks_fires_and_is_reset() -> None:
    neuron = LeakyIntegrateAndFire(beta=0.5, threshold=1.0, slope=25.0)
    current = torch.tensor([0.8, 0.8, 0.8, 0.0, 0.0], dtype=torch.float64)[None, :, None]
    u, s = neuron.run(current)
    # 0.8; 0.4 + 0.8 = 1.2 fires; 0.6 + 0.8 − 1 = 0.4; 0.2; 0.1
    torch.testing.assert_close(u.flatten(), torch.tensor([0.8, 1.2, 0.4, 0.2, 0.1], dtype=torch.float64))
    assert s.flatten().tolist() == [0, 1, 0, 0, 0]
    assert torch.equal(neuron(current), s)


def test_a_constant_current_below_the_threshold_never_fires() -> None:
    neuron = LeakyIntegrateAndFire(beta=0.9, threshold=1.0, slope=25.0)  # the potential settles at I / (1 − β)
    assert neuron(torch.full((1, 200, 1), 0.099)).sum() == 0
    assert neuron(torch.full((1, 200, 1), 0.101)).sum() > 0


def test_the_gradient_of_a_spike_is_that_of_a_fast_sigmoid() -> None:
    over = torch.tensor([-1.0, -0.1, 0.0, 0.3], dtype=torch.float64, requires_grad=True)
    spikes = Spike.apply(over, 25.0)
    (gradient,) = torch.autograd.grad(spikes.sum(), over)
    (smooth,) = torch.autograd.grad((over / (1 + 25 * over.abs())).sum(), over)
    assert spikes.tolist() == [0, 0, 0, 1]
    torch.testing.assert_close(gradient, smooth)


@pytest.mark.parametrize(
    "config",
    [
        Config(in_features=6, num_classes=3, hidden_dims=(20, 12), steps=9, beta=0.8, threshold=0.5, slope=5.0),
        Config(in_features=4, num_classes=1, hidden_dims=(8,), steps=1),
        Config(in_features=4, num_classes=2, hidden_dims=(16,), steps=12, beta=0.0, threshold=0.1),
    ],
)
def test_other_configs_equal_snntorch(config: Config) -> None:
    pytest.importorskip("snntorch")
    torch.manual_seed(0)
    found = compare(Model(config), oracle_for("spiking-mlp", config), torch.Generator().manual_seed(0))
    assert found.equal, found


def test_it_keeps_the_contract() -> None:
    torch.manual_seed(0)
    model = Model(Config(in_features=7, num_classes=3, hidden_dims=(24,), threshold=0.2, slope=2.0))
    assert_keeps_the_contract(model, torch.randn(16, 7), outputs=3)


def test_it_learns_what_no_line_separates() -> None:
    torch.manual_seed(0)
    x, y = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]), torch.tensor([0, 1, 1, 0])
    model = Model(Config(in_features=2, num_classes=2, hidden_dims=(32,), steps=10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert model(x).argmax(1).tolist() == y.tolist()


@pytest.mark.parametrize("field", [{"steps": 0}, {"beta": 1.5}, {"threshold": 0.0}, {"hidden_dims": ()}])
def test_invalid_settings_are_rejected(field: dict[str, object]) -> None:
    with pytest.raises(ModelError, match=next(iter(field))):
        Config(**field)  # type: ignore[arg-type]
