"""Example text in a small language: sentences of everyday life and their topics."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

# Words of each class; a name in capitals is replaced by any of its words.
WORDS = {
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
        sentence = re.sub("[A-Z]{2,}", lambda name: str(rng.choice(WORDS[name[0]].split())).replace("-", " "), form)
        found.setdefault(sentence, topic)
    return list(found.items())
