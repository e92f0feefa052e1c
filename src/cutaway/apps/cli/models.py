"""Commands on untrained models: a list by family, and the card of one."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...inspect.layers import LayerTable
    from ...models.registry import Preset

# The families in the order of their first papers, with their titles.
FAMILIES = {
    "dense": "Dense networks",
    "rnn": "Recurrent networks",
    "cnn": "Convolutional networks",
    "words": "Word vectors and sentences",
    "graph": "Graph networks",
    "transformer": "Transformers",
    "generative": "Generative models of images",
}


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("word", metavar="WORD", nargs="?", help="part of a name, a family, or a kind of data")
    parser.add_argument("--family", metavar="F", help="only this family: dense, cnn, …")
    parser.add_argument(
        "--takes", metavar="KIND", help="only models for this kind of data: table, image, text, audio, seq2seq, …"
    )
    parser.add_argument(
        "--published", action="store_true", help="print the published results of the models, with their sources"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_list(args: argparse.Namespace) -> int:
    """Print the models, one line each, and their number."""
    from ...core.errors import UnknownName
    from ...models.registry import list_models, preset, presets
    from .output import emit_json, print_table, say

    families = {p.card.card.family for p in presets().values()}
    kinds = {kind for p in presets().values() for kind in p.takes}
    if args.family not in (None, *families):
        raise UnknownName("family", args.family, families)
    if args.takes not in (None, *kinds):
        raise UnknownName("kind of data", args.takes, kinds)

    rows = [_model_row(preset(name)) for name in list_models(args.family, args.takes)]
    if args.word is not None:
        word = args.word.lower()
        rows = [row for row in rows if word in row["name"] or word in (row["family"], *row["takes"])]
        if not rows:
            known = {*presets(), *families, *kinds}
            raise UnknownName("model, family or kind of data", args.word, known, "`cutaway list` shows them all.")
    if args.published:
        rows = _published_rows([row["name"] for row in rows])
        if not rows:
            raise UnknownName("published result of", args.word or args.family or args.takes, ())
    if args.json:
        emit_json(rows)
        return 0
    if args.published:
        _print_published(rows)
        return 0
    rows.sort(key=lambda row: list(FAMILIES).index(row["family"]))
    headings = [f"{FAMILIES[row['family']]} (--family {row['family']})" for row in rows]
    titles = ("name", "parameters", "takes", "source")
    print_table(titles, [_model_line(row) for row in rows], right=["parameters"], yields="source", groups=headings)
    counts = Counter(row["family"] for row in rows)
    said = ", ".join(f"{counts[family]} {family}" for family in FAMILIES if counts[family])
    total = f"{len(rows)} model{'s' * (len(rows) != 1)}"
    say(f"\n{total}: {said}." if len(counts) > 1 else f"\n{total}.")
    return 0


def _published_rows(names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the published results of models as JSON values, in the order of the names."""
    from ...models.registry import preset

    found = [preset(name) for name in names]
    return [
        {"name": p.name, "family": p.card.card.family, **result.to_json()}
        for p in found
        for result in p.card.published_results
    ]


def _print_published(rows: list[dict[str, Any]]) -> None:
    """Print the published results of each model, by family."""
    from ...models.registry import preset
    from .output import console, say

    names = sorted(dict.fromkeys(row["name"] for row in rows), key=lambda n: list(FAMILIES).index(_family(n)))
    for family, of_family in groupby(names, key=_family):
        console().print(f"[bold]{FAMILIES[family]}[/] (--family {family})\n")
        for name in of_family:
            console().print(name, markup=False)
            _print_results(preset(name))
        console().print()
    say(f"{len(rows)} published results of {len(names)} models, not measured with Cutaway.")


def _family(name: str) -> str:
    from ...models.registry import preset

    return preset(name).card.card.family


def _model_line(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the table row of one model."""
    from ...draw.number_format import count

    first_author = row["authors"].split(",")[0].removesuffix(" et al.").split()[-1]
    return (
        row["name"],
        count(row["parameters"]),
        ", ".join(row["takes"]),
        f"{first_author} {row['year']}: {row['title']}",
    )


def _model_row(found: Preset) -> dict[str, Any]:
    """Return one model as JSON values. Its parameters are counted only if its card does not state them."""
    from ...core.memory_budget import build_on_meta

    facts, parameters = found.card.card.to_json(), found.card.published_parameters
    if parameters is None:
        parameters = sum(p.numel() for p in build_on_meta(found, found.config).parameters())
    return {
        "name": found.name,
        "parameters": parameters,
        "takes": list(found.takes),
        **{fact: facts[fact] for fact in ("family", "title", "authors", "year", "link")},
    }


LEFT = 32  # maximum indent of wrapped lines


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "cutaway show MODEL [key=value ...] [--json]"
    parser.add_argument(
        "words",
        metavar="MODEL [key=value ...]",
        nargs="*",
        help="name of a model, its settings (num_classes=10), and input=3x64x64 for another input size",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_show(args: argparse.Namespace) -> int:
    """Describe one model. It is built on the meta device, so that even the largest costs nothing."""
    from ...core.errors import IncompatibleSettingError, MissingSettingError
    from ...core.files import exists
    from ...models.registry import preset
    from .arguments import parse_words
    from .output import emit_json

    names, settings = parse_words(args.words, names=1)
    if not names:
        raise MissingSettingError("Missing model: give its name, e.g. `cutaway show resnet18`.")
    if exists(Path(names[0]) / "run.json"):
        raise IncompatibleSettingError(
            f"{names[0]} is a run, and `show` is for untrained models: use `cutaway inspect {names[0]}` for its "
            f"internals and `cutaway report {names[0]}` for its results."
        )
    found = preset(names[0])
    shape = settings.pop("input", None)
    config = found.configure(settings={key.removeprefix("model."): value for key, value in settings.items()})
    layers = _layers(found, config, _parse_shape(shape) if shape else None)
    as_published = config == found.config and found.card.published.at in ((), layers.input[1:])

    if args.json:
        emit_json(_model_document(found, config, layers, as_published))
    else:
        _print_model(found, config, layers, as_published)
    return 0


def _parse_shape(text: str) -> tuple[int, ...]:
    """Parse a shape such as 3x64x64."""
    from ...core.errors import SettingError

    if not re.fullmatch(r"[1-9]\d*([x×,][1-9]\d*)*", text):
        raise SettingError(f"Invalid input={text}: must be the shape of one example, e.g. input=3x64x64.")
    return tuple(map(int, re.split("[x×,]", text)))


def _layers(found: Preset, config: Any, shape: tuple[int, ...] | None) -> LayerTable:
    from ...core.errors import ModelError
    from ...draw.number_format import shape_text
    from ...inspect.layers import preset_layer_table

    try:
        return preset_layer_table(found, config, shape)
    except (RuntimeError, ValueError, IndexError) as error:  # PyTorch's own words for shapes that do not fit
        raise ModelError(f"{found.name} does not accept an input of {shape_text(shape or ())}: {error}") from error


def _model_document(found: Preset, config: Any, layers: LayerTable, as_published: bool) -> dict[str, Any]:
    """Return the card of a model as JSON values."""
    import dataclasses

    published = dataclasses.asdict(found.card.published)
    return {
        "name": found.name,
        **found.card.card.to_json(),
        "takes": list(found.takes),
        "config": dataclasses.asdict(config),
        "training_settings": dict(found.card.settings),
        "fine_tuning_settings": dict(found.card.fine_tuning),
        "published": published if as_published else None,
        "published_results": [r.to_json() for r in found.card.published_results] if config == found.config else [],
        "layers": layers.to_json(),
    }


def _print_model(found: Preset, config: Any, layers: LayerTable, as_published: bool) -> None:
    """Print the card of a model: facts, equation, layers and settings."""
    from ...core.config import as_text
    from ...core.errors import join
    from ...models.config import field_descriptions
    from .output import console, say

    out, card = console(), found.card.card
    out.print(f"[bold]{found.name}[/]  {card.family}, takes {join(found.takes, 'or')}")
    out.print(f"{card.title}\n{card.authors}, {card.year}  {card.link}", markup=False)
    out.print(f"\n  {card.equation}\n", markup=False)
    _print_layers(found, layers, as_published)
    if config == found.config and found.card.published_results:
        out.print("\n[bold]published results[/] with trained weights, not measured with Cutaway")
        _print_results(found)

    out.print(
        "\n[bold]settings[/]", f"of the model: key=value here, model.key=value in `cutaway train {found.name} DATA`"
    )
    sentences = field_descriptions(type(config))
    settings = {name: as_text(getattr(config, name)) for name in sentences}
    widths = [max(map(len, column), default=0) for column in (settings, settings.values())]
    for name, value in settings.items():
        line = f"  {name:<{widths[0]}}  {value:<{widths[1]}}  {sentences[name]}"
        say(line.rstrip(), indent=min(sum(widths) + 6, LEFT))
    for what, settings_of in (("trained with", found.card.settings), ("with weights=", found.card.fine_tuning)):
        if settings_of:
            usual = " ".join(f"{key}={as_text(value)}" for key, value in settings_of.items())
            out.print(f"\n[bold]{what}[/] by default: {usual}")
    if card.divergences:
        out.print("\n[bold]divergences[/]")
    for d in card.divergences:
        out.print(f"  {d.what}", markup=False)
        for who, said in (("paper", d.paper), ("here", d.here), ("common implementations", d.common)):
            if said:
                say(f"    {who + ':':<23} {said}", indent=28)


def _print_results(found: Preset) -> None:
    """Print the published results of a preset, each with its protocol and source."""
    from .output import say

    results = found.card.published_results
    width = max((len(result.dataset) for result in results), default=0)
    for result in results:
        line = f"  {result.dataset:<{width}}  {result} ({result.protocol}; {result.source})"
        say(line, indent=min(width + 4, LEFT))


def _print_layers(found: Preset, layers: LayerTable, as_published: bool) -> None:
    """Print the layers of a model as a table."""
    from ...core.spec import OF_TOKENS
    from ...draw.number_format import count, shape_text
    from ...views.network import RIGHT, format_table
    from .output import console, print_table

    tokens = " tokens" if found.takes[0] in OF_TOKENS else ""
    example = f"one example of {shape_text(layers.input[1:])}{tokens}"
    if found.takes == ("graph",):
        example = (
            f"a graph of {count(layers.input[0])} nodes with two edges to and from each, {shape_text(layers.input)}"
        )
    words = format_table(layers, example)
    print_table(words.titles, words.lines, right=RIGHT, yields="type", total=True)
    held = found.card.published
    if as_published and held.parameters is not None:
        counts = [
            f"{count(value)} {what}"
            for value, what in ((held.parameters, "parameters"), (held.multiply_adds, "MACs"))
            if value is not None
        ]
        console().print(f"{held.by}: {' and '.join(counts)} ({held.source})", markup=False)
        if held.paper:
            console().print(f"published: {held.paper}", markup=False)
    for sentence in words.below:
        console().print(sentence, style="dim")
