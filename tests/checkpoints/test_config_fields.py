"""Every field of a config.json, for every network of transformers that is read here: with another value the outputs are
transformers', or the folder is refused by the field's name."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import cutaway
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.huggingface import families
from cutaway.checkpoints.huggingface.config_files import resolve_aliases
from cutaway.checkpoints.huggingface.folders import read_folder
from cutaway.core.errors import CutawayError, ModelError
from cutaway.models.registry import create_model, preset
from cutaway.training.pretrained_weights import load_pretrained
from tests.checkpoints.hugging import KINDS, Kind

pytest.importorskip("transformers")

Values = Mapping[str, list[Any]]
# Fields that change no output, by why. All are given another value at once, and one at a time in a slow test.
NO_EFFECT: dict[str, Values] = {
    "what is returned beside the outputs": {"output_hidden_states": [True], "output_attentions": [True]},
    "how much is computed at a time": {"chunk_size_feed_forward": [1], "use_cache": [False]},
    "the first numbers, which the weights replace": {
        "initializer_range": [0.5],
        "init_std": [0.5],
        "initializer_factor": [2.0],
        "positional_encoding_type": ["random"],
        "sinusoidal_pos_embds": [True],
    },
    "names and notes": {
        "_name_or_path": ["x"],
        "transformers_version": ["x"],
        "id2label": [{"0": "x", "1": "y", "2": "z"}],
        "label2id": [{"x": 0}],
        "problem_type": ["multi_label_classification"],
        "is_encoder_decoder": [True],
    },
    "the precision in which the file's numbers are held": {"dtype": ["float64"], "reorder_and_upcast_attn": [False]},
    "generation, which the origin of the model keeps": {
        "bos_token_id": [3],
        "eos_token_id": [4],
        "decoder_start_token_id": [5],
        "forced_eos_token_id": [6],
        "suppress_tokens": [[3]],
        "begin_suppress_tokens": [[4]],
        "median_filter_width": [5],
    },
    "dropout of training": {
        "hidden_dropout_prob": [0.3],
        "attention_probs_dropout_prob": [0.3],
        "classifier_dropout": [0.3],
        "classifier_dropout_prob": [0.3],
        "dropout": [0.3],
        "dropout_rate": [0.3],
        "attention_dropout": [0.3],
        "seq_classif_dropout": [0.3],
        "resid_pdrop": [0.3],
        "embd_pdrop": [0.3],
        "attn_pdrop": [0.3],
        "summary_first_dropout": [0.3],
        "qa_dropout": [0.3],
    },
    "masks of training": {
        "apply_spec_augment": [True],
        "mask_time_prob": [0.5],
        "mask_time_length": [3],
        "mask_time_min_masks": [1],
        "mask_feature_prob": [0.5],
        "mask_feature_length": [3],
        "mask_feature_min_masks": [1],
        "mask_type": ["forecast"],
        "random_mask_ratio": [0.3],
        "num_forecast_mask_patches": [[1]],
        "channel_consistent_masking": [True],
        "unmasked_channel_indices": [[0]],
        "mask_value": [5],
    },
    "a head that is not read here": {
        "summary_type": ["mean"],
        "summary_use_proj": [False],
        "summary_activation": ["tanh"],
        "summary_proj_to_labels": [False],
        "use_weighted_layer_sum": [True],
        "classifier_proj_size": [9],
        "distribution_output": ["normal"],
        "num_parallel_samples": [3],
        "output_range": [[0, 1]],
        "encoder_stride": [4],
        "pooler_output_size": [7],
        "pooler_act": ["relu"],
    },
    "padding, of which the mask tells": {"pad_token_id": [3]},
}
# In some of them such a field has an effect, or another value than this.
BUT: dict[str, tuple[str, ...]] = {
    "VisionEncoderDecoderConfig": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "TimesformerConfig": ("attention_probs_dropout_prob",),
}
CLASSES = [None, {"0": "x"}, {"3": "a", "7": "b"}, {str(i): str(i) for i in range(5)}]
ACTIVATIONS = ["relu", "gelu_new", "gelu_pytorch_tanh", "silu", "swish", "tanh"]
ENCODER_READ: Values = {
    "vocab_size": [19],
    "hidden_size": [24],
    "num_hidden_layers": [1, 3],
    "num_attention_heads": [1, 4],
    "intermediate_size": [48, 7],
    "max_position_embeddings": [10, 20],
    "type_vocab_size": [1, 3],
    "layer_norm_eps": [0.1],
    "tie_word_embeddings": [False],
    "id2label": CLASSES,
    "num_labels": [2, 3, 5],
    "is_causal": [False],
}
MADE_OTHERWISE: Values = {"per_layer_config": [{"0": {"x": 1}}], "quantization_config": [{"bits": 4}]}
NOT_DECODERS: Values = {"is_decoder": [True], "add_cross_attention": [True]}
READ: dict[str, Values] = {
    "BertConfig": {**ENCODER_READ, "hidden_act": ACTIVATIONS},
    "RobertaConfig": {**ENCODER_READ, "pad_token_id": [0, 3]},
    "AlbertConfig": {**ENCODER_READ, "hidden_act": ACTIVATIONS, "embedding_size": [12, 5]},
    "DistilBertConfig": {
        "vocab_size": [19], "dim": [24], "n_layers": [1, 3], "n_heads": [1, 4], "hidden_dim": [48, 7],
        "max_position_embeddings": [10], "activation": ACTIVATIONS, "tie_word_embeddings": [False], "id2label": CLASSES,
        "num_labels": [2, 5],
    },
    "GPT2Config": {
        "vocab_size": [19], "n_positions": [9], "n_embd": [24], "n_layer": [1, 3], "n_head": [1, 4],
        "n_inner": [None, 16], "activation_function": ["gelu_pytorch_tanh"], "tie_word_embeddings": [False],
        "id2label": CLASSES, "num_labels": [2, 5],
    },
    "T5Config": {
        "vocab_size": [19], "d_model": [24], "d_kv": [4], "d_ff": [48], "num_layers": [1], "num_heads": [2],
        "num_decoder_layers": [None, 2], "relative_attention_num_buckets": [4, 16],
        "relative_attention_max_distance": [20], "tie_word_embeddings": [False, None], "scale_decoder_outputs": [False],
        "is_decoder": [True],
    },
    "BartConfig": {
        "vocab_size": [19], "d_model": [24], "encoder_layers": [1], "decoder_layers": [2, 3],
        "max_position_embeddings": [9], "is_decoder": [True], "attention_dropout": [0.3], "activation_dropout": [0.3],
    },
    "WhisperConfig": {
        "vocab_size": [19], "d_model": [24], "encoder_layers": [1], "decoder_layers": [2, 3], "num_mel_bins": [5],
        "max_source_positions": [7, 12], "max_target_positions": [6], "dropout": [0.3],
    },
    "PatchTSTConfig": {
        "num_input_channels": [1, 3], "context_length": [13, 20], "patch_length": [3], "patch_stride": [1, 4],
        "num_hidden_layers": [1], "d_model": [24], "num_attention_heads": [1, 2], "ffn_dim": [7], "pre_norm": [False],
        "prediction_length": [1, 5], "num_targets": [2], "default_scale": [2.0],
    },
    "TimesformerConfig": {
        "image_size": [12], "patch_size": [2], "num_channels": [1], "num_frames": [2], "hidden_size": [24],
        "num_hidden_layers": [1], "num_attention_heads": [1], "intermediate_size": [48], "id2label": CLASSES,
        "num_labels": [2, 5],
    },
    "VisionEncoderDecoderConfig": {
        "encoder.image_size": [12], "encoder.patch_size": [2], "encoder.num_channels": [1],
        "tie_word_embeddings": [True],
        "encoder.num_hidden_layers": [1], "encoder.layer_norm_eps": [0.1], "encoder.head_dim": [4],
        "decoder.vocab_size": [19], "decoder.n_positions": [9], "decoder.n_layer": [2], "decoder.is_decoder": [False],
        "decoder.tie_word_embeddings": [False], "is_encoder_decoder": [False],
        "decoder.cross_attention_hidden_size": [12],
        "decoder.activation_function": ["gelu_pytorch_tanh"],
    },
}  # fmt: skip
STACKS_REFUSED: Values = {
    "activation_function": ["relu", "quick_gelu"],
    "encoder_ffn_dim": [7],
    "decoder_ffn_dim": [7],
    "encoder_attention_heads": [2],
    "decoder_attention_heads": [2],
    "encoder_layerdrop": [0.3],
    "decoder_layerdrop": [0.3],
    "scale_embedding": [True],
    "is_encoder_decoder": [False],
    "is_causal": [False],
}
REFUSED: dict[str, Values] = {
    "BertConfig": {**NOT_DECODERS, "id2label": [{}], "hidden_act": ["quick_gelu"]},
    "RobertaConfig": {**NOT_DECODERS, "id2label": [{}], "hidden_act": ["relu"], "pad_token_id": [None, -1]},
    "AlbertConfig": {"id2label": [{}], "num_hidden_groups": [2], "inner_group_num": [2], "hidden_act": ["mish"]},
    "DistilBertConfig": {"id2label": [{}], "activation": ["mish"]},
    "GPT2Config": {
        "activation_function": ["relu"], "layer_norm_epsilon": [0.1], "scale_attn_weights": [False],
        "scale_attn_by_inverse_layer_idx": [True], "add_cross_attention": [True], "is_causal": [False, None],
        "id2label": [{}],
    },
    "T5Config": {
        "layer_norm_epsilon": [0.1], "feed_forward_proj": ["gated-gelu", "gelu"], "dense_act_fn": ["gelu_new"],
        "is_gated_act": [True], "is_encoder_decoder": [False], "is_causal": [False], "scale_decoder_outputs": [None],
    },
    "BartConfig": STACKS_REFUSED,
    "WhisperConfig": {
        **STACKS_REFUSED, "tie_word_embeddings": [False], "attention_dropout": [0.3], "activation_dropout": [0.3]
    },
    "PatchTSTConfig": {
        "norm_type": ["layernorm"], "norm_eps": [0.1], "activation_function": ["relu"], "bias": [False],
        "use_cls_token": [True], "share_embedding": [False], "share_projection": [False], "channel_attention": [True],
        "loss": ["nll"], "attention_dropout": [0.3], "head_dropout": [0.3], "ff_dropout": [0.3],
        "positional_dropout": [0.3], "path_dropout": [0.3], "do_mask_input": [True], "pooling_type": ["max"],
        "scaling": ["mean", True, False, None], "scaling_dim": [2], "keepdim": [False], "minimum_scale": [0.1],
        "prediction_length": [0],
    },
    "TimesformerConfig": {
        "attention_type": ["space_only"], "hidden_act": ["relu"], "layer_norm_eps": [0.1], "qkv_bias": [False],
        "attention_probs_dropout_prob": [0.3], "drop_path_rate": [0.3], "image_size": [7], "patch_size": [3, 0],
        "id2label": [{}],
    },
    "VisionEncoderDecoderConfig": {
        "encoder.hidden_act": ["relu"], "encoder.qkv_bias": [False], "encoder.hidden_dropout_prob": [0.3],
        "encoder.attention_probs_dropout_prob": [0.3], "encoder.image_size": [9], "encoder.head_dim": [6],
        "encoder.hidden_size": [24], "encoder.num_attention_heads": [2], "encoder.intermediate_size": [7],
        "encoder.patch_size": [3, 0], "decoder.add_cross_attention": [False], "decoder.is_causal": [False],
        "decoder.activation_function": ["relu"], "decoder.layer_norm_epsilon": [0.1], "decoder.n_head": [2],
        "decoder.scale_attn_weights": [False], "decoder.scale_attn_by_inverse_layer_idx": [True],
        "decoder.cross_attention_hidden_size": [16], "decoder.resid_pdrop": [0.3], "decoder.embd_pdrop": [0.3],
        "decoder.attn_pdrop": [0.3], "decoder.n_embd": [24], "decoder.n_inner": [16], "encoder.model_type": ["deit"],
        "encoder.per_layer_config": [{"0": {"x": 1}}], "decoder.model_type": ["bert"],
    },
}  # fmt: skip
BY_TENSOR = {
    "BartConfig": ("tie_word_embeddings",)
}  # refused by the name of a tensor: tests/checkpoints/test_tensors.py
# What a field is said by where it is another one that does not fit it.
SAID = {"path_dropout": "positional_dropout", "n_head": "num_attention_heads", "n_embd": "hidden_size"} | {
    "n_inner": "intermediate_size", "resid_pdrop": "resid_pdrop"
}  # fmt: skip
FIXED = ("architectures", "model_type", "return_dict", "encoder", "decoder")  # return_dict=false fails there itself


def with_value(document: Mapping[str, Any], field: str, value: Any) -> dict[str, Any]:
    """A config.json with another value of `field`, which may stand in a part of it."""
    found = copy.deepcopy(dict(document))
    part, _, name = field.rpartition(".")
    (found[part] if part else found)[name] = value
    return found


def write(folder: Path, kind: Kind, document: Mapping[str, Any]) -> Any:
    """Save transformers' network of a config.json and that file beside it; the network."""
    model = kind.build(document)
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    return model


def difference(kind: Kind, folder: Path, document: Mapping[str, Any]) -> tuple[float, Tensor]:
    """How far our outputs are from transformers', and transformers' own."""
    model = write(folder, kind, document)
    theirs = kind.answers(model)
    ours = kind.answers_here(folder, model.config)
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max()), theirs


def fields_of(kind: Kind) -> Iterator[tuple[str, str]]:
    """Every field of the config of a network, and its name without the part that it stands in."""
    for name, value in kind.document.items():
        if name not in FIXED:
            yield name, name
        elif isinstance(value, dict):
            yield from ((f"{name}.{field}", field) for field in value if field not in FIXED)


def without_effect(kind: Kind) -> dict[str, list[Any]]:
    """The fields of a network that change no output, with other values."""
    usual = {field: values for group in NO_EFFECT.values() for field, values in group.items()}
    tabled = {**READ[kind.config], **REFUSED[kind.config]}
    left = {*BUT.get(kind.config, ()), *tabled} - {"id2label"}
    return {field: usual[name] for field, name in fields_of(kind) if name in usual and field not in left}


@pytest.mark.parametrize("architecture", KINDS)
def test_every_field_is_known_here(architecture: str) -> None:
    kind = KINDS[architecture]
    known = {*READ[kind.config], *REFUSED[kind.config], *without_effect(kind), *BY_TENSOR.get(kind.config, ())}
    unknown = [field for field, _ in fields_of(kind) if field not in known]
    assert not unknown, f"say in this file what {unknown} of {kind.config} do"


@pytest.mark.parametrize("architecture", KINDS)
def test_fields_without_effect_change_nothing(architecture: str, tmp_path: Path) -> None:
    kind = KINDS[architecture]
    apart, theirs = difference(kind, tmp_path, kind.document)
    assert apart <= 1e-9
    document = kind.document
    for field, values in without_effect(kind).items():
        document = with_value(document, field, values[0])
    if kind.attention != "eager":
        document = with_value(document, "output_attentions", False)
    model = kind.build(kind.document)
    (tmp_path / "config.json").write_text(json.dumps(document), encoding="utf-8")
    changed = type(model.config).from_dict(copy.deepcopy(document))
    assert float((kind.answers_here(tmp_path, changed) - theirs).abs().max()) <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("architecture", KINDS)
def test_each_field_without_effect_changes_nothing_there_and_here(architecture: str, tmp_path: Path) -> None:
    kind = KINDS[architecture]
    for field, values in without_effect(kind).items():
        if kind.attention == "eager" or not field.endswith("output_attentions"):
            for value in values:
                assert difference(kind, tmp_path, with_value(kind.document, field, value))[0] <= 1e-9, (field, value)


@pytest.mark.parametrize("architecture", KINDS)
def test_another_value_gives_the_outputs_of_transformers(architecture: str, tmp_path: Path) -> None:
    kind = KINDS[architecture]
    for field, values in READ[kind.config].items():
        for value in values:
            apart, _ = difference(kind, tmp_path, with_value(kind.document, field, value))
            assert apart <= 1e-9, (field, value)


@pytest.mark.parametrize("architecture", KINDS)
def test_a_value_that_makes_another_network_is_refused_by_the_field(architecture: str, tmp_path: Path) -> None:
    kind = KINDS[architecture]
    write(tmp_path, kind, kind.document)
    for field, values in {**REFUSED[kind.config], **MADE_OTHERWISE}.items():
        name = field.rpartition(".")[2]
        if name in ONLY and architecture not in ONLY[name]:
            continue
        for value in values:
            if architecture == "PatchTSTForPrediction" and (field, value) == ("pooling_type", None):
                continue
            (tmp_path / "config.json").write_text(json.dumps(with_value(kind.document, field, value)))
            with pytest.raises(ModelError) as error:
                read_folder(tmp_path)
            said = str(error.value).removeprefix(str(tmp_path))
            assert name in said or SAID.get(name, name) in said, (field, value, said)


# Fields that some of the networks alone look at.
ONLY = {
    "id2label": [name for name in KINDS if "Classification" in name],
    "prediction_length": ["PatchTSTForPrediction"],
}
WRONG = [
    None, "12", "", [1], [[1]], {}, {"a": 1}, {"0": None}, True, 1.5, -1, -0.5, 0, 10**30, 10**400, 1e308,
    float("nan"), float("inf"),
]  # fmt: skip


@pytest.mark.parametrize("config", READ)
def test_a_value_of_another_type_is_read_or_refused_in_one_sentence(config: str) -> None:
    kind = next(kind for kind in KINDS.values() if kind.config == config)
    document = kind.document
    family = families()[document["model_type"]]
    for field, _ in (*fields_of(kind), ("architectures", ""), ("encoder", ""), ("decoder", ""), ("num_labels", "")):
        for value in WRONG:
            said = ""
            try:
                family.config(resolve_aliases(with_value(document, field, value), family.aliases))
            except ModelError as error:
                said = str(error)
            assert "\n" not in said, (field, value)
            assert len(said) < 400, (field, value, said)


@pytest.mark.parametrize("document", ["null", "[]", '["model_type"]', '"preset"', "5", "{}", '{"model_type": {}}'])
def test_a_config_that_is_none_is_refused_in_one_sentence(document: str, tmp_path: Path) -> None:
    write(tmp_path / "hf", KINDS["GPT2LMHeadModel"], KINDS["GPT2LMHeadModel"].document)
    (tmp_path / "hf" / "config.json").write_text(document)
    model = create_model("gpt2", vocab_size=18, context_length=12, dim=12, layers=2, heads=3)
    for read in (
        read_folder,
        cutaway.load,
        lambda path: convert(path, tmp_path / "out", "cutaway"),
        lambda path: convert(path, tmp_path / "out", "huggingface"),
        lambda path: load_pretrained(model, preset("gpt2"), str(path)),
    ):
        with pytest.raises(CutawayError) as error:
            read(tmp_path / "hf")
        assert "\n" not in str(error.value)
