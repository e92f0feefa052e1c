"""Objects that people have are data of `train`, `evaluate`, `predict`, `plan` and `search`, as their file would be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_wine
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import cutaway
from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import Classes, ImageSpec, SeriesSpec, Value
from cutaway.data.dataset_base import IN_MEMORY
from cutaway.data.in_memory.source import InMemorySource
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings

X, y = load_wine(return_X_y=True)
DIGITS = load_digits()
PIXELS = np.round(DIGITS.images * (255 / 16)).astype(np.uint8)  # (1797, 8, 8)
NAMES = [f"c{k}" for k in range(X.shape[1])]
FRAME = pl.DataFrame(X, schema=NAMES).with_columns(pl.Series("cultivar", y))
QUICK: dict[str, Any] = {"epochs": 1, "tensorboard": False, "threads": 1}


def trained(tmp_path: Path, model: str, data: Any, **settings: Any) -> cutaway.Run:
    """A short training in a folder of its own."""
    return cutaway.train(model, data, out=tmp_path / "run", overwrite=True, **{**QUICK, **settings})


def test_arrays_train_as_the_file_that_they_would_be(tmp_path: Path) -> None:
    FRAME.rename({name: f"x{k}" for k, name in enumerate(NAMES)} | {"cultivar": "target"}).write_csv(tmp_path / "w.csv")
    of_file = trained(tmp_path, "mlp", tmp_path / "w.csv", target="target", epochs=3)
    metrics, predicted = of_file.evaluate(), of_file.predict([tmp_path / "w.csv"])
    columns, splits = (of_file.about["data"][key] for key in ("columns", "split_hash"))
    for data in ((X, y), (torch.from_numpy(X), torch.from_numpy(y)), TensorDataset(torch.tensor(X), torch.tensor(y))):
        run = trained(tmp_path, "mlp", data, epochs=3)
        assert run.evaluate() == metrics
        assert (run.about["data"]["columns"], run.about["data"]["split_hash"]) == (columns, splits)
        assert [row["target"] for row in run.predict(X)] == [row["target"] for row in predicted]
        assert run.evaluate((X, y))["accuracy"].value == pytest.approx(
            np.mean([row["target"] == str(k) for row, k in zip(predicted, y)])
        )
        assert run.about["data"]["source"] == IN_MEMORY
        assert run.about["command"].startswith("cutaway.train('mlp', data, epochs=3")
        assert (run.folder / "report.html").is_file()


def test_columns_of_numbers_are_what_their_text_would_be(tmp_path: Path) -> None:
    gaps, ids, halves = X[:, 0].copy(), np.arange(len(X)), np.where(y == 0, np.nan, 1.5)
    gaps[::5] = np.nan
    columns = {"gaps": gaps, "same": np.full(len(X), 3.0), "id": ids, "halves": halves, "flag": y > 1, "float": X[:, 1]}
    frame = pl.DataFrame({**columns, "whole": X[:, 12].astype(int), "y": y}, nan_to_null=True)
    frame.write_csv(tmp_path / "t.csv")
    for more in ({}, {"types": ("whole:category", "id:number")}, {"scale": "quantile"}):
        settings = DataSettings(target="y", **more)  # type: ignore[arg-type]
        of_file, given = open_data(tmp_path / "t.csv", settings), open_data(InMemorySource(frame), settings)
        assert given.preprocessing.to_json() | {"read": {}} == of_file.preprocessing.to_json() | {"read": {}}
        assert given.columns == of_file.columns
        assert given.notes == of_file.notes
        assert given.distributions() == of_file.distributions()
        for split in given.splits:
            assert torch.equal(given.splits[split].inputs, of_file.splits[split].inputs)  # type: ignore[attr-defined]


def test_every_library_s_table_is_the_same_data() -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    datasets = pytest.importorskip("datasets")
    columns = FRAME.with_columns(pl.Series("grown in", ["Asti", None, "Alba"] * 59 + ["Asti"]))
    settings = DataSettings(target="cultivar")
    found = [
        open_data(InMemorySource(table), settings)
        for table in (
            columns,
            columns.to_arrow(),
            pandas.DataFrame(columns.to_dict(as_series=False)).sample(frac=1, random_state=0).sort_index(),
            columns.to_dicts(),
            datasets.Dataset(columns.to_arrow()),
        )
    ]
    assert len({data.fingerprint for data in found}) == 1
    for data in found[1:]:
        assert data.preprocessing.to_json() == found[0].preprocessing.to_json()
        assert all(map(np.array_equal, data.splits["test"].inputs, found[0].splits["test"].inputs))  # type: ignore[attr-defined]


def test_splits_of_ones_own_are_kept_and_the_others_are_drawn(tmp_path: Path) -> None:
    run = trained(tmp_path, "mlp", (X[::2], y[::2]), val=(X[1::4], y[1::4]), test=(X[3::4], y[3::4]))
    assert run.about["data"]["splits"] == {"train": 89, "val": 45, "test": 44}
    drawn = trained(tmp_path, "mlp", (X[::2], y[::2]), test=(X[1::2], y[1::2]))
    assert drawn.about["data"]["splits"] == {"train": 76, "val": 13, "test": 89}
    named = trained(tmp_path, "mlp", {"train": (X[::2], y[::2]), "validation": (X[1::2], y[1::2])}, test=0)
    assert named.about["data"]["splits"] == {"train": 89, "val": 89}
    leaking = trained(tmp_path, "mlp", (X, y), test=(X[:5], y[:5]))
    (straddling,) = [note for note in leaking.about["data"]["findings"] if "across splits" in note]
    assert "row 1 of test (test) = row 1 of train" in straddling


def test_what_is_fitted_is_fitted_on_the_training_split_alone() -> None:
    first, again = (
        open_data(
            InMemorySource((X[::2], y[::2]), val=(X[1::2] * k, y[1::2]), test=(X[1::2] + k, y[1::2])), DataSettings()
        )
        for k in (1.0, 3.0)
    )
    assert first.preprocessing.to_json() == again.preprocessing.to_json()
    assert first.fingerprint != again.fingerprint


def test_a_run_goes_on_with_the_same_objects_alone(tmp_path: Path) -> None:
    run = trained(tmp_path, "mlp", (X, y), val=(X[:60], y[:60]))
    with pytest.raises(SettingError, match=r"was given in Python: give it again"):
        cutaway.train(resume=run.folder, epochs=2)
    with pytest.raises(DataError, match="content of data given in Python has changed since this run was trained"):
        cutaway.train(data=(X + 1, y), val=(X[:60], y[:60]), resume=run.folder, epochs=2)
    again = cutaway.train(data=(X.copy(), y.tolist()), val=(X[:60], y[:60]), resume=run.folder, epochs=2)
    assert again.about["epochs_done"] == 2
    loaded = cutaway.load(run.folder)
    with pytest.raises(DataError, match=r"not available.*set_data"):
        loaded.evaluate()
    assert loaded.set_data((X, y), val=(X[:60], y[:60])).evaluate() == again.evaluate()
    with pytest.raises(DataError, match="has changed since this run was trained"):
        loaded.set_data((X, y)).evaluate()


@pytest.mark.parametrize("form", ["bytes", "channels last", "divided by 255", "tensor"])
def test_images_of_bytes_are_images_as_files_are(form: str) -> None:
    images: Any = {
        "bytes": PIXELS,
        "channels last": PIXELS[..., None],
        "divided by 255": PIXELS / 255,
        "tensor": torch.from_numpy(PIXELS)[:, None].float() / 255,
    }[form]
    takes = ("image",)
    named, data = (
        open_data("digits", DataSettings()),
        open_data(InMemorySource((images, DIGITS.target)), DataSettings(), takes=takes),
    )
    assert data.spec == named.spec
    assert data.preprocessing == named.preprocessing
    assert data.split_hash == named.split_hash


def test_other_numbers_are_not_rounded(tmp_path: Path) -> None:
    images = np.random.default_rng(0).normal(size=(120, 5, 9, 9))  # of five channels
    labels = (images.mean((1, 2, 3)) > 0).astype(int)
    data = open_data(InMemorySource((images, labels)), DataSettings())
    assert isinstance(data.spec, ImageSpec)
    assert data.spec.shape == (5, 9, 9)
    inputs = data.splits["train"].inputs  # type: ignore[attr-defined]
    assert torch.allclose(inputs.mean((0, 2, 3)), torch.zeros(5), atol=1e-5)
    assert torch.allclose(inputs.std((0, 2, 3)), torch.ones(5), atol=1e-3)
    run = trained(tmp_path, "simplecnn", (torch.from_numpy(images), labels))
    again = cutaway.load(run.folder)
    assert again.predict(images[:4]) == again.predict(list(images[:4])) == run.predict(torch.from_numpy(images[:4]))
    with pytest.raises(DataError, match=r"shape \(3, 9, 9\).*takes 5 channels"):
        run.predict(images[:, :3])


def test_quantities_can_be_learned_of_images_and_series(tmp_path: Path) -> None:
    light = PIXELS.mean((1, 2)) + 0.25
    of_images = trained(tmp_path, "lenet5-modern", (PIXELS[:300], light[:300]))
    assert isinstance(of_images.spec, ImageSpec)
    assert isinstance(of_images.spec.target, Value)
    assert of_images.evaluate((PIXELS[300:400], light[300:400]))["rmse"].value < 60
    of_series = trained(tmp_path, "cnn1d", (DIGITS.images[:300], light[:300]))
    assert isinstance(of_series.spec, SeriesSpec)
    assert of_series.spec.shape == (8, 8)
    assert isinstance(of_series.predict(DIGITS.images[:1])[0]["target"], float)


def test_an_array_is_what_the_model_takes(tmp_path: Path) -> None:
    assert trained(tmp_path, "lenet5-modern", (DIGITS.images, DIGITS.target)).spec.kind == "image"
    assert trained(tmp_path, "cnn1d", (DIGITS.images, DIGITS.target)).spec.kind == "series"
    of_rows = trained(tmp_path, "cnn1d", (DIGITS.data, DIGITS.target))
    assert of_rows.spec.shape == (64, 1)
    with pytest.raises(cutaway.CutawayError, match="gcn takes graph data"):
        cutaway.train("gcn", (DIGITS.data, DIGITS.target))


class Scans(Dataset[Any]):
    """Images of Pillow with numbers of classes, as torchvision has them."""

    classes = tuple("abcdefghij")

    def __len__(self) -> int:
        return 200

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        image = Image.fromarray(PIXELS[i])
        return image.resize((9, 8)) if i % 2 else image, int(DIGITS.target[i])


class Stream(IterableDataset[Any]):
    """Rows, one after another."""

    def __init__(self, rows: int | None) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        i = 0
        while self.rows is None or i < self.rows:
            yield torch.from_numpy(X[i % len(X)]), torch.tensor(y[i % len(y)])
            i += 1


def test_datasets_of_pytorch_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = trained(tmp_path, "lenet5-modern", Scans())
    assert scans.spec.target == Classes(tuple("abcdefghij"))
    assert any("read once" in note for note in scans.about["data"]["notes"])
    assert scans.predict(Scans())[0]["class"] in Scans.classes
    rows = trained(tmp_path, "mlp", Stream(178))
    assert rows.about["data"]["splits"] == {"train": 124, "val": 27, "test": 27}
    monkeypatch.setattr("cutaway.data.in_memory.source.MOST", 1000)
    with pytest.raises(DataError, match="has not ended after 1,000 examples"):
        cutaway.train("mlp", Stream(None))


def test_texts_with_targets_and_without(tmp_path: Path) -> None:
    texts = [f"{word} thing {i}" for i in range(20) for word in ("good", "bad")]
    run = trained(tmp_path, "textcnn", (texts, ["p", "n"] * 20), epochs=12, lr=1e-2, batch_size=8)
    assert run.spec.target == Classes(("n", "p"), "target")
    assert run.evaluate((texts, ["p", "n"] * 20))["accuracy"].value > 0.9
    assert run.predict(np.array(["good thing"]))[0]["target"] == run.predict(["good thing"])[0]["target"]
    small = {"model.layers": 1, "model.dim": 16, "model.heads": 2, "length": 8}
    language = trained(tmp_path, "gpt2", texts * 4, **small)
    assert language.spec.target.column == "next token"
    assert language.evaluate(texts)["loss"].value > 0
    assert language.evaluate()["loss"].value > 0


def test_graphs_in_a_list_are_examples_each(tmp_path: Path) -> None:
    data = pytest.importorskip("torch_geometric.data")
    generator = torch.Generator().manual_seed(0)

    def graph(i: int) -> Any:
        edges = torch.randint(4 + i % 3, (2, 12), generator=generator)
        x = torch.randn(4 + i % 3, 3, generator=generator) + 2 * (i % 2)
        return data.Data(x=x, edge_index=edges, y=torch.tensor([i % 2]))

    graphs = [graph(i) for i in range(60)]
    run = trained(tmp_path, "gin", graphs[:40], test=graphs[40:], epochs=5)
    assert run.about["data"]["splits"] == {"train": 34, "val": 6, "test": 20}
    assert run.evaluate(graphs[40:])["accuracy"] == run.evaluate()["accuracy"]
    assert [row["y"] for row in run.predict(graphs[:2])] == ["0", "1"]
    graphs[7].y = torch.tensor([0, 1])
    with pytest.raises(DataError, match=r"y of graph 8 has the shape \(2,\)"):
        cutaway.train("gin", graphs)


def test_classes_of_hugging_face_have_their_names(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["neg", "pos"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    rows = {"text": [f"{w} {i}" for i in range(30) for w in ("good", "bad")], "label": [1, 0] * 30}
    texts = datasets.Dataset.from_dict(rows, features=features).shuffle(seed=0)
    splits = datasets.DatasetDict({"train": texts.select(range(40)), "validation": texts.select(range(40, 60))})
    run = trained(tmp_path, "textcnn", splits, text="text", target="label", test=0)
    assert run.spec.target == Classes(("neg", "pos"), "label")
    assert run.about["data"]["splits"] == {"train": 40, "val": 20}
    pixels = [Image.fromarray(image) for image in PIXELS[:60]]
    of_images = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)})
    images = datasets.Dataset.from_dict({"image": pixels, "label": DIGITS.target[:60]}, features=of_images)
    seen = open_data(InMemorySource(images), DataSettings(val=0.0, test=0.0))
    assert seen.spec.shape == (1, 8, 8)


def test_a_series_in_a_frame_is_forecast(tmp_path: Path) -> None:
    steps = pl.datetime_range(pl.datetime(2020, 1, 1), pl.datetime(2020, 1, 12), "1h", eager=True)
    frame = pl.DataFrame({"time": steps, "v": np.sin(np.arange(len(steps)) / 4)})
    run = trained(tmp_path, "gru", frame, forecast="v", horizon=3, lookback=6)
    assert run.evaluate(frame)["rmse"].value < 1.0
    assert set(run.predict(frame)[0]) == {"input", "v +1", "v +2", "v +3"}
    third = len(frame) // 3
    own = trained(
        tmp_path, "gru", frame[:third], val=frame[third : 2 * third], test=frame[2 * third :], forecast="v", horizon=3,
        lookback=6,
    )  # fmt: skip
    assert own.about["data"]["splits"]["test"] == len(frame) - 2 * third - 2


def test_plan_and_search_take_objects(tmp_path: Path) -> None:
    assert cutaway.plan("mlp", (X, y)).best.memory.total > 0
    found = cutaway.search("mlp", (X, y), lr="1e-3..1e-2:log", trials=2, out=tmp_path / "s", epochs=1, threads=1)
    assert found.run.evaluate()["accuracy"].value > 0.2
    with pytest.raises(SettingError, match="The data of this search was passed in Python"):
        cutaway.search(resume=tmp_path / "s", trials=3)
    more = cutaway.search(data=(X, y), resume=tmp_path / "s", trials=3)
    assert len(more.trials) == 3


def test_ids_of_many_digits_in_a_data_frame_stay_apart() -> None:
    ids = np.resize(np.array([2**60 + 1, 2**60 + 3, 2**60 + 5]), len(X))  # equal as 64-bit floats
    data = open_data(InMemorySource(FRAME.with_columns(pl.Series("owner", ids))), DataSettings(target="cultivar"))
    assert [c["type"] for c in data.columns if c["name"] == "owner"] == ["category"]
    assert sum(name.startswith("owner=") for name in data.spec.columns) == 4  # type: ignore[union-attr]
    small = open_data(
        InMemorySource(FRAME.with_columns(pl.Series("owner", np.resize([1, 2, 3], len(X)), dtype=pl.Int8))),
        DataSettings(target="cultivar"),
    )
    assert [c["type"] for c in small.columns if c["name"] == "owner"] == ["number"]
    days = np.resize(np.array([20240213, 20231231]), len(X))
    data = open_data(InMemorySource(FRAME.with_columns(pl.Series("owner", days))), DataSettings(target="cultivar"))
    assert [c["type"] for c in data.columns if c["name"] == "owner"] == ["date"]
