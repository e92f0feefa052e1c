"""Running text is learned with carried state: what that means, that it helps, and that a stop in the middle of it is
bit for bit as if there had been none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cutaway.checkpoints.saving import read_tensors
from cutaway.core.errors import SettingError
from cutaway.core.files import read_json
from cutaway.data.build import DataSource
from cutaway.data.dataset_base import DataSet
from cutaway.data.settings import DataSettings
from cutaway.data.text.corpus import running_dataset
from cutaway.models.registry import create_model
from cutaway.runs.train import train_model
from cutaway.tasks.task import task_for
from cutaway.training.callbacks import Interrupted, Progress
from cutaway.training.device import select_device
from cutaway.training.evaluation import evaluate_split, is_stateful, sequential_batches, trim_state

LINES = "".join(f"{c}{'-' * 8}{c}\n" for c in "abba" * 16)
GIVEN = {"length": 4, "batch_size": 4, "epochs": 3, "tensorboard": False, "threads": 1, "save_minutes": 0, "seed": 3}


def text(folder: Path) -> str:
    path = folder / "book.txt"
    path.write_text(LINES)
    return str(path)


@pytest.fixture
def data() -> DataSet:
    cut = int(len(LINES) * 0.8)
    return running_dataset(
        {"train": LINES[:cut], "val": LINES[cut:]}, DataSource("t", "t", ""), DataSettings(length=4, stateful=True)
    )


def test_a_windows_answer_depends_on_the_windows_before_it(data: DataSet) -> None:
    torch.manual_seed(0)
    vocab_size = data.spec.target.outputs
    model = create_model("lstm", vocab_size=vocab_size, num_classes=vocab_size, pooling="every", hidden_dim=8).eval()
    split, task = data.splits["val"], task_for(data.spec)
    assert is_stateful(model, split)
    place = select_device("cpu", "float32", None, model)
    kept, target = evaluate_split(model, split, place, 2, task)

    streams: list[tuple[torch.Tensor, torch.Tensor]] = []  # each row of the batches as one long text
    plan = sequential_batches(split, 2)
    for row in range(len(plan[0])):
        windows = [next(split.batches([batch[row : row + 1]])) for batch in plan if row < len(batch)]
        tokens = torch.cat([b.inputs[0][b.inputs[1]] for b in windows])
        streams.append((tokens, torch.cat([b.target[b.inputs[1]] for b in windows])))
    with torch.no_grad():
        losses = [torch.nn.functional.cross_entropy(model(x[None])[0], y, reduction="none") for x, y in streams]
    assert kept[..., 0].nansum().item() == pytest.approx(torch.cat(losses).sum().item(), rel=1e-5)
    assert (target >= 0).sum() == sum(len(x) for x, _ in streams) == len(split.target)  # type: ignore[arg-type]


def test_a_state_goes_on_with_the_rows_that_are_left() -> None:
    state = (torch.randn(2, 5, 3), torch.randn(2, 5, 3))
    assert trim_state(state, 5) is state
    cut = trim_state(state, 3)
    assert cut is not None
    assert all(torch.equal(a, b[:, :3]) for a, b in zip(cut, state))
    assert trim_state((), 4) is None
    assert trim_state(None, 4) is None


@pytest.mark.slow
def test_a_stop_within_an_epoch_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = text(tmp_path)
    train_model(
        "lstm", source, {**GIVEN, "model.hidden_dim": 8}, out=tmp_path / "whole", progress=Progress(shown=False)
    )

    from cutaway.training.trainer import Trainer

    steps, once = [0], Trainer.step

    def step(self: Trainer, *args: object, **more: object) -> None:
        once(self, *args, **more)  # type: ignore[arg-type]
        steps[0] += 1
        if steps[0] == 30:
            self._stop.requested = True

    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(Interrupted):
        train_model(
            "lstm", source, {**GIVEN, "model.hidden_dim": 8}, out=tmp_path / "again", progress=Progress(shown=False)
        )
    monkeypatch.undo()
    stopped, meta = read_tensors(tmp_path / "again" / "checkpoints" / "last.safetensors")
    assert meta["state"]["batch"] > 0  # within an epoch
    assert stopped["carried.0"].shape[1:] == (4, 8)
    train_model(None, None, {}, resume=tmp_path / "again", progress=Progress(shown=False))
    for name in ("checkpoints/last.safetensors", "model/model.safetensors"):
        a, b = (read_tensors(tmp_path / which / name)[0] for which in ("whole", "again"))
        assert a.keys() == b.keys()
        assert all(torch.equal(a[k], b[k]) for k in a), name
    assert read_json(tmp_path / "whole" / "evaluation.json") == read_json(tmp_path / "again" / "evaluation.json")


def test_what_is_carried_is_not_compiled(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="leave compile out, or add stateful=false"):
        train_model(
            "lstm", text(tmp_path), {**GIVEN, "compile": True}, out=tmp_path / "run", progress=Progress(shown=False)
        )


@pytest.mark.slow
def test_carried_state_tells_what_a_window_alone_does_not(tmp_path: Path) -> None:
    path, losses = tmp_path / "counted.txt", {}
    path.write_text("aaaab" * 160)  # after an a, only counting further back than a window tells what comes
    given = {**GIVEN, "length": 2, "epochs": 8, "lr": 0.02, "save_minutes": 9, "model.hidden_dim": 16}
    for carry in (True, False):
        run = train_model(
            "lstm", str(path), {**given, "stateful": carry}, out=tmp_path / str(carry), progress=Progress(shown=False)
        )
        losses[carry] = run.evaluate()["loss"].value
    assert losses[True] < 0.7 * losses[False]
