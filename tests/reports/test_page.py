"""The page as a file: whole, closed to the network, and nothing in it that data can break."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cutaway.reports.run_report import write_report

from . import samples

HOSTILE = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!-- {style} \u2028 &amp;")


def scripts(page: str) -> list[tuple[str, str]]:
    """The attributes and the text of each script element, as an HTML parser sees them."""
    return re.findall(r"<script([^>]*)>(.*?)</script>", page, flags=re.DOTALL)


def test_the_page_is_written_beside_the_documents(tmp_path: Path) -> None:
    path = write_report(samples.write(tmp_path / "run", samples.classification()))
    assert path == tmp_path / "run" / "report.html"
    assert "<title>lenet5-modern on digits · Cutaway</title>" in path.read_text(encoding="utf-8")
    assert [p.name for p in path.parent.iterdir() if p.name.endswith(".part")] == []


def test_names_cannot_end_the_script_that_holds_them(tmp_path: Path) -> None:
    page = write_report(samples.write(tmp_path, samples.classification(HOSTILE))).read_text(encoding="utf-8")
    found = scripts(page)
    assert [attributes.split()[0] for attributes, _ in found] == [
        'type="importmap"',
        'type="application/json"',
        'type="module"',
    ]
    description = json.loads(found[1][1])
    heat = next(v for v in description["views"] if v["id"] == "confusion")["drawings"][0]
    assert tuple(heat["names"]) == HOSTILE


def test_a_hostile_title_is_text(tmp_path: Path) -> None:
    samples.write(tmp_path)
    run = samples.run() | {"model": "</title><script>alert(1)</script>"}
    (tmp_path / "run.json").write_text(json.dumps(run))
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "<title>&lt;/title&gt;" in page
    assert len(scripts(page)) == 3


def test_the_policy_admits_the_pages_own_script_and_style_alone(tmp_path: Path) -> None:
    page = write_report(samples.write(tmp_path)).read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy[1]
    assert "http" not in policy[1]

    def named(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    runs = [text for attributes, text in scripts(page) if "json" not in attributes]
    assert rules["script-src"].split() == ["data:", *map(named, runs)]
    style = re.search(r"<style>(.*?)</style>", page, flags=re.DOTALL)
    assert style is not None
    assert rules["style-src"] == named(style[1])


def test_every_module_that_is_imported_is_in_the_page(tmp_path: Path) -> None:
    from urllib.parse import unquote

    page = write_report(samples.write(tmp_path)).read_text(encoding="utf-8")
    imports = json.loads(scripts(page)[0][1])["imports"]
    assert "cutaway/page.js" in imports
    for url in imports.values():
        source = unquote(url.removeprefix("data:text/javascript;charset=utf-8,"))
        assert not re.search(r'from "\.', source)
        assert set(re.findall(r'from "([^"]+)"', source)) <= set(imports)


def test_drawings_never_write_markup() -> None:
    import cutaway.draw

    folder = Path(cutaway.draw.__file__).parent
    for module in folder.glob("*.js"):
        text = module.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "http://"):
            assert word not in text.replace('"http://www.w3.org/2000/svg"', ""), (module.name, word)


@pytest.mark.slow
def test_the_drawing_modules_pass_their_own_tests() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node to run the tests of the drawing modules")
    files = sorted((Path(__file__).parents[1] / "draw").glob("*.test.js"))
    done = subprocess.run([node, "--test", *map(str, files)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"# pass [1-9]", done.stdout) or re.search(r"ℹ pass [1-9]", done.stdout)
