"""The page of the package: README.md with absolute links and images, and the addresses in its metadata."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
TARGET = re.compile(r"\]\(([^)]+)\)")
BASES = (
    "https://github.com/cutaway-nn/cutaway/blob/main/",
    "https://raw.githubusercontent.com/cutaway-nn/cutaway/main/",
)


def package_page() -> str:
    """Return README.md as the build writes it into the package."""
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    assert hook["fragments"] == [{"path": "README.md"}]
    page = README
    for one in hook["substitutions"]:
        page = re.sub(one["pattern"], one["replacement"], page)
    return page


def test_every_link_of_the_page_is_absolute_and_leads_to_a_file_of_the_repository() -> None:
    before, after = TARGET.findall(README), TARGET.findall(package_page())
    assert len(before) == len(after) > 20
    for link, absolute in zip(before, after, strict=True):
        if link.startswith(("http", "#")):
            assert absolute == link
            continue
        (path,) = [absolute.removeprefix(base) for base in BASES if absolute.startswith(base)]
        assert path == link
        assert (ROOT / path.partition("#")[0]).exists()
    assert BASES[1] + "docs/images/report.png" in after  # images are files, and not pages around them


def test_the_metadata_has_addresses_of_one_repository() -> None:
    project = PROJECT["project"]
    assert set(project["urls"]) >= {"Homepage", "Documentation", "Source", "Changelog"}
    assert {url.partition("/blob/")[0] for url in project["urls"].values()} == {BASES[0].partition("/blob/")[0]}
    for url in project["urls"].values():
        path = url.partition("/blob/main/")[2]
        assert (ROOT / path).exists()
    versions = [one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r"Python :: 3\.", one)]
    assert project["requires-python"] == f">={versions[0]}"
    assert project["authors"]


@pytest.mark.slow
def test_torch_hub_creates_a_model_from_a_clone(tmp_path: Path) -> None:
    hub = f"torch.hub.load({str(ROOT)!r}, source='local', model="
    code = f"import torch; model = {hub}'create_model', name='resnet18', num_classes=3); "
    code += "print(model(torch.zeros(1, 3, 64, 64)).shape); "
    code += f"print('resnet18' in {hub}'list_models'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([1, 3])\nTrue" in done.stdout
