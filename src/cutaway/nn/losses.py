"""Losses: how far the raw outputs of a network are from what they should be.

Every loss gives one value an example, (N,), and is normalised over nothing: whoever sums them divides by
what was counted (`counted` for classes with weights). Outputs are raw, before any sigmoid or softmax, so
that no logarithm of a rounded probability is taken: log-sum-exp keeps every value finite at any finite
output. The formulas are computed by PyTorch's fused functions. Targets are classes (N,), probabilities of classes
(N, K), or values (N,) or (N, D).

`linear_cross_entropy` is for outputs too many to hold, a vocabulary's for each token: it takes what the last layer
sees and that layer's weights instead of outputs, and gives the sum over the examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..core.errors import SettingError

TILE = 64  # numbers
RUBBISH = 20.0  # j of the MAP criterion, a squared distance: the paper asks for a positive constant and names none


def half_squared_error(outputs: Tensor, target: Tensor) -> Tensor:
    """½ Σ_d (y_d − t_d)², (N, D) or (N,) to (N,): its gradient in y is y − t."""
    return _squared_error(outputs, target).sum(1) / 2


def mse(outputs: Tensor, target: Tensor) -> Tensor:
    """Mean squared error, 1/D Σ_d (y_d − t_d)², (N, D) or (N,) to (N,)."""
    return _squared_error(outputs, target).mean(1)


def cross_entropy(
    outputs: Tensor,
    target: Tensor,
    *,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    reduction: str = "none",
) -> Tensor:
    """−Σ_k w_k q_k log softmax(z)_k, from logits (N, K); of one column (N, 1) `binary_cross_entropy`.

    q is the target: 1 at the class of a target (N,), or the probabilities of a target (N, K). Smoothing ε makes it
    (1 − ε) q + ε/K (C. Szegedy et al., 2016, section 7). `class_weights` w is (K,). Returns (N,); with
    `reduction="sum"` their sum, (), for which the fused function makes no second pass.
    """
    if outputs.shape[1] == 1:
        each = binary_cross_entropy(outputs, target, label_smoothing=label_smoothing, class_weights=class_weights)
        return each.sum() if reduction == "sum" else each
    if target.is_floating_point():
        target = target.to(outputs.dtype)
    return F.cross_entropy(outputs, target, weight=class_weights, label_smoothing=label_smoothing, reduction=reduction)


def dice(outputs: Tensor, target: Tensor, ignored: int) -> Tensor:
    """1 − mean_k 2 Σ p_k t_k / (Σ p_k + Σ t_k) over the classes k that the target has, sums over all pixels of a batch.

    After F. Milletari, N. Navab, S.-A. Ahmadi, V-Net, 2016, whose denominators are sums of squares: without squares as
    C. H. Sudre et al., 2017. From logits (N, K, H, W) and classes (N, H, W) int64, `ignored` where none is known; p is
    the softmax, t one where k is the class and zero elsewhere. Gives one number for the batch, ().
    """
    real = target != ignored
    p = outputs.softmax(1) * real[:, None]  # (N, K, H, W)
    t = F.one_hot(target.where(real, 0), outputs.shape[1]).movedim(-1, 1) * real[:, None]
    axes = (0, 2, 3)
    there = t.sum(axes)  # (K,)
    overlap = 2 * (p * t).sum(axes) / (p.sum(axes) + there).clamp(min=1)
    return 1 - overlap[there > 0].mean() if bool(real.any()) else outputs.sum() * 0


def binary_cross_entropy(
    outputs: Tensor, target: Tensor, *, label_smoothing: float = 0.0, class_weights: Tensor | None = None
) -> Tensor:
    """−w₁ t log σ(z) − w₀ (1 − t) log(1 − σ(z)), from the one logit z of class 1 against class 0, (N, 1).

    It is the cross-entropy of the two logits (0, z). t is the class 0 or 1, or of probabilities (N, 2) the second
    one; smoothing ε makes it (1 − ε) t + ε/2. `class_weights` (w₀, w₁) is (2,). Returns (N,).
    """
    z = outputs[:, 0]
    t = (target[:, 1] if target.dim() == 2 else target).to(z.dtype)  # (N,)
    t = (1 - label_smoothing) * t + label_smoothing / 2
    if class_weights is None:
        return F.binary_cross_entropy_with_logits(z, t, reduction="none")
    w0, w1 = class_weights.to(z.dtype)
    losses: Tensor = -w1 * t * F.logsigmoid(z) - w0 * (1 - t) * F.logsigmoid(-z)
    return losses


def of_both(outputs: Tensor) -> Tensor:
    """The logits of both classes, (N, 2), where the outputs are the one of class 1 against class 0, (N, 1); of more
    classes the outputs (N, K) as they are."""
    return torch.cat([torch.zeros_like(outputs), outputs], 1) if outputs.shape[1] == 1 else outputs


def distillation(outputs: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL( softmax(v / T) ‖ softmax(z / T) ), from logits z (N, K) and those of the teacher v (N, K), to (N,).

    G. Hinton, O. Vinyals, J. Dean, Distilling the knowledge in a neural network, 2015, section 2
    <https://arxiv.org/abs/1503.02531>. Its gradient in z is T (softmax(z / T) − softmax(v / T)): for a large T that of
    ½ Σ_k (z_k − v_k)² / K with logits centred, each row's mean 0 (section 2.1).
    """
    log_q, log_p = (outputs / temperature).log_softmax(1), (teacher / temperature).log_softmax(1)
    return temperature**2 * F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(1)


def nt_xent(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Normalized temperature-scaled cross-entropy of two views of each example, (N, D) each, to (N,): the mean of

        ℓ(i, j) = −log( exp(s_ij / τ) / Σ_{k ≠ i} exp(s_ik / τ) ),   s the cosine similarity of two of the 2N views,

    from either view i of an example to its other one j. T. Chen, S. Kornblith, M. Norouzi, G. Hinton, A simple
    framework for contrastive learning of visual representations, 2020, equation 1 <https://arxiv.org/abs/2002.05709>.
    """
    n = len(one)
    z = F.normalize(torch.cat([one, other]), dim=1)  # (2N, D)
    similarity = (z @ z.T / temperature).fill_diagonal_(-torch.inf)  # (2N, 2N): none is compared with itself
    partner = torch.arange(2 * n, device=z.device).roll(n)  # (2N,)
    return F.cross_entropy(similarity, partner, reduction="none").view(2, n).mean(0)


def focal(outputs: Tensor, target: Tensor, *, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """−α_t (1 − p_t)^γ log p_t of each logit, p_t = σ(z) where the target is 1 and 1 − σ(z) where it is 0; α_t is α or
    1 − α likewise. Of any shape, target 0 or 1; one value for each. γ = 2 and α = ¼ are the paper's: T.-Y. Lin et al.,
    Focal loss for dense object detection, 2017 <https://arxiv.org/abs/1708.02002>, equation 5.
    """
    entropy = F.binary_cross_entropy_with_logits(outputs, target, reduction="none")  # −log p_t
    p = outputs.sigmoid()
    missed = p * (1 - target) + (1 - p) * target  # 1 − p_t
    return (alpha * target + (1 - alpha) * (1 - target)) * missed**gamma * entropy


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    label_smoothing: float = 0.0,
    chunk: int = 256,
) -> Tensor:
    """Σ_n of `cross_entropy` at the logits W x_n + b, (), without holding those of more than `chunk` examples.

    `features` x (N, D), `weight` W (K, D), `bias` b (K,), `target` (N,) classes. A chunk's logits give its loss and,
    at once, its part of every gradient, (p − q) Wᵀ for x and (p − q)ᵀ x for W, p their softmax and q the target with
    its smoothing: nothing is computed twice, and beside the gradients only (chunk, K) numbers are held. Within
    autocast products are made in its number format, and W's gradient is added up in W's own.

    PyTorch's `linear_cross_entropy` has chunks too, from 2.13 on: it takes as long, but it knows no smoothing, does
    not follow autocast, and adds up W's gradient in the format of the products. Gradients can be taken once, and not
    of gradients.
    """
    found: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        features, weight, bias, target, label_smoothing, chunk, torch.is_grad_enabled()
    )
    return found


class _LinearCrossEntropy(torch.autograd.Function):
    """The loss, and in the same pass its gradients, which going backward only multiplies."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        label_smoothing: float,
        chunk: int,
        learns: bool,
    ) -> Tensor:
        """The loss; the gradients of features, weight and bias are kept, of those that learn."""
        ctx.set_materialize_grads(False)
        of_x, of_w, of_b = (learns and needed for needed in ctx.needs_input_grad[:3])
        device = features.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else features.dtype
        w, exact = weight.to(dtype), torch.promote_types(dtype, torch.float32)
        # A GPU multiplies matrices fast whose sides its tiles divide: there K' ≥ K logits are held, the last ones of no
        # class. Of 50 257 the whole training step of a GPT-2 takes a third less time.
        classes, beyond = len(weight), -len(weight) % TILE if features.is_cuda else 0
        w = F.pad(w, (0, 0, 0, beyond)) if beyond else w  # (K', D)
        dx = torch.empty_like(features) if of_x else None
        dw = weight.new_zeros(w.shape) if of_w else None
        db = torch.zeros_like(bias) if of_b and bias is not None else None
        loss = features.new_zeros((), dtype=exact)
        # One buffer for every chunk: to ask the system for so much memory again and again costs more than a product.
        products = features.new_empty(min(chunk, len(features)), len(w), dtype=dtype)  # (chunk, K')
        for start in range(0, len(features), chunk):
            x, t = features[start : start + chunk].to(dtype), target[start : start + chunk, None]  # (n, D), (n, 1)
            z = torch.mm(x, w.T, out=products[: len(x)])  # (n, K')
            z[:, classes:] = -math.inf
            if dtype != exact and bias is None and not label_smoothing:
                # A GPU waits each time that so many numbers are read and written: here three times, below ten.
                log_p = torch.log_softmax(z, 1, dtype=exact)
                right = log_p.gather(1, t)
                loss -= right.sum()
                if not (of_x or of_w):
                    continue
                error = torch.exp(log_p, out=z).scatter_(1, t, right.expm1().to(dtype))  # p − q
            else:
                z = z.to(exact)
                known = z[:, :classes]
                if bias is not None:
                    known += bias
                right = known.gather(1, t)
                if label_smoothing:
                    right = torch.lerp(right, known.mean(1, keepdim=True), label_smoothing)  # Σ_k q_k z_k
                top = z.amax(1, keepdim=True)
                total = z.sub_(top).exp_().sum(1, keepdim=True)
                loss += (top + total.log() - right).sum()
                if not (of_x or of_w or of_b):
                    continue
                z.div_(total).scatter_add_(1, t, z.new_full(t.shape, label_smoothing - 1))
                if label_smoothing:
                    known -= label_smoothing / classes
                if db is not None:
                    db += known.sum(0)
                error = z.to(dtype)  # p − q
            if dx is not None:
                dx[start : start + chunk] = error @ w
            if dw is not None and dw.dtype == dtype:
                dw.addmm_(error.T, x)
            elif dw is not None:
                dw += error.T @ x
        if dw is not None and beyond:  # else it is what autograd takes for the gradient, and a part is what it copies
            dw = dw[:classes]
        ctx.save_for_backward(dx, dw, db)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients times that of the loss, in place: to go back a second time is rejected by PyTorch."""
        return *(d.mul_(slope) if d is not None else None for d in ctx.saved_tensors), None, None, None, None


def perceptron(outputs: Tensor, target: Tensor) -> Tensor:
    """The perceptron criterion Σ_k max(0, −y_k z_k), from scores (N, 1) of class 1, or (N, K) of each class.

    y is +1 where the score's class is the target (N,), −1 elsewhere. y z ≤ 0 is a mistake, so that a score
    of exactly 0 is one: the gradient in z is −y there, 0 elsewhere. One step of rate 1 on one example is
    then Rosenblatt's rule, w ← w + y x at a mistake. K columns are K perceptrons, each its class against the
    rest. Returns (N,).
    """
    _reject_shares("perceptron", target)
    if outputs.shape[1] == 1:
        is_class = target[:, None] == 1  # (N, 1)
    else:
        is_class = F.one_hot(target, outputs.shape[1]).bool()  # (N, K)
    margin = torch.where(is_class, outputs, -outputs)  # y z
    # where(), not relu: the subgradient of relu at 0 is 0, and zero weights would never move.
    return torch.where(margin > 0, 0.0, -margin).sum(1)


def map_criterion(outputs: Tensor, target: Tensor, *, rubbish: float = RUBBISH) -> Tensor:
    """LeNet-5's maximum a posteriori criterion, y_D + log(e^{−j} + Σ_i e^{−y_i}), from outputs −y (N, K).

    y_i ≥ 0 is the squared distance to the code of class i (the outputs are −y: larger is better), D the
    target (N,), and j (`rubbish`) the distance of a class that stands for everything else (LeCun et al.,
    1998, equation 9). The first term pulls the right code near; the second pushes the others away, and less
    so the farther beyond j they are. It is the cross-entropy of the K + 1 logits (−y, −j). Returns (N,).
    """
    _reject_shares("map", target)
    return F.cross_entropy(F.pad(outputs, (0, 1), value=-rubbish), target, reduction="none")


def counted(target: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """What each example counts in a mean, (N,): 1, or the weight of its class; of probabilities their weighted sum.

    Σ cross_entropy / Σ counted is `torch.nn.functional.cross_entropy(weight=...)` for classes (N,). For
    probabilities (N, K) that function divides by N; this gives one-hot probabilities and the classes they stand for the
    same mean.
    """
    if class_weights is None:
        return torch.ones(len(target), device=target.device)
    return target @ class_weights.to(target.dtype) if target.is_floating_point() else class_weights[target]


LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": cross_entropy,
    "perceptron": perceptron,
    "map": map_criterion,
    "mse": mse,
    "half_squared_error": half_squared_error,
}


def _squared_error(outputs: Tensor, target: Tensor) -> Tensor:
    """(N, D). Outputs and targets that do not pair one to one are rejected: subtraction would broadcast."""
    y, t = outputs.reshape(len(outputs), -1), target.reshape(len(target), -1)  # (N, D)
    if y.shape != t.shape:
        raise ValueError(f"outputs {tuple(outputs.shape)} and target {tuple(target.shape)} do not pair one to one")
    return F.mse_loss(y, t.to(y.dtype), reduction="none")


def _reject_shares(name: str, target: Tensor) -> None:
    if target.is_floating_point():
        raise SettingError(
            f"loss={name} takes one class an example, and these targets are mixed of several, as mixup makes "
            "them: leave mixup out, or take loss=cross_entropy."
        )
