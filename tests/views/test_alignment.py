"""Where each character is heard: the network's own probabilities, and the path that reads the text."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.core.errors import SettingError
from cutaway.data.dataset_base import IGNORED
from cutaway.nn.losses import occupancies
from cutaway.views import alignment
from cutaway.views.subject import Subject, open_preset

from .suited import suited

SETTINGS = {"in_features": 6, "channels": (4, 4), "hidden_dim": 4, "num_classes": 4}


def opened(**options: str) -> Subject:
    """Two recordings of which the second is shorter, with transcripts."""
    subject = open_preset("ctc-conv-gru", SETTINGS, count=2)
    x = torch.randn(2, 41, 6, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(41) < torch.tensor([41, 22])[:, None]
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        subject.model.head.weight.normal_(0, 20, generator=generator)  # so that it says something
    target = torch.tensor([[1, 2, 2], [3, IGNORED, IGNORED]])
    return dataclasses.replace(subject, inputs=(x, mask), target=target, options=options)


def drawn(view: Any) -> dict[str, Any]:
    return {drawing["title"]: drawing for drawing in view["drawings"]}


@pytest.mark.parametrize(("example", "frames"), [(0, 41), (1, 22)])
def test_the_maps_are_what_the_network_says_of_the_recording_alone(example: int, frames: int) -> None:
    subject = opened(example=str(example))
    found = drawn(alignment.draw_alignment(subject))
    log_probs: Tensor = (
        subject.model(subject.inputs[0][example : example + 1, :frames])[0].detach().double().log_softmax(1)
    )
    said = found["Probability of each character"]
    assert said["columns"] == [f"{t * frames / len(log_probs) / 100:.2f} s" for t in range(len(log_probs))]
    rows = [int(name.strip("[]")) if name != "blank" else 0 for name in said["rows"]]
    torch.testing.assert_close(torch.tensor(said["values"]).T.double(), log_probs.exp()[:, rows], atol=1e-3, rtol=1e-3)
    right = found["Frames of each character of the reference text"]
    assert subject.target is not None
    target = subject.target[example][subject.target[example] != IGNORED]
    where = occupancies(log_probs, target)[:, 1::2]
    torch.testing.assert_close(torch.tensor(right["values"]).T.double(), where, atol=1e-3, rtol=1e-3)
    given = found["Input"]
    assert (len(given["rows"]), len(given["columns"])) == (6, len(log_probs))


def test_the_table_reads_the_best_path() -> None:
    subject = opened()
    view = alignment.draw_alignment(subject)
    path = subject.model(subject.inputs[0][:1])[0].argmax(1).tolist()
    read = [k for t, k in enumerate(path) if k and (t == 0 or path[t - 1] != k)]
    assert [row[0] for row in view["table"]["rows"]] == [f"[{k}]" for k in read]
    assert all(0.25 < row[2] <= 1 for row in view["table"]["rows"])
    assert f"gives “{''.join(f'[{k}]' for k in read)}”" in view["summary"]


def test_it_is_for_networks_that_write_what_is_said() -> None:
    assert suited("alignment") == ["ctc-conv-gru"]
    with pytest.raises(SettingError, match="Invalid example=2"):
        alignment.draw_alignment(opened(example="2"))
