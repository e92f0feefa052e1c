"""Pages of examples: each class has its own, under its own label, and the same seed chooses the same."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from cutaway.core.config import build
from cutaway.core.spec import Classes, ImageSpec
from cutaway.data.images.segmentation import COVER
from cutaway.data.in_memory.source import to_source
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.synthetic import EXAMPLES, write_example
from cutaway.views.data_examples import MAX_CLASSES, _draw_waveform, choose_examples, examples_page, label

from .conftest import Answer

Cli = Callable[..., Answer]


def page_of(source: Any, count: int = 8, seed: int = 0, **settings: Any) -> dict[str, Any]:
    data = open_data(str(source) if isinstance(source, Path) else source, build(DataSettings, settings))
    page: dict[str, Any] = json.loads(json.dumps(examples_page(data, count, seed), allow_nan=False))
    return page


def drawings(page: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page["views"][1]["drawings"]
    return found


def pixels(tile: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.array(Image.open(io.BytesIO(base64.b64decode(tile["image"].split(",")[1]))))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three classes, each of one colour."""
    for k, (name, size) in enumerate({"apples": 12, "<b>pears": 9, "plums": 30}.items()):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(size):
            colour = [10 + i, 20, 30]
            colour[k] = 250
            Image.new("RGB", (20, 14), tuple(colour)).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def test_each_class_has_its_images_under_its_name(photos: Path) -> None:
    page = page_of(photos, count=3)
    tiles = drawings(page)[0]["tiles"]
    groups = [tile["group"].partition(":")[0] for tile in tiles]
    assert groups == [name for name in ("<b>pears", "apples", "plums") for _ in range(3)]
    for tile, group in zip(tiles, groups, strict=True):
        assert pixels(tile)[0, 0].argmax() == ["apples", "<b>pears", "plums"].index(group)
        assert tile["tip"][0] == group
    assert page["views"][1]["summary"].startswith("9 images of 3 classes. Splits: train ")
    assert [row[0] for row in page["views"][1]["table"]["rows"]] == groups


def test_the_seed_chooses_the_examples(photos: Path) -> None:
    first, again, other = (page_of(photos, count=4, seed=seed) for seed in (0, 0, 1))
    assert first == again
    names = [[tile["tip"][1] for tile in drawings(page)[0]["tiles"]] for page in (first, other)]
    assert names[0] != names[1]
    assert all(len(set(some)) == 12 for some in names)


def test_the_images_are_those_of_the_training_split() -> None:
    data = open_data("digits", DataSettings())
    split = data.splits["train"]
    for name, size, rows in choose_examples(split, data.spec, 5, 0):
        assert split.target is not None
        assert len(set(rows)) == 5
        assert size == int((split.target == int(name)).sum())
        for i in rows:
            assert label(split, data.spec, i) == name
    tile = drawings(page_of("digits", count=1))[0]["tiles"][4]
    (_, _, (i,)) = choose_examples(split, data.spec, 1, 0)[4]
    image = split.image(i)
    assert image is not None
    assert np.array_equal(pixels(tile), np.array(image))


def test_rows_of_a_table_and_values_are_lines(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"size": [i % 25 + 0.5 for i in range(60)], "price": [1000 * (i % 25 + 0.5) for i in range(60)]}
    )
    frame.write_csv(tmp_path / "houses.csv")
    (drawing,) = drawings(page_of(tmp_path / "houses.csv", count=4, target="price"))
    assert [c["name"] for c in drawing["table"]["columns"]] == ["size", "price"]
    assert len(drawing["table"]["rows"]) == 12
    for size, price in drawing["table"]["rows"]:
        assert float(price) == 1000 * float(size)
    data = open_data(str(tmp_path / "houses.csv"), build(DataSettings, {"target": "price"}))
    row = data.splits["train"].row(7)
    assert row is not None
    assert label(data.splits["train"], data.spec, 7).replace("\u202f", "") == f"{float(row['price']):.0f}"


@pytest.mark.parametrize(
    ("name", "settings", "kind", "words"),
    [
        ("dates.tsv", {"pairs": "true"}, "prose", ["source", "target"]),
        ("topics.tsv", {"text": "text", "target": "topic"}, "prose", ["label", "text"]),
        ("molecules.csv", {"smiles": "smiles", "target": "weight"}, "prose", ["smiles", "weight"]),
        ("sounds", {}, "tiles", None),
        ("captions", {}, "tiles", None),
    ],
)
def test_other_kinds_of_data(
    name: str, settings: dict[str, str], kind: str, words: list[str] | None, tmp_path: Path
) -> None:
    write_example(next(one for one in (name, f"{name}/") if one in EXAMPLES), tmp_path)
    drawing = drawings(page_of(tmp_path / name, count=2, **settings))[0]
    assert drawing["kind"] == kind
    if words is not None:
        assert [c["name"] for c in drawing["table"]["columns"]] == words
        assert all(all(row) for row in drawing["table"]["rows"])
        return
    assert all(tile["image"].startswith("data:image/png") for tile in drawing["tiles"])
    if name == "sounds":
        assert pixels(drawing["tiles"][0]).shape == (56, 160)
    else:
        assert " " in drawing["tiles"][0]["label"]  # its caption


def test_masks_are_drawn_over_images_in_the_colours_of_their_classes(tmp_path: Path) -> None:
    write_example("masks/", tmp_path)
    page = page_of(tmp_path / "masks", count=2)
    assert page["views"][1]["says"].startswith("Random images of the train split with their masks")
    grid, legend = drawings(page)
    colours = {tile["label"]: tuple(pixels(tile)[0, 0].tolist()) for tile in legend["tiles"]}
    assert list(colours) == [str(k) for k in range(10)]  # without the background
    assert len(set(colours.values())) == 10
    for tile in grid["tiles"]:
        folder, file = tmp_path / "masks" / "train", Path(tile["tip"][1]).name
        mask = np.array(Image.open(folder / "masks" / file))
        plain = np.array(Image.open(folder / "images" / file).convert("RGB")).astype(float)
        shown, present = pixels(tile), sorted({*mask.ravel().tolist()} - {0})
        assert tile["label"] == ", ".join(str(k - 1) for k in present)
        assert (shown[mask == 0] == plain[mask == 0]).all()
        for k in present:  # each between the pixel and the colour
            wanted = plain[mask == k] + COVER * (np.array(colours[str(k - 1)]) - plain[mask == k])
            assert np.abs(shown[mask == k] - wanted).max() <= 0.5


def test_boxes_are_drawn_around_the_objects_of_images(tmp_path: Path) -> None:
    write_example("scenes/", tmp_path)
    found = json.loads((tmp_path / "scenes" / "train" / "annotations.json").read_text())
    names = {one["id"]: one["name"] for one in found["categories"]}
    images = {Path(one["file_name"]).name: one for one in found["images"]}
    (drawing,) = drawings(page_of(tmp_path / "scenes", count=2))
    assert drawing["kind"] == "gallery"
    assert len(drawing["items"]) == 6
    for item in drawing["items"]:
        image = images[item["name"]]
        width, height = image["width"], image["height"]
        wanted = {
            (names[a["category_id"]], round(x / width, 2), round(y / height, 2), round((x + w) / width, 2))
            for a in found["annotations"]
            if a["image_id"] == image["id"]
            for x, y, w, _ in [a["bbox"]]
        }
        assert {(box["name"], *(round(n, 2) for n in box["box"][:3])) for box in item["boxes"]} == wanted
        assert set(item["words"].split(", ")) == {name for name, *_ in wanted}
        assert {box["kind"] for box in item["boxes"]} == {"actual"}


def test_recordings_with_transcripts_have_them_as_labels(tmp_path: Path) -> None:
    write_example("spelled/", tmp_path)
    lines = next((tmp_path / "spelled").rglob("transcripts.tsv")).read_text().splitlines()
    transcripts = dict(line.split("\t") for line in lines)
    tiles = drawings(page_of(tmp_path / "spelled", count=2))[0]["tiles"]
    assert len(tiles) == 6
    for tile in tiles:
        wanted = next(text for file, text in transcripts.items() if Path(file).name == Path(tile["tip"][1]).name)
        assert tile["label"] == tile["tip"][0] == wanted


@pytest.mark.parametrize(
    ("name", "settings", "history", "horizon"),
    [
        ("visits.csv", {"forecast": "visits", "known_future": "sale,sunday"}, 96, 24),
        ("shops.csv", {"forecast": "visits", "id": "shop", "known_future": "sale", "horizon": "7"}, 28, 7),
    ],
)
def test_windows_are_curves_in_the_units_of_the_data(
    name: str, settings: dict[str, str], history: int, horizon: int, tmp_path: Path
) -> None:
    write_example(name, tmp_path)
    frame = pl.read_csv(tmp_path / name)
    *curves, lines = drawings(page_of(tmp_path / name, 4, **settings))  # type: ignore[arg-type]
    assert lines["kind"] == "prose"
    assert len(curves) == 6
    for curve in curves:
        shop, _, time = curve["title"].removeprefix("visits, ").rpartition("from ")
        own = frame.filter(pl.col("shop") == shop.rstrip(", ")) if "id" in settings else frame
        start = own["day" if "id" in settings else "time"].index_of(time)
        assert start is not None
        seen, ahead = (series["points"] for series in curve["series"])
        assert [t for t, _ in ahead] == list(range(horizon + 1))
        values = own["visits"].slice(start - history, history + horizon).to_list()
        assert [v for _, v in [*seen, *ahead[1:]]] == pytest.approx(values, rel=1e-3, abs=1e-3)


def test_a_graph_without_a_target_shows_links(cli: Cli, tmp_path: Path) -> None:
    write_example("novel/", tmp_path)
    answer = cli("data", "novel/", "--show", "--count", "3", "--json")
    assert answer.status == 0
    (drawing,) = drawings(json.loads(answer.out))
    labels = [row[0] for row in drawing["table"]["rows"]]
    assert labels == ["no link"] * 3 + ["link"] * 3
    edges = {frozenset(row) for row in pl.read_csv(tmp_path / "novel" / "edges.csv").rows()}
    pairs = [frozenset(row[1].split(" – ")) for row in drawing["table"]["rows"]]
    assert [pair in {frozenset(e) for e in edges} for pair in pairs] == [False] * 3 + [True] * 3
    answer = cli("data", "novel/", "--show", "target=faction")
    assert answer.status == 2
    assert "faction" in answer.said


def test_a_waveform_has_the_range_of_its_samples() -> None:
    samples = np.zeros(1600, np.float32)
    samples[800:810] = 0.5  # one column of pixels of the 160
    samples[810:820] = -0.25
    dark = np.array(_draw_waveform(samples)) < 128
    assert dark[:, 80].nonzero()[0].tolist() == [0]  # at the top: the largest value
    assert dark[:, 81].nonzero()[0].tolist() == [41]  # half as far, below the middle
    assert dark[:, 10].sum() == 1


def test_signals_are_curves_and_many_classes_are_thinned() -> None:
    signals = np.random.default_rng(0).normal(size=(100, 40, 1)).astype(np.float32)
    found = drawings(page_of(to_source((signals, np.arange(100) % 10))[0], count=3))
    assert [drawing["kind"] for drawing in found] == ["lines"] * 10
    assert all(len(drawing["series"]) == 3 for drawing in found)

    class Many:
        target = torch.arange(100).repeat_interleave(2)

        def __len__(self) -> int:
            return 200

    spec = ImageSpec(1, 8, 8, Classes(tuple(f"class {k}" for k in range(100))))
    assert len(choose_examples(Many(), spec, 1, 0)) == MAX_CLASSES  # type: ignore[arg-type]


def test_the_command_writes_a_page(cli: Cli, tmp_path: Path, photos: Path) -> None:
    answer = cli("data", "digits", "--show", "--count", "2")
    assert answer.status == 0
    assert answer.out.startswith("examples-digits.html\n20 images of 10 classes. Splits: train 1")
    written = (tmp_path / "examples-digits.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in written  # it loads nothing
    assert written.count('"image": "data:image/png') == 20
    assert cli("data", "digits", "--show", "--count", "2").status == 0  # a page of ours is replaced
    page = json.loads(cli("data", photos, "--show", "--json", "image_size=8").out)
    assert page["title"] == "Examples of photos"
    assert not (tmp_path / "examples-photos.html").exists()


WRONG = {
    "no data": (("--show",), "Missing data"),
    "no such data": (("nope", "--show"), "There is no data set or path 'nope'"),
    "count": (("digits", "--show", "--count", "0"), "Invalid --count=0: must be at least 1"),
    "seed": (("digits", "--show", "--seed", "-1"), "Invalid --seed=-1: must be at least 0"),
    "setting": (("digits", "--show", "colour=x"), "colour"),
    "without --show": (("digits", "--count", "3"), "add --show"),
    "a setting without --show": (("digits", "val=0.2"), "add --show"),
    "two": (("digits", "moons", "--show"), "'moons' is not a setting"),
}


@pytest.mark.parametrize(("words", "says"), WRONG.values(), ids=WRONG)
def test_wrong_words(words: tuple[str, ...], says: str, cli: Cli) -> None:
    answer = cli("data", *words)
    assert answer.status == 2
    assert says in answer.said
    assert answer.out == ""


def test_another_page_is_not_overwritten(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("mine")
    answer = cli("data", "iris", "--show", "--out", "mine.html")
    assert answer.status == 2
    assert "mine.html already exists" in answer.said
    assert (tmp_path / "mine.html").read_text() == "mine"
