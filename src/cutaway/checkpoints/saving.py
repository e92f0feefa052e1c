"""Models and named tensors on disk: safetensors files with a checksum, never pickle.

A model's folder has `config.json` (preset, config and version) and `model.safetensors`, or shards with an index, as in
Hugging Face, if it would exceed 5 GB. A file that is written here is a plain safetensors file that any program can
read. Its header also has further JSON values and the SHA-256 of the whole file, with the 64 characters of the digest as
zeros. If a byte is changed or the end is missing, the file is rejected before a tensor is created.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..core.errors import (
    CutawayError,
    FileError,
    ModelError,
    NotARunError,
    UnsafeFileError,
    WeightsMismatchError,
    shorten,
    shorten_repr,
)
from ..core.files import atomic_write, open_regular, read_json, unreadable_error, write_json
from ..core.schema import COUNT, Between, as_tuples, dataclass_schema, find_mismatch, validate_document
from ..core.version import __version__
from ..models.registry import Preset, find
from ..nn.low_precision import insert_quantized_layers, quantization_scheme, to_file_tensors, to_state_dict
from ..nn.modules import resize, resized_shapes
from .deferred_init import DeferredInit, materialized_tensors
from .match_config import get_origin, origin_from_json

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SHARED_LAYERS = 1_000  # maximum layers that share one block
LARGEST = 5_000_000_000  # maximum bytes of a weight file
NO_DIGEST = "0" * 64  # placeholder while the digest is computed
MARK = rb"\"sha256\":\""  # text before the digest in the header


# Schema of config.json: name and Config of a preset, or the import path of a custom module.
DESCRIPTION = {
    "cutaway": str,
    "preset?": str,
    "config?": dict,
    "own?": str,
    "origin?": {"config": dict, "settings": dict, "generation?": dict, "tokens": dict, "new": [str]},
    "resized?": {...: [COUNT]},
    "quantized?": {
        "method": str, "bits": Between(1, 64), "group": COUNT, "layers?": {...: str}, "folded": [str], "biased": [str],
    },
}  # fmt: skip
SHARDS = {"metadata": {"cutaway": dict, "sha256": {...: str}}}
COPY = "Take the folder from one copy."


def save_model(
    model: nn.Module, folder: str | os.PathLike[str], preset: Preset, extra: dict[str, Any] | None = None
) -> None:
    """Write the model's config and weights to `folder`, each file atomically.

    `extra` has additional JSON values for config.json. Raises FileError if the folder cannot be written.
    """
    folder, origin = Path(folder), get_origin(model)
    description = {
        **preset.described(model),
        "cutaway": __version__,
        **({"origin": dataclasses.asdict(origin)} if origin else {}),
        **({"resized": resized} if (resized := resized_shapes(model)) else {}),
        **({"quantized": scheme} if (scheme := quantization_scheme(model)) else {}),
        **(extra or {}),
    }
    write_weights(folder, to_file_tensors(model), description)
    write_json(folder / CONFIG, description)


def load_model(folder: str | os.PathLike[str], own: nn.Module | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """Load a model that `save_model` wrote, in eval mode on the CPU, with its description.

    Args:
        folder: Folder of the model.
        own: Custom module into which its weights are loaded.

    Returns:
        The model and its description. The random state of torch is not changed.

    Raises:
        FileError: If the folder is incomplete, or its model is not that of `own`.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise NotARunError(f"{folder} is not a model's folder: it has no {CONFIG}. A run has its own in RUN/model.")
    description = read_json(folder / CONFIG)
    validate_document(description, DESCRIPTION, folder / CONFIG, COPY)
    file = weights_file(folder)
    tensors, written = read_weights(file)
    if description != written:
        raise FileError(
            f"{folder / CONFIG} does not match the settings in {file.name}. Take both files from the same copy of the "
            "model."
        )
    reject_other_kind(description, folder, own is not None)
    if own is not None:
        load_weights(own, _prepare_quantized(own, tensors, description), file)
        return own.eval(), description
    found = find(description.get("preset") or "")
    if found is None:
        raise FileError(
            f"{folder} holds a model {shorten(description.get('preset'))!r}, written by Cutaway "
            f"{shorten(description['cutaway'])}, that this version, {__version__}, does not have. "
            "Use a version that has it."
        )
    fields = found.as_now(description.get("config") or {})
    kind = type(found.config)
    fault = find_mismatch(fields, dataclass_schema(kind)) or _excess_layers(fields, tensors)
    try:
        if fault or (other := fields.keys() - {field.name for field in dataclasses.fields(kind)}):
            raise ModelError(fault or f"there is no {', '.join(sorted(map(shorten, other)))}")
        with torch.random.fork_rng(devices=[]):
            model = found.build(kind(**{key: as_tuples(value) for key, value in fields.items()}))
        resize(model, description.get("resized") or {})
        tensors = _prepare_quantized(model, tensors, description)
    except (CutawayError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise FileError(
            f"{folder / CONFIG}, written by Cutaway {shorten(description['cutaway'])}, has settings that {found.name} "
            f"does not take in this version, {__version__}: {shorten(error, 200)}"
        ) from error
    load_weights(model, tensors, file)
    if description.get("origin"):
        model.origin = origin_from_json(description["origin"])  # type: ignore[assignment]  # no module or tensor
    return model.eval(), description


def _excess_layers(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return a message if a field has far more layers than there are tensors; empty otherwise."""
    for key, value in fields.items():
        layers = value if isinstance(value, list) else [value]
        if "layers" in key and sum(one for one in layers if isinstance(one, int)) > len(tensors) + SHARED_LAYERS:
            return f"{key}={shorten(value)} asks for more layers than {len(tensors)} tensors can fill"
    return ""


def _prepare_quantized(
    model: nn.Module, tensors: dict[str, Tensor], description: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Convert the tensors for the model, which is quantized if its description says so."""
    if not description.get("quantized"):
        return tensors
    insert_quantized_layers(model, description["quantized"])
    return to_state_dict(tensors, model)


def reject_other_kind(description: Mapping[str, Any], folder: Path, handed_over: bool) -> None:
    """Raise FileError if a folder needs a custom module that was not `handed_over`, or has a preset and one was."""
    path = description.get("own")
    if path is not None and not handed_over:
        way = f"cutaway.load({str(folder)!r}, model={str(path).rpartition('.')[2]}())"
        raise FileError(
            f"{folder} holds the weights of a custom module, {path}, and not its code. It can be loaded from Python "
            f"only, with the module, as in {way}."
        )
    if path is None and handed_over:
        named = description.get("preset", description.get("model"))
        raise WeightsMismatchError(f"{folder} holds a {named}, which needs no module: leave it out.")


def write_weights(folder: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write a model's tensors to `folder` as one file, or as shards with an index.

    The index has the file of each tensor and the checksum of each file. Earlier weight files are removed at the end.
    Raises FileError if the files cannot be written.
    """
    before = {folder / WEIGHTS, folder / INDEX, *folder.glob("model-*-of-*.safetensors")}
    shards = _split_shards(tensors)
    if len(shards) == 1:
        write_tensors(folder / WEIGHTS, tensors, meta)
        written = {folder / WEIGHTS}
    else:
        names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
        sums = {name: write_tensors(folder / name, shard, meta) for name, shard in zip(names, shards)}
        size = sum(tensor.nbytes for tensor in tensors.values())
        where = {key: name for name, shard in zip(names, shards) for key in shard}
        write_json(
            folder / INDEX, {"metadata": {"total_size": size, "sha256": sums, "cutaway": meta}, "weight_map": where}
        )
        written = {folder / INDEX, *(folder / name for name in names)}
    for path in before - written:
        path.unlink(missing_ok=True)


def weights_file(folder: Path) -> Path:
    """Return the weight file of a model, or the index of its shards."""
    return folder / (WEIGHTS if (folder / WEIGHTS).is_file() or not (folder / INDEX).is_file() else INDEX)


def read_weights(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the JSON values that `write_weights` wrote, from a file or an index.

    Raises FileError, with its name, if a file is missing or was changed.
    """
    if file.name != INDEX:
        return read_tensors(file)
    index = read_json(file)
    fault = find_mismatch(index, SHARDS)
    meta, sums = (index["metadata"]["cutaway"], index["metadata"]["sha256"]) if not fault else ({}, {})
    if astray := next((name for name in sums if not name or Path(name).name != name), None):
        fault = f"{shorten(astray)!r} is not a file in its folder"
    elif wrong := next((name for name, sha256 in sums.items() if not re.fullmatch("[0-9a-f]{64}", sha256)), None):
        fault = f"metadata.sha256.{shorten(wrong)} is {shorten_repr(sums[wrong])}, which is not a checksum"
    if fault:
        raise FileError(
            f"{file} is not a valid index of weight files and their checksums: {fault}. Take the whole folder from "
            "where it came."
        )
    found: dict[str, Tensor] = {}
    for name, sha256 in sums.items():
        with open_verified(file.with_name(name), sha256) as opened:
            found |= {key: read_tensor(file.with_name(name), opened, key) for key in opened.keys()}  # noqa: SIM118
    return found, meta


def _split_shards(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Split the tensors, in order, into shards of the maximum file size. A larger tensor has a separate shard."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > LARGEST:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    return shards


def find_mismatches(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> list[str]:
    """Return why tensors do not fit a model, one clause each.

    The clauses name the first missing, unexpected and misshapen tensor.
    """
    missing = [k for k in own if k not in tensors]
    unexpected = [k for k in tensors if k not in own]
    misshapen = [k for k in own if k in tensors and own[k].shape != tensors[k].shape]
    problems = []
    if missing:
        problems.append(f"{len(missing)} of the model's {len(own)} tensors are missing, the first {missing[0]}")
    if unexpected:
        problems.append(f"{len(unexpected)} are not the model's, the first {unexpected[0]}")
    if misshapen:
        first = misshapen[0]
        shapes = f"{tuple(tensors[first].shape)} where the model has {tuple(own[first].shape)}"
        problems.append(f"{len(misshapen)} have another shape, the first {first}: {shapes}")
    return problems


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], source: str | os.PathLike[str]) -> None:
    """Copy tensors into a model's parameters and buffers, which take their floating dtype.

    Raises FileError, with the first missing, unexpected and misshapen tensor, before anything is changed.
    """
    own = model.state_dict()
    if problems := find_mismatches(own, tensors):
        raise WeightsMismatchError(
            f"{source} does not fit the model: {'; '.join(problems)}. It was written by another model."
        )
    reject_not_finite(tensors, source)
    floating = {t.dtype for t in tensors.values() if t.is_floating_point()}
    if len(floating) == 1:
        model.to(floating.pop())
    model.load_state_dict(tensors)


def reject_not_finite(tensors: Mapping[str, Tensor], source: str | os.PathLike[str]) -> None:
    """Raise FileError, with the first tensor, if a file has NaN or infinite values.

    Otherwise training would blame the learning rate.
    """
    floating = {name: x for name, x in tensors.items() if x.is_floating_point() and not x.is_meta}
    broken = [name for name, tensor in floating.items() if not tensor.isfinite().all()]
    if broken:
        count = int((~tensors[broken[0]].isfinite()).sum())
        more = f", and {len(broken) - 1} more tensors hold some" if len(broken) > 1 else ""
        raise FileError(
            f"{source} holds numbers that are not finite (NaN or infinity): {count:,} of the "
            f"{tensors[broken[0]].numel():,} in {broken[0]}{more}. It was written while its training broke down, or "
            "was damaged since: take an earlier copy."
        )


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    """Write named tensors and JSON values atomically to one file and return its checksum.

    Strides are not kept: tensors are written contiguously. Tensors that share memory are written separately. Raises
    FileError if the file cannot be written.
    """
    # One entry, because safetensors does not keep the order of several. Equal content then gives equal bytes.
    document = json.dumps({"sha256": NO_DIGEST, "meta": meta}, separators=(",", ":"))
    with atomic_write(path) as temporary:
        try:
            save_file(_separate(tensors), temporary, {"cutaway": document})
        except SafetensorError as error:  # a full disk, for one
            raise OSError(str(error)) from error
        with temporary.open("rb+") as file, mmap.mmap(file.fileno(), 0) as content:
            place = content.find(MARK) + len(MARK)
            digest = _digest(content, place)
            content[place : place + 64] = digest
    return digest.decode()


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the named tensors, on the CPU, and the JSON values of a file that `write_tensors` wrote.

    Raises FileError, before its content is used, if the file is missing, cut short, changed, of another format or a
    pickle.
    """
    with open_verified(path) as opened:
        tensors = {name: read_tensor(path, opened, name) for name in opened.keys()}  # noqa: SIM118  # no mapping
        return tensors, json.loads(opened.metadata()["cutaway"])["meta"]


@contextlib.contextmanager
def open_verified(path: str | os.PathLike[str], sha256: str | None = None) -> Iterator[Any]:
    """Open a file that `write_tensors` wrote, to read tensors or slices. `sha256` is the expected checksum, if known.

    Raises FileError, before its content is used, if the file is missing, cut short, changed, of another format or a
    pickle.
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise FileError(f"{path} is empty. Restore it from a copy, or train again.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                _verify(path, content, sha256)
        with safe_open(path, framework="pt") as opened:
            yield opened
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise unreadable_error(path, error) from error
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileError(
            f"{path} has a head that cannot be read ({type(error).__name__}), though its checksum fits. "
            "Restore it from a copy, or train again."
        ) from error


def read_tensor(path: str | os.PathLike[str], opened: Any, name: str) -> Tensor:
    """Return a tensor of an open safetensors file.

    Within a `DeferredInit` context it is read when it is needed, and FileError is raised then if it is not finite.
    """
    deferred = DeferredInit.current()
    with materialized_tensors():
        if deferred is None:
            found: Tensor = opened.get_tensor(name)
            return found
        shape, dtype = tensor_metadata(opened, name)

    def read() -> Tensor:
        with safe_open(path, framework="pt") as again:
            tensor: Tensor = again.get_tensor(name)
        reject_not_finite({name: tensor}, path)
        return tensor

    return deferred.from_file(read, shape, dtype)


def tensor_metadata(opened: Any, name: str) -> tuple[tuple[int, ...], torch.dtype]:
    """Return shape and dtype of a tensor in an open safetensors file without reading its values."""
    part = opened.get_slice(name)
    shape = tuple(part.get_shape())
    return shape, (part[:0] if shape else opened.get_tensor(name)).dtype


@contextlib.contextmanager
def open_safetensors(file: Path) -> Iterator[Any]:
    """Open a safetensors file of another program. Raises FileError if it is incomplete."""
    try:
        with safe_open(file, framework="pt") as opened:
            yield opened
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            f"{file} is not a complete safetensors file: it is truncated or damaged ({error}). Restore it from a copy."
        ) from error


def reject_pickle(path: str | os.PathLike[str]) -> None:
    """Raise FileError if the file is a pickle, by its first bytes, or missing."""
    try:
        with open_regular(path) as file:
            start = file.read(9)
    except OSError as error:
        raise unreadable_error(path, error) from error
    # A safetensors file begins with the length of its header, which can equal a pickle's first byte, followed by "{".
    if start[:4] == b"PK\x03\x04" or (start[:1] == b"\x80" and start[8:] != b"{"):
        raise UnsafeFileError(
            f"{path} is a pickle, as torch.save writes. Reading one can run any program that is hidden in it, so it "
            "was not opened. Give a safetensors file; torchvision's checkpoints become one by "
            "`cutaway convert IN OUT --to cutaway --model NAME`."
        )


def _verify(path: Path, content: mmap.mmap, sha256: str | None) -> None:
    """Raise FileError unless `content` is, byte for byte, what `write_tensors` wrote.

    If `sha256` is given, the checksum must be equal to it.
    """
    reject_pickle(path)
    end = 8 + int.from_bytes(content[:8], "little")  # of the header
    if content[8:9] != b"{" or end > len(content):
        raise FileError(f"{path} is not a safetensors file, or was cut short. Restore it from a copy, or train again.")
    place = content.find(MARK, 8, end) + len(MARK)
    if place < len(MARK):
        raise FileError(
            f"{path} has no checksum, and every file of weights that cutaway writes has one. A checkpoint of another "
            "library is read after `cutaway convert IN OUT --to cutaway --model NAME`."
        )
    if content[place : place + 64] != _digest(content, place):
        raise FileError(
            f"{path} has changed since it was written: its checksum differs. Restore it from a copy, or train again."
        )
    if sha256 is not None and content[place : place + 64] != sha256.encode():
        raise FileError(
            f"{path} is intact, but it is not the file that the index names: the checksums differ. Take all files of "
            "the folder from one copy."
        )


def _digest(content: mmap.mmap, place: int) -> bytes:
    """Return the SHA-256 in hexadecimal of the content, with zeros for the 64 characters at `place`."""
    with memoryview(content) as view:
        digest = hashlib.sha256(view[:place])
        digest.update(NO_DIGEST.encode())
        digest.update(view[place + 64 :])
    return digest.hexdigest().encode()


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors that do not share memory, as safetensors requires."""
    seen: set[int] = set()
    plain: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        plain[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return plain
