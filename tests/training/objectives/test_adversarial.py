"""Adversarial training, and what a run is worth under attack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import cutaway
from cutaway.core.errors import SettingError, UnknownName
from cutaway.runs.run import Run
from cutaway.training.setup import setup_training

from ..conftest import stopping

GIVEN: dict[str, Any] = {"tensorboard": False, "epochs": 8, "max_samples": 400, "batch_size": 50}


@pytest.fixture(scope="module")
def natural(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A network that learned images as they are."""
    return cutaway.train("simplecnn", "digits", out=tmp_path_factory.mktemp("natural") / "run", **GIVEN)


def test_attacks_lower_the_accuracy_and_adversarial_training_raises_it(tmp_path: Path, natural: Run) -> None:
    robust = cutaway.train("simplecnn", "digits", out=tmp_path / "run", attack="pgd", attack_eps=0.15, **GIVEN)
    plain = natural.evaluate()["accuracy"].value
    under = {m: natural.evaluate(attack=m, eps=0.15, attack_steps=7)["accuracy"].value for m in ("fgsm", "pgd")}
    assert under["pgd"] <= under["fgsm"] + 0.02 < plain
    assert robust.evaluate(attack="pgd", eps=0.15, attack_steps=7)["accuracy"].value > under["pgd"] + 0.05
    same = natural.evaluate(attack="pgd", eps=0.15, attack_steps=7)["accuracy"].value
    assert same == under["pgd"]  # what is random in it is not another each time


def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path) -> None:
    given = {**GIVEN, "epochs": 2, "max_samples": 100, "attack": "pgd"}
    whole = cutaway.train("simplecnn", "digits", out=tmp_path / "whole", **given)
    with stopping(3):
        cutaway.train("simplecnn", "digits", out=tmp_path / "run", **given)
    resumed = cutaway.train(resume=tmp_path / "run").model.state_dict()
    assert all(torch.equal(value, resumed[name]) for name, value in whole.model.state_dict().items())


def test_what_cannot_be_attacked_is_rejected(natural: Run) -> None:
    with pytest.raises(SettingError, match="eps=-1 changes nothing"):
        natural.evaluate(attack="fgsm", eps=-1)
    with pytest.raises(UnknownName, match=r"attack 'pdg'.*pgd"):
        natural.evaluate(attack="pdg")
    with pytest.raises(SettingError, match=r"attack=pgd changes pixels of images .* this is table data"):
        setup_training("mlp", "moons", {"attack": "pgd"})
    with pytest.raises(SettingError, match="attack=pgd and mixup are not learned by together"):
        setup_training("simplecnn", "digits", {"attack": "pgd", "mixup": 0.2})
    with pytest.raises(SettingError, match=r"attack_eps=0\.1 would change nothing"):
        setup_training("simplecnn", "digits", {"attack_eps": 0.1})
