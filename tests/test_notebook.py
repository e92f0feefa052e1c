"""A run in a notebook and in a terminal: what it shows, progress, messages through logging, and warnings."""

from __future__ import annotations

import html.parser
import logging
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutaway
from cutaway.core.log import DEFAULT_LEVEL, HANDLER, LOGGER, log
from cutaway.training import notebook
from cutaway.training.notebook import ROWS, NotebookBar

GIVEN: dict[str, Any] = {"tensorboard": False, "threads": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    out = tmp_path_factory.mktemp("runs") / "<digits>"
    return cutaway.train("lenet5", "digits", epochs=2, max_samples=400, out=out, verbose=False, **GIVEN)


class Tags(html.parser.HTMLParser):
    """The tags of a page, which are closed in order, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_run_shows_score_curves_and_mistakes_without_scripts(run: cutaway.Run) -> None:
    page = run._repr_html_()
    tags = Tags(page)
    found = run.evaluate()["accuracy"]
    shown = re.search(r"([\d.]+)\u202f% test accuracy \(95 % interval ([\d.]+)\u202f% to ([\d.]+)", tags.text)
    assert shown is not None
    percents = [float(part) for part in shown.groups()]
    assert percents == pytest.approx([100 * found.value, 100 * found.low, 100 * found.high], abs=0.06)
    names = [name for name, _ in tags.seen]
    assert names.count("svg") == 2  # loss and accuracy
    assert names.count("polyline") == 3
    assert 1 <= names.count("img") <= 6
    assert "script" not in names
    assert all(str(has["src"]).startswith("data:") for _, has in tags.seen if "src" in has)
    assert "http" not in page
    assert "<digits>" in tags.text  # escaped
    assert len(page) < 30_000


def test_points_of_a_curve_are_the_history(run: cutaway.Run) -> None:
    drawn = re.findall(r'polyline points="([^"]+)"', run._repr_html_())
    loss = run.history["train_loss"].to_list()
    first, last = (float(point.split(",")[1]) for point in drawn[0].split(" "))
    assert len(drawn[0].split(" ")) == len(loss) == 2
    assert (first < last) == (loss[0] > loss[1])  # y points down


def test_history_has_one_row_for_each_epoch(run: cutaway.Run) -> None:
    history = run.history
    assert history["epoch"].to_list() == [1, 2]
    assert history.schema["step"] == pl.Int64
    assert history["val_accuracy"].max() == run.about["best"]["value"]
    rows = pl.read_csv(run.folder / "metrics.csv")
    assert len(rows) > 2  # those within epochs are left out
    assert history["train_loss"][-1] == rows["train_loss"][-1]


def test_the_terminal_has_the_score_too(run: cutaway.Run) -> None:
    said = str(run).splitlines()
    assert said[0].startswith("lenet5 on digits, ")
    assert "test accuracy (95 % interval" in said[1]
    assert said[-1] == str(run.folder)
    assert max(map(len, said[:2])) < 160
    assert repr(run) == f"Run({str(run.folder)!r})"
    metric = run.evaluate()["accuracy"]
    assert f"95 % interval {metric.low:.4g} to {metric.high:.4g}" in metric._repr_html_()


def test_a_run_that_was_stopped_shows_what_there_is(tmp_path: Path) -> None:
    class Stop(cutaway.Callback):
        def on_epoch_end(self, state: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cutaway.train("mlp", "iris", epochs=3, out=tmp_path / "run", callbacks=[Stop()], verbose=False, **GIVEN)
    stopped = cutaway.Run(tmp_path / "run")
    assert "Not evaluated yet." in Tags(stopped._repr_html_()).text
    assert "running" in str(stopped)
    assert stopped.history.columns[0] == "epoch"


CELLS = [
    "import cutaway, warnings",
    'run = cutaway.train("lenet5", "digits", epochs=2, max_samples=400, out="run", tensorboard=False, threads=1)',
    "run",
    'run.evaluate()["accuracy"]',
    "run.history",
    'quiet = cutaway.train("mlp", "iris", epochs=1, out="quiet", verbose=False, tensorboard=False, threads=1)',
]


@pytest.mark.slow
def test_a_notebook_has_a_bar_and_shows_the_run(tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    where = {"metadata": {"path": tmp_path}}
    client = nbclient.NotebookClient(book, timeout=120, kernel_name="python3", resources=where)
    client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable  # type: ignore[union-attr]
    client.execute()
    outputs = [cell["outputs"] for cell in book["cells"]]
    (bar,) = outputs[1]  # one output, which was updated
    page = Tags(bar["data"]["text/html"])
    assert [has["value"] == has["max"] for name, has in page.seen if name == "progress"] == [True]
    assert re.search(r"epoch 2/2  train loss [\d.]+  val loss [\d.]+  val accuracy", page.text)
    assert "test accuracy (95 % interval" in Tags(outputs[2][0]["data"]["text/html"]).text
    assert "95 % interval" in outputs[3][0]["data"]["text/html"]
    assert "shape: (2, " in outputs[4][0]["data"]["text/plain"]
    assert outputs[5] == []


def test_the_bar_keeps_the_last_lines_and_escapes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not notebook.in_notebook()
    bar = NotebookBar()
    for k in range(ROWS + 5):
        bar.line(f"line {k} <b>")
    bar.update("epoch 1/2", "3.0 steps/s", 5, 10)
    tags = Tags(bar.html())
    assert "(5 earlier lines)" in tags.text
    assert "line 4 " not in tags.text
    assert "line 24 <b>" in tags.text
    assert re.search(r"\d+:\d\d left", tags.text)


# --- messages and warnings ----------------------------------------------------------------------------------------


class Kept(logging.Handler):
    """The messages that were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.mark.parametrize("name", ["cutaway", None])
def test_messages_go_through_logging(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str | None) -> None:
    kept, logger = Kept(), logging.getLogger(name)
    before = logger.level
    logger.addHandler(kept)
    try:
        if name is None:
            logger.setLevel(logging.INFO)
        cutaway.train("softmax", "iris", epochs=1, out=tmp_path / "run", **GIVEN)
    finally:
        logger.removeHandler(kept)
        logger.setLevel(before)
    assert any(line.strip().startswith("epoch 1/1  train loss") for line in kept.said)
    assert capsys.readouterr() == ("", "")  # said once, to those who listen


def test_the_level_of_the_root_logger_holds_where_only_it_has_handlers(capsys: pytest.CaptureFixture[str]) -> None:
    kept, root = Kept(), logging.getLogger()
    before = root.level
    root.addHandler(kept)
    try:
        root.setLevel(logging.WARNING)
        log("progress")
        log("a finding", logging.WARNING)
        root.setLevel(logging.INFO)
        log("progress again")
    finally:
        root.removeHandler(kept)
        root.setLevel(before)
    assert kept.said == ["a finding", "progress again"]
    assert capsys.readouterr().err == ""


def test_a_level_of_the_logger_silences_it(capsys: pytest.CaptureFixture[str]) -> None:
    log("heard")
    LOGGER.setLevel(logging.WARNING)
    try:
        log("not heard")
    finally:
        LOGGER.setLevel(DEFAULT_LEVEL)
    assert capsys.readouterr().err == "heard\n"
    assert HANDLER in LOGGER.handlers


@pytest.mark.parametrize("verbose", [True, False])
def test_nothing_is_printed_unless_verbose(tmp_path: Path, capfd: pytest.CaptureFixture[str], verbose: bool) -> None:
    cutaway.train("softmax", "iris", epochs=1, out=tmp_path / "run", verbose=verbose, **GIVEN)
    said = capfd.readouterr()
    assert said.out == ""
    assert bool(said.err) == verbose


def test_verbose_is_true_or_false() -> None:
    wrong: Any = "no"
    functions: list[Any] = [cutaway.train, cutaway.compare, cutaway.search]
    for function in functions:
        with pytest.raises(cutaway.CutawayError, match="Invalid verbose=no: must be True or False"):
            function("softmax", "iris", verbose=wrong)


def test_warnings_can_be_filtered_by_class(tmp_path: Path) -> None:
    rows = [{"kind": kind, "y": str(k % 2)} for k, kind in enumerate(["a", "b"] * 20)]
    run = cutaway.train("mlp", rows, target="y", epochs=1, out=tmp_path / "run", verbose=False, **GIVEN)
    with pytest.warns(cutaway.CutawayWarning):
        run.predict([{"kind": "new"}])
    assert issubclass(cutaway.CutawayWarning, UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=cutaway.CutawayWarning)
        run.predict([{"kind": "new"}])


def test_a_plain_script_needs_no_notebook(tmp_path: Path) -> None:
    code = "import sys, cutaway.training.notebook as n; assert not n.in_notebook() and 'IPython' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
