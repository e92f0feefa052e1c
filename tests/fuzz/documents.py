"""Every document that is read: a real one, written by the command that writes it, changed at every place."""

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

from starlette.exceptions import HTTPException

import cutaway
from cutaway.checkpoints.saving import read_tensors, write_tensors
from cutaway.core.errors import CutawayError
from cutaway.core.spec import Mask, Target
from cutaway.data.synthetic import write_example
from cutaway.verify.libraries import make_torchvision_importable

from .kinds import Case, Fault, Kind, read_whole
from .mutations import document_mutations, text_mutations
from .runner import shuffled

SMALL: dict[str, Any] = {"max_steps": 2, "max_samples": 120, "tensorboard": False, "batch_size": 8}
GPT: dict[str, Any] = {"model.layers": 1, "model.heads": 2, "model.dim": 16, "length": 16}

# A run of each form of preprocessing: example, model, settings.
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "table": ("wine.csv", "mlp", {"target": "cultivar"}),
    "forecast": ("visits.csv", "gru", {"forecast": "visits", "ignore": "sale,sunday", "lookback": 24}),
    "several": ("shops.csv", "gru", {"forecast": "visits", "id": "shop", "horizon": 7}),
    "images": ("scans/", "lenet5-modern", {"image_size": 28}),
    "texts": ("topics.tsv", "textcnn", {"text": "text", "target": "topic"}),
    "words": ("days.txt", "gpt2", {"tokenizer": "bpe", "vocab_size": 300, **GPT}),
    "masked": ("days.txt", "bert-base-uncased", {"tokenizer": "words", **GPT}),
    "pairs": ("dates.tsv", "seq2seq-gru", {"pairs": True, "model.hidden_dim": 8}),
    "masks": ("masks/", "unet-small", {}),
    "captions": ("captions/", "show-attend-tell", {"model.dropout": 0}),
    "sounds": ("sounds/", "gru", {"model.hidden_dim": 8}),
    "spelled": ("spelled/", "ctc-conv-gru", {}),
    "scenes": ("scenes/", "fcos-resnet18-small", {}),
    "videos": ("videos/", "cnn-lstm", {"image_size": 24}),
    "graph": ("graph/", "gcn", {"target": "club", "test": 0.4}),
    "links": ("novel/", "gae", {}),
    "molecules": ("molecules.csv", "gine", {"smiles": "smiles", "target": "weight"}),
}
WRITES = ("words",)
MEDIA = (".png", ".jpg", ".wav", ".mp4", ".avi", ".gif")
QUICK = ("table", "forecast", "texts")


def trained(home: Path, name: str) -> Path:
    """The folder of a run, trained for two steps."""
    example, model, settings = RUNS[name]
    folder = home / "runs" / name
    if not (folder / "report.html").exists():
        shutil.rmtree(folder, ignore_errors=True)
        write_example(example, home / "examples")
        cutaway.train(model, home / "examples" / example, out=folder, **SMALL, **settings)
    return folder


@dataclass(frozen=True)
class Document:
    """One document: where it stands, and what reads it."""

    name: str
    prepare: Callable[[Path], Path]  # write the folder that it stands in, below the one given, and return it
    path: str  # in that folder
    read: Callable[[Path], object]  # the folder, by what a command calls
    quick: bool = False
    names_file: bool = True  # whether every message must name the file
    # Other forms than JSON: how the document is got out of its file, and put into it again.
    load: Callable[[Path], Any] | None = None
    save: Callable[[Path, bytes], None] | None = None
    text: bool = False  # a file of text that is no JSON: changed as text alone

    def kind(self) -> Kind:
        """The kind of inputs."""
        return Kind(f"documents:{self.name}", self.prepare, self.cases, quick=self.quick)

    def cases(self, home: Path, own: Path, random: Random) -> Iterator[Case]:
        """The document with one change, each time another."""
        original = self.prepare(home)
        folder = own / original.name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, folder)
        file = folder / self.path
        before = file.read_bytes()
        if self.text:
            mutations = text_mutations(before) + _lines(before, random)
        else:
            mutations = document_mutations(self.load(file) if self.load else json.loads(before))
        yield Case(f"{self.name}: unchanged", partial(read_whole, partial(self.read, folder)))
        for name, make in shuffled(mutations, random):
            yield Case(f"{self.name}: {name}", partial(self.try_one, folder, original, before, make))

    def try_one(self, folder: Path, original: Path, before: bytes, make: Callable[[], bytes]) -> None:
        """Write the changed document, and read it."""
        file = folder / self.path
        file.write_bytes(before)
        try:
            if self.save is None:
                file.write_bytes(make())
            else:
                self.save(file, make())
            self.read(folder)
        except CutawayError as error:
            if self.names_file and file.name not in str(error):
                raise Fault(f"the message does not name {file.name}: {error}") from error
            raise
        finally:
            file.write_bytes(before)


def _lines(text: bytes, random: Random) -> list[tuple[str, Callable[[], bytes]]]:
    """Lines of a text that are lost, doubled or exchanged for others."""
    lines = text.splitlines(keepends=True)
    hostile = (b"\n", b",,,,,\n", b"nan,inf,-1e400\n", b'"\n', b"x" * 300_000 + b"\n", b"\x00\n", b"=1+1\n", b"{}\n")
    found: list[tuple[str, Callable[[], bytes]]] = []
    for at in random.sample(range(len(lines)), min(len(lines), 40)):
        for new in (b"", lines[at] * 2, *hostile):
            found.append((
                f"line {at + 1} = {new[:20]!r}",
                lambda at=at, new=new: b"".join([*lines[:at], new, *lines[at + 1 :]]),  # type: ignore[misc]
            ))  # fmt: skip
    return found


# --- what reads them --------------------------------------------------------------------------------------------------


def report(folder: Path) -> None:
    """Write the page of a run again."""
    from cutaway.reports.run_report import build_report
    from cutaway.views.run.documents import read_documents

    build_report(read_documents(folder))


def open_run(folder: Path) -> None:
    """Everything that is read of a run before it is used: its documents, preprocessing, task and data."""
    report(folder)
    run = cutaway.Run(folder)
    _ = run.preprocessing, run.task, run.place, run.image_sizes
    run.data()


def with_shards(home: Path) -> Path:
    """A folder of shards of text."""
    folder = home / "shards"
    if not folder.exists():
        write_example("days.txt", home / "examples")
        cutaway.prepare(home / "examples" / "days.txt", folder, tokenizer="characters")
    return folder


def with_tars(home: Path) -> Path:
    """A folder of shards of images."""
    folder = home / "tars"
    if not folder.exists():
        write_example("scans/", home / "examples")
        cutaway.prepare(home / "examples" / "scans", folder)
    return folder


def with_table_shards(home: Path) -> Path:
    """A folder of shards of a table."""
    folder = home / "parquets"
    if not folder.exists():
        import polars as pl

        write_example("wine.csv", home / "examples")
        pl.read_csv(home / "examples" / "wine.csv").write_parquet(home / "wine.parquet", row_group_size=50)
        cutaway.prepare(home / "wine.parquet", folder)
    return folder


def begun_shards(home: Path) -> Path:
    """A folder of shards whose preparation was stopped: its plan, and no manifest."""
    folder = home / "begun"
    if not folder.exists():
        write_example("days.txt", home / "examples")

        def stop(done: int, of: int) -> None:
            raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt):
            cutaway.prepare(home / "examples" / "days.txt", folder, tokenizer="characters", progress=stop)
    return folder


def go_on(folder: Path) -> None:
    """Go on with a preparation, in a copy, as it would else be finished."""
    copy = folder.with_name("again")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    examples = next(p / "examples" for p in folder.parents if (p / "examples").is_dir())
    cutaway.prepare(examples / "days.txt", copy, tokenizer="characters")


def searched(home: Path) -> Path:
    """A search of two trials."""
    folder = home / "search"
    if not (folder / "report.html").exists():
        shutil.rmtree(folder, ignore_errors=True)
        write_example("wine.csv", home / "examples")
        given = {"target": "cultivar", "epochs": 1, "trials": 2, "lr": "1e-4..1e-1:log", "model.hidden_dims": "4|8"}
        cutaway.search("mlp", home / "examples" / "wine.csv", out=folder, tensorboard=False, **given)
    return folder


def read_search(folder: Path) -> None:
    """Read a search, write its page, and plan to go on with it."""
    from cutaway.experiments.search.result import Search
    from cutaway.experiments.search.search_page import write_search_report
    from cutaway.experiments.search.storage import resume_spec

    found = Search(folder)
    _ = found.trials, found.best, found.front, found.importances()
    write_search_report(found)
    resume_spec(folder, None, None, {"trials": 2}, None, None)


STUDY = "study.db"


def load_study(path: Path) -> Any:
    """The rows of a study, table by table, as a document."""
    import sqlite3

    with sqlite3.connect(path) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        return {
            table: [list(row) for row in database.execute(f"select * from {table}")]
            for table in sorted(tables)
            if table not in ("alembic_version", "version_info")
        }


def save_study(path: Path, document: bytes) -> None:
    """Write rows into a study; a document that is none stands there as bytes."""
    import contextlib
    import sqlite3

    try:
        rows = json.loads(document)
        assert isinstance(rows, dict)
    except (ValueError, RecursionError, AssertionError):
        path.write_bytes(document)
        return
    with sqlite3.connect(path) as database:
        for (table,) in list(database.execute("select name from sqlite_master where type = 'table'")):
            if table in ("alembic_version", "version_info"):
                continue
            database.execute(f"delete from {table}")
            for row in rows.get(table) if isinstance(rows.get(table), list) else []:
                row = row if isinstance(row, list) else []
                cells = [cell if isinstance(cell, int | float | str | None) else json.dumps(cell) for cell in row]
                with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
                    database.execute(f"insert into {table} values ({','.join('?' * len(cells))})", cells)


def compared(home: Path) -> Path:
    """A comparison of two models."""
    folder = home / "comparison"
    if not (folder / "report.html").exists():
        shutil.rmtree(folder, ignore_errors=True)
        write_example("wine.csv", home / "examples")
        data = str(home / "examples" / "wine.csv")
        given = {"target": "cultivar", "epochs": 1, "seeds": 2, "tensorboard": False}
        cutaway.compare(["mlp", "linear"], data, out=folder, **given)
    return folder


def read_comparison(folder: Path) -> None:
    """Read a comparison and write its page."""
    from cutaway.experiments.compare.comparison_page import render_report
    from cutaway.experiments.compare.result import Comparison

    found = Comparison(folder)
    _ = found.results, found.best, found.ranks
    if found.results and found.best:
        found.equals(found.results[0])
    render_report(found)


def scenes(home: Path) -> Path:
    """A few images with boxes, as COCO writes them."""
    return _few(home, "scenes/", "coco")


def mask_scenes(home: Path) -> Path:
    """A few images with polygons, as COCO writes them."""
    folder = home / "polygons"
    if not folder.exists():
        from PIL import Image

        (folder / "images").mkdir(parents=True)
        rows, shapes = [], []
        for i in range(12):
            Image.new("RGB", (16, 12 + i % 3), (9 * i, 80, 40)).save(folder / "images" / f"{i}.png")
            rows.append({"id": i, "file_name": f"{i}.png", "width": 16, "height": 12 + i % 3})
            outline = [[1, 1, 9, 1, 9, 8 - i % 4, 1, 8]]
            shapes.append({"id": i, "image_id": i, "category_id": 1 + i % 2, "segmentation": outline, "iscrowd": 0})
        names = [{"id": 1, "name": "leaf"}, {"id": 2, "name": "stem"}]
        document = {"images": rows, "categories": names, "annotations": shapes}
        (folder / "annotations.json").write_text(json.dumps(document))
    return folder


def _few(home: Path, example: str, name: str) -> Path:
    """A part of one split of an example with a document of annotations: its first images."""
    folder = home / name
    if not folder.exists():
        write_example(example, home / "examples")
        source = home / "examples" / example / "train"
        file = next(p for p in sorted(source.rglob("*.json")))
        about = json.loads(file.read_text())
        kept = {one["id"] for one in about["images"][:14]}
        about["images"] = [one for one in about["images"] if one["id"] in kept]
        about["annotations"] = [one for one in about["annotations"] if one["image_id"] in kept]
        made = folder / file.relative_to(source)
        made.parent.mkdir(parents=True)
        for one in about["images"]:
            found = next(p for p in source.rglob(one["file_name"]))
            (folder / found.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, folder / found.relative_to(source))
        made.write_text(json.dumps(about))
    return folder


def open_any(folder: Path, targets: tuple[type[Target], ...] = (), **settings: Any) -> None:
    """Open data as training does, and take a batch of it."""
    import torch

    from cutaway.core.config import build
    from cutaway.data.open_data import open_data
    from cutaway.data.settings import DataSettings

    data = open_data(str(folder), build(DataSettings, settings), targets=targets)
    split = next(iter(data.splits.values()))
    next(iter(split.batches([torch.arange(min(2, len(split)))])))


def open_masks(folder: Path) -> None:
    """Open images with masks."""
    open_any(folder, targets=(Mask,))


def hugging(home: Path) -> Path:
    """A folder in Hugging Face's form: a small GPT-2 with its tokenizer."""
    folder = home / "hugging"
    if not folder.exists():
        make_torchvision_importable()
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(vocab_size=300, n_positions=16, n_embd=16, n_layer=1, n_head=2)
        GPT2LMHeadModel(config).save_pretrained(folder)
        shutil.copy(library(home) / "tokenizer.json", folder / "tokenizer.json")
    return folder


def library(home: Path) -> Path:
    """A folder with a tokenizer of the `tokenizers` library."""
    folder = home / "tokenizer"
    if not folder.exists():
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        made = Tokenizer(models.BPE(unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<pad>", "<s>", "</s>"])
        made.train_from_iterator(["the first of all days", "a second day of rain", "and no third"], trainer)
        folder.mkdir(parents=True)
        made.save(str(folder / "tokenizer.json"))
        tokens = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
        (folder / "special_tokens_map.json").write_text(json.dumps(tokens))
        about = {**tokens, "model_max_length": 16, "added_tokens_decoder": {"1": {"content": "<pad>"}}}
        (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder


def open_tokenizer(folder: Path) -> None:
    """Open a tokenizer, and encode with it."""
    from cutaway.data.text.tokenizer_files import open_tokenizer as opened

    found = opened(folder)
    found.decode(found.encode("a first day"))
    len(found)


def open_hugging(folder: Path) -> None:
    """Open a Hugging Face folder as a bare model and as one that writes."""
    cutaway.load(folder)


def adapter(home: Path) -> Path:
    """An adapter of PEFT beside the folder of its model."""
    folder = home / "adapter"
    if not folder.exists():
        make_torchvision_importable()
        from peft import LoraConfig, get_peft_model
        from transformers import GPT2LMHeadModel

        model = GPT2LMHeadModel.from_pretrained(hugging(home))
        get_peft_model(model, LoraConfig(r=2, lora_alpha=4, target_modules=["c_attn"])).save_pretrained(folder)
        shutil.copytree(hugging(home), folder / "base")
    return folder


def merge(folder: Path) -> None:
    """Merge an adapter into its model."""
    from cutaway.checkpoints.huggingface.lora_adapters import merge_adapter

    model = cutaway.load(folder / "base")
    merge_adapter(model, "gpt2", folder)


def denoiser(home: Path) -> Path:
    """A folder of diffusers, of a small U-Net."""
    folder = home / "diffusers"
    if not folder.exists():
        from cutaway.checkpoints.diffusers import write_diffusers

        model = cutaway.create_model("ddpm-unet-small", widths=(8, 16), layers=1, groups=4, attention_levels=(1,))
        write_diffusers(model, folder, (8, 8))
    return folder


def exported(home: Path) -> Path:
    """A run in one file."""
    folder = home / "exported"
    if not folder.exists():
        run = trained(home, "table")
        folder.mkdir()
        cutaway.export(run, folder / "run.onnx")
        write_example("wine.csv", home / "examples")
        shutil.copy(home / "examples" / "wine.csv", folder / "wine.csv")
    return folder


def load_onnx(path: Path) -> Any:
    """The document in an exported file."""
    import onnx

    model = onnx.load(path)
    return json.loads(next(one.value for one in model.metadata_props if one.key == "cutaway"))


def save_onnx(path: Path, document: bytes) -> None:
    """Put another document into an exported file, with a checksum that fits."""
    import onnx

    from cutaway.deploy.onnx import CHECKSUM, _digest

    model = onnx.load(path)
    del model.metadata_props[:]
    model.metadata_props.add(key="cutaway", value=document.decode("utf-8", "replace"))
    model.metadata_props.add(key=CHECKSUM, value=_digest(model))
    path.write_bytes(model.SerializeToString(deterministic=True))


def use_exported(folder: Path) -> None:
    """Predict with an exported file."""
    cutaway.load(folder / "run.onnx").predict([folder / "wine.csv"])


def load_meta(path: Path) -> Any:
    """What stands beside the weights in a file of ours."""
    return read_tensors(path)[1]


def save_meta(path: Path, document: bytes) -> None:
    """Put another document beside the weights, with a checksum that fits; one that is no JSON as a text."""
    tensors, _ = read_tensors(path)
    try:
        meta = json.loads(document)
    except (ValueError, RecursionError):
        meta = document.decode("utf-8", "replace")
    write_tensors(path, tensors, meta)


def save_model_meta(path: Path, document: bytes) -> None:
    """The same of a model, with the same in config.json, as one program writes both."""
    save_meta(path, document)
    (path.parent / "config.json").write_text(json.dumps(read_tensors(path)[1]))


def model_folder(home: Path) -> Path:
    """The model of a run."""
    return trained(home, "table") / "model"


def open_model(folder: Path) -> None:
    """Open a model's folder, as itself, and as weights to begin with."""
    cutaway.load(folder, model="mlp")


def resume(folder: Path) -> None:
    """Take a run up again."""
    from cutaway.runs.train import train_model
    from cutaway.training.callbacks import Progress

    train_model(None, None, {"max_steps": 2}, resume=folder, progress=Progress(shown=False))


def toml(home: Path) -> Path:
    """A folder with a file of settings, and data."""
    folder = home / "toml"
    if not folder.exists():
        folder.mkdir(parents=True)
        write_example("wine.csv", folder)
        (folder / "settings.toml").write_text(
            'target = "cultivar"\nepochs = 3\nlr = 0.01\nclass_weights = "balanced"\nmissing = "drop"\n'
            "[model]\nhidden_dims = [8, 4]\ndropout = 0.1\n"
        )
    return folder


def load_toml(path: Path) -> Any:
    """A file of settings as a document."""
    import tomllib

    return tomllib.loads(path.read_text())


def save_toml(path: Path, document: bytes) -> None:
    """Write a document as TOML where it can be, else as it is."""
    try:
        found = json.loads(document)
        assert isinstance(found, dict)
    except (ValueError, RecursionError, AssertionError):
        path.write_bytes(document)
        return

    def value(one: Any) -> str:
        if isinstance(one, dict):
            return "{" + ", ".join(f"{json.dumps(k)} = {value(v)}" for k, v in one.items()) + "}"
        if isinstance(one, list):
            return "[" + ", ".join(map(value, one)) + "]"
        return {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf", "null": '"null"'}.get(
            json.dumps(one), json.dumps(one)
        )

    try:
        path.write_text("".join(f"{k} = {value(v)}\n" for k, v in found.items()), errors="replace")
    except RecursionError:
        path.write_bytes(document)


def command(words: list[str]) -> None:
    """Run a command in this process. Raises CutawayError where it rejects, Fault where it ends with a traceback."""
    import contextlib
    import io

    from cutaway.apps.cli import main
    from cutaway.training import cost_estimate

    cost_estimate.MOST_SECONDS = 0.0
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = main(words)
    if status == 2:
        raise CutawayError(" ".join(said.getvalue().split()) or "nothing was said")
    if status != 0:
        raise Fault(f"exit status {status} of {words}\n{said.getvalue()}")


def read_toml(folder: Path) -> None:
    """Check with a file of settings."""
    command(["check", "mlp", str(folder / "wine.csv"), f"@{folder / 'settings.toml'}"])


def vectors(home: Path) -> Path:
    """A file of word vectors."""
    folder = home / "vectors"
    if not folder.exists():
        folder.mkdir(parents=True)
        words = ["the", "first", "day", "rain", "no"]
        rows = [f"{word} " + " ".join(f"{(i * 7 + j) % 5 - 1.5}" for j in range(4)) for i, word in enumerate(words)]
        (folder / "vectors.txt").write_text("\n".join([f"{len(words)} 4", *rows]) + "\n")
    return folder


def read_word_vectors(folder: Path) -> None:
    """Read a file of word vectors."""
    from cutaway.checkpoints.word_vectors import Vectors

    Vectors.load(folder / "vectors.txt")


def sharded(home: Path) -> Path:
    """A model whose weights are in several files."""
    folder = home / "sharded"
    if not folder.exists():
        from cutaway.checkpoints import saving

        tensors, meta = read_tensors(model_folder(home) / "model.safetensors")
        folder.mkdir()
        most, saving.LARGEST = saving.LARGEST, 200
        saving.write_weights(folder, tensors, meta)
        saving.LARGEST = most
        shutil.copy(model_folder(home) / "config.json", folder / "config.json")
    return folder


def served_state(home: Path) -> Path:
    """The state of the studio, as the page saves and sends it."""
    folder = home / "studio"
    if not folder.exists():
        folder.mkdir(parents=True)
        state = {"data": "moons", "model": "mlp", "model.hidden_dims": "4", "lr": "0.1", "steps": "3", "seed": "1"}
        state |= {"log": "1:lr=0.01;2:weight:head.weight[0,1]=0.5", "speed": "10", "noise": "0.1"}
        (folder / "state.json").write_text(json.dumps(state))
    return folder


def open_state(folder: Path) -> None:
    """Read a state of the studio as its server does."""
    from cutaway.apps.networking import parse_json_object
    from cutaway.apps.studio.setup import parse_log, parse_number, state_settings, validate_state

    try:
        state = validate_state(parse_json_object((folder / "state.json").read_bytes()))
    except HTTPException as error:  # with which the server answers a body that is no JSON
        raise CutawayError(str(error.detail)) from error
    state_settings(state)
    parse_log(state.get("log", ""))
    parse_number(state, "steps", 10_000_000)


def of_run(name: str, file: str, read: Callable[[Path], object] | None = None, quick: bool = False) -> Document:
    """A document of a run."""
    # What is well-formed and of other data is rejected as if it was typed, or where the data is read.
    names_file = file not in ("run.json", "model/preprocessing.json")
    made = partial(trained, name=name)
    return Document(f"{file} of {name}", made, file, read or open_run, quick=quick, names_file=names_file)


def opened_by_prediction(name: str) -> Callable[[Path], object]:
    """What predicts a file of a run's example, which goes all the way through its preprocessing."""

    def read(folder: Path) -> None:
        home = next(p for p in folder.parents if (p / "examples").is_dir())
        run, source = cutaway.Run(folder), home / "examples" / RUNS[name][0]
        if name in WRITES:
            command(["generate", str(folder), "--prompt", "one day", "--count", "3"])
        elif name == "pairs":
            run.predict(["3 May 2001"])
        elif name in ("graph", "links"):
            run.results(run.data().splits["test"])
        else:
            files = [p for p in sorted(source.rglob("*")) if p.suffix in MEDIA][:1]
            run.predict(files or [source])

    return read


DOCUMENTS = [
    *(
        of_run(name, "run.json", quick=name in QUICK)
        for name in ("table", "forecast", "pairs", "scenes", "images", "words")
    ),
    *(
        of_run(name, "evaluation.json", report, quick=name in QUICK)
        for name in ("table", "forecast", "pairs", "scenes", "masks", "captions", "molecules", "words")
    ),
    *(of_run(name, "layers.json", report, quick=name == "table") for name in ("table", "images")),
    Document("metrics.csv", partial(trained, name="table"), "metrics.csv", report, quick=True, text=True),
    *(of_run(name, "model/preprocessing.json", opened_by_prediction(name), quick=name in QUICK) for name in RUNS),
    Document("model/config.json", partial(trained, name="table"), "model/config.json", lambda f: cutaway.Run(f).model),
    Document(
        "the head of weights",
        model_folder,
        "model.safetensors",
        open_model,
        load=load_meta,
        save=save_model_meta,
        names_file=False,
        quick=True,
    ),
    Document("the index of weights", sharded, "model.safetensors.index.json", open_model, quick=True),
    Document(
        "a checkpoint",
        partial(trained, name="table"),
        "checkpoints/last.safetensors",
        resume,
        load=load_meta,
        save=save_meta,
    ),
    Document("search.json", searched, "search.json", read_search),
    Document("study.db", searched, STUDY, read_search, load=load_study, save=save_study),
    Document("compare.json", compared, "compare.json", read_comparison),
    Document("manifest.json of text", with_shards, "manifest.json", open_any, quick=True),
    Document("manifest.json of images", with_tars, "manifest.json", open_any),
    Document("manifest.json of a table", with_table_shards, "manifest.json", partial(open_any, target="cultivar")),
    Document("preparing.json", begun_shards, "preparing.json", go_on),
    Document("annotations of boxes", scenes, "annotations.json", open_any, quick=True),
    Document("annotations of polygons", mask_scenes, "annotations.json", open_masks, quick=True),
    Document("tokenizer.json", library, "tokenizer.json", open_tokenizer, quick=True),
    Document("tokenizer_config.json", library, "tokenizer_config.json", open_tokenizer),
    Document("special_tokens_map.json", library, "special_tokens_map.json", open_tokenizer),
    Document("config.json of Hugging Face", hugging, "config.json", open_hugging),
    Document("generation_config.json", hugging, "generation_config.json", open_hugging),
    Document("adapter_config.json", adapter, "adapter_config.json", merge),
    Document("config.json of diffusers", denoiser, "config.json", cutaway.load),
    Document("scheduler_config.json", denoiser, "scheduler_config.json", cutaway.load),
    Document("exported document", exported, "run.onnx", use_exported, load=load_onnx, save=save_onnx),
    Document(
        "settings.toml", toml, "settings.toml", read_toml, load=load_toml, save=save_toml, names_file=False, quick=True
    ),
    Document("word vectors", vectors, "vectors.txt", read_word_vectors, text=True),
    Document("studio state", served_state, "state.json", open_state, names_file=False, quick=True),
]
KINDS = [document.kind() for document in DOCUMENTS]
