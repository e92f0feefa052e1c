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
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
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
    """The parameters after `steps` of gradient descent on the support x (M, …) with targets y (M,), at the rate `lr`.

    `answer` gives the outputs (M, K) for parameters and x. The result can be differentiated by `parameters`: through
    the gradients too, unless `first_order`.
    """

    def error(own: Mapping[str, Tensor]) -> Tensor:
        return loss(answer(own, x), y)

    for _ in range(steps):
        with torch.no_grad() if first_order else nullcontext():
            slope = grad(error)(parameters)
        parameters = {name: value - lr * slope[name] for name, value in parameters.items()}
    return parameters


def adapted_answers(
    model: nn.Module, support: Tensor, y: Tensor, queries: Tensor, loss: Loss, lr: float, steps: int, first_order: bool
) -> Tensor:
    """What the model says of the queries (E, Q, …) after learning from each episode's support (E, M, …), y (E, M):
    (E, Q, K). Batch normalization takes the statistics of the running batch, of the queries of an episode as of its
    support; all parameters are adapted, and the model is left as it was."""
    own: dict[str, Tensor] = dict(model.named_parameters())
    if support.is_cuda:  # whose convolutions would copy channels-last, which vmap cannot
        plainly = {"memory_format": torch.contiguous_format}  # a tensor of one channel counts as contiguous either way
        own = {name: value.clone(**plainly) for name, value in own.items()}
        support, queries = support.clone(**plainly), queries.clone(**plainly)

    def answer(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        outputs: Tensor | tuple[Tensor, ...] = functional_call(model, dict(parameters), (x,))
        return outputs if isinstance(outputs, Tensor) else outputs[0]  # those of auxiliary heads come after

    def episode(x: Tensor, y: Tensor, queries: Tensor) -> Tensor:
        return answer(adapted(answer, own, x, y, loss, lr, steps, first_order), queries)

    # Fused attention has no second derivative in PyTorch, nor does autocast know which format a gradient has whose own
    # gradient is taken: numbers stay in that of the weights.
    plain = torch.autocast(support.device.type, enabled=False)
    with statistics_of_the_batch(model), sdpa_kernel(SDPBackend.MATH), plain:
        answers: Tensor = vmap(episode, randomness="different")(support, y, queries)
    return answers


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
