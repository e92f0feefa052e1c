"""What crosses parts: word vectors from a run to a file and into another model, and graphs given in Python."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import cutaway
from cutaway.checkpoints.convert import convert
from cutaway.core.errors import DataError, FileError, ModelError, SettingError
from cutaway.data.dataset_base import IN_MEMORY
from cutaway.runs.run import Run

WORDS = ("the cat sat on the mat . " * 6 + "\n\n" + "a dog ran in the park . " * 6 + "\n\n") * 12
QUICK = {"epochs": 1, "tensorboard": False, "threads": 1}


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that learned vectors of ten words."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "book.txt").write_text(WORDS)
    more = {**QUICK, "min_count": 1, "model.dim": 8}
    return cutaway.train("word2vec-skipgram", folder / "book.txt", out=folder / "run", **more)


def test_a_text_too_short_to_validate_on_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("the cat sat on the mat . " * 12)
    with pytest.raises(DataError, match="leaves no word of its val split a context"):
        cutaway.train("word2vec-skipgram", tmp_path / "short.txt", out=tmp_path / "run", **QUICK, min_count=1)


def test_a_run_says_which_words_are_near_each_other(vectors: Run) -> None:
    (row,) = vectors.predict(["cat"])
    assert row["input"] == "cat"
    assert row["nearest"].count(", ") == 8
    assert vectors.vectors["cat"].shape == (8,)
    with pytest.raises(cutaway.CutawayError, match="There is no word in these vectors named 'tac'"):
        vectors.predict(["tac"])


def test_vectors_go_into_a_file_and_into_another_model(vectors: Run, tmp_path: Path) -> None:
    file = tmp_path / "vectors.bin"
    done = convert(vectors.folder, file, "word2vec")
    assert "10 words, 8 numbers each" in done.key_map["embedding.weight"]
    read = cutaway.Vectors.load(file)
    assert set(read.words) == set(vectors.vectors.words)

    rows = [f"the cat sat {i}\tcat\na dog ran {i}\tdog" for i in range(30)]
    (tmp_path / "pets.tsv").write_text("text\tpet\n" + "\n".join(rows) + "\n")
    given = {**QUICK, "text": "text", "target": "pet", "vectors": file, "model.dim": 8, "model.channels": "static"}
    run = cutaway.train("textcnn", tmp_path / "pets.tsv", out=tmp_path / "pets", **given)
    tokens = run.preprocessing.tokenizer.tokens  # type: ignore[attr-defined]
    learned = run.model.embedding.weight[tokens.index("cat")]  # type: ignore[index, union-attr]
    assert torch.allclose(learned, torch.from_numpy(read["cat"].copy()))
    assert any("6 of the" in note and "have their vectors from" in note for note in run.about["data"]["notes"])
    again = cutaway.train(resume=run.folder, epochs=2)
    assert again.about["epochs_done"] == 2


def test_vectors_are_rejected_where_there_are_no_words(vectors: Run, tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    vectors.vectors.save(file)
    with pytest.raises(SettingError, match="is for the words of text"):
        cutaway.train("softmax", "iris", out=tmp_path / "iris", vectors=file, **QUICK)
    run = cutaway.train("softmax", "iris", out=tmp_path / "iris", **QUICK)
    with pytest.raises(ModelError, match="which has no vectors of words"):
        convert(run.folder, tmp_path / "iris.bin", "word2vec")
    with pytest.raises(DataError, match="which has no vectors of words"):
        assert run.vectors
    with pytest.raises(FileError, match="is not a run"):
        convert(tmp_path, tmp_path / "none.bin", "word2vec")


def test_a_graph_of_pytorch_geometric_is_data_as_it_is(tmp_path: Path) -> None:
    from torch_geometric.data import Data

    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 2
    sources = torch.randint(60, (400,), generator=generator)
    targets = torch.randint(60, (400,), generator=generator)
    alike = y[sources] == y[targets]
    masks = {f"{split}_mask": torch.arange(60) % 3 == i for i, split in enumerate(("train", "val", "test"))}
    x = torch.randn(60, 4, generator=generator)
    graph = Data(x=x, edge_index=torch.stack([sources[alike], targets[alike]]), y=y, **masks)
    run = cutaway.train("gcn", graph, out=tmp_path / "run", epochs=3, tensorboard=False)
    assert run.about["data"]["source"] == IN_MEMORY
    assert run.about["data"]["splits"] == {"train": 20, "val": 20, "test": 20}
    assert run.model(graph.x, graph.edge_index).shape == (60, 2)
    with pytest.raises(SettingError, match="was given in Python: give it again"):
        cutaway.train(resume=run.folder, epochs=5)
    again = cutaway.train(data=graph, resume=run.folder, epochs=5)
    assert again.about["epochs_done"] == 5
