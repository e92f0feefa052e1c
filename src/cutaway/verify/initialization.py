"""Initialization of each network by its paper or its authors' code, written independently of the models.

A law gives mean and standard deviation of a tensor by its shape. The first law whose pattern matches the name applies.
Without one, PyTorch's defaults apply: weights and biases of layers are uniform with variance 1/(3 · fan-in), and
embeddings are standard normal. Normalizations always start as the identity.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

MAX_STANDARD_ERRORS = 6.0  # maximum deviation of a standard deviation, in standard errors
MIN_VALUES = 48  # minimum values for a test of the standard deviation


class Distribution(NamedTuple):
    """Distribution of an initial tensor."""

    mean: float
    std: float  # its standard deviation


Law = Callable[[Tensor, Any], Distribution]  # from a tensor and the config of its model
Laws = tuple[tuple[str, Law], ...]


def fan_in(weight: Tensor) -> int:
    """Return the number of inputs of one unit of a weight (out, in, …)."""
    return weight[0].numel()


def fan_out(weight: Tensor) -> int:
    """Return the number of outputs of one input of a weight (out, in, …)."""
    return weight.numel() // weight.shape[1]


def constant(mean: float) -> Law:
    """Return the law of a constant."""
    return lambda weight, config: Distribution(mean, 0.0)


def std(of: float | Callable[[Tensor, Any], float]) -> Law:
    """Return the law with mean 0 and that standard deviation."""
    return lambda weight, config: Distribution(0.0, of(weight, config) if callable(of) else of)


def uniform(bound: Callable[[Tensor, Any], float]) -> Law:
    """Return the law of the uniform distribution in ± `bound`."""
    return std(lambda weight, config: bound(weight, config) / math.sqrt(3))


def glorot(parts: int = 1) -> Law:
    """Return the law with variance 2 / (inputs + outputs) for a matrix, or for each of `parts` stacked matrices."""
    return std(lambda weight, config: math.sqrt(2 / (fan_in(weight) + fan_out(weight) / parts)))


def _truncated_std(times: float) -> float:
    """Return the standard deviation of a normal distribution that is truncated at ± `times` standard deviations."""
    density = math.exp(-(times**2) / 2) / math.sqrt(2 * math.pi)
    return math.sqrt(1 - 2 * times * density / math.erf(times / math.sqrt(2)))


def _airbench(weight: Tensor, config: Any) -> Distribution:
    """Return the law of the first filters, which pass one channel each; the others have PyTorch's default."""
    ones = min(weight.shape[:2])
    square = (ones + (len(weight) - ones) / 3) / weight.numel()
    mean = ones / weight.numel()
    return Distribution(mean, math.sqrt(square - mean**2))


def _t5_qkv(weight: Tensor, config: Any) -> Distribution:
    """Return the law of T5: queries include the factor 1/√d, keys and values do not."""
    return Distribution(0.0, math.sqrt((1 / config.head_dim + 2) / 3 / config.dim))


KAIMING_FAN_OUT = std(lambda weight, config: math.sqrt(2 / fan_out(weight)))  # K. He et al., 2015, counting outputs
KAIMING_FAN_IN = std(lambda weight, config: math.sqrt(2 / fan_in(weight)))  # and counting inputs
ZERO = constant(0.0)
BIASES: Laws = ((r".*bias", ZERO),)
ATTENTION: Laws = (
    (r".*attention\.qkv\.weight", glorot(3)),
    (r".*attention\.kv\.weight", glorot(2)),
    (r".*attention\.(q|out)\.weight", glorot()),
)
ATTENTION_BIAS = (r".*attention\.\w+\.bias", ZERO)
BERT: Laws = (*BIASES, (r".*", std(0.02 * _truncated_std(2.0))))
DECODER: Laws = (
    *BIASES,
    (r"positions\.weight", std(0.01)),
    (r".*(attention\.out|mlp\.fc2)\.weight", std(lambda w, config: 0.02 / math.sqrt(2 * config.layers))),
    (r".*", std(0.02)),
)
RNN_CELLS = uniform(lambda weight, config: config.hidden_dim**-0.5)
# LeNet-5's map m of C3 has 25 inputs for each of its 3, 4 or 6 sources, and 2.4 over their number bounds its weights.
C3 = {3: 6, 4: 9, 6: 1}  # sources → maps
BY_MAP = sum(maps / sources**2 for sources, maps in C3.items()) / 16
BY_LINK = sum(maps / sources for sources, maps in C3.items()) / 60


def _residual_law(weight: Tensor, config: Any) -> float:
    """Return the law of the last layer of residual branches, of which a decoder has three in each block."""
    return float(0.02 / math.sqrt(3 * (config.decoder_layers or config.layers)))


def _forget_bias(mean: float | None) -> Law:
    """Return the law of an LSTM bias.

    Its second quarter, for the forget gate, is a constant, by default the config's.
    """

    def law(bias: Tensor, config: Any) -> Distribution:
        one = config.forget_bias if mean is None else mean
        square = (3 / config.hidden_dim / 3 + one**2) / 4
        return Distribution(one / 4, math.sqrt(square - (one / 4) ** 2))

    return law


def law_if(field: str, form: str, law: Law) -> Law:
    """Return the given law if the config's field has that value, otherwise PyTorch's default."""
    return lambda weight, config: law(weight, config) if getattr(config, field) == form else PYTORCH_DEFAULT


PYTORCH_DEFAULT = Distribution(math.nan, math.nan)  # placeholder for PyTorch's default, which needs the layer
LAWS: Mapping[str, Laws] = {
    "perceptron": ((r".*", ZERO),),
    "lenet5": (
        (r"c3\.weight", uniform(lambda w, config: 2.4 / 25 * math.sqrt(BY_LINK))),
        (r"c3\.bias", uniform(lambda w, config: 2.4 / 25 * math.sqrt(BY_MAP))),
        (r"s\d\..*", uniform(lambda w, config: 2.4 / 4)),
        (r"c1\..*", uniform(lambda w, config: 2.4 / (25 * config.in_channels))),
        (r"c5\..*", uniform(lambda w, config: 2.4 / 400)),
        (r"f6\..*", uniform(lambda w, config: 2.4 / 120)),
    ),
    "alexnet": (
        (r"(conv[245]|fc[67])\.bias", law_if("form", "2012", constant(1.0))),
        (r".*bias", law_if("form", "2012", ZERO)),
        (r".*", law_if("form", "2012", std(0.01))),
    ),
    "ddpm_unet": ((r"(.*conv2|head|(.*attention.*)\.out)\.(weight|bias)", ZERO),),
    "vae": ((r"log_var", ZERO),),
    "squeezenet": (*BIASES, (r"head\.weight", std(0.01)), (r".*", KAIMING_FAN_IN)),
    "efficientnet": (
        *BIASES,
        (r"head\.weight", uniform(lambda w, config: config.num_classes**-0.5)),
        (r".*depthwise\.conv\.weight", std(lambda w, config: math.sqrt(2 / w[0, 0].numel()))),
        (r".*", KAIMING_FAN_OUT),
    ),
    "nasnet": (
        (r".*depthwise\d\.weight", std(lambda w, config: math.sqrt(2 / w[0, 0].numel()))),
        (r"(?!head).*", KAIMING_FAN_OUT),
    ),
    "mobilenet_v2": ((r"head\.bias", ZERO), (r"head\.weight", std(0.01)), (r".*", KAIMING_FAN_OUT)),
    "vgg": (*BIASES, (r"fc.*", std(0.01)), (r".*", KAIMING_FAN_OUT)),
    "googlenet": (
        (r".*conv\.bias", ZERO),
        (r".*conv\.weight", lambda w, config: (std(0.01) if config.norm == "batch" else KAIMING_FAN_IN)(w, config)),
        (r".*fc\d?\.weight", law_if("norm", "batch", std(0.01))),
    ),
    "inception_v3": (
        (r"AuxLogits\.conv1\.conv\.weight", std(0.01)),
        (r"AuxLogits\.fc\.weight", std(0.001)),
        (r".*weight", std(0.1)),
    ),
    "resnet": ((r"(?!fc).*", KAIMING_FAN_OUT),),
    "r3d": ((r"(?!fc).*", KAIMING_FAN_OUT),),
    **dict.fromkeys(("fcn", "deeplabv3"), ((r"backbone\..*", KAIMING_FAN_OUT),)),
    "unet": (*BIASES, (r"grow\..*", std(lambda w, config: math.sqrt(2 / len(w)))), (r".*", KAIMING_FAN_IN)),
    "fcos": (
        (r"head\.bias", constant(-math.log(99))),
        *BIASES,
        (r"body\..*", KAIMING_FAN_OUT),
        (r".*tower\.\d+\.weight", lambda w, config: Distribution(1.0, 0.0) if w.ndim == 1 else Distribution(0.0, 0.01)),
        (r"pyramid\..*", uniform(lambda w, config: math.sqrt(3 / fan_in(w)))),
        (r".*", std(0.01)),
    ),
    "densenet": ((r"classifier\.bias", ZERO), (r"(?!classifier).*", KAIMING_FAN_IN)),
    "convnext": (
        (r".*layer_scale", lambda w, config: Distribution(config.layer_scale, 0.0)),
        *BIASES,
        (r".*", std(0.02)),
    ),
    "patchtst": ((r"positions", uniform(lambda w, config: 0.02)), *ATTENTION, (r".*attention.*bias", ZERO)),
    "transformer_forecast": (*ATTENTION, ATTENTION_BIAS),
    "vit": (
        (r"class_token", ZERO),
        (r"positions", std(0.02)),
        (r"patches\.weight", std(lambda w, config: fan_in(w) ** -0.5)),
        (r"head\.weight", std(0.02)),
        (r".*mlp\.fc\d\.bias", std(1e-6)),
        (r".*mlp\.fc\d\.weight", glorot()),
        *ATTENTION,
        *BIASES,
    ),
    "video_transformer": (
        (r"class_token|positions|head\.weight", std(0.02)),
        (r"times", std(0.2)),
        (r"patches\.weight", std(lambda w, config: fan_in(w) ** -0.5)),
        (r".*(mlp\.fc\d|time_fc)\.weight", glorot()),
        *ATTENTION,
        *BIASES,
    ),
    "cnn_attention": (*ATTENTION, ATTENTION_BIAS),
    "airbench": ((r".*conv\d\.weight", _airbench), (r"whiten\.bias", ZERO)),
    "cnn_lstm": ((r"lstm\..*", RNN_CELLS),),
    "ctc_conv_gru": ((r"rnn\..*", RNN_CELLS),),
    "rnn": ((r"(rnn|decoder)\..*", RNN_CELLS),),
    "gru": ((r"(rnn|decoder)\..*", RNN_CELLS),),
    "lstm": (
        (r"(rnn|decoder)\.weight.*", RNN_CELLS),
        (r"(rnn|decoder)\.bias_ih.*", _forget_bias(None)),
        (r"(rnn|decoder)\.bias_hh.*", _forget_bias(0.0)),
    ),
    "word2vec": ((r"context\.weight", ZERO), (r".*", uniform(lambda w, config: 0.5 / config.dim))),
    "dcnn": ((r"layers\.\d+\.bias", ZERO),),
    "textcnn": ((r".*embedding\.weight", uniform(lambda w, config: 0.25)),),
    "seq2seq_gru": (
        (r"(encoder|decoder)\..*", RNN_CELLS),
        (r"attention\.v", uniform(lambda w, config: config.attention_dim**-0.5)),
    ),
    "show_attend_tell": (
        (r"decoder\..*", RNN_CELLS),
        (r"attention\.v", uniform(lambda w, config: config.attention_dim**-0.5)),
    ),
    "vit_gpt2": (
        *BIASES,
        (r"class_token", ZERO),
        (r"decoder\..*(attention\.out|mlp\.fc2)\.weight", std(_residual_law)),
        (r".*", std(0.02)),
    ),
    "transformer": (
        *BIASES,
        (r".*embedding\.weight", std(lambda w, config: config.dim**-0.5)),
        *ATTENTION,
        (r".*", glorot()),
    ),
    "transformer_encoder": (
        *BIASES,
        (r"embedding\.weight", std(lambda w, config: config.dim**-0.5)),
        *ATTENTION,
        (r".*", glorot()),
    ),
    **dict.fromkeys(("bert", "roberta", "distilbert", "albert"), BERT),
    **dict.fromkeys(("gpt2", "parallel_transformer", "image_gpt"), DECODER),
    "t5": (
        (r"embedding\.weight", std(1.0)),
        (r".*table\.weight", std(lambda w, config: config.dim**-0.5)),
        (r".*\.attention\.qkv\.weight", _t5_qkv),
        (r".*cross_attention\.q\.weight", std(lambda w, config: (config.dim * config.head_dim) ** -0.5)),
        (r".*", std(lambda w, config: fan_in(w) ** -0.5)),
    ),
    "bart": (*BIASES, (r".*", std(0.02))),
    "transformer_asr": (*BIASES, (r".*", std(lambda w, config: fan_in(w) ** -0.5))),
    "gcn": (*BIASES, (r".*lin\.weight", glorot())),
    "gae": ((r".*lin\.weight", glorot()),),
    "graphsage": (*BIASES, (r".*\.weight", glorot())),
    "gin": ((r".*\.eps", ZERO),),
    "gat": (
        *BIASES,
        (r"layers\.0\.lin\.weight", std(lambda w, config: math.sqrt(2 / (fan_in(w) + config.hidden_dim)))),
        (r".*lin\.weight", std(lambda w, config: math.sqrt(2 / (fan_in(w) + config.num_classes)))),
        (r".*att_\w+", std(lambda w, config: math.sqrt(2 / (w.shape[-1] + 1)))),
    ),
    "mpnn": (
        (r"step\.matrix", std(lambda w, config: math.sqrt(1 / config.hidden_dim))),
        (r".*(gru|lstm)\..*", RNN_CELLS),
    ),
    "gine": ((r".*\.eps", ZERO),),
    "graphconv": (*BIASES, (r".*lin_\w+\.weight", glorot())),
}


def initialization_differences(family: str, model: nn.Module) -> list[str]:
    """Return the tensors of a new model that do not follow their law, one clause each.

    `family` is a file of `models/`.
    """
    found: list[str] = []
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for own, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen:  # tied
                continue
            seen.add(id(parameter))
            name = f"{prefix}.{own}" if prefix else own
            law = _law(family, name, own, module, parameter.detach(), model.config)
            if law is None:
                found.append(f"{name} has no law")
            elif said := _deviation(parameter.detach().double(), law):
                found.append(f"{name} {said}")
    return found


def _law(family: str, name: str, own: str, module: nn.Module, tensor: Tensor, config: Any) -> Distribution | None:
    """Return the distribution of a tensor; None if none is known."""
    if isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.RMSNorm | nn.modules.batchnorm._BatchNorm):
        return Distribution(float(own == "weight"), 0.0)
    law = next((law for pattern, law in LAWS.get(family, ()) if re.fullmatch(pattern, name)), None)
    try:
        drawn = law(tensor, config) if law is not None else PYTORCH_DEFAULT
    except IndexError:  # fewer dimensions than any tensor of that name has
        return None
    if drawn is not PYTORCH_DEFAULT:
        return drawn
    if isinstance(module, nn.Embedding):
        return Distribution(0.0, 1.0)
    weight = getattr(module, "weight", None)
    return Distribution(0.0, (3 * fan_in(weight)) ** -0.5) if isinstance(weight, Tensor) and weight.ndim > 1 else None


def _deviation(tensor: Tensor, law: Distribution) -> str:
    """Return how a tensor deviates from a law; empty if the deviation is not significant for its size."""
    count = tensor.numel()
    if not law.std:
        return "" if bool((tensor.float() == law.mean).all()) else f"is not {law.mean:g}"
    if count < MIN_VALUES:
        return ""
    std, mean = float(tensor.std()), float(tensor.mean())
    if abs(std / law.std - 1) > MAX_STANDARD_ERRORS / math.sqrt(2 * count):
        return f"has standard deviation {std:.3g}, by its law {law.std:.3g}"
    if abs(mean - law.mean) > MAX_STANDARD_ERRORS * law.std / math.sqrt(count):
        return f"has mean {mean:.3g}, by its law {law.mean:.3g}"
    return ""
