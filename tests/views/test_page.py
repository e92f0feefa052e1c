"""From a subject to a page, and the page in a notebook."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import cutaway
from cutaway.checkpoints.huggingface.folders import write_folder
from cutaway.core.errors import ModelError, UnknownName
from cutaway.draw.html_page import render_page
from cutaway.views import inspect_page as pages
from cutaway.views import requirements
from cutaway.views.inspect_page import _title as page_title
from cutaway.views.inspect_page import build_page, split_options
from cutaway.views.registry import VIEWS
from cutaway.views.subject import open_model, open_preset, open_run

from ..reports.opened import Opened


def test_options_go_where_they_are_known() -> None:
    names = ["network", "filters", "features"]
    assert split_options(names, {"layer": "c1"}) == {
        "network": {},
        "filters": {"layer": "c1"},
        "features": {"layer": "c1"},
    }
    assert split_options(names, {"filters.layer": "c1"})["features"] == {}
    assert split_options(["time"], {"of": "filters", "layer": "c1"}) == {"time": {"of": "filters", "layer": "c1"}}
    for wrong in ("laier", "network.layer", "nix.layer", "filters.nix"):
        with pytest.raises(UnknownName, match=re.escape(wrong)):
            split_options(names, {wrong: "1"})


def test_views_that_are_not_there_or_do_not_suit_are_rejected() -> None:
    subject = open_preset("mlp")
    with pytest.raises(UnknownName, match="Similar: network"):
        build_page(subject, ["netwrk"])
    with pytest.raises(ModelError, match=r"The view filters .* does not apply to mlp. Applicable views: network"):
        build_page(subject, ["filters"])


def test_of_a_page_of_one_view_no_other_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(subject: object) -> bool:
        raise AssertionError("another view was asked")

    needs = {need for view in VIEWS.values() for need in view.needs}
    for need in needs - {*VIEWS["backprop"].needs}:
        monkeypatch.setattr(requirements, need, never)
    subject = open_preset("mlp")
    assert [view["id"] for view in build_page(subject, ["backprop"])["views"]] == ["opened", "backprop"]
    with pytest.raises(AssertionError, match="another view"):
        build_page(subject)


def test_views_that_would_take_long_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = open_model(cutaway.create_model("lenet5-modern"))
    assert pages.costly_views(subject, ["network", "field", "attribution"]) == []
    monkeypatch.setattr(pages, "WORK", 1.0)
    assert pages.costly_views(subject, ["network", "field"]) == ["field"]
    page = build_page(subject)
    assert "field" not in [view["id"] for view in page["views"]]
    assert "Left out" in page["views"][0]["drawings"][0]["sentences"][-1]
    assert [view["id"] for view in build_page(subject, ["field"])["views"]] == ["opened", "field"]


def test_the_head_says_what_a_run_says_of_its_examples(tmp_path: Path) -> None:
    run = cutaway.train("softmax", "iris", epochs=2, tensorboard=False, out=tmp_path / "run")
    subject = open_run(run)
    head = build_page(subject, ["network"])["views"][0]
    said = run.task.predictions(subject.outputs())
    assert [row[1].split(", ")[0] for row in head["table"]["rows"]] == [next(iter(row.values())) for row in said]
    assert head["title"] == "Inside softmax, trained on iris"


@pytest.mark.parametrize(
    ("name", "settings", "title"),
    [
        ("softmax", {}, "Inside softmax"),
        ("resnet20", {"num_classes": 3}, "Inside ResNet (resnet20 with num_classes=3)"),
        ("lenet5-modern", {"in_channels": 3, "image_size": 28}, "Inside LeNet5Modern (lenet5-modern with "),
        ("distilbert-base", {"layers": 1, "dim": 24, "heads": 2}, "Inside Bert (distilbert-base with dim=24, layers=1"),
        ("gpt2-medium", {"layers": 1, "vocab_size": 90}, "Inside GPT2 (gpt2-medium with vocab_size=90 and layers=1)"),
    ],
)
def test_the_title_names_the_preset_that_it_is_or_is_nearest_to(name: str, settings: Any, title: str) -> None:
    with torch.device("meta"):  # nothing is computed
        model = cutaway.create_model(name, **settings)
    subjects = [open_model(model, torch.zeros(1))]
    subjects += [open_preset(name, settings)] if sum(p.numel() for p in model.parameters()) < 1e6 else []
    for subject in subjects:
        assert subject.preset.name == name
        assert page_title(subject).startswith(title)


def test_what_a_folder_says_it_holds_is_what_the_page_is_called(tmp_path: Path) -> None:
    model = cutaway.create_model("bert-base-uncased", layers=2, dim=24, heads=2, vocab_size=60, context_length=16)
    write_folder(model, "bert-base-uncased", tmp_path / "mini")
    look = cutaway.look(tmp_path / "mini", view="network")
    assert look.page["title"].startswith("Inside Bert (bert-base-uncased with ")
    assert "BERT: Pre-training of deep bidirectional Transformers" in look.page["views"][0]["summary"]


def test_a_run_is_called_by_its_preset_and_by_what_was_asked_to_be_other(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = cutaway.train("mlp", "xor", epochs=1, tensorboard=False, out=out, **{"model.hidden_dims": "3"})
    assert page_title(open_run(run)) == "Inside MLP (mlp with hidden_dims=3), trained on xor"


def test_a_page_of_a_graph_counts_its_nodes(tmp_path: Path) -> None:
    run = cutaway.train("gcn", "karate", epochs=2, tensorboard=False, out=tmp_path / "run")
    head = build_page(open_run(run), ["network"])["views"][0]
    assert "34 nodes" in head["says"].replace("\u202f", " ")
    assert all(row[1] for row in head["table"]["rows"])


@pytest.mark.browser
def test_a_notebook_shows_it_in_a_frame_that_can_do_nothing_else(browser: Any, tmp_path: Path) -> None:
    look = cutaway.look(cutaway.create_model("lenet5-modern"), torch.zeros(2, 1, 32, 32), view=["network", "gradients"])
    shown = look._repr_html_()
    assert 'sandbox="allow-scripts"' in shown
    assert html.unescape(shown.split('srcdoc="')[1].split('"></iframe>')[0]) == render_page(look.page)
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><title>n</title><body>{shown}<p>after</p></body>", encoding="utf-8")
    opened = Opened(browser, notebook)
    frame = opened.tab.frames[1]
    for _ in range(200):
        if frame.evaluate("document.querySelectorAll('figure .stage svg').length") >= 3:
            break
        opened.tab.wait_for_timeout(20)
    assert frame.evaluate("document.querySelectorAll('section.view').length") == 3
    assert frame.evaluate("document.querySelectorAll('figure .stage svg').length") >= 3
    assert opened.tab.evaluate("document.querySelector('iframe').clientHeight") > 400
    assert frame.evaluate("origin") == "null"  # it reads nothing of the notebook
    assert [url for url in opened.requests if not url.startswith(("data:", "about:", "file:"))] == []
    assert opened.complaints == []
    opened.tab.close()


@pytest.mark.browser
def test_blocks_open_by_click_and_by_keyboard(browser: Any, tmp_path: Path) -> None:
    path = cutaway.look("resnet20", view="network").save(tmp_path / "page.html")
    for width in (400, 1280):
        opened = Opened(browser, path, width)
        stage = opened.tab.locator("figure.tree .stage")
        before = stage.locator("svg").evaluate("svg => svg.clientHeight")
        stage.focus()
        opened.tab.keyboard.press("End")
        opened.tab.keyboard.press("Enter")
        opened.until(f"document.querySelector('figure.tree svg').clientHeight > {before}")
        assert "MACs" in stage.inner_text()
        opened.tab.keyboard.press("Enter")
        opened.until(f"document.querySelector('figure.tree svg').clientHeight === {before}")
        stage.locator("svg text", has_text="layer1").first.click()
        opened.until(f"document.querySelector('figure.tree svg').clientHeight !== {before}")
        assert opened.wrong() == []
        assert opened.wider_than_window() == 0
        opened.tab.close()
