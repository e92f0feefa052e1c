"""Downloads, from a server on the loopback: whole and as published, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cutaway.core.errors import DataError, FileError
from cutaway.data.datasets.catalog import Remote, cache, data_roots, download_file, download_missing, file_sha256

CONTENT = gzip.compress(bytes(range(256)) * 4096, mtime=0)
SUM = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """What is served under which path, how much of each answer is really sent, and what was asked for."""

    home: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut: int | None = None
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server on a free port of this machine, with one file."""
    state = Server(files={"/good.gz": CONTENT})

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            content = state.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: state.cut])

        def log_message(self, *args: object) -> None:
            del args

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    state.home = f"http://127.0.0.1:{running.server_port}"
    yield state
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no data folder beside it."""
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CUTAWAY_DATA", raising=False)
    return tmp_path / "cache"


def good(server: Server) -> Remote:
    return Remote("good.gz", f"{server.home}/good.gz", SUM, len(CONTENT))


def test_a_whole_file_is_kept(server: Server, tmp_path: Path) -> None:
    counts: list[int] = []
    download_file(good(server), tmp_path / "new", counts.append)
    assert (tmp_path / "new" / "good.gz").read_bytes() == CONTENT
    assert sum(counts) == len(CONTENT)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["good.gz"]


def test_a_file_that_breaks_off_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.cut = 1000
    (tmp_path / "good.gz").write_text("what was there before")
    with pytest.raises(FileError, match=rf"broke off after 1,000 of {len(CONTENT):,} bytes"):
        download_file(good(server), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["good.gz"]
    assert (tmp_path / "good.gz").read_text() == "what was there before"


def test_a_file_with_another_sum_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.files["/good.gz"] = CONTENT[:-1] + b"x"
    with pytest.raises(FileError, match="not the published file: its sha256 is") as caught:
        download_file(good(server), tmp_path)
    assert SUM in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_gone_is_told(server: Server, tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(FileError, match="the server answers 404 Not Found"):
        download_file(good(server), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_network_is_told_with_the_place_to_put_the_file(server: Server, own_cache: Path) -> None:
    gone = replace(good(server), url="http://127.0.0.1:1/good.gz")  # nothing listens there
    with pytest.raises(FileError, match=r"could not be downloaded: .*Is there a network") as caught:
        download_missing([gone, replace(gone, name="other.gz")], "little")
    assert "place in its little/: good.gz, other.gz." in str(caught.value)
    assert not list(own_cache.rglob("*.gz"))


def test_a_cache_that_cannot_be_written_is_told(
    server: Server, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cache.write_text("a file where the folder belongs")
    with pytest.raises(FileError, match="could not be written"):
        download_missing([good(server)], "little")


def test_only_what_is_missing_is_fetched(server: Server, own_cache: Path) -> None:
    server.files["/more.gz"] = CONTENT
    remotes = [good(server), replace(good(server), name="more.gz", url=f"{server.home}/more.gz")]
    place = download_missing(remotes[:1], "little")
    assert place == own_cache / "little"
    assert server.asked == ["/good.gz"]
    download_missing(remotes, "little")
    download_missing(remotes, "little")
    assert server.asked == ["/good.gz", "/more.gz"]


def packed(**members: bytes) -> bytes:
    """A .tar.gz of files, named with __ for / and _dot_ for ."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_dot_", "."))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def archived(server: Server, content: bytes, *members: str) -> Remote:
    server.files["/all.tar.gz"] = content
    sums = tuple((name, "") for name in members)
    return Remote("all.tar.gz", f"{server.home}/all.tar.gz", hashlib.sha256(content).hexdigest(), len(content), sums)


def test_an_archive_gives_the_files_wanted_and_no_others(server: Server, own_cache: Path) -> None:
    content = packed(
        batches__one_dot_bin=b"1", batches__readme_dot_html=b"no", _dot__dot___evil=b"no", two_dot_bin=b"2"
    )
    remote = archived(server, content, "batches/one.bin", "two.bin")
    place = download_missing([remote], "little")
    found = {str(p.relative_to(own_cache)): p.read_bytes() for p in own_cache.rglob("*") if p.is_file()}
    assert found == {"little/batches/one.bin": b"1", "little/two.bin": b"2"}
    assert download_missing([remote], "little") == place
    assert server.asked == ["/all.tar.gz"]


def test_an_archive_gives_a_folder_whole_and_nothing_beside_it(server: Server, own_cache: Path) -> None:
    content = packed(
        set1__recordings__a_dot_wav=b"a",
        set1__recordings__b_dot_wav=b"b",
        set1__recordings__c_dot_wav=b"c",
        set1__readme=b"no",
        other__recordings__d_dot_wav=b"no",
        **{"set1/recordings/../../evil": b"no"},
    )
    remote = archived(server, content, "recordings/a.wav", "recordings/c.wav")
    place = own_cache / "sounds"
    download_file(replace(remote, whole="set1/recordings"), place)
    assert sorted(p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file()) == [
        "recordings/a.wav",
        "recordings/b.wav",
        "recordings/c.wav",
    ]
    assert not (own_cache.parent / "evil").exists()
    with pytest.raises(DataError, match=r"has no file recordings/z\.wav"):
        download_file(replace(archived(server, content, "recordings/z.wav"), whole="set1/recordings"), place)


def test_an_archive_without_a_file_is_told(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no file absent\.bin"):
        download_file(archived(server, packed(one_dot_bin=b"1"), "one.bin", "absent.bin"), tmp_path)


def test_where_data_sets_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUTAWAY_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    assert data_roots() == [tmp_path / "mine", tmp_path / "cache"]
    monkeypatch.delenv("CUTAWAY_DATA")
    assert data_roots() == [tmp_path / "cache"]
    monkeypatch.delenv("CUTAWAY_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache() == tmp_path / "cutaway"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache() == Path.home() / ".cache" / "cutaway"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache() == Path.home() / "Library" / "Caches" / "cutaway"


def test_sums_are_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CONTENT)
    assert file_sha256(tmp_path / "x") == SUM
