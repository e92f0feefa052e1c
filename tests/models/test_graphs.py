"""The networks for graphs: equal to dense ones, blind to the numbering of nodes, and to what stands beside a graph."""

from __future__ import annotations

import copy
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, GraphSpec, Horizon, Value
from cutaway.models import gat, gcn, gin, gine, graphconv, graphsage, mpnn
from cutaway.models.registry import preset
from cutaway.nn import graphs
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare
from tests.small import GRAPHS

FEATURES, CLASSES = 5, 3
names = pytest.mark.parametrize("family", GRAPHS.values(), ids=list(GRAPHS))


def built(family: ModuleType, **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    given = {"in_features": FEATURES, "num_classes": CLASSES, "hidden_dim": 4, "graph_level": False} | settings
    model: nn.Module = family.Model(family.Config(**given)).double().eval()
    return model


def drawn(seed: int, nodes: int = 12, edges: int = 30) -> tuple[Tensor, Tensor]:
    """A directed graph with repeated edges and loops, whose last two nodes have no edges."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, FEATURES, dtype=torch.float64, generator=generator)
    return x, torch.randint(nodes - 2, (2, edges), generator=generator)


def dense_layer(layer: Any, x: Tensor, edges: Tensor) -> Tensor:
    """One layer as its equation stands, with matrices (V, V)."""
    nodes = len(x)
    a = torch.zeros(nodes, nodes, dtype=x.dtype)
    for j, i in edges.t().tolist():
        a[i, j] += 1
    looped = a - torch.diag(a.diagonal()) + torch.eye(nodes, dtype=x.dtype)
    if isinstance(layer, gcn.GCNConv):
        scale = torch.diag(looped.sum(1) ** -0.5)
        y = scale @ looped @ scale @ x @ layer.lin.weight.t()
        return y if layer.bias is None else y + layer.bias
    if isinstance(layer, graphconv.GraphConv):
        assert layer.bias is not None
        return x @ layer.lin_root.weight.t() + a @ x @ layer.lin_rel.weight.t() + layer.bias
    if isinstance(layer, graphsage.SAGEConv):
        mean = a @ x / a.sum(1, keepdim=True).clamp(min=1)
        return x @ layer.lin_r.weight.t() + mean @ layer.lin_l.weight.t() + layer.bias
    if isinstance(layer, gin.GINConv):
        h = layer.fc1((1 + layer.eps) * x + a @ x)
        h = h / (1 + layer.norm.eps) ** 0.5 * layer.norm.weight + layer.norm.bias  # a new one: mean 0 and variance 1
        return layer.fc2(h.relu())
    if isinstance(layer, gine.GINEConv):
        return layer.fc2(layer.fc1((1 + layer.eps) * x + a @ x.relu()).relu())
    if isinstance(layer, mpnn.Step):
        return layer.gru(a @ x @ layer.matrix[0], x)  # type: ignore[index]  # edges are alike
    heads = []
    for k in range(layer.heads):
        h = x @ layer.lin.weight.view(layer.heads, layer.width, -1)[k].t()
        scores = (h @ layer.att_dst[0, k])[:, None] + (h @ layer.att_src[0, k])[None]
        scores = nn.functional.leaky_relu(scores, layer.slope)
        # a repeated edge counts as often as it is listed
        weights = looped * (scores - scores.amax(1, keepdim=True)).exp()
        heads.append(weights / weights.sum(1, keepdim=True) @ h)
    y = torch.cat(heads, 1) if layer.concat else torch.stack(heads).mean(0)
    return y + layer.bias


@names
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_sparse_path_is_the_dense_one(family: ModuleType, seed: int) -> None:
    model = built(family, layers=2)
    x, edges = drawn(seed)
    x = model.embed(x) if hasattr(model, "embed") else x  # type: ignore[operator]
    for layer in getattr(model, "layers", None) or [model.step]:  # type: ignore[union-attr]
        sparse, plain = layer(x, edges), dense_layer(layer, x, edges)  # type: ignore[operator]
        torch.testing.assert_close(sparse, plain, rtol=1e-10, atol=1e-10)
        parameters = list(layer.parameters())  # type: ignore[union-attr]
        upstream = torch.randn(sparse.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(seed))
        ours, expected = (torch.autograd.grad(y, parameters, upstream, retain_graph=True) for y in (sparse, plain))
        for mine, theirs in zip(ours, expected):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)
        x = plain.detach()


@names
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000))
def test_numbering_and_order_make_no_difference(family: ModuleType, seed: int) -> None:
    """Nodes renumbered: outputs renumbered alike. Edges in another order: the same to the last digit."""
    model = built(family)
    x, edges = drawn(seed)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=generator)
    place = order.argsort()
    torch.testing.assert_close(model(x[order], place[edges]), model(x, edges)[order])
    shuffled = edges[:, torch.randperm(edges.shape[1], generator=generator)]
    assert torch.equal(model(x, shuffled), model(x, edges))


@names
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), read=st.sampled_from(["mean", "max", "sum"]))
def test_graphs_side_by_side_are_the_graphs_alone(family: ModuleType, seed: int, read: str) -> None:
    alone = [drawn(seed + k, nodes=4 + k, edges=7) for k in range(3)]
    sizes = torch.tensor([len(x) for x, _ in alone])
    starts = sizes.cumsum(0) - sizes
    x = torch.cat([x for x, _ in alone])
    edges = torch.cat([e + start for (_, e), start in zip(alone, starts)], 1)
    batch = torch.arange(3).repeat_interleave(sizes)
    nodes, graphs = built(family), built(family, graph_level=True, pooling=read)
    torch.testing.assert_close(nodes(x, edges), torch.cat([nodes(*one) for one in alone]))
    none = torch.empty(0, dtype=torch.int64)
    together = graphs(x, edges, none, batch)
    assert together.shape == (3, CLASSES)
    torch.testing.assert_close(together, torch.cat([graphs(*one) for one in alone]))
    assert graphs.features(x, edges, none, batch).shape[0] == 3  # type: ignore[operator]


@names
def test_a_node_without_edges_knows_itself_alone(family: ModuleType) -> None:
    model = built(family)
    x, edges = drawn(3)
    moved = x.clone()
    moved[:-2] += 1
    assert torch.equal(model(moved, edges)[-2:], model(x, edges)[-2:])
    torch.testing.assert_close(model(x[-1:], torch.empty(2, 0, dtype=torch.int64)), model(x, edges)[-1:])


@names
def test_edges_lead_one_way(family: ModuleType) -> None:
    model = built(family, layers=1)
    x, edges = drawn(0, nodes=3, edges=0)[0], torch.tensor([[0], [1]])
    moved = x.clone()
    moved[0] += 1
    changed = (model(moved, edges) != model(x, edges)).any(1)
    assert changed.tolist() == [True, True, False]
    moved = x.clone()
    moved[1] += 1
    assert (model(moved, edges) != model(x, edges)).any(1).tolist() == [False, True, False]


@names
def test_rows_choose_nodes(family: ModuleType) -> None:
    model = built(family)
    data = SimpleNamespace(x=drawn(1)[0], edge_index=drawn(1)[1])  # as PyTorch Geometric holds a graph
    every = model(data.x, data.edge_index)
    rows = torch.tensor([7, 2, 7])
    # a product of three rows may add in another order than one of ten
    torch.testing.assert_close(model(data.x, data.edge_index, rows), every[rows], rtol=1e-12, atol=1e-12)
    for nothing in (rows[:0], torch.tensor([])):
        assert model(data.x, data.edge_index, nothing).shape == (0, CLASSES)
        assert len(model.features(data.x, data.edge_index, nothing)) == 0  # type: ignore[operator]
    assert model.features(data.x, data.edge_index, rows).shape[0] == 3  # type: ignore[operator]


@names
@pytest.mark.parametrize(
    "settings_",
    [{"graph_level": True, "pooling": "sum", "layers": 3}, {"graph_level": True, "pooling": "max"}, {"layers": 1}],
)
def test_other_configs_are_their_oracles_too(family: ModuleType, settings_: dict[str, Any]) -> None:
    name = family.__name__.rpartition(".")[2]
    config = family.Config(
        **({"in_features": FEATURES, "num_classes": CLASSES, "hidden_dim": 4, "graph_level": False} | settings_)
    )
    torch.manual_seed(0)
    found = compare(family.Model(config), oracle_for(name, config), torch.Generator().manual_seed(0))
    assert found.equal, found


def test_heads_in_several_products_are_heads_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(gat, heads=5)
    x, edges = drawn(0)
    at_once = model(x, edges)
    monkeypatch.setattr(graphs, "MAX_NNZ", 2 * (edges.shape[1] + len(x)))
    torch.testing.assert_close(model(x, edges), at_once)


def test_a_bias_counts_for_each_value() -> None:
    assert sum(p.numel() for p in create_model("gcn", bias=True).parameters()) == 23_063
    assert sum(p.numel() for p in create_model("gcn").parameters()) == 23_040
    assert sum(p.numel() for p in create_model("gat").parameters()) == 92_373
    assert sum(p.numel() for p in create_model("graphconv").parameters()) == 192_647


@names
def test_a_model_goes_out_and_in_and_learns_everywhere(family: ModuleType) -> None:
    model = built(family, layers=2).train()
    x, edges = drawn(0)
    y = model(x, edges)
    torch.autograd.backward(y, torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(0)))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    other = family.Model(model.config).double().eval()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(other(x, edges), model.eval()(x, edges))
    for pattern in set(model.decayed) - {"*"}:
        assert pattern in dict(model.named_parameters())


@names
def test_a_config_fits_a_data_set(family: ModuleType) -> None:
    fitted = family.Config.for_spec(family.Config(), GraphSpec(9, Classes(("a", "b")), graph_level=True))
    assert (fitted.in_features, fitted.num_classes, fitted.graph_level) == (9, 2, True)
    assert family.Config.for_spec(family.Config(), GraphSpec(9, Value())).num_classes == 1
    name = family.__name__.rpartition(".")[2]
    with pytest.raises(ModelError, match=f"{name} learns a class or a number"):
        family.Config.for_spec(family.Config(), GraphSpec(9, Horizon(2, ("load",), (0.0,), (1.0,))))
    assert preset(name).takes == ("graph",)


@names
@pytest.mark.parametrize("field", ["in_features", "hidden_dim", "layers", "num_classes"])
def test_bad_values_are_rejected_by_name(family: ModuleType, field: str) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}=0"):
        family.Config(**{field: 0})
    with pytest.raises(ModelError, match=r"^Invalid pooling='median'"):
        family.Config(pooling="median")


@names
def test_nodes_of_other_features_are_rejected(family: ModuleType) -> None:
    with pytest.raises(ModelError, match=r"takes nodes of 5 features, \(V, 5\), and these are \(4, 6\)"):
        built(family)(torch.zeros(4, 6), torch.zeros(2, 0, dtype=torch.int64))


@names
def test_half_precision_is_asked_for_and_sums_are_not_in_it(family: ModuleType) -> None:
    model, (x, edges) = built(family).float(), drawn(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(x.float(), edges)
    torch.testing.assert_close(half.float(), model(x.float(), edges), rtol=0.1, atol=0.1)
