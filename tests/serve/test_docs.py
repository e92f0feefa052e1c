"""What docs/serving.md says to type is taken, and its requests are answered."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from starlette.testclient import TestClient

from cutaway.apps.cli import servers
from cutaway.apps.serve.app import STATUSES
from cutaway.apps.serve.limits import Limits, parse_duration

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
TYPED = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def taken(words: list[str]) -> argparse.Namespace:
    """What the command makes of these words. Raises SystemExit where it does not take them."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    servers.add_serve_arguments(parser)
    return parser.parse_args(words)


def test_what_is_typed_is_taken() -> None:
    assert len(TYPED) >= 3
    for line in TYPED:
        name, command, *words = shlex.split(line)
        assert (name, command) == ("cutaway", "serve")
        assert parse_duration("--batch-wait", taken(words).batch_wait) > 0


def test_options_and_limits_are_those_of_the_command() -> None:
    known = vars(taken(["RUN"]))
    named = set(re.findall(r"`--([a-z-]+)`", PAGE))
    assert {name.replace("-", "_") for name in named} <= known.keys()
    usual = Limits()
    for key in ("max_batch", "max_body", "queue", "max_tokens", "streams"):
        assert known[key] == getattr(usual, key)
    assert parse_duration("", known["batch_wait"]) == usual.batch_wait
    assert parse_duration("", known["timeout"]) == usual.timeout
    for said in (f"{usual.queue} requests", f"{usual.max_body} MiB", f"{usual.timeout:g} seconds"):
        assert said in PAGE


def test_each_status_is_on_the_page() -> None:
    rows = {int(number) for row in re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE) for number in row.split(",")}
    assert rows >= STATUSES.keys()


def test_requests_of_the_page_are_answered(served: Callable[..., TestClient]) -> None:
    bodies = [json.loads(body) for body in re.findall(r"-d '(\{.*?\})'", PAGE)]
    (texts,) = (body for body in bodies if "texts" in body)
    assert served("texts").post("/predict", json=texts).status_code == 200
    (asked,) = (body for body in bodies if "prompt" in body)
    assert served("words").post("/generate", json=asked).status_code == 200


def test_what_is_printed_fits_a_terminal() -> None:
    assert max(map(len, servers.SERVE_EXAMPLES.splitlines())) <= 80
