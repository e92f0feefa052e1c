"""A step of shapes alone holds what a step holds: beside the allocator, MemTracker and FlopCounterMode."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from benchmarks.formulas import flops_per_token
from benchmarks.plan import allocated, counted, given_by, tracked

from cutaway.training.setup import TrainingSetup, setup_training
from cutaway.training.simulated_step import simulate_step, to_fake

SMALL = "gpt2 text.txt model.layers=2 model.dim=64 model.heads=2 length=64"


@pytest.fixture(autouse=True)
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text to learn from, in the folder in which tests run."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("Return the sum of all that is given, or zero where nothing is.\n" * 1000)


def ready(case: str, shapes: bool = False) -> TrainingSetup:
    """The training that is typed."""
    return setup_training(*given_by(case), shapes=shapes)


@pytest.mark.parametrize(
    ("case", "second"),
    [
        ("lenet5-modern digits", "both"),
        ("resnet20 digits optimizer=muon ema=0.9 max_samples=200", "both"),
        ("lstm text.txt model.hidden_dim=32 length=32", "memory"),  # recurrent layers are not counted
        (f"{SMALL} accumulate=3", "flops"),  # MemTracker knows no second pass
        ("gcn karate", ""),  # neither knows sparse tensors
    ],
)
def test_the_peak_is_that_of_the_allocator(case: str, second: str) -> None:
    planned = simulate_step(ready(case))
    truth, steps = allocated(ready(case))
    assert planned.imagined
    assert planned.total == pytest.approx(truth, rel=0.10)
    if second in ("both", "memory"):  # whose gradients are added up beside, as autograd does while it is watched
        assert tracked(steps) == pytest.approx(truth, rel=0.20)
    if second in ("both", "flops"):
        assert counted(steps) == pytest.approx(planned.flops, rel=1e-6)


def test_a_model_without_numbers_takes_the_same_and_keeps_nothing() -> None:
    there, shapes = ready(SMALL), ready(SMALL, shapes=True)
    assert all(p.is_meta for p in shapes.model.parameters())
    before = {name: x.clone() for name, x in there.model.state_dict().items()}
    state = torch.random.get_rng_state()
    assert simulate_step(there) == simulate_step(shapes)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(x, before[name]) for name, x in there.model.state_dict().items())
    assert all(p.grad is None for p in there.model.parameters())
    copied = to_fake(there.model, there.place)
    ties = {len(list(model.parameters())) for model in (there.model, copied)}
    assert len(ties) == 1  # the embedding is the output matrix still


def test_operations_are_those_of_the_formula() -> None:
    found = ready(SMALL)
    config, step = found.model.config, simulate_step(found)
    positions = config.context_length * config.dim
    n = sum(p.numel() for p in found.model.parameters()) - positions  # which are looked up; the embedding is used twice
    length = step.tokens // step.examples
    each = flops_per_token(n, 0, config.layers, config.heads, config.dim // config.heads, length)
    vectors = 6 * sum(p.numel() for p in found.model.parameters() if p.ndim < 2)  # that are added, and no products
    assert step.flops == pytest.approx((each - vectors) * step.tokens, rel=1e-6)


def test_parts_of_a_batch_and_what_a_gpu_keeps_of_attention() -> None:
    found = ready(SMALL)
    whole, half = simulate_step(found), simulate_step(found, parts=2)
    assert half.examples * 2 == whole.examples
    assert half.flops * 2 == whole.flops
    assert half.peak["weights"] == whole.peak["weights"]
    assert half.of_batch["activations"] * 2 == pytest.approx(whole.of_batch["activations"], rel=0.05)
    kept = simulate_step(found, gpu=True)  # attention with dropout keeps its weights on a CPU
    assert found.model.config.dropout > 0
    assert kept.of_batch["activations"] < whole.of_batch["activations"]
    assert kept.flops == whole.flops


def test_a_model_that_asks_for_numbers_is_given_them() -> None:
    case = "gat karate"
    planned, (truth, _) = simulate_step(ready(case)), allocated(ready(case))
    assert not planned.imagined
    assert planned.total == pytest.approx(truth, rel=0.15)
