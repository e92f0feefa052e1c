"""cutaway generate: text out of a trained language model, what a sequence becomes, or images out of noise."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CutawayError, DataError, Problem, SettingError
from . import images, thoughts
from .options import THINKING, beam_search, thinking

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..data.text.running import RunningPreprocessing
    from ..generation.pieces import Pieces
    from ..training.run import Run

SUMMARY = "text, sequences or images out of a trained model"
COUNT, TEMPERATURE = 500, 0.8
RUNNING = ("prompts", "count", "stop", "window")  # what is for running text alone
DRAWING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "samples")  # how texts are drawn
PAIRS = ("num_beams", "length_penalty")  # what is for pairs alone
TEXT = ("prompt", *(key for key in (*RUNNING, *DRAWING) if key not in ("count", "seed")), *PAIRS)  # not for images
TOGETHER = 16  # texts that are written side by side, where there are several prompts


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument(
        "--prompt",
        metavar="TEXT",
        default="",
        help="what the text begins with; without one it begins as texts do: after the model's own token for that, "
        "else after a line's end or a full stop. Of pairs: the sequence that becomes another; of captions: an image; "
        "of problems: the problem, as '4 9 10 13'",
    )
    parser.add_argument("--prompts", metavar="FILE", help="a text for each line of this file, which is its prompt")
    parser.add_argument(
        "--count",
        metavar="N",
        type=int,
        help=f"how many tokens to write; {COUNT} unless given; or images, {images.COUNT}",
    )
    parser.add_argument(
        "--temperature",
        metavar="T",
        type=float,
        help=f"below 1 likely tokens become likelier, and 0 takes the likeliest; {TEMPERATURE} unless given. Of pairs "
        "and captions the likeliest is written, unless this or another of these says to draw",
    )
    parser.add_argument(
        "--top-k", metavar="K", type=int, help="draw from the K likeliest tokens alone; 0 draws from all"
    )
    parser.add_argument(
        "--top-p", metavar="P", type=float, help="draw from the likeliest tokens that hold this probability together"
    )
    parser.add_argument(
        "--min-p",
        metavar="P",
        type=float,
        help="draw from tokens with this fraction of the largest probability, or more",
    )
    parser.add_argument(
        "--repetition-penalty",
        metavar="R",
        type=float,
        help="above 1 makes tokens that were written before, or stand in the prompt, less likely",
    )
    parser.add_argument(
        "--stop", metavar="TEXT", action="append", help="end the text before this one; can be given several times"
    )
    parser.add_argument(
        "--window",
        action="store_true",
        default=None,
        help="of a prompt longer than the model can read, take the last tokens",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=int,
        help="the same seed writes the same text, whatever is written beside it; sample k has the seed N + k - 1. "
        "0 unless given",
    )
    parser.add_argument("--samples", metavar="N", type=int, help="how many texts of each prompt; 1 unless given")
    beam_search(parser)
    thinking(parser)
    images.arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Write text as it is drawn, or, for a run that learned pairs, what the prompt becomes."""
    from ..data.text.running import RunningPreprocessing
    from ..spec import Drawn, NextToken, Solution, Tokens
    from ..training.run import Run

    opened = Run(args.run)
    if isinstance(opened.spec.target, Drawn):
        return images.draw(opened, args, TEXT)
    if given := [key for key in (*images.OPTIONS, images.OVERWRITE) if getattr(args, key) is not None]:
        raise SettingError(f"{images.flag(given[0])} is for images, and this run draws none: leave it out.")
    if isinstance(opened.spec.target, Solution):
        return thoughts.think(opened, args)
    if given := [key for key in THINKING if getattr(args, key) is not None]:
        raise SettingError(f"{images.flag(given[0])} is for problems, and this run solves none: leave it out.")
    if isinstance(opened.spec.target, Tokens):
        return _transduce(opened, args)
    text = opened.preprocessing
    if not isinstance(text, RunningPreprocessing) or not isinstance(opened.spec.target, NextToken):
        about, spec = opened.about, opened.spec
        raise CutawayError(
            f"{args.run} writes no text: {about['model']} learned the {spec.target.column} of {spec.kind} data "
            f"({about['data']['source']}). Runs of language models do, as `cutaway train lstm book.txt` leaves one, "
            "runs that learned pairs of sequences or captions, and those that draw images (ddpm-unet, vae). `cutaway "
            "predict` says what this one makes of new examples."
        )
    return _write(opened, text, args)


@dataclass(frozen=True)
class _Asked:
    """What was asked for, as `generation.text.stream` takes it."""

    count: int
    seed: int
    samples: int
    stop: list[str]
    sampling: dict[str, Any]
    more: dict[str, Any]  # never, ends, window


def _write(run: Run, text: RunningPreprocessing, args: argparse.Namespace) -> int:
    """Texts that go on where the prompts end, one after the other."""
    from .output import emit_json, write

    asked = _asked(run, text, args)
    prompts = [args.prompt] if args.prompts is None else _lines(args)
    encoded = [_prompt(text, prompt) for prompt in prompts]
    model = run.place.model(run.model, learns=False)
    if args.prompts is not None:
        _reject_long(model, encoded, asked, args.prompts)
        written = _side_by_side(run, model, text, prompts, encoded, asked)
    else:
        written = _one_by_one(run, model, text, args.prompt, encoded[0], asked)
    samples: list[list[str]] = [[] for _ in prompts]
    for number, (i, pieces) in enumerate(written):
        if args.json:
            samples[i].append("".join(pieces))
            continue
        write("\n" * (number > 0) + prompts[i])
        for piece in pieces:
            write(piece)
        write("\n")
    if args.json:
        documents = [{"prompt": prompt, "samples": found} for prompt, found in zip(prompts, samples)]
        own = documents[0] if args.prompts is None else {"prompts": documents}
        said = {"count": asked.count, "seed": asked.seed, **asked.sampling, "stop": asked.stop}
        emit_json({**own, **said})
    return 0


def _asked(run: Run, text: RunningPreprocessing, args: argparse.Namespace) -> _Asked:
    """What was asked for. Raises SettingError for what cannot be."""
    from ..generation.prompts import bounds_of

    for key in PAIRS:
        if getattr(args, key) is not None:
            raise SettingError(
                f"{images.flag(key)} is for pairs of sequences, and this run learned a corpus: leave it out."
            )
    samples, seed = _repeated(args)
    return _Asked(
        COUNT if args.count is None else args.count,
        seed,
        samples,
        args.stop or [],
        _sampling(args),
        {**bounds_of(run.model, text)._asdict(), "window": bool(args.window)},
    )


def _repeated(args: argparse.Namespace) -> tuple[int, int]:
    """How many texts are drawn of each prompt, and the seed of the first. Raises SettingError for what cannot be."""
    samples, seed = 1 if args.samples is None else args.samples, args.seed or 0
    if samples < 1:
        raise SettingError(f"--samples {samples} cannot be: it must be at least 1.")
    if not 0 <= seed < 2**63 - samples:
        raise SettingError(f"--seed {seed} cannot be: it must be at least 0, and below 2**63.")
    greedy = "--temperature 0" if args.temperature == 0 else "--top-k 1" if args.top_k == 1 else ""
    if samples > 1 and greedy:
        raise SettingError(f"--samples {samples} with {greedy} writes one text {samples} times: leave one of them out.")
    return samples, seed


def _sampling(args: argparse.Namespace) -> dict[str, Any]:
    """How a token is drawn, as `generation.sampling.Sampling` takes it."""
    return {
        "temperature": TEMPERATURE if args.temperature is None else args.temperature,
        "top_k": args.top_k or 0,
        "top_p": 1.0 if args.top_p is None else args.top_p,
        "min_p": args.min_p or 0.0,
        "repetition_penalty": 1.0 if args.repetition_penalty is None else args.repetition_penalty,
    }


def _one_by_one(
    run: Run, model: torch.nn.Module, text: RunningPreprocessing, prompt: str, ids: Tensor, asked: _Asked
) -> Iterator[tuple[int, Iterator[str]]]:
    """The samples of one prompt, each as it is drawn: 0, the prompt's number, and pieces of text."""
    from ..generation.pieces import as_text
    from ..generation.text import stream

    ids = ids.to(run.place.device)
    for number in range(asked.samples):
        generator = _seeded(asked.seed + number)
        drawn = stream(model, ids[None], asked.count, generator=generator, **asked.more, **asked.sampling)
        yield 0, as_text(map(int, drawn), _pieces(text, prompt, ids, asked))


def _side_by_side(
    run: Run,
    model: torch.nn.Module,
    text: RunningPreprocessing,
    prompts: list[str],
    encoded: list[Tensor],
    asked: _Asked,
) -> Iterator[tuple[int, Iterator[str]]]:
    """The samples of each prompt, some at a time: the prompt's number and its text."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from ..generation.pieces import as_texts
    from ..generation.text import stream

    wanted = [(i, number) for i in range(len(prompts)) for number in range(asked.samples)]
    for begin in range(0, len(wanted), TOGETHER):
        some = wanted[begin : begin + TOGETHER]
        ids = pad_sequence([encoded[i] for i, _ in some], batch_first=True).to(run.place.device)  # (N, T)
        lengths = torch.tensor([len(encoded[i]) for i, _ in some], device=ids.device)
        drawn = stream(
            model,
            ids,
            asked.count,
            mask=torch.arange(ids.shape[1], device=ids.device) < lengths[:, None],
            generator=[_seeded(asked.seed + number) for _, number in some],
            **asked.more,
            **asked.sampling,
        )
        found = as_texts(drawn, [_pieces(text, prompts[i], encoded[i], asked) for i, _ in some])
        yield from ((i, iter([said])) for (i, _), said in zip(some, found))


def _seeded(seed: int) -> torch.Generator:
    """A generator of its own for each text."""
    import torch

    return torch.Generator().manual_seed(seed)


def _pieces(text: RunningPreprocessing, prompt: str, ids: Tensor, asked: _Asked) -> Pieces:
    """What turns the tokens after a prompt into text."""
    from ..generation.pieces import Pieces

    return Pieces(text.decode, ids.tolist() if prompt else [], asked.stop)


def _lines(args: argparse.Namespace) -> list[str]:
    """The prompts of the file that was named. Raises SettingError or DataError."""
    from ..data.pairs.reading import read_lines

    if args.prompt:
        raise SettingError("--prompt and --prompts cannot both be given: write all prompts into the file.")
    if not Path(args.prompts).is_file():
        raise DataError(f"There is no file {args.prompts!r}, seen from {Path.cwd()}.")
    return read_lines(Path(args.prompts))[0]


def _reject_long(model: torch.nn.Module, encoded: list[Tensor], asked: _Asked, file: str) -> None:
    """Raise DataError, naming the lines, where prompts are longer than the model can read."""
    from ..generation.text import context_of

    most = context_of(model)
    if most is None or asked.more["window"]:
        return
    problems = [
        Problem(f"line {number} of {file}", f"it has {len(ids):,} tokens")
        for number, ids in enumerate(encoded, 1)
        if len(ids) > most
    ]
    if problems:
        raise DataError(
            f"The model reads at most {most:,} tokens, and these prompts are longer:",
            problems,
            "Shorten them, or let the window slide (--window), and the last tokens are read.",
        )


def _prompt(text: RunningPreprocessing, prompt: str) -> Tensor:
    """The prompt's tokens, (T,). Raises DataError where the model knows none of them."""
    from ..generation.prompts import prompt_of
    from .output import note

    ids, said = prompt_of(text, prompt)
    if said:
        note(f"note: {said}")
    return ids


def _transduce(run: Run, args: argparse.Namespace) -> int:
    """What the prompt becomes, for a run that learned pairs or captions: the likeliest, or what is drawn."""
    import warnings

    from ..spec import PairSpec
    from .output import emit_json, note, write

    pairs = isinstance(run.spec, PairSpec)
    learned = "pairs of sequences" if pairs else "captions"
    for key in RUNNING:
        if getattr(args, key) is None:
            continue
        way_out = "leave it out"
        if key == "prompts":
            what = (
                "FILE` says what each line of a file becomes" if pairs else "FOLDER` says what is on each image of it"
            )
            way_out = f"`cutaway predict RUN {what}"
        raise SettingError(f"{images.flag(key)} is for running text, and this run learned {learned}: {way_out}.")
    if not args.prompt:
        what = "a sequence becomes" if pairs else "is on an image"
        raise SettingError(f"A run that learned {learned} writes what {what}: give it with --prompt.")
    drawing = [key for key in DRAWING if getattr(args, key) is not None]
    beams = [key for key in PAIRS if getattr(args, key) is not None]
    if drawing and beams:
        raise SettingError(
            f"{images.flag(beams[0])} and {images.flag(drawing[0])} cannot both be: beam search looks for the "
            "likeliest answer and draws nothing. Leave one of them out."
        )
    samples, seed = _repeated(args)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        if drawing:
            (found,) = run.generate([args.prompt], samples, seed=seed, **_sampling(args))
        else:
            rows = run.predict([args.prompt], num_beams=args.num_beams, length_penalty=args.length_penalty)
            found = [next(value for key, value in row.items() if key != "input") for row in rows]
    for warning in caught:
        note(f"note: {warning.message}")
    if args.json:
        emit_json({"prompt": args.prompt, "samples": found, **({"seed": seed, **_sampling(args)} if drawing else {})})
    else:
        write("".join(f"{text}\n" for text in found))
    return 0
