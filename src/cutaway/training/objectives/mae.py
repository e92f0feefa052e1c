"""Masked autoencoding: a network learns without labels, by telling masked patches of an image from the others.

After K. He, X. Chen, S. Xie, Y. Li, P. Dollár, R. Girshick, Masked autoencoders are scalable vision learners, 2021.
<https://arxiv.org/abs/2111.06377>

    L = 1/|M| Σ_{i ∈ M} ‖x̂_i − x_i‖² / d,   M the masked patches, drawn at random, x_i the d = C P² pixels of one

    the others ─▶ encoder ─▶ W ─┬─▶ each in its place ─▶ + positions ─▶ decoder ─▶ x̂
                   mask token ──┘

The encoder is the network itself. It is given the patches that are not masked and computes no others, so that a step
takes less time the more are masked (`mask_ratio`). With `norm_pix_loss` each patch x_i is brought to mean 0 and
standard deviation 1 first, which the paper found better (its table 1d).

W is the network's own head, with as many outputs as the decoder has numbers in a token (`decoder_dim`): a network that
takes the weights gets a new one. The decoder, two blocks of a Vision Transformer between sinusoids for the places and a
linear layer to pixels, is thrown away when training is over. How large it is hardly matters for fine-tuning (table 1a
and 1b); a linear probe gains from a deeper one. Positions of the encoder are the network's, which are learned; the
paper's are sinusoids there too.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ...core.errors import ModelError, SettingError
from ...core.spec import ImageSpec, Patches, Spec
from ...data.dataset_base import DataSet, Split
from ...models.base import EncodesPatches, contract_of
from ...models.registry import presets
from ...models.vit import EPS, Block, Config
from ...nn.position import grid_sinusoids
from ...tasks.task import Task
from ..config import TrainSettings
from ..parameter_groups import HEAD
from .pretraining import Pretraining
from .supervised import Learned

DECODER = "decoder"  # the child that is there for as long as masked patches are told
BLOCKS = 2  # of the decoder
HEAD_DIM = 32  # numbers of each of its attention heads, about: as many as in the authors'


class Decoder(nn.Module):
    """The encoder's tokens of some patches, brought to `dim` numbers, to the `pixels` numbers of every patch."""

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
        """Tokens z (N, K, dim) of the patches `kept` (N, K), others before them, to all patches (N, T, pixels)."""
        before, (n, _), dim = z.shape[1] - kept.shape[1], kept.shape, z.shape[2]
        masked = self.mask_token.to(z.dtype).expand(n, self.rows * self.columns, dim)  # (N, T, dim)
        patches = masked.scatter(1, kept[..., None].expand(-1, -1, dim), z[:, before:])
        patches = patches + grid_sinusoids(self.rows, self.columns, dim, like=z)
        z = torch.cat([z[:, :before], patches], dim=1)  # (N, before + T, dim): what is no patch has no place
        for block in self.blocks:
            z = block(z)
        found: Tensor = self.to_pixels(self.norm(z[:, before:]))  # (N, T, pixels)
        return found


def patches_of(x: Tensor, rows: int, columns: int) -> Tensor:
    """Images (N, C, H, W) as their patches, row by row, each pixel after pixel: (N, T, P²·C)."""
    n, channels, height, width = x.shape
    x = x.reshape(n, channels, rows, height // rows, columns, width // columns)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(n, rows * columns, -1)  # from (N, rows, columns, P, P, C)


def normalized(patches: Tensor) -> Tensor:
    """Each patch (…, d) with mean 0 and standard deviation 1; one that is of one colour is 0."""
    return (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 1e-6).sqrt()


def parted(noise: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    """Which patches are kept, (N, K), and which are masked, (N, T − K): those of most noise (N, T). K is the whole part
    of (1 − ratio) T, and at least 1."""
    order = noise.argsort(dim=1)
    count = max(1, int((1 - ratio) * order.shape[1]))
    return order[:, :count], order[:, count:]


class MAE(Pretraining):
    """The mean squared error of the pixels of masked patches; the targets are not looked at."""

    adds = (DECODER,)

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError for what masked autoencoding cannot have."""
        if not isinstance(data.spec.target, Patches):
            raise SettingError(
                f"objective=mae masks patches of images with one class each, and this is {data.spec.kind} data that "
                f"asks for {data.spec.target.column}: leave it out."
            )
        super().reject(settings, data)
        if settings.lora:
            raise SettingError(
                f"lora={settings.lora} holds all else still, and objective=mae has a decoder that is new: leave one of "
                "them out."
            )

    @classmethod
    def learned_from(cls, data: DataSet, settings: TrainSettings) -> DataSet:
        """The data with a target that says how many numbers the head gives."""
        spec: Any = data.spec
        preprocessing: Any = data.preprocessing
        spec = dataclasses.replace(spec, target=dataclasses.replace(spec.target, dim=settings.decoder_dim))
        return dataclasses.replace(data, spec=spec, preprocessing=dataclasses.replace(preprocessing, spec=spec))

    @classmethod
    def added(cls, model: nn.Module, spec: Spec) -> dict[str, nn.Module]:
        """The decoder. Raises ModelError for a model that reads no patches, and for images of one patch."""
        assert isinstance(spec, ImageSpec), "what has patches"
        grid, head = contract_of(model).token_grid(spec.height, spec.width), getattr(model, HEAD, None)
        if not isinstance(model, EncodesPatches) or grid is None or not isinstance(head, nn.Linear):
            able = [name for name, preset in presets().items() if issubclass(preset.network, EncodesPatches)]
            raise ModelError(
                f"objective=mae shows a network some patches of an image alone, and {type(model).__name__} reads "
                f"whole images: take a model that reads patches one by one ({', '.join(able)}), or objective=simclr."
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
        assert isinstance(model, EncodesPatches), "as `added` asks"
        assert isinstance(decoder, Decoder), "that `added` made"
        self.encoder, self.head, self.decoder = model, head, decoder
        self.mask_ratio, self.normalizes = settings.mask_ratio, settings.norm_pix_loss

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> Learned:
        """What comes of a batch."""
        x = inputs[0]
        noise = torch.rand(len(x), self.decoder.rows * self.decoder.columns, generator=random, device=x.device)
        loss = self.errors(x, noise).sum()
        return Learned(loss, loss)

    def errors(self, x: Tensor, noise: Tensor) -> Tensor:
        """The mean squared error of each of the images x (N, C, H, W), (N,), where noise (N, T) says what is masked."""
        kept, masked = parted(noise, self.mask_ratio)
        z = self.head(self.encoder.encode_patches(x, kept))  # (N, 1 + K, dim)
        patches = patches_of(x, self.decoder.rows, self.decoder.columns)  # (N, T, d)
        patches = normalized(patches) if self.normalizes else patches
        error = (self.decoder(z, kept) - patches).square().mean(-1)  # (N, T)
        of_masked: Tensor = error.gather(1, masked)  # (N, T − K)
        return of_masked.mean(1)
