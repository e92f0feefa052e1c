"""Interventions: what is changed is what was meant, by hand for every family, and the model is left as it was."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import cutaway
from cutaway import create_model
from cutaway.core.errors import ModelError, SettingError, UnknownName
from cutaway.inspect.ablation import Noise, Replace, Scale, Transplant, Zero, ablate, intervene, patch
from cutaway.inspect.captures import Site, capture
from cutaway.models.base import as_output_tuple
from cutaway.nn import graphs
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.graphs import MessagePassing
from tests.inspect.test_probes import traces
from tests.small import DIFFERENT, GRAPHS, small


def answer(model: nn.Module, inputs: Any, *edits: Any) -> Tensor:
    with torch.no_grad(), intervene(model, *edits):
        y = as_output_tuple(model(*inputs))[0]
    assert not traces(model)
    return y


def others(name: str) -> tuple[Tensor, ...]:
    """Other numbers or tokens in the shapes of the preset's small inputs."""
    _, inputs = small(name)
    generator = torch.Generator().manual_seed(7)

    def other(x: Tensor) -> Tensor:
        if x.is_floating_point():
            return torch.randn(x.shape, generator=generator)
        return torch.randint(1, int(x.max()) + 1, x.shape, generator=generator) if x.dtype != torch.bool else x

    graph = name in GRAPHS
    return tuple(x if graph and i else other(x) for i, x in enumerate(inputs))


def lively(name: str) -> nn.Module:
    """The preset with noise on its weights: some begin with zeros, and answer everything alike."""
    model, _ = small(name)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator))
    return model


def modules_that_run(model: nn.Module, inputs: Any) -> list[str]:
    with torch.no_grad(), capture(model) as seen:
        model(*inputs)
    return [name for name in seen["features"] if "#" not in name]


@pytest.mark.parametrize("name", DIFFERENT)
def test_changing_nothing_changes_no_bit(name: str) -> None:
    """Zeroing no row, adding no noise to a place, and transplanting an input's own outputs, everywhere at once."""
    model, inputs = small(name)
    before = answer(model, inputs)
    ran = modules_that_run(model, inputs)
    assert torch.equal(answer(model, inputs, *(Zero(m, row=[]) for m in ran)), before)
    assert torch.equal(answer(model, inputs, *(Noise(m, 0.0) for m in ran)), before)
    assert torch.equal(answer(model, inputs, *(Transplant(m, inputs) for m in ran)), before)


@pytest.mark.parametrize("name", ["gpt2", "t5-small", "vit-base/16", *GRAPHS])
def test_an_inputs_own_heads_and_edges_change_no_bit(name: str) -> None:
    model, inputs = small(name)
    before = answer(model, inputs)
    for key, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            assert torch.equal(answer(model, inputs, Transplant(key, inputs, head=[0, 1])), before)
        elif isinstance(module, MessagePassing):
            edges = [(int(s), int(t)) for s, t in inputs[1][:, :3].t().tolist()]
            assert torch.equal(answer(model, inputs, Transplant(key, inputs, edge=edges)), before)
            assert not torch.equal(answer(model, inputs, Zero(key, edge=edges)), before)


@pytest.mark.parametrize("name", DIFFERENT)
def test_transplanting_everything_gives_the_others_answer(name: str) -> None:
    model, (_, inputs) = lively(name), small(name)
    other = others(name)
    expected = answer(model, other)
    ran = modules_that_run(model, inputs)
    # Outside the modules words to choose from are looked up, a forecast is moved to its own window, and a vae holds the
    # image to what it decodes: there the whole model gives the answer.
    if name.startswith(("word2vec", "patchtst", "transformer-forecast", "vae")):
        ran.append("")
    assert not torch.equal(answer(model, inputs), expected)
    assert torch.equal(answer(model, inputs, *(Transplant(m, other) for m in ran)), expected)


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_transplant_is_what_the_other_computes_there(name: str) -> None:
    """Of one module in the middle: what it gives is the other's, and everything before it is untouched."""
    model, inputs = small(name)
    other = others(name)
    ran = modules_that_run(model, inputs)
    middle = ran[len(ran) // 2]
    with torch.no_grad(), capture(model) as alone:
        model(*other)
    with torch.no_grad(), intervene(model, Transplant(middle, other)), capture(model) as seen:
        model(*inputs)
    for key in seen["features"]:
        if key.partition("#")[0] == middle:
            assert torch.equal(seen["features"][key], alone["features"][key])


# --- by hand, for every family ----------------------------------------------------------------------------------------


def test_a_unit_of_a_dense_network() -> None:
    """Without hidden unit 2 the outputs lack w_2 times what it gave."""
    torch.manual_seed(0)
    model, x = create_model("mlp", in_features=3, hidden_dims=(4,), num_classes=2).eval(), torch.randn(5, 3)
    with torch.no_grad(), capture(model) as seen:
        before = model(x)
    hidden = [name for name in seen["features"] if seen["features"][name].shape == (5, 4)][-1]
    last: Any = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
    h = seen["features"][hidden]
    gone = answer(model, (x,), Zero(hidden, unit=2))
    torch.testing.assert_close(gone, before - h[:, 2:3] * last.weight[:, 2].detach())
    replaced = answer(model, (x,), Replace(hidden, 1.5, unit=2, row=[0, 3]))
    moved = torch.zeros(5)
    moved[[0, 3]] = 1.5 - h[[0, 3], 2]
    torch.testing.assert_close(replaced, before + moved[:, None] * last.weight[:, 2].detach())


def test_channels_and_positions_of_a_map() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(1, 3, 1, bias=False)
    model = nn.Sequential(conv, nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(3 * 4, 2, bias=False))
    x = torch.rand(2, 1, 2, 2)
    maps = conv(x).detach().relu()
    weight = model[3].weight.detach().view(2, 3, 2, 2)
    gone = answer(model, (x,), Zero("0", channel=[0, 2]))
    torch.testing.assert_close(gone, torch.einsum("nhw,ohw->no", maps[:, 1], weight[:, 1]))
    gone = answer(model, (x,), Zero("0", position=[(0, 1), (1, 0), (1, 1)]))
    torch.testing.assert_close(gone, torch.einsum("nc,oc->no", maps[:, :, 0, 0], weight[:, :, 0, 0]))
    both = answer(model, (x,), Replace("1", 2.0, channel=1, position=(1, 1)))
    one = (2 - maps[:, 1, 1, 1])[:, None] * weight[:, 1, 1, 1]
    torch.testing.assert_close(both, answer(model, (x,)) + one)


def test_a_head_of_attention() -> None:
    """Without head 1 the attention gives the sum of W_O,i z_i over the others, and b."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(6, 3)
    nn.init.normal_(attention.out.bias)
    model, x = nn.Sequential(attention), torch.randn(2, 4, 6)
    _, weights = attention.textbook(x)
    v = attention.project_qkv(x)[2]
    parts = [(weights[:, h] @ v[:, h]) @ attention.out.weight[:, 2 * h : 2 * h + 2].T for h in range(3)]
    gone = answer(model, (x,), Zero("0", head=1))
    torch.testing.assert_close(gone, (parts[0] + parts[2] + attention.out.bias).detach())
    at_two = answer(model, (x,), Zero("0", head=[0, 1, 2], position=2))
    torch.testing.assert_close(at_two[:, 2], attention.out.bias.detach().expand(2, 6))
    assert torch.equal(at_two[:, :2], answer(model, (x,))[:, :2])


def test_a_shared_block_in_one_of_its_runs() -> None:
    """ALBERT's block, taken out in its second run alone: what enters goes on as the first run left it."""
    model, inputs = small("albert-base-v2")
    with torch.no_grad(), capture(model, "features", "blocks.0") as seen:
        model(*inputs)
    other = seen["features"]["blocks.0"]
    with torch.no_grad(), intervene(model, Replace("blocks.0#2", other)), capture(model) as changed:
        model(*inputs)
    assert torch.equal(changed["features"]["blocks.0"], other)
    assert torch.equal(changed["features"]["blocks.0#2"], other)
    assert torch.equal(changed["features"]["blocks.0#3"], seen["features"]["blocks.0#2"])


@pytest.mark.parametrize("read", ["last", "mean", "max", "every"])
@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("masked", [False, True], ids=["even", "padded"])
def test_a_unit_of_a_recurrent_network_in_all_that_it_hands_on(name: str, read: str, masked: bool) -> None:
    torch.manual_seed(0)
    model = create_model(name, hidden_dim=4, bidirectional=True, pooling=read, num_classes=2).eval()
    mask = torch.arange(5) < torch.tensor([5, 2, 3])[:, None] if masked else None
    x = torch.randn(3, 5, 1)
    weight = model.head.weight.detach().clone()
    gone = answer(model, (x, mask), Zero("rnn", unit=[1, 6]))
    with torch.no_grad():
        model.head.weight[:, [1, 6]] = 0
    torch.testing.assert_close(gone, answer(model, (x, mask)))
    assert not torch.equal(weight, model.head.weight)


def test_packed_sequences_are_changed_where_they_are_real() -> None:
    model, inputs = small("cnn-lstm")
    inputs[1][0, 2:] = False
    gone = answer(model, inputs, Zero("lstm"))
    torch.testing.assert_close(gone, model.fc.bias.detach().expand(gone.shape))
    one = answer(model, inputs, Zero("lstm", row=0))
    torch.testing.assert_close(one[0], gone[0])
    torch.testing.assert_close(one[1], answer(model, inputs)[1])


def test_a_decoder_that_takes_a_token_at_a_time() -> None:
    """Without its third context the decoder says something else from the third token on."""
    model, inputs = small("seq2seq-gru")
    before, gone = answer(model, inputs), answer(model, inputs, Zero("attention#3"))
    assert torch.equal(before[:, :2], gone[:, :2])
    assert not torch.allclose(before[:, 2], gone[:, 2])


# 0 → 1, 2 → 1, 1 → 3, and a loop that is listed
EDGES = torch.tensor([[0, 2, 1, 3], [1, 1, 3, 3]])


@pytest.mark.parametrize("name", ["gcn", "gat", "graphconv"])
def test_an_edge_of_a_graph(name: str) -> None:
    """Without 2 → 1 in the layer, node 1 lacks that message and nothing else moves."""
    torch.manual_seed(0)
    model, x = create_model(name, in_features=3, hidden_dim=4, num_classes=2, layers=1).eval(), torch.randn(4, 3)
    with torch.no_grad(), capture(model, "messages") as seen:
        before = model(x, EDGES)
    layer: Any = model.layers[0]
    source, target = seen["edges"]["layers.0"]
    entry = int(((source == 2) & (target == 1)).nonzero())
    h = (layer.lin_rel if name == "graphconv" else layer.lin)(x)[2].detach()
    message = seen["messages"]["layers.0"][entry, 0] * h
    expected = before.clone()
    expected[1] -= message
    torch.testing.assert_close(answer(model, (x, EDGES), Zero("layers.0", edge=(2, 1))), expected)
    both = answer(model, (x, EDGES), Zero("layers.0", edge=[(2, 1), (0, 1)]))
    assert torch.equal(both[[0, 2, 3]], before[[0, 2, 3]])


@pytest.mark.parametrize("most", [graphs.MAX_NNZ, 10], ids=["at once", "in turns"])
def test_heads_and_edges_of_graph_attention(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_NNZ", most)
    torch.manual_seed(0)
    model = create_model("gat", in_features=3, hidden_dim=2, heads=4, num_classes=2).eval()
    x, other = torch.randn(2, 4, 3)
    with torch.no_grad(), capture(model, ("features", "messages")) as seen:
        before = model(x, EDGES)
    first = seen["features"]["layers.0"]
    with torch.no_grad(), intervene(model, Zero("layers.0", head=2)), capture(model) as gone:
        model(x, EDGES)
    expected = first.clone()
    expected[:, 4:6] = model.layers[0].bias[4:6].detach()
    torch.testing.assert_close(gone["features"]["layers.0"], expected)
    with torch.no_grad(), intervene(model, Zero("layers.0", head=1, edge=(0, 1))), capture(model, "messages") as one:
        model(x, EDGES)
    changed = one["messages"]["layers.0"] != seen["messages"]["layers.0"]
    source, target = seen["edges"]["layers.0"]
    assert changed.nonzero().tolist() == [[int(((source == 0) & (target == 1)).nonzero()), 1]]
    with torch.no_grad(), capture(model, "messages") as alone:
        model(other, EDGES)
    edit = Transplant("layers.0", (other, EDGES), head=[0, 3])
    with torch.no_grad(), intervene(model, edit), capture(model, "messages") as mixed:
        model(x, EDGES)
    for head, where in enumerate((alone, seen, seen, alone)):
        assert torch.equal(mixed["messages"]["layers.0"][:, head], where["messages"]["layers.0"][:, head])
    assert torch.equal(answer(model, (x, EDGES), Transplant("layers.0", (x, EDGES), head=[0, 1, 2, 3])), before)


# --- kinds of change --------------------------------------------------------------------------------------------------


def test_noise_is_the_same_for_the_same_seed_and_as_large_as_it_says() -> None:
    model, x = nn.Sequential(nn.Identity()), torch.zeros(100, 100)
    first, again = (answer(model, (x,), Noise("0", 0.5)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, answer(model, (x,), Noise("0", 0.5, seed=1)))
    assert float(first.std()) == pytest.approx(0.5, rel=0.05)
    rows = answer(model, (x,), Noise("0", 0.5, row=3))
    assert torch.equal(rows[3], first[3])
    assert not rows[:3].any()


def test_changes_follow_each_other_and_gradients_flow_through_the_rest() -> None:
    model, x = nn.Sequential(nn.Identity()), torch.ones(1, 3, requires_grad=True)
    with intervene(model, Replace("0", 2.0, unit=0), Zero("0", unit=[0, 1])):
        model(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 0, 1]]
    assert answer(model, (x,), Zero("0", unit=0), Replace("0", 2.0, unit=0)).tolist() == [[2, 1, 1]]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=5), st.lists(st.integers(0, 2), max_size=3))
def test_a_part_and_the_rest_are_the_whole(units: list[int], rows: list[int]) -> None:
    """Zeroing some units in some rows, and replacing all else by 1, tells every number apart."""
    model, x = nn.Sequential(nn.Identity()), torch.full((3, 5), 7.0)
    zeroed = answer(model, (x,), Zero("0", unit=units, row=rows))
    expected = x.clone()
    for row in rows:
        for unit in units:
            expected[row, unit] = 0
    assert torch.equal(zeroed, expected)


def test_one_other_example_can_stand_in_all() -> None:
    model, x = nn.Sequential(nn.Identity(), nn.Linear(3, 2)), torch.randn(4, 3)
    one = torch.randn(1, 3)
    torch.testing.assert_close(answer(model, (x,), Transplant("0", one)), model(one).detach().expand(4, 2))


# --- ablation and patching --------------------------------------------------------------------------------------------


def test_ablation_ranks_parts_by_what_they_do() -> None:
    """y = 3 h_0 − 5 h_1 + h_2, of h = (1, 1, 1): without a metric the outputs move by 3, 5 and 1."""
    model = nn.Sequential(nn.Identity(), nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[3.0, -5.0, 1.0]]))
    x = torch.ones(2, 3)
    model.train()
    found = ablate(model, x, "0", by="unit")
    assert [(e.module, e.part, e.change) for e in found] == [
        ("0", {"unit": 1}, pytest.approx(5)),
        ("0", {"unit": 0}, pytest.approx(3)),
        ("0", {"unit": 2}, pytest.approx(1)),
    ]
    found = ablate(model, x, "0", by="unit", metric=lambda y: y.sum(), only=[0, 1])
    assert [(e.part["unit"], e.value, e.change) for e in found] == [
        (1, pytest.approx(8), pytest.approx(10)),
        (0, pytest.approx(-8), pytest.approx(-6)),
    ]
    found = ablate(model, x, "0", by="unit", edit=lambda m, **p: Replace(m, 2.0, **p), metric=lambda y: y.sum())
    assert [e.change for e in found] == [pytest.approx(-10), pytest.approx(6), pytest.approx(2)]
    assert model.training
    assert not traces(model)


WITH_PARTS = {
    "mlp": ("hidden*", "unit"),
    "resnet20": ("layer1.0.bn2", "channel"),
    "cnn1d": ("conv1", "channel"),
    "vit-base/16": ("blocks.*", "head"),
    "gpt2": ("blocks.0", "position"),
    "t5-small": ("decoder.*.cross_attention", "head"),
    "lstm": ("rnn", "unit"),
    "seq2seq-gru": ("encoder", "position"),
    "gat": ("layers.*", "head"),
    "gcn": ("layers.0", "edge"),
    "gin": ("layers.0", "edge"),
    "cnn-attention": ("attention", "head"),
    "textcnn": ("embedding", "position"),
}


@pytest.mark.parametrize("name", WITH_PARTS)
def test_every_family_can_be_ablated_and_patched(name: str) -> None:
    model, inputs = small(name)
    pattern, by = WITH_PARTS[name]
    effects = ablate(model, inputs, pattern, by=by)
    assert len(effects) > 1
    changes = [abs(effect.change) for effect in effects]
    assert changes == sorted(changes, reverse=True)
    assert changes[0] > 0
    assert all(math.isfinite(change) for change in changes)
    other = others(name)

    def metric(y: Tensor) -> Tensor:
        return y.flatten()[0]

    shares = patch(model, inputs, other, pattern, metric, by=by)
    assert {(r.module, str(r.part)) for r in shares} == {(e.module, str(e.part)) for e in effects}
    whole = patch(model, inputs, other, modules_that_run(model, inputs)[-1], metric)
    assert whole[0].share == pytest.approx(1)
    assert not traces(model)


def test_the_share_that_is_restored_by_hand() -> None:
    """y = Σ h, clean h = (1, 2, 3) and corrupted (0, 0, 1): of 6 − 1 the units bring back 1, 2 and 2."""
    model = nn.Sequential(nn.Identity(), nn.Linear(3, 1, bias=False))
    nn.init.ones_(model[1].weight)
    clean, corrupted = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    found = patch(model, clean, corrupted, "0", lambda y: y.sum(), by="unit")
    assert {r.part["unit"]: r.share for r in found} == {
        0: pytest.approx(0.2),
        1: pytest.approx(0.4),
        2: pytest.approx(0.4),
    }
    assert patch(model, clean, corrupted, ["0", "1"], lambda y: y.sum())[0].share == pytest.approx(1)
    with pytest.raises(ModelError, match="there is no difference to restore"):
        patch(model, clean, clean, "0", lambda y: y.sum())


# --- what a person can get wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda: Zero("blocks.0.atention"), "Similar: blocks.*attention"),
        (lambda: Zero("blocks.0.mlp", head=0), "is a MLP, which has no attention heads"),
        (lambda: Zero("blocks.0.mlp", edge=(0, 1)), "is a MLP, which passes no messages along edges"),
        (lambda: Zero("blocks.0", chanel=3), "Similar: channel"),
        (lambda: Zero("blocks.0#x"), "after # must be the number of a call"),
        (lambda: Noise("blocks.0", -1), "Invalid std=-1"),
        (lambda: Zero("blocks.0.attention", head=99), "Invalid head=99: must be from 0 to .* for blocks.0.attention"),
        (lambda: Zero("blocks.0", unit=-1), "Invalid unit=-1"),
        (lambda: Zero("blocks.0", channel=0), "is not a feature map; use unit"),
        (
            lambda: Replace("blocks.0", torch.zeros(9)),
            r"Invalid shape \(9,\) of the value: must fit the activation of .*\(2, 7, ",
        ),
    ],
)
def test_mistakes_are_named(edit: Any, message: str) -> None:
    model, inputs = small("gpt2")
    with pytest.raises(cutaway.CutawayError, match=message), intervene(model, edit()):
        model(*inputs)
    assert not traces(model)


def test_mistakes_about_graphs_and_maps_are_named() -> None:
    model, inputs = small("gcn")
    with (
        pytest.raises(SettingError, match="the graph has no edge from 0 to 5"),
        intervene(model, Zero("layers.0", edge=(0, 5))),
    ):
        model(*inputs)
    with pytest.raises(SettingError, match="must be a pair of numbers"), intervene(model, Zero("layers.0", edge=[3])):
        model(*inputs)
    model, inputs = small("resnet20")
    with pytest.raises(SettingError, match="is a feature map; use channel"), intervene(model, Zero("bn1", unit=0)):
        model(*inputs)
    with pytest.raises(SettingError, match="are 32×32"), intervene(model, Zero("bn1", position=(32, 0))):
        model(*inputs)
    with pytest.raises(ModelError, match="has no attention heads"):
        ablate(model, inputs, "bn1", by="head")
    with pytest.raises(ModelError, match=r"Invalid by='unit': .* has channels and positions"):
        ablate(model, inputs, "bn1", by="unit")
    with pytest.raises(UnknownName, match="Similar: head"):
        ablate(model, inputs, "bn1", by="heads")
    with pytest.raises(UnknownName, match="no module 'bn9'"):
        ablate(model, inputs, "bn9")
    with pytest.raises(SettingError, match="only="):
        ablate(model, inputs, "bn1", only=[3])


def test_inputs_of_another_length_are_rejected() -> None:
    model, inputs = small("gpt2")
    shorter = tuple(x[:, :4] for x in inputs)
    with (
        pytest.raises(ModelError, match="of the source activation"),
        intervene(model, Transplant("blocks.0", shorter)),
    ):
        model(*inputs)
    model, inputs = small("seq2seq-gru")
    shorter = (*inputs[:2], inputs[2][:, :4])
    with pytest.raises(ModelError, match="is called more often"), intervene(model, Transplant("decoder", shorter)):
        model(*inputs)
    assert not traces(model)


def test_a_place_says_which_run_it_means() -> None:
    assert (Site("a.b").name, Site("a.b").run) == ("a.b", None)
    assert (Site("a.b#12").name, Site("a.b#12").run) == ("a.b", 12)


@pytest.mark.parametrize("name", ["gpt2", "transformer-encoder", "vit-base/16"])
def test_weights_of_heads_are_those_of_the_columns_of_w_o(name: str) -> None:
    """[α₁ head₁ ‖ … ‖ α_h head_h] W_O, and the gradient of α too."""
    model, inputs = small(name)
    attention = model.get_submodule("blocks.1.attention")
    weights = torch.linspace(-1, 2, attention.heads).requires_grad_()
    all_heads = range(attention.heads)
    before = answer(model, inputs)
    with intervene(model, Scale("blocks.1.attention", weights, head=all_heads)):
        found = model(*inputs)
    (slope,) = torch.autograd.grad(found.square().sum(), weights)
    assert slope.abs().min() > 0
    plain = attention.out.weight.detach().clone()
    with torch.no_grad():
        attention.out.weight *= weights.repeat_interleave(attention.value_dim)
        torch.testing.assert_close(found, model(*inputs), rtol=1e-4, atol=1e-5)
        attention.out.weight.copy_(plain)
    assert not torch.allclose(found, before)
    assert torch.equal(answer(model, inputs, Scale("blocks.1.attention", 1.0, head=all_heads)), before)
    third = answer(model, inputs, Scale("blocks.1.attention", 0.0, head=0))
    assert torch.equal(third, answer(model, inputs, Zero("blocks.1.attention", head=0)))
    with pytest.raises(ModelError, match=r"^Invalid shape \(2, 1\) of the factor"):
        answer(model, inputs, Scale("blocks.1.attention", torch.ones(2), head=all_heads))


def test_a_factor_scales_outputs_and_heads_of_graph_attention() -> None:
    model, inputs = small("gpt2")
    with torch.no_grad(), intervene(model, Scale("blocks.0.mlp", 3.0, position=2)), capture(model) as seen:
        model(*inputs)
    changed = seen["features"]["blocks.0.mlp"]
    with torch.no_grad(), capture(model, "features") as seen:
        model(*inputs)
    expected = seen["features"]["blocks.0.mlp"]
    expected[:, 2] *= 3
    torch.testing.assert_close(changed, expected)
    model, inputs = small("gat")
    heads = model.get_submodule("layers.0").heads
    weights = torch.arange(heads, dtype=torch.float32)
    one_by_one = [Scale("layers.0", float(weights[h]), head=h) for h in range(heads)]
    found = answer(model, inputs, Scale("layers.0", weights, head=range(heads)))
    torch.testing.assert_close(found, answer(model, inputs, *one_by_one))
