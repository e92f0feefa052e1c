"""The two parts of a gradient at a residual block's input: against a network whose other part is cut off."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from cutaway.models import resnet
from cutaway.nn.modules import batch_norm_mode
from cutaway.views import gradients
from cutaway.views.gradients import compare_paths, path_norms
from cutaway.views.subject import Subject, open_model

from ..small import small


def opened(shortcut: str, block: str = "basic", order: str = "post") -> Subject:
    torch.manual_seed(0)
    config = resnet.Config(
        layers=(2, 2), width=4, stem="cifar", shortcut=shortcut, block=block, order=order, num_classes=3
    )
    return open_model(resnet.Model(config).double(), torch.randn(3, 3, 8, 8, dtype=torch.float64))


def by_hand(subject: Subject, cut: str) -> list[float]:
    """The norms at the inputs of the blocks but the first of what comes through one way, the other cut off."""
    blocks = subject.model.residual_blocks()  # type: ignore[operator]
    found = []
    for before, block in itertools.pairwise(blocks):
        way = block.downsample if cut == "shortcut" else block.conv1
        kept: list[Tensor] = []

        def detached(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(x.detach() for x in given)

        def keep(module: nn.Module, given: object, output: Tensor, kept: list[Tensor] = kept) -> None:
            kept.append(output)

        hooks = [way.register_forward_pre_hook(detached), before.register_forward_hook(keep)]
        with batch_norm_mode(subject.model):
            (gradient,) = torch.autograd.grad(subject.loss(), kept, allow_unused=True)
        for hook in hooks:
            hook.remove()
        found.append(0.0 if gradient is None else float(gradient.norm()))
    return found


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize(("shortcut", "block"), [("A", "basic"), ("B", "basic"), ("B", "bottleneck")])
def test_each_part_is_what_is_left_where_the_other_is_cut(shortcut: str, block: str, order: str) -> None:
    subject = opened(shortcut, block, order)
    before = {name: x.clone() for name, x in subject.model.state_dict().items()}
    found = path_norms(subject)
    assert [direct for direct, _ in found] == pytest.approx(by_hand(subject, "layers"), rel=1e-9, abs=1e-12)
    assert [other for _, other in found] == pytest.approx(by_hand(subject, "shortcut"), rel=1e-9)
    assert all(p.grad is None for p in subject.model.parameters())
    assert all(torch.equal(before[name], x) for name, x in subject.model.state_dict().items())


def test_the_view_draws_both_parts_of_residual_networks_alone() -> None:
    found = gradients.draw_gradients(opened("A"))
    (drawing,) = (d for d in found["drawings"] if d["title"] == "Gradient at a block's input")
    assert [series["name"] for series in drawing["series"]] == ["through the shortcut", "through the layers"]
    assert [x for x, _ in drawing["series"][0]["points"]] == [2, 3, 4]
    assert "comes through the shortcut" in found["summary"]
    model, inputs = small("vgg11")
    assert compare_paths(open_model(model, *inputs)) is None
    assert compare_paths(opened("none")) is None


def test_one_value_of_a_unit_has_no_statistics_and_the_kept_ones_are_taken() -> None:
    model = resnet.Model(resnet.Config(layers=(1, 1), width=4, stem="cifar", num_classes=3))
    assert all(sum(both) > 0 for both in path_norms(open_model(model, torch.randn(1, 3, 2, 2))))
