"""Gradient flow: what autograd says, and what theory says of networks that are known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import cutaway
from cutaway.models import resnet
from cutaway.nn.modules import batch_norm_mode
from cutaway.training.config import TrainSettings
from cutaway.training.optim import build_optimizers
from cutaway.views import gradients
from cutaway.views.gradients import LayerGradients, block_norms, compare_with_plain, draw_gradients, gradient_flow
from cutaway.views.subject import Subject, open_model, open_preset

from ..small import small


def opened(name: str) -> Subject:
    """A small preset."""
    model, inputs = small(name)
    return open_model(model, *inputs)


@pytest.mark.parametrize("name", ["mlp", "lenet5-modern", "resnet20", "gpt2", "lstm", "gcn", "transformer-tiny"])
def test_norms_are_those_that_backward_leaves(name: str) -> None:
    subject = opened(name)
    flow = {layer.name: layer for layer in gradient_flow(subject).layers}
    with batch_norm_mode(subject.model):
        subject.loss().backward()
    for layer, module in subject.model.named_modules():
        own = [p for p in module.parameters(recurse=False) if p.grad is not None]
        if own:
            norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in own))  # type: ignore[union-attr]
            assert flow[layer].gradient == pytest.approx(norm, rel=1e-4)
            weight = math.sqrt(sum(float(p.double().square().sum()) for p in own))
            assert flow[layer].weight == pytest.approx(weight, rel=1e-4)


def test_the_gradient_of_an_output_is_the_one_that_reaches_it() -> None:
    subject = opened("lenet5-modern")
    flow = {layer.name: layer for layer in gradient_flow(subject).layers}
    kept: dict[str, torch.Tensor] = {}

    def keep(module: nn.Module, args: object, output: torch.Tensor) -> None:
        output.retain_grad()
        kept["c3"] = output

    handle = subject.model.get_submodule("c3").register_forward_hook(keep)
    subject.loss().backward()
    handle.remove()
    assert flow["c3"].output == pytest.approx(float(kept["c3"].grad.norm()), rel=1e-5)  # type: ignore[union-attr]


def test_units_that_never_fire_are_counted() -> None:
    model = cutaway.create_model("mlp", in_features=4, hidden_dims=(10,), num_classes=3)
    first = next(m for m in model.modules() if isinstance(m, nn.Linear))
    with torch.no_grad():
        first.bias[:4] = -1e6
    flow = gradient_flow(open_model(model, torch.randn(64, 4, generator=torch.Generator().manual_seed(0))))
    assert flow.layers[0].dead >= 0.399
    assert flow.layers[-1].dead == 0
    view = gradients.draw_gradients(open_model(model, torch.randn(64, 4)))
    assert "dead units" in view["summary"]
    assert any(drawing["title"].startswith("Dead") for drawing in view["drawings"])


def test_steps_of_optimizers() -> None:
    layer = LayerGradients("a", weight=10.0, gradient=2.0, moving=25)
    assert layer.step("sgd", 0.1) == pytest.approx(0.1 * 2 / 10)
    assert layer.step("adamw", 0.1) == pytest.approx(0.1 * 5 / 10)
    assert layer.step("nesterov", 0.1) == pytest.approx(0.1 * 1.9 * 2 / 10)
    assert layer.step("muon", 0.1) is None
    assert LayerGradients("zero").step("sgd", 0.1) is None


def test_the_step_of_an_optimizer_that_is_not_known_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not SGD's, which it had."""
    subject = opened("mlp")
    known = draw_gradients(subject)
    monkeypatch.setattr("cutaway.views.gradients.optimizer_and_lr", lambda subject: ("lion", 1e-3))
    found = draw_gradients(subject)
    assert "The size of the first step of lion is not known." in found["summary"]
    assert len(found["drawings"]) == len(known["drawings"]) - 1
    assert all(row[4] is None for row in found["table"]["rows"])
    assert any(row[4] for row in known["table"]["rows"])


@pytest.mark.parametrize("name", ["sgd", "nesterov", "adam", "adagrad", "rmsprop", "adadelta"])
def test_a_first_step_is_what_the_optimizer_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "optimizer_and_lr", lambda subject: (name, 1e-3))
    subject = opened("mlp")
    layer = gradient_flow(subject).layers[0]
    before = {k: p.detach().clone() for k, p in subject.model.named_parameters() if k.startswith(f"{layer.name}.")}
    (optimizer,) = build_optimizers(subject.model, TrainSettings(optimizer=name, lr=1e-3, weight_decay=0.0))
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
        if name not in ("sgd", "nesterov", "adadelta"):
            group["eps"] = 1e-30  # or the smallest gradients move less
    subject.loss().backward()
    optimizer.step()
    moved = math.sqrt(
        sum(float((p.detach() - before[k]).square().sum()) for k, p in subject.model.named_parameters() if k in before)
    )
    assert layer.step(name, 1e-3) == pytest.approx(moved / layer.weight, rel=1e-2)


def test_weights_of_the_model_itself_stand_at_the_input_under_their_names() -> None:
    subject = opened("vit-tiny/16")
    flow = gradient_flow(subject)
    own = [name for name, _ in subject.model.named_parameters(recurse=False)]
    assert flow.layers[0].own
    assert all(name in flow.layers[0].name for name in own)
    found = gradients.draw_gradients(subject)
    assert "in  and" not in found["summary"]
    assert "in head" in found["summary"]
    assert found["table"]["rows"][0][1] is None  # it gives nothing by itself


def test_a_layer_whose_last_state_alone_is_read_has_a_gradient() -> None:
    torch.manual_seed(0)
    model = cutaway.create_model("gru", in_features=2, vocab_size=0, num_classes=6, horizon=3).eval()
    flow = {layer.name: layer for layer in gradient_flow(open_model(model, torch.randn(2, 9, 2))).layers}
    assert flow["rnn"].gradient > 0
    assert flow["rnn"].output > 0


def test_one_layer_is_not_compared_with_itself_and_random_targets_are_said() -> None:
    found = gradients.draw_gradients(opened("linear"))
    assert found["summary"].count("head") == 1
    assert "random targets" in found["says"]
    assert "2 graphs" in gradients.draw_gradients(graphs())["says"]


def graphs() -> Subject:
    """Two graphs side by side."""
    model = cutaway.create_model("gcn", in_features=3, num_classes=2, graph_level=True)
    edges, batch = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), torch.tensor([0, 0, 1, 1])
    return open_model(model, torch.randn(4, 3), edges, torch.arange(2), batch)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "cnn-lstm", "seq2seq-gru"])
def test_gradients_reach_back_through_the_steps(name: str) -> None:
    model, inputs = small(name)
    flow = gradient_flow(open_model(model, *inputs))
    assert flow.steps
    for norms in flow.steps.values():
        assert len(norms) > 1
        assert all(norm >= 0 for norm in norms)
        assert max(norms) > 0


def test_steps_of_a_recurrent_network_are_those_of_its_input() -> None:
    model, (x, *rest) = small("rnn")
    if not x.is_floating_point():
        pytest.skip("its input is made of tokens")
    subject = open_model(model, x, *rest)
    (norms,) = gradient_flow(subject).steps.values()
    leaf = x.clone().requires_grad_()
    open_model(model, leaf, *rest).loss().backward()
    assert leaf.grad is not None
    assert norms == pytest.approx(leaf.grad.double().square().sum((0, 2)).sqrt().tolist(), rel=1e-4)


def test_a_plain_rnn_forgets_what_an_lstm_with_open_gates_keeps() -> None:
    def ratio(name: str) -> float:
        torch.manual_seed(0)
        model = cutaway.create_model(name, in_features=1, hidden_dim=16, num_classes=2)
        for key, parameter in model.named_parameters():
            if name == "lstm" and "bias_ih" in key:
                with torch.no_grad():
                    parameter[16:32] = 4.0  # the forget gate stays open
        (norms,) = gradient_flow(open_model(model, torch.randn(4, 40, 1))).steps.values()
        return norms[0] / norms[-1]

    assert ratio("rnn") < 1e-3 < ratio("lstm")


def test_without_shortcuts_gradients_grow_with_depth_and_with_them_they_do_not_as_much() -> None:
    model = resnet.Model(resnet.Config(layers=(8, 8, 8), width=8, stem="cifar", shortcut="A", num_classes=10))
    (depth, residual), (same, plain) = (block_norms(model, 1, shortcuts) for shortcuts in (True, False))
    assert depth == same == 50
    assert len(residual) == len(plain) == 24
    assert plain[0] / plain[-1] > 20 * residual[0] / residual[-1]
    assert block_norms(model, 1, True) == (depth, residual)


def test_removing_shortcuts_leaves_the_other_weights() -> None:
    config = resnet.Config(layers=(2, 2), width=4, stem="cifar", num_classes=3)
    models = []
    for shortcuts in (True, False):
        torch.manual_seed(0)
        model = resnet.Model(config)
        for block in model.modules():
            if isinstance(block, resnet.BasicBlock) and not shortcuts:
                block.downsample = resnet.NoShortcut()
        models.append(model.state_dict())
    assert set(models[1]) < set(models[0])
    assert all(torch.equal(models[0][k], x) for k, x in models[1].items())
    assert float(resnet.NoShortcut()(torch.ones(2, 3))) == 0


def test_only_residual_networks_are_compared_and_the_summary_has_the_numbers() -> None:
    assert compare_with_plain(opened("vgg11")) is None
    compared = compare_with_plain(opened("resnet20"))
    assert compared is not None
    assert "without shortcuts" in compared.said
    by_block, by_depth = compared.drawings
    assert [series["name"] for series in by_block["series"]] == ["residual", "plain"]
    assert [x for x, _ in by_depth["series"][0]["points"]] == [x for x, _ in by_depth["series"][1]["points"]]


def test_large_models_are_looked_at_with_fewer_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = opened("lenet5-modern")
    monkeypatch.setattr(gradients, "MAX_MACS", 1.0)
    few = gradients.limit_examples(subject)
    assert (subject.count, few.count) == (2, 1)
    assert "of 1 example, with random targets" in gradients.draw_gradients(subject)["says"]


def test_a_batch_norm_with_one_value_falls_back_on_what_it_has_kept() -> None:
    model = cutaway.create_model("resnet20")
    flow = gradient_flow(open_model(model, torch.randn(1, 3, 8, 8)))
    assert all(math.isfinite(layer.gradient) for layer in flow.layers)
    assert not any(torch.is_grad_enabled() and p.grad is not None for p in model.parameters())


def test_the_rate_is_that_of_the_run_or_of_the_card() -> None:
    assert gradients.optimizer_and_lr(open_preset("resnet20")) == ("momentum", 0.1)
