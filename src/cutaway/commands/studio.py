"""cutaway studio: the live page."""

from __future__ import annotations

import argparse
import contextlib

SUMMARY = "watch a model learn, on a live page of this machine"

EXAMPLES = """\
examples:
  cutaway studio
  cutaway studio runs/lenet5-modern-digits-1

The page opens at the address that is printed, which holds a secret: without it
nobody is answered. Ctrl-C ends the studio and all that it trains.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run's folder, to go on training it; it stays as it is")
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
    from ..report.studio.guard import refuse_open_host
    from ..report.studio.workers import warm_up
    from .output import note

    refuse_open_host(args.host, args.open_to_the_network)
    warm_up()  # before what follows, which takes as long
    from ..report.studio.serving import serve

    if args.open_to_the_network:
        note(
            f"warning: the studio listens at {args.host}, where other machines can reach it, unencrypted. Whoever has "
            "its address can train on this machine and see what was opened."
        )

    def started(url: str) -> None:
        print(url, flush=True)
        note("Open this address in a browser. Ctrl-C ends the studio.")

    with contextlib.suppress(KeyboardInterrupt):
        serve(args.run, args.host, args.port, args.open_to_the_network, started)
    note("The studio is closed.")
    return 0
