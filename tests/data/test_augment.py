"""Augmentation: each equal to a loop written plainly, decided by its generator alone, nothing else changed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from cutaway.core.errors import SettingError
from cutaway.core.spec import Classes, ImageSpec, TableSpec, Value
from cutaway.data.augment import color_jitter, cutout, flip, make_augment, mixup, padded_crop
from cutaway.data.settings import DataSettings

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def seeded(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def images(n: int = 64, channels: int = 3, height: int = 7, width: int = 9) -> Tensor:
    return torch.rand(n, channels, height, width, generator=seeded(1)) * 2 - 1


ALL: dict[str, Callable[[Tensor, Generator], Tensor]] = {
    "flip": flip,
    "crop": lambda x, g: padded_crop(x, 2, g),
    "color_jitter": lambda x, g: color_jitter(x, 0.5, MEAN[: x.shape[1]], STD[: x.shape[1]], g),
    "cutout": lambda x, g: cutout(x, 3, g),
    "mixup": lambda x, g: mixup(x, torch.zeros(len(x)), 0.4, None, g)[0],
}


@pytest.mark.parametrize("name", ALL)
def test_the_generator_alone_decides(name: str) -> None:
    x = images()
    before, state = x.clone(), torch.get_rng_state()
    first, again, other = ALL[name](x, seeded(3)), ALL[name](x, seeded(3)), ALL[name](x, seeded(4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_shape_type_and_memory_format_stay(
    name: str, channels: int, dtype: torch.dtype, memory: torch.memory_format
) -> None:
    x = images(8, channels).to(dtype).contiguous(memory_format=memory)
    varied = ALL[name](x, seeded())
    assert varied.shape == x.shape
    assert varied.dtype == x.dtype
    assert varied.stride() == x.stride()
    assert torch.equal(varied, ALL[name](x.contiguous(), seeded()))


def test_flip_mirrors_half_of_the_images_and_twice_is_nothing() -> None:
    x = images(400)
    varied = flip(x, seeded())
    kept = [torch.equal(a, b) for a, b in zip(varied, x)]
    mirrored = [torch.equal(a, b.flip(-1)) for a, b in zip(varied, x)]
    assert all(k != m for k, m in zip(kept, mirrored))
    assert 160 < sum(mirrored) < 240  # 4 standard deviations of Binomial(400, ½)
    assert torch.equal(flip(varied, seeded()), x)


def test_padded_crop_is_a_loop_over_windows_each_as_likely() -> None:
    padding, x = 2, images(2000)
    varied = padded_crop(x, padding, seeded())
    counts = torch.zeros(5, 5)
    for before, after in zip(x, varied):
        padded = F.pad(before, (padding,) * 4)
        found = [
            (dy, dx) for dy in range(5) for dx in range(5) if torch.equal(after, padded[:, dy : dy + 7, dx : dx + 9])
        ]
        assert len(found) == 1
        counts[found[0]] += 1
    # 80 expected in each of 25 cells; χ² with 24 degrees of freedom is below 51.2 in 999 of 1000 cases.
    assert ((counts - 80) ** 2 / 80).sum() < 51.2


def test_cutout_blanks_one_square_whose_centre_may_be_any_pixel() -> None:
    x = images(3000).abs() + 1
    blank = (cutout(x, 3, seeded()) == 0).all(1)  # (N, H, W)
    assert torch.equal(cutout(x, 3, seeded()), torch.where(blank[:, None], 0, x))
    centres = torch.zeros(7, 9)
    for mask in blank:
        rows, columns = mask.any(1).nonzero().flatten(), mask.any(0).nonzero().flatten()
        assert mask.sum() == len(rows) * len(columns)  # a rectangle
        assert rows[-1] - rows[0] == len(rows) - 1
        assert columns[-1] - columns[0] == len(columns) - 1
        # A side shorter than 3 was cut by the border that it touches.
        row = rows[0] + 1 if rows[0] > 0 or len(rows) == 3 else rows[-1] - 1
        column = columns[0] + 1 if columns[0] > 0 or len(columns) == 3 else columns[-1] - 1
        centres[row, column] += 1
    expected = 3000 / 63
    assert ((centres - expected) ** 2 / expected).sum() < 103.4  # χ², 62 degrees of freedom, 999 of 1000


def test_color_jitter_is_the_formula_on_pixels() -> None:
    x, strength = images(16), 0.4
    varied = color_jitter(x, strength, MEAN, STD, seeded(5)).double()
    factors = 1 + strength * (2 * torch.rand((3, 16), generator=seeded(5)).double() - 1)
    assert ((factors >= 0.6) & (factors <= 1.4)).all()
    mean, std = torch.tensor(MEAN).double()[:, None, None], torch.tensor(STD).double()[:, None, None]
    weights = torch.tensor([0.299, 0.587, 0.114]).double()[:, None, None]
    for i, image in enumerate(x.double()):
        p = ((image * std + mean) * factors[0, i]).clamp(0, 1)
        average = (p * weights).sum(0).mean()
        p = (average + (p - average) * factors[1, i]).clamp(0, 1)
        grey = (p * weights).sum(0, keepdim=True)
        p = (grey + (p - grey) * factors[2, i]).clamp(0, 1)
        torch.testing.assert_close(varied[i], (p - mean) / std, atol=1e-5, rtol=1e-5)


def test_color_jitter_of_strength_0_changes_nothing_in_range() -> None:
    pixels = torch.rand(4, 3, 5, 5, generator=seeded())
    mean, std = torch.tensor(MEAN).view(1, 3, 1, 1), torch.tensor(STD).view(1, 3, 1, 1)
    x = (pixels - mean) / std
    torch.testing.assert_close(color_jitter(x, 0.0, MEAN, STD, seeded()), x, atol=1e-5, rtol=0)


def test_mixup_blends_inputs_and_targets_alike() -> None:
    n, classes = 32, torch.arange(32) % 5
    varied, fractions = mixup(torch.eye(n), classes, 1.0, 5, seeded())  # row i: λ at i and 1 − λ at its partner
    assert fractions.dtype == torch.float32
    partner = (varied - torch.diag(varied.diag())).argmax(1)
    alone = varied.diag() == 1  # blended with itself
    assert sorted(torch.where(alone, torch.arange(n), partner).tolist()) == list(range(n))  # a permutation
    assert len(set(varied.diag()[~alone].tolist())) == 1  # one λ for the batch
    torch.testing.assert_close(fractions, varied @ F.one_hot(classes, 5).float())
    again, blended = mixup(varied, fractions, 1.0, 5, seeded(9))  # fractions are blended as they are
    torch.testing.assert_close(blended, again @ F.one_hot(classes, 5).float())


def test_mixup_shares_come_from_beta() -> None:
    x = torch.tensor([[0.0], [1.0]])
    fractions = []
    for seed in range(1500):
        _, blended = mixup(x, torch.tensor([0, 1]), 0.3, 2, seeded(seed))
        if blended[0, 1] > 0:  # blended with the other one, not with itself
            fractions.append(float(blended[0, 0]))
    # Beta(a, a) has mean ½ and variance 1 / (4 (2a + 1)).
    assert abs(np.mean(fractions) - 0.5) < 0.06
    assert abs(np.var(fractions) - 1 / (4 * 1.6)) < 0.015


def test_mixup_blends_values() -> None:
    x, values = torch.tensor([[0.0], [1.0]]), torch.tensor([10.0, 20.0])
    for seed in range(8):
        varied, blended = mixup(x, values, 1.0, None, seeded(seed))
        torch.testing.assert_close(blended, 10 + 10 * varied[:, 0])


SPEC = ImageSpec(3, 7, 9, Classes(("a", "b")))


def test_nothing_asked_for_is_no_augmentation() -> None:
    assert make_augment(DataSettings(), SPEC, MEAN, STD) is None
    assert make_augment(DataSettings(), TableSpec(("x",), Value())) is None


def test_all_together_run_in_the_order_of_the_settings() -> None:
    settings = DataSettings(flip=True, crop=1, color_jitter=0.2, cutout=2, mixup=0.5)
    augment = make_augment(settings, SPEC, MEAN, STD)
    assert augment is not None
    x, target = images(16), torch.arange(16) % 2
    varied, fractions = augment(x, target, seeded(2))
    generator = seeded(2)
    expected = cutout(
        color_jitter(padded_crop(flip(x, generator), 1, generator), 0.2, MEAN, STD, generator), 2, generator
    )
    expected, expected_shares = mixup(expected, target, 0.5, 2, generator)
    assert torch.equal(varied, expected)
    assert torch.equal(fractions, expected_shares)


def test_mixup_is_for_tables_too() -> None:
    augment = make_augment(DataSettings(mixup=0.3), TableSpec(("x", "y"), Classes(("a", "b"))))
    assert augment is not None
    varied, fractions = augment(torch.rand(6, 2), torch.zeros(6, dtype=torch.int64), seeded())
    assert varied.shape == (6, 2)
    assert fractions.tolist() == [[1.0, 0.0]] * 6


def test_a_cutout_larger_than_the_image_is_rejected() -> None:
    with pytest.raises(SettingError, match="cutout=8"):
        make_augment(DataSettings(cutout=8), SPEC, MEAN, STD)
