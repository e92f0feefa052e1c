"""Drawing of a graph of operations with its values and adjoints, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import ModelError
from ...draw.description import Drawing

if TYPE_CHECKING:  # the exercises are listed without importing torch
    from torch import Tensor

    from ...nn.textbook.autodiff import Variable

MOST_NODES = 200  # that can be drawn


def computation_graph(output: Variable, title: str = "Values and adjoints") -> Drawing:
    """Return a drawing of all operations that led to `output`, with their values and adjoints, for `frame`.

    Runs `backward`. Of tensors the drawing shows the shape and the Euclidean norm. A slider repeats the backward pass
    one operation at a time.

    Args:
        output: A single number, such as a loss.
        title: The title of the drawing.

    Returns:
        The drawing.

    Raises:
        ModelError: If the output has more than one entry, or there are more than 200 variables.
    """
    from ...nn.textbook.autodiff import backward, tape

    backward(output)
    variables = tape(output)
    if len(variables) > MOST_NODES:
        raise ModelError(f"Invalid graph of {len(variables)} variables: at most {MOST_NODES} can be drawn.")
    place = {id(x): i for i, x in enumerate(variables)}
    inputs = [[place[id(x)] for x, _ in y.inputs] for y in variables]
    order = [i for i in reversed(range(len(variables))) if inputs[i]]
    columns, rows, bends = _layout(inputs)
    nodes = []
    for i, x in enumerate(variables):
        nodes.append(
            {
                "name": x.name or ("" if x.operation else _constant(x)),
                "operation": x.operation,
                "shape": "×".join(map(str, x.value.shape)),
                "value": _size(x.value),
                "inputs": inputs[i],
                "column": columns[i],
                "row": rows[i],
                "bends": bends[i],
                **_adjoint(i, variables, inputs, order),
            }
        )
    return {"kind": "computation", "title": title, "nodes": nodes, "order": order}


def _adjoint(i: int, variables: list[Variable], inputs: list[list[int]], order: list[int]) -> dict[str, object]:
    """Return the adjoint after each step of the backward pass that adds to it, and sentences about its terms."""
    x = variables[i]
    assert x.grad is not None
    if i == len(variables) - 1:
        return {"adjoints": [[0, 1.0]], "calculation": ["∂L = 1: the derivative of the output by itself."]}
    steps, terms, collected = [], [], x.grad * 0
    for step, j in enumerate(order, 1):
        y = variables[j]
        assert y.grad is not None
        for source, (_, pull) in zip(inputs[j], y.inputs):
            if source == i:
                term = _summed(pull(y.grad), x.value)
                collected = collected + term
                terms.append(f"{_number(_size(term))} through {_title(y)}")
        if i in inputs[j]:
            steps.append([step, _size(collected)])
    total = _number(_size(x.grad))
    scalar = x.value.ndim == 0
    joined = " + ".join(terms)
    if scalar:
        sentence = f"∂L = {joined}" + (f" = {total}" if len(terms) > 1 else "")
    else:
        sentence = f"‖∂L‖ = {total}; norms of its terms: {', '.join(terms)}"
    return {"adjoints": steps, "calculation": [f"{sentence}."]}


def _summed(g: Tensor, value: Tensor) -> Tensor:
    """Sum a term over the axes along which the value was repeated."""
    return g if g.shape == value.shape else g.sum_to_size(value.shape)


def _layout(inputs: list[list[int]]) -> tuple[list[int], list[float], list[list[list[float]]]]:
    """Return the columns and rows of the nodes, and the rows through which each edge passes other columns.

    A node stands one column before the first node that uses it, near the rows of those. An edge over several columns
    has a place of its own in each column between.
    """
    back = _columns(inputs)
    sources = [[*row] for row in inputs]  # with the places of long edges as further nodes
    chains: dict[tuple[int, int], list[int]] = {}
    for j in range(len(inputs)):
        for i in dict.fromkeys(inputs[j]):
            chain, after = [], j
            for column in range(back[j] + 1, back[i]):
                chain.append(len(sources))
                back.append(column)
                sources[after] = [chain[-1] if k == i else k for k in sources[after]]
                sources.append([i])
                after = chain[-1]
            chains[j, i] = chain[::-1]
    rows = _rows(sources, back, real=len(inputs))
    bends = [[[rows[k] for k in chains[j, i]] for i in inputs[j]] for j in range(len(inputs))]
    return [max(back) - back[i] for i in range(len(inputs))], rows[: len(inputs)], bends


def _columns(inputs: list[list[int]]) -> list[int]:
    """Return the column of each node, counted back from the output."""
    back = [0] * len(inputs)
    for j in reversed(range(len(inputs))):
        for i in inputs[j]:
            back[i] = max(back[i], back[j] + 1)
    return back


def _rows(sources: list[list[int]], back: list[int], real: int) -> list[float]:
    """Return rows without overlap, each near the rows of the nodes that use it; from `real` on, nodes are narrow."""
    uses: list[list[int]] = [[] for _ in sources]
    for j, row in enumerate(sources):
        for i in row:
            uses[i].append(j)
    rows = [0.0] * len(sources)
    for column in range(1, max(back) + 1):
        here = [i for i in range(len(sources)) if back[i] == column]
        wanted = {i: sum(rows[j] for j in uses[i]) / len(uses[i]) for i in here}
        here.sort(key=lambda i: (wanted[i], i))
        for above, i in zip([None, *here], here):
            rows[i] = wanted[i]
            if above is not None:
                rows[i] = max(rows[i], rows[above] + (1.0 if max(above, i) < real else 0.7))
        shift = sum(rows[i] - wanted[i] for i in here) / len(here)
        for i in here:
            rows[i] -= shift
    return rows


def _size(value: Tensor) -> float:
    """Return a number itself, of a tensor its Euclidean norm."""
    return float(value) if value.ndim == 0 else float(value.norm())


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def _constant(x: Variable) -> str:
    return _number(float(x.value)) if x.value.ndim == 0 else "input"


def _title(y: Variable) -> str:
    return f"{y.name}, {y.operation}" if y.name else y.operation
