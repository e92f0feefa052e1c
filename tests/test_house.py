"""The house: who may import whom, what every model file has, and what is imported nowhere."""

from __future__ import annotations

import ast
import dataclasses
import functools
import graphlib
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from torch import nn

import cutaway
from cutaway.core.spec import KINDS
from cutaway.models.card import Card
from cutaway.models.config import field_descriptions
from cutaway.models.registry import presets

SOURCE = Path(cutaway.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# The packages and top modules, lowest first: each imports those before it, and of them only what this table names.
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "statistics": set(),
    "draw": set(),
    "nn": {"core"},
    "models": {"core", "nn"},
    "data": {"core"},
    "tasks": {"core", "data", "nn", "statistics"},
    "checkpoints": {"core", "data", "models", "nn"},
    "distributed": {"checkpoints", "core", "nn"},
    "inference": {"checkpoints", "core", "data", "models", "nn"},
    "inspect": {"core", "models", "nn"},
    "training": {
        *("checkpoints", "core", "data", "distributed", "inference", "inspect", "models", "nn", "statistics", "tasks"),
    },
    "runs": {
        *("checkpoints", "core", "data", "distributed", "draw", "inference", "nn", "statistics", "tasks", "training"),
    },
    "views": {
        "checkpoints",
        "core",
        "data",
        "draw",
        "inference",
        "inspect",
        "models",
        "nn",
        "runs",
        "tasks",
        "training",
    },
    "reports": {"checkpoints", "core", "draw", "inspect", "runs", "views"},
    "deploy": {"checkpoints", "core", "data", "models", "nn", "runs", "statistics", "tasks", "training"},
    "experiments": {
        *("checkpoints", "core", "data", "distributed", "draw", "inspect", "models", "nn", "reports", "runs"),
        *("statistics", "tasks", "training", "views"),
    },
    "api": {
        *("checkpoints", "core", "data", "deploy", "distributed", "draw", "experiments", "nn", "reports", "runs"),
        *("training", "views"),
    },
    "estimators": {"core", "data", "reports", "runs", "tasks", "training"},
    "verify": {"checkpoints", "core", "models", "nn"},
    "apps": {
        *(
            "api",
            "checkpoints",
            "core",
            "data",
            "deploy",
            "distributed",
            "draw",
            "experiments",
            "inference",
        ),
        *("inspect", "models", "nn", "reports", "runs", "tasks", "training", "verify", "views"),
    },
    # the package's public names, imported when they are asked for
    "__init__": {"api", "checkpoints", "core", "estimators", "inspect", "models", "runs", "training"},
    "__main__": {"apps"},
}


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The file's syntax."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """What a file imports, anywhere in it."""
    return [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Import | ast.ImportFrom)]


def part_of(path: Path) -> str:
    """The part of the house that a file stands in: models, training, or its own name at the top."""
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imported_parts(path: Path) -> Iterator[tuple[int, str]]:
    """The parts of the house that a file imports anywhere in it, with the line."""
    package = path.parent
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package
            for _ in range(node.level - 1):
                base = base.parent
            where = base.joinpath(*(node.module or "").split(".")) if node.module else base
            # `from .. import spec` names files or folders; `from .. import __version__` names what __init__ holds.
            names = [where / a.name for a in node.names] if not node.module else [where]
            for name in names:
                known = name.is_dir() or name.with_suffix(".py").is_file()
                yield node.lineno, part_of(name) if known else part_of(name.parent / "__init__")
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.module.startswith("cutaway"), f"{path}:{node.lineno} imports by the package's full name"


@functools.cache
def libraries(path: Path) -> set[str]:
    """The packages that a file imports from outside, anywhere in it."""
    found: set[str] = set()
    for node in imports(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def files_that_import(library: str) -> set[str]:
    """Their paths below src/cutaway."""
    return {str(f.relative_to(SOURCE)) for f in FILES if library in libraries(f)}


def test_imports_go_one_way() -> None:
    against = []
    for path in FILES:
        part = part_of(path)
        allowed = {part} | ALLOWED[part]
        against += [f"{path}:{line}: {t}" for line, t in imported_parts(path) if t not in allowed]
    assert not against


def test_packages_import_only_lower_ones() -> None:
    order = list(ALLOWED)
    upwards = {(part, t) for part, allowed in ALLOWED.items() for t in allowed if order.index(t) > order.index(part)}
    assert upwards == set()


def test_no_allowed_import_is_unused() -> None:
    used: dict[str, set[str]] = {part: set() for part in ALLOWED}
    for path in FILES:
        used[part_of(path)] |= {t for _, t in imported_parts(path)}
    assert {part: allowed - used[part] for part, allowed in ALLOWED.items() if allowed - used[part]} == {}


def test_every_folder_is_told_of_where_one_begins_to_read() -> None:
    text = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = {name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}
    parts = {f"{name}/" if (SOURCE / name).is_dir() else f"{name}.py" for name in ALLOWED if not name.startswith("__")}
    assert rows == parts


def imported_files(path: Path) -> Iterator[Path]:
    """The files of the package that a file imports anywhere in it, with the packages that they stand in."""
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1]
            module = folder.joinpath(*node.module.split(".")) if node.module else folder
            for named in (module / alias.name for alias in node.names):
                file = next((f for f in (named.with_suffix(".py"), module.with_suffix(".py")) if f.is_file()), None)
                found = file or module / "__init__.py"
                packages = {folder / "__init__.py" for folder in found.parents if SOURCE in folder.parents}
                own = {path, *(folder / "__init__.py" for folder in path.parents)}  # have begun already
                yield from ({found} | packages) - own


def test_no_file_imports_itself_in_a_circle() -> None:
    order = graphlib.TopologicalSorter({path: set(imported_files(path)) for path in FILES})
    try:
        order.prepare()
    except graphlib.CycleError as error:
        circle = " → ".join(str(path.relative_to(SOURCE)) for path in error.args[1])
        pytest.fail(f"a circle of imports: {circle}")


def test_every_part_has_its_directions() -> None:
    assert {part_of(f) for f in FILES} <= set(ALLOWED)


def test_this_test_sees_imports() -> None:
    assert {t for _, t in imported_parts(SOURCE / "checkpoints" / "saving.py")} >= {"core", "models", "nn"}
    assert {t for _, t in imported_parts(SOURCE / "inspect" / "layers.py")} == {"core", "inspect", "models", "nn"}


def test_the_mathematics_needs_torch_alone() -> None:
    for path in FILES:
        if part_of(path) in ("nn", "models"):
            assert libraries(path) - {"torch"} <= sys.stdlib_module_names, path


def test_pickle_is_read_in_one_place() -> None:
    assert files_that_import("pickle") <= {"data/datasets/formats.py"}
    for library in ("cloudpickle", "dill", "joblib", "shelve", "marshal"):
        assert files_that_import(library) == set()
    loading = [f for f in FILES if re.search(r"torch\.load\(", f.read_text(encoding="utf-8"))]
    assert [f.relative_to(SOURCE).as_posix() for f in loading] == ["checkpoints/torchvision.py"]
    assert "weights_only=True" in loading[0].read_text(encoding="utf-8")


def test_files_are_opened_for_reading_in_one_place() -> None:
    """To open a named pipe waits for ever: `files.open_regular` does not."""
    opened = re.compile(r"""[.( ]open\([^()]*["']rb?["']""")
    found = [f for f in FILES if opened.search(f.read_text(encoding="utf-8"))]
    allowed = {
        SOURCE / "core/files.py",
        SOURCE / "data/datasets/formats.py",
    }  # the latter opens gzip, once it knows the file
    assert set(found) <= allowed


def test_independent_implementations_are_imported_by_oracles_alone() -> None:
    for library in ("torchvision", "transformers", "torch_geometric", "gensim", "pytest", "hypothesis"):
        assert all(f.startswith("verify/") for f in files_that_import(library)), library


SERVERS = ("apps/studio/", "apps/serve/", "apps/networking.py")


def test_a_server_is_in_its_parts_alone() -> None:
    for library in ("starlette", "uvicorn", "asyncio"):
        assert all(f.startswith(SERVERS) for f in files_that_import(library)), library
    assert all(f.startswith(SERVERS) for f in files_that_import("multiprocessing"))


def test_scikit_learn_is_for_data_figures_and_oracles() -> None:
    parts = {f.split("/")[0] for f in files_that_import("sklearn")}
    assert parts <= {"experiments", "data", "tasks", "verify", "inspect", "estimators.py"}


def test_files_say_what_they_are() -> None:
    assert not [path for path in FILES if not ast.get_docstring(parsed(path))]


# --- model files --------------------------------------------------------------------------------------------------

FAMILIES = {p.module.__name__.rpartition(".")[2]: p.module for p in presets().values()}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> ModuleType:
    """A model file."""
    return FAMILIES[request.param]


def test_a_model_file_names_its_paper(family: ModuleType) -> None:
    card = family.CARD
    assert isinstance(card, Card)
    assert card.link.startswith("https://")
    assert f"<{card.link}>" in (family.__doc__ or "")
    assert str(card.year) in (family.__doc__ or "")
    assert all((card.title, card.authors, card.equation, card.oracle, card.family))


def test_a_config_is_frozen_and_fits_itself_to_data(family: ModuleType) -> None:
    config = family.Config
    assert dataclasses.is_dataclass(config)
    assert config.__dataclass_params__.frozen
    assert callable(config.for_spec)
    assert all(field_descriptions(config).values()), "each field says in a comment beside it what it is"


def test_a_card_is_about_the_presets_of_its_file(family: ModuleType) -> None:
    card, names = family.CARD, set(family.PRESETS)
    assert set(card.published) <= names
    assert set(card.settings) <= names
    assert all(isinstance(config, family.Config) for config in family.PRESETS.values())
    for published in card.published.values():
        assert published.source
        assert published.parameters is not None
        assert published.at or published.multiply_adds is None


def test_a_model_keeps_the_contract(family: ModuleType) -> None:
    model = family.Model
    assert issubclass(model, nn.Module)
    assert model.takes
    assert set(model.takes) <= set(KINDS.values())
    assert callable(model.features)
    assert model.features.__doc__
    assert model.forward.__doc__


def test_training_settings_of_a_card_are_settings(family: ModuleType) -> None:
    from cutaway.core.config import build, field_names
    from cutaway.data.settings import DataSettings
    from cutaway.training.config import TrainSettings

    for given in family.CARD.settings.values():
        assert set(given) <= set(field_names(TrainSettings, DataSettings))
        for group in (TrainSettings, DataSettings):
            build(group, {k: v for k, v in given.items() if k in field_names(group)})


# Names of other libraries, of their files and of data, which docstrings mention.
FOREIGN = {
    *("CommDebugMode", "MemTracker", "SyncBatchNorm", "avg_pool1d", "std_mean", "vmap"),  # PyTorch
    *("layer1", "weight_ih_l0", "ConvBase"),  # names in the modules of PyTorch and of published implementations
    *("decimal_comma", "limit_concurrency", "timeout_keep_alive"),  # settings of Polars and uvicorn
    "sinusoidal_pos_embds",  # of a Hugging Face config
}
QUOTED = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`(?!`)")


def docstrings(path: Path) -> Iterator[ast.Constant]:
    """The docstrings of a file, of its classes and of its functions."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


def names_outside_docstrings() -> set[str]:
    """The names of modules, and all words of the source outside docstrings and comments."""
    found: set[str] = set()
    for path in FILES:
        found |= set(path.relative_to(SOURCE).with_suffix("").parts)
        starts = {(one.lineno, one.col_offset) for one in docstrings(path)}
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            if token.type != tokenize.COMMENT and token.start not in starts:
                found |= set(re.findall(r"\w+", token.string))
    return found


def test_names_in_docstrings_exist() -> None:
    known = names_outside_docstrings() | FOREIGN
    stale = [
        f"{path.relative_to(SOURCE)}:{one.lineno}: {name}"
        for path in FILES
        for one in docstrings(path)
        for name in QUOTED.findall(str(one.value))
        if not set(name.split(".")) <= known
    ]
    assert not stale
