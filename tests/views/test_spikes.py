"""The view of spikes: they are those of the model, and nothing is drawn of models without."""

from __future__ import annotations

import torch

from cutaway import create_model
from cutaway.views.registry import suitable_views
from cutaway.views.spikes import draw_spikes
from cutaway.views.subject import open_model


def test_the_raster_is_that_of_the_models_spikes() -> None:
    torch.manual_seed(0)
    model = create_model("spiking-mlp", in_features=6, num_classes=3, hidden_dims=(10, 5), steps=7, threshold=0.3)
    x = torch.randn(4, 6)
    subject = open_model(model, x)
    assert "spikes" in suitable_views(subject)
    view = draw_spikes(subject)
    (choice,) = view["drawings"]
    with torch.no_grad():
        first = model.hidden[0](x[:, None])
        second = model.hidden[1](first)
    for option, spikes in zip(choice["options"], (first, second), strict=True):
        raster, rate, _ = option["drawings"]
        rows = {int(name): row for name, row in zip(raster["rows"], raster["values"], strict=True)}
        assert {k: spikes[0, :, k].tolist() for k in rows} == rows
        assert len(rows) == spikes.shape[2]
        torch.testing.assert_close(
            torch.tensor([y for _, y in rate["series"][0]["points"]]), spikes[0].mean(1), check_dtype=False
        )
    mean = next(row for row in view["table"]["rows"] if row[0] == "hidden.1.neurons")[3]
    assert abs(mean - second.sum(1).mean().item()) < 1e-6


def test_other_models_have_none() -> None:
    assert "spikes" not in suitable_views(open_model(create_model("mlp", in_features=6), torch.randn(2, 6)))
