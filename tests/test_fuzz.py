"""Hostile documents, files, settings and requests of the fuzzer, a few of each: all are read, or rejected in words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway.core.errors import CutawayError

from .fuzz.kinds import KINDS, Case, Kind
from .fuzz.mutations import DELETED, VALUES, Raw, changed, document_mutations, dumped, places
from .fuzz.runner import run_kind

EACH = 12  # inputs of a kind


def test_every_place_of_a_document_is_changed_in_every_way() -> None:
    document = {"a": [1, {"b": None}], "c": {}}
    assert [*places(document)] == [(), ("a",), ("a", 0), ("a", 1), ("a", 1, "b"), ("c",)]
    assert changed(document, ("a", 1, "b"), 3) == {"a": [1, {"b": 3}], "c": {}}
    assert changed(document, ("a", 0), DELETED) == {"a": [{"b": None}], "c": {}}
    assert dumped({"a": Raw("NaN"), "b": ["x"]}) == '{"a": NaN, "b": ["x"]}'
    assert len(document_mutations(document)) > 6 * len(VALUES)


def test_a_kind_is_tried_until_its_end_whatever_an_input_does(tmp_path: Path) -> None:
    def rejected() -> None:
        raise CutawayError("no")

    def spins() -> None:
        while True:
            pass

    inputs = [("fine", lambda: None), ("rejected", rejected), ("fault", lambda: [][1]), ("spins", spins)]
    inputs += [("dies", lambda: os._exit(7)), ("large", lambda: bytearray(1 << 34)), ("last", lambda: None)]
    kind = Kind("t", lambda home: None, lambda home, own, random: iter([Case(*one) for one in inputs]), seconds=1)
    result = run_kind(kind, tmp_path, 10, 0)
    assert result.inputs == len(inputs)
    assert (result.counts["read"], result.counts["rejected"], result.counts["fault"]) == (2, 1, 2)
    assert (result.counts["hang"], result.counts["crash (exit status 7)"]) == (1, 1)
    assert [name for name, _ in result.failures] == ["fault", "spins", "dies", "large"]


@pytest.mark.slow
def test_hostile_inputs_of_many_kinds(tmp_path: Path) -> None:
    quick = [kind for kind in KINDS.values() if kind.quick]
    command = [sys.executable, "-m", "tests.fuzz", "--quick", "--count", str(EACH), "--folder", str(tmp_path)]
    ran = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    tried = re.search(r"^in all: (\d+) inputs of (\d+) kinds", ran.stdout, re.MULTILINE)
    assert tried is not None
    assert int(tried[2]) == len(quick)
    assert int(tried[1]) >= 300
