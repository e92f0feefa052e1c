"""Thoughts as drawn: every step of the search, judged, and what the network computed as it wrote it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import cutaway
from cutaway.core.errors import SettingError, UnknownName
from cutaway.core.spec import Solution, TextSpec
from cutaway.data.dataset_base import IGNORED
from cutaway.data.text.puzzles import END, FIRST, Addition, Countdown, PuzzlePreprocessing, PuzzleSplit
from cutaway.draw.html_page import render_page
from cutaway.inference.language_model_thinker import solution_form, think
from cutaway.inference.thought_search import Method
from cutaway.models.registry import create_model, preset
from cutaway.views import problem_solving as view_of
from cutaway.views.inspect_page import build_page
from cutaway.views.problem_solving import Step, search_steps, trace_drawing, trace_text
from cutaway.views.registry import suitable_views
from cutaway.views.subject import Subject, open_model, with_examples

from ..reports.opened import Opened

PROBLEMS = ["4 9 10 13 => 24", "3 8 => 24", "1 2 3 4 => 24"]
METHODS = [
    Method("greedy"),
    Method("tree", breadth=2, proposals=6),
    Method("depth-first", threshold=0.2, budget=6),
    Method("consistency", samples=6, temperature=1.5),
]


def preprocessing_of(kind: Any, *forms: str) -> PuzzlePreprocessing:
    size = len(kind.vocabulary) + FIRST
    return PuzzlePreprocessing(TextSpec(size, 60, Solution(size, problem=kind.name, forms=forms)))


PREPROCESSING = preprocessing_of(Countdown(), "steps", "tree")


def made(preprocessing: PuzzlePreprocessing, problems: list[str], steps: int) -> Any:
    """A model that was trained for a second on some problems: it writes lines that look like steps."""
    torch.manual_seed(0)
    size = preprocessing.spec.vocab_size
    model: Any = create_model("gpt2", vocab_size=size, context_length=60, dim=32, layers=2, heads=2, dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    split = PuzzleSplit(preprocessing, problems, preprocessing.forms)
    for seed in range(steps):
        (batch,) = split.batches([torch.arange(len(split))], seed=seed)
        loss = F.cross_entropy(model(*batch.inputs).flatten(0, 1), batch.target.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.double().eval()


@pytest.fixture(scope="module")
def model() -> Any:
    return made(PREPROCESSING, PROBLEMS, 80)


def opened(model: Any, preprocessing: PuzzlePreprocessing, *problems: str, **options: str) -> Subject:
    bare = Subject(model, preset("gpt2"), (), preprocessing=preprocessing, options=options)
    split = preprocessing.examples(problems or ["4 9 10 13"])
    return with_examples(bare, split, range(len(split)))


@pytest.fixture
def subject(model: Any) -> Subject:
    return opened(model, PREPROCESSING, "4 9 10 13", "1 2 3 4")


def grown(model: Any, method: Method, problem: str = PROBLEMS[0]) -> tuple[Any, list[Step]]:
    (found,) = think(model, PREPROCESSING, [problem], method)
    return found, search_steps(found, PREPROCESSING.in_form(solution_form(PREPROCESSING, method)), method)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.method)
def test_steps_are_all_that_was_proposed_each_after_its_own(model: Any, method: Method) -> None:
    found, steps = grown(model, method)
    texts = {id(thought): "" for thought in found.thoughts}
    for step in steps:
        texts[id(step.thought)] += PREPROCESSING.words(step.tokens)
        assert step.parent is None or step.parent.number < step.number
        asked = PREPROCESSING.encode(PREPROCESSING.kind.ask(PROBLEMS[0], solution_form(PREPROCESSING, method)))
        assert step.before == (asked if step.parent is None else [*step.parent.before, *step.parent.tokens])
    assert texts == {id(thought): thought.text for thought in found.thoughts}
    answer = "".join(PREPROCESSING.words(step.tokens) for step in steps if step.path)
    assert answer == found.solution
    last = [s for s in steps if s.path and (s.tokens[-1] == END or Countdown().ended(s.text))]
    assert len(last) == (found.best is not None)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.method)
def test_the_text_read_at_once_gives_what_was_written(model: Any, method: Method) -> None:
    found, steps = grown(model, method)
    preprocessing = PREPROCESSING.in_form(solution_form(PREPROCESSING, method))
    total = {id(thought): 0.0 for thought in found.thoughts}
    for step in steps:
        total[id(step.thought)] += float(trace_text(model, step.before, step.tokens, preprocessing).own().sum())
    for thought in found.thoughts:  # whose log p was summed as it was written, from a cache
        assert total[id(thought)] == pytest.approx(thought.log_p, rel=1e-9, abs=1e-9)


def test_a_step_shows_the_weights_and_probabilities_before_each_token(model: Any) -> None:
    step = grown(model, METHODS[1])[1][-1]
    assert step.parent is not None
    ids = torch.tensor([[*step.before, *step.tokens]])
    with cutaway.inspect.capture(model, "attention") as seen, torch.no_grad():
        logits = model(ids)[0]
    preprocessing = PREPROCESSING.in_form(solution_form(PREPROCESSING, METHODS[1]))
    if preprocessing.form == "tree":  # a question stands in place of a line end
        ends = [PREPROCESSING.ids["\n"], PREPROCESSING.ids["?"]]
        logits[:, ends[0]] = logits[:, ends].logsumexp(1)
    logits[:, PREPROCESSING.never] = -torch.inf
    names, n = PREPROCESSING.names, len(step.before)
    drawn = trace_drawing(
        trace_text(model, step.before, step.tokens, preprocessing), names, ["blocks.1.attention"], "t"
    )
    read, written = drawn["items"]
    assert read["tokens"] == [names[i] for i in ids[0, :-1].tolist()]
    assert written["tokens"] == [names[i] for i in step.tokens]
    p = logits.softmax(1)
    for k, token in enumerate(step.tokens):
        assert written["values"][k] == pytest.approx(float(p[n - 1 + k, token]), abs=1e-4)
        assert (names[token], pytest.approx(float(p[n - 1 + k, token]), rel=0.01)) in map(tuple, drawn["likely"][k])
        name, value = drawn["likely"][k][0]
        assert value >= float(p[n - 1 + k].max()) * 0.99 or name == names[token]
    whole = {name: x[0] for name, x in seen["attention"].items()}
    means, heads = [whole[f"blocks.{k}.attention"].mean(0) for k in (0, 1)], whole["blocks.1.attention"]
    expected = {
        "mean of all heads": (means[0] + means[1]) / 2,
        "blocks.0.attention, mean of 2 heads": means[0],
        "blocks.1.attention, head 0": heads[0],
        "blocks.1.attention, head 1": heads[1],
    }
    assert [one["name"] for one in drawn["maps"]] == list(expected)
    for one in drawn["maps"]:
        for k, row in enumerate(one["weights"]):
            known = n + k  # tokens that were there
            assert row[known:] == [None] * (len(step.tokens) - 1 - k)
            found = torch.tensor(row[:known], dtype=torch.float64)
            torch.testing.assert_close(found, expected[one["name"]][n - 1 + k, :known], rtol=0, atol=6e-4)


def test_what_is_true_is_computed(model: Any) -> None:
    """By doing the steps again, and trying all that could follow, in a way of its own."""

    def leads(numbers: list[int]) -> bool:
        if len(numbers) == 1:
            return numbers == [24]
        for i, a in enumerate(numbers):
            for j, b in enumerate(numbers):
                rest = [c for k, c in enumerate(numbers) if k not in (i, j)]
                made = [a + b, a * b, a - b] + ([a // b] if b and a % b == 0 else [])
                if i != j and any(0 <= c <= 400 and leads([*rest, c]) for c in made):
                    return True
        return False

    seen = set()
    for method in METHODS:
        for problem in PROBLEMS:
            _, steps = grown(model, method, problem)
            states: dict[int, tuple[list[int], bool]] = {}
            for step in steps:
                before, right = states.get(id(step.parent), (list(map(int, problem.split(" =>")[0].split())), True))
                found = Countdown().judge("1 => 1", "steps", step.text)  # a way to see whether it is a step at all
                if "is not a step" in found.why or not step.text:
                    assert step.truth == "wrong"
                    states[id(step)] = before, False
                    continue
                sum_, _, left = step.text.removesuffix(")").partition(" (left: ")
                a, sign, b, _, c = sum_.split()
                rest = list(before)
                own = all(rest.remove(int(x)) is None if int(x) in rest else False for x in (a, b))
                value = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}.get(sign)
                value = (int(a) / int(b) if int(b) else None) if sign == "/" else value
                own = own and value == int(c) and sorted([*rest, int(c)]) == sorted(map(int, left.split()))
                after = list(map(int, left.split()))
                states[id(step)] = after, own and right
                is_tree = solution_form(PREPROCESSING, method) == "tree"
                ended = step.tokens[-1] == END or (is_tree and Countdown().ended(step.text))
                if not own:
                    expected = "wrong"
                elif not right:
                    expected = "after"
                elif ended:
                    expected = "solved" if after == [24] else "wrong"
                else:
                    expected = "open" if leads(after) else "dead"
                assert step.truth == expected, (problem, step.text, before)
                assert bool(step.why) is (expected == "wrong")
                seen.add(expected)
    assert {"wrong", "after", "solved"} <= seen


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.method)
def test_the_view_is_whole_and_leaves_the_model_as_it_was(subject: Subject, method: Method) -> None:
    before = {name: x.clone() for name, x in subject.model.state_dict().items()}
    random = torch.get_rng_state()
    options = {"method": method.method, "breadth": "2", "example": "1", "samples": "5"}
    found = view_of.draw_thoughts(dataclasses.replace(subject, options=options))
    assert found == view_of.draw_thoughts(dataclasses.replace(subject, options=options))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(x, before[name]) for name, x in subject.model.state_dict().items())
    assert not any(module._forward_hooks for module in subject.model.modules())
    json.dumps(found, allow_nan=False)
    tree, choice = found["drawings"]
    assert tree["question"] == PROBLEMS[2]
    assert {node["truth"] for node in tree["nodes"]} == {*tree["says"]}
    assert [node["name"] for node in tree["nodes"] if node["opens"]] != []
    assert {o["name"] for o in choice["options"]} == {node["name"] for node in tree["nodes"] if node["opens"]}
    assert tree["chosen"] == choice["options"][choice["start"]]["name"]
    for depth in {node["depth"] for node in tree["nodes"]}:
        column = [node for node in tree["nodes"] if node["depth"] == depth]
        assert len({node["place"] for node in column}) == len(column)
        if method.method == "tree":
            assert sum(node["kept"] for node in column) <= 2
            assert all(n["kept"] for n in column if n["place"] < sum(node["kept"] for node in column))
    for node in tree["nodes"]:
        parent = tree["nodes"][node["parent"]] if node["parent"] is not None else {"depth": 0, "born": 0}
        assert node["depth"] == parent["depth"] + 1
        assert node["born"] >= parent["born"]
    assert len(found["table"]["rows"]) == len(tree["nodes"])


def test_where_room_is_short_the_answer_and_what_was_kept_come_first(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_of, "NUMBERS", 9_000)
    found = view_of.draw_thoughts(subject)
    tree, choice = found["drawings"]
    shut = [node for node in tree["nodes"] if not node["opens"]]
    assert shut
    assert len(choice["options"]) < len(tree["nodes"])
    assert "can be opened: those of the answer" in found["summary"]
    assert not any(node["path"] for node in shut)
    wanted = tree["nodes"].index(shut[-1]) + 1
    found = view_of.draw_thoughts(dataclasses.replace(subject, options={"thought": str(wanted)}))
    assert found["drawings"][0]["chosen"] == shut[-1]["name"]
    monkeypatch.setattr(view_of, "HEADS", 3)
    names = lambda view: [one["name"] for one in view["drawings"][1]["options"][0]["drawings"][0]["maps"]]  # noqa: E731
    assert len(names(view_of.draw_thoughts(subject))) == 3
    of_one = dataclasses.replace(subject, options={"layer": "blocks.0.attention"})
    assert len(names(view_of.draw_thoughts(of_one))) == 4


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"method": "beam"}, SettingError, "Invalid method=beam: must be one of greedy"),
        ({"example": "7"}, SettingError, "from 0 to 1"),
        ({"thought": "400"}, SettingError, "Invalid thought=400"),
        ({"layer": "blocks.9.attention"}, UnknownName, "blocks.9.attention"),
        ({"breadth": "0"}, SettingError, "at least 1"),
        ({"breadth": "many"}, SettingError, "breadth"),
    ],
)
def test_invalid_settings_are_rejected_by_name(
    subject: Subject, options: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        view_of.draw_thoughts(dataclasses.replace(subject, options=options))


def test_sums_are_chains_and_no_other_run_has_thoughts() -> None:
    sums = preprocessing_of(Addition(), "reversed")
    model = made(sums, ["128+367", "005+006"], 30)
    subject = opened(model, sums, "128+367")
    found = view_of.draw_thoughts(subject)
    assert found["drawings"][0]["title"] == "1 chain"
    with pytest.raises(SettingError, match="needs a run that is trained to propose"):
        view_of.draw_thoughts(dataclasses.replace(subject, options={"method": "tree"}))
    assert "thoughts" in suitable_views(subject)
    assert subject.tokens(0) == ["reversed", *"128+367="]
    plain = create_model("gpt2", vocab_size=9, context_length=9, dim=8, layers=1, heads=1)
    assert "thoughts" not in suitable_views(open_model(plain, torch.zeros(1, 5, dtype=torch.int64)))


@pytest.mark.browser
def test_a_click_on_a_step_opens_it_and_the_list_marks_it(browser: Any, subject: Subject, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(render_page(build_page(subject, ["thoughts"])), encoding="utf-8")
    for width in (380, 1280):
        tab = Opened(browser, path, width)
        select = tab.tab.locator(".choice select").first
        names = select.locator("option").all_inner_texts()
        stage = tab.tab.locator("figure.thoughts .stage")
        assert tab.tab.evaluate("document.querySelectorAll('figure.thoughts .card.chosen').length") == 1
        second = names[1].split(": ", 1)[1]
        stage.locator("svg text.cell", has_text=second).first.click()
        tab.until("document.querySelector('.choice select').selectedIndex !== 0")
        chosen = select.evaluate("field => field.options[field.selectedIndex].text")
        assert chosen.split(": ", 1)[1] == second
        select.select_option(names[0])
        tab.until(f"document.querySelector('figure.tokens figcaption').textContent === 'Step {names[0].split(':')[0]}'")
        assert tab.tab.evaluate("document.querySelectorAll('figure.thoughts .card.chosen').length") == 1
        assert tab.wrong() == []
        assert tab.wider_than_window() == 0
        tab.tab.close()
