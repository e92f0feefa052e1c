"""Modules of one's own in a file for other programs: they answer as the run does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cutaway
from cutaway.core.errors import ModelError

ROWS = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
TEXTS = ["a lovely film", "a dreadful film", "lovely, all of it", "dreadful, and long"] * 10


class Bag(nn.Module):
    """The mean of a text's vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(50, 8), nn.Linear(8, 2)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(tokens) * mask[..., None]
        given: Tensor = self.out(x.sum(1) / mask.sum(1, keepdim=True).clamp(min=1))
        return given


@pytest.mark.parametrize("ending", [".onnx", ".pt2"])
@pytest.mark.parametrize(
    ("net", "data", "new", "settings"),
    [
        (nn.Linear(4, 1), (ROWS, (ROWS[:, 0] > 0).astype(int)), ROWS[:3], {}),  # one logit for two classes
        (Bag(), (TEXTS, ["good", "bad"] * 20), TEXTS[:3], {"vocab_size": 50}),
    ],
    ids=["rows", "texts"],
)
def test_a_module_of_ones_own_is_exported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    net: nn.Module,
    data: Any,
    new: Any,
    settings: dict[str, Any],
    ending: str,
) -> None:
    if ending == ".onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    run = cutaway.train(net, data, epochs=1, tensorboard=False, out=tmp_path / "r", **settings)
    path = cutaway.export(run, tmp_path / f"net{ending}")
    if ending == ".pt2":  # which Cutaway does not open, as it holds pickles
        assert torch.export.load(path).graph_module is not None
        return
    if data[0] is TEXTS:
        with monkeypatch.context() as changed:
            changed.setattr(run.preprocessing.tokenizer, "encode", lambda text: [-1])  # type: ignore[attr-defined]
            with pytest.raises(ModelError, match="splits the"):
                cutaway.export(run, tmp_path / "other.onnx")
        assert not list(tmp_path.glob("*other*"))
    for there, here in zip(cutaway.load(path).predict(new), run.predict(new)):
        assert {k: pytest.approx(v, abs=1e-5) if isinstance(v, float) else v for k, v in here.items()} == there
