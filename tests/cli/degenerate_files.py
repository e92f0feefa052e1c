"""Small data of every kind on which metrics are undefined: constants, one class, empty masks, no boxes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image

from .own_files import _film

RATE = 8000
ROWS = 40


@dataclass(frozen=True)
class Case:
    """A data set, how it is trained on, and what a prediction is asked for."""

    make: Callable[[Path], None]
    model: str
    words: tuple[str, ...]
    inputs: tuple[str, ...]


def _csv(path: Path, head: str, rows: list[str]) -> None:
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")


# --- tables -------------------------------------------------------------------------------------------------------


def rare_class(folder: Path) -> None:
    """Two classes, of which one split has the first alone, as groups stay whole. One column is constant."""
    rows = [f"{i % 7},{i % 3},5,{i % 8},{'rare' if i % 8 < 2 else 'usual'}" for i in range(ROWS)]
    _csv(folder / "rare.csv", "a,b,same,who,kind", rows)


def constant_value(folder: Path) -> None:
    """A target that is 3.5 in four groups of eight, and a constant column."""
    rows = [f"{i % 7},{i % 3},5,{i % 8},{3.5 + i / 100 if i % 8 < 4 else 3.5}" for i in range(2 * ROWS)]
    _csv(folder / "value.csv", "a,b,same,who,price", rows)


def last_bits(folder: Path) -> None:
    """A column and a target whose values differ in their last bits alone."""
    rows = [f"{i % 7},{1 + i % 25 * 2**-52!r},{0.1 + (7 * i) % 23 * 2**-56!r}" for i in range(ROWS)]
    _csv(folder / "bits.csv", "a,same,price", rows)


def order_numbers(folder: Path) -> None:
    """A column and a target of 18 digits, of which the last ones differ."""
    rows = [f"{i % 7},{10**17 + i},{123456789012345678 + (7 * i) % 23}" for i in range(ROWS)]
    _csv(folder / "orders.csv", "a,order,next", rows)


def huge_values(folder: Path) -> None:
    """A column and a target whose largest difference is greater than any float32."""
    rows = [f"{i % 7},{(-1) ** i * (3e38 + i)!r},{(-1) ** i * (1 + i / 100) * 2e38!r}" for i in range(ROWS)]
    _csv(folder / "huge.csv", "a,large,price", rows)


# --- series -------------------------------------------------------------------------------------------------------


def sine(folder: Path) -> None:
    """A series whose last season repeats exactly."""
    wave = np.round(10 + 5 * np.sin(2 * np.pi * np.arange(240) / 24), 3)
    rows = [f"2024-01-{1 + i // 24:02}T{i % 24:02}:00,{v}" for i, v in enumerate(wave)]
    _csv(folder / "sine.csv", "time,load", rows)


def constant_series(folder: Path) -> None:
    """A series that never changes."""
    rows = [f"2024-01-{1 + i // 24:02}T{i % 24:02}:00,7.5" for i in range(240)]
    _csv(folder / "constant.csv", "time,load", rows)


def constant_column(folder: Path) -> None:
    """Two columns to forecast, of which the second never changes."""
    rows = [f"2024-01-{1 + i // 24:02}T{i % 24:02}:00,{(7 * i) % 11},2" for i in range(240)]
    _csv(folder / "columns.csv", "time,load,price", rows)


def constant_shop(folder: Path) -> None:
    """Three series of 120 days, of which one never changes and one is 0."""
    rows = []
    for i in range(120):
        day = str(np.datetime64("2024-01-01") + i)
        rows += [f"{day},busy,{(7 * i) % 11}", f"{day},flat,4", f"{day},zero,0"]
    _csv(folder / "shops.csv", "day,shop,sales", rows)


# --- text ---------------------------------------------------------------------------------------------------------


def one_letter(folder: Path) -> None:
    """A text that is one letter, again and again, after a line of others."""
    (folder / "same.txt").write_text("b c\n" + "a" * 3000, encoding="utf-8")


def no_spans(folder: Path) -> None:
    """Sentences in which hardly a token has another tag than O."""
    sentences = []
    for i in range(ROWS):
        tags = ["B-PER" if i in (2, 30) else "O", "O", "O"]
        sentences.append("\n".join(f"{word}\t{tag}" for word, tag in zip(("Ann", "was", f"w{i % 5}"), tags)))
    (folder / "tags.conll").write_text("\n\n".join(sentences) + "\n", encoding="utf-8")


def one_answer(folder: Path) -> None:
    """Pairs whose target is always the same word."""
    (folder / "pairs.tsv").write_text("".join(f"word {i}\tyes\n" for i in range(ROWS)), encoding="utf-8")


def rare_label(folder: Path) -> None:
    """Texts of two labels, of which the second has few."""
    rows = [f"text number {i % 9}\t{'rare' if i % 13 == 3 else 'usual'}" for i in range(ROWS)]
    (folder / "texts.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")


# --- images -------------------------------------------------------------------------------------------------------


def _image(path: Path, grey: int, side: int = 16) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((side, side, 3), grey, np.uint8)
    pixels[0, 0] = (grey, 255 - grey, grey // 2)  # no two files are the same
    Image.fromarray(pixels).save(path)


def grey_images(folder: Path) -> None:
    """Images of one colour each, in two classes of which the test split has one alone."""
    for i in range(24):
        split, name = ("test" if i % 3 == 0 else "train"), ("rare" if i % 6 == 1 else "usual")
        _image(folder / "grey" / split / name / f"{i:02}.png", 5 * i)


def empty_masks(folder: Path) -> None:
    """Images with masks of background alone, but for one pixel of one image."""
    for split, count in (("train", 6), ("test", 4)):
        for i in range(count):
            _image(folder / "masks" / split / "images" / f"{i}.png", 20 * i + (split == "test"))
            mask = np.zeros((16, 16), np.uint8)
            mask[3, 3] = int(split == "train" and i == 0)
            target = folder / "masks" / split / "masks" / f"{i}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(mask).save(target)
    (folder / "masks" / "classes.txt").write_text("ground\nthing\n", encoding="utf-8")


def no_boxes(folder: Path) -> None:
    """Images with one box in the training split and none in the test split."""
    for split, count in (("train", 8), ("val", 3), ("test", 3)):
        images, boxes = [], []
        for i in range(count):
            _image(folder / "boxes" / split / f"{i}.png", 20 * i + len(split), side=32)
            images.append({"id": i, "file_name": f"{i}.png", "width": 32, "height": 32})
            if split == "train" and i < 2:
                boxes.append(
                    {"id": i, "image_id": i, "category_id": 1, "bbox": [4, 4, 12, 12], "area": 144, "iscrowd": 0}
                )
        about = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
        (folder / "boxes" / split / "annotations.json").write_text(json.dumps(about), encoding="utf-8")


def one_caption(folder: Path) -> None:
    """Images that all have the same caption."""
    for i in range(12):
        _image(folder / "captions" / f"{i:02}.png", 10 * i, side=32)
    _csv(folder / "captions" / "captions.tsv", "file\tcaption", [f"{i:02}.png\tthe same" for i in range(12)])


# --- sound and video ----------------------------------------------------------------------------------------------


def silence(folder: Path) -> None:
    """Recordings that are silent, in two classes of which the second has three."""
    for i in range(24):
        path = folder / "silence" / ("rare" if i % 8 == 0 else "usual") / f"{i:02}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        sound = np.zeros(1600)
        sound[i] = 0.1
        soundfile.write(path, sound, RATE)


def one_transcript(folder: Path) -> None:
    """Recordings that are nearly silent, whose transcripts are all "a"."""
    (folder / "speech").mkdir()
    for i in range(16):
        sound = np.zeros(4000)
        sound[i] = 0.1
        soundfile.write(folder / "speech" / f"{i:02}.wav", sound, RATE)
    _csv(folder / "speech" / "transcripts.tsv", "file\ttranscript", [f"{i:02}.wav\ta" for i in range(16)])


def black_videos(folder: Path) -> None:
    """Videos in which nothing moves, in two classes of which the second has three."""
    for i in range(16):
        path = folder / "films" / ("rare" if i % 6 == 0 else "usual") / f"{i:02}.avi"
        path.parent.mkdir(parents=True, exist_ok=True)
        _film(path, np.full((4, 16, 16), 9 * i, np.uint8))


# --- graphs -------------------------------------------------------------------------------------------------------


def nodes(folder: Path) -> None:
    """Nodes in a row, of two classes of which the second has few."""
    (folder / "nodes").mkdir()
    classes = ["rare" if i in (3, 30) else "usual" for i in range(ROWS)]
    _csv(folder / "nodes" / "nodes.csv", "id,kind,age", [f"{i},{k},5" for i, k in enumerate(classes)])
    _csv(folder / "nodes" / "edges.csv", "source,target", [f"{i},{i + 1}" for i in range(ROWS - 1)])


def links(folder: Path) -> None:
    """A graph in which every node is linked to nearly every other one."""
    (folder / "links").mkdir()
    _csv(folder / "links" / "nodes.csv", "id", [str(i) for i in range(10)])
    edges = [f"{i},{j}" for i in range(10) for j in range(i + 1, 10) if (i + j) % 9]
    _csv(folder / "links" / "edges.csv", "source,target", edges)


def molecules(folder: Path) -> None:
    """Chains of carbon and one other atom, nearly all of one class, and a number that differs in its last bits."""
    chains = [f"{'C' * (1 + i % 9)}{'ON'[i // 9 % 2]}{'C' * (i // 18)}" for i in range(ROWS)]
    rows = [f"{c},{'rare' if i in (3, 30) else 'usual'},{1.5 + i * 2**-51!r}" for i, c in enumerate(chains)]
    _csv(folder / "molecules.csv", "smiles,kind,weight", rows)


def folder_of_graphs(folder: Path) -> None:
    """Whole graphs as files of the TU collection: rings of different sizes, nearly all of one class."""
    home = folder / "RINGS"
    home.mkdir()
    edges, indicator, labels, at = [], [], [], 1
    for i in range(ROWS):
        size = 3 + i % 11
        edges += [f"{at + k}, {at + (k + 1) % size}" for k in range(size)]
        edges += [f"{at + (k + 1) % size}, {at + k}" for k in range(size)]
        indicator += [str(i + 1)] * size
        labels.append("1" if i in (3, 30) else "0")
        at += size
    for name, lines in (("A", edges), ("graph_indicator", indicator), ("graph_labels", labels)):
        (home / f"RINGS_{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


HIDDEN = "model.hidden_dim=8"
CASES = {
    "table": Case(rare_class, "mlp", ("rare.csv", "target=kind", "group=who", "model.hidden_dims=4"), ("rare.csv",)),
    "value": Case(
        constant_value, "mlp", ("value.csv", "target=price", "group=who", "model.hidden_dims=4"), ("value.csv",)
    ),
    "bits": Case(last_bits, "mlp", ("bits.csv", "target=price", "model.hidden_dims=4"), ("bits.csv",)),
    "orders": Case(
        order_numbers,
        "mlp",
        ("orders.csv", "target=next", "types=next:number,order:number", "model.hidden_dims=4"),
        ("orders.csv",),
    ),
    "huge": Case(
        huge_values,
        "mlp",
        ("huge.csv", "target=price", "types=price:number,large:number", "model.hidden_dims=4"),
        ("huge.csv",),
    ),
    "sine": Case(sine, "gru", ("sine.csv", "forecast=load", "horizon=6", "lookback=24", HIDDEN), ("sine.csv",)),
    "constant": Case(
        constant_series, "gru", ("constant.csv", "forecast=load", "horizon=6", "lookback=24", HIDDEN), ("constant.csv",)
    ),
    "columns": Case(
        constant_column,
        "gru",
        ("columns.csv", "forecast=load,price", "horizon=6", "lookback=24", HIDDEN),
        ("columns.csv",),
    ),
    "shops": Case(
        constant_shop,
        "gru",
        ("shops.csv", "forecast=sales", "id=shop", "horizon=6", "lookback=14", HIDDEN),
        ("shops.csv",),
    ),
    "letter": Case(one_letter, "gru", ("same.txt", HIDDEN), ("aaaa",)),
    "tags": Case(no_spans, "gru", ("tags.conll", HIDDEN), ("Ann was here",)),
    "pairs": Case(
        one_answer,
        "seq2seq-gru",
        (
            *("pairs.tsv", "pairs=true", HIDDEN, "model.embedding_dim=8"),
            *("model.attention_dim=8", "model.readout_dim=8"),
        ),
        ("word 3",),
    ),
    "texts": Case(
        rare_label,
        "textcnn",
        ("texts.tsv", "text=text", "target=label", "model.dim=8", "model.filters=4"),
        ("text number 3",),
    ),
    "images": Case(grey_images, "simplecnn", ("grey", "image_size=16"), ("grey/train/rare",)),
    "drawn": Case(
        grey_images,
        "ddpm-unet-small",
        (
            "grey",
            "image_size=16",
            "model.widths=8,8",
            "model.layers=1",
            "model.groups=2",
            "model.attention_levels=2",
            "model.timesteps=4",
        ),
        (),
    ),
    "masks": Case(empty_masks, "unet-small", ("masks", "image_size=16", "model.width=4"), ("masks/test/images/1.png",)),
    "boxes": Case(
        no_boxes,
        "fcos-resnet18-small",
        ("boxes", "image_size=32", "model.layers=1,1", "model.width=8", "model.dim=16", "model.head_layers=1"),
        ("boxes/test/1.png",),
    ),
    "captions": Case(one_caption, "show-attend-tell", ("captions", "image_size=32", HIDDEN), ("captions/01.png",)),
    "audio": Case(silence, "gru", ("silence", "n_mels=8", HIDDEN), ("silence/rare/00.wav",)),
    "speech": Case(
        one_transcript, "ctc-conv-gru", ("speech", "n_mels=8", "model.channels=4,4", HIDDEN), ("speech/01.wav",)
    ),
    "video": Case(
        black_videos, "cnn-lstm", ("films", "frames=4", "model.channels=2,4", HIDDEN), ("films/rare/00.avi",)
    ),
    "nodes": Case(nodes, "gcn", ("nodes", "target=kind", HIDDEN), ("nodes",)),
    "links": Case(links, "gae", ("links", HIDDEN), ("links",)),
    "molecules": Case(molecules, "gine", ("molecules.csv", "smiles=smiles", "target=kind", HIDDEN), ("molecules.csv",)),
    "weights": Case(molecules, "gine", ("molecules.csv", "smiles=smiles", "target=weight", HIDDEN), ("molecules.csv",)),
    "graphs": Case(folder_of_graphs, "gin", ("RINGS", HIDDEN), ("RINGS",)),
}
