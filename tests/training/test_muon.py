"""Muon is PyTorch's on matrices, and takes a kernel as the matrix that it is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutaway.core.config import build
from cutaway.models.registry import create_model
from cutaway.training.config import TrainSettings
from cutaway.training.optim import Muon, build_optimizers, orthogonalize

GIVEN = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1}


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(0)))


def gradients(*shape: int, count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (1, 5)])
def test_on_matrices_it_is_pytorchs_bit_for_bit(shape: tuple[int, int]) -> None:
    ours, theirs = weight(*shape), weight(*shape)
    own = Muon([ours], **GIVEN)
    reference = torch.optim.Muon([theirs], adjust_lr_fn="match_rms_adamw", **GIVEN)  # type: ignore[arg-type]
    for gradient in gradients(*shape):
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        own.step()
        reference.step()
    assert torch.equal(ours, theirs)
    assert not torch.equal(ours, weight(*shape))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_kernel_is_the_matrix_of_its_patches(memory_format: torch.memory_format) -> None:
    kernel, matrix = weight(8, 3, 2, 2), nn.Parameter(weight(8, 3, 2, 2).detach().flatten(1))
    kernel.data = kernel.data.contiguous(memory_format=memory_format)
    on_kernel, on_matrix = Muon([kernel], **GIVEN), Muon([matrix], **GIVEN)
    for gradient in gradients(8, 3, 2, 2):
        kernel.grad = gradient.contiguous(memory_format=memory_format)
        matrix.grad = gradient.flatten(1)
        on_kernel.step()
        on_matrix.step()
    assert kernel.is_contiguous(memory_format=memory_format)
    assert torch.equal(kernel.flatten(1), matrix)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.floats(1e-6, 1e6), st.integers(0, 1000))
def test_a_step_is_nearly_orthogonal_whatever_the_gradients_size(m: int, n: int, scale: float, seed: int) -> None:
    left, _, right = torch.linalg.svd(
        torch.randn(m, n, generator=torch.Generator().manual_seed(seed)), full_matrices=False
    )
    matrix = left @ torch.diag(torch.linspace(1, 0.2, min(m, n))) @ right
    found = orthogonalize(scale * matrix).float()
    assert found.shape == (m, n)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.6
    assert values.max() < 1.3
    assert (found - left @ right).norm() / (left @ right).norm() < 0.4  # and points where U Vᵀ does


def test_no_gradient_makes_no_step_of_it() -> None:
    p, zero = weight(3, 3), weight(3, 3)
    zero.grad = torch.zeros(3, 3)
    Muon([p, zero], lr=0.1, momentum=0.9, weight_decay=0.0).step()
    assert torch.equal(p, weight(3, 3))
    assert torch.equal(zero, weight(3, 3))


def taken(model: nn.Module) -> set[str]:
    """The names of the parameters that Muon takes of a model; AdamW must have the others."""
    optimizers = build_optimizers(model, build(TrainSettings, {"optimizer": "muon"}))
    names = {id(p): n for n, p in model.named_parameters()}
    muon, rest = ([names[id(p)] for g in o.param_groups for p in g["params"]] for o in optimizers)
    assert sorted(muon + rest) == sorted(names.values())
    assert isinstance(optimizers[0], Muon)
    return set(muon)


def test_it_takes_kernels_and_matrices_between_the_first_layer_and_the_head() -> None:
    assert taken(create_model("simplecnn")) == {"conv2.weight"}
    resnet = create_model("resnet20")
    kernels = {f"{n}.weight" for n, m in resnet.named_modules() if isinstance(m, nn.Conv2d)}
    assert taken(resnet) == kernels - {"conv1.weight"}


def test_it_leaves_embeddings_grouped_kernels_and_positions() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 4, 3)
            self.depthwise = nn.Conv2d(4, 4, 3, groups=4)
            self.words = nn.Embedding(7, 4)
            self.positions = nn.Parameter(torch.zeros(1, 7, 4))
            self.hidden = nn.Linear(4, 4)
            self.signal = nn.Conv1d(4, 4, 3)
            self.head = nn.Linear(4, 2)

    assert taken(Mixed()) == {"hidden.weight", "signal.weight"}
