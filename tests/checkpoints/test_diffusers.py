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
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.diffusers import SCHEDULER, WEIGHTS, is_diffusers, read_diffusers, write_diffusers
from cutaway.checkpoints.saving import load_model, save_model
from cutaway.core.errors import FileError, ModelError
from cutaway.models.ddpm_unet import DDPM, Config
from cutaway.models.registry import preset
from cutaway.verify import OracleMissing, oracle_for
from cutaway.verify.compare import difference

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
        (SCHEDULER, lambda c: c.update(beta_schedule="sigmoid"), ModelError, 'beta_schedule="sigmoid"'),
        (SCHEDULER, lambda c: c.update(num_train_timesteps=1.5), ModelError, "num_train_timesteps=1.5, where a whole"),
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
    with pytest.raises(error, match=words) as raised:
        read_diffusers(tmp_path / "theirs")
    assert ("scheduler_config.json has" in str(raised.value)) == (file == SCHEDULER)


def test_what_cannot_be_written_or_read_is_said(tmp_path: Path) -> None:
    save_model(cutaway.create_model("softmax"), tmp_path / "softmax", preset("softmax"))
    with pytest.raises(ModelError, match=r"no network like Linear.* These have: ddpm-unet, ddpm-unet-small"):
        convert(tmp_path / "softmax", tmp_path / "out", "diffusers")
    write_diffusers(drawn(WITH_CLASSES), tmp_path / "theirs")
    with pytest.raises(FileError, match=r"already exists\. Choose another name, or move it away\."):
        write_diffusers(drawn(WITH_CLASSES), tmp_path / "theirs")
    with pytest.raises(FileError, match="is a folder of diffusers already"):
        convert(tmp_path / "theirs", tmp_path / "out", "diffusers")
    with pytest.raises(ModelError, match="not a resnet18"):
        read_diffusers(tmp_path / "theirs", "resnet18")
    (tmp_path / "theirs" / WEIGHTS).unlink()
    with pytest.raises(FileError, match=r"no diffusion_pytorch_model\.safetensors\. Pickles"):
        read_diffusers(tmp_path / "theirs")


# --- every field ----------------------------------------------------------------------------------------------------

# Other values of each field of the config of their network: read to equal outputs, or refused by the field's name.
READ: dict[str, list[Any]] = {
    "sample_size": [None, [8, 8], 16],
    "block_out_channels": [[6, 8], [4, 16]],
    "layers_per_block": [2],
    "mid_block_scale_factor": [1.0],
    "dropout": [0.2],
    "act_fn": ["swish"],
    "norm_num_groups": [1, 4],
    "num_class_embeds": [None, 6],
    "num_train_timesteps": [50],
}
REFUSED: dict[str, list[Any]] = {
    "in_channels": [2, 0, "1", None],
    "out_channels": [2],
    "center_input_sample": [True],
    "time_embedding_type": ["fourier", "learned"],
    "time_embedding_dim": [5],
    "freq_shift": [0],
    "flip_sin_to_cos": [True],
    "down_block_types": [["DownBlock2D"] * 2, ["ResnetDownsampleBlock2D", "AttnDownBlock2D"], "x", None],
    "mid_block_type": [None],
    "up_block_types": [["UpBlock2D"] * 2, 5],
    "downsample_padding": [1],
    "downsample_type": ["resnet"],
    "upsample_type": ["resnet"],
    "attention_head_dim": [8],
    "attn_norm_num_groups": [2],
    "norm_eps": [1e-5],
    "resnet_time_scale_shift": ["scale_shift"],
    "add_attention": [False],
    "class_embed_type": ["timestep", "identity"],
    "layers_per_block": [0, -1, 1.5],
    "norm_num_groups": [3, None],
    "act_fn": ["relu"],
    "dropout": [float("nan"), 10**400, "0.1", -1, None],
}
SCHEDULE_REFUSED: dict[str, list[Any]] = {
    "beta_start": [0.001],
    "beta_end": [0.01],
    "beta_schedule": ["scaled_linear"],
    "trained_betas": [[0.1, 0.2]],
    "prediction_type": ["v_prediction", "sample"],
    "thresholding": [True],
    "rescale_betas_zero_snr": [True],
    "num_train_timesteps": [0, 1.5, "20", None],
}
SCHEDULE_SAID: dict[str, list[Any]] = {
    "_class_name": ["EulerDiscreteScheduler"],
    "clip_sample": [False],
    "clip_sample_range": [2.0],
    "variance_type": ["fixed_large", "learned"],
    "set_alpha_to_one": [False],
}
SCHEDULE_READ: dict[str, list[Any]] = {"num_train_timesteps": [7], "beta_schedule": ["linear"]}
# How many steps are taken, and where, is decided where images are drawn; the others count with thresholding alone.
SCHEDULE_FREE = ("timestep_spacing", "steps_offset", "dynamic_thresholding_ratio", "sample_max_value")


def library() -> Any:
    oracle_for("ddpm-unet", WITH_CLASSES)  # makes it importable
    return pytest.importorskip("diffusers")


def written(folder: Path, **fields: Any) -> tuple[Any, dict[str, Any]]:
    """Their network with other values of its config, saved, and that config."""
    write_diffusers(drawn(WITH_CLASSES), folder)
    document = {**json.loads((folder / "config.json").read_text()), "num_train_timesteps": None, **fields}
    torch.manual_seed(0)
    unet = library().UNet2DModel.from_config({k: v for k, v in document.items() if k != "_class_name"}).double().eval()
    with torch.no_grad():
        for p in unet.parameters():
            p.add_(0.2 * torch.randn_like(p))
    unet.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(document))
    return unet, document


def test_every_field_of_their_configs_is_known_here(tmp_path: Path) -> None:
    found = library()
    _, document = written(tmp_path / "theirs")
    assert not {*document, *found.UNet2DModel().config} - {*READ, *REFUSED, "_class_name", "_use_default_values"}
    known = {*SCHEDULE_REFUSED, *SCHEDULE_SAID, *SCHEDULE_READ, *SCHEDULE_FREE, "_use_default_values"}
    for kind in (found.DDPMScheduler, found.DDIMScheduler):
        assert not {*kind().config} - known


def test_another_value_gives_their_outputs_or_is_refused_by_the_field(tmp_path: Path) -> None:
    x, t = (
        torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
        torch.tensor([3, 7]),
    )
    for i, (field, value) in enumerate((field, value) for field, values in READ.items() for value in values):
        unet, document = written(tmp_path / str(i), **{field: value})
        half = document["block_out_channels"][0] // 2
        unet.time_proj = type(oracle_for("ddpm-unet", WITH_CLASSES).module.unet.time_proj)(half)  # type: ignore[union-attr]
        classes = torch.tensor([0, 1]) if document["num_class_embeds"] else None
        with torch.no_grad():
            theirs = unet(x, t, class_labels=classes).sample
            ours = read_diffusers(tmp_path / str(i)).model.double()(x, t, None, classes)
        assert difference(ours, theirs) <= 1e-9, (field, value)
    _, document = written(tmp_path / "theirs")
    for field, values in REFUSED.items():
        for value in values:
            (tmp_path / "theirs" / "config.json").write_text(json.dumps({**document, field: value}))
            with pytest.raises(ModelError) as error:
                read_diffusers(tmp_path / "theirs")
            assert field in str(error.value) or (field == "in_channels" and "out_channels" in str(error.value))


def test_every_field_of_a_schedule_is_read_refused_or_said(tmp_path: Path) -> None:
    write_diffusers(drawn(WITH_CLASSES), tmp_path / "theirs")
    path = tmp_path / "theirs" / SCHEDULER
    document = json.loads(path.read_text())
    for field, values in SCHEDULE_REFUSED.items():
        for value in values:
            path.write_text(json.dumps({**document, field: value}))
            with pytest.raises(ModelError, match=field):
                read_diffusers(tmp_path / "theirs")
    for field, values in SCHEDULE_SAID.items():
        for value in values:
            path.write_text(json.dumps({**document, field: value}))
            assert f"{field}={json.dumps(value)}" in str(read_diffusers(tmp_path / "theirs").notes)
    for field, values in SCHEDULE_READ.items():
        for value in values:
            path.write_text(json.dumps({**document, field: value}))
            ours: Any = read_diffusers(tmp_path / "theirs").model.config
            theirs = library().DDPMScheduler.from_pretrained(tmp_path / "theirs").alphas_cumprod
            torch.testing.assert_close(theirs.double(), ours.signal, atol=1e-6, rtol=1e-4)
    for text in ("null", "[]", "5", '"x"'):
        path.write_text(text)
        with pytest.raises(FileError, match="and must be an object"):
            read_diffusers(tmp_path / "theirs")


def test_half_precision_is_made_single_and_two_names_of_one_tensor_are_refused(tmp_path: Path) -> None:
    write_diffusers(drawn(WITH_CLASSES), folder := tmp_path / "theirs")
    tensors = load_file(folder / WEIGHTS)
    save_file({name: tensor.half() for name, tensor in tensors.items()}, folder / WEIGHTS)
    found = read_diffusers(folder)
    assert {p.dtype for p in found.model.parameters()} == {torch.float32}
    assert "The weights are float16 in the file, and float32 here." in found.notes
    name = next(name for name in tensors if "to_q.weight" in name)
    save_file({**tensors, name.replace("to_q", "query"): tensors[name] + 1}, folder / WEIGHTS)
    with pytest.raises(FileError, match=r"query\.weight and .*to_q\.weight, which are two names of one tensor"):
        read_diffusers(folder)
