"""torchvision's checkpoints: in and out bit for bit, and rejected with the first wrong key where they do not fit."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cutaway import create_model
from cutaway.checkpoints import torchvision
from cutaway.checkpoints.torchvision import (
    matching_preset,
    read_checkpoint,
    torchvision_key,
    torchvision_names,
    write_checkpoint,
)
from cutaway.core.errors import FileError, ModelError, UnknownName
from cutaway.models.registry import Preset, preset

# Few channels, and as many layers as there are: the keys stay those of the preset.
TINY = {
    "width": 8,
    "widths": (4, 4, 4, 4, 4),
    "hidden_dim": 16,
    "growth_rate": 4,
    "stem_channels": 8,
    "dim": 12,
    "groups": 4,
    "heads": 3,
    "ffn_dim": 16,
}


def tiny(name: str, **changes: Any) -> Preset:
    """The preset with few channels."""
    whole = preset(name)
    fields = {k: v for k, v in TINY.items() if k in whole.setting_names}
    return dataclasses.replace(whole, config=dataclasses.replace(whole.config, **fields | changes))


def random_weights(model: nn.Module) -> nn.Module:
    """The model with every tensor drawn anew, counters too: no two are alike."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            drawn = torch.rand(tensor.shape, generator=generator)
            tensor.copy_(drawn if tensor.is_floating_point() else 1000 * drawn)
    return model


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    """What torchvision would save of a resnet18 for grey images of four kinds."""
    return dict(create_model("resnet18", in_channels=1, num_classes=4).state_dict())


def _same(model: nn.Module, state: dict[str, Tensor]) -> bool:
    found = model.state_dict()
    return found.keys() == state.keys() and all(torch.equal(found[k], state[k]) for k in state)


@pytest.mark.parametrize("name", sorted(torchvision_names()))
def test_every_network_goes_there_and_back_bit_for_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchvision, "preset", tiny)
    config = dataclasses.replace(tiny(name).config, in_channels=2, num_classes=7)
    if hasattr(config, "image_size"):
        config = dataclasses.replace(config, image_size=5 * config.size_step)
    heads = (True, False) if hasattr(config, "auxiliary") else (None,)
    for auxiliary in heads:
        if auxiliary is not None:
            config = dataclasses.replace(config, auxiliary=auxiliary)
        model = random_weights(preset(name).build(config))
        target = tmp_path / f"{auxiliary}.safetensors"
        key_map = write_checkpoint(model, target)
        assert key_map == {k: torchvision_key(name, k) for k in model.state_dict()}
        assert set(load_file(target)) == set(key_map.values())
        loaded = read_checkpoint(target, name)
        assert loaded.model.config == config
        assert loaded.key_map == {theirs: ours for ours, theirs in key_map.items()}
        assert _same(loaded.model, dict(model.state_dict()))


OLD_NAMES = {
    "densenet121": (r"(denselayer\d+\.(?:norm|conv))([12]\.)", r"\1.\2"),
    "vit-base/32": (r"mlp\.(0|3)\.", lambda found: f"mlp.linear_{1 + int(found[1]) // 3}."),
}


@pytest.mark.parametrize("name", sorted(OLD_NAMES))
def test_the_names_of_old_files_are_known(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision, "preset", tiny)
    model = random_weights(tiny(name).build(tiny(name).config))
    key_map = write_checkpoint(model, tmp_path / "new.safetensors")
    new = load_file(tmp_path / "new.safetensors")
    old = {re.sub(*OLD_NAMES[name], k): v for k, v in new.items()}
    assert len(old.keys() - new.keys()) > 20
    save_file(old, tmp_path / "old.safetensors")
    loaded = read_checkpoint(tmp_path / "old.safetensors", name)
    assert _same(loaded.model, dict(model.state_dict()))
    assert {re.sub(*OLD_NAMES[name], theirs): ours for ours, theirs in key_map.items()} == loaded.key_map

    both = old | {k: v for k, v in new.items() if k not in old}
    torch.save(both, tmp_path / "both.pth")
    with pytest.raises(FileError, match="are not the network's, the first"):
        read_checkpoint(tmp_path / "both.pth", name)


@pytest.mark.parametrize("name", ["googlenet", "inception-v3"])
def test_part_of_the_auxiliary_heads_is_not_enough(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision, "preset", tiny)
    model = tiny(name).build(tiny(name).config)
    write_checkpoint(model, tmp_path / "whole.safetensors")
    state = load_file(tmp_path / "whole.safetensors")
    removed = next(
        k for k in state if k.lower().startswith("aux") and k.endswith("fc.weight" if "3" in name else "fc1.weight")
    )
    save_file({k: v for k, v in state.items() if k != removed}, tmp_path / "part.safetensors")
    with pytest.raises(FileError, match=f"1 of the network's .*missing, the first {removed}"):
        read_checkpoint(tmp_path / "part.safetensors", name)
    assert "mean 0.5 and standard deviation 0.5" in read_checkpoint(tmp_path / "whole.safetensors", name).notes[-1]


@pytest.mark.parametrize("rows", [18, 1, 0])
def test_positions_of_no_square_of_patches_are_rejected(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchvision, "preset", tiny)
    found = tiny("vit-base/32")
    write_checkpoint(found.build(found.config), tmp_path / "whole.safetensors")
    state = load_file(tmp_path / "whole.safetensors")
    save_file(state | {"encoder.pos_embedding": torch.zeros(1, rows, 12)}, tmp_path / "wrong.safetensors")
    with pytest.raises(
        FileError, match=rf"encoder\.pos_embedding: \(1, {rows}, 12\) where the network has \(1, 50, 12\)"
    ):
        read_checkpoint(tmp_path / "wrong.safetensors", "vit-base/32")


def test_no_two_keys_of_ours_become_one() -> None:
    for name in torchvision_names():
        keys = torchvision._shapes(preset(name), preset(name).config)
        assert len({torchvision_key(name, k) for k in keys}) == len(keys), name


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_there_and_back_bit_for_bit(tmp_path: Path, state: dict[str, Tensor], suffix: str) -> None:
    source, target = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    if suffix == ".safetensors":
        save_file(state, source)
    else:
        torch.save(state, source)
    loaded = read_checkpoint(source, "resnet18")
    assert (loaded.model.config.in_channels, loaded.model.config.num_classes) == (1, 4)
    assert loaded.notes == ()
    assert loaded.key_map == {k: k for k in state}
    assert not loaded.model.training
    assert _same(loaded.model, state)

    assert write_checkpoint(loaded.model, target) == {k: k for k in state}
    written = load_file(target) if suffix == ".safetensors" else torch.load(target, weights_only=True)
    assert list(written) == list(state) or suffix == ".safetensors"
    assert _same(read_checkpoint(target, "resnet18").model, state)


def test_old_files_without_counters_are_taken_and_it_is_said(tmp_path: Path, state: dict[str, Tensor]) -> None:
    old = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
    torch.save(old, tmp_path / "old.pth")
    loaded = read_checkpoint(tmp_path / "old.pth", "resnet18")
    assert _same(loaded.model, state)
    assert "20 counters num_batches_tracked" in loaded.notes[0]
    assert loaded.key_map == {k: k for k in old}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda s: s.pop("layer3.0.conv1.weight"),
            r"1 of the network's 122 .*missing, the first layer3\.0\.conv1\.weight",
        ),
        (
            lambda s: s.update({"layer1.2.conv1.weight": torch.zeros(1)}),
            r"not the network's, the first layer1\.2\.conv1",
        ),
        (lambda s: s.update({"bn1.weight": torch.zeros(65)}), r"bn1\.weight: \(65,\) where the network has \(64,\)"),
        (lambda s: s.pop("fc.weight"), r"missing, the first fc\.weight"),
        (lambda s: s.update({"conv1.weight": torch.zeros(())}), r"conv1\.weight: \(\) where"),
    ],
    ids=["missing", "unexpected", "misshapen", "without a head", "without a stem"],
)
def test_a_checkpoint_that_does_not_fit_is_rejected_with_its_first_wrong_key(
    tmp_path: Path, state: dict[str, Tensor], change: Callable[[dict[str, Any]], object], said: str
) -> None:
    wrong = dict(state)
    change(wrong)
    torch.save(wrong, tmp_path / "wrong.pth")
    with pytest.raises(FileError, match=said):
        read_checkpoint(tmp_path / "wrong.pth", "resnet18")


def test_a_checkpoint_of_another_network_is_rejected_and_its_own_is_named(
    tmp_path: Path, state: dict[str, Tensor]
) -> None:
    torch.save(state, tmp_path / "18.pth")
    with pytest.raises(FileError, match=r"missing, the first layer1\.2\.conv1\.weight") as rejected:
        read_checkpoint(tmp_path / "18.pth", "resnet34")
    assert "Its tensors are those of resnet18: read it as resnet18." in str(rejected.value)


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.path),))


def test_a_program_hidden_in_a_checkpoint_is_not_run(tmp_path: Path, state: dict[str, Tensor]) -> None:
    torch.save({**state, "extra": Trap(tmp_path / "sprung")}, tmp_path / "trap.pth")
    with pytest.raises(FileError, match="no code in it was run"):
        read_checkpoint(tmp_path / "trap.pth", "resnet18")
    assert not (tmp_path / "sprung").exists()


def test_files_that_are_no_state_dict_say_what_they_are(tmp_path: Path, state: dict[str, Tensor]) -> None:
    with pytest.raises(FileError, match="There is no file"):
        read_checkpoint(tmp_path / "absent.pth", "resnet18")
    for content, said in (
        ({"epoch": 3, "lr": 0.1}, r"holds the keys epoch, lr\. Save the model's state_dict\(\) alone"),
        ({"model": state, "ema": state}, "those under model and ema could each be it"),
        (torch.zeros(3), "holds one Tensor"),
        ({}, "holds nothing"),
    ):
        torch.save(content, tmp_path / "other.pth")
        with pytest.raises(FileError, match=said):
            read_checkpoint(tmp_path / "other.pth", "resnet18")
    (tmp_path / "text.pth").write_text("weights")
    (tmp_path / "text.safetensors").write_text("weights")
    torch.save(state, tmp_path / "cut.pth")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "cut.pth").read_bytes()[:9999])
    for name in ("text.pth", "text.safetensors", "cut.pth"):
        with pytest.raises(FileError, match=rf"{name} is not a checkpoint that can be read"):
            read_checkpoint(tmp_path / name, "resnet18")


def test_a_state_dict_among_other_things_is_taken_out_and_it_is_said(tmp_path: Path, state: dict[str, Tensor]) -> None:
    for name in ("model", "state_dict"):
        torch.save({"epoch": 3, name: state, "optimizer": {"state": {}, "lr": 0.1}}, tmp_path / "nested.pth")
        loaded = read_checkpoint(tmp_path / "nested.pth", "resnet18")
        assert _same(loaded.model, state)
        assert loaded.notes == (f"The weights are those under {name!r}; other entries of the file are not read.",)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_what_a_wrapper_put_before_the_keys_is_left_out_and_it_is_said(
    tmp_path: Path, state: dict[str, Tensor], prefix: str
) -> None:
    wrapped = {prefix + k: v for k, v in state.items()}
    torch.save(wrapped, tmp_path / "wrapped.pth")
    loaded = read_checkpoint(tmp_path / "wrapped.pth", "resnet18")
    assert _same(loaded.model, state)
    assert loaded.key_map == {prefix + k: k for k in state}
    assert prefix in loaded.notes[0]

    del wrapped[f"{prefix}layer3.0.conv1.weight"]
    wrapped[f"{prefix}extra"] = torch.zeros(1)
    torch.save(wrapped, tmp_path / "wrapped.pth")
    with pytest.raises(FileError) as rejected:
        read_checkpoint(tmp_path / "wrapped.pth", "resnet18")
    assert f"the first {prefix}layer3.0.conv1.weight;" in str(rejected.value)
    assert f"the first {prefix}extra." in str(rejected.value)


def test_the_random_state_is_left_as_it_was(tmp_path: Path, state: dict[str, Tensor]) -> None:
    torch.save(state, tmp_path / "state.pth")
    before = torch.get_rng_state()
    read_checkpoint(tmp_path / "state.pth", "resnet18")
    assert torch.equal(torch.get_rng_state(), before)


def test_networks_that_torchvision_has_not_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the network with other strides: read them as resnet50"):
        read_checkpoint(tmp_path / "x.pth", "resnet50-v1")
    with pytest.raises(ModelError, match="no checkpoint of resnet20"):
        read_checkpoint(tmp_path / "x.pth", "resnet20")
    with pytest.raises(UnknownName):
        read_checkpoint(tmp_path / "x.pth", "resnet19")
    assert matching_preset(create_model("resnet18", num_classes=2)) == "resnet18"
    for model in (create_model("resnet18", width=8), create_model("resnet20"), nn.Linear(1, 1)):
        with pytest.raises(ModelError, match="torchvision has no network like this"):
            write_checkpoint(model, tmp_path / "x.pth")
    assert not list(tmp_path.iterdir())


def test_a_suffix_must_say_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"\.pth, \.pt, \.safetensors"):
        write_checkpoint(create_model("resnet18"), tmp_path / "x.bin")
