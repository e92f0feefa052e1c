"""Runs of a moment's training, and clients of a server around one, in this process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import cutaway
from cutaway.apps.serve.app import Routes
from cutaway.apps.serve.limits import Limits
from cutaway.apps.serve.middleware import Guard, Metrics
from cutaway.data.synthetic import write_example
from cutaway.runs.run import Run

HOME = "http://127.0.0.1:8000"
SMALL_GPT = {"model.layers": 2, "model.heads": 2, "model.dim": 32, "tokenizer": "bpe", "vocab_size": 500, "length": 32}
SETTINGS: dict[str, tuple[str, str, str, dict[str, Any]]] = {  # example, model, data within it, settings
    "table": ("wine.csv", "mlp", "", {"target": "cultivar", "epochs": 5}),
    "images": ("scans/", "lenet5-modern", "", {"image_size": 28, "epochs": 1}),
    "texts": ("topics.tsv", "textcnn", "", {"text": "text", "target": "topic", "epochs": 1}),
    "words": ("days.txt", "gpt2", "", {"max_steps": 20, "batch_size": 8, **SMALL_GPT}),
    "dates": ("dates.tsv", "seq2seq-gru", "", {"pairs": True, "max_steps": 5, "model.hidden_dim": 16}),
}


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """`run_of("table")`: a run, trained once."""
    folder, runs = tmp_path_factory.mktemp("served"), dict[str, Run]()

    def run(name: str) -> Run:
        if name not in runs:
            example, model, within, settings = SETTINGS[name]
            write_example(example, folder)
            cutaway.train(model, folder / example / within, out=folder / name, **settings)
            runs[name] = Run(folder / name)
        return runs[name]

    return run


@pytest.fixture
def served(run_of: Callable[[str], Run]) -> Iterator[Callable[..., TestClient]]:
    """`served("table", queue=2)`: a client of a server around that run, which answers."""
    with contextlib.ExitStack() as stack:

        def client(name: str | Run, token: str | None = None, host: str = "127.0.0.1", **limits: Any) -> TestClient:
            metrics, bounds = Metrics(), Limits(**limits)
            run = run_of(name) if isinstance(name, str) else name
            routes = Routes(run, bounds, metrics, token is not None)
            guard = Guard(routes.app(), token, host, 8000, metrics, bounds.timeout)
            made = TestClient(guard, base_url=HOME, raise_server_exceptions=False)
            made.routes = routes  # type: ignore[attr-defined]
            stack.enter_context(made)
            while made.get("/ready").status_code == 503:
                time.sleep(0.01)
            return made

        yield client


@pytest.fixture
def folder(run_of: Callable[[str], Run]) -> Callable[[str], Path]:
    """The folder with the example that a run learned from."""

    def of(name: str) -> Path:
        return run_of(name).folder.parent

    return of
