"""Bodies of requests: of a size that is bounded before they are read, and JSON that is what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

JSON = "application/json"


def media_type(request: Request) -> str:
    """The content type that a request names, in small letters and without its parameters."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


def reject_longer(request: Request, most: int) -> None:
    """Raise HTTPException 413 where a request says that its body is larger than that, before any of it is read."""
    told = request.headers.get("content-length", "0")
    if not told.isascii() or not told.isdigit() or len(told) > 18 or int(told) > most:
        raise too_large(most)


async def read_body(request: Request, most: int, came: Callable[[int], None] = lambda size: None) -> bytes:
    """The body, of at most so many bytes; `came` is told how many each piece has. Raises HTTPException 413 as soon as
    it is larger; the rest is not read."""
    reject_longer(request, most)
    body = bytearray()
    async for piece in request.stream():
        if len(body) + len(piece) > most:
            raise too_large(most)
        came(len(piece))
        body += piece
    return bytes(body)


def object_of(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is. Raises HTTPException 400 for what is none; NaN and Infinity are no JSON."""
    try:
        value = json.loads(body, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise HTTPException(400, "The request is not JSON.") from None
    if not isinstance(value, dict):
        raise HTTPException(400, "The request is not a JSON object.")
    return value


def too_large(most: int) -> HTTPException:
    """What is said of a body that is larger than that."""
    size = f"{most / 2**20:g} MiB" if most >= 2**20 else f"{most:,} bytes"
    return HTTPException(413, f"The request is too large: it has at most {size} here.")


def _reject_constant(name: str) -> None:
    raise ValueError(name)
