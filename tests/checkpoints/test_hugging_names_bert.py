"""BERT and its kin in transformers' form: every tensor has its name there, and every config its way back."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch

from cutaway.checkpoints.huggingface import (
    Family,
    families,
    find_family,
    from_transformers_names,
    to_transformers_names,
)
from cutaway.core.errors import ModelError
from cutaway.models.bert import HEADS, Config
from cutaway.models.registry import preset
from cutaway.verify.libraries import make_torchvision_importable

make_torchvision_importable()
transformers = pytest.importorskip("transformers")

NAMES = ["bert-base-uncased", "bert-large-uncased", "roberta-base", "distilbert-base", "albert-base-v2"]
FORMS = [pytest.param(name, head, id=f"{name}-{head}") for name in NAMES for head in HEADS]
TYPES = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert", "albert": "Albert"}


def family(name: str) -> Family:
    found = find_family(name)
    assert found is not None
    return found


def config_json(config: Config, found: Family) -> dict[str, Any]:
    """The config.json that transformers writes for that network."""
    kind = getattr(transformers, found.architecture(config))
    theirs = kind.config_class(**found.settings(config), architectures=[found.architecture(config)])
    written: dict[str, Any] = theirs.to_diff_dict()
    return written


@pytest.mark.parametrize(("name", "head"), FORMS)
def test_names_and_shapes_are_theirs(name: str, head: str) -> None:
    found, config = family(name), dataclasses.replace(preset(name).config, head=head, num_classes=3)
    kind = getattr(transformers, found.architecture(config))
    with torch.device("meta"):
        theirs = kind(kind.config_class(**found.settings(config)))
        ours = preset(name).build(config).state_dict()
    named = {key: tensor.shape for key, tensor in to_transformers_names(found, ours).items()}
    assert named == {key: p.shape for key, p in theirs.named_parameters()}
    # What their file holds beside it is known to hold nothing.
    rest = set(theirs.state_dict()) - set(named) - set(found.output_bias or ())
    assert all(any(re.fullmatch(pattern, key) for pattern in found.ignored) for key in rest), rest
    back, key_map = from_transformers_names(found, ours, to_transformers_names(found, ours))
    assert {key: t.shape for key, t in back.items()} == {key: t.shape for key, t in ours.items()}
    assert set(key_map) == set(named)


@pytest.mark.parametrize(
    "name",
    ["BertForPreTraining", "AlbertForPreTraining", "RobertaModel", "DistilBertModel", "BertModel", "AlbertModel"],
)
def test_what_a_network_of_theirs_has_beyond_ours_is_left_by_name(name: str) -> None:
    kind = getattr(transformers, name)
    found = families()[kind.config_class.model_type]
    with torch.device("meta"):
        theirs = kind(
            kind.config_class(hidden_size=24, num_attention_heads=3, num_hidden_layers=1, intermediate_size=8)
        )
    config = found.config({**theirs.config.to_diff_dict(), "architectures": [name]})
    with torch.device("meta"):
        ours = preset(found.presets[0]).build(config).state_dict()
    bare = name.endswith("Model")
    tensors = {(found.prefix if bare else "") + key: tensor for key, tensor in theirs.state_dict().items()}
    got, key_map = from_transformers_names(found, ours, tensors)
    missing = {key for key in ours if key not in got}
    assert all(key.startswith("head.") for key in missing)
    assert bool(missing) == bare
    rest = set(tensors) - set(key_map) - set(found.output_bias or ())
    assert all(any(re.fullmatch(pattern, key) for pattern in found.ignored) for key in rest), rest


@pytest.mark.parametrize(("name", "head"), FORMS)
def test_a_config_comes_back_as_it_went(name: str, head: str) -> None:
    found, config = family(name), dataclasses.replace(preset(name).config, head=head, num_classes=5)
    assert found.config(config_json(config, found)) == config
    changed = dataclasses.replace(
        config,
        vocab_size=99,
        context_length=40,
        dim=24,
        layers=3,
        heads=4,
        ffn_dim=50,
        dropout=0.3,
        attention_dropout=0.2,
    )
    changed = dataclasses.replace(changed, head_dropout=0.25, embedding_dim=8 if config.embedding_dim else None)
    assert found.config(config_json(changed, found)) == changed


@pytest.mark.parametrize("kind", list(TYPES))
def test_what_is_not_said_is_what_transformers_takes(kind: str) -> None:
    theirs = getattr(transformers, f"{TYPES[kind]}Config")()
    assert families()[kind].config({"model_type": kind}) == families()[kind].config(theirs.to_dict())


def test_the_usual_configs_are_the_presets() -> None:
    assert families()["bert"].config(transformers.BertConfig().to_dict()) == preset("bert-base-uncased").config
    assert (
        families()["distilbert"].config(transformers.DistilBertConfig().to_dict()) == preset("distilbert-base").config
    )


@pytest.mark.parametrize("kind", list(TYPES))
def test_the_head_is_that_of_the_class_that_is_named(kind: str) -> None:
    read = families()[kind].config
    for name, head in (
        ("ForMaskedLM", "masked"),
        ("Model", "masked"),
        ("ForSequenceClassification", "classes"),
        ("ForTokenClassification", "tags"),
    ):
        named = {"architectures": [TYPES[kind] + name], "id2label": {"0": "a", "1": "b", "2": "c"}}
        assert (read(named).head, read(named).num_classes) == (head, 3)
    assert read({"num_labels": 7, "architectures": [f"{TYPES[kind]}ForTokenClassification"]}).num_classes == 7


REFUSED: list[tuple[str, str, Any]] = [
    ("bert", "position_embedding_type", "relative_key"),
    ("bert", "is_decoder", True),
    ("bert", "add_cross_attention", True),
    ("bert", "tie_word_embeddings", "no"),
    ("bert", "hidden_act", "quick_gelu"),
    ("bert", "vocab_size", "many"),
    ("bert", "hidden_dropout_prob", "a tenth"),
    ("bert", "architectures", ["BertForQuestionAnswering"]),
    ("bert", "architectures", ["RobertaForMaskedLM"]),
    ("bert", "architectures", "BertModel"),
    ("roberta", "is_decoder", True),
    ("roberta", "hidden_act", "relu"),
    ("distilbert", "activation", "mish"),
    ("distilbert", "position_embedding_type", "relative_key"),
    ("albert", "num_hidden_groups", 2),
    ("albert", "inner_group_num", 2),
    ("albert", "position_embedding_type", "relative_key_query"),
]


@pytest.mark.parametrize(("kind", "field", "value"), REFUSED, ids=[f"{k}-{f}-{v}" for k, f, v in REFUSED])
def test_another_network_is_rejected_by_the_field(kind: str, field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=rf"config\.json has {field}="):
        families()[kind].config({field: value})


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        ("bert-base-uncased", {"token_types": 0}, "token_types"),
        ("bert-base-uncased", {"share_layers": True}, "share_layers"),
        ("bert-base-uncased", {"first_position": 2}, "first_position"),
        ("roberta-base", {"first_position": 0}, "first_position"),
        ("roberta-base", {"activation": "relu"}, "activation"),
        ("distilbert-base", {"eps": 1e-5}, "eps"),
        ("distilbert-base", {"token_types": 2}, "token_types"),
        ("albert-base-v2", {"embedding_dim": None}, "embedding_dim"),
        ("albert-base-v2", {"share_layers": False}, "share_layers"),
    ],
)
def test_a_network_of_ours_that_they_have_not_is_rejected(name: str, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelError, match=f"This model has {field}="):
        family(name).settings(dataclasses.replace(preset(name).config, **changes))
