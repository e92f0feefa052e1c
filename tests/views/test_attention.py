"""Attention as drawn: the numbers are the model's own, whatever it attends to, and nothing stays behind."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
import torch
from torch import nn

import cutaway
from cutaway.core.errors import SettingError, UnknownName
from cutaway.nn.attention import MultiHeadAttention
from cutaway.views import attention
from cutaway.views.attention import arithmetic
from cutaway.views.attention_capture import AttentionCapture, capture_attention, num_heads_by_name, single_example
from cutaway.views.model_layers import attention_modules
from cutaway.views.subject import Subject, open_model

from ..small import small
from .suited import suited

ATTENDS = suited("attention")


def opened(name: str, dtype: torch.dtype = torch.float32, **options: str) -> Subject:
    """A preset, small, with two random examples."""
    model, inputs = small(name, dtype=dtype)
    return dataclasses.replace(open_model(model, *inputs), options=options)


def looks(subject: Subject, i: int = 0) -> list[AttentionCapture]:
    """All of them."""
    return capture_attention(subject.model, single_example(subject.inputs, i), lambda look: look)


def drawings(node: Any) -> list[dict[str, Any]]:
    """Every drawing, at any depth."""
    if isinstance(node, list):
        return [found for item in node for found in drawings(item)]
    if not isinstance(node, dict):
        return []
    inside = [found for option in node.get("options", []) for found in drawings(option["drawings"])]
    return [node, *inside]


def test_what_attends_is_known() -> None:
    assert len(ATTENDS) >= 13
    assert {"gpt2", "t5-small", "vit-tiny/16", "cnn-attention", "seq2seq-gru", "albert-base-v2"} <= set(ATTENDS)
    assert not {"gat", "lenet5", "lstm"} & set(ATTENDS)


@pytest.mark.parametrize("name", ATTENDS)
def test_every_model_that_attends_is_drawn(name: str) -> None:
    subject = opened(name)
    before = subject.outputs()
    found = attention.draw_attention(subject)
    text = json.dumps(found, allow_nan=False)
    assert len(text) < 2_000_000
    assert found["id"] == "attention"
    assert {"choice", "tiles", "equation"} <= {drawing["kind"] for drawing in drawings(found["drawings"])}
    assert len(found["table"]["rows"]) == sum(num_heads_by_name(subject.model).values())
    assert torch.equal(subject.outputs(), before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in subject.model.modules())


@pytest.mark.parametrize("name", ATTENDS)
def test_results_are_those_of_the_fused_layer(name: str) -> None:
    for look in looks(opened(name, torch.float64), 1):
        joined = look.results()
        if isinstance(look.module, MultiHeadAttention):
            joined = look.module.merge_heads(joined[None])
        torch.testing.assert_close(joined[0], look.output, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ATTENDS)
def test_weights_and_names_are_those_of_a_capture(name: str) -> None:
    subject = opened(name, torch.float64)
    with cutaway.inspect.capture(subject.model, "attention") as seen, torch.no_grad():
        subject.model(*single_example(subject.inputs, 0))
    mine = {look.name: look for look in looks(subject)}
    assert set(mine) == set(seen["attention"]) == set(num_heads_by_name(subject.model))
    for name, weights in seen["attention"].items():
        found = torch.stack([mine[name].weights(head) for head in range(mine[name].heads)])
        torch.testing.assert_close(found, weights[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["gpt2", "bert-base-uncased", "t5-small", "parallel-transformer", "vit-tiny/16"])
def test_the_arithmetic_adds_up(name: str) -> None:
    for look in looks(opened(name, torch.float64)):
        query = look.q.shape[1] - 1
        keys = [f"k{s}" for s in range(look.k.shape[1])]
        parts = {
            part["name"]: part
            for equation in arithmetic(look, 0, query, "asks", keys)
            for part in equation["parts"]
            if isinstance(part, dict)
        }
        shown = [keys.index(label) for label in parts["weights"]["columns"]]
        scores = torch.tensor([[float(v) if v is not None else -math.inf for v in parts["scores"]["values"][0]]])
        weights = look.weights(0)[query]
        assert parts["weights"]["values"][0] == pytest.approx(weights[shown].tolist(), rel=1e-3)
        if len(shown) == len(keys):
            assert torch.softmax(scores, 1)[0].tolist() == pytest.approx(weights.tolist(), rel=5e-3, abs=1e-4)
            values = torch.tensor(parts["V"]["values"], dtype=torch.float64)
            result = weights @ values
            assert parts["result"]["values"][0] == pytest.approx(result.tolist(), rel=1e-2, abs=1e-3)
        assert all(len(row) <= 12 for part in parts.values() for row in part["values"])


def test_the_result_of_the_arithmetic_is_the_heads_own() -> None:
    look = looks(opened("gpt2"))[0]
    equations = arithmetic(look, 1, 6, "asks", [str(s) for s in range(7)])
    result = equations[-1]["parts"][-1]["values"][0]
    assert result == pytest.approx(look.results()[1, 6, :8].tolist(), rel=1e-3, abs=1e-6)


def test_what_may_not_be_seen_is_empty() -> None:
    subject = opened("gpt2", query="2", layer="blocks.1.attention", head="1")
    found = drawings(attention.draw_attention(subject)["drawings"])
    sums = [d for d in found if d["kind"] == "equation" and d["title"] == "With the mask: the scores"]
    assert sums[0]["parts"][-1]["values"][0][3:] == [None] * 4
    tokens = next(d for d in found if d["kind"] == "tokens")
    assert tokens["query"] == 2
    assert all(sum(row) == pytest.approx(1, abs=0.01) for row in tokens["weights"])


def test_the_chosen_layer_and_head_are_open() -> None:
    layer = next(
        d
        for d in attention.draw_attention(opened("gpt2", layer="blocks.1.attention", head="2"))["drawings"]
        if d["kind"] == "choice"
    )
    option = layer["options"][layer["start"]]
    assert option["name"] == "blocks.1.attention"
    head = next(d for d in option["drawings"] if d["kind"] == "choice")
    assert head["options"][head["start"]]["name"] == "head 2"


def test_padding_is_left_out_and_changes_nothing() -> None:
    model, (ids, mask) = small("bert-base-uncased")
    padded = torch.cat([ids, torch.zeros(2, 3, dtype=torch.int64)], 1)
    seen = torch.cat([mask, torch.zeros(2, 3, dtype=torch.bool)], 1)
    plain, longer = (attention.draw_attention(open_model(model, *x)) for x in ((ids, mask), (padded, seen)))
    for a, b in zip(drawings(plain["drawings"]), drawings(longer["drawings"])):
        if a["kind"] == "matrix":
            assert a["columns"] == b["columns"]
            torch.testing.assert_close(torch.tensor(a["values"]), torch.tensor(b["values"]), atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"layer": "blocks.9.attention"}, UnknownName),
        ({"head": "12"}, SettingError),
        ({"head": "first"}, SettingError),
        ({"query": "7"}, SettingError),
        ({"query": "-1"}, SettingError),
        ({"example": "2"}, SettingError),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_options_that_cannot_be_are_rejected(options: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        attention.draw_attention(opened("gpt2", **options))


@pytest.mark.parametrize(("count", "length"), [(1, 1), (1, 16)], ids=["one-token", "full-context"])
def test_one_token_and_a_full_context_are_drawn(count: int, length: int) -> None:
    model, _ = small("gpt2")
    ids = torch.randint(1, 40, (count, length), generator=torch.Generator().manual_seed(0))
    found = attention.draw_attention(open_model(model, ids, torch.ones_like(ids, dtype=torch.bool)))
    assert json.dumps(found, allow_nan=False)


def test_a_deep_model_on_a_long_text_stays_small() -> None:
    model = cutaway.create_model("gpt2", layers=20, heads=8, dim=32, context_length=300, vocab_size=50)
    ids = torch.randint(1, 50, (1, 300), generator=torch.Generator().manual_seed(0))
    subject = open_model(model, ids, torch.ones_like(ids, dtype=torch.bool))
    found = attention.draw_attention(dataclasses.replace(subject, options={"layer": "blocks.7.attention"}))
    assert len(json.dumps(found)) < 2_000_000
    assert "12 of 20 layers are shown" in found["summary"]
    layer = next(d for d in found["drawings"] if d["kind"] == "choice")
    assert layer["options"][layer["start"]]["name"] == "blocks.7.attention"
    assert len(found["table"]["rows"]) == 160


def test_training_mode_and_hooks_are_as_they_were() -> None:
    subject = opened("gpt2")
    subject.model.train()
    attention.draw_attention(subject)
    assert all(module.training for module in subject.model.modules())

    class Fails(Exception):
        pass

    def see(look: AttentionCapture) -> None:
        raise Fails

    with pytest.raises(Fails):
        capture_attention(subject.model, single_example(subject.inputs, 0), see)
    assert all(module.training for module in subject.model.modules())
    assert not any(module._forward_hooks for module in subject.model.modules())


def test_entropy_and_distance_are_what_they_are_called() -> None:

    subject = opened("bert-base-uncased")
    for _, module in attention_modules(subject.model).items():
        nn.init.zeros_(module.get_parameter("qkv.weight")[: 2 * subject.config.dim])  # queries and keys say nothing
    row = attention.draw_attention(subject)["table"]["rows"][0]
    apart = (torch.arange(7)[:, None] - torch.arange(7)).abs().double().mean()
    assert row[3:6] == pytest.approx([math.log2(7), math.log2(7), float(apart)], rel=1e-4)
    assert row[6:] == pytest.approx([1 / 7, 1 / 7], rel=1e-4)


def test_a_series_read_in_patches_is_looked_at_variable_by_variable() -> None:
    torch.manual_seed(0)
    sizes = {"steps": 20, "in_features": 3, "horizon": 4, "num_classes": 8, "patch_size": 6, "stride": 4}
    model = cutaway.create_model("patchtst-small", **sizes)
    x = torch.randn(2, 20, 3)
    shown = []
    for variable in range(2):
        subject = open_model(model, x, options={"example": "1", "variable": str(variable)})
        view = attention.draw_attention(subject)
        assert f"In example 2, variable {variable}: 3 layers" in view["summary"]
        matrix = next(d for d in drawings(view["drawings"]) if d.get("title") == "Weights")
        assert matrix["rows"] == ["1 to 6", "5 to 10", "9 to 14", "13 to 18", "17 to 20"]
        shown.append(torch.tensor(matrix["values"]))
        with torch.no_grad(), cutaway.inspect.capture(model.eval(), "attention") as seen:
            model(x)
        held = seen["attention"]["blocks.0.attention"].unflatten(0, (2, 2))[1, variable, 0]
        torch.testing.assert_close(shown[-1], held, atol=2e-3, rtol=0)
    assert not torch.allclose(shown[0], shown[1])
    with pytest.raises(SettingError, match="Invalid variable=2"):  # the third is not forecast, and not read
        attention.draw_attention(open_model(model, x, options={"variable": "2"}))
