"""Where a server listens, and what is said where it cannot."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from cutaway.apps.networking import is_loopback, open_socket, reachable_host
from cutaway.core.errors import SettingError


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else listens at."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_the_next_port_that_is_free_is_taken(taken: int) -> None:
    with open_socket("127.0.0.1", [taken, 0], "") as found:
        assert found.getsockname()[0] == "127.0.0.1"
        assert found.getsockname()[1] not in (0, taken)


def test_a_port_that_is_taken_is_said(taken: int) -> None:
    with pytest.raises(SettingError, match=f"Port {taken} is already in use: take another."):
        open_socket("127.0.0.1", [taken], "take another.")


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_a_port_that_cannot_be_is_said(port: int) -> None:
    with pytest.raises(SettingError, match=f"Invalid --port {port}"):
        open_socket("127.0.0.1", [port], "")


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7", "a" * 70 + ".b"])
def test_a_host_that_is_not_here_is_said(host: str) -> None:
    with pytest.raises(OSError, match="--host"):
        open_socket(host, [0], "")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_what_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_what_others_reach(host: str) -> None:
    assert not is_loopback(host)


def test_a_host_in_a_url() -> None:
    assert [reachable_host(host) for host in ("0.0.0.0", "::1", "10.0.0.1")] == ["127.0.0.1", "[::1]", "10.0.0.1"]
