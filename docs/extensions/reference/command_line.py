"""The command line, from what `--help` prints at 80 columns."""

from __future__ import annotations

import contextlib
import io
import os
import re

from cutaway.apps.cli import COMMANDS, COMMANDS_ELSEWHERE, WITH_SETTINGS, main

CUT = re.compile(r"\n(the \d+ )?settings.*", re.DOTALL)  # the list that has a page of its own
HEAD = """# Command line

`cutaway COMMAND --help` prints what stands here. `--json` prints one JSON document and nothing else to standard output;
notes and progress go to standard error.

| exit status | means |
| --- | --- |
| 0 | done |
| 1 | an internal error, with a traceback to report |
| 2 | something that you can fix, said in one paragraph: [the errors](errors.md) |
| 130 | interrupted; what was learned is kept |

```text
{usage}
```
"""


def pages() -> dict[str, str]:
    """One page."""
    parts = [HEAD.format(usage=said(["--help"]))]
    for name in COMMANDS:
        text = said([name, "--help"])
        more = "\n[Settings](settings.md) follow as `key=value`.\n" if name in WITH_SETTINGS else ""
        others = sorted(word for word, meant in COMMANDS_ELSEWHERE.items() if meant.split()[0] == name)
        known = f"\nElsewhere it is called {', '.join(others)}.\n" if others else ""
        parts.append(f"## {name}\n\n```text\n{CUT.sub('', text).rstrip() if more else text}\n```\n{more}{known}")
    return {"reference/command-line.md": "\n".join(parts)}


def said(words: list[str]) -> str:
    """What a command prints."""
    before, out = os.environ.get("COLUMNS"), io.StringIO()
    os.environ["COLUMNS"] = "80"
    try:
        with contextlib.redirect_stdout(out):
            main(words)
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return out.getvalue().rstrip()
