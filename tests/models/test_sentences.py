"""Networks for sentences: what their papers say of sizes, and that neither padding nor company changes an answer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, Tags, TextSpec, Value
from cutaway.inspect.layers import preset_layer_table
from cutaway.models import dcnn, textcnn
from cutaway.models.dcnn import batched_k_max
from cutaway.models.registry import create_model, preset
from cutaway.nn.textbook.pooling import dynamic_k, k_max
from cutaway.verify.compare import BOUND, compare
from cutaway.verify.text import summed_textcnn

from .contract import assert_keeps_the_contract

SMALL: dict[str, dict[str, Any]] = {
    "textcnn": {"vocab_size": 30, "dim": 6, "filters": 5},
    "dcnn": {"vocab_size": 30, "dim": 8, "feature_maps": (2, 3)},
    "collobert-window": {"vocab_size": 30, "dim": 6, "hidden_dim": 9, "num_classes": 4},
    "collobert-sentence": {"vocab_size": 30, "dim": 6, "hidden_dim": 9, "second": 7, "num_classes": 3},
}
NAMES = list(SMALL)


def small(name: str, **changes: Any) -> nn.Module:
    torch.manual_seed(0)
    return create_model(name, **{**SMALL[name], **changes}).double().eval()


def padded(sentences: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, sentences))
    tokens = torch.tensor([s + [0] * (longest - len(s)) for s in sentences])
    mask = torch.tensor([[True] * len(s) + [False] * (longest - len(s)) for s in sentences])
    return tokens, mask


@pytest.mark.parametrize("name", NAMES)
def test_the_contract(name: str) -> None:
    if name != "collobert-window":  # which answers for every word
        assert_keeps_the_contract(
            create_model(name, **SMALL[name]), torch.randint(1, 30, (4, 9)), SMALL[name].get("num_classes", 2)
        )
    else:
        assert small(name)(torch.randint(1, 30, (4, 9))).shape == (4, 9, 4)


words = st.lists(st.integers(1, 29), min_size=1, max_size=12)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(sentences=st.lists(words, min_size=1, max_size=5))
def test_a_sentence_alone_and_in_a_padded_batch_gives_the_same(name: str, sentences: list[list[int]]) -> None:
    model = small(name)
    together = model(*padded(sentences))
    for sentence, answer in zip(sentences, together):
        alone = model(torch.tensor([sentence]))[0]
        torch.testing.assert_close(answer[: len(sentence)] if name == "collobert-window" else answer, alone)


@pytest.mark.parametrize("name", NAMES)
def test_padding_tokens_do_not_change_the_output(name: str) -> None:
    tokens, mask = padded([[3, 4, 5], [7, 8, 9, 10, 11, 12]])
    model, other = small(name), tokens.where(mask, 17)
    real = mask if name == "collobert-window" else slice(None)
    assert torch.equal(model(tokens, mask)[real], model(other, mask)[real])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_k_max_with_a_k_for_each_is_k_max_one_by_one(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    kept = [data.draw(st.integers(1, n)) for n in lengths]
    seed = data.draw(st.integers(0, 99))
    x = torch.randint(-3, 4, (len(lengths), 2, 3, 8), generator=torch.Generator().manual_seed(seed)).double()
    pooled, real = batched_k_max(x, torch.tensor(lengths), torch.tensor(kept))
    for row, answer, mask, n, k in zip(x, pooled, real, lengths, kept):
        assert torch.equal(answer[..., :k], k_max(row[..., :n], k))
        assert mask.sum() == k
        assert not answer[..., k:].any()


def test_dcnn_keeps_what_the_paper_says_of_eighteen_words() -> None:
    seen = []
    model = small("dcnn", dim=16, feature_maps=(2, 2, 2), kernel_sizes=(3, 3, 3), k_top=3)
    for layer in model.layers:  # type: ignore[union-attr]
        layer.register_forward_hook(lambda m, args, out: seen.append(out.shape[-1]))
    model(torch.randint(1, 30, (1, 18)))
    assert seen == [12, 6, 3] == [dynamic_k(layer, 3, 18, 3) for layer in (1, 2, 3)]


@pytest.mark.parametrize("name", ["textcnn", "collobert-window", "collobert-sentence"])
def test_multiply_adds_are_those_of_the_sizes(name: str) -> None:
    found = preset(name)
    layers = preset_layer_table(found, found.config)
    assert layers.complete
    assert layers.multiply_adds == found.card.published_multiply_adds


@pytest.mark.parametrize("channels", ["static", "two-channel"])
def test_textcnns_other_channels_are_their_sums_too(channels: str) -> None:
    config = textcnn.Config(**{**SMALL["textcnn"], "channels": channels})
    model = textcnn.Model(config)
    found = compare(model, summed_textcnn(config), torch.Generator().manual_seed(0))
    assert found.outputs <= BOUND
    assert found.gradients <= BOUND
    still = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert still == {"embedding.weight" if channels == "static" else "static_embedding.weight"}


def test_textcnn_brings_long_weights_of_a_class_back_to_three() -> None:
    model = small("textcnn")
    with torch.no_grad():
        model.fc.weight[0].fill_(100.0)
        model.fc.weight[1].fill_(0.01)
        short = model.fc.weight[1].clone()
    model.constrain()
    assert model.fc.weight[0].norm().item() == pytest.approx(3.0, rel=1e-5)
    assert torch.equal(model.fc.weight[1], short)
    free = small("textcnn", max_norm=0.0)
    with torch.no_grad():
        free.fc.weight.fill_(100.0)
    free.constrain()
    assert (free.fc.weight == 100).all()


def test_what_the_data_asks_for_is_fitted_or_rejected() -> None:
    classes, tags = Classes(("bad", "good")), Tags(("N", "V", "O"))
    assert preset("textcnn").configure(TextSpec(50, 9, classes)).vocab_size == 50
    assert preset("collobert-window").configure(TextSpec(50, 9, tags)).num_classes == 3
    assert preset("collobert-sentence").configure(TextSpec(50, 9, classes)).num_classes == 2
    with pytest.raises(ModelError, match="take collobert-sentence"):
        preset("collobert-window").configure(TextSpec(50, 9, classes))
    with pytest.raises(ModelError, match="take collobert-window"):
        preset("collobert-sentence").configure(TextSpec(50, 9, tags))
    with pytest.raises(ModelError, match="textcnn does not learn what this text data asks for, tag"):
        preset("textcnn").configure(TextSpec(50, 9, tags))
    with pytest.raises(ModelError, match="collobert-sentence does not learn"):
        preset("collobert-sentence").configure(TextSpec(50, 9, Value("stars")))


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        ("textcnn", {"kernel_sizes": ()}, "kernel_sizes"),
        ("textcnn", {"channels": "both"}, "channels"),
        ("textcnn", {"vocab_size": 1}, "vocab_size"),
        ("dcnn", {"dim": 6}, "dim"),
        ("dcnn", {"k_top": 6}, "kernel_sizes"),
        ("dcnn", {"kernel_sizes": (7,)}, "kernel_sizes"),
        ("collobert-window", {"window": 4}, "window"),
        ("collobert-window", {"approach": "both"}, "approach"),
    ],
)
def test_settings_that_cannot_be_are_rejected_by_name(name: str, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelError, match=f"{field}="):
        create_model(name, **changes)


def test_layers_of_dcnn_have_filters_for_each_row() -> None:
    model = dcnn.Model(dcnn.PRESETS["dcnn"])
    assert [tuple(layer.conv.weight.shape) for layer in model.layers] == [(288, 1, 7), (336, 6, 5)]
