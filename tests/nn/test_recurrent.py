"""Recurrent layers: the equations by hand, PyTorch's fused layers, and every path through sequences of many lengths."""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.core.errors import ModelError
from cutaway.inspect.gates import unroll
from cutaway.models.gru import gru_step
from cutaway.models.lstm import lstm_step
from cutaway.models.rnn import elman_step
from cutaway.nn import recurrent
from cutaway.nn.recurrent import pool_states, run_bucketed, run_packed, sequence_lengths

LAYERS = {
    "tanh": lambda *sizes, **kw: recurrent.RNN(*sizes, nonlinearity="tanh", **kw),
    "relu": lambda *sizes, **kw: recurrent.RNN(*sizes, nonlinearity="relu", **kw),
    "lstm": recurrent.LSTM,
    "gru": recurrent.GRU,
}


def scalar(*values: float) -> Tensor:
    """A column of numbers, (n, 1)."""
    return torch.tensor(values, dtype=torch.float64)[:, None]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def made(kind: str, seed: int = 0, inputs: int = 3, hidden: int = 4, **changes: Any) -> nn.RNNBase:
    """PyTorch's layer in float64, batch first."""
    torch.manual_seed(seed)
    layer: nn.RNNBase = LAYERS[kind](inputs, hidden, batch_first=True, **changes).double()
    return layer


def ragged(count: int, steps: int, inputs: int = 3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers everywhere, also in the padding; lengths; and the mask."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, steps + 1, (count,), generator=generator)
    x = torch.randn(count, steps, inputs, generator=generator, dtype=torch.float64)
    return x, lengths, torch.arange(steps) < lengths[:, None]


def assert_same(layer: nn.RNNBase, x: Tensor, answers: list[tuple[Tensor, ...]]) -> None:
    """Every answer is the first, and so are the gradients at the input and at every weight."""
    found = []
    for answer in answers:
        generator = torch.Generator().manual_seed(5)
        upstream = [torch.randn(y.shape, generator=generator, dtype=y.dtype) for y in answer]
        gradients = torch.autograd.grad(answer, [x, *layer.parameters()], upstream)
        found.append((*answer, *gradients))
    for other in found[1:]:
        for a, b in zip(other, found[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


# --- one step -----------------------------------------------------------------------------------------------------


def test_one_step_of_elman_in_numbers() -> None:
    weights = (scalar(0.3), scalar(-0.4), scalar(0.1)[0], scalar(0.2)[0])
    h = elman_step(scalar(2.0), (scalar(0.5),), weights)["state"]
    assert h.item() == pytest.approx(math.tanh(0.3 * 2 + 0.1 - 0.4 * 0.5 + 0.2), abs=1e-15)


def test_one_step_of_the_lstm_in_numbers() -> None:
    x, h, c = 2.0, 0.5, -0.7
    W, U, b, b2 = (0.1, 0.2, 0.3, 0.4), (-0.5, 0.6, -0.7, 0.8), (0.01, 0.02, 0.03, 0.04), (0.0, 0.5, 0.0, -0.5)
    i, f, g, o = (W[k] * x + U[k] * h + b[k] + b2[k] for k in range(4))
    cell = sigmoid(f) * c + sigmoid(i) * math.tanh(g)
    weights = (scalar(*W), scalar(*U), torch.tensor(b).double(), torch.tensor(b2).double())
    found = lstm_step(scalar(x), (scalar(h), scalar(c)), weights)
    assert found["cell"].item() == pytest.approx(cell, abs=1e-7)
    assert found["state"].item() == pytest.approx(sigmoid(o) * math.tanh(cell), abs=1e-7)


def test_one_step_of_the_gru_in_numbers_with_either_reset() -> None:
    x, h = 2.0, 0.5
    W, U, b, b2 = (0.1, 0.2, 0.3), (-0.5, 0.6, -0.7), (0.01, 0.02, 0.03), (0.5, -0.25, 0.75)
    weights = (scalar(*W), scalar(*U), torch.tensor(b).double(), torch.tensor(b2).double())
    r, z = (sigmoid(W[k] * x + U[k] * h + b[k] + b2[k]) for k in range(2))
    after = math.tanh(W[2] * x + b[2] + r * (U[2] * h + b2[2]))
    before = math.tanh(W[2] * x + b[2] + U[2] * (r * h) + b2[2])
    for reset, n in (("after", after), ("before", before)):
        found = gru_step(scalar(x), (scalar(h),), weights, reset)["state"]
        assert found.item() == pytest.approx((1 - z) * n + z * h, abs=1e-7)
    assert abs(after - before) > 0.01


def test_the_papers_gru_is_another_network_than_pytorchs() -> None:
    """Already without biases, and for one number in a state only then not: r U h is U (r h)."""
    x = ragged(2, 5)[0]
    for hidden, bias, same in ((4, True, False), (4, False, False), (1, True, False), (1, False, True)):
        layer = made("gru", hidden=hidden, bias=bias)
        fused, paper = layer(x)[0], unroll(layer, x, step=functools.partial(gru_step, reset="before"))[0]
        assert torch.allclose(fused, paper, rtol=1e-9) == same
        assert torch.allclose(fused, unroll(layer, x)[0], rtol=1e-9)
    with pytest.raises(ModelError, match=r"^Invalid reset='between'"):
        unroll(layer, x, step=functools.partial(gru_step, reset="between"))


# --- all steps ----------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(LAYERS)),
    layers=st.integers(1, 3),
    both=st.booleans(),
    bias=st.booleans(),
    count=st.integers(1, 4),
    steps=st.integers(1, 6),
    begun=st.booleans(),
    seed=st.integers(0, 99),
)
def test_unrolled_is_fused(
    kind: str, layers: int, both: bool, bias: bool, count: int, steps: int, begun: bool, seed: int
) -> None:
    layer = made(kind, seed, num_layers=layers, bidirectional=both, bias=bias)
    x = ragged(count, steps, seed=seed)[0].requires_grad_()
    zeros = recurrent.zero_state(layer, x)
    state = tuple(torch.randn_like(part) for part in zeros) if begun else None
    outputs, after = layer(x, recurrent.to_torch_state(state))
    ours, ours_after, _ = unroll(layer, x, state=state)
    assert_same(layer, x, [(outputs, *recurrent.to_state_tuple(after)), (ours, *ours_after)])


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(LAYERS)),
    layers=st.integers(1, 3),
    both=st.booleans(),
    count=st.integers(1, 12),
    steps=st.integers(1, 9),
    extra=st.integers(0, 2),
    cut=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_path_through_many_lengths(
    kind: str, layers: int, both: bool, count: int, steps: int, extra: int, cut: bool, seed: int
) -> None:
    """Unrolled, packed, in rectangles (one, or as many as there can be), and each sequence alone."""
    layer = made(kind, seed, num_layers=layers, bidirectional=both)
    x, lengths, mask = ragged(count, steps + extra, seed=seed)
    x.requires_grad_()
    textbook, state, _ = unroll(layer, x, mask)
    pack, packed_state = run_packed(layer, x, lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrent, "LEAST_WORK", 0 if cut else 10**9)
        patch.setattr(recurrent, "LEAST_SHARE", 0)
        rectangles = layer(x, lengths=lengths)  # on a CPU
    alone = [layer(x[i : i + 1, :n]) for i, n in enumerate(lengths.tolist())]
    outputs = torch.cat([nn.functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])) for y, _ in alone])
    last = torch.cat([recurrent.to_state_tuple(s)[0] for _, s in alone], dim=1)
    assert_same(layer, x, [(outputs, last), (textbook, state[0]), (pack, packed_state[0]), rectangles])
    for a, b in zip(packed_state, state, strict=True):  # c too
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_a_batch_is_cut_where_sequences_end() -> None:
    lengths = torch.arange(64, 0, -1)
    assert recurrent.bucket_boundaries(lengths, 64, hidden=64) == [8, 16, 24, 32, 40, 48, 56, 64]
    assert recurrent.bucket_boundaries(lengths, 64, hidden=63) == [64]  # too little to gain
    assert recurrent.bucket_boundaries(torch.full((64,), 60), 64, hidden=64) == [64]  # hardly any padding
    assert recurrent.bucket_boundaries(torch.tensor([50, 1, 1, 1]), 64, hidden=4096) == [1, 50]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_dropout_between_layers_drops_in_training_alone(kind: str) -> None:
    layer = made(kind, num_layers=3, dropout=0.5)
    x, lengths, mask = ragged(6, 8)
    answers = []
    for run in (lambda: layer(x)[0], lambda: unroll(layer, x)[0]):
        torch.manual_seed(3)
        answers.append(run())
    torch.testing.assert_close(answers[0], answers[1], rtol=1e-9, atol=1e-11)  # the same numbers are dropped
    ways = (lambda: run_bucketed(layer, x, lengths)[0], lambda: unroll(layer, x, mask)[0])
    assert all(not torch.equal(run(), run()) for run in ways)
    layer.eval()
    torch.testing.assert_close(ways[0](), ways[1](), rtol=1e-9, atol=1e-11)


def test_an_lstm_with_projections_is_rejected() -> None:
    layer = made("lstm", proj_size=2)
    x, lengths, _ = ragged(2, 3)
    for run in (lambda: unroll(layer, x), lambda: run_bucketed(layer, x, lengths)):
        with pytest.raises(ModelError, match=r"^Invalid proj_size=2"):
            run()


@pytest.mark.skipif(
    "ONEDNN_MAX_CPU_ISA" in os.environ,
    reason="PyTorch asks the processor whether there is bfloat16, not oneDNN, which is kept from it here",
)
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_half_precision_goes_every_way(kind: str) -> None:
    if kind == "lstm" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("PyTorch's LSTM needs a processor with bfloat16 for it")
    layer = made(kind).float()
    x, lengths, _ = ragged(4, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused = layer(x.float())[0]
        found = layer(x.float(), lengths=lengths)[0]
    assert found.dtype == fused.dtype
    longest = int(lengths.argmax())
    steps = int(lengths.max())
    torch.testing.assert_close(found[longest, :steps], fused[longest, :steps], rtol=0.05, atol=0.02)


# --- masks --------------------------------------------------------------------------------------------------------


def test_lengths_of_a_mask() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False], [True, True, True]])
    assert sequence_lengths(mask, 3).tolist() == [2, 1, 3]
    assert sequence_lengths(torch.ones(2, 3, dtype=torch.bool), 3) is None
    assert sequence_lengths(None, 3) is None
    assert sequence_lengths(torch.zeros(2, 3, dtype=torch.bool, device="meta"), 3) is None


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([False, True, True], "Sequence 1 of the batch has padding before a real step"),
        ([True, False, True], "Sequence 1 of the batch has padding before a real step"),
        ([False, False, False], "Sequence 1 of the batch has no real step"),
    ],
)
def test_padding_elsewhere_than_on_the_right_is_rejected(row: list[bool], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        sequence_lengths(torch.tensor([[True, True, False], row]), 3)


@pytest.mark.parametrize("shape", [(2, 4), (3,), (2, 3, 1)])
def test_masks_of_another_shape_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="A mask must have one entry for each place"):
        sequence_lengths(torch.ones(shape, dtype=torch.bool), 3)


def test_an_unknown_pooling_of_states_is_rejected() -> None:
    with pytest.raises(ModelError, match="Invalid pooling='median'"):
        pool_states(torch.ones(2, 3, 4), torch.ones(1, 2, 4), None, "median")
