"""Commands on a trained run: metrics with 95 % intervals, predictions for new files, and its report."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import (
    AlreadyExistsError,
    IncompatibleSettingError,
    MissingSettingError,
    NotARunError,
    SettingError,
    shorten,
)
from .arguments import add_beam_search_options, add_thinking_options, selected_method, take_missing

if TYPE_CHECKING:
    from PIL.Image import Image

    from ...runs.run import Run


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run, or .onnx file from `cutaway export`")
    parser.add_argument(
        "words",
        metavar="DATA [missing=drop]",
        nargs="*",
        help="other labelled data of the same kind; of a table, missing=drop leaves out rows that cannot be used, and "
        "missing=fill counts unreadable cells as missing",
    )
    add_beam_search_options(parser)
    parser.add_argument("--attack", choices=("fgsm", "pgd"), help="evaluate on adversarial examples")
    parser.add_argument(
        "--eps", metavar="E", type=float, default=0.03, help="maximum change of a pixel, from 0 to 1 (default: 0.03)"
    )
    parser.add_argument("--attack-steps", metavar="N", type=int, default=20, help="steps of pgd (default: 20)")
    for key, what in (
        ("ways", "classes of an episode"),
        ("shots", "labelled examples of each class"),
        ("queries", "other examples of each class"),
        ("inner-steps", "gradient steps on the support (objective=maml)"),
    ):
        parser.add_argument(
            f"--{key}", metavar="N", type=int, help=f"few-shot learning: {what}; default as in training"
        )
    add_thinking_options(parser)
    parser.add_argument("--samples", metavar="N", type=int, help="problems: sampled chains per problem (default: 1)")
    parser.add_argument(
        "--temperature", metavar="T", type=float, help="problems: sampling temperature; 0 is greedy (default: 0.7)"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="problems: sampling seed (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_evaluate(args: argparse.Namespace) -> int:
    """Evaluate a run and print its metrics."""
    from ...core.metric_names import metric
    from ...deploy.runtime import open_run
    from .output import emit_json, note, note_warnings, print_table
    from .train import format_metric

    asked = {key: getattr(args, key) for key in ("ways", "shots", "queries", "inner_steps")}
    words, missing = take_missing(args.words)
    if len(words) > 1:
        raise SettingError(f"cutaway evaluate does not take {shorten(words[1])!r}. See `cutaway evaluate --help`.")
    with note_warnings():
        metrics = open_run(args.run).evaluate(
            words[0] if words else None,
            missing=missing,
            num_beams=args.num_beams,
            length_penalty=args.length_penalty,
            attack=args.attack,
            eps=args.eps,
            attack_steps=args.attack_steps,
            method=selected_method(args),
            **{key: value for key, value in asked.items() if value is not None},
        )
    if args.json:
        emit_json({name: m.to_json() for name, m in metrics.items()})
        return 0
    found = {name: m.to_json() for name, m in metrics.items()}
    rows = [
        (
            metric(name)[0],
            format_metric(name, m["value"]),
            *("" if m[end] is None else format_metric(name, m[end]) for end in ("low", "high")),
        )
        for name, m in found.items()
    ]
    print_table(("", "value", "low", "high"), rows, right=("value", "low", "high"))
    notes: dict[str, list[str]] = {}
    for name, m in found.items():
        if "note" in m or (m["value"] is not None and m["low"] is None):
            notes.setdefault(m.get("note", NO_INTERVAL), []).append(metric(name)[0])
    for reason, named in notes.items():
        note(f"note: {', '.join(named)}: {reason}")
    return 0


LINE_ENDS = re.compile(
    r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
)  # every sequence that some program reads as a line end
NO_INTERVAL = "no interval is computed for this metric"
IN_A_LINE = 3  # values per example on one line; more get a line each


def add_predict_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run, or .onnx file from `cutaway export`")
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="+",
        help="files or folders of the same kind as the training data, or a text; of a table, missing=fill counts "
        "unreadable cells as missing",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="output file with all rows and columns; for sequence pairs, a .txt file has one line per input line; for "
        "masks or boxes, FILE-pictures/ in the same folder has the annotated images, and FILE-masks/ the masks",
    )
    parser.add_argument(
        "--support", metavar="FOLDER", help="few-shot learning: folder with one folder of images per class"
    )
    parser.add_argument("--overwrite", action="store_true", help="overwrite --out if it exists")
    add_beam_search_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_predict(args: argparse.Namespace) -> int:
    """Predict, and print or write one row for each example, in the order of the inputs."""
    from ...core.files import reject_overwriting, write_csv, write_text
    from ...core.spec import PairSpec
    from ...deploy.runtime import open_run
    from ...draw.number_format import plural
    from .output import emit_json, note, note_warnings, say

    opened = open_run(args.run)
    args.inputs, missing = take_missing(args.inputs)
    if not args.inputs:
        raise MissingSettingError("cutaway predict needs INPUT. See `cutaway predict --help`.")
    lines = args.out is not None and args.out.lower().endswith(".txt")
    if lines and not isinstance(opened.spec, PairSpec):
        raise IncompatibleSettingError(
            f"Invalid --out {args.out}: .txt is only for sequence pairs. Use .csv for rows with columns."
        )
    if args.out is not None:
        reject_overwriting(args.out, args.inputs, args.overwrite)  # before anything is computed
    folders = _folders(opened, args)
    with note_warnings():
        rows = opened.predict(
            args.inputs,
            num_beams=args.num_beams,
            length_penalty=args.length_penalty,
            support=args.support,
            missing=missing,
        )
    if args.out:
        if lines:
            write_text(args.out, "".join(f"{to_single_line(row)}\n" for row in rows))
        else:
            changed = write_csv(args.out, rows)
            if changed:
                note(
                    f"note: {plural(changed, 'cell')} that a spreadsheet would read as a formula start with an "
                    "apostrophe in that file, and control characters are escaped."
                )
        note(f"{plural(len(rows), 'prediction')} in {args.out}")
        for what, folder in folders.items():
            named = opened.masks(args.inputs) if what == "mask" else opened.pictures(args.inputs)
            note(f"{plural(_write_images(named, folder), what)} in {folder}")
    if args.json:
        emit_json(rows)
    elif not args.out:
        for row in rows:
            for line in _prediction_lines(row):
                say(line, indent=4)
    return 0


def _folders(opened: Run, args: argparse.Namespace) -> dict[str, Path]:
    """Return the folders for images, by kind; empty without --out. Raises FileError if such a folder exists."""
    from ...core.spec import Boxes, Mask

    target = opened.spec.target
    kinds = ("mask", "picture") if isinstance(target, Mask) else ("picture",) if isinstance(target, Boxes) else ()
    if args.out is None:
        return {}
    out = Path(args.out)
    found = {kind: out.with_name(f"{out.stem}-{kind}s") for kind in kinds}
    for kind, folder in found.items():
        if folder.exists() and not args.overwrite:
            raise AlreadyExistsError(
                f"{folder} already exists, and {kind}s are written there. Use --overwrite or another --out."
            )
    return found


def _write_images(named: Iterable[tuple[str, Image]], folder: Path) -> int:
    """Write images as PNG files under their names, with a number added to duplicate names."""
    from ...core.files import atomic_write

    folder.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for name, image in named:
        stem = Path(name).stem
        own = next(
            own for own in itertools.chain((stem,), (f"{stem}-{k}" for k in itertools.count(2))) if own not in taken
        )
        taken.add(own)
        with atomic_write(folder / f"{own}.png") as temporary:
            image.save(temporary, format="PNG")
    return len(taken)


def to_single_line(row: dict[str, Any]) -> str:
    """Return the prediction for one example as a single line, with line ends replaced by spaces."""
    (said,) = (value for key, value in row.items() if key != "input")
    return LINE_ENDS.sub(" ", said)


def _prediction_lines(row: dict[str, Any]) -> list[str]:
    """Format one prediction: name, prediction and probability. Several values, as of a forecast, get their names; many
    get one line each."""
    name, said = row["input"], {key: value for key, value in row.items() if key != "input"}
    first, *more = said.values()
    if "x1" in said:
        corners = [f"{said[key]:.1f}" for key in ("x1", "y1", "x2", "y2")]
        return [f"{name}  {first}  {100 * more[0]:.1f} %  {corners[0]}, {corners[1]} to {corners[2]}, {corners[3]}"]
    if "probability" in said:
        return [f"{name}  {_format_value(first)}  {100 * more[0]:.1f} %"]
    if isinstance(first, str) or not more:
        return [f"{name}  {_format_value(first)}"]
    if len(said) <= IN_A_LINE:
        return [f"{name}  {', '.join(f'{key} {_format_value(value)}' for key, value in said.items())}"]
    width = max(map(len, said))
    return [name, *(f"  {key:<{width}}  {_format_value(value)}" for key, value in said.items())]


def _format_value(value: Any) -> str:
    """Format a value: text unchanged, numbers with six digits."""
    from ...draw.number_format import UNKNOWN

    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else f"{value:.6g}"


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run or a search")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run_report(args: argparse.Namespace) -> int:
    """Write the page and print its path."""
    from ...experiments.compare.baselines import score_baselines
    from ...reports.run_report import write_layers_and_report
    from ...runs.run import Run
    from ...training.run_folder import RunInUse, clear_leftovers, lock_run
    from .output import console, note, open_page

    if (Path(args.run) / "search.json").is_file():
        path = _write_search_page(args.run)
        console().print(str(path), markup=False)
        if args.open:
            open_page(path)
        return 0
    run = Run(args.run)
    try:
        with lock_run(run.folder):
            clear_leftovers(run.folder)
            score_baselines(run)
    except RunInUse as error:
        note(f"note: {error.holder} is using this run: the page shows its current state.")
    path = write_layers_and_report(run)
    console().print(str(path), markup=False)
    if args.open:
        open_page(path)
    return 0


def _write_search_page(folder: str) -> Path:
    """Write the page of a search, with the trials so far. Raises FileError if no trial has ended."""
    from ...experiments.settings import require_optuna

    require_optuna()
    from ...experiments.search.result import Search
    from ...experiments.search.search_page import write_search_report

    found = Search(folder)
    if not found.trials:
        raise NotARunError(f"{folder} has no finished trial to show yet.")
    write_search_report(found)
    return found.report
