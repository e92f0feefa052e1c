"""Places in a plane: variance where PCA says it is, neighbours that stay neighbours, the same every time."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from cutaway.core.errors import SettingError
from cutaway.inspect.projection import MEASURES, components, nearest_neighbors, pca, tsne, umap


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


def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """In umap-learn's place, which compiles for half a minute: what it is asked, and where it begins for an answer."""
    asked: list[dict[str, Any]] = []

    class UMAP:
        def __init__(self, **given: Any) -> None:
            asked.append(given)

        def fit_transform(self, x: Any) -> Any:
            assert len(x) == len(asked[-1]["init"])
            assert threading.current_thread() is not threading.main_thread()  # in which t-SNE would be slow afterwards
            return asked[-1]["init"]

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=UMAP))
    return asked


@pytest.mark.parametrize("n", [5, 6, 40])
def test_umap_is_asked_with_a_seed_and_begins_at_pca(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = stand_in(monkeypatch)
    x = vectors(n, 4)
    plane = umap(x, seed=3)
    assert plane is not None
    assert asked[0]["random_state"] == 3
    assert asked[0]["n_neighbors"] == min(15, n - 1)
    flat = pca(x).places
    torch.testing.assert_close(plane.places, flat / flat[:, 0].std(), atol=1e-3, rtol=0)
    assert all(width > 0 for width in umap(vectors(n, 1)).places.std(0))  # type: ignore[union-attr]


def test_umap_of_few_vectors_or_of_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = stand_in(monkeypatch)
    assert umap(vectors(4, 3)) is None
    assert umap(torch.ones(9, 4)) is None
    assert not asked


def test_without_umap_learn_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(SettingError, match=r"pip install 'cutaway\[umap\]'"):
        umap(vectors(9, 3))


@pytest.mark.slow
def test_umap_keeps_groups_apart_and_is_the_same_every_time() -> None:
    pytest.importorskip("umap.umap_", reason="needs umap-learn, the extra cutaway[umap]")
    x = torch.cat([vectors(20, 8), vectors(20, 8, 1) + 40])
    plane, again = umap(x), umap(x)
    assert plane is not None
    assert again is not None
    near = torch.cdist(plane.places, plane.places).fill_diagonal_(torch.inf).argmin(1)
    assert bool(((near < 20) == (torch.arange(40) < 20)).all())
    assert torch.equal(again.places, plane.places)
    for twins in (vectors(6, 3).repeat(3, 1), vectors(7, 1)):
        found = umap(twins)
        assert found is not None
        assert bool(found.places.isfinite().all())


def test_neighbours_are_the_nearest_and_never_oneself() -> None:
    x = torch.tensor([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [0.9, 0.8]])
    for measure, score in MEASURES.items():
        near, values = nearest_neighbors(x, measure, 2)
        scores = score(x.double(), x.double())
        for i in range(4):
            others = sorted((j for j in range(4) if j != i), key=lambda j: -float(scores[i, j]))
            assert near[i].tolist() == others[:2]
            assert values[i].tolist() == pytest.approx([float(scores[i, j]) for j in others[:2]])
    assert nearest_neighbors(x, "cosine")[0].shape == (4, 3)
    assert nearest_neighbors(x[:1], "cosine")[0].shape == (1, 0)


def test_a_measure_that_is_none_is_rejected() -> None:
    with pytest.raises(SettingError, match="cosine"):
        nearest_neighbors(torch.ones(2, 2), "euclid")
