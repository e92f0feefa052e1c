"""Entry point for data: opens a built-in data set, a path or Python objects after inferring its kind."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import (
    DataError,
    DataMismatchError,
    UnknownName,
    UnsupportedDataError,
    join,
)
from ..core.files import exists, is_path, missing_file_error
from ..core.plugins import add_plugins, reject_duplicates
from ..core.spec import ANY_SIZE, Classes, ImageSizes, Mask, Target, Value
from .audio.audio_files import is_transcribed
from .dataset_base import DataSet
from .datasets import corpora, digit_scenes, few_shot, pairs, published, speech, toy_data
from .datasets.catalog import NamedSet, Request, data_roots, download_missing
from .findings import similar_class_findings
from .folders import AUDIO, CAPTIONS, IMAGES, dominant_kind, has_captions, is_flat, list_entries
from .graphs.graph_files import has_tu_files
from .images.detection import is_box_folder
from .images.segmentation import is_mask_folder
from .in_memory.container import Numbers, Texts, may_be_token_ids
from .in_memory.dataset import open_in_memory
from .in_memory.source import InMemorySource
from .modalities import KINDS, reject_settings_for_others
from .quality.validation import validate_dataset
from .settings import DataSettings
from .streaming.shards import is_prepared, kind_of_prepared, open_prepared
from .streaming.webdataset import is_sharded, kind_of_shards
from .synthetic import example_hint
from .tables.dataset import TABLE_SUFFIXES
from .tables.table_files import parquet_files
from .task_sequence import to_tasks
from .unsupported_formats import describe_file, describe_labels, reject_flat, reject_folder, reject_layout

__all__ = ["NAMED", "NamedSet", "open_named", "where"]


# Each module has the entries of its data sets in `NAMED` and their loaders in `OPENERS`.
MODULES = (toy_data, published, speech, digit_scenes, corpora, few_shot, pairs)
NAMED: dict[str, NamedSet] = {name: named for module in MODULES for name, named in module.NAMED.items()}
OPENERS: dict[str, Callable[[Request], DataSet]] = {
    name: opener for module in MODULES for name, opener in module.OPENERS.items()
}


def _add_module(_: str, module: Any) -> None:
    """Add the data sets of another package: a module with `NAMED` and `OPENERS`."""
    named, openers = module.NAMED, module.OPENERS
    wrong = [name for name, one in named.items() if not isinstance(one, NamedSet) or not callable(openers.get(name))]
    if wrong or not named:
        raise DataError(f"{wrong[0] if wrong else 'it'} needs a NamedSet in NAMED and a function in OPENERS.")
    reject_duplicates("data set", named, NAMED)
    NAMED.update(named)
    OPENERS.update({name: openers[name] for name in named})


add_plugins("cutaway.datasets", _add_module)


def where(name: str) -> Path | None:
    """Return the folder with a data set's files in $CUTAWAY_DATA or the cache; None if it must be downloaded first.

    For a data set without files, it is the folder of the package that provides it. Nothing is downloaded.
    """
    named = _named(name)
    if not named.files:
        spec = importlib.util.find_spec("sklearn")  # located without an import, which would take a second
        return Path(spec.origin).parent if spec is not None and spec.origin else None
    for root in data_roots():
        if all((root / named.folder / file).is_file() for file in named.needed):
            return root / named.folder
    return None


def open_named(
    name: str,
    settings: DataSettings,
    sizes: ImageSizes = ANY_SIZE,
    targets: tuple[type[Target], ...] = (),
) -> DataSet:
    """Load the data set of this name, after a download if it is not available locally.

    `sizes` are the image sizes that the model accepts, `targets` the target types that it requests, if any. Raises
    UnknownName; FileError, with the folder to put the file into manually, if it cannot be downloaded; DataError if its
    files are damaged; SettingError.
    """
    named = _named(name)
    if named.kind == "table" and settings.target is None:
        settings = replace(settings, target=named.target)
    place = where(name) or download_missing(named.files, named.folder)
    data = OPENERS[name](Request(name, named, place, settings, sizes, targets))
    data.licence = named.licence
    return data


def _named(name: str) -> NamedSet:
    if name not in NAMED:
        raise UnknownName("data set", name, NAMED, "`cutaway data` lists them.")
    return NAMED[name]


GRAPH_FILES = ("nodes.csv", "edges.csv")
PAIRS = "as pairs of sequences with pairs=true, where each of its lines has a tab"
OTHERWISE = {  # the default kind of a path, and the settings that read it as another kind
    "table": {
        "text": "as text with text=COLUMN",
        "series": "as a series with forecast=COLUMN",
        "graph": "as molecules with smiles=COLUMN",
        "seq2seq": PAIRS,
    },
    "text": {"seq2seq": PAIRS},
}
Targets = tuple[type[Target], ...]
FORMS = (
    f"a folder with one folder per class of images, audio ({', '.join(AUDIO.suffixes)}), texts (.txt), videos or "
    f"frames (or train/, val/, test/ of those); images with masks/, boxes or {CAPTIONS}; recordings with "
    f"transcripts.tsv; texts to learn the language of (.txt); a graph ({' and '.join(GRAPH_FILES)})"
)


def infer_kind(source: Any, settings: DataSettings, takes: Sequence[str] = ()) -> str:
    """Infer the kind of data of a name, a path or Python objects, without reading files.

    `takes` are the kinds that the model accepts; they decide if an array could be of several kinds. Raises UnknownName
    or DataError if the source is no known kind.
    """
    if isinstance(source, InMemorySource):
        return source.kind(settings, takes)
    if str(source) in NAMED:
        return NAMED[str(source)].kind
    if settings.pairs:
        return "seq2seq"
    path = Path(source).expanduser()
    if not exists(path):
        if "," in str(source) and all(is_file(Path(one).expanduser()) for one in str(source).split(",")):
            raise UnsupportedDataError(
                f"{source} are two files, and data is one file or folder.",
                fix="Pairs of sequences, line by line, may be two files: pairs=true reads them so.",
            )
        if is_path(source):
            raise missing_file_error(source, fix=example_hint(str(source)))
        raise UnknownName(
            "data set or path",
            str(source),
            NAMED,
            example_hint(str(source)) or "`cutaway data` lists the sets; a path names your own files.",
        )
    if path.is_dir():
        return _kind_of_folder(path, settings)
    suffix = path.suffix.lower()
    if suffix in (".txt", ".conll", ".iob") or (suffix in TABLE_SUFFIXES and settings.text):
        return "text"
    if suffix in TABLE_SUFFIXES:
        return "series" if settings.forecast else "graph" if settings.smiles else "table"
    if is_sharded(path):
        return kind_of_shards(path).kind
    if suffix == ".graphml":
        return "graph"
    if described := describe_file(path):
        raise UnsupportedDataError(f"{path} {described[0]}.", fix=described[1])
    raise UnsupportedDataError(
        f"{path} is a {path.suffix or 'suffix-less'} file, a kind of data that cannot be read.",
        fix=f"Tables end in {', '.join(TABLE_SUFFIXES)}, text in .txt or, tagged, in .conll, graphs in .graphml; "
        "images, audio and videos come as a folder of class folders.",
    )


def is_file(path: Path) -> bool:
    """Return whether `path` is an existing file; False also for an invalid name."""
    return exists(path) and path.is_file()


def open_data(
    source: Any,
    settings: DataSettings,
    sizes: ImageSizes = ANY_SIZE,
    targets: tuple[type[Target], ...] = (),
    takes: Sequence[str] = (),
) -> DataSet:
    """Read `source`, split it, fit the preprocessing on its training split, and divide it into tasks if configured.

    `sizes` are the image sizes that the model accepts, `targets` its targets and `takes` the kinds of data that it
    accepts, if it restricts them.

    Raises UnknownName, DataError (with every bad row or file in `problems`) or SettingError.
    """
    data = _opened(source, settings, sizes, targets, takes)
    return to_tasks(data, settings.tasks, settings.split_seed) if settings.tasks else data


def open_validated(*asked: Any) -> DataSet:
    """Open data as `open_data` and add the findings of the data quality checks, except for named sets."""
    data = open_data(*asked)
    if not isinstance(asked[0], str | Path) or str(asked[0]) not in NAMED:
        data.notes += validate_dataset(data)
    return data


def _opened(source: Any, settings: DataSettings, sizes: ImageSizes, targets: Targets, takes: Sequence[str]) -> DataSet:
    kind = infer_kind(source, settings, takes)
    reject_settings_for_others(settings, kind)
    if isinstance(source, InMemorySource):
        data = open_in_memory(source, kind, settings, sizes, targets)
        data.notes += similar_class_findings(data.spec.target)
        return data
    if isinstance(source, str | Path) and str(source) in NAMED:
        data = open_named(str(source), settings, sizes, targets)
        data.notes = [str(note) for note in data.notes]  # no findings: what is odd about a published set is known
        return data
    if is_prepared(source):
        return open_prepared(Path(source).expanduser(), settings, sizes, targets)
    found, asked = KINDS[kind], {"sizes": sizes, "targets": targets}
    opens, asks = f"dataset.{found.opens}", found.asks
    if kind == "image" and is_captioned(Path(source).expanduser(), targets):
        opens = "captioning.open_captions"
    opener: Callable[..., DataSet] = found.member(opens)
    given = Path(source).expanduser() if found.path else source
    data = opener(given, settings, **{name: asked[name] for name in asks})
    data.notes += similar_class_findings(data.spec.target)
    return data


def is_captioned(path: Path, targets: Targets) -> bool:
    """Return whether a folder of images has captions, and neither masks nor boxes."""
    return not (is_sharded(path) or is_mask_folder(path, targets) or is_box_folder(path)) and has_captions(path)


def reading_hint(source: Any, kind: str, takes: Sequence[str], targets: Targets) -> str:
    """Return a sentence on the settings that read a source of `kind` as data that the model accepts; empty if there are
    none.

    Raises:
        DataError: If the source is a table of image labels and the model takes images, because no setting or model
            reads both.
    """
    if isinstance(source, InMemorySource) and isinstance(source.train, Texts) and source.train.ids:
        return "Examples of whole numbers, of several lengths, are token ids: rows and series are of one length."
    if isinstance(source, InMemorySource) and may_be_token_ids(source.train) and "text" in takes:
        return "If these are token ids, say how many there are, as in vocab_size=20000."
    if isinstance(source, InMemorySource) and isinstance(source.train, Numbers):
        whole = source.train.values.ndim == 2 and "text" in takes and "table" not in takes
        return "Token ids are whole numbers: X.astype(int) makes an array of them some." if whole else ""
    if kind == "table" and "image" in takes and isinstance(source, str | Path):
        path = Path(source).expanduser()
        if path.is_file() and (described := describe_labels(path)):
            raise DataMismatchError(
                f"{path} is table data, and the model takes {join(takes, 'or')} data: {path.parent} {described[0]}.",
                fix=described[1],
            )
    ways = [
        way
        for other, way in OTHERWISE.get(kind, {}).items()
        if other in takes and (other != "text" or {Classes, Value} & set(targets))
    ]
    return f"A {'table' if kind == 'table' else 'text'} can be read {', or '.join(ways)}." if ways else ""


def _kind_of_folder(path: Path, settings: DataSettings) -> str:
    if is_prepared(path):
        return kind_of_prepared(path)
    if is_sharded(path):
        return kind_of_shards(path).kind
    names = [p.name for p in list_entries(path) if p.is_file()]
    if set(GRAPH_FILES) & set(names) or any(n.startswith("ind.") or n.endswith(".graphml") for n in names):
        return "graph"
    if has_tu_files(names):
        return "graph"
    if is_transcribed(path):
        return "audio"
    if is_mask_folder(path, (Mask,)) or is_box_folder(path) or has_captions(path):
        return "image"
    reject_layout(path, needs_classes=settings.target is not None)
    found = dominant_kind(path)
    if found is None and parquet_files(path):
        return "table"
    if is_flat(path, IMAGES):  # for models that draw images; others reject it as they open it
        if settings.target is not None:
            reject_flat(path)
        return IMAGES.kind
    if found is None:
        reject_flat(path)
        reject_folder(path, FORMS)
    return str(found)
