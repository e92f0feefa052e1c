"""Sparse sums over the edges of a graph: memory grows with the edges, never with the square of the nodes.

A graph consists of node features x (V, F) and edges (2, E) int64, from sources `edges[0]` to targets `edges[1]`. A
layer computes a sum over the incoming edges of each node:

    y_i = Σ_{j → i} a_ij x_j            y = A x,  A (V, V) in compressed rows (CSR), one entry for each edge

Entries are sorted by target. The gradient of x is Aᵀ ∂y with the actual transpose, so it is correct for directed graphs
too. The gradient of a_ij is ∂y_i · x_j, computed only at the edges. An edge that is listed twice is two entries, as is
common. Results that depend on the graph alone (sorting, weights) are cached for as long as the tensor of edges exists
and is unchanged. NumPy can write to the tensor without a trace, so its content is compared on each call, which costs
far less than a new computation.

Link decoders: symmetric scores of pairs of nodes, computed from node embeddings.

    dot        s_ij = z_i · z_j                          T. N. Kipf, M. Welling, 2016 <https://arxiv.org/abs/1611.07308>
    bilinear   s_ij = z_iᵀ ½ (W + Wᵀ) z_j                W (d, d) is learned, and used as its symmetric part

σ(s_ij) is the probability of a link. Pairs are unordered, and an asymmetric matrix would give two scores for one pair.
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

from ..core.errors import InputShapeError
from .sparse import COOPattern, row_offsets
from .sparse import CSRPattern as CSRPattern

CSR_ON = ("cpu", "cuda")  # devices with sparse matrix products; on others the terms are gathered and summed
SPARSE_BELOW = 0.1  # fraction of nonzero features from which on they are multiplied as a dense matrix
LEAST_FEATURES = 1 << 14  # a smaller feature matrix is always treated as dense
MAX_NNZ = 1 << 22  # largest number of entries of the heads that are computed in one product

Made = TypeVar("Made")


class _TensorCache(Generic[Made]):
    """A cache of results for a tensor, valid for as long as the tensor exists and is unchanged."""

    def __init__(
        self, make: Callable[..., Made], known: Callable[[Tensor, Made], Any], same: Callable[[Tensor, Any], bool]
    ) -> None:
        """Create an empty cache.

        Args:
            make: Computes the result.
            known: Returns a snapshot of the tensor's content.
            same: Returns whether the tensor still has the stored content.
        """
        self._make, self._known, self._same = make, known, same
        self._made: dict[tuple[Any, ...], tuple[weakref.ref[Tensor], int, Any, Made]] = {}

    def __call__(self, tensor: Tensor, *rest: Any) -> Made:
        if tensor.is_inference() or torch.compiler.is_exporting():  # such tensors do not record writes
            return self._make(tensor, *rest)
        key = (id(tensor), *rest)
        kept = self._made.get(key)
        if kept is not None and kept[0]() is tensor and kept[1] == tensor._version and self._same(tensor, kept[2]):
            return kept[3]
        with torch.inference_mode(False), torch.no_grad():  # so that cached results can be used in training later
            made = self._make(tensor, *rest)
            known = self._known(tensor, made)
        gone = weakref.ref(tensor, lambda _: self._made.pop(key, None))
        self._made[key] = (gone, tensor._version, known, made)
        return made


def build_adjacency(edges: Tensor, nodes: int, loops: bool) -> CSRPattern:
    """Build the adjacency matrix (nodes, nodes) of a graph, with an entry (i, j) for each edge from j to i.

    The order of the edges does not change any digit of results.

    Args:
        edges: Edges, shape (2, E), int64 or int32.
        nodes: Number of nodes.
        loops: Whether each node gets exactly one self-loop, also where the graph has none or several: A + I.

    Returns:
        The sparsity pattern.

    Raises:
        ModelError: If the edges have another shape or type, or refer to a node that does not exist.
    """
    return _cached_adjacency(edges, nodes, loops)


@functools.partial(_TensorCache, known=lambda edges, made: edges.clone(), same=torch.equal)
def _cached_adjacency(edges: Tensor, nodes: int, loops: bool) -> CSRPattern:
    """Build the adjacency matrix, or return that of the last call with these edges, unless they have changed."""
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype not in (torch.int64, torch.int32):
        raise InputShapeError(
            f"Edges are whole numbers of shape (2, E), sources above targets, and these are {edges.dtype} of shape "
            f"{tuple(edges.shape)}."
        )
    sources, targets = edges.long()
    if torch.compiler.is_exporting():  # the values of the edges are unknown
        return _coo_adjacency(sources, targets, nodes, loops)
    if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= nodes):
        wrong = int(((edges < 0) | (edges >= nodes)).any(0).nonzero()[0])
        raise InputShapeError(
            f"Edge {wrong} leads from node {int(sources[wrong])} to node {int(targets[wrong])}, and nodes are numbered "
            f"from 0 to {nodes - 1}."
        )
    if loops:
        apart, every = sources != targets, torch.arange(nodes, device=edges.device)
        sources, targets = torch.cat([sources[apart], every]), torch.cat([targets[apart], every])
    order = (targets * nodes + sources).argsort(stable=True)
    return CSRPattern(row_offsets(targets, nodes), sources[order].to(torch.int32), nodes, None if loops else order)


def _coo_adjacency(sources: Tensor, targets: Tensor, nodes: int, loops: bool) -> COOPattern:
    if loops:
        apart, every = sources != targets, torch.arange(nodes, device=sources.device)
        sources, targets = torch.cat([sources[apart], every]), torch.cat([targets[apart], every])
    return COOPattern(targets, sources, nodes, nodes)


def build_membership(batch: Tensor, graphs: int) -> CSRPattern:
    """Build the matrix (graphs, V) that has an entry for each node, in the row of its graph.

    Args:
        batch: Graph index of each node, shape (V,).
        graphs: Number of graphs.

    Returns:
        The sparsity pattern.
    """
    if torch.compiler.is_exporting():
        return COOPattern(batch, torch.arange(batch.shape[0], device=batch.device), graphs, batch.shape[0])
    return CSRPattern(row_offsets(batch, graphs), batch.argsort(stable=True).to(torch.int32), len(batch))


def sum_dtype(x: Tensor) -> torch.dtype:
    """Return the type of sums over edges: that of x, but at least float32."""
    return torch.promote_types(x.dtype, torch.float32)


def spmm(values: Tensor, pattern: CSRPattern, x: Tensor) -> Tensor:
    """Multiply a sparse matrix by a dense one. Differentiable in both.

    Args:
        values: Values of the entries, shape (E,).
        pattern: Sparsity pattern of the matrix, (n, m).
        x: Dense matrix, shape (m, F).

    Returns:
        The product, shape (n, F).
    """
    dtype = torch.promote_types(torch.promote_types(values.dtype, x.dtype), torch.float32)
    with torch.autocast(x.device.type, enabled=False):  # sparse products do not support 16-bit types
        y: Tensor = _Product.apply(values.to(dtype), x.to(dtype), pattern)  # type: ignore[no-untyped-call]
        return y


def edge_scores(of_targets: Tensor, of_sources: Tensor, pattern: CSRPattern) -> Tensor:
    """Return s_i + t_j for each entry (i, j).

    Args:
        of_targets: s, shape (n,).
        of_sources: t, shape (m,).
        pattern: Sparsity pattern of the matrix, (n, m).

    Returns:
        Scores, shape (E,).
    """
    dtype = torch.promote_types(of_targets.dtype, torch.float32)
    with torch.autocast(of_targets.device.type, enabled=False):
        s, t = of_targets.to(dtype), of_sources.to(dtype)
        scores: Tensor = _EdgeScores.apply(s, t, pattern)  # type: ignore[no-untyped-call]
        return scores


def edge_softmax(scores: Tensor, pattern: CSRPattern) -> Tensor:
    """Return the softmax over the entries of each row, exp(s_ij) / Σ_j exp(s_ij), without overflow.

    Args:
        scores: Scores of the entries, shape (E,).
        pattern: Sparsity pattern of the matrix.

    Returns:
        Weights, shape (E,).
    """
    with torch.autocast(scores.device.type, enabled=False):
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        weights: Tensor = _EdgeSoftmax.apply(wide, pattern)  # type: ignore[no-untyped-call]
        return weights


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, x: Tensor, pattern: CSRPattern) -> Tensor:
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
    def forward(ctx: Any, of_targets: Tensor, of_sources: Tensor, pattern: CSRPattern) -> Tensor:
        ctx.pattern = pattern
        return of_targets.index_select(0, pattern.rows).add_(of_sources.index_select(0, pattern.columns))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        across, order = ctx.pattern.transposed
        return _row_sums(ctx.pattern, grad), _row_sums(across, grad.index_select(0, order)), None


class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, pattern: CSRPattern) -> Tensor:
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


def _multiply(pattern: CSRPattern, values: Tensor, x: Tensor) -> Tensor:
    if isinstance(pattern, COOPattern):
        return pattern.sums(x.index_select(0, pattern.columns) * values[:, None])
    if x.device.type in CSR_ON:
        return _csr(pattern.starts, pattern.columns, values, (pattern.height, len(x))) @ x
    terms = x.index_select(0, pattern.columns) * values[:, None]
    return x.new_zeros(pattern.height, x.shape[1]).index_add_(0, pattern.rows, terms)


def _dots(pattern: CSRPattern, left: Tensor, right: Tensor) -> Tensor:
    """Return left_i · right_j for each entry (i, j), (E,): left (n, F), right (m, F)."""
    # PyTorch rejects more entries than the matrix has cells, which repeated edges in a tiny graph can have.
    if left.device.type in CSR_ON and len(pattern.columns) <= pattern.height * pattern.width:
        empty = left.new_zeros(len(pattern.columns))
        at = _csr(pattern.starts, pattern.columns, empty, (pattern.height, len(right)))
        dots: Tensor = torch.sparse.sampled_addmm(at, left, right.t(), beta=0.0).values()
        return dots
    return (left.index_select(0, pattern.rows) * right.index_select(0, pattern.columns)).sum(1)


def _row_sums(pattern: CSRPattern, values: Tensor) -> Tensor:
    """Return the sum of the values in each row, (n,)."""
    if isinstance(pattern, COOPattern):
        return pattern.sums(values)
    if values.device.type in CSR_ON:  # product with a matrix (n, E) of ones: several times as fast as a segmented sum
        ones = _csr(pattern.starts, pattern.entries, pattern.ones(values.dtype), (pattern.height, len(values)))
        return (ones @ values[:, None])[:, 0]
    return values.new_zeros(pattern.height).index_add_(0, pattern.rows, values)


def _row_max(pattern: CSRPattern, values: Tensor) -> Tensor:
    """Return the largest value of each row, (n,); −∞ for an empty row."""
    if isinstance(pattern, COOPattern):
        return pattern.largest(values)
    if values.device.type in CSR_ON:
        return torch.segment_reduce(values, "max", offsets=pattern.starts, axis=0)
    lowest = values.new_full((pattern.height,), -torch.inf)
    return lowest.scatter_reduce_(0, pattern.rows.long(), values, "amax")


def _csr(starts: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    _suppress_beta_warning()
    return torch.sparse_csr_tensor(starts, columns, values, size, check_invariants=False)


@functools.cache
def _suppress_beta_warning() -> None:
    """Suppress PyTorch's one-time warning that CSR tensors are in beta state, which users cannot act on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.eye(1).to_sparse_csr()


# --- building blocks of layers --------------------------------------------------------------------------------------

# Maps the coefficients of the edges, (heads, E) in the order of the pattern, and the index of their first head to the
# coefficients that the layer uses.
EdgeHook = Callable[[Tensor, CSRPattern, int], Tensor]


class MessagePassing(nn.Module):
    """Base class of layers that send messages along edges.

    A subclass passes its coefficients through `apply_edge_hook` before it uses them. The tools of `cutaway.inspect` can
    then read them and intervene on them, without knowing the subclass by name.
    """

    heads: int = 0  # attention heads over the edges; 0 for a layer without heads

    def __init__(self) -> None:
        super().__init__()
        self.edge_hook: EdgeHook | None = None  # set while a hook is registered

    def apply_edge_hook(self, coefficients: Tensor, edges: CSRPattern, first: int = 0) -> Tensor:
        """Pass the coefficients through the registered hook.

        Args:
            coefficients: Coefficients of the edges, shape (heads, E).
            edges: Sparsity pattern of the graph.
            first: Index of the first head: 0 unless heads are computed in groups.

        Returns:
            The coefficients that the layer uses, shape (heads, E).
        """
        return coefficients if self.edge_hook is None else self.edge_hook(coefficients, edges, first)

    def propagate(self, edges: CSRPattern, weights: Tensor, x: Tensor) -> Tensor:
        """Sum the weighted neighbours of each node, y_i = Σ_{j → i} a_ij x_j.

        Args:
            edges: Sparsity pattern of the graph.
            weights: a of each edge, shape (E,).
            x: Nodes, shape (V, F).

        Returns:
            The sums, shape (V, F).
        """
        return spmm(self.apply_edge_hook(weights[None], edges)[0], edges, x)

    def aggregate(self, edges: CSRPattern, messages: Tensor) -> Tensor:
        """Sum the messages at the target of each edge.

        Args:
            edges: Sparsity pattern of the graph.
            messages: Messages in the order of the pattern, shape (E, F).

        Returns:
            The sums, shape (V, F).
        """
        ones = self.apply_edge_hook(edges.ones(sum_dtype(messages))[None], edges)[0]
        return spmm(ones, edges.incidence, messages)

    def register_edge_hook(self, hook: EdgeHook) -> Callable[[], None]:
        """Register a hook that receives the coefficients after the hooks before it.

        Args:
            hook: Maps coefficients, pattern and index of the first head to new coefficients.

        Returns:
            A function that removes the hook. Hooks are removed in reverse order.
        """
        before = self.edge_hook

        def both(coefficients: Tensor, edges: CSRPattern, first: int) -> Tensor:
            return hook(coefficients if before is None else before(coefficients, edges, first), edges, first)

        self.edge_hook = both
        return lambda: setattr(self, "edge_hook", before)


def attend_in_groups(
    attend: Callable[[Tensor, Tensor, CSRPattern, int], Tensor], scores: Tensor, h: Tensor, edges: CSRPattern
) -> Tensor:
    """Run attention over edges for as many heads at once as the size of one sparse product allows.

    Args:
        attend: Maps the scores and nodes of some heads, the pattern and the index of the first head to (k, V, F).
        scores: Scores of the nodes, shape (heads, V, …).
        h: Nodes of each head, shape (heads, V, F).
        edges: Sparsity pattern of the graph.

    Returns:
        The results of all heads, shape (heads, V, F).
    """
    at_once = len(h)
    if not torch.compiler.is_exporting():  # where the number of edges is unknown
        at_once = max(1, min(len(h), MAX_NNZ // max(1, len(edges.columns))))
    groups = zip(torch.split(scores, at_once), torch.split(h, at_once))
    results = [attend(s, x, edges, k * at_once) for k, (s, x) in enumerate(groups)]
    return results[0] if len(results) == 1 else torch.cat(results)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Set each value to 0 with probability `p` and scale the others by 1 / (1 − p), in training only.

    PyTorch's own dropout draws its random bits on one thread. This function takes a fifth of its time on a CPU.

    Args:
        x: Input, any shape.
        p: Dropout probability.
        training: Whether to apply dropout.

    Returns:
        The output, of the shape of x.
    """
    if not training or p == 0:
        return x
    kept = torch.rand(x.shape, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device).ge_(p)
    return x * kept.mul_(1 / (1 - p)).to(x.dtype)


def _same_features(x: Tensor, kept: tuple[CSRPattern, Tensor] | None) -> bool:
    """Return whether the features are still those of the cached result: equal count and equal values of nonzeros.

    Features that are better treated as dense are read on each call and need no check.
    """
    if kept is None:
        return True
    pattern, values = kept
    found = x.detach()[pattern.rows, pattern.columns]
    return torch.equal(found, values) and int(x.count_nonzero()) == len(values)


@functools.partial(_TensorCache, known=lambda x, made: made, same=_same_features)
def _sparse_features(x: Tensor) -> tuple[CSRPattern, Tensor] | None:
    """Return pattern and values of features (V, F) with few nonzeros, or None if they are better treated as dense."""
    if torch.compiler.is_exporting() or x.device.type not in CSR_ON or x.numel() < LEAST_FEATURES:
        return None
    if int(x.count_nonzero()) >= SPARSE_BELOW * x.numel():
        return None
    _suppress_beta_warning()
    rows = x.detach().to_sparse_csr()
    starts, columns = rows.crow_indices().to(torch.int32), rows.col_indices().to(torch.int32)
    return CSRPattern(starts, columns, x.shape[1]), rows.values()


class NodeLinear(nn.Linear):
    """x Wᵀ + b with dropout on x, for node features: (V, F) to (V, F').

    Where few features are nonzero, as in bag-of-words features, they are multiplied as a sparse matrix. Dropout then
    acts on the nonzeros only. A dropped zero stays 0, so the distribution is the same.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__(in_features, out_features, bias)
        self.dropout = dropout

    def reset_parameters(self) -> None:
        """Initialize the weights with Glorot's uniform distribution, and the bias with 0."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (V, F) to (V, F')."""
        found = None if x.requires_grad and torch.is_grad_enabled() else _sparse_features(x)
        if found is None:
            return nn.functional.linear(dropout(x, self.dropout, self.training), self.weight, self.bias)
        pattern, values = found
        y = spmm(dropout(values, self.dropout, self.training), pattern, self.weight.t())
        return y if self.bias is None else y + self.bias


def count_graphs(batch: Tensor) -> int:
    """Return the number of graphs: one more than the largest graph index.

    Args:
        batch: Graph index of each node, shape (V,).

    Returns:
        The number of graphs.
    """
    if torch.compiler.is_exporting():
        graphs: int = batch.max().item() + 1  # type: ignore[assignment]  # a symbol, which int() would fix
        torch._check(graphs > 0)  # type: ignore[no-untyped-call]
        return graphs
    return int(batch.max()) + 1 if len(batch) else 0


READS = ("mean", "max", "sum")


def global_pool(x: Tensor, batch: Tensor | None, kind: str) -> Tensor:
    """Pool the nodes of each graph by mean, maximum or sum.

    A graph without nodes gets 0. Sums use at least 32 bits.

    Args:
        x: Node features, shape (V, F).
        batch: Graph index of each node, shape (V,); None if all nodes belong to one graph.
        kind: One of `READS`.

    Returns:
        Features of the graphs, shape (n, F), where n is one more than the largest number in `batch`.
    """
    if batch is None:
        batch = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
    x = x.to(sum_dtype(x))
    graphs = count_graphs(batch)
    if kind == "max":
        places = batch[:, None].expand_as(x)
        return x.new_zeros(graphs, x.shape[1]).scatter_reduce(0, places, x, "amax", include_self=False)
    total = x.new_zeros(graphs, x.shape[1]).index_add(0, batch, x)
    if kind == "sum":
        return total
    if torch.compiler.is_exporting():  # ONNX has no bincount
        counts = x.new_zeros(graphs).index_add(0, batch, torch.ones_like(x[:, 0]))
    else:
        counts = torch.bincount(batch, minlength=graphs).to(x.dtype)
    return total / counts.clamp(min=1)[:, None]


def index_nodes(h: Tensor, rows: Tensor | None) -> Tensor:
    """Return the rows of h at the nodes `rows` (n,), or at both ends of pairs (n, 2), (n, 2, F); all rows if None.

    `rows` may be empty.
    """
    if rows is None:
        return h
    rows = rows if rows.dtype == torch.int32 else rows.long()  # torch.tensor([]) is not an integer tensor
    return h.index_select(0, rows.flatten()).view(*rows.shape, *h.shape[1:])


def edge_features_in_order(name: str, edge_attr: Tensor | None, edges: CSRPattern, edge_features: int) -> Tensor | None:
    """Return the edge features (E, D) in the order of the pattern, or None if the model uses none.

    Raises ModelError if the edges do not have `edge_features` features each.
    """
    wanted = (edges.columns.shape[0], edge_features)
    if edge_features and (edge_attr is None or edge_attr.shape != wanted):
        given = "none are given" if edge_attr is None else f"these are {tuple(edge_attr.shape)}"
        raise InputShapeError(
            f"This {name} takes edges of {edge_features} features, edge_attr of shape {wanted}, and {given}: build one "
            "with other edge_features."
        )
    if not edge_features or edge_attr is None or edges.order is None:
        return None
    return edge_attr.index_select(0, edges.order)


# --- links ------------------------------------------------------------------------------------------------------------


DECODERS = ("none", "dot", "bilinear")


class DotProduct(nn.Module):
    """The decoder z_i · z_j."""

    def forward(self, ends: Tensor) -> Tensor:
        """Map both ends of each pair (n, 2, d) to logits (n, 1)."""
        return (ends[:, 0] * ends[:, 1]).sum(1, keepdim=True)

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the logits (n, m) of every node of a (n, d) with every node of b (m, d)."""
        return a @ b.t()


class Bilinear(nn.Module):
    """The decoder z_iᵀ ½ (W + Wᵀ) z_j, with Glorot's uniform initialization of W."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, dim))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, ends: Tensor) -> Tensor:
        """Map both ends of each pair (n, 2, d) to logits (n, 1)."""
        first, second = ends.unbind(1)
        return (first @ self._symmetric() * second).sum(1, keepdim=True)

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the logits (n, m) of every node of a (n, d) with every node of b (m, d)."""
        return a @ self._symmetric() @ b.t()

    def _symmetric(self) -> Tensor:
        return (self.weight + self.weight.t()) / 2


def link_decoder(kind: str, dim: int) -> DotProduct | Bilinear:
    """Return the decoder with the given name, for nodes (V, dim)."""
    return Bilinear(dim) if kind == "bilinear" else DotProduct()


def decode_links(z: Tensor, rows: Tensor | None, decoder: nn.Module) -> Tensor:
    """Return logits (n, 1) for pairs of nodes (n, 2), from embeddings z (V, d).

    For nodes (n,), and for all nodes if `rows` is None, the embeddings themselves are returned.
    """
    ends = index_nodes(z, rows)
    if rows is None or rows.ndim != 2:
        return ends
    logits: Tensor = decoder(ends)
    return logits
