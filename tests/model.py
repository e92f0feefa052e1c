"""Whether one architecture is complete: `make model NAME=resnet`.

It looks for what is missing of the files that docs/extending.md names, and runs the linter and the type checker, the
architecture's own tests, those that hold of every model for its first and its last preset, and `cutaway verify` of all
its presets. The exit status is 0 if nothing is missing and everything passes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway.apps.cli import main as cutaway
from cutaway.inspect.layers import preset_layer_table
from cutaway.models.registry import Preset, presets
from cutaway.verify import OracleMissing, oracle_for
from cutaway.verify.published import SETTINGS

from .deploy.presets import DIFFERENT, kept
from .scripts import DOCS, load

HERE = Path(__file__).parent
ROOT = HERE.parent
OF_EVERY_MODEL = (  # files whose tests go by the presets' names
    *("test_house.py", "models/test_saving.py", "models/test_every_image_model.py", "models/test_invariances.py"),
    *("models/test_recognition.py", "models/test_registry.py", "cli/test_show.py"),
    *("verify/test_every_model.py", "verify/test_published.py", "training/test_every_family.py"),
    *("checkpoints/test_torchvision.py", "checkpoints/test_huggingface.py"),
    *("inspect/test_probes.py", "inspect/test_gradients.py", "inspect/test_interventions.py"),
    *("inspect/test_attribution.py", "views/test_every_preset.py", "views/test_network.py"),
    "views/test_normalization.py",
)
OF_ALL = (  # tests of tables and pages that name every preset
    "deploy/test_presets.py::test_the_page_has_the_table_that_was_made",
    "deploy/test_presets.py::test_every_kind_of_preset_is_in_the_table",
    "test_docs.py::test_every_architecture_has_its_place",
)
LINTERS = (("ruff", "check", "--quiet", "."), ("ruff", "format", "--check", "--quiet", "."), ("mypy",))
UNCOUNTED = ("lenet5",)  # of images, whose paper counts connections instead of multiply-adds


def own_tests(name: str) -> list[Path]:
    """The files of tests named after it, else those that several share, which import it or name its presets."""
    named = [path for folder in ("models", "verify") if (path := HERE / folder / f"test_{name}.py").is_file()]
    names = "|".join(re.escape(p.name) for p in presets().values() if p.module.__name__.endswith(f".{name}"))
    of_it = re.compile(rf"^from cutaway\.models(\.{name} import|.* import .*\b{name}\b)|\"({names})\"", re.MULTILINE)
    return named or [path for path in sorted((HERE / "models").glob("test_*.py")) if of_it.search(path.read_text())]


def pages_of(of_file: list[Preset]) -> list[str]:
    """The names of the pages that are made from the file."""
    make = load("docs_make", DOCS / "make.py")
    return [page.name for page in make.PAGES if any(map(page.holds, of_file))]


def missing(name: str, of_file: list[Preset]) -> list[str]:
    """What the files of docs/extending.md lack of an architecture, each with the place where it belongs."""
    found = [] if own_tests(name) else [f"tests/models/test_{name}.py: it has no tests of its own"]
    for preset in of_file:
        if preset.name not in SETTINGS:
            found.append(f"src/cutaway/verify/published.py: SETTINGS has no line for {preset.name}")
        found += _missing_counts(name, preset)
        try:
            oracle_for(preset.name, preset.config)
        except OracleMissing as error:
            found.append(f"src/cutaway/verify/{name}.py: {error}")
        except Exception:  # which `verify` tells of in full
            pass
        if preset.name in DIFFERENT and preset.name not in kept()["found"]:
            found.append(
                f"tests/deploy/exports.json, docs/export.md: no row of {preset.name}. "
                f"Write it: python -m tests.deploy.presets {preset.name}"
            )
    if not pages_of(of_file):
        found.append("docs/make.py: no page of PAGES holds it")
    return found


def _missing_counts(name: str, preset: Preset) -> list[str]:
    """What the card lacks of exact counts; of models whose sizes the data decides, they are not asked for."""
    published = preset.card.published
    if preset.takes != ("image",) or preset.name in UNCOUNTED:
        return []
    if published.parameters is not None and published.multiply_adds is not None:
        return []
    if not published.at:
        return [f"src/cutaway/models/{name}.py: CARD.published has no counts of {preset.name} and no shape `at`"]
    layers = preset_layer_table(preset, preset.config)
    return [
        f"src/cutaway/models/{name}.py: CARD.published has no exact counts of {preset.name}. Counted here are "
        f"{layers.parameters:,} parameters and {layers.multiply_adds:,} multiply-adds; compare them with a "
        'published source before you write them down, or begin the source with "computed"'
    ]


def lint() -> int:
    """Run the linter, the formatter and the type checker; return the first exit status that is not 0."""
    done = [subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=False).returncode for words in LINTERS]
    for words, status in zip(LINTERS, done):
        if status:
            print(f"{' '.join(words)}: failed")
    return next(filter(None, done), 0)


def main(name: str) -> int:
    """Check all of it, say what is missing, and return the exit status."""
    of_file = [p for p in presets().values() if p.module.__name__.rpartition(".")[2] == name]
    if not of_file:
        files = sorted({p.module.__name__.rpartition(".")[2] for p in presets().values()})
        print(f"There is no architecture {name!r}. The files in src/cutaway/models are: {', '.join(files)}.")
        return 2
    lacks = missing(name, of_file)
    statuses = {"ruff and mypy": lint()}
    names = [preset.name for preset in of_file]
    asked = " or ".join(f"[{one}" for one in (names[0], *names[1:][-1:], name))
    quiet = ("-p", "no:cacheprovider", "-q")
    if own := own_tests(name):
        statuses["its own tests"] = pytest.main([*quiet, *map(str, own)])
    statuses["tests of every model"] = pytest.main([*quiet, *(str(HERE / f) for f in OF_EVERY_MODEL), "-k", asked])
    statuses["tests of tables and pages"] = pytest.main([*quiet, *(str(HERE / test) for test in OF_ALL)])
    if pages := pages_of(of_file):
        of_pages = " or ".join(f"[{page}]" for page in pages)
        statuses["its page (python docs/make.py writes it)"] = pytest.main(
            [*quiet, str(HERE / "test_docs.py"), "-k", of_pages]
        )
    statuses["cutaway verify"] = cutaway(["verify", *names])
    failed = [what for what, status in statuses.items() if status]
    for line in lacks:
        print(f"missing  {line}")
    for what in failed:
        print(f"failed   {what}")
    if lacks or failed:
        return 1
    print(f"{name} is complete: {', '.join(names)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
