"""cutaway generate: text out of a trained language model, or what a sequence becomes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import CutawayError, DataError, SettingError

if TYPE_CHECKING:
    from torch import Tensor

    from ..data.text.running import RunningPreprocessing
    from ..training.run import Run

SUMMARY = "text or sequences out of a trained model"
COUNT, TEMPERATURE = 500, 0.8
RUNNING = ("count", "temperature", "top_k", "top_p", "seed", "samples")  # what is for running text alone
BROKEN = "\ufffd"  # what bytes give that are no whole character yet
CHARACTER = 4  # bytes, and so tokens, of a character at most
BEFORE = 8  # tokens of the prompt that what comes behind it is written out with


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument(
        "--prompt",
        metavar="TEXT",
        default="",
        help="what the text begins with; without one it begins behind a line's end, or behind a full stop where the "
        "model's tokens have no line ends. Of pairs: the sequence that becomes another",
    )
    parser.add_argument("--count", metavar="N", type=int, help=f"how many tokens to write; {COUNT} unless given")
    parser.add_argument(
        "--temperature",
        metavar="T",
        type=float,
        help=f"below 1 likely tokens become likelier, and 0 takes the likeliest; {TEMPERATURE} unless given",
    )
    parser.add_argument(
        "--top-k", metavar="K", type=int, help="draw from the K likeliest tokens alone; 0 draws from all"
    )
    parser.add_argument(
        "--top-p", metavar="P", type=float, help="draw from the likeliest tokens that hold this probability together"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="the same seed writes the same text; 0 unless given")
    parser.add_argument("--samples", metavar="N", type=int, help="how many texts to write; 1 unless given")
    parser.add_argument("--beams", metavar="N", type=int, help="of pairs: the beginnings that are kept; 1 unless given")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Write text as it is drawn, or, for a run that learned pairs, what the prompt becomes."""
    from ..data.text.running import RunningPreprocessing
    from ..spec import PairSpec
    from ..training.run import Run

    opened = Run(args.run)
    if isinstance(opened.spec, PairSpec):
        return _transduce(opened, args)
    if not isinstance(opened.preprocessing, RunningPreprocessing):
        about, spec = opened.about, opened.spec
        raise CutawayError(
            f"{args.run} writes no text: {about['model']} learned the {spec.target.column} of {spec.kind} data "
            f"({about['data']['source']}). Runs of language models do, as `cutaway train lstm book.txt` leaves one, "
            "and runs that learned pairs of sequences. `cutaway predict` says what this one makes of new examples."
        )
    return _write(opened, opened.preprocessing, args)


def _write(run: Run, text: RunningPreprocessing, args: argparse.Namespace) -> int:
    """Texts that go on where the prompt ends, one after the other."""
    import torch

    from ..generation.text import stream
    from .output import emit_json

    count = COUNT if args.count is None else args.count
    samples = 1 if args.samples is None else args.samples
    if args.beams is not None:
        raise SettingError("--beams is for pairs of sequences, and this run learned running text: leave it out.")
    if samples < 1:
        raise SettingError(f"--samples {samples} cannot be: it must be at least 1.")
    settings: dict[str, Any] = {
        "temperature": TEMPERATURE if args.temperature is None else args.temperature,
        "top_k": args.top_k or 0,
        "top_p": 1.0 if args.top_p is None else args.top_p,
    }
    seed = args.seed or 0
    generator = torch.Generator().manual_seed(seed)
    place = run.place
    model = place.model(run.model, learns=False)
    prompt = _prompt(text, args.prompt)[None].to(place.device)  # (1, T)
    written: list[str] = []
    for number in range(samples):
        drawn = (int(token) for token in stream(model, prompt, count, generator=generator, **settings))
        ids = prompt[0].tolist() if args.prompt else []
        if args.json:
            written.append("".join(_as_text(text, drawn, ids)))
            continue
        _say("\n" * (number > 0) + args.prompt)
        for piece in _as_text(text, drawn, ids):
            _say(piece)
        _say("\n")
    if args.json:
        emit_json({"prompt": args.prompt, "samples": written, "count": count, "seed": seed, **settings})
    return 0


def _prompt(text: RunningPreprocessing, prompt: str) -> Tensor:
    """The prompt's tokens, (T,). Raises DataError where the model knows none of them."""
    from ..data.text.tokenizers import UNKNOWN
    from .output import note

    ids = text.encode(prompt)
    if not len(ids):
        if prompt:
            note(f"note: nothing of the prompt {prompt!r} is a token of this model: the text begins as without one.")
        return text.beginning()
    unknown = text.unknown(prompt)
    if unknown:
        named = ", ".join(map(repr, unknown[:10])) + (", …" if len(unknown) > 10 else "")
        if (ids == UNKNOWN).all():
            raise DataError(
                f"This model knows nothing of the prompt: {named} did not stand in what it learned from, or was left "
                "out of its vocabulary.",
                mend="Give a prompt in the language and the letters of that text.",
            )
        note(f"note: the model does not know {named}: each is read as the one unknown token.")
    return ids


def _as_text(text: RunningPreprocessing, drawn: Iterator[int], before: list[int]) -> Iterator[str]:
    """The text that each new token adds to that of the tokens `before`; characters come when they are whole.

    Few tokens are turned into text at a time: those since the last piece, and the piece before for what stands between.
    """
    shown, ids = before[-BEFORE:], before[-BEFORE:]
    for token in drawn:
        ids = [*ids, token]
        known, now = text.decode(shown), text.decode(ids)
        if now.endswith(BROKEN) and len(ids) - len(shown) < CHARACTER:
            continue
        yield now[len(known) :]
        shown = ids = ids[len(shown) :]
    if len(ids) > len(shown):
        yield text.decode(ids)[len(text.decode(shown)) :]


def _transduce(run: Run, args: argparse.Namespace) -> int:
    """What the prompt becomes, for a run that learned pairs."""
    import torch

    from ..generation.decoding import decode
    from .output import emit_json

    for key in RUNNING:
        if getattr(args, key) is not None:
            flag = f"--{key.replace('_', '-')}"
            raise SettingError(
                f"{flag} is for running text, and this run learned pairs of sequences: leave it out. What is "
                "likeliest is written."
            )
    if not args.prompt:
        raise SettingError("A run that learned pairs writes what a sequence becomes: give it with --prompt.")
    part = run.preprocessing.examples([args.prompt])
    place = run.place
    model = place.model(run.model, learns=False)
    (batch,) = part.batches([torch.arange(len(part))])
    (source, mask, *_), _ = place.batch(batch)
    (ids,) = decode(model, source, mask, run.spec.target, beams=args.beams or 1).tolist()  # type: ignore[arg-type]
    text: str = run.preprocessing.words(ids)  # type: ignore[attr-defined]
    if args.json:
        emit_json({"prompt": args.prompt, "samples": [text]})
    else:
        _say(f"{text}\n")
    return 0


def _say(text: str) -> None:
    """Text on standard output as it is, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()
