"""PatchTST beside transformers' network: padded windows and plain ones, either order; its files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.checkpoints.huggingface.folders import read_folder, write_folder
from cutaway.checkpoints.huggingface.patchtst import parse_config, settings
from cutaway.core.errors import ModelError
from cutaway.models.patchtst import Config, PatchTST
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

transformers = pytest.importorskip("transformers")
SMALL = Config(steps=21, in_features=3, horizon=5, num_classes=10, patch_size=6, stride=4, dim=8, heads=2, ffn_dim=12)
CLASSES = {"horizon": 0, "num_classes": 4}
PLAIN = {"padding_patch": "none"}


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("changes", [{}, PLAIN, CLASSES, CLASSES | PLAIN], ids=str)
def test_it_is_its_oracle(order: str, changes: dict[str, Any]) -> None:
    config = dataclasses.replace(SMALL, order=order, **changes)
    torch.manual_seed(0)
    found = compare(PatchTST(config), oracle_for("patchtst", config), torch.Generator().manual_seed(0))
    assert found.equal, found


def test_patches_are_where_they_are_said_to_be() -> None:
    for config in (SMALL, dataclasses.replace(SMALL, **PLAIN)):
        model = PatchTST(config).double().eval()
        spans = model.series_patches().spans
        x = torch.randn(1, 21, 3, dtype=torch.float64)
        with torch.no_grad():
            before = model._tokens(x.mT[:, :2])
            seen = {t for first, last in spans for t in range(first, last + 1)}
            for t in range(21):
                moved = x.clone()
                moved[:, t] += 1
                same = torch.equal(model._tokens(moved.mT[:, :2]), before)
                assert same == (t not in seen)


@torch.no_grad()
@pytest.mark.slow
def test_classes_are_read_and_written(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, **CLASSES, **PLAIN)
    model = PatchTST(config).double().eval()
    write_folder(model, "patchtst", tmp_path / "out")
    theirs = transformers.PatchTSTForClassification.from_pretrained(tmp_path / "out").double().eval()
    x = torch.randn(4, 21, 3, dtype=torch.float64)
    torch.testing.assert_close(theirs(past_values=x).prediction_logits, model(x), rtol=1e-9, atol=1e-12)
    assert read_folder(tmp_path / "out").model.config == config


@pytest.mark.parametrize(
    "config", [dataclasses.replace(SMALL, in_features=2, order=order, **PLAIN) for order in ("post", "pre")]
)
def test_a_config_comes_back_from_transformers(config: Config) -> None:
    written = transformers.PatchTSTConfig(**settings(config), architectures=["PatchTSTForPrediction"]).to_dict()
    assert parse_config(written) == config


def test_what_has_no_form_there_is_rejected() -> None:
    with pytest.raises(ModelError, match=r"padding_patch=end.*Train with model\.padding_patch=none"):
        settings(SMALL)
    with pytest.raises(ModelError, match="one patch of 21 steps"):
        settings(dataclasses.replace(SMALL, patch_size=21, **PLAIN))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("use_cls_token", True),
        ("norm_type", "layernorm"),
        ("channel_attention", True),
        ("scaling", "mean"),
        ("loss", "nll"),
        ("head_dropout", 0.2),
        ("ff_dropout", 0.2),
        ("pooling_type", "mean"),
        ("architectures", ["PatchTSTForPretraining"]),
    ],
)
def test_another_network_is_rejected_by_the_field(field: str, value: Any) -> None:
    theirs = settings(dataclasses.replace(SMALL, dropout=0.0, **PLAIN))
    with pytest.raises(ModelError, match=f"config.json has {field}="):
        parse_config({**theirs, field: value})
