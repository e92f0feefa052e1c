"""Views of generated images: new images, their sampling steps, and the least likely images of the data."""

from __future__ import annotations

from typing import Any

from ...draw.description import Drawing, View, table
from ...draw.number_format import count, number, plural

NATS = 4  # number of least likely images in the summary


def new_images(found: dict[str, Any], split: str) -> View:
    """Return new images and, for diffusion models, some of their sampling steps."""
    samples, moments = found["samples"], found.get("moments") or []
    drawings: list[Drawing] = [
        _gallery("New images", [(s["picture"], s["class"] or f"image {k}", "") for k, s in enumerate(samples, 1)])
    ]
    for which in range(len(moments[0]["noisy"]) if moments else 0):
        said = samples[which]["class"]
        items = [(m["noisy"][which], f"t = {count(m['t'])}", "x_t") for m in moments]
        items += [(m["start"][which], f"t = {count(m['t'])}", "predicted x̂_0") for m in moments]
        drawings.append(_gallery(f"Sampling of image {which + 1}{f', {said}' if said else ''}", items))
    says = "Generated images, each sampled from its own random noise."
    if moments:
        guidance = f", guidance {found['guidance']:g}" if found.get("guidance") is not None else ""
        says += f" Sampling takes {count(found['steps'])} steps{guidance}; below are x_t and the image x̂_0 that the "
        says += "network predicts from it."
    summary = "`cutaway generate RUN` generates more."
    rows: list[list[Any]] = []
    if bound := found.get("bound"):
        of = f"{plural(bound['images'], 'image')} of the {split} split, {count(bound['terms'])} terms of each"
        between = bound.get("note") or f"95 % interval {number(bound['low'])} to {number(bound['high'])}"
        summary += f" Variational bound: {number(bound['value'])} bits per dimension ({between}; {of})."
        rows = [["variational bound, bits per dimension", bound["value"], bound["low"], bound["high"]]]
    return View(
        id="drawn",
        title="New images",
        says=says,
        summary=summary,
        table=table({"metric": "text", "value": "number", "95 % from": "number", "to": "number"}, rows),
        drawings=drawings,
    )


def least_likely(evaluation: dict[str, Any]) -> View:
    """Return the images with the lowest and the highest likelihood bounds."""
    worst, best = evaluation["worst"], evaluation.get("right") or []
    heads = {"image": "text", "bits": "text", "nats": "number"}
    return View(
        id="unlikely",
        title="Least likely images",
        says=f"Images of the {evaluation['split']} split by the bound on their likelihood, least likely first.",
        summary=", ".join(f"{m['name']}: {m['predicted']}" for m in worst[:NATS]) + ".",
        table=table(heads, [[m["name"], m["predicted"], m["loss"]] for m in [*worst, *best]]),
        drawings=[
            _gallery("Least likely", [(m["picture"], m["predicted"], m["name"]) for m in worst]),
            *([_gallery("Likeliest", [(m["picture"], m["predicted"], m["name"]) for m in best])] if best else []),
        ],
    )


def _gallery(title: str, items: list[tuple[str, str, str]]) -> Drawing:
    shown = [{"name": note, "image": image, "words": words, "note": "", "lines": []} for image, words, note in items]
    return {"kind": "gallery", "title": title, "items": shown}
