"""Small networks of transformers, one for each class that is read here, with inputs and outputs on either side."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.checkpoints.huggingface.folders import read_folder
from cutaway.verify.libraries import transformers_library
from cutaway.verify.transformers import PreciseRMSNorm

Inputs = dict[str, Tensor]
LENGTHS = torch.tensor([7, 4, 6, 1])
CLASSES = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}


@dataclass(frozen=True)
class Kind:
    """A class of transformers with few numbers."""

    architecture: str
    config: str  # the class of its config
    settings: Mapping[str, Any]
    inputs: Callable[[Any], Inputs]  # its config → what its forward takes
    ours: Callable[[nn.Module, Inputs], Tensor]  # the same to a model of ours
    outputs: str = "logits"
    attention: str = "eager"

    @property
    def document(self) -> dict[str, Any]:
        """The config.json that transformers writes, every field in it."""
        made = getattr(transformers_library(), self.config)(**copy.deepcopy(dict(self.settings)))
        found: dict[str, Any] = json.loads(json.dumps(made.to_dict()))
        return {**found, "architectures": [self.architecture]}

    def build(self, document: Mapping[str, Any]) -> Any:
        """The network of a config.json in float64, no two tensors alike. Raises what transformers raises."""
        library = transformers_library()
        config = getattr(library, self.config).from_dict(copy.deepcopy(dict(document)))
        config._attn_implementation = self.attention
        torch.manual_seed(0)
        model = getattr(library, self.architecture)(config).double().eval()
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                if tensor.is_floating_point() and name != "model.encoder.embed_positions.weight":
                    tensor.add_(0.3 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64))
        return model

    def load(self, folder: Path) -> tuple[Any, set[str]]:
        """The network in a folder as transformers loads it, and the tensors that it misses there."""
        kind = getattr(transformers_library(), self.architecture)
        model, told = kind.from_pretrained(
            folder, output_loading_info=True, dtype=torch.float64, attn_implementation=self.attention
        )
        return model.double().eval(), set(told["missing_keys"])

    def answers(self, model: Any) -> Tensor:
        """What transformers' network answers, 0 at padding."""
        if self.config == "T5Config":
            for module in list(model.modules()):
                for name, child in list(module.named_children()):
                    if type(child).__name__ == "T5LayerNorm":  # which takes the mean in float32
                        setattr(module, name, PreciseRMSNorm(child.weight, child.variance_epsilon))
        inputs = self.inputs(model.config)
        with torch.no_grad():
            found: Tensor = getattr(model(**inputs), self.outputs)
        return real(found.flatten(1) if self.outputs == "prediction_outputs" else found, inputs)

    def answers_here(self, folder: Path, config: Any) -> Tensor:
        """What our model of a folder answers to the same. Raises what `read_folder` raises."""
        inputs = self.inputs(config)
        with torch.no_grad():
            return real(self.ours(read_folder(folder).model.double(), inputs), inputs)


def real(outputs: Tensor, inputs: Inputs) -> Tensor:
    """Outputs of tokens, 0 at padding; others as they are."""
    by_token = outputs.ndim == 3 and "attention_mask" in inputs and "decoder_input_ids" not in inputs
    return outputs * inputs["attention_mask"][..., None] if by_token else outputs


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def text(config: Any) -> Inputs:
    mask = torch.arange(7) < LENGTHS[:, None]
    generator = torch.Generator().manual_seed(1)
    padding = getattr(config, "pad_token_id", 0) or 0
    ids = torch.randint(8, 18, mask.shape, generator=generator).where(mask, padding)
    return {"input_ids": ids, "attention_mask": mask.long()}


def typed_text(config: Any) -> Inputs:
    types = torch.randint(0, min(2, config.type_vocab_size), (4, 7), generator=torch.Generator().manual_seed(3))
    return {**text(config), "token_type_ids": types}


def pairs(config: Any) -> Inputs:
    target = torch.randint(3, 18, (4, 5), generator=torch.Generator().manual_seed(2))
    return {**text(config), "decoder_input_ids": target}


def speech(config: Any) -> Inputs:
    frames = drawn(2, config.num_mel_bins, 2 * config.max_source_positions)
    return {"input_features": frames, "decoder_input_ids": torch.tensor([[3, 9, 4, 4], [5, 2, 8, 17]])}


def series(config: Any) -> Inputs:
    return {"past_values": 3 + 2 * drawn(3, config.context_length, config.num_input_channels)}


def video(config: Any) -> Inputs:
    return {"pixel_values": drawn(2, config.num_frames, config.num_channels, config.image_size, config.image_size)}


def captions(config: Any) -> Inputs:
    side, channels = config.encoder.image_size, config.encoder.num_channels
    return {"pixel_values": drawn(2, channels, side, side), "decoder_input_ids": torch.tensor([[3, 9, 4], [5, 2, 8]])}


def of_text(model: nn.Module, x: Inputs) -> Tensor:
    more = [x["token_type_ids"]] if "token_type_ids" in x else []
    found: Tensor = model(x["input_ids"], x["attention_mask"].bool(), *more)
    return found


def of_pairs(model: nn.Module, x: Inputs) -> Tensor:
    found: Tensor = model(x["input_ids"], x["attention_mask"].bool(), x["decoder_input_ids"])
    return found


def of_speech(model: nn.Module, x: Inputs) -> Tensor:
    found: Tensor = model(x["input_features"].transpose(1, 2), None, x["decoder_input_ids"])
    return found


def of_numbers(model: nn.Module, x: Inputs) -> Tensor:
    found: Tensor = model(*x.values())
    return found


BERT = {
    "vocab_size": 18,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 14,
    **CLASSES,
}
DISTILBERT = {
    "vocab_size": 18, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 20, "max_position_embeddings": 14, **CLASSES
}  # fmt: skip
GPT2 = {
    "vocab_size": 18, "n_positions": 12, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 20, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0, **CLASSES,
}  # fmt: skip
T5 = {
    "vocab_size": 18, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9,
}  # fmt: skip
STACKS = {
    "vocab_size": 18, "d_model": 12, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20, "encoder_attention_heads": 3, "decoder_attention_heads": 3,
}  # fmt: skip
WHISPER = {
    **STACKS, "num_mel_bins": 6, "max_source_positions": 9, "max_target_positions": 11, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
PATCHTST = {
    "num_input_channels": 2, "context_length": 14, "patch_length": 4, "patch_stride": 3, "num_hidden_layers": 2,
    "d_model": 12, "num_attention_heads": 3, "ffn_dim": 20, "prediction_length": 3, "num_targets": 4,
}  # fmt: skip
IMAGES = {
    "image_size": 8, "patch_size": 4, "num_channels": 2, "hidden_size": 12, "num_hidden_layers": 2,
    "num_attention_heads": 3, "intermediate_size": 20,
}  # fmt: skip
CAPTIONS = {
    "encoder": {"model_type": "vit", **IMAGES},
    "decoder": {"model_type": "gpt2", **{k: v for k, v in GPT2.items() if k not in CLASSES}, "n_layer": 1}
    | {"add_cross_attention": True, "is_decoder": True},
    "decoder_start_token_id": 1,
    "pad_token_id": 0,
}
HEADS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")

KINDS: dict[str, Kind] = {
    kind.architecture: kind
    for kind in (
        *(Kind(f"Bert{head}", "BertConfig", BERT, typed_text, of_text) for head in HEADS),
        *(Kind(f"Roberta{head}", "RobertaConfig", BERT, typed_text, of_text) for head in HEADS),
        *(Kind(f"Albert{head}", "AlbertConfig", BERT | {"embedding_size": 8}, typed_text, of_text) for head in HEADS),
        *(Kind(f"DistilBert{head}", "DistilBertConfig", DISTILBERT, text, of_text) for head in HEADS),
        Kind("GPT2LMHeadModel", "GPT2Config", GPT2, text, of_text),
        Kind("GPT2ForSequenceClassification", "GPT2Config", GPT2, text, of_text),
        Kind("T5ForConditionalGeneration", "T5Config", T5, pairs, of_pairs),
        Kind("BartForConditionalGeneration", "BartConfig", STACKS, pairs, of_pairs),
        Kind("WhisperForConditionalGeneration", "WhisperConfig", WHISPER, speech, of_speech),
        Kind(
            "PatchTSTForPrediction",
            "PatchTSTConfig",
            {**PATCHTST, "loss": "mse", "pooling_type": None},
            series,
            of_numbers,
            "prediction_outputs",
        ),
        Kind("PatchTSTForClassification", "PatchTSTConfig", PATCHTST, series, of_numbers, "prediction_logits"),
        Kind(
            "TimesformerForVideoClassification",
            "TimesformerConfig",
            {**IMAGES, **CLASSES, "num_frames": 3},
            video,
            lambda model, x: model(x["pixel_values"], None),
        ),
        # By the plain one transformers takes the softmax in float32, whatever the network is in.
        Kind(
            "VisionEncoderDecoderModel",
            "VisionEncoderDecoderConfig",
            CAPTIONS,
            captions,
            of_numbers,
            attention="sdpa",
        ),
    )
}
