"""Connections by which nothing was asked yet: few at a time, each for a short time, and never in the owner's way.

Whoever opens connections and says nothing would else hold all those that a server has. A connection is a stranger's
until a request that is answered has come by it; then nothing here ends it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 64  # strangers at a time; where one more comes, the one that has waited longest goes
PATIENCE = 5.0  # seconds in which a request has to come
BACKLOG = 16  # connections that are accepted at once: far fewer than MOST, so that one that asks at once is heard

Peer = tuple[str, int]


class Strangers:
    """Those who are connected, and have not shown the token yet."""

    def __init__(self, most: int = MOST, patience: float = PATIENCE) -> None:
        self.most, self.patience = most, patience
        self.waiting: dict[Peer, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}  # the oldest first

    def came(self, peer: Peer, transport: asyncio.Transport) -> None:
        """Somebody has connected."""
        while len(self.waiting) >= self.most:
            self.send_away(next(iter(self.waiting)))
        timer = asyncio.get_running_loop().call_later(self.patience, self.send_away, peer)
        self.waiting[peer] = transport, timer

    def known(self, peer: Peer) -> None:
        """That one has shown the token, or is gone."""
        found = self.waiting.pop(peer, None)
        if found is not None:
            found[1].cancel()

    def send_away(self, peer: Peer) -> None:
        """End a connection, without a word."""
        transport, timer = self.waiting.pop(peer)
        timer.cancel()
        transport.abort()

    def protocol(self) -> type[asyncio.Protocol]:
        """How the server talks HTTP, with an eye on who comes."""
        strangers = self

        class Watched(H11Protocol):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                if self.client is not None:
                    strangers.came(self.client, transport)

            def connection_lost(self, exc: Exception | None) -> None:
                if self.client is not None:
                    strangers.known(self.client)
                super().connection_lost(exc)

        return Watched
