"""The published formulas that plans are held to: of models that are described by their sizes alone.

torchtitan's count of operations <https://github.com/pytorch/torchtitan/blob/main/torchtitan/models/utils.py>; S.
Rajbhandari et al., ZeRO, 2019 <https://arxiv.org/abs/1910.02054>, figure 1; V. Korthikanti et al., 2022
<https://arxiv.org/abs/2205.05198>, table 2.
"""

from __future__ import annotations


def flops_per_token(parameters: float, embedding: float, layers: int, heads: int, head_dim: int, length: int) -> float:
    """Operations of training a Transformer on one token: 6 (N − N_embedding) + 6 L h 2d T. Attention counts the whole
    square, masked or not. `embedding` is 0 where it is the output matrix too."""
    return 6 * (parameters - embedding) + 6 * layers * heads * 2 * head_dim * length


def utilization(flops_per_token: float, tokens_per_second: float, peak: float) -> float:
    """Model FLOPs utilization: the operations that the model needs, as a fraction of those that the GPU could do."""
    return flops_per_token * tokens_per_second / peak


def zero_bytes(parameters: float, ranks: int, stage: int) -> float:
    """Bytes of weights, gradients and optimizer state on each of N GPUs, of Adam in mixed precision: 2 + 2 + 12 for
    each parameter, of which stage 1 shards the optimizer's 12, stage 2 gradients too, stage 3 all."""
    whole, shared = ((16, 0), (4, 12), (2, 14), (0, 16))[stage]
    return parameters * (whole + shared / ranks)


def activation_bytes(
    length: int,
    batch: int,
    dim: int,
    heads: int,
    tensor_parallel: int = 1,
    recompute: str = "none",
    fused: bool = False,
) -> float:
    """Bytes that a GPT block keeps for the backward pass in 16 bits, with dropout; `fused` attention keeps no
    weights."""
    places = length * batch * dim
    if recompute == "full":
        return 2 * places
    scores = 0 if fused or recompute == "selective" else 5 * heads * length / dim
    return places * (10 + (24 + scores) / tensor_parallel)
