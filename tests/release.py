"""Try a wheel as somebody would who has just installed it: python -m tests.release dist/cutaway-X.whl.

It goes into an environment of its own, without what it depends on: the libraries are those of this environment, so that
PyTorch is not fetched again. There a network is trained, asked and looked into.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "examples wine.csv",
    "train mlp wine.csv target=cultivar epochs=10 --out runs/wine",
    "predict runs/wine wine.csv --out predictions.csv",
    "inspect runs/wine --view network",
)


def main(wheel: str) -> int:
    """Install the wheel, run the commands, and hold its version to those that are written down."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        venv.create(here / "venv", with_pip=False)
        python = here / "venv" / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--disable-pip-version-check", str(Path(wheel).resolve())], check=True)
        site = next((here / "venv").glob("lib/python*/site-packages"))
        (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")  # after what is installed here
        clean = {"PATH": f"{python.parent}:/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
        where = subprocess.run(
            [python, "-c", "import cutaway; print(cutaway.__file__, cutaway.__version__)"],
            cwd=here, env=clean, check=True, capture_output=True, text=True,
        ).stdout.split()  # fmt: skip
        if not where[0].startswith(str(here)) or where[1] != version:
            print(f"The wheel gives {where[1]} from {where[0]}, and pyproject.toml says {version}.", file=sys.stderr)
            return 1
        for command in COMMANDS:
            subprocess.run([python.parent / "cutaway", *command.split()], cwd=here, env=clean, check=True)
        pages = [here / "runs" / "wine" / name for name in ("report.html", "inspect.html")]
        missing = [page.name for page in pages if not page.is_file()]
        print(f"{Path(wheel).name} trains, predicts and shows." if not missing else f"missing: {missing}")
        return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
