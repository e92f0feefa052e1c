"""Masked autoencoding beside transformers' ViTMAEForPreTraining: the same loss and gradients of the same patches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cutaway.core.spec import ImageSpec, Patches
from cutaway.models.vit import Config, ViT
from cutaway.nn.position import grid_sinusoids
from cutaway.training.objectives.mae import BLOCKS, HEAD_DIM, MAE
from cutaway.verify.compare import BOUND, NOISE, difference

from ..training.objectives.masked import masking
from .vit_names import as_transformers

DIM = 2 * HEAD_DIM  # of the decoder
DECODED = (
    (r"^head\.", "decoder.decoder_embed."),
    (r"^decoder\.blocks", "decoder.decoder_layers"),
    (r"^decoder\.norm\.", "decoder.decoder_norm."),
    (r"^decoder\.to_pixels", "decoder.decoder_pred"),
)


def both(channels: int, **given: Any) -> tuple[MAE, nn.Module]:
    """Our objective, with its network, and transformers' network with the same random weights, in float64."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    size, patch = 12, 3
    config = Config(size, patch, dim=12, layers=2, heads=3, ffn_dim=20, in_channels=channels, num_classes=DIM)
    model, spec = ViT(config), ImageSpec(channels, size, size, Patches(dim=DIM))
    ours = masking(model, spec, **given)
    model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    theirs: nn.Module = transformers.ViTMAEForPreTraining(
        transformers.ViTMAEConfig(
            hidden_size=config.dim,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.ffn_dim,
            layer_norm_eps=1e-6,
            image_size=size,
            patch_size=patch,
            num_channels=channels,
            decoder_num_attention_heads=DIM // HEAD_DIM,
            decoder_hidden_size=DIM,
            decoder_num_hidden_layers=BLOCKS,
            decoder_intermediate_size=4 * DIM,
            mask_ratio=ours.settings.mask_ratio,
            norm_pix_loss=ours.settings.norm_pix_loss,
            attn_implementation="sdpa",  # its eager path takes the softmax in float32
        )
    ).double()
    places = torch.cat([torch.zeros(1, DIM), grid_sinusoids(4, 4, DIM, like=torch.empty(0, dtype=torch.float64))])
    theirs.load_state_dict({**as_transformers(model.state_dict(), *DECODED), "decoder.decoder_pos_embed": places[None]})
    theirs.get_parameter("vit.embeddings.position_embeddings").requires_grad_()  # learned here
    return ours, theirs


@pytest.mark.parametrize(
    ("channels", "given"),
    [(3, {}), (1, {"norm_pix_loss": False, "mask_ratio": 0.6})],
    ids=str,
)
def test_loss_and_gradients_are_transformers(channels: int, given: dict[str, Any]) -> None:
    ours, theirs = both(channels, **given)
    x = torch.randn(3, channels, 12, 12, dtype=torch.float64)
    noise = torch.rand(3, 16)
    found, expected = ours.errors(x, noise).mean(), theirs(x, noise=noise).loss
    assert abs(found.item() / expected.item() - 1) <= BOUND

    found.backward()  # type: ignore[no-untyped-call]
    expected.backward()
    gradients = {k: p.grad for k, p in ours.model.named_parameters() if p.grad is not None}
    mine = as_transformers(gradients, *DECODED)
    yours = {k: p.grad for k, p in theirs.named_parameters() if p.grad is not None}
    assert len(gradients) == len(list(ours.model.parameters()))
    assert mine.keys() == yours.keys()
    largest = max(float(g.abs().max()) for g in yours.values())
    for key, gradient in yours.items():
        assert difference(mine[key], gradient, floor=NOISE * largest) <= BOUND, key


def test_what_is_drawn_masks_as_their_noise_does() -> None:
    """The loss of a batch is that of the noise which its generator draws, summed over images."""
    ours, theirs = both(3)
    x, target = torch.randn(4, 3, 12, 12, dtype=torch.float64), torch.zeros(4, dtype=torch.long)
    found = ours.loss((x,), target, None, torch.Generator().manual_seed(5)).total
    noise = torch.rand(4, 16, generator=torch.Generator().manual_seed(5))
    assert abs(found.item() / (4 * theirs(x, noise=noise).loss.item()) - 1) <= BOUND


def test_places_are_their_sinusoids_in_another_order() -> None:
    """Theirs tell the column first, and all sines before all cosines."""
    vit_mae = pytest.importorskip("transformers.models.vit_mae.modeling_vit_mae")
    config = pytest.importorskip("transformers").ViTMAEConfig(
        image_size=12, patch_size=3, decoder_hidden_size=16, decoder_num_attention_heads=2, decoder_num_hidden_layers=1
    )
    theirs = vit_mae.ViTMAEDecoder(config, num_patches=16).decoder_pos_embed[0, 1:]  # (16, 16)
    ours = grid_sinusoids(4, 4, 16, like=theirs)
    row, column = (half.unflatten(1, (-1, 2)).mT.flatten(1) for half in ours.chunk(2, dim=1))
    torch.testing.assert_close(torch.cat([column, row], 1), theirs.detach(), rtol=0, atol=1e-6)
