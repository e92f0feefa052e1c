"""PatchTST in transformers: scaling and patches in the network, and separate matrices for queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import CheckpointConfigError
from ...models.patchtst import PRESETS, Config
from . import Family, Rule
from .config_files import read_bool, read_float, read_int, reject_others, require_values

BLOCK, LAYER = r"blocks\.(\d+)\.", r"encoder.layers.\1."
NORM = r"(weight|bias|running_mean|running_var|num_batches_tracked)"
FORECASTS, CLASSIFIES = "PatchTSTForPrediction", "PatchTSTForClassification"
DROPOUTS = ("positional_dropout", "path_dropout", "ff_dropout")  # one field in our Config


def settings(config: Config) -> dict[str, Any]:
    """Return the arguments of PatchTSTConfig.

    Raises ModelError for padded windows and windows that are not longer than a patch, which it does not support.
    """
    if config.padding_patch != "none":
        raise CheckpointConfigError(
            "This model has padding_patch=end, the last value repeated at the end of a window, and transformers' "
            "PatchTST has no padding. Train with model.padding_patch=none."
        )
    if config.tokens < 2 and config.steps == config.patch:
        raise CheckpointConfigError(
            f"This model reads a window as one patch of {config.patch} steps, and transformers' PatchTST has windows "
            "longer than a patch alone: train with a smaller model.patch_size."
        )
    return {
        "num_input_channels": config.columns,
        "context_length": config.steps,
        "patch_length": config.patch,
        "patch_stride": config.apart,
        "num_hidden_layers": config.layers,
        "d_model": config.dim,
        "num_attention_heads": config.heads,
        "ffn_dim": config.ffn_dim,
        **dict.fromkeys(DROPOUTS, config.dropout),
        "pre_norm": config.order == "pre",
        "positional_encoding_type": "random",
        "pooling_type": None if config.horizon else "mean",
        "prediction_length": config.horizon or 1,
        "num_targets": 1 if config.horizon else config.num_classes,
        "scaling": "std",
        "loss": "mse",
    }


def parse_config(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value.

    `positional_encoding_type` is ignored, because the position table is stored in either case.
    """
    named = theirs.get("architectures") or [FORECASTS]
    reject_others({"architectures": named}, "architectures", ([FORECASTS], [CLASSIFIES]))
    forecasts = named == [FORECASTS]
    reject_others(
        {"pooling_type": theirs.get("pooling_type", "mean")}, "pooling_type", (None if forecasts else "mean",)
    )
    require_values(
        theirs,
        norm_type="batchnorm",
        norm_eps=1e-5,
        minimum_scale=1e-5,
        activation_function="gelu",
        bias=True,
        use_cls_token=False,
        share_embedding=True,
        share_projection=True,
        channel_attention=False,
        loss="mse",
        attention_dropout=0.0,
        head_dropout=0.0,
    )
    reject_others(theirs, "scaling", ("std",))  # true means "mean" there
    require_values(theirs, scaling_dim=1, keepdim=True)
    reject_others(theirs, "do_mask_input", (None, False))
    dropout = read_float(theirs, "path_dropout", 0.0)
    for field in DROPOUTS:
        reject_others({field: read_float(theirs, field, 0.0)}, field, (dropout,))
    channels, horizon = read_int(theirs, "num_input_channels", 1), read_int(theirs, "prediction_length", 24)
    if forecasts and horizon < 1:
        raise CheckpointConfigError(f"config.json has prediction_length={horizon}, where at least 1 step belongs.")
    return Config(
        steps=read_int(theirs, "context_length", 32),
        in_features=channels,
        horizon=horizon if forecasts else 0,
        num_classes=horizon * channels if forecasts else read_int(theirs, "num_targets", 1),
        patch_size=read_int(theirs, "patch_length", 1),
        stride=read_int(theirs, "patch_stride", 1),
        padding_patch="none",
        order="pre" if read_bool(theirs, "pre_norm", True) else "post",
        dim=read_int(theirs, "d_model", 128),
        layers=read_int(theirs, "num_hidden_layers", 3),
        heads=read_int(theirs, "num_attention_heads", 4),
        ffn_dim=read_int(theirs, "ffn_dim", 512),
        dropout=dropout,
    )


def _head(config: Config) -> tuple[Rule, ...]:
    layer = "projection" if config.horizon else "linear"
    return (Rule(r"head\.(weight|bias)", (rf"head.{layer}.\1",), outside=True),)


PATCHTST_FAMILY = Family(
    model_type="patchtst",
    presets=tuple(PRESETS),
    prefix="model.",
    rules=(
        Rule(r"patches\.(weight|bias)", (r"encoder.embedder.input_embedding.\1",)),
        Rule(r"positions", ("encoder.positional_encoder.position_enc",)),
        Rule(BLOCK + r"attention\.qkv\.(weight|bias)", tuple(rf"{LAYER}self_attn.{x}_proj.\2" for x in "qkv")),
        Rule(BLOCK + r"attention\.out\.(weight|bias)", (LAYER + r"self_attn.out_proj.\2",)),
        Rule(BLOCK + r"norm1\." + NORM, (LAYER + r"norm_sublayer1.batchnorm.\2",)),
        Rule(BLOCK + r"mlp\.fc1\.(weight|bias)", (LAYER + r"ff.0.\2",)),
        Rule(BLOCK + r"mlp\.fc2\.(weight|bias)", (LAYER + r"ff.3.\2",)),
        Rule(BLOCK + r"norm2\." + NORM, (LAYER + r"norm_sublayer3.batchnorm.\2",)),
    ),
    heads=_head,
    settings=settings,
    config=parse_config,
    aliases={"hidden_size": "d_model"},
    architecture=lambda config: FORECASTS if config.horizon else CLASSIFIES,
)
