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

from cutaway.data.dataset_base import Batch
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.models.base import as_output_tuple
from cutaway.models.registry import create_model
from cutaway.nn.textbook.folding import fold_batch_norm
from cutaway.training.config import TrainSettings
from cutaway.training.device import DeviceContext, select_device
from cutaway.training.optim import build_optimizers
from cutaway.verify import oracle_for
from cutaway.verify.compare import difference, give_weights

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
    peer: Callable[[nn.Module], nn.Module] = lambda oracle: oracle  # theirs as a person would run it


def pixels(*shape: int) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """One tensor of that shape."""
    return lambda generator: (torch.randn(shape, generator=generator),)


def videos(*shape: int) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Videos of that shape, all of them frames."""
    return lambda generator: (torch.randn(shape, generator=generator), torch.ones(shape[:2], dtype=torch.bool))


def captions(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Images and the captions so far."""
    return torch.randn(16, 1, 32, 32, generator=generator), torch.randint(40, (16, 12), generator=generator)


def noisy(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Images, where in the process each is, noise, and its class."""
    x, noise = (torch.randn(16, 1, 32, 32, generator=generator) for _ in range(2))
    return x, torch.rand(16, generator=generator), noise, torch.randint(10, (16,), generator=generator)


def molecules(generator: torch.Generator) -> tuple[Tensor, ...]:
    """A batch of ESOL's."""
    data = open_data("esol", DataSettings(edge_attr=True))
    (batch,) = data.splits["train"].batches([torch.randperm(128, generator=generator)[:32]])
    return batch.inputs


class AtOnce(nn.Module):
    """transformers' TimeSformer on videos of one length, which it takes all together."""

    def __init__(self, oracle: Any) -> None:
        super().__init__()
        self.model = oracle.model

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Logits, (N, classes)."""
        logits: Tensor = self.model(x).logits
        return logits


def fused(oracle: Any) -> nn.Module:
    """transformers' network with PyTorch's fused attention."""
    oracle.model.set_attn_implementation("sdpa")
    module: nn.Module = oracle
    return module


MOLECULE = {"in_features": 19, "edge_features": 7, "num_classes": 1}
GREY = {"in_channels": 1, "num_classes": 11}
CASES = (
    Case(
        "patchtst-small, 7 variables, 336 steps, batch 32",
        "patchtst-small",
        lambda generator: (torch.randn(32, 336, 7, generator=generator),),
        {"steps": 336, "in_features": 7, "horizon": 96, "num_classes": 672, "dropout": 0.0},
    ),
    Case("unet-small, 64×64, batch 16", "unet-small", pixels(16, 1, 64, 64), GREY),
    Case("fcn-resnet18, 64×64, batch 8", "fcn-resnet18", pixels(8, 1, 64, 64), GREY | {"dropout": 0.0}),
    Case("deeplabv3-resnet18, 64×64, batch 8", "deeplabv3-resnet18", pixels(8, 1, 64, 64), GREY | {"dropout": 0.0}),
    Case("fcos-resnet18-small, 96×96, batch 16", "fcos-resnet18-small", pixels(16, 1, 96, 96), GREY),
    Case("r3d-18-small, 16 frames of 24×24, batch 32", "r3d-18-small", videos(32, 16, 1, 24, 24), GREY),
    Case(
        "video-transformer, 16 frames of 24×24, batch 32", "video-transformer", videos(32, 16, 1, 24, 24), GREY,
        peer=AtOnce,
    ),
    Case(
        "vit-gpt2-small, 32×32, 12 words, batch 16", "vit-gpt2-small", captions,
        {"in_channels": 1, "target_vocab_size": 40, "context_length": 12, "dropout": 0.0},
        peer=fused,
    ),
    Case(
        "ddpm-unet-small, 32×32, batch 16", "ddpm-unet-small", noisy,
        {"in_channels": 1, "classes": 10, "dropout": 0.0},
    ),
    Case("mpnn on ESOL, 32 molecules", "mpnn", molecules, MOLECULE),
)  # fmt: skip


def rows(runs: int = 11) -> list[tuple[Pair, float]]:
    """Every case, learning and answering, with the most that its ratio may be."""
    return [(measured(case, runs), 1.0) for case in CASES for measured in (training, inference)]


def sides(case: Case) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    """Ours, theirs with the same weights, and what both are given."""
    torch.manual_seed(0)
    inputs = case.inputs(torch.Generator().manual_seed(0))
    model = create_model(case.preset, **case.settings)
    oracle = oracle_for(case.preset, model.config)
    give_weights(model, oracle.module.float(), oracle)
    peer = case.peer(oracle.module)
    with torch.no_grad():
        answers = zip(as_output_tuple(model.eval()(*inputs)), as_output_tuple(peer.eval()(*inputs)))
    assert all(difference(a, b) <= SAME for a, b in answers), case.title
    return model, peer, inputs


def placed(case: Case, learns: bool) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...], DeviceContext]:
    """Both sides, ours where the trainer would put it."""
    model, peer, inputs = sides(case)
    place = select_device("cpu", "float32", None, model)
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
        loss = sum(y.square().mean() for y in as_output_tuple(model(*inputs())))
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
