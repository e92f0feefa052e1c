"""Oracle of the networks of NAS-Bench-201: PyTorch's functions, edge by edge, parsed from the notation of the cell."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.cellnet import Config
from . import Oracle, images


class WrittenCells(nn.Module):
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


def written_cells(config: Config) -> Oracle:
    """Build the network of the config's notation and the key map from our weights."""
    module = WrittenCells(config.arch, config.cells, config.channels, config.in_channels, config.num_classes)
    key_map = {"stem.0.weight": "kernels.stem"} | _norm("stem.1", "stem")
    per_stage = config.cells + 1  # with the residual block before the cells
    for stage in range(3):
        first = stage * per_stage
        if stage:
            before = f"blocks.{first - 1}"
            for ours, theirs in (("conv_a", "a"), ("conv_b", "b")):
                key_map[f"{before}.{ours}.1.weight"] = f"kernels.down{stage}{theirs}"
                key_map |= _norm(f"{before}.{ours}.2", f"down{stage}{theirs}")
            key_map[f"{before}.shortcut.weight"] = f"kernels.down{stage}s"
        for cell in range(config.cells):
            for edge, ends in enumerate(("01", "02", "12", "03", "13", "23")):
                name, ours = f"{stage}-{cell}-{ends}", f"blocks.{first + cell}.edges.{edge}"
                if name in module.kernels:
                    key_map[f"{ours}.1.weight"] = f"kernels.{name}"
                    key_map |= _norm(f"{ours}.2", name)
    key_map |= _norm("bn", "last") | {"head.weight": "head.weight", "head.bias": "head.bias"}
    return Oracle(module, images(3, config.in_channels, 8, 12), key_map)


def _norm(ours: str, theirs: str) -> dict[str, str]:
    keys = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return {f"{ours}.{key}": f"norms.{theirs}.{key}" for key in keys}


ORACLES = {"cellnet": written_cells, "cellnet-small": written_cells}
