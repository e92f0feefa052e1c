"""AlexNet beside torchvision's and beside the plain one, in further configs."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from cutaway.checkpoints.torchvision import FAMILIES, torchvision_key
from cutaway.models.alexnet import PRESETS, AlexNet, Config
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare
from cutaway.verify.convnets import PlainAlexNet, plain_alexnet

SMALL = Config(widths=(6, 8, 10, 8, 4), hidden_dim=12, num_classes=5)


@pytest.mark.parametrize("name", FAMILIES["alexnet"].builders)
def test_keys_and_shapes_are_torchvisions(name: str) -> None:
    models = pytest.importorskip("torchvision.models")
    with torch.device("meta"):
        ours, theirs = (
            AlexNet(PRESETS[name]).state_dict(),
            getattr(models, FAMILIES["alexnet"].builders[name])().state_dict(),
        )
    assert [(torchvision_key(name, k), v.shape) for k, v in ours.items()] == [(k, v.shape) for k, v in theirs.items()]


@pytest.mark.parametrize(
    ("form", "stem", "channels"), list(itertools.product(["2014", "2012"], ["imagenet", "small"], [1, 3]))
)
def test_both_forms_with_both_stems(form: str, stem: str, channels: int) -> None:
    config = dataclasses.replace(SMALL, form=form, stem=stem, in_channels=channels)
    oracle = oracle_for("alexnet", config)
    assert isinstance(oracle.module, PlainAlexNet)
    assert compare(AlexNet(config), oracle, torch.Generator().manual_seed(1)).equal


def test_one_tower_is_another_network() -> None:
    one, two = SMALL, dataclasses.replace(SMALL, form="2012")
    with pytest.raises(ValueError, match=r"conv2.weight .* does not fit"):
        compare(AlexNet(one), plain_alexnet(two), torch.Generator().manual_seed(1))


@pytest.mark.parametrize("seed", range(3))
def test_a_factor_of_five_in_alpha_is_noticed(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    from cutaway.models import alexnet

    config = dataclasses.replace(SMALL, form="2012", stem="small")
    torch.manual_seed(seed)
    model = AlexNet(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # no ReLU is dead: α is seen where something arrives
            if name.endswith("bias"):
                parameter.fill_(1.0)
    forward, wrong = alexnet.LocalResponse.forward, alexnet.LocalResponse(alpha=1e-4 / 5)
    monkeypatch.setattr(alexnet.LocalResponse, "forward", lambda self, x: forward(wrong, x))
    measured = compare(model, plain_alexnet(config), torch.Generator().manual_seed(1))
    assert not measured.equal
    assert measured.outputs > 1e-7  # a hundred times the bound, and more: the input's part of the answer is not nothing
