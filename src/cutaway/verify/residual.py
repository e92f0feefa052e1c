"""Oracles of residual and densely connected networks.

The networks for ImageNet, MobileNetV2, EfficientNet and ConvNeXt are torchvision's. ResNet and DenseNet for CIFAR and
pre-activation ResNets are plain implementations, and those of NAS-Bench-201 are parsed from the notation of the cell,
edge by edge.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import cellnet, convnext, densenet, efficientnet, mobilenet_v2, resnet
from . import Oracle, OracleMissing, changed, images
from .libraries import torchvision_key_map, torchvision_models


class FlatLayers(nn.Module):
    """Base class of networks with flat lists of kernels and of batch normalizations, in the order of use."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels, self.scales, self.shifts = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()

    def add_kernel(self, in_channels: int, out_channels: int, side: int) -> None:
        """Add a square kernel."""
        self.kernels.append(nn.Parameter(torch.zeros(out_channels, in_channels, side, side)))

    def add_norm(self, channels: int) -> None:
        """Add a normalization."""
        i = len(self.scales)
        self.scales.append(nn.Parameter(torch.ones(channels)))
        self.shifts.append(nn.Parameter(torch.zeros(channels)))
        self.register_buffer(f"mean{i}", torch.zeros(channels))
        self.register_buffer(f"variance{i}", torch.ones(channels))
        self.register_buffer(f"batches{i}", torch.tensor(0))

    def normalize(self, i: int, x: Tensor, first: int = 0, eps: float = 1e-5) -> Tensor:
        """Apply normalization i by its definition to x (N, C, …), its channels from `first` on.

        Each channel gets mean 0 and variance 1, and is then scaled and shifted. In training the statistics of the batch
        are used, and a tenth of them is added to the running ones. In evaluation the running ones are used.
        """
        channels = slice(first, first + x.shape[1])
        mean, variance = self.get_buffer(f"mean{i}")[channels], self.get_buffer(f"variance{i}")[channels]
        if self.training:
            values = x.transpose(0, 1).flatten(1)  # (C, N·P)
            n = values.shape[1]
            own = values.mean(1)
            squares = ((values - own[:, None]) ** 2).mean(1)
            mean.mul_(0.9).add_(own.detach(), alpha=0.1)
            variance.mul_(0.9).add_(squares.detach() * n / (n - 1), alpha=0.1)
            mean, variance = own, squares
        shape = (-1, *[1] * (x.ndim - 2))
        root = torch.sqrt(variance + eps).view(shape)
        scale, shift = self.scales[i][channels].view(shape), self.shifts[i][channels].view(shape)
        normalized: Tensor = (x - mean.view(shape)) / root * scale + shift
        return normalized


def flat_key_map(kernels: Iterable[str], norms: Iterable[str]) -> dict[str, str]:
    """Return the map from our names of kernels, and of modules that normalize, to those of `FlatLayers`."""
    parts = {"weight": "scales.", "bias": "shifts.", "running_mean": "mean", "running_var": "variance"}
    parts |= {"num_batches_tracked": "batches"}
    key_map = {name: f"kernels.{i}" for i, name in enumerate(kernels)}
    return key_map | {f"{norm}.{ours}": f"{part}{i}" for i, norm in enumerate(norms) for ours, part in parts.items()}


def _norms(names: Iterable[str]) -> list[str]:
    """Return the batch normalizations among the names of a state dict."""
    ending = ".running_mean"
    return [name.removesuffix(ending) for name in names if name.endswith(ending)]


def torchvision_resnet(config: resnet.Config) -> Oracle:
    """Build torchvision's network.

    Strides of bottlenecks move to the first 1×1 convolution if `config` has them there.
    """
    library = torchvision_models("resnet")
    block: Any = library.BasicBlock if config.block == "basic" else library.Bottleneck
    module = library.ResNet(block, list(config.layers), num_classes=config.num_classes)
    if config.stride_on == "1x1":
        for part in module.modules():
            if isinstance(part, library.Bottleneck):
                part.conv1.stride, part.conv2.stride = part.conv2.stride, part.conv1.stride
    return Oracle(module, images(2, 3, 48, 48))


class FlatResNet(FlatLayers):
    """CIFAR network as two flat lists, of kernels and of normalizations, in the order of use.

    Shortcut A is a convolution with a fixed kernel, the identity between rows of zeros: the product with W_s of
    equation 2, where the model slices and pads. Without shortcuts a block is its two layers.
    """

    def __init__(self, config: resnet.Config) -> None:
        super().__init__()
        self.config = config
        self._layer(config.in_channels, config.width, 3)
        channels = config.width
        for stage, count in enumerate(config.layers):
            for block in range(count):
                width = config.width * 2**stage
                self._layer(channels, width, 3)
                self._layer(width, width, 3)
                if config.shortcut == "B" and stage > 0 and block == 0:
                    self._layer(channels, width, 1)
                channels = width
        self.head = nn.Parameter(torch.zeros(config.num_classes, channels))
        self.head_bias = nn.Parameter(torch.zeros(config.num_classes))

    def _layer(self, in_channels: int, out_channels: int, side: int) -> None:
        self.add_kernel(in_channels, out_channels, side)
        self.add_norm(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        i = 0

        def layer(x: Tensor, stride: int = 1) -> Tensor:
            """Apply convolution and normalization number i, the latter by its definition."""
            nonlocal i
            kernel = self.kernels[i]
            x = self.normalize(i, F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2))
            i += 1
            return x

        x = torch.clamp(layer(x), min=0)
        for stage, count in enumerate(self.config.layers):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                y = layer(torch.clamp(layer(x, stride), min=0))
                if self.config.shortcut == "none":
                    x = torch.clamp(y, min=0)
                    continue
                if stride == 2:
                    x = layer(x, stride) if self.config.shortcut == "B" else zero_padded(x, y.shape[1], 2)
                x = torch.clamp(x + y, min=0)
        return torch.einsum("nchw,kc->nk", x, self.head) / (x.shape[2] * x.shape[3]) + self.head_bias


def flat_resnet(config: resnet.Config) -> Oracle:
    """Build the plain implementation and the key map from our weights."""
    with torch.device("meta"):
        names = list(resnet.ResNet(config).state_dict())
    key_map = {"fc.weight": "head", "fc.bias": "head_bias"}
    kernels = [k for k in names if re.search(r"(conv\d|downsample(\.0)?)\.weight$", k)]
    key_map |= flat_key_map(kernels, _norms(names))
    module = FlatPreActivationResNet(config) if config.order == "pre" else FlatResNet(config)
    size = 48 if config.stem == "imagenet" else 16
    return Oracle(module, images(2, config.in_channels, size, size), key_map)


class FlatPreActivationResNet(FlatLayers):
    """Pre-activation network as two flat lists, in the order of use.

    The stream of a stage is not passed from block to block: it is computed again for each block, as the first one plus
    the sum of F over all blocks before it (equation 4 of the paper).
    """

    def __init__(self, config: resnet.Config) -> None:
        super().__init__()
        self.config = config
        self.add_kernel(config.in_channels, config.width, 7 if config.stem == "imagenet" else 3)
        self.add_norm(config.width)
        channels = config.width
        for stage, count in enumerate(config.layers):
            width = config.width * 2**stage
            out_channels = width if config.block == "basic" else 4 * width
            for block in range(count):
                inner = [(channels, width, 3), (width, width, 3)]
                if config.block == "bottleneck":
                    inner = [(channels, width, 1), (width, width, 3), (width, out_channels, 1)]
                for i, (inputs, outputs, side) in enumerate(inner):
                    if i > 0 or stage > 0 or block > 0:
                        self.add_norm(inputs)
                    self.add_kernel(inputs, outputs, side)
                if config.shortcut == "B" and (channels != out_channels or (stage > 0 and block == 0)):
                    self.add_kernel(channels, out_channels, 1)
                channels = out_channels
        self.add_norm(channels)
        self.head = nn.Parameter(torch.zeros(config.num_classes, channels))
        self.head_bias = nn.Parameter(torch.zeros(config.num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        kernels, norms = iter(self.kernels), iter(range(len(self.scales)))

        def convolve(x: Tensor, stride: int) -> Tensor:
            kernel = next(kernels)
            return F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)

        def activate(x: Tensor) -> Tensor:
            return torch.clamp(self.normalize(next(norms), x), min=0)

        imagenet, neck = self.config.stem == "imagenet", self.config.block == "bottleneck"
        x = activate(convolve(x, 2 if imagenet else 1))
        if imagenet:
            x = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)  # 0 never exceeds what a ReLU returns
        for stage, count in enumerate(self.config.layers):
            first = x
            added: list[Tensor] = []
            for block in range(count):
                stream = sum(added, start=first)
                stride = 2 if stage > 0 and block == 0 else 1
                a = stream if stage == block == 0 else activate(stream)
                on_1x1 = neck and self.config.stride_on == "1x1"
                y = convolve(a, stride if on_1x1 or not neck else 1)
                y = convolve(activate(y), stride if neck and not on_1x1 else 1)
                if neck:
                    y = convolve(activate(y), 1)
                if self.config.shortcut == "none":
                    first, added = y, []
                elif y.shape == stream.shape and stride == 1:
                    added.append(y)
                else:
                    b = self.config.shortcut == "B"
                    first, added = (convolve(a, stride) if b else zero_padded(a, y.shape[1], stride)) + y, []
            x = sum(added, start=first)
        x = activate(x)
        return torch.einsum("nchw,kc->nk", x, self.head) / (x.shape[2] * x.shape[3]) + self.head_bias


def zero_padded(x: Tensor, channels: int, stride: int) -> Tensor:
    """Apply shortcut A as a product with W_s: the identity between rows of zeros."""
    kernel = torch.zeros(channels, x.shape[1], 1, 1, dtype=x.dtype)
    first = (channels - x.shape[1]) // 2
    for c in range(x.shape[1]):
        kernel[first + c, c] = 1
    return F.conv2d(x, kernel, stride=stride)


def resnet_oracle(config: resnet.Config) -> Oracle:
    """Build torchvision's network if it has this stem, width and shortcut, otherwise a plain one."""
    if config.order == "pre":
        return flat_resnet(config)
    like_torchvision = (config.stem, config.width, config.shortcut, config.in_channels, len(config.layers))
    if like_torchvision == ("imagenet", 64, "B", 3, 4):
        return torchvision_resnet(config)
    if config.stem == "cifar" and config.block == "basic":
        return flat_resnet(config)
    raise OracleMissing("neither torchvision nor the plain CIFAR network has a residual network of these settings.")


def torchvision_densenet(config: densenet.Config) -> Oracle:
    """Build torchvision's network. Images are not square: the last maps have 1×2 pixels."""
    library = torchvision_models("densenet")
    module = library.DenseNet(
        growth_rate=config.growth_rate,
        block_config=config.layers,
        num_init_features=config.stem_channels,
        num_classes=config.num_classes,
    )
    return Oracle(module, images(2, 3, 37, 61), torchvision_key_map("densenet121", densenet.DenseNet, config))


class SourceBySource(FlatLayers):
    """CIFAR network without concatenated maps.

    A convolution is a sum over its channels. A layer adds the contribution of each earlier map, through its slice of
    the kernel, normalized by its slice of the norm. Kernels and norms are two flat lists in the order of use.
    """

    def __init__(self, config: densenet.Config) -> None:
        super().__init__()
        self.config = config
        k, channels = config.growth_rate, config.stem_channels
        self.add_kernel(config.in_channels, channels, 3)
        for block, layers in enumerate(config.layers):
            if block > 0:
                self.add_norm(channels)
                halved = int(channels * config.compression)
                self.add_kernel(channels, halved, 1)
                channels = halved
            for _ in range(layers):
                self.add_norm(channels)
                if config.bottleneck:
                    self.add_kernel(channels, 4 * k, 1)
                    self.add_norm(4 * k)
                self.add_kernel(4 * k if config.bottleneck else channels, k, 3)
                channels += k
        self.add_norm(channels)
        self.head = nn.Parameter(torch.zeros(config.num_classes, channels))
        self.head_bias = nn.Parameter(torch.zeros(config.num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        kernels, norms = iter(self.kernels), iter(range(len(self.scales)))

        def normalized(sources: list[Tensor]) -> list[Tensor]:
            """Apply the next norm and ReLU to each source with its own channels."""
            norm, first, results = next(norms), 0, []
            for source in sources:
                results.append(torch.clamp(self.normalize(norm, source, first), min=0))
                first += source.shape[1]
            return results

        def convolved(sources: list[Tensor]) -> Tensor:
            """Apply the next convolution: the sum over sources of their input channels' parts."""
            kernel, first, total = next(kernels), 0, torch.zeros(())
            for source in sources:
                part = kernel[:, first : first + source.shape[1]]
                total = total + F.conv2d(source, part, padding=kernel.shape[-1] // 2)
                first += source.shape[1]
            return total

        def dropped(x: Tensor) -> Tensor:
            return F.dropout(x, self.config.dropout) if self.training and self.config.dropout else x

        sources = [convolved([x])]
        for block, layers in enumerate(self.config.layers):
            if block > 0:
                y = dropped(convolved(normalized(sources)))
                sources = [y.unfold(2, 2, 2).unfold(3, 2, 2).mean((-2, -1))]  # the mean of each window of 2×2
            for _ in range(layers):
                y = dropped(convolved(normalized(sources)))
                if self.config.bottleneck:
                    y = dropped(convolved(normalized([y])))
                sources.append(y)
        means = [y.mean((2, 3)) for y in normalized(sources)]
        logits: Tensor = self.head_bias
        for mean, part in zip(means, torch.split(self.head, [mean.shape[1] for mean in means], dim=1)):
            logits = logits + mean @ part.T
        return logits


def source_by_source(config: densenet.Config) -> Oracle:
    """Build the plain implementation and the key map from our weights."""
    with torch.device("meta"):
        names = list(densenet.DenseNet(config).state_dict())
    key_map = {"classifier.weight": "head", "classifier.bias": "head_bias"}
    key_map |= flat_key_map([name for name in names if "conv" in name], _norms(names))
    return Oracle(SourceBySource(config), images(2, config.in_channels, 18, 21), key_map)


def densenet_oracle(config: densenet.Config) -> Oracle:
    """Build torchvision's network if it has this one, otherwise the plain one.

    Torchvision's has its stem, bottlenecks, halving transitions and no dropout.
    """
    like_torchvision = (config.stem, config.bottleneck, config.compression, config.dropout, config.in_channels)
    if like_torchvision == ("imagenet", True, 0.5, 0.0, 3):
        return torchvision_densenet(config)
    if config.stem == "cifar":
        return source_by_source(config)
    raise OracleMissing(
        "neither torchvision nor the plain CIFAR network has a densely connected network of these settings."
    )


def torchvision_mobilenet(config: mobilenet_v2.Config) -> Oracle:
    """Build torchvision's network with our channels, and our strides for small images."""
    usual = mobilenet_v2.PRESETS["mobilenet-v2"]
    module = torchvision_models("mobilenetv2").MobileNetV2(
        config.num_classes, **changed(config, usual, width_mult="width_mult", dropout="dropout")
    )
    stem = module.features[0][0]
    if config.in_channels != 3:
        module.features[0][0] = stem = nn.Conv2d(config.in_channels, stem.out_channels, 3, 2, 1, bias=False)
    if config.stem == "cifar":
        stem.stride = module.features[2].conv[1][0].stride = (1, 1)
    key_map = torchvision_key_map("mobilenet-v2", mobilenet_v2.MobileNetV2, config)
    size = (config.least_size + 5, 2 * config.least_size)
    return Oracle(module, images(2, config.in_channels, *size), key_map)


def torchvision_efficientnet(config: efficientnet.Config) -> Oracle:
    """Build torchvision's network with our multipliers and channels, and our strides for small images."""
    library = torchvision_models("efficientnet")
    stages, _ = library._efficientnet_conf("efficientnet_b0", width_mult=config.width, depth_mult=config.depth)
    module = library.EfficientNet(
        stages,
        config.dropout,
        config.drop_path_rate,
        config.num_classes,
        last_channel=library.MBConvConfig.adjust_channels(1280, config.width),
    )
    stem = module.features[0][0]
    if config.in_channels != 3:
        module.features[0][0] = stem = nn.Conv2d(config.in_channels, stem.out_channels, 3, 2, 1, bias=False)
    if config.stem == "cifar":
        first = module.features[2][0]
        stem.stride = first.block[1][0].stride = (1, 1)
        first.use_res_connect = config.channels(16) == config.channels(24)
    for block in module.modules():
        if isinstance(block, library.MBConv):
            block.stochastic_depth = StochasticDepth(block.stochastic_depth.p)
    key_map = torchvision_key_map("efficientnet-b0", efficientnet.EfficientNet, config)
    size = (config.least_size + 5, 2 * config.least_size)
    return Oracle(module, images(3, config.in_channels, *size), key_map)


def torchvision_convnext(config: convnext.Config) -> Oracle:
    """Build torchvision's network with our channels and patches."""
    library = torchvision_models("convnext")
    widths: list[Any] = [config.width * 2**stage for stage in range(len(config.layers))]
    module = library.ConvNeXt(
        [library.CNBlockConfig(*stage) for stage in zip(widths, [*widths[1:], None], config.layers)],
        stochastic_depth_prob=config.drop_path_rate,
        layer_scale=config.layer_scale,
        num_classes=config.num_classes,
    )
    patch = config.patch_size
    module.features[0][0] = nn.Conv2d(config.in_channels, config.width, patch, stride=patch)
    for block in module.modules():
        if isinstance(block, library.CNBlock):
            block.stochastic_depth = StochasticDepth(block.stochastic_depth.p)
    key_map = torchvision_key_map("convnext-tiny", convnext.ConvNeXt, config)
    return Oracle(module, images(3, config.in_channels, config.least_size + 5, 2 * config.least_size), key_map)


class StochasticDepth(nn.Module):
    """Stochastic depth of torchvision for each image, drawn by PyTorch's dropout.

    `fixed_dropout` therefore controls it.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return the branch times 0 or 1 / (1 − p)."""
        return x * F.dropout(torch.ones(len(x), 1, 1, 1, dtype=x.dtype), self.p, self.training)


class ParsedCellNet(nn.Module):
    """Network parsed from its notation. Nodes are split at `+` and edges at `|`, and each edge looks up its weights."""

    def __init__(self, arch: str, cells: int, channels: int, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.nodes = [[part.split("~") for part in node.strip("|").split("|")] for node in arch.split("+")]
        self.cells, self.widths = cells, [channels, 2 * channels, 4 * channels]
        self.kernels, self.norms = nn.ParameterDict(), nn.ModuleDict()
        self._conv("stem", in_channels, channels, 3)
        for stage, width in enumerate(self.widths):
            if stage:
                self._conv(f"down{stage}a", width // 2, width, 3)
                self._conv(f"down{stage}b", width, width, 3)
                self.kernels[f"down{stage}s"] = nn.Parameter(torch.zeros(width, width // 2, 1, 1))
            for cell in range(cells):
                for to, node in enumerate(self.nodes):
                    for op, source in node:
                        if op.startswith("nor_conv"):
                            self._conv(f"{stage}-{cell}-{source}{to + 1}", width, width, int(op[-1]))
        self.norms["last"] = nn.BatchNorm2d(4 * channels)
        self.head = nn.Linear(4 * channels, num_classes)

    def _conv(self, name: str, inputs: int, outputs: int, kernel: int) -> None:
        self.kernels[name] = nn.Parameter(torch.zeros(outputs, inputs, kernel, kernel))
        self.norms[name] = nn.BatchNorm2d(outputs)

    def _through(self, name: str, x: Tensor, stride: int = 1) -> Tensor:
        kernel = self.kernels[name]
        y: Tensor = self.norms[name](F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2))
        return y

    def _edge(self, op: str, name: str, x: Tensor) -> Tensor:
        if op == "none":
            return torch.zeros_like(x)
        if op == "skip_connect":
            return x
        if op == "avg_pool_3x3":  # the sum over 3×3 divided by the number of pixels
            ones = torch.ones(x.shape[1], 1, 3, 3, dtype=x.dtype)
            sums, there = (F.conv2d(m, ones, padding=1, groups=x.shape[1]) for m in (x, torch.ones_like(x)))
            return sums / there
        return self._through(name, x.clamp(min=0))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        x = self._through("stem", x)
        for stage in range(3):
            if stage:
                y = self._through(f"down{stage}a", x.clamp(min=0), stride=2)
                y = self._through(f"down{stage}b", y.clamp(min=0))
                halves = (x[..., 0::2, 0::2] + x[..., 0::2, 1::2] + x[..., 1::2, 0::2] + x[..., 1::2, 1::2]) / 4
                x = y + torch.einsum("nchw,dc->ndhw", halves, self.kernels[f"down{stage}s"][..., 0, 0])
            for cell in range(self.cells):
                values = [x]
                for to, node in enumerate(self.nodes):
                    arriving = [
                        self._edge(op, f"{stage}-{cell}-{source}{to + 1}", values[int(source)]) for op, source in node
                    ]
                    values.append(sum(arriving[1:], arriving[0]))
                x = values[3]
        x = self.norms["last"](x).clamp(min=0).flatten(2).sum(2) / x[0, 0].numel()
        logits: Tensor = self.head(x)
        return logits


def parsed_cellnet(config: cellnet.Config) -> Oracle:
    """Build the network of the config's notation and the key map from our weights."""
    module = ParsedCellNet(config.arch, config.cells, config.channels, config.in_channels, config.num_classes)
    key_map = {"stem.0.weight": "kernels.stem"} | _norm_key_map("stem.1", "stem")
    per_stage = config.cells + 1  # with the residual block before the cells
    for stage in range(3):
        first = stage * per_stage
        if stage:
            before = f"blocks.{first - 1}"
            for ours, theirs in (("conv_a", "a"), ("conv_b", "b")):
                key_map[f"{before}.{ours}.1.weight"] = f"kernels.down{stage}{theirs}"
                key_map |= _norm_key_map(f"{before}.{ours}.2", f"down{stage}{theirs}")
            key_map[f"{before}.shortcut.weight"] = f"kernels.down{stage}s"
        for cell in range(config.cells):
            for edge, ends in enumerate(("01", "02", "12", "03", "13", "23")):
                name, ours = f"{stage}-{cell}-{ends}", f"blocks.{first + cell}.edges.{edge}"
                if name in module.kernels:
                    key_map[f"{ours}.1.weight"] = f"kernels.{name}"
                    key_map |= _norm_key_map(f"{ours}.2", name)
    key_map |= _norm_key_map("bn", "last") | {"head.weight": "head.weight", "head.bias": "head.bias"}
    return Oracle(module, images(3, config.in_channels, 8, 12), key_map)


def _norm_key_map(ours: str, theirs: str) -> dict[str, str]:
    keys = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return {f"{ours}.{key}": f"norms.{theirs}.{key}" for key in keys}


ORACLES = {
    **dict.fromkeys(resnet.PRESETS, resnet_oracle),
    **dict.fromkeys(densenet.PRESETS, densenet_oracle),
    **dict.fromkeys(mobilenet_v2.PRESETS, torchvision_mobilenet),
    **dict.fromkeys(efficientnet.PRESETS, torchvision_efficientnet),
    **dict.fromkeys(convnext.PRESETS, torchvision_convnext),
    "cellnet": parsed_cellnet,
    "cellnet-small": parsed_cellnet,
}

REDUCED = {
    # resnet18, resnet20 and resnet20-v2 are compared completely; the others have more blocks of the same kinds.
    **{
        name: dataclasses.replace(config, layers=(2, 2, 1, 1) if config.stem == "imagenet" else (2, 2, 2))
        for name, config in resnet.PRESETS.items()
        if name not in ("resnet18", "resnet20", "resnet20-v2")
    },
    # densenet121, densenet-40-12 and densenet-bc-100-12 are compared completely; the others have more or wider layers.
    **{
        name: dataclasses.replace(densenet.PRESETS[name], layers=(2, 3, 2, 2))
        for name in ("densenet161", "densenet169", "densenet201")
    },
    # efficientnet-b0 is compared completely; the others have more or wider blocks of the same kind.
    **{
        name: dataclasses.replace(config, width_mult=0.25)
        for name, config in efficientnet.PRESETS.items()
        if name != "efficientnet-b0"
    },
    # convnext-micro is compared completely; the others have more and wider blocks of the same kind.
    **{
        name: dataclasses.replace(config, layers=tuple(min(n, 4) for n in config.layers), width=config.width // 8)
        for name, config in convnext.PRESETS.items()
        if name != "convnext-micro"
    },
}
