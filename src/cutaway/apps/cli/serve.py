"""cutaway serve: predictions and texts over HTTP."""

from __future__ import annotations

import argparse
import os

SUMMARY = "serve predictions and generated text of a run over HTTP"
TOKEN = "CUTAWAY_TOKEN"

EXAMPLES = f"""\
examples:
  cutaway serve runs/wine
  curl 127.0.0.1:8000/predict -H 'Content-Type: application/json' \\
       -d '{{"rows": [{{"alcohol": 13.2, ...}}]}}'
  curl 127.0.0.1:8000/predict -H 'Content-Type: image/png' \\
       --data-binary @seven.png
  {TOKEN}=$(openssl rand -hex 16) cutaway serve runs/help --host 0.0.0.0

The printed address has a page with the endpoints and a form to try them.
SIGTERM and Ctrl-C stop the server after all accepted requests are answered.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser.add_argument("--port", type=int, metavar="N", help="port (default: 8000; 0: any free port)")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="H",
        help="address to listen on (default: %(default)s); an address that other machines can reach needs a token",
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help=f"required as Authorization: Bearer TOKEN; safer in the environment variable {TOKEN}, since other users "
        "of the machine can see command lines",
    )
    parser.add_argument(
        "--batch-wait",
        default="2ms",
        metavar="T",
        help="maximum wait of a batch for more requests of other clients (default: %(default)s; 0ms: none)",
    )
    for option, usual, what in (
        ("max-batch", 32, "maximum batch size; larger requests are computed separately"),
        ("max-body", 16, "maximum MiB of a request"),
        ("queue", 256, "maximum requests in progress or waiting; others get status 429"),
        ("max-tokens", 1024, "maximum tokens generated for a request"),
        ("streams", 8, "texts generated at the same time; others wait"),
    ):
        parser.add_argument(f"--{option}", type=int, default=usual, metavar="N", help=f"{what} (default: %(default)s)")
    parser.add_argument(
        "--timeout",
        default="60s",
        metavar="T",
        help="timeout of a request, or of the first token of a stream (default: %(default)s)",
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
        note("Open this address in a browser, or POST to /predict. Ctrl-C stops the server.")

    serve(args.run, args.host, args.port, token, limits, started)
    note("Server stopped. All accepted requests were answered.")
    return 0
