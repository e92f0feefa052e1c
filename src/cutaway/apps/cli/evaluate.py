"""cutaway evaluate: metrics of a run with 95 % intervals."""

from __future__ import annotations

import argparse

from .arguments import add_beam_search_options, add_thinking_options, selected_method

SUMMARY = "metrics of a run with 95 % intervals, on its test split or new data"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run, or .onnx file from `cutaway export`")
    parser.add_argument("data", metavar="DATA", nargs="?", help="other labelled data of the same kind")
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


def run(args: argparse.Namespace) -> int:
    """Evaluate a run and print its metrics."""
    import warnings

    from ...core.metric_names import metric
    from ...deploy.runtime import open_run
    from .output import emit_json, note, print_table
    from .train import format_metric

    asked = {key: getattr(args, key) for key in ("ways", "shots", "queries", "inner_steps")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        metrics = open_run(args.run).evaluate(
            args.data,
            num_beams=args.num_beams,
            length_penalty=args.length_penalty,
            attack=args.attack,
            eps=args.eps,
            attack_steps=args.attack_steps,
            method=selected_method(args),
            **{key: value for key, value in asked.items() if value is not None},
        )
    for warning in caught:
        note(f"note: {warning.message}")
    if args.json:
        emit_json({name: m.to_json() for name, m in metrics.items()})
        return 0
    found = {name: m.to_json() for name, m in metrics.items()}
    rows = [
        (metric(name)[0], *(format_metric(name, m[end]) for end in ("value", "low", "high")))
        for name, m in found.items()
    ]
    print_table(("", "value", "low", "high"), rows, right=("value", "low", "high"))
    notes: dict[str, list[str]] = {}
    for name, m in found.items():
        if "note" in m:
            notes.setdefault(m["note"], []).append(metric(name)[0])
    for reason, named in notes.items():
        note(f"note: {', '.join(named)}: {reason}")
    return 0
