"""Near duplicates: images that were changed, neighbours in a tree, and what is kept of texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from torch.nn import functional as F

from cutaway.data.dataset_base import TensorSplit
from cutaway.data.quality import altered_copies, near_duplicates
from cutaway.data.quality.altered_copies import ZOOMS, extract_patches, find_filtered_copies, unexplained_fraction
from cutaway.data.quality.near_duplicates import (
    check_near_duplicates,
    dct_features,
    extract_features,
    loudest_pattern,
    standardise_images,
)

DIGITS = torch.from_numpy(load_digits().images).float()[:, None]  # (1797, 1, 8, 8)


def smaller(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(F.interpolate(x, size=7, mode="bilinear", antialias=True), size=8, mode="bilinear")


@pytest.mark.parametrize("change", [smaller, lambda x: 0.5 * x + 3, lambda x: torch.roll(x, 1, 3)])
def test_a_filter_explains_what_was_made_of_an_image_and_no_other(change: object) -> None:
    some, others = DIGITS[:50], DIGITS[50:100]
    own = unexplained_fraction(change(some), some, torch.arange(50)[:, None])  # type: ignore[operator]
    other = unexplained_fraction(change(some), others, torch.arange(50)[:, None])  # type: ignore[operator]
    assert float(own.quantile(0.9)) < 0.2 * float(other.median())


def test_copies_are_told_from_their_likes() -> None:
    sources, queries = DIGITS[:1200], torch.cat([DIGITS[1200:], smaller(DIGITS[:60])])
    vectors = [dct_features(x) for x in (queries, sources)]
    distances, numbers = near_duplicates.nearest_neighbors(*vectors, near_duplicates.NEIGHBORS)
    copy, which = find_filtered_copies(queries, sources, numbers, distances[:, 0] / distances[:, -1])
    assert copy[-60:].float().mean() > 0.9
    assert (which[-60:] == torch.arange(60))[copy[-60:]].all()
    assert copy[:-60].float().mean() < 0.01


def moved(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (2, 2, 2, 2), mode="replicate")[..., 1:-3, 3:-1]


def cropped(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x[..., 1:28, 4:31], size=32, mode="bilinear", antialias=True)


@pytest.mark.parametrize("change", [moved, cropped])
def test_copies_that_were_moved_or_cropped_are_told_by_their_patches(change: object) -> None:
    noise = torch.randn(260, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    images = F.interpolate(noise, size=32, mode="bicubic")
    sky = torch.linspace(0, 1, 32).expand(20, 1, 32, 32)  # nothing in it
    points = standardise_images(torch.cat([images[:200], sky]))
    queries = standardise_images(torch.cat([change(images[:30]), images[200:], sky]))  # type: ignore[operator]
    asked = extract_patches(queries, torch.arange(len(queries)), ZOOMS)
    copy, which = altered_copies.find_transformed_copies(
        queries, points, asked, extract_patches(points, torch.arange(len(points)))
    )
    assert copy[:30].float().mean() > 0.9
    assert (which[:30] == torch.arange(30))[copy[:30]].all()
    assert not copy[30:].any()


def strokes(n: int, seed: int, side: int = 28) -> torch.Tensor:
    """Images of one stroke each, like ones written by hand: (n, 1, side, side)."""
    g = torch.Generator().manual_seed(seed)
    slant, half, width, bend = (
        low + (high - low) * torch.rand(n, 1, 1, generator=g)
        for low, high in ((-0.5, 0.5), (7.0, 10.0), (1.0, 2.0), (-0.02, 0.02))
    )
    place = torch.arange(side) - (side - 1) / 2
    y, x = torch.meshgrid(place, place, indexing="ij")
    across = (x - slant * y - bend * y * y).abs()
    return standardise_images(((width - across).clamp(0, 1) * (half - y.abs()).clamp(0, 1))[:, None])


def test_what_chance_brings_about_is_told_by_the_images_that_were_looked_at_alone() -> None:
    queries, points, some = strokes(600, seed=1), strokes(600, seed=2), torch.arange(0, 600, 10)
    held = extract_patches(points, torch.arange(len(points)))
    among, _ = altered_copies.find_transformed_copies(queries, points, extract_patches(queries, some, ZOOMS), held)
    own = queries[some]
    alone, _ = altered_copies.find_transformed_copies(
        own, points, extract_patches(own, torch.arange(len(own)), ZOOMS), held
    )
    assert torch.equal(among[some], alone)
    assert among.sum() == alone.sum()


def test_a_blank_image_is_no_copy() -> None:
    blank = torch.ones(3, 1, 8, 8)
    assert (unexplained_fraction(blank, DIGITS[:3], torch.arange(3)[:, None]) > 0.999).all()


def test_a_tree_finds_what_is_much_nearer_than_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    points = DIGITS.flatten(1)
    queries = points[::30] + 0.1
    exact = near_duplicates.nearest_neighbors(queries, points, 5)
    monkeypatch.setattr(near_duplicates, "EXACT", 0)
    in_tree = near_duplicates.nearest_neighbors(queries, points, 5)
    assert (in_tree[1][:, 0] == exact[1][:, 0]).all()
    assert torch.allclose(in_tree[0][:, 0], exact[0][:, 0])


@given(seed=st.integers(0, 1000), count=st.integers(0, 20))
@settings(max_examples=30, deadline=None)
def test_measures_with_noise_are_copies_and_measures_a_step_apart_are_not(seed: int, count: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    size = torch.randn(3000, 1, generator=rng)
    measures = (20 * size + 2 * torch.randn(3000, 4, generator=rng)).round() / 100
    kinds = torch.randint(2, (3000, 1), generator=rng).float()
    rows = torch.cat([measures.clamp(-0.4, 0.4), kinds], 1).unique(dim=0)  # crowded: many are the same but for a step
    rows = rows[torch.randperm(len(rows), generator=rng)]
    measured = torch.tensor([True] * 4 + [False])
    assert not near_duplicates.find_noisy_copies(rows[:1000], rows[1000:], measured)[0].any()

    noise = 0.003 * torch.rand(count, 5, generator=rng) * measured
    noisy = rows[:count] + noise + 1e-4 * measured
    other = torch.cat([noisy[:, :4], 1 - noisy[:, 4:]], 1)
    for some, others in ((noisy, rows), (rows, noisy)):
        copy, which = near_duplicates.find_noisy_copies(some, torch.cat([others, rows[1000:]]), measured)
        a, b = (some[copy], torch.cat([others, rows[1000:]])[which[copy]])
        assert copy[:count].all()
        assert torch.allclose(a, b, atol=0.004)
    assert not near_duplicates.find_noisy_copies(other, rows[:count], measured)[0].any()  # of another kind
    continuous = torch.cat([rows, torch.randn(len(rows), 1, generator=rng)], 1)
    measured = torch.cat([measured, torch.tensor([True])])
    assert not near_duplicates.find_noisy_copies(continuous[:1000], continuous[1000:], measured)[
        0
    ].any()  # a column has no steps


def test_many_rows_with_noise_are_copies_and_rows_of_another_source_are_not() -> None:
    rng = torch.Generator().manual_seed(0)
    sizes = 100 * torch.randn(6000, 1, generator=rng) + 20 * torch.randn(6000, 4, generator=rng)
    rows, measured = sizes.round() / 100, torch.ones(4, dtype=torch.bool)
    noisy = rows + 0.002 * torch.randn(6000, 4, generator=rng)  # each row once more, as augmentation has it
    train, test = torch.cat([rows[:3000], noisy[:2000]]), torch.cat([rows[4000:], noisy[2000:3000]])
    copy, which = near_duplicates.find_noisy_copies(test, train, measured)
    assert copy[-1000:].float().mean() > 0.99
    assert copy[:-1000].float().mean() < 0.005  # of which no copies are in train
    assert (which[-1000:] == torch.arange(2000, 3000))[copy[-1000:]].float().mean() > 0.95

    other = torch.cat([rows[3000:4000], sizes[4000:] / 100])  # with more digits
    assert not near_duplicates.find_noisy_copies(other, rows[:3000], measured)[0].any()


def test_a_few_rows_with_noise_are_told_among_many_with_rare_values() -> None:
    rng = torch.Generator().manual_seed(0)
    sizes = torch.exp(1.5 * torch.randn(6000, 1, generator=rng) + 0.2 * torch.randn(6000, 4, generator=rng))
    rows, measured = (sizes * 20).round() / 100, torch.ones(4, dtype=torch.bool)  # long tails
    train, test = rows[:5000], torch.cat([rows[5000:], rows[:5] + 0.001 * torch.randn(5, 4, generator=rng)])
    copy, which = near_duplicates.find_noisy_copies(test, train, measured)
    assert copy[-5:].all()
    assert torch.allclose(train[which[-5:]], rows[:5])
    assert not copy[:-5].any()


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_equal_minima_are_the_jaccard_similarity(seed: int) -> None:
    rng = np.random.default_rng(seed)
    words = [f"w{k}" for k in rng.integers(0, 500, 120)]
    changed = [word if rng.random() < 0.9 else "other" for word in words]
    a, b = (near_duplicates.build_sketch("", " ".join(one)) for one in (words, changed))
    assert a
    assert b
    minima = [np.frombuffer(b"".join(one.bands), np.uint32) for one in (a, b)]
    spread = np.sqrt(0.25 / (near_duplicates.BANDS * near_duplicates.ROWS))
    assert abs((minima[0] == minima[1]).mean() - a.alike(b)) < 5 * spread
    assert len(np.unique(minima[0])) > 30  # each hash has a minimum of its own


def test_a_word_less_is_nearly_the_same_and_other_words_are_not() -> None:
    said = "the acting alone is worth the price of admission"
    a, b, c = (
        near_duplicates.build_sketch("", text)
        for text in (said, said.replace(" worth", ""), "the plot alone is not worth what you pay for it")
    )
    assert a
    assert b
    assert c
    assert a.nearly(b)
    assert not a.nearly(c)
    assert near_duplicates.build_sketch("", "see you there then") is None


def test_two_other_words_of_a_long_text_leave_it_nearly_the_same_and_of_a_short_one_do_not() -> None:
    said = "two men in blue shirts are repairing the roof of an old house by the sea"
    short = "one of the best movies of the year"
    for text, other, same in (
        (said, said.replace("blue", "red").replace("old", "empty"), True),
        (said, "two men in blue shirts are eating on the deck of an old boat at the dock", False),
        (short, short.replace("best", "worst"), False),
    ):
        a, b = near_duplicates.build_sketch("", text), near_duplicates.build_sketch("", other)
        assert a
        assert b
        assert a.nearly(b) == same


def test_soft_noise_and_loudness_leave_the_loudest_where_it_is() -> None:
    rng = torch.Generator().manual_seed(0)
    sound = torch.rand(50, 40, generator=rng) ** 4
    noisy = 0.3 * (sound + 0.001 * torch.rand(50, 40, generator=rng))
    a, b = (loudest_pattern(torch.log(one + 1e-6)) for one in (sound, noisy))
    other = loudest_pattern(torch.log(torch.rand(50, 40, generator=rng) ** 4 + 1e-6))
    assert float((a - b).norm()) < 0.05 < float((a - other).norm())


def test_among_few_images_a_similar_motif_is_no_near_duplicate() -> None:
    """Its nearest image is far nearer than the others, but not nearly equal; a dimmed copy of another image is."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(40, 1, 8, 8, generator=generator)
    train, others = images[:30], images[30:]
    similar = torch.cat([others[2:], train[:1] + 0.25 * others[:1]])
    target = torch.zeros(30, dtype=torch.int64)
    train_features = extract_features(TensorSplit(train, target), "image")
    assert train_features is not None
    for val, count in ((similar, 0), (torch.cat([similar, 0.7 * train[5:7] + 0.02 * others[:2]]), 2)):
        val_features = extract_features(TensorSplit(val, target[: len(val)]), "image")
        assert val_features is not None
        found = check_near_duplicates({"train": train_features, "val": val_features}, "image", np.zeros(0, bool))
        assert (found is None) if not count else (found is not None and len(found.examples) == count)
