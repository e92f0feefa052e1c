"""Every view of every preset: whole, drawable, the same each time, and the model left as it was."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cutaway.draw
from cutaway.core.spec import KINDS as KINDS_OF_DATA
from cutaway.models.registry import presets
from cutaway.views import requirements
from cutaway.views.inspect_page import build_page, describe_view
from cutaway.views.registry import VIEWS, suitable_views, view_function
from cutaway.views.subject import Subject, open_model

from ..small import DIFFERENT, small
from .suited import ATTRIBUTED_WHOLE

DRAW = Path(cutaway.draw.__file__).parent
KINDS = {*re.findall(r'from "\./(\w+)\.js"', (DRAW / "kinds.js").read_text(encoding="utf-8")), "prose", "choice"}
MOST = 2_000_000  # letters of a view
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
)


def state_of(model: nn.Module) -> dict[str, Any]:
    """All of a model that a view could leave changed."""
    found: dict[str, Any] = {"training": [module.training for module in model.modules()]}
    for name, module in model.named_modules():
        found[f"hooks of {name}"] = [len(getattr(module, kind)) for kind in HOOKS]
        found[f"fields of {name}"] = sorted(key for key in vars(module) if not key.startswith("__"))
        found[f"methods of {name}"] = [
            key for key, value in vars(module).items() if callable(value) and key == "forward"
        ]
    for name, parameter in model.named_parameters():
        found[f"grad of {name}"] = (parameter.requires_grad, parameter.grad is None, parameter.is_leaf)
        found[f"hooks of {name}"] = len(parameter._backward_hooks or ())
    found["values"] = {name: x.clone() for name, x in model.state_dict().items()}
    return found


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Bit for bit."""
    values, others = before.pop("values"), after.pop("values")
    assert before == after
    assert values.keys() == others.keys()
    for name, x in values.items():
        assert torch.equal(x, others[name]), name


def drawings_in(drawings: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The drawings and those that can be chosen within them."""
    for drawing in drawings:
        yield drawing
        for option in drawing.get("options", ()) if drawing["kind"] == "choice" else ():
            yield from drawings_in(option["drawings"])


def assert_whole(name: str, view: dict[str, Any]) -> None:
    """Everything that a page needs of a view, in words and in JSON."""
    assert view["id"] == name
    text = json.dumps(view, allow_nan=False)
    assert len(text) < MOST, f"{len(text):,} letters"
    assert view["title"]
    assert view["title"][0] == view["title"][0].upper()
    for said in (view["says"], view["summary"]):
        assert said.strip() == said
        assert said.endswith((".", "…", "!", "?")), said
        assert "nan" not in re.findall(r"\w+", said), said
        assert "None" not in said, said
    width = len(view["table"]["columns"])
    assert width > 0
    assert all(len(row) == width for row in view["table"]["rows"])
    assert view["drawings"]
    for drawing in drawings_in(view["drawings"]):
        assert drawing["kind"] in KINDS
        assert drawing["kind"] == "prose" or drawing["title"] or drawing["label"]
        assert drawing["kind"] != "choice" or 0 <= drawing["start"] < len(drawing["options"])


def assert_explained(view: dict[str, Any], subject: Subject) -> None:
    """What an attribution has beside its maps: of which example, for which output, and whether they can be right."""
    assert subject.kind == "graph" or "of example 1" in view["says"]
    assert "The explained output is" in view["summary"]
    assert view["table"]["rows"]
    checks = next(drawing for drawing in view["drawings"] if drawing.get("title") == "Checks")
    assert all("add up" in words or "values" in words for _, words in checks["facts"])


# Of each family's file the first: twice the same is a matter of code, not of size.
FIRST = {module: name for name, module in reversed([(p.name, p.module) for p in presets().values()])}.values()


def brief(name: str) -> dict[str, str]:
    """The options of its views: of attributions one map, but for the presets that are asked for all; few steps."""
    return {} if name in ATTRIBUTED_WHOLE else {"method": "input_x_gradient", "steps": "2"}


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch's sums are the same to the last bit with one thread; with two, a batch of one example may differ."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", DIFFERENT)
def test_every_view_is_whole_the_same_twice_and_leaves_the_model_as_it_was(name: str) -> None:
    model, inputs = small(name)
    model.train()  # which a view must bring back, as opening has set it to evaluation
    subject = open_model(model, *inputs, options=brief(name))
    found = suitable_views(subject)
    assert {"network", "attribution"} <= set(found)
    before, random = state_of(model), torch.get_rng_state()
    given = [x.clone() for x in inputs]
    for view in found:
        described_once = describe_view(view, subject)
        assert_whole(view, described_once)
        if view == "attribution":
            assert_explained(described_once, subject)
        assert torch.equal(torch.get_rng_state(), random), f"{view} draws from the random state"
        assert_same(dict(before), state_of(model))
        assert all(torch.equal(a, b) for a, b in zip(given, inputs))
        if name in FIRST:
            assert describe_view(view, subject) == described_once, f"{view} is another one the second time"


@pytest.mark.parametrize("name", ["mlp", "lenet5-modern", "lstm", "gcn", "gpt2", "transformer-tiny"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_one_example_and_double_weights(name: str, dtype: torch.dtype) -> None:
    model, inputs = small(name, count=1, dtype=dtype)
    subject = open_model(model, *inputs, options=brief(name))
    for view in suitable_views(subject):
        assert_whole(view, describe_view(view, subject))


def test_padding_in_a_batch() -> None:
    model, (tokens, mask) = small("bert-base-uncased")
    mask = mask.clone()
    mask[1, 3:] = False
    subject = open_model(model, tokens.where(mask, 0), mask)
    for view in suitable_views(subject):
        assert_whole(view, describe_view(view, subject))


def test_a_page_has_a_head_and_the_views_in_their_order() -> None:
    model, inputs = small("lenet5-modern")
    subject: Subject = open_model(model, *inputs)
    page = build_page(subject)
    names = [view["id"] for view in page["views"]]
    assert names[0] == "opened"
    assert names[1:] == suitable_views(subject) == [name for name in VIEWS if name in names]
    assert all(view["read"] and view["misleads"] for view in page["views"][1:])


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_says_what_it_is(name: str) -> None:
    view = VIEWS[name]
    assert not view.says.startswith(" ")
    assert not view.says.endswith((".", " "))
    for words in (view.read, view.misleads):
        assert words.endswith(".")
        assert 120 < len(words) < 1000
    assert all(isinstance(key, str) and isinstance(what, str) for key, what in view.options.items())


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_needs_what_there_is(name: str) -> None:
    assert set(VIEWS[name].kinds) <= set(KINDS_OF_DATA)
    for need in VIEWS[name].needs:
        assert getattr(requirements, need).__doc__.startswith("Return whether")
    assert view_function(name).__module__.endswith(VIEWS[name].draw.rpartition(".")[0])


def test_only_drawn_views_are_imported() -> None:
    code = (
        "import sys, torch\n"
        "from cutaway.views.inspect_page import build_page\n"
        "from cutaway.views.subject import open_model\n"
        "page = build_page(open_model(torch.nn.Linear(3, 2), torch.zeros(4, 3)))\n"
        "loaded = {name.removeprefix('cutaway.views.') for name in sys.modules}\n"
        "others = {'attention', 'alignment', 'convolution', 'gates', 'positions', 'thoughts'}\n"
        "print(len(page['views']), sorted(loaded & others), 'backprop' in loaded)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"[4-9] \[\] True", found.stdout.splitlines()[-1])
