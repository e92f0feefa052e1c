"""In one process or in several: the same batches, gradients and weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.plan import allocated_together
from PIL import Image
from sklearn.datasets import load_digits

import cutaway
from cutaway.checkpoints.saving import write_tensors
from cutaway.distributed.group import process_group, rank_and_size
from cutaway.distributed.tensor_parallel import gather_tensors, local_part
from cutaway.training.callbacks import Progress
from cutaway.training.checkpoint import latest_checkpoint, load_weights
from cutaway.training.setup import setup_training
from cutaway.training.trainer import Trainer

from .ranks import tensors, together

pytestmark = pytest.mark.slow  # processes, or runs that are trained

TEXT = "".join(
    f"In line {k} the {('fox', 'dog', 'hen')[k % 3]} saw {k * 7 % 13} birds and went home.\n" for k in range(80)
)
PAIRS = "".join(f"{k} {k * 3 % 7} {k % 5}\t{k % 5} {k * 3 % 7}\n" for k in range(60))
SMALL = {"model.dim": 16, "model.layers": 2, "model.heads": 2, "model.dropout": 0.0}
FEW = {"crop": 0, "mixup": 0.0, "flip": False}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "lenet5-modern": (
        "lenet5-modern", "digits",
        {**FEW, "max_samples": 100, "batch_size": 30, "optimizer": "momentum", "eps": "auto"},
    ),
    "resnet20": ("resnet20", "digits", {**FEW, "max_samples": 60, "batch_size": 13}),
    "mlp with batch norm": (
        "mlp", "digits",
        {"model.norm": "batch", "model.dropout": 0.0, "max_samples": 90, "batch_size": 31, "ema": 0.9},
    ),
    "gpt2": (
        "gpt2", "text.txt", {**SMALL, "length": 24, "batch_size": 6, "accumulate": 2, "grad_clip": 0.5, "ema": 0.9},
    ),
    "transformer-tiny": (
        "transformer-tiny", "pairs.tsv",
        {
            "pairs": True, "model.layers": 1, "model.dim": 64, "model.dropout": 0.0, "batch_size": 10,
            "optimizer": "muon",
        },
    ),
    "bert": ("bert-base-uncased", "text.txt", {**SMALL, "length": 24, "batch_size": 5, "average_epochs": 2}),
    "lstm": (
        "lstm", "text.txt", {"model.embedding_dim": 12, "model.hidden_dim": 12, "model.dropout": 0.0, "batch_size": 5},
    ),
    "gcn": ("gcn", "karate", {"model.dropout": 0.0, "optimizer": "adagrad"}),
}  # fmt: skip
SHARDS: dict[str, tuple[str, str, dict[str, Any]]] = {  # as `cutaway prepare` makes them
    "text in shards": ("gpt2", "text.shards", {**SMALL, "length": 24, "batch_size": 5}),
    "images in tars": ("lenet5-modern", "images.shards", {**FEW, "batch_size": 13}),
}
SHORT = {"max_steps": 4}
PAIRED = {**SMALL, **SHORT, "pairs": True, "model.heads": 4, "batch_size": 10}
FAMILY: dict[str, tuple[str, str, dict[str, Any]]] = {  # whose heads and hidden units processes can share, beside those
    "t5": ("t5-small", "pairs.tsv", {**PAIRED, "model.head_dim": 8}),
    "bart": ("bart-base", "pairs.tsv", {**PAIRED, "model.attention_dropout": 0.0, "model.activation_dropout": 0.0}),
    "vit": (
        "vit-tiny/16", "digits",
        {**SMALL, **FEW, "model.patch_size": 4, "model.ffn_dim": 24, "max_samples": 60, "batch_size": 12, **SHORT},
    ),
    "parallel-transformer": ("parallel-transformer", "text.txt", {**SMALL, **SHORT, "length": 24, "batch_size": 6}),
}  # fmt: skip
How = dict[str, Any]
# By how many processes, in what way, which cases. Those of one number of processes are learned by one group of them.
WAYS: list[tuple[int, How, list[str]]] = [
    (2, {"parallel": "ddp"}, [*CASES, *SHARDS]),
    (2, {"parallel": "fsdp"}, [*CASES]),
    (2, {"tensor_parallel": 2}, ["gpt2", "transformer-tiny", "bert", *FAMILY]),
    (3, {"parallel": "ddp", "recompute": "full"}, ["resnet20", "lstm"]),
    (3, {"parallel": "fsdp", "recompute": "full"}, ["mlp with batch norm", "gpt2"]),
    (4, {"parallel": "ddp"}, ["gpt2", "lstm"]),
    (4, {"parallel": "hsdp", "recompute": "selective"}, ["gpt2", "transformer-tiny"]),
]
SLOW: tuple[int, How, list[str]] = (4, {"tensor_parallel": 2, "parallel": "ddp"}, ["gpt2", "transformer-tiny", "bert"])
FOUR = {"tensor_parallel": 2, "parallel": "fsdp", "recompute": "selective"}
HALVES: dict[str, dict[str, Any]] = {
    "float32": {"parallel": "ddp"},
    "whole": {"parallel": "ddp"},
    "rows": {"parallel": "fsdp", "recompute": "full"},
    "heads": {"tensor_parallel": 2},
}
WITHOUT_BLOCKS = ("lstm", "gcn", "lenet5-modern")
ALWAYS = {
    "max_steps": 20, "precision": "float64", "seed": 3, "tensorboard": False, "optimizer": "adamw", "lr": 3e-3,
    "eps": 1e-3, "threads": 1, "device": "cpu", "save_minutes": 60,
}  # fmt: skip


def called(how: How) -> str:
    """The name of the folder in which stands what is learned in that way."""
    return ",".join(f"{key}={value}" for key, value in how.items())


def trainer_of(name: str, data: Path, out: Path, how: How) -> Trainer:
    """What trains a case in the processes that there are."""
    preset, source, own = {**CASES, **SHARDS, **FAMILY}[name]
    given = {**ALWAYS, **own, "processes": rank_and_size()[1], **how}
    if preset in WITHOUT_BLOCKS:
        given.pop("recompute", None)
    ready = setup_training(preset, str(data / source) if "." in source else source, given)
    trainer = Trainer(
        ready.model, ready.data, ready.task, ready.settings, ready.place, out / name, Progress(shown=False),
        deferred=ready.deferred,
    )  # fmt: skip
    trainer.begin()
    assert bool(ready.deferred) == (
        (rank_and_size()[1] > 1 and how.get("parallel") != "ddp") or "tensor_parallel" in how
    ), name
    return trainer


def end(trainer: Trainer, path: Path) -> None:
    """Train to the end; write the weights at the beginning and the end, the gradient of the last update, and what was
    told of the loss."""
    model = trainer.model
    found = {f"begun.{k}": v.clone() for k, v in gather_tensors(model.state_dict(), keep=True).items()}
    state = trainer.fit()
    found |= {f"weight.{k}": v for k, v in model.state_dict().items()}
    found |= {f"gradient.{k}": p.grad for k, p in model.named_parameters() if p.grad is not None}
    if trainer.average:
        found |= {f"average.{k}": v for k, v in trainer.average.weights.items()}
    found = gather_tensors(found, keep=True)
    found["losses"] = torch.tensor([row["train_loss"] for row in state.history[-8:]], dtype=torch.float64)
    if trainer.place.writes:
        if trainer.mean:
            found |= {f"mean.{k}": v for k, v in load_weights(trainer.checkpoints / "average.safetensors").items()}
        write_tensors(path, found, {})


def learn(data: Path, out: Path, ways: list[tuple[How, list[str]]], *more: Callable[[Path, Path], None]) -> None:
    """Train each case in each way by 20 updates, and do what there is more to do, in one group of processes."""
    with process_group():
        for how, names in ways:
            for name in names:
                end(trainer_of(name, data, out / called(how), how), out / called(how) / f"{name}.safetensors")
        for do in more:
            do(data, out)


def go_on(data: Path, out: Path, how: How, until: int) -> None:
    """Train GPT-2 from its checkpoint, if there is one, to that update, and write a checkpoint; with 0 to the end."""
    trainer = trainer_of("gpt2", data, out, how)
    if latest_checkpoint(trainer.checkpoints):
        trainer.resume()
    if not until:
        end(trainer, out / "gpt2.safetensors")
        return
    for _ in zip(range(until - trainer.state.update), trainer.epoch()):
        pass
    assert trainer.state.update == until
    trainer.checkpoint_now()
    trainer.strategy.wait_for_checkpoint()


def begin_in_rows(data: Path, out: Path) -> None:
    """Two updates of two processes."""
    go_on(data, out / "going on", {"parallel": "fsdp"}, 2)


def go_on_in_rows_of_heads(data: Path, out: Path) -> None:
    """Two more of four."""
    go_on(data, out / "going on", FOUR, 4)


def end_in_heads(data: Path, out: Path) -> None:
    """And the others of two."""
    go_on(data, out / "going on", {"tensor_parallel": 2}, 0)


def learn_in_half_precision(data: Path, out: Path) -> None:
    """Train GPT-2 by an update: in float32, and with products in bfloat16 by weights whole, in rows and by heads."""
    once, half = {"max_steps": 1, "ema": 0.0, "precision": "float32"}, {"precision": "bfloat16"}
    for name, how in HALVES.items():
        given = {**once, **(half if name != "float32" else {}), **how}
        end(trainer_of("gpt2", data, out / "halves", given), out / "halves" / f"{name}.safetensors")


def drop(data: Path, out: Path) -> None:
    """Train bart, which has dropout everywhere, by an update of two processes that share heads and hidden units; write
    where numbers were dropped that this process alone has, and that both have, and weights that both have."""
    dropping = {f"model.{key}": 0.5 for key in ("dropout", "attention_dropout", "activation_dropout")}
    trainer = trainer_of("bart", data, out, {**dropping, "tensor_parallel": 2, "max_steps": 1, "recompute": "full"})
    found: dict[str, torch.Tensor] = {}

    def look(name: str) -> Callable[..., None]:
        def hook(module: object, given: object, output: torch.Tensor) -> None:
            found.setdefault(name, output == 0)

        return hook

    block: Any = trainer.model.get_submodule("decoder.0")
    block.mlp.dropout.register_forward_hook(look("own"))
    block.dropout.register_forward_hook(look("common"))
    trainer.fit()
    found["weight"] = local_part(trainer.model.get_parameter("decoder.0.norm1.weight")).detach()
    write_tensors(out / f"dropped-{rank_and_size()[0]}.safetensors", {k: v.contiguous() for k, v in found.items()}, {})


def weigh(data: Path, out: Path) -> None:
    """What the allocator hands out in a step by weights whole and in rows, of each process."""
    found = {
        name: torch.tensor(allocated_together(setup_training(*case), out / name))
        for name, case in weighed(data).items()
    }
    write_tensors(out / f"weighed-{rank_and_size()[0]}.safetensors", found, {})


def weighed(data: Path) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Trainings whose weights outweigh a batch, or not; and with gradients that wait."""
    wide = {
        "model.dim": 96, "model.layers": 2, "model.heads": 2, "length": 24, "batch_size": 2, "processes": 2, "lr": 1e-3,
        "threads": 1, "tensorboard": False,
    }  # fmt: skip
    ways = {
        "waiting": {"parallel": "ddp", "accumulate": 2},
        "large batch": {"parallel": "ddp", "batch_size": 40},
        "rows": {"parallel": "fsdp", "batch_size": 40},
    }
    return {name: ("gpt2", str(data / "text.txt"), {**wide, **way}) for name, way in ways.items()}


def prepare_shards(data: Path) -> None:
    """Text and images as shards of less than all of them."""
    images, labels = load_digits(return_X_y=True)
    for number, (image, label) in enumerate(zip(images[:70], labels)):
        file = data / "images" / str(label) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image.reshape(8, 8) * 15).astype("uint8")).save(file)
    cutaway.prepare(data / "text.txt", data / "text.shards", workers=0)
    cutaway.prepare(data / "images", data / "images.shards", workers=0)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The data, and what one process makes of it."""
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("alone")
    (data / "text.txt").write_text(TEXT)
    (data / "pairs.tsv").write_text(PAIRS)
    prepare_shards(data)
    assert together(learn, data, out, [({}, [*CASES, *SHARDS, *FAMILY])], count=1) == [0]
    return data, out / called({})


@pytest.fixture(scope="module")
def two(alone: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes make of it."""
    return learned(alone[0], tmp_path_factory.mktemp("two"), 2, begin_in_rows, learn_in_half_precision, drop, weigh)


@pytest.fixture(scope="module")
def three(alone: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What three make of it."""
    return learned(alone[0], tmp_path_factory.mktemp("three"), 3)


@pytest.fixture(scope="module")
def four(alone: tuple[Path, Path], two: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four make of it, and of what two have begun."""
    out = tmp_path_factory.mktemp("four")
    shutil.copytree(two / "going on", out / "going on")
    return learned(alone[0], out, 4, go_on_in_rows_of_heads)


def learned(data: Path, out: Path, count: int, *more: Callable[[Path, Path], None]) -> Path:
    """The folder of what so many processes learn."""
    ways = [(how, names) for number, how, names in WAYS if number == count]
    assert together(learn, data, out, ways, *more, count=count) == [0] * count
    return out


@pytest.mark.parametrize(("count", "how", "names"), WAYS, ids=str)
def test_gradients_and_weights_after_20_updates_are_those_of_one_process(
    alone: tuple[Path, Path], request: pytest.FixtureRequest, count: int, how: How, names: list[str]
) -> None:
    found = request.getfixturevalue({2: "two", 3: "three", 4: "four"}[count]) / called(how)
    for name in names:
        agree(found, alone[1], name)


@pytest.mark.slow
def test_pairs_that_share_heads_and_hidden_units_agree_too(alone: tuple[Path, Path], tmp_path: Path) -> None:
    count, how, names = SLOW
    assert together(learn, alone[0], tmp_path, [(how, names)], count=count) == [0] * count
    for name in names:
        agree(tmp_path / called(how), alone[1], name)


def agree(ours: Path, expected: Path, name: str, resumed: bool = False) -> None:
    """Raise where what was learned of a case differs, or begins otherwise, bit for bit, unless it was resumed."""
    found, one = tensors(ours / f"{name}.safetensors"), tensors(expected / f"{name}.safetensors")
    assert set(found) == set(one)
    assert any(key.startswith("gradient.") for key in one)
    for key, value in one.items():
        if key.startswith("begun."):
            assert resumed or found[key].equal(value), f"{name}, {key}"
            continue
        torch.testing.assert_close(found[key], value, rtol=1e-8, atol=1e-10, msg=lambda m, k=key: f"{name}, {k}: {m}")


def test_checkpoints_go_from_rows_to_rows_of_heads_and_from_there_to_heads(
    alone: tuple[Path, Path], four: Path, tmp_path: Path
) -> None:
    shutil.copytree(four / "going on", tmp_path / "going on")
    assert together(learn, alone[0], tmp_path, [], end_in_heads, count=2) == [0] * 2
    agree(tmp_path / "going on", alone[1], "gpt2", resumed=True)


def test_processes_hold_what_is_planned(alone: tuple[Path, Path], two: Path) -> None:
    first, second = (tensors(two / f"weighed-{rank}.safetensors") for rank in range(2))
    for name, (model, source, given) in weighed(alone[0]).items():
        planned = cutaway.plan(model, source, **given)[given["parallel"]].memory.total
        for truth in (first[name], second[name]):
            assert planned == pytest.approx(int(truth), rel=0.1), name


def test_what_only_one_process_has_is_dropped_by_itself_and_the_rest_alike(two: Path) -> None:
    first, second = (tensors(two / f"dropped-{rank}.safetensors") for rank in range(2))
    assert first["common"].equal(second["common"])
    assert first["weight"].equal(second["weight"])
    assert 0.4 < first["own"].double().mean() < 0.6
    both = (first["own"] & second["own"]).double().mean()
    assert 0.15 < both < 0.35  # as of draws that have nothing to do with each other


def test_products_in_bfloat16_are_as_far_from_float32_in_parts_as_whole(two: Path) -> None:
    found = {}
    for name in HALVES:
        of_each = sorted(tensors(two / "halves" / f"{name}.safetensors").items())
        found[name] = torch.cat([x.flatten() for key, x in of_each if key.startswith("gradient.")])
    exact = found.pop("float32")
    distance = {name: float((x - exact).norm() / exact.norm()) for name, x in found.items()}
    assert all(0 < far < 2**-6 for far in distance.values())  # a few roundings to 8 digits
    assert distance["rows"] < 1.5 * distance["whole"]
