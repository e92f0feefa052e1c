"""Tensors that a folder of transformers' lacks, or has beyond those of its network: read as transformers reads them, or
refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cutaway.checkpoints.huggingface import families
from cutaway.checkpoints.huggingface.folders import Folder, read_folder, tensor_shapes
from cutaway.core.errors import FileError
from cutaway.models.registry import create_model, preset
from cutaway.models.transformer_asr import sinusoids
from cutaway.training.pretrained_weights import load_pretrained
from tests.checkpoints.hugging import KINDS, Kind

pytest.importorskip("transformers")

WEIGHTS = "model.safetensors"
ONE_LAYER = {"num_hidden_layers": 1, "n_layers": 1, "n_layer": 1, "num_layers": 1, "encoder_layers": 1}
# Tensors that a file may lack: transformers computes them, or nothing reads them.
OPTIONAL = {
    "BartForConditionalGeneration": ("final_logits_bias",),
    "WhisperForConditionalGeneration": ("model.encoder.embed_positions.weight",),
    "VisionEncoderDecoderModel": ("encoder.pooler.dense.weight", "encoder.pooler.dense.bias"),
}
# The embedding of each, and the further names that it may have.
TABLES: dict[str, tuple[str, ...]] = {
    "BertForMaskedLM": ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    "RobertaForMaskedLM": ("roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
    "AlbertForMaskedLM": ("albert.embeddings.word_embeddings.weight", "predictions.decoder.weight"),
    "DistilBertForMaskedLM": ("distilbert.embeddings.word_embeddings.weight", "vocab_projector.weight"),
    "GPT2LMHeadModel": ("transformer.wte.weight", "lm_head.weight"),
    "T5ForConditionalGeneration": (
        "shared.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight", "lm_head.weight"
    ),
    "BartForConditionalGeneration": (
        "model.shared.weight", "lm_head.weight", "model.decoder.embed_tokens.weight",
        "model.encoder.embed_tokens.weight",
    ),
    "WhisperForConditionalGeneration": ("model.decoder.embed_tokens.weight", "proj_out.weight"),
    "VisionEncoderDecoderModel": ("decoder.transformer.wte.weight", "decoder.lm_head.weight"),
}  # fmt: skip


def write(folder: Path, document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """Write a folder with that config.json and these tensors."""
    folder.mkdir(exist_ok=True)
    save_file({k: v.clone().contiguous() for k, v in tensors.items()}, folder / WEIGHTS, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def saved(kind: Kind, folder: Path, **fields: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config.json of a network and its tensors, as transformers saves them."""
    document = {**kind.document, **fields}
    kind.build(document).save_pretrained(folder)
    return document, load_file(folder / WEIGHTS)


def difference(kind: Kind, folder: Path) -> float:
    """How far our outputs of a folder are from transformers'."""
    model, _ = kind.load(folder)
    theirs = kind.answers(model)
    return float((kind.answers_here(folder, model.config) - theirs).abs().max())


def variants() -> Iterator[tuple[str, bool]]:
    for architecture, kind in KINDS.items():
        yield architecture, True
        if architecture in TABLES and "tie_word_embeddings" in kind.document and "Whisper" not in architecture:
            yield architecture, False


@pytest.mark.parametrize(("architecture", "tied"), variants())
def test_without_any_one_tensor_a_folder_is_refused_by_its_name(architecture: str, tied: bool, tmp_path: Path) -> None:
    kind = KINDS[architecture]
    fields = {k: v for k, v in ONE_LAYER.items() if k in kind.document} | (
        {} if tied else {"tie_word_embeddings": False}
    )
    document, tensors = saved(kind, tmp_path, **fields)
    if architecture == "BartForConditionalGeneration" and not tied:  # which then has three tables of its own
        tensors |= dict.fromkeys(TABLES[architecture][2:], tensors["model.shared.weight"])
    equal = {*OPTIONAL.get(architecture, ())}
    if tied or architecture == "T5ForConditionalGeneration":
        equal |= {*TABLES.get(architecture, ())[1:]}
    if not tied:  # the layer's own bias is added, and this one by nobody
        equal |= {"cls.predictions.bias", "lm_head.bias", "predictions.bias"}
    for name in tensors:
        write(tmp_path, document, {k: v for k, v in tensors.items() if k != name})
        if name in equal:
            assert difference(kind, tmp_path) <= 1e-9, name
        elif architecture != "BartForConditionalGeneration" or name not in TABLES[architecture][2:]:
            with pytest.raises(FileError, match="missing") as error:
                read_folder(tmp_path)
            assert name in str(error.value), name


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "RobertaForMaskedLM", "AlbertForMaskedLM"])
def test_an_output_bias_that_transformers_does_not_add_does_not_stand_in_for_the_one_that_it_adds(
    architecture: str, tmp_path: Path
) -> None:
    kind = KINDS[architecture]
    document, tensors = saved(kind, tmp_path, tie_word_embeddings=False)
    family = families()[document["model_type"]]
    assert family.output_bias is not None
    added, unused = family.output_bias
    write(tmp_path, document, {k: v for k, v in tensors.items() if k != added})
    model, absent = kind.load(tmp_path)
    assert added in absent
    assert not model.get_parameter(added).any()  # made anew, and not the other
    with pytest.raises(FileError, match=re.escape(f"the first {added}; {unused} is there, which")):
        read_folder(tmp_path)
    shapes = tensor_shapes(preset(family.presets[0]), Folder(tmp_path).config)
    assert "head.words.bias" in shapes
    assert "head.words.bias" not in Folder(tmp_path).offered(shapes, "masked")[0]
    write(tmp_path, document, tensors)
    torch.testing.assert_close(
        Folder(tmp_path).offered(shapes, "masked")[0]["head.words.bias"].double(), tensors[added]
    )


@pytest.mark.parametrize("architecture", TABLES)
def test_the_embedding_may_have_any_of_its_names(architecture: str, tmp_path: Path) -> None:
    kind, (table, *others) = KINDS[architecture], TABLES[architecture]
    document, tensors = saved(kind, tmp_path)
    for name in others:
        both = {**tensors, name: tensors[table]}
        for held in (both, {k: v for k, v in both.items() if k != table}):
            assert difference(kind, write(tmp_path, document, held)) <= 1e-9
        for other in (tensors[table] + 0.1, tensors[table][:5]):
            write(tmp_path, document, {**tensors, name: other})
            with pytest.raises(FileError) as error:
                read_folder(tmp_path)
            assert name in str(error.value)


@pytest.mark.parametrize("architecture", KINDS)
def test_tensors_of_another_network_are_refused_by_name(architecture: str, tmp_path: Path) -> None:
    document, tensors = saved(KINDS[architecture], tmp_path)
    first = next(name for name in tensors if ".0." in name)
    for name in ("strange.weight", "qa_outputs.weight", first.replace(".0.", ".9.", 1), f"{first}_2"):
        write(tmp_path, document, {**tensors, name: torch.zeros(3, 4, dtype=torch.float64)})
        with pytest.raises(FileError) as error:
            read_folder(tmp_path)
        assert name in str(error.value)


def test_two_names_of_one_tensor_are_refused(tmp_path: Path) -> None:
    document, tensors = saved(KINDS["BertForMaskedLM"], tmp_path)
    more = {"bert.embeddings.LayerNorm.gamma": torch.ones(12, dtype=torch.float64)}
    with pytest.raises(FileError, match=r"LayerNorm\.(gamma|weight) .* two names of one tensor"):
        read_folder(write(tmp_path, document, {**tensors, **more}))


@pytest.mark.parametrize("head", ["absent", "equal", "its own"])
@pytest.mark.parametrize(
    ("fields", "scaled"),
    [
        ({"tie_word_embeddings": False}, False),
        ({"tie_word_embeddings": True}, True),
        ({"tie_word_embeddings": None}, True),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, False),
        ({"tie_word_embeddings": False, "scale_decoder_outputs": True}, True),
    ],
    ids=str,
)
def test_outputs_of_t5_are_scaled_and_tied_as_there(
    fields: dict[str, Any], scaled: bool, head: str, tmp_path: Path
) -> None:
    kind = KINDS["T5ForConditionalGeneration"]
    document, tensors = saved(kind, tmp_path)
    del document["tie_word_embeddings"], document["scale_decoder_outputs"]
    table = tensors["shared.weight"]
    more = {"absent": {}, "equal": {"lm_head.weight": table}, "its own": {"lm_head.weight": table.flip(0)}}
    write(tmp_path, {**document, **fields}, {**tensors, **more[head]})
    if scaled and head == "its own":  # no network here has both
        with pytest.raises(FileError, match=r"1 are not the network's, the first lm_head\.weight") as error:
            read_folder(tmp_path)
        assert "tie_word_embeddings" not in str(error.value)
        return
    assert difference(kind, tmp_path) <= 1e-9
    found = read_folder(tmp_path)
    assert (found.model.config.tie_weights, found.new) == (scaled, ())  # type: ignore[union-attr]  # T5's
    other = create_model("t5-small", **{k: v for k, v in vars(found.model.config).items() if v is not None})
    assert not load_pretrained(other, preset("t5-small"), str(tmp_path)).new
    for name, tensor in found.model.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], tensor.float())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_positions_of_whisper_are_sinusoids_or_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    kind, name = KINDS["WhisperForConditionalGeneration"], "model.encoder.embed_positions.weight"
    document, tensors = saved(kind, tmp_path, max_source_positions=1500)
    rates = torch.exp(-torch.arange(6, dtype=torch.float64) * torch.tensor(10_000.0).double().log() / 5)
    angles = torch.arange(1500, dtype=torch.float64)[:, None] * rates
    exact = torch.cat([angles.sin(), angles.cos()], 1)  # (1500, 12)
    for table in (exact, sinusoids(1500, 12)):
        read_folder(write(tmp_path, document, {**tensors, name: table.to(dtype)}))
    learned = exact.to(dtype).clone()
    learned[3, 7] += 0.02
    for table in (
        learned,
        exact[:1499].to(dtype),
        exact.roll(1, 0).to(dtype),
        torch.zeros(1500, 12, dtype=torch.int64),
    ):
        write(tmp_path, document, {**tensors, name: table})
        with pytest.raises(FileError, match=rf"{name} holds other numbers than the sinusoids"):
            read_folder(tmp_path)
        model = create_model("transformer-asr", **vars(preset("transformer-asr").config) | SMALL)
        with pytest.raises(FileError, match=name):
            load_pretrained(model, preset("transformer-asr"), str(tmp_path))


SMALL = {"in_features": 6, "dim": 12, "layers": 2, "decoder_layers": 1, "heads": 3, "ffn_dim": 20} | {
    "target_vocab_size": 18, "context_length": 11
}  # fmt: skip
