"""cutaway studio: a live page of training."""

from __future__ import annotations

import argparse
import contextlib

from ...core.errors import SettingError

SUMMARY = "watch a model learn, on a live page of this machine"

EXAMPLES = """\
examples:
  cutaway studio
  cutaway studio runs/lenet5-modern-digits-1
  cutaway studio '#data=moons&model=mlp&lr=0.1'

The page opens at the address that is printed, which holds a secret: without it
nobody is answered. Ctrl-C ends the studio and all that it trains.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "opened",
        metavar="RUN",
        nargs="*",
        help="a run's folder, to go on training it, which stays as it is; or '#...', all that stands after the # of a "
        "studio's address, to see the same again; or both",
    )
    parser.add_argument("--port", type=int, metavar="N", help="the port (default: 8765, or the next that is free)")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="H", help="the address to listen at (default: %(default)s)"
    )
    parser.add_argument(
        "--open-to-the-network",
        action="store_true",
        help="allow a --host that other machines can reach; whoever has the address can use the studio",
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
            f"warning: the studio listens at {args.host}, where other machines can reach it, unencrypted. Whoever has "
            "its address can train on this machine and see what was opened."
        )

    def started(url: str) -> None:
        print(url, flush=True)
        note("Open this address in a browser. Ctrl-C ends the studio.")

    with contextlib.suppress(KeyboardInterrupt):
        serve(run, args.host, args.port, args.open_to_the_network, started, state)
    note("The studio is closed.")
    return 0


def _run_and_state(opened: list[str]) -> tuple[str | None, str]:
    """Return the run and the shared state among the words; of a whole URL, the state is the part after #.

    Raises SettingError for two runs or two states.
    """
    states = [word.partition("#")[2] for word in opened if word.startswith(("#", "http://", "https://"))]
    runs = [word for word in opened if not word.startswith(("#", "http://", "https://"))]
    if len(runs) > 1 or len(states) > 1:
        raise SettingError(
            "The studio opens one RUN, and one state: cutaway studio RUN '#data=...'. A state has & in it, which a "
            "shell reads as its own: put it in quotes."
        )
    return (runs[0] if runs else None), (states[0] if states else "")
