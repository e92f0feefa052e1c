"""cutaway serve: predictions and texts over HTTP."""

from __future__ import annotations

import argparse
import os

SUMMARY = "predictions and texts of a run over HTTP, on this machine"
TOKEN = "CUTAWAY_TOKEN"

EXAMPLES = f"""\
examples:
  cutaway serve runs/wine
  curl 127.0.0.1:8000/predict -H 'Content-Type: application/json' \\
       -d '{{"rows": [{{"alcohol": 13.2, ...}}]}}'
  curl 127.0.0.1:8000/predict -H 'Content-Type: image/png' \\
       --data-binary @seven.png
  {TOKEN}=$(openssl rand -hex 16) cutaway serve runs/help --host 0.0.0.0

The page at the address that is printed says what can be asked, and asks it.
SIGTERM and Ctrl-C end the server once all that it has taken is answered.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("--port", type=int, metavar="N", help="the port (default: 8000; 0: any that is free)")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="H",
        help="the address to listen at (default: %(default)s); one that other machines can reach needs a token",
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help=f"what requests show as Authorization: Bearer TOKEN; better in the environment, as {TOKEN}, since others "
        "on the machine can see a command line",
    )
    parser.add_argument(
        "--batch-wait",
        default="2ms",
        metavar="T",
        help="how long a batch waits for more requests, where several clients ask (default: %(default)s; 0ms: never)",
    )
    for option, usual, what in (
        ("max-batch", 32, "examples of a batch at which it waits no more; a request with more is computed apart"),
        ("max-body", 16, "MiB of a request"),
        ("queue", 256, "requests that are answered or wait; more are told 429"),
        ("max-tokens", 1024, "tokens that are written for one request"),
        ("streams", 8, "texts that are written side by side; more wait"),
    ):
        parser.add_argument(f"--{option}", type=int, default=usual, metavar="N", help=f"{what} (default: %(default)s)")
    parser.add_argument(
        "--timeout",
        default="60s",
        metavar="T",
        help="how long a request waits for its answer, or the first token of a streamed one (default: %(default)s)",
    )
    parser.epilog = EXAMPLES


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    from ..serve.limits import Limits, parse_duration
    from ..serve.server import serve
    from .output import note

    limits = Limits(
        batch_wait=parse_duration("--batch-wait", args.batch_wait),
        timeout=parse_duration("--timeout", args.timeout),
        max_batch=args.max_batch,
        max_body=args.max_body,
        queue=args.queue,
        max_tokens=args.max_tokens,
        streams=args.streams,
    )
    token = args.token if args.token is not None else os.environ.get(TOKEN) or None

    def started(url: str) -> None:
        print(url, flush=True)
        note("Open this address in a browser, or POST to /predict. Ctrl-C ends the server.")

    serve(args.run, args.host, args.port, token, limits, started)
    note("The server is closed: all that it had taken is answered.")
    return 0
