"""The words of messages."""

from __future__ import annotations

import re
from pathlib import Path

import cutaway

# A reader of a file cannot know that a person edited it, or that another program wrote it. That it was changed only a
# checksum tells, in `checkpoints/saving.py`.
ACCUSING = re.compile(r"was (\w+\.json )?edited|(been|or|and) edited|another program|fault of|not yours", re.IGNORECASE)


def test_no_message_says_that_a_person_edited_a_file() -> None:
    root = Path(cutaway.__file__).parent
    found = {}
    for path in root.rglob("*.py"):
        without_docstrings = re.sub(r'""".*?"""', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        if match := ACCUSING.search(without_docstrings):
            found[str(path.relative_to(root))] = match[0]
    assert found == {}
    assert ACCUSING.search("It was edited, or is another program's.")
    assert ACCUSING.search("Was preprocessing.json edited? Restore it from a copy.")
