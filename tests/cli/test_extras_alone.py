"""Each extra in an environment with nothing but the core and this extra: its feature works, and not without it.

An environment is a folder with links to the installed distributions that pyproject.toml and their own metadata name, so
that nothing is downloaded. A distribution that an extra needs and does not name is not there.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
import venv
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cutaway
from cutaway.core.extras import LIBRARIES
from cutaway.data.synthetic import write_example

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = sorted(set(PROJECT["optional-dependencies"]) - {"all", "site", "test"})

# Runs commands in one process, and prints the status and the output of each.
RUN = """
import contextlib, io, json, sys
from cutaway.apps.cli import main
done = []
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(words)
    done.append((status, " ".join(out.getvalue().split())))
print(json.dumps(done))
"""
# Runs lines of a page: commands of Cutaway in this process, others in bash. Prints the status and the output of each.
RUN_PAGE = r"""
import contextlib, io, json, re, shlex, subprocess, sys
from cutaway.apps.cli import main
done = []
for line in json.loads(sys.argv[1]):
    command = re.fullmatch(r"(?:[A-Z_]+=\S+ )*cutaway ([^|;<>$]*?)(?: &)?", line)
    if command is None:
        ran = subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        done.append((ran.returncode, ran.stdout))
        continue
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(shlex.split(command[1]))
    done.append((status, " ".join(out.getvalue().split())))
print(json.dumps(done))
"""
# Starts a server, asks it once, and stops it.
SERVE = """
import re, signal, subprocess, sys, urllib.request
server = subprocess.Popen([sys.executable, "-m", "cutaway", *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
url = server.stdout.readline().strip()
print(urllib.request.urlopen(url, timeout=60).status)
server.send_signal(signal.SIGINT)
sys.exit(server.wait(60))
"""

TRAIN = ["train", "mlp", "wine", "max_steps=1", "threads=1"]
# Of each extra: the examples that its commands read, and the commands. The last one needs the extra.
COMMANDS: dict[str, tuple[tuple[str, ...], list[list[str]]]] = {
    "audio": (("spelled/",), [["train", "ctc-conv-gru", "spelled/", "max_steps=1", "threads=1", "--out", "run"]]),
    "completion": ((), [["--print-completion", "bash"]]),
    "detection": (
        ("scenes/",),
        [["train", "fcos-resnet18-small", "scenes/", "max_steps=1", "image_size=32", "threads=1", "--out", "run"]],
    ),
    "explain": ((), [["inspect", "lenet5-modern", "--view", "attribution", "--out", "page.html"]]),
    "export": ((), [[*TRAIN, "--out", "run"], ["export", "run", "model.onnx"]]),
    "mlflow": ((), [[*TRAIN, "tracker=mlflow", "--out", "run"]]),
    "molecules": (("molecules.csv",), [["check", "gine", "molecules.csv", "smiles=smiles", "target=weight"]]),
    "prune": (
        (),
        [
            ["train", "lenet5-modern", "digits", "max_steps=1", "threads=1", "--out", "run"],
            ["prune", "run", "pruned", "prune_channels=0.3", "max_steps=1", "threads=1"],
        ],
    ),
    "search": ((), [["search", "mlp", "wine", "lr=1e-3..1e-2", "trials=1", "max_steps=1", "--out", "search"]]),
    "tensorboard": ((), [[*TRAIN, "tensorboard=true", "--out", "run"]]),
    "umap": ((), [["inspect", "lenet5-modern", "digits", "--view", "embeddings", "plane=umap", "--out", "page.html"]]),
    "wandb": ((), [[*TRAIN, "tracker=wandb", "--out", "run"]]),
    "video": (("videos/",), [["check", "cnn-lstm", "videos/", "image_size=24", "frames=6"]]),
}


def closure(extras: frozenset[str]) -> set[str]:
    """Return the distributions that the package with these extras needs. Skips a test if one of an extra is missing."""
    wanted = [Requirement(text) for text in PROJECT["dependencies"]]
    wanted += [Requirement(text) for extra in extras for text in PROJECT["optional-dependencies"][extra]]
    seen, found = set[tuple[str, frozenset[str]]](), set[str]()
    while wanted:
        one = wanted.pop()
        key = canonicalize_name(one.name), frozenset(one.extras)
        if key in seen or not (
            one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in {"", *one.extras})
        ):
            continue
        seen.add(key)
        found.add(key[0])
        try:
            inner = [Requirement(text) for text in requires(one.name) or ()]
        except PackageNotFoundError:
            pytest.skip(f"{one.name} is not installed")
        for each in inner:
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in {"", *one.extras}):
                each.marker = None  # it holds: the extra is that of the distribution which names it
                wanted.append(each)
    return found


def environment(folder: Path, extras: frozenset[str]) -> Path:
    """Make an environment with the core and these extras, and return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in sorted(closure(extras)):
        installed = distribution(name)
        for top in sorted({file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}):
            if not (site / top).exists() and not top.endswith(".pth"):
                (site / top).symlink_to(Path(str(installed.locate_file(top))).resolve())
    (site / "cutaway.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")
    return folder / "bin" / "python"


def run(
    python: Path, script: str, arguments: list[str], folder: Path, timeout: float = 500
) -> subprocess.CompletedProcess[str]:
    """Run a script in an environment, without anything of this one, for `timeout` seconds at most."""
    clean = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1", "COLUMNS": "1000"}
    clean |= {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
    command = [str(python), "-c", script, *arguments]
    return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=timeout)


def run_commands(python: Path, commands: list[list[str]], folder: Path) -> list[tuple[int, str]]:
    """Run commands of Cutaway in one process of an environment, and return the status and the output of each."""
    done = run(python, RUN, [json.dumps(commands)], folder)
    assert done.returncode == 0, done.stderr
    return [(status, text) for status, text in json.loads(done.stdout.splitlines()[-1])]


@pytest.fixture(scope="session")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment without extras."""
    return environment(tmp_path_factory.mktemp("environment") / "core", frozenset())


def sentence(extra: str) -> re.Pattern[str]:
    """Return the pattern of the sentence for a missing extra."""
    names = "|".join(re.escape(one.name) for one in LIBRARIES.values() if one.extra == extra)
    return re.compile(rf"needs ({names}), which is not installed: pip install 'cutaway\[{extra}\]'\.")


def test_every_extra_has_a_case() -> None:
    assert {*COMMANDS, "serve", "translation"} == set(EXTRAS)
    assert closure(frozenset({"explain"})) - closure(frozenset()) >= {"captum", "matplotlib"}
    assert not closure(frozenset()) & {"captum", "matplotlib", "pytest", "tensorboard"}


@pytest.mark.slow
@pytest.mark.parametrize("extra", COMMANDS)
def test_an_extra_alone_is_enough_for_its_commands(extra: str, core: Path, tmp_path: Path) -> None:
    examples, commands = COMMANDS[extra]
    with_it = environment(tmp_path / "environment", frozenset({extra}))
    for folder in (tmp_path / "without", tmp_path / "with"):
        folder.mkdir()
        for name in examples:
            write_example(name, folder)
    *before, (status, text) = run_commands(core, commands, tmp_path / "without")
    assert [code for code, _ in before] == [0] * len(before)
    assert (status, bool(sentence(extra).search(text))) == (2, True), text
    done = run_commands(with_it, commands, tmp_path / "with")
    assert [code for code, _ in done] == [0] * len(commands), done
    if extra == "tensorboard":
        assert list((tmp_path / "with").rglob("events.out.tfevents*"))


@pytest.mark.slow
def test_bleu_comes_with_the_extra_translation(core: Path, tmp_path: Path) -> None:
    """Without it, training and evaluation work, and a note says that BLEU is left out."""
    pairs = "".join(f"the {a} {b}\tder {b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
    train = ["train", "seq2seq-gru", "pairs.tsv", "pairs=true", "max_steps=1", "tokenizer=words", "model.hidden_dim=8"]
    for name, python in (
        ("without", core),
        ("with", environment(tmp_path / "environment", frozenset({"translation"}))),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "pairs.tsv").write_text(pairs)
        commands = [[*train, "model.embedding_dim=8", "threads=1", "--out", "run"], ["evaluate", "run", "--json"]]
        (trained, text), (evaluated, document) = run_commands(python, commands, folder)
        assert trained == evaluated == 0, text
        assert ("BLEU is left out" in text) == (name == "without")
        assert ('"bleu"' in document) == (name == "with")


@pytest.mark.slow
@pytest.mark.waits
def test_the_extra_serve_starts_both_servers(core: Path, tmp_path: Path) -> None:
    alone = environment(tmp_path / "environment", frozenset({"serve"}))
    assert run_commands(alone, [[*TRAIN, "--out", "run"]], tmp_path)[0][0] == 0
    for words in (["serve", "run", "--port", "0"], ["studio", "--port", "0"]):
        ((status, text),) = run_commands(core, [words], tmp_path)
        assert (status, bool(sentence("serve").search(text))) == (2, True), text
        served = run(alone, SERVE, words, tmp_path)
        assert (served.returncode, served.stdout.strip()) == (0, "200"), served.stderr


PAGES = [ROOT / "docs" / "how_do_i.md", *sorted((ROOT / "docs" / "start").glob("*.md"))]
UNTYPED = re.compile(r"curl |kill |:")  # lines that need a server, and options of a block
NAMED = re.compile(r"pip install 'cutaway\[(\w+)\]'")


def parts(page: Path) -> list[tuple[str, list[str]]]:
    """Return the text of each part of a page, and the lines of its commands, which train for one step in docs/start."""
    found = []
    for part in re.split(r"^(?=##+ )", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        blocks = re.findall(r"^```(?:bash|\{console\})\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
        lines = [line for block in blocks for line in block.splitlines() if line and not UNTYPED.match(line)]
        if page.parent.name == "start":
            lines = [shortened(line) for line in lines]
        found.append((part, lines))
    return found


def shortened(line: str) -> str:
    """Return a command that trains for one step instead of to its end."""
    if not line.startswith("cutaway train ") or "--resume" in line:
        return line
    return re.sub(r" (?:epochs|max_steps)=\d+", "", line) + " max_steps=1"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_each_extra_that_its_commands_need(page: Path, core: Path, tmp_path: Path) -> None:
    """In the part with the command, or before the first heading, for all parts."""
    found = parts(page)
    if page.stem == "how_do_i":  # a Python block of the page writes this file
        network = cutaway.create_model("resnet18", num_classes=10, in_channels=3)
        torch.save(network.state_dict(), tmp_path / "resnet18.pth")
    ran = run(core, RUN_PAGE, [json.dumps([line for _, lines in found for line in lines])], tmp_path, timeout=1500)
    assert ran.returncode == 0, ran.stderr
    done = iter(json.loads(ran.stdout.splitlines()[-1]))
    of_page, wrong, lacks = set(NAMED.findall(found[0][0])), [], False
    for text, lines in found:
        title, named, needed = text.partition("\n")[0], set(NAMED.findall(text)), set[str]()
        lacks = lacks and bool(of_page)
        for line in lines:
            status, printed = next(done)
            extras = {extra for extra in EXTRAS if status == 2 and sentence(extra).search(printed)}
            if status and not extras and not lacks:  # else it may need what an earlier command would have written
                wrong.append((line, printed))
            needed |= extras
            lacks = lacks or bool(extras)
        wrong += [(title, f"does not name {extra}") for extra in sorted(needed - named - of_page)]
        if page.stem == "how_do_i" and lines:
            wrong += [(title, f"does not need {extra}") for extra in sorted(named - needed)]
    assert wrong == []


@pytest.mark.slow
def test_the_core_alone_runs_what_needs_no_extra(core: Path, tmp_path: Path) -> None:
    commands = [
        ["examples"],
        [*TRAIN, "--out", "run"],
        ["evaluate", "run"],
        ["report", "run"],
        ["predict", "run", "wine.csv"],
        ["inspect", "run"],
        ["export", "run", "model.pt2"],
        ["check", "lenet5-modern", "digits"],
        ["check", "textcnn", "topics.tsv", "text=text", "target=topic"],
        ["check", "gcn", "graph/", "target=club", "test=0.4"],
        ["check", "unet-small", "masks/"],
        ["data", "digits"],
        ["course"],
    ]
    done = run_commands(core, commands, tmp_path)
    assert [status for status, _ in done] == [0] * len(commands), done
    written = done[0][1]
    for extra in ("audio", "video"):
        assert sentence(extra).search(written)
    imported = run(core, "import captum", [], tmp_path)
    assert "No module named 'captum'" in imported.stderr
