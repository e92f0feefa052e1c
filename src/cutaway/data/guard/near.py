"""Near duplicates: examples that lie far nearer to one of an earlier split than examples of this data do by chance.

Of k neighbours in m dimensions, at distances d₁ ≤ … ≤ d_k, chance puts the first so near with probability

    P(d₁ / d_k ≤ r) = 1 − (1 − r^m)^(k−1)

where points lie evenly (E. Facco et al., Estimating the intrinsic dimension of datasets, 2017, for k = 2). m is
estimated from these distances (E. Levina, P. Bickel, 2004), and the probability is held to ALPHA over all examples.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..findings import Finding
from ..sets import DataSet, TensorSplit
from .seen import Seen, sample

NEIGHBORS = 5
ALPHA = 0.01
RATIO = {"image": 0.35}  # d₁ / d_k from which on examples are no duplicates, whatever chance says
OTHER_RATIO = 0.1
QUERIES = 2000  # examples of later splits that are held against all earlier ones
SAME = 1e-6
CONTINUOUS, DISTINCT = 4, 20  # columns that a table needs, with more values than that, for near to mean something
WHAT = {"table": "rows", "image": "images", "audio": "recordings", "series": "series"}


def continuous(data: DataSet) -> npt.NDArray[np.bool_]:
    """Which inputs of a table are numbers of many values, (F,); empty for other kinds."""
    split = data.splits["train"]
    if data.spec.kind != "table" or not isinstance(split, TensorSplit):
        return np.zeros(0, bool)
    return np.array([len(column[:4096].unique()) > DISTINCT for column in split.inputs.T])


def near(
    vectors: Mapping[str, Tensor], seen: Mapping[str, Seen], kind: str, numbers: npt.NDArray[np.bool_]
) -> list[Finding]:
    """A finding where examples of val or test nearly equal one of an earlier split. Those that equal one in every
    input are duplicates, and were told of already."""

    if kind == "table" and numbers.sum() < CONTINUOUS:
        return []
    pairs: list[tuple[str, str]] = []
    looked: dict[str, int] = {}
    counts: dict[str, int] = {}
    earlier: list[str] = []
    for split, own in vectors.items():
        if earlier and sum(len(vectors[s]) for s in earlier) > NEIGHBORS:
            rows = sample(len(own), QUERIES)
            before = torch.cat([vectors[s] for s in earlier])
            at = [(s, i) for s in earlier for i in range(len(vectors[s]))]
            hits, places = _too_near(own[rows], before, RATIO.get(kind, OTHER_RATIO), torch.from_numpy(~numbers))
            looked[split], counts[split] = len(rows), len(hits)
            for hit, place in zip(hits.tolist(), places.tolist()):
                home, i = at[place]
                pairs.append((f"{seen[split].name(int(rows[hit]))} ({split})", f"{seen[home].name(i)} ({home})"))
        earlier.append(split)
    return told(pairs, counts, looked, WHAT[kind], "nearly equal", grouped=kind == "table")


def told(
    pairs: list[tuple[str, str]],
    counts: Mapping[str, int],
    looked: Mapping[str, int],
    what: str,
    how: str,
    grouped: bool,
) -> list[Finding]:
    """A finding of examples that nearly equal one of an earlier split, `counts` of so many that were `looked` at in
    each; none where there are no pairs. `grouped`: whether a column can keep them together."""
    if not pairs:
        return []
    said = " and ".join(f"{k:,} of {looked[s]:,} {what} of {s}" for s, k in counts.items() if k)
    return [
        Finding(
            f"Near duplicates straddle the split: {said} that were looked at {how} one of an earlier split, for "
            f"example {'; '.join(' ≈ '.join(pair) for pair in pairs[:3])}. On them a score measures memory: remove the "
            f"copies, or keep them in one split{' (group=COLUMN)' if grouped else ''}.",
            pairs,
        )
    ]


def neighbors(queries: Tensor, points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The distances (n, k) of queries (n, F) to the nearest of points (N, F), in order, and their numbers."""
    squares = points.square().sum(1)
    found = []
    for some in torch.split(queries, 256):
        far = squares - 2 * some @ points.T  # (n, N): the square of the distance, less what is the same in each row
        numbers = far.topk(min(k, len(points)), largest=False).indices
        distances = (some[:, None] - points[numbers]).double().norm(dim=-1)  # exactly: what is near cancels above
        ordered, order = distances.sort(1)
        found.append((ordered, numbers.gather(1, order)))
    return torch.cat([d for d, _ in found]), torch.cat([i for _, i in found])


def _too_near(queries: Tensor, points: Tensor, ratio: float, kinds: Tensor) -> tuple[Tensor, Tensor]:
    """The queries that are nearer to a point than by chance, and that point; they are equal in the inputs `kinds`."""
    distances, numbers = neighbors(queries, points, NEIGHBORS)
    first, last = distances[:, 0], distances[:, -1].clamp_min(1e-12)
    apart = first > SAME
    if not apart.any():
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    logs = torch.log(last[apart, None] / distances[apart, :-1].clamp_min(1e-9))
    dimensions = 1 / logs.mean(1).median().clamp_min(1e-3)
    r = first / last
    chance = 1 - (1 - r.clamp(max=1) ** dimensions) ** (NEIGHBORS - 1)
    hit = apart & (r <= ratio) & (chance * len(queries) <= ALPHA)
    if len(kinds):
        hit &= (queries[:, kinds] == points[numbers[:, 0]][:, kinds]).all(1)
    return hit.nonzero()[:, 0], numbers[hit, 0]
