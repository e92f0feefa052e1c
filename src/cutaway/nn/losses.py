"""Loss functions of the raw outputs of a network, and likelihoods.

Losses of classes and values return one value per example, (N,), without normalization; `dice` is of a batch, `focal` of
each logit. The caller sums them and divides by the count, with class weights by the sum of `example_weights`. Outputs
are raw, before any sigmoid or softmax, so that no logarithm of a rounded probability is taken: log-sum-exp keeps every
value finite for any finite output. The formulas are computed by PyTorch's fused functions. Targets are classes (N,),
class probabilities (N, K), or values (N,) or (N, D).

`linear_cross_entropy` is for outputs that are too large to store, such as a vocabulary for each token. It takes the
inputs and weights of the last layer instead of outputs, and returns the sum over the examples.

Connectionist temporal classification: the probability of a text without an alignment of characters to frames.

A. Graves, S. Fernández, F. Gomez, J. Schmidhuber, Connectionist temporal classification: labelling unsegmented
sequence data with recurrent neural networks, ICML 2006. <https://doi.org/10.1145/1143844.1143891>

At each of T frames the network outputs y_t(k), the probability of each token k, one of which is the blank. A path π is
one token per frame. B(π) is the text of a path: repeated tokens are merged, then blanks are removed, so that a double
letter needs a blank in between. The probability of a text l is the sum over all paths with that text:

    p(l | x) = Σ_{π: B(π) = l}  Π_t y_t(π_t)

There are too many paths to enumerate. With l' = (blank, l_1, blank, l_2, …, blank) of 2 |l| + 1 states, α_t(s) is the
probability of all prefixes that are in state s after frame t, and β_t(s) that of all suffixes that can follow:

    α_t(s) = y_t(l'_s) (α_{t−1}(s) + α_{t−1}(s − 1) + [l'_s ≠ blank, l'_s ≠ l'_{s−2}] α_{t−1}(s − 2))
    β_t(s) = Σ_{s'} β_{t+1}(s') y_{t+1}(l'_{s'}),     s' = s, s + 1 and, under the same condition, s + 2
    p(l | x) = Σ_s α_t(s) β_t(s)     at any t
    ∂(−log p)/∂z_t(k) = y_t(k) − Σ_{s: l'_s = k} α_t(s) β_t(s) / p(l | x)

z are the logits, y = softmax(z). All computations use logarithms. The paper's β includes the factor y_t(l'_s) too.

Training uses the fused `F.ctc_loss`. The textbook functions below take one sequence. They serve the alignment view and
the tests, which compare them with the fused loss.

Normal distributions: divergence, density, and the probability of a quantized value, all in nats.

    KL(N(μ₁, σ₁²) ‖ N(μ₂, σ₂²)) = ln(σ₂/σ₁) + (σ₁² + (μ₁ − μ₂)²) / (2 σ₂²) − ½
    ln N(x; μ, σ²)              = −½ (ln 2π + ln σ² + (x − μ)²/σ²)
    ln P(x)                     = ln (Φ((x + δ/2 − μ)/σ) − Φ((x − δ/2 − μ)/σ))

The last is for a value rounded to levels that are δ apart. It integrates the density over all values that are rounded
to x. Values below the lowest level belong to the lowest, values above the highest to the highest (J. Ho, A. Jain,
P. Abbeel, 2020, equation 13, <https://arxiv.org/abs/2006.11239>). Unlike a density it is a probability, so its −log₂ is
a number of bits.

Fisher information: the importance of each weight for the network's predictions.

    F_i = E_x E_{y ~ p(y|x)} [ (∂ log p(y|x) / ∂θ_i)² ]

This is the diagonal of the Fisher information matrix, as in J. Martens, New insights and perspectives on the natural
gradient method, 2014, section 5 <https://arxiv.org/abs/1412.1193>. The expectation over y uses the network's own
predictions and is computed exactly, over all classes. Labels are not used (with them it would be the "empirical"
Fisher).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..core.errors import IncompatibleSettingError

TILE = 64  # numbers
RUBBISH = 20.0  # j of the MAP criterion, a squared distance: the paper requires a positive constant and gives no value


def half_squared_error(outputs: Tensor, target: Tensor) -> Tensor:
    """Return ½ Σ_d (y_d − t_d)². Its gradient in y is y − t.

    Args:
        outputs: Outputs y, shape (N, D) or (N,).
        target: Targets t, of the same shape.

    Returns:
        The loss of each example, shape (N,).

    Raises:
        ValueError: If outputs and target have different numbers of examples or of values per example.

    Example:
        >>> half_squared_error(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.0, 4.0, 3.0]]))
        tensor([2.5000])
    """
    return _squared_error(outputs, target).sum(1) / 2


def mse(outputs: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared error 1/D Σ_d (y_d − t_d)².

    Args:
        outputs: Outputs y, shape (N, D) or (N,).
        target: Targets t, of the same shape.

    Returns:
        The loss of each example, shape (N,).

    Raises:
        ValueError: If outputs and target have different numbers of examples or of values per example.

    Example:
        >>> outputs, target = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [0.0, 1.0]])
        >>> mse(outputs, target)
        tensor([2.5000, 0.5000])
        >>> mse(outputs, target).mean()  # as torch.nn.functional.mse_loss
        tensor(1.5000)
    """
    return _squared_error(outputs, target).mean(1)


def cross_entropy(
    outputs: Tensor,
    target: Tensor,
    *,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    reduction: str = "none",
) -> Tensor:
    """Return the cross-entropy −Σ_k w_k q_k log softmax(z)_k.

    One column (N, 1) is passed to `binary_cross_entropy`. q is 1 at the class of a target (N,), or the probabilities of
    a target (N, K). Smoothing ε changes it to (1 − ε) q + ε/K (C. Szegedy et al., 2016, section 7).

    Args:
        outputs: Logits z, shape (N, K) or (N, 1).
        target: Classes (N,), int64, or probabilities (N, K).
        label_smoothing: ε, from 0 (none) to 1.
        class_weights: Weights w of the classes, shape (K,), or (2,) for one column; None weights all classes equally.
        reduction: "none", or "sum" for the sum, for which the fused function needs no second pass.

    Returns:
        The loss of each example, shape (N,), or the sum, shape (). Neither is divided by the weights; `example_weights`
        returns the divisor of a weighted mean.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
        >>> cross_entropy(logits, torch.tensor([0, 2]))
        tensor([0.2395, 1.0986])
        >>> cross_entropy(logits, torch.tensor([0, 2]), label_smoothing=0.3)
        tensor([0.6395, 1.0986])
        >>> cross_entropy(torch.tensor([[2.0]]), torch.tensor([1]))  # the logit of class 1 against class 0
        tensor([0.1269])
    """
    if outputs.shape[1] == 1:
        each = binary_cross_entropy(outputs, target, label_smoothing=label_smoothing, class_weights=class_weights)
        return each.sum() if reduction == "sum" else each
    if target.is_floating_point():
        target = target.to(outputs.dtype)
    return F.cross_entropy(outputs, target, weight=class_weights, label_smoothing=label_smoothing, reduction=reduction)


def dice(outputs: Tensor, target: Tensor, ignored: int) -> Tensor:
    """Return the Dice loss 1 − mean_k 2 Σ p_k t_k / (Σ p_k + Σ t_k).

    The mean is over the classes k that occur in the target, the sums over all pixels of a batch. After F. Milletari, N.
    Navab, S.-A. Ahmadi, V-Net, 2016, whose denominators are sums of squares; without squares as in C. H. Sudre et al.,
    2017. p is the softmax, t is 1 where k is the class and 0 elsewhere.

    Args:
        outputs: Logits, shape (N, K, H, W).
        target: Classes, shape (N, H, W), int64.
        ignored: Value in `target` of pixels without a class. They do not count.

    Returns:
        The loss of the batch, shape (), from 0 to 1; 0 if no pixel has a class.

    Example:
        >>> target = torch.tensor([[[0, 0], [1, 255]]])  # (1, 2, 2); one pixel has no class
        >>> dice(torch.zeros(1, 2, 2, 2), target, ignored=255)
        tensor(0.5143)
        >>> perfect = torch.tensor([[[[9.0, 9.0], [-9.0, 0.0]], [[-9.0, -9.0], [9.0, 0.0]]]])
        >>> bool(dice(perfect, target, ignored=255) < 1e-6)
        True
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
    """Return −w₁ t log σ(z) − w₀ (1 − t) log(1 − σ(z)).

    z is the logit of class 1 against class 0. The loss equals the cross-entropy of the two logits (0, z). t is the
    class 0 or 1, or the second column of probabilities (N, 2). Smoothing ε changes it to (1 − ε) t + ε/2.

    Args:
        outputs: Logits z, shape (N, 1).
        target: Classes (N,) or probabilities (N, 2).
        label_smoothing: ε, from 0 (none) to 1.
        class_weights: (w₀, w₁), shape (2,); None weights both classes equally.

    Returns:
        The loss of each example, shape (N,).

    Example:
        >>> z = torch.tensor([[2.0], [2.0]])
        >>> binary_cross_entropy(z, torch.tensor([1, 0]))
        tensor([0.1269, 2.1269])
        >>> binary_cross_entropy(z, torch.tensor([1, 0]), class_weights=torch.tensor([1.0, 3.0]))
        tensor([0.3808, 2.1269])
    """
    z = outputs[:, 0]
    t = (target[:, 1] if target.dim() == 2 else target).to(z.dtype)  # (N,)
    t = (1 - label_smoothing) * t + label_smoothing / 2
    if class_weights is None:
        return F.binary_cross_entropy_with_logits(z, t, reduction="none")
    w0, w1 = class_weights.to(z.dtype)
    losses: Tensor = -w1 * t * F.logsigmoid(z) - w0 * (1 - t) * F.logsigmoid(-z)
    return losses


def expand_binary_logits(outputs: Tensor) -> Tensor:
    """Expand the single logit of two classes (N, 1) to the logits of both, (0, z). Their softmax is (1 − σ(z), σ(z)).

    Args:
        outputs: Logits, shape (N, 1) or (N, K).

    Returns:
        Logits (N, 2) of (N, 1), else the outputs unchanged.

    Example:
        >>> expand_binary_logits(torch.tensor([[2.0], [-1.0]]))
        tensor([[ 0.,  2.],
                [ 0., -1.]])
    """
    return torch.cat([torch.zeros_like(outputs), outputs], 1) if outputs.shape[1] == 1 else outputs


def distillation(outputs: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the distillation loss T² KL( softmax(v / T) ‖ softmax(z / T) ).

    G. Hinton, O. Vinyals, J. Dean, Distilling the knowledge in a neural network, 2015, section 2
    <https://arxiv.org/abs/1503.02531>. Its gradient in z is T (softmax(z / T) − softmax(v / T)). For large T this is
    the gradient of ½ Σ_k (z_k − v_k)² / K with centered logits, where each row has mean 0 (section 2.1).

    Args:
        outputs: Logits z of the student, shape (N, K).
        teacher: Logits v of the teacher, shape (N, K).
        temperature: T, above 0. A higher temperature makes both distributions more even.

    Returns:
        The loss of each example, shape (N,), in nats; 0 where student and teacher agree.

    Example:
        >>> student, teacher = torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> distillation(student, teacher, temperature=2.0)
        tensor([0.1212, 0.0000])
    """
    log_q, log_p = (outputs / temperature).log_softmax(1), (teacher / temperature).log_softmax(1)
    return temperature**2 * F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(1)


def nt_xent(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Return the normalized temperature-scaled cross-entropy of two views of each example.

    It is the mean over both views i of an example, with j the other view, of

        ℓ(i, j) = −log( exp(s_ij / τ) / Σ_{k ≠ i} exp(s_ik / τ) ),   s the cosine similarity of two of the 2N views

    T. Chen, S. Kornblith, M. Norouzi, G. Hinton, A simple framework for contrastive learning of visual representations,
    2020, equation 1 <https://arxiv.org/abs/2002.05709>.

    Args:
        one: Embeddings of the first views, shape (N, D). Their lengths do not matter.
        other: Embeddings of the second views, in the same order, shape (N, D).
        temperature: τ, above 0. A lower temperature gives similar views of other examples more weight.

    Returns:
        The loss of each example, shape (N,).

    Example:
        >>> one = torch.eye(3)
        >>> nt_xent(one, one, temperature=0.5).round(decimals=2)  # both views are equal, all others orthogonal
        tensor([0.4300, 0.4300, 0.4300])
        >>> nt_xent(one, one.roll(1, 0), temperature=0.5).round(decimals=2)  # each equals a view of another example
        tensor([2.4300, 2.4300, 2.4300])
    """
    n = len(one)
    z = F.normalize(torch.cat([one, other]), dim=1)  # (2N, D)
    similarity = (z @ z.T / temperature).fill_diagonal_(-torch.inf)  # (2N, 2N): no view is compared with itself
    partner = torch.arange(2 * n, device=z.device).roll(n)  # (2N,)
    return F.cross_entropy(similarity, partner, reduction="none").view(2, n).mean(0)


def focal(outputs: Tensor, target: Tensor, *, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """Return the focal loss −α_t (1 − p_t)^γ log p_t of each logit.

    p_t is σ(z) where the target is 1 and 1 − σ(z) where it is 0; α_t is α or 1 − α accordingly. γ = 2 and α = ¼ are the
    values of T.-Y. Lin et al., Focal loss for dense object detection, 2017 <https://arxiv.org/abs/1708.02002>, equation
    5.

    Args:
        outputs: Logits z, any shape.
        target: 0.0 or 1.0, floating point, of the same shape.
        alpha: Weight α of targets 1; targets 0 have 1 − α.
        gamma: Exponent γ. With 0 the loss is the weighted binary cross-entropy.

    Returns:
        The loss of each logit, of the shape of `outputs`.

    Example:
        >>> z, target = torch.tensor([0.0, 3.0]), torch.tensor([1.0, 1.0])
        >>> hard, easy = focal(z, target)
        >>> round(float(hard / easy))  # with gamma=0 it is 14: the loss is that of hard examples
        1586
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
    """Return the summed `cross_entropy` at the logits W x_n + b, computed in chunks of examples.

    The logits of a chunk give its loss and at once its part of every gradient, (p − q) Wᵀ for x and (p − q)ᵀ x for W. p
    is the softmax and q the target with smoothing. Nothing is computed twice, and in addition to the gradients only
    (chunk, K) numbers are stored. Under autocast, products use its format, and W's gradient is accumulated in W's own
    format.

    PyTorch's `linear_cross_entropy` supports chunks too, from 2.13 on. It takes the same time and about three times the
    memory (149 MiB instead of 48 for 1 024 × 256 features and 32 000 classes on a CPU). With smoothing it stores all
    logits; it ignores autocast, and accumulates W's gradient in the format of the products. Gradients can be computed
    once; second-order gradients are not supported.

    Args:
        features: Inputs x of the last layer, shape (N, D).
        weight: Weights W of the last layer, shape (K, D).
        bias: Bias b of the last layer, shape (K,), or None.
        target: Classes, shape (N,), int64.
        label_smoothing: Smoothing ε, from 0 (none) to 1.
        chunk: Largest number of examples whose logits are stored at a time. It changes the memory, not the result.

    Returns:
        The sum of the losses, shape ().

    Example:
        >>> features, head = torch.randn(1000, 16), torch.nn.Linear(16, 50)
        >>> target = torch.randint(50, (1000,))
        >>> loss = linear_cross_entropy(features, head.weight, head.bias, target, chunk=100)
        >>> bool(torch.isclose(loss, cross_entropy(head(features), target).sum()))
        True
    """
    found: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        features, weight, bias, target, label_smoothing, chunk, torch.is_grad_enabled()
    )
    return found


class _LinearCrossEntropy(torch.autograd.Function):
    """The loss with gradients computed in the forward pass; the backward pass only scales them."""

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
        """Compute the loss, and save the gradients of features, weight and bias where they are needed."""
        ctx.set_materialize_grads(False)
        of_x, of_w, of_b = (learns and needed for needed in ctx.needs_input_grad[:3])
        device = features.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else features.dtype
        w, exact = weight.to(dtype), torch.promote_types(dtype, torch.float32)
        # GPU matrix products are fast when the tile size divides the sides. K is therefore padded to K' ≥ K logits on a
        # GPU. With 50 257 classes, a whole training step of GPT-2 takes a third less time.
        classes, beyond = len(weight), -len(weight) % TILE if features.is_cuda else 0
        w = F.pad(w, (0, 0, 0, beyond)) if beyond else w  # (K', D)
        dx = torch.empty_like(features) if of_x else None
        dw = weight.new_zeros(w.shape) if of_w else None
        db = torch.zeros_like(bias) if of_b and bias is not None else None
        loss = features.new_zeros((), dtype=exact)
        # One buffer for all chunks: repeated allocation of that much memory costs more than a product.
        products = features.new_empty(min(chunk, len(features)), len(w), dtype=dtype)  # (chunk, K')
        for start in range(0, len(features), chunk):
            x, t = features[start : start + chunk].to(dtype), target[start : start + chunk, None]  # (n, D), (n, 1)
            z = torch.mm(x, w.T, out=products[: len(x)])  # (n, K')
            z[:, classes:] = -math.inf
            if dtype != exact and bias is None and not label_smoothing:
                # Memory traffic dominates on a GPU: this branch reads and writes the logits three times, the other ten
                # times.
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
        if dw is not None and beyond:  # only then: autograd takes over a whole tensor, but copies a slice
            dw = dw[:classes]
        ctx.save_for_backward(dx, dw, db)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Multiply the gradients by that of the loss in place; PyTorch rejects a second backward pass."""
        return *(d.mul_(slope) if d is not None else None for d in ctx.saved_tensors), None, None, None, None


def perceptron(outputs: Tensor, target: Tensor) -> Tensor:
    """Return the perceptron criterion Σ_k max(0, −y_k z_k).

    y is +1 where the score's class is the target, −1 elsewhere. y z ≤ 0 is a mistake, so a score of exactly 0 is one
    too: the gradient in z is −y at a mistake, 0 elsewhere. One step of rate 1 on one example is then Rosenblatt's rule,
    w ← w + y x at a mistake. K columns are K perceptrons, each for its class against the rest.

    Args:
        outputs: Scores z, shape (N, 1) of class 1, or (N, K) of each class.
        target: Classes, shape (N,), int64.

    Returns:
        The loss of each example, shape (N,).

    Raises:
        IncompatibleSettingError: If the targets are probabilities.

    Example:
        >>> scores = torch.tensor([[0.5], [0.5]], requires_grad=True)
        >>> loss = perceptron(scores, torch.tensor([1, 0]))  # the second prediction is wrong
        >>> loss.tolist()
        [0.0, 0.5]
        >>> loss.sum().backward()
        >>> scores.grad.flatten().int().tolist()
        [0, 1]
    """
    _reject_shares("perceptron", target)
    if outputs.shape[1] == 1:
        is_class = target[:, None] == 1  # (N, 1)
    else:
        is_class = F.one_hot(target, outputs.shape[1]).bool()  # (N, K)
    margin = torch.where(is_class, outputs, -outputs)  # y z
    # where() instead of relu: the subgradient of relu at 0 is 0, and zero weights would never change.
    return torch.where(margin > 0, 0.0, -margin).sum(1)


def map_criterion(outputs: Tensor, target: Tensor, *, rubbish: float = RUBBISH) -> Tensor:
    """Return the maximum a posteriori criterion of LeNet-5, y_D + log(e^{−j} + Σ_i e^{−y_i}).

    y_i ≥ 0 is the squared distance to the code of class i, D the target, and j the distance of a class for everything
    else (LeCun et al., 1998, equation 9). The first term pulls the correct code closer. The second pushes the others
    away, with less force the farther they are beyond j. It is the cross-entropy of the K + 1 logits (−y, −j).

    Args:
        outputs: −y, shape (N, K): larger is better.
        target: Classes, shape (N,), int64.
        rubbish: j, above 0. The paper gives no value; the default is Cutaway's choice.

    Returns:
        The loss of each example, shape (N,).

    Raises:
        IncompatibleSettingError: If the targets are probabilities.

    Example:
        >>> outputs = torch.tensor([[-1.0, -50.0], [-50.0, -50.0]])  # the second example is far from both codes
        >>> map_criterion(outputs, torch.tensor([1, 1]))
        tensor([49., 30.])
    """
    _reject_shares("map", target)
    return F.cross_entropy(F.pad(outputs, (0, 1), value=-rubbish), target, reduction="none")


def example_weights(target: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Return the weight of each example in a mean: 1, or the weight of its class.

    For probabilities it is their weighted sum. Σ cross_entropy / Σ example_weights equals
    `torch.nn.functional.cross_entropy(weight=...)` for classes (N,). For probabilities (N, K) that function divides by
    N; this definition gives one-hot probabilities and the equivalent classes the same mean.

    Args:
        target: Classes (N,), int64, or probabilities (N, K).
        class_weights: Weights, shape (K,); None weights every example 1.

    Returns:
        The weight of each example, shape (N,).

    Example:
        >>> logits, target, w = torch.randn(4, 2), torch.tensor([0, 1, 1, 0]), torch.tensor([1.0, 3.0])
        >>> example_weights(target, w)
        tensor([1., 3., 3., 1.])
        >>> mean = cross_entropy(logits, target, class_weights=w).sum() / example_weights(target, w).sum()
        >>> bool(torch.isclose(mean, torch.nn.functional.cross_entropy(logits, target, weight=w)))
        True
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
    """Return the squared errors, (N, D). Shapes that differ are rejected, because subtraction would broadcast."""
    y, t = outputs.reshape(len(outputs), -1), target.reshape(len(target), -1)  # (N, D)
    if y.shape != t.shape:
        raise ValueError(f"outputs {tuple(outputs.shape)} and target {tuple(target.shape)} do not pair one to one")
    return F.mse_loss(y, t.to(y.dtype), reduction="none")


def _reject_shares(name: str, target: Tensor) -> None:
    if target.is_floating_point():
        raise IncompatibleSettingError(
            f"loss={name} needs one class for each example, and mixup blends classes: leave mixup out, or use "
            "loss=cross_entropy."
        )


BLANK = 0  # token of the blank
# Logit of every token but the blank in padding. e^x is 0 in every precision, but unlike −∞ it has gradients.
SILENT = -1e4


def ctc_loss(log_probs: Tensor, target: Tensor, lengths: Tensor, blank: int = BLANK) -> Tensor:
    """Return −log p(l | x) of each sequence, with PyTorch's fused function.

    All T frames count, also those of padding, in which the blank should have the probability 1.

    Args:
        log_probs: Log probabilities of the K tokens at each frame, shape (N, T, K).
        target: Tokens of the texts, padded on the right with any token, shape (N, S), int64.
        lengths: Number of tokens of each text, shape (N,), int64.
        blank: Token of the blank.

    Returns:
        The loss of each sequence, shape (N,), in nats; +∞ where there are too few frames for the text
        (`frames_needed`).

    Example:
        >>> log_probs = torch.full((2, 3, 3), 1 / 3).log()  # 3 frames, each token with probability 1/3
        >>> target = torch.tensor([[1, 2], [1, 1]])
        >>> p = torch.exp(-ctc_loss(log_probs, target, lengths=torch.tensor([2, 2])))
        >>> (27 * p).round().tolist()  # of 27 paths, 5 have the text (1, 2) and one has (1, 1)
        [5.0, 1.0]
    """
    frames = torch.full((len(log_probs),), log_probs.shape[1])
    return F.ctc_loss(
        log_probs.transpose(0, 1), target, frames, lengths.cpu(), blank=blank, reduction="none"
    )  # of log probabilities (T, N, K)


def frames_needed(target: Tensor) -> int:
    """Return the smallest number of frames for a text: one per token, and a blank between two equal tokens.

    Args:
        target: Tokens of the text, shape (S,).

    Example:
        >>> frames_needed(torch.tensor([8, 5, 12, 12, 15]))  # hello: a blank between the two l
        6
    """
    return len(target) + int((target[1:] == target[:-1]).sum())


def extended_target(target: Tensor, blank: int = BLANK) -> tuple[Tensor, Tensor]:
    """Return l', the text with a blank before, between and after its tokens, and a mask of states reached by skipping.

    Args:
        target: Tokens of the text, shape (S,), int64.
        blank: Token of the blank.

    Returns:
        The tokens of l', shape (2 S + 1,), and a mask of the same shape: True for a state that can follow the
        state two before it, without the blank in between.

    Example:
        >>> states, skips = extended_target(torch.tensor([1, 1, 2]))
        >>> states.tolist()
        [0, 1, 0, 1, 0, 2, 0]
        >>> skips.int().tolist()  # only from the second 1 to the 2: equal tokens need the blank
        [0, 0, 0, 0, 0, 1, 0]
    """
    states = target.new_full((2 * len(target) + 1,), blank)
    states[1::2] = target
    skips = torch.zeros_like(states, dtype=torch.bool)
    skips[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    return states, skips


def forward_variables(log_probs: Tensor, target: Tensor, blank: int = BLANK) -> Tensor:
    """Return log α of one sequence: the log probability of all prefixes that are in each state after each frame.

    Args:
        log_probs: Log probabilities of the K tokens at each frame, shape (T, K).
        target: Tokens of the text, shape (S,), int64.
        blank: Token of the blank.

    Returns:
        log α, shape (T, 2 S + 1); −∞ for states that cannot be reached.

    Example:
        >>> log_probs = torch.full((3, 3), 1 / 3).log()
        >>> alpha = forward_variables(log_probs, torch.tensor([1, 2])).exp()
        >>> (alpha * torch.tensor([[3], [9], [27]])).round().int().tolist()  # the number of prefixes in each state
        [[1, 1, 0, 0, 0], [1, 2, 1, 1, 0], [1, 3, 3, 4, 1]]
    """
    states, skips = extended_target(target, blank)
    said = log_probs[:, states]  # (T, 2 S + 1)
    alpha = torch.full_like(said[0], -math.inf)
    alpha[:2] = said[0, :2]  # begin with a blank or with the first token
    found = [alpha]
    for at in said[1:]:
        alpha = at + torch.logsumexp(torch.stack([alpha, _moved(alpha, 1), _moved(alpha, 2, skips)]), 0)
        found.append(alpha)
    return torch.stack(found)


def backward_variables(log_probs: Tensor, target: Tensor, blank: int = BLANK) -> Tensor:
    """Return log β of one sequence: the log probability of all suffixes that can follow each state at each frame.

    Args:
        log_probs: Log probabilities of the K tokens at each frame, shape (T, K).
        target: Tokens of the text, shape (S,), int64.
        blank: Token of the blank.

    Returns:
        log β, shape (T, 2 S + 1); −∞ for states from which the text cannot be completed.

    Example:
        >>> log_probs, target = torch.randn(6, 4).log_softmax(1), torch.tensor([1, 3])
        >>> both = forward_variables(log_probs, target) + backward_variables(log_probs, target)
        >>> p = both.logsumexp(1)  # Σ_s α_t(s) β_t(s) is the same at every frame t
        >>> bool(torch.allclose(p, -textbook_ctc_loss(log_probs, target)))
        True
    """
    states, skips = extended_target(target, blank)
    said = log_probs[:, states]  # (T, 2 S + 1)
    beta = torch.full_like(said[0], -math.inf)
    beta[-2:] = 0  # end with the last token or with a blank
    found = [beta]
    for at in said[1:].flip(0):
        ahead = beta + at
        passing = ahead.masked_fill(~skips, -math.inf)
        beta = torch.logsumexp(torch.stack([ahead, _moved(ahead, -1), _moved(passing, -2)]), 0)
        found.append(beta)
    return torch.stack(found[::-1])


def textbook_ctc_loss(log_probs: Tensor, target: Tensor, blank: int = BLANK) -> Tensor:
    """Return −log p(l | x) of one sequence, from the last α.

    Args:
        log_probs: Log probabilities of the K tokens at each frame, shape (T, K).
        target: Tokens of the text, shape (S,), int64.
        blank: Token of the blank.

    Returns:
        The loss, shape (), in nats; +∞ if there are too few frames for the text.

    Example:
        >>> log_probs, target = torch.randn(6, 4).log_softmax(1), torch.tensor([1, 3])
        >>> fused = ctc_loss(log_probs[None], target[None], lengths=torch.tensor([2]))[0]
        >>> bool(torch.isclose(textbook_ctc_loss(log_probs, target), fused))
        True
    """
    return -forward_variables(log_probs, target, blank)[-1, -2:].logsumexp(0)


def occupancies(log_probs: Tensor, target: Tensor, blank: int = BLANK) -> Tensor:
    """Return the probability of each state at each frame given the text l, α_t(s) β_t(s) / p(l | x).

    The probability of the states of one token shows where that token is spoken.

    Args:
        log_probs: Log probabilities of the K tokens at each frame, shape (T, K).
        target: Tokens of the text, shape (S,), int64.
        blank: Token of the blank.

    Returns:
        The probabilities, shape (T, 2 S + 1); each row sums to 1. NaN if there are too few frames for the text.

    Example:
        >>> log_probs = torch.full((3, 3), 1 / 3).log()
        >>> occupancies(log_probs, torch.tensor([1, 2])).round(decimals=1)  # states: blank, 1, blank, 2, blank
        tensor([[0.2000, 0.8000, 0.0000, 0.0000, 0.0000],
                [0.0000, 0.4000, 0.2000, 0.4000, 0.0000],
                [0.0000, 0.0000, 0.0000, 0.8000, 0.2000]])
    """
    both = forward_variables(log_probs, target, blank) + backward_variables(log_probs, target, blank)
    return (both - both.logsumexp(1, keepdim=True)).exp()


def textbook_gradient(logits: Tensor, target: Tensor, blank: int = BLANK) -> Tensor:
    """Return ∂(−log p)/∂z of one sequence: the softmax of the logits minus the occupancies of each token.

    Args:
        logits: Logits z of the K tokens at each frame, shape (T, K).
        target: Tokens of the text, shape (S,), int64.
        blank: Token of the blank.

    Returns:
        The gradient, shape (T, K); each row sums to 0.

    Example:
        >>> z, target = torch.randn(6, 4, requires_grad=True), torch.tensor([1, 3])
        >>> ctc_loss(z.log_softmax(1)[None], target[None], lengths=torch.tensor([2])).sum().backward()
        >>> bool(torch.allclose(textbook_gradient(z.detach(), target), z.grad, atol=1e-6))
        True
    """
    log_probs = logits.log_softmax(1)
    given = torch.zeros_like(logits)
    given.index_add_(1, extended_target(target, blank)[0], occupancies(log_probs, target, blank))
    return log_probs.exp() - given


def _moved(values: Tensor, by: int, kept: Tensor | None = None) -> Tensor:
    """Shift values (S,) by `by` states; vacated states and those where `kept` is False get −∞."""
    found = torch.full_like(values, -math.inf)
    if by > 0:
        found[by:] = values[:-by]
    else:
        found[:by] = values[-by:]
    return found if kept is None else found.masked_fill(~kept, -math.inf)


LOWEST, HIGHEST = -1.0, 1.0  # values of the first and the last level of a pixel


def normal_kl(mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor) -> Tensor:
    """Return the elementwise KL divergence of N(mean1, e^log_var1) from N(mean2, e^log_var2), in nats.

    Args:
        mean1: Mean μ₁ of the first distribution, any shape; all four broadcast, for example (N, D) with ().
        log_var1: Logarithm of the variance, ln σ₁².
        mean2: Mean μ₂ of the second distribution.
        log_var2: Logarithm of the variance, ln σ₂².

    Returns:
        KL(N(μ₁, σ₁²) ‖ N(μ₂, σ₂²)) of each element, of the broadcast shape.

    Example:
        >>> zero = torch.tensor(0.0)
        >>> normal_kl(torch.tensor([0.0, 1.0, 2.0]), zero, zero, zero)  # from a standard normal: μ²/2
        tensor([0.0000, 0.5000, 2.0000])
    """
    return 0.5 * (log_var2 - log_var1 + (log_var1 - log_var2).exp() + (mean1 - mean2).square() * (-log_var2).exp() - 1)


def log_density(x: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
    """Return ln N(x; mean, e^log_var) elementwise.

    Args:
        x: Values, any shape; all three broadcast, for example (N, D) with ().
        mean: Mean μ.
        log_var: Logarithm of the variance, ln σ².

    Returns:
        The log density of each element, of the broadcast shape, in nats.

    Example:
        >>> log_density(torch.tensor([0.0, 1.0]), torch.tensor(0.0), torch.tensor(0.0))
        tensor([-0.9189, -1.4189])
    """
    return -0.5 * (math.log(2 * math.pi) + log_var + (x - mean).square() * (-log_var).exp())


def discretized_normal_log_prob(x: Tensor, mean: Tensor, log_var: Tensor, levels: int = 256) -> Tensor:
    """Return ln P(x) elementwise under N(mean, e^log_var), integrated over the bin of x.

    The bins are of equal width, and their centers are the `levels` values from −1 to 1. The outer bins include the
    tails. Φ is the normal CDF. Far from the mean both values of Φ are nearly 0 or nearly 1. The function subtracts
    their logarithms on the side where both are small, so that the result is accurate and has a gradient even for very
    unlikely levels.

    Args:
        x: Values from −1 to 1, rounded to the levels, any shape; all three broadcast, for example (N, D) with ().
        mean: Mean μ.
        log_var: Logarithm of the variance, ln σ².
        levels: Number of levels, 256 for pixels of 8 bits.

    Returns:
        The log probability of each element, of the broadcast shape, in nats.

    Example:
        >>> x = torch.linspace(-1, 1, 256)
        >>> p = discretized_normal_log_prob(x, torch.tensor(0.3), torch.tensor(-2.0)).exp()
        >>> round(float(p.sum()), 4)  # the 256 levels are all that can occur
        1.0
    """
    half = (HIGHEST - LOWEST) / (levels - 1) / 2
    scale = (-0.5 * log_var).exp()
    above, below = (x - mean + half) * scale, (x - mean - half) * scale
    flip = above + below > 0  # Φ(b) − Φ(a) = Φ(−a) − Φ(−b)
    high = torch.special.log_ndtr(torch.where(flip, -below, above))
    low = torch.special.log_ndtr(torch.where(flip, -above, below))
    inside = high + torch.log(-torch.expm1((low - high).clamp(max=-1e-30)))
    lowest, highest = torch.special.log_ndtr(above), torch.special.log_ndtr(-below)
    return torch.where(x < LOWEST + half, lowest, torch.where(x > HIGHEST - half, highest, inside))


NUMBERS = 1 << 25  # largest number of elements in gradients of several classes at a time


def diagonal_fisher(
    logits: Callable[[Any], Tensor], parameters: Sequence[Tensor], examples: Iterable[Any]
) -> list[Tensor]:
    """Return the mean diagonal Fisher information F_i of each weight over the examples.

    Args:
        logits: Function that maps one example to its logits (1, K), or to (1, 1), the logit of class 1 against class 0.
        parameters: The weights θ, which must require gradients.
        examples: Inputs, each passed to `logits` alone.

    Returns:
        F of each parameter, with the shapes of the parameters. It is 0 for a weight on which the logits do not depend,
        and for all weights if there are no examples.

    Example:
        >>> w = torch.zeros(2, requires_grad=True)
        >>> examples = [torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0])]
        >>> diagonal_fisher(lambda x: (w @ x).reshape(1, 1), [w], examples)  # p (1 − p) x² with p = ½
        [tensor([0.2500, 0.5000])]
    """
    sums, count = [torch.zeros_like(p) for p in parameters], 0
    at_once = max(1, NUMBERS // max(1, sum(p.numel() for p in parameters)))
    for example in examples:
        z = logits(example)
        log_p = (F.logsigmoid(torch.cat([-z, z], 1)) if z.shape[1] == 1 else z.log_softmax(1))[0]  # (K,)
        # The square of its gradient is p (∂ log p)²: the weight is not differentiated.
        weighed = log_p.detach().div(2).exp() * log_p
        chosen = torch.eye(len(log_p), dtype=z.dtype, device=z.device)
        for some in torch.split(chosen, at_once):
            slopes = torch.autograd.grad(
                weighed, parameters, some, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
            for total, slope in zip(sums, slopes):
                if slope is not None:
                    total += slope.square().sum(0)
        count += 1
    return [total / max(1, count) for total in sums]
