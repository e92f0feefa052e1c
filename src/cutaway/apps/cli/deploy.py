"""Commands that make a trained model smaller or convert it: export, prune, quantize and convert."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import MissingSettingError
from .arguments import parse_words

if TYPE_CHECKING:
    from ...deploy.compression import ModelMeasurement
    from ...runs.run import Run


def add_run_and_out(parser: argparse.ArgumentParser) -> None:
    """Add the positional arguments and --json."""
    parser.add_argument("words", nargs="*", metavar="RUN OUT [key=value ...]", help="a run, the new run, settings")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def parse_run_args(example: str, words: Sequence[str]) -> tuple[str, str, dict[str, Any]]:
    """Return the run, the new folder and the settings. Raises SettingError, with an `example`, if one of the first two
    is missing."""
    names, given = parse_words(words, names=2)
    if len(names) < 2:
        raise MissingSettingError(f"Missing run or new folder: {example}.")
    return names[0], names[1], given


def measure_runs(runs: Sequence[Run]) -> list[ModelMeasurement]:
    """Measure score, size and time of runs. Returns an empty list, with a note, if their data is missing or has no
    labels."""
    from ...core.errors import DataError
    from ...deploy.compression import compare_runs
    from .output import note

    try:
        return compare_runs(runs)
    except DataError as error:
        note(f"note: score and time are not measured. {error}")
        return []


def measurements_to_json(both: Sequence[ModelMeasurement]) -> dict[str, Any]:
    """Return the measurements before and after as a JSON document, with null if there are none."""
    return {name: both[i].to_json() if both else None for i, name in enumerate(("before", "after"))}


def print_comparison(
    models: Sequence[ModelMeasurement], more: Mapping[str, Callable[[ModelMeasurement], str]] | None = None
) -> None:
    """Print score and cost of each model, one row each; `more` holds extra columns after the score."""
    from ...core.memory_budget import format_bytes
    from ...core.metric_names import metric
    from .output import print_table
    from .train import format_metric

    watch, more = models[0].metric, more or {}
    sizes = [f"batch {size}" for size in models[0].milliseconds]
    titles = ("", metric(watch)[0], *more, "file", *sizes)
    rows = [
        (
            m.run,
            format_metric(watch, m.score.value),
            *(cell(m) for cell in more.values()),
            format_bytes(m.bytes),
            *(f"{ms:.2f} ms" for ms in m.milliseconds.values()),
        )
        for m in models
    ]
    print_table(titles, rows, right=titles[1:])


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser.add_argument("out", metavar="OUT", type=Path, help="OUT.onnx, for onnxruntime, or OUT.pt2, for torch.export")
    parser.add_argument("--overwrite", action="store_true", help="overwrite OUT if it exists")


def run_export(args: argparse.Namespace) -> int:
    """Export a run and print the result of the comparison with it."""
    from ...deploy.export import export
    from ...deploy.exported_program import TOLERANCE
    from ...runs.run import Run
    from .output import note

    _, *beside = export(Run(args.run), args.out, args.overwrite)
    for path in beside:
        note(f"{path} is its tokenizer in the format of the tokenizers library.")
    note(f"Verified: outputs of {args.out} equal those of {args.run} for two other batch sizes, within {TOLERANCE:g}.")
    if args.out.suffix == ".onnx":
        note(f"Try it: cutaway predict {args.out} FILE")
    return 0


def add_convert_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    sources = "run or model folder, Hugging Face or diffusers folder, hub:ORG/NAME, or torchvision file"
    parser.add_argument("source", metavar="IN", type=Path, help=sources)
    parser.add_argument("target", metavar="OUT", type=Path, help="output path; a folder must not exist")
    formats = ("torchvision", "huggingface", "diffusers", "cutaway", "word2vec")
    parser.add_argument("--to", required=True, choices=formats, help="format of OUT")
    parser.add_argument("--overwrite", action="store_true", help="overwrite OUT if it exists")
    parser.add_argument(
        "--adapter", metavar="DIR", type=Path, help="LoRA: merge this PEFT adapter into the weights of IN"
    )
    parser.add_argument("--model", metavar="NAME", help="preset of IN, if it is not stored there")


def run_convert(args: argparse.Namespace) -> int:
    """Convert a checkpoint and print the map of keys."""
    from ...checkpoints.convert import convert
    from .output import note, print_table

    done = convert(args.source, args.target, args.to, args.model, args.overwrite, args.adapter)
    titles = (str(args.source), f"in {args.target}")
    print_table(titles, list(done.key_map.items()), yields=titles[1])
    for sentence in done.notes:
        note(sentence)
    note(f"{len(done.key_map)} tensors of {done.preset}: {args.source} converted to {args.target}")
    return 0


PRUNE_NOTES = """\
examples:
  cutaway prune runs/resnet20-cifar10-1 sparse/ sparsity=0.8
  cutaway prune runs/resnet20-cifar10-1 small/ prune_channels=0.5 epochs=10
  cutaway prune runs/mlp-wine-1 sparse/ sparsity=0.9 prune_scope=layer
  cutaway prune runs/textcnn-docs-1 sparse/ prune_pattern=2:4

Magnitude pruning (sparsity=0.8) sets the smallest weights to 0, step by step
(Zhu and Gupta, 2017): the network keeps its shape and is not faster on dense
hardware. The 2:4 pattern (prune_pattern=2:4; Mishra et al., 2021) sets the two
smallest of every four consecutive inputs to 0, which NVIDIA GPUs from Ampere on
can multiply faster with torch.sparse.to_sparse_semi_structured or TensorRT;
here it is a mask without speedup. On an H200, layers of width 4,096 took 0.84
to 0.92 of the time that way, and layers of GPT-2's size more than 1. Structured
pruning (prune_channels=0.5), alone or with either, removes whole channels and
hidden units: the network becomes smaller and faster.

The model is fine-tuned during pruning, on the data and split of the run, for
half as many epochs and at 0.3 times the learning rate, unless set otherwise
with settings of `cutaway train`. OUT is a run. Milliseconds are medians on this
machine, with both models alternating.
"""


def add_prune_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "cutaway prune RUN OUT sparsity=0.8 [key=value ...] [--json]\n"
        "       cutaway prune RUN OUT prune_channels=0.5 [key=value ...] [--json]"
    )
    add_run_and_out(parser)
    parser.epilog = PRUNE_NOTES


def run_prune(args: argparse.Namespace) -> int:
    """Prune a run, then compare both models."""
    from ...deploy.compression import prune
    from ...reports.run_report import write_layers_and_report
    from ...runs.run import Run
    from .output import emit_json, note

    run_folder, out, given = parse_run_args("cutaway prune RUN OUT sparsity=0.8", args.words)
    before = Run(run_folder)
    after = prune(before, out, given)
    write_layers_and_report(after)
    both = measure_runs([before, after])
    if args.json:
        emit_json(measurements_to_json(both))
        return 0
    for sentence in after.about["data"]["notes"]:
        if sentence.startswith("Channels pruned"):
            note(f"note: {sentence}")
    if both:
        print_comparison(
            both, {"parameters": lambda m: f"{m.parameters:,}", "zeros": lambda m: f"{100 * m.sparsity:.0f} %"}
        )
    return 0


QUANTIZE_NOTES = """\
examples:
  cutaway quantize runs/resnet20-cifar10-1 int8/
  cutaway quantize runs/bert-base-uncased-sst2-1 int8/ method=dynamic
  cutaway quantize runs/gpt2-book-1 int4/ bits=4
  cutaway quantize runs/gpt2-book-1 int4/ bits=4 qat=2

Integer methods (Jacob et al., 2018). static: weights and inputs of
convolutions are 8-bit integers, with input ranges calibrated on the training
split and batch normalization folded in. dynamic: input ranges of linear layers
are computed at inference. weight-only: the file stores integers, and the model
computes in floats with the rounded weights. bfloat16, float16: 16 bits, for
hardware that supports them. Without method=, one of the first three is chosen
by the model. qat=5 runs five epochs of quantization-aware training first, if
rounding costs too much accuracy.

OUT is a run. Milliseconds are medians on this machine, with both models
alternating: integers are not always faster, which the output reports.
"""


def add_quantize_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    from ...deploy.quantize_config import QuantizeSettings
    from .settings_help import format_group

    parser.usage = "cutaway quantize RUN OUT [method=static] [bits=8] [key=value ...]\n                        [--json]"
    add_run_and_out(parser)
    parser.epilog = QUANTIZE_NOTES + format_group(QuantizeSettings, "\nsettings")


def run_quantize(args: argparse.Namespace) -> int:
    """Quantize a run, then compare both models."""
    from ...deploy.quantize import quantize
    from ...reports.run_report import write_layers_and_report
    from ...runs.run import Run
    from .output import emit_json, note

    run_folder, out, given = parse_run_args("cutaway quantize RUN OUT", args.words)
    before = Run(run_folder)
    after = quantize(before, out, given)
    write_layers_and_report(after)
    note(f"note: {after.about['notes'][-1]}")
    both = measure_runs([before, after])
    if args.json:
        emit_json(measurements_to_json(both))
    elif both:
        print_comparison(both)
        for sentence in comparison_sentences(both, after):
            note(sentence)
    return 0


def comparison_sentences(models: list[ModelMeasurement], after: Run) -> list[str]:
    """Return sentences on the relative size, and on batch sizes at which the quantized model is faster or slower."""
    from ...core.config import HALVES
    from ...nn.mixed_precision import has_half
    from ...nn.quantized import exact_kernels

    method, device = after.about["quantized"]["method"], after.place.device.type
    whole, small = models
    said = [f"The file has {small.bytes / whole.bytes:.2f} of its original size."]
    times = {size: whole.milliseconds[size] / ms for size, ms in small.milliseconds.items()}
    faster = [f"{ratio:.1f} times as fast at batch size {size}" for size, ratio in times.items() if ratio >= 1.05]
    slower = [f"{1 / ratio:.1f} times as long at batch size {size}" for size, ratio in times.items() if ratio <= 0.95]
    if faster:
        said.append(f"It is {' and '.join(faster)}.")
    if method == "weight-only":
        said.append("It computes in floats: only the file is smaller, and differences in time are noise.")
    elif method in HALVES and not has_half(method, device):
        said.append(f"This machine has no {method} arithmetic: it is emulated, and only the file is smaller.")
    elif method in HALVES and slower:
        said.append(f"It takes {' and '.join(slower)}: converting the inputs and outputs of each layer costs time.")
    elif slower:
        why = (
            "quantizing the inputs of such small layers costs more than integer arithmetic saves"
            if exact_kernels()
            else "this processor has no 8-bit dot product (VNNI), so floats are used"
        )
        said.append(f"It takes {' and '.join(slower)}: {why}.")
    return said
