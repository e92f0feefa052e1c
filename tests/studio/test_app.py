"""Who the studio answers, and what it gives away: nothing but its page, to nobody but its page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from cutaway.apps.studio import choices as uploads
from cutaway.apps.studio.app import Routes
from cutaway.apps.studio.choices import choices
from cutaway.apps.studio.guard import Guard
from cutaway.apps.studio.sessions import Studio
from cutaway.apps.studio.setup import small_settings
from cutaway.models.registry import presets

TOKEN, PORT = "a-token-that-nobody-knows", 8765
HOME = f"http://127.0.0.1:{PORT}"
JSON = {"content-type": "application/json"}
FILE = {"content-type": "application/octet-stream"}
TABLE = b"width,height,kind\n" + b"".join(b"%d,%d,%s\n" % (i, i * i, b"ab"[i % 2 : i % 2 + 1]) for i in range(60))


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    folder = tmp_path / "studio"
    folder.mkdir()
    return Studio(folder)


@pytest.fixture
def client(studio: Studio) -> Iterator[TestClient]:
    guard = Guard(Routes(studio, open_first=False).app(), TOKEN, "127.0.0.1", PORT)
    with TestClient(guard, base_url=HOME, raise_server_exceptions=False) as client:
        yield client


def at(path: str) -> str:
    return f"/{TOKEN}/{path}"


# --- to whom -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "choices", "events", "draw/view.js", "page/studio.js"])
@pytest.mark.parametrize("token", ["", "wrong/", TOKEN[:-1] + "/", TOKEN + "x/", TOKEN.upper() + "/", "%00/"])
def test_without_the_token_there_is_nothing(token: str, path: str, client: TestClient) -> None:
    answer = client.get(f"/{token}{path}")
    assert answer.status_code == 404
    assert TOKEN not in answer.text


def test_who_opens_an_old_address_is_told_how_to_see_the_same_again(client: TestClient) -> None:
    answer = client.get("/an-old-token/", headers={"accept": "text/html,*/*"})
    assert answer.status_code == 404
    assert "cutaway studio &#x27;" in answer.text or "cutaway studio '" in answer.text
    assert "<script" not in answer.text
    assert TOKEN not in answer.text
    assert client.get("/an-old-token/events").json()["error"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:80", "localhost:8766", "0.0.0.0:8765", ""]
)
def test_another_host_is_not_this_server(host: str, client: TestClient) -> None:
    assert client.get(at("choices"), headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765"])
def test_the_server_knows_its_names(host: str, client: TestClient) -> None:
    assert client.get(at("choices"), headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["192.168.0.7:8765", "[::1]:8765"])
@pytest.mark.parametrize(("listens", "status"), [("0.0.0.0", 200), ("127.0.0.1", 421)])
def test_a_server_for_all_is_known_by_numbers(listens: str, status: int, host: str, studio: Studio) -> None:
    guard = Guard(Routes(studio, open_first=False).app(), TOKEN, listens, PORT)
    with TestClient(guard, base_url=HOME) as client:
        assert client.get(at("choices"), headers={"host": host}).status_code == status
        assert client.get(at("choices"), headers={"host": "evil.example:8765"}).status_code == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:1", ""]
)
@pytest.mark.parametrize("path", ["control", "upload?name=a.csv", "close"])
def test_another_origin_is_rejected(origin: str, path: str, client: TestClient) -> None:
    headers = {**(FILE if "upload" in path else JSON), "origin": origin}
    assert client.post(at(path), content=b"{}", headers=headers).status_code == 403


def test_its_own_origin_is_not_rejected(client: TestClient) -> None:
    answer = client.post(at("close"), content=b'{"side": "b"}', headers={**JSON, "origin": HOME})
    assert answer.status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_embeds_is_rejected(site: str, client: TestClient) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
    assert client.get(at("draw/view.js"), headers=headers).status_code == 403


def test_two_hosts_are_none(client: TestClient) -> None:
    headers = [("host", f"127.0.0.1:{PORT}"), ("host", "evil.example")]
    assert client.get(at("choices"), headers=headers).status_code == 421


# --- what is given -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "choices", "draw/style.css", "nothing", "../choices"])
def test_every_answer_is_sealed(path: str, client: TestClient) -> None:
    headers = client.get(at(path)).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "name",
    [
        "../page.py", "..%2fpage.py", "%2e%2e/page.py", "..%5cpage.py", "....//page.py", "/etc/passwd",
        "%2fetc%2fpasswd", "view.js%00.css", "view.js/", "./view.js/../../page.py", "package.json", "VIEW.JS", "..",
        ".", "view", "",
        "~/.bashrc", "view.js;x", "C:\\boot.ini",
    ],
)  # fmt: skip
@pytest.mark.parametrize("folder", ["draw", "page"])
def test_no_other_file_is_read(folder: str, name: str, client: TestClient) -> None:
    answer = client.get(at(f"{folder}/{name}"))
    assert answer.status_code in (404, 403) or (name in ("..", "%2e%2e") and answer.status_code == 200)
    assert "root:" not in answer.text
    assert "import" not in answer.text or folder not in str(answer.url)


def test_modules_are_given_as_what_they_are(client: TestClient) -> None:
    script, style = client.get(at("draw/view.js")), client.get(at("draw/style.css"))
    assert script.headers["content-type"].startswith("text/javascript")
    assert style.headers["content-type"].startswith("text/css")
    assert "export" in script.text


def test_the_page_has_all_that_is_seen_at_once(client: TestClient) -> None:
    text = client.get(at("")).text
    found = text.split('id="first">')[1].split("</script>")[0]
    first = json.loads(found)
    assert set(first) == {"choices", "frames", "state", "run"}
    assert first["frames"] == {"a": None, "b": None}
    assert first["state"]["data"] == "spirals"
    assert "<" not in found


def test_choices_are_plain(client: TestClient) -> None:
    found = client.get(at("choices")).json()
    assert {d["name"] for d in found["data"] if d["toy"]} == {"xor", "moons", "circles", "spirals"}
    known = {"name", "kind", "title", "task", "here", "toy", "learns", "begins"}
    assert all(set(d) == known for d in found["data"])
    mlp = next(m for m in found["models"] if m["name"] == "mlp")
    by_key = {s["key"]: s for s in mlp["settings"]}
    assert by_key["model.hidden_dims"]["type"] == "ints"
    assert "tanh" in by_key["model.activation"]["choices"]
    assert "model.num_classes" not in by_key
    live = {s["key"] for s in found["settings"] if s["live"]}
    assert {"lr", "batch_size", "weight_decay", "noise", "speed"} <= live
    assert {"boundary", "gradients"} <= {v["name"] for v in found["views"]}


def test_what_can_be_chosen_has_its_default_among_it() -> None:
    for model in choices()["models"]:
        for setting in model["settings"]:
            assert setting["choices"] is None or setting["default"] in setting["choices"], (model["name"], setting)
            assert isinstance(setting["says"], str)


# --- what is asked -------------------------------------------------------------------------------------------------

ASKED = ["open", "close", "control", "change", "weight", "watch"]


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"]
)
def test_forms_are_rejected(path: str, kind: str, client: TestClient) -> None:
    assert client.post(at(path), content=b"{}", headers={"content-type": kind}).status_code == 415


@pytest.mark.parametrize("path", [*ASKED, "upload"])
def test_what_changes_something_is_no_get(path: str, client: TestClient) -> None:
    assert client.get(at(path)).status_code == 405


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"null", b"\xff", b"[" * 100_000, b'{"a": NaN'])
def test_what_is_no_json_object_is_rejected(body: bytes, client: TestClient) -> None:
    assert client.post(at("control"), content=body, headers=JSON).status_code == 400


def test_a_request_that_is_too_large_is_rejected(client: TestClient) -> None:
    assert client.post(at("open"), content=b" " * (2**20 + 1), headers=JSON).status_code == 413


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("open", {"side": "c", "state": {}}, "must be a or b"),
        ("open", {"side": "a"}, "must be an object of strings"),
        ("open", {"side": "a", "state": {"data": "moons"}}, "Missing data or model"),
        ("open", {"side": "a", "state": {"data": "/etc/passwd", "model": "mlp"}}, "Paths cannot be opened"),
        ("open", {"side": "a", "state": {"data": "../..", "model": "mlp"}}, "Paths cannot be opened"),
        ("open", {"side": "a", "state": {"data": ".", "model": "mlp"}}, "Paths cannot be opened"),
        ("open", {"side": "a", "state": {"data": "upload-7", "model": "mlp"}}, "Paths cannot be opened"),
        ("open", {"side": "a", "state": {"data": "own.csv", "model": "mlp"}}, "Upload it again"),
        ("open", {"side": "a", "state": {"data": "moon", "model": "mlp"}}, "moons"),
        ("open", {"side": "a", "state": {"data": "run", "model": "mlp"}}, "No run is open"),
        (
            "open",
            {"side": "a", "state": {"data": "moons", "model": "mlp", "weights": "/x"}},
            "not available in the studio",
        ),
        ("open", {"side": "a", "state": {"data": "moons", "model": "mlp", "lrr": "1"}}, "no setting 'lrr'"),
        ("open", {"side": "a", "state": {"data": "moons", "model": "mlp", "steps": "1e99"}}, "steps"),
        ("open", {"side": "a", "state": {"data": "moons", "model": "mlp", "log": "?"}}, "log"),
        ("control", {"side": "a", "do": "dance"}, "play, pause"),
        ("control", {"side": "a", "do": "__init__"}, "play, pause"),
        ("control", {"side": "a", "do": "play"}, "No model is open"),
        ("control", {"side": "a", "do": "seek", "to": "far"}, "a step number"),
        ("control", {"side": "a", "do": "seek", "to": 1e300}, "a step number"),
        ("change", {"side": "a", "key": 3, "value": "1"}, "both strings"),
        ("change", {"side": "a", "key": "lr", "value": "0.1"}, "No model is open"),
        ("weight", {"side": "a", "name": "head.bias", "index": ["0"], "value": 1}, "integers"),
        ("weight", {"side": "a", "name": "head.bias", "index": [True], "value": 1}, "integers"),
        ("weight", {"side": "a", "name": "head.bias", "index": [0], "value": "1"}, "integers"),
        ("watch", {"side": "a", "views": ["os"]}, "no view"),
        ("watch", {"side": "a", "views": "boundary"}, "names"),
        ("watch", {"side": "a", "views": [], "options": {"a": 1}}, "object of strings"),
        ("watch", {"side": "a", "views": [], "example": "3"}, "example"),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_what_cannot_be_is_rejected_with_words(
    path: str, body: dict[str, object], words: str, client: TestClient, studio: Studio
) -> None:
    answer = client.post(at(path), json=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert all(side.pair is None for side in studio.sides.values())


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_table_is_taken(client: TestClient, studio: Studio) -> None:
    answer = client.post(at("upload?name=my flowers.csv"), content=TABLE, headers=FILE)
    assert answer.status_code == 200
    said = answer.json()
    assert (said["data"], said["kind"], said["columns"]) == ("my-flowers.csv", "table", ["width", "height", "kind"])
    assert str(studio.folder) not in answer.text
    assert studio.uploads.files["my-flowers.csv"].path.read_bytes() == TABLE
    assert client.get(at("choices")).json()["data"][0]["title"] == "my flowers.csv"
    opening = studio.resolve_opening({"data": "my-flowers.csv", "model": "mlp"})
    assert opening.given["target"] == "kind"
    assert (
        studio.resolve_opening({"data": "my-flowers.csv", "model": "mlp", "target": "width"}).given["target"] == "width"
    )


def test_a_file_is_known_by_its_name_and_the_same_file_is_the_same(client: TestClient, studio: Studio) -> None:
    names = [
        client.post(at("upload?name=own.csv"), content=content, headers=FILE).json()["data"]
        for content in (TABLE, TABLE + b"9,9,a\n", TABLE)
    ]
    assert names == ["own.csv", "own-2.csv", "own.csv"]
    assert len([path for path in studio.folder.rglob("*") if path.is_file()]) == 2
    assert studio.uploads.taken == 2 * len(TABLE) + 6


def test_every_data_set_begins_with_a_model_that_learns_from_it() -> None:
    found = choices()
    models = {model["name"]: model for model in found["models"]}
    settings = {setting["key"] for setting in found["settings"]}
    for data in found["data"]:
        model = models[data["begins"]["model"]]
        assert data["kind"] in model["takes"], data
        assert set(data["learns"]) & set(model["learns"]), data
        own = {setting["key"] for setting in model["settings"]}
        assert set(data["begins"]) - {"model"} <= own | settings, data


def test_what_makes_a_large_model_small_is_taken_by_it() -> None:
    for name, found in presets().items():
        given = small_settings(found)
        config = found.configure(settings=found.parse({key.removeprefix("model."): v for key, v in given.items()}))
        assert not given or config.dim == 64, name
    assert small_settings(presets()["gpt2"])["model.layers"] == "2"
    assert small_settings(presets()["lenet5"]) == {}


@pytest.mark.parametrize(
    "name", ["../../evil.csv", "/etc/cron.d/evil.csv", "..\\evil.csv", "a\x00b.csv", "é ö.csv", ".csv"]
)
def test_a_name_never_says_where_a_file_lies(name: str, client: TestClient, studio: Studio) -> None:
    answer = client.post(at("upload"), params={"name": name}, content=TABLE, headers=FILE)
    assert answer.status_code == 200
    (file,) = (path for path in studio.folder.rglob("*") if path.is_file())
    assert file.parent == studio.folder / "file-1"
    assert file.name.removesuffix(".csv").replace("-", "").replace("_", "").isalnum()
    assert file.name.isascii()


@pytest.mark.parametrize("name", ["a.zip", "a.py", "a.pt", "a.pkl", "a.csv.gz", "a", "", "csv", "a.png", "a.html"])
def test_other_files_are_not_taken(name: str, client: TestClient, studio: Studio) -> None:
    answer = client.post(at("upload"), params={"name": name}, content=TABLE, headers=FILE)
    assert answer.status_code == 422
    assert "must be a table" in answer.json()["error"]
    assert list(studio.folder.rglob("*")) == []


@pytest.mark.parametrize("kind", ["text/csv", "multipart/form-data", "text/plain", ""])
def test_a_file_is_not_sent_by_a_form(kind: str, client: TestClient) -> None:
    answer = client.post(at("upload?name=a.csv"), content=TABLE, headers={"content-type": kind})
    assert answer.status_code == 415


def test_a_file_that_says_it_is_too_large_is_not_read(client: TestClient) -> None:
    headers = {**FILE, "content-length": str(uploads.LARGEST + 1)}
    assert client.post(at("upload?name=a.csv"), content=b"", headers=headers).status_code == 413


def test_a_file_that_is_too_large_is_given_up(
    client: TestClient, studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "LARGEST", 1000)
    pieces = (b"1,2\n" * 100 for _ in range(10))  # without a length: nobody knows before it comes
    answer = client.post(at("upload?name=a.csv"), content=pieces, headers=FILE)
    assert answer.status_code == 413
    assert not any(path.is_file() for path in studio.folder.rglob("*"))
    assert studio.uploads.taken == 0


def test_files_together_are_bounded(client: TestClient, studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "TOGETHER", len(TABLE) + 10)
    assert client.post(at("upload?name=a.csv"), content=TABLE, headers=FILE).status_code == 200
    assert client.post(at("upload?name=b.csv"), content=TABLE, headers=FILE).status_code == 413
    assert list(studio.uploads.files) == ["a.csv"]


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", b""), ("a.parquet", TABLE), ("a.csv", b"\x00\xff"), ("a.txt", b"")]
)
def test_a_file_that_cannot_be_read_is_forgotten(name: str, content: bytes, client: TestClient, studio: Studio) -> None:
    answer = client.post(at(f"upload?name={name}"), content=content, headers=FILE)
    assert answer.status_code == 422
    assert answer.json()["error"]
    assert studio.uploads.files == {}
    assert not any(path.is_file() for path in studio.folder.rglob("*"))
    assert studio.uploads.taken == 0


def test_everything_is_removed_at_the_end(client: TestClient, studio: Studio) -> None:
    client.post(at("upload?name=a.csv"), content=TABLE, headers=FILE)
    assert studio.folder.exists()
    client.__exit__(None, None, None)
    assert not studio.folder.exists()
    client.__enter__()
