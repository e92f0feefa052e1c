"""Words and examples in a plane: every kind of model, the neighbours that the vectors have, one word followed."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import cutaway
from cutaway.core.errors import SettingError, UnknownName
from cutaway.runs.run import Run
from cutaway.views import embeddings
from cutaway.views import embeddings as contextual_embedding
from cutaway.views.embeddings import _rank_tokens
from cutaway.views.registry import suits
from cutaway.views.subject import Subject, open_model, open_run

from ..small import DIFFERENT, small

TEXT = (
    "the spring is cold and clear . in spring the water of the spring runs down the hill . "
    "the clock has a steel spring . the cat sat on the mat and the dog sat on the cat . "
)


def opened(name: str, count: int = 6, dtype: torch.dtype = torch.float32, **options: str) -> Subject:
    """A preset, small, with random examples."""
    model, inputs = small(name, count, dtype)
    return dataclasses.replace(open_model(model, *inputs), options=options)


@pytest.fixture(scope="module")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small language model that has read a little."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "book.txt").write_text(TEXT * 30, encoding="utf-8")
    small_model = {"model.layers": 2, "model.heads": 2, "model.dim": 16}
    return cutaway.train(
        "gpt2",
        folder / "book.txt",
        epochs=1,
        out=folder / "run",
        tokenizer="words",
        length=32,
        batch_size=8,
        **small_model,
    )


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small network that knows digits a little."""
    return cutaway.train("lenet5-modern", "digits", epochs=1, out=tmp_path_factory.mktemp("digits") / "run")


def scatters(view: Any) -> list[dict[str, Any]]:
    """The drawings of places."""
    return [drawing for drawing in view["drawings"] if drawing["kind"] == "scatter"]


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_model_with_examples_is_drawn(name: str) -> None:
    subject = opened(name, 3)
    assert suits("embeddings", subject)
    before = subject.outputs()
    found = embeddings.draw_embeddings(subject)
    assert len(json.dumps(found, allow_nan=False)) < 1_000_000
    assert found["summary"]
    for drawing in scatters(found):
        n = len(drawing["points"])
        assert all(len(place["at"]) == n for place in drawing["places"])
        for measure in drawing["measures"]:
            assert len(measure["of"]) == n
            assert all(i not in near and set(near) <= set(range(n)) for i, near in enumerate(measure["of"]))
    assert torch.equal(subject.outputs(), before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in subject.model.modules())


def test_a_run_without_its_data_says_so(digits_run: Run) -> None:
    one = next(iter(open_run(digits_run).inputs))[:1]
    subject = dataclasses.replace(open_run(digits_run), inputs=(one,), target=None, split=None, rows=())
    gone = dataclasses.replace(subject, run=None, whole=None)
    assert not suits("embeddings", gone)
    assert "Too few examples" in embeddings.draw_embeddings(gone)["summary"]


def test_two_examples_alone_have_no_neighbourhood() -> None:
    assert not suits("embeddings", opened("lenet5-modern", 2))
    assert suits("embeddings", opened("gpt2", 2))


def test_examples_of_a_run_are_coloured_by_class(digits_run: Run) -> None:
    found = embeddings.draw_embeddings(open_run(digits_run))
    (drawing,) = scatters(found)
    assert len(drawing["points"]) > 200
    assert drawing["groups"] == [str(k) for k in range(10)]
    assert {point["group"] for point in drawing["points"]} == set(range(10))
    assert [place["name"] for place in drawing["places"]] == ["PCA", "t-SNE"]
    assert all(point["image"].startswith("data:image/png") for point in drawing["points"])
    assert "of the same class" in found["summary"]
    assert "% of the variance" in drawing["places"][0]["x"].replace("\u202f", " ")


def test_umap_is_drawn_where_it_is_asked_for(digits_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "umap", embeddings.tsne)  # which the library itself takes half a minute for
    (drawing,) = scatters(embeddings.draw_embeddings(open_run(digits_run, options={"plane": "umap"})))
    assert [place["name"] for place in drawing["places"]] == ["PCA", "t-SNE", "UMAP"]
    assert "distances between clusters mean nothing" in drawing["places"][2]["note"]
    assert "note" not in drawing["places"][0]
    with pytest.raises(UnknownName, match="umap"):
        embeddings.draw_embeddings(open_run(digits_run, options={"plane": "umab"}))


def test_vectors_are_what_the_head_sees(digits_run: Run) -> None:
    subject = open_run(digits_run)
    others = subject.others(40)
    assert others is not None
    with torch.no_grad():
        features = subject.model.features(others.inputs[0])  # type: ignore[operator]
    torch.testing.assert_close(embeddings._features(others), features.flatten(1))
    near = scatters(embeddings.draw_embeddings(subject))[0]["measures"][0]
    assert near["name"] == "cosine"
    whole = subject.others(500)
    assert whole is not None
    vectors = embeddings._features(whole)
    j = near["of"][0][0]
    assert near["values"][0][0] == pytest.approx(float(F.cosine_similarity(vectors[0], vectors[j], dim=0)), abs=2e-3)


def test_a_view_is_the_same_every_time(digits_run: Run) -> None:
    first, again = (embeddings.draw_embeddings(open_run(digits_run)) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("name", ["gpt2", "bert-base-uncased"])
def test_padding_is_left_out_of_a_mean(name: str) -> None:
    model, inputs = small(name, 3)
    ids, mask = inputs
    padded = (F.pad(ids, (0, 4)), F.pad(mask, (0, 4)))
    plain, longer = (embeddings._features(open_model(model, *x)) for x in ((ids, mask), padded))
    torch.testing.assert_close(plain, longer, atol=1e-5, rtol=1e-4)


def test_nodes_of_a_graph_are_the_examples(tmp_path: Path) -> None:
    run = cutaway.train("gcn", "karate", epochs=5, out=tmp_path / "run")
    found = embeddings.draw_embeddings(open_run(run))
    (drawing,) = scatters(found)
    assert len(drawing["groups"]) == 2
    assert len(drawing["points"]) >= 8


def test_values_are_coloured_in_thirds(tmp_path: Path) -> None:
    rows = ["a,b,price", *(f"{i},{i * i % 17},{i / 3}" for i in range(90))]
    (tmp_path / "t.csv").write_text("\n".join(rows), encoding="utf-8")
    run = cutaway.train("mlp", tmp_path / "t.csv", target="price", epochs=1, out=tmp_path / "run")
    (drawing,) = scatters(embeddings.draw_embeddings(open_run(run)))
    assert len(drawing["groups"]) == 3
    assert {point["group"] for point in drawing["points"]} == {0, 1, 2}


def test_words_are_named_and_tied(text_run: Run) -> None:
    found = embeddings.draw_embeddings(open_run(text_run))
    words = next(drawing for drawing in scatters(found) if drawing["title"].startswith("Words"))
    labels = [point["label"] for point in words["points"]]
    assert "spring" in labels
    assert not {"<pad>", "<unk>"} & set(labels)
    table = text_run.model.embedding.weight.detach().double()  # type: ignore[union-attr, operator]
    ids = [int(point["tip"][0].split()[1]) for point in words["points"]]
    dots = words["measures"][1]
    assert dots["name"] == "dot product"
    best = dots["of"][0][0]
    expected = (table[ids] @ table[ids[0]]).tolist()
    assert dots["values"][0][0] == pytest.approx(expected[best], rel=1e-2)
    assert expected[best] == max(value for i, value in enumerate(expected) if i != 0)


def test_one_word_is_followed_through_the_blocks(text_run: Run) -> None:
    subject = dataclasses.replace(open_run(text_run), options={"word": "Spring"})
    found = contextual_embedding.occurrences(subject)
    assert 2 <= len(found) <= 4
    assert all(one.word == "spring" for one in found)
    vectors = contextual_embedding.word_vectors(subject, found)
    assert vectors.shape == (3, len(found), 16)
    for k, one in enumerate(found):
        ids = subject.inputs[0][one.example]
        model: Any = subject.model
        entered = model.embedding(ids[one.place]) + model.positions.weight[one.place]
        torch.testing.assert_close(vectors[0, k].float(), entered, atol=1e-5, rtol=1e-4)
        left = model.norm(vectors[-1, k].float())
        hidden = model.hidden(subject.inputs[0][one.example : one.example + 1])[0, one.place]
        torch.testing.assert_close(left, hidden, atol=1e-5, rtol=1e-4)
    lines = next(drawing for drawing in embeddings.draw_embeddings(subject)["drawings"] if drawing["kind"] == "lines")
    pair = F.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=1)
    assert lines["series"][0]["name"] == "1 and 2"
    assert [y for _, y in lines["series"][0]["points"]] == pytest.approx(pair.tolist(), rel=1e-3)


def test_the_word_is_the_first_that_stands_twice_unless_it_is_named(text_run: Run) -> None:
    subject = open_run(text_run)
    read = [token for i in range(len(subject.inputs[0])) for token in subject.tokens(i)]
    first = next(token for token in read if len(token) > 3 and read.count(token) > 1)
    assert {one.word for one in contextual_embedding.occurrences(subject)} == {first}
    named = dataclasses.replace(open_run(text_run), options={"word": "the"})
    assert {one.word for one in contextual_embedding.occurrences(named)} == {"the"}


@pytest.mark.parametrize("word", ["zebra", "", "<pad>"])
def test_a_word_that_does_not_stand_twice_is_rejected(text_run: Run, word: str) -> None:
    with pytest.raises(SettingError, match="times as a single token"):
        embeddings.draw_embeddings(dataclasses.replace(open_run(text_run), options={"word": word}))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_shared_block_is_passed_as_often_as_it_is_run(count: int) -> None:
    model = cutaway.create_model(
        "albert-base-v2", layers=4, heads=2, dim=16, embedding_dim=8, vocab_size=9, context_length=12
    )
    ids = torch.tensor([[3, 4, 3, 5]] * count)
    subject = open_model(model, ids, torch.ones_like(ids, dtype=torch.bool))
    found = contextual_embedding.occurrences(subject)
    assert len(found) == min(4, 2 * count)
    assert contextual_embedding.word_vectors(subject, found).shape[0] == 5


def test_vectors_that_are_no_numbers_have_no_place() -> None:
    subject = opened("mlp", 5)
    with torch.no_grad():
        next(subject.model.parameters()).fill_(torch.nan)
    found = embeddings.draw_embeddings(subject)
    assert "not finite" in found["summary"]
    assert [drawing["kind"] for drawing in found["drawings"]] == ["prose"]


def test_values_are_grouped_in_their_own_units_and_are_no_classes(tmp_path: Path) -> None:
    found = cutaway.train("linear", "diabetes", epochs=1, out=tmp_path / "run", tensorboard=False)
    shown = embeddings.draw_embeddings(open_run(found))
    (drawing,) = scatters(shown)
    low, high = (float(drawing["groups"][k].rpartition(" ")[2]) for k in (0, 2))
    assert 25 < low < high < 346  # as the figures of diabetes are, not standardised
    assert "in the same third of the values" in shown["summary"]
    assert "class" not in shown["summary"]


def test_words_that_are_signs_stand_in_quotes(text_run: Run) -> None:
    said = embeddings.draw_embeddings(open_run(text_run))["summary"]
    assert re.search(r"The nearest two by cosine are '.+' and '.+',", said)


def test_tokens_beside_those_of_the_text_have_names(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT * 30, encoding="utf-8")
    small_model = {"model.layers": 1, "model.heads": 2, "model.dim": 16, "vocab_size": 60}
    found = cutaway.train(
        "bert-base-uncased", tmp_path / "book.txt", epochs=1, out=tmp_path / "run", tensorboard=False, **small_model
    )
    subject = open_run(found)
    tokens = subject.tokens(0)
    assert "[MASK]" in tokens
    assert not any(token.startswith("token ") for token in tokens)


def test_the_words_at_hand_come_first_then_whole_words_and_never_what_nobody_wrote() -> None:
    written = ["[PAD]", "[unused0]", "[CLS]", "a", "##ing", "the", "river", "<s>", "Ġsea", "bank", "<|endoftext|>"]
    subject = open_model(
        cutaway.create_model("bert-base-uncased", layers=1, dim=8, heads=2, vocab_size=12, context_length=8)
    )
    assert [written[i] for i in _rank_tokens(subject, written, 11)] == ["the", "river", "Ġsea", "bank", "a", "##ing"]
    tokens = torch.tensor([[2, 4, 9, 3]])
    opened = dataclasses.replace(subject, inputs=(tokens, *subject.inputs[1:]), split=object(), rows=(0,))
    assert [written[i] for i in _rank_tokens(opened, written, 11)][:3] == ["bank", "a", "##ing"]
    assert _rank_tokens(subject, [], 3) == [0, 1, 2]  # without a tokenizer there are numbers alone
