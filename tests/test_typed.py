"""Every block of commands and code on every page is run somewhere, or stands in a list with the reason why it is not.

What is not run is held to this at least: a `cutaway` command is one that there is, with options that it takes and
settings that exist; Python can be compiled.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from cutaway.apps.cli import COMMANDS, WITH_SETTINGS, build_parser
from cutaway.core.config import field_names
from cutaway.data.settings import DataSettings, ShardSettings
from cutaway.deploy.quantize_config import QuantizeSettings
from cutaway.experiments.settings import CompareSettings, PlanSettings, SearchSettings
from cutaway.models.registry import presets
from cutaway.training.config import TrainSettings

ROOT = Path(__file__).parents[1]
FENCED = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1\s*$", re.DOTALL | re.MULTILINE)
STARTS = re.compile(r"\s*(?:[A-Z_]+=\S+ )?(cutaway|pip|git|make|curl|python|docker|uv|torchrun|pytest|tensorboard)\b")
BY_SITE = "{console}", "{code-cell}"  # `make site` runs these, and stops at one that fails
SETTINGS = {
    *field_names(
        TrainSettings, DataSettings, ShardSettings, SearchSettings, CompareSettings, PlanSettings, QuantizeSettings
    ),
    *("layer", "head", "position", "unit", "channel", "target", "degrees", "dim"),  # options of views
}

# Who runs the blocks of a page.
RUN = {
    "README.md": "tests/test_readme.py",
    "docs/index.md": "tests/test_readme.py",
    "docs/how_do_i.md": "tests/test_how_do_i.py",
    "docs/own_models.md": "tests/test_pages.py",
    "docs/pytorch.md": "tests/test_pages.py",
    "docs/python.md": "tests/test_python_page.py",
    "docs/start/pairs.md": "tests/test_readme.py",
}
TRAINS = "minutes to hours of training; recipes of the same commands hold what they reach (make recipes)"
YOURS = "for files of the reader's; the pages in docs/start run the same on files that are there"
NETWORK = "needs the network"
OTHERS = "needs several machines, or a server of others"
# Of the pages whose blocks are not all run: why. A language after the name is for blocks of that language alone.
ONE_COMMAND = re.compile(r"""(?:'[^']*'|"[^"]*"|[^|;&>'"])*""")  # up to a pipe, ; or & outside of quotes
NOT_RUN = {
    "CONTRIBUTING.md": "runs all tests",
    "docs/activations.md": YOURS,
    "docs/captions.md": TRAINS,
    "docs/cluster.md": OTHERS + "; tests/test_cluster.py has torchrun and cutaway take every line",
    "docs/compare.md": TRAINS,
    "docs/convolution.md": "lines of chapter 5, which the site runs with a T of its own",
    "docs/course/index.md": YOURS,
    "docs/detection.md": TRAINS,
    "docs/how_do_i.md": "torchrun on several machines, and Docker",
    "docs/image_generation.md": TRAINS,
    "docs/errors.md": "commands that end with an error; tests/test_error_codes.py runs them",
    "docs/export.md": YOURS + "; tests/deploy/test_exported.py runs the Python",
    "docs/extending.md": "for who adds a model",
    "docs/graphs.md": YOURS,
    "docs/inspect.md": YOURS + "; tests/views makes every view of every kind of model",
    "docs/install.md": NETWORK,
    "docs/objectives.md": TRAINS,
    "docs/planning.md": YOURS,
    "docs/pruning.md": TRAINS,
    "docs/quantization.md": TRAINS,
    "docs/reasoning.md": TRAINS,
    "docs/hyperparameter_search.md": TRAINS,
    "docs/serving.md": OTHERS + "; tests/serve/test_docs.py asks what stands there of a server in its own process",
    "docs/speech.md": TRAINS,
    "docs/statistics.md": "shows what a function is called with",
}


class Block(NamedTuple):
    """What is fenced on a page."""

    page: str
    language: str  # `command` where none is said and a command begins it
    text: str


def blocks() -> list[Block]:
    """All that can be run."""
    found = []
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for path in [*pages, *(ROOT / "docs" / "start").glob("*.md"), *(ROOT / "docs" / "course").glob("*.md")]:
        for _, said, text in FENCED.findall(path.read_text(encoding="utf-8")):
            language = said.split()[0] if said.strip() else "command" if STARTS.match(text) else ""
            if language in ("bash", "python", "command", *BY_SITE):
                found.append(Block(path.relative_to(ROOT).as_posix(), language, text))
    return found


BLOCKS = blocks()


def run_by(block: Block) -> str:
    """Who runs a block; empty where nobody does."""
    return "make site" if block.language in BY_SITE else RUN.get(block.page, "") if block.language != "command" else ""


def test_what_is_not_run_stands_in_the_list_with_its_reason() -> None:
    not_run = {block.page for block in BLOCKS if not run_by(block)}
    listed = {name.strip() for name in NOT_RUN}
    assert not_run - listed == set(), "run these, or say why not"
    assert listed - not_run == set(), "these are run, or gone: out of the list"
    assert all(reason for reason in NOT_RUN.values())
    assert all((ROOT / by).is_file() for by in RUN.values())
    by_whom = [run_by(block) for block in BLOCKS]
    assert by_whom.count("make site") > 100


def commands(block: Block) -> list[list[str]]:
    """The `cutaway` commands of a block, word by word."""
    found = []
    for line in block.text.replace("\\\n", " ").splitlines():
        typed = ONE_COMMAND.match(line.split(" #")[0])[0].strip()  # type: ignore[index]  # it matches every text
        if typed.startswith("cutaway ") and "…" not in typed and "..." not in typed:
            found.append(shlex.split(typed)[1:])
    return found


@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS}))
def test_what_is_typed_is_taken(page: str) -> None:
    models = presets()
    for block in (block for block in BLOCKS if block.page == page):
        if block.language == "python":
            compile(block.text, page, "exec", flags=0x2000)  # await and such may stand at the top
        for name, *words in commands(block):
            if name in ("--print-completion", "help"):
                continue
            assert name in COMMANDS, (page, name)
            parser = build_parser(name)
            if {"-h", "--help"} & {*words}:
                continue
            taken = parser.parse_intermixed_args(words)  # raises SettingError for what it does not take
            pairs = [re.match(r"([\w.]+)=", word) for word in words]
            for key in {pair[1] for pair in pairs if pair and name in WITH_SETTINGS}:
                model = next((models[one] for word in words for one in word.split(",") if one in models), None)
                own = key.removeprefix("model.")
                if key != own:
                    assert model is None or own in model.setting_names, (page, words, key)
                else:
                    assert key in SETTINGS or name in ("inspect", "show"), (page, words, key)
            assert taken is not None
