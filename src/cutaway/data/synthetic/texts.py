"""Example texts: everyday life in a small language with topics, generated dates, and sentences from the documentation
of installed libraries.
"""

from __future__ import annotations

import csv
import datetime
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np

# Libraries, and the subpackages of each whose docstrings are used.
LIBRARIES = {
    "networkx": ".",
    "numpy": ".",
    "pillow": ".",
    "polars": ".",
    "scikit-learn": ".",
    "scipy": ".",
    "torch": "nn optim distributions utils/data",
}
PACKAGES = {"pillow": "PIL", "scikit-learn": "sklearn"}  # import names that differ from the library's name
LABELLED = ("networkx", "polars", "scikit-learn", "torch")
DOCUMENTED = re.compile(r'\n *(?:def|class) [A-Za-z][^"\']*:\n\s+r?"""(.+?)(?:"""|\n\s*\n)', re.DOTALL)
PLAIN = re.compile(r"[A-Z][a-z]+(?:,? (?:[a-z]+(?:-[a-z]+)*|[A-Z]))*\.")  # only words and single capitals
SENTENCE_LENGTHS = 4, 30  # smallest and largest number of words of a sentence
EACH = 600  # labelled sentences per library


def docs(path: Path) -> None:
    """Write descriptions of functions and classes of four libraries, labelled with the library."""
    rng = np.random.default_rng(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, dialect="excel-tab")
        writer.writerow(["text", "library"])
        for library in LABELLED:
            found = sentences(library)
            writer.writerows([found[i], library] for i in rng.permutation(len(found))[:EACH])


def help_text(path: Path) -> None:
    """Write descriptions of functions and classes of seven libraries: plain sentences separated by blank lines."""
    rng = np.random.default_rng(0)
    every = dict.fromkeys(sentence for library in LIBRARIES for sentence in sentences(library))
    found = [sentence for sentence in every if PLAIN.fullmatch(sentence)]
    path.write_text("".join(f"{found[i]}\n\n" for i in rng.permutation(len(found))), encoding="utf-8")


def sentences(library: str) -> list[str]:
    """Return the distinct first sentences of a library's docstrings, without importing the library."""
    spec = find_spec(PACKAGES.get(library, library))
    assert spec is not None
    assert spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0])
    found = []
    for path in sorted(path for place in LIBRARIES[library].split() for path in (root / place).rglob("*.py")):
        if any(part.startswith("_") or "test" in part for part in path.relative_to(root).parts[:-1]):
            continue
        for docstring in DOCUMENTED.findall(path.read_text(encoding="utf-8")):
            sentence = " ".join(re.sub(r":\w+:|[`*]", "", docstring).split())
            if (
                sentence.endswith(".")
                and SENTENCE_LENGTHS[0] <= len(sentence.split()) <= SENTENCE_LENGTHS[1]
                and sentence.isascii()
            ):
                found.append(sentence)
    return list(dict.fromkeys(found))


def dates(path: Path, count: int = 3000) -> None:
    """Write dates in common notations, a tab, and the same date in ISO 8601."""
    rng = np.random.default_rng(0)
    first = datetime.date(1950, 1, 1)
    days = rng.choice(100 * 365, count, replace=False).tolist()
    forms = rng.integers(0, len(FORMS), count).tolist()
    lines = [_format_date(first + datetime.timedelta(day), FORMS[form]) for day, form in zip(days, forms)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


FORMS = ("{d} {m} {y}", "{m} {d}, {y}", "{w}, {d} {m} {y}", "the {o} of {m} {y}", "{d} {s} {y}", "{s} {d} {y}")
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September"]
MONTHS += ["October", "November", "December"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def _format_date(date: datetime.date, form: str) -> str:
    """Return a date in this notation, a tab, and the date in ISO 8601."""
    month = MONTHS[date.month - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(date.day % 10 if date.day not in (11, 12, 13) else 0, "th")
    text = form.format(d=date.day, m=month, y=date.year, w=DAYS[date.weekday()], o=f"{date.day}{ending}", s=month[:3])
    return f"{text}\t{date.isoformat()}"


# Words of each class; a name in capitals is replaced by any of its words.
VOCABULARY = {
    "PERSON": "Anna Ben Clara David Emma Frank Grace Henry Iris Jacob my-mother my-father our-neighbour the-teacher",
    "TIME": "today yesterday on-Monday on-Friday in-the-morning in-the-evening after-work before-lunch",
    "DRINK": "tea coffee milk water juice cocoa lemonade cider",
    "FOOD": "bread cheese soup rice cake salad pasta fish porridge",
    "FRUIT": "apple pear plum orange banana peach melon",
    "COLOUR": "red blue green yellow black white brown grey",
    "GARMENT": "coat shirt hat scarf dress sweater jacket skirt",
    "ANIMAL": "cat dog horse rabbit hamster goat pony kitten",
    "PLACE": "kitchen garden hall barn yard bedroom cellar",
    "VEHICLE": "train bus plane ferry car bicycle tram",
    "TOWN": "Rome Paris Lisbon Vienna Dublin Oslo Athens Madrid",
    "INSTRUMENT": "piano violin guitar flute drum trumpet cello",
    "PIECE": "song waltz sonata march lullaby tune",
}
SENTENCES = {
    "food": (
        "PERSON drinks a cup of DRINK TIME .",
        "PERSON eats FOOD and drinks DRINK .",
        "TIME we had FOOD with FOOD for dinner .",
        "PERSON peels a ripe FRUIT in the kitchen .",
        "the FOOD tastes good with a glass of DRINK .",
    ),
    "clothes": (
        "PERSON wears a COLOUR GARMENT TIME .",
        "the COLOUR GARMENT is too small for PERSON .",
        "PERSON bought a new GARMENT and a COLOUR GARMENT .",
        "TIME PERSON washed the GARMENT .",
        "there is a hole in the COLOUR GARMENT .",
    ),
    "animals": (
        "the ANIMAL sleeps in the PLACE .",
        "PERSON feeds the ANIMAL TIME .",
        "the COLOUR ANIMAL runs after the ANIMAL .",
        "a ANIMAL and a ANIMAL live in the PLACE .",
        "PERSON looks for the ANIMAL in the PLACE .",
    ),
    "travel": (
        "PERSON takes the VEHICLE to TOWN .",
        "the VEHICLE from TOWN to TOWN was late TIME .",
        "TIME PERSON came back from TOWN .",
        "it is a long way from TOWN by VEHICLE .",
        "PERSON missed the VEHICLE to TOWN TIME .",
    ),
    "music": (
        "PERSON plays the INSTRUMENT TIME .",
        "PERSON learns a PIECE on the INSTRUMENT .",
        "we heard a PIECE for INSTRUMENT and INSTRUMENT .",
        "the INSTRUMENT is out of tune .",
        "TIME PERSON sang a PIECE .",
    ),
}
COUNT = 3000, 600  # sentences of the text, and sentences with a topic


def days(path: Path) -> None:
    """Write generated sentences of everyday life, separated by blank lines."""
    path.write_text("".join(f"{sentence}\n\n" for sentence, _ in _generate(COUNT[0], 0)), encoding="utf-8")


def topics(path: Path) -> None:
    """Write other sentences of the same kind with their topics."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, dialect="excel-tab")
        writer.writerow(["text", "topic"])
        writer.writerows(_generate(COUNT[1], 1))


def _generate(count: int, seed: int) -> list[tuple[str, str]]:
    """Generate distinct sentences with their topics."""
    rng = np.random.default_rng(seed)
    choices = [(form, topic) for topic, forms in SENTENCES.items() for form in forms]
    found: dict[str, str] = {}
    while len(found) < count:
        form, topic = choices[rng.integers(len(choices))]
        sentence = re.sub(
            "[A-Z]{2,}", lambda name: str(rng.choice(VOCABULARY[name[0]].split())).replace("-", " "), form
        )
        found.setdefault(sentence, topic)
    return list(found.items())
