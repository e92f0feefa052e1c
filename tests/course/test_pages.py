"""The chapters' pages: they run, they are live, and each has what a chapter promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cutaway.apps.course.exercises import CHAPTERS, Chapter, Exercise, frame, source
from cutaway.draw import charts
from cutaway.inference.sequence_decoding import prefix_beam
from cutaway.nn.textbook.backprop import backward
from cutaway.training.compression import FakeQuantization

from ..scripts import DOCS, load
from .pages import COURSE, run

notebooks = load("course_notebooks", DOCS / "extensions" / "notebooks.py")


@pytest.fixture(params=CHAPTERS, ids=lambda one: f"{one.number:02}")
def chapter(request: pytest.FixtureRequest) -> Chapter:
    """Each chapter."""
    found: Chapter = request.param
    return found


def text_of(chapter: Chapter) -> str:
    """Its page."""
    return Path(run.PAGES[f"{chapter.number:02}"]).read_text(encoding="utf-8")


def test_every_page_has_its_chapter_and_every_chapter_its_page() -> None:
    assert list(run.PAGES) == [f"{one.number:02}" for one in CHAPTERS]
    index = (COURSE / "index.md").read_text(encoding="utf-8")
    for one in CHAPTERS:
        assert f"# {one.number} · {one.title}\n" in text_of(one)
        assert run.PAGES[f"{one.number:02}"].stem in index


def test_a_chapter_has_all_that_it_promises(chapter: Chapter) -> None:
    text = text_of(chapter)
    for head in ("Common misconceptions", "Exercises", "Further reading"):
        assert f"\n## {head}\n" in text
    assert "source(" in text
    assert "frame(" in text
    exercises = [f"### {k} · `{one.signature}`" for k, one in enumerate(chapter.exercises, 1)]
    assert re.findall(r"^### \d · `.*`$", text, re.MULTILINE) == exercises
    cells = [cell.code for cell in run.cells(run.PAGES[f"{chapter.number:02}"]) if cell.solution]
    assert len(cells) == len(exercises)
    for one, cell in zip(chapter.exercises, cells):
        assert f"def {one.signature}:" in cell
        assert f"check({chapter.number}, {one.name})" in cell


def test_a_chapter_begins_with_time_prerequisites_and_goals(chapter: Chapter) -> None:
    page = run.PAGES[f"{chapter.number:02}"]
    head = text_of(chapter).partition("```{code-cell}")[0]
    assert f"\n\n**Time needed:** {run.time_words(page)}\n\n**Prerequisites:** " in head
    goals = head.partition("**Learning goals.** After this chapter you can\n\n")[2].strip().split("\n- ")
    assert 2 <= len(goals) <= 4
    assert [int(n) for n in re.findall(r"\((\d\d)-", head.partition("**Prerequisites:**")[2])] == sorted(
        int(n) for n in re.findall(r"\((\d\d)-", head.partition("**Prerequisites:**")[2])
    )
    assert all(int(n) < chapter.number for n in re.findall(r"\((\d\d)-", head.partition("**Prerequisites:**")[2]))


def test_a_chapter_ends_with_a_recap_and_exercises_of_three_levels(chapter: Chapter) -> None:
    text = text_of(chapter)
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads[-4:] == ["Common misconceptions", "Recap", "Exercises", "Further reading"]
    recap = text.partition("\n## Recap\n")[2].partition("\n## ")[0]
    assert 3 <= recap.count("\n- ") <= 8
    exercises = text.partition("\n## Exercises\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### ", exercises, flags=re.MULTILINE)[1:]
    for one, part in zip(chapter.exercises, parts, strict=False):
        assert f"\n\n*{one.level.capitalize()}.* " in part
        assert f"Returns: {one.gives}" in " ".join(part.split())  # every rule of the check
    assert len(parts) == len(chapter.exercises) + 1
    assert parts[-1].startswith("Open · ")
    assert "*Open: without a check.*" in parts[-1]
    assert "code-cell" not in parts[-1]


# Classes and functions that a chapter is about; all other long cells that show nothing are folded.
LESSONS = {(2, "def curve("), (3, "class Net"), (10, "class OneVector"), (14, "def rolled(")}


def test_drawing_and_helpers_are_folded(chapter: Chapter) -> None:
    _first, *cells = run.cells(run.PAGES[f"{chapter.number:02}"])
    for cell in cells:
        long = sum(bool(line.strip()) for line in cell.code.splitlines()) > 15
        lesson = any(number == chapter.number and name in cell.code for number, name in LESSONS)
        if long and "hide-" not in cell.options:
            assert not re.search(r"\bax\w*\.|\bplt\.|\bframe\(", cell.code), f"line {cell.line} draws"
            assert lesson or "print(" in cell.code, f"line {cell.line} shows nothing"


def test_the_first_cell_names_what_the_chapter_needs(chapter: Chapter) -> None:
    first = run.cells(run.PAGES[f"{chapter.number:02}"])[0]
    lines = first.code.splitlines()
    assert re.fullmatch(r"# .* pip install 'cutaway\[explain(,\w+)*\]'", lines[0])
    assert lines[1].startswith("from cutaway.apps.course import ")
    assert lines[2:4] == ["", "style()"]  # before Matplotlib is imported: it says what to install
    assert not any("matplotlib" in line for line in lines[1:4])


def test_without_matplotlib_one_sentence_says_what_to_install() -> None:
    page = str(run.PAGES["01"])
    asked = (
        f"import sys; sys.path.insert(0, {str(COURSE)!r}); import run; from pathlib import Path; "
        f"run.hide_other_packages(); run.run(Path({page!r}))"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(
        "Drawing the figures of the chapters needs Matplotlib, which is not installed: pip install 'cutaway[explain]'."
    )


def test_a_chapter_is_a_notebook(chapter: Chapter) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("jupytext")
    notebook = notebooks.to_notebook(text_of(chapter))
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    cells = run.cells(run.PAGES[f"{chapter.number:02}"])
    assert [cell.source.strip() for cell in code] == [cell.code.strip() for cell in cells]
    assert "pip install 'cutaway[explain" in code[0].source
    for cell, made in zip(cells, code, strict=True):
        folded = "hide-input" in cell.options or "hide-cell" in cell.options
        assert made.metadata.get("jupyter", {}).get("source_hidden", False) is folded
    links = re.findall(r"\]\(([^)#\s]+)", "".join(c.source for c in notebook.cells if c.cell_type == "markdown"))
    assert all(link.startswith("http") for link in links), "a notebook stands alone: no relative links"


@pytest.mark.slow
def test_a_downloaded_notebook_runs(tmp_path: Path) -> None:
    pytest.importorskip("jupytext")
    client = pytest.importorskip("nbclient")
    notebook = notebooks.to_notebook(text_of(CHAPTERS[0]))
    client.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any("fires: correct." in str(output) for cell in notebook.cells for output in cell.get("outputs", ()))


def test_every_figure_is_said_in_words(chapter: Chapter) -> None:
    cells = run.cells(run.PAGES[f"{chapter.number:02}"])
    for cell in cells:
        if "plt.subplots" in cell.code or "plt.figure" in cell.code:
            assert re.search(r"alt: .{40,}", cell.options), f"line {cell.line} draws and says nothing"


def test_what_cells_are_marked_with_can_be_read(chapter: Chapter) -> None:
    yaml = pytest.importorskip("yaml")
    for cell in run.cells(run.PAGES[f"{chapter.number:02}"]):
        options = cell.options.strip("-\n") if cell.options.startswith("---") else cell.options.replace("\n:", "\n")[1:]
        found = yaml.safe_load(options) or {}
        assert set(found) <= {"tags", "mystnb"}, f"line {cell.line}"
        assert set(found.get("tags", [])) <= {"hide-input", "hide-cell", "remove-stderr", "solution", "slow"}


def test_lines_are_as_wide_as_a_page(chapter: Chapter) -> None:
    for cell in run.cells(run.PAGES[f"{chapter.number:02}"]):
        for k, line in enumerate(cell.code.splitlines()):
            assert len(line) <= 90, f"line {cell.line + k}"


@pytest.mark.slow
def test_a_chapter_runs_with_what_the_wheel_installs(chapter: Chapter) -> None:
    """Its exercises too, with their solutions."""
    command = [sys.executable, COURSE / "run.py", "--page", f"{chapter.number:02}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_only_what_the_wheel_installs_is_there() -> None:
    brought = run.required_distributions(extras=frozenset({"explain"}))
    assert {"cutaway", "torch", "polars", "matplotlib", "scipy"} <= brought
    assert not {"pandas", "pytest", "gensim", "sphinx"} & brought
    asked = (
        f"import sys; sys.path.insert(0, {str(COURSE)!r}); import run; run.hide_other_packages(); import polars, pandas"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert "No module named 'pandas'" in done.stderr


def test_an_error_of_a_cell_names_its_line_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "01-wrong.md"
    begin, end = "```{code-cell} ipython3\n", "```\n\n"
    text = f"# A\n\n{begin}:tags: [hide-cell]\nx = 1\n{end}B\n\n{begin}---\ntags: [solution]\n---\n\nx = y\n{end}"
    page.write_text(text, encoding="utf-8")
    first, second = run.cells(page)
    assert (first.code, first.solution, second.solution) == ("x = 1\n", False, True)
    assert run.run(page, lambda cell: not cell.solution)["x"] == 1
    with pytest.raises(NameError) as raised:
        run.run(page)
    assert raised.traceback[-1].lineno == 14  # pytest counts from 0


def test_a_solution_that_is_not_right_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "01-wrong.md"
    answer = "def fires(w, b, x):\n    return 0\n\n\ncheck(1, fires)\n"
    text = (
        f"```{{code-cell}} ipython3\n---\ntags: [solution]\n---\nfrom cutaway.apps.course import check\n\n{answer}```\n"
    )
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"01-wrong.md, line 5: fires: not yet"):
        run.run(page)


def test_a_source_is_what_the_file_says_now() -> None:
    shown = source(backward, Exercise.signature.fget)
    text = shown._repr_markdown_()
    assert "def backward(layers: Sequence[Layer], trace: Trace, delta: Tensor)" in text
    assert "\ndef signature(self)" not in repr(shown).replace("@property\n", "")[:3]
    assert "`src/cutaway/nn/textbook/backprop.py`, `src/cutaway/apps/course/exercises.py`" in text


def test_the_source_of_a_decorated_function_is_its_own() -> None:
    text = source(prefix_beam, FakeQuantization.applied)._repr_markdown_()
    assert "@torch.no_grad()\ndef prefix_beam(log_probs: Tensor" in text
    assert text.endswith("`src/cutaway/inference/sequence_decoding.py`, `src/cutaway/training/compression.py`\n")


@pytest.mark.browser
def test_a_frame_draws_itself_and_grows(browser: Any, tmp_path: Path) -> None:
    curve = charts.lines("A curve", "x", [{"name": "y", "points": [[0, 0], [1, 2]]}])
    shown = frame(charts.choice("", "which", [{"name": "one", "drawings": [curve]}]), title="T", says="S", height=50)
    assert "<script" not in shown._repr_html_().partition("srcdoc")[0]
    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html><title>x</title><body>{shown._repr_html_()}</body>", encoding="utf-8")
    page = browser.new_page()
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    inner = page.frame_locator("iframe")
    inner.locator("svg path").first.wait_for()
    page.wait_for_function("parseInt(document.querySelector('iframe').style.height) > 200")
    assert inner.locator("h2").inner_text() == "T"
    assert inner.locator("details").is_hidden()  # there are no numbers to show
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:"))] == []
    page.close()
