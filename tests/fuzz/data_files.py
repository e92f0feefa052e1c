"""Files of every kind of data, damaged: random bytes, cuts, splices, extreme numbers, hostile text."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import cutaway
from cutaway.core.errors import CutawayError
from cutaway.core.spec import Mask
from cutaway.data.synthetic import write_example
from cutaway.training import cost_estimate

from . import documents
from .kinds import Case, Kind, read_whole
from .mutations import corrupt
from .runner import shuffled

FEW = 6  # files of a class


@dataclass(frozen=True)
class Files:
    """Files of one kind: a folder of whole ones, of which one at a time is damaged."""

    name: str
    prepare: Callable[[Path], Path]  # write the folder, and return it
    pattern: str  # of the files that are damaged
    read: Callable[[Path, Path], object]  # the folder, and the damaged file
    quick: bool = False
    known: bool = True  # whether such files are read; those of other forms are rejected whole

    def kind(self) -> Kind:
        """The kind of inputs."""
        return Kind(f"files:{self.name}", self.prepare, self.cases, seconds=30, quick=self.quick)

    def cases(self, home: Path, own: Path, random: Random) -> Iterator[Case]:
        """Each time another file, damaged in another way."""
        original = self.prepare(home)
        folder = own / original.name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, folder)
        files = sorted(path for path in folder.rglob(self.pattern) if path.is_file())
        contents = {path: path.read_bytes() for path in files}
        if self.known:
            yield Case("unchanged", partial(read_whole, partial(self.read, folder, files[0])))
        for path in shuffled(files, random):
            name, data = corrupt(contents[path], contents[random.choice(files)], random)
            yield Case(f"{path.relative_to(folder)}, {name}", partial(self.try_one, folder, path, contents[path], data))

    def try_one(self, folder: Path, path: Path, before: bytes, data: bytes) -> None:
        """Write the damaged file, and read the folder."""
        path.write_bytes(data)
        try:
            self.read(folder, path)
        finally:
            path.write_bytes(before)


# --- folders of whole files -------------------------------------------------------------------------------------------


def example(name: str, *, rows: int | None = None) -> Callable[[Path], Path]:
    """What writes an example that is one file into a folder of its own, its first rows alone."""

    def prepare(home: Path) -> Path:
        folder = home / "files" / Path(name).stem
        if not folder.exists():
            write_example(name, home / "examples")
            lines = (home / "examples" / name).read_bytes().splitlines(keepends=True)
            folder.mkdir(parents=True)
            (folder / name).write_bytes(b"".join(lines[: rows and rows + 1]))
        return folder

    return prepare


def classes(name: str) -> Callable[[Path], Path]:
    """What writes a few files of each of two classes of an example."""

    def prepare(home: Path) -> Path:
        folder = home / "files" / name.rstrip("/")
        if not folder.exists():
            write_example(name, home / "examples")
            kept = sorted(p for p in (home / "examples" / name).rglob("*") if p.is_dir() and any(p.glob("*.*")))[:2]
            for path in kept:
                (folder / path.name).mkdir(parents=True)
                files = sorted(path.glob("*.*"))
                # Of photographs, one in every form that there is.
                for file in files if name == "photographs/" else files[:FEW]:
                    shutil.copy(file, folder / path.name)
        return folder

    return prepare


def parquet(home: Path) -> Path:
    """A table as Parquet."""
    folder = home / "files" / "parquet"
    if not folder.exists():
        import polars as pl

        write_example("wine.csv", home / "examples")
        folder.mkdir(parents=True)
        pl.read_csv(home / "examples" / "wine.csv").write_parquet(folder / "wine.parquet", row_group_size=60)
    return folder


def json_lines(home: Path) -> Path:
    """A table as JSON lines."""
    folder = home / "files" / "jsonl"
    if not folder.exists():
        folder.mkdir(parents=True)
        rows = [{"size": i, "rooms": 1 + i % 4, "price": 90.5 * i + 7} for i in range(60)]
        (folder / "houses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def graph(home: Path) -> Path:
    """A graph as tables of nodes and edges."""
    folder = home / "files" / "graph"
    if not folder.exists():
        write_example("graph/", home / "examples")
        shutil.copytree(home / "examples" / "graph", folder)
    return folder


def graphml(home: Path) -> Path:
    """A graph as GraphML."""
    folder = home / "files" / "graphml"
    if not folder.exists():
        import networkx

        folder.mkdir(parents=True)
        made = networkx.karate_club_graph()
        networkx.write_graphml(made, folder / "club.graphml")
    return folder


def yolo(home: Path) -> Path:
    """Images with boxes as YOLO has them: a text file beside each, and the names of the classes."""
    folder = home / "files" / "yolo"
    if not folder.exists():
        from PIL import Image

        for name in ("images", "labels"):
            (folder / name).mkdir(parents=True)
        for i in range(12):
            Image.new("L", (24, 20), 20 * i).save(folder / "images" / f"{i}.png")
            (folder / "labels" / f"{i}.txt").write_text(f"{i % 2} 0.5 0.5 0.{2 + i % 3} 0.25\n0 0.2 0.3 0.1 0.1\n")
        (folder / "classes.txt").write_text("leaf\nstem\n")
        (folder / "data.yaml").write_text("names: [leaf, stem]\n")
    return folder


def voc(home: Path) -> Path:
    """Images with boxes as Pascal VOC has them."""
    folder = home / "files" / "voc"
    if not folder.exists():
        from PIL import Image

        for name in ("JPEGImages", "Annotations"):
            (folder / name).mkdir(parents=True)
        for i in range(10):
            Image.new("RGB", (24, 20), (20 * i, 9, 9)).save(folder / "JPEGImages" / f"{i}.jpg")
            box = f"<bndbox><xmin>{1 + i}</xmin><ymin>2</ymin><xmax>{9 + i}</xmax><ymax>12</ymax></bndbox>"
            (folder / "Annotations" / f"{i}.xml").write_text(
                f"<annotation><filename>{i}.jpg</filename><size><width>24</width><height>20</height><depth>3</depth>"
                f"</size><object><name>leaf</name>{box}</object></annotation>"
            )
    return folder


def weights(home: Path) -> Path:
    """A model's weights, as safetensors of ours and of another program, and as a pickle of PyTorch."""
    folder = home / "files" / "weights"
    if not folder.exists():
        import torch
        from safetensors.torch import save_file

        folder.mkdir(parents=True)
        model = cutaway.create_model("mlp", in_features=13, num_classes=3)
        save_file(model.state_dict(), folder / "plain.safetensors")
        torch.save(model.state_dict(), folder / "pickle.pth")
        shutil.copy(documents.model_folder(home) / "model.safetensors", folder / "ours.safetensors")
    return folder


def a_run(name: str) -> Callable[[Path], Path]:
    """What trains a run, all of whose files are damaged."""
    return partial(documents.trained, name=name)


# --- reading ----------------------------------------------------------------------------------------------------------


def check(model: str, whole: bool = False, **settings: Any) -> Callable[[Path, Path], object]:
    """What checks a model on the damaged file, or on the `whole` folder, as the command does."""

    def read(folder: Path, file: Path) -> None:
        cost_estimate.MOST_SECONDS = 0.0
        cutaway.check(model, str(folder if whole else file), **settings)

    return read


def opened(whole: bool = True, **settings: Any) -> Callable[[Path, Path], object]:
    """What opens the folder, or the file, as training does, and takes a batch."""
    return lambda folder, file: documents.open_any(folder if whole else file, **settings)


def predicted(name: str) -> Callable[[Path, Path], object]:
    """What predicts the damaged file with a run, and opens the folder that it is in."""

    def read(folder: Path, file: Path) -> None:
        home = next(p for p in folder.parents if (p / "runs").is_dir())
        run = cutaway.Run(home / "runs" / name)
        with contextlib.suppress(CutawayError):
            documents.open_any(folder, **({"image_size": 28} if name == "images" else {}))
        run.predict([file])

    return read


def beside(name: str, prepare: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """What writes a folder, and trains the run that predicts its files."""

    def both(home: Path) -> Path:
        documents.trained(home, name)
        return prepare(home)

    return both


def load_weights(folder: Path, file: Path) -> None:
    """Load weights into a model, and begin a training with them."""
    with contextlib.suppress(CutawayError):
        cutaway.load(file, model="mlp")
    home = next(p for p in folder.parents if (p / "examples").is_dir())
    settings: dict[str, Any] = {"target": "cultivar", "weights": str(file)}
    cutaway.check("mlp", str(home / "examples" / "wine.csv"), **settings)


def use_run(folder: Path, file: Path) -> None:
    """Report on a run whose files are damaged, and predict with it."""
    with contextlib.suppress(CutawayError):
        documents.open_run(folder)
    home = next(p for p in folder.parents if (p / "examples").is_dir())
    cutaway.Run(folder).predict([home / "examples" / "wine.csv"])


SHOPS: dict[str, Any] = {"forecast": "visits", "id": "shop", "lookback": 20, "horizon": 3}
FILES = [
    Files("csv", example("wine.csv", rows=90), "*.csv", check("mlp", target="cultivar"), quick=True),
    Files("csv of a series", example("visits.csv", rows=400), "*.csv", check("gru", forecast="visits"), quick=True),
    Files("csv of shops", example("shops.csv", rows=400), "*.csv", opened(False, **SHOPS)),
    Files("tsv", example("topics.tsv", rows=120), "*.tsv", check("textcnn", text="text", target="topic"), quick=True),
    Files("pairs", example("dates.tsv", rows=120), "*.tsv", opened(False, pairs=True), quick=True),
    Files("molecules", example("molecules.csv", rows=40), "*.csv", opened(False, smiles="smiles", target="weight")),
    Files("jsonl", json_lines, "*.jsonl", check("mlp", target="price"), known=False),
    Files("parquet", parquet, "*.parquet", check("mlp", target="cultivar"), quick=True),
    Files("txt", example("days.txt", rows=150), "*.txt", check("gru"), quick=True),
    Files("images", beside("images", classes("photographs/")), "*.*", predicted("images"), quick=True),
    Files("masks", documents.mask_scenes, "*.*", opened(targets=(Mask,))),
    Files("boxes", documents.scenes, "*.*", opened()),
    Files("yolo", yolo, "*.*", opened(), quick=True),
    Files("voc", voc, "*.*", opened(), known=False),
    Files("audio", beside("sounds", classes("sounds/")), "*.wav", predicted("sounds"), quick=True),
    Files("video", beside("videos", classes("videos/")), "*.*", predicted("videos")),
    Files("graph tables", graph, "*.csv", opened(target="club", test=0.4), quick=True),
    Files("graphml", graphml, "*.graphml", opened(False, target="club"), quick=True),
    Files("shards of text", documents.with_shards, "*.*", opened()),
    Files("shards of images", documents.with_tars, "*.*", opened()),
    Files("shards of a table", documents.with_table_shards, "*.*", opened(target="cultivar")),
    Files("tokenizer", documents.library, "tokenizer.json", lambda folder, file: documents.open_tokenizer(folder)),
    Files("word vectors", documents.vectors, "*.*", lambda folder, file: documents.read_word_vectors(folder)),
    Files("weights", weights, "*.*", load_weights, quick=True),
    Files("a run", a_run("table"), "*.*", use_run, quick=True),
    Files("hugging face", documents.hugging, "*.*", lambda folder, file: documents.open_hugging(folder)),
    Files("onnx", documents.exported, "*.onnx", lambda folder, file: documents.use_exported(folder)),
    Files("study", documents.searched, "study.db", lambda folder, file: documents.read_search(folder)),
]  # fmt: skip
KINDS = [files.kind() for files in FILES]
