"""What is captured: right, copied, bounded, and without a trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import cutaway
from cutaway.core.errors import ModelError, SettingError, UnknownName
from cutaway.inspect.captures import KINDS, OF, capturable_kinds, capture
from cutaway.models.base import as_output_tuple
from cutaway.nn.attention import MultiHeadAttention, recording
from tests.small import DIFFERENT, meta, of_family, small

LISTENERS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
ADDITIVE = ("seq2seq-gru", "show-attend-tell")  # vᵀ tanh(q + k), a query at a time
ATTENDING = [*of_family("transformer"), "cnn-attention", "image-gpt", *ADDITIVE]


def residual() -> nn.Module:
    torch.manual_seed(0)
    return cutaway.create_model("resnet20", layers=(1, 1), num_classes=3)


def traces(model: nn.Module) -> list[str]:
    """All that somebody who looks inside could have left in a model."""
    left = [f"{k}.{h}" for k, m in model.named_modules() for h in LISTENERS if getattr(m, h)]
    left += [f"{k}.seen" for k, m in model.named_modules() if getattr(m, "seen", None) is not None]
    left += [f"{k}.edge_hook" for k, m in model.named_modules() if getattr(m, "edge_hook", None) is not None]
    return left + [k for k, p in model.named_parameters() if p._backward_hooks]


def results(name: str, kinds: tuple[str, ...] = (), train: bool = False) -> tuple[list[Tensor], Any, nn.Module]:
    """Outputs and gradients of a preset, watched or not; what was seen; and the model."""
    model, inputs = small(name)
    model.train(train)
    given = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    torch.manual_seed(1)  # for dropout
    if kinds:
        with capture(model, kinds) as seen:
            outputs = as_output_tuple(model(*given))
            sum(y.square().sum() for y in outputs).backward()
    else:
        seen = None
        outputs = as_output_tuple(model(*given))
        sum(y.square().sum() for y in outputs).backward()
    assert not traces(model)
    gradients = [x.grad.to_dense() for x in (*given, *model.parameters()) if x.grad is not None]
    return [*outputs, *gradients, torch.rand(1)], seen, model


@pytest.mark.parametrize("name", DIFFERENT)
def test_outputs_and_gradients_are_the_same_bits(name: str) -> None:
    plain, _, model = results(name)
    for kind in capturable_kinds(model):
        watched, seen, _ = results(name, (kind,))
        assert len(plain) == len(watched)
        assert all(torch.equal(a, b) for a, b in zip(plain, watched)), kind
        assert len(seen[kind]) > 0
        assert not any(x.requires_grad for found in seen.values() for x in found.values())


@pytest.mark.parametrize(
    "name", [n for n in DIFFERENT if n in ("albert-base-v2", "resnet20", "gat", "t5-small", "googlenet")]
)
def test_nor_does_training_notice_all_kinds_at_once(name: str) -> None:
    kinds = capturable_kinds(small(name)[0])
    plain, _, _ = results(name, train=True)
    watched, _, _ = results(name, kinds, train=True)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched))


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_module_that_runs_is_seen_with_its_gradients(name: str) -> None:
    """Against hooks that keep what autograd says itself."""
    model, inputs = small(name)
    expected: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor) and name not in expected:
                expected[name] = first.detach().clone()

        return hook

    handles = [m.register_forward_hook(keep(k)) for k, m in model.named_modules() if k]
    with capture(model, ("features", "gradients")) as seen:
        loss = as_output_tuple(model(*inputs))[0].square().sum()
        loss.backward()
    for handle in handles:
        handle.remove()
    assert set(expected) <= set(seen["features"])
    assert all(torch.equal(seen["features"][k], x) for k, x in expected.items())
    grads = {k: p.grad.to_dense() for k, p in model.named_parameters() if p.grad is not None}
    assert set(seen["weights"]) == set(grads)
    assert all(torch.equal(seen["weights"][k], g) for k, g in grads.items())
    for k, gradient in seen["gradients"].items():
        assert gradient.shape == seen["features"][k].shape


def test_these_have_attention_and_no_others() -> None:
    assert sorted(ATTENDING) == sorted(n for n in DIFFERENT if "attention" in capturable_kinds(meta(n)))


@pytest.mark.parametrize("name", ATTENDING)
def test_recomputed_attention_is_that_of_the_fused_layer(name: str) -> None:
    """Its weights times the values, joined, are what the layer gave; padding is looked at by nobody."""
    model, inputs = small(name, dtype=torch.float64)
    if len(inputs) > 1:
        inputs[1][0, -2:] = False
    values: dict[str, list[tuple[Tensor, Tensor]]] = {}
    handles = []
    for k, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):

            def hook(m: Any, args: Any, kwargs: Any, output: Tensor, k: str = k) -> None:
                given = {n: v for n, v in kwargs.items() if n in ("positions", "source")}
                values.setdefault(k, []).append((m.project_qkv(*args, **given)[2], output))

            handles.append(module.register_forward_hook(hook, with_kwargs=True))
    with torch.no_grad(), capture(model, "attention") as seen:
        model(*inputs)
    for handle in handles:
        handle.remove()
    assert len(seen["attention"]) == sum(map(len, values.values())) + (name in ADDITIVE)
    for key, weights in seen["attention"].items():
        torch.testing.assert_close(
            weights.sum(-1), torch.ones(weights.shape[:-1], dtype=weights.dtype), atol=1e-12, rtol=0
        )
        if name == "seq2seq-gru":
            assert weights.shape == (2, 1, inputs[2].shape[1], inputs[0].shape[1])
            assert (weights[0, ..., -2:] == 0).all()
        if name in ADDITIVE:
            assert weights.shape[:3] == (2, 1, inputs[-1].shape[1])
            continue
        module, _, times = key.partition("#")
        v, output = values[module][int(times or 1) - 1]
        layer: Any = model.get_submodule(module)
        joined = layer.merge_heads(weights @ v.repeat_interleave(layer.heads // layer.kv_heads, dim=1))
        torch.testing.assert_close(joined, output, atol=1e-12, rtol=1e-12)


def test_a_shared_block_has_a_result_for_each_time_that_it_runs() -> None:
    model, inputs = small("albert-base-v2")
    with capture(model, ("features", "attention")) as seen, torch.no_grad():
        model(*inputs)
    calls = ["blocks.0.attention", *(f"blocks.0.attention#{i}" for i in range(2, model.config.layers + 1))]
    assert list(seen["attention"]) == calls
    first, second = (seen["features"][k] for k in ("blocks.0", "blocks.0#2"))
    torch.testing.assert_close(model.get_submodule("blocks.0")(first, None), second)
    assert not torch.equal(first, second)


def test_maps_by_name_are_what_the_modules_gave() -> None:
    model, x = residual().eval(), torch.randn(2, 3, 16, 16)
    with cutaway.inspect.capture(model, "features", "bn1", "layer*", "fc") as seen, torch.no_grad():
        y = model(x)
    maps = seen["features"]
    assert {"bn1", "layer1", "layer2", "layer1.0.conv1", "fc"} <= set(maps)
    assert maps["layer1"].shape == (2, 16, 16, 16)
    assert torch.equal(maps["fc"], y)
    # ReLU writes over what bn1 gave; the copy is from before
    assert torch.equal(maps["bn1"], model.get_submodule("bn1")(model.get_submodule("conv1")(x)))
    assert (maps["bn1"] < 0).any()


class Raises(nn.Module):
    """Stands in for a part that fails."""

    def forward(self, *args: Tensor) -> Tensor:
        raise ValueError("a part failed")


@pytest.mark.parametrize("name", ["resnet20", "gpt2", "gat", "lstm", "seq2seq-gru"])
def test_nothing_stays_behind_even_after_an_error(name: str) -> None:
    model, inputs = small(name)
    kinds = capturable_kinds(model)
    last = "layers.1" if name == "gat" else "fc" if name == "resnet20" else "head"
    model.set_submodule(last, Raises())

    def look() -> None:
        with capture(model, kinds):
            assert traces(model)
            model(*inputs)

    with pytest.raises(ValueError, match="a part failed"):
        look()
    assert not traces(model)


def test_an_error_within_a_call_does_not_confuse_the_next() -> None:
    model, x = residual().eval(), torch.randn(2, 3, 16, 16)
    with capture(model, "features") as seen, torch.no_grad():
        with pytest.raises(RuntimeError, match="channels"):
            model(torch.randn(2, 5, 16, 16))
        assert len(seen["features"]) == 0
        y = model(x)
    assert torch.equal(seen["features"]["fc"], y)
    assert not any("#" in name for name in seen["features"])


@pytest.mark.parametrize("name", ["gpt2", "gat", "gru", "resnet20"])
def test_captures_stand_within_each_other(name: str) -> None:
    model, inputs = small(name)
    kinds = capturable_kinds(model)
    with torch.no_grad(), capture(model, kinds) as outer:
        model(*inputs)
        alone = {k: {n: x.clone() for n, x in outer[k].items()} for k in outer}
        with capture(model, kinds, keep=1) as inner:
            model(*inputs)
        before = {k: set(inner[k]) for k in inner}
        assert traces(model)
        model(*(x.roll(1, 0) if i == 0 else x for i, x in enumerate(inputs)))
    assert not traces(model)
    assert {k: set(inner[k]) for k in inner} == before == {k: set(v) for k, v in alone.items()}
    for kind, found in inner.items():
        for n, x in found.items():
            torch.testing.assert_close(x, alone[kind][n] if kind in ("messages", "edges") else alone[kind][n][:1])


def test_a_recording_within_takes_over_and_gives_back() -> None:
    model, inputs = small("gpt2")
    with torch.no_grad(), recording(model) as found:
        with capture(model, "attention") as seen:
            model(*inputs)
        assert torch.equal(found["blocks.1.attention"][0].weights, seen["attention"]["blocks.1.attention"])
        model(*inputs)
    assert len(found["blocks.1.attention"]) == 2


def test_what_is_held_does_not_grow() -> None:
    """At most `keep` rows of each tensor, of one call."""
    model, inputs = small("seq2seq-gru", count=5)
    with capture(model, ("features", "attention", "gates", "gradients"), keep=2) as seen:
        held = []
        for _ in range(3):
            model(*inputs).sum().backward()
            held.append(sum(x.numel() for kind in seen for x in seen[kind].values()))
    assert held[0] == held[1] == held[2]
    for kind in ("features", "attention", "gates", "gradients"):
        assert all(len(x) <= 2 for x in seen[kind].values())
    with capture(model, "attention", keep=2) as seen, capture(model, "attention") as whole:
        model(*inputs)
    assert torch.equal(seen["attention"]["attention"], whole["attention"]["attention"][:2])


def test_steps_outside_a_call_replace_each_other() -> None:
    model, inputs = small("seq2seq-gru", dtype=torch.float64)
    step: Any = model
    with torch.no_grad(), capture(model, ("features", "attention", "gates")) as seen:
        state = step.begin(*inputs[:2])
        for token in inputs[2].unbind(1):
            logits, state = step.step(token, state)
    assert not any("#" in name for kind in seen for name in seen[kind])
    assert torch.equal(seen["features"]["head"], logits)
    torch.testing.assert_close(seen["gates"]["decoder.l0.state"][:, 0], state[0], atol=1e-12, rtol=0)
    assert seen["attention"]["attention"].shape[2] == 1


def test_every_third_call_is_looked_at() -> None:
    model = residual().eval()
    inputs = [torch.randn(2, 3, 16, 16) for _ in range(8)]
    with torch.no_grad(), capture(model, "features", "fc", every=3) as seen:
        outputs, kept = [], []
        for x in inputs:
            outputs.append(model(x))
            kept.append(seen["features"]["fc"])
    assert all(torch.equal(kept[i], outputs[i - i % 3]) for i in range(8))
    with capture(model, "gradients", "fc", every=2) as seen:
        model(inputs[0]).sum().backward()
        first = seen["weights"]["fc.weight"]
        model(inputs[1]).sum().backward()
        assert torch.equal(seen["weights"]["fc.weight"], first)
        assert len(seen["gradients"]) == 1


def test_gradients_are_those_of_the_last_backward_alone() -> None:
    model, x = residual().eval(), torch.randn(2, 3, 16, 16)
    with capture(model, "gradients", "fc") as seen:
        y = model(x)
        y.sum().backward()
        assert torch.equal(seen["gradients"]["fc"], torch.ones(2, 3))
        model(x).square().sum().backward()
    torch.testing.assert_close(seen["gradients"]["fc"], 2 * y.detach())
    torch.testing.assert_close(seen["weights"]["fc.bias"], 2 * y.detach().sum(0))
    assert set(seen["weights"]) == {"fc.weight", "fc.bias"}
    model(x).sum().backward()  # nobody looks any more
    torch.testing.assert_close(seen["gradients"]["fc"], 2 * y.detach())


@pytest.mark.parametrize("name", ["cnn-lstm", "gru", "lstm"])
@pytest.mark.parametrize("ways", [1, 2])
def test_gradients_of_recurrent_layers_are_those_of_their_outputs(name: str, ways: int) -> None:
    """The head reads the last states, which are handed on beside the outputs: the gradient is where they stand."""
    settings: dict[str, Any] = {"bidirectional": ways == 2} if name != "cnn-lstm" else {}
    model = cutaway.create_model(name, hidden_dim=5, **settings)
    shape, layer = ((3, 4, 3, 24, 24), "lstm") if name == "cnn-lstm" else ((3, 4, 1), "rnn")
    x, mask = torch.randn(shape), torch.arange(4) < torch.tensor([4, 2, 3])[:, None]
    with capture(model, ("features", "gradients"), layer) as seen:
        model(x, mask).sum().backward()
    gradient = seen["gradients"][layer]
    assert seen["features"][layer].shape == gradient.shape == (3, 4, 5 * len(gradient[0, 0]) // 5)
    head: Any = model.get_submodule("fc" if name == "cnn-lstm" else "head")
    expected = torch.zeros_like(gradient)
    weights = head.weight.detach().sum(0)
    expected[torch.arange(3), mask.sum(1) - 1, :5] = weights[:5]
    if len(weights) == 10:
        expected[:, 0, 5:] = weights[5:]
    torch.testing.assert_close(gradient, expected)
    assert (seen["features"][layer][~mask] == 0).all()


def test_what_there_is_not_is_rejected_with_the_nearest() -> None:
    with (
        pytest.raises(UnknownName, match=r"no module 'layer_1'.*Similar: layer1"),
        capture(residual(), "features", "layer_1"),
    ):
        pass
    with pytest.raises(UnknownName, match="features"), capture(residual(), "feature"):
        pass
    rejection = "has no attention to capture. Kinds that it has: features, gradients. Attention weights are recorded by"
    with pytest.raises(ModelError, match=rejection), capture(residual(), "attention"):
        pass
    model, inputs = small("gpt2")
    rejection = "no module with attention 'blocks.0'. Similar: blocks.0.attention"
    with pytest.raises(UnknownName, match=rejection), capture(model, "attention", "blocks.0"):
        pass
    with pytest.raises(SettingError, match="Invalid keep=0"), capture(model, keep=0):
        pass
    with pytest.raises(SettingError, match="Invalid every=0"), capture(model, every=0):
        pass
    with capture(model, "attention") as seen:
        with pytest.raises(UnknownName, match="has not been called in the block yet"):
            seen["attention"]["blocks.0.attention"]
        model(*inputs)
    with pytest.raises(UnknownName, match=r"no captured attention 'blocks\.attention'\. Similar: blocks"):
        seen["attention"]["blocks.attention"]
    with pytest.raises(UnknownName, match="Available: attention"):
        seen["gates"]
    assert seen["attention"].get("no such") is None


def test_a_name_may_be_meant_for_one_kind_of_several() -> None:
    model, inputs = small("gpt2")
    with capture(model, ("features", "attention"), "blocks.0", "blocks.*.attention") as seen:
        model(*inputs)
    assert list(seen["attention"]) == ["blocks.0.attention", "blocks.1.attention"]
    assert "blocks.0" in seen["features"]


def test_each_kind_is_known_by_its_modules() -> None:
    assert set(OF) == set(KINDS)
    assert capturable_kinds(small("seq2seq-gru")[0]) == ("features", "attention", "gates", "gradients")
    assert capturable_kinds(small("gat")[0]) == ("features", "messages", "gradients")


@pytest.mark.parametrize("in_place", [False, True], ids=["wrapped", "in-place"])
def test_a_compiled_model_is_rejected_as_it_would_run_past_all_of_this(in_place: bool) -> None:
    model, inputs = small("lenet5-modern")
    given = model
    if in_place:
        model.compile(backend="eager")
    else:
        given = torch.compile(model, backend="eager")  # type: ignore[assignment]
    rejected = pytest.raises(ModelError, match="compiled")
    with rejected, capture(given, "features"):
        pass
    with rejected, cutaway.inspect.intervene(given, cutaway.inspect.Zero("c1")):
        pass
    with rejected:
        cutaway.inspect.flow(given, lambda: given(*inputs).sum())
    with rejected:
        cutaway.inspect.attribute(given, inputs)
    assert not traces(model)


def test_an_activation_in_place_changes_nothing_of_what_was_captured_before_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 2))
    apart = nn.Sequential(model[0], nn.ReLU(), model[2], model[3])
    x = torch.randn(2, 3, 8, 8)
    found = []
    for one in (model, apart):
        with capture(one, ("features", "gradients"), "0") as seen:
            one(x)[:, 1].sum().backward()
        found.append((seen["features"]["0"], seen["gradients"]["0"]))
    assert found[0][0].min() < 0
    assert torch.equal(found[0][0], model[0](x))
    assert torch.equal(found[0][1], found[1][1])


def test_attention_of_torch_is_refused_with_the_way_to_its_weights() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
    way_out = "returns weights itself if called with need_weights=True"
    with pytest.raises(ModelError, match=way_out), capture(model, "attention"):
        pass
    assert not traces(model)
