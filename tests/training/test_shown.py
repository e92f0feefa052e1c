"""What evaluation.json shows beside the metrics, of runs of several kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cutaway
from cutaway.core.files import read_json
from cutaway.runs.evaluation import evenly_spaced

QUIET: dict[str, Any] = {"epochs": 1, "tensorboard": False}


def evaluated(model: str, data: str, out: Path, **settings: Any) -> dict[str, Any]:
    """evaluation.json of a short run."""
    cutaway.train(model, data, out=out, **QUIET, **settings)
    found: dict[str, Any] = read_json(out / "evaluation.json")
    return found


def test_a_table_says_what_its_columns_count_and_how_they_are_spread(tmp_path: Path) -> None:
    found = evaluated("softmax", "iris", tmp_path / "run")
    columns = [column["name"] for column in read_json(tmp_path / "run" / "run.json")["data"]["distributions"]]
    assert {c["name"] for c in found["importance"]["columns"]} == set(columns[:-1])
    assert {"discrimination", "calibration"} <= set(found)
    assert found["importance"]["metric"] == "accuracy"
    assert all(one["actual"] == one["predicted"] for one in found["right"])
    assert all(one["actual"] != one["predicted"] for one in found["worst"])
    assert len(found["right"]) <= 12


def test_a_language_model_writes_samples_the_same_each_time(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog sat on the cat.\n" * 60, encoding="utf-8")
    settings = {"length": 24, "model.hidden_dim": 8}
    found = [evaluated("lstm", str(text), tmp_path / name, **settings)["samples"] for name in "ab"]
    assert found[0] == found[1]
    for sample in found[0]:
        assert sample["prompt"] + sample["actual"] in text.read_text(encoding="utf-8")
        assert len(sample["written"]) > 20


def test_pairs_show_what_became_of_an_even_choice(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{k}\t{k + 1}\n" for k in range(60)), encoding="utf-8")
    small = {"model.dim": 8, "model.heads": 2, "model.layers": 1}
    found = evaluated("transformer-tiny", str(pairs), tmp_path / "run", pairs=True, **small)
    assert found["translations"]
    for one in found["translations"]:
        assert int(one["row"]["source"]) + 1 == int(one["actual"])


def test_an_even_choice_has_both_ends() -> None:
    assert evenly_spaced(range(100), 3) == [0, 50, 99]
    assert evenly_spaced([7, 8], 5) == [7, 8]
    assert evenly_spaced([], 5) == []
