"""Detection of unsupported layouts and file formats, so that errors name the format and the conversion.

A folder is recognised by the names in it and by the first bytes of one file; no file is read completely.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import FolderLayoutError, UnsupportedDataError
from ..core.files import exists, open_regular
from .folders import (
    AUDIO,
    CAPTIONS,
    IMAGES,
    SPLIT_FOLDERS,
    TEXTS,
    VIDEOS,
    Tally,
    is_flat,
    list_entries,
    normalize_name,
    subfolders,
    tallies,
)
from .tables.table_files import TABLE_SUFFIXES

HEAD = 4096  # bytes read of a file
ROWS = 20  # of a table that may name files
DEPTH = 6  # levels of folders searched
FOLDERS = 2000  # maximum number searched
IDX = re.compile(r".*[-.]idx[1-4][-.]u?(byte|int|short)s?(\.gz)?", re.IGNORECASE)
FOREIGN = (
    "Pascal VOC and labelme boxes, YOLO .txt next to the images, a labels.csv next to the images, MNIST's idx files, "
    ".npy, .npz, .mat, .h5, .pkl, .xlsx, .arff, .feather, libsvm, TFRecord, LMDB, Kaldi, archives"
)
BOXES = (
    "Boxes are read in two layouts: COCO (annotations.json next to the images) and YOLO (images/, labels/, classes.txt)"
)
OF_TFRECORD = "Read it with TensorFlow and write a file for each example into class folders, or a table as Parquet."
OF_IDX = (
    '`cutaway train lenet5 mnist` reads MNIST itself. Others from Python, unpacked: cutaway.train("lenet5", '
    '(images, labels)) with images = numpy.fromfile(FILE, "u1", offset=16).reshape(-1, 28, 28) and labels = '
    'numpy.fromfile(FILE, "u1", offset=8).'
)
FROM_PYTHON = 'From Python: cutaway.train("MODEL", '
# Formats by suffix: the name of the format, and how to convert it.
FORMATS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        (".zip", ".gz", ".tgz", ".tar", ".bz2", ".xz", ".zst", ".7z", ".rar"),
        "archives and compressed files",
        "Unpack it first (unzip, tar -xf, gunzip), and give its content.",
    ),
    (
        (".data", ".dat", ".tab", ".asc", ".psv"),
        "files with this ending",
        "If it is a table of text, rename it to .csv (or .tsv). header=false reads a table whose first line has no "
        "names.",
    ),
    (
        (".xlsx", ".xls", ".xlsm", ".ods"),
        "spreadsheets",
        f'Save it as CSV. {FROM_PYTHON}pandas.read_excel("FILE"), target="COLUMN").',
    ),
    ((".npy", ".npz"), "NumPy arrays", f'{FROM_PYTHON}(X, y)) with X, y from numpy.load("FILE").'),
    ((".mat",), "MATLAB files", f'{FROM_PYTHON}(X, y)) with X, y from scipy.io.loadmat("FILE").'),
    ((".h5", ".hdf5", ".hdf"), "HDF5 files", f'{FROM_PYTHON}(X, y)) with X, y from h5py.File("FILE").'),
    (
        (".pkl", ".pickle", ".joblib", ".pt", ".pth"),
        "pickles",
        "Pickles are never opened here, because opening one runs code in it. If you trust it, open it in Python and "
        'pass its content: cutaway.train("MODEL", (X, y)).',
    ),
    (
        (".arff",),
        "ARFF files",
        f'{FROM_PYTHON}pandas.DataFrame(scipy.io.arff.loadarff("FILE")[0]), target="COLUMN"); or save it as CSV.',
    ),
    (
        (".feather", ".arrow", ".ipc"),
        "Arrow (Feather) files",
        "Convert it to Parquet: python -c \"import polars; polars.read_ipc('FILE').write_parquet('data.parquet')\"",
    ),
    (
        (".jsonl", ".ndjson"),
        "JSON lines",
        "Convert it to CSV: python -c \"import polars; polars.read_ndjson('FILE').write_csv('data.csv')\"",
    ),
    (
        (".json",),
        "JSON files",
        "Convert a list of records to CSV: python -c \"import polars; polars.read_json('FILE').write_csv('data.csv')\"",
    ),
    (
        (".libsvm", ".svm", ".svmlight"),
        "libsvm files",
        f'{FROM_PYTHON}(X.toarray(), y)) with X, y = sklearn.datasets.load_svmlight_file("FILE").',
    ),
    (
        (".tfrecord", ".tfrecords"),
        "TFRecord files",
        OF_TFRECORD,
    ),
    (
        (".db", ".sqlite", ".sqlite3", ".duckdb"),
        "databases",
        "Export the rows to learn from as CSV or Parquet.",
    ),
    (
        (".dta", ".sav", ".sas7bdat", ".rds", ".rdata"),
        "files of Stata, SPSS, SAS and R",
        "Export it as CSV; of Stata, SPSS and SAS, pandas reads it: pandas.read_stata, read_spss, read_sas.",
    ),
    (
        (".pdf", ".doc", ".docx", ".odt", ".rtf", ".epub", ".html", ".htm"),
        "documents",
        "Save its text as UTF-8 in a .txt file, as by pandoc or pdftotext.",
    ),
    (
        (".m4a", ".aac", ".opus", ".wma", ".aif", ".aiff", ".amr"),
        "recordings in this format",
        f"Convert it: ffmpeg -i FILE OUT.wav. Recordings end in {', '.join(AUDIO.suffixes)}.",
    ),
    (
        (".heic", ".heif", ".avif", ".svg", ".dcm", ".nii", ".dng", ".cr2", ".nef"),
        "images in this format",
        f"Convert it to PNG or JPEG. Images end in {', '.join(IMAGES.suffixes)}.",
    ),
)
PASSED = (*FORMATS[0][0], *FORMATS[1][0])  # suffixes of files that some readers accept
Description = tuple[str, str]  # the format or layout, and how to convert it


def describe_file(path: Path) -> Description | None:
    """Return the kind of a file in an unsupported format, and how to convert it; None for an unknown format."""
    if IDX.fullmatch(path.name):
        return "is an idx file, the form of MNIST, which is not read", OF_IDX
    for kind in (IMAGES, AUDIO, VIDEOS):
        if path.suffix.lower() in kind.suffixes:
            return (
                f"is a single {kind.kind} file",
                f"Data is a folder with one folder of {kind.plural} for each class, as in cats/{path.name}; `cutaway "
                "predict RUN FILE` takes a single file.",
            )
    if (found := _format(path)) is None:
        return None
    return f"cannot be read: {found[0]} ({path.suffix.lower()}) are not supported", found[1]


def reject_unsupported_file(source: Any) -> None:
    """Raise DataError for a file in an unsupported format, such as a PDF, that readers would take for a table or text.

    Archives and files with endings that many programs use pass, as does everything that is no existing file.
    """
    if not isinstance(source, str | os.PathLike) or not exists(Path(source).expanduser()):
        return
    path = Path(source).expanduser()
    if path.is_file() and path.suffix.lower() not in PASSED and (found := _format(path)):
        raise UnsupportedDataError(
            f"{path} cannot be read: {found[0]} ({path.suffix}) are not supported.", fix=found[1]
        )


def describe_folder(path: Path) -> Description | None:
    """Return the layout of a folder of another program, and how to convert it; None for an unknown layout."""
    names = {p.name for p in list_entries(path)}
    if found := _annotated(path):
        return found
    if "wav.scp" in names:
        return (
            "is a Kaldi data folder (wav.scp), which is not read",
            "Write transcripts.tsv next to the recordings: file, tab, transcript.",
        )
    if "data.mdb" in names:
        return "is an LMDB database, which is not read", "Write its images into class folders: cats/1.jpg, dogs/1.jpg."
    if record := next((name for name in sorted(names) if ".tfrecord" in name), None):
        return f"holds TFRecord files ({record}), which are not read", OF_TFRECORD
    if any(IDX.fullmatch(name) for name in names):
        return "holds idx files, the form of MNIST, which are not read", OF_IDX
    if nested := _nested(path):
        return nested
    for counted in reversed([one for one in tallies(path) if one.count]):
        most = counted.dominant
        if most is None:
            return _mixed(counted)
        if most in TABLE_SUFFIXES:
            return _tables([p for p in list_entries(counted.first[most].parent) if p.suffix.lower() == most])
        if known := _format(counted.first[most]):
            return f"holds {counted.words()}: {known[0]} ({most}) are not supported", known[1]
    return None


def reject_folder(path: Path, forms: str) -> None:
    """Raise DataError for a folder without a readable kind of data; `forms` are the readable kinds."""
    if described := describe_folder(path):
        raise UnsupportedDataError(f"{path} {described[0]}.", fix=described[1])
    counted = [found.words() for found in reversed(tallies(path)) if found.count]
    holds = f" It holds {counted[0]}." if counted else ""
    raise UnsupportedDataError(
        f"{path} is a folder that holds no kind of data that can be read.{holds}",
        fix=f"Give {forms}. To be converted first: {FOREIGN}.",
    )


def reject_layout(path: Path, needs_classes: bool = False) -> None:
    """Raise DataError for a folder that looks like class folders but is not.

    These are Pascal VOC folders and, with `needs_classes`, a single folder of images whose labels are in a table.
    """
    folders = subfolders(path)
    named = [f for f in folders if f.name.lower() in (*SPLIT_FOLDERS, "annotations")]
    described = next((found for f in named if (found := _voc(f))), None)
    if described is None and needs_classes and len(folders) == 1:
        described = _labels(path)
    if described:
        raise UnsupportedDataError(f"{path} {described[0]}.", fix=described[1])


def reject_flat(path: Path) -> None:
    """Raise DataError if a folder holds examples but no class folders that define their classes."""
    for kind in (IMAGES, AUDIO, VIDEOS):
        if not is_flat(path, kind):
            continue
        if described := _annotated(path):
            raise UnsupportedDataError(f"{path} {described[0]}.", fix=described[1])
        files = [p for p in list_entries(path) if kind.fits(p)]
        speech = "; or, for speech recognition, write transcripts.tsv: file, tab, transcript" * (kind is AUDIO)
        raise FolderLayoutError(
            f"{path} holds {len(files):,} {kind.kind} file{'s' if len(files) > 1 else ''} and no class folders, "
            "so their classes are unknown.",
            fix=f"Put them into one folder for each class, as in {path / 'cats' / files[0].name}{speech}"
            f"{f', or write {CAPTIONS} next to them, file, tab, caption' if kind is IMAGES else ''}.",
        )


def describe_labels(table: Path) -> Description | None:
    """Return how to use a table with the labels of the images in its folder; None if it names no images."""
    return _labels_in(table, table.parent) if table.suffix.lower() in (".csv", ".tsv") else None


# --- layouts --------------------------------------------------------------------------------------------------------


def _annotated(path: Path) -> Description | None:
    """Return the annotations in a folder of files without class folders; None if there are none."""
    return _voc(path) or _labelme(path) or _yolo(path) or _labels(path)


def _voc(folder: Path) -> Description | None:
    """Detect Pascal VOC: an .xml file for each image."""
    file = next((p for p in list_entries(folder) if p.suffix.lower() == ".xml"), None)
    if file is None or b"<annotation" not in _head(file):
        return None
    return (
        f"holds boxes in Pascal VOC's form ({file.name}), which is not read",
        f"{BOXES}. docs/detection.md has a script that writes annotations.json from the .xml files; Roboflow, CVAT and "
        "FiftyOne export COCO too.",
    )


def _labelme(path: Path) -> Description | None:
    """Detect labelme: a .json file with `shapes` for each image."""
    file = next((p for p in list_entries(path) if p.suffix.lower() == ".json"), None)
    if file is None or b'"shapes"' not in _head(file):
        return None
    return (
        f"holds annotations in labelme's form ({file.name}), which is not read",
        f"{BOXES}; masks as COCO's polygons too. `labelme2coco FOLDER` (pip install labelme2coco) writes COCO's file; "
        "name it annotations.json and put it next to the images.",
    )


def _yolo(path: Path) -> Description | None:
    """Detect YOLO's label files in the same folder as the images."""
    stems = {normalize_name(p.stem) for p in list_entries(path) if IMAGES.fits(p)}
    file = next((p for p in list_entries(path) if p.suffix == ".txt" and normalize_name(p.stem) in stems), None)
    if file is None or not re.match(rb"\s*\d+(\s+[-+.\deE]+){4,}\s*(\n|$)", _head(file)):
        return None
    return (
        f"holds YOLO's label files next to the images ({file.name})",
        f"Move them apart: the images to {path / 'images'}, the .txt files to {path / 'labels'}, and write "
        f"{path / 'classes.txt'} with the name of a class on each line.",
    )


def _labels(path: Path) -> Description | None:
    """Return how to use a table in the folder that names the images in it; None if there is no such table."""
    tables = [p for p in list_entries(path) if p.suffix.lower() in (".csv", ".tsv") and p.name != CAPTIONS]
    return next((found for table in tables[:3] if (found := _labels_in(table, path))), None)


def _labels_in(table: Path, folder: Path) -> Description | None:
    head = _head(table).decode("utf-8-sig", errors="replace").rpartition("\n")[0]
    delimiter = "\t" if table.suffix.lower() == ".tsv" else ";" if head.count(";") > head.count(",") else ","
    try:
        columns, *rows = list(csv.reader(io.StringIO(head), delimiter=delimiter))[: ROWS + 1] or [[]]
    except csv.Error:  # no text, such as Parquet
        return None
    rows = [row for row in rows if len(row) == len(columns)]
    if len(columns) < 2 or not rows:
        return None
    homes = [folder, *subfolders(folder)][:20]
    images = {normalize_name(p.name): p for home in homes for p in list_entries(home) if IMAGES.fits(p)}
    stems = {normalize_name(p.stem): p for p in images.values()}
    for i, column in enumerate(columns):
        names = [normalize_name(Path(row[i].strip().replace("\\", "/")).name) for row in rows]
        found = [image for name in names if (image := images.get(name) or stems.get(name))]
        if 2 * len(found) < len(rows):
            continue
        home, ending = f"{found[0].parent}/", "" if set(names) & set(images) else found[0].suffix
        others = [name for name in columns if name != column] or [column]
        label = next((name for name in others if re.search(r"label|class|target|species|y$", name, re.I)), others[0])
        separator = f",delimiter={delimiter!r}" if delimiter != "," else ""
        return (
            f"is a folder of images whose labels are in {table.name} (columns {', '.join(columns[:6])}), which is "
            "not read",
            "For classes make class folders: python -c "
            f"\"import csv,os,shutil;[(os.makedirs(d:='by_class/'+r['{label}'],exist_ok=True),"
            f"shutil.copy('{home}'+r['{column}']{f'+{ending!r}' if ending else ''},d)) for r in "
            f"csv.DictReader(open('{table}'){separator})]\" and give by_class. For classes or numbers, from Python: "
            f't = polars.read_csv("{table}"); cutaway.train("MODEL", '
            f"([PIL.Image.open(f'{home}{{f}}{ending}') for f in t[{column!r}]], t[{label!r}])).",
        )
    return None


def _nested(path: Path) -> Description | None:
    """Detect class folders that are nested deeper than expected."""
    for folder in _below(path, DEPTH):
        found = tallies(folder)[-1]
        kind = next((k for k in (IMAGES, AUDIO, VIDEOS, TEXTS) if k.kind == found.dominant), None)
        if kind is None or folder.parent == path:
            continue
        root = folder.parent.parent if folder.parent.name.lower() in SPLIT_FOLDERS else folder.parent
        if root != path:
            return (
                f"holds {kind.plural} deeper than in class folders ({found.first[kind.kind].relative_to(path)})",
                f"Give the folder that holds the class folders: {root}",
            )
    return None


def _below(path: Path, depth: int) -> Iterator[Path]:
    """Yield the folders in a folder, level by level, at most FOLDERS of them."""
    level, count = [path], 0
    for _ in range(depth):
        level = [inside for folder in level for inside in subfolders(folder)]
        yield from level[: FOLDERS - count]
        count += len(level)
        if count >= FOLDERS:
            return


def _tables(files: Sequence[Path]) -> Description:
    """Describe several tables in a folder."""
    shown = ", ".join(p.name for p in files[:3]) + (", …" if len(files) > 3 else "")
    headers = {_head(p).splitlines()[0] if _head(p) else b"" for p in files[:ROWS]}
    what = (
        f"holds {len(files):,} {files[0].suffix} file{'s' if len(files) > 1 else ''} ({shown}), and a table is one file"
    )
    if len(files) == 1 or len(headers) > 1:
        different = " Their columns differ." if len(headers) > 1 else ""
        return what + different.rstrip("."), f"Give one of them: {files[0]}"
    separator = ", separator='\\t'" if files[0].suffix == ".tsv" else ""
    return (
        f"{what}. They have the same columns",
        f"Join them: python -c \"import polars; polars.read_csv('{files[0].parent}/*{files[0].suffix}'{separator}, "
        f"infer_schema=False).write_csv('all.csv')\" and give all.csv.",
    )


def _mixed(found: Tally) -> Description:
    alone = [key for key in found.size if key == TEXTS.kind or key in TABLE_SUFFIXES]  # one file can be the data
    largest = max(alone, key=lambda key: found.size[key], default=None)
    return (
        f"holds several kinds of files, and it is not clear which are the data: {found.words()}",
        "Move other files elsewhere" + (f", or give one file: {found.first[largest]}" if largest else "."),
    )


def _format(path: Path) -> Description | None:
    """Return the format of a file by its suffix, and how to convert it."""
    suffix = path.suffix.lower()
    return next(((what, fix.replace("FILE", path.name)) for of, what, fix in FORMATS if suffix in of), None)


def _head(path: Path) -> bytes:
    """Return the first bytes of a regular file; empty if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(HEAD)
    except OSError:
        return b""


__all__ = [
    "describe_file",
    "describe_folder",
    "describe_labels",
    "reject_flat",
    "reject_folder",
    "reject_layout",
    "reject_unsupported_file",
]
