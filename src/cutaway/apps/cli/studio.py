"""cutaway studio: a live page of training."""

from __future__ import annotations

import argparse
import contextlib

from ...core.errors import SettingError

SUMMARY = "train a model interactively on a live page"

EXAMPLES = """\
examples:
  cutaway studio
  cutaway studio runs/lenet5-modern-digits-1
  cutaway studio '#data=moons&model=mlp&lr=0.1'

The page is at the printed address, which contains a secret: requests without it
are rejected. Ctrl-C stops the studio and all its trainings.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.epilog = EXAMPLES


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
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
        raise SettingError(
            "The studio takes one RUN and one state: cutaway studio RUN '#data=...'. Quote the state, because it "
            "contains & characters."
        )
    return (runs[0] if runs else None), (states[0] if states else "")
