"""Published configuration of each preset, from its paper or its weights in circulation, written independently.

A preset that was changed is therefore detected. A size that a Config leaves open (`ffn_dim=None` for 4 · dim) is given
as its resolved number. Values that no paper defines, because they depend on the data, are in `BY_DATA`. Settings that
our layers fix (strides, paddings, ε, momentum) are compared with torchvision's network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..checkpoints.torchvision import torchvision_key, torchvision_names
from .libraries import torchvision_models

BY_DATA = (
    "in_channels",
    "in_features",
    "edge_features",
    "num_classes",
    "decoder",  # of links, where those are learned
    "vocab_size",
    "target_vocab_size",
    "steps",
    "head",
    "recompute",
    "graph_level",
    "horizon",
)

_BERT = (
    {
        "vocab_size": 30_522,
        "context_length": 512,
        "dim": 768,
        "layers": 12,
        "heads": 12,
        "ffn_dim": 3072,
        "embedding_dim": None,
    }
    | {
        "share_layers": False,
        "token_types": 2,
        "first_position": 0,
        "activation": "gelu",
        "pooler_activation": "tanh",
        "eps": 1e-12,
    }
    | {"dropout": 0.1, "attention_dropout": 0.1, "head_dropout": 0.1, "drops_before": False}
    | {"drops_tags_as_backbone": False, "drops_attention": True, "drops_mlp": True}
    | {"tie_weights": True}
)
_GPT2 = {
    "vocab_size": 50_257,
    "context_length": 1024,
    "dropout": 0.1,
    "embedding_dropout": 0.1,
    "attention_dropout": 0.1,
    "tie_weights": True,
}
_IMAGE_GPT = {"colors": 512, "classes": 0, "sides": (32, 32), "dropout": 0.0, "class_dropout": 0.1}
_IMAGE_GPT |= {"words": 0, "caption": 0}
_T5 = {
    "vocab_size": 32_128,
    "head_dim": 64,
    "num_buckets": 32,
    "max_distance": 128,
    "dropout": 0.1,
    "tie_weights": True,
}
_BART = {
    "vocab_size": 50_265,
    "context_length": 1024,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
    "tie_weights": True,
}
_TRANSFORMER = {"vocab_size": 37_000, "joint_vocab": True, "layers": 6, "decoder_layers": 6, "order": "post"} | {
    "tie_weights": True,
    "base": 10_000.0,
}
_ENCODER = {"dropout": 0.1, "order": "post", "norm": "layer", "strengths": (1.0, 1.0), "pooling": "mean"} | {
    "base": 10_000.0
}
_WHISPER = {"in_features": 80, "dropout": 0.0, "context_length": 448, "target_vocab_size": 51_865}
_ALEXNET = {"stem": "imagenet", "hidden_dim": 4096, "dropout": 0.5, "num_classes": 1000}
_VGG = {"width": 64, "pool_to": 7, "hidden_dim": 4096, "dropout": 0.5, "num_classes": 1000}
_GOOGLENET = {"auxiliary": True, "stem": "imagenet", "width": 64, "num_classes": 1000}
_RESNET = {
    "block": "basic",
    "width": 64,
    "stem": "imagenet",
    "shortcut": "B",
    "stride_on": "3x3",
    "order": "post",
    "zero_init": False,
    "num_classes": 1000,
}
_NECK = _RESNET | {"block": "bottleneck"}
_CIFAR = _RESNET | {"width": 16, "stem": "cifar", "shortcut": "A", "num_classes": 10}
_DILATED = {"width": 64, "stem": "imagenet", "auxiliary": True, "num_classes": 21}
_DILATED_18 = _DILATED | {"block": "basic", "layers": (2, 2, 2, 2)}
_DILATED_50 = _DILATED | {"block": "bottleneck", "layers": (3, 4, 6, 3)}
_PYRAMID = {"rates": (12, 24, 36), "dim": 256, "dropout": 0.5}
_DENSENET = {"growth_rate": 32, "bottleneck": True, "compression": 0.5, "stem": "imagenet", "stem_channels": 64} | {
    "dropout": 0.0,
    "num_classes": 1000,
}
_DENSE_CIFAR = _DENSENET | {"growth_rate": 12, "stem": "cifar", "num_classes": 10}
_CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"
_SQUEEZENET = {"width": 128, "squeeze_ratio": 0.125, "stem": "imagenet", "dropout": 0.5} | {
    "head_activation": "relu",
    "num_classes": 1000,
}
_NASNET = {"stem": "imagenet", "skip_reduction": False, "dropout": 0.5, "num_classes": 1000}
_NASNET_CIFAR = _NASNET | {"stem": "cifar", "dropout": 0.0, "num_classes": 10}
_CONVNEXT = {"layers": (3, 3, 27, 3), "patch_size": 4, "layer_scale": 1e-6, "num_classes": 1000}
_R3D = {"layers": (2, 2, 2, 2)}
_VIT = {"image_size": 224, "patch_size": 16, "pooling": "token", "dropout": 0.0, "num_classes": 1000}
_RECURRENT = {
    "embedding_dim": 0,
    "hidden_dim": 128,
    "layers": 1,
    "bidirectional": False,
    "dropout": 0.0,
    "pooling": "auto",
} | {
    "tie_weights": False,
    "known_future": 0,
    "recursive": False,
    "relative": None,
}
_PATCHTST = {"patch_size": 16, "stride": 8, "layers": 3, "num_classes": 672, "horizon": 96, "steps": 336} | {
    "padding_patch": "end",
    "order": "post",
}
_DDPM = {"timesteps": 1000, "class_dropout": 0.1, "classes": 0}
_WORD2VEC = {"dim": 100, "output": "negative", "negative": 5, "window": 5, "whole_error": True}
_COLLOBERT = {"dim": 50, "hidden_dim": 300, "second": 500}

_FCOS = {
    "layers": (3, 4, 6, 3),
    "block": "bottleneck",
    "width": 64,
    "norm": "frozen",
    "first_stage": 2,
    "extra_levels": 2,
} | {"dim": 256, "head_layers": 4, "groups": 32, "centred": False}

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "perceptron": {},
    "linear": {"output": "identity"},
    "logistic": {"output": "sigmoid"},
    "softmax": {"output": "softmax"},
    "mlp": {"hidden_dims": (256, 256), "activation": "relu", "norm": "none", "dropout": 0.1, "bias": True},
    "spiking-mlp": {"hidden_dims": (256,), "steps": 25, "beta": 0.9, "threshold": 1.0, "slope": 25.0},
    "lenet5": {"in_channels": 1, "num_classes": 10, "image_size": 32},
    "lenet5-modern": {"in_channels": 1, "num_classes": 10, "image_size": 32},
    "simplecnn": {"widths": (32, 64)},
    "conv4": {"width": 64, "downsampling": "max"},
    "conv4-strided": {"width": 64, "downsampling": "stride"},
    "alexnet": _ALEXNET | {"form": "2014", "widths": (64, 192, 384, 256, 256)},
    "alexnet-2012": _ALEXNET | {"form": "2012", "widths": (96, 256, 384, 384, 256)},
    "googlenet": _GOOGLENET | {"norm": "batch", "large_kernel": 3, "auxiliary_pool": "equal", "dropout": 0.2},
    "googlenet-2014": _GOOGLENET | {"norm": "response", "large_kernel": 5, "auxiliary_pool": "5x5", "dropout": 0.4},
    "inception-v3": {"auxiliary": True, "dropout": 0.5, "stem": "imagenet", "width": 32, "num_classes": 1000},
    "cellnet": {"arch": _CELL, "cells": 5, "channels": 16},
    "cellnet-small": {"arch": _CELL, "cells": 1, "channels": 8},
    "cnn-attention": {"widths": (48, 96, 192), "heads": 4},
    "airbench94": {"widths": (64, 256, 256)},
    "cnn1d": {"channels": 25},
    "ctc-conv-gru": {
        "channels": (128, 128),
        "kernel": 11,
        "strides": (2, 2),
        "hidden_dim": 128,
        "layers": 1,
        "dropout": 0.1,
    },
    "transformer-asr": _WHISPER
    | {"dim": 96, "layers": 2, "decoder_layers": 2, "heads": 4, "ffn_dim": 384, "dropout": 0.1}
    | {"context_length": 64, "target_vocab_size": 28},
    "whisper-tiny": _WHISPER | {"dim": 384, "layers": 4, "decoder_layers": 4, "heads": 6, "ffn_dim": 1536},
    "whisper-base": _WHISPER | {"dim": 512, "layers": 6, "decoder_layers": 6, "heads": 8, "ffn_dim": 2048},
    "whisper-small": _WHISPER | {"dim": 768, "layers": 12, "decoder_layers": 12, "heads": 12, "ffn_dim": 3072},
    "cnn-lstm": {
        "channels": (16, 32, 64),
        "grid": 3,
        "hidden_dim": 128,
        "layers": 1,
        "pooling": "last",
        "dropout": 0.0,
    },
    "timesformer": {
        "frames": 8,
        "image_size": 224,
        "patch_size": 16,
        "dim": 768,
        "layers": 12,
        "heads": 12,
        "ffn_dim": 3072,
        "dropout": 0.0,
    },
    "video-transformer": {
        "frames": 16,
        "image_size": 24,
        "patch_size": 8,
        "dim": 64,
        "layers": 3,
        "heads": 4,
        "ffn_dim": 256,
        "dropout": 0.0,
    },
    "r3d-18": _R3D | {"width": 64, "stem": "r3d"},
    "r3d-18-small": _R3D | {"width": 8, "stem": "small"},
    **{
        f"vgg{layers}{bn}": _VGG | {"stages": stages, "batch_norm": bool(bn)}
        for layers, stages in {
            11: (1, 1, 2, 2, 2),
            13: (2, 2, 2, 2, 2),
            16: (2, 2, 3, 3, 3),
            19: (2, 2, 4, 4, 4),
        }.items()
        for bn in ("", "-bn")
    },
    "resnet18": _RESNET | {"layers": (2, 2, 2, 2)},
    "resnet34": _RESNET | {"layers": (3, 4, 6, 3)},
    **{
        f"resnet{layers}{form}": _NECK | {"layers": blocks, "stride_on": "1x1" if form else "3x3"}
        for layers, blocks in {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}.items()
        for form in ("", "-v1")
    },
    **{f"resnet{6 * n + 2}": _CIFAR | {"layers": (n, n, n)} for n in (3, 5, 7, 9, 18)},
    "resnet18-v2": _RESNET | {"layers": (2, 2, 2, 2), "order": "pre"},
    "resnet34-v2": _RESNET | {"layers": (3, 4, 6, 3), "order": "pre"},
    **{
        f"resnet{layers}-v2": _NECK | {"layers": blocks, "order": "pre"}
        for layers, blocks in {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}.items()
    },
    **{f"resnet{6 * n + 2}-v2": _CIFAR | {"layers": (n, n, n), "order": "pre"} for n in (3, 9, 18)},
    "resnet164-v2": _CIFAR
    | {"block": "bottleneck", "layers": (18, 18, 18), "shortcut": "B", "stride_on": "1x1", "order": "pre"},
    "fcn-resnet18": _DILATED_18 | {"dropout": 0.1},
    "fcn-resnet50": _DILATED_50 | {"dropout": 0.1},
    "deeplabv3-resnet18": _DILATED_18 | _PYRAMID,
    "deeplabv3-resnet50": _DILATED_50 | _PYRAMID,
    "unet": {"width": 64, "levels": 4, "norm": "none", "dropout": 0.5, "in_channels": 1, "num_classes": 2},
    "unet-small": {"width": 16, "levels": 3, "norm": "batch", "dropout": 0.0},
    "fcos-resnet50": _FCOS,
    "fcos-resnet18-small": {
        "layers": (2, 2, 2),
        "block": "basic",
        "width": 32,
        "norm": "batch",
        "first_stage": 1,
        "extra_levels": 0,
    }
    | {"dim": 48, "head_layers": 2, "groups": 8, "centred": True},
    "densenet121": _DENSENET | {"layers": (6, 12, 24, 16)},
    "densenet161": _DENSENET | {"layers": (6, 12, 36, 24), "growth_rate": 48, "stem_channels": 96},
    "densenet169": _DENSENET | {"layers": (6, 12, 32, 32)},
    "densenet201": _DENSENET | {"layers": (6, 12, 48, 32)},
    "densenet-40-12": _DENSE_CIFAR
    | {"layers": (12, 12, 12), "bottleneck": False, "compression": 1.0, "stem_channels": 16},
    "densenet-bc-100-12": _DENSE_CIFAR | {"layers": (16, 16, 16), "stem_channels": 24},
    "squeezenet-1.0": _SQUEEZENET | {"version": "1.0"},
    "squeezenet-1.1": _SQUEEZENET | {"version": "1.1"},
    "mobilenet-v2": {"width_mult": 1.0, "stem": "imagenet", "dropout": 0.2, "num_classes": 1000},
    **{  # the coefficients of the authors' code, which has them to one decimal
        f"efficientnet-b{i}": {"phi": phi, "width_mult": width, "depth_mult": depth, "stem": "imagenet"}
        | {"num_classes": 1000, "dropout": dropout, "drop_path_rate": 0.2}
        for i, (phi, width, depth, dropout) in enumerate(
            ((0.0, 1.0, 1.0, 0.2), (0.5, 1.0, 1.1, 0.2), (1.0, 1.1, 1.2, 0.3))
        )
    },
    "nasnet-a-mobile": _NASNET | {"cells": 4, "width": 1056 // 24, "stem_width": 32, "drop_path_rate": 0.0},
    "nasnet-a-large": _NASNET
    | {"cells": 6, "width": 4032 // 24, "stem_width": 96, "skip_reduction": True, "drop_path_rate": 0.3},
    "nasnet-a-cifar": _NASNET_CIFAR | {"cells": 6, "width": 768 // 24, "stem_width": 96, "drop_path_rate": 0.4},
    "nasnet-a-small": _NASNET_CIFAR | {"cells": 1, "width": 8, "stem_width": 24, "drop_path_rate": 0.0},
    "convnext-tiny": _CONVNEXT | {"layers": (3, 3, 9, 3), "width": 96, "drop_path_rate": 0.1},
    "convnext-small": _CONVNEXT | {"width": 96, "drop_path_rate": 0.4},
    "convnext-base": _CONVNEXT | {"width": 128, "drop_path_rate": 0.5},
    "convnext-micro": {"layers": (2, 2, 2), "width": 48, "patch_size": 2, "layer_scale": 1e-6, "drop_path_rate": 0.1},
    "vit-tiny/16": _VIT | {"dim": 192, "layers": 12, "heads": 3, "ffn_dim": 768},
    "vit-small/16": _VIT | {"dim": 384, "layers": 12, "heads": 6, "ffn_dim": 1536},
    "vit-base/16": _VIT | {"dim": 768, "layers": 12, "heads": 12, "ffn_dim": 3072},
    "vit-base/32": _VIT | {"dim": 768, "layers": 12, "heads": 12, "ffn_dim": 3072, "patch_size": 32},
    "vit-large/16": _VIT | {"dim": 1024, "layers": 24, "heads": 16, "ffn_dim": 4096},
    "rnn": _RECURRENT | {"activation": "tanh"},
    "lstm": _RECURRENT | {"forget_bias": 1.0},
    "gru": _RECURRENT,
    "gru-mnist1d": _RECURRENT | {"hidden_dim": 6, "bidirectional": True, "pooling": "flat", "steps": 40},
    "patchtst": _PATCHTST | {"dim": 128, "heads": 16, "ffn_dim": 256, "dropout": 0.2},
    "transformer-forecast": {"dim": 64, "layers": 3, "heads": 4, "ffn_dim": 256, "dropout": 0.0, "instance_norm": True}
    | {"pooling": "last", "known_future": 0},
    "patchtst-small": _PATCHTST | {"dim": 16, "heads": 4, "ffn_dim": 128, "dropout": 0.3},
    "ddpm-unet": _DDPM
    | {"widths": (128, 256, 256, 256), "layers": 2, "attention_levels": (2,), "groups": 32, "dropout": 0.1}
    | {"noise_schedule": "linear"},
    "ddpm-unet-small": _DDPM
    | {"widths": (16, 32, 64), "layers": 1, "attention_levels": (3,), "groups": 8, "dropout": 0.0}
    | {"noise_schedule": "cosine"},
    "image-gpt": _IMAGE_GPT | {"dim": 128, "layers": 4, "heads": 4, "ffn_dim": 512},
    "image-gpt-s": _IMAGE_GPT | {"dim": 512, "layers": 24, "heads": 8, "ffn_dim": 2048},
    "vae": {"sides": (28, 28), "widths": (32, 64), "hidden_dim": 256, "latent_dim": 20, "levels": 256},
    "word2vec-skipgram": _WORD2VEC | {"architecture": "skipgram"},
    "word2vec-cbow": _WORD2VEC | {"architecture": "cbow"},
    "collobert-window": _COLLOBERT | {"approach": "window", "window": 5},
    "collobert-sentence": _COLLOBERT | {"approach": "sentence", "window": 3},
    "textcnn": (
        {"dim": 300, "kernel_sizes": (3, 4, 5), "filters": 100, "channels": "random", "dropout": 0.5, "max_norm": 3.0}
    ),
    "dcnn": {"dim": 48, "feature_maps": (6, 14), "kernel_sizes": (7, 5), "k_top": 4, "dropout": 0.5},
    "seq2seq-gru": {
        "embedding_dim": 128,
        "hidden_dim": 256,
        "attention_dim": 128,
        "readout_dim": 128,
        "layers": 1,
        "dropout": 0.2,
    },
    "show-attend-tell": {
        "widths": (16, 32, 64),
        "stage_layers": 2,
        "embedding_dim": 96,
        "hidden_dim": 192,
        "attention_dim": 96,
        "dropout": 0.1,
    },
    "vit-gpt2": (
        {"image_size": 224, "patch_size": 16, "dim": 768, "layers": 12, "decoder_layers": 12, "heads": 12}
        | {"ffn_dim": 3072, "dropout": 0.1, "target_vocab_size": 50_257, "context_length": 1024}
        | {"tie_weights": True, "eps": 1e-6}
    ),
    "vit-gpt2-small": (
        {"image_size": 32, "patch_size": 4, "dim": 96, "layers": 4, "decoder_layers": 2, "heads": 4, "ffn_dim": 384}
        | {"dropout": 0.0, "target_vocab_size": 50_257, "context_length": 1024}
        | {"tie_weights": True, "eps": 1e-6}
    ),
    "transformer-base": _TRANSFORMER | {"dim": 512, "heads": 8, "ffn_dim": 2048, "dropout": 0.1},
    "transformer-big": _TRANSFORMER | {"dim": 1024, "heads": 16, "ffn_dim": 4096, "dropout": 0.3},
    "transformer-tiny": _TRANSFORMER
    | {"vocab_size": 10_000, "layers": 4, "decoder_layers": 4, "dim": 128, "heads": 4, "ffn_dim": 512, "dropout": 0.1},
    "transformer-encoder": _ENCODER | {"dim": 128, "layers": 2, "heads": 4, "ffn_dim": 512},
    "transformer-encoder-base": _ENCODER | {"dim": 512, "layers": 6, "heads": 8, "ffn_dim": 2048},
    "bert-base-uncased": _BERT,
    "bert-large-uncased": _BERT | {"dim": 1024, "layers": 24, "heads": 16, "ffn_dim": 4096},
    "roberta-base": _BERT
    | {"vocab_size": 50_265, "token_types": 1, "first_position": 2, "eps": 1e-5, "drops_before": True},
    "distilbert-base": _BERT
    | {"layers": 6, "token_types": 0, "pooler_activation": "relu", "head_dropout": 0.2}
    | {"drops_tags_as_backbone": True, "drops_attention": False},
    "albert-base-v2": _BERT
    | {"vocab_size": 30_000, "embedding_dim": 128, "share_layers": True, "activation": "gelu-tanh"}
    | {"dropout": 0.0, "attention_dropout": 0.0, "drops_mlp": False},
    "gpt2": _GPT2 | {"dim": 768, "layers": 12, "heads": 12, "ffn_dim": 3072},
    "gpt2-medium": _GPT2 | {"dim": 1024, "layers": 24, "heads": 16, "ffn_dim": 4096},
    "gpt2-large": _GPT2 | {"dim": 1280, "layers": 36, "heads": 20, "ffn_dim": 5120},
    "gpt2-xl": _GPT2 | {"dim": 1600, "layers": 48, "heads": 25, "ffn_dim": 6400},
    "parallel-transformer": (
        {"context_length": 256, "dim": 256, "layers": 6, "heads": 8, "kv_heads": None, "ffn_dim": 1024, "dropout": 0.0}
        | {"order": "parallel", "strengths": (1.0, 1.0), "tie_weights": True}
        | {"norm": "layer", "positions": "rotary", "base": 10_000.0, "score": "scaled_dot"}
    ),
    "t5-small": _T5 | {"dim": 512, "layers": 6, "decoder_layers": 6, "heads": 8, "ffn_dim": 2048},
    "t5-base": _T5 | {"dim": 768, "layers": 12, "decoder_layers": 12, "heads": 12, "ffn_dim": 3072},
    "bart-base": _BART | {"dim": 768, "layers": 6, "decoder_layers": 6, "heads": 12, "ffn_dim": 3072},
    "bart-large": _BART | {"dim": 1024, "layers": 12, "decoder_layers": 12, "heads": 16, "ffn_dim": 4096},
    "gcn": {"hidden_dim": 16, "layers": 2, "dropout": 0.5, "bias": False, "pooling": "mean"},
    "gat": {
        "hidden_dim": 8,
        "heads": 8,
        "out_heads": 1,
        "layers": 2,
        "dropout": 0.6,
        "negative_slope": 0.2,
        "pooling": "mean",
    },
    "gae": {"hidden_dim": 32, "dim": 16, "layers": 2, "dropout": 0.0, "decoder": "dot"},
    "graphsage": {"hidden_dim": 128, "layers": 2, "dropout": 0.5, "pooling": "mean"},
    "graphconv": {"hidden_dim": 64, "layers": 3, "dropout": 0.5, "bias": True, "pooling": "mean"},
    "gin": {"hidden_dim": 32, "layers": 4, "dropout": 0.5, "train_eps": False, "pooling": "sum"},
    "gin-eps": {"hidden_dim": 32, "layers": 4, "dropout": 0.5, "train_eps": True, "pooling": "sum"},
    "gine": {"hidden_dim": 64, "layers": 5, "dropout": 0.0, "train_eps": False, "pooling": "mean"},
    "mpnn": {"hidden_dim": 64, "edge_dim": 128, "layers": 3, "pooling": "set2set", "set2set_steps": 3},
}

# Fields of the config.json of published weights that differ from the defaults of transformers' Config class. All other
# fields of a reference have the library's defaults.
_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_T5_START = {"decoder_start_token_id": 0}
_BART_DROPS = {"attention_dropout": 0.1, "activation_dropout": 0.1}
TRANSFORMERS: Mapping[str, Mapping[str, Any]] = {
    "bert-base-uncased": {},
    "bert-large-uncased": _LARGE,
    "roberta-base": {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "distilbert-base": {},
    "albert-base-v2": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "gpt2": {},
    "gpt2-medium": {"n_embd": 1024, "n_layer": 24, "n_head": 16},
    "gpt2-large": {"n_embd": 1280, "n_layer": 36, "n_head": 20},
    "gpt2-xl": {"n_embd": 1600, "n_layer": 48, "n_head": 25},
    "t5-small": _T5_START,
    "t5-base": _T5_START | {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12},
    "bart-base": (
        {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12}
        | {"decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
        | _BART_DROPS
    ),
    "bart-large": _BART_DROPS,
    "transformer-asr": (
        {"d_model": 96, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "dropout": 0.1}
        | {"decoder_attention_heads": 4, "encoder_ffn_dim": 384, "decoder_ffn_dim": 384}
        | {"vocab_size": 28, "max_target_positions": 64, "begin_suppress_tokens": None}
        | {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 0}
    ),
    "whisper-tiny": {},
    "whisper-base": (
        {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8}
        | {"decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
    ),
    "whisper-small": (
        {"d_model": 768, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12}
        | {"decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
    ),
    "timesformer": {},
    "video-transformer": (
        {"num_frames": 16, "image_size": 24, "patch_size": 8, "hidden_size": 64, "num_hidden_layers": 3}
        | {"num_attention_heads": 4, "intermediate_size": 256}
    ),
}


def resolved(config: Any) -> dict[str, Any]:
    """Return the settings of a Config, with open values resolved."""
    found = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    open_for = {"ffn_dim": 4 * found.get("dim", 0), "decoder_layers": found.get("layers")}
    open_for |= {"patch_size": getattr(config, "patch", None), "stride": getattr(config, "apart", None)}
    open_for |= {"depth_mult": getattr(config, "depth", None), "width_mult": getattr(config, "width", None)}
    open_for |= {name: found.get("dropout") for name in found if name.endswith("_dropout")}
    return {name: open_for.get(name) if value is None else value for name, value in found.items()}


def published_differences(name: str, config: Any) -> list[str]:
    """Return the settings of a preset's config that differ from the published ones.

    Each is one clause: "heads=6, published 12".
    """
    ours = resolved(config)
    return [
        f"{field}={ours[field]!r}, published {value!r}"
        for field, value in SETTINGS[name].items()
        if field in ours and ours[field] != value
    ]


# Settings that are compared if both layers have them. The weights already compare sizes.
LAYER_SETTINGS = ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode", "eps", "momentum", "affine")
SKIPPING_INITIALIZATION = ("googlenet", "inception", "vgg")  # builders that can skip the slow initialization of weights
# Builders that would download weights of the backbone.
SEGMENTATION, DETECTORS = ("fcn", "deeplabv3"), ("fcos",)
STRIDED = "-v1"  # presets with torchvision's weights and the paper's strides


def torchvision_differences(name: str, ours: nn.Module) -> tuple[int, list[str]]:
    """Return the number of compared settings of layers, and those that differ, one clause each.

    `ours` is the complete preset, preferably on the meta device. Raises OracleMissing if torchvision cannot be
    imported.
    """
    builder = torchvision_names()[name].rpartition(".")[2]
    with torch.device("meta"):
        arguments: dict[str, Any] = {"init_weights": False} if builder.startswith(SKIPPING_INITIALIZATION) else {}
        if builder.startswith((*SEGMENTATION, *DETECTORS)):
            arguments = {"weights_backbone": None}
        if builder.startswith(SEGMENTATION):
            arguments["aux_loss"] = True
        theirs = torchvision_models("_api").get_model_builder(builder)(**arguments)
    layers, count, found = dict(theirs.named_modules()), 0, []
    for prefix, module in ours.named_modules():
        own = next(iter(dict(module.named_parameters(recurse=False))), None)
        if own is None:
            continue
        there: Any = layers.get(torchvision_key(name, f"{prefix}.{own}").rpartition(".")[0])
        for setting in LAYER_SETTINGS:
            if hasattr(module, setting) and hasattr(there, setting):
                mine, other = getattr(module, setting), getattr(there, setting)
                count += 1
                if mine != other:
                    found.append(f"{prefix} has {setting}={mine}, torchvision {other}")
    return count, found
