"""Adapters of PEFT: what is learned here answers there as it does here, and the other way round."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cutaway.checkpoints.convert import convert, open_model
from cutaway.checkpoints.huggingface.folders import read_folder, write_folder
from cutaway.checkpoints.huggingface.lora_adapters import CONFIG, WEIGHTS, merge_adapter, write_adapter
from cutaway.core.errors import FileError, ModelError
from cutaway.core.files import read_json, write_json
from cutaway.models.registry import create_model
from cutaway.nn.lora import LoRALinear, adapt, adaptable, merge
from cutaway.verify.libraries import make_torchvision_importable, transformers_library

SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"layers": 2, "dim": 24, "heads": 3, "context_length": 16, "vocab_size": 50, "dropout": 0.0},
    "bert-base-uncased": {
        "layers": 2, "dim": 24, "heads": 3, "context_length": 16, "vocab_size": 50, "dropout": 0.0, "head": "classes",
        "num_classes": 3,
    },
}  # fmt: skip
TARGETS = {"gpt2": ["c_attn"], "bert-base-uncased": ["query", "value"]}
AUTO = {"gpt2": "AutoModelForCausalLM", "bert-base-uncased": "AutoModelForSequenceClassification"}
TOKENS = torch.randint(5, 50, (3, 9), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def peft() -> Any:
    """The module peft, which takes as long to import as PyTorch does."""
    make_torchvision_importable()
    return importlib.import_module("peft")


def base(name: str, folder: Path) -> nn.Module:
    """A network in float64, which a Hugging Face folder holds too."""
    torch.manual_seed(0)
    model = create_model(name, **SMALL[name]).double().eval()
    write_folder(model, name, folder)
    return model


def theirs_of(name: str, folder: Path) -> Any:
    """transformers' network of the folder."""
    return getattr(transformers_library(), AUTO[name]).from_pretrained(folder, dtype=torch.float64)


def stirred(parameters: Any) -> None:
    """Numbers that say something."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in parameters:
            p.copy_(0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype))


@pytest.mark.parametrize("name", SMALL)
def test_what_is_learned_here_answers_alike_in_peft(name: str, tmp_path: Path, peft: Any) -> None:
    model = base(name, tmp_path / "base")
    adapt(model, adaptable(model), 4, 6)
    stirred(p for m in model.modules() if isinstance(m, LoRALinear) for p in (m.lora_A, m.lora_B))
    if name != "gpt2":
        model.head.requires_grad_(True)
        stirred(model.head.parameters())
    assert write_adapter(model, name, tmp_path / "adapter", str(tmp_path / "base"))
    theirs = peft.PeftModel.from_pretrained(theirs_of(name, tmp_path / "base"), tmp_path / "adapter").eval()
    with torch.no_grad():
        expected: Tensor = theirs(TOKENS).logits
        found = model(TOKENS)
        assert torch.allclose(found, expected, rtol=0, atol=1e-10)
        merge(model)
        assert torch.allclose(model(TOKENS), expected, rtol=0, atol=1e-10)
        fresh = read_folder(tmp_path / "base").model.double()
        assert merge_adapter(fresh, name, tmp_path / "adapter") == 2
        assert torch.allclose(fresh(TOKENS), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("more", [{}, {"use_rslora": True}, {"rank": True}])
def test_what_peft_has_learned_answers_alike_here(name: str, more: dict[str, Any], tmp_path: Path, peft: Any) -> None:
    base(name, tmp_path / "base")
    if "rank" in more:
        more = {"rank_pattern": {TARGETS[name][0]: 5}, "alpha_pattern": {TARGETS[name][-1]: 11}}
    task = {"task_type": "SEQ_CLS"} if name != "gpt2" else {"task_type": "CAUSAL_LM", "fan_in_fan_out": True}
    config = peft.LoraConfig(r=3, lora_alpha=7, target_modules=TARGETS[name], **task, **more)
    theirs = peft.get_peft_model(theirs_of(name, tmp_path / "base"), config).eval()
    stirred(p for p in theirs.parameters() if p.requires_grad)
    theirs.save_pretrained(tmp_path / "adapter")
    with torch.no_grad():
        expected = theirs(TOKENS).logits
    done = convert(tmp_path / "base", tmp_path / "ours", "cutaway", adapter=tmp_path / "adapter")
    assert "of 2 layers" in done.notes[-1]
    found = open_model(tmp_path / "ours", None)[0].double()
    with torch.no_grad():
        assert torch.allclose(found(TOKENS), expected, rtol=0, atol=1e-10)


def test_an_adapter_that_is_not_for_the_model_is_rejected(tmp_path: Path) -> None:
    model = base("gpt2", tmp_path / "base")
    adapt(model, adaptable(model), 4, 6)
    folder = tmp_path / "adapter"
    write_adapter(model, "gpt2", folder, "base")
    plain = read_folder(tmp_path / "base").model
    other = create_model("gpt2", **{**SMALL["gpt2"], "dim": 12})
    with pytest.raises(FileError, match=r"h\.0\.attn\.c_attn is 36 × 12 here, and the adapter is for 72 × 24"):
        merge_adapter(other, "gpt2", folder)
    shallow = create_model("gpt2", **{**SMALL["gpt2"], "layers": 1})
    with pytest.raises(FileError, match=r"no place for .*h\.1\.attn"):
        merge_adapter(shallow, "gpt2", folder)
    with pytest.raises(ModelError, match="no network like lstm"):
        merge_adapter(plain, "lstm", folder)
    with pytest.raises(FileError, match="holds no adapter of PEFT: it has no adapter_config"):
        merge_adapter(plain, "gpt2", tmp_path / "base")
    settings = read_json(folder / CONFIG)
    for change, said in (
        ({"r": 0}, "r is 0, and an adapter has a rank"),
        ({"r": "4"}, "r is a string, and must be an integer"),
        ({"lora_alpha": None}, "lora_alpha is null, and must be a number"),
        ({"rank_pattern": {"c_attn": 0}}, "rank_pattern.c_attn is 0, and must be an integer from 1"),
    ):
        write_json(folder / CONFIG, {**settings, **change})
        with pytest.raises(FileError, match=f"adapter_config.json: {said}"):
            merge_adapter(plain, "gpt2", folder)
    (folder / CONFIG).write_text("null")
    with pytest.raises(FileError, match=r"adapter_config\.json: the document is null, and must be an object"):
        merge_adapter(plain, "gpt2", folder)
    write_json(folder / CONFIG, {**settings, "use_dora": True})
    with pytest.raises(ModelError, match="use_dora=True"):
        merge_adapter(plain, "gpt2", folder)
    write_json(folder / CONFIG, {**settings, "peft_type": "IA3"})
    with pytest.raises(ModelError, match="is a IA3"):
        merge_adapter(plain, "gpt2", folder)
    write_json(folder / CONFIG, settings)
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:100])
    with pytest.raises(FileError, match="cannot be read"):
        merge_adapter(plain, "gpt2", folder)
    (folder / WEIGHTS).write_bytes(content)
    save_file({k: v for k, v in load_file(folder / WEIGHTS).items() if "lora_A" in k}, folder / WEIGHTS)
    with pytest.raises(FileError, match="no place for"):
        merge_adapter(plain, "gpt2", folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("r", "4"), ("r", 0), ("r", None), ("lora_alpha", [6]), ("lora_alpha", float("nan")), ("lora_alpha", 10**400),
        ("use_rslora", "yes"), ("rank_pattern", [4]), ("rank_pattern", {"c_attn": "4"}),
        ("alpha_pattern", {"c_attn": 0}),
        ("layer_replication", [[0, 2]]), ("alora_invocation_tokens", [5]), ("target_parameters", ["x"]),
    ],
)  # fmt: skip
def test_a_setting_of_an_adapter_that_is_not_read_is_refused_by_name(field: str, value: Any, tmp_path: Path) -> None:
    model = base("gpt2", tmp_path / "base")
    adapt(model, adaptable(model), 4, 6)
    write_adapter(model, "gpt2", tmp_path / "adapter", "base")
    plain = read_folder(tmp_path / "base").model
    settings = read_json(tmp_path / "adapter" / CONFIG)
    (tmp_path / "adapter" / CONFIG).write_text(json.dumps(settings | {field: value}), encoding="utf-8")
    with pytest.raises((FileError, ModelError), match=field):
        merge_adapter(plain, "gpt2", tmp_path / "adapter")
    (tmp_path / "adapter" / CONFIG).write_text("[]", encoding="utf-8")
    with pytest.raises(FileError, match="the document is a list, and must be an object"):
        merge_adapter(plain, "gpt2", tmp_path / "adapter")
