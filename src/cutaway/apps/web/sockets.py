"""A socket to listen at: on this machine alone unless asked otherwise, and said plainly where a port is taken."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence

from ...core.errors import FileError, SettingError

BUFFER = 256 * 1024  # bytes on their way to a client, so that what it sees never lags far behind
EVERYWHERE = ("0.0.0.0", "::")


def socket_on(host: str, ports: Sequence[int], way_out: str, backlog: int = 64) -> socket.socket:
    """A socket that listens at the first of these ports that is free; port 0 is any that is.

    Raises SettingError, which ends in the `way_out`, where the last is taken or not allowed; FileError for a host that
    this machine has not.
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
    """Whether only this machine can reach what listens at that host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def written(host: str) -> str:
    """A host as it stands in a URL: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def reachable(host: str) -> str:
    """The host by which this machine reaches what listens there, as it stands in a URL."""
    return "127.0.0.1" if host in EVERYWHERE else written(host)
