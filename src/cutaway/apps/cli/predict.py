"""cutaway predict: predictions for new files, with the run's own preprocessing."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import FileError, SettingError
from .arguments import add_beam_search_options

if TYPE_CHECKING:
    from PIL.Image import Image

    from ...runs.run import Run

SUMMARY = "predictions of a trained model for new files"
LINE_ENDS = re.compile(
    r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
)  # every sequence that some program reads as a line end
IN_A_LINE = 3  # values per example on one line; more get a line each


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run, or .onnx file from `cutaway export`")
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="+",
        help="files or folders of the same kind as the training data, or a text",
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


def run(args: argparse.Namespace) -> int:
    """Predict, and print or write one row for each example, in the order of the inputs."""
    import warnings

    from ...core.files import reject_overwriting, write_csv, write_text
    from ...core.spec import PairSpec
    from ...deploy.runtime import open_run
    from ...draw.number_format import plural
    from .output import emit_json, note, say

    opened = open_run(args.run)
    lines = args.out is not None and args.out.lower().endswith(".txt")
    if lines and not isinstance(opened.spec, PairSpec):
        raise SettingError(
            f"Invalid --out {args.out}: .txt is only for sequence pairs. Use .csv for rows with columns."
        )
    if args.out is not None:
        reject_overwriting(args.out, args.inputs, args.overwrite)  # before anything is computed
    folders = _folders(opened, args)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        rows = opened.predict(
            args.inputs, num_beams=args.num_beams, length_penalty=args.length_penalty, support=args.support
        )
    for warning in caught:
        note(f"note: {warning.message}")
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
            for line in _lines(row):
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
            raise FileError(
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


def _lines(row: dict[str, Any]) -> list[str]:
    """Format one prediction: name, prediction and probability. Several values, as of a forecast, get their names; many
    get one line each."""
    name, said = row["input"], {key: value for key, value in row.items() if key != "input"}
    first, *more = said.values()
    if "x1" in said:
        corners = [f"{said[key]:.1f}" for key in ("x1", "y1", "x2", "y2")]
        return [f"{name}  {first}  {100 * more[0]:.1f} %  {corners[0]}, {corners[1]} to {corners[2]}, {corners[3]}"]
    if "probability" in said:
        return [f"{name}  {_written(first)}  {100 * more[0]:.1f} %"]
    if isinstance(first, str) or not more:
        return [f"{name}  {_written(first)}"]
    if len(said) <= IN_A_LINE:
        return [f"{name}  {', '.join(f'{key} {_written(value)}' for key, value in said.items())}"]
    width = max(map(len, said))
    return [name, *(f"  {key:<{width}}  {_written(value)}" for key, value in said.items())]


def _written(value: Any) -> str:
    """Format a value: text unchanged, numbers with six digits."""
    from ...draw.number_format import UNKNOWN

    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else f"{value:.6g}"
