"""Few-shot learning: predictions for queries, given a support set of labelled examples.

Model-agnostic meta-learning (C. Finn, P. Abbeel, S. Levine, Model-agnostic meta-learning for fast adaptation of deep
networks, 2017 <https://arxiv.org/abs/1703.03400>), equation 1 and the equations below it:

    θ' = θ − α ∇_θ L(f_θ; support), once or several times;   answers f_θ'(queries);   learned: min_θ Σ L(f_θ'; queries)

The gradient of the last term passes through the first and therefore needs second derivatives. The first-order variant
treats ∇_θ L(f_θ; support) as a constant.

Prototypical networks (J. Snell, K. Swersky, R. S. Zemel, Prototypical networks for few-shot learning, 2017
<https://arxiv.org/abs/1703.05175>), equations 1 and 2:

    c_k = mean of h(x) over the support of class k;   p(k | x) = softmax over k of −‖h(x) − c_k‖²

Shapes: E episodes of M labelled examples and Q queries each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

Loss = Callable[[Tensor, Tensor], Tensor]  # maps outputs (M, K) and targets (M,) to the mean loss, ()


def adapt_parameters(
    answer: Callable[[Mapping[str, Tensor], Tensor], Tensor],
    parameters: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    loss: Loss,
    lr: float,
    steps: int,
    first_order: bool = False,
) -> Mapping[str, Tensor]:
    """Return the parameters after `steps` of gradient descent on the support set x (M, …), y (M,), with rate `lr`.

    `answer` maps parameters and x to the outputs (M, K). The result is differentiable with respect to `parameters`,
    through the inner gradients as well unless `first_order`. All parameters are adapted, including frozen ones.
    """
    second_order = torch.is_grad_enabled() and not first_order
    for _ in range(steps):
        with torch.enable_grad():
            own = {name: p if second_order and p.requires_grad else _as_leaf(p) for name, p in parameters.items()}
            slopes = torch.autograd.grad(
                loss(answer(own, x), y),
                list(own.values()),
                create_graph=second_order,
                allow_unused=True,  # such as the weights of auxiliary heads
                materialize_grads=True,
            )
        source = own if second_order else parameters
        parameters = {name: p - lr * slope for (name, p), slope in zip(source.items(), slopes)}
    return parameters


def _as_leaf(p: Tensor) -> Tensor:
    """Return the tensor detached from its graph, as a leaf that requires gradients."""
    return p.detach().requires_grad_()


def maml_outputs(
    model: nn.Module, support: Tensor, y: Tensor, queries: Tensor, loss: Loss, lr: float, steps: int, first_order: bool
) -> Tensor:
    """Return the model's outputs (E, Q, K) for the queries (E, Q, …) after adaptation to each episode's support set.

    The support set is (E, M, …), y is (E, M). Batch normalization uses the statistics of the current batch, for queries
    and support alike. All parameters are adapted, and the model itself is left unchanged.

    Episodes are computed one after another, because `torch.func.vmap` computes wrong second derivatives of layer and
    batch normalization (PyTorch 2.13 treats the saved mean and deviation as constants).
    """

    def answer(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        outputs: Tensor | tuple[Tensor, ...] = functional_call(model, dict(parameters), (x,))
        return outputs if isinstance(outputs, Tensor) else outputs[0]  # the outputs of auxiliary heads follow

    own = dict(model.named_parameters())
    # Fused attention has no second derivative in PyTorch, and autocast does not know the format of second-order
    # gradients: computations stay in the format of the weights.
    plain = torch.autocast(support.device.type, enabled=False)
    with use_batch_statistics(model), sdpa_kernel(SDPBackend.MATH), plain:
        answers = [
            answer(adapt_parameters(answer, own, x, targets, loss, lr, steps, first_order), asked)
            for x, targets, asked in zip(support, y, queries)
        ]
    return torch.stack(answers)


def prototypes(features: Tensor, y: Tensor, ways: int) -> Tensor:
    """Return the mean of the features (E, M, D) of each of `ways` classes, given y (E, M): (E, ways, D)."""
    chosen = F.one_hot(y, ways).to(features)  # (E, M, ways)
    return chosen.mT @ features / chosen.sum(1)[..., None]


def negative_squared_distances(features: Tensor, centres: Tensor) -> Tensor:
    """Return −‖h − c‖² of features (E, Q, D) and centers (E, K, D): (E, Q, K)."""
    return -(features[:, :, None] - centres[:, None]).square().sum(3)


@contextmanager
def use_batch_statistics(model: nn.Module) -> Iterator[None]:
    """Make batch normalization use batch statistics within the context, in evaluation mode too, and update no
    statistics.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    before = [(norm.training, norm.track_running_stats) for norm in norms]
    try:
        for norm in norms:
            norm.training, norm.track_running_stats = True, False
        yield
    finally:
        for norm, (training, tracks) in zip(norms, before):
            norm.training, norm.track_running_stats = training, tracks
