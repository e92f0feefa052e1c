"""cutaway plan as it is typed: the table in eighty columns, JSON, Python, and what cannot be."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cutaway

from .conftest import Answer

Cli = Callable[..., Answer]
SMALL = "gpt2 help.txt model.layers=2 model.dim=32 model.heads=2 length=32 batch_size=16 epochs=2"
H100 = "gpu=h100 gpus=16 price=2.5"


@pytest.fixture
def text(cli: Cli) -> None:
    """A text to learn from, in the folder of the command."""
    Path("help.txt").write_text("Return the sum of all that is given, or zero where nothing is.\n" * 300)


def test_gpus_elsewhere_are_planned_by_every_strategy(cli: Cli, text: None) -> None:
    answer = cli(*f"plan {SMALL} {H100}".split())
    assert answer.status == 0, answer.err
    assert re.search(r"16 × H100 SXM +one +ddp +fsdp +hsdp\n", answer.out)
    for row in ("weights in bfloat16", "optimizer state", "activations", "on each device", "fits into 72 GiB", "cost"):
        assert re.search(rf"^ *{row}  +\S", answer.out, re.MULTILINE), row
    assert "an assumed utilization of 40% (utilization=)" in answer.out
    assert all(len(line) <= 80 for line in answer.out.splitlines() if not line.startswith("Assumed"))

    plan = json.loads(cli(*f"plan {SMALL} {H100} --json".split()).out)
    one, ddp, fsdp, hsdp = plan["strategies"]
    assert [s["devices"] for s in plan["strategies"]] == [1, 16, 16, 16]
    assert [s["examples"] for s in plan["strategies"]] == [16, 1, 1, 1]
    for found in plan["strategies"]:
        memory = dict(found["memory"])
        assert memory.pop("total") == pytest.approx(sum(memory.values()))
        assert found["seconds"] == pytest.approx(found["seconds_per_step"] * plan["steps"])
        assert found["cost"] == pytest.approx(2.5 * found["devices"] * found["seconds"] / 3600)
    assert plan["steps"] == 2 * plan["steps_per_epoch"]
    assert ddp["memory"]["optimizer"] == one["memory"]["optimizer"]
    assert fsdp["memory"]["optimizer"] == pytest.approx(ddp["memory"]["optimizer"] / 16, rel=0.05)
    assert hsdp["memory"]["optimizer"] == pytest.approx(ddp["memory"]["optimizer"] / 8, rel=0.05)


def test_a_step_takes_the_longest_of_what_it_waits_for(text: None) -> None:
    small: dict[str, Any] = {"model.layers": 2, "model.dim": 32, "model.heads": 2, "length": 32, "batch_size": 16}
    first = cutaway.plan("gpt2", "help.txt", gpu="h100", **small)
    (one,) = first.strategies
    assert one.bound == "kernels"
    assert one.seconds_per_step is not None
    launched = one.seconds_per_step
    peak = first.flops / (2 * launched * 0.4) / 1e12  # at which computing takes twice as long as that
    (one,) = cutaway.plan("gpt2", "help.txt", gpu="h100", peak=peak, utilization=0.4, **small).strategies
    assert one.bound == "computing"
    assert one.seconds_per_step == pytest.approx(2 * launched, rel=1e-9)


def test_a_plan_ends_where_training_would_and_names_the_fastest_that_fits(text: None) -> None:
    small: dict[str, Any] = {"model.layers": 2, "model.dim": 32, "model.heads": 2, "length": 32, "batch_size": 16}
    small |= {"gpu": "h100", "gpus": 2, "epochs": 3, "peak": 1e-3}  # so slow that computing is what a step waits for
    whole, short = cutaway.plan("gpt2", "help.txt", **small), cutaway.plan("gpt2", "help.txt", max_steps=5, **small)
    assert (whole.steps, short.steps) == (3 * whole.steps_per_epoch, 5)
    one, again = (cutaway.plan("gpt2", "help.txt", recompute=r, **small)["ddp"] for r in ("none", "full"))
    assert one.seconds_per_step is not None
    assert again.seconds_per_step == pytest.approx(4 / 3 * one.seconds_per_step)
    assert one.seconds_per_epoch == pytest.approx(whole.steps_per_epoch * one.seconds_per_step)
    assert whole.best is not None
    assert whole.best.seconds == min(s.seconds for s in whole.strategies if s.seconds)
    few = {s.name: s.memory.total for s in whole.strategies}
    assert few["fsdp"] < few["ddp"]
    between = (few["fsdp"] + few["ddp"]) / 2 / 2**30
    tight = cutaway.plan("gpt2", "help.txt", gpu_memory=between, memory_fraction=1, **small)
    assert tight.best is not None
    assert (tight.best.name, tight["ddp"].fits) == ("fsdp", False)
    starved = tuple(dataclasses.replace(s, room=0.0) if s is whole.best else s for s in whole.strategies)
    other = dataclasses.replace(whole, strategies=starved).best
    assert other is not None
    assert other.name != whole.best.name


def test_accumulated_batches_are_one_step(text: None) -> None:
    small: dict[str, Any] = {
        "model.layers": 1,
        "model.dim": 32,
        "model.heads": 2,
        "length": 32,
        "batch_size": 7,
        "gpu": "h100",
    }
    one, eight = (cutaway.plan("gpt2", "help.txt", accumulate=k, epochs=2, gpus=7, **small) for k in (1, 8))
    assert one.steps_per_epoch % 8
    assert eight.steps_per_epoch == -(-one.steps_per_epoch // 8)
    assert eight.steps == 2 * eight.steps_per_epoch
    assert (eight.batch, eight.tokens) == (8 * 7, 8 * 7 * 32)
    assert (one.batch, one.tokens) == (7, 7 * 32)
    alone = cutaway.plan("gpt2", "help.txt", **{**small, "batch_size": 1})
    assert one.flops == pytest.approx(7 * alone.flops)


def test_this_machine_is_measured(cli: Cli) -> None:
    answer = cli("plan", "mlp", "iris", "epochs=3")
    assert answer.status == 0, answer.err
    assert answer.out.startswith("mlp on iris: ")
    assert re.search(r"^this machine \(cpu\) +one$", answer.out, re.MULTILINE)
    assert re.search(r"^fits into .* yes$", answer.out, re.MULTILINE)
    assert re.search(r"^3 epochs, \d+ steps +\d", answer.out, re.MULTILINE)
    assert "The time of a step is measured here" in answer.out

    plan = cutaway.plan("mlp", "iris", epochs=3, processes=2, parallel="fsdp")
    (fsdp,) = plan.strategies
    assert plan["fsdp"] is fsdp is plan.best
    assert fsdp.memory.weights < cutaway.plan("mlp", "iris").strategies[0].memory.weights


def test_a_model_larger_than_this_machine_is_planned_with_a_strategy_that_fits(cli: Cli, text: None) -> None:
    huge = "plan gpt2 help.txt model.layers=2 model.dim=65536 model.heads=64 length=32"
    answer = cli(*huge.split())
    assert answer.status == 0, answer.err
    assert re.search(r"^fits into .* no$", answer.out, re.MULTILINE)
    assert "The step is not measured: it does not fit into memory." in answer.out
    assert "for any batch size" in answer.out

    deep = [
        "plan",
        "gpt2",
        "help.txt",
        "model.layers=6",
        "model.dim=64",
        "model.heads=4",
        "length=128",
        "batch_size=64",
        "gpu=h100",
    ]
    assert "Nothing fits. With recompute=selective, one takes" in cli(*deep, "gpu_memory=0.19").out
    answer = cli(*deep, "gpu_memory=0.19", "recompute=selective")
    assert re.search(r"^fits into .* yes$", answer.out, re.MULTILINE)
    answer = cli(*deep, "gpu_memory=0.082")
    assert re.search(r"one fits with batch_size=\d+ and accumulate=\d+, which gives the same", answer.out)


def test_a_dry_run_lists_what_each_device_holds_and_what_is_sent(cli: Cli, text: None) -> None:
    typed = f"plan {SMALL} gpu=h100 gpus=16 dry_run=true"
    answer = cli(*typed.split())
    assert answer.status == 0, answer.err
    for strategy in ("ddp", "fsdp", "hsdp"):
        assert f"\n{strategy}, by a dry run of 16 devices:\n" in answer.out
    assert re.search(r"^blocks\.0–1\.mlp\.fc1\.weight +128×32 +8×32 *$", answer.out, re.MULTILINE)
    assert re.search(r"^reduce-scatter +16 +5 ", answer.out, re.MULTILINE)  # blocks in two formats; the rest
    assert all(len(line) <= 80 for line in answer.out.splitlines() if not line.startswith("Assumed"))

    plan = json.loads(cli(*typed.split(), "--json").out)
    planned = {one["name"]: one["memory"] for one in plan["strategies"]}
    assert set(plan["dry_runs"]) == {"ddp", "fsdp", "hsdp"}
    for strategy, run in plan["dry_runs"].items():
        assert len(run["shares"]) == 16
        assert run["parameters"] == plan["parameters"]
        first = run["shares"][0]
        assert first["total"] == first["weights"] + first["gradients"] + first["optimizer"]
        # The table is of the moment when most is held: the optimizer's state is there at all times.
        assert first["optimizer"] == pytest.approx(planned[strategy]["optimizer"], rel=0.03)
        assert first["weights"] == pytest.approx(planned[strategy]["weights"], rel=0.03)
    weights = sum(share["weights"] for share in plan["dry_runs"]["fsdp"]["shares"])
    assert weights == 4 * plan["parameters"]
    assert json.loads(cli(*f"plan {SMALL} gpu=h100 gpus=16 --json".split()).out)["dry_runs"] == {}


def test_what_needs_whole_weights_is_not_planned_in_parts(cli: Cli, text: None) -> None:
    answer = cli(*f"plan {SMALL} gpu=h100 gpus=16 compile=true dry_run=true".split())
    assert answer.status == 0, answer.err
    assert re.search(r"16 × H100 SXM +one +ddp\n", answer.out)
    assert "compile=true needs unsharded weights, so sharded strategies are not planned." in answer.out


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("mlp iris dry_run=true", "needs several devices, e.g. gpus=8"),
        ("mlp iris gpu=h100 gpus=8 parallel=fsdp compile=true", "Invalid parallel=fsdp: not supported with"),
        ("mlp", "Missing model or data"),
        ("mlp iris gpu=h10", "There is no GPU 'h10'. Similar: h100"),
        ("mlp iris gpus=8", "Invalid gpus=8: needs a kind of GPU, e.g. gpu=h100."),
        ("mlp iris price=2", "Invalid price=2: needs a kind of GPU"),
        ("mlp iris gpu=h100 price=-1", "price=-1"),
        ("mlp iris gpu=h100 gpus=12", "Invalid gpus=12: must be a multiple of gpus_per_node=8"),
        (
            "mlp iris gpu=h100 gpus=8 tensor_parallel=3",
            "Invalid tensor_parallel=3: must be a divisor of the 8 GPUs of a machine",
        ),
        ("mlp iris gpu=h100 gpus=8 tensor_parallel=2", "Invalid tensor_parallel: mlp is not a Transformer"),
        ("mlp iris gpu=h100 gpus=800", "gpus=800 shares each batch among 800, and it has"),
        ("mlp iris batch_size=1 processes=2", "Give batch_size=2 or more, or fewer processes."),
        ("mlp iris gpu=h100 processes=2", "Invalid processes=2: only for this machine"),
        ("mlp iris gpu=h100 parallel=hsdp gpus=8", "Invalid parallel=hsdp: needs several machines"),
        ("mlp iris gpu=h100 precision=float32", "Set peak=TFLOP/s"),
        ("mlp iris gpu=h100 recompute=half", "recompute=half"),
        ("mlp iris gpu=h100 gpuss=8", "Similar: gpus"),
        ("resnet18 iris", "resnet18"),
    ],
)
def test_invalid_settings_give_one_paragraph(cli: Cli, typed: str, said: str) -> None:
    answer = cli("plan", *typed.split())
    assert (answer.status, answer.out) == (2, "")
    assert said in answer.said
    assert "Traceback" not in answer.err
