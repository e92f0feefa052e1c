"""A limit on idle connections: few at a time, each for a short time, and never at the expense of the owner.

Without it, a client that opens connections and sends nothing could use up all connections of a server. A connection is
idle until a request on it is accepted; after that, nothing here closes it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 64  # idle connections at a time; one more closes the oldest
PATIENCE = 5.0  # seconds within which a request has to arrive
BACKLOG = 16  # accepted at once: far fewer than MOST, so that a client that sends at once is served

Peer = tuple[str, int]


class IdleConnections:
    """The connections on which no request has been accepted yet."""

    def __init__(self, most: int = MOST, patience: float = PATIENCE) -> None:
        self.most, self.patience = most, patience
        self.waiting: dict[Peer, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}  # the oldest first

    def opened(self, peer: Peer, transport: asyncio.Transport) -> None:
        """Record a new connection, and close the oldest idle ones while there are too many."""
        while len(self.waiting) >= self.most:
            self.close(next(iter(self.waiting)))
        timer = asyncio.get_running_loop().call_later(self.patience, self.close, peer)
        self.waiting[peer] = transport, timer

    def known(self, peer: Peer) -> None:
        """Forget a connection: a request on it was accepted, or it is closed."""
        found = self.waiting.pop(peer, None)
        if found is not None:
            found[1].cancel()

    def close(self, peer: Peer) -> None:
        """Abort an idle connection without a response."""
        transport, timer = self.waiting.pop(peer)
        timer.cancel()
        transport.abort()

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the HTTP protocol class for uvicorn, which reports connections that open and close."""
        strangers = self

        class MonitoredProtocol(H11Protocol):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                if self.client is not None:
                    strangers.opened(self.client, transport)

            def connection_lost(self, exc: Exception | None) -> None:
                if self.client is not None:
                    strangers.known(self.client)
                super().connection_lost(exc)

        return MonitoredProtocol
