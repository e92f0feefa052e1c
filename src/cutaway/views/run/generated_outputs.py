"""Views of single outputs: samples of a language model, translations, captions, and generated images."""

from __future__ import annotations

from typing import Any

from ...draw.description import Drawing, View, table
from ...draw.number_format import count, number, percent, plural


def samples(found: list[dict[str, Any]], split: str) -> View:
    """Return the model's continuations of prompts from the text, with the actual continuations."""
    heads = {"where": "text", "given": "text", "generated": "text", "actual": "text"}
    drawings: list[Drawing] = [
        {
            "kind": "prose",
            "title": f"After {sample['name']}",
            "verbatim": True,
            "facts": [
                ["given", sample["prompt"]],
                ["generated", sample["written"]],
                *([["actual", sample["actual"]]] if sample["actual"] else []),
            ],
        }
        for sample in found
    ]
    return View(
        id="samples",
        title="Samples",
        says=f"Generated text after {plural(len(found), 'prompt')} from the {split} split, sampled at temperature "
        "0.8, and the actual continuation. A good sample need not match the actual text, but should read like it.",
        summary="`cutaway generate RUN --prompt TEXT` generates more, from your own prompt.",
        table=table(heads, [[s["name"], s["prompt"], s["written"], s["actual"]] for s in found]),
        drawings=drawings,
    )


def translations(found: list[dict[str, Any]], split: str) -> View:
    """Return the model's outputs for an even selection of pairs, with the references."""
    if all(one["picture"] for one in found):
        return captions(found, split)
    heads = {"source": "text", "reference": "text", "prediction": "text"}
    right = sum(one["actual"] == one["predicted"] for one in found)
    rows = [[_source(one), one["actual"], one["predicted"] or "(nothing)"] for one in found]
    return View(
        id="translations",
        title="Sample predictions",
        says=f"{plural(len(found), 'pair')} of the {split} split, evenly spaced: the source, the reference, and the "
        "output of the model.",
        summary=f"{right} of {len(found)} match the reference exactly; other outputs can be correct too.",
        table=table(
            {"example": "text", **heads, "loss a token": "number"},
            [[one["name"], *row, one["loss"]] for one, row in zip(found, rows)],
        ),
        drawings=[{"kind": "prose", "title": "Source, reference and prediction", "table": table(heads, rows)}],
    )


def captions(found: list[dict[str, Any]], split: str) -> View:
    """Return the model's captions for an even selection of images, with the references."""
    right = sum(one["actual"] == one["predicted"] for one in found)
    items = [
        {
            "name": one["name"],
            "image": one["picture"],
            "words": one["predicted"] or "(nothing)",
            "note": f"{percent(one['confidence'])} confidence" if one["confidence"] is not None else "",
            "lines": ["right" if one["actual"] == one["predicted"] else f"reference: {one['actual']}"],
        }
        for one in found
    ]
    heads = {"image": "text", "reference": "text", "prediction": "text", "probability": "fraction"}
    return View(
        id="translations",
        title="Sample captions",
        says=f"{plural(len(found), 'image')} of the {split} split, evenly spaced, and the generated caption of each. "
        "If it matches none of the reference captions, one of them is shown below.",
        summary=f"{right} of {len(found)} match a reference caption exactly; other captions can be correct too.",
        table=table(heads, [[one["name"], one["actual"], one["predicted"], one["confidence"]] for one in found]),
        drawings=[{"kind": "gallery", "title": "Generated captions", "items": items}],
    )


def _source(one: dict[str, Any]) -> str:
    row = one.get("row") or {}
    return str(row.get("source", next(iter(row.values()), one["name"])))


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
