"""What docs/python.md shows is what happens: its blocks are run one after another, in a folder of their own."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
def test_every_line_gives_what_stands_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in BLOCKS:
        lines = block.splitlines()
        for statement in ast.parse(block).body:
            said = lines[(statement.end_lineno or 1) - 1].partition("  # → ")[2]
            if said:
                assert isinstance(statement, ast.Expr)
                found = eval(compile(ast.Expression(statement.value), "docs/python.md", "eval"), names)
                assert str(repr(found)).replace("np.True_", "True") == said, ast.unparse(statement)
            else:
                exec(compile(ast.Module([statement], []), "docs/python.md", "exec"), names)
    assert sum(block.count("# → ") for block in BLOCKS) > 10
