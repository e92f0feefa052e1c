"""A ResNet-18 training step, 64×64, batch 32, beside torchvision's with its defaults."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from cutaway.models.registry import create_model
from cutaway.training.optimizers import build_optimizers
from cutaway.training.place import find_place
from cutaway.training.settings import TrainSettings

from .pairs import Pair, race
from .peers import torchvision

CASE = "step: resnet18 64×64, batch 32, SGD with momentum"


def rows() -> list[tuple[Pair, float]]:
    """The one case with the most that its ratio may be."""
    torch.manual_seed(0)
    x, y = torch.randn(32, 3, 64, 64), torch.randint(0, 10, (32,))

    model = create_model("resnet18", num_classes=10)
    place = find_place("cpu", "float32", None, model)
    model = place.model(model).train()
    (optimizer,) = build_optimizers(model, TrainSettings(optimizer="momentum", lr=0.01))
    inputs = x.contiguous(memory_format=torch.channels_last)

    peer = torchvision().models.resnet18(num_classes=10).train()
    theirs = torch.optim.SGD(peer.parameters(), lr=0.01, momentum=0.9)

    def step(net: nn.Module, images: torch.Tensor, update: torch.optim.Optimizer) -> None:
        update.zero_grad()
        F.cross_entropy(net(images), y).backward()
        update.step()

    return [(race(CASE, lambda: step(model, inputs, optimizer), lambda: step(peer, x, theirs), runs=15), 0.95)]
