"""Masked autoencoding: a network is trained without labels to reconstruct masked patches of an image.

After K. He, X. Chen, S. Xie, Y. Li, P. Dollár, R. Girshick, Masked autoencoders are scalable vision learners, 2021.
<https://arxiv.org/abs/2111.06377>

    L = 1/|M| Σ_{i ∈ M} ‖x̂_i − x_i‖² / d,   M the masked patches, drawn at random, x_i the d = C P² pixels of one

    visible ─▶ encoder ─▶ W ─┬─▶ each in its place ─▶ + positions ─▶ decoder ─▶ x̂
                mask token ──┘

The encoder is the network itself. It computes only the visible patches, so that a step is faster with a larger
`mask_ratio`. With `norm_pix_loss` each patch x_i is first normalized to mean 0 and standard deviation 1, which the
paper found better (its table 1d).

W is the network's own head, with as many outputs as the decoder's dimension (`decoder_dim`). A network that is
fine-tuned from the weights gets a new head. The decoder has two blocks of a Vision Transformer, sinusoidal positions
and a linear layer to pixels, and is discarded after training. Its size has little effect on fine-tuning (tables 1a and
1b), but a linear probe gains from a deeper one. The encoder uses the network's learned positions, the paper's has
sinusoids.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ...core.errors import IncompatibleSettingError, ModelError
from ...core.spec import ImageSpec, Patches, Spec
from ...data.dataset_base import DataSet, Split
from ...models.base import SupportsPatchSubset, as_base_model
from ...models.registry import presets
from ...models.vit import EPS, Block, Config
from ...nn.position import grid_sinusoids
from ...tasks.task import Task
from ..config import TrainSettings
from ..optim import HEAD
from .simclr import Pretraining
from .supervised import BatchLoss

DECODER = "decoder"  # name of the child during training
BLOCKS = 2  # of the decoder
HEAD_DIM = 32  # approximate dimension of an attention head, as in the authors' code


class Decoder(nn.Module):
    """Decoder from `dim` numbers for each visible patch to `pixels` numbers for every patch."""

    def __init__(self, rows: int, columns: int, dim: int, pixels: int) -> None:
        super().__init__()
        self.rows, self.columns = rows, columns
        config = Config(dim=dim, layers=BLOCKS, heads=math.gcd(dim, max(1, dim // HEAD_DIM)), ffn_dim=4 * dim)
        self.mask_token = nn.Parameter(torch.empty(1, 1, dim))
        self.blocks = nn.ModuleList(Block(config) for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.to_pixels = nn.Linear(dim, pixels)
        nn.init.normal_(self.mask_token, std=0.02)

    def forward(self, z: Tensor, kept: Tensor) -> Tensor:
        """Map tokens z (N, K, dim) of the patches `kept` (N, K) to pixels of all patches (N, T, pixels).

        z may begin with other tokens, such as a class token.
        """
        before, (n, _), dim = z.shape[1] - kept.shape[1], kept.shape, z.shape[2]
        masked = self.mask_token.to(z.dtype).expand(n, self.rows * self.columns, dim)  # (N, T, dim)
        patches = masked.scatter(1, kept[..., None].expand(-1, -1, dim), z[:, before:])
        patches = patches + grid_sinusoids(self.rows, self.columns, dim, like=z)
        z = torch.cat([z[:, :before], patches], dim=1)  # (N, before + T, dim); only patches have positions
        for block in self.blocks:
            z = block(z)
        found: Tensor = self.to_pixels(self.norm(z[:, before:]))  # (N, T, pixels)
        return found


def patchify(x: Tensor, rows: int, columns: int) -> Tensor:
    """Split images (N, C, H, W) into patches in row order, each pixel by pixel: (N, T, P²·C)."""
    n, channels, height, width = x.shape
    x = x.reshape(n, channels, rows, height // rows, columns, width // columns)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(n, rows * columns, -1)  # from (N, rows, columns, P, P, C)


def normalize_patches(patches: Tensor) -> Tensor:
    """Normalize each patch (…, d) to mean 0 and standard deviation 1. A patch of one colour becomes 0."""
    return (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 1e-6).sqrt()


def random_masking(noise: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    """Return the indices of visible patches, (N, K), and of masked ones, (N, T − K).

    The patches with the largest noise (N, T) are masked. K is (1 − ratio) T rounded down, and at least 1.
    """
    order = noise.argsort(dim=1)
    count = max(1, int((1 - ratio) * order.shape[1]))
    return order[:, :count], order[:, count:]


class MAE(Pretraining):
    """Mean squared error of the pixels of masked patches. Targets are not used."""

    adds = (DECODER,)

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError for data or settings that masked autoencoding does not support."""
        if not isinstance(data.spec.target, Patches):
            raise IncompatibleSettingError(
                f"objective=mae masks patches of images with one class each, and this is {data.spec.kind} data that "
                f"asks for {data.spec.target.column}: leave it out."
            )
        super().reject(settings, data)
        if settings.lora:
            raise IncompatibleSettingError(
                f"lora={settings.lora} holds all else still, and objective=mae has a decoder that is new: leave one of "
                "them out."
            )

    @classmethod
    def learned_from(cls, data: DataSet, settings: TrainSettings) -> DataSet:
        """Return the data with a target that contains the number of outputs of the head."""
        spec: Any = data.spec
        preprocessing: Any = data.preprocessing
        spec = dataclasses.replace(spec, target=dataclasses.replace(spec.target, dim=settings.decoder_dim))
        return dataclasses.replace(data, spec=spec, preprocessing=dataclasses.replace(preprocessing, spec=spec))

    @classmethod
    def training_modules(cls, model: nn.Module, spec: Spec) -> dict[str, nn.Module]:
        """Return the decoder. Raises ModelError for a model without patches, and for images of one patch."""
        assert isinstance(spec, ImageSpec), "what has patches"
        grid, head = as_base_model(model).token_grid(spec.height, spec.width), getattr(model, HEAD, None)
        if not isinstance(model, SupportsPatchSubset) or grid is None or not isinstance(head, nn.Linear):
            able = [name for name, preset in presets().items() if issubclass(preset.network, SupportsPatchSubset)]
            raise ModelError(
                f"objective=mae needs a model that reads an image as patches, and {type(model).__name__} reads "
                f"whole images: use one of {', '.join(able)}, or objective=simclr."
            )
        count = grid.rows * grid.columns
        if count < 2:
            raise ModelError(
                f"objective=mae masks some patches of an image and shows the others, and images of {spec.height}×"
                f"{spec.width} pixels are one patch here: take smaller ones, as model.patch_size=4."
            )
        pixels = spec.channels * spec.height * spec.width // count
        return {DECODER: Decoder(grid.rows, grid.columns, head.out_features, pixels)}

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        super().__init__(model, task, settings, train, data)
        decoder, head = model.get_submodule(DECODER), model.get_submodule(HEAD)
        assert isinstance(model, SupportsPatchSubset), "as `training_modules` asks"
        assert isinstance(decoder, Decoder), "that `training_modules` made"
        self.encoder, self.head, self.decoder = model, head, decoder
        self.mask_ratio, self.normalizes = settings.mask_ratio, settings.norm_pix_loss

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> BatchLoss:
        """Return the losses of a batch."""
        x = inputs[0]
        noise = torch.rand(len(x), self.decoder.rows * self.decoder.columns, generator=random, device=x.device)
        loss = self.errors(x, noise).sum()
        return BatchLoss(loss, loss)

    def errors(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return the mean squared error of each image x (N, C, H, W), (N,); noise (N, T) selects the masked patches."""
        kept, masked = random_masking(noise, self.mask_ratio)
        z = self.head(self.encoder.encode_patches(x, kept))  # (N, 1 + K, dim)
        patches = patchify(x, self.decoder.rows, self.decoder.columns)  # (N, T, d)
        patches = normalize_patches(patches) if self.normalizes else patches
        error = (self.decoder(z, kept) - patches).square().mean(-1)  # (N, T)
        of_masked: Tensor = error.gather(1, masked)  # (N, T − K)
        return of_masked.mean(1)
