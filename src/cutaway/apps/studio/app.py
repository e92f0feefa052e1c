"""Routes and handlers of the studio, below the token.

GET   (nothing)          the page
      draw/NAME          the scripts and styles that draw views
      page/NAME          those of the page itself
      choices            data, models and settings to choose from
      events             frames, as server-sent events
POST  open, close, control, change, weight, watch, try, image, save, upload
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ... import draw
from ...core.errors import CutawayError, SettingError
from ..networking import JSON, media_type, parse_json_object, read_body
from .choices import LARGEST, TooLarge, Upload, choices, strip_folders
from .sessions import CONTROLS, Side, Studio
from .setup import validate_state
from .viewer import MAX_LETTERS
from .workers import Fault

PAGE = Path(str(resources.files(__package__))) / "page"
DRAW = Path(str(resources.files(draw)))
LARGEST_JSON = 2**20  # bytes of a JSON request
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
FIRST = '<script type="application/json" id="first">{first}</script>'
WATCHED = 50  # views, or options, at most

Handler = Callable[[Request], Awaitable[Response]]


class Routes:
    """The routes of one studio and their handlers."""

    def __init__(self, studio: Studio, open_first: bool = True) -> None:
        self.studio, self.open_first = studio, open_first
        self.tasks: set[asyncio.Task[None]] = set()

    def app(self) -> Starlette:
        """Return the Starlette application. With `open_first`, a side is opened as soon as it runs."""
        asked = {
            "open": self.open, "close": self.close, "control": self.control, "change": self.change,
            "weight": self.weight, "watch": self.watch, "try": self.attempt, "save": self.save,
        }  # fmt: skip
        return Starlette(
            routes=[
                Route("/", self.page),
                Route("/draw/{name}", self.drawing),
                Route("/page/{name}", self.of_page),
                Route("/choices", self.choices),
                Route("/events", self.events),
                Route("/image", self.image, methods=["POST"]),
                Route("/upload", self.upload, methods=["POST"]),
                *(Route(f"/{name}", answering(handler), methods=["POST"]) for name, handler in asked.items()),
            ],
            exception_handlers=dict.fromkeys((HTTPException, CutawayError, Fault), self._rejection),
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        if self.open_first:
            task = asyncio.create_task(self._open_first())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        try:
            yield
        finally:
            for task in self.tasks:
                task.cancel()
            await self.studio.close()

    async def _open_first(self) -> None:
        with contextlib.suppress(CutawayError, Fault):  # the frame shows the error
            await self.studio.sides["a"].open(self.studio.first_state())

    # --- GET routes -------------------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        """Serve the page, with its first content embedded."""
        frames = {name: json.loads(side.frame) if side.frame else None for name, side in self.studio.sides.items()}
        state = self.studio.sides["a"].state or self.studio.first_state()
        run = str(self.studio.run) if self.studio.run else None
        first = json.dumps({"choices": self._choices(), "frames": frames, "state": state, "run": run})
        first = first.replace("<", "\\u003c")  # so that nothing in it can close the script element
        text = PAGE.joinpath("index.html").read_text(encoding="utf-8")
        return HTMLResponse(text.replace(FIRST, FIRST.replace("{first}", first)))

    async def drawing(self, request: Request) -> Response:
        """Serve a script of the drawing library."""
        return _file(DRAW, request.path_params["name"])

    async def of_page(self, request: Request) -> Response:
        """Serve a script of the page."""
        return _file(PAGE, request.path_params["name"])

    async def choices(self, request: Request) -> Response:
        """Serve data, models and settings to choose from."""
        return JSONResponse(self._choices())

    async def events(self, request: Request) -> Response:
        """Stream frames until the client disconnects."""
        return StreamingResponse(self.studio.events(), media_type="text/event-stream")

    def _choices(self) -> dict[str, Any]:
        found = choices(self.studio.run.name if self.studio.run else None)
        own = [file.choice() for file in self.studio.uploads.files.values()]
        return {**found, "data": [*own, *found["data"]]}

    # --- POST routes ------------------------------------------------------------------------------------------

    async def open(self, body: dict[str, Any]) -> Side:
        """Open a side, or replace it."""
        side = self.studio.side(body.get("side"))
        await side.open(validate_state(body.get("state")))
        return side

    async def close(self, body: dict[str, Any]) -> Side:
        """Close a side."""
        side = self.studio.side(body.get("side"))
        await side.close()
        side.frame, side.state = None, {}
        return side

    async def control(self, body: dict[str, Any]) -> Side | None:
        """Play, pause, step, reset or seek on one side or both."""
        what, to = body.get("do"), body.get("to", 0)
        if what not in CONTROLS:
            raise SettingError(f"Invalid do: must be one of {', '.join(CONTROLS)}.")
        if not isinstance(to, int | float) or not abs(to) < 1e15:
            raise SettingError("Invalid to: must be a step number.")
        sides = self.studio.both(body.get("side"))
        await asyncio.gather(*(side.ask({"do": "control", "what": what, "to": int(to)}) for side in sides))
        return sides[0] if len(sides) == 1 else None

    async def change(self, body: dict[str, Any]) -> Side:
        """Change a setting during training."""
        key, value = body.get("key"), body.get("value")
        if not isinstance(key, str) or not isinstance(value, str | int | float) or len(str(value)) > 2000:
            raise SettingError("Invalid change: must have a key and a value, both strings.")
        side = self.studio.side(body.get("side"))
        await side.ask({"do": "change", "key": key, "value": str(value)})
        return side

    async def weight(self, body: dict[str, Any]) -> Side | dict[str, Any]:
        """Set one weight by hand; without a value, return its current one."""
        name, index, value = body.get("name"), body.get("index"), body.get("value")
        index = index if isinstance(index, list) and all(type(i) is int for i in index) else None
        if not isinstance(name, str) or index is None or len(index) > 8 or not isinstance(value, int | float | None):
            raise SettingError("Invalid weight: must have a name, an index of integers, and a value.")
        side = self.studio.side(body.get("side"))
        if value is None:
            return {"value": await side.weighed(name, index)}
        await side.ask({"do": "weight", "name": name, "index": index, "value": float(value)})
        return side

    async def watch(self, body: dict[str, Any]) -> Side:
        """Select views, their options and the example."""
        side, views = self.studio.side(body.get("side")), body.get("views", [])
        options, example = body.get("options") or {}, body.get("example")
        if not isinstance(views, list) or not all(isinstance(v, str) for v in views) or len(views) > WATCHED:
            raise SettingError("Invalid views: must be names of views.")
        known = [view["name"] for view in self._choices()["views"]]
        if unknown := [view for view in views if view not in known]:
            raise SettingError(f"There is no view {unknown[0][:80]!r}. Available: {', '.join(known)}.", code="CUT-102")
        words = isinstance(options, dict) and len(options) <= WATCHED
        if not words or not all(
            isinstance(k, str) and isinstance(v, str) and len(v) <= 200 for k, v in options.items()
        ):
            raise SettingError("Invalid options: must be an object of strings.")
        if example is not None and type(example) is not int:
            raise SettingError("Invalid example: must be an index, from 0.")
        side.watch = {**side.watch, "views": views, "options": options, "example": example}
        side.news()
        return side

    async def attempt(self, body: dict[str, Any]) -> Side:
        """Set the user's own input, which every frame shows from now on; clear it if `try` is null."""
        side, given = self.studio.side(body.get("side")), body.get("try")
        kinds: dict[str, Any] = {"text": str, "temperature": (int, float), "count": int, "image": int}
        if given is not None and (
            not isinstance(given, dict)
            or not all(key in kinds and isinstance(value, kinds[key]) for key, value in given.items())
            or len(given.get("text", "")) > MAX_LETTERS
        ):
            raise SettingError(f"Invalid input: must be a text of at most {MAX_LETTERS:,} characters, or an image.")
        side.watch = {**side.watch, "try": given}
        side.news()
        return side

    async def save(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the command and the Python code that train the same model; with `write`, also save a run."""
        return await self.studio.side(body.get("side")).save(body.get("write") is True)

    async def image(self, request: Request) -> Response:
        """Store an image as input for the model and return its number."""
        self._reject_forms(request)
        return JSONResponse({"image": await self.studio.uploads.take_image(request.stream())})

    async def upload(self, request: Request) -> Response:
        """Store an uploaded file."""
        self._reject_forms(request)
        title = request.query_params.get("name", "")
        uploads = self.studio.uploads
        try:
            path = await uploads.take(title, request.stream())
        except ClientDisconnect:
            raise HTTPException(400, "The upload is incomplete.") from None
        found: Upload = await asyncio.to_thread(uploads.look, path, title)
        return JSONResponse(found.to_json())

    def _reject_forms(self, request: Request) -> None:
        """Raise HTTPException for a wrong content type, TooLarge for a declared size above the limit."""
        if media_type(request) != "application/octet-stream":  # no form of another page can send this type
            raise HTTPException(415, "Files must be sent as application/octet-stream.")
        declared = request.headers.get("content-length", "0")
        if not declared.isdigit() or int(declared) > LARGEST:
            raise TooLarge(f"The file is larger than the limit of {LARGEST >> 20} MiB.")

    async def _rejection(self, request: Request, error: Exception) -> Response:
        """Return an error as a response with a message and a status."""
        if isinstance(error, HTTPException):
            return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
        status = 413 if isinstance(error, TooLarge) else 500 if isinstance(error, Fault) else 422
        body = {"error": strip_folders(str(error), self.studio.folder)}
        return JSONResponse(body | ({"code": error.code} if isinstance(error, CutawayError) else {}), status)


def answering(handle: Callable[[dict[str, Any]], Awaitable[Side | dict[str, Any] | None]]) -> Handler:
    """Wrap a handler of POST requests, which gets a JSON object of bounded size.

    The response of a side holds "heard", the number of changes it has received, and the step of training. Frames with
    at least this number show the change.
    """

    async def answer(request: Request) -> Response:
        if media_type(request) != JSON:  # no form of another page can send this type
            raise HTTPException(415, "Requests must be JSON with Content-Type: application/json.")
        done = await handle(parse_json_object(await read_body(request, LARGEST_JSON)))
        return JSONResponse({"heard": done.heard, "step": done.step} if isinstance(done, Side) else done or {})

    return answer


def _file(folder: Path, name: str) -> Response:
    """Serve a file by its exact name among the files of a folder. No other path is ever read."""
    names = {file.name: file for file in folder.iterdir() if file.suffix in TYPES and file.is_file()}
    if name not in names:
        raise HTTPException(404, "File not found.")
    return Response(names[name].read_bytes(), media_type=TYPES[names[name].suffix])
