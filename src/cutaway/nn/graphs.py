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

from ..core.errors import InputShapeError, check_value
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

    Entries are sorted by target, then by source, so sums do not depend on the order of the edges. The result is cached
    for as long as the tensor `edges` exists and is unchanged.

    Args:
        edges: Edges, shape (2, E), int64 or int32: sources in the first row, targets in the second.
        nodes: Number of nodes.
        loops: Whether each node gets exactly one self-loop, also where the graph has none or several: A + I.

    Returns:
        The sparsity pattern, a `CSRPattern` of `cutaway.nn.sparse`. Its `rows` are the targets and its `columns` the
        sources of the entries. Its `order` is the index in `edges` of each entry, shape (E,), or None with `loops`.

    Raises:
        InputShapeError: If the edges have another shape or type, or refer to a node that does not exist.

    Example:
        >>> edges = torch.tensor([[0, 0, 1], [1, 2, 2]])  # 0 → 1, 0 → 2, 1 → 2
        >>> pattern = build_adjacency(edges, nodes=3, loops=False)
        >>> pattern.rows.tolist(), pattern.columns.tolist()
        ([1, 2, 2], [0, 0, 1])
        >>> build_adjacency(edges, nodes=3, loops=True).degrees(torch.float32)
        tensor([1., 2., 3.])
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
    """Return the type in which messages are summed over edges: that of x, but at least float32.

    Args:
        x: The messages, any shape.

    Returns:
        float32, or float64 if x has that type.

    Example:
        >>> sum_dtype(torch.ones(3, dtype=torch.bfloat16)), sum_dtype(torch.ones(3, dtype=torch.float64))
        (torch.float32, torch.float64)
    """
    return torch.promote_types(x.dtype, torch.float32)


def spmm(values: Tensor, pattern: CSRPattern, x: Tensor) -> Tensor:
    """Multiply a sparse matrix by a dense one. Differentiable in both.

    Args:
        values: Values of the entries, in the order of the pattern, shape (E,).
        pattern: Sparsity pattern of the matrix, (n, m).
        x: Dense matrix, shape (m, F).

    Returns:
        The product, shape (n, F), in at least float32, also within autocast.

    Example:
        >>> pattern = build_adjacency(torch.tensor([[0, 0, 1], [1, 2, 2]]), nodes=3, loops=False)
        >>> x = torch.tensor([[1.0], [10.0], [100.0]])
        >>> spmm(torch.ones(3), pattern, x)  # node 2 receives x₀ + x₁
        tensor([[ 0.],
                [ 1.],
                [11.]])
    """
    dtype = torch.promote_types(torch.promote_types(values.dtype, x.dtype), torch.float32)
    with torch.autocast(x.device.type, enabled=False):  # sparse products do not support 16-bit types
        y: Tensor = _Product.apply(values.to(dtype), x.to(dtype), pattern)  # type: ignore[no-untyped-call]
        return y


def edge_scores(of_targets: Tensor, of_sources: Tensor, pattern: CSRPattern) -> Tensor:
    """Return the sum of a score of the target and a score of the source for each edge, s_i + t_j for the entry (i, j).

    Args:
        of_targets: s, shape (n,).
        of_sources: t, shape (m,).
        pattern: Sparsity pattern of the matrix, (n, m).

    Returns:
        Scores in the order of the pattern, shape (E,), in at least float32.

    Example:
        >>> pattern = build_adjacency(torch.tensor([[0, 0, 1], [1, 2, 2]]), nodes=3, loops=False)
        >>> edge_scores(torch.tensor([0.0, 10.0, 20.0]), torch.tensor([1.0, 2.0, 3.0]), pattern)
        tensor([11., 21., 22.])
    """
    dtype = torch.promote_types(of_targets.dtype, torch.float32)
    with torch.autocast(of_targets.device.type, enabled=False):
        s, t = of_targets.to(dtype), of_sources.to(dtype)
        scores: Tensor = _EdgeScores.apply(s, t, pattern)  # type: ignore[no-untyped-call]
        return scores


def edge_softmax(scores: Tensor, pattern: CSRPattern) -> Tensor:
    """Return the softmax over the entries of each row, exp(s_ij) / Σ_j exp(s_ij), without overflow.

    Args:
        scores: Scores of the entries, in the order of the pattern, shape (E,).
        pattern: Sparsity pattern of the matrix.

    Returns:
        Weights, shape (E,), in at least float32. Those of the entries of one row, the edges to one node, sum to 1.

    Example:
        >>> pattern = build_adjacency(torch.tensor([[0, 0, 1], [1, 2, 2]]), nodes=3, loops=False)
        >>> edge_softmax(torch.zeros(3), pattern)  # node 1 has one incoming edge, node 2 has two
        tensor([1.0000, 0.5000, 0.5000])
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

    A subclass passes its coefficients through `apply_edge_hook` before it uses them, as `propagate` and `aggregate` do.
    The tools of `cutaway.inspect` can then read them and intervene on them, without knowing the subclass by name.

    Attributes:
        heads: Number of attention heads over the edges; 0 for a layer without heads.
        edge_hook: The registered hook; None without one.

    Example:
        >>> class MeanConv(MessagePassing):
        ...     def forward(self, x, edge_index):
        ...         edges = build_adjacency(edge_index, len(x), loops=True)
        ...         weights = 1 / edges.degrees(x.dtype)[edges.rows]
        ...         return self.propagate(edges, weights, x)
        >>> MeanConv()(torch.tensor([[0.0], [6.0]]), torch.tensor([[0], [1]]))  # 0 → 1
        tensor([[0.],
                [3.]])
    """

    heads: int = 0  # attention heads over the edges; 0 for a layer without heads

    def __init__(self) -> None:
        super().__init__()
        self.edge_hook: EdgeHook | None = None  # set while a hook is registered

    def apply_edge_hook(self, coefficients: Tensor, edges: CSRPattern, first: int = 0) -> Tensor:
        """Pass the coefficients through the registered hook. Without one they are returned unchanged.

        Args:
            coefficients: Coefficients of the edges in the order of the pattern, shape (heads, E). A layer without heads
                has one row.
            edges: Sparsity pattern of the graph.
            first: Index of the first head: 0 unless heads are computed in groups.

        Returns:
            The coefficients that the layer uses, shape (heads, E).
        """
        return coefficients if self.edge_hook is None else self.edge_hook(coefficients, edges, first)

    def propagate(self, edges: CSRPattern, weights: Tensor, x: Tensor) -> Tensor:
        """Sum the weighted neighbors of each node, y_i = Σ_{j → i} a_ij x_j.

        Args:
            edges: Sparsity pattern of the graph.
            weights: a of each edge in the order of the pattern, shape (E,). They pass through the hook.
            x: Node features, shape (V, F).

        Returns:
            The sums, shape (V, F), in at least float32.
        """
        return spmm(self.apply_edge_hook(weights[None], edges)[0], edges, x)

    def aggregate(self, edges: CSRPattern, messages: Tensor) -> Tensor:
        """Sum the messages at the target of each edge. The hook receives a coefficient of 1 for each.

        Args:
            edges: Sparsity pattern of the graph.
            messages: Messages in the order of the pattern, shape (E, F).

        Returns:
            The sums, shape (V, F), in at least float32.
        """
        ones = self.apply_edge_hook(edges.ones(sum_dtype(messages))[None], edges)[0]
        return spmm(ones, edges.incidence, messages)

    def register_edge_hook(self, hook: EdgeHook) -> Callable[[], None]:
        """Register a hook. It receives the coefficients that the hooks before it return.

        Args:
            hook: Maps coefficients (heads, E), the pattern and the index of the first head to new coefficients.

        Returns:
            A function that removes the hook. Remove hooks in the reverse order of their registration.
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

    The distribution is that of `F.dropout`. On a CPU this function is faster, because it draws uniform numbers instead
    of Bernoulli numbers.

    Args:
        x: Input, any shape.
        p: Dropout probability, at least 0 and below 1.
        training: Whether to apply dropout. If False, x is returned.

    Returns:
        The output, of the shape of x.

    Raises:
        ConfigError: If p is negative, or at least 1.

    Example:
        >>> dropout(torch.ones(1000), p=0.5, training=True).unique()
        tensor([0., 2.])
        >>> dropout(torch.ones(3), p=0.5, training=False)
        tensor([1., 1., 1.])
    """
    check_value(0 <= p < 1, "p", p, "at least 0 and below 1")
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
    """Linear layer for node features with dropout on its input, x Wᵀ + b: (V, F) to (V, F').

    Where few features are nonzero, as in bag-of-words features, they are multiplied as a sparse matrix. Dropout then
    acts on the nonzeros only. A dropped zero stays 0, so the distribution is the same.

    Args:
        in_features: Number of features F of a node.
        out_features: Number of outputs F'.
        bias: Whether there is a bias b.
        dropout: Dropout probability of x, at least 0 and below 1, in training only.

    Example:
        >>> layer, x = NodeLinear(1000, 16, dropout=0.5).eval(), torch.eye(1000)
        >>> layer(x).shape
        torch.Size([1000, 16])
        >>> torch.allclose(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias), atol=1e-6)
        True
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
        """Apply dropout and the linear layer.

        Args:
            x: Node features, shape (V, F).

        Returns:
            Outputs, shape (V, F').
        """
        found = None if x.requires_grad and torch.is_grad_enabled() else _sparse_features(x)
        if found is None:
            return nn.functional.linear(dropout(x, self.dropout, self.training), self.weight, self.bias)
        pattern, values = found
        y = spmm(dropout(values, self.dropout, self.training), pattern, self.weight.t())
        return y if self.bias is None else y + self.bias


def count_graphs(batch: Tensor) -> int:
    """Return the number of graphs of a batch: one more than the largest graph index.

    Args:
        batch: Graph index of each node, shape (V,).

    Returns:
        The number of graphs; 0 without nodes.
    """
    if torch.compiler.is_exporting():
        graphs: int = batch.max().item() + 1  # type: ignore[assignment]  # a symbol, which int() would fix
        torch._check(graphs > 0)  # type: ignore[no-untyped-call]
        return graphs
    return int(batch.max()) + 1 if len(batch) else 0


READS = ("mean", "max", "sum")


def global_pool(x: Tensor, batch: Tensor | None, kind: str) -> Tensor:
    """Pool the nodes of each graph by mean, maximum or sum.

    Args:
        x: Node features, shape (V, F).
        batch: Graph index of each node, shape (V,). None: all nodes belong to one graph.
        kind: "mean", "max" or "sum".

    Returns:
        Features of the graphs, shape (n, F), in at least float32. n is one more than the largest number in `batch`. A
        graph without nodes gets 0.

    Raises:
        ConfigError: If `kind` is another word.

    Example:
        >>> x = torch.tensor([[1.0, 8.0], [3.0, 4.0], [5.0, 6.0]])
        >>> batch = torch.tensor([0, 0, 1])  # two nodes in graph 0, one in graph 1
        >>> global_pool(x, batch, "mean")
        tensor([[2., 6.],
                [5., 6.]])
        >>> global_pool(x, None, "max")
        tensor([[5., 8.]])
    """
    check_value(kind in ("mean", "max", "sum"), "kind", kind, "mean, max or sum")
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
    """Return the features of some nodes, or of both ends of pairs of nodes.

    Args:
        h: Node features, shape (V, F).
        rows: Node indices, shape (n,), or pairs of them, shape (n, 2). It may be empty. None: all nodes.

    Returns:
        The features, shape (n, F), (n, 2, F) or (V, F).
    """
    if rows is None:
        return h
    rows = rows if rows.dtype == torch.int32 else rows.long()  # torch.tensor([]) is not an integer tensor
    return h.index_select(0, rows.flatten()).view(*rows.shape, *h.shape[1:])


def edge_features_in_order(name: str, edge_attr: Tensor | None, edges: CSRPattern, edge_features: int) -> Tensor | None:
    """Return the edge features in the order of the pattern.

    Args:
        name: Name of the model, for the message.
        edge_attr: Edge features, shape (E, D). None without any.
        edges: Sparsity pattern of the graph.
        edge_features: Number of features D that the model takes; 0 if it takes none.

    Returns:
        The features, shape (E, D). None if the model takes none.

    Raises:
        InputShapeError: If the edges do not have `edge_features` features each.
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
    """Link decoder without parameters: the logit of a pair of nodes is z_i · z_j.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]])  # embeddings of three nodes
        >>> pairs = torch.tensor([[0, 1], [1, 2]])
        >>> DotProduct()(z[pairs])
        tensor([[2.],
                [3.]])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, ends: Tensor) -> Tensor:
        """Compute the logits of pairs of nodes.

        Args:
            ends: Embeddings of both ends of each pair, shape (n, 2, d).

        Returns:
            Logits, shape (n, 1).
        """
        return (ends[:, 0] * ends[:, 1]).sum(1, keepdim=True)

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute the logits of every node of `a` with every node of `b`.

        Args:
            a: Embeddings of nodes, shape (n, d).
            b: Embeddings of nodes, shape (m, d).

        Returns:
            Logits, shape (n, m).
        """
        return a @ b.t()


class Bilinear(nn.Module):
    """Link decoder with a matrix W: the logit of a pair of nodes is z_iᵀ ½ (W + Wᵀ) z_j.

    W is initialized with Glorot's uniform distribution.

    Args:
        dim: Features d of an embedding.

    Example:
        >>> decoder, z = Bilinear(8), torch.randn(3, 8)
        >>> scores = decoder.between(z, z)
        >>> scores.shape, torch.allclose(scores, scores.T, atol=1e-5)  # pairs are unordered
        (torch.Size([3, 3]), True)
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, dim))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, ends: Tensor) -> Tensor:
        """Compute the logits of pairs of nodes.

        Args:
            ends: Embeddings of both ends of each pair, shape (n, 2, d).

        Returns:
            Logits, shape (n, 1).
        """
        first, second = ends.unbind(1)
        return (first @ self._symmetric() * second).sum(1, keepdim=True)

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute the logits of every node of `a` with every node of `b`.

        Args:
            a: Embeddings of nodes, shape (n, d).
            b: Embeddings of nodes, shape (m, d).

        Returns:
            Logits, shape (n, m).
        """
        return a @ self._symmetric() @ b.t()

    def _symmetric(self) -> Tensor:
        return (self.weight + self.weight.t()) / 2


def link_decoder(kind: str, dim: int) -> DotProduct | Bilinear:
    """Return the link decoder with the given name.

    Args:
        kind: "dot" or "bilinear".
        dim: Features of an embedding.

    Returns:
        A new decoder.
    """
    return Bilinear(dim) if kind == "bilinear" else DotProduct()


def decode_links(z: Tensor, rows: Tensor | None, decoder: nn.Module) -> Tensor:
    """Return the logits of pairs of nodes, or the embeddings of nodes.

    Args:
        z: Node embeddings, shape (V, d).
        rows: Pairs of nodes, shape (n, 2), or nodes, shape (n,). None: all nodes.
        decoder: Link decoder.

    Returns:
        Logits of the pairs, shape (n, 1). For nodes, their embeddings, shape (n, d) or (V, d).
    """
    ends = index_nodes(z, rows)
    if rows is None or rows.ndim != 2:
        return ends
    logits: Tensor = decoder(ends)
    return logits
