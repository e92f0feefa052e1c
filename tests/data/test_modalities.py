"""Settings that are for other kinds of data: rejected by name, whatever kind it is, before anything is read."""

from __future__ import annotations

from pathlib import Path

import networkx
import pytest

from cutaway import data
from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import KINDS as SPECS
from cutaway.data.modalities import KINDS, reject_settings_for_others
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings

CHANGED = {  # a value that is not the usual one, for a setting of each kind
    "table": {"scale": "none"},
    "image": {"flip": True},
    "text": {"special_tokens": True},
    "seq2seq": {"joint_vocab": True},
    "series": {"horizon": 3},
    "audio": {"n_mels": 20},
    "video": {"frames": 3},
    "graph": {"inductive": True},
}


def test_every_kind_has_its_line_and_keeps_the_scheme() -> None:
    assert set(KINDS) == set(SPECS) == set(CHANGED)
    for kind in KINDS.values():
        assert callable(kind.member(f"dataset.{kind.opens}"))
        files = {path.stem for path in (Path(data.__file__).parent / kind.folder).iterdir()}
        assert files >= {"dataset", "transforms"}
        assert all(hasattr(kind.member(name), "from_json") for name in kind.classes.values())


@pytest.mark.parametrize("kind", KINDS)
def test_settings_of_other_kinds_are_rejected_by_name(kind: str) -> None:
    reject_settings_for_others(DataSettings(**CHANGED[kind]), kind)  # type: ignore[arg-type]
    for other in set(KINDS) - {kind}:
        said = f"{next(iter(CHANGED[other]))}=.* is for {KINDS[other].plural}, and this is {kind} data: leave it out"
        with pytest.raises(SettingError, match=said):
            reject_settings_for_others(DataSettings(**CHANGED[other]), kind)  # type: ignore[arg-type]


def test_all_kinds_that_a_setting_is_for_are_named() -> None:
    with pytest.raises(SettingError, match="group=x is for tables and text, and this is image data"):
        reject_settings_for_others(DataSettings(group="x"), "image")
    with pytest.raises(SettingError, match="image_size=32 is for images and videos, and this is audio data"):
        reject_settings_for_others(DataSettings(image_size=32), "audio")


@pytest.mark.parametrize("name", ["iris", "digits", "moving_digits", "karate"])
def test_a_named_set_is_asked_too(name: str) -> None:
    with pytest.raises(SettingError, match="n_mels=20 is for audio"):
        open_data(name, DataSettings(n_mels=20))


def test_the_door_rejects_before_it_reads(tmp_path: Path) -> None:
    for name in ("t.csv", "t.txt", "t.tsv"):
        (tmp_path / name).write_bytes(b"\xff\xfe no data at all")
        with pytest.raises(SettingError, match="n_mels=20 is for audio"):
            open_data(tmp_path / name, DataSettings(n_mels=20))
    with pytest.raises(SettingError, match="n_mels=20 is for audio"):
        open_data(f"{tmp_path}/t.tsv", DataSettings(n_mels=20, pairs=True))
    networkx.write_graphml(networkx.path_graph(3), tmp_path / "g.graphml")
    with pytest.raises(SettingError, match="flip=true is for images, and this is graph data"):
        open_data(tmp_path / "g.graphml", DataSettings(flip=True))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("t.csv.gz", "Unpack it first"),
        ("t.zip", "Unpack it first"),
        ("t.data", "rename it to .csv"),
        ("t.xlsx", "Save it as CSV"),
        ("t.jsonl", "polars.read_ndjson"),
        ("t.feather", "Convert it to Parquet"),
        ("t.xyz", "Tables end in .csv"),
    ],
)
def test_a_file_that_is_not_read_is_named_with_a_way_out(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_bytes(b"1")
    with pytest.raises(DataError, match=words):
        open_data(str(tmp_path / name), DataSettings(target="y"))
