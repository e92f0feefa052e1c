"""A person's program, which mypy checks with the package: each line that is marked is one that the types reject."""

from __future__ import annotations

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


def wrong(x: Tensor) -> None:
    """What is not taken."""
    cutaway.train(3)  # type: ignore[arg-type]
    cutaway.describe("lenet5", x)  # type: ignore[arg-type]
    cutaway.load("run", model=3)  # type: ignore[call-overload]
    print(cutaway.card("lenet5").parameters)  # type: ignore[attr-defined]
    inspect.ablate(Net(), "x", 3)  # type: ignore[arg-type]
