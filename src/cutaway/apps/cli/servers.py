"""Commands that serve pages and requests: predictions and texts of a run over HTTP, and the studio."""

from __future__ import annotations

import argparse
import contextlib
import os

from ...core.errors import IncompatibleSettingError
from ...core.extras import require

TOKEN = "CUTAWAY_TOKEN"

SERVE_EXAMPLES = f"""\
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


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.epilog = SERVE_EXAMPLES


def run_serve(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    _require_server("cutaway serve")
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


def _require_server(command: str) -> None:
    """Raise MissingPackageError if a library of the servers is not installed."""
    for module in ("starlette", "uvicorn", "prometheus_client"):
        require(module, f"`{command}`")


STUDIO_EXAMPLES = """\
examples:
  cutaway studio
  cutaway studio runs/lenet5-modern-digits-1
  cutaway studio '#data=moons&model=mlp&lr=0.1'

The page is at the printed address, which contains a secret: requests without it
are rejected. Ctrl-C stops the studio and all its trainings.
"""


def add_studio_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "opened",
        metavar="RUN",
        nargs="*",
        help="folder of a run, to continue its training on a copy; or '#...', the part of a studio address after the "
        "#, to restore its state; or both",
    )
    parser.add_argument("--port", type=int, metavar="N", help="port (default: 8765, or the next free port)")
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--open-to-the-network",
        action="store_true",
        help="allow a --host that other machines can reach; everyone who has the address can use the studio",
    )
    parser.epilog = STUDIO_EXAMPLES


def run_studio(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    _require_server("cutaway studio")
    from ..studio.guard import reject_open_host
    from ..studio.workers import warm_up
    from .output import note

    run, state = _run_and_state(args.opened)
    reject_open_host(args.host, args.open_to_the_network)
    warm_up()  # runs in parallel with the imports below
    from ..studio.server import serve

    if args.open_to_the_network:
        note(
            f"warning: the studio listens on {args.host}, which other machines can reach, unencrypted. Everyone who "
            "has its address can train on this machine and see the opened data."
        )

    def started(url: str) -> None:
        print(url, flush=True)
        note("Open this address in a browser. Ctrl-C stops the studio.")

    with contextlib.suppress(KeyboardInterrupt):
        serve(run, args.host, args.port, args.open_to_the_network, started, state)
    note("Studio stopped.")
    return 0


def _run_and_state(opened: list[str]) -> tuple[str | None, str]:
    """Return the run and the shared state among the words; of a whole URL, the state is the part after #.

    Raises SettingError for two runs or two states.
    """
    states = [word.partition("#")[2] for word in opened if word.startswith(("#", "http://", "https://"))]
    runs = [word for word in opened if not word.startswith(("#", "http://", "https://"))]
    if len(runs) > 1 or len(states) > 1:
        raise IncompatibleSettingError(
            "The studio takes one RUN and one state: cutaway studio RUN '#data=...'. Quote the state, because it "
            "contains & characters."
        )
    return (runs[0] if runs else None), (states[0] if states else "")
