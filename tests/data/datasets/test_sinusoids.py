"""Sinusoids: within their bounds, one to an episode, and the same where they are to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cutaway.core.errors import SettingError
from cutaway.core.spec import Episodes, Value
from cutaway.data.datasets.few_shot import SinusoidSplit
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.training.batches import mix_seeds


def test_an_episode_is_points_of_one_sinusoid() -> None:
    data = open_data("sinusoids", DataSettings(shots=10, queries=7), targets=(Episodes,))
    split = data.splits["test"]
    assert isinstance(split, SinusoidSplit)
    assert data.spec.target == Episodes(0, 10, 7, column="value of a sinusoid")
    index = torch.arange(400)
    (batch,) = split.batches([index])
    amplitude, phase = split.functions(index)
    x = batch.inputs[0].view(400, 17).double().numpy()
    assert np.abs(batch.target.numpy() - amplitude[:, None] * np.sin(x - phase[:, None])).max() < 1e-5
    assert 0.1 <= amplitude.min() < 0.3 < 4.8 < amplitude.max() <= 5
    assert 0 <= phase.min() < 0.1 < math.pi - 0.1 < phase.max() <= math.pi
    assert -5 <= x.min() < -4.9 < 4.9 < x.max() <= 5
    assert torch.equal(split.target[:400], batch.target)


def test_splits_and_epochs_have_others_and_an_evaluation_the_same() -> None:
    data = open_data("sinusoids", DataSettings(shots=3), targets=(Episodes,))

    def seen(name: str, seed: int | None) -> list[float]:
        (batch,) = data.splits[name].batches([torch.tensor([3, 5])], seed)
        return batch.target.flatten().tolist()

    first, second = mix_seeds(0, 1), mix_seeds(0, 2)  # as the loop seeds an epoch
    kinds = [seen("train", first), seen("train", second), seen("train", None), seen("val", None), seen("test", None)]
    assert len({tuple(kind) for kind in kinds}) == 5
    assert seen("test", None) == seen("test", None)
    assert seen("train", first) == seen("train", first)


def test_without_episodes_each_point_is_of_another_sinusoid() -> None:
    data = open_data("sinusoids", DataSettings())
    assert data.spec.target == Value("y")
    split = data.splits["train"]
    (batch,) = split.batches([torch.arange(2000)], seed=4)
    x, y = batch.inputs[0][:, 0].double().numpy(), batch.target.double().numpy()
    assert batch.target.shape == (2000,)
    # E A² sin²(x − φ) = E A² / 2 but for the ends of x: about 4.2; one sinusoid would be anywhere from 0 to 12.5
    assert 3.8 < (y**2).mean() < 4.7
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 0.1
    assert split.row(0) is not None


@pytest.mark.parametrize("given", [{"val": 0.3}, {"ways": 3}, {"scale": "none"}, {"target": "x"}, {"max_samples": 9}])
def test_settings_that_would_change_nothing_are_rejected(given: dict[str, object]) -> None:
    with pytest.raises(SettingError, match=f"{next(iter(given))}="):
        open_data("sinusoids", DataSettings(**given))  # type: ignore[arg-type]
