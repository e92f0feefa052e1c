"""What `cutaway generate` does with a run that learned to draw images."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import SettingError

if TYPE_CHECKING:
    from ..training.run import Run

OUT, COUNT = "samples.png", 64
OPTIONS = ("out", "of_class", "steps", "guidance", "eta")  # what is for images alone
OVERWRITE = "overwrite"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed of images."""
    parser.add_argument("--out", metavar="FILE", help=f"images: the picture to write, a .png; {OUT} unless given")
    parser.add_argument(
        "--overwrite", action="store_true", default=None, help="images: let --out replace a file that exists"
    )
    parser.add_argument(
        "--class", dest="of_class", metavar="NAME", help="images: of this class alone; without it all in turn"
    )
    parser.add_argument(
        "--steps", metavar="N", type=int, help="images: steps in which noise is taken away; 50 unless given"
    )
    parser.add_argument(
        "--guidance",
        metavar="S",
        type=float,
        help="images: scale of classifier-free guidance: 0 takes no notice of the class, 1 is the class alone, more "
        "makes images more typical and less various; 2 unless given",
    )
    parser.add_argument(
        "--eta",
        metavar="E",
        type=float,
        help="images: 0 adds no noise on the way (DDIM), 1 is ancestral sampling (DDPM); 1 unless given",
    )


def flag(key: str) -> str:
    """The option that is typed for it."""
    return "--class" if key == "of_class" else f"--{key.replace('_', '-')}"


def draw(run: Run, args: argparse.Namespace, for_text: tuple[str, ...]) -> int:
    """Draw images, write them as one picture, and say where. Raises SettingError for an option `for_text` that was
    given, and for what cannot be."""
    from ..files import reject_overwriting, replacing
    from ..generation.images import columns_for, picture
    from .output import emit_json, note

    for key in for_text:
        if getattr(args, key) not in (None, ""):
            raise SettingError(f"{flag(key)} is for text, and this run learned images: leave it out.")
    out = args.out or OUT
    if not out.lower().endswith(".png"):
        raise SettingError(f"--out {out} cannot be: a picture is written as PNG. End its name in .png.")
    reject_overwriting(out, overwrite=bool(args.overwrite))
    count, seed = COUNT if args.count is None else args.count, args.seed or 0
    given = {"steps": args.steps, "guidance": args.guidance, "eta": args.eta}
    levels, classes, asked = run.drawn(count, args.of_class, seed=seed, **given)
    names = run.spec.target.names if classes is not None else ()  # type: ignore[union-attr]  # it draws images
    whole = picture(levels, columns_for(count, len(names) if args.of_class is None else 0))
    with replacing(out) as temporary:
        whole.save(temporary, format="PNG")
    how = "" if classes is None and asked.steps == 1 else f", {asked.steps} steps"
    how += f", guidance {asked.guidance:g}" if asked.guidance is not None else ""
    note(f"{count:,} image{'s' if count > 1 else ''} in {out} (seed {seed}{how})")
    if args.json:
        of_each = [names[k] for k in classes.tolist()] if classes is not None else None
        emit_json({"out": out, "count": count, "seed": seed, "classes": of_each, **vars(asked)})
    return 0
