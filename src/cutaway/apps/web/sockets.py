"""Listening sockets: on this machine only by default, with a clear error if a port is in use."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence

from ...core.errors import FileError, SettingError

BUFFER = 256 * 1024  # bytes of the send buffer: small, so that what a client sees never lags far behind
EVERYWHERE = ("0.0.0.0", "::")


def open_socket(host: str, ports: Sequence[int], way_out: str, backlog: int = 64) -> socket.socket:
    """Return a socket that listens on the first free port of `ports`; port 0 means any free port.

    Raises SettingError, which ends with `way_out`, if the last port is in use or not permitted. Raises FileError if
    `host` is not an address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise FileError(f"--host {host} is no address: {getattr(error, 'strerror', None) or error}.") from error
    for number in ports:
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)  # what it accepts has the same
        try:
            listening.bind((address[0], number, *address[2:]))
            listening.listen(backlog)
        except OverflowError as error:
            listening.close()
            raise SettingError(f"--port {number} cannot be: ports are from 0 to 65535.") from error
        except OSError as error:
            listening.close()
            if error.errno == errno.EADDRINUSE and number != ports[-1]:
                continue
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                taken = "taken" if error.errno == errno.EADDRINUSE else "not for everybody to use"
                raise SettingError(f"Port {number} is {taken}: {way_out}") from error
            raise FileError(f"--host {host} is not an address of this machine: {error.strerror}.") from error
        listening.set_inheritable(False)
        return listening
    raise AssertionError("the last port is tried without mercy")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def format_host(host: str) -> str:
    """Format a host for a URL: IPv6 addresses get brackets."""
    return f"[{host}]" if ":" in host else host


def reachable_host(host: str) -> str:
    """Return the host, formatted for a URL, at which this machine reaches a server that listens on `host`."""
    return "127.0.0.1" if host in EVERYWHERE else format_host(host)
