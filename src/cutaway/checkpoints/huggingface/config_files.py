"""Fields of config.json and of the other config files of a Hugging Face folder.

Fields of config.json are read with checks of their types and supported values. The settings of generation and
preprocessor configs are reported but not applied.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.errors import CheckpointConfigError, FileError
from ...core.files import read_json
from ..saving import CONFIG

MAX_SIZE = 2**40  # maximum size: more does not fit into memory
MAX_CHARACTERS = 60  # maximum characters of a value in a message

# Our Config fields → transformers' names, for messages about a config.json.
ENCODERS = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "dim": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn_dim": "intermediate_size",
    "embedding_dim": "embedding_size",
    "token_types": "type_vocab_size",
    "first_position": "pad_token_id",
    "eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "head_dropout": "classifier_dropout",
    "num_classes": "num_labels",
}
NAMES: Mapping[str, Mapping[str, str]] = {
    "bert": ENCODERS,
    "roberta": ENCODERS,
    "albert": ENCODERS | {"head_dropout": "classifier_dropout_prob"},
    "distilbert": ENCODERS
    | {"dim": "dim", "layers": "n_layers", "heads": "n_heads", "ffn_dim": "hidden_dim", "dropout": "dropout"}
    | {"attention_dropout": "attention_dropout", "head_dropout": "seq_classif_dropout"},
    "gpt2": {
        "vocab_size": "vocab_size",
        "context_length": "n_positions",
        "dim": "n_embd",
        "layers": "n_layer",
        "heads": "n_head",
        "ffn_dim": "n_inner",
        "dropout": "resid_pdrop",
        "embedding_dropout": "embd_pdrop",
        "attention_dropout": "attn_pdrop",
        "num_classes": "num_labels",
    },
    "t5": {
        "vocab_size": "vocab_size",
        "dim": "d_model",
        "layers": "num_layers",
        "decoder_layers": "num_decoder_layers",
        "heads": "num_heads",
        "head_dim": "d_kv",
        "ffn_dim": "d_ff",
        "num_buckets": "relative_attention_num_buckets",
        "max_distance": "relative_attention_max_distance",
        "dropout": "dropout_rate",
    },
    "bart": {
        "vocab_size": "vocab_size",
        "context_length": "max_position_embeddings",
        "dim": "d_model",
        "layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "heads": "encoder_attention_heads",
        "ffn_dim": "encoder_ffn_dim",
        "activation_dropout": "activation_dropout",
    },
    "vision-encoder-decoder": {"target_vocab_size": "vocab_size", "context_length": "n_positions", "dim": "hidden_size"}
    | {"layers": "num_hidden_layers", "decoder_layers": "n_layer", "heads": "num_attention_heads"}
    | {"in_channels": "num_channels", "eps": "layer_norm_eps", "ffn_dim": "intermediate_size"},
    "patchtst": {
        "steps": "context_length",
        "in_features": "num_input_channels",
        "horizon": "prediction_length",
        "num_classes": "num_targets",
        "patch_size": "patch_length",
        "stride": "patch_stride",
        "dim": "d_model",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "dropout": "path_dropout",
    },
    "whisper": {
        "in_features": "num_mel_bins",
        "target_vocab_size": "vocab_size",
        "context_length": "max_target_positions",
        "dim": "d_model",
        "layers": "encoder_layers",
        "heads": "encoder_attention_heads",
        "ffn_dim": "encoder_ffn_dim",
    },
    "UNet2DModel": {
        "layers": "layers_per_block",
        "widths": "block_out_channels",
        "groups": "norm_num_groups",
        "classes": "num_class_embeds",
        "timesteps": "num_train_timesteps",
    },
    "timesformer": {
        "frames": "num_frames",
        "dim": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "ffn_dim": "intermediate_size",
        "dropout": "hidden_dropout_prob",
        "in_channels": "num_channels",
        "num_classes": "num_labels",
    },
}


def format_json(value: Any) -> str:
    """Return a config value as JSON, shortened if it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):  # nested too deeply, or too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def use_transformers_names(kind: str, message: str) -> str:
    """Replace our field names in a message, such as `heads=3`, by the names in a config.json of that model_type."""
    names = NAMES.get(kind, {})
    known = "|".join(sorted(names, key=len, reverse=True))
    return re.sub(rf"\b({known})=", lambda found: f"{names[found[1]]}=", message) if known else message


# Fields of any config.json that define another network.
UNSUPPORTED_FIELDS = ("pruned_heads", "quantization_config", "per_layer_config")


def resolve_aliases(theirs: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Return a config.json with one name for each field.

    Raises ModelError if two names of one field have different values, and for fields of unsupported networks.
    """
    found = dict(theirs)
    for alias, field in aliases.items():
        if alias not in theirs:
            continue
        if field in theirs and theirs[field] != theirs[alias]:
            raise CheckpointConfigError(
                f"config.json has {alias}={theirs[alias]!r} beside {field}={theirs[field]!r}, which is the same field: "
                "keep one of them."
            )
        found[field] = theirs[alias]
    for field in UNSUPPORTED_FIELDS:
        if found.get(field):
            raise CheckpointConfigError(
                f"config.json has {field}={format_json(found[field])}, which no network here has."
            )
    return found


def read_int(theirs: Mapping[str, Any], field: str, default: int, file: str = CONFIG) -> int:
    """Return an integer field. Raises ModelError if it is not an integer or larger than any possible size."""
    value = theirs.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_SIZE:
        raise CheckpointConfigError(f"{file} has {field}={format_json(value)}, where a whole number belongs.")
    return value


def read_shared_int(theirs: Mapping[str, Any], field: str, default: int) -> int:
    """Return a number that encoder and decoder share. Raises ModelError if they differ."""
    ours = read_int(theirs, f"encoder_{field}", default)
    other = read_int(theirs, f"decoder_{field}", default)
    if ours != other:
        raise CheckpointConfigError(
            f"config.json has decoder_{field}={other} and encoder_{field}={ours}, and the network here "
            "has one value for both."
        )
    return ours


def reject_partial_patches(size: int, patch: int) -> None:
    """Raise ModelError if images do not divide into whole patches.

    Transformers would ignore the last pixels of such images.
    """
    if patch < 1 or size % patch:
        raise CheckpointConfigError(
            f"config.json has image_size={size} and patch_size={patch}, which the network here does not have: "
            "image_size is a multiple of patch_size."
        )


def read_float(theirs: Mapping[str, Any], field: str, default: float) -> float:
    """Return a number field, or the default if it is absent. Raises ModelError if it is not a number."""
    value = theirs.get(field, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= sys.float_info.max:
        raise CheckpointConfigError(f"config.json has {field}={format_json(value)}, where a number belongs.")
    return float(value)


def read_bool(theirs: Mapping[str, Any], field: str, default: bool) -> bool:
    """Return a boolean field, or the default if it is absent. Raises ModelError if it is not a boolean."""
    value = theirs.get(field, default)
    if not isinstance(value, bool):
        raise CheckpointConfigError(f"config.json has {field}={format_json(value)}, where true or false belongs.")
    return value


def read_dropout(theirs: Mapping[str, Any], field: str, default: float, dropout: float) -> float | None:
    """Return a separate dropout rate, or None if it equals the network's."""
    value = read_float(theirs, field, default)
    return None if value == dropout else value


def require_values(theirs: Mapping[str, Any], **values: Any) -> None:
    """Raise ModelError unless each field has its only supported value or is absent."""
    for field, value in values.items():
        reject_others(theirs, field, (value,))


def reject_others(theirs: Mapping[str, Any], field: str, known: tuple[Any, ...], file: str = CONFIG) -> None:
    """Raise ModelError, with the field and the known values, if the config has another value.

    The first is the default.
    """
    value = theirs.get(field, known[0])
    if value not in known:
        raise CheckpointConfigError(
            f"{file} has {field}={format_json(value)}, which the network here does not have: "
            f"it knows {', '.join(map(format_json, known))}."
        )


GENERATION = "generation_config.json"
PREPARATION = ("preprocessor_config.json", "processor_config.json")
NAMED = 6  # maximum fields in a sentence

# Fields that change which tokens transformers' `generate` writes.
DECODING = (
    "bad_words_ids",
    "begin_suppress_tokens",
    "constraints",
    "diversity_penalty",
    "do_sample",
    "dola_layers",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "force_words_ids",
    "forced_bos_token_id",
    "forced_decoder_ids",
    "forced_eos_token_id",
    "guidance_scale",
    "length_penalty",
    "min_length",
    "min_new_tokens",
    "min_p",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "penalty_alpha",
    "remove_invalid_values",
    "renormalize_logits",
    "repetition_penalty",
    "sequence_bias",
    "stop_strings",
    "suppress_tokens",
    "temperature",
    "token_healing",
    "top_h",
    "top_k",
    "top_p",
    "typical_p",
    "watermarking_config",
)
NEUTRAL: tuple[Any, ...] = (None, False, 0, 1, [], {})  # values without an effect
# Fields that change the values of an image or a recording.
PREPARING = (
    "chunk_length",
    "crop_size",
    "do_center_crop",
    "do_convert_rgb",
    "do_normalize",
    "do_rescale",
    "do_resize",
    "feature_size",
    "hop_length",
    "image_mean",
    "image_std",
    "n_fft",
    "resample",
    "rescale_factor",
    "sampling_rate",
    "size",
)


def generation_note(generation: Mapping[str, Any] | None, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence on how transformers generates with a model; none for default settings.

    Without a generation_config.json the fields of config.json count.
    """
    file, said = ("config.json", config) if generation is None else (GENERATION, generation)
    fields = {field: said[field] for field in DECODING if field in said and said[field] not in NEUTRAL}
    if not fields:
        return ()
    return (f"{file} has {_listed(fields)}: nothing here applies them. Give such settings when you generate.",)


def preparation_note(folder: Path) -> tuple[str, ...]:
    """Return a sentence on how inputs of the model must be prepared; none if the folder does not say so.

    Raises FileError for a file without settings.
    """
    for name in PREPARATION:
        if not (folder / name).is_file():
            continue
        said = read_json(folder / name)
        if not isinstance(said, dict):
            raise FileError(f"{folder / name} holds no settings by name: download it again.")
        parts = [said, *(part for part in said.values() if isinstance(part, dict))]
        fields = {field: part[field] for part in parts for field in PREPARING if field in part}
        if fields:
            return (f"{name} has {_listed(fields)}: nothing here applies them. Prepare inputs so.",)
    return ()


def _listed(fields: Mapping[str, Any]) -> str:
    said = [f"{field}={format_json(value)}" for field, value in fields.items()]
    return ", ".join(said[:NAMED]) + (f" and {len(said) - NAMED} more" if len(said) > NAMED else "")
