"""Near duplicates: examples that lie far nearer to one of an earlier split than examples of this data do by chance.

Of k neighbours in m dimensions, at distances d₁ ≤ … ≤ d_k, chance puts the first so near with probability

    P(d₁ / d_k ≤ r) = 1 − (1 − r^m)^(k−1)

where points lie evenly (E. Facco et al., Estimating the intrinsic dimension of datasets, 2017, for k = 2). m is
estimated from these distances (E. Levina, P. Bickel, 2004), and the probability is held to ALPHA over all examples.
Rows are looked at a second time, by `jittered`; images by `images`, and a third time by `aligned`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..dataset_base import DataSet, TensorSplit
from ..findings import Finding
from . import image_copies, noisy_copies, transformed_copies
from .duplicates import near_note
from .embeddings import Seen, sample
from .image_patches import ZOOMS, Patches, patches

NEIGHBORS = 10  # that are looked at; chance speaks of the first LAST
LAST = 5
ALPHA = 0.01
BY_CHANCE = 0.0003  # of the examples: no score hangs on fewer, and data is less even than the formula has it
RATIO = {"image": 0.35, "audio": 0.25}  # d₁ / d_k from which on examples are no duplicates, whatever chance says
OTHER_RATIO = 0.1
PATCHED = 2000  # images of a later split whose patches are looked for
QUERIES = 20_000  # examples of later splits that are held against all earlier ones
EXACT = 20_000_000  # distances that are all computed; of more pairs a tree finds the neighbours
COMPONENTS, SLACK = 8, 1.0  # principal components that the tree stands in; by how much it may err, relatively
SAME = 1e-6
CONTINUOUS, DISTINCT = 4, 20  # columns that a table needs, with more values than that, for near to mean something
WHAT = {"table": "rows", "image": "images", "audio": "recordings", "series": "series"}


def continuous(data: DataSet) -> npt.NDArray[np.bool_]:
    """Which inputs of a table are numbers of many values, (F,); empty for other kinds."""
    split = data.splits["train"]
    if data.spec.kind != "table" or not isinstance(split, TensorSplit):
        return np.zeros(0, bool)
    return np.array([len(column[:4096].unique()) > DISTINCT for column in split.inputs.T])


def near(seen: Mapping[str, Seen], kind: str, numbers: npt.NDArray[np.bool_]) -> Finding | None:
    """A finding where examples of val or test nearly equal one of an earlier split. Those that equal one in every
    input are duplicates, and were told of already."""

    if kind == "table" and numbers.sum() < CONTINUOUS:
        return None
    pairs: list[tuple[str, str]] = []
    looked: dict[str, int] = {}
    counts: dict[str, int] = {}
    earlier: list[str] = []
    for split, own in seen.items():
        before = [(home, i) for home in earlier for i in range(len(seen[home].rows))]
        if len(before) > NEIGHBORS:
            rows = sample(len(own.rows), QUERIES)
            hits, places = _too_near(own, rows, [seen[home] for home in earlier], kind, torch.from_numpy(~numbers))
            looked[split], counts[split] = len(rows), len(hits)
            for hit, place in zip(rows[hits].tolist(), places.tolist()):
                home, i = before[place]
                pairs.append((f"{own.name(hit)} ({split})", f"{seen[home].name(i)} ({home})"))
        earlier.append(split)
    if len(pairs) <= BY_CHANCE * sum(looked.values()):
        return None
    return near_note(pairs, counts, looked, WHAT[kind], "nearly equal", grouped=kind == "table")


def _too_near(own: Seen, rows: Tensor, earlier: list[Seen], kind: str, kinds: Tensor) -> tuple[Tensor, Tensor]:
    """Which of `rows` are nearer to an example of earlier splits than by chance, and to which of these; they are equal
    in the inputs `kinds`."""
    queries, points = own.vectors[rows], torch.cat([one.vectors for one in earlier])
    distances, numbers = neighbors(queries, points, NEIGHBORS)
    first, last = distances[:, 0], distances[:, LAST - 1].clamp_min(1e-12)
    apart = first > SAME
    if not apart.any():
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    logs = torch.log(last[apart, None] / distances[apart, : LAST - 1].clamp_min(1e-9))
    dimensions = 1 / logs.mean(1).median().clamp_min(1e-3)
    r = first / last
    chance = 1 - (1 - r.clamp(max=1) ** dimensions) ** (LAST - 1)
    hit = apart & (r <= RATIO.get(kind, OTHER_RATIO)) & (chance * len(queries) <= ALPHA)
    place = numbers[:, 0]
    if len(kinds):
        hit &= (queries[:, kinds] == points[place][:, kinds]).all(1)
        noisy, source = noisy_copies.copies(queries, points, ~kinds)
        place = torch.where(noisy, source, place)
        hit |= apart & noisy
    if kind == "image":
        filtered, which = image_copies.copies(own.small[rows], torch.cat([one.small for one in earlier]), numbers, r)
        moved, source = _moved(own, rows, earlier)
        place = torch.where(hit, place, torch.where(filtered, which, source))
        hit |= apart & (filtered | moved)
    return hit.nonzero()[:, 0], place[hit]


def _moved(own: Seen, rows: Tensor, earlier: list[Seen]) -> tuple[Tensor, Tensor]:
    """Which images of `rows` are copies of an image of earlier splits that were moved or cropped, and of which."""
    if own.grey.shape[-1] < transformed_copies.SMALLEST:
        return torch.zeros(len(rows), dtype=torch.bool), torch.zeros_like(rows)
    queries, points = own.grey[rows], torch.cat([one.grey for one in earlier])
    starts = np.cumsum([0, *(len(one.rows) for one in earlier)])
    held = [one.patches._replace(image=one.patches.image + int(start)) for one, start in zip(earlier, starts)]
    asked = patches(queries, sample(len(rows), PATCHED), ZOOMS)
    return transformed_copies.copies(queries, points, asked, Patches(*map(torch.cat, zip(*held))))


def neighbors(queries: Tensor, points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The distances (n, k) of queries (n, F) to the nearest of points (N, F), in order, and their numbers. Of many,
    they are nearly the nearest: what is much nearer than all others is surely among them."""
    k = min(k, len(points))
    if len(queries) * len(points) > EXACT:
        return _in_order(queries, points, _in_tree(queries, points, k))
    squares = points.square().sum(1)
    found = []
    for some in torch.split(queries, 256):
        far = squares - 2 * some @ points.T  # (n, N): the square of the distance, less what is the same in each row
        found.append(far.topk(k, largest=False).indices)
    return _in_order(queries, points, torch.cat(found))


def _in_tree(queries: Tensor, points: Tensor, k: int) -> Tensor:
    """The numbers (n, k) of points near each query in the principal components of the points."""
    from scipy.spatial import KDTree

    mean = points.mean(0)
    axes = torch.linalg.svd(points[sample(len(points), 4096)] - mean, full_matrices=False).Vh[:COMPONENTS].T
    tree = KDTree(((points - mean) @ axes).numpy())
    return torch.from_numpy(tree.query(((queries - mean) @ axes).numpy(), k=k, eps=SLACK)[1])


def _in_order(queries: Tensor, points: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The distances (n, k), computed from the differences, since what is near cancels in a product; and the numbers."""
    found = []
    for some, own in zip(torch.split(queries, 1024), torch.split(numbers, 1024)):
        ordered, order = (some[:, None] - points[own]).double().norm(dim=-1).sort(1)
        found.append((ordered, own.gather(1, order)))
    return torch.cat([d for d, _ in found]), torch.cat([i for _, i in found])
