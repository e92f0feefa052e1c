"""The layer table: what layers cost and see, against hand counts and against gradients; nothing unknown called 0."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway import create_model
from cutaway.core.memory_budget import build_on_meta
from cutaway.inspect.layers import LayerTable, layer_table
from cutaway.models.registry import preset


def costs(table: LayerTable) -> dict[str, int | None]:
    """Multiply-adds by name of the layer."""
    return {row.name: row.multiply_adds for row in table.rows}


# --- multiply-adds ----------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    axes=st.integers(1, 3),
    groups=st.integers(1, 2),
    inputs=st.integers(1, 3),
    outputs=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    transposed=st.booleans(),
    side=st.integers(5, 7),
)
def test_a_convolution_costs_its_sum_over_every_output(
    axes: int,
    groups: int,
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
    transposed: bool,
    side: int,
) -> None:
    kinds = (
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
        if transposed
        else (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    )
    layer = kinds[axes - 1](
        inputs * groups, outputs * groups, kernel, stride, padding, dilation=dilation, groups=groups
    )
    spread = dilation * (kernel - 1) + 1
    if transposed:
        assume((side - 1) * stride - 2 * padding + spread >= 1)
        positions = side  # each input pixel is multiplied with the whole kernel
    else:
        positions = (side + 2 * padding - spread) // stride + 1
    by_hand = positions**axes * kernel**axes * inputs * outputs * groups
    assert layer_table(layer, torch.zeros(1, inputs * groups, *[side] * axes)).multiply_adds == by_hand


def test_matrix_products_in_all_their_forms() -> None:
    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat = nn.Linear(4, 3)
            self.bare = nn.Linear(3, 5, bias=False)

        def forward(self, x: Tensor) -> Tensor:  # (2, 7, 4)
            x = self.bare(self.flat(x))  # (2, 7, 5)
            x = x @ x.transpose(1, 2)  # (2, 7, 7)
            x = torch.baddbmm(x, x, x)
            x = torch.einsum("nij,jk->nik", x, x[0])
            return x[0] @ x[0, 0]

    table = layer_table(Products(), torch.randn(2, 7, 4))
    by_hand = 14 * 4 * 3 + 14 * 3 * 5 + 2 * 7 * 7 * 5 + 2 * 7**3 + 2 * 7**3 + 7 * 7
    assert (table.multiply_adds, table.complete) == (by_hand, True)


def test_the_batch_counts() -> None:
    model = create_model("lenet5-modern")
    assert layer_table(model, torch.zeros(1, 1, 32, 32)).multiply_adds == 416_520
    assert layer_table(model, torch.zeros(3, 1, 32, 32)).multiply_adds == 3 * 416_520


def test_fused_attention_costs_what_its_products_cost() -> None:
    class Attention(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

    q, k, v = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4)
    by_hand = 2 * 3 * 5 * 7 * (4 + 4)
    assert layer_table(Attention(), q, k, v).multiply_adds == by_hand
    assert layer_table(Attention(), *(x.to("meta") for x in (q, k, v))).multiply_adds == by_hand


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_in_eval_mode_is_right_or_unknown(batch_first: bool) -> None:
    """Its fused operation hides its products; the hooks, or the meta device, make it take the open way."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first).eval()
    by_hand = 5 * (4 * 8 * 8 + 2 * 8 * 16) + 2 * 5 * 5 * 8
    for device in ("cpu", "meta"):
        table = layer_table(layer.to(device), torch.empty(*((1, 5) if batch_first else (5, 1)), 8, device=device))
        assert table.multiply_adds == by_hand if table.complete else table.multiply_adds < by_hand
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    table = layer_table(attention, *[torch.randn(1, 5, 8)] * 3)
    assert None in costs(table).values() or table.multiply_adds == 5 * 4 * 8 * 8 + 2 * 5 * 5 * 8


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_an_lstm_is_right(device: str) -> None:
    """One fused operation does it all on a CPU; on the meta device its products are in the open."""
    model, by_hand = nn.Sequential(nn.LSTM(3, 4)), 5 * 4 * 4 * (3 + 4)
    table = layer_table(model.to(device), torch.zeros(5, 1, 3, device=device))
    assert costs(table) == {"0": by_hand}
    assert table.complete


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.index_add(0, torch.tensor([0]), x[:1]),
        lambda x: x.scatter_add(0, torch.zeros(1, 4, dtype=torch.int64), x),
        lambda x: x.index_put((torch.tensor([0]),), x[0], accumulate=True),
        lambda x: torch.cdist(x, x),
        lambda x: torch.fft.rfft(x),
        lambda x: F.bilinear(x, x, torch.zeros(2, 4, 4)),
        lambda x: torch.eye(4).to_sparse() @ x,
    ],
    ids=["index_add", "scatter_add", "index_put", "cdist", "fft", "bilinear", "sparse"],
)
def test_what_is_not_known_is_not_zero(operation: object) -> None:
    class Does(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return operation(self.first(x))  # type: ignore[operator]

    table = layer_table(Does(), torch.randn(4, 4))
    assert None in costs(table).values()
    assert not table.complete
    assert table.multiply_adds >= 64  # at least


def test_norms_pools_activations_and_copies_cost_nothing() -> None:
    model = nn.Sequential(
        nn.BatchNorm2d(4),
        nn.GroupNorm(2, 4),
        nn.LayerNorm([4, 8, 8]),
        nn.MaxPool2d(2),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Dropout(),
        nn.Flatten(),
        nn.Softmax(1),
    )
    table = layer_table(model, torch.randn(1, 4, 8, 8))
    assert (table.multiply_adds, table.complete) == (0, True)


# --- rows -------------------------------------------------------------------------------------------------------


def test_rows_are_layers_with_what_they_give_and_have() -> None:
    rows = layer_table(create_model("lenet5-modern"), torch.zeros(1, 1, 32, 32)).rows
    assert [(r.name, r.type, r.shape, r.parameters, r.multiply_adds, r.receptive_field) for r in rows] == [
        ("c1", "Conv2d", (1, 6, 28, 28), 156, 117_600, 5),
        ("max_pool2d()", "operation", (1, 6, 14, 14), 0, 0, 6),
        ("c3", "Conv2d", (1, 16, 10, 10), 2_416, 240_000, 14),
        ("max_pool2d() 2", "operation", (1, 16, 5, 5), 0, 0, 16),
        ("c5", "Linear", (1, 120), 48_120, 48_000, None),
        ("f6", "Linear", (1, 84), 10_164, 10_080, None),
        ("head", "Linear", (1, 10), 850, 840, None),
    ]


def test_shared_weights_count_once_and_a_layer_called_twice_costs_twice() -> None:
    class Shares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(self.a(x)))

    table = layer_table(Shares(), torch.zeros(1, 3))
    assert [(r.name, r.parameters, r.multiply_adds) for r in table.rows] == [("a", 12, 18), ("b", 3, 9)]
    assert table.parameters == 15


def test_a_layer_that_is_never_called_is_there_and_says_so() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(2, 2), nn.Linear(2, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    table = layer_table(Idle(), torch.zeros(1, 2))
    assert [(r.name, r.shape, r.parameters) for r in table.rows] == [("used", (1, 2), 6), ("idle", (), 15)]


def test_a_model_without_parts_is_one_row() -> None:
    (row,) = layer_table(nn.Linear(3, 2), torch.zeros(1, 3)).rows
    assert (row.name, row.shape, row.parameters, row.multiply_adds) == ("(model)", (1, 2), 8, 6)


def test_long_tables_are_put_together_by_block() -> None:
    found = preset("resnet152")
    table = layer_table(build_on_meta(found, found.config), torch.empty(1, 3, 224, 224, device="meta"))
    rows = table.at(2)
    assert len(table.rows) > 300
    assert len(rows) <= 60
    assert sum(r.parameters for r in rows) == table.parameters == 60_192_808
    assert sum(r.multiply_adds or 0 for r in rows) == table.multiply_adds
    block = next(r for r in rows if r.name == "layer2.0")
    # What leaves the block, behind the sum: the branch sees 43 pixels, the shortcut 35.
    assert (block.type, block.shape, block.receptive_field) == ("Bottleneck", (1, 512, 28, 28), 43)


def test_a_block_with_an_unknown_cost_is_unknown() -> None:
    class Distances(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cdist(x, x)

    model = nn.Sequential(nn.Sequential(nn.Linear(3, 3), Distances()))
    (block,) = layer_table(model, torch.randn(5, 1, 3)).at(1)
    assert (block.name, block.multiply_adds) == ("0", None)
    assert block.unknown


def test_json_has_one_example_without_the_batch() -> None:
    document = layer_table(create_model("lenet5-modern"), torch.zeros(1, 1, 32, 32)).to_json()
    assert document["input"] == [1, 32, 32]
    assert document["rows"][0]["shape"] == [6, 28, 28]
    assert (document["parameters"], document["multiply_adds"], document["complete"]) == (61_706, 416_520, True)


# --- the model is left as it was ----------------------------------------------------------------------------------


def _state(model: nn.Module) -> list[object]:
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks), m.training) for m in model.modules()]
    return [*hooks, *(v.clone() for v in model.state_dict().values())]


def _same(a: list[object], b: list[object]) -> bool:
    return all(torch.equal(x, y) if isinstance(x, Tensor) and isinstance(y, Tensor) else x == y for x, y in zip(a, b))


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails: bool) -> None:
    model = create_model("resnet20").train()
    model.get_submodule("layer2").eval()
    before = _state(model)
    if fails:
        with pytest.raises(RuntimeError):
            layer_table(model, torch.zeros(2, 5, 32, 32))
    else:
        layer_table(model, torch.zeros(2, 3, 32, 32))
    assert _same(before, _state(model))
    assert all(p.grad is None for p in model.parameters())


# --- receptive fields ---------------------------------------------------------------------------------------------


class Branches(nn.Module):
    """A sum, and a concatenation, of branches that see different amounts."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3, stride=2, padding=1)
        self.short = nn.Conv2d(2, 2, 1)
        self.long = nn.Sequential(nn.Conv2d(2, 2, 3, padding=2, dilation=2), nn.ReLU(), nn.Conv2d(2, 2, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return torch.cat([self.short(x) + self.long(x), x], dim=1)


class Gate(nn.Module):
    """Squeeze and excitation: a factor that sees everything."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return x * torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True)))


def conv(*args: int, **kwargs: int) -> nn.Conv2d:
    """One channel to one."""
    return nn.Conv2d(1, 1, *args, **kwargs)


SMALL = {
    "one convolution": nn.Sequential(conv(5, padding=2)),
    "strides and dilation": nn.Sequential(conv(3, stride=2), nn.ReLU(), conv(3, dilation=3, padding=3), conv(2)),
    "pools": nn.Sequential(conv(3, padding=1), nn.AvgPool2d(2), conv(3, padding=1), nn.AvgPool2d(3, stride=1), conv(3)),
    "overlapping pools": nn.Sequential(nn.AvgPool2d(3, 2, 1), conv(3, padding=1), nn.AvgPool2d(3, 2, 1)),
    "adaptive pool that divides": nn.Sequential(conv(3, padding=1), nn.AdaptiveAvgPool2d(8)),
    "global pool": nn.Sequential(conv(3, padding=1), nn.AdaptiveAvgPool2d(1)),
    "branches": Branches(),
    "gate": Gate(),
    "norm": nn.Sequential(conv(3, padding=1), nn.BatchNorm2d(1), conv(3, padding=1)),
}


def seen(model: nn.Module, side: int) -> int:
    """How far the gradient of the middle output reaches in the input, with positive weights only."""
    model = model.double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.abs() + 0.01)
    x = torch.rand(1, 1, side, side, dtype=torch.float64, requires_grad=True)
    y = model(x)
    y[0, 0, y.shape[2] // 2, y.shape[3] // 2].backward()
    assert x.grad is not None
    rows, columns = (x.grad[0, 0].abs().sum(axis).nonzero().flatten() for axis in (1, 0))
    extents = [int(i.max() - i.min()) + 1 for i in (rows, columns)]
    return max(extents)


@pytest.mark.parametrize("name", SMALL)
def test_the_field_is_as_far_as_the_gradient_reaches(name: str) -> None:
    side = 64
    table = layer_table(SMALL[name].double(), torch.rand(1, 1, side, side, dtype=torch.float64))
    assert table.blocks[""].receptive_field == seen(SMALL[name], side)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["conv", "pool"]), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
        min_size=1,
        max_size=4,
    )
)
def test_the_field_of_any_chain_is_as_far_as_the_gradient_reaches(chain: list[tuple[str, int, int, int]]) -> None:
    layers = [
        conv(k, stride=s, dilation=d) if kind == "conv" else nn.AvgPool2d(k, s, padding=0) for kind, k, s, d in chain
    ]
    model, side = nn.Sequential(*layers), 64
    # Windows further apart than they are wide leave pixels unseen; the field goes from the first to the last seen.
    table = layer_table(model.double(), torch.rand(1, 1, side, side, dtype=torch.float64))
    assert table.blocks[""].receptive_field == seen(model, side)


def test_max_pools_count_like_other_windows() -> None:
    model = nn.Sequential(conv(3), nn.MaxPool2d(3, stride=2, dilation=2), conv(3))
    assert [r.receptive_field for r in layer_table(model, torch.zeros(1, 1, 32, 32)).rows] == [3, 7, 11]


def test_signals_with_one_axis_have_a_field_too() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 5, stride=2), nn.MaxPool1d(2), nn.Conv1d(3, 3, 3))
    assert [r.receptive_field for r in layer_table(model, torch.zeros(1, 2, 64)).rows] == [5, 7, 15]


def test_resnet18_sees_435_pixels_and_then_all() -> None:
    found = preset("resnet18")
    table = layer_table(build_on_meta(found, found.config), torch.empty(1, 3, 224, 224, device="meta"))
    fields = {row.name: row.receptive_field for row in table.rows}
    assert (fields["conv1"], fields["maxpool"], fields["layer4.1.conv2"]) == (7, 11, 435)
    assert (fields["avgpool"], fields["fc"]) == (224, None)
    assert fields["layer2.0.downsample.0"] == 43
    assert fields["layer2.0.conv2"] == 67


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Unflatten(1, (1, 8, 8))),
        nn.ConvTranspose2d(1, 1, 3, stride=2),
        nn.AdaptiveAvgPool2d(3),
        nn.Upsample(scale_factor=2),
    ],
    ids=["flattened", "transposed", "windows of unequal size", "enlarged"],
)
def test_where_there_is_no_one_field_there_is_none(model: nn.Module) -> None:
    table = layer_table(nn.Sequential(model, conv(1)), torch.zeros(1, 1, 8, 8))
    assert table.blocks[""].receptive_field is None


def test_a_branch_without_a_field_takes_it_from_the_sum() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear = conv(3, padding=1), nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x) + self.linear(x.flatten(1)).view_as(x)

    table = layer_table(Mixed(), torch.zeros(1, 1, 8, 8))
    assert table.blocks["conv"].receptive_field == 3
    assert table.blocks[""].receptive_field is None


def test_a_table_of_a_large_model_costs_no_memory() -> None:
    found = preset("resnet152")
    model = build_on_meta(found, found.config)
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert layer_table(model, torch.empty(1, 3, 224, 224, device="meta")).multiply_adds == 11_513_626_624


def test_a_linear_layer_on_pixels_keeps_their_field_and_one_on_a_flattened_map_ends_it() -> None:
    class Last(nn.Module):
        def __init__(self, flat: bool) -> None:
            super().__init__()
            self.flat = flat
            self.conv, self.linear = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(4 * (30 if flat else 1), 7)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            answer: Tensor = self.linear(y.flatten(1) if self.flat else y.permute(0, 2, 3, 1))
            return answer

    for flat, field in ((False, 3), (True, None)):
        (row,) = (r for r in layer_table(Last(flat), torch.zeros(1, 2, 5, 6)).rows if r.name == "linear")
        assert row.receptive_field == field


def test_a_view_of_a_map_without_entries_is_no_riddle() -> None:
    class Cut(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :, :0].view(0)

    (row,) = layer_table(Cut(), torch.zeros(1, 2, 5, 6)).rows
    assert (row.shape, row.receptive_field) == ((0,), None)
