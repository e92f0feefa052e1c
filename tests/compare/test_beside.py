"""Simple models beside the score of one run: which there is time for, what they score, and where it is said."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import fisher_exact

from cutaway.apps.cli.train import result_lines, summary
from cutaway.core.config import build
from cutaway.core.files import read_json, write_json
from cutaway.core.spec import Classes, NextToken, Value
from cutaway.data.dataset_base import IGNORED
from cutaway.experiments.compare.baselines import (
    MARGIN,
    MIN_SECONDS,
    _expected_seconds,
    baselines_for,
    padded_targets,
    score_baselines,
    tag_baseline,
)
from cutaway.reports.run_report import build_report
from cutaway.runs.evaluation import baseline_test
from cutaway.runs.run import Run
from cutaway.runs.train import train_model
from cutaway.statistics.classes import independence_p_value
from cutaway.tasks.classification import Classification
from cutaway.tasks.language import Language
from cutaway.tasks.regression import Regression
from cutaway.training.config import TrainSettings
from cutaway.views.run.documents import read_documents


def trained(model: str, data: str, folder: Path, seconds: float) -> Run:
    """A run that is said to have taken so many seconds."""
    run = train_model(model, data, {"epochs": 2, "threads": 1, "tensorboard": False}, out=folder)
    write_json(folder / "run.json", {**read_json(folder / "run.json"), "seconds": seconds})
    return Run(run.folder)


@pytest.mark.parametrize(("data", "model", "key"), [("wine", "softmax", "accuracy"), ("diabetes", "linear", "rmse")])
def test_a_long_training_is_held_against_all_of_them(data: str, model: str, key: str, tmp_path: Path) -> None:
    run = trained(model, data, tmp_path / "run", 3_600.0)
    score_baselines(run)
    simple = read_json(run.folder / "evaluation.json")["simple"]
    opened = run.data()
    split = opened.splits["test"]
    own = {
        baseline.name: run.task.metrics(baseline.fit(opened, 0).outputs(split), split.target)[key].value
        for baseline in baselines_for(opened, run.task)[1:]
    }
    assert {one["name"]: one["value"] for one in simple["models"]} == pytest.approx(own)
    assert simple["left_out"] == []
    values = [one["value"] for one in simple["models"]]
    assert values == sorted(values, reverse=key == "accuracy")
    head = build_report(read_documents(run.folder))["views"][0]
    best = simple["models"][0]["name"]
    assert f"{best} (baseline): " in head["summary"]
    assert best in [row[0] for row in head["table"]["rows"]]
    assert f"; {best}: " in result_lines(run)[0]
    before = (run.folder / "evaluation.json").stat().st_mtime_ns
    score_baselines(run)  # which is known
    assert (run.folder / "evaluation.json").stat().st_mtime_ns == before


def test_a_short_training_is_held_against_them_for_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained("softmax", "wine", tmp_path / "run", 0.1)
    monkeypatch.setattr("cutaway.experiments.compare.baselines.SECONDS", 0.0)
    score_baselines(run)
    assert "simple" not in read_json(run.folder / "evaluation.json")
    monkeypatch.undo()
    score_baselines(run)
    assert read_json(run.folder / "evaluation.json")["simple"]["models"]


def test_runs_on_the_same_data_share_the_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [trained("softmax", "wine", tmp_path / name, 3_600.0) for name in ("a", "b")]
    other = trained("softmax", "iris", tmp_path / "c", 3_600.0)
    score_baselines(runs[0])
    monkeypatch.setattr("cutaway.experiments.compare.baselines._score_within", lambda *_: None)
    score_baselines(other)
    assert "simple" not in read_json(other.folder / "evaluation.json")
    score_baselines(runs[1])
    simple = [read_json(run.folder / "evaluation.json")["simple"] for run in runs]
    assert simple[0] == simple[1]


def test_a_model_below_the_best_of_them_is_told_so(tmp_path: Path) -> None:
    run = trained("softmax", "wine", tmp_path / "run", 3_600.0)
    score_baselines(run)
    evaluation = read_json(run.folder / "evaluation.json")
    for value, below in ((0.5, True), (1.0, False)):
        evaluation["metrics"]["accuracy"] = {"value": value, "low": value - 0.1, "high": value}
        write_json(run.folder / "evaluation.json", evaluation)
        lines = [line for line in summary(run)["warnings"] if "below the baseline" in line]
        assert len(lines) == below
        assert all("the model mlp" in line and evaluation["simple"]["models"][0]["name"] in line for line in lines)
    best = evaluation["simple"]["models"][0]
    for high, overlap in ((best["low"] + 0.01, True), (best["low"] - 0.01, False)):
        evaluation["metrics"]["accuracy"] = {"value": best["low"] - 0.05, "low": 0.5, "high": high}
        write_json(run.folder / "evaluation.json", evaluation)
        assert any("intervals overlap" in line for line in summary(run)["warnings"]) == overlap


def test_a_language_model_is_held_against_n_grams(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("she sells sea shells by the sea shore. " * 60)
    given = {"max_steps": 2, "threads": 1, "tensorboard": False, "length": 16, "tokenizer": "characters"}
    run = train_model("rnn", str(tmp_path / "text.txt"), given, out=tmp_path / "run")
    score_baselines(run)
    (only,) = read_json(run.folder / "evaluation.json")["simple"]["models"]
    data = run.data()
    (expected,) = baselines_for(data, run.task)
    split = data.splits["test"]
    assert split.target is not None
    value = run.task.metrics(expected.fit(data).outputs(split), split.target)["loss"].value
    assert only["name"] == "n-grams"
    assert only["value"] == pytest.approx(value)
    assert any("below the baseline" in line for line in summary(run)["warnings"])


def test_a_tagger_is_held_against_the_most_frequent_tag_and_suffixes(tmp_path: Path) -> None:
    sentences = [
        [("the", "D"), (f"{word}ing", "V"), (f"{word}s", "N")] for word in ("walk", "sing", "play", "swim")
    ] * 8
    lines = ["\n".join(f"{word} {tag}" for word, tag in sentence) for sentence in sentences]
    (tmp_path / "train.conll").write_text("\n\n".join(lines) + "\n")
    given = {"epochs": 1, "threads": 1, "tensorboard": False, "lr": 1e-6}
    run = train_model("rnn", str(tmp_path / "train.conll"), given, out=tmp_path / "run")
    baseline, data = tag_baseline(run.task.target), run.data()  # type: ignore[attr-defined]
    fitted, split = baseline.fit(data), data.splits["test"]
    targets = padded_targets(split)
    assert run.task.metrics(fitted.outputs(split), targets)["accuracy"].value == 1.0
    names = run.task.target.names  # type: ignore[attr-defined]
    new = data.preprocessing.labelled(str(written(tmp_path / "new.conll", "the D\nrunning V\nruns N\nthe N\n")))
    kept = fitted.outputs(new)
    assert [names[int(k)] for k in kept[0, :, 0]] == ["D", "V", "N", "D"]
    many = sum(len(data.splits["train"].row(i) or {}) for i in range(len(data.splits["train"])))  # "the" in each
    p = (many + 1 / 3) / (many + 1)
    assert kept[0, 0, 2].item() == pytest.approx(p)
    assert kept[0, 3, 1].item() == pytest.approx(-np.log((1 / 3) / (many + 1)), rel=1e-4)
    score_baselines(run)
    (only,) = read_json(run.folder / "evaluation.json")["simple"]["models"]
    assert (only["name"], only["value"]) == ("most frequent tag", 1.0)
    assert any("below the baseline" in line for line in summary(run)["warnings"])


def written(path: Path, text: str) -> Path:
    """The path of a file with this text."""
    path.write_text(text)
    return path


def test_what_takes_too_long_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained("softmax", "wine", tmp_path / "run", 3_600.0)
    timed = iter([0.0, 0.0, 0.0])  # for the first model alone

    def expected(*_: object) -> float:
        return next(timed, 1e9)

    monkeypatch.setattr("cutaway.experiments.compare.baselines._expected_seconds", expected)
    score_baselines(run)
    simple = read_json(run.folder / "evaluation.json")["simple"]
    assert [one["name"] for one in simple["models"]] == ["nearest neighbors"]
    assert simple["left_out"] == ["linear model", "random forest", "gradient boosting"]
    page = str(build_report(read_documents(run.folder))["views"][0]["drawings"])
    assert "Not fitted, to save time: linear model, random forest, gradient boosting." in page


def test_data_that_is_gone_is_no_error(tmp_path: Path) -> None:
    rows = ["a,b,kind", *(f"{i},{i % 7},{'xy'[i % 2]}" for i in range(60))]
    (tmp_path / "some.csv").write_text("\n".join(rows))
    train_model(
        "softmax", str(tmp_path / "some.csv"), {"epochs": 1, "target": "kind", "threads": 1}, out=tmp_path / "run"
    )
    write_json(tmp_path / "run" / "run.json", {**read_json(tmp_path / "run" / "run.json"), "seconds": 3_600.0})
    (tmp_path / "some.csv").unlink()
    score_baselines(Run(tmp_path / "run"))
    assert "simple" not in read_json(tmp_path / "run" / "evaluation.json")


def test_a_fit_takes_what_the_last_two_say() -> None:
    assert _expected_seconds([], 32) == MIN_SECONDS
    assert _expected_seconds([(32, 0.5), (128, 0.5)], 512) == pytest.approx(
        MARGIN * 0.5
    )  # it is the same for any number
    assert _expected_seconds([(100, 1.0), (200, 2.0)], 800) == pytest.approx(MARGIN * 8)  # it is in proportion
    assert _expected_seconds([(32, 0.5), (128, 0.1)], 512) == pytest.approx(MARGIN * 0.1)  # the first was slow to begin


# --- not better than a trivial baseline -------------------------------------------------------------------------------


def outcome(actual: np.ndarray, said: np.ndarray, classes: int = 2) -> dict[str, Any]:
    """What is found of predictions of classes, whose training targets are the actual ones."""
    task, target = Classification(Classes(tuple("abcdefghij"[:classes]), "kind")), torch.from_numpy(actual)
    outputs = torch.nn.functional.one_hot(torch.from_numpy(said), classes).float()
    compared = {"baseline": task.baseline(target, target)}
    found = baseline_test(task, outputs, target, target, task.metrics(outputs, target), compared)
    assert found is not None
    return found


@pytest.mark.parametrize("prior", [(0.5, 0.5), (0.95, 0.05), (0.6, 0.1, 0.1, 0.1, 0.1)])
@pytest.mark.parametrize("count", [40, 120])
def test_models_without_skill_rarely_pass_and_collapsed_ones_never(prior: tuple[float, ...], count: int) -> None:
    rng, classes = np.random.default_rng(0), len(prior)
    actual = [y for y in (rng.choice(classes, count, p=prior) for _ in range(48)) if len(set(y)) > 1][:40]
    for guess in (prior, np.full(classes, 1 / classes)):
        passed = sum(outcome(y, rng.choice(classes, count, p=guess), classes)["better"] for y in actual)
        assert passed <= 6  # 5 % of 40, with three standard deviations
    collapsed = [outcome(y, np.zeros(count, int), classes) for y in actual]
    assert all(not one["better"] and one["only"] == "a" for one in collapsed)
    skilled = [outcome(y, np.where(rng.random(count) < 0.9, y, 0), classes)["better"] for y in actual]
    assert count * min(prior) < 6 or sum(skilled) >= 36


def test_a_rare_class_that_is_found_at_the_cost_of_accuracy_is_skill() -> None:
    actual = np.repeat([0, 1], [190, 10])
    said = np.concatenate([np.repeat([0, 1], [160, 30]), np.ones(10, int)])  # 85 % accuracy, the baseline has 95 %
    assert outcome(actual, said)["better"]
    assert not outcome(actual, said[::-1].copy())["better"]


def test_classes_have_equal_parts_of_the_balanced_accuracy_that_is_tested() -> None:
    actual = np.repeat([0, 1, 2], [90, 90, 10])
    said = np.concatenate([np.tile([0, 1], 45), np.tile([0, 1], 45), np.repeat(2, 10)])
    said[:20], said[90:110] = 1, 0  # below chance in two classes, and right in the rare one
    assert independence_p_value(actual, said) < 0.005
    assert (said == actual).mean() < 0.5
    said = np.concatenate([np.repeat([0, 1], [60, 30]), np.repeat([0, 1], [30, 60]), np.tile([0, 1], 5)])
    assert independence_p_value(actual, said) < 0.005  # and of two classes without the rare one


def test_one_predicted_class_is_no_skill_even_if_it_beats_the_class_of_training() -> None:
    task = Classification(Classes(("a", "b"), "kind"))
    train, actual = torch.tensor([0] * 60 + [1] * 40), torch.tensor([0] * 10 + [1] * 90)
    outputs = torch.tensor([[0.0, 1.0]]).expand(100, 2)
    compared = {"baseline": task.baseline(train, actual)}
    found = baseline_test(task, outputs, actual, train, task.metrics(outputs, actual), compared)
    assert found == {"better": False, "only": "b"}


def test_independence_is_fishers_exact_test() -> None:
    rng = np.random.default_rng(3)
    for skill in (0.0, 0.1, 0.3):
        actual = (rng.random(80) < 0.1).astype(int)
        said = np.where(rng.random(80) < skill, actual, (rng.random(80) < 0.3).astype(int))
        table = [[((actual == i) & (said == j)).sum() for j in (1, 0)] for i in (1, 0)]
        expected = fisher_exact(table, alternative="greater")[1]
        assert independence_p_value(actual, said) == pytest.approx(expected, abs=0.05)
    actual, said = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 2])
    recall = [((said == k) & (actual == k)).sum() / (actual == k).sum() for k in range(3)]
    every = [np.array(order) for order in itertools.permutations(said)]
    at_least = [
        sum(((order == k) & (actual == k)).sum() / (actual == k).sum() for k in range(3)) >= sum(recall) - 1e-9
        for order in every
    ]
    assert independence_p_value(actual, said) == pytest.approx(np.mean(at_least), abs=0.03)


def test_many_examples_are_tested_by_the_normal_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    actual = rng.choice(3, 3000, p=[0.6, 0.3, 0.1])
    said = np.where(rng.random(3000) < 0.02, actual, rng.choice(3, 3000))
    permuted = independence_p_value(actual, said)
    monkeypatch.setattr("cutaway.statistics.classes.MAX_PERMUTED", 100)
    assert independence_p_value(actual, said) == pytest.approx(permuted, abs=0.02)


def test_numbers_tags_and_tokens_are_compared_example_by_example() -> None:
    rng = np.random.default_rng(5)
    actual = torch.from_numpy(rng.normal(size=60)).float()
    regression = Regression(Value("price", 0.0, 1.0))
    for noise, better in ((0.5, True), (3.0, False)):
        outputs = actual[:, None] + noise * torch.from_numpy(rng.normal(size=(60, 1))).float()
        compared = {"baseline": regression.baseline(actual, actual)}
        metrics = regression.metrics(outputs, actual)
        found = baseline_test(regression, outputs, actual, actual, metrics, compared)
        assert found is not None
        assert found["better"] is better
    tokens = torch.from_numpy(rng.choice(4, (12, 9), p=[0.7, 0.1, 0.1, 0.1]))
    tokens[3, 5:] = IGNORED
    language = Language(NextToken(4))
    logits = torch.nn.functional.one_hot(tokens.clamp(min=0), 4).float()
    for scale, better in ((4.0, True), (0.0, False)):
        kept = language.summarize_outputs(scale * logits, tokens)
        own, other = language.paired_with_baseline(kept, tokens, tokens)
        counts = torch.bincount(tokens[tokens != IGNORED], minlength=4) + 1.0
        by_hand = -(counts / counts.sum()).log()[tokens.clamp(min=0)].where(tokens != IGNORED, 0.0).sum(1)
        assert torch.allclose(other.float(), by_hand, atol=1e-5)
        assert own.sum().item() == pytest.approx(kept[..., 0].nansum().item(), rel=1e-5)
        metrics, compared = language.metrics(kept, tokens), {"baseline": language.baseline(tokens, tokens)}
        found = baseline_test(language, kept, tokens, tokens, metrics, compared)
        assert found is not None
        assert found["better"] is better


def test_a_collapsed_run_is_told_in_one_line_with_the_settings_to_try(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{x:.3f},{'yes' if i % 20 == 0 else 'no'}" for i, x in enumerate(rng.normal(size=400))]
    (tmp_path / "rare.csv").write_text("\n".join(["x,kind", *rows]))
    given = {"target": "kind", "epochs": 30, "threads": 1, "tensorboard": False, "lr": 0.01}
    run = train_model("softmax", str(tmp_path / "rare.csv"), given, out=tmp_path / "run")
    (line,) = summary(run)["warnings"]
    assert "majority-class baseline ('no')" in line
    assert "balanced accuracy 50" in line
    assert "the model predicts 'no' for every example" in line
    assert "class_weights=balanced, sampling=balanced, monitor=balanced_accuracy" in line
    assert sum(line in shown.replace("[yellow]", "").replace("[/]", "") for shown in result_lines(run)) == 1
    drawings = build_report(read_documents(run.folder))["views"][0]["drawings"]
    assert [line] in [drawing.get("sentences") for drawing in drawings]
    assert line in str(run)
    for setting in ("class_weights=balanced", "sampling=balanced", "monitor=balanced_accuracy"):
        key, _, value = setting.partition("=")
        assert key in {f.name for f in dataclasses.fields(TrainSettings)}  # and it can be trained with
        build(TrainSettings, {key: value})
    given = {"epochs": 20, "threads": 1, "tensorboard": False, "lr": 0.05}
    assert summary(train_model("softmax", "wine", given, out=tmp_path / "good"))["warnings"] == []
