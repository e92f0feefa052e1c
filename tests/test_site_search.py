"""The search of the site finds the page that answers a question: its code runs in Node, on an index of the pages."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LISTS = dict(re.findall(r"^\[(.*)\]\n((?:.+\n)+)", (Path(__file__).parent / "search_questions.txt").read_text(), re.M))
FIRST = 3  # results
# Prints the first results of each question, and the entries of the index that each of the terms is in.
RUNNER = """
const fs = require("fs");
const [index, search, asked] = process.argv.slice(2);
require(index);
const { build, search: find, tokens, stem } = require(search);
const built = build(globalThis.searchIndex);
const { questions, terms } = JSON.parse(fs.readFileSync(asked, "utf8"));
const place = ({ page, parts }) => (page === "how_do_i" ? `${page}#${parts[0].anchor}` : page);
const results = questions.map((question) => find(built, question).pages.map(place));
const unknown = terms.filter((term) => tokens(term).map(stem).some((word) => !built.postings.has(word)));
console.log(JSON.stringify({ results, unknown }));
"""


@pytest.fixture(scope="module")
def extensions() -> Iterator[Any]:
    """docs/extensions, which is no part of the package: the index of the search, and the generated pages."""
    paths = [str(ROOT), str(ROOT / "docs")]
    sys.path[:0] = paths
    yield importlib.import_module
    for path in paths:
        sys.path.remove(path)


def run(folder: Path, script: str, questions: list[str], terms: list[str] | None = None) -> Any:
    """Return the results of the questions by the code of the search page, and the terms that no entry has."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node to run the search")
    (folder / "search-index.js").write_text(script, encoding="utf-8")
    (folder / "asked.json").write_text(json.dumps({"questions": questions, "terms": terms or []}), encoding="utf-8")
    (folder / "runner.js").write_text(RUNNER, encoding="utf-8")
    files = [folder / "search-index.js", ROOT / "docs" / "_static" / "search.js", folder / "asked.json"]
    command = [node, str(folder / "runner.js"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def index_of(search: Any, reference: dict[str, str]) -> str:
    """Return the script of the index."""
    pages = search.sources(reference)
    return str(search.script(entry for name, text in pages.items() for entry in search.entries(name, text)))


@pytest.fixture(scope="module")
def whole_index(extensions: Any) -> str:
    """The index of the site, with the pages that are generated from the code."""
    parts = extensions("extensions.reference").PARTS
    return index_of(
        extensions("extensions.search"), {name: text for part in parts for name, text in part.pages().items()}
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTS)
def test_the_right_page_is_among_the_first(name: str, whole_index: str, tmp_path: Path) -> None:
    asked = [line.split(" | ") for line in LISTS[name].splitlines()]
    found = run(tmp_path, whole_index, [question for question, _ in asked])["results"]
    missed = [
        (question, pages[:FIRST])
        for (question, places), pages in zip(asked, found, strict=True)
        if not {*places.split(", ")} & {*pages[:FIRST]}
    ]
    assert len(asked) - len(missed) >= int(name.split()[-1]), missed


@pytest.mark.slow
def test_synonyms_are_words_of_the_site(extensions: Any, whole_index: str, tmp_path: Path) -> None:
    targets = [target for _, right in extensions("extensions.search").words() for target in right]
    assert len(targets) > 100
    assert run(tmp_path, whole_index, [], targets)["unknown"] == []


def test_questions_that_found_nothing(extensions: Any, tmp_path: Path) -> None:
    """Sphinx's search found nothing, or other pages, with the first six; the last two have an error or no end."""
    asked = {
        "imbalanced classes": "how-do-i-train-on-imbalanced-data",
        "load pretrained weights": "how-do-i-load-pretrained-torchvision-weights",
        "custom loss": "how-do-i-write-my-own-loss-function",
        "wandb": "how-do-i-log-to-wandb-mlflow-or-another-tracker",
        "class weights": "how-do-i-weight-classes",
        "docker": "how-do-i-use-docker",
        "confusoin matrix": "how-do-i-see-the-confusion-matrix",
        "use tensorbo": "how-do-i-use-tensorboard",
    }
    found = run(tmp_path, index_of(extensions("extensions.search"), {}), [*asked])["results"]
    for (question, place), pages in zip(asked.items(), found, strict=True):
        assert any(page.endswith(place) for page in pages[:FIRST]), (question, pages[:FIRST])


def test_entries_of_a_page(extensions: Any) -> None:
    search = extensions("extensions.search")
    page = (
        "---\ntitle: x\n---\n# Grüße & *more*\nSee [the page](other.md#a), `code` and ![a picture](b.png).\n\n"
        "## A `name_of` it\n```bash\ncutaway train --out runs/a\n```\n```{code-cell}\nhidden = 1\n```\n"
        "| setting | meaning |\n| --- | --- |\n| [`image_size`]{#data-image_size}<br>x | Height \\| width. |\n"
        "\n## Last\n"
        "For $5 a norm $\\lVert\\mathbf v_i\\rVert \\le \\alpha$.\n$$\nx\n$$\n$$y$$\n"
        "```{py:module} a.b\n```\n:::{py:function} work(x: int) -> int\n\nReturn it.\n:::\n"
    )
    assert [tuple(entry) for entry in search.entries("p", page)] == [
        ("p", "", ("Grüße & more",), "See the page, code and a picture."),
        ("p", "a-name-of-it", ("Grüße & more", "A name_of it"), "cutaway train --out runs/a setting meaning"),
        ("p", "data-image-size", ("Grüße & more", "A name_of it", "image_size"), "image_size x Height width."),
        ("p", "last", ("Grüße & more", "Last"), "For $5 a norm ‖v_i‖≤α."),
        ("p", "a.b.work", ("Grüße & more", "work"), "work(x: int) -> int Return it."),
    ]


def test_pages_that_mention_many_topics_rank_lower(extensions: Any) -> None:
    search = extensions("extensions.search")
    assert (
        search.weight("changelog") < search.weight("reference/python/cutaway.nn.masks") < search.weight("export") == 1
    )


def test_quotes_and_hyphens_of_the_site_stay_as_they_are_typed() -> None:
    """Sphinx would write –out for --out outside of code."""
    conf = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    assert re.search(r"^smartquotes = False$", conf, re.MULTILINE)
    assert "smartquotes" not in re.search(r"myst_enable_extensions = .*", conf)[0]  # type: ignore[index]
