"""Places in a plane: variance where PCA says it is, neighbours that stay neighbours, the same every time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from cutaway.errors import SettingError
from cutaway.inspect.projection import MEASURES, components, neighbours, pca, tsne


def vectors(n: int, d: int, seed: int = 0) -> torch.Tensor:
    """Random ones, longer along the first axes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * torch.linspace(3, 0.1, d).double()


@given(st.integers(2, 30), st.integers(1, 12), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_components_are_those_of_scikit_learn(n: int, d: int, seed: int) -> None:
    x = vectors(n, d, seed)
    count = min(n, d, 2)
    other = PCA(count).fit(x.numpy())
    found, explained = components(x)
    expected = torch.from_numpy(other.transform(x.numpy()))
    assert found.shape == (n, 2)
    torch.testing.assert_close(found[:, :count].abs(), expected.abs(), atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(
        explained[:count], torch.from_numpy(other.explained_variance_ratio_), atol=1e-9, rtol=1e-6
    )


@given(st.integers(3, 20), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_places_do_not_depend_on_where_the_vectors_stand(n: int, seed: int) -> None:
    x = vectors(n, 6, seed)
    torch.testing.assert_close(pca(x).places, pca(x + 5).places, atol=1e-8, rtol=1e-6)


def test_groups_that_are_apart_stay_apart() -> None:
    x = torch.cat([vectors(20, 8), vectors(20, 8, 1) + 40])
    plane = tsne(x)
    assert plane is not None
    assert plane.places.shape == (40, 2)
    near = torch.cdist(plane.places, plane.places).fill_diagonal_(torch.inf).argmin(1)
    assert bool(((near < 20) == (torch.arange(40) < 20)).all())
    again = tsne(x)
    assert again is not None
    assert torch.equal(again.places, plane.places)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_few_vectors_have_no_neighbourhoods(n: int) -> None:
    assert tsne(vectors(n, 3)) is None
    assert pca(vectors(n, 3)).places.shape == (n, 2)


@pytest.mark.parametrize("n", [5, 6, 19, 21])
def test_a_handful_of_vectors_has_places(n: int) -> None:
    plane = tsne(vectors(n, 1))
    assert plane is not None
    assert bool(plane.places.isfinite().all())


def test_vectors_that_are_all_the_same_stand_in_one_place() -> None:
    x = torch.ones(9, 4)
    assert tsne(x) is None
    assert pca(x).places.abs().max() == 0
    assert pca(x).explained == (0, 0)


def test_twins_are_no_harm() -> None:
    x = vectors(6, 3).repeat(3, 1)
    plane = tsne(x)
    assert plane is not None
    assert bool(plane.places.isfinite().all())


def test_neighbours_are_the_nearest_and_never_oneself() -> None:
    x = torch.tensor([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [0.9, 0.8]])
    for measure, score in MEASURES.items():
        near, values = neighbours(x, measure, 2)
        scores = score(x.double(), x.double())
        for i in range(4):
            others = sorted((j for j in range(4) if j != i), key=lambda j: -float(scores[i, j]))
            assert near[i].tolist() == others[:2]
            assert values[i].tolist() == pytest.approx([float(scores[i, j]) for j in others[:2]])
    assert neighbours(x, "cosine")[0].shape == (4, 3)
    assert neighbours(x[:1], "cosine")[0].shape == (1, 0)


def test_a_measure_that_is_none_is_rejected() -> None:
    with pytest.raises(SettingError, match="cosine"):
        neighbours(torch.ones(2, 2), "euclid")
