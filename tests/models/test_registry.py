"""Finding models by name, and fitting them to data and to settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cutaway
from cutaway import models
from cutaway.core.errors import ModelError, SettingError, UnknownName
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec, NextToken, TableSpec, TextSpec
from cutaway.models.registry import list_models, preset, presets

IMAGES = ImageSpec(1, 28, 28, Classes(tuple("abcdefg")))
TABLE = TableSpec(("height", "weight"), Classes(("cat", "dog")))


def test_a_model_is_built_by_name_and_changed_by_keywords() -> None:
    model = cutaway.create_model("resnet20", num_classes=4, in_channels=1)
    assert model(torch.randn(1, 1, 16, 16)).shape == (1, 4)


def test_the_same_seed_gives_the_same_weights() -> None:
    first, second = [(torch.manual_seed(7), cutaway.create_model("resnet20"))[1] for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values()))


def test_an_unknown_name_is_rejected_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="resnet18"):
        cutaway.create_model("resnet81")
    with pytest.raises(UnknownName, match="num_classes"):
        cutaway.create_model("resnet18", num_class=3)


def test_a_value_of_the_wrong_type_is_rejected_by_name() -> None:
    with pytest.raises(SettingError, match="width=wide"):
        cutaway.create_model("resnet18", width="wide")


def test_models_are_listed_by_family_and_by_what_they_take() -> None:
    everything = cutaway.list_models()
    assert {"resnet18", "resnet110", "lenet5-modern"} <= set(cutaway.list_models(family="cnn")) <= set(everything)
    assert "resnet18" not in cutaway.list_models(takes="table")
    with pytest.raises(UnknownName, match=r"no family of models 'none such'\. Available: cnn, dense"):
        cutaway.list_models(family="none such")
    with pytest.raises(UnknownName, match=r"no kind of data 'tables'\. Similar: table"):
        cutaway.list_models(takes="tables")
    for open_ in (cutaway.create_model, cutaway.card, cutaway.look):
        with pytest.raises(cutaway.CutawayError, match=r"^Invalid (model|target) of type int: must be a "):
            open_(3)


def test_what_the_package_offers_is_what_one_sees() -> None:
    assert dir(cutaway) == sorted({"__version__", *cutaway.__all__})


def test_a_preset_fits_itself_to_data_and_what_was_asked_for_stays() -> None:
    found = presets()["resnet18"]
    assert found.configure(IMAGES).num_classes == 7
    asked = found.configure(IMAGES, {"num_classes": "7", "layers": "1,1,1,1"})
    assert (asked.num_classes, asked.in_channels, asked.layers) == (7, 1, (1, 1, 1, 1))


def test_a_model_that_cannot_take_the_data_says_which_can() -> None:
    with pytest.raises(ModelError, match=r"resnet18 takes image data, and this is table data.*mlp"):
        presets()["resnet18"].configure(TABLE)


def test_a_card_is_seen_by_preset() -> None:
    card = cutaway.card("resnet18")
    assert card.published_parameters == 11_689_512
    assert card.settings["optimizer"] == "momentum"
    assert cutaway.card("resnet20").settings["crop"] == 4


@pytest.mark.parametrize("name", presets())
def test_every_preset_can_be_built_and_keeps_its_config(name: str) -> None:
    found = presets()[name]
    assert build_on_meta(found, found.config).config == found.config


def test_a_model_file_that_is_not_complete_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unfinished.py").write_text("PRESETS = {'unfinished': 1}\nConfig = int\n")
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    try:
        with pytest.raises(ModelError, match=r"unfinished\.py has PRESETS and no Model and no CARD: it needs all"):
            presets.__wrapped__()
    finally:
        sys.modules.pop("cutaway.models.unfinished", None)


def test_a_model_is_found_without_importing_the_others() -> None:
    others = {"mlp": ("bert", "resnet"), "vit-base-16": ("mlp", "resnet"), "bert-base-uncased": ("mlp",)}
    say = (  # each in a process of its own, which begins with the registry alone
        "import os, sys; from cutaway.models.registry import preset\n"
        "for name in sys.argv[1:]:\n"
        "    if not os.fork(): preset(name); print(name, *sys.modules, flush=True); os._exit(0)\n"
        "    os.wait()"
    )
    words = [sys.executable, "-c", say, *others]
    imported = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[0] for line in imported] == [*others]
    for line, unasked in zip(imported, others.values()):
        assert not {f"cutaway.models.{other}" for other in unasked} & set(line.split())


def test_an_error_names_a_few_models_of_the_kind_and_the_command_that_lists_all() -> None:
    with pytest.raises(ModelError) as rejected:
        preset("gru").reject_kind("image")
    names = str(rejected.value).partition("These models take it: ")[2].partition(", …")[0].split(", ")
    assert len(names) == 8
    assert {"simplecnn", "lenet5"} <= set(names) <= set(list_models(takes="image"))
    assert "`cutaway list --takes image` lists all of this kind" in str(rejected.value)
    with pytest.raises(ModelError, match=r"takes sequence-pair \(seq2seq\) data, and this is video data.*: cnn-lstm"):
        preset("seq2seq-gru").reject_kind("video")


def test_a_way_out_is_looked_for_only_where_the_kind_is_rejected() -> None:
    asked: list[str] = []

    def find_way_out() -> str:
        asked.append("once")
        return "Give a column."

    preset("gru").reject_kind("series", find_way_out)
    assert not asked
    with pytest.raises(ModelError, match=r"this is image data. Give a column. These models take it as it is: "):
        preset("gru").reject_kind("image", find_way_out)
    assert asked == ["once"]


def test_a_model_of_classes_says_which_texts_have_classes() -> None:
    with pytest.raises(ModelError, match=r"next token: these .*give a table \(text=COLUMN target=COLUMN"):
        preset("textcnn").configure(TextSpec(29, 20, NextToken(29)))
