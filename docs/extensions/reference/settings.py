"""All settings with type, default and meaning, from the dataclasses that define them."""

from __future__ import annotations

from cutaway.core.config import RENAMED, SettingHelp, describe, group_by_topic
from cutaway.data.settings import DataSettings, ShardSettings
from cutaway.deploy.quantize_config import QuantizeSettings
from cutaway.experiments.settings import CompareSettings, PlanSettings, SearchSettings
from cutaway.training.config import TrainSettings

GROUPS = {
    "Training": (TrainSettings, "`cutaway train` and other commands that train"),
    "Data": (DataSettings, "every command that reads data"),
    "Shards": (ShardSettings, "`cutaway prepare`"),
    "Search": (SearchSettings, "`cutaway search`"),
    "Comparison": (CompareSettings, "`cutaway compare`"),
    "Quantization": (QuantizeSettings, "`cutaway quantize`"),
    "Plans": (PlanSettings, "`cutaway plan`"),
}
HEAD = """# Settings

A setting (hyperparameter) is `key=value` on the command line, a line of a TOML file given as `@file.toml`, and a
keyword in Python. The settings of a model are `model.KEY=value`: see [each model](models.md). A model can have other
defaults than the ones below: `cutaway show MODEL` prints them. Your own values take precedence. An unknown key is an
error that lists the nearest names. `cutaway train --help TOPIC` prints the settings under one of the headings below,
`--help KEY` one setting, and `--help all` all settings.
"""


def pages() -> dict[str, str]:
    """One page, a table for each group."""
    parts = [HEAD]
    for title, (group, where) in GROUPS.items():
        parts.append(f"## {title}\n\nFor {where}.\n")
        topics = group_by_topic(group)
        for topic, entries in topics:
            parts.append(f"### {title}: {topic.name}\n\n{capitalize(topic.title)}.\n")
            parts += table(title, entries)
        if not topics:
            parts += table(title, describe(group))
    parts.append("## Renamed settings\n\n| before 0.7 | now |\n| --- | --- |")
    parts += [f"| `{old}` | `{new}` |" for old, new in RENAMED.items()]
    return {"reference/settings.md": "\n".join(parts) + "\n"}


def capitalize(text: str) -> str:
    """Return a text that begins with a capital letter, unless it begins with a symbol such as ε."""
    return text[:1].upper() + text[1:] if text[:1].isascii() else text


def table(title: str, entries: list[SettingHelp]) -> list[str]:
    """Return the lines of a table of settings."""
    lines = ["| setting | meaning |\n| --- | --- |"]
    for s in entries:
        key = f"[`{s.key}`]{{#{title.lower()}-{s.key}}}"
        cells = (f"{key}<br>{s.type}, `{s.default}`", f"{capitalize(s.meaning)}.")
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("$", "\\$") for cell in cells) + " |")
    return [*lines, ""]
