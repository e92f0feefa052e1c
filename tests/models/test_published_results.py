"""Published results: the scores of the cards, their sources, and how they are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

import cutaway
from cutaway.apps.cli import main
from cutaway.checkpoints.torchvision import FAMILIES
from cutaway.models.card import Card, PresetCard, Result
from cutaway.models.registry import presets
from cutaway.verify import OracleMissing
from cutaway.verify.libraries import torchvision_models

METRICS = {  # torchvision's names of its metrics
    "acc@1": "top-1 accuracy",
    "acc@5": "top-5 accuracy",
    "miou": "mIoU",
    "pixel_acc": "pixel accuracy",
    "box_map": "box AP",
}
BUILDERS = {name: builder for family in FAMILIES.values() for name, builder in family.builders.items()}
FROM_TORCHVISION = [
    (name, result)
    for name, preset in presets().items()
    for result in preset.card.published_results
    if result.source.startswith("torchvision")
]


def metadata(name: str, weights: str) -> Mapping[str, Any]:
    """Return the scores that torchvision states for weights of the builder of a preset, by data set."""
    module = {"deeplabv3-resnet50": "segmentation", "fcn-resnet50": "segmentation", "fcos-resnet50": "detection"}
    place = module.get(name, "video" if name == "r3d-18" else "")
    try:
        library = torchvision_models(place) if place else torchvision_models("alexnet")
    except OracleMissing as missing:
        pytest.skip(str(missing))
    import torchvision.models

    family, _, version = weights.partition(".")
    found = getattr(library if place else torchvision.models, family)[version]
    scores: Mapping[str, Any] = found.meta["_metrics"]
    return scores


@pytest.mark.parametrize(("name", "result"), FROM_TORCHVISION, ids=lambda x: x if isinstance(x, str) else x.source)
def test_results_of_torchvision_are_its_metadata(name: str, result: Result) -> None:
    (scores,) = metadata(name, result.source.removeprefix("torchvision, ")).values()
    assert dict(result.scores) == {METRICS[metric]: value for metric, value in scores.items()}
    family = result.source.removeprefix("torchvision, ").partition("_Weights")[0]
    assert family.lower().replace("_", "") == BUILDERS[name].rpartition(".")[2].lower().replace("_", "")


def test_every_network_of_imagenet_has_a_result() -> None:
    for family in (
        "alexnet",
        "vgg",
        "googlenet",
        "inception",
        "densenet1",
        "squeezenet",
        "mobilenet-v2",
        "convnext-tiny",
        "efficientnet",
        "nasnet-a-mobile",
        "nasnet-a-large",
    ):
        for name, preset in presets().items():
            if name.startswith(family):
                assert any(r.dataset == "ImageNet" for r in preset.card.published_results), name


@pytest.mark.parametrize("name", [name for name, preset in presets().items() if preset.card.published_results])
def test_a_result_has_a_protocol_and_a_source(name: str) -> None:
    results = presets()[name].card.published_results
    assert len({str(result.to_json()) for result in results}) == len(results)
    for result in results:
        assert result.scores
        assert result.protocol
        assert result.source.startswith(("the paper", "the author", "torchvision, ", "greydanus/", "Caffe", "DeiT"))
        if result.unit == "%":
            assert all(0 < value < 100 for value in result.scores.values())
        json.dumps(result.to_json())


def test_results_are_of_presets_of_their_file() -> None:
    for preset in presets().values():
        assert set(preset.module.CARD.results) <= set(preset.module.PRESETS), preset.module.__name__


def test_deeper_networks_of_a_family_have_lower_errors() -> None:
    def error(name: str, protocol: str) -> float:
        (found,) = (r for r in cutaway.card(name).published_results if r.protocol == protocol)
        return found.scores["top-1 error"]

    depths = ("resnet50-v1", "resnet101-v1", "resnet152-v1")
    for protocol in ("10 crops", "single crop"):
        errors = [error(name, protocol) for name in depths]
        assert errors == sorted(errors, reverse=True)
    assert all(error(name, "10 crops") < error(name, "single crop") for name in depths)


def test_the_papers_numbers_are_those_that_everybody_quotes() -> None:
    def scores(name: str) -> list[dict[str, float]]:
        return [dict(result.scores) for result in cutaway.card(name).published_results]

    assert {"BLEU": 28.4} in scores("transformer-big")
    assert {"BLEU": 41.8} in scores("transformer-big")
    assert {"BLEU": 27.3} in scores("transformer-base")
    assert {"top-1 error": 19.38, "top-5 error": 4.49} in scores("resnet152-v1")
    assert {"top-5 error": 6.67} in scores("googlenet-2014")
    assert {"error": 8.75} in scores("resnet20")
    assert scores("bert-base-uncased")[0]["average"] == 79.6
    assert scores("bert-large-uncased")[0]["average"] == 82.1
    assert scores("mlp") == []


@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-large-uncased", "distilbert-base"])
def test_the_average_of_glue_is_that_of_its_columns(name: str) -> None:
    tasks = dict(cutaway.card(name).published_results[0].scores)
    average = tasks.pop("average")
    assert len(tasks) == 9
    assert sum(tasks.values()) / 9 == pytest.approx(average, abs=0.05)


def test_show_prints_them_with_their_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "resnet50-v1"]) == 0
    shown = capsys.readouterr().out
    assert "published results with trained weights, not measured with Cutaway" in shown
    assert "top-1 error 22.85 %, top-5 error 6.71 % (10 crops; the paper, table 3)" in " ".join(shown.split())


@pytest.mark.parametrize("words", [["mlp"], ["resnet50-v1", "num_classes=10"]])
def test_show_prints_none_where_there_are_none(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", *words]) == 0
    assert "published results" not in capsys.readouterr().out
    assert main(["show", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["published_results"] == []


def test_list_prints_them_by_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "resnet152", "--published"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Convolutional networks (--family cnn) resnet152 ImageNet top-1 accuracy 78.312 %" in shown
    assert "5 published results of 2 models, not measured with Cutaway." in shown
    assert main(["list", "resnet152", "--published", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["resnet152", "resnet152", *["resnet152-v1"] * 3]
    assert rows[2]["scores"] == {"top-1 error": 21.43, "top-5 error": 5.71}
    assert rows[2]["source"] == "the paper, table 3"


def test_a_model_without_published_results_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "perceptron", "--published"]) != 0
    assert "no published result of 'perceptron'" in capsys.readouterr().err


def test_the_list_of_all_has_each_result_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--published", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == sum(len(preset.card.published_results) for preset in presets().values()) > 100


def test_a_preset_without_a_line_has_no_results() -> None:
    card = Card("t", "a", 2000, "l", "cnn", "e", "o", {}, results={"one": (Result("D", {"error": 1.5}, "p", "s"),)})
    assert PresetCard("two", card).published_results == ()
    assert str(*PresetCard("one", card).published_results) == "error 1.5 %"
