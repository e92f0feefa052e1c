"""What is found of many processes in one, held to the formulas of ZeRO and Megatron-LM and to what shards must come to.

S. Rajbhandari et al., ZeRO, 2019 <https://arxiv.org/abs/1910.02054>, section 5: weights, gradients and Adam's two
moments in float32 are 16 bytes a parameter, of which each of N processes holds 16/N. M. Shoeybi et al., Megatron-LM,
2019 <https://arxiv.org/abs/1909.08053>, section 3: four all-reduces a layer and step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from cutaway.core.errors import SettingError
from cutaway.core.memory_budget import build_on_meta
from cutaway.distributed.dry_run import Collective, DryRun, dry_run
from cutaway.distributed.tensor_parallel import local_part
from cutaway.models.registry import preset
from cutaway.training.config import TrainSettings
from cutaway.training.optim import build_optimizers, find_blocks

PROCESSES, LAYERS, DIM, WORDS, TOKENS = 256, 2, 64, 500, 16
BATCH = 2


def step(model: nn.Module) -> Tensor:
    """The loss of a batch, of a model without numbers."""
    assert all(isinstance(local_part(p), FakeTensor) or p.is_meta for p in model.parameters())
    outputs: Tensor = model(torch.zeros(BATCH, TOKENS, dtype=torch.long))
    return outputs.float().logsumexp(-1).sum()


def found(**given: Any) -> DryRun:
    """The dry run of a small GPT-2."""
    known = preset("gpt2")
    config = known.configure(
        settings={"vocab_size": WORDS, "dim": DIM, "layers": LAYERS, "heads": 4, "context_length": 32}
    )
    return dry_run(partial(build_on_meta, known, config), step, find_blocks, **{"processes": PROCESSES, **given})


def of_kind(run: DryRun, kind: str, processes: int) -> Collective:
    """The collectives of that kind among so many processes."""
    (one,) = (one for one in run.collectives if (one.kind, one.processes) == (kind, processes))
    return one


def test_parts_come_to_the_whole() -> None:
    run = found(rank=PROCESSES - 1)
    weights, gradients, moments = (
        sum(getattr(share, what) for share in run.shares) for what in ("weights", "gradients", "optimizer")
    )
    tensors = 12 * LAYERS + 4  # each with the number of its step, of 4 bytes, in each process
    assert (weights, gradients) == (4 * run.parameters, 4 * run.parameters)
    assert moments == 8 * run.parameters + 4 * tensors * PROCESSES
    assert run.largest == ("blocks.0.mlp.fc2.weight", 4 * DIM * 4)  # one of 64 rows, of 256 numbers
    assert run.shares[0].weights > run.shares[-1].weights  # which has none of 64 rows
    assert of_kind(run, "all-gather", PROCESSES).count == 2 * LAYERS + 1  # what is outside of blocks stays in between
    assert of_kind(run, "reduce-scatter", PROCESSES).count == LAYERS + 1


def test_muon_has_matrices_come_together_once_more() -> None:
    count = 32  # another number: PyTorch remembers shapes by the grid, and above the last process was played
    plain = found(processes=count)
    muon = found(processes=count, optimizers=partial(build_optimizers, settings=TrainSettings(optimizer="muon")))
    less, more = (of_kind(run, "all-gather", count) for run in (plain, muon))
    assert more.count - less.count == 4 * LAYERS  # two of attention and two of the MLP
    assert more.bytes - less.bytes == 12 * LAYERS * DIM**2 * 4
    assert of_kind(plain, "reduce-scatter", count) == of_kind(muon, "reduce-scatter", count)


def test_heads_and_hidden_units_are_shared_by_four_all_reduces_a_layer() -> None:
    run = found(tensor_parallel=4, parallel="ddp", rank=5)
    cut = LAYERS * (12 * DIM**2 + 7 * DIM)  # weights of attention and MLP, and biases of what is cut by columns
    assert {share.weights for share in run.shares} == {4 * (run.parameters - cut + cut // 4)}
    sent = of_kind(run, "all-reduce", 4)
    assert (sent.count, sent.bytes) == (4 * LAYERS, 4 * LAYERS * BATCH * TOKENS * DIM * 4)
    gradients = of_kind(run, "all-reduce", PROCESSES // 4)
    assert gradients.bytes == run.shares[0].gradients


def test_machines_hold_a_model_each() -> None:
    run = found(parallel="hsdp", machine=8)
    assert sum(share.weights for share in run.shares[:8]) == 4 * run.parameters
    assert of_kind(run, "all-reduce", PROCESSES // 8).count == LAYERS + 1
    assert of_kind(run, "all-gather", 8).count == 2 * LAYERS + 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"tensor_parallel": 3},
            "Invalid number of processes, 256, for parallel=fsdp: must be a multiple of tensor_parallel=3",
        ),
        ({"parallel": "hsdp", "machine": 7}, "256, for parallel=hsdp: must be a multiple of the 7 on each machine"),
        (
            {"parallel": "hsdp", "machine": 8, "tensor_parallel": 16},
            "on each machine, 8, .*: must be a multiple of tensor_parallel=16",
        ),
        ({"tensor_parallel": 8}, "Invalid tensor_parallel=8: must be a divisor of the 4 heads of blocks.0.attention"),
    ],
)
def test_what_is_no_grid_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        found(**given)
    assert not torch.distributed.is_initialized()
