"""Oracles of convolutional networks without residual connections.

LeNet-5 is written by the sums of its paper, and small networks as `torch.nn.Sequential`. AlexNet, VGG and SqueezeNet
are torchvision's, and a plain implementation, tower by tower, has the features of AlexNet that torchvision's lacks. The
fast CIFAR-10 network has a flat list of kernels: a convolution is a matrix product with unfolded patches, pooling takes
the maximum of blocks, and normalization and GELU are written out.
"""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import airbench, alexnet, conv4, lenet5, lenet5_modern, simplecnn, squeezenet, vgg
from . import Oracle, changed, images
from .libraries import torchvision_key_map, torchvision_models


class PaperLeNet5(nn.Module):
    """LeNet-5 one map at a time, as in section II.B of the paper. Slow and plain."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        shapes = {
            "c1_kernel": (6, in_channels, 5, 5),
            "c1_bias": (6,),
            "s2_coefficient": (6, 1, 1),
            "s2_bias": (6, 1, 1),
            "c3_kernel": (60, 5, 5),
            "c3_bias": (16,),
            "s4_coefficient": (16, 1, 1),
            "s4_bias": (16, 1, 1),
            "c5_kernel": (120, 16, 5, 5),
            "c5_bias": (120,),
            "f6_weight": (84, 120),
            "f6_bias": (84,),
        }
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
        self.register_buffer("codes", torch.zeros(num_classes, 84))

    @staticmethod
    def table() -> list[list[int]]:
        """Return the maps of S2 that each map of C3 takes.

        The first six take every contiguous three (6 wraps around to 0), the next six every contiguous four, the next
        three some discontinuous four, and the last one all.
        """
        threes = [sorted((first + k) % 6 for k in range(3)) for first in range(6)]
        fours = [sorted((first + k) % 6 for k in range(4)) for first in range(6)]
        return [*threes, *fours, [0, 1, 3, 4], [1, 2, 4, 5], [0, 2, 3, 5], [0, 1, 2, 3, 4, 5]]

    def forward(self, x: Tensor) -> Tensor:
        """Return minus the distances, shape (N, classes), of images (N, C, 32, 32)."""
        p = dict(self.named_parameters())
        c1 = []  # six maps (N, 28, 28)
        for kernel, bias in zip(p["c1_kernel"], p["c1_bias"]):
            c1.append(_squash(F.conv2d(x, kernel[None])[:, 0] + bias))
        s2 = _subsample(c1, p["s2_coefficient"], p["s2_bias"])  # six maps (N, 14, 14)
        c3 = []  # sixteen maps (N, 10, 10)
        connection = 0
        for sources, bias in zip(self.table(), p["c3_bias"]):
            total = bias
            for source in sources:
                kernel = p["c3_kernel"][connection]
                total = total + F.conv2d(s2[source][:, None], kernel[None, None])[:, 0]
                connection += 1
            c3.append(_squash(total))
        s4 = _subsample(c3, p["s4_coefficient"], p["s4_bias"])  # sixteen maps (N, 5, 5)
        c5 = _squash(torch.einsum("nchw,ochw->no", torch.stack(s4, dim=1), p["c5_kernel"]) + p["c5_bias"])
        f6 = _squash(c5 @ p["f6_weight"].T + p["f6_bias"])  # (N, 84)
        distances = [((f6 - code) ** 2).sum(dim=1) for code in self.get_buffer("codes")]
        return -torch.stack(distances, dim=1)


def _squash(a: Tensor) -> Tensor:
    return 1.7159 * torch.tanh(a * 2 / 3)


def _subsample(maps: list[Tensor], coefficients: Tensor, biases: Tensor) -> list[Tensor]:
    """Halve each map: the sum of four neighbours times the map's coefficient, plus its bias, squashed."""
    halved = []
    for x, coefficient, bias in zip(maps, coefficients, biases):
        total = x[:, 0::2, 0::2] + x[:, 0::2, 1::2] + x[:, 1::2, 0::2] + x[:, 1::2, 1::2]
        halved.append(_squash(coefficient * total + bias))
    return halved


def paper_lenet5(config: lenet5.Config) -> Oracle:
    """Build LeNet-5 by the sums of the paper."""
    key_map = {
        "c1.weight": "c1_kernel",
        "c1.bias": "c1_bias",
        "s2.coefficient": "s2_coefficient",
        "s2.bias": "s2_bias",
        "c3.weight": "c3_kernel",
        "c3.bias": "c3_bias",
        "s4.coefficient": "s4_coefficient",
        "s4.bias": "s4_bias",
        "c5.weight": "c5_kernel",
        "c5.bias": "c5_bias",
        "f6.weight": "f6_weight",
        "f6.bias": "f6_bias",
        "output.codes": "codes",
    }
    module = PaperLeNet5(config.in_channels, config.num_classes)
    return Oracle(module, images(3, config.in_channels, 32, 32), key_map)


def sequential_lenet5(config: lenet5_modern.Config) -> Oracle:
    """Build a sequence of PyTorch's layers."""
    side = ((config.image_size - 4) // 2 - 4) // 2
    module = nn.Sequential(
        nn.Conv2d(config.in_channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * side**2, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, config.num_classes),
    )
    key_map = _sequential_key_map(module, {"c1": 0, "c3": 3, "c5": 7, "f6": 9, "head": 11})
    return Oracle(module, images(3, config.in_channels, config.image_size, config.image_size), key_map)


def sequential_cnn(config: simplecnn.Config) -> Oracle:
    """Build a sequence of PyTorch's layers."""
    first, second = config.widths
    module = nn.Sequential(
        nn.Conv2d(config.in_channels, first, 3, padding="same", bias=False),
        nn.BatchNorm2d(first),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 3, padding="same", bias=False),
        nn.BatchNorm2d(second),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * second, config.num_classes),
    )
    key_map = _sequential_key_map(module, {"conv1": 0, "bn1": 1, "conv2": 4, "bn2": 5, "head": 9})
    return Oracle(module, images(3, config.in_channels, 19, 12), key_map)


def sequential_conv4(config: conv4.Config) -> Oracle:
    """Build a sequence of PyTorch's layers for 28×28 pixels."""
    layers: list[nn.Module] = []
    strided = config.downsampling == "stride"
    for inputs in (config.in_channels, *3 * (config.width,)):
        layers += [nn.Conv2d(inputs, config.width, 3, 2 if strided else 1, 1), nn.BatchNorm2d(config.width), nn.ReLU()]
        layers.append(nn.Identity() if strided else nn.MaxPool2d(2))
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(config.width, config.num_classes))
    places = {f"convs.{i}": 4 * i for i in range(4)} | {f"norms.{i}": 4 * i + 1 for i in range(4)} | {"head": 18}
    return Oracle(module, images(3, config.in_channels, 28, 28), _sequential_key_map(module, places))


def _sequential_key_map(module: nn.Sequential, places: dict[str, int]) -> dict[str, str]:
    """Return the map from our state-dict keys to those of the sequence.

    `places` has the index in the sequence of each of our layers.
    """
    return {f"{name}.{key}": f"{i}.{key}" for name, i in places.items() for key in module[i].state_dict()}


ALEXNET_LAYERS = ("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7", "fc8")


def torchvision_alexnet(config: alexnet.Config) -> Oracle:
    """Build torchvision's network. Images are small and not square, so the last map of 2×3 is spread over the grid."""
    library = torchvision_models("alexnet")
    with torch.device("meta"):
        module: nn.Module = library.alexnet(
            num_classes=config.num_classes, **changed(config, alexnet.PRESETS["alexnet"], dropout="dropout")
        )
    key_map = torchvision_key_map("alexnet", alexnet.AlexNet, config)
    return Oracle(module.to_empty(device="cpu"), images(2, 3, 100, 140), key_map)


class PlainAlexNet(nn.Module):
    """Network as two lists of weights and biases, in the order of the papers."""

    def __init__(self, config: alexnet.Config) -> None:
        super().__init__()
        self.config = config
        first, second, third, fourth, fifth = config.widths
        towers, side = (2, 6) if config.form == "2012" else (1, 6)
        shapes: list[tuple[int, ...]] = [
            (first, config.in_channels, 11, 11),
            (second, first // towers, 5, 5),
            (third, second, 3, 3),
            (fourth, third // towers, 3, 3),
            (fifth, fourth // towers, 3, 3),
        ]
        if config.stem == "small":
            shapes[0], side = (first, config.in_channels, 3, 3), 3
        shapes += [
            (config.hidden_dim, fifth * side**2),
            (config.hidden_dim,) * 2,
            (config.num_classes, config.hidden_dim),
        ]
        self.side = side
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(shape[0])) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        two = self.config.form == "2012"
        if self.config.stem == "small":
            x = self._convolution(0, [x], padding=1)
        else:
            x = self._convolution(0, [x], stride=4, padding=0 if two else 2)
        x = torch.clamp(x, min=0)
        x = _overlapping_max(_lrn(x) if two else x)
        x = torch.clamp(self._convolution(1, _towers(x, two), padding=2), min=0)
        x = _overlapping_max(_lrn(x) if two else x)
        x = torch.clamp(self._convolution(2, [x], padding=1), min=0)
        x = torch.clamp(self._convolution(3, _towers(x, two), padding=1), min=0)
        x = _overlapping_max(torch.clamp(self._convolution(4, _towers(x, two), padding=1), min=0))
        x = _adaptive_mean(x, self.side)  # (N, C, side, side)
        x = x.reshape(len(x), -1)
        p = self.config.dropout
        if two:
            for i in (5, 6):
                x = F.dropout(torch.clamp(self._full(i, x), min=0), p, self.training)
        else:
            for i in (5, 6):
                x = torch.clamp(self._full(i, F.dropout(x, p, self.training)), min=0)
        return self._full(7, x)

    def _convolution(self, i: int, towers: list[Tensor], stride: int = 1, padding: int = 0) -> Tensor:
        """Apply convolution i, each tower with its own kernels, and concatenate the towers."""
        kernels, biases = self.weights[i].chunk(len(towers)), self.biases[i].chunk(len(towers))
        parts = [F.conv2d(x, k, b, stride, padding) for x, k, b in zip(towers, kernels, biases)]
        return torch.cat(parts, dim=1)

    def _full(self, i: int, x: Tensor) -> Tensor:
        y: Tensor = torch.einsum("ni,oi->no", x, self.weights[i]) + self.biases[i]
        return y


def _towers(x: Tensor, two: bool) -> list[Tensor]:
    half = x.shape[1] // 2
    return [x[:, :half], x[:, half:]] if two else [x]


def _lrn(a: Tensor) -> Tensor:
    """Apply local response normalization, section 3.3 of the paper, to one map after another."""
    count, n = a.shape[1], 5
    maps = []
    for i in range(count):
        first, last = max(0, i - n // 2), min(count - 1, i + n // 2)
        total = (a[:, first : last + 1] ** 2).sum(dim=1)
        maps.append(a[:, i] / (2 + 1e-4 * total) ** 0.75)
    return torch.stack(maps, dim=1)


def _overlapping_max(x: Tensor) -> Tensor:
    """Apply max pooling with 3×3 windows and stride 2."""
    return x.unfold(2, 3, 2).unfold(3, 3, 2).amax((4, 5))


def _adaptive_mean(x: Tensor, side: int) -> Tensor:
    """Average over a grid. Cell i covers ⌊i n / side⌋ to ⌈(i + 1) n / side⌉ of n pixels."""

    def cells(n: int) -> list[slice]:
        return [slice(i * n // side, math.ceil((i + 1) * n / side)) for i in range(side)]

    rows = [[x[:, :, r, c].mean((2, 3)) for c in cells(x.shape[3])] for r in cells(x.shape[2])]
    return torch.stack([torch.stack(row, dim=2) for row in rows], dim=2)


def plain_alexnet(config: alexnet.Config) -> Oracle:
    """Build the plain implementation and the key map from our weights."""
    key_map = {f"{layer}.weight": f"weights.{i}" for i, layer in enumerate(ALEXNET_LAYERS)}
    key_map |= {f"{layer}.bias": f"biases.{i}" for i, layer in enumerate(ALEXNET_LAYERS)}
    size = (2 * config.least_size - 3, 2 * config.least_size + 21)
    return Oracle(PlainAlexNet(config), images(2, config.in_channels, *size), key_map)


def alexnet_oracle(config: alexnet.Config) -> Oracle:
    """Build torchvision's network if it has this one, otherwise the plain one."""
    if config == dataclasses.replace(
        alexnet.PRESETS["alexnet"], num_classes=config.num_classes, dropout=config.dropout
    ):
        return torchvision_alexnet(config)
    return plain_alexnet(config)


def torchvision_vgg(config: vgg.Config) -> Oracle:
    """Build torchvision's network with stages of our depths and widths, and replace its fixed parts if ours differ."""
    library = torchvision_models("vgg")
    plan: list[int | str] = []
    for count, width in zip(config.stages, config.widths):
        plan += [width] * count + ["M"]
    with torch.device("meta"):  # all weights are copied later, so none is allocated
        module = library.VGG(
            library.make_layers(plan, config.batch_norm),
            config.num_classes,
            **changed(config, vgg.PRESETS["vgg11"], dropout="dropout"),
        )
        if config.in_channels != 3:
            module.features[0] = nn.Conv2d(config.in_channels, config.width, 3, padding=1)
        if (config.widths[-1], config.pool_to, config.hidden_dim) != (512, 7, 4096):
            module.avgpool = nn.AdaptiveAvgPool2d(config.pool_to)
            module.classifier[0] = nn.Linear(config.widths[-1] * config.pool_to**2, config.hidden_dim)
            module.classifier[3] = nn.Linear(config.hidden_dim, config.hidden_dim)
            module.classifier[6] = nn.Linear(config.hidden_dim, config.num_classes)
    key_map = torchvision_key_map("vgg11", vgg.VGG, config)  # the names are the same for every depth
    size = (config.least_size + 5, 2 * config.least_size)  # the last map of 1×2 is spread over the grid
    return Oracle(module.to_empty(device="cpu"), images(2, config.in_channels, *size), key_map)


def torchvision_squeezenet(config: squeezenet.Config) -> Oracle:
    """Build torchvision's network with our channels, and our stride for small images."""
    name = f"squeezenet-{config.version}"
    library = torchvision_models("squeezenet")
    module = library.SqueezeNet(
        config.version.replace(".", "_"),
        config.num_classes,
        **changed(config, squeezenet.PRESETS[name], dropout="dropout"),
    )
    key_map = torchvision_key_map(name, squeezenet.SqueezeNet, config)
    if (config.width, config.squeeze_ratio) != (128, 0.125):
        channels = config.stem_channels
        for i in squeezenet.FIRES:
            half, index = config.expanded(i) // 2, int(key_map[f"fire{i}.squeeze.weight"].split(".")[1])
            module.features[index] = library.Fire(channels, config.squeezed(i), config.expanded(i) - half, half)
            channels = config.expanded(i)
        module.classifier[1] = nn.Conv2d(channels, config.num_classes, 1)
    if (config.width, config.in_channels, config.stem) != (128, 3, "imagenet"):
        module.features[0] = nn.Conv2d(
            config.in_channels, config.stem_channels, squeezenet.KERNEL[config.version], config.stride
        )
    if config.head_activation == "identity":
        module.classifier[2] = nn.Identity()
    size = (config.least_size + 5, 2 * config.least_size)
    return Oracle(module, images(2, config.in_channels, *size), key_map)


class FlatAirbench(nn.Module):
    """Network as a flat list of kernels with their normalization parameters.

    The whitening kernel is followed by two kernels for each group.
    """

    def __init__(self, config: airbench.Config) -> None:
        super().__init__()
        patch = 4 * config.in_channels
        self.register_buffer("whitening", torch.zeros(2 * patch, config.in_channels, 2, 2))
        self.first_bias = nn.Parameter(torch.zeros(2 * patch))
        self.kernels, self.shifts = nn.ParameterList(), nn.ParameterList()
        channels = 2 * patch
        for width in (width for width in config.widths for _ in range(2)):
            i = len(self.kernels)
            self.kernels.append(nn.Parameter(torch.zeros(width, channels, 3, 3)))
            self.shifts.append(nn.Parameter(torch.zeros(width)))
            for name, value in (("scale", 1.0), ("mean", 0.0), ("variance", 1.0)):
                self.register_buffer(f"{name}{i}", torch.full((width,), value))
            self.register_buffer(f"batches{i}", torch.tensor(0))
            channels = width
        self.head = nn.Parameter(torch.zeros(config.num_classes, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        x = _gelu(_correlate(x, self.get_buffer("whitening")) + self.first_bias[:, None, None])
        for i, kernel in enumerate(self.kernels):
            x = _correlate(F.pad(x, (1, 1, 1, 1)), kernel)
            if i % 2 == 0:
                height, width = x.shape[2] // 2, x.shape[3] // 2
                blocks = x[:, :, : 2 * height, : 2 * width].reshape(*x.shape[:2], height, 2, width, 2)
                x = blocks.permute(0, 1, 2, 4, 3, 5).flatten(4).max(4).values
            x = _gelu(self._normalized(x, i) + self.shifts[i][:, None, None])
        return x.flatten(2).max(2).values @ self.head.T / 9

    def _normalized(self, x: Tensor, i: int) -> Tensor:
        mean, variance = self.get_buffer(f"mean{i}"), self.get_buffer(f"variance{i}")
        if self.training:
            values = x.transpose(0, 1).flatten(1)  # (C, N·H·W)
            mean.mul_(0.6).add_(values.mean(1).detach(), alpha=0.4)
            variance.mul_(0.6).add_(values.var(1).detach(), alpha=0.4)
            mean, variance = values.mean(1), values.var(1, correction=0)
        return (x - mean[:, None, None]) / torch.sqrt(variance[:, None, None] + 1e-12)


def _correlate(x: Tensor, kernel: Tensor) -> Tensor:
    height, width = x.shape[2] - kernel.shape[2] + 1, x.shape[3] - kernel.shape[3] + 1
    products = kernel.flatten(1) @ F.unfold(x, kernel.shape[2:])
    return products.view(len(x), len(kernel), height, width)


def _gelu(z: Tensor) -> Tensor:
    return z * (1 + torch.erf(z / math.sqrt(2))) / 2


def flat_airbench(config: airbench.Config) -> Oracle:
    """Build the plain implementation and the key map from our weights."""
    key_map = {"whiten.weight": "whitening", "whiten.bias": "first_bias", "head.weight": "head"}
    parts = {"weight": "scale", "bias": "shifts.", "running_mean": "mean", "running_var": "variance"}
    parts |= {"num_batches_tracked": "batches"}
    for i in range(2 * len(config.widths)):
        group, place = f"groups.{i // 2}", i % 2 + 1
        key_map[f"{group}.conv{place}.weight"] = f"kernels.{i}"
        key_map |= {f"{group}.norm{place}.{ours}": f"{theirs}{i}" for ours, theirs in parts.items()}
    return Oracle(FlatAirbench(config), images(3, config.in_channels, 18, 16), key_map)


ORACLES = {
    "lenet5": paper_lenet5,
    "lenet5-modern": sequential_lenet5,
    "simplecnn": sequential_cnn,
    **dict.fromkeys(conv4.PRESETS, sequential_conv4),
    **dict.fromkeys(alexnet.PRESETS, alexnet_oracle),
    **dict.fromkeys(vgg.PRESETS, torchvision_vgg),
    **dict.fromkeys(squeezenet.PRESETS, torchvision_squeezenet),
    **dict.fromkeys(airbench.PRESETS, flat_airbench),
}

REDUCED = {
    # alexnet is compared completely; the original with fewer maps and units of the same kinds.
    "alexnet-2012": dataclasses.replace(
        alexnet.PRESETS["alexnet-2012"], widths=(12, 16, 24, 24, 16), hidden_dim=32, num_classes=10
    ),
    # The complete smallest network takes 7 GB in float64, because three quarters of its weights are fc6. So vgg11 keeps
    # all convolutions and has fewer units after them. The others, with more convolutions, have fewer channels too.
    **{
        name: dataclasses.replace(config, hidden_dim=32, num_classes=10)
        if name == "vgg11"
        else dataclasses.replace(config, width=4, hidden_dim=32, num_classes=10)
        for name, config in vgg.PRESETS.items()
    },
}
