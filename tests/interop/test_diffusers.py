"""diffusers' folders: what it saved is read to equal outputs, what is written here it loads to equal outputs, and there
and back every bit is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import cutaway
from cutaway.errors import FileError, ModelError
from cutaway.interop.convert import convert
from cutaway.interop.diffusers import SCHEDULER, WEIGHTS, is_diffusers, read_diffusers, write_diffusers
from cutaway.interop.oracles import OracleMissing, oracle_for
from cutaway.interop.oracles.compare import difference
from cutaway.models.ddpm_unet import DDPM, Config
from cutaway.models.registry import preset
from cutaway.models.saving import load_model, save_model

WITH_CLASSES = Config(
    in_channels=1, classes=3, widths=(4, 8), layers=1, attention_levels=(2,), groups=2, timesteps=20,
    dropout=0.0, noise_schedule="cosine",
)  # fmt: skip
PLAIN = Config(widths=(4, 8, 8), layers=2, attention_levels=(1,), groups=4, dropout=0.1)
Change = Callable[[dict[str, Any]], object]


def drawn(config: Config) -> DDPM:
    """The model with every tensor drawn anew, in float64: none is at its first value."""
    torch.manual_seed(0)
    model = DDPM(config).double().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model


def outputs(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    with torch.no_grad():
        answers: Tensor = module(*inputs)
    return answers


@pytest.mark.parametrize("config", [WITH_CLASSES, PLAIN], ids=["classes", "plain"])
def test_it_is_the_same_network_on_either_side(config: Config, tmp_path: Path) -> None:
    try:
        oracle = oracle_for("ddpm-unet", config)
    except OracleMissing as missing:
        pytest.skip(str(missing))
    both: Any = oracle.module
    unet, time_proj = both.unet.double().eval(), both.unet.time_proj
    inputs = oracle.inputs(torch.Generator().manual_seed(1))
    unet.save_pretrained(tmp_path / "theirs")
    both.scheduler.save_pretrained(tmp_path / "theirs")
    found = read_diffusers(tmp_path / "theirs")
    assert found.model.config == config
    assert not found.notes
    assert difference(outputs(found.model, inputs), outputs(both, inputs)) <= 1e-9
    assert set(found.key_map) == set(load_file(tmp_path / "theirs" / WEIGHTS))

    model = drawn(config)
    write_diffusers(model, tmp_path / "ours", (8, 8))
    kind: Any = type(unet)
    loaded, told = kind.from_pretrained(
        tmp_path / "ours", output_loading_info=True, torch_dtype=torch.float64, low_cpu_mem_usage=False
    )
    assert not any(told.values()), told
    loaded.time_proj = time_proj  # theirs are computed in float32
    both.unet = loaded.eval()
    assert difference(outputs(both, inputs), outputs(model, inputs)) <= 1e-9
    betas = type(both.scheduler).from_pretrained(tmp_path / "ours").alphas_cumprod
    torch.testing.assert_close(betas.double(), config.signal, atol=1e-6, rtol=1e-4)


def test_there_and_back_every_bit_is_kept(tmp_path: Path) -> None:
    model = drawn(WITH_CLASSES)
    save_model(model, tmp_path / "model", preset("ddpm-unet-small"))
    there = convert(tmp_path / "model", tmp_path / "theirs", "diffusers")
    back = convert(tmp_path / "theirs", tmp_path / "back", "cutaway", "ddpm-unet-small")
    assert is_diffusers(tmp_path / "theirs")
    assert not is_diffusers(tmp_path / "back")
    again, description = load_model(tmp_path / "back")
    assert description["preset"] == back.preset == there.preset == "ddpm-unet-small"
    kept, loaded = again.state_dict(), cutaway.load(tmp_path / "theirs").state_dict()
    for key, tensor in model.state_dict().items():
        assert torch.equal(kept[key], tensor)
        assert torch.equal(loaded[key], tensor)
    assert again.config == WITH_CLASSES
    assert sorted(", ".join(sorted(name for name, ours in back.key_map.items() if ours == key)) for key in kept) == (
        sorted(", ".join(sorted(names.split(", "))) for names in there.key_map.values())
    )


def test_a_pipeline_and_older_names_are_read_and_no_schedule_is_said(tmp_path: Path) -> None:
    model = drawn(WITH_CLASSES)
    write_diffusers(model, tmp_path / "pipeline" / "unet")
    folder = tmp_path / "pipeline" / "unet"
    assert "It has no scheduler_config.json" in str(_without(folder, SCHEDULER).notes)
    (folder / SCHEDULER).rename(tmp_path / "pipeline" / SCHEDULER)
    former = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    tensors = load_file(folder / WEIGHTS)
    for now, then in former.items():
        tensors = {name.replace(f".{now}.", f".{then}."): tensor for name, tensor in tensors.items()}
    save_file(tensors, folder / WEIGHTS)
    found = read_diffusers(tmp_path / "pipeline")
    assert found.model.config == WITH_CLASSES
    assert all(torch.equal(a, b) for a, b in zip(found.model.state_dict().values(), model.state_dict().values()))


def _without(folder: Path, name: str) -> Any:
    """The folder read without that file, which is then put back."""
    (folder / name).rename(folder / "away")
    try:
        return read_diffusers(folder)
    finally:
        (folder / "away").rename(folder / name)


@pytest.mark.parametrize(
    ("file", "change", "error", "words"),
    [
        ("config.json", lambda c: c.update(_class_name="UNet2DConditionModel"), ModelError, "UNet2DModel is here"),
        ("config.json", lambda c: c.update(attention_head_dim=4), ModelError, "attention_head_dim=4, which the net"),
        ("config.json", lambda c: c.pop("flip_sin_to_cos"), ModelError, "flip_sin_to_cos=true"),
        ("config.json", lambda c: c.update(up_block_types=["UpBlock2D"] * 2), ModelError, "the same in reverse"),
        ("config.json", lambda c: c.update(block_out_channels=[4]), ModelError, "of one length"),
        ("config.json", lambda c: c.update(block_out_channels=[4, "8"]), ModelError, "where a whole number belongs"),
        ("config.json", lambda c: c.update(block_out_channels=[4, 16]), FileError, "have another shape"),
        ("config.json", lambda c: c.update(layers_per_block=10**9), FileError, "not enough for layers_per_block"),
        (SCHEDULER, lambda c: c.update(prediction_type="v_prediction"), ModelError, 'prediction_type="v_prediction"'),
        (SCHEDULER, lambda c: c.update(num_train_timesteps=10**12), ModelError, "more than 100,000 are not read"),
    ],
)
def test_what_is_no_network_of_ours_is_said(
    file: str, change: Change, error: type[Exception], words: str, tmp_path: Path
) -> None:
    write_diffusers(drawn(WITH_CLASSES), tmp_path / "theirs")
    path = tmp_path / "theirs" / file
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(error, match=words):
        read_diffusers(tmp_path / "theirs")


def test_what_cannot_be_written_or_read_is_said(tmp_path: Path) -> None:
    save_model(cutaway.create_model("softmax"), tmp_path / "softmax", preset("softmax"))
    with pytest.raises(ModelError, match=r"no network like Linear.* These have: ddpm-unet, ddpm-unet-small"):
        convert(tmp_path / "softmax", tmp_path / "out", "diffusers")
    write_diffusers(drawn(WITH_CLASSES), tmp_path / "theirs")
    with pytest.raises(FileError, match="exists and is not written over"):
        write_diffusers(drawn(WITH_CLASSES), tmp_path / "theirs")
    with pytest.raises(FileError, match="is a folder of diffusers already"):
        convert(tmp_path / "theirs", tmp_path / "out", "diffusers")
    with pytest.raises(ModelError, match="and resnet18 is none"):
        read_diffusers(tmp_path / "theirs", "resnet18")
    (tmp_path / "theirs" / WEIGHTS).unlink()
    with pytest.raises(FileError, match=r"no diffusion_pytorch_model\.safetensors\. Pickles"):
        read_diffusers(tmp_path / "theirs")
