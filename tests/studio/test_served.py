"""The studio as it runs: processes that train, a page that watches, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cutaway
from cutaway.apps.studio.ipc import NICE

from .served import Page, Served, gone, resident, served

pytestmark = [
    pytest.mark.waits,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]
SMALL = {"data": "spirals", "model": "mlp", "model__hidden_dims": "4", "model__dropout": "0.2", "lr": "0.01"}


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(folder=tmp_path_factory.mktemp("studio")) as studio:
        yield studio


@pytest.fixture
def page(studio: Served) -> Iterator[Page]:
    page = Page(studio.url)
    yield page
    page.do("control", side="both", do="pause")
    page.close()


def boundary(frame: dict[str, Any]) -> Any:
    """What the first view draws."""
    return frame["views"][0]["drawings"]


def test_no_file_of_the_working_folder_is_run(studio: Served, page: Page) -> None:
    page.open(**SMALL)
    page.open("b", **{**SMALL, "seed": "2"})
    page.do("close", side="b")
    assert not (studio.work / "ran").exists(), (studio.work / "ran").read_text()


def test_who_says_nothing_does_not_keep_the_owner_out(studio: Served) -> None:
    silent = [socket.create_connection(("127.0.0.1", studio.port)) for _ in range(80)]
    try:
        for one in silent[::2]:
            one.sendall(b"GET / HTTP/1.1\r\n")
        with urllib.request.urlopen(f"{studio.url}choices", timeout=20) as answer:
            assert answer.status == 200
    finally:
        for one in silent:
            one.close()


# --- training that is watched --------------------------------------------------------------------------------------


def test_training_goes_on_while_frames_are_read(page: Page) -> None:
    page.open(**SMALL)
    page.do("control", side="a", do="play")
    steps = [page.next()["step"] for _ in range(6)]
    assert steps == sorted(steps)
    assert steps[-1] > steps[1] > 0
    frame = page.wait(lambda f: f["step"] > 300 and f["rate"] > 0)  # steps a second, known after the first moment
    assert frame["playing"]
    losses = [loss for loss in frame["history"]["train"] if loss is not None]  # validation has steps of its own
    assert losses[-1] < losses[0]
    assert any(val is not None for val in frame["history"]["val"])


def test_pause_stops_and_step_is_one(page: Page) -> None:
    page.open(**SMALL)
    page.do("control", side="a", do="play")
    page.wait(lambda f: f["step"] > 20)
    page.do("control", side="a", do="pause")
    stood = page.wait(lambda f: not f["playing"])["step"]
    time.sleep(0.5)
    page.do("control", side="a", do="step")
    page.wait(lambda f: f["step"] == stood + 1 and not f["playing"])
    page.do("control", side="a", do="step")
    page.wait(lambda f: f["step"] == stood + 2 and not f["playing"])
    epoch = page.frames["a"]["epoch"]
    page.do("control", side="a", do="epoch")
    frame = page.wait(lambda f: f["epoch"] == epoch + 1 and not f["playing"])
    page.do("control", side="a", do="epoch")
    further = page.wait(lambda f: f["epoch"] == epoch + 2 and not f["playing"])
    assert further["step"] - frame["step"] == 6  # 700 examples in batches of 128


def test_speed_is_bounded(page: Page) -> None:
    page.open(**SMALL, speed="20")
    page.do("control", side="a", do="play")
    began = page.wait(lambda f: f["step"] > 5)["step"]
    then = time.monotonic()
    time.sleep(2)
    frame = page.next()
    assert frame["step"] - began <= 20 * (time.monotonic() - then) + 5
    page.do("change", side="a", key="speed", value="0")
    page.wait(lambda f: f["step"] > 500)
    assert page.frames["a"]["log"] == ""


def test_seek_shows_older_weights(page: Page) -> None:
    first = page.open(**SMALL)
    page.do("control", side="a", do="play")
    page.wait(lambda f: f["step"] > 100)
    page.do("control", side="a", do="pause")
    now = page.wait(lambda f: not f["playing"] and boundary(f) != boundary(first))  # a view may be of a moment before
    page.do("control", side="a", do="seek", to=0)
    then = page.wait(lambda f: f["at"] == 0 and boundary(f) == boundary(first))
    assert then["step"] == now["step"]
    assert then["metrics"] == first["metrics"] != now["metrics"]
    page.do("control", side="a", do="seek", to=now["step"])
    page.wait(lambda f: f["at"] == now["step"] and boundary(f) == boundary(now))


def test_changes_while_it_trains(page: Page) -> None:
    page.open(**SMALL)
    page.do("control", side="a", do="play")
    page.wait(lambda f: f["step"] > 10)
    page.do("change", side="a", key="lr", value="0.1")
    frame = page.wait(lambda f: f["lr"] == 0.1)
    assert frame["settings"]["lr"] == "0.1"
    assert frame["state"]["lr"] == "0.01"
    assert frame["log"].endswith(":lr=0.1")
    page.do("change", side="a", key="model.activation", value="tanh")
    page.do("change", side="a", key="noise", value="0.2")
    page.wait(lambda f: f["settings"]["noise"] == "0.2" and f["settings"]["model.activation"] == "tanh")
    status, said = page.post("change", side="a", key="model.hidden_dims", value="9")
    assert status == 422
    assert "open the model again" in said["error"]
    step = page.frames["a"]["step"]
    page.wait(lambda f: f["step"] > step + 10)


def test_a_weight_by_hand_shows(page: Page) -> None:
    before = page.open(**SMALL)
    page.do("weight", side="a", name="head.bias", index=[1], value=30)
    log = "0:weight:head.bias[1]=30.0"
    after = page.wait(lambda f: f["log"] == log and boundary(f) != boundary(before))  # a view may be of a moment before
    assert after["loss"]["val"] > before["loss"]["val"]
    assert page.post("weight", side="a", name="head.bias", index=[1]) == (200, {"value": 30.0})


def test_two_sides_train_beside_each_other(page: Page) -> None:
    page.open(**SMALL)
    frame = page.open("b", data="digits", model="lenet5-modern", max_samples="300")
    assert frame["views"]
    assert "lenet5-modern" in frame["models"]
    assert "gcn" not in frame["models"]
    page.do("control", side="both", do="play")
    page.wait(lambda f: f["step"] > 3, "a")
    page.wait(lambda f: f["step"] > 3, "b")
    page.do("close", side="b")
    step = page.frames["a"]["step"]
    page.wait(lambda f: f["step"] > step)
    status, said = page.post("control", side="b", do="play")
    assert (status, "No model is open" in said["error"]) == (422, True)


def test_a_url_gives_the_same_again(page: Page) -> None:
    page.open(**SMALL, seed="4")
    page.do("control", side="a", do="play")
    page.wait(lambda f: f["step"] > 30)
    page.do("change", side="a", key="lr", value="0.03")
    page.do("change", side="a", key="batch_size", value="32")
    page.do("weight", side="a", name="hidden.0.linear.weight", index=[0, 1], value=0.5)
    page.wait(lambda f: f["step"] > 150)
    page.do("control", side="a", do="pause")
    was = page.wait(lambda f: not f["playing"] and "weight" in f["log"])
    page.open(**SMALL)
    page.do("open", side="a", state={**was["state"], "log": was["log"]})
    again = page.wait(lambda f: f["step"] == was["step"] and not f["playing"])
    assert again["log"] == was["log"]
    assert again["views"] == was["views"]
    assert (again["metrics"], again["loss"]["val"]) == (was["metrics"], was["loss"]["val"])
    assert again["epoch"] == was["epoch"]


def test_a_file_of_ones_own(studio: Served, page: Page) -> None:
    rows = "".join(f"{i % 7},{i % 5},{'yes' if i % 7 > i % 5 else 'no'}\n" for i in range(200))
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(f"{studio.url}upload?name=own.csv", f"a,b,more\n{rows}".encode(), headers)
    said = json.load(urllib.request.urlopen(request))
    frame = page.open(data=said["data"], model="mlp", model__hidden_dims="4")
    assert frame["data"]["target"] == "more"
    assert frame["views"][0]["id"] == "boundary"
    page.do("control", side="a", do="epoch")
    page.wait(lambda f: f["epoch"] == 1)
    status, said = page.post("open", side="a", state={"data": said["data"], "model": "mlp", "target": "les"})
    assert status == 422
    assert "column" in said["error"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"data": "moons", "model": "mpl"}, "mlp"),
        ({"data": "moons", "model": "gcn"}, "takes graph data"),
        ({"data": "moons", "model": "mlp", "model.hidden_dims": "0"}, "hidden_dims"),
        ({"data": "moons", "model": "mlp", "lr": "fast"}, "lr=fast"),
        ({"data": "digits", "model": "lenet5", "noise": "0.1"}, "noise"),
        ({"data": "iris", "model": "mlp", "noise": "0.1"}, "moons"),
        ({"data": "moons", "model": "mlp", "model.hidden_dims": "99999999"}, "memory"),
        ({"data": "moons", "model": "mlp", "model.hidden_dims": "300000,300000"}, "memory"),
        ({"data": "moons", "model": "mlp", "model.hidden_dims": "9999999", "batch_size": "10000"}, "memory"),
        (
            {"data": "moons", "model": "mlp", "memory_fraction": "0"},
            "Invalid memory_fraction: not available in the studio",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_opened_leaves_what_is_there(state: dict[str, str], words: str, page: Page) -> None:
    before = page.open(**SMALL)
    status, said = page.post("open", side="a", state=state)
    assert status == 422
    assert words in said["error"]
    page.do("control", side="a", do="step")
    frame = page.wait(lambda f: f["step"] == 1)
    assert frame["state"]["data"] == "spirals"
    page.do("weight", side="a", name="head.bias", index=[1], value=30)
    page.wait(lambda f: bool(f["views"]) and boundary(f) != boundary(before))  # the views are of what is there


def test_a_loss_that_is_not_finite_stops_with_words(page: Page) -> None:
    page.open(**SMALL, optimizer="sgd")
    page.do("control", side="a", do="play")
    page.wait(lambda f: f["step"] > 3)
    page.do("change", side="a", key="lr", value="1e30")
    frame = page.wait(lambda f: bool(f["error"]))
    assert "not finite" in frame["error"]
    assert not frame["playing"]
    status, said = page.post("control", side="a", do="play")
    assert (status, "not finite" in said["error"]) == (422, True)
    page.do("control", side="a", do="reset")
    page.wait(lambda f: f["error"] is None and f["step"] == 0)
    page.do("control", side="a", do="step")
    page.wait(lambda f: f["step"] == 1)


def test_views_and_examples_are_chosen(page: Page) -> None:
    page.open(data="digits", model="lenet5-modern", max_samples="200")
    page.do("watch", side="a", views=["network", "features", "attention"], options={}, example=3)
    frame = page.wait(lambda f: bool(f["views"]) and f["views"][0]["id"] == "network")
    assert [view["id"] for view in frame["views"]] == ["network", "features"]
    assert any("attention" in note for note in frame["notes"])
    page.do("watch", side="a", views=["features"], options={"layer": "nowhere"}, example=0)
    frame = page.wait(lambda f: not f["views"])
    assert any("nowhere" in note for note in frame["notes"])
    page.do("watch", side="a", views=[])
    page.wait(lambda f: bool(f["views"]))


@pytest.mark.parametrize("which", [0, 1], ids=["learner", "viewer"])
def test_a_process_that_dies_is_reported_and_opened_anew(which: int, studio: Served, page: Page) -> None:
    page.open("b", **SMALL)
    before = page.frames["b"].get("frame", 0)
    names = {pid: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16] for pid in studio.family()}
    page.do("close", side="b")
    others = studio.family()
    page.open("b", **SMALL)
    new = sorted(studio.family() - others)
    assert len(new) == 2, names
    niced = [int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16]) for pid in new]
    assert sorted(niced) == [os.nice(0), os.nice(0) + NICE]
    os.kill(new[niced.index(sorted(niced)[which])], signal.SIGKILL)
    frame = page.wait(lambda f: bool(f["error"]), "b")
    assert "open the model again" in frame["error"]
    status, said = page.post("control", side="b", do="play")
    assert status == 422 or which == 1, said
    page.open("b", **{**SMALL, "seed": "1"})
    page.do("control", side="b", do="step")
    page.wait(lambda f: f["step"] == 1 and bool(f["views"]), "b")
    page.do("close", side="b")
    assert before >= 0


def test_memory_does_not_grow(studio: Served, page: Page) -> None:
    page.open(**SMALL, speed="0")
    page.do("control", side="a", do="play")
    time.sleep(3)
    before = {pid: resident(pid) for pid in studio.family()}
    time.sleep(4)
    grown = {pid: resident(pid) - kib for pid, kib in before.items()}
    assert page.frames["a"]["step"] >= 400
    assert len(page.frames["a"]["history"]["step"]) <= 600
    assert all(kib < 2_000 for kib in grown.values()), grown


# --- beginning and end ---------------------------------------------------------------------------------------------


def test_a_second_server_finds_another_port_has_something_at_once_and_leaves_nothing(
    studio: Served, tmp_path: Path
) -> None:
    with served(folder=tmp_path) as second:
        assert second.port != studio.port
        text = urllib.request.urlopen(second.url).read().decode()
        first = json.loads(text.split('id="first">')[1].split("</script>")[0])
        assert first["state"]["model"] == "mlp"
        page = Page(second.url)
        frame = page.wait(lambda f: bool(f["views"]))
        assert frame["step"] == 0
        assert {view["id"] for view in frame["views"]} >= {"boundary", "gradients"}
        assert frame["metrics"]["accuracy"] is not None
        assert {"name": "head.bias", "shape": [3]} in frame["names"]["weights"]
        page.do("control", side="a", do="play")
        family = second.family()
        assert len(family) >= 4
        assert second.stop(signal.SIGTERM) == 0
    assert not gone(family)
    assert not list(tmp_path.glob("cutaway-*"))


def test_nothing_is_left_when_the_server_is_killed(tmp_path: Path) -> None:
    with served(folder=tmp_path) as studio:
        page = Page(studio.url)
        page.wait(lambda f: bool(f["views"]))
        page.do("control", side="a", do="play")
        family = studio.family()
        studio.stop(signal.SIGKILL)
    assert not gone(family)
    assert not list(tmp_path.glob("cutaway-*"))


def test_a_run_is_opened_and_left_as_it_is(tmp_path: Path) -> None:
    run = cutaway.train("mlp", "moons", out=tmp_path / "run", epochs=2, **{"model.hidden_dims": (4,)})
    files = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    with served(str(run.folder), folder=tmp_path) as studio:
        page = Page(studio.url)
        frame = page.wait(lambda f: bool(f["views"]))
        assert frame["state"]["data"] == "run"
        assert frame["step"] > 0
        assert frame["settings"]["model.hidden_dims"] == "4"
        assert any("constant rate" in note for note in frame["notes"])
        page.do("control", side="a", do="play")
        page.wait(lambda f: f["step"] > frame["step"] + 5)
        page.do("open", side="b", state={"data": "run", "model": "mlp", "begin": "seed"})
        assert page.wait(lambda f: bool(f["views"]), "b")["step"] == 0
        family = studio.family()
        assert studio.stop(signal.SIGINT) == 0
    assert not gone(family)
    assert not list(tmp_path.glob("cutaway-*"))
    assert files == {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}


def test_help_is_quick_and_needs_no_torch() -> None:
    code = "import sys; from cutaway.apps.cli import main; main(['studio', '--help']); print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "False"
    assert "--open-to-the-network" in out
