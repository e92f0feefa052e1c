"""Word vectors in use, and in the files of word2vec: what gensim writes we read, and the other way round."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutaway.checkpoints.word_vectors import BLANKS, Vectors, load_into_embedding
from cutaway.core.errors import DataError, FileError, ModelError, UnknownName
from cutaway.tasks.word_vectors import word_similarity

WORDS = ["man", "woman", "king", "queen", "Ä-сло́во-字🙂"]
MATRIX = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 1], [-1, -1, 1e-7]], np.float32)
VECTORS = Vectors(WORDS, MATRIX)

words_of_files = st.text(st.characters(exclude_characters=BLANKS + "\n", codec="utf-8"), min_size=1, max_size=8)


@settings(max_examples=30, deadline=None)
@given(
    words=st.lists(words_of_files, min_size=1, max_size=8, unique=True),
    width=st.integers(1, 5),
    seed=st.integers(0, 99),
    suffix=st.sampled_from([".txt", ".vec", ".bin"]),
)
def test_files_give_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], width: int, seed: int, suffix: str
) -> None:
    rng = np.random.default_rng(seed)
    matrix = (rng.standard_normal((len(words), width)) * 10.0 ** rng.integers(-30, 30)).astype(np.float32)
    path = tmp_path_factory.mktemp("vectors") / f"vectors{suffix}"
    Vectors(words, matrix).save(path)
    again = Vectors.load(path)
    assert list(again.words) == words
    assert np.array_equal(again.matrix, matrix)


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_reads_ours_and_we_read_gensims(tmp_path: Path, binary: bool) -> None:
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    ours, theirs = (tmp_path / f"{name}{'.bin' if binary else '.txt'}" for name in ("ours", "theirs"))
    vectors = Vectors(WORDS, np.random.default_rng(0).standard_normal((len(WORDS), 7)).astype(np.float32))
    vectors.save(ours)
    read = keyed.load_word2vec_format(str(ours), binary=binary)
    assert read.index_to_key == WORDS
    assert np.array_equal(read.vectors, vectors.matrix)
    read.save_word2vec_format(str(theirs), binary=binary)
    again = Vectors.load(theirs)
    assert again.words == WORDS
    assert np.array_equal(again.matrix, vectors.matrix)
    for word in WORDS:
        assert [w for w, _ in vectors.neighbours(word, 3)] == [w for w, _ in read.most_similar(word, topn=3)]
    assert vectors.analogy("man", "king", "woman", 2) == [
        (word, pytest.approx(cosine, abs=1e-6))
        for word, cosine in read.most_similar(positive=["woman", "king"], negative=["man"], topn=2)
    ]


def test_the_correlation_is_gensims(tmp_path: Path) -> None:
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(40)]
    vectors = Vectors(words, rng.standard_normal((40, 5)).astype(np.float32))
    file = tmp_path / "pairs.tsv"
    rows = [f"w{a}\tw{b}\t{rng.integers(0, 11)}" for a, b in rng.integers(0, 45, (60, 2)) if a < b]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    vectors.save(tmp_path / "vectors.bin")
    theirs = keyed.load_word2vec_format(str(tmp_path / "vectors.bin"), binary=True)
    ours = word_similarity(vectors, file)
    _, spearman, share_unknown = theirs.evaluate_word_pairs(str(file))
    assert ours.spearman.value == pytest.approx(spearman[0], abs=1e-6)
    assert 100 * (1 - ours.covered / ours.total) == pytest.approx(share_unknown)


def test_what_word2vec_c_writes_is_read(tmp_path: Path) -> None:
    """A blank at the end of each line of text, and a line end behind each vector of the binary form."""
    (tmp_path / "c.txt").write_bytes(b"2 2\n</s> 0.001000 -0.5 \nthe 1.5 2 \n")
    assert Vectors.load(tmp_path / "c.txt").matrix.tolist() == [[np.float32(0.001), -0.5], [1.5, 2]]
    row = np.array([1, -2], "<f4").tobytes()
    (tmp_path / "c.bin").write_bytes(b"2 2\n</s> " + row + b"\nthe " + row + b"\n")
    (tmp_path / "gensim.bin").write_bytes(b"2 2\n</s> " + row + b"the " + row)
    for name in ("c.bin", "gensim.bin"):
        read = Vectors.load(tmp_path / name)
        assert (read.words, read.matrix.tolist()) == (["</s>", "the"], [[1, -2], [1, -2]])


ROW = np.array([1, -2], "<f4").tobytes()
BAD_FILES: dict[str, tuple[str, bytes, str]] = {
    "no header": ("a.txt", b"the 1 2\ncat 3 4\n", "does not begin with a line of two numbers.*GloVe"),
    "empty": ("a.txt", b"", "does not begin with a line of two numbers"),
    "no words": ("a.txt", b"0 5\n", "0 words with vectors"),
    "cut short": ("a.txt", b"3 2\nthe 1 2\ncat 3 4\n", "announces 3 words, and 2 lines follow.*cut short"),
    "too many": ("a.txt", b"1 2\nthe 1 2\ncat 3 4\n", "announces 1 words, and 2 lines follow"),
    "another width": ("a.txt", b"2 2\nthe 1 2\ncat 3\n", "line 3: 'cat' has 1 numbers, and the first line says 2"),
    "no number": ("a.txt", b"1 2\nthe 1 x\n", "line 2: the vector of 'the' is invalid"),
    "nan": ("a.txt", b"2 2\nthe 1 2\ncat nan 2\n", "line 3: the vector of 'cat' has a number that is not finite"),
    "infinite": ("a.bin", b"1 1\nthe " + np.array([np.inf], "<f4").tobytes(), "word 1: the vector of 'the' has"),
    "not UTF-8": ("a.txt", b"1 1\n\xff\xe9 1\n", "line 2: the word .* is not UTF-8"),
    "binary, not UTF-8": ("a.bin", b"1 2\n\xff\xe9 " + ROW, "word 1: the word .* is not UTF-8"),
    "twice": ("a.txt", b"2 1\nthe 1\nthe 2\n", "line 3: the word 'the' is also in line 2"),
    "binary cut short": ("a.bin", b"2 2\nthe " + ROW + b"cat " + ROW[:-1], "ends in word 2.*cut short"),
    "binary, too long": ("a.bin", b"1 2\nthe " + ROW + b"cat " + ROW, "12 bytes follow the last"),
    "text as binary": ("a.bin", b"1 2\nthe 1 2\n", "ends in word 1.*be text"),
    "no word": ("a.bin", b"1 2\n " + ROW, "word 1: there is a vector without a word"),
    "another suffix": ("a.pkl", b"1 1\nthe 1\n", r"ends in .pkl, no format of word vectors: .txt, .vec are text"),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_files_that_are_not_whole_are_rejected(tmp_path: Path, what: str) -> None:
    name, content, said = BAD_FILES[what]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=said):
        Vectors.load(tmp_path / name)


def test_files_that_cannot_be_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="There is no file or folder"):
        Vectors.load(tmp_path / "none.txt")
    for word in ("two words", "", "line\nend"):
        with pytest.raises(FileError, match="is empty or holds a blank"):
            Vectors([word], MATRIX[:1]).save(tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())


def test_neighbours_analogies_and_likeness() -> None:
    assert VECTORS.similarity("man", "king") == pytest.approx(math.sqrt(0.5))
    assert [word for word, _ in VECTORS.neighbours("king", 2)] == ["man", "queen"]
    assert VECTORS.analogy("man", "king", "woman")[0][0] == "queen"
    assert len(VECTORS.neighbours("king", 99)) == len(WORDS) - 1
    assert "man" in VECTORS
    assert VECTORS["woman"].tolist() == [0, 1, 0]
    with pytest.raises(UnknownName, match=r"There is no word in these vectors named 'quean'. Similar: queen"):
        VECTORS.neighbours("quean")
    nought = Vectors(["a", "b"], np.zeros((2, 3), np.float32))
    assert nought.similarity("a", "b") == 0.0


def test_those_of_a_model_are_without_padding_and_unknown() -> None:
    embedding = nn.Embedding(4, 3)
    vectors = Vectors.from_embedding(embedding, ["<pad>", "<unk>", "b", "a"])
    assert vectors.words == ["b", "a"]
    assert np.array_equal(vectors.matrix, embedding.weight.detach().numpy()[2:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_embedding_takes_vectors(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    vectors = Vectors([f"w{i}" for i in range(500)], rng.normal(0.5, 2, (500, 8)).astype(np.float32), source="some.bin")
    tokens = ["<pad>", "<unk>", "w3", *(f"x{i}" for i in range(2000)), "w499"]
    first, again = (nn.Embedding(len(tokens), 8, dtype=dtype) for _ in range(2))
    note = load_into_embedding(first, tokens, vectors, torch.Generator().manual_seed(0))
    load_into_embedding(again, tokens, vectors, torch.Generator().manual_seed(0))
    weight = first.weight.detach()
    assert torch.equal(weight, again.weight.detach())
    assert torch.equal(weight[2].float(), torch.from_numpy(vectors["w3"]))
    assert torch.equal(weight[-1].float(), torch.from_numpy(vectors["w499"]))
    assert not weight[0].any()
    known = np.stack([vectors["w3"], vectors["w499"]])
    drawn = weight[3:-1]
    assert drawn.var().item() == pytest.approx(known.var(), rel=0.03)
    assert drawn.abs().max() <= math.sqrt(3 * known.var()) * (1 + 1e-5)
    assert note.startswith(
        "2 of the 2,002 words have their vectors from some.bin; the other 2,000 begin at random in ±"
    )
    assert weight[1].abs().max() > 0


def test_vectors_that_do_not_fit_are_rejected() -> None:
    with pytest.raises(ModelError, match="have 3 numbers, and this model's have 8"):
        load_into_embedding(nn.Embedding(4, 8), ["<pad>", "<unk>", "king", "man"], VECTORS)
    with pytest.raises(DataError, match="None of the 2 words of this data is in these vectors"):
        load_into_embedding(nn.Embedding(4, 3), ["<pad>", "<unk>", "KING", "MAN"], VECTORS)
