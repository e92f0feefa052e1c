"""cutaway examples: small files of every kind of data."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "write small example files of every kind of data"

# A command to try with each. The README shows the results.
TRY = {
    "wine.csv": "train mlp wine.csv target=cultivar",
    "visits.csv": "train gru visits.csv forecast=visits known_future=sale,sunday lookback=24",
    "shops.csv": "train transformer-forecast shops.csv forecast=visits id=shop known_future=sale horizon=7",
    "scans/": "train resnet18 scans/ image_size=16 epochs=4",
    "docs.tsv": "train textcnn docs.tsv text=text target=library",
    "help.txt": "train lstm help.txt tokenizer=bpe vocab_size=2000 epochs=3",
    "days.txt": "train gru days.txt tokenizer=words epochs=3",
    "topics.tsv": "train textcnn topics.tsv text=text target=topic",
    "dates.tsv": "train seq2seq-gru dates.tsv pairs=true",
    "masks/": "train unet-small masks/",
    "captions/": "train show-attend-tell captions/ model.dropout=0",
    "sounds/": "train gru sounds/",
    "spelled/": "train ctc-conv-gru spelled/",
    "scenes/": "train fcos-resnet18-small scenes/",
    "videos/": "train cnn-lstm videos/ image_size=24",
    "graph/": "train gcn graph/ target=club test=0.4",
    "novel/": "train gae novel/",
    "molecules.csv": "train gine molecules.csv smiles=smiles target=weight",
    "photographs/": "check resnet18 photographs/",
    "damaged/": "check resnet18 damaged/",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="names of examples, e.g. wine.csv sounds (default: all)"
    )
    parser.add_argument("--out", metavar="DIR", default=".", help="output folder (default: current folder)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Write example files and print a command for each. Existing files are kept."""
    from ...core.errors import UnknownName
    from ...data.synthetic import EXAMPLES, write_example
    from .output import emit_json, note, print_table

    known = {Path(name).stem: name for name in EXAMPLES}
    asked = [Path(name).stem for name in args.names] or list(known)
    for name in asked:
        if name not in known:
            raise UnknownName("example", name, known, "`cutaway examples` writes them all.")
    names = list(dict.fromkeys(known[name] for name in asked))
    folder = Path(args.out)
    written = {name: write_example(name, folder) for name in names}
    if args.json:
        about = [{"name": name, "what": EXAMPLES[name].what, "try": f"cutaway {TRY[name]}"} for name in names]
        emit_json([{**row, "written": written[row["name"]]} for row in about])
        return 0
    rows = [(name, EXAMPLES[name].what, f"cutaway {TRY[name]}") for name in names]
    print_table(("name", "what", "to try"), rows, yields="to try")
    left = [name for name in names if not written[name]]
    if left:
        note(f"Skipped, because it already exists: {', '.join(left)}.")
    return 0
