"""Learning from a few examples: what a network makes of queries, given a support of labelled examples.

Model-agnostic meta-learning (C. Finn, P. Abbeel, S. Levine, Model-agnostic meta-learning for fast adaptation of deep
networks, 2017 <https://arxiv.org/abs/1703.03400>), equation 1 and what is below it:

    θ' = θ − α ∇_θ L(f_θ; support), once or several times;   answers f_θ'(queries);   learned: min_θ Σ L(f_θ'; queries)

The gradient of the last line goes through the first, and so takes second derivatives; the first-order form takes
∇_θ L(f_θ; support) for a constant.

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

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (M, K) and targets (M,) to their mean, ()


def adapted(
    answer: Callable[[Mapping[str, Tensor], Tensor], Tensor],
    parameters: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    loss: Loss,
    lr: float,
    steps: int,
    first_order: bool = False,
) -> Mapping[str, Tensor]:
    """Return the parameters after `steps` of gradient descent on the support x (M, …), y (M,), at the rate `lr`.

    `answer` gives the outputs (M, K) for parameters and x. The result can be differentiated by `parameters`: through
    the gradients too, unless `first_order`. All parameters are adapted, frozen ones too.
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
    """Return the same numbers as a tensor of no graph, by which can be differentiated."""
    return p.detach().requires_grad_()


def adapted_answers(
    model: nn.Module, support: Tensor, y: Tensor, queries: Tensor, loss: Loss, lr: float, steps: int, first_order: bool
) -> Tensor:
    """Return the model's outputs (E, Q, K) for the queries (E, Q, …) after learning from each episode's support.

    The support is (E, M, …), y (E, M). Batch normalization takes the statistics of the running batch, of the queries of
    an episode as of its support; all parameters are adapted, and the model is left as it was.

    Episodes are computed one after another: `torch.func.vmap` differentiates layer and batch normalization wrongly a
    second time (PyTorch 2.13 treats the saved mean and deviation as constants).
    """

    def answer(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        outputs: Tensor | tuple[Tensor, ...] = functional_call(model, dict(parameters), (x,))
        return outputs if isinstance(outputs, Tensor) else outputs[0]  # those of auxiliary heads come after

    own = dict(model.named_parameters())
    # Fused attention has no second derivative in PyTorch, nor does autocast know which format a gradient has whose own
    # gradient is taken: numbers stay in that of the weights.
    plain = torch.autocast(support.device.type, enabled=False)
    with statistics_of_the_batch(model), sdpa_kernel(SDPBackend.MATH), plain:
        answers = [
            answer(adapted(answer, own, x, targets, loss, lr, steps, first_order), asked)
            for x, targets, asked in zip(support, y, queries)
        ]
    return torch.stack(answers)


def prototypes(features: Tensor, y: Tensor, ways: int) -> Tensor:
    """The mean of the features (E, M, D) of each of `ways` classes, y (E, M): (E, ways, D)."""
    chosen = F.one_hot(y, ways).to(features)  # (E, M, ways)
    return chosen.mT @ features / chosen.sum(1)[..., None]


def nearness(features: Tensor, centres: Tensor) -> Tensor:
    """−‖h − c‖² of each of the features (E, Q, D) to each of the centres (E, K, D): (E, Q, K)."""
    return -(features[:, :, None] - centres[:, None]).square().sum(3)


@contextmanager
def statistics_of_the_batch(model: nn.Module) -> Iterator[None]:
    """Within it batch normalization takes mean and variance of the batch, in evaluation too, and remembers neither."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    before = [(norm.training, norm.track_running_stats) for norm in norms]
    try:
        for norm in norms:
            norm.training, norm.track_running_stats = True, False
        yield
    finally:
        for norm, (training, tracks) in zip(norms, before):
            norm.training, norm.track_running_stats = training, tracks
