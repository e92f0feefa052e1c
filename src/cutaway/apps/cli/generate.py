"""cutaway generate: text, sequences, images and solved problems from a trained run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import (
    DataMismatchError,
    IncompatibleSettingError,
    MissingSettingError,
    ModelError,
    Problem,
    SettingError,
)
from ...core.files import require_regular_file
from .arguments import THINKING, add_beam_search_options, add_thinking_options, selected_method

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ...data.text.corpus import RunningPreprocessing
    from ...inference.text import TextStreamer
    from ...inference.thought_search import SearchResult, Thought
    from ...runs.run import Run

COUNT, TEMPERATURE = 500, 0.8
RUNNING = ("prompts", "count", "stop", "window")  # options for language models only
DRAWING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "samples")  # options of sampling
PAIRS = ("num_beams", "length_penalty")  # options for pairs only
TEXT = ("prompt", *(key for key in (*RUNNING, *DRAWING) if key not in ("count", "seed")), *PAIRS)  # not for images
TOGETHER = 16  # batch size for several prompts


def add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser.add_argument(
        "--prompt",
        metavar="TEXT",
        default="",
        help="start of the text; default: the model's start token, else a line break or a full stop. Sequence pairs: "
        "the source sequence; captions: an image; images trained with captions: the caption; problems: the problem, "
        "e.g. '4 9 10 13'",
    )
    parser.add_argument("--prompts", metavar="FILE", help="file with one prompt per line")
    parser.add_argument(
        "--count",
        metavar="N",
        type=int,
        help=f"number of tokens to generate (default: {COUNT}), or of images (default: {IMAGES_COUNT})",
    )
    parser.add_argument(
        "--temperature",
        metavar="T",
        type=float,
        help=f"sampling temperature; 0 is greedy (default: {TEMPERATURE}). Sequence pairs and captions are decoded "
        "greedily unless a sampling option is given",
    )
    parser.add_argument("--top-k", metavar="K", type=int, help="sample from the K most likely tokens; 0: from all")
    parser.add_argument(
        "--top-p", metavar="P", type=float, help="sample from the most likely tokens with this cumulative probability"
    )
    parser.add_argument(
        "--min-p",
        metavar="P",
        type=float,
        help="sample from tokens with at least this fraction of the largest probability",
    )
    parser.add_argument(
        "--repetition-penalty",
        metavar="R",
        type=float,
        help="above 1: tokens of the text so far become less likely",
    )
    parser.add_argument(
        "--stop", metavar="TEXT", action="append", help="stop before this text; can be given several times"
    )
    parser.add_argument(
        "--window",
        action="store_true",
        default=None,
        help="sliding window: use the last tokens of a prompt that exceeds the context",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=int,
        help="random seed; the text does not depend on other texts of the same call; sample k uses seed N + k - 1 "
        "(default: 0)",
    )
    parser.add_argument("--samples", metavar="N", type=int, help="number of texts per prompt (default: 1)")
    add_beam_search_options(parser)
    add_thinking_options(parser)
    add_image_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_generate(args: argparse.Namespace) -> int:
    """Generate text, translations, images or solutions, depending on the run's target."""
    from ...core.spec import GeneratedImage, NextToken, Solution, Tokens
    from ...data.text.corpus import RunningPreprocessing
    from ...runs.run import Run

    opened = Run(args.run)
    if isinstance(opened.spec.target, GeneratedImage):
        return generate_images(opened, args, TEXT)
    if given := [key for key in (*OPTIONS, OVERWRITE) if getattr(args, key) is not None]:
        raise IncompatibleSettingError(f"{option_name(given[0])} is only for image generation. Leave it out.")
    if isinstance(opened.spec.target, Solution):
        return solve_problem(opened, args)
    if given := [key for key in THINKING if getattr(args, key) is not None]:
        raise IncompatibleSettingError(f"{option_name(given[0])} is only for problem solving. Leave it out.")
    if isinstance(opened.spec.target, Tokens):
        return _run_pairs(opened, args)
    text = opened.preprocessing
    if not isinstance(text, RunningPreprocessing) or not isinstance(opened.spec.target, NextToken):
        about, spec = opened.about, opened.spec
        raise ModelError(
            f"{args.run} cannot generate: {about['model']} predicts the {spec.target.column} of {spec.kind} data "
            f"({about['data']['source']}). Generation needs a language model (e.g. `cutaway train lstm book.txt`), "
            "a sequence-to-sequence or captioning run, or an image model (ddpm-unet, vae, image-gpt). Use `cutaway "
            "predict` for predictions of this run."
        )
    return _run_language_model(opened, text, args)


@dataclass(frozen=True)
class _GenerationOptions:
    """The generation options, as arguments of `inference.text.stream`."""

    count: int
    seed: int
    samples: int
    stop: list[str]
    sampling: dict[str, Any]
    more: dict[str, Any]  # never, ends, window


def _run_language_model(run: Run, text: RunningPreprocessing, args: argparse.Namespace) -> int:
    """Print or emit texts that continue the prompts."""
    from .output import emit_json, write

    asked = _parse_options(run, text, args)
    prompts = [args.prompt] if args.prompts is None else _lines(args)
    encoded = [_prompt(text, prompt) for prompt in prompts]
    model = run.place.model(run.model, learns=False)
    if args.prompts is not None:
        _reject_long(model, encoded, asked, args.prompts)
        written = _batch_samples(run, model, text, prompts, encoded, asked)
    else:
        written = _stream_samples(run, model, text, args.prompt, encoded[0], asked)
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


def _parse_options(run: Run, text: RunningPreprocessing, args: argparse.Namespace) -> _GenerationOptions:
    """Return the generation options. Raises SettingError for invalid ones."""
    from ...inference.text import token_bounds

    for key in PAIRS:
        if getattr(args, key) is not None:
            raise IncompatibleSettingError(f"{option_name(key)} is only for sequence pairs. Leave it out.")
    samples, seed = _samples_and_seed(args)
    return _GenerationOptions(
        COUNT if args.count is None else args.count,
        seed,
        samples,
        args.stop or [],
        _sampling(args),
        {**token_bounds(run.model, text)._asdict(), "window": bool(args.window)},
    )


def _samples_and_seed(args: argparse.Namespace) -> tuple[int, int]:
    """Return the number of texts of each prompt and the seed of the first. Raises SettingError for invalid values."""
    samples, seed = 1 if args.samples is None else args.samples, args.seed or 0
    if samples < 1:
        raise SettingError(f"Invalid --samples {samples}: must be at least 1.")
    if not 0 <= seed < 2**63 - samples:
        raise SettingError(f"Invalid --seed {seed}: must be at least 0 and below 2**63.")
    greedy = "--temperature 0" if args.temperature == 0 else "--top-k 1" if args.top_k == 1 else ""
    if samples > 1 and greedy:
        raise IncompatibleSettingError(
            f"--samples {samples} with {greedy} gives {samples} equal texts: leave one of them out."
        )
    return samples, seed


def _sampling(args: argparse.Namespace) -> dict[str, Any]:
    """Return the sampling options, as arguments of `inference.sampling.Sampling`."""
    return {
        "temperature": TEMPERATURE if args.temperature is None else args.temperature,
        "top_k": args.top_k or 0,
        "top_p": 1.0 if args.top_p is None else args.top_p,
        "min_p": args.min_p or 0.0,
        "repetition_penalty": 1.0 if args.repetition_penalty is None else args.repetition_penalty,
    }


def _stream_samples(
    run: Run, model: torch.nn.Module, text: RunningPreprocessing, prompt: str, ids: Tensor, asked: _GenerationOptions
) -> Iterator[tuple[int, Iterator[str]]]:
    """Generate the samples of one prompt as a stream: yield 0, the prompt's number, and an iterator of pieces."""
    from ...inference.text import as_text, stream

    ids = ids.to(run.place.device)
    for number in range(asked.samples):
        generator = _make_generator(asked.seed + number)
        drawn = stream(model, ids[None], asked.count, generator=generator, **asked.more, **asked.sampling)
        yield 0, as_text(map(int, drawn), _pieces(text, prompt, ids, asked))


def _batch_samples(
    run: Run,
    model: torch.nn.Module,
    text: RunningPreprocessing,
    prompts: list[str],
    encoded: list[Tensor],
    asked: _GenerationOptions,
) -> Iterator[tuple[int, Iterator[str]]]:
    """Generate the samples of all prompts in batches: yield the prompt's number and its text."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from ...inference.text import as_texts, stream

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
            generator=[_make_generator(asked.seed + number) for _, number in some],
            **asked.more,
            **asked.sampling,
        )
        found = as_texts(drawn, [_pieces(text, prompts[i], encoded[i], asked) for i, _ in some])
        yield from ((i, iter([said])) for (i, _), said in zip(some, found))


def _make_generator(seed: int) -> torch.Generator:
    """Return a generator for one text."""
    import torch

    return torch.Generator().manual_seed(seed)


def _pieces(text: RunningPreprocessing, prompt: str, ids: Tensor, asked: _GenerationOptions) -> TextStreamer:
    """Return the decoder of the tokens after a prompt."""
    from ...inference.text import TextStreamer

    return TextStreamer(text.decode, ids.tolist() if prompt else [], asked.stop)


def _lines(args: argparse.Namespace) -> list[str]:
    """Read the prompts file. Raises SettingError or DataError."""
    from ...data.text.text_files import read_lines

    if args.prompt:
        raise IncompatibleSettingError("--prompt and --prompts exclude each other: write all prompts into the file.")
    require_regular_file(args.prompts)
    return read_lines(Path(args.prompts), nonempty=True)[0]


def _reject_long(model: torch.nn.Module, encoded: list[Tensor], asked: _GenerationOptions, file: str) -> None:
    """Raise DataError, with the lines, if prompts are longer than the model's context."""
    from ...inference.text import context_length

    most = context_length(model)
    if most is None or asked.more["window"]:
        return
    problems = [
        Problem(f"line {number} of {file}", f"it has {len(ids):,} tokens")
        for number, ids in enumerate(encoded, 1)
        if len(ids) > most
    ]
    if problems:
        raise DataMismatchError(
            f"These prompts exceed the context of {most:,} tokens:",
            problems,
            "Shorten them, or use a sliding window (--window) over the last tokens.",
        )


def _prompt(text: RunningPreprocessing, prompt: str) -> Tensor:
    """Encode a prompt to token ids, shape (T,). Raises DataError if the model knows none of its tokens."""
    from ...inference.text import encode_prompt
    from .output import note

    ids, said = encode_prompt(text, prompt)
    if said:
        note(f"note: {said}")
    return ids


def _run_pairs(run: Run, args: argparse.Namespace) -> int:
    """Print the output for a prompt, for a run trained on pairs or captions: the likeliest, or samples."""
    from ...core.spec import PairSpec
    from .output import emit_json, note_warnings, write

    pairs = isinstance(run.spec, PairSpec)
    learned = "pairs of sequences" if pairs else "captions"
    for key in RUNNING:
        if getattr(args, key) is None:
            continue
        way_out = "leave it out"
        if key == "prompts":
            what = "FILE` predicts every line of a file" if pairs else "FOLDER` predicts every image of it"
            way_out = f"`cutaway predict RUN {what}"
        raise IncompatibleSettingError(
            f"{option_name(key)} is only for language models, and this run is trained on {learned}: {way_out}."
        )
    if not args.prompt:
        what = "a sequence" if pairs else "an image"
        raise MissingSettingError(f"Missing --prompt: a run trained on {learned} needs {what}.")
    drawing = [key for key in DRAWING if getattr(args, key) is not None]
    beams = [key for key in PAIRS if getattr(args, key) is not None]
    if drawing and beams:
        raise IncompatibleSettingError(
            f"{option_name(beams[0])} and {option_name(drawing[0])} exclude each other: beam search does not "
            "sample. Leave one of them out."
        )
    samples, seed = _samples_and_seed(args)
    with note_warnings():
        if drawing:
            (found,) = run.generate([args.prompt], samples, seed=seed, **_sampling(args))
        else:
            rows = run.predict([args.prompt], num_beams=args.num_beams, length_penalty=args.length_penalty)
            found = [next(str(value) for key, value in row.items() if key != "input") for row in rows]
    if args.json:
        emit_json({"prompt": args.prompt, "samples": found, **({"seed": seed, **_sampling(args)} if drawing else {})})
    else:
        write("".join(f"{text}\n" for text in found))
    return 0


OUT, IMAGES_COUNT = "samples.png", 64
COMPLETED, COMPLETIONS = 8, 4  # images that are completed, and completions of each
OPTIONS = ("out", "of_class", "complete", "steps", "guidance", "eta")  # options for images only
IMAGE_SAMPLING = ("temperature", "top_k", "top_p", "min_p")  # sampling options for image tokens too
OVERWRITE = "overwrite"


def add_image_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for images."""
    parser.add_argument("--out", metavar="FILE", help=f"images: output file, a .png (default: {OUT})")
    parser.add_argument("--overwrite", action="store_true", default=None, help="images: overwrite --out if it exists")
    parser.add_argument(
        "--class", dest="of_class", metavar="NAME", help="images: class to generate (default: all classes alternately)"
    )
    parser.add_argument(
        "--complete",
        metavar="PATH",
        help="images: complete the lower half of an image, of the images of a folder, or of a split of the run's data "
        f"(train, val, test): the first {COMPLETED} (--count), {COMPLETIONS} times each (--samples); only for models "
        "of image tokens",
    )
    parser.add_argument("--steps", metavar="N", type=int, help="images: number of sampling steps (default: 50)")
    parser.add_argument(
        "--guidance",
        metavar="S",
        type=float,
        help="images: scale of classifier-free guidance: 0 ignores the class, 1 is no guidance, larger values give "
        "more typical and less diverse images (default: 2)",
    )
    parser.add_argument(
        "--eta",
        metavar="E",
        type=float,
        help="images: 0 is deterministic sampling (DDIM), 1 is ancestral sampling (DDPM) (default: 1)",
    )


def option_name(key: str) -> str:
    """Return the command-line option of an argument."""
    return "--class" if key == "of_class" else f"--{key.replace('_', '-')}"


def generate_images(run: Run, args: argparse.Namespace, for_text: tuple[str, ...]) -> int:
    """Generate images, write them as one picture and print its path. Raises SettingError for invalid options and for
    options in `for_text`."""
    from ...core.files import atomic_write, reject_overwriting
    from ...inference.image_generation import columns_for, image_grid
    from .output import emit_json, note, note_warnings

    allowed = (*IMAGE_SAMPLING, *(("samples",) if args.complete is not None else ())) if _has_tokens(run) else ()
    allowed += ("prompt",) * _has_captions(run)
    for key in for_text:
        if key not in allowed and getattr(args, key) not in (None, ""):
            raise IncompatibleSettingError(
                f"{option_name(key)} is only for text, and this run generates images. Leave it out."
            )
    out = args.out or OUT
    if not out.lower().endswith(".png"):
        raise SettingError(f"Invalid --out {out}: must end in .png.")
    reject_overwriting(out, overwrite=bool(args.overwrite))
    count, seed = IMAGES_COUNT if args.count is None else args.count, args.seed or 0
    given = {"steps": args.steps, "guidance": args.guidance, "eta": args.eta}
    sampling = _token_sampling(run, args)
    if args.complete is not None:
        return _complete_images(run, args, out, sampling)
    prompt = args.prompt or None
    with note_warnings():
        levels, classes, asked = run.sample_tensors(count, args.of_class, prompt=prompt, seed=seed, **given, **sampling)
    names = run.spec.target.names if classes is not None else ()  # type: ignore[union-attr]  # it draws images
    whole = image_grid(levels, columns_for(count, len(names) if args.of_class is None else 0))
    with atomic_write(out) as temporary:
        whole.save(temporary, format="PNG")
    one_step = _has_tokens(run) or (classes is None and asked.steps == 1)
    how = "" if one_step else f", {asked.steps} steps"
    how += f", guidance {asked.guidance:g}" if asked.guidance is not None else ""
    note(f"{count:,} image{'s' if count > 1 else ''} in {out} (seed {seed}{how})")
    if args.json:
        of_each = [names[k] for k in classes.tolist()] if classes is not None else None
        found = {"out": out, "count": count, "seed": seed, "classes": of_each, **(sampling or vars(asked))}
        emit_json(found | ({"prompt": prompt} if prompt else {}))
    return 0


def _has_tokens(run: Run) -> bool:
    """Return whether the run models image tokens."""
    from ...core.spec import ImageTokens

    return isinstance(run.spec.target, ImageTokens)


def _has_captions(run: Run) -> bool:
    """Return whether the run models image tokens after a caption."""
    from ...core.spec import ImageTokens

    return isinstance(run.spec.target, ImageTokens) and run.spec.target.caption > 0


def _token_sampling(run: Run, args: argparse.Namespace) -> dict[str, Any]:
    """Return the sampling options for image tokens, as arguments of `Run.sample`. Raises SettingError for others."""
    if _has_tokens(run):
        return {key: getattr(args, key) for key in IMAGE_SAMPLING if getattr(args, key) is not None}
    if args.complete is not None:
        raise IncompatibleSettingError("--complete is only for models of image tokens (image-gpt). Leave it out.")
    return {}


def _complete_images(run: Run, args: argparse.Namespace, out: str, sampling: dict[str, Any]) -> int:
    """Complete the lower half of images, and write them as one picture.

    A row has the upper half of an image, its completions, and the image itself.
    """
    import torch

    from ...core.files import atomic_write
    from ...inference.image_generation import image_grid, mask_lower_half
    from .output import emit_json, note, note_warnings

    samples, seed = COMPLETIONS if args.samples is None else args.samples, args.seed or 0
    count = COMPLETED if args.count is None else args.count
    for key in ("steps", "guidance", "eta"):
        if getattr(args, key) is not None:
            raise IncompatibleSettingError(f"{option_name(key)} is only for diffusion models. Leave it out.")
    prompt = args.prompt or None
    with note_warnings():
        images, drawn = run.complete(
            args.complete, samples, args.of_class, prompt=prompt, limit=count, seed=seed, **sampling
        )
    rows = torch.cat([mask_lower_half(images)[:, None], drawn, images[:, None]], dim=1)  # (n, samples + 2, C, H, W)
    with atomic_write(out) as temporary:
        image_grid(rows.flatten(0, 1), samples + 2).save(temporary, format="PNG")
    n = len(images)
    note(
        f"{n:,} image{'s' if n > 1 else ''} in {out}, one a row: the given half, {samples} "
        f"completion{'s' if samples > 1 else ''}, the original (seed {seed})"
    )
    if args.json:
        emit_json({"out": out, "count": n, "samples": samples, "seed": seed, **sampling})
    return 0


OTHERS = ("prompts", "count", "stop", "window", "top_k", "top_p", "min_p", "repetition_penalty", "num_beams")
SHOWN = 12  # thoughts of each depth of a tree


def solve_problem(run: Run, args: argparse.Namespace) -> int:
    """Search for a solution of a problem and print it, with the tree of thoughts and its cost."""
    from ...data.text.puzzles import PuzzlePreprocessing
    from ...inference.language_model_thinker import solution_form
    from ...inference.thought_search import CHAINS, GREEDY
    from .output import emit_json, write

    for key in OTHERS:
        if getattr(args, key) is not None:
            raise IncompatibleSettingError(f"{option_name(key)} is not supported for problem solving. Leave it out.")
    if not args.prompt:
        raise MissingSettingError("Missing --prompt: give a problem, e.g. 4 9 10 13 or 128+367.")
    method = selected_method(args) or GREEDY
    (found,) = run.think([args.prompt], method)
    assert isinstance(run.preprocessing, PuzzlePreprocessing)
    preprocessing = run.preprocessing.in_form(solution_form(run.preprocessing, method))
    verdict = preprocessing.kind.judge(found.root.text, preprocessing.form, found.solution)
    spent = found.root.held.spent
    if args.json:
        emit_json(
            {
                "problem": found.root.text,
                "solution": found.solution,
                "solved": verdict.solved,
                "first_wrong_step": verdict.wrong,
                "why": verdict.why,
                "tokens": spent.tokens,
                "thoughts": _documents(found.thoughts),
            }
        )
        return 0
    write(f"{found.root.text}\n")
    if method.method not in CHAINS:
        write("\n".join(_tree(found)) + "\n")
    text = found.solution.strip("\n") or "no solution found"
    write("".join(f"  {line}\n" for line in text.split("\n")))
    said = "solved" if verdict.solved else "not solved"
    if verdict.why:  # empty for a solved problem
        said += f": step {verdict.wrong}: {verdict.why}"
    write(f"{said}; {len(found.thoughts):,} thoughts, {spent.tokens:,} tokens\n")
    return 0


def _documents(thoughts: list[Thought]) -> list[dict[str, Any]]:
    """Convert thoughts to JSON values, each with the number of its parent, or None if the parent is the problem."""
    numbers = {id(thought): k for k, thought in enumerate(thoughts)}
    return [
        {
            "text": thought.text.strip("\n"),
            "parent": numbers.get(id(thought.parent)),
            "log_p": thought.log_p,
            "value": thought.value,
            "kept": thought.kept,
        }
        for thought in thoughts
    ]


def _tree(found: SearchResult) -> list[str]:
    """Return one line for each thought, below its parent, with the kept ones first."""
    children: dict[int, list[Thought]] = {}
    for thought in found.thoughts:
        children.setdefault(id(thought.parent), []).append(thought)
    lines: list[str] = []

    def grow(thought: Thought, indent: str) -> None:
        own = sorted(children.get(id(thought), []), key=lambda t: (not t.kept, -(t.value or 0.0)))
        for k, child in enumerate(own[:SHOWN]):
            last = k == len(own) - 1
            mark = "" if child.kept else "  pruned"
            lines.append(f"{indent}{'└' if last else '├'} {child.text.strip()}  {child.value or 0:.2f}{mark}")
            grow(child, indent + ("  " if last else "│ "))
        if len(own) > SHOWN:
            lines.append(f"{indent}└ and {len(own) - SHOWN} more")

    grow(found.root, "  ")
    return lines
