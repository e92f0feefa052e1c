"""How places are known: the numbers drawn are those that the model computes with."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import cutaway
from cutaway.nn.position import rotary
from cutaway.views import positions
from cutaway.views.registry import suitable_views
from cutaway.views.subject import Subject, open_model

from ..small import small
from .suited import suited


def opened(name: str) -> Subject:
    """A preset, small, with two random examples."""
    model, inputs = small(name)
    return open_model(model, *inputs)


KNOWS = suited("positions")


def drawing(view: Any, start: str) -> dict[str, Any]:
    """The first drawing whose title begins so."""
    return next(d for d in view["drawings"] if d["title"].startswith(start))


def test_who_is_told_of_places() -> None:
    assert {
        "gpt2",
        "bert-base-uncased",
        "roberta-base",
        "albert-base-v2",
        "bart-base",
        "t5-small",
        "vit-tiny/16",
    } <= set(KNOWS)
    assert {"transformer-tiny", "parallel-transformer"} <= set(KNOWS)
    assert not {"cnn-attention", "lstm", "resnet18", "gcn", "mlp", "seq2seq-gru"} & set(KNOWS)


@pytest.mark.parametrize("name", KNOWS)
def test_every_model_that_knows_places_is_drawn(name: str) -> None:
    subject = opened(name)
    before = subject.outputs()
    found = positions.draw_positions(subject)
    assert len(json.dumps(found, allow_nan=False)) < 1_000_000
    assert found["drawings"]
    assert found["table"]["rows"]
    assert torch.equal(subject.outputs(), before)
    assert not any(m._forward_hooks for m in subject.model.modules())


def test_a_table_begins_where_its_first_token_looks() -> None:
    model, inputs = small("roberta-base")
    found = positions.draw_positions(open_model(model, *inputs))
    first = model.config.first_position
    assert first > 0
    shown = drawing(found, "positions")["values"]
    assert shown[0][:4] == pytest.approx(model.positions.weight[first, :4].tolist(), rel=1e-3)


def test_likeness_is_the_cosine() -> None:
    model, inputs = small("gpt2")
    rows = model.positions.weight.detach()
    values = drawing(positions.draw_positions(open_model(model, *inputs)), "Cosine similarity of positions")["values"]
    expected = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=2)
    torch.testing.assert_close(torch.tensor(values), expected, atol=1e-3, rtol=1e-3)


def test_a_patch_is_most_like_itself() -> None:
    model = cutaway.create_model(
        "vit-tiny/16", image_size=40, patch_size=8, dim=48, layers=1, heads=2, ffn_dim=48, num_classes=3
    )
    found = positions.draw_positions(open_model(model, torch.zeros(1, 3, 40, 40)))
    maps = drawing(found, "Cosine similarity of each patch")["tiles"]
    assert [tile["label"] for tile in maps][:6] == [*(f"row 0, column {c}" for c in range(5)), "row 1, column 0"]
    for i, tile in enumerate(maps):
        flat = [value for row in tile["values"] for value in row]
        assert flat.index(max(flat)) == i
        assert max(flat) == pytest.approx(1)


@pytest.mark.parametrize("both", [True, False], ids=["encoder", "decoder"])
def test_the_bias_at_a_distance_is_what_is_added_to_the_score(both: bool) -> None:
    model, inputs = small("t5-small")
    name = "encoder_bias" if both else "decoder_bias"
    series = drawing(positions.draw_positions(open_model(model, *inputs)), name)["series"]
    added = model.get_submodule(name)(20, 20)[0].detach()  # (heads, T, S)
    assert len(series) == len(added)
    for head, one in enumerate(series):
        by_distance = dict(map(tuple, one["points"]))
        for distance in (-9, -3, -1, 0, *((1, 6) if both else ())):
            assert by_distance[distance] == pytest.approx(float(added[head, 10, 10 + distance]), rel=1e-3)
    assert max(x for x, _ in series[0]["points"]) == (64 if both else 0)


@pytest.mark.parametrize("heads", [4, 3])
def test_the_linear_bias_is_what_the_model_adds_to_its_scores(heads: int) -> None:
    model = cutaway.create_model(
        "parallel-transformer", positions="alibi", layers=1, heads=heads, dim=24, context_length=40, vocab_size=9
    )
    ids = torch.ones(1, 12, dtype=torch.int64)
    subject = open_model(model, ids, torch.ones_like(ids, dtype=torch.bool))
    added: list[torch.Tensor] = []
    block: Any = model.blocks[0]
    hook = block.attention.register_forward_pre_hook(
        lambda _, args, kwargs: added.append(kwargs["mask"]), with_kwargs=True
    )
    model(*subject.inputs)
    hook.remove()
    found = positions.draw_positions(subject)
    bias = drawing(found, "ALiBi: bias")["series"]
    weight = drawing(found, "ALiBi: factor")["series"]
    assert [one["name"] for one in bias] == [f"head {h}" for h in range(heads)]
    for head, (one, kept) in enumerate(zip(bias, weight)):
        by_distance, factor = dict(map(tuple, one["points"])), dict(map(tuple, kept["points"]))
        for distance in (-11, -4, -1, 0):
            own = float(added[0][0, head, 11, 11 + distance])
            assert by_distance[distance] == pytest.approx(own, rel=1e-3)
            assert factor[distance] == pytest.approx(float(torch.tensor(own).exp()), rel=1e-2)
    rows = {(at, what): value for _, at, what, value in found["table"]["rows"]}
    for head in range(heads):
        slope = rows[f"head {head}", "slope"]
        assert slope == pytest.approx(-float(added[0][0, head, 11, 10]))
        assert 2 ** -(1 / rows[f"head {head}", "distance that halves the weight, tokens"]) == pytest.approx(
            float(torch.tensor(-slope, dtype=torch.float64).exp())
        )
    assert "the slopes are fixed" in found["summary"]
    assert not any(d["title"].startswith("Rotation") for d in found["drawings"])


def test_no_position_encoding_has_no_view() -> None:
    def views(how: str) -> list[str]:
        model = cutaway.create_model("parallel-transformer", positions=how, layers=1, heads=2, dim=16, vocab_size=9)
        ids = torch.ones(1, 5, dtype=torch.int64)
        return suitable_views(open_model(model, ids, torch.ones_like(ids, dtype=torch.bool)))

    assert "positions" in views("alibi")
    assert "positions" not in views("none")


def test_rotations_are_those_of_queries_and_keys() -> None:
    model, inputs = small("parallel-transformer")
    subject = open_model(model, *inputs)
    found = positions.draw_positions(subject)
    d = model.config.dim // model.config.heads
    points = dict(map(tuple, drawing(found, "Product of two vectors of ones")["series"][0]["points"]))
    ones = torch.ones(1, 1, 1, d, dtype=torch.float64) / d**0.5
    for distance in (0, 1, 5):
        q, k = rotary(ones, torch.tensor([30])), rotary(ones, torch.tensor([30 - distance]))
        assert points[distance] == pytest.approx(float((q * k).sum()), rel=1e-3, abs=1e-4)
    assert points[0] == 1


def test_the_real_score_at_distance_nothing_is_the_models_own() -> None:
    subject = opened("parallel-transformer")
    found = positions.draw_positions(subject)
    from cutaway.views.attention_capture import capture_attention, single_example

    look = capture_attention(subject.model, single_example(subject.inputs, 0), lambda look: look)[0]
    own = float(look.products(0)[-1, -1]) * look.scale
    points = dict(map(tuple, drawing(found, "Score of a real query")["series"][0]["points"]))
    assert points[0] == pytest.approx(own, rel=1e-3)


@pytest.mark.parametrize("context", [1, 2, 3, 700], ids=lambda n: f"context-{n}")
def test_tables_of_any_length_are_drawn(context: int) -> None:
    model = cutaway.create_model("gpt2", layers=1, heads=2, dim=16, context_length=context, vocab_size=9)
    ids = torch.ones(1, 1, dtype=torch.int64)
    found = positions.draw_positions(open_model(model, ids, torch.ones_like(ids, dtype=torch.bool)))
    text = json.dumps(found, allow_nan=False)
    assert len(text) < 500_000
    if context == 700:
        assert "the first 64 of" in drawing(found, "positions")["title"]


def test_one_number_far_beyond_the_others_is_named_and_does_not_make_them_grey() -> None:
    model, inputs = small("gpt2")
    with torch.no_grad():
        model.positions.weight.normal_(std=0.02, generator=torch.Generator().manual_seed(0))
        plain = positions.draw_positions(open_model(model, *inputs))
        model.positions.weight[3, 5] = -4.0
    assert not {"low", "high"} & set(plain["drawings"][0])
    assert "is an outlier" not in plain["summary"]
    found = positions.draw_positions(open_model(model, *inputs))
    end = found["drawings"][0]["high"]
    assert 0.02 < end < 0.4
    assert found["drawings"][0]["low"] == -end
    assert "Dimension 5 of place 3 is an outlier, −4" in found["summary"]
