"""All settings with type, default and meaning, from the dataclasses that define them."""

from __future__ import annotations

from cutaway.core.config import RENAMED, SettingHelp, describe, group_by_topic
from cutaway.data.settings import DataSettings, ShardSettings
from cutaway.deploy.quantize_config import QuantizeSettings
from cutaway.experiments.settings import CompareSettings, PlanSettings, SearchSettings
from cutaway.training.config import TrainSettings

GROUPS = {
    "Training": (TrainSettings, "`cutaway train` and all that trains"),
    "Data": (DataSettings, "every command that reads data"),
    "Shards": (ShardSettings, "`cutaway prepare`"),
    "Search": (SearchSettings, "`cutaway search`"),
    "Comparison": (CompareSettings, "`cutaway compare`"),
    "Quantization": (QuantizeSettings, "`cutaway quantize`"),
    "Plans": (PlanSettings, "`cutaway plan`"),
}
HEAD = """# Settings

A setting (hyperparameter) is `key=value` on the command line, a line of a TOML file given as `@file.toml`, and a
keyword in Python. A model's own are `model.KEY=value`; they stand with [each model](models.md). A card may hold other
defaults than these: `cutaway show MODEL` prints them. What is typed wins, and an unknown key is rejected with the
nearest names. `cutaway train --help TOPIC` prints the settings under one of the headings below, `--help KEY` one
setting, `--help all` everything.
"""


def pages() -> dict[str, str]:
    """One page, a table for each group."""
    parts = [HEAD]
    for title, (group, where) in GROUPS.items():
        parts.append(f"## {title}\n\nFor {where}.\n")
        topics = group_by_topic(group)
        for topic, entries in topics:
            parts.append(f"### {title}: {topic.name}\n\n{topic.title[:1].upper()}{topic.title[1:]}.\n")
            parts += table(title, entries)
        if not topics:
            parts += table(title, describe(group))
    parts.append("## What they were called\n\n| before 0.7 | now |\n| --- | --- |")
    parts += [f"| `{old}` | `{new}` |" for old, new in RENAMED.items()]
    return {"reference/settings.md": "\n".join(parts) + "\n"}


def table(title: str, entries: list[SettingHelp]) -> list[str]:
    """Return the lines of a table of settings."""
    lines = ["| setting | meaning |\n| --- | --- |"]
    for s in entries:
        key = f"[`{s.key}`]{{#{title.lower()}-{s.key}}}"
        cells = (f"{key}<br>{s.type}, `{s.default}`", f"{s.meaning[:1].upper()}{s.meaning[1:]}.")
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("$", "\\$") for cell in cells) + " |")
    return [*lines, ""]
