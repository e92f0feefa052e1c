"""Folding batch normalization: the same outputs, the model untouched, and only what may be folded is."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway import create_model
from cutaway.nn.textbook.folding import fold_batch_norm


def lived_in(model: nn.Module) -> nn.Module:
    """The model in double precision, with weights and statistics that are not those of a new one."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand(tensor.shape, generator=generator))
    return model.double()


def norms(model: nn.Module) -> list[str]:
    return [name for name, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def assert_same_answers(model: nn.Module, folded: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        expected, found = model.eval()(x), folded(x)
    assert not folded.training
    assert float((found - expected).abs().max()) <= 1e-10 * float(expected.abs().max())


@pytest.mark.parametrize(
    ("name", "changes", "size"),
    [
        ("resnet18", {"width": 8, "num_classes": 5}, 33),
        ("resnet50", {"layers": (1, 2), "width": 8, "num_classes": 5}, 40),
        ("resnet20", {"in_channels": 1}, 12),
        ("simplecnn", {}, 28),
        ("deeplabv3-resnet18", {"layers": (1, 1), "width": 8, "dim": 8, "num_classes": 3, "auxiliary": False}, 25),
    ],
    ids=["resnet18", "resnet50", "resnet20", "simplecnn", "deeplabv3"],
)
def test_every_norm_behind_a_convolution_is_folded_and_the_answers_stay(
    name: str, changes: dict[str, object], size: int
) -> None:
    model = lived_in(create_model(name, **changes))
    before = copy.deepcopy(model.state_dict())
    model.train()
    x = torch.randn(2, model.config.in_channels, size, size, dtype=torch.float64)
    folded = fold_batch_norm(model, x)
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert norms(model)
    assert norms(folded) == []
    assert [k for k, _ in folded.named_modules()] == [k for k, _ in model.named_modules()]
    assert_same_answers(model, folded, x)
    assert_same_answers(model, folded, torch.randn(3, *x.shape[1:], dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "changes", "stay"),
    [
        ("vgg11-bn", {"width": 4, "hidden_dim": 8}, r"no name"),
        # Behind nothing, or behind what several layers gave.
        (
            "densenet121",
            {"layers": (2, 1), "growth_rate": 4, "stem_channels": 8},
            r".*\.norm1|transition\d\.norm|norm5",
        ),
        # Not run outside training; and behind a mean that takes in zeros, which a shift in front of it would change.
        ("googlenet", {"width": 8}, r"aux[12]\..*"),
        ("inception-v3", {"width": 2}, r"AuxLogits\..*|Mixed_\w+\.branch_pool\.bn"),
    ],
    ids=["vgg11-bn", "densenet121", "googlenet", "inception-v3"],
)
def test_what_stays_in_the_image_networks(name: str, changes: dict[str, object], stay: str) -> None:
    model = lived_in(create_model(name, num_classes=5, **changes))
    x = torch.randn(1, 3, *[model.config.least_size + 3] * 2, dtype=torch.float64)
    folded = fold_batch_norm(model, x)
    assert norms(folded) == [k for k in norms(model) if re.fullmatch(stay, k)]
    assert len(norms(folded)) < len(norms(model))
    assert_same_answers(model, folded, x)


class Odd(nn.Module):
    """A convolution and a normalization, joined in one of many ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        statistics = way != "statistics of the batch"
        self.conv = nn.Conv2d(3, 4, 3, padding=1, groups=1)
        self.norm = nn.BatchNorm2d(4, affine=way != "no weights", track_running_stats=statistics)
        self.other = nn.Conv2d(4, 4, 1)
        self.linear = nn.Linear(4, 4)
        self.norm1d = nn.BatchNorm1d(4)
        if way == "shared weights":
            self.other.weight = nn.Parameter(torch.randn(4, 4, 1, 1))
            self.tied = nn.Conv2d(4, 4, 1)
            self.tied.weight = self.other.weight
        if way == "a hook behind it":
            self.conv.register_forward_hook(lambda module, args, gave: 2 * gave)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        y: Tensor = self.conv(x)
        if self.way == "used twice":
            return self.norm(y) + y
        if self.way == "called twice":
            return self.norm(y) + self.norm(self.conv(x.flip(3)))
        if self.way == "returned too":
            return self.norm(y), y
        if self.way == "changed between":
            return self.norm(y.relu_())
        if self.way == "norm first":
            return self.other(torch.relu(self.norm(torch.relu(y))))
        if self.way == "its weights used elsewhere":
            return self.norm(y) + self.conv.weight.sum()
        if self.way == "another axis":
            return self.norm1d(self.linear(y.flatten(2).mT[:, :4]))
        if self.way == "a linear layer":
            return self.norm1d(self.linear(y.mean((2, 3))))
        if self.way == "shared weights":
            return self.tied(self.norm(self.other(y)))
        return self.norm(y)


STAY = (
    "used twice",
    "called twice",
    "returned too",
    "changed between",
    "norm first",
    "its weights used elsewhere",
    "another axis",
    "a hook behind it",
    "statistics of the batch",
)


def _first(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("way", STAY)
def test_a_norm_stays_where_folding_would_change_something(way: str) -> None:
    model = lived_in(Odd(way)).eval()
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    folded = fold_batch_norm(model, x)
    assert norms(folded) == norms(model)
    with torch.no_grad():
        assert torch.equal(_first(folded(x)), _first(model(x)))


@pytest.mark.parametrize("way", ["plain", "no weights", "a linear layer", "shared weights"])
def test_a_norm_goes_where_nothing_changes(way: str) -> None:
    model = lived_in(Odd(way)).eval()
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    folded = fold_batch_norm(model, x)
    assert len(norms(folded)) == 1
    assert_same_answers(model, folded, x)


LAYERS: tuple[Callable[[], nn.Module], ...] = (
    lambda: nn.Conv2d(4, 4, 1),
    lambda: nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False),
    lambda: nn.ReLU(inplace=True),
    lambda: nn.Tanh(),
    lambda: nn.BatchNorm2d(4),
    lambda: nn.BatchNorm2d(4, eps=0.1, affine=False),
    lambda: nn.BatchNorm2d(4, track_running_stats=False),
    lambda: nn.GroupNorm(2, 4),
    lambda: nn.Dropout(),
)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=6))
def test_any_sequence_of_layers_gives_the_same_answers(made: list[Callable[[], nn.Module]]) -> None:
    torch.manual_seed(0)
    model = lived_in(nn.Sequential(*(make() for make in made)))
    x = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    folded = fold_batch_norm(model, x)
    working = [m for m in model if not isinstance(m, nn.Dropout)]  # dropout hands on what it took
    pairs = sum(
        isinstance(a, nn.Conv2d) and isinstance(b, nn.BatchNorm2d) and b.track_running_stats
        for a, b in itertools.pairwise(working)
    )
    assert len(norms(folded)) == len(norms(model)) - pairs
    assert_same_answers(model, folded, x)


@settings(deadline=None, max_examples=20)
@given(widths=st.lists(st.integers(1, 8), max_size=3), norm=st.sampled_from(["none", "layer"]))
def test_a_model_without_batch_norm_is_copied_bit_for_bit(widths: list[int], norm: str) -> None:
    model = create_model("mlp", in_features=4, num_classes=3, hidden_dims=tuple(widths), norm=norm)
    folded = fold_batch_norm(model, torch.zeros(1, 4))
    before, after = model.state_dict(), folded.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert not {id(p) for p in model.parameters()} & {id(p) for p in folded.parameters()}


def test_memory_format_number_format_and_gradients_stay_as_they_were() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8)).to(memory_format=torch.channels_last)
    model[0].weight.requires_grad_(False)
    folded = fold_batch_norm(model, torch.zeros(1, 4, 5, 5))
    assert folded[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert {p.dtype for p in folded.parameters()} == {torch.float32}
    assert not any(p.requires_grad for p in folded.parameters())


def test_hooks_of_the_search_are_gone_even_where_the_example_does_not_fit() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8))
    with pytest.raises(RuntimeError):
        fold_batch_norm(model, torch.zeros(1, 5, 5, 5))
    folded = fold_batch_norm(model, torch.zeros(1, 4, 5, 5))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in (*model.modules(), *folded.modules()))
