"""Weights from the Hub: by huggingface_hub itself, from a server on loopback that answers as the Hub does."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

import cutaway
from cutaway.apps.cli import main
from cutaway.checkpoints.hub import FORM, Fetched, download_hint, fetch
from cutaway.checkpoints.huggingface.folders import write_folder
from cutaway.checkpoints.saving import load_model
from cutaway.core.errors import FileError
from cutaway.models.registry import create_model, preset
from cutaway.training.pretrained_weights import find_weights, load_pretrained
from cutaway.training.setup import setup_training

constants: Any = pytest.importorskip("huggingface_hub.constants")

SMALL = {"vocab_size": 13, "context_length": 9, "dim": 16, "layers": 2, "heads": 2}
COMMIT, OLDER = "a" * 40, "b" * 40


class Hub:
    """A server with repositories: ORG/NAME → revision → files. What was asked of it is in `asked`."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}
        self.asked: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def log_message(self, *args: Any) -> None:
                pass

            def answer(self, body: bool) -> None:
                hub.asked.append(self.path)
                status, headers, content = hub.respond(self.path.partition("?")[0])
                self.send_response(status)
                for key, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(key, value)
                self.end_headers()
                if body:
                    self.wfile.write(content)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def respond(self, path: str) -> tuple[int, dict[str, str], bytes]:
        about = re.fullmatch(r"/api/models/(\w+/[\w.-]+)(?:/(revision|tree)/(\w+))?", path)
        file = re.fullmatch(r"/(\w+/[\w.-]+)/resolve/(\w+)/(.+)", path)
        found = about or file
        if found is None or found[1] not in self.repositories:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        revisions = self.repositories[found[1]]
        revision = (about[3] if about else file[2] if file else None) or "main"
        commit = {"main": COMMIT, "old": OLDER}.get(revision, revision)
        if commit not in revisions:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        files = revisions[commit]
        if about:
            listed: Any = [{"type": "file", "path": n, "oid": "0" * 40, "size": len(c)} for n, c in files.items()]
            if about[2] != "tree":
                listed = {"id": found[1], "sha": commit, "siblings": [{"rfilename": name} for name in files]}
            return 200, {"Content-Type": "application/json"}, json.dumps(listed).encode()
        if file is None or file[3] not in files:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        content = files[file[3]]
        return 200, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": commit}, content


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with org/tiny, a small GPT-2 in two versions, and org/pickle, which has no safetensors."""
    found = Hub()
    write_folder(create_model("gpt2", **SMALL), "gpt2", tmp_path / "hf")
    files = {path.name: path.read_bytes() for path in (tmp_path / "hf").iterdir()} | {
        "pytorch_model.bin": b"\x80pickle"
    }
    found.repositories["org/tiny"] = {COMMIT: files, OLDER: files}
    found.repositories["org/pickle"] = {COMMIT: {"config.json": files["config.json"], "pytorch_model.bin": b"\x80"}}
    monkeypatch.setattr(constants, "ENDPOINT", found.address)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", found.address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_a_repository_is_fetched_once_and_its_commit_is_known(hub: Hub) -> None:
    found = fetch("hub:org/tiny")
    assert (found.name, found.commit, found.pinned) == ("org/tiny", COMMIT, f"hub:org/tiny@{COMMIT}")
    assert {path.name for path in found.folder.iterdir()} == {"config.json", "model.safetensors"}
    assert not any("pytorch_model.bin" in path for path in hub.asked if "resolve" in path)
    hub.asked.clear()
    assert fetch("hub:org/tiny") == fetch(found.pinned) == found
    assert hub.asked == []


def test_whatever_opens_a_folder_of_weights_opens_it_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="It is read as gpt2 with"):
        model = cutaway.load("hub:org/tiny@old")
    assert model.config.dim == SMALL["dim"]
    with pytest.raises(FileError, match="the Hub has no public repository org/none"):
        cutaway.load("hub:org/none")
    assert main(["convert", "hub:org/tiny", str(tmp_path / "ours"), "--to", "cutaway"]) == 0
    again = load_model(tmp_path / "ours")[0].state_dict()
    assert all(torch.equal(again[key], value) for key, value in model.state_dict().items())
    page = tmp_path / "page.html"
    assert main(["inspect", "hub:org/tiny", "--view", "network", "--out", str(page)]) == 0
    assert "gpt2" in page.read_text()


def test_a_revision_is_the_one_that_was_typed(hub: Hub) -> None:
    assert fetch("hub:org/tiny@old").commit == OLDER
    assert fetch(f"hub:org/tiny@{OLDER}").commit == OLDER
    assert fetch("hub:org/tiny").commit == COMMIT


def test_what_was_fetched_is_there_without_a_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch("hub:org/tiny")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/{revision}/{filename}")
    assert fetch("hub:org/tiny").commit == COMMIT
    with pytest.raises(FileError, match="the Hub cannot be reached from here, and it is not in the cache"):
        fetch("hub:org/other")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("hub:org/none", "the Hub has no public repository org/none"),
        ("hub:org/tiny@nowhere", "org/tiny has no revision 'nowhere'"),
        ("hub:org/pickle", "has no weights that can be read"),
        ("hub:", "names no repository: write hub:ORG/NAME"),
        ("hub:../../etc/passwd", "names no repository"),
        ("hub:a b", "names no repository"),
    ],
)
def test_what_cannot_be_fetched_is_said(path: str, said: str, hub: Hub) -> None:
    with pytest.raises(FileError) as error:
        fetch(path)
    assert said in str(error.value)


def test_weights_are_taken_from_the_hub(hub: Hub) -> None:
    source = find_weights("hub:org/tiny", preset("gpt2"))
    assert source.config.dim == 16
    taken = load_pretrained(create_model("gpt2", **SMALL), preset("gpt2"), "hub:org/tiny")
    assert COMMIT in taken.path


def test_a_run_records_the_commit(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("a b c d e f g h i j " * 60, encoding="utf-8")
    given = {"weights": "hub:org/tiny", "tokenizer": "characters", "length": 8, "epochs": 1}
    prepared = setup_training("gpt2", str(tmp_path / "book.txt"), given)
    assert prepared.settings.weights == f"hub:org/tiny@{COMMIT}"


def test_how_to_get_weights_is_said_where_there_are_none() -> None:
    with pytest.raises(FileError, match=r"weights=hub:openai-community/gpt2 fetches them; or `hf download"):
        find_weights("nowhere", preset("gpt2"))
    with pytest.raises(FileError, match=r"torchvision\.models\.resnet50\(weights='DEFAULT'\)"):
        find_weights("nowhere.pth", preset("resnet50-v1"))
    assert download_hint("lenet5") == ""


def test_forms() -> None:
    assert FORM.fullmatch("hub:gpt2@refs/pr/3") is not None
    assert Fetched(Path("x"), "a/b", "c").pinned == "hub:a/b@c"
