"""Oracle of NASNet: the cells are read from a table of the paper's figure 4, operation by operation.

Windows are laid out and reduced one by one, padded by TensorFlow's rule for `SAME`, and not by a layer of PyTorch.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import nasnet
from . import Oracle, images
from .residual import FlatLayers, flat_key_map

# A sum, its two operations, each with its input: h is the last map, p the one before it. A star: the sum is not in the
# output, because another one uses it.
NORMAL = """
    1   sep5 h   sep3 p
    2   sep5 p   sep3 p
    3   mean h   same p
    4   mean p   mean p
    5   sep3 h   same h
"""
REDUCTION = """
    1*  sep5 h   sep7 p
    2   max  h   sep7 p
    3   mean h   sep5 p
    4   mean 1   same 2
    5   sep3 1   max  h
"""


def _same_windows(x: Tensor, side: int, step: int, value: float) -> Tensor:
    """Return the windows of TensorFlow's `SAME`, shape (N, C, H', W', side, side), with `value` outside the map."""
    for axis in (2, 3):
        n = x.shape[axis]
        missing = max((math.ceil(n / step) - 1) * step + side - n, 0)
        pads = [0] * 4
        pads[2 * (3 - axis) : 2 * (3 - axis) + 2] = missing // 2, missing - missing // 2
        x = F.pad(x, pads, value=value)
    return x.unfold(2, side, step).unfold(3, side, step)


class TableNASNet(FlatLayers):
    """Network whose kernels and norms are two flat lists, in the order of use. A cell goes through its table."""

    def __init__(self, config: nasnet.Config, kernels: list[tuple[int, ...]], norms: list[int]) -> None:
        super().__init__()
        self.config, self.eps = config, 1e-3 if config.stem == "imagenet" else 1e-5
        self.kernels.extend(nn.Parameter(torch.zeros(shape)) for shape in kernels)
        for channels in norms:
            self.add_norm(channels)
        self.head = nn.Parameter(torch.zeros(config.num_classes, 24 * config.width))
        self.head_bias = nn.Parameter(torch.zeros(config.num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        n, whole = self.config.cells, self.config.stem == "imagenet"
        order = "RR" * whole + "N" * n + "R" + "N" * n + "R" + "N" * n
        kernels, norms = iter(self.kernels), iter(range(len(self.scales)))
        kernel = next(kernels)
        x = F.conv2d(x, kernel, stride=2) if whole else F.conv2d(x, kernel, padding=1)
        maps = [self.normalize(next(norms), x, eps=self.eps)]
        for i, kind in enumerate(order):
            back = 2  # the map before the last
            if self.config.skip_reduction and kind == "N" and order[i - 1] == "R" and i > 2:
                back = 3  # the map before the input of the reduction
            rate = self.config.drop_path_rate * (i + 1) / len(order)
            maps.append(self._cell(kind, maps[-1], maps[-back:][0], kernels, norms, rate, raw=whole and i == 0))
        means = torch.clamp(maps[-1], min=0).flatten(2).mean(2)
        means = F.dropout(means, self.config.dropout, self.training)
        return torch.einsum("nc,kc->nk", means, self.head) + self.head_bias

    def _cell(
        self, kind: str, last: Tensor, before: Tensor, kernels: Iterator[Tensor], norms: Iterator[int], rate: float,
        raw: bool,
    ) -> Tensor:  # fmt: skip
        def convolved(x: Tensor, stride: int = 1) -> Tensor:
            """Apply the next kernel to the windows of its size."""
            kernel = next(kernels)
            if kernel.shape[1] == 1 and kernel.shape[-1] > 1:  # depthwise
                windows = _same_windows(x, kernel.shape[-1], stride, 0.0)
                return torch.einsum("nchwij,cij->nchw", windows, kernel[:, 0])
            return torch.einsum("nchw,dc->ndhw", x, kernel[..., 0, 0])

        def normalized(x: Tensor) -> Tensor:
            return self.normalize(next(norms), x, eps=self.eps)

        def operation(name: str, x: Tensor, stride: int) -> Tensor:
            if name == "same":
                return x
            if name.startswith("sep"):
                for step in (stride, 1):
                    x = normalized(convolved(convolved(torch.clamp(x, min=0), step)))
            elif name == "max":
                x = _same_windows(x, 3, stride, -torch.inf).amax((4, 5))
            else:
                inside = _same_windows(torch.ones_like(x), 3, stride, 0.0).sum((4, 5))
                x = _same_windows(x, 3, stride, 0.0).sum((4, 5)) / inside
            if self.training and rate:
                x = x * F.dropout(torch.ones(len(x), 1, 1, 1, dtype=x.dtype), rate)
            return x

        values = {"h": normalized(convolved(torch.clamp(last, min=0)))}
        if raw:
            values["p"] = before
        elif before.shape[2:] == last.shape[2:]:
            values["p"] = normalized(convolved(torch.clamp(before, min=0)))
        else:  # every other pixel, and those one to the right and below, zero outside the map
            wide = F.pad(torch.clamp(before, min=0), (0, 2, 0, 2))
            height, width = last.shape[2:]
            parts = [wide[:, :, i::2, i::2][:, :, :height, :width] for i in (0, 1)]
            values["p"] = normalized(torch.cat([convolved(part) for part in parts], dim=1))
        results = [values["p"]] if kind == "N" else []
        for row in (NORMAL if kind == "N" else REDUCTION).strip().split("\n"):
            name, *operations = row.split()
            left, right = (
                operation(one, values[source], 2 if kind == "R" and source in "hp" else 1)
                for one, source in zip(operations[::2], operations[1::2])
            )
            total = left + right
            values[name.strip("*")] = total
            results += [] if name.endswith("*") else [total]
        return torch.cat(results, dim=1)


def table_nasnet(config: nasnet.Config) -> Oracle:
    """Build the plain implementation and the key map from our weights."""
    with torch.device("meta"):
        tensors = nasnet.NASNet(config).state_dict()
    kernels = [name for name, tensor in tensors.items() if tensor.ndim == 4]
    norms = [re.sub(r"\.running_mean$", "", name) for name in tensors if name.endswith("running_mean")]
    key_map = {"head.weight": "head", "head.bias": "head_bias"} | flat_key_map(kernels, norms)
    module = TableNASNet(
        config,
        [tuple(tensors[name].shape) for name in kernels],
        [len(tensors[f"{name}.running_mean"]) for name in norms],
    )
    # Sides of both kinds are halved: even and odd ones.
    size = (50, 77) if config.stem == "imagenet" else (10, 15)
    return Oracle(module, images(3, config.in_channels, *size), key_map)


ORACLES = dict.fromkeys(nasnet.PRESETS, table_nasnet)

REDUCED = {
    # nasnet-a-small is compared completely; the others have more or wider cells of the same kinds.
    name: dataclasses.replace(config, cells=2, width=8, stem_width=config.stem_width // 8)
    for name, config in nasnet.PRESETS.items()
    if name != "nasnet-a-small"
}
