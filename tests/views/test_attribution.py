"""The view of attributions: for every preset, with its options, and with a concept."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import cutaway
from cutaway.checkpoints.huggingface.folders import write_folder
from cutaway.core.errors import CutawayError, DataError, SettingError, UnknownName
from cutaway.draw.number_format import number
from cutaway.inspect.attribution import METHODS
from cutaway.runs.run import Run
from cutaway.views import attribution
from cutaway.views.attribution import draw_attribution, single_example
from cutaway.views.registry import VIEWS
from cutaway.views.subject import Subject, open_model, open_preset, open_run, open_subject
from tests.small import small

KINDS = {"overlay", "tokens", "rows", "lines", "matrix", "prose"}


def opened(name: str, **options: str) -> Subject:
    model, inputs = small(name)
    return open_model(model, *inputs, options=options)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return cutaway.train("lenet5-modern", "digits", epochs=1, out=tmp_path_factory.mktemp("runs") / "digits")


def test_pictures_stand_side_by_side_over_the_example(run: Run) -> None:
    shown = draw_attribution(open_run(run))
    overlay = shown["drawings"][0]
    assert overlay["kind"] == "overlay"
    assert [item["label"] for item in overlay["items"]] == ["integrated gradients", "Grad-CAM", "occlusion"]
    assert overlay["image"].startswith("data:image/png")
    assert len(overlay["items"][0]["values"]) == 32
    cascade = next(d for d in shown["drawings"] if "random" in d.get("title", ""))
    assert all(series["points"][0] == [0, 1.0] for series in cascade["series"])


def test_a_map_that_fails_says_so_on_the_image(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from cutaway.inspect.attribution.explained_output import Entry
    from cutaway.inspect.attribution.result import AttributionMap, MethodSettings

    def brightness(entry: Entry, ask: MethodSettings) -> AttributionMap:
        values = entry.z.abs().sum(1)
        return AttributionMap(values, values.flatten(1).sum(1), based=False)

    monkeypatch.setitem(METHODS, "occlusion", brightness)
    shown = draw_attribution(open_run(run, options={"method": "occlusion"}))
    assert shown["drawings"][0]["items"][0]["warning"] == "Fails a check: the same with random weights"
    assert "fails a check" in shown["summary"]
    assert shown["table"]["rows"][0][-1] == "fails"


@pytest.mark.parametrize("method", list(METHODS))
def test_a_method_can_be_asked_for(method: str) -> None:
    name = {"edges": "gcn", "rollout": "vit-small/16"}.get(method, "lenet5")
    shown = draw_attribution(opened(name, method=method))
    assert len([d for d in shown["drawings"] if d["kind"] in ("overlay", "rows")]) >= 1
    assert method.split("_")[0] in str(VIEWS["attribution"].options["method"])


@pytest.mark.slow
def test_targets_are_outputs_names_and_places(run: Run) -> None:
    assert "the score of '7'" in draw_attribution(open_run(run, options={"target": "7"}))["says"]
    assert "output 3" in draw_attribution(opened("lenet5", target="3"))["says"]
    assert "'token 5' after token 3" in draw_attribution(opened("gpt2", target="2:5"))["says"]
    one = draw_attribution(opened("lenet5", example="1", method="gradient"))
    assert "parts of example 2 that increase" in one["says"]


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("lenet5", {"method": "gradcam"}, UnknownName, "grad_cam"),
        ("lenet5", {"target": "cat"}, SettingError, "target=cat"),
        ("lenet5", {"target": "99"}, SettingError, "target=99"),
        ("lenet5", {"example": "2"}, SettingError, "example=2"),
        ("lenet5", {"method": "grad_cam", "layer": "nowhere"}, UnknownName, "nowhere"),
        ("mlp", {"method": "grad_cam"}, CutawayError, "convolution"),
        ("lenet5", {"concept": "/nowhere"}, DataError, "run"),
        ("lenet5", {"method": "edges"}, CutawayError, "has no edges"),
        ("gpt2", {"method": "edges"}, CutawayError, "has no edges"),
    ],
)
def test_what_cannot_be_asked_is_rejected(
    name: str, options: dict[str, str], error: type[CutawayError], words: str
) -> None:
    with pytest.raises(error, match=words):
        draw_attribution(opened(name, **options))


@pytest.mark.slow
def test_padding_is_no_part_of_the_text_and_the_place_is_the_last_real_one() -> None:
    model, (tokens, mask) = small("gpt2")
    mask = mask.clone()
    mask[0, 4:] = False
    one, place = single_example(open_model(model, tokens, mask), 0)
    assert one.inputs[0].shape == (1, 4)
    assert place is None
    shown = draw_attribution(open_model(model, tokens, mask))
    assert len(shown["drawings"][0]["items"][0]["tokens"]) == 4
    assert "after token 4" in shown["says"]


@pytest.mark.parametrize("dtype", [torch.float64])
def test_weights_of_other_precision_and_one_example_alone(dtype: torch.dtype) -> None:
    model, inputs = small("mlp", count=1, dtype=dtype)
    assert draw_attribution(open_model(model, *inputs))["table"]["rows"]


def test_a_concept_given_as_a_folder(run: Run, tmp_path: Path) -> None:
    subject = open_run(run).others(200)
    assert subject is not None
    assert subject.target is not None
    ones = (subject.target == 1).nonzero().flatten().tolist()[:12]
    for k in ones:
        picture: Any = subject.image(k)
        picture.save(tmp_path / f"{k}.png")
    (tmp_path / ".hidden").write_text("not an example")
    shown = draw_attribution(open_run(run, options={"concept": str(tmp_path), "target": "1", "method": "gradient"}))
    tested = next(d for d in shown["drawings"] if "TCAV" in d.get("title", ""))
    facts = dict(tested["facts"])
    assert facts["concept"] == tmp_path.name
    assert {"TCAV", "layer", "p, two-sided", "verdict"} <= set(facts)
    assert "TCAV" in shown["summary"]
    with pytest.raises(DataError, match="folder"):
        draw_attribution(open_run(run, options={"concept": str(tmp_path / "nothing")}))
    with pytest.raises(SettingError, match="must be a folder of examples"):  # and not all that stands here
        draw_attribution(open_run(run, options={"concept": "", "method": "gradient"}))


def test_a_number_is_said_in_its_own_units_too(tmp_path: Path) -> None:
    found = cutaway.train("linear", "diabetes", epochs=1, out=tmp_path / "run", tensorboard=False)
    subject = open_run(found, options={"method": "gradient"})
    said = float(subject.task.predictions(subject.outputs()[:1])[0].popitem()[1])  # type: ignore[union-attr]
    assert f"which is {number(said)} in the units of the data" in draw_attribution(subject)["summary"]


def test_it_says_how_to_read_it_and_where_it_misleads() -> None:
    assert "baseline" in VIEWS["attribution"].read
    assert "Adebayo" in VIEWS["attribution"].misleads
    assert set(VIEWS["attribution"].options) == {"method", "target", "example", "layer", "concept"}


def test_variables_of_a_series_have_the_names_of_their_columns(tmp_path: Path) -> None:
    lines = [f"2024-01-{1 + i // 24:02} {i % 24:02}:00,{i % 7},{i % 5}" for i in range(300)]
    (tmp_path / "s.csv").write_text("\n".join(["time,visits,rain", *lines]), encoding="utf-8")
    kept = {"forecast": "visits", "horizon": 4, "epochs": 1, "tensorboard": False, "model.hidden_dim": 8}
    found = cutaway.train("gru", tmp_path / "s.csv", out=tmp_path / "run", **kept)
    shown = draw_attribution(open_run(found, options={"method": "gradient"}))
    assert {series["name"] for series in shown["drawings"][0]["series"]} == {"visits", "rain"}
    assert shown["says"].startswith("The parts of the forecast from 2024")


def test_of_an_untrained_answer_no_map_is_said_to_stand() -> None:
    preset = attribution.draw_attribution(open_preset("softmax"))
    assert "This model is untrained" in preset["summary"]
    assert "stand" not in preset["summary"].split("untrained")[1]
    assert any("random weights" in drawing.get("title", "") for drawing in preset["drawings"])
    trained = attribution.draw_attribution(dataclasses.replace(open_preset("softmax"), untrained=""))
    assert "untrained" not in trained["summary"]
    head = attribution.draw_attribution(dataclasses.replace(open_preset("softmax"), untrained="head"))
    assert "The head of this model is untrained" in head["summary"]


def test_a_folder_without_a_head_is_known_to_have_an_untrained_one(tmp_path: Path) -> None:
    model = cutaway.create_model("bert-base-uncased", layers=1, dim=8, heads=2, vocab_size=40, context_length=8)
    write_folder(model, "bert-base-uncased", tmp_path / "whole")
    assert open_subject(tmp_path / "whole").untrained == ""
    tensors = load_file(tmp_path / "whole" / "model.safetensors")
    (tmp_path / "bare").mkdir()
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    (tmp_path / "bare" / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    body = {name.removeprefix("bert."): tensor for name, tensor in tensors.items() if not name.startswith("cls.")}
    save_file(body, tmp_path / "bare" / "model.safetensors")
    assert open_subject(tmp_path / "bare").untrained == "head"
