"""The fields of a Config: what cannot be is rejected by the field's name, None but where a field begins as None."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import pytest

from cutaway.core.errors import ModelError
from cutaway.models.config import ValidatedConfig, choice, counts, fraction, min_value, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """One field of each kind."""

    layers: int = positive(2)
    ffn_dim: int | None = positive(None)
    channels: tuple[int, ...] = positive((3, 4))
    hidden_dims: tuple[int, ...] = counts((5,))
    horizon: int = min_value(0, 0)
    dropout: float = fraction(0.1)
    head: str = choice("next", ("next", "classes"))
    norm: str = choice("none", ("none", "batch", "layer"))
    free: int = -3


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("layers", 0, "Invalid layers=0: must be at least 1."),
        ("ffn_dim", 0, "Invalid ffn_dim=0: must be at least 1."),
        ("channels", (), "Invalid channels=(): must be one number or more, each at least 1."),
        ("channels", (2, 0), "Invalid channels=(2, 0): must be one number or more, each at least 1."),
        ("hidden_dims", (0,), "Invalid hidden_dims=(0,): must be numbers of at least 1."),
        ("horizon", -1, "Invalid horizon=-1: must be at least 0."),
        ("dropout", 1.0, "Invalid dropout=1.0: must be at least 0 and below 1."),
        ("dropout", math.nan, "Invalid dropout=nan: must be at least 0 and below 1."),
        ("head", "tags", "Invalid head='tags': must be next or classes."),
        ("norm", "group", "Invalid norm='group': must be none, batch, layer."),
    ],
)
def test_invalid_fields_are_rejected_by_name(field: str, value: Any, said: str) -> None:
    with pytest.raises(ModelError) as error:
        Config(**{field: value})
    assert str(error.value) == said
    with pytest.raises(ModelError):
        dataclasses.replace(Config(), **{field: value})


def test_what_can_be_is_kept() -> None:
    given: dict[str, Any] = {
        "layers": 1,
        "ffn_dim": None,
        "channels": (1,),
        "hidden_dims": (),
        "dropout": 0.0,
        "free": 9,
    }
    config = Config(**given)
    assert {key: getattr(config, key) for key in given} == given
    assert Config(ffn_dim=7).ffn_dim == 7
