"""Modules of one's own: trained, kept, opened again, refused with the shape found and the shape needed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

import cutaway
from cutaway.apps.cli import main
from cutaway.checkpoints.custom import CustomPreset, adapt_module, bind_arguments, unadapted
from cutaway.checkpoints.saving import read_tensors
from cutaway.core.errors import DataError, FileError, ModelError, SettingError
from cutaway.core.spec import GraphSpec, TableSpec, TextSpec, Value
from cutaway.models.base import BaseModel
from cutaway.runs.train import train_model
from cutaway.training.device import select_device
from cutaway.training.setup import setup_training

from .conftest import stopping

QUICK: dict[str, Any] = {"epochs": 2, "tensorboard": False}


class Dense(nn.Module):
    """A two-layer network for rows of `features` numbers."""

    def __init__(self, features: int = 4, outputs: int = 3, width: int = 8) -> None:
        super().__init__()
        self.hidden = nn.Linear(features, width)
        self.out = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        given: Tensor = self.out(torch.tanh(self.hidden(x)))
        return given


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 36, 10)

    def forward(self, x: Tensor) -> Tensor:
        given: Tensor = self.head(torch.relu(self.norm(self.conv(x))).flatten(1))
        return given


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, cutaway.Run]:
    torch.manual_seed(0)
    net = Dense()
    return net, cutaway.train(
        net, "iris", out=tmp_path_factory.mktemp("own") / "r", tensorboard=False, epochs=40, lr=0.05
    )


def test_the_module_itself_learns_and_holds_what_the_run_keeps(trained: tuple[nn.Module, cutaway.Run]) -> None:
    net, run = trained
    assert run.evaluate()["accuracy"].value > 0.6
    kept, _ = read_tensors(run.folder / "model" / "model.safetensors")
    assert kept.keys() == net.state_dict().keys()
    assert all(torch.equal(kept[name], tensor) for name, tensor in net.state_dict().items())
    assert not net.training
    assert type(net) is Dense


def test_the_runs_model_is_such_a_module_and_another_one(trained: tuple[nn.Module, cutaway.Run]) -> None:
    net, run = trained
    x = torch.randn(5, 4)
    assert isinstance(run.model, Dense)
    assert [name for name, _ in run.model.named_modules()] == ["", "hidden", "out"]
    assert torch.equal(run.model(x), net(x))
    with torch.no_grad():
        net(x)
        before = run.evaluate()["loss"].value
        kept = net.out.weight.clone()  # type: ignore[union-attr, operator]
        net.out.weight.zero_()  # type: ignore[union-attr, operator]
        assert run.evaluate()["loss"].value == before
        net.out.weight.copy_(kept)  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("hand_over", [Dense, lambda: Dense()], ids=["class", "module"])
def test_it_opens_where_the_class_or_a_module_is_handed_over(
    trained: tuple[nn.Module, cutaway.Run], hand_over: Any
) -> None:
    given = hand_over if isinstance(hand_over, type) else hand_over()
    again = cutaway.load(trained[1].folder, model=given)
    assert again.evaluate()["accuracy"] == trained[1].evaluate()["accuracy"]
    if isinstance(given, nn.Module):
        assert again.model is not given  # which stays as it is
        assert not torch.equal(given.out.weight, again.model.out.weight)  # type: ignore[union-attr, arg-type]


def test_without_it_the_way_is_said_in_python_and_on_the_command_line(
    trained: tuple[nn.Module, cutaway.Run], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, flowers = str(trained[1].folder), tmp_path / "new.csv"
    names = [f"{part} {what} (cm)" for part in ("sepal", "petal") for what in ("length", "width")]
    flowers.write_text(",".join(names) + "\n5,3,1.5,0.2\n")
    with pytest.raises(FileError, match=r"can be loaded from Python only.*cutaway.load\('.*', model=Dense\(\)\)"):
        cutaway.load(folder)
    for words in (["evaluate", folder], ["predict", folder, str(flowers)], ["inspect", folder], ["report", folder]):
        assert main(words) == 2, words
        said = " ".join(capsys.readouterr().err.split())
        assert "can be loaded from Python only" in said
        assert f"model={Dense.__name__}()" in said


def test_the_folder_names_the_class_and_imports_nothing(trained: tuple[nn.Module, cutaway.Run]) -> None:
    config = json.loads((trained[1].folder / "model" / "config.json").read_text())
    assert config["own"] == f"{Dense.__module__}.Dense"
    assert trained[1].about["command"].startswith("cutaway.train(Dense(), 'iris'")
    assert (trained[1].folder / "report.html").is_file()


def test_a_run_of_another_module_and_a_named_run_are_refused(
    trained: tuple[nn.Module, cutaway.Run], tmp_path: Path
) -> None:
    with pytest.raises(FileError, match=r"hidden.weight.*\(8, 4\) where the model has \(9, 4\)"):
        cutaway.load(trained[1].folder, model=Dense(width=9)).evaluate()
    with pytest.raises(ModelError, match=r"No Bilinear can be made.*Hand over a module made with its arguments"):
        cutaway.load(trained[1].folder, model=nn.Bilinear).evaluate()
    cutaway.train("mlp", "iris", out=tmp_path / "named", **QUICK)
    with pytest.raises(FileError, match="needs no module: leave it out"):
        cutaway.load(tmp_path / "named", model=Dense())


def test_what_looks_inside_takes_it(trained: tuple[nn.Module, cutaway.Run]) -> None:
    net, run = trained
    x = torch.randn(4, 4)
    with cutaway.inspect.capture(run.model) as seen:
        run.model(x)
    assert seen["features"]["hidden"].shape == (4, 8)
    sums = cutaway.inspect.attribute(net, x, "integrated_gradients").completeness
    assert sums is not None
    assert torch.allclose(sums.sum, sums.change, atol=0.05)
    effects = cutaway.inspect.ablate(run.model, x, "hidden", by="unit")
    assert len(effects) == 8
    shares = cutaway.inspect.patch(run.model, x, -x, "out", lambda y: y[:, 0].mean())
    assert shares[0].share == pytest.approx(1)
    ids = [view["id"] for view in cutaway.look(run).views]
    assert {"network", "curves", "results", "attribution", "gradients", "embeddings"} <= set(ids)
    assert cutaway.look(net, x)["network"]["summary"].startswith("67 parameters")


def test_an_unknown_module_is_looked_at_with_an_example_alone() -> None:
    with pytest.raises(ModelError, match=r"pass an example batch, as in cutaway.look\(model, x\)"):
        cutaway.look(Dense())


# --- what fits, and what does not -----------------------------------------------------------------------------------


class Gives(nn.Module):
    """Answers of any shape."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(x * self.weight)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda x: x,
            r"gives \(2, 4\) float32 for x \(2, 4\) float32, "
            r"and the target of this data, species, needs \(2, 3\): .* 3 classes",
        ),
        (lambda x: x[:, :1], r"gives \(2, 1\).*needs \(2, 3\)"),
        (lambda x: x[:1, :3], r"gives \(1, 3\).*needs \(2, 3\)"),
        (lambda x: (x, x), "returns a tuple.*return only the logits"),
        (lambda x: {"logits": x}, "returns a dict"),
        (lambda x: x[:, :3].long(), "int64, but training needs floating-point logits"),
        (lambda x: x @ x, r"cannot take what this table data holds, x \(2, 4\) float32; its forward takes \(x\).*mat1"),
    ],
)
def test_answers_that_do_not_fit_are_refused_from_one_batch(
    make: Callable[[Tensor], Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=said):
        cutaway.train(Gives(make), "iris", out=tmp_path / "r", **QUICK)
    assert not (tmp_path / "r").exists()


def test_what_a_task_asks_of_a_model_beyond_its_answers_is_told_first() -> None:
    with pytest.raises(ModelError, match=r"Words keeps none: give it extend\(tokens, mask, cache\)"):
        setup_training(Words(21, 21, each=True), "addition", {})


def test_a_module_without_a_parameter_that_learns_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"Dense has no parameter that learns"):
        cutaway.train(Dense().requires_grad_(False), "iris", out=tmp_path / "r", **QUICK)


def test_too_few_embeddings_are_told_beside_how_many_tokens_there_are(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"mask \(2, \d+\) bool \(token ids are below \d+\).*IndexError"):
        setup_training(Words(3, 2), texts(tmp_path), {"text": "text", "target": "label"})


def test_settings_that_are_for_named_models_are_refused(tmp_path: Path) -> None:
    for given, said in (
        ({"model.width": 4}, "model.width cannot be set"),
        ({"weights": "x.pt"}, "weights=x.pt is for named models"),
        ({"processes": 2}, "torchrun --nproc-per-node=2"),
    ):
        with pytest.raises(SettingError, match=said):
            cutaway.train(Dense(), "iris", out=tmp_path / "r", **QUICK, **given)
    with pytest.raises(ModelError, match=r"Dense is a class: give a module that is made, Dense\(\)"):
        cutaway.train(Dense, "iris", **QUICK)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="compiled or scripted"):
        cutaway.train(torch.jit.script(nn.Linear(4, 3)), "iris", **QUICK)  # type: ignore[no-untyped-call]


def test_a_plan_takes_it() -> None:
    assert cutaway.plan(Conv(), "digits")["one"].memory.total > 0


# --- what a batch holds, and what a forward asks for ----------------------------------------------------------------


TEXT = TextSpec(9, 5, Value())


def of(forward: Callable[..., Any], count: int = 2, spec: Any = TEXT) -> tuple[list[int], dict[str, int]]:
    """Which tensors go to this forward."""
    return bind_arguments(forward, count, spec)


def test_a_forward_is_given_what_it_names_or_must_have() -> None:
    assert of(lambda self, x: 0) == ([0], {})
    assert of(lambda self, x, y: 0) == ([0, 1], {})
    assert of(lambda self, tokens, mask=None: 0) == ([0, 1], {})
    assert of(lambda self, x, state=None, mask=None: 0) == ([0], {"mask": 1})
    assert of(lambda self, mask, tokens: 0) == ([1, 0], {})
    assert of(lambda self, *inputs: 0) == ([0, 1], {})
    assert of(lambda self, x, *, attention_mask=None, **more: 0) == ([0], {"attention_mask": 1})
    graph = GraphSpec(3, Value(), graph_level=True)
    assert of(lambda self, x, edge_index: 0, 4, graph) == ([0, 1], {})
    assert of(lambda self, x, edge_index, batch: 0, 4, graph) == ([0, 1, 3], {})
    assert of(lambda self, x, edges, edge_attr=None, batch=None: 0, 4, graph) == ([0, 1], {"batch": 3})


def test_the_same_module_under_another_forward_shares_all_that_it_holds() -> None:
    net = Dense(outputs=1)
    twin = adapt_module(net, TableSpec(("a", "b", "c", "d"), Value()))
    x = torch.randn(3, 4)
    assert torch.equal(twin(x), net(x))
    net.train()
    assert twin.training
    twin.eval()
    assert not net.training
    twin.double()
    assert net.out.weight.dtype == torch.float64
    net.register_buffer("more", torch.zeros(1))
    assert "more" in twin.state_dict()
    assert type(unadapted(twin)) is Dense
    assert unadapted(twin).out is net.out


class Values(nn.Module):
    """(N,) and not (N, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(10))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class Recurrent(nn.Module):
    """A state with a default, which no mask may take the place of."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(features, 6, batch_first=True)
        self.out = nn.Linear(6, outputs)

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        given: Tensor = self.out(self.rnn(x, state)[0][:, -1])
        return given


class Words(nn.Module):
    def __init__(self, vocab_size: int, outputs: int, each: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 6)
        self.out, self.each = nn.Linear(6, outputs), each

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(tokens) * mask[..., None]
        given: Tensor = self.out(x if self.each else x.sum(1))
        return given


class Graph(nn.Module):
    """H' = tanh(A H W), with answers for all nodes."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(features, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x)
        h = torch.tanh(h.index_add(0, edge_index[1], h[edge_index[0]]))
        given: Tensor = self.out(h)
        return given


class Lazy(nn.Module):
    """Layers that take their sizes from the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(10))

    def forward(self, x: Tensor) -> Tensor:
        given: Tensor = self.layers(x)
        return given


def texts(folder: Path) -> str:
    """Texts of two classes, each by its words."""
    rows = [f'"{word} {word} thing {k}",{name}' for k in range(30) for word, name in (("good", "yes"), ("bad", "no"))]
    (folder / "texts.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return str(folder / "texts.csv")


def corpus(folder: Path) -> str:
    (folder / "book.txt").write_text("the cat sat on the mat and the dog ate the cat. " * 80)
    return str(folder / "book.txt")


def waves(folder: Path) -> str:
    rows = [f"{math.sin(k / 3):.4f},{math.cos(k / 3):.4f}" for k in range(200)]
    (folder / "waves.csv").write_text("\n".join(["a,b", *rows]) + "\n")
    return str(folder / "waves.csv")


class Pixels(nn.Module):
    """A class for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 11, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        given: Tensor = self.conv(x)
        return given


OF_KINDS: dict[str, tuple[Callable[[], nn.Module], Any, dict[str, Any], str]] = {
    "a value without an axis": (Values, "diabetes", {}, "rmse"),
    "one logit of two classes": (lambda: Dense(2, 1), "moons", {}, "accuracy"),
    "images": (Conv, "digits", {}, "accuracy"),
    "lazy layers": (Lazy, "digits", {}, "accuracy"),
    "texts": (lambda: Words(40, 2), texts, {"text": "text", "target": "label", "vocab_size": 40}, "accuracy"),
    "a corpus": (lambda: Words(15, 15, each=True), corpus, {"length": 16, "tokenizer": "characters"}, "perplexity"),
    "a forecast": (lambda: Recurrent(2, 8), waves, {"forecast": "a,b", "horizon": 4}, "mase"),
    "nodes": (lambda: Graph(34), "karate", {}, "accuracy"),
    "masks": (Pixels, "digit_scenes_small", {"max_samples": 80}, "mean_iou"),
}


@pytest.mark.parametrize("kind", OF_KINDS)
def test_every_kind_of_data_is_learned_from(kind: str, tmp_path: Path) -> None:
    make, data, settings, metric = OF_KINDS[kind]
    module = make()
    source = data(tmp_path) if callable(data) else data
    run = cutaway.train(module, source, out=tmp_path / "r", **{**QUICK, **settings})
    found = run.evaluate()
    assert metric in found or not metric, found.keys()
    again = cutaway.load(tmp_path / "r", model=module)
    assert {k: m.value for k, m in again.evaluate().items()} == {k: m.value for k, m in found.items()}
    page = cutaway.look(again, view=["network", "attribution", "gradients"])
    assert [view["id"] for view in page.views] == ["network", "attribution", "gradients"]


class Sampled(BaseModel):
    """One that says itself what it takes."""

    takes = (TableSpec,)
    targets = (Value,)

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        given: Tensor = self.out(x)
        return given


def test_a_network_of_ones_own_says_what_it_takes_and_learns() -> None:
    assert CustomPreset(Sampled()).takes == ("table",)
    with pytest.raises(ModelError, match="Sampled does not learn what this table data asks for, species"):
        setup_training(Sampled(), "iris", {})
    with pytest.raises(ModelError, match="Sampled takes table data, and this is image data"):
        setup_training(Sampled(), "digits", {})


def test_families_are_told_by_layers() -> None:
    families = {Conv: "cnn", Dense: "dense"}
    assert {make: CustomPreset(make()).card.card.family for make in families} == families
    assert CustomPreset(Recurrent(1, 1)).card.card.family == "rnn"
    assert CustomPreset(Graph(3)).card.card.family == "graph"
    assert CustomPreset(nn.TransformerEncoderLayer(8, 2)).card.card.family == "transformer"


# --- resuming -------------------------------------------------------------------------------------------------------


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    def made() -> nn.Module:
        torch.manual_seed(3)
        return Dense()

    settings = {"epochs": 3, "batch_size": 16, "tensorboard": False}
    whole = made()
    train_model(whole, "iris", settings, out=tmp_path / "whole")
    with stopping(9):
        train_model(made(), "iris", settings, out=tmp_path / "cut")
    with pytest.raises(FileError, match="can be loaded from Python only"):
        cutaway.train(resume=tmp_path / "cut")
    with pytest.raises(FileError, match=r"no checkpoint of this|hidden"):
        cutaway.train(Dense(width=5), resume=tmp_path / "cut")
    other = Dense()
    run = cutaway.train(other, resume=tmp_path / "cut")
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), other.state_dict().values()))
    longer = cutaway.train(resume=run, epochs=4)
    assert longer.about["epochs_done"] == 4
    with pytest.raises((SettingError, DataError), match="data is iris"):
        cutaway.train(Dense(), "wine", resume=tmp_path / "cut")


class Viewing(nn.Module):
    """A convolutional network as tutorials write it: its maps are flattened by `view`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4 * 64, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))  # (N, 4, 8, 8)
        given: Tensor = self.head(x.view(x.size(0), -1))
        return given


class Permuting(Viewing):
    """One whose view takes no memory format."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv2(torch.relu(self.conv1(x)))).permute(0, 2, 3, 1)  # (N, 8, 8, 4)
        given: Tensor = self.head(x.view(x.size(0), -1))
        return given


def pictures(folder: Path, count: int = 24) -> tuple[Path, tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Dark and bright RGB images, a third of them bright: class folders, and arrays (N, 3, 8, 8) with classes."""
    rng = np.random.default_rng(0)
    y = (np.arange(count) % 3 == 0).astype(np.int64)
    x = (rng.integers(0, 128, (count, 8, 8, 3)) + 127 * y[:, None, None, None]).astype(np.uint8)
    for i in range(count):
        (folder / "images" / ("dark", "bright")[y[i]]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(x[i]).save(folder / "images" / ("dark", "bright")[y[i]] / f"{i}.png")
    return folder / "images", (x.transpose(0, 3, 1, 2), y)


@pytest.mark.parametrize("given", [{}, {"channels_last": False}])
@pytest.mark.parametrize("source", ["folder", "arrays"])
def test_maps_may_be_flattened_by_view(source: str, given: dict[str, Any], tmp_path: Path) -> None:
    folder, arrays = pictures(tmp_path)
    data: Any = folder if source == "folder" else arrays
    run = cutaway.train(Viewing(), data, out=tmp_path / "run", batch_size=5, **QUICK, **given)
    opened = cutaway.load(tmp_path / "run", model=Viewing)
    if source == "arrays":
        opened.set_data(data)
    assert opened.evaluate() == run.evaluate()
    asked: Any = sorted(folder.rglob("*.png"))[:3] if source == "folder" else arrays[0][:3]
    assert len(opened.predict(asked)) == 3
    x = torch.rand(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    assert opened.model(x).shape == (2, 2)  # as what looks inside calls it
    assert cutaway.look(opened, view="features").views
    assert cutaway.look(opened, view="gradients").views
    assert len(cutaway.quantize(opened, tmp_path / "quantized").predict(asked)) == 3
    assert not select_device("cpu", "float32", None, run.model).channels_last


def test_a_view_that_fails_is_told_with_the_way_out(tmp_path: Path) -> None:
    folder, arrays = pictures(tmp_path)
    for data in (folder, arrays):
        with pytest.raises(
            ModelError, match=r"Viewing calls view\(\) on .* reshape\(\) or flatten\(1\).*channels_last=f"
        ):
            cutaway.train(Viewing(), data, out=tmp_path / "run", channels_last=True, **QUICK)
        assert not (tmp_path / "run").exists()  # it is found before anything is learned
        with pytest.raises(ModelError, match=r"Permuting calls view\(\) on .* reshape\(\) or flatten\(1\) instead\.$"):
            cutaway.train(Permuting(), data, out=tmp_path / "run", **QUICK)


def test_channels_last_is_remembered_where_it_is_asked_for(tmp_path: Path) -> None:
    class Seeing(Viewing):
        def forward(self, x: Tensor) -> Tensor:
            formats.append(x.is_contiguous())
            x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
            given: Tensor = self.head(x.flatten(1))
            return given

    formats: list[bool] = []
    folder, _ = pictures(tmp_path)
    for asked in (True, None):
        cutaway.train(Seeing(), folder, out=tmp_path / f"{asked}", channels_last=asked, **QUICK)
        opened = cutaway.load(tmp_path / f"{asked}", model=Seeing)
        formats.clear()
        opened.evaluate()
        opened.predict([next(folder.rglob("*.png"))])
        assert set(formats) == {asked is None}
        assert opened.place.channels_last is bool(asked)
