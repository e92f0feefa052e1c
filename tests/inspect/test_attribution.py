"""Attributions against closed forms, and the checks that stand beside them."""

from __future__ import annotations

import itertools
import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import cutaway
from cutaway.core.errors import ModelError, SettingError, UnknownName
from cutaway.inspect.attribution import METHODS, Completeness, attribute
from cutaway.inspect.attribution.explained_output import embeddings
from cutaway.inspect.attribution.gradient_methods import multiply_attention
from cutaway.inspect.attribution.result import rank_correlation
from cutaway.inspect.captures import capture
from cutaway.models.registry import preset
from tests.small import DIFFERENT, small

TEXTS = [
    name for name in DIFFERENT if set(preset(name).takes) & {"text", "seq2seq"} and "rnn" not in preset(name).takes
]


def linear(features: int = 5, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return cutaway.create_model("linear", in_features=features).to(dtype).eval()


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())


# --- a linear model: every method has a closed form -----------------------------------------------------------


def test_of_a_linear_model_every_method_is_its_weight_times_its_value() -> None:
    model, x = linear(), torch.randn(3, 5, dtype=torch.float64)
    w, start = model.head.weight[0].detach(), torch.randn(5, dtype=torch.float64)
    assert torch.allclose(attribute(model, x, "gradient").values, w.expand(3, 5), atol=1e-12)
    assert torch.allclose(attribute(model, x, "input_x_gradient").values, w * x, atol=1e-12)
    for method in ("integrated_gradients", "gradient_shap", "occlusion"):
        result = attribute(model, x, method, baseline=start)
        assert torch.allclose(result.values, w * (x - start), atol=1e-6), method  # captum weighs points in float32
        assert result.completeness.gap < 1e-6
    shapley = attribute(model, x, "kernel_shap", baseline=start)
    assert torch.allclose(shapley.values, w * (x - start), atol=1e-3)


@settings(max_examples=20, deadline=None)
@given(features=st.integers(1, 6), seed=st.integers(0, 1000), number=st.floats(-3, 3))
def test_integrated_gradients_of_a_linear_model_for_any_baseline(features: int, seed: int, number: float) -> None:
    model = linear(features)
    x = torch.randn(2, features, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    result = attribute(model, x, baseline=number, randomise=False)
    assert torch.allclose(result.values, model.head.weight[0] * (x - number), atol=1e-6)
    assert result.passed


def test_kernel_shap_is_shapleys_value_of_every_order() -> None:
    torch.manual_seed(1)
    model = cutaway.create_model("mlp", in_features=4, hidden_dims=(6,), num_classes=3).double().eval()
    x = torch.randn(1, 4, dtype=torch.float64)
    result = attribute(model, x, "kernel_shap", target=1, steps=600, randomise=False)

    def value(parts: tuple[int, ...]) -> float:
        given = torch.zeros(1, 4, dtype=torch.float64)
        given[0, list(parts)] = x[0, list(parts)]
        return float(model(given)[0, 1].detach())

    exact = [0.0] * 4
    for order in itertools.permutations(range(4)):
        for k, i in enumerate(order):
            exact[i] += (value(order[: k + 1]) - value(order[:k])) / math.factorial(4)
    assert result.values[0].tolist() == pytest.approx(exact, abs=0.02)
    assert float(result.values.sum()) == pytest.approx(value((0, 1, 2, 3)) - value(()), abs=1e-3)


def test_gradient_shap_averages_over_its_background() -> None:
    model, x = linear(), torch.randn(2, 5, dtype=torch.float64)
    background = torch.randn(7, 5, dtype=torch.float64)
    result = attribute(model, x, "gradient_shap", background=background, steps=512, randomise=False)
    expected = model.head.weight[0] * (x - background.mean(0))
    assert torch.allclose(result.values, expected, atol=0.3)
    assert result.about == "7 examples of the data"
    with pytest.raises(SettingError, match="background"):
        attribute(model, x, "gradient_shap", background=background[:, :2])


def test_occlusion_of_a_linear_map_over_pixels_is_weight_times_value() -> None:
    torch.manual_seed(0)
    model = cutaway.create_model("softmax", in_features=2 * 6 * 6, num_classes=3).double().eval()
    x = torch.randn(2, 2, 6, 6, dtype=torch.float64)
    result = attribute(model, x, "occlusion", target=2, window=1, randomise=False)
    expected = (model.head.weight[2].view(2, 6, 6) * x).sum(1)
    assert torch.allclose(result.values, expected, atol=1e-9)
    with pytest.raises(SettingError, match="window=7"):
        attribute(model, x, "occlusion", window=7)


def test_a_pixels_gradient_is_that_of_its_strongest_channel() -> None:
    torch.manual_seed(0)
    model = cutaway.create_model("softmax", in_features=3 * 4 * 4, num_classes=2).double().eval()
    result = attribute(model, torch.randn(1, 3, 4, 4, dtype=torch.float64), "gradient", target=1, randomise=False)
    w = model.head.weight[1].detach().view(3, 4, 4)
    assert torch.allclose(result.values[0].abs(), w.abs().amax(0))


# --- Grad-CAM and roll-out by hand -----------------------------------------------------------------------------


def test_grad_cam_is_what_its_equations_say() -> None:
    model, (x,) = small("resnet20", dtype=torch.float64)
    result = attribute(model, x, "grad_cam", target=2, randomise=False)
    assert result.layer == "layer3"
    with torch.no_grad():
        maps = model.get_submodule("layer3")
        kept: list[Tensor] = []
        handle = maps.register_forward_hook(lambda m, a, y: kept.append(y))
    with capture(model, "features", "layer3") as seen:
        y = model(x)[:, 2].sum()
    (grad,) = torch.autograd.grad(y, kept[0])
    handle.remove()
    alpha = grad.mean((2, 3), keepdim=True)
    small_map = F.relu((alpha * seen["features"]["layer3"]).sum(1, keepdim=True))
    expected = F.interpolate(small_map, size=x.shape[2:], mode="bilinear", align_corners=False)[:, 0]
    assert torch.allclose(result.values, expected, atol=1e-9)
    assert attribute(model, x, "grad_cam", layer="layer1", randomise=False).layer == "layer1"


def test_grad_cam_rejects_what_has_no_maps() -> None:
    model, (x,) = small("resnet20")
    with pytest.raises(UnknownName, match="layer1"):
        attribute(model, x, "grad_cam", layer="layer_1")
    with pytest.raises(ModelError, match=r"Invalid layer fc: has no feature map\. Layers with one: layer3.0, "):
        attribute(model, x, "grad_cam", layer="fc")
    vit, (image,) = small("vit-small/16")
    with pytest.raises(ModelError, match="rollout"):
        attribute(vit, image, "grad_cam")


def test_roll_out_of_two_layers_by_hand() -> None:
    first, second = (torch.rand(1, 3, 3).softmax(-1) for _ in range(2))
    rolled = multiply_attention([first, second])
    eye = torch.eye(3)
    assert torch.allclose(rolled, (second + eye) / 2 @ ((first + eye) / 2), atol=1e-6)
    assert torch.allclose(rolled.sum(-1), torch.ones(1, 3))


def test_roll_out_reads_the_row_of_the_place_and_hides_what_stands_behind() -> None:
    model, inputs = small("gpt2")
    result = attribute(model, inputs, "rollout", target=(3, None), randomise=False)
    assert torch.allclose(result.values.sum(1), torch.ones(2), atol=1e-5)
    assert (result.values[:, 4:] == 0).all()
    assert (result.values[:, :4] > 0).all()


@pytest.mark.parametrize("name", ["t5-small", "bart-base", "transformer-tiny"])
def test_roll_out_of_a_pair_shares_one_between_its_sides(name: str) -> None:
    model, inputs = small(name)
    result = attribute(model, inputs, "rollout", randomise=False)
    assert result.beside is not None
    assert torch.allclose(result.values.sum(1) + result.beside.sum(1), torch.ones(2), atol=1e-5)


def test_roll_out_over_patches_is_spread_over_their_pixels() -> None:
    model, (x,) = small("vit-small/16")
    values = attribute(model, x, "rollout", randomise=False).values
    assert values.shape == (2, 32, 32)
    patches = values.view(2, 2, 16, 2, 16)
    assert torch.allclose(patches, patches[:, :, :1, :, :1].expand_as(patches))
    mlp, inputs = small("mlp")
    with pytest.raises(ModelError, match="attention"):
        attribute(mlp, inputs, "rollout")


# --- tokens ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_tokens_enter_by_embeddings_that_can_be_told_by_name(name: str) -> None:
    model, _ = small(name)
    if getattr(model.config, "vocab_size", 0):
        assert embeddings(model)


def test_padding_has_done_nothing_and_other_tokens_of_the_batch_do_not_matter() -> None:
    torch.manual_seed(0)
    model = cutaway.create_model("textcnn", vocab_size=30, dim=8, filters=4, kernel_sizes=(2, 3)).eval()
    tokens, mask = torch.tensor([[4, 7, 2, 0, 0], [9, 3, 5, 6, 8]]), torch.ones(2, 5, dtype=torch.bool)
    mask[0, 3:] = False
    for method in ("integrated_gradients", "occlusion"):
        both = attribute(model, (tokens, mask), method, target=1, randomise=False).values
        assert (both[0, 3:].abs() < 1e-6).all(), method
    both = attribute(model, (tokens, mask), target=1, steps=64, randomise=False).values
    alone = attribute(model, (tokens[:1, :3], mask[:1, :3]), target=1, steps=64, randomise=False).values
    assert torch.allclose(both[0, :3], alone[0], atol=1e-4)


def test_of_two_channels_of_embeddings_both_count() -> None:
    torch.manual_seed(0)
    settings = {"vocab_size": 30, "dim": 8, "filters": 4, "kernel_sizes": (2,)}
    model = cutaway.create_model("textcnn", channels="two-channel", **settings).eval()
    result = attribute(model, (torch.tensor([[4, 7, 2, 9]]), torch.ones(1, 4, dtype=torch.bool)), randomise=False)
    assert result.values.shape == (1, 4)
    assert result.completeness.passed


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64], ids=["bool", "int64"])
def test_a_language_model_is_asked_for_the_token_behind_its_last_real_one(dtype: torch.dtype) -> None:
    model, (tokens, mask) = small("gpt2")
    mask = mask.to(dtype)
    mask[1, 5:] = False
    result = attribute(model, (tokens, mask), randomise=False)
    assert result.target.place is not None
    assert result.target.output is not None
    assert result.target.place.tolist() == [6, 4]
    logits = model(tokens, mask).detach()
    assert result.target.output.tolist() == [int(logits[0, 6].argmax()), int(logits[1, 4].argmax())]
    assert torch.allclose(result.output, torch.stack([logits[0, 6].max(), logits[1, 4].max()]), atol=1e-5)
    with pytest.raises(SettingError, match="place=9"):
        attribute(model, (tokens, mask), target=(9, 0))


def test_a_baseline_can_be_a_token() -> None:
    model, inputs = small("gpt2")
    result = attribute(model, inputs, baseline=3, randomise=False)
    assert result.about == "the embedding of token 3"
    same = torch.full_like(inputs[0], 3)
    nothing = attribute(model, (same, inputs[1]), baseline=3, target=(6, 1), randomise=False)
    assert (nothing.values == 0).all()
    with pytest.raises(SettingError, match="baseline"):
        attribute(model, inputs, baseline=4000)


# --- graphs ----------------------------------------------------------------------------------------------------


def test_of_a_graph_only_what_is_within_reach_matters() -> None:
    model, inputs = small("gcn")  # a ring of 12 nodes, two layers
    near = {10, 11, 0, 1, 2}
    for method in ("integrated_gradients", "occlusion", "kernel_shap"):
        values = attribute(model, inputs, method, target=(0, None), randomise=False).values
        assert values.shape == inputs[0].shape
        size = values.sum(1).abs()  # KernelShap's are those of a regression on random sets
        least = 0.02 * float(size.max()) if method == "kernel_shap" else 0.0
        assert set((size > least).nonzero()[:, 0].tolist()) <= near, method
    alone = inputs[0].clone()
    alone[1] = 0
    lost = model(*inputs)[0].max() - model(alone, inputs[1])[0, int(model(*inputs)[0].argmax())]
    covered = attribute(model, inputs, "occlusion", target=(0, None), randomise=False).values
    assert float(covered[1].sum()) == pytest.approx(float(lost.detach()), abs=1e-5)
    edges = attribute(model, inputs, "edges", target=(0, None), randomise=False).values
    x, pairs = inputs
    assert edges.shape == (24,)
    k = int(edges.abs().argmax())
    whole, less = model(x, pairs), model(x, torch.cat([pairs[:, :k], pairs[:, k + 1 :]], 1))
    chosen = int(whole[0].argmax())
    assert float(edges[k]) == pytest.approx(float((whole[0, chosen] - less[0, chosen]).detach()), abs=1e-5)
    with pytest.raises(ModelError, match="Invalid method 'edges': table data has no edges; use occlusion"):
        attribute(*small("mlp"), "edges")


def test_whole_graphs_in_one_batch_are_asked_one_by_one() -> None:
    torch.manual_seed(0)
    model = cutaway.create_model("gcn", in_features=4, hidden_dim=5, num_classes=2, graph_level=True).eval()
    x, pairs = torch.randn(6, 4), torch.tensor([[0, 1, 3, 4], [1, 0, 4, 3]])
    batch = torch.tensor([0, 0, 0, 1, 1, 1])
    inputs = (x, pairs, torch.zeros(0, dtype=torch.int64), batch)
    values = attribute(model, inputs, target=(1, None), randomise=False).values
    assert (values[:3] == 0).all()
    assert (values[3:] != 0).any()


# --- every preset ----------------------------------------------------------------------------------------------


def expected_shape(inputs: tuple[Tensor, ...], kind: str) -> tuple[int, ...]:
    shape = tuple(inputs[0].shape)
    return {"image": (shape[0], *shape[2:]), "video": (*shape[:2], *shape[3:])}.get(kind, shape)


# Its k largest values are kept in the order of their places: where one overtakes another, the output jumps, and the
# integral over gradients does not see a jump. A spike is a jump too, and its surrogate gradient is not its slope.
JUMPS = {"dcnn", "spiking-mlp"}


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_preset_can_be_asked_and_is_left_as_it_was(name: str) -> None:
    model, inputs = small(name)
    drawn = inputs[0].ndim > 3  # images and videos, which take most time
    inputs = tuple(x[:1] for x in inputs) if drawn else inputs
    if name == "vae":  # from a pixel's last level on, its probability is that of all beyond: there too the output jumps
        inputs = (0.9 * inputs[0].tanh(),)
    model.train()
    before, gradients = state(model), [p.grad for p in model.parameters()]
    random, mode = torch.get_rng_state(), [m.training for m in model.modules()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = attribute(model, inputs, randomise=False, steps=16 if drawn else 64)
        covered = attribute(
            model, inputs, "occlusion", window=inputs[0].shape[-1] // 2 if drawn else None, randomise=False
        )
        slope = attribute(model, inputs, "gradient", randomise=False)
    for found in (result, covered, slope):
        assert tuple(found.values.shape) == expected_shape(inputs, found.kind)
        assert torch.isfinite(found.values).all()
        assert (found.beside is not None) == (found.kind == "seq2seq")
    assert result.passed == (name not in JUMPS), result.says
    assert (result.warning is None) == result.passed
    assert "need not sum" in covered.says
    assert hooks(model) == 0
    assert [m.training for m in model.modules()] == mode
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert gradients == [None] * len(gradients) == [p.grad for p in model.parameters()]


# --- the check of random weights -------------------------------------------------------------------------------


def test_a_map_that_knows_no_weights_fails_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from cutaway.inspect.attribution import methods
    from cutaway.inspect.attribution.explained_output import Entry
    from cutaway.inspect.attribution.result import AttributionMap, MethodSettings

    def brightness(entry: Entry, ask: MethodSettings) -> AttributionMap:
        values = entry.z.abs().sum(1)
        return AttributionMap(values, values.flatten(1).sum(1), based=False)

    monkeypatch.setitem(methods.METHODS, "brightness", brightness)
    model, inputs = small("lenet5")
    before = state(model)
    result = attribute(model, inputs, "brightness")
    assert result.randomisation is not None
    assert result.randomisation.correlation == pytest.approx([1.0] * len(result.randomisation.layers))
    assert not result.passed
    assert result.warning is not None
    assert "more than the learned weights" in result.warning
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_grad_cam_of_random_weights_is_another_map_and_the_top_goes_first() -> None:
    model, inputs = small("lenet5")
    result = attribute(model, inputs, "grad_cam")
    assert result.randomisation is not None
    assert result.passed
    assert result.randomisation.layers[0] == "f6"  # what stands above it has no weights that are learned
    assert result.randomisation.layers[-1].startswith("c1")


def test_the_same_seed_gives_the_same_checks() -> None:
    model, inputs = small("mlp")
    one, two = (attribute(model, inputs, "kernel_shap", seed=3) for _ in range(2))
    assert torch.equal(one.values, two.values)
    assert one.randomisation == two.randomisation


def test_what_is_zero_everywhere_is_not_compared() -> None:
    model, inputs = small("perceptron")  # its weights begin at zero
    result = attribute(model, inputs)
    assert result.randomisation is None
    assert "the map is constant" in result.says


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=2, max_size=12), st.integers(0, 99))
def test_rank_correlation_is_spearmans(values: list[int], seed: int) -> None:
    from scipy.stats import spearmanr

    a = torch.tensor([values], dtype=torch.float64)
    b = torch.randn(1, len(values), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    expected = spearmanr(a[0], b[0]).statistic if len(set(values)) > 1 else 0.0
    assert float(rank_correlation(a, b)) == pytest.approx(expected, abs=1e-9)


def test_an_incomplete_sum_fails_and_says_by_how_much() -> None:
    model, inputs = small("transformer-tiny")
    result = attribute(model, inputs, steps=1, randomise=False)
    assert result.completeness.relative > 0.05
    assert not result.passed
    assert "gap" in result.says
    assert "the attribution is incomplete" in (result.warning or "")


def test_a_gap_says_what_it_is_a_share_of() -> None:
    cancelling = Completeness(torch.tensor([0.097]), torch.tensor([0.083]), torch.tensor([14.0]), 0.05)
    assert "(gap 0.1\u202f% of the sum of absolute values)" in cancelling.says
    plain = Completeness(torch.tensor([1.9]), torch.tensor([2.0]), torch.tensor([1.9]), 0.05)
    assert "(gap 5.0\u202f% of the change)" in plain.says


def test_a_change_below_the_rounding_of_the_output_accuses_nobody() -> None:
    layer = nn.Linear(3, 1)
    with torch.no_grad():
        layer.weight.fill_(1e-8)
        layer.bias.fill_(1.0)  # of which the last place is 1.2e-7: the sum of the inputs is lost
    x = torch.full((1, 3), 0.5)
    lost = attribute(layer, x, randomise=False)
    assert float(lost.completeness.change) == 0.0
    assert float(lost.completeness.size) == pytest.approx(1.5e-8)
    assert lost.passed, lost.says
    assert attribute(layer.double(), x.double(), randomise=False).completeness.change == pytest.approx(1.5e-8)


def test_what_there_is_not_is_rejected() -> None:
    model, inputs = small("mlp")
    with pytest.raises(UnknownName, match="occlusion"):
        attribute(model, inputs, "oclusion")
    with pytest.raises(SettingError, match="target=9"):
        attribute(model, inputs, target=9)
    for wrong in ("x", 1.5):
        with pytest.raises(SettingError, match=f"target={wrong}"):
            attribute(model, inputs, target=wrong)  # type: ignore[arg-type]
    for steps in (0, -3):
        with pytest.raises(SettingError, match=f"steps={steps}"):
            attribute(model, inputs, steps=steps)
    with pytest.raises(SettingError, match="without positions"):
        attribute(model, inputs, target=(1, 0))
    with pytest.raises(SettingError, match="baseline of shape"):
        attribute(model, inputs, baseline=torch.zeros(7))
    with pytest.raises(ModelError, match="at least one"):
        attribute(model, tuple(x[:0] for x in inputs))
    assert set(METHODS) >= {"gradient", "integrated_gradients", "kernel_shap", "rollout"}


def test_a_forecast_is_asked_for_its_first_step() -> None:
    torch.manual_seed(0)
    model = cutaway.create_model("gru", in_features=2, vocab_size=0, num_classes=6, horizon=3).eval()
    result = attribute(model, torch.randn(2, 9, 2), randomise=False)
    assert result.target.output is not None
    assert result.target.output.tolist() == [0, 0]
    assert result.values.shape == (2, 9, 2)
    assert result.passed
