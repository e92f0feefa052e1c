"""Sums over the edges of a graph, sparse all the way: memory grows with the edges, never with the square of the nodes.

A graph is x (V, F), what is known of each node, and edges (2, E) int64, from sources `edges[0]` to targets `edges[1]`;
what a layer computes for a node is a sum over the edges that lead to it:

    y_i = Σ_{j → i} a_ij x_j            y = A x,  A (V, V) in compressed rows (CSR), one entry for each edge

The entries stand in the order of their targets. The gradient of x is Aᵀ ∂y, with the transpose proper, so that it is
right where edges lead one way alone; that of a_ij is ∂y_i · x_j, computed at the edges and nowhere else. An edge that
is listed twice is two entries, as everywhere in the field. What is computed for a graph alone (its order, its weights)
is kept for as long as the tensor of its edges lives and holds what it held: NumPy writes to it unseen, so that its
content is looked at each time, which costs far less than to make it anew.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..core.errors import ModelError
from .sparse import Listed, starts_of
from .sparse import Pattern as Pattern

CSR_ON = ("cpu", "cuda")  # devices with products of sparse matrices; elsewhere the terms are gathered and added up
SPARSE_BELOW = 0.1  # fraction of a node's features that are not 0, from which on they are multiplied as a dense matrix
LEAST_FEATURES = 1 << 14  # a smaller matrix of features is dense whatever it holds
MOST_ENTRIES = 1 << 22  # of several heads that are computed in one product

Made = TypeVar("Made")


class _Kept(Generic[Made]):
    """What was made of a tensor, for as long as the tensor lives and holds the same."""

    def __init__(
        self, make: Callable[..., Made], known: Callable[[Tensor, Made], Any], same: Callable[[Tensor, Any], bool]
    ) -> None:
        """`known` gives what is kept of a tensor's content, and `same` says by that whether the tensor still has it."""
        self._make, self._known, self._same = make, known, same
        self._made: dict[tuple[Any, ...], tuple[weakref.ref[Tensor], int, Any, Made]] = {}

    def __call__(self, tensor: Tensor, *rest: Any) -> Made:
        if tensor.is_inference() or torch.compiler.is_exporting():  # does not tell whether it was written to
            return self._make(tensor, *rest)
        key = (id(tensor), *rest)
        kept = self._made.get(key)
        if kept is not None and kept[0]() is tensor and kept[1] == tensor._version and self._same(tensor, kept[2]):
            return kept[3]
        with torch.inference_mode(False), torch.no_grad():  # so that what is kept can be learned with later
            made = self._make(tensor, *rest)
            known = self._known(tensor, made)
        gone = weakref.ref(tensor, lambda _: self._made.pop(key, None))
        self._made[key] = (gone, tensor._version, known, made)
        return made


def neighbours(edges: Tensor, nodes: int, loops: bool) -> Pattern:
    """The matrix (nodes, nodes) with an entry (i, j) for each edge from j to i; edges (2, E) int64.

    With `loops` every node has one edge to itself, also where the graph has none or several such: A + I.
    The order of the edges makes no difference to any digit of what is computed from it.
    Raises ModelError where the edges are of another shape or type, or name a node that is not there.
    """
    return _neighbours(edges, nodes, loops)


@functools.partial(_Kept, known=lambda edges, made: edges.clone(), same=torch.equal)
def _neighbours(edges: Tensor, nodes: int, loops: bool) -> Pattern:
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype not in (torch.int64, torch.int32):
        raise ModelError(
            f"Edges are whole numbers of shape (2, E), sources above targets, and these are {edges.dtype} of shape "
            f"{tuple(edges.shape)}."
        )
    sources, targets = edges.long()
    if torch.compiler.is_exporting():  # nothing is known of the edges there
        return _listed(sources, targets, nodes, loops)
    if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= nodes):
        wrong = int(((edges < 0) | (edges >= nodes)).any(0).nonzero()[0])
        raise ModelError(
            f"Edge {wrong} leads from node {int(sources[wrong])} to node {int(targets[wrong])}, and nodes are numbered "
            f"from 0 to {nodes - 1}."
        )
    if loops:
        apart, every = sources != targets, torch.arange(nodes, device=edges.device)
        sources, targets = torch.cat([sources[apart], every]), torch.cat([targets[apart], every])
    order = (targets * nodes + sources).argsort(stable=True)
    return Pattern(starts_of(targets, nodes), sources[order].to(torch.int32), nodes, None if loops else order)


def _listed(sources: Tensor, targets: Tensor, nodes: int, loops: bool) -> Listed:
    if loops:
        apart, every = sources != targets, torch.arange(nodes, device=sources.device)
        sources, targets = torch.cat([sources[apart], every]), torch.cat([targets[apart], every])
    return Listed(targets, sources, nodes, nodes)


def members(batch: Tensor, graphs: int) -> Pattern:
    """The matrix (graphs, V) with an entry for each node, in the row of its graph: `batch` (V,) says which that is."""
    if torch.compiler.is_exporting():
        return Listed(batch, torch.arange(batch.shape[0], device=batch.device), graphs, batch.shape[0])
    return Pattern(starts_of(batch, graphs), batch.argsort(stable=True).to(torch.int32), len(batch))


def product(values: Tensor, pattern: Pattern, x: Tensor) -> Tensor:
    """A x: the matrix of `pattern` with `values` (E,), times x (m, F), is (n, F). Differentiable in both."""
    dtype = torch.promote_types(torch.promote_types(values.dtype, x.dtype), torch.float32)
    with torch.autocast(x.device.type, enabled=False):  # there are no sparse products of 16 bits
        y: Tensor = _Product.apply(values.to(dtype), x.to(dtype), pattern)  # type: ignore[no-untyped-call]
        return y


def edge_scores(of_targets: Tensor, of_sources: Tensor, pattern: Pattern) -> Tensor:
    """s_i + t_j for each entry (i, j), (E,): s (n,), t (m,)."""
    dtype = torch.promote_types(of_targets.dtype, torch.float32)
    with torch.autocast(of_targets.device.type, enabled=False):
        s, t = of_targets.to(dtype), of_sources.to(dtype)
        scores: Tensor = _EdgeScores.apply(s, t, pattern)  # type: ignore[no-untyped-call]
        return scores


def edge_softmax(scores: Tensor, pattern: Pattern) -> Tensor:
    """exp(s_ij) / Σ_j exp(s_ij) over the entries of each row, (E,), safe for scores of any size."""
    with torch.autocast(scores.device.type, enabled=False):
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        weights: Tensor = _EdgeSoftmax.apply(wide, pattern)  # type: ignore[no-untyped-call]
        return weights


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, x: Tensor, pattern: Pattern) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(values, x if ctx.needs_input_grad[0] else None)
        return _multiply(pattern, values, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        values, x = ctx.saved_tensors
        of_values = of_x = None
        if ctx.needs_input_grad[0]:
            of_values = _dots(ctx.pattern, grad, x)
        if ctx.needs_input_grad[1]:
            across, order = ctx.pattern.transposed
            of_x = _multiply(across, values.index_select(0, order), grad)
        return of_values, of_x, None


class _EdgeScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, of_targets: Tensor, of_sources: Tensor, pattern: Pattern) -> Tensor:
        ctx.pattern = pattern
        return of_targets.index_select(0, pattern.rows).add_(of_sources.index_select(0, pattern.columns))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        across, order = ctx.pattern.transposed
        return _row_sums(ctx.pattern, grad), _row_sums(across, grad.index_select(0, order)), None


class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, pattern: Pattern) -> Tensor:
        largest = _row_max(pattern, scores)
        weights = (scores - largest.index_select(0, pattern.rows)).exp_()
        weights.div_(_row_sums(pattern, weights).index_select(0, pattern.rows))
        ctx.pattern = pattern
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        weighted = weights * grad
        means = _row_sums(ctx.pattern, weighted).index_select(0, ctx.pattern.rows)
        return weighted.addcmul_(weights, means, value=-1), None  # a ∂a − a Σ a ∂a


def _multiply(pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
    if isinstance(pattern, Listed):
        return pattern.sums(x.index_select(0, pattern.columns) * values[:, None])
    if x.device.type in CSR_ON:
        return _csr(pattern.starts, pattern.columns, values, (pattern.height, len(x))) @ x
    terms = x.index_select(0, pattern.columns) * values[:, None]
    return x.new_zeros(pattern.height, x.shape[1]).index_add_(0, pattern.rows, terms)


def _dots(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    """left_i · right_j for each entry (i, j), (E,): left (n, F), right (m, F)."""
    # PyTorch takes more entries than the matrix has places, repeated edges in a tiny graph, for a mistake.
    if left.device.type in CSR_ON and len(pattern.columns) <= pattern.height * pattern.width:
        empty = left.new_zeros(len(pattern.columns))
        at = _csr(pattern.starts, pattern.columns, empty, (pattern.height, len(right)))
        dots: Tensor = torch.sparse.sampled_addmm(at, left, right.t(), beta=0.0).values()
        return dots
    return (left.index_select(0, pattern.rows) * right.index_select(0, pattern.columns)).sum(1)


def _row_sums(pattern: Pattern, values: Tensor) -> Tensor:
    """The sum of the values in each row, (n,)."""
    if isinstance(pattern, Listed):
        return pattern.sums(values)
    if values.device.type in CSR_ON:  # as a matrix (n, E) of ones: several times as fast as a sum by segments
        ones = _csr(pattern.starts, pattern.entries, pattern.ones(values.dtype), (pattern.height, len(values)))
        return (ones @ values[:, None])[:, 0]
    return values.new_zeros(pattern.height).index_add_(0, pattern.rows, values)


def _row_max(pattern: Pattern, values: Tensor) -> Tensor:
    """The largest of the values in each row, (n,); −∞ in an empty one."""
    if isinstance(pattern, Listed):
        return pattern.largest(values)
    if values.device.type in CSR_ON:
        return torch.segment_reduce(values, "max", offsets=pattern.starts, axis=0)
    lowest = values.new_full((pattern.height,), -torch.inf)
    return lowest.scatter_reduce_(0, pattern.rows.long(), values, "amax")


def _csr(starts: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    _say_nothing()
    return torch.sparse_csr_tensor(starts, columns, values, size, check_invariants=False)


@functools.cache
def _say_nothing() -> None:
    """PyTorch says once in a process that compressed rows are in beta state; that is nothing for a person to fix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.eye(1).to_sparse_csr()


# --- what layers are made of --------------------------------------------------------------------------------------

# Sees the coefficients of the edges, (heads, E) in the order of the pattern, whose first head is the number after, and
# gives those that the layer is to use.
EdgeHook = Callable[[Tensor, Pattern, int], Tensor]


class MessagePassing(nn.Module):
    """A layer that sends messages along edges. A layer derived from it, which hands its coefficients to `hooked`
    before it uses them, can be looked into and intervened on (`cutaway.inspect`): nothing there knows it by name."""

    heads: int = 0  # of attention over the edges; 0 where there are none to choose from

    def __init__(self) -> None:
        super().__init__()
        self.edge_hook: EdgeHook | None = None  # there for as long as somebody looks inside

    def hooked(self, coefficients: Tensor, edges: Pattern, first: int = 0) -> Tensor:
        """The coefficients that are to be used, (heads, E), for those that were computed, whose first head is `first`:
        0 unless heads are computed some at a time."""
        return coefficients if self.edge_hook is None else self.edge_hook(coefficients, edges, first)

    def register_edge_hook(self, hook: EdgeHook) -> Callable[[], None]:
        """Have `hook` see what the hook before it gave, until what this gives is called; the last comes off first."""
        before = self.edge_hook

        def both(coefficients: Tensor, edges: Pattern, first: int) -> Tensor:
            return hook(coefficients if before is None else before(coefficients, edges, first), edges, first)

        self.edge_hook = both
        return lambda: setattr(self, "edge_hook", before)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Each value 0 with probability `p` and 1 / (1 − p) times itself otherwise, in training alone.

    PyTorch's own draws its random bits on one thread; this takes a fifth of its time on a CPU.
    """
    if not training or p == 0:
        return x
    kept = torch.rand(x.shape, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device).ge_(p)
    return x * kept.mul_(1 / (1 - p)).to(x.dtype)


def _same_features(x: Tensor, kept: tuple[Pattern, Tensor] | None) -> bool:
    """Whether features are those that this was made of: as many are not 0, and each of those is there. Where they were
    better dense, what they hold now is read from them anyway."""
    if kept is None:
        return True
    pattern, values = kept
    found = x.detach()[pattern.rows, pattern.columns]
    return torch.equal(found, values) and int(x.count_nonzero()) == len(values)


@functools.partial(_Kept, known=lambda x, made: made, same=_same_features)
def _sparse_features(x: Tensor) -> tuple[Pattern, Tensor] | None:
    """Features (V, F) as pattern and values where few of them are not 0; None where they are better dense."""
    if torch.compiler.is_exporting() or x.device.type not in CSR_ON or x.numel() < LEAST_FEATURES:
        return None
    if int(x.count_nonzero()) >= SPARSE_BELOW * x.numel():
        return None
    _say_nothing()
    rows = x.detach().to_sparse_csr()
    starts, columns = rows.crow_indices().to(torch.int32), rows.col_indices().to(torch.int32)
    return Pattern(starts, columns, x.shape[1]), rows.values()


class NodeLinear(nn.Linear):
    """x W^T + b with dropout on x, for features of nodes: (V, F) to (V, F').

    Where few features are not 0 (words of a document, say), they are multiplied as a sparse matrix, and dropout falls
    on those alone: a zero that is dropped stays 0, so that the distribution is the same.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__(in_features, out_features, bias)
        self.dropout = dropout

    def reset_parameters(self) -> None:
        """Glorot's uniform weights, and a bias of 0."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(V, F) to (V, F')."""
        found = None if x.requires_grad and torch.is_grad_enabled() else _sparse_features(x)
        if found is None:
            return nn.functional.linear(dropout(x, self.dropout, self.training), self.weight, self.bias)
        pattern, values = found
        y = product(dropout(values, self.dropout, self.training), pattern, self.weight.t())
        return y if self.bias is None else y + self.bias


def count_graphs(batch: Tensor) -> int:
    """How many graphs nodes are of, by the number of the graph of each, (V,): one more than the largest."""
    if torch.compiler.is_exporting():
        graphs: int = batch.max().item() + 1  # type: ignore[assignment]  # a symbol, which int() would fix
        torch._check(graphs > 0)  # type: ignore[no-untyped-call]
        return graphs
    return int(batch.max()) + 1 if len(batch) else 0


READS = ("mean", "max", "sum")


def read_out(x: Tensor, batch: Tensor, kind: str) -> Tensor:
    """The mean, maximum or sum over the nodes of each graph: (V, F) to (n, F), `batch` (V,) the graph of each node.

    n is one more than the largest number in `batch`; a graph without nodes among those reads as 0. Nothing is summed in
    16 bits.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    graphs = count_graphs(batch)
    if kind == "max":
        places = batch[:, None].expand_as(x)
        return x.new_zeros(graphs, x.shape[1]).scatter_reduce(0, places, x, "amax", include_self=False)
    total = x.new_zeros(graphs, x.shape[1]).index_add(0, batch, x)
    if kind == "sum":
        return total
    if torch.compiler.is_exporting():  # ONNX counts nothing
        counts = x.new_zeros(graphs).index_add(0, batch, torch.ones_like(x[:, 0]))
    else:
        counts = torch.bincount(batch, minlength=graphs).to(x.dtype)
    return total / counts.clamp(min=1)[:, None]
