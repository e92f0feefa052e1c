"""DARTS: gradient-based architecture search with a network of all operations.

H. Liu, K. Simonyan, Y. Yang, DARTS: differentiable architecture search, ICLR 2019, equations 2 to 8.
<https://arxiv.org/abs/1806.09055>

    ō⁽ⁱʲ⁾(x) = Σₒ softmax(α⁽ⁱʲ⁾)ₒ o(x)                                       (2)
    min_α L_val(w*(α), α),   w*(α) = argmin_w L_train(w, α)                  (3, 4)
    ∇_α L_val(w − ξ ∇_w L_train(w, α), α)                                    (6); first order is ξ = 0

As in the paper, L_train uses one half of the training split and L_val the other. The validation split, by which trials
are compared, is not used. α makes a step of Adam and w a step of SGD, alternately. At the end each edge takes the
operation with the largest weight, `none` included, as the authors of NAS-Bench-201 do in the space of cellnet. They and
others found that α then often selects only skip connections, which have no weights and pass every gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...data.dataset_base import Batch
from ...models import cellnet
from ...training.batches import mix_seeds
from ...training.setup import TrainingSetup
from ..cost import count_cost
from ..settings import SearchSettings
from .space import edge_name

# Optimizer of the weights w, as in section 3.1.1 of the paper.
LR, LEAST_LR, MOMENTUM, DECAY, CLIP = 0.025, 0.001, 0.9, 3e-4, 5.0
ALPHA_BETAS, ALPHA_DECAY = (0.5, 0.999), 1e-3


class MixedOperation(nn.Module):
    """Weighted sum of all operations of an edge: equation 2."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.operations = nn.ModuleList(cellnet.build_operation(o, channels, affine=False) for o in cellnet.OPERATIONS)
        self.weights = torch.full((len(cellnet.OPERATIONS),), 1 / len(cellnet.OPERATIONS))  # (5,)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C, H, W)."""
        terms = [weight * operation(x) for weight, operation in zip(self.weights, self.operations)]
        return torch.stack(terms).sum(0)


class Supernet(nn.Module):
    """cellnet with every operation on each edge of its cells, and α, which all cells share."""

    def __init__(self, config: cellnet.Config) -> None:
        super().__init__()
        self.network = cellnet.Model(config)
        for cell in self.network.modules():
            if isinstance(cell, cellnet.Cell):
                cell.edges = nn.ModuleList(MixedOperation(cell.channels) for _ in cellnet.EDGES)
        self.cells = [cell for cell in self.network.modules() if isinstance(cell, cellnet.Cell)]
        self.alpha = nn.Parameter(1e-3 * torch.randn(len(cellnet.EDGES), len(cellnet.OPERATIONS)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        return self.weighed(x, self.alpha.softmax(1))

    def weighed(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return the logits with the given weights (6, 5) of the operations."""
        for cell in self.cells:
            for edge, of_edge in zip(cell.edges, weights):
                assert isinstance(edge, MixedOperation), "every edge is mixed"
                edge.weights = of_edge
        logits: Tensor = self.network(x)
        return logits

    def operations(self) -> tuple[str, ...]:
        """Return the operation with the largest weight of each edge, in the order of the notation."""
        return tuple(cellnet.OPERATIONS[i] for i in self.alpha.argmax(1).tolist())


@dataclass(frozen=True)
class DartsResult:
    """Result of training a supernet."""

    parts: Mapping[str, str]  # operation of each edge, by part of the space
    weights: Sequence[Sequence[float]]  # softmax(α), (6, 5)
    work: float  # multiply-adds of its forward passes


def search_cell(
    ready: TrainingSetup, settings: SearchSettings, seed: int, tick: Callable[[int, int], None] = lambda done, of: None
) -> DartsResult:
    """Train the supernet of the prepared model on its training split and return the cell.

    `tick` is called with the number of finished epochs and of all epochs.
    """
    torch.manual_seed(seed)
    net = Supernet(ready.model.config)  # type: ignore[arg-type]
    macs = supernet_macs(net, ready)
    ready.place.model(net)
    weights = [p for name, p in net.named_parameters() if name != "alpha"]
    epochs, size = settings.darts_epochs, ready.settings.batch_size
    of_weights = torch.optim.SGD(weights, lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    of_alpha = torch.optim.Adam([net.alpha], lr=settings.darts_lr, betas=ALPHA_BETAS, weight_decay=ALPHA_DECAY)
    learn, judge = split_halves(len(ready.data.splits["train"]), seed)
    seen = 0
    for epoch in range(epochs):
        lr = LEAST_LR + (LR - LEAST_LR) * (1 + math.cos(math.pi * epoch / epochs)) / 2
        of_weights.param_groups[0]["lr"] = lr
        for train, val in zip(
            batches(ready, learn, size, mix_seeds(seed, epoch, 0)),
            batches(ready, judge, size, mix_seeds(seed, epoch, 1)),
        ):
            of_alpha.zero_grad()
            gradient = alpha_gradient(net, ready, train, val, lr if settings.darts_order == 2 else 0.0)
            net.alpha.grad = gradient
            of_alpha.step()
            of_weights.zero_grad()
            mean_loss(net, ready, train).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(weights, CLIP)
            of_weights.step()
            passes = 2 if settings.darts_order == 1 else 3
            seen += passes * len(train.target)
        tick(epoch + 1, epochs)
    parts = {edge_name(edge): o for edge, o in zip(cellnet.EDGES, net.operations())}
    return DartsResult(parts, net.alpha.detach().softmax(1).tolist(), float(seen * macs))


def supernet_macs(net: Supernet, ready: TrainingSetup) -> int:
    """Return the multiply-adds of the supernet for one example."""
    macs = count_cost(net, ready.data.spec).macs
    assert macs is not None, "only convolutions and the head multiply"
    return macs


def split_halves(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the example indices for w and for α, two halves of equal size."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[: count // 2], order[count // 2 : 2 * (count // 2)]


def batches(ready: TrainingSetup, half: Tensor, size: int, seed: int) -> Iterator[Batch]:
    """Yield the batches of a half in random order, with the augmentation of training."""
    generator = torch.Generator().manual_seed(seed)
    order = half[torch.randperm(len(half), generator=generator)]
    plan = [index for index in torch.split(order, size or len(half)) if len(index) > 1]  # one example has no variance
    random = torch.Generator(ready.place.device).manual_seed(seed)
    for batch in ready.data.splits["train"].batches(plan, seed=seed):
        inputs, target = ready.place.batch(batch)
        if ready.data.augment:
            varied, target = ready.data.augment(inputs[0], target, random)
            inputs = (varied, *inputs[1:])
        yield Batch(inputs, target)


def mean_loss(net: Supernet, ready: TrainingSetup, batch: Batch, weights: Mapping[str, Tensor] | None = None) -> Tensor:
    """Return the mean loss of a batch, shape (). `weights` replaces those of the network, by name."""
    with ready.place.autocast():
        outputs = torch.func.functional_call(net, dict(weights or {}), batch.inputs)
    loss: Tensor = ready.task.loss(outputs, batch.target) / ready.task.loss_denominator(batch.target)
    return loss


def alpha_gradient(net: Supernet, ready: TrainingSetup, train: Batch, val: Batch, xi: float) -> Tensor:
    """Return the gradient of the loss on `val` with respect to α, shape (6, 5).

    This is equation 6, with ξ the learning rate of w or 0. It differentiates through the step. The paper uses a finite
    difference (equation 8).
    """
    named = {name: p for name, p in net.named_parameters() if name != "alpha"}
    if not xi:
        (gradient,) = torch.autograd.grad(mean_loss(net, ready, val), [net.alpha])
        return gradient
    moved = {
        name: w - xi * g
        for (name, w), g in zip(
            named.items(), torch.autograd.grad(mean_loss(net, ready, train), list(named.values()), create_graph=True)
        )
    }
    (gradient,) = torch.autograd.grad(mean_loss(net, ready, val, moved), [net.alpha])
    return gradient


def weight_rows(weights: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Return the weights of the operations as table rows, one for each edge."""
    return [
        {"edge": edge_name(edge), **dict(zip(cellnet.OPERATIONS, row))} for edge, row in zip(cellnet.EDGES, weights)
    ]
