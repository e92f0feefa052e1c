"""Gates over time: the numbers drawn are those of the layer, and the gradient by lag is the Jacobian's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import cutaway
import cutaway.inspect.gates
from cutaway.core.errors import SettingError, UnknownName
from cutaway.inspect.gates import gradient_by_lag, layer_inputs, plain_network, record_recurrent_calls, unroll
from cutaway.views import gates
from cutaway.views.subject import Subject, open_model, open_run
from tests.inspect.test_probes import traces

from ..small import small
from .suited import suited


def opened(name: str, **options: str) -> Subject:
    """A preset, small, with two random examples."""
    model, inputs = small(name)
    return open_model(model, *inputs, options=options)


RECURS = suited("gates")


def kinds(drawings: list[Any]) -> list[dict[str, Any]]:
    """All drawings, those within a choice too."""
    inside = [inner for d in drawings for option in d.get("options", []) for inner in kinds(option["drawings"])]
    return [*drawings, *inside]


def test_who_recurs() -> None:
    assert set(RECURS) == {
        *("rnn", "lstm", "gru", "gru-mnist1d", "cnn-lstm", "seq2seq-gru"),
        *("ctc-conv-gru", "show-attend-tell"),
    }


@pytest.mark.parametrize("name", RECURS)
def test_every_recurrent_model_is_drawn(name: str) -> None:
    subject = opened(name)
    subject.model.train()
    before = {k: v.clone() for k, v in subject.model.state_dict().items()}
    found = gates.draw_gates(subject)
    assert len(json.dumps(found, allow_nan=False)) < 2_000_000
    assert found["id"] == "gates"
    assert found["table"]["rows"]
    assert "the remaining fraction" in found["summary"]
    assert subject.model.training
    assert not traces(subject.model)
    assert all(torch.equal(v, before[k]) for k, v in subject.model.state_dict().items())
    assert all(p.grad is None for p in subject.model.parameters())


def test_curves_and_table_are_the_gates() -> None:
    subject = opened("lstm", example="1", unit="3")
    layer = gates.capture_gates(subject, 1)[0]
    rnn: Any = subject.model.get_submodule("rnn")
    with torch.no_grad():
        outputs, _, _ = unroll(rnn, subject.inputs[0][1:])
    torch.testing.assert_close(layer.gates["state"], outputs[0])
    found = gates.draw_gates(subject)
    rows = {row[1]: row for row in found["table"]["rows"]}
    forget = layer.gates["forget"]
    assert rows["forget"][2] == pytest.approx(float(forget.mean()), rel=1e-3)
    assert rows["forget"][3] == pytest.approx(float((forget > 0.9).float().mean()))
    assert rows["state"][3] is None
    unit = next(d for d in kinds(found["drawings"]) if d["title"] == "Gates of unit 3")
    series = {s["name"]: [v for _, v in s["points"]] for s in unit["series"]}
    assert series["forget"] == pytest.approx(forget[:, 3].tolist(), rel=1e-3)
    maps = next(d for d in found["drawings"] if d["title"] == "State of each unit")
    cell = next(t for t in maps["tiles"] if t["label"] == "cell")
    assert cell["values"][2] == pytest.approx(layer.gates["cell"][:, 2].tolist(), rel=1e-3, abs=1e-6)


def test_layers_ways_and_cells_can_be_chosen() -> None:
    subject = opened("seq2seq-gru")
    subject.inputs[1][0, 4:] = False
    layers = {layer.name: layer for layer in gates.capture_gates(subject, 0)}
    assert {"encoder.l0", "encoder.l0_reverse", "decoder.l0"} <= set(layers)
    assert layers["encoder.l0_reverse"].steps == 4
    assert layers["decoder.l0"].steps == subject.inputs[2].shape[1]
    found = gates.draw_gates(opened("seq2seq-gru", layer="decoder.l0"))
    choice = found["drawings"][0]
    assert choice["options"][0]["name"] == "decoder.l0"
    assert found["summary"].startswith("decoder.l0 is a GRU")
    assert any(d["kind"] == "matrix" for d in kinds(found["drawings"]))  # by token


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"layer": "rnn.l7"}, UnknownName),
        ({"unit": "9999"}, SettingError),
        ({"unit": "-1"}, SettingError),
        ({"example": "2"}, SettingError),
    ],
    ids=str,
)
def test_bad_options_are_rejected(options: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        gates.draw_gates(opened("gru", **options))


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
def test_a_single_step_has_gates_and_no_lag(name: str) -> None:
    model = cutaway.create_model(name, in_features=2, hidden_dim=3, num_classes=1).double()
    found = gates.draw_gates(open_model(model, torch.randn(1, 1, 2).double()))
    assert not any("steps back" in str(d.get("x")) for d in found["drawings"])
    json.dumps(found, allow_nan=False)


@pytest.mark.slow
def test_long_sequences_and_many_layers_stay_small() -> None:
    model = cutaway.create_model("lstm", in_features=2, hidden_dim=40, layers=4, bidirectional=True, num_classes=2)
    found = gates.draw_gates(open_model(model, torch.randn(1, 700, 2)))
    assert len(json.dumps(found)) < 2_000_000
    assert any("the first 200 of 700 steps" in d["title"] for d in kinds(found["drawings"]))


def test_a_run_stands_beside_itself_before_training(tmp_path: Path) -> None:
    texts = tmp_path / "texts.csv"
    texts.write_text("text,kind\n" + "\n".join(f"{w} is here,{w}" for w in ["one", "two"] * 20))
    run = cutaway.train("lstm", texts, text="text", target="kind", epochs=1, out=tmp_path / "lstm")
    found = gates.draw_gates(open_run(run))
    lags = next(d for d in found["drawings"] if d.get("x") == "steps back")
    assert [s["name"] for s in lags["series"]] == [
        "the cell of this LSTM",
        "the same before training",
        "an untrained plain RNN",
    ]
    assert all(s["points"][0] == [0, 1.0] for s in lags["series"])


# --- gradient by lag --------------------------------------------------------------------------------------------------


def jacobian_sizes(layer: Any, x: Tensor, first: tuple[Tensor, ...]) -> list[float]:
    """‖∂s_T/∂s_t‖_F / √hidden by autograd's Jacobians, lag after lag."""
    lstm, hidden, found = layer.mode == "LSTM", layer.hidden_size, []
    state = tuple(part[None, None] for part in first)
    states = []
    with torch.no_grad():
        for row in x:
            _, state, _ = unroll(layer, row[None, None], None, state)
            states.append(state)
    for t in range(len(x)):

        def later(memory: Tensor, t: int = t) -> Tensor:
            if lstm:
                h, c = states[t]
                opened_ = h / torch.tanh(c)  # the output gate of step t, which does not depend on its cell
                state: tuple[Tensor, ...] = (opened_ * torch.tanh(memory), memory)
            else:
                state = (memory,)
            for row in x[t + 1 :]:
                _, state, _ = unroll(layer, row[None, None], None, state)
            return state[-1]

        found.append(torch.autograd.functional.jacobian(later, states[t][-1]).reshape(hidden, hidden).norm())
    return [float(size) / hidden**0.5 for size in reversed(found)]


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_lags_are_the_jacobians(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutaway.inspect.gates, "PROBES", 4096)
    torch.manual_seed(0)
    layer = getattr(nn, kind)(3, 4, batch_first=True).double()
    x = torch.randn(6, 3).double()
    first = tuple(torch.randn(2 if kind == "LSTM" else 1, 4).double())
    found = gradient_by_lag(layer, x, first)
    assert float(found[0]) == pytest.approx(1)
    assert found.tolist() == pytest.approx(jacobian_sizes(layer, x, first), rel=0.1)


def test_a_forget_gate_that_is_open_remembers_and_a_plain_network_forgets() -> None:
    layer = nn.LSTM(1, 8, batch_first=True)
    for name, p in layer.named_parameters():
        nn.init.zeros_(p)
        if name == "bias_ih_l0":
            with torch.no_grad():
                p[8:16] = 20.0  # forget
    zeros = torch.zeros(8)
    found = gradient_by_lag(layer, torch.randn(50, 1), (zeros, zeros))
    torch.testing.assert_close(found, torch.ones(50).double())
    plain = plain_network(1, 8, torch.zeros(1))
    assert float(gradient_by_lag(plain, torch.randn(50, 1), (zeros,))[-1]) < 1e-3


def test_an_elman_network_of_one_unit_by_hand() -> None:
    """h_t = tanh(½ h_{t−1}) from 0: every factor is ½."""
    layer = nn.RNN(1, 1, bias=False, batch_first=True)
    nn.init.zeros_(layer.weight_ih_l0)
    nn.init.constant_(layer.weight_hh_l0, 0.5)
    found = gradient_by_lag(layer, torch.zeros(5, 1), (torch.zeros(1),))
    torch.testing.assert_close(found, torch.tensor([1, 0.5, 0.25, 0.125, 0.0625]).double())


def test_what_upper_and_backward_layers_read() -> None:
    torch.manual_seed(0)
    model = cutaway.create_model("gru", in_features=2, hidden_dim=3, layers=2, bidirectional=True, num_classes=2)
    x, mask = torch.randn(2, 5, 2), torch.tensor([[True] * 5, [True, True, True, False, False]])
    with torch.no_grad(), record_recurrent_calls(model) as found:
        model(x, mask)
    rnn: Any = model.rnn
    reading = found["rnn"][0]
    given, _ = layer_inputs(rnn, reading, 1, level=0, way=1)
    assert torch.equal(given, x[1, :3].flip(0))
    below = nn.GRU(2, 3, bidirectional=True, batch_first=True)
    below.load_state_dict({k: v for k, v in rnn.state_dict().items() if "l0" in k})
    expected = below(x[1:, :3])[0][0].detach()
    torch.testing.assert_close(layer_inputs(rnn, reading, 1, level=1)[0], expected)
    torch.testing.assert_close(layer_inputs(rnn, reading, 1, level=1, way=1)[0], expected.flip(0))
    assert not traces(model)


def test_what_is_held_is_coloured_map_by_map_and_gates_on_one_scale() -> None:
    model, inputs = small("lstm")
    tiles = [d for d in gates.draw_gates(open_model(model, *inputs))["drawings"] if d["kind"] == "tiles"]
    assert [d["range"] for d in tiles] == ["global", "unit"]  # beside a large cell the state would be grey
