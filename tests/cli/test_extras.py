"""Optional dependencies that are missing: one sentence, with the command that installs them, before any work."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cutaway
from cutaway.apps.cli import main
from cutaway.core.extras import LIBRARIES, MissingPackageError, is_installed, require
from cutaway.data.synthetic import write_example

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {"torch_pruning": "torch-pruning", "umap": "umap-learn", "prometheus_client": "prometheus-client"}


class Missing:
    """Finder by which these libraries are not installed."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that hides libraries until the test ends."""

    def hide(*names: str) -> None:
        for module in [name for name in sys.modules if name.partition(".")[0] in names]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setattr(sys, "meta_path", [Missing(names), *sys.meta_path])

    return hide


def test_every_extra_has_its_libraries_and_all_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    known: dict[str, set[str]] = {}
    for module, library in LIBRARIES.items():
        known.setdefault(library.extra, set()).add(DISTRIBUTIONS.get(module, module))
    assert known == {
        name: {one.partition(">")[0] for one in extras[name]} for name in set(extras) - {"all", "site", "test"}
    }
    (everything,) = extras["all"]
    assert {*everything.removeprefix("cutaway[").removesuffix("]").split(","), "mlflow", "wandb"} == set(known)


def test_a_library_is_imported_or_named_with_its_extra(without: Any) -> None:
    assert is_installed("jiwer")
    assert require("jiwer", "Word error rates").process_words("a b", "a c").wer == 0.5
    without("jiwer")
    assert not is_installed("jiwer")
    with pytest.raises(MissingPackageError) as error:
        require("jiwer", "Word error rates")
    assert str(error.value) == "Word error rates needs jiwer, which is not installed: pip install 'cutaway[audio]'."


def test_a_library_that_is_broken_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "umap.py").write_text("import a_library_of_its_own\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "umap", raising=False)
    with pytest.raises(MissingPackageError, match=r"cannot be imported \(No module named 'a_library_of_its_own'\)"):
        require("umap", "plane=umap")


@pytest.mark.parametrize(
    ("library", "extra", "words"),
    [
        ("soundfile", "audio", ("check", "gru", "sounds")),
        ("av", "video", ("check", "cnn-lstm", "videos")),
        ("jiwer", "audio", ("train", "ctc-conv-gru", "spelled", "--out", "run")),
        ("pycocotools", "detection", ("train", "fcos-resnet18-small", "scenes", "image_size=32", "--out", "run")),
        ("rdkit", "molecules", ("check", "gine", "molecules.csv", "target=mass", "smiles=smiles")),
        ("tensorboard", "tensorboard", ("train", "mlp", "wine", "tensorboard=true", "epochs=1", "--out", "run")),
        ("wandb", "wandb", ("train", "mlp", "wine", "tracker=wandb", "epochs=1", "--out", "run")),
        ("mlflow", "mlflow", ("train", "mlp", "wine", "tracker=mlflow", "epochs=1", "--out", "run")),
        ("tensorboard", "tensorboard", ("train", "mlp", "wine", "tracker=tensorboard", "--out", "run")),
        ("tensorboard", "tensorboard", ("check", "mlp", "wine", "tensorboard=true")),
        ("optuna", "search", ("search", "mlp", "wine", "trials=1")),
        ("starlette", "serve", ("serve", "run")),
        ("uvicorn", "serve", ("studio",)),
        ("captum", "explain", ("inspect", "lenet5-modern", "--view", "attribution", "--out", "page.html")),
        ("soundfile", "audio", ("examples", "sounds")),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    library: str, extra: str, words: tuple[str, ...], without: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("sounds/", "videos/", "spelled/", "scenes/", "molecules.csv"):
        if name.rstrip("/") in words and words[0] != "examples":
            write_example(name, Path.cwd())
    without(library)
    assert main(list(words)) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"needs {LIBRARIES[library].name}, which is not installed: pip install 'cutaway[{extra}]'." in said
    assert "Traceback" not in said
    assert not list(Path.cwd().glob("run/checkpoints/*"))


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [("sounds/", "soundfile", "audio"), ("spelled", "soundfile", "audio"), ("./videos", "av", "video")],
)
def test_an_example_that_was_skipped_names_its_extra_where_it_is_trained_on(
    without: Any,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: Any,
    name: str,
    library: str,
    extra: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    short = name.removeprefix("./").rstrip("/")
    assert main(["train", "gru", name]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"`cutaway examples {short}` writes the example of this name." in said
    without(library)
    assert main(["train", "gru", name]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"pip install 'cutaway[{extra}]'. Then `cutaway examples {short}` writes it." in said
    assert main(["train", "gru", f"mine/{short}"]) == 2
    assert "pip install" not in capsys.readouterr().err


def test_examples_of_other_kinds_are_written(without: Any, capsys: pytest.CaptureFixture[str]) -> None:
    without("av", "soundfile")
    assert main(["examples", "--out", "all"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "Writing videos/ needs PyAV, which is not installed: pip install 'cutaway[video]'." in said
    assert "Writing sounds/ needs soundfile" in said
    assert Path("all/wine.csv").is_file()
    assert not Path("all/videos").exists()


def test_what_can_be_left_out_is_left_out_and_named(without: Any, tmp_path: Path) -> None:
    """Sentences are translated without BLEU, a page has its other views, and no event file is written."""
    without("sacrebleu", "captum", "tensorboard")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"the {a} {b}\tder {b} {a}\n" for a in "abcdefgh" for b in "ijklmnop"))
    small: Any = {"pairs": True, "max_steps": 2, "tokenizer": "words", "model.hidden_dim": 8, "model.embedding_dim": 8}
    run = cutaway.train("seq2seq-gru", pairs, out=tmp_path / "run", **small)
    assert "bleu" not in run.evaluate()
    notes = " ".join(run.about["data"]["notes"])
    assert "BLEU is left out: it needs sacreBLEU, which is not installed: pip install 'cutaway[translation]'." in notes
    assert not list((tmp_path / "run").rglob("events.out.tfevents*"))
    cutaway.look("mlp").save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Left out: attribution. Attribution needs Captum, which is not installed" in page
    assert "gradients" in page
