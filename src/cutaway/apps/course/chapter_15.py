"""Exercises of chapter 15: graphs as matrices and edge lists, message passing, and its limits."""

from __future__ import annotations

import numpy as np

from .exercises import Answer, Array, Exercises, expect, same

EXERCISES = exercise = Exercises()

STAR = np.array([[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], dtype=float)
PATH = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]], dtype=float)
EDGES = np.array([[0, 1, 2, 2, 3, 3], [1, 2, 0, 1, 1, 1]])  # sources above targets; one edge occurs twice


@exercise(
    "adjacency(links, V)",
    "The adjacency matrix (V, V) of 0 and 1 of a graph of V nodes whose links, pairs of nodes, lead both ways. A "
    "link may be listed more than once, and counts once. The diagonal is 0.",
    level="easy",
)
def adjacency(answer: Answer) -> None:
    """Check that the matrix is symmetric, with entries of 1."""
    for links, V in (([(0, 1), (0, 2), (0, 3)], 4), ([(0, 1), (1, 2), (2, 1), (1, 2)], 5)):
        right, one_way, counted = np.zeros((V, V)), np.zeros((V, V)), np.zeros((V, V))
        for i, j in links:
            right[i, j] = right[j, i] = one_way[i, j] = 1
            counted[i, j] += 1
            counted[j, i] += 1
        wrong = (
            (one_way, "Links lead both ways: A is symmetric."),
            (one_way.T, "Links lead both ways: A is symmetric."),
            (counted, "A link that is listed again counts once."),
            (right + np.eye(V), "The loops come later: nobody is his own neighbour here."),
        )
        same(answer(list(links), V), right, f"For the links {links} of {V} nodes", wrong)


@exercise(
    "a_hat(A)",
    "Kipf and Welling's matrix Â = D^-½ (A + I) D^-½, (V, V), from the adjacency matrix A of a graph without "
    "loops; D are the degrees with the loops.",
    level="easy",
)
def a_hat(answer: Answer) -> None:
    """Check that self-loops come first, then the normalization by both degrees."""
    for name, A in (("a star of four nodes", STAR), ("a path of four nodes", PATH)):
        looped = A + np.eye(4)
        d, before = looped.sum(1), A.sum(1)
        wrong = (
            (looped / d[:, None], "That is the mean: divide by the root of both degrees."),
            (A / np.sqrt(np.outer(before, before)), "The loops are missing: Ã = A + I."),
            (np.eye(4) + A / np.sqrt(np.outer(before, before)), "The loop comes in before dividing, not after."),
            (looped / np.sqrt(np.outer(before, before)), "The degrees count the loops, too."),
            (looped / np.outer(d, d), "Divide by the *root* of the product of both degrees."),
            (looped * np.sqrt(np.outer(d, d)), "Divide by the roots of the degrees."),
        )
        same(answer(A.copy()), looped / np.sqrt(np.outer(d, d)), f"For {name}", wrong)


@exercise(
    "sums(x, edges)",
    "For each node the sum of x over those that send to it, (V, F): x (V, F), edges (2, E) from sources edges[0] "
    "to targets edges[1]; an edge that is listed twice counts twice. A node sends to itself only if an edge says "
    "so.",
    level="easy",
)
def sums(answer: Answer) -> None:
    """Check that messages add up if a target repeats."""
    x = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0]])
    right, back, last = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    np.add.at(right, EDGES[1], x[EDGES[0]])
    np.add.at(back, EDGES[0], x[EDGES[1]])
    last[EDGES[1]] += x[EDGES[0]]
    count = np.bincount(EDGES[1], minlength=4)[:, None]
    unique, once = np.unique(EDGES, axis=1), np.zeros_like(x)
    np.add.at(once, unique[1], x[unique[0]])
    wrong = (
        (last, "`y[targets] += …` keeps one of several edges to a node: np.add.at adds them all."),
        (back, "That runs against the edges: from edges[0] to edges[1]."),
        (right + x, "A node sends nothing to itself here, unless an edge says so."),
        (right / np.maximum(count, 1), "That is the mean: the sum is asked for."),
        (once, "An edge that is listed twice counts twice."),
    )
    given = x.copy()
    same(answer(given, EDGES.copy()), right, "For four nodes and six edges", wrong)
    expect(np.array_equal(given, x), "It changes the x that it was given.")


@exercise(
    "attention(s, t, edges)",
    "GAT's weight of each edge, (E,): exp of LeakyReLU(s of its target + t of its source), slope 0.2 below 0, over "
    "the sum of these for all edges to the same target.",
    level="medium",
)
def attention(answer: Answer) -> None:
    """Check the softmax over incoming edges."""
    s, t = np.array([0.5, -1.0, 2.0, 0.0]), np.array([1.0, -2.0, 0.25, -0.5])
    edges = EDGES[:, :5]

    def weights(scores: Array, by: Array) -> Array:
        e = np.exp(scores)
        found: Array = e / np.bincount(by, e, minlength=4)[by]
        return found

    def leaky(z: Array) -> Array:
        return np.where(z > 0, z, 0.2 * z)

    z = s[edges[1]] + t[edges[0]]
    wrong = (
        (weights(leaky(z), edges[0]), "The weights of what *comes to* a node sum to 1, not of what leaves it."),
        (weights(z, edges[1]), "The LeakyReLU is missing."),
        (weights(np.maximum(z, 0), edges[1]), "Below 0 a LeakyReLU has the slope 0.2."),
        (weights(leaky(s[edges[0]] + t[edges[1]]), edges[1]), "s is of the target, t of the source."),
        (np.exp(leaky(z)) / np.exp(leaky(z)).sum(), "The softmax is over the edges to one target, not over all edges."),
        (np.exp(leaky(z)), "Divide by the sum over all edges to the same target."),
    )
    same(answer(s.copy(), t.copy(), edges.copy()), weights(leaky(z), edges[1]), "For four nodes and five edges", wrong)


@exercise(
    "colours(neighbours, rounds)",
    "The number of colors of the nodes of a graph after this number of rounds of the Weisfeiler–Lehman test, which "
    "starts with one color; neighbours[i] is the list of node i's neighbors. A new color depends on the node's own "
    "color and on how many neighbors have each color.",
    level="medium",
)
def colours(answer: Answer) -> None:
    """Check that the new colour depends on the own colour and the multiset of neighbours' colours."""
    path = [[1], [0, 2], [1, 3], [2, 4], [3, 5], [4]]
    ring = [[1, 5], [0, 2], [1, 3], [2, 4], [3, 5], [4, 0]]
    # Three nodes of degree 3 in a row, with leaves: sets of colours are not enough, multisets are needed.
    counted = [[1, 2, 3], [0], [0], [0, 4, 5], [3], [3, 6], [5]]
    for name, near, rounds, right in (
        ("a path of six", path, 0, 1),
        ("a path of six", path, 1, 2),
        ("a path of six", path, 2, 3),
        ("a ring of six", ring, 3, 1),
        ("a tree of seven", counted, 1, 3),
        ("a tree of seven", counted, 3, _refined(counted, 3)),
    ):
        wrong = (
            (_refined(near, rounds + 1), "The first round gives what *one* look at the neighbours tells."),
            (len(near), "Nodes with equal stories have equal colours."),
            (_refined(near, rounds, multiset=False), "Neighbours are counted: two of a colour are not one."),
        )
        same(answer([list(n) for n in near], rounds), right, f"For {name}, after {rounds} rounds,", wrong)


def _refined(near: list[list[int]], rounds: int, multiset: bool = True) -> int:
    now = [0] * len(near)
    for _ in range(rounds):
        seen = [sorted(now[j] for j in js) if multiset else sorted({now[j] for j in js}) for js in near]
        stories = [(now[i], tuple(told)) for i, told in enumerate(seen)]
        names = {story: k for k, story in enumerate(dict.fromkeys(stories))}
        now = [names[story] for story in stories]
    return len(set(now))


@exercise(
    "triangles(A)",
    "How many triangles a graph has, from its symmetric adjacency matrix A without loops.",
    level="medium",
)
def triangles(answer: Answer) -> None:
    """Check closed walks of length three, divided by six."""
    full = np.ones((4, 4)) - np.eye(4)
    two = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))
    for name, A in (("all of four nodes linked", full), ("two triangles", two), ("a star", STAR)):
        walks = float(np.trace(A @ A @ A))
        wrong = (
            (walks, "Each triangle was counted six times: three places to begin, two directions."),
            (walks / 3, "Each triangle is gone round in two directions, too."),
            (walks / 2, "Each triangle was counted from each of its three nodes, too."),
            (float((A @ A @ A).sum()) / 6, "Only walks that come home went round: take the diagonal."),
        )
        same(answer(A.copy()), walks / 6, f"For {name}", wrong)
