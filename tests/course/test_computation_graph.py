"""The drawing of a graph of operations: each value and adjoint, where it stands, and the page that shows it."""

from __future__ import annotations

import json

import pytest
import torch

from cutaway.apps.course import computation_graph, frame
from cutaway.core.errors import ModelError
from cutaway.draw.description import Drawing
from cutaway.nn.textbook.autodiff import Variable, softmax, tanh, total


def neuron() -> Drawing:
    """(tanh(w · x) − 1)² + w²: w is used in two places, a difference twice in one."""
    w, x = Variable(0.5, name="w"), Variable(2.0, name="x")
    e = tanh(w * x) - 1
    return computation_graph(e * e + w * w)


def test_each_node_has_its_value_and_the_adjoint_of_autograd() -> None:
    w = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    x = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    loss = (torch.tanh(w * x) - 1) ** 2 + w**2
    loss.backward()  # type: ignore[no-untyped-call]
    drawing = neuron()
    nodes = {node["name"]: node for node in drawing["nodes"] if node["name"]}
    assert nodes["w"]["adjoints"][-1][1] == pytest.approx(w.grad)
    assert nodes["x"]["adjoints"][-1][1] == pytest.approx(x.grad)
    last = drawing["nodes"][-1]
    assert (last["value"], last["operation"], last["adjoints"]) == (pytest.approx(loss.item()), "+", [[0, 1.0]])
    # w² comes first on the way back, w · x last: the adjoint grows in two steps.
    assert [step for step, _ in nodes["w"]["adjoints"]] == [2, len(drawing["order"])]
    assert nodes["w"]["adjoints"][0][1] == pytest.approx(2 * 0.5)
    assert nodes["w"]["calculation"][0].count("through ×") == 3
    assert json.loads(json.dumps(drawing)) == drawing


def test_cards_do_not_overlap_and_every_input_stands_before_its_use() -> None:
    nodes = neuron()["nodes"]
    for node in nodes:
        assert all(nodes[i]["column"] < node["column"] for i in node["inputs"])
        for i, bends in zip(node["inputs"], node["bends"]):
            assert len(bends) == node["column"] - nodes[i]["column"] - 1
    for a in nodes:
        for b in nodes:
            if a is not b and a["column"] == b["column"]:
                assert abs(a["row"] - b["row"]) >= 1 - 1e-9
            for bends, i in zip(b["bends"], b["inputs"]):
                for n, row in enumerate(bends):
                    if nodes[i]["column"] + 1 + n == a["column"]:
                        assert abs(row - a["row"]) >= 0.7 - 1e-9  # an edge passes beside a card, not through it


def test_tensors_are_drawn_by_shape_and_norm() -> None:
    x, w, b = Variable(torch.ones(4, 3), name="x"), Variable(torch.ones(3, 2), name="w"), Variable(torch.zeros(2))
    nodes = computation_graph(total(softmax(x @ w + b) * torch.arange(2.0)[0].item()))["nodes"]
    by_name = {node["name"] or node["operation"]: node for node in nodes}
    assert by_name["x"]["shape"] == "4×3"
    assert by_name["x"]["value"] == pytest.approx(12**0.5)
    assert by_name["input"]["shape"] == "2"
    assert "norms of its terms" in by_name["w"]["calculation"][0]


def test_the_page_draws_it_and_what_cannot_be_drawn_is_refused() -> None:
    assert "cutaway/computation.js" in frame(neuron(), title="T")._repr_html_()
    with pytest.raises(ModelError, match="must be one number"):
        computation_graph(Variable(torch.ones(2)))
    x = Variable(1.0)
    for _ in range(150):
        x = x * 0.5
    with pytest.raises(ModelError, match="Invalid graph of 301 variables: at most 200 can be drawn"):
        computation_graph(x)
