"""Masked autoencoding: what is masked, what the encoder is given, and runs that learn so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import cutaway
from cutaway.core.errors import CutawayError, DataError, ModelError, SettingError
from cutaway.core.spec import ImageSpec, Patches
from cutaway.models.vit import Config, ViT
from cutaway.runs.run import Run
from cutaway.training.callbacks import Progress
from cutaway.training.objectives.mae import DECODER, MAE, Decoder, normalize_patches, patchify, random_masking
from cutaway.training.setup import setup_training
from cutaway.training.trainer import Trainer

from ..conftest import stopping
from .masked import masking
from .unlabelled import is_judged_by_neighbours, photographs

MODEL: dict[str, Any] = {"model.patch_size": 2, "model.dim": 24, "model.layers": 2, "model.ffn_dim": 48}
GIVEN: dict[str, Any] = {
    "objective": "mae", "max_samples": 96, "batch_size": 24, "epochs": 2, "decoder_dim": 32, "tensorboard": False,
    **MODEL,
}  # fmt: skip


def pretrain(out: Path, data: Any = "digits", **more: Any) -> Run:
    """A small Vision Transformer after a few steps on scanned digits."""
    return cutaway.train("vit-tiny/16", data, out=out, **{**GIVEN, **more})


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether all weights are equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that was pre-trained."""
    return pretrain(tmp_path_factory.mktemp("mae") / "run")


# --- patches ------------------------------------------------------------------------------------------------------


def test_patches_are_cut_row_by_row() -> None:
    x = torch.arange(2 * 3 * 4 * 6).reshape(2, 3, 4, 6)
    found = patchify(x, 2, 3)
    for t in range(6):
        down, across = divmod(t, 3)
        patch = x[:, :, 2 * down : 2 * down + 2, 2 * across : 2 * across + 2]  # (2, 3, 2, 2)
        assert torch.equal(found[:, t], patch.permute(0, 2, 3, 1).flatten(1))


@settings(max_examples=50, deadline=None)
@given(count=st.integers(2, 40), ratio=st.floats(0.01, 0.99), seed=st.integers(0, 10**6))
def test_each_patch_is_kept_or_masked(count: int, ratio: float, seed: int) -> None:
    kept, masked = random_masking(torch.rand(3, count, generator=torch.Generator().manual_seed(seed)), ratio)
    assert torch.equal(torch.cat([kept, masked], 1).sort(1).values, torch.arange(count).expand(3, -1))
    assert 1 <= kept.shape[1] <= max(1, (1 - ratio) * count)
    assert masked.shape[1] >= 1


def test_which_patches_are_masked_is_chance() -> None:
    noise = torch.rand(4000, 16, generator=torch.Generator().manual_seed(0))
    kept, _ = random_masking(noise, 0.75)
    counts = torch.bincount(kept.flatten(), minlength=16)  # binomial: mean 1000, standard deviation 27
    assert kept.shape == (4000, 4)
    assert (counts - 1000).abs().max() < 6 * 27


def test_normalized_patches_know_neither_brightness_nor_contrast() -> None:
    x = torch.randn(5, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = normalize_patches(x)
    torch.testing.assert_close(found.mean(1), torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.std(1), torch.ones(5, dtype=torch.float64), rtol=1e-5, atol=0)
    torch.testing.assert_close(normalize_patches(50 * x + 7), found, rtol=0, atol=1e-4)
    assert not normalize_patches(torch.full((1, 12), 3.0)).any()


# --- what the networks are given ----------------------------------------------------------------------------------


def small(**changes: Any) -> tuple[ViT, Tensor, Tensor]:
    """A network in float64, images, and the patches of them that are kept."""
    torch.manual_seed(0)
    vit = ViT(Config(image_size=8, patch_size=2, dim=12, layers=2, heads=3, ffn_dim=20, num_classes=8, **changes))
    nn.init.normal_(vit.positions)
    kept = torch.stack([torch.randperm(16)[:5] for _ in range(3)])
    return vit.double(), torch.randn(3, 3, 8, 8, dtype=torch.float64), kept


@pytest.mark.parametrize("pooling", ["token", "mean"])
def test_the_encoder_sees_the_patches_that_are_kept_alone(pooling: str) -> None:
    vit, x, kept = small(pooling=pooling)
    lengths: list[int] = []
    for block in vit.blocks:
        block.register_forward_hook(lambda module, args, output: lengths.append(args[0].shape[1]))
    x.requires_grad_()
    vit.encode_patches(x, kept).square().sum().backward()
    assert lengths == [5 + vit.config.tokens_before] * 2
    assert x.grad is not None
    seen = patchify(x.grad, 4, 4).abs().sum(2) > 0  # (3, 16)
    assert torch.equal(seen, torch.zeros(3, 16, dtype=torch.bool).scatter(1, kept, True))


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["token", "mean"])
def test_all_patches_in_any_order_are_the_network_itself(pooling: str) -> None:
    vit, x, _ = small(pooling=pooling)
    order = torch.stack([torch.randperm(16) for _ in range(3)])
    before = vit.config.tokens_before
    whole, found = vit.norm(vit.tokens(x)), vit.encode_patches(x, order)
    expected = whole[:, before:].gather(1, order[..., None].expand(-1, -1, 12))
    torch.testing.assert_close(found[:, :before], whole[:, :before], rtol=0, atol=1e-10)
    torch.testing.assert_close(found[:, before:], expected, rtol=0, atol=1e-10)


@torch.no_grad()
def test_the_decoder_puts_each_token_in_its_place() -> None:
    torch.manual_seed(0)
    decoder = Decoder(2, 3, 8, 5).double()
    z, kept = torch.randn(2, 4, 8, dtype=torch.float64), torch.tensor([[4, 0, 2], [1, 5, 3]])  # a class token first
    found = decoder(z, kept)
    assert found.shape == (2, 6, 5)
    turned = decoder(z[:, [0, 3, 1, 2]], kept[:, [2, 0, 1]])  # the same in another order
    torch.testing.assert_close(turned, found, rtol=0, atol=1e-12)
    assert (decoder(z, kept.flip(1)) - found).abs().max() > 1e-3  # the same tokens elsewhere


def test_patches_that_others_tell_are_learned() -> None:
    """Images of one colour: any patch that is seen tells all that are masked."""
    vit, *_ = small()
    ours = masking(vit.float(), ImageSpec(3, 8, 8, Patches(dim=8)), norm_pix_loss=False)
    optimizer = torch.optim.Adam(vit.parameters(), lr=1e-2)
    losses = []
    for _ in range(100):
        x = torch.randn(32, 3, 1, 1).expand(-1, -1, 8, 8)
        loss = ours.errors(x, torch.rand(32, 16)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[:10]) > 9  # 1 is the variance of a pixel: the error of whoever knows nothing of an image
    assert sum(losses[-10:]) < 4


# --- runs ---------------------------------------------------------------------------------------------------------


def test_labels_are_not_looked_at_and_everything_learns(tmp_path: Path) -> None:
    ends = []
    for k in range(2):
        ready = setup_training("vit-tiny/16", "digits", GIVEN)
        before = {key: value.clone() for key, value in ready.model.state_dict().items()}
        train = ready.data.splits["train"]
        assert train.target is not None
        train.target = (train.target + k) % 10
        given = (ready.model, ready.data, ready.task, ready.settings, ready.place, tmp_path, Progress(shown=False))
        torch.manual_seed(0)
        trainer = Trainer(*given)
        trainer.fit()
        ends.append(trainer.model.state_dict())
        assert not [key for key, value in before.items() if torch.equal(value, ends[-1][key])]
    assert same(*ends)
    assert f"{DECODER}.mask_token" in ends[0]


def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, run: Run) -> None:
    with stopping(3):
        pretrain(tmp_path / "run")
    assert same(run.model.state_dict(), cutaway.train(resume=tmp_path / "run").model.state_dict())


def test_the_decoder_is_thrown_away_and_the_head_is_new(run: Run) -> None:
    assert not any(key.startswith(DECODER) for key in run.model.state_dict())
    tuned = setup_training("vit-tiny/16", "digits", {"weights": str(run.folder)})
    assert tuned.taken is not None
    assert tuned.taken.new == ("head",)
    assert tuned.settings.freeze_epochs == 1
    ours, theirs = tuned.model.state_dict(), run.model.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs if not key.startswith("head."))
    again = setup_training("vit-tiny/16", "digits", {**GIVEN, "weights": str(run.folder)})  # learned further
    assert torch.equal(again.model.get_parameter("positions"), run.model.get_parameter("positions"))


def test_it_is_evaluated_and_predicts_by_neighbours(run: Run) -> None:
    is_judged_by_neighbours(run)


def test_images_without_classes_that_are_not_square(tmp_path: Path) -> None:
    folder = photographs(tmp_path / "photos", 8, 12)
    given = {"batch_size": 8, "epochs": 1, "flip": True, "mask_ratio": 0.5, "norm_pix_loss": False, "decoder_dim": 100}
    found = pretrain(tmp_path / "run", folder, **given)
    assert not (found.folder / "evaluation.json").exists()
    with pytest.raises(DataError, match="without classes"):
        found.evaluate()


def test_its_decoder_is_of_the_patches_of_the_data() -> None:
    torch.manual_seed(0)
    vit = ViT(Config(image_size=12, patch_size=4, dim=12, layers=1, heads=3, ffn_dim=20, num_classes=64))
    decoder = MAE.training_modules(vit, ImageSpec(3, 8, 12, Patches(dim=64)))[DECODER]
    assert isinstance(decoder, Decoder)
    assert (decoder.rows, decoder.columns) == (2, 3)
    assert decoder.to_pixels.weight.shape == (48, 64)
    assert decoder.blocks[0].attention.heads == 2


@pytest.mark.parametrize(
    ("model", "data", "given", "error", "said"),
    [
        ("mlp", "moons", {}, SettingError, "objective=mae masks patches of images"),
        ("simplecnn", "digits", {}, ModelError, r"SimpleCNN reads whole images.*vit-tiny/16"),
        ("vit-tiny/16", "digits", {}, ModelError, "one patch here"),
        (
            "vit-tiny/16",
            "digits",
            {"mask_ratio": 0},
            SettingError,
            "mask_ratio=0: must be at least 0.01 and less than 1",
        ),
        (
            "vit-tiny/16",
            "digits",
            {"mask_ratio": 1},
            SettingError,
            "mask_ratio=1: must be at least 0.01 and less than 1",
        ),
        ("vit-tiny/16", "digits", {"mixup": 0.2}, SettingError, "no class is learned"),
        ("vit-tiny/16", "digits", {"lora": 4}, SettingError, "a decoder that is new"),
        ("vit-tiny/16", "digits", {"tta": True}, SettingError, "masked patches have none"),
        ("vit-tiny/16", "digits", {"compile": True}, SettingError, "objective=mae asks its parts"),
        ("vit-tiny/16", "digits", {"snapshots": 3}, SettingError, "snapshots=3 keeps copies"),
        ("vit-tiny/16", "digits", {"objective": "supervised", "mask_ratio": 0.5}, SettingError, "objective=mae"),
    ],
)
def test_what_cannot_be_is_rejected(model: str, data: str, given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        setup_training(model, data, {"objective": "mae", **given})


def test_text_has_no_patches(tmp_path: Path) -> None:
    text = tmp_path / "text.csv"
    text.write_text("words,kind\n" + "\n".join(f"some word {i % 3},{'ab'[i % 2]}" for i in range(40)))
    with pytest.raises(CutawayError, match="objective=mae"):
        setup_training("textcnn", text, {"objective": "mae", "text": "words", "target": "kind"})
