"""What concerns one architecture, in under a minute: `make model NAME=resnet`.

Its own tests, what is held of every model for its first and its last preset, and `cutaway verify`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from cutaway.apps.cli import main as cutaway
from cutaway.models.registry import presets

HERE = Path(__file__).parent
OF_EVERY_MODEL = (  # files whose tests go by the presets' names
    *("test_house.py", "models/test_saving.py", "models/test_every_image_model.py", "models/test_invariances.py"),
    *("models/test_recognition.py", "models/test_registry.py", "cli/test_show.py"),
    *("verify/test_every_model.py", "verify/test_published.py", "training/test_every_family.py"),
    *("checkpoints/test_torchvision.py", "checkpoints/test_huggingface.py"),
    *("inspect/test_probes.py", "inspect/test_gradients.py", "inspect/test_interventions.py"),
    *("inspect/test_attribution.py", "views/test_every_preset.py", "views/test_network.py"),
    "views/test_normalization.py",
)


def own_tests(name: str) -> list[Path]:
    """The files of tests named after it, else those that several share, which import it or name its presets."""
    named = [path for folder in ("models", "verify") if (path := HERE / folder / f"test_{name}.py").is_file()]
    names = "|".join(re.escape(p.name) for p in presets().values() if p.module.__name__.endswith(f".{name}"))
    of_it = re.compile(rf"^from cutaway\.models(\.{name} import|.* import .*\b{name}\b)|\"({names})\"", re.MULTILINE)
    return named or [path for path in sorted((HERE / "models").glob("test_*.py")) if of_it.search(path.read_text())]


def main(name: str) -> int:
    """Run them, and give the exit status."""
    of_file = [p.name for p in presets().values() if p.module.__name__.rpartition(".")[2] == name]
    if not of_file:
        files = sorted({p.module.__name__.rpartition(".")[2] for p in presets().values()})
        print(f"There is no architecture {name!r}. The files in src/cutaway/models are: {', '.join(files)}.")
        return 2
    own = own_tests(name)
    if not own:
        print(f"It has no tests of its own yet: tests/models/test_{name}.py.")
    shown = [of_file[0], *of_file[1:][-1:]]
    asked = " or ".join(f"[{one}" for one in (*shown, name))
    status = pytest.main(["-p", "no:cacheprovider", *map(str, own)]) if own else 1
    status = pytest.main(["-p", "no:cacheprovider", *(str(HERE / f) for f in OF_EVERY_MODEL), "-k", asked]) or status
    return int(cutaway(["verify", *shown]) or status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
