"""A person's program, which mypy checks with the package: each line that is marked is one that the types reject."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

import cutaway
from cutaway import inspect


class Net(nn.Module):
    """A network of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4) to (N, 3)."""
        given: Tensor = self.out(x)
        return given


def learn(x: Tensor) -> float:
    """What is typed, and what comes of it."""
    run: cutaway.Run = cutaway.train(Net(), "iris", epochs=3)
    again: cutaway.Run = cutaway.load(run.folder, model=Net)
    bare: nn.Module = cutaway.load("runs/lenet5-digits-1", model="lenet5")
    shown: str = repr(cutaway.describe(bare, x))
    with inspect.capture(again.model, "features") as seen:
        again.model(x)
    first: Tensor = seen["features"]["out"]
    layers = inspect.flow(again.model, x, lambda outputs: outputs.mean())
    effects = inspect.ablate(again.model, x, "out", by="unit")
    cutaway.look(again, view="network").save("inside.html")
    found = run.evaluate()["accuracy"].value + effects[0].change + (layers[0].gradient or 0.0)
    return found + len(shown) + len(first)


def names(argument: str, frame: object, more: dict[str, Any]) -> list[str]:
    """Names that are known only when the program runs, and settings of all kinds."""
    cutaway.train(cutaway.AnyName(argument), frame, target="price", lr=1e-3, minutes=None, val=0.2, betas=(0.9, 0.99))
    cutaway.train("mlp", frame, weights=Path("run"), tracker="wandb", verbose=False, ignore=["id"], **more)
    cutaway.look("resnet18", view=cutaway.AnyName(argument), head=3)
    cutaway.search("mlp", frame, lr="1e-4..1e-1:log", trials=3)
    cutaway.compare(["mlp", Net, ("wide", Net)], frame, seeds=5)
    cutaway.plan("gpt2", "book.txt", gpu="h100", gpus=8)
    cutaway.prepare("corpus/", "shards/", tokenizer="bpe", vocab_size=50_000, workers=8)
    for name in cutaway.list_models(takes="table"):
        cutaway.train(name, frame)
    return [str(row["species"]) for row in cutaway.train("mlp", "iris").predict(["new.csv"])]


def wrong(x: Tensor) -> None:
    """What is not taken."""
    cutaway.train(3)  # type: ignore[arg-type]
    cutaway.train("mpl", "iris")  # type: ignore[arg-type]
    cutaway.train("mlp", "iris", epoch=2)  # type: ignore[call-arg]
    cutaway.train("mlp", "iris", epochs="many")  # type: ignore[arg-type]
    cutaway.train("mlp", "iris", optimizer="adm")  # type: ignore[arg-type]
    cutaway.look(Net(), x, view="netwrk")  # type: ignore[arg-type]
    cutaway.look(Net(), x, view=["network", "netwrk"])  # type: ignore[list-item]
    cutaway.create_model("resnet19")  # type: ignore[arg-type]
    cutaway.search("mlp", "iris", trails=3)  # type: ignore[call-arg]
    cutaway.compare(["mlp", "lienar"], "iris")  # type: ignore[list-item]
    cutaway.check("mlp", "iris", seeds=3)  # type: ignore[call-arg]
    cutaway.quantize("run", "out", epochs=3)  # type: ignore[call-arg]
    print(cutaway.train("mlp", "iris").predict(["new.csv"])[0]["species"].items)  # type: ignore[union-attr]
    cutaway.describe("lenet5", x)  # type: ignore[arg-type]
    cutaway.load("run", model=3)  # type: ignore[call-overload]
    print(cutaway.card("lenet5").parameters)  # type: ignore[attr-defined]
    inspect.ablate(Net(), "x", 3)  # type: ignore[arg-type]
