"""missing=drop leaves out what cannot be used, of every kind of data; without it the error names each and offers it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import networkx
import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

from cutaway.core.errors import DataError, SettingError
from cutaway.data.dataset_base import DataSet
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.experiments.planner import check

RNG = np.random.default_rng(0)
DAMAGED = "no image"  # what stands in a file that is none
Writer = Callable[[Path], None]


def write_image(path: Path, size: int = 24, cut: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 255, (size, size, 3), dtype=np.uint8)).save(path)
    if cut:  # its head is whole, its pixels are not
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_text(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_sound(path: Path, samples: int = 4000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.1 * RNG.normal(size=samples), 8000)


def write_classes(write: Writer, root: Path, ending: str) -> None:
    """Nine examples of one class, six of another."""
    for name, count in (("cat", 9), ("dog", 6)):
        for i in range(count):
            write(root / name / f"{i}{ending}")


def images(root: Path) -> list[str]:
    write_classes(write_image, root, ".png")
    write_text(root / "cat" / "3.png", DAMAGED)
    write_image(root / "dog" / "2.png", cut=True)
    return ["cat/3.png", "dog/2.png"]


def recordings(root: Path) -> list[str]:
    write_classes(write_sound, root, ".flac")
    write_text(root / "cat" / "3.flac", DAMAGED)
    whole = (root / "dog" / "2.flac").read_bytes()
    write_text(root / "dog" / "2.flac", whole[: len(whole) // 2])
    return ["cat/3.flac", "dog/2.flac"]


def videos(root: Path) -> list[str]:
    for name, count in (("up", 7), ("down", 5)):
        for i in range(count):
            for frame in range(3):
                write_image(root / name / f"v{i}" / f"{frame}.png")
    write_text(root / "up" / "v1" / "2.png", DAMAGED)
    write_image(root / "down" / "v4" / "1.png", cut=True)
    return ["up/v1/2.png", "down/v4/1.png"]


def texts(root: Path) -> list[str]:
    write_classes(lambda path: write_text(path, f"a text on {path.parent.name} {path.stem}"), root, ".txt")
    write_text(root / "cat" / "3.txt", b"caf\xe9")
    write_text(root / "dog" / "2.txt", "")
    return ["cat/3.txt", "dog/2.txt"]


def running_text(root: Path) -> list[str]:
    for i in range(4):
        write_text(root / f"{i}.txt", "the cat sat on the mat. " * 40)
    write_text(root / "1.txt", b"caf\xe9")
    write_text(root / "3.txt", "")
    return ["1.txt", "3.txt"]


def boxes(root: Path) -> list[str]:
    for i in range(8):
        write_image(root / f"{i}.png", cut=i == 2)
    rows = [{"id": i, "file_name": f"{i}.png", "height": 24, "width": 24} for i in range(8)]
    marks = [{"id": i, "image_id": i, "category_id": 1, "bbox": [1 + i, 2, 9, 9]} for i in range(8)]
    document = {"images": rows, "annotations": marks, "categories": [{"id": 1, "name": "cup"}]}
    write_text(root / "annotations.json", json.dumps(document))
    return ["2.png"]


def masks(root: Path) -> list[str]:
    for i in range(9):
        write_image(root / "images" / f"{i}.png", cut=i == 6)
        (root / "masks").mkdir(exist_ok=True)
        side = 20 if i == 1 else 24  # of another size than its image
        Image.fromarray((np.arange(side * side) % 2).reshape(side, side).astype(np.uint8)).save(
            root / "masks" / f"{i}.png"
        )
    return ["images/6.png", "masks/1.png"]


def captions(root: Path) -> list[str]:
    for i in range(8):
        write_image(root / f"{i}.png", cut=i == 5)
    write_text(root / "captions.tsv", "".join(f"{i}.png\ta cup of tea {i}\n" for i in range(8)))
    return ["5.png"]


def transcripts(root: Path) -> list[str]:
    for i in range(8):
        write_sound(root / f"{i}.wav")
    write_text(root / "transcripts.tsv", "".join(f"{i}.wav\thello\n" for i in range(8)))
    write_text(root / "4.wav", DAMAGED)
    return ["4.wav"]


def many_graphs(root: Path) -> list[str]:
    root.mkdir()
    for i in range(9):
        graph = networkx.path_graph(3 + i % 2)
        graph.graph["toxic"] = "yes" if i % 3 else "no"
        networkx.set_node_attributes(graph, {node: 0.5 * node + i for node in graph}, "h")
        networkx.write_graphml(graph, root / f"{i}.graphml")
    write_text(root / "7.graphml", "<graphml")
    return ["7.graphml"]


FOLDERS: dict[str, tuple[Callable[[Path], list[str]], int, dict[str, object]]] = {
    "images": (images, 13, {}),
    "images that are read anew": (images, 13, {"memory": 0}),
    "recordings": (recordings, 13, {}),
    "recordings that are read anew": (recordings, 13, {"memory": 0}),
    "videos": (videos, 10, {}),
    "texts": (texts, 13, {}),
    "boxes": (boxes, 7, {}),
    "masks": (masks, 7, {}),
    "captions": (captions, 7, {}),
    "transcripts": (transcripts, 7, {}),
    "graphs": (many_graphs, 8, {"target": "toxic"}),
    "running text": (running_text, 0, {}),
}


def opened(root: Path, **settings: object) -> DataSet:
    return open_data(root, DataSettings(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", FOLDERS)
def test_each_kind_names_what_is_damaged_or_leaves_it_out(tmp_path: Path, kind: str) -> None:
    write, left, settings = FOLDERS[kind]
    damaged = write(tmp_path / "data")
    data = opened(tmp_path / "data", missing="drop", **settings)
    notes = " ".join(note for note in data.notes if "missing=drop left out" in note)
    for name in damaged:
        assert str(Path(name)) in notes
    if left:
        assert sum(map(len, data.splits.values())) == left
    for split in data.splits.values():  # all that is left can be read
        for batch in split.batches([torch.arange(len(split))]):
            assert len(batch.inputs[0])
    if "anew" in kind:
        return  # without missing=drop those are found as they are read
    with pytest.raises(DataError, match="missing=drop") as rejected:
        opened(tmp_path / "data", **settings)
    assert any(name in problem.where for problem in rejected.value.problems for name in damaged)


def test_a_check_of_what_is_read_anew_offers_it_too(tmp_path: Path) -> None:
    images(tmp_path / "data")
    (tmp_path / "data" / "cat" / "3.png").unlink()
    with pytest.raises(DataError, match=r"dog/2\.png: .*in training missing=drop leaves them out"):
        check("softmax", str(tmp_path / "data"), {"memory": 0})


def test_labels_stay_with_their_images(tmp_path: Path) -> None:
    write_classes(write_image, tmp_path, ".png")
    whole = opened(tmp_path, val=0, test=0)
    images(tmp_path)
    data = opened(tmp_path, val=0, test=0, missing="drop")
    assert np.bincount(data.splits["train"].target).tolist() == [8, 5]  # type: ignore[arg-type]
    split = data.splits["train"]
    assert [split.name(i).split("/")[0] == "dog" for i in range(13)] == split.target.bool().tolist()  # type: ignore[union-attr]
    assert data.fingerprint != whole.fingerprint


def test_a_class_or_a_split_of_which_nothing_would_be_left_is_an_error(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("test", 2)):
        for name in ("cat", "dog"):
            for i in range(count):
                write_image(tmp_path / split / name / f"{i}.png")
    for i in range(4):
        write_text(tmp_path / "train" / "cat" / f"{i}.png", DAMAGED)
    with pytest.raises(DataError, match="missing=drop would leave nothing of the class 'cat' to learn from"):
        opened(tmp_path, missing="drop")
    for name in ("cat", "dog"):
        for i in range(2):
            write_text(tmp_path / "test" / name / f"{i}.png", DAMAGED)
    with pytest.raises(DataError, match="missing=drop would leave nothing of the test split"):
        opened(tmp_path, missing="drop")


def test_fill_is_for_cells_alone(tmp_path: Path) -> None:
    images(tmp_path)
    with pytest.raises(SettingError, match="missing=fill is for the cells of tables"):
        opened(tmp_path, missing="fill")


def test_edges_to_nodes_that_are_not_there(tmp_path: Path) -> None:
    nodes = "".join(f"n{i},{i / 10},{'ab'[i % 3 == 0]}\n" for i in range(24))
    write_text(tmp_path / "nodes.csv", f"id,x,y\n{nodes}")
    edges = "".join(f"n{i},n{(i + 5) % 24},{i}\n" for i in range(24))
    write_text(tmp_path / "edges.csv", f"source,target,weight\n{edges}n1,n99,1\nn98,n97,1\n")
    with pytest.raises(DataError, match=r"3 ends of edges of edges\.csv .*missing=drop leaves them out"):
        opened(tmp_path, target="y")
    data = opened(tmp_path, target="y", missing="drop", edge_attr=True)
    assert any(
        "missing=drop left out 2 of 26 edges of edges.csv (7.7%): edges.csv, line 26" in note for note in data.notes
    )
    assert any("24 nodes and 48 edges" in note for note in data.notes)


def test_one_of_several_series(tmp_path: Path) -> None:
    rows = []
    for name, days in (("a", 40), ("b", 44), ("c", 41)):
        for day in range(days):
            value = "n/a?" if name == "b" and day == 9 else f"{np.sin(day):.3f}"
            rows.append(f"{name},{np.datetime64('2024-01-01') + day},{value}\n")
    write_text(tmp_path / "t.csv", "shop,day,sales\n" + "".join(rows))
    given = {"forecast": ("sales",), "id": "shop", "horizon": 3, "lookback": 6}
    with pytest.raises(DataError, match=r"line 51.*n/a\?.* In training missing=drop leaves this series out"):
        opened(tmp_path / "t.csv", **given)
    data = opened(tmp_path / "t.csv", missing="drop", **given)
    assert any(note.startswith("2 series, named by column shop, of 40 to 41 steps") for note in data.notes)
    assert any("missing=drop left out 1 of 3 series of t.csv (33.3%): shop b: t.csv" in note for note in data.notes)
    write_text(tmp_path / "t.csv", "shop,day,sales\n" + "".join(rows).replace("c,2024-01-05,", "c,2024-01-04,"))
    with pytest.raises(DataError, match=r"2 of 3 series of t\.csv cannot be used: shop b: .*shop c: .*missing=drop"):
        opened(tmp_path / "t.csv", **given)
