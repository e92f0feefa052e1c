"""What a Hugging Face folder says beside sizes and weights is kept, used and written back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cutaway.checkpoints.convert import convert, open_model
from cutaway.checkpoints.huggingface import families
from cutaway.checkpoints.huggingface.config_files import DECODING
from cutaway.checkpoints.huggingface.folders import read_folder
from cutaway.checkpoints.match_config import get_origin
from cutaway.core.errors import FileError, ModelError
from cutaway.inference.text import NONE, generate
from cutaway.models.registry import preset
from cutaway.verify.compare import difference
from tests.checkpoints.test_huggingface import KINDS, drawn, oracle, outputs, small

# Fields of which a folder may say another thing than is usual; the ids that a family knows by other means are left.
TOLD: dict[str, Any] = {
    "bos_token_id": 7,
    "eos_token_id": [9, 11],
    "initializer_range": 0.5,
    "problem_type": "multi_label_classification",
    "task_specific_params": {"summary": {"length_penalty": 2.0}},
}
RATES = {
    "timesformer": {"hidden_dropout_prob": 0.3},
    "bert": {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2, "classifier_dropout": 0.4},
    "roberta": {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2, "classifier_dropout": 0.4},
    "albert": {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2, "classifier_dropout_prob": 0.4},
    "distilbert": {"dropout": 0.3, "attention_dropout": 0.2, "seq_classif_dropout": 0.4, "qa_dropout": 0.5},
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.2, "attn_pdrop": 0.3, "summary_first_dropout": 0.4},
    "t5": {"dropout_rate": 0.3, "classifier_dropout": 0.4, "decoder_start_token_id": 3, "pad_token_id": 2},
    "bart": {
        "dropout": 0.3,
        "attention_dropout": 0.2,
        "activation_dropout": 0.1,
        "classifier_dropout": 0.4,
        "decoder_start_token_id": 3,
        "forced_bos_token_id": 0,
    },
    "whisper": {"dropout": 0.3, "decoder_start_token_id": 3, "mask_time_prob": 0.1, "median_filter_width": 5},
}


def said(folder: Path, file: str = "config.json") -> dict[str, Any]:
    """A file of settings, without what each writer says of itself."""
    document: dict[str, Any] = json.loads((folder / file).read_text(encoding="utf-8"))
    return {k: v for k, v in document.items() if k not in ("transformers_version", "dtype", "torch_dtype")}


def told(folder: Path, file: str = "config.json", **values: Any) -> None:
    """Change a file of settings."""
    path = folder / file
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**known, **values}), encoding="utf-8")


def saved(there: Any, folder: Path, labels: int = 3) -> Path:
    """transformers' network as it saves it, told to be unlike the usual."""
    torch.manual_seed(0)
    there.module.model.double().save_pretrained(folder)
    names = [f"kind {i}" for i in range(labels)]
    told(folder, id2label={str(i): n for i, n in enumerate(names)}, label2id={n: i for i, n in enumerate(names)})
    told(folder, **TOLD, **RATES.get(said(folder)["model_type"], {}))
    told(folder, "generation_config.json", eos_token_id=[9, 11], num_beams=4, no_repeat_ngram_size=3, max_length=33)
    return folder


@pytest.mark.parametrize(("name", "head"), [(name, head) for name, head, tied in KINDS if tied])
def test_there_and_back_the_folder_says_the_same(name: str, head: str, tmp_path: Path) -> None:
    config = small(name, head, **({"num_classes": 3} if head in ("classes", "tags") or name == "timesformer" else {}))
    there = oracle(name, config)
    folder = saved(there, tmp_path / "there")
    convert(folder, tmp_path / "here", "cutaway")
    convert(tmp_path / "here", tmp_path / "back", "huggingface")
    assert said(tmp_path / "back") == said(folder)
    assert said(tmp_path / "back", "generation_config.json") == said(folder, "generation_config.json")
    model = open_model(tmp_path / "here", None)[0]
    again = open_model(tmp_path / "back", None)[0]
    assert difference(outputs(model, there), outputs(there.module.eval(), there)) <= 1e-9
    assert torch.equal(outputs(model, there), outputs(again, there))
    origin = get_origin(model)
    assert origin is not None
    assert (origin.ends, origin.notes) == ((9, 11), ())


def test_generation_ends_where_the_folder_says(tmp_path: Path) -> None:
    there = oracle("gpt2", small("gpt2", "next"))
    with torch.no_grad():
        for parameter in there.module.model.parameters():
            parameter.add_(0.4 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    there.module.model.save_pretrained(tmp_path / "there")
    prompt = torch.tensor([[5, 6, 7], [0, 0, 8], [0, 4, 1]])
    mask = torch.tensor([[1, 1, 1], [0, 0, 1], [0, 1, 1]])
    free = generate(read_folder(tmp_path / "there").model, prompt, 12, mask=mask, ends=(), temperature=0)
    ends = sorted({int(free[0, 3]), int(free[1, 5])})
    for file in ("config.json", "generation_config.json"):
        told(tmp_path / "there", file, eos_token_id=ends, pad_token_id=0)
    kind = type(there.module.model)
    expected = kind.from_pretrained(tmp_path / "there").generate(
        prompt, attention_mask=mask, max_new_tokens=12, do_sample=False, eos_token_id=ends, pad_token_id=0
    )[:, 3:]
    for folder in (tmp_path / "there", tmp_path / "here"):
        found = generate(open_model(folder, None)[0], prompt, 12, mask=mask, temperature=0)
        assert (found == NONE).any()
        for ours, theirs in zip(found.tolist(), expected.tolist()):
            stop = next((i for i, token in enumerate(theirs) if token in ends), len(theirs))
            assert [token for token in ours if token != NONE] == theirs[:stop]
        if folder.name == "there":
            convert(folder, tmp_path / "here", "cutaway")


def test_what_is_said_of_generating_counts_before_what_is_said_of_the_network(tmp_path: Path) -> None:
    saved(oracle("gpt2", small("gpt2", "next")), tmp_path)
    for generation, ends in (({"eos_token_id": 5}, (5,)), ({"max_length": 5}, ()), (None, (9, 11))):
        (tmp_path / "generation_config.json").unlink()
        (tmp_path / "generation_config.json").write_text(json.dumps(generation or {}))
        if generation is None:
            (tmp_path / "generation_config.json").unlink()
        origin = get_origin(read_folder(tmp_path).model)
        assert origin is not None
        assert origin.ends == ends
    for wrong in ("the end", [1.5]):
        told(tmp_path, eos_token_id=wrong)
        with pytest.raises(FileError, match="where ids of tokens belong"):
            read_folder(tmp_path)


def test_a_body_comes_back_as_a_body_and_says_each_time_that_its_head_is_new(tmp_path: Path) -> None:
    there = oracle("bert-base-uncased", small("bert-base-uncased", "masked"))
    there.module.model.bert.save_pretrained(tmp_path / "there")
    first = convert(tmp_path / "there", tmp_path / "here", "cutaway").notes
    assert any("New, since the folder has none: head." in note for note in first)
    for _ in range(2):
        assert any("Drawn at random" in note for note in open_model(tmp_path / "here", None)[-1])
    assert any("Drawn at random" in note for note in convert(tmp_path / "here", tmp_path / "back", "huggingface").notes)
    assert said(tmp_path / "back")["architectures"] == ["BertModel"]
    assert not [key for key in load_file(tmp_path / "back" / "model.safetensors") if key.startswith("cls.")]
    again = type(there.module.model.bert).from_pretrained(tmp_path / "back", add_pooling_layer=False)
    assert all(torch.equal(v, there.module.model.bert.state_dict()[k]) for k, v in again.state_dict().items())


@pytest.mark.parametrize("name", ["bert-base-uncased", "roberta-base", "albert-base-v2"])
@pytest.mark.parametrize("which", ["both", "added", "saved"])
def test_the_bias_that_the_output_layer_adds_is_the_one_that_is_taken(name: str, which: str, tmp_path: Path) -> None:
    there = oracle(name, small(name, "masked"))
    there.module.model.double().save_pretrained(tmp_path)
    family = next(f for f in families().values() if name in f.presets)
    assert family.output_bias is not None
    added, kept = family.output_bias
    tensors = {k: v for k, v in load_file(tmp_path / "model.safetensors").items() if k not in (added, kept)}
    for number, key in enumerate((added, kept)):
        if which in ("both", ("added", "saved")[number]):
            tensors[key] = torch.randn(50, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    found = read_folder(tmp_path)
    there.module.model = type(there.module.model).from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert difference(outputs(found.model, there), outputs(there.module, there)) <= 1e-9
    assert set(found.key_map) <= set(tensors)


@pytest.mark.parametrize("model_type", [t for t, family in families().items() if family.aliases])
def test_a_field_by_its_other_name_is_read_or_rejected(model_type: str, tmp_path: Path) -> None:
    family = families()[model_type]
    name = family.presets[0]
    saved(oracle(name, small(name, **({"head": "masked"} if model_type == "distilbert" else {}))), tmp_path)
    before, config = read_folder(tmp_path), said(tmp_path)
    for alias, field in family.aliases.items():
        changed = {k: v for k, v in config.items() if k != field} | {alias: config[field]}
        (tmp_path / "config.json").write_text(json.dumps(changed))
        assert read_folder(tmp_path).model.config == before.model.config
        told(tmp_path, **{field: config[field] + 1})
        with pytest.raises(ModelError, match=rf"{alias}=.* beside {field}="):
            read_folder(tmp_path)


@pytest.mark.parametrize("field", ["pruned_heads", "quantization_config"])
def test_what_makes_another_network_is_rejected_by_name(field: str, tmp_path: Path) -> None:
    saved(oracle("gpt2", small("gpt2", "next")), tmp_path)
    told(tmp_path, **{field: {"0": [1]}})
    with pytest.raises(ModelError, match=field):
        read_folder(tmp_path)


def test_without_an_origin_nothing_is_said_of_one() -> None:
    model = drawn("gpt2", small("gpt2", "next"))
    assert get_origin(model) is None
    assert preset("gpt2").build(small("gpt2", "next")).config.rates == (0.1, 0.1, 0.1)


# Fields of how transformers generates that change no token, or that are used here: the ends.
NO_TOKEN = {
    "_from_model_config", "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight",
    "assistant_lookbehind", "bos_token_id", "cache_config", "cache_implementation", "compile_config",
    "continuous_batching_config", "decoder_start_token_id", "disable_compile", "eos_token_id", "is_assistant",
    "low_memory", "max_cache_len", "max_length", "max_matching_ngram_size", "max_new_tokens", "max_time",
    "num_assistant_tokens", "num_assistant_tokens_schedule", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_logits", "output_scores", "pad_token_id", "prefill_chunk_size",
    "prompt_lookup_num_tokens", "return_dict_in_generate", "speculation_type", "target_lookbehind",
    "transformers_version", "use_cache", "use_mtp",
}  # fmt: skip


@pytest.mark.parametrize("name", ["gpt2", "bart-base", "bert-base-uncased"])
def test_settings_of_generation_are_said_by_name_where_a_network_writes(name: str, tmp_path: Path) -> None:
    saved(oracle(name, small(name)), tmp_path)
    kind = pytest.importorskip("transformers").GenerationConfig
    assert not {*kind().to_dict()} - NO_TOKEN - {*DECODING}, "say in this file what these do"
    for field in DECODING:
        (tmp_path / "generation_config.json").write_text(json.dumps({"num_beams": 1, field: 7}))
        found = [note for note in read_folder(tmp_path).notes if f"generation_config.json has {field}=7: " in note]
        assert len(found) == (name != "bert-base-uncased")
    (tmp_path / "generation_config.json").unlink()
    told(tmp_path, no_repeat_ngram_size=3)
    found = [note for note in read_folder(tmp_path).notes if " no_repeat_ngram_size=3: nothing here" in note]
    assert len(found) == (name != "bert-base-uncased")


def test_how_inputs_were_prepared_is_said_by_name(tmp_path: Path) -> None:
    saved(oracle("timesformer", small("timesformer", num_classes=3)), tmp_path)
    told(tmp_path, "preprocessor_config.json", image_mean=[0.45, 0.4, 0.5], do_normalize=True, size={"height": 8})
    said_ = 'do_normalize=true, image_mean=[0.45, 0.4, 0.5], size={"height": 8}'
    assert any(f"preprocessor_config.json has {said_}: nothing here" in note for note in read_folder(tmp_path).notes)
    for text in ("null", "[]", "5"):
        (tmp_path / "preprocessor_config.json").write_text(text)
        with pytest.raises(FileError, match=r"preprocessor_config\.json holds no settings by name"):
            read_folder(tmp_path)


@pytest.mark.parametrize("wrong", [True, -1, "2", 1.5, [None], {}], ids=str)
def test_ends_that_are_no_tokens_are_refused(wrong: Any, tmp_path: Path) -> None:
    saved(oracle("gpt2", small("gpt2", "next")), tmp_path)
    told(tmp_path, "generation_config.json", eos_token_id=wrong)
    with pytest.raises(FileError, match=r"eos_token_id=.* where ids of tokens belong"):
        read_folder(tmp_path)
