"""The pages that are made from the code are what the code makes now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    """docs/make.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("docs_make", DOCS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_vision_is_up_to_date(make: ModuleType) -> None:
    assert make.PAGE.read_text(encoding="utf-8") == make.page_text(), "make docs writes it anew"


def test_its_pictures_are_up_to_date(make: ModuleType) -> None:
    drawn = make.pictures()
    assert set(make.PICTURES.iterdir()) == set(drawn)
    for path, text in drawn.items():
        assert path.read_text(encoding="utf-8") == text, path.name


def test_every_architecture_has_equation_picture_presets(make: ModuleType) -> None:
    for module, of_family in make.families().items():
        section = make.section(module, of_family)
        assert module.CARD.equation in section
        assert all(f"| `{preset.name}` |" in section for preset in of_family)
        assert all(divergence.what in section for divergence in module.CARD.divergences)
        assert "images/vision/" in section
