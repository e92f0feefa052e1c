"""Columns of a table as inputs of an ONNX graph.

Each column is one input, shape (N,), with the column's name. Numbers are doubles, and categories are strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

CATEGORY = "category"


@dataclass(frozen=True)
class Column:
    """Column of a table.

    A number, a date (days since 1970) or a yes/no (1 and 0) is NaN if it is missing. A missing category is "". A
    category has one code for each of `categories`, one for a missing cell if training had any, and a last one for all
    other values.
    """

    name: str
    kind: str
    categories: tuple[str, ...] = ()
    missing: bool = False

    @property
    def unknown(self) -> int:
        """Return the code of a value that did not occur in training."""
        return len(self.categories) + self.missing

    @property
    def codes(self) -> dict[str, int]:
        """Return the code of each known value."""
        known = {value: code for code, value in enumerate(self.categories)}
        return known | ({"": len(self.categories)} if self.missing and "" not in known else {})

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` returns an equal object."""
        return {"column": self.name, "kind": self.kind, "categories": list(self.categories), "missing": self.missing}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Column:
        """Return the column that `to_json` wrote."""
        return cls(data["column"], data["kind"], tuple(map(str, data["categories"])), bool(data["missing"]))


def to_cells(inputs: Sequence[Tensor], columns: Sequence[Column]) -> list[NDArray[Any]]:
    """Return the cells (N,) of each column from the numbers (N, n) and codes (N, c) of a batch.

    A value without a code becomes a string that did not occur in training.
    """
    numbers = [column for column in columns if column.kind != CATEGORY]
    found = [np.ascontiguousarray(x) for x in inputs[0].numpy().T] if numbers else []
    for column, codes in zip(columns[len(numbers) :], inputs[-1].numpy().T):
        written = {code: value for value, code in column.codes.items()}
        strange = "?" * (1 + max((len(value) for value in column.codes), default=0))
        found.append(np.array([written.get(code, strange) for code in codes.tolist()], dtype=object))
    return found


def split_inputs_by_column(model: Any, columns: Sequence[Column]) -> None:
    """Replace the inputs `numbers` and `codes` of a model by one input for each column."""
    import onnx
    from onnx import TensorProto, helper

    taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
    taken |= {one.name for one in (*model.graph.initializer, *model.graph.output)}
    inputs, nodes, parts = [], [], {"numbers": [], "codes": []}  # type: ignore[var-annotated]
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param or "N"
    for k, column in enumerate(columns):
        name = column.name
        while name in taken or not name:
            name += "_"
        taken.add(name)
        of_category = column.kind == CATEGORY
        kind = TensorProto.STRING if of_category else TensorProto.DOUBLE
        inputs.append(helper.make_tensor_value_info(name, kind, [batch]))
        if of_category:
            codes = column.codes or {"": column.unknown}
            nodes.append(
                helper.make_node(
                    "LabelEncoder",
                    [name],
                    [f"cutaway_code_{k}"],
                    domain="ai.onnx.ml",
                    keys_strings=list(codes),
                    values_int64s=list(codes.values()),
                    default_int64=column.unknown,
                )
            )
            name = f"cutaway_code_{k}"
        nodes.append(helper.make_node("Unsqueeze", [name, "cutaway_one"], [f"cutaway_column_{k}"]))
        parts["codes" if of_category else "numbers"].append(f"cutaway_column_{k}")
    nodes += [helper.make_node("Concat", found, [name], axis=1) for name, found in parts.items() if found]
    others = list(model.graph.node)
    del model.graph.input[:], model.graph.node[:]
    model.graph.input.extend(inputs)
    model.graph.node.extend([*nodes, *others])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "cutaway_one"))
    if not any(one.domain == "ai.onnx.ml" for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
