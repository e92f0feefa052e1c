"""Memory of each process under each parallel strategy, and the bytes that processes send.

    strategy   weights, gradients, optimizer    sent in a step, of each process
    one        all                              nothing
    ddp        all, and a bucket being sent     gradients, all-reduced: 2 (N − 1)/N of them
    fsdp       1/N, and the active blocks       weights twice, gradients once: (N − 1)/N of each
    hsdp       1/n, n GPUs of a machine         the same within a machine, 1/n of the gradients between machines

ddp: S. Li et al., 2020 <https://arxiv.org/abs/2006.15704>; fsdp: stage 3 of S. Rajbhandari et al., ZeRO, 2019
<https://arxiv.org/abs/1910.02054>, as PyTorch's `fully_shard` implements it. Activations are those of 1/N of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import nn

from .fake_step import BlockMemory, StepProfile

STRATEGIES = ("one", "ddp", "fsdp", "hsdp")
WORKSPACE = 64 * 2**20  # bytes that PyTorch keeps on a GPU for matrix products, as measured on an H200
FIRST, BUCKET = 2**20, 25 * 2**20  # bytes at which DistributedDataParallel closes a bucket of gradients
SENDING = 2  # copies of a bucket: the received one, and one in gloo
GATHERED = 2  # blocks that are gathered at once: the current and the next one
# Fraction of a Transformer block's activations that tensor parallelism does not shard: 10 of 34 bytes. V. Korthikanti
# et al., Reducing activation recomputation in large Transformer models, 2022, table 2 <https://arxiv.org/abs/2205.05198>.
NOT_SHARED = 10 / 34


@dataclass(frozen=True)
class WeightLayout:
    """Parameters of a model as strategies use them, in bytes of their storage format."""

    shapes: tuple[tuple[int, ...], ...]
    itemsize: int
    compute: int  # bytes per number in products
    blocks: tuple[int, ...]  # bytes of each block's parameters
    matrices: int  # bytes of the matrices of blocks, which tensor parallelism shards
    copies: int = 0  # further copies of weights, such as a moving average

    @property
    def total(self) -> int:
        """Return the bytes of all parameters."""
        return self.itemsize * sum(math.prod(shape) for shape in self.shapes)

    @property
    def root(self) -> int:
        """Return the bytes of parameters outside of blocks: embeddings and head."""
        return self.total - sum(self.blocks)

    @property
    def bucket(self) -> int:
        """Return the bytes of the largest bucket that DistributedDataParallel forms from the parameters in order."""
        most, now, end = 0, 0, FIRST
        for shape in self.shapes:
            now += self.itemsize * math.prod(shape)
            most = max(most, now)
            if now >= end:
                now, end = 0, BUCKET
        return most

    def sharded(self, ranks: int) -> float:
        """Return the fraction of all parameters in the first of `ranks` processes, which has some rows of each."""
        rows = (math.ceil(shape[0] / ranks) * math.prod(shape[1:]) if shape else 1 for shape in self.shapes)
        return sum(rows) * self.itemsize / max(1, self.total)


def weight_layout(
    model: nn.Module, blocks: list[nn.Module], dtype: torch.dtype, compute: torch.dtype | None, copies: int = 0
) -> WeightLayout:
    """Return the weights of a model whose parameters are stored as `dtype` and converted to `compute` for products."""
    size = dtype.itemsize
    inside = [list(block.parameters()) for block in blocks]
    return WeightLayout(
        tuple(tuple(p.shape) for p in model.parameters()),
        size,
        (compute or dtype).itemsize,
        tuple(size * sum(p.numel() for p in one) for one in inside),
        size * sum(p.numel() for one in inside for p in one if p.ndim >= 2),
        copies,
    )


@dataclass(frozen=True)
class ProcessMemory:
    """Peak memory of one process, in bytes."""

    weights: float  # and buffers
    casts: float  # weights in the number format of products
    gradients: float
    optimizer: float
    activations: float
    outputs: float
    working: float  # temporary tensors of the backward pass
    communication: float  # buckets, and gathered weights and gradients
    checkpoint: float = 0.0  # copy of the shards that is written in the background
    workspace: float = 0.0  # of matrix products

    @property
    def total(self) -> float:
        """Return the sum of all parts."""
        return float(sum(getattr(self, field.name) for field in fields(self)))

    @property
    def of_batch(self) -> float:
        """Return the part that grows with the batch."""
        return self.activations + self.outputs + self.working


def num_shards(strategy: str, copies: int, within: int) -> int:
    """Return the number of processes over which the weights are sharded.

    `copies` processes share a batch, `within` of them on each machine.
    """
    return {"fsdp": copies, "hsdp": within}.get(strategy, 1)


def process_memory(
    strategy: str,
    step: StepProfile,
    weights: WeightLayout,
    ranks: int,
    tensor_parallel: int = 1,
    recompute: str = "none",
    reserved: bool = False,
    copied: bool = False,
) -> ProcessMemory:
    """Return the memory of one process under `strategy`, if `step` is its step.

    `ranks` processes shard the weights (see `holders`). On a GPU (`reserved`) products have a workspace, and the
    gradients of several processes count in full, since the allocator keeps their memory from step to step. A sharded
    checkpoint is `copied` to the same memory, as on a CPU, or to another.
    """
    matrices = weights.matrices / max(1, weights.total)
    own = 1 - matrices + matrices / tensor_parallel  # of all weights, with tensor parallelism
    part = own * (weights.sharded(ranks) if strategy in ("fsdp", "hsdp") else 1.0)
    kept = 1.0 if tensor_parallel == 1 else NOT_SHARED + (1 - NOT_SHARED) / tensor_parallel
    saved = _bytes_saved(step.blocks, recompute)
    in_buckets = strategy == "ddp" and tensor_parallel == 1  # DistributedDataParallel's; else `replicate` sends them
    copies = copied and (strategy in ("fsdp", "hsdp") or tensor_parallel > 1)

    def at(peak: Mapping[str, int], waiting: bool = step.accumulates) -> ProcessMemory:
        in_full, alive = reserved and strategy != "one", peak["gradients"] / max(1, step.gradients)
        gradients = step.gradients if in_full else peak["gradients"]
        if in_buckets:  # allocated from the start, next to accumulated gradients
            gradients = step.gradients + (peak["gradients"] if waiting else 0)
            alive = 0.0 if waiting else alive
            sent = alive * SENDING * weights.bucket
        else:
            sent = _communication_bytes(strategy, weights, 1.0 if in_full else alive)
        buffers = peak["weights"] - weights.total * (1 + weights.copies)
        return ProcessMemory(
            weights=buffers + part * (peak["weights"] - buffers),
            casts=0.0 if strategy in ("fsdp", "hsdp") else own * peak["casts"],
            gradients=part * gradients,
            optimizer=part * peak["optimizer"],
            activations=max(0.0, peak["activations"] - saved) * kept,
            outputs=peak["outputs"],
            working=peak["working"],
            communication=own * sent,
            checkpoint=part * (peak["weights"] - buffers + peak["optimizer"]) + buffers if copies else 0.0,
            workspace=WORKSPACE if reserved else 0.0,
        )

    found = [at(step.peak), at(step.of_batch)]
    if in_buckets:  # the last bucket is sent when few activations are left
        of_batch = dict.fromkeys(("activations", "outputs", "working"), 0)
        found.append(at({**step.peak, **of_batch, "gradients": step.gradients}, waiting=False))
    return max(found, key=lambda memory: memory.total)


def _bytes_saved(blocks: tuple[BlockMemory, ...], recompute: str) -> float:
    """Return the bytes that recomputing saves.

    Blocks then keep only their outputs (and products, if it is selective), except for one block, which is recomputed
    while its gradients are computed.
    """
    if recompute == "none" or not blocks:
        return 0
    left = [max(0, b.keeps - b.gives - (b.products if recompute == "selective" else 0)) for b in blocks]
    return sum(left) - max(left)


def _communication_bytes(strategy: str, weights: WeightLayout, alive: float) -> float:
    """Return the bytes of communication buffers and gathered weights; `alive` is the fraction of live gradients."""
    if strategy == "ddp":
        return weights.total + alive * min(weights.total, 3 * BUCKET)
    if strategy not in ("fsdp", "hsdp"):
        return 0
    block = max(weights.blocks, default=0)
    narrow = weights.compute / weights.itemsize
    # Gathered: parameters outside of blocks and their gradient, two blocks, and a block's gradient twice (being sent).
    return 2 * weights.root + GATHERED * narrow * block + narrow * block + block


def bytes_sent(
    strategy: str, step: StepProfile, weights: WeightLayout, gpus: int, node: int, tensor_parallel: int = 1
) -> tuple[float, float]:
    """Return the bytes that each GPU sends in a step within its machine of `node` GPUs, and between machines.

    Ring algorithms send (N − 1)/N of gathered or scattered data, and twice that of all-reduced data.
    """
    if gpus == 1 or strategy == "one":
        return 0.0, 0.0
    copies, within = gpus // tensor_parallel, node // tensor_parallel
    own = 1 - (weights.matrices / max(1, weights.total)) * (1 - 1 / tensor_parallel)
    gradients = own * weights.total
    gathered = own * weights.total * weights.compute / weights.itemsize
    inside = _tensor_parallel_bytes(step, weights, tensor_parallel)

    def ring(n: int) -> float:
        return (n - 1) / n

    if strategy == "ddp":
        sent = 2 * ring(copies) * gradients
    elif strategy == "fsdp":
        sent = ring(copies) * (2 * gathered + gradients)
    else:
        inside += ring(within) * (2 * gathered + gradients)
        return inside, 2 * ring(gpus // node) * gradients / within
    return (inside + sent, 0.0) if gpus <= node else (inside, sent)


def _tensor_parallel_bytes(step: StepProfile, weights: WeightLayout, tensor_parallel: int) -> float:
    """Return the bytes that tensor parallelism sends: four sums of each block's output, two in each direction."""
    if tensor_parallel == 1:
        return 0.0
    return 4 * 2 * (tensor_parallel - 1) / tensor_parallel * sum(block.gives for block in step.blocks)
