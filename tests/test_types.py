"""What a person's own program is told: types, which are shipped, help, and representations of one line."""

from __future__ import annotations

import importlib.resources
import inspect
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import cutaway
from cutaway import estimators

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_marker_of_types_is_shipped_with_the_package() -> None:
    assert (importlib.resources.files("cutaway") / "py.typed").is_file()
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/cutaway"]  # whole


def test_a_persons_program_is_checked_with_the_package() -> None:
    checked = PROJECT["tool"]["mypy"]
    assert checked["strict"] is True
    assert "tests/consumer.py" in checked["files"]


@pytest.mark.parametrize("name", ["train", "load", "look", "describe", "plan", "search", "prepare"])
def test_names_complete_and_help_says_what_is_typed(name: str) -> None:
    assert name in dir(cutaway)
    assert (getattr(cutaway, name).__doc__ or "").count("\n") > 2


def test_what_is_returned_shows_itself_in_a_line(tmp_path: Path) -> None:
    run = cutaway.train("mlp", "iris", epochs=1, out=tmp_path / "r", tensorboard=False)
    net, x = nn.Sequential(nn.Linear(4, 3)), torch.randn(2, 4)
    with cutaway.inspect.capture(net) as seen:
        net(x)
    attribution = cutaway.inspect.attribute(net, x, "gradient", randomise=False)
    cards = (cutaway.card("resnet18"), cutaway.card("gpt2").card)
    for thing in (run.evaluate()["accuracy"], *cards, seen, attribution, cutaway.look(net, x, view="network")):
        assert len(repr(thing)) <= 120, repr(thing)
        assert "\n" not in repr(thing)
    assert repr(run) == f"Run({str(tmp_path / 'r')!r})"


def _public(module: ModuleType) -> Iterator[tuple[str, Callable[..., object]]]:
    """The functions of a module, and the methods of its classes, that are Cutaway's and for everybody."""
    for name in getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]:
        one = getattr(module, name)
        for key, inner in vars(one).items() if inspect.isclass(one) else [("", one)]:
            function = inner.fget if isinstance(inner, property) else getattr(inner, "__func__", inner)
            if inspect.isfunction(function) and function.__module__.startswith("cutaway") and not key.startswith("_"):
                yield f"{module.__name__}.{name}.{key}".rstrip("."), function


def test_every_public_name_says_its_types_and_what_it_is() -> None:
    found = {name: one for module in (cutaway, cutaway.inspect, estimators) for name, one in _public(module)}
    assert len(found) > 60  # or they are not looked for where they are
    for name, one in found.items():
        asked = inspect.signature(one)
        bare = [p.name for p in asked.parameters.values() if p.annotation is p.empty and p.name not in ("self", "cls")]
        assert not bare, name
        assert asked.return_annotation is not asked.empty, name
        assert one.__doc__, name
