"""cutaway verify: a claim that does not hold is found, and the exit status says so."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.apps.cli.verify import _behaviour, _oracle, _settings
from cutaway.checkpoints.huggingface import Family, to_transformers_names
from cutaway.models import gpt2, registry, resnet
from cutaway.models.registry import preset, presets
from cutaway.verify import OracleMissing, compared_config

from .conftest import Answer

Cli = Callable[..., Answer]

CLAIMS = [
    "parameters = computed",
    "MACs = computed",
    "settings = published",
    "initial weights = published",
    "outputs = oracle's",
    "gradients = oracle's",
    "saved and loaded, bit for bit",
    "gradients reach every parameter",
    "one alone = one of many",
    "layers = the textbook's",
    "a step = the textbook's",
]
BEHAVIOUR = ["gradients reach every parameter", "one alone = one of many"]


def test_a_row_for_every_claim(cli: Cli) -> None:
    answer = cli("verify", "resnet20", "lenet5-modern", "--json")
    rows = json.loads(answer.out)
    assert answer.status == 0
    assert [(r["model"], r["claim"]) for r in rows] == [(m, c) for m in ("resnet20", "lenet5-modern") for c in CLAIMS]
    assert {r["status"] for r in rows} == {"passed"}
    oracle = next(r for r in rows if r["claim"] == "gradients = oracle's")
    assert oracle["measured"] <= oracle["bound"] == 1e-9
    assert "2 models, 22 claims: 22 passed" in answer.err


def test_a_count_that_somebody_published_is_told_from_one_that_was_computed(cli: Cli) -> None:
    claims = [row["claim"] for row in json.loads(cli("verify", "simplecnn", "lenet5", "--json").out)]
    assert claims.count("parameters = computed") == claims.count("parameters = published") == 1
    assert "\ncomputed: 29\u202f738 parameters and 22\u202f423\u202f552 MACs" in cli("show", "simplecnn").out


def test_lines_for_people(cli: Cli) -> None:
    answer = cli("verify", "resnet20")
    assert answer.status == 0
    assert [line.split()[:2] for line in answer.out.splitlines()] == [["passed", "resnet20"]] * len(CLAIMS)
    assert "269\u202f722" in answer.out


def test_torchvisions_format_is_a_claim_where_there_is_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from cutaway import verify

    def missing(name: str, config: object) -> object:
        raise OracleMissing("torchvision cannot be imported here.")

    monkeypatch.setattr(verify, "oracle_for", missing)
    answer = cli("verify", "mobilenet-v2", "--json")
    rows = {r["claim"]: r for r in json.loads(answer.out)}
    assert answer.status == 0
    assert rows["to torchvision and back, bit for bit"]["status"] == "passed"
    assert rows["outputs = oracle's"]["status"] == "skipped"
    assert rows["outputs = oracle's"]["detail"] == "torchvision cannot be imported here."


def test_hugging_faces_format_is_a_claim_where_there_is_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {r["claim"]: r for r in json.loads(cli("verify", "gpt2", "--json").out)}
    claim = "to Hugging Face and back, bit for bit"
    assert rows[claim]["status"] == "passed"
    monkeypatch.setattr("cutaway.checkpoints.huggingface.folders.to_transformers_names", _with_one_moved)
    answer = cli("verify", "gpt2", "--json")
    row = next(r for r in json.loads(answer.out) if r["claim"] == claim)
    assert (answer.status, row["status"]) == (1, "failed")
    assert row["detail"] == "1 tensors differ, the first ['norm.bias']"


def _with_one_moved(family: Family, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = to_transformers_names(family, tensors)
    return {**found, "transformer.ln_f.bias": found["transformer.ln_f.bias"] + 1}


@pytest.mark.parametrize("name", ["bert-base-uncased", "gpt2", "transformer-tiny", "seq2seq-gru"])
def test_models_that_answer_at_each_token_hold_too(name: str) -> None:
    torch.manual_seed(0)
    found = preset(name)
    config = compared_config(name, found.config)
    claims = {c.claim: c.status for c in _behaviour(found, config, found.build(config))}
    assert claims == dict.fromkeys(BEHAVIOUR, "passed")


def test_an_answer_that_depends_on_padding_is_found() -> None:
    class Leaking(gpt2.GPT2):
        def hidden(self, tokens: Tensor, mask: Tensor | None = None, cache: Any = None) -> Tensor:
            return super().hidden(tokens, mask, cache) + tokens.shape[1]

    found = preset("gpt2")
    config = compared_config("gpt2", found.config)
    claims = {c.claim: c.status for c in _behaviour(found, config, Leaking(config))}
    assert claims["one alone = one of many"] == "failed"


class Broken(resnet.ResNet):
    """Wrong in every way that a claim can see but files."""

    def __init__(self, config: resnet.Config) -> None:
        super().__init__(config)
        self.unused = nn.Parameter(torch.zeros(1))

    def features(self, x: Tensor) -> Tensor:
        return super().features(x) + x.mean()


def test_claims_that_do_not_hold_fail(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(resnet.CARD.published["resnet20"], multiply_adds=41_000_000)
    monkeypatch.setattr(resnet, "Model", Broken)
    monkeypatch.setattr(
        resnet, "CARD", dataclasses.replace(resnet.CARD, published={**resnet.CARD.published, "resnet20": wrong})
    )
    monkeypatch.setattr("cutaway.verify.compare.copy_weights", _without_unused)
    answer = cli("verify", "resnet20", "--json")
    rows = {r["claim"]: r for r in json.loads(answer.out)}
    assert answer.status == 1
    failed = {claim for claim, r in rows.items() if r["status"] == "failed"}
    others = {
        "saved and loaded, bit for bit",
        "settings = published",
        "layers = the textbook's",
        "a step = the textbook's",
    }
    assert failed == set(CLAIMS) - others
    assert rows["initial weights = published"]["detail"] == "unused has no law"
    assert rows["gradients reach every parameter"]["detail"] == "none reaches unused"


FAULTS = [  # a setting of a preset that is not as published, and the claims that must find it
    ("bert-base-uncased", {"heads": 6}, {"settings = published", "settings = transformers'", "outputs = oracle's"}),
    ("bert-base-uncased", {"activation": "relu"}, {"settings = published", "outputs = oracle's"}),
    ("bert-base-uncased", {"eps": 1e-5}, {"settings = transformers'", "outputs = oracle's"}),
    ("roberta-base", {"first_position": 1}, {"settings = published", "settings = transformers'"}),
    ("distilbert-base", {"pooler_activation": "tanh"}, {"settings = published"}),
    ("gpt2", {"heads": 16}, {"settings = published", "settings = transformers'", "outputs = oracle's"}),
    ("gpt2-xl", {"heads": 16}, {"settings = published", "settings = transformers'"}),
    ("t5-small", {"max_distance": 64}, {"settings = published", "settings = transformers'", "outputs = oracle's"}),
    ("bart-base", {"heads": 6}, {"settings = published", "settings = transformers'", "outputs = oracle's"}),
    ("gat", {"negative_slope": 0.01}, {"settings = published", "outputs = oracle's"}),
    ("vgg11", {"dropout": 0.3}, {"settings = published"}),
]


# A set is written in another order in each process: it is no id that two workers could share.
@pytest.mark.parametrize(("name", "changes", "found_by"), FAULTS, ids=[f"{n}-{c}" for n, c, _ in FAULTS])
def test_a_preset_is_not_asked_what_it_should_be(
    name: str, changes: dict[str, Any], found_by: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preset that somebody changed is not compared with a reference that was changed along with it."""
    if name != "gat":
        pytest.importorskip("transformers")
    module = preset(name).module
    wrong = dataclasses.replace(module.PRESETS[name], **changes)
    found = dataclasses.replace(preset(name), config=wrong)
    monkeypatch.setattr(module, "PRESETS", {**module.PRESETS, name: wrong})
    for presets_of in (presets(), registry.presets_in_module(module.__name__.rpartition(".")[2])):
        monkeypatch.setitem(presets_of, name, found)
    failed = {c.claim for c in _settings(found) if c.status == "failed"}
    if "outputs = oracle's" in found_by:
        config = compared_config(name, found.config)
        sizes = {"vocab_size": 50, "context_length": 16, "dim": 48, "layers": 2, "head_dim": 5}
        small = {field: size for field, size in sizes.items() if hasattr(config, field) and name != "gat"}
        torch.manual_seed(0)
        config = dataclasses.replace(wrong, **small)
        failed |= {c.claim for c in _oracle(found, config, found.build(config)) if c.status == "failed"}
    assert failed >= found_by


def test_claims_with_a_missing_library_are_skipped(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from cutaway.verify import huggingface

    def missing() -> object:
        raise OracleMissing("transformers cannot be imported here (No module named 'transformers').")

    monkeypatch.setattr(huggingface, "transformers_library", missing)
    answer = cli("verify", "gpt2", "--json")
    rows = {r["claim"]: r for r in json.loads(answer.out)}
    assert answer.status == 0
    assert {c for c, r in rows.items() if r["status"] == "skipped"} == {
        "settings = transformers'", "outputs = oracle's", "gradients = oracle's"
    }  # fmt: skip
    assert rows["settings = published"]["status"] == "passed"
    assert "not checked, 3 claims: transformers cannot be imported here" in " ".join(answer.err.split())


def _without_unused(ours: nn.Module, theirs: nn.Module, key_map: dict[str, str]) -> None:
    key_map["unused"] = "head_bias"
    target = theirs.state_dict()
    for key, tensor in ours.state_dict().items():
        if key != "unused":
            target[key_map[key]].copy_(tensor)


def test_an_unknown_model_is_rejected(cli: Cli) -> None:
    answer = cli("verify", "resnet81")
    assert (answer.status, answer.out) == (2, "")
    assert "resnet18" in answer.said
