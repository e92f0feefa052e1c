"""cutaway quantize: weights of 8 or 4 bits, with the cost in score and the gain in time."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .compression_arguments import add_run_and_out, measure_runs, measurements_to_json, parse_run_args, print_comparison

if TYPE_CHECKING:
    from ...deploy.compression import ModelMeasurement
    from ...runs.run import Run

SUMMARY = "quantize a run to 8- or 4-bit integers, or 16-bit floats"

NOTES = """\
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


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    from ...deploy.quantize_config import QuantizeSettings
    from .settings_help import format_group

    parser.usage = "cutaway quantize RUN OUT [method=static] [bits=8] [key=value ...]\n                        [--json]"
    add_run_and_out(parser)
    parser.epilog = NOTES + format_group(QuantizeSettings, "\nsettings")


def run(args: argparse.Namespace) -> int:
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
