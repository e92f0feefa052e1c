"""Model folders and tensor files: the same bits back, and whatever is not whole rejected before it is used."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import cutaway
from cutaway.checkpoints import saving
from cutaway.checkpoints.saving import load_model, load_weights, read_tensors, save_model, write_tensors
from cutaway.core.errors import FileError, SettingError
from cutaway.core.schema import as_tuples, dataclass_schema, find_mismatch
from cutaway.models.registry import RENAMED_FIELDS, preset, presets

from ..small import small

META = {"state": {"epoch": 3, "loss": 0.25, "note": 'a "sha256":"quoted" word — ✓'}}
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A small file, as it should be."""
    path = tmp_path / "whole.safetensors"
    write_tensors(path, {"weight": torch.arange(6.0).view(2, 3), "bias": torch.tensor([1, 2])}, META)
    return path


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(0, 4), max_size=4),
    dtype=st.sampled_from(DTYPES),
    change=st.sampled_from(["none", "transposed", "channels last", "expanded", "every second", "alias"]),
)
def test_the_same_bits_come_back(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], dtype: torch.dtype, change: str
) -> None:
    x = (torch.randn(shape) * 100).to(dtype)
    changed: dict[str, Callable[[], Tensor]] = {
        "transposed": lambda: x.T if x.ndim == 2 else x,
        "channels last": lambda: x.to(memory_format=torch.channels_last) if x.ndim == 4 else x,
        "expanded": lambda: x.expand(3, *x.shape),
        "every second": lambda: x[::2] if x.ndim else x,
    }
    tensors = {"a": changed.get(change, lambda: x)(), "b": torch.zeros(())}
    if change == "alias":
        tensors["c"] = tensors["a"]
        tensors["d"] = tensors["a"].flatten()[:1]
    path = tmp_path_factory.mktemp("tensors") / "x.safetensors"
    write_tensors(path, tensors, META)
    found, meta = read_tensors(path)
    assert meta == META
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_any_program_can_read_it(whole: Path) -> None:
    assert torch.equal(load_file(whole)["weight"], torch.arange(6.0).view(2, 3))


def test_what_is_read_can_be_written_to_without_changing_the_file(whole: Path) -> None:
    read_tensors(whole)[0]["weight"].zero_()
    assert read_tensors(whole)[0]["weight"].any()


def test_every_byte_counts(whole: Path, tmp_path: Path) -> None:
    """The lowest bit, and the one that makes a letter of the header or the digest a capital."""
    content = whole.read_bytes()
    path = tmp_path / "flipped.safetensors"
    for i in range(len(content)):
        for bit in (0, 5):
            path.write_bytes(content[:i] + bytes([content[i] ^ 1 << bit]) + content[i + 1 :])
            with pytest.raises(FileError):
                read_tensors(path)


def test_every_byte_at_the_end_counts(whole: Path, tmp_path: Path) -> None:
    content = whole.read_bytes()
    path = tmp_path / "cut.safetensors"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(FileError):
            read_tensors(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(FileError, match="checksum differs"):
        read_tensors(path)


class Trap:
    """Unpickling this writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize(
    "kind", ["torch.save", "torch.save before 1.6", "protocol 2", "protocol 3", "protocol 4", "protocol 5"]
)
def test_a_pickle_is_rejected_unread(tmp_path: Path, kind: str) -> None:
    path, sprung = tmp_path / "model.safetensors", tmp_path / "sprung"
    trap = {"weight": Trap(sprung)}
    if kind.startswith("protocol"):
        path.write_bytes(pickle.dumps(trap, protocol=int(kind[-1])))
    else:
        torch.save(trap, path, _use_new_zipfile_serialization=kind == "torch.save")
    with pytest.raises(FileError, match=r"is a pickle.*not opened.*cutaway convert"):
        read_tensors(path)
    assert not sprung.exists()


def test_a_header_that_begins_like_a_pickle_is_no_pickle(tmp_path: Path) -> None:
    """The first byte of a safetensors file is the low byte of its header's length, which can be 0x80."""
    path = tmp_path / "x.safetensors"
    for padding in range(300):
        write_tensors(path, {}, {"padding": "x" * padding})
        if path.read_bytes()[0] == 0x80:
            assert read_tensors(path)[1] == {"padding": "x" * padding}
            return
    raise AssertionError("no header came out with that length")


def test_what_is_not_one_of_our_files_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"There is no file or folder '.*absent"):
        read_tensors(tmp_path / "absent")
    with pytest.raises(FileError, match="could not be read: it is a folder"):
        read_tensors(tmp_path)
    (tmp_path / "empty").touch()
    with pytest.raises(FileError, match="is empty"):
        read_tensors(tmp_path / "empty")
    (tmp_path / "text").write_text("hello, this is no model at all")
    with pytest.raises(FileError, match="not a safetensors file"):
        read_tensors(tmp_path / "text")
    save_file({"a": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(FileError, match=r"has no checksum.*cutaway convert"):
        read_tensors(tmp_path / "other")


def test_a_full_disk_leaves_what_was_there(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = whole.read_bytes()

    def full(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        path.write_bytes(b"half of it")
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(saving, "save_file", full)
    with pytest.raises(FileError, match=r"No space left.*unchanged.*Free some space"):
        write_tensors(whole, {"weight": torch.zeros(9)}, {})
    assert whole.read_bytes() == before
    assert [p.name for p in whole.parent.iterdir()] == [whole.name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved model."""
    model = cutaway.create_model("resnet20", layers=(1, 1), num_classes=3)
    save_model(model, tmp_path / "model", preset("resnet20"), {"trained_on": "nothing"})
    return tmp_path / "model"


def test_a_model_comes_back_with_the_same_bits(tmp_path: Path) -> None:
    model = cutaway.create_model("resnet20", layers=(1, 1), num_classes=3).to(memory_format=torch.channels_last)
    save_model(model, tmp_path / "model", preset("resnet20"), {"trained_on": "nothing"})
    before = torch.get_rng_state()
    loaded, description = load_model(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), before)
    assert not loaded.training
    assert loaded.config == model.config
    assert description["preset"] == "resnet20"
    assert description["family"] == "resnet"
    assert description["trained_on"] == "nothing"
    for (name, ours), theirs in zip(loaded.state_dict().items(), model.state_dict().values()):
        assert torch.equal(ours, theirs), name


def test_a_model_in_double_precision_stays_so(tmp_path: Path) -> None:
    model = cutaway.create_model("mlp").double()
    save_model(model, tmp_path, preset("mlp"))
    loaded = load_model(tmp_path)[0]
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters()))


def test_a_folder_without_a_model_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"is not a model's folder.*RUN/model"):
        load_model(tmp_path)


def test_an_edited_config_is_rejected(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"num_classes": 3', '"num_classes": 4'))
    with pytest.raises(FileError, match="does not match the settings in model"):
        load_model(folder)


def _rewrite(folder: Path, change: Callable[[dict[str, Tensor], dict[str, object]], None]) -> None:
    """Both files again, changed and consistent."""
    tensors, description = read_tensors(folder / "model.safetensors")
    tensors = {k: v.clone() for k, v in tensors.items()}
    change(tensors, description)
    write_tensors(folder / "model.safetensors", tensors, description)
    (folder / "config.json").write_text(json.dumps(description))


def test_a_preset_or_setting_of_another_version_is_rejected(folder: Path) -> None:
    _rewrite(folder, lambda tensors, description: description["config"].update(floors=9))
    with pytest.raises(FileError, match=r"settings that resnet20 does not take.*floors"):
        load_model(folder)
    _rewrite(folder, lambda tensors, description: description.update(preset="resnet9000", cutaway="9.9"))
    with pytest.raises(FileError, match=r"resnet9000.*written by Cutaway 9\.9"):
        load_model(folder)


@pytest.mark.parametrize("name", {found.module: name for name, found in presets().items()}.values())
def test_a_model_of_the_time_of_other_names_is_read(name: str, tmp_path: Path) -> None:
    model, found = small(name)[0], preset(name)
    save_model(model, tmp_path, found)
    olds = {new: old for old, news in RENAMED_FIELDS.items() for new in news if new in found.setting_names}
    _rewrite(
        tmp_path,
        lambda tensors, about: about.update(config={olds.get(k, k): v for k, v in about["config"].items()}),
    )
    read, about = load_model(tmp_path)
    assert read.config == model.config
    assert all(old not in found.setting_names for old in olds.values())
    assert found.as_now(about["config"]) == {
        f.name: as_list(getattr(model.config, f.name)) for f in fields(model.config)
    }
    for new, old in olds.items():
        with pytest.raises(SettingError, match=f"^{old} is now {new}: `cutaway show {name}`"):
            found.configure(settings={old: getattr(model.config, new)})


@pytest.mark.parametrize("name", ["t5-small", "bart-base", "word2vec-skipgram"])
def test_redundant_fields_are_dropped(name: str, tmp_path: Path) -> None:
    model, found = small(name)[0], preset(name)
    save_model(model, tmp_path, found)
    size = model.config.vocab_size  # type: ignore[union-attr]
    for value in (None, size):
        _rewrite(tmp_path, lambda tensors, about, said=value: about["config"].update(num_classes=said))  # type: ignore[misc]
        assert load_model(tmp_path)[0].config == model.config
    _rewrite(tmp_path, lambda tensors, about: about["config"].update(num_classes=size + 1))
    with pytest.raises(FileError, match=f"settings that {name} does not take.*num_classes"):
        load_model(tmp_path)


def as_list(value: object) -> object:
    """A value as JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value


def test_weights_that_do_not_fit_are_named(folder: Path) -> None:
    def change(tensors: dict[str, Tensor], description: dict[str, object]) -> None:
        tensors["extra"] = tensors.pop("conv1.weight")
        tensors["fc.bias"] = torch.zeros(7)

    _rewrite(folder, change)
    with pytest.raises(FileError, match=r"missing, the first conv1\.weight.*first extra.*fc\.bias: \(7,\) .*\(3,\)"):
        load_model(folder)


def test_weights_that_do_not_fit_change_nothing() -> None:
    model = nn.Linear(2, 2)
    before = model.weight.clone()
    with pytest.raises(FileError):
        load_weights(model, {"weight": torch.zeros(2, 2), "bias": torch.zeros(3)}, "here")
    assert torch.equal(model.weight, before)


# --- weights in shards --------------------------------------------------------------------------------------------


@pytest.fixture
def sharded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder whose weights are larger than a file may be: 1 KB here."""
    monkeypatch.setattr(saving, "LARGEST", 1000)
    save_model(small("lenet5-modern")[0], tmp_path / "model", preset("lenet5-modern"))
    return tmp_path / "model"


def test_large_weights_are_shards_with_an_index_as_hugging_face_has_them(sharded: Path) -> None:
    index = json.loads((sharded / saving.INDEX).read_text())
    names = sorted({path.name for path in sharded.iterdir()} - {"config.json", saving.INDEX})
    assert names == [f"model-{i:05d}-of-{len(names):05d}.safetensors" for i in range(1, len(names) + 1)]
    assert len(names) > 2
    found = {key: name for name in names for key in load_file(sharded / name)}  # as any program reads them
    assert index["weight_map"] == found
    model, _ = load_model(sharded)
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in model.state_dict().values())
    for name in names:
        content = load_file(sharded / name)
        assert len(content) == 1 or sum(tensor.nbytes for tensor in content.values()) <= 1000
        assert all(torch.equal(tensor, model.state_dict()[key]) for key, tensor in content.items())


def test_weights_that_fit_one_file_again_leave_no_shards(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_model(sharded)[0].state_dict()
    monkeypatch.undo()
    model, _ = load_model(sharded)
    save_model(model, sharded, preset("lenet5-modern"))
    assert {path.name for path in sharded.iterdir()} == {"config.json", "model.safetensors"}
    assert all(torch.equal(value, before[key]) for key, value in load_model(sharded)[0].state_dict().items())


def test_a_shard_that_is_missing_damaged_or_of_another_model_is_named(sharded: Path, tmp_path: Path) -> None:
    second = sorted(sharded.glob("model-*"))[1]
    content = second.read_bytes()
    second.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(FileError, match=f"{second.name} has changed since it was written: its checksum differs"):
        load_model(sharded)
    write_tensors(second, {key: value + 1 for key, value in load_file(second).items()}, {})
    with pytest.raises(FileError, match=f"{second.name} is intact, but it is not the file that the index names"):
        load_model(sharded)
    second.unlink()
    with pytest.raises(FileError, match=f"There is no file or folder .*{second.name}"):
        load_model(sharded)
    for sums in ('{"../x": ""}', "{}", '{"a": 0}', '{"a": "text"}', "null", "[]", '"text"'):
        (sharded / saving.INDEX).write_text('{"metadata": {"cutaway": {}, "sha256": ' + sums + "}}")
        with pytest.raises(FileError, match="is not a valid index of weight files"):
            load_model(sharded)


def test_a_training_begins_with_weights_in_shards(sharded: Path) -> None:
    from cutaway.training.pretrained_weights import load_pretrained

    other = small("lenet5-modern")[0]
    nn.init.zeros_(next(other.parameters()))
    taken = load_pretrained(other, preset("lenet5-modern"), str(sharded))
    assert taken.path.endswith(saving.INDEX)
    assert all(torch.equal(v, load_model(sharded)[0].state_dict()[k]) for k, v in other.state_dict().items())


def test_every_config_keeps_to_the_schema_of_its_dataclass() -> None:
    for one in presets().values():
        document = json.loads(json.dumps(asdict(one.config)))
        assert find_mismatch(document, dataclass_schema(type(one.config))) == "", one.name
        assert {key: as_tuples(value) for key, value in document.items()} == asdict(one.config)
