"""The networks of the applications beside the libraries that have them too: a training step and inference.

Both sides have the same weights and the same inputs, float32, and the loss is the mean square of what they answer, so
that what is compared is the network alone. Ours has the trainer's optimizer and place; theirs is as its library gives
it, with PyTorch's fused AdamW. For inference ours has its batch normalization folded, where there is any. That the
answers are the same is asserted before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.data.sets import Batch
from cutaway.interop.oracles import oracle_for
from cutaway.interop.oracles.compare import difference, give_weights
from cutaway.models.images import answers_of
from cutaway.models.registry import create_model
from cutaway.textbook.folding import fold_batch_norm
from cutaway.training.optimizers import build_optimizers
from cutaway.training.placement import Placement, find_place
from cutaway.training.settings import TrainSettings

from .pairs import Pair, race

RATE = 1e-3
SAME = 1e-3  # the most that answers may differ, relatively: float32, in two orders


@dataclass(frozen=True)
class Case:
    """A network at one size."""

    title: str
    preset: str
    inputs: Callable[[torch.Generator], tuple[Tensor, ...]]
    settings: Mapping[str, Any] = field(default_factory=dict)


CASES = (
    Case(
        "patchtst-small, 7 variables, 336 steps, batch 32",
        "patchtst-small",
        lambda generator: (torch.randn(32, 336, 7, generator=generator),),
        {"steps": 336, "in_features": 7, "horizon": 96, "num_classes": 672, "dropout": 0.0},
    ),
)


def rows(runs: int = 11) -> list[tuple[Pair, float]]:
    """Every case, learning and answering, with the most that its ratio may be."""
    return [(measured(case, runs), 1.0) for case in CASES for measured in (training, inference)]


def sides(case: Case) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    """Ours, theirs with the same weights, and what both are given."""
    torch.manual_seed(0)
    model = create_model(case.preset, **case.settings)
    oracle = oracle_for(case.preset, model.config)
    peer = oracle.module.float()
    give_weights(model, peer, oracle)
    inputs = case.inputs(torch.Generator().manual_seed(0))
    with torch.no_grad():
        answers = zip(answers_of(model.eval()(*inputs)), answers_of(peer.eval()(*inputs)))
    assert all(difference(a, b) <= SAME for a, b in answers), case.title
    return model, peer, inputs


def placed(case: Case, learns: bool) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...], Placement]:
    """Both sides, ours where the trainer would put it."""
    model, peer, inputs = sides(case)
    place = find_place("cpu", "float32", None, model)
    return place.model(model, learns), peer, inputs, place


def training(case: Case, runs: int) -> Pair:
    """A step beside theirs; ours begins with putting the batch where the network is."""
    model, peer, inputs, place = placed(case, learns=True)
    (optimizer,) = build_optimizers(model, TrainSettings(optimizer="adamw", lr=RATE))
    theirs = torch.optim.AdamW(peer.parameters(), lr=RATE, fused=True)

    def put() -> tuple[Tensor, ...]:
        return place.batch(Batch(inputs, torch.empty(0)))[0]

    return race(f"step: {case.title}", step(model, optimizer, put), step(peer, theirs, lambda: inputs), runs)


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Callable[[], tuple[Tensor, ...]]
) -> Callable[[], object]:
    """A step each time it is called."""
    model.train()

    def run() -> None:
        optimizer.zero_grad()
        loss = sum(y.square().mean() for y in answers_of(model(*inputs())))
        assert isinstance(loss, Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return run


def inference(case: Case, runs: int) -> Pair:
    """Answers beside theirs."""
    model, peer, inputs, place = placed(case, learns=False)
    folded = fold_batch_norm(model, *inputs)

    def ours() -> None:
        with torch.inference_mode():
            folded(*place.batch(Batch(inputs, torch.empty(0)))[0])

    def theirs() -> None:
        with torch.inference_mode():
            peer(*inputs)

    return race(f"inference: {case.title}", ours, theirs, runs)
