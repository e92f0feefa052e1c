"""Generation and preprocessor configs of a Hugging Face folder. Their settings are reported but not applied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.errors import FileError
from ...core.files import read_json
from .config_fields import format_json

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
            raise FileError(f"{folder / name} holds no settings by name: take it from where it came.")
        parts = [said, *(part for part in said.values() if isinstance(part, dict))]
        fields = {field: part[field] for part in parts for field in PREPARING if field in part}
        if fields:
            return (f"{name} has {_listed(fields)}: nothing here applies them. Prepare inputs so.",)
    return ()


def _listed(fields: Mapping[str, Any]) -> str:
    said = [f"{field}={format_json(value)}" for field, value in fields.items()]
    return ", ".join(said[:NAMED]) + (f" and {len(said) - NAMED} more" if len(said) > NAMED else "")
