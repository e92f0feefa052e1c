"""How large a model would be is told before it is made, and what would not fit is rejected in a moment."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cutaway.apps.cli import main
from cutaway.core import files as files_module
from cutaway.core import memory_budget
from cutaway.core.config import build
from cutaway.core.errors import ModelError, SettingError
from cutaway.core.memory_budget import ModelSize, build_on_meta, format_bytes, free_memory, model_size, reject_too_large
from cutaway.models.registry import create_model, preset
from cutaway.training.config import TrainSettings
from cutaway.training.device import find_device, list_devices
from cutaway.training.optim import training_bytes

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("resnet18", {"width": 8}),
        ("gpt2", {"layers": 2, "dim": 32, "heads": 2, "vocab_size": 100}),  # tied: a matrix that counts once
        ("lstm", {"hidden_dim": 7}),
        ("albert-base-v2", {"dim": 24, "heads": 2, "vocab_size": 50, "embedding_dim": 8}),  # one layer, used by all
        ("airbench94", {}),  # some of whose weights do not learn
    ],
)
def test_the_size_is_that_of_the_model_that_is_built(name: str, given: dict[str, Any]) -> None:
    found = preset(name)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    size = model_size(found, found.configure(settings=given))
    assert torch.equal(torch.get_rng_state(), before)
    model = create_model(name, **given)
    assert size.parameters == sum(p.numel() for p in model.parameters())
    assert size.bytes == sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
    assert size.trained == sum(p.nbytes for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("mlp", {"hidden_dims": 10**11}, "hidden_dims=100000000000 needs"),  # 19 TiB: more than there is anywhere
        ("resnet18", {"width": 10**8}, "width=100000000 needs"),
        ("gpt2", {"layers": 2000, "dim": 12 * 10**5}, "more than"),  # counting ended long before the last layer
        ("gpt2", {"layers": 10**6}, "Invalid layers=1000000 for gpt2: must be at most 2,000 layers"),
        ("graphconv", {"layers": 10**12}, "at most 2,000 layers"),  # a list of them would be made first
        ("mlp", {"hidden_dims": (1,) * 3000}, "at most 2,000 layers"),
        ("densenet121", {"layers": (2000, 2000)}, "more than 1,000 weight tensors"),
        ("mlp", {"hidden_dims": 10**19}, "must be an integer below 2^63"),
        ("textcnn", {"vocab_size": 10**30}, "must be an integer below 2^63"),
        ("lstm", {"hidden_dim": 10**15}, "a tensor would be too large"),
    ],
)
def test_what_can_never_be_is_rejected_before_it_is_made(
    name: str, given: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "MOST_TENSORS", 1000)
    monkeypatch.setattr(memory_budget, "SURELY", 30)
    with pytest.raises((ModelError, SettingError)) as error:
        create_model(name, **given)
    assert said in str(error.value)
    assert len(str(error.value)) < 500


def test_a_model_larger_than_the_memory_can_still_be_looked_at() -> None:
    model = build_on_meta(preset("mlp"), preset("mlp").configure(settings={"hidden_dims": 10**11}))
    assert all(p.device.type == "meta" for p in model.parameters())
    with torch.device("meta"):
        create_model("mlp", hidden_dims=10**11)


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class has no types
    """Keeps the names of all that are carried out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(op._schema.name)
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["gpt2", "resnet18", "lstm", "bert-base-uncased", "t5-small", "gcn"])
def test_nothing_is_filled_where_there_are_no_numbers(name: str) -> None:
    """PyTorch loads its reference implementations for it: a second of every command about a model of text."""
    with _Operations() as seen:
        build_on_meta(preset(name), preset(name).config)
    assert seen.names
    assert not seen.names & {f"aten::{fills}_" for fills in ("normal", "uniform", "fill", "zero")}


def test_other_threads_may_build_while_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hooks that count are the whole process's: a model that another thread makes meanwhile is none of theirs."""
    found, thread = preset("mlp"), iter([1])
    monkeypatch.setattr(memory_budget.threading, "get_ident", lambda: next(thread, 2))
    monkeypatch.setattr(memory_budget, "MOST_TENSORS", 0)
    assert model_size(found, found.config).parameters == 40 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10


def test_training_needs_more_than_the_weights() -> None:
    size = ModelSize(parameters=10, bytes=48, trained=40)
    assert training_bytes(size, build(TrainSettings, {"optimizer": "sgd"})) == 48 + 40
    assert training_bytes(size, build(TrainSettings, {"optimizer": "momentum"})) == 48 + 40 + 40
    assert training_bytes(size, build(TrainSettings, {})) == 48 + 40 + 80
    assert training_bytes(size, build(TrainSettings, {"ema": 0.9, "precision": "float64"})) == 2 * (48 + 120 + 48)


def test_what_is_free_is_held_against_the_fraction() -> None:
    found, config = preset("mlp"), preset("mlp").config
    taken = model_size(found, config).bytes
    assert reject_too_large(found, config, free=2 * taken).bytes == taken
    with pytest.raises(ModelError, match=r"at most 90% are used\. Use a smaller model, or else\.$"):
        reject_too_large(found, config, free=taken, way_out=", or else")
    reject_too_large(found, config, free=taken, fraction=0)
    with pytest.raises(ModelError):
        reject_too_large(found, config, taken=lambda size: 3 * size.bytes, free=2 * taken)


@pytest.mark.parametrize("command", ["train", "check"])
def test_the_command_line_rejects_it_by_name(command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "run")] if command == "train" else []
    assert main([command, "mlp", "xor", "model.hidden_dims=99999999999", *out]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "hidden_dims=99999999999 needs" in said
    assert "optimizer=adamw (weights, gradients, optimizer state)" in said
    assert "memory_fraction=0 trains anyway" in said
    assert not list(tmp_path.iterdir())


# --- what is free -----------------------------------------------------------------------------------------------


def system(folder: Path, files: dict[str, str]) -> tuple[Path, Path]:
    """A machine's /sys/fs/cgroup and /proc, as far as they are read."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "cgroup", folder / "proc"


MACHINE = {"proc/meminfo": f"MemTotal: {64 * 2**20} kB\nMemAvailable:   {32 * 2**20} kB\n"}


def test_without_groups_it_is_what_the_machine_has_available(tmp_path: Path) -> None:
    assert free_memory(*system(tmp_path, MACHINE)) == 32 * GIB


def test_a_control_group_above_this_process_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/job/step\n",
        "cgroup/job/memory.max": str(8 * GIB),
        "cgroup/job/memory.current": str(5 * GIB),
        "cgroup/job/memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",  # a cache, given back when it is needed
        "cgroup/job/step/memory.max": "max\n",
        "cgroup/job/step/memory.current": "1\n",
    }
    assert free_memory(*system(tmp_path, MACHINE | files)) == 5 * GIB


def test_the_first_version_of_control_groups_counts_in_a_container_too(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "9:cpu:/\n4:memory:/docker/0a2f\n",  # a path of the host, which is not seen here
        "cgroup/memory/memory.limit_in_bytes": str(4 * GIB),
        "cgroup/memory/memory.usage_in_bytes": str(3 * GIB),
    }
    assert free_memory(*system(tmp_path, MACHINE | files)) == GIB


def test_free_memory_of_this_machine_is_reported() -> None:
    free = free_memory()
    assert free is None or free > 0


def test_sizes_are_written_as_people_read_them() -> None:
    assert [format_bytes(n) for n in (0, 1000, 2**20, 3.5 * GIB, 10**16)] == [
        "0 B", "1,000 B", "1 MiB", "3.5 GiB", "9,095 TiB",
    ]  # fmt: skip


# --- devices ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:99", "CPU!", "x" * 500])
def test_a_device_that_is_not_here_names_those_that_are(name: str) -> None:
    with pytest.raises(SettingError) as error:
        find_device(name)
    said = str(error.value)
    assert "auto, cpu, cuda, cuda:N" in said
    assert f"this machine has {', '.join(list_devices())}" in said
    assert len(said) < 300


def test_the_size_of_a_model_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand layers it takes seconds, and a command asks for it when it builds, learns and estimates."""
    found = preset("mlp")
    config = found.configure(settings={"in_features": 3, "hidden_dims": (8, 9), "num_classes": 2})
    counted = model_size(found, config)
    monkeypatch.setattr(memory_budget, "build_on_meta", lambda *_: pytest.fail("it was made again"))
    assert model_size(found, config) == counted


def test_the_limits_of_this_process_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"proc/self/status": f"VmPeak: 1 kB\nVmSize:\t {3 * 2**20} kB\nVmData:\t {2 * 2**20} kB\n"}
    limits = {resource.RLIMIT_AS: 12 * GIB, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (limits[limit], resource.RLIM_INFINITY))
    assert free_memory(*system(tmp_path, MACHINE | files)) == 9 * GIB
    assert files_module.total_memory() <= 12 * GIB
    limits[resource.RLIMIT_DATA] = 10 * GIB
    assert free_memory(*system(tmp_path, MACHINE | files)) == 8 * GIB
    limits[resource.RLIMIT_AS] = GIB  # which is taken already
    assert free_memory(*system(tmp_path, MACHINE | files)) == 0
    assert files_module.total_memory() == GIB
    with pytest.raises(ModelError, match="0 B are free"):
        reject_too_large(preset("mlp"), preset("mlp").config, free=free_memory(*system(tmp_path, MACHINE | files)))
