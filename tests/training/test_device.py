"""The place of training: memory formats change speed, never what is computed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import cpp_builder
from torch._inductor.exc import InvalidCxxCompiler

import cutaway
from cutaway.apps.cli import main
from cutaway.core.errors import SettingError
from cutaway.data.dataset_base import Batch, TensorSplit
from cutaway.data.images.transforms import FileSplit
from cutaway.models.registry import create_model
from cutaway.training import device as place_module
from cutaway.training.device import LARGE_KERNEL, DeviceContext, select_device
from cutaway.verify.compare import difference


def convolutions(model: nn.Module) -> list[nn.Conv2d]:
    return [m for m in model.modules() if isinstance(m, nn.Conv2d)]


def test_memory_formats_change_no_result() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 3, 64, 64, dtype=torch.float64)
    plain = create_model("resnet18", num_classes=4)
    placed = create_model("resnet18", num_classes=4)
    placed.load_state_dict(plain.state_dict())
    place = select_device("cpu", "float64", None, placed)
    placed = place.model(place.model(placed))  # twice is as once
    (inputs,), _ = place.batch(Batch((x,), torch.zeros(2)))
    a, b = plain.double()(x), placed(inputs)
    assert torch.allclose(a, b, rtol=1e-10)
    a.sum().backward()
    b.sum().backward()
    for (name, p), q in zip(plain.named_parameters(), placed.parameters()):
        assert (p.grad - q.grad).abs().max() <= 1e-9 * p.grad.abs().max(), name  # type: ignore[operator,union-attr]
    assert all(len(m._forward_pre_hooks) <= 1 for m in placed.modules())


def test_small_kernels_are_channels_last_and_large_ones_are_not() -> None:
    model = create_model("resnet18")
    select_device("cpu", "float32", None, model).model(model)
    for module in convolutions(model):
        if module.kernel_size != (1, 1):
            last = module.weight.is_contiguous(memory_format=torch.channels_last)
            assert last == (module.weight.numel() <= LARGE_KERNEL)


def test_narrow_shortcuts_with_a_stride_learn_rightly() -> None:
    # In channels-last oneDNN would write beyond its memory, on processors without AVX-512 at these sizes.
    torch.manual_seed(0)
    model = nn.Conv2d(4, 8, 1, stride=2, bias=False)
    place = select_device("cpu", "float32", True, model)
    exact, model = nn.Conv2d(4, 8, 1, stride=2, bias=False).double(), place.model(model)
    exact.load_state_dict(model.state_dict())
    for size in (32, 16):
        x = torch.randn(32, 4, size, size)
        (images,), _ = place.batch(Batch((x,), torch.zeros(32)))
        for each, inputs in ((model, images), (exact, x.double())):
            each.zero_grad()
            each(inputs).square().sum().backward()
        assert difference(model.weight.grad, exact.weight.grad) < 1e-4  # sums of 8 192 products


def test_what_only_answers_is_channels_last_throughout() -> None:
    model = create_model("resnet18", num_classes=4).eval()
    place, x = select_device("cpu", "float32", None, model), torch.randn(2, 3, 32, 32)
    expected = model(x)
    model = place.model(model, learns=False)
    assert all(m.weight.is_contiguous(memory_format=torch.channels_last) for m in convolutions(model))
    assert not any(m._forward_pre_hooks for m in model.modules())
    (inputs,), _ = place.batch(Batch((x,), torch.zeros(2)))
    torch.testing.assert_close(model(inputs), expected, rtol=1e-4, atol=1e-5)


def test_a_network_without_convolutions_has_plain_tensors() -> None:
    assert not select_device("cpu", "auto", None, nn.Linear(2, 2)).channels_last
    assert select_device("cpu", "auto", None, nn.Conv2d(1, 1, 1)).channels_last
    assert not select_device("cpu", "auto", False, nn.Conv2d(1, 1, 1)).channels_last


def test_a_cpu_is_not_asked_for_bfloat16_it_emulates() -> None:
    assert select_device("cpu", "auto", None, nn.Linear(2, 2)).autocast_dtype is None
    assert select_device("cpu", "bfloat16", None, nn.Linear(2, 2)).autocast_dtype is torch.bfloat16


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "tpu", "1" * 31, "cuda:" + "9" * 25])
def test_a_device_that_is_not_here_is_rejected(device: str) -> None:
    with pytest.raises(SettingError, match=f"device={device} is not available"):
        select_device(device, "auto", None, nn.Linear(2, 2))


@pytest.mark.parametrize("device", [math.inf, 1.5, None, ["cpu"]])
def test_a_device_in_a_damaged_document_is_replaced_by_the_fastest(device: Any) -> None:
    assert place_module.available_device(device) == "auto"


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(place_module, "find_device", torch.device)  # as if it were here
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert select_device("cuda", "float32", None, nn.Linear(2, 2)).device == torch.device("cuda:1")
    with pytest.raises(SettingError, match=r"device=cuda:0 is one GPU, and each of the 2 processes on this machine"):
        select_device("cuda:0", "float32", None, nn.Linear(2, 2))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SettingError, match="2 processes on this machine would each take a GPU, and it has 1"):
        select_device("cuda", "float32", None, nn.Linear(2, 2))


@pytest.mark.parametrize(("free", "held"), [(4 * 960, True), (4 * 960 - 1, False)])
def test_a_part_in_memory_is_held_where_it_takes_a_quarter_at_most(
    monkeypatch: pytest.MonkeyPatch, free: int, held: bool
) -> None:
    # The meta device has no memory, and takes tensors as an accelerator does.
    there = DeviceContext(torch.device("meta"), torch.float32, None, channels_last=False)
    monkeypatch.setattr(place_module, "free_memory", lambda device: free)
    split = TensorSplit(torch.zeros(10, 24), torch.zeros(10, dtype=torch.int64), list("abcdefghij"))
    assert split.inputs.nbytes == 960
    found = there.keep_on_device(split)
    assert (found is not split) == held
    batch = next(found.batches([torch.tensor([3, 1])]))
    assert batch.inputs[0].device.type == batch.target.device.type == ("meta" if held else "cpu")
    assert batch.inputs[0].shape == (2, 24)
    assert (len(found), found.name(3)) == (10, "d")
    assert split.inputs.device.type == "cpu"  # what the report shows stays where it is


def test_what_is_not_in_memory_or_on_a_cpu_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_module, "free_memory", lambda device: 1 << 40)
    there = DeviceContext(torch.device("meta"), torch.float32, None, channels_last=False)
    files = FileSplit([], None, None)  # type: ignore[arg-type]
    assert there.keep_on_device(files) is files
    split = TensorSplit(torch.zeros(2, 2), None)
    assert select_device("cpu", "float32", None, nn.Linear(2, 2)).keep_on_device(split) is split
    assert there.keep_on_device(split).target is None


def test_without_a_compiler_a_model_is_not_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none)
    assert main(["check", "mlp", "iris", "compile=true", "device=cpu"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("cutaway: compile=true needs a C++ compiler, and none works here")
    assert "Traceback" not in said


def test_what_no_device_holds_whole_answers_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(100, 10)
    sharing = DeviceContext(torch.device("cuda"), torch.float32, None, False, processes=4, tensor=2)
    for free, device in ((4 * 1010 * 2, "cuda"), (4 * 1010, "cpu")):
        monkeypatch.setattr(place_module, "free_memory", lambda device, free=free: free)
        found = place_module.single_process_context(sharing, model, 0.9)
        assert (found.device.type, found.processes, found.tensor) == (device, 1, 1)
    assert place_module.single_process_context(sharing, model, 0).device.type == "cuda"


def test_a_run_is_asked_as_it_was_trained(tmp_path: Path) -> None:
    """What matters after training stands in run.json and holds for whoever opens the run."""
    given: dict[str, Any] = {"precision": "float64", "channels_last": False, "eval_batch_size": 7, "tta": True}
    cutaway.train("simplecnn", "digits", out=tmp_path / "run", max_steps=2, max_samples=60, tensorboard=False, **given)
    run = cutaway.load(tmp_path / "run")
    seen: list[Tensor] = []
    run.model.get_submodule("conv1").register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    found = run.evaluate()
    written = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert found["loss"].value == pytest.approx(written["metrics"]["loss"]["value"], abs=1e-12)
    assert {x.dtype for x in seen} == {torch.float64}
    assert max(len(x) for x in seen) == 7
    assert torch.equal(seen[0].flip(3), seen[1])  # the mirror images of tta
    assert not run.place.channels_last
    assert all(m.weight.is_contiguous() for m in convolutions(run.model))
    rows = run.predict(torch.randint(256, (9, 8, 8), dtype=torch.uint8).numpy())
    assert len(rows) == 9
    assert len(seen[-1]) == 2  # 9 = 7 + 2


def test_a_run_is_asked_on_the_device_that_was_named_where_it_is_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = cutaway.train("mlp", "moons", out=tmp_path / "run", count=40, max_steps=1, tensorboard=False, device="cpu")
    monkeypatch.setattr(place_module, "_fastest", lambda: "mps")  # as on a machine that has one
    for device, found in (("cpu", "cpu"), ("cuda:77", "mps"), ("auto", "mps")):
        opened = cutaway.load(run.folder)
        opened.about["settings"]["device"] = device
        assert opened.place.device.type == found
