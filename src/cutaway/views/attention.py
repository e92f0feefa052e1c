"""Attention by layer and head, from the whole map to the arithmetic of one query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.spec import OF_TOKENS
from ..draw import charts
from ..draw.description import Drawing, Table, View, table
from ..draw.number_format import number, plural
from ..models.base import as_base_model
from .attention_capture import AttentionCapture, attention_modules, capture_attention, num_heads_by_name, single_example
from .common import evenly_spaced, parse_choice, parse_index
from .heads import Head, image_for, layer_drawings, summarize_layer
from .subject import Subject
from .token_labels import TokenPositions, token_positions

SAYS = "attention weights per layer and head, over tokens or patches, down to the arithmetic of one query"
READ = (
    "A row of a map is a query, a column a key; the shade is the attention weight, and each row sums to 1. Point at a "
    "token to see where it attends, or choose a head and read its matrix: a diagonal is a head that attends to the "
    "token itself or its neighbor, a column is a key that all queries attend to. Below, one query is followed from its "
    "vector to the output. Entropy measures how broad a head attends: 0 bits is one key, and each additional bit "
    "doubles their number."
)
MISLEADS = (
    "An attention weight is not an importance: values can be small, information takes other paths, and very different "
    "weights can give the same output (Jain and Wallace 2019, https://arxiv.org/abs/1902.10186; for a reply see "
    "Wiegreffe and Pinter 2019, https://arxiv.org/abs/1908.04626). After the first layer a position holds a mixture of "
    "many tokens (Brunner et al. 2020, https://arxiv.org/abs/1908.04211). Many heads attend to the first token or a "
    "separator when they have nothing to add (Clark et al. 2019, https://arxiv.org/abs/1906.04341)."
)
OPTIONS: dict[str, str] = {
    "layer": "attention module that is selected first: layer=blocks.3.attention",
    "head": "head that is selected first, from 0",
    "query": "position whose arithmetic is shown, from 0; default the last real token",
    "example": "index of the example, from 0",
    "variable": "variable of a series that is split into patches, from 0",
    "frame": "frame of a video, if attention is over its patches, from 0; default the middle one",
    "patch": "patch, if attention is over the frames of a video, from 0; default the middle one",
}
# Units of attention distance; for a video, within a frame.
UNITS = {"image": "pixels", "video": "pixels", "series": "patches", "audio": "places"} | dict.fromkeys(
    OF_TOKENS, "tokens"
)
FRAMES = "frames"  # unit of distance for attention over time
PLACES = {
    "pixels": "position in the image",
    "patches": "patch of the series",
    "steps": "step of the series",
    "places": "position in time",
}

LAYERS = 12  # most layers that are drawn


@dataclass(frozen=True)
class AttentionSummary:
    """Statistics and drawings of one attention layer."""

    name: str
    over: str  # name of the keys that it attends to
    unit: str  # unit of distance
    keys: int
    heads: list[Head]
    drawings: list[Drawing] | None  # None for layers that are not drawn


def suits(subject: Subject) -> bool:
    """Return whether the model attends to tokens, patches, positions or frames.

    The view "graph" shows attention over edges.
    """
    in_patches = as_base_model(subject.model).series_patches() is not None
    return subject.kind in UNITS and (in_patches or subject.kind != "series") and bool(attention_modules(subject.model))


def view(subject: Subject) -> View:
    """Return the attention in one example.

    Raises:
        UnknownName: If a named option has an unknown value.
        SettingError: If an option is invalid.
    """
    i = parse_index(subject.options, "example", 0, len(subject.inputs[0]))
    both = token_positions(subject, i)
    known = num_heads_by_name(subject.model)
    names = list(known)
    wanted = parse_choice(subject.options, "layer", names, "layer with attention")
    shown = evenly_spaced(names, LAYERS)
    if wanted is not None and wanted not in shown:
        shown = sorted([*shown[1:], wanted], key=names.index)
    head = parse_index(subject.options, "head", 0, max(known.values()))
    longest = max(len(side.labels) for side in both)
    asked = parse_index(subject.options, "query", 0, longest) if "query" in subject.options else None

    patches = as_base_model(subject.model).series_patches()
    variables = patches.variables if patches else 1
    variable = parse_index(subject.options, "variable", 0, variables)
    frame, patch = _frame_and_patch(subject, both) if subject.kind == "video" else (None, 0)
    image = image_for(subject, i, len(shown), frame) if subject.kind in ("image", "video") else None
    unit, said = UNITS[subject.kind], subject.name(i)
    if patches and all(first == last for first, last in patches.spans):
        unit = "steps"

    def see(look: AttentionCapture) -> AttentionSummary:
        layer = summarize_layer(look, both)
        over = "the source" if look.cross_attends else "earlier positions" if look.causal else "itself"
        if subject.kind == "video":
            over = f"patch {patch} in all frames" if look.over_frames else f"frame {frame}"
        drawn = layer_drawings(layer, head, asked, len(shown), image) if look.name in shown else None
        apart = FRAMES if look.over_frames else unit
        if subject.kind == "audio" and layer.keys is both[1]:
            apart = "tokens"
        return AttentionSummary(look.name, over, apart, len(layer.keys.labels), layer.heads, drawn)

    def row(name: str) -> int:
        if frame is None:
            return variable
        return patch if as_base_model(subject.model).is_temporal_attention(name) else frame

    found = capture_attention(subject.model, single_example(subject.inputs, i), see, row)
    if variables > 1:
        said += f", variable {variable}"
    if frame is not None:
        said += f", frame {frame} and {both[0].labels[both[0].before + patch]} over time"
    options = [{"name": one.name, "drawings": one.drawings} for one in found if one.drawings is not None]
    start = next((k for k, option in enumerate(options) if option["name"] == wanted), 0)
    return View(
        id="attention",
        title="Attention",
        says=(
            f"Attention weights between each {PLACES.get(unit, 'token')} and every other, by layer and head; "
            "point at one to see where it attends. The arithmetic of one query is below."
        ),
        summary=_summary(said, found, shown),
        table=_numbers(found),
        drawings=[
            *_depth_charts(found),
            charts.choice(f"In {said}", "layer", options, start=start),
        ],
    )


def _frame_and_patch(subject: Subject, both: tuple[TokenPositions, TokenPositions]) -> tuple[int, int]:
    """Return the frame and the patch of a video to show: the selected ones, or those in the middle."""
    patches, frames = both
    rows, columns = patches.grid or (1, 1)
    frame = parse_index(subject.options, "frame", len(frames.labels) // 2, len(frames.labels))
    patch = parse_index(subject.options, "patch", rows // 2 * columns + columns // 2, rows * columns)
    return int(frames.real[frame]), patch


def _units(found: list[AttentionSummary]) -> list[str]:
    """Return the units in which distances are measured; a video has two."""
    return list(dict.fromkeys(one.unit for one in found))


def _summary(name: str, found: list[AttentionSummary], shown: list[str]) -> str:
    """Return a summary of the sharpest, broadest, nearest and furthest heads, and of the layers left out."""
    heads = [(one, h, head) for one in found for h, head in enumerate(one.heads)]
    words = [f"In {name}: {plural(len(found), 'layer')} with {plural(len(heads), 'attention head')}."]
    sharp = min(heads, key=lambda entry: entry[2].entropy)
    broad = max(heads, key=lambda entry: entry[2].entropy)
    if len(heads) > 1:
        words.append(
            f"The sharpest is head {sharp[1]} of {sharp[0].name}, {number(sharp[2].entropy)} bits; the broadest is "
            f"head {broad[1]} of {broad[0].name}, {number(broad[2].entropy)} bits over {plural(broad[0].keys, 'key')}."
        )
    else:
        words.append(f"Its entropy is {number(sharp[2].entropy)} bits over {plural(sharp[0].keys, 'key')}.")
    for unit in _units(found):
        placed = [(one, h, head.distance) for one, h, head in heads if head.distance is not None and one.unit == unit]
        if len(placed) > 1:
            near, far = min(placed, key=lambda entry: entry[2]), max(placed, key=lambda entry: entry[2])
            words.append(
                f"Head {near[1]} of {near[0].name} has the smallest mean distance, {number(near[2])} {unit}; "
                f"head {far[1]} of {far[0].name} the largest, {number(far[2])}."
            )
    if len(shown) < len(found):
        words.append(f"{len(shown)} of {len(found)} layers are shown; layer= selects another. The table has all.")
    return " ".join(words)


def _numbers(found: list[AttentionSummary]) -> Table:
    columns = {
        "layer": "text",
        "head": "count",
        "looks over": "text",
        "entropy, bits": "number",
        "of at most": "number",
        f"mean distance, {' or '.join(_units(found))}": "number",
        "on itself": "fraction",
        "on the first": "fraction",
    }
    rows = [
        [one.name, h, one.over, head.entropy, head.most, head.distance, head.own, head.first]
        for one in found
        for h, head in enumerate(one.heads)
    ]
    return table(columns, rows)


def _depth_charts(found: list[AttentionSummary]) -> list[Drawing]:
    """Return mean distance and entropy of each head by depth, as in figure 7 of Dosovitskiy et al. 2020."""
    if len(found) < 2:
        return []
    drawn = []
    for unit in _units(found):
        looks = [one for one in found if one.heads[0].distance is not None and one.unit == unit]
        if len(looks) > 1:
            drawn.append(_curves(f"Mean attention distance, {unit}", looks, lambda head: head.distance))
    return [*drawn, _curves("Attention entropy, bits", found, lambda head: head.entropy)]


def _curves(title: str, looks: list[AttentionSummary], measure: Callable[[Head], float | None]) -> Drawing:
    """Return the minimum, mean and maximum over a layer's heads, by the layer's number."""

    def curve(put: Callable[[list[float]], float]) -> list[list[float]]:
        return [[k, put([float(measure(head) or 0) for head in one.heads])] for k, one in enumerate(looks)]

    several = any(len(one.heads) > 1 for one in looks)
    named = [("mean", lambda values: sum(values) / len(values))]
    named = [("most", max), *named, ("least", min)] if several else named
    only = {} if several else {"split": "all"}
    series = [{"name": name if several else "", **only, "points": curve(put)} for name, put in named]
    return charts.lines(title, "layer, in order", series)
