"""Built-in graph data sets: Cora, Zachary's karate club, MUTAG and ESOL."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import polars as pl

from ..build import DataSource
from ..dataset_base import DataSet
from ..graphs.dataset import graph_dataset
from ..graphs.graph_files import EDGE_LABEL, GRAPH_CLASS, LABEL, read_planetoid, read_tu
from ..graphs.molecules import read_molecules
from ..graphs.raw import RawGraphs
from ..splits import split_indices
from ..tables.delimited import Form
from ..tables.table_files import Table
from .catalog import NamedSet, Request, remote_files
from .published import published_source

ESOL = "delaney-processed.csv"

NAMED = {
    "cora": NamedSet(
        title="Cora: papers on machine learning that cite each other",
        kind="graph",
        task="classification",
        sizes="one graph of 2 708 nodes and 5 278 links, 1 433 words, 7 classes; 140, 500 and 1 000 nodes in the "
        "splits",
        licence="MIT where it is fetched from",
        citation="Z. Yang, W. Cohen, R. Salakhutdinov, Revisiting semi-supervised learning with graph embeddings, "
        "ICML 2016; P. Sen et al., Collective classification in network data, AI Magazine 29(3), 2008",
        folder="planetoid",
        files=remote_files(
            "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/",
            ("ind.cora.x", 22_119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
            ("ind.cora.tx", 148_025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
            ("ind.cora.allx", 257_305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
            ("ind.cora.y", 4_054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
            ("ind.cora.ty", 28_135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
            ("ind.cora.ally", 47_959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
            ("ind.cora.graph", 59_847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
            ("ind.cora.test.index", 5_000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
        ),
    ),
    "esol": NamedSet(
        title="ESOL: how well molecules dissolve in water",
        kind="graph",
        task="regression",
        sizes="1 128 molecules of 1 to 55 atoms, with SMILES",
        licence="MIT where it is fetched from (DeepChem)",
        citation="J. S. Delaney, ESOL: estimating aqueous solubility directly from molecular structure, Journal of "
        "Chemical Information and Computer Sciences 44(3), 2004; Z. Wu et al., MoleculeNet, Chemical Science 9, 2018",
        target="measured log solubility in mols per litre",
        folder="esol",
        files=remote_files(
            "https://raw.githubusercontent.com/deepchem/deepchem/fbe3b911a94a6eb8c84c1a9e7ac67a472c49ea80/datasets/",
            (ESOL, 96_699, "8c06a76f0c6487d29ab0f903e6a7a7139f189ab3c1178f159c8be8964602f189"),
        ),
    ),
    "karate": NamedSet(
        title="Zachary's karate club: who follows whom when it splits",
        kind="graph",
        task="classification",
        sizes="one graph of 34 nodes and 78 links, 2 classes; 2 nodes for training",
        licence="none stated; comes with networkx",
        citation="W. W. Zachary, An information flow model for conflict and fission in small groups, "
        "Journal of Anthropological Research 33, 1977",
        target="club",
    ),
    "mutag": NamedSet(
        title="MUTAG: molecules that change the genes of a bacterium",
        kind="graph",
        task="classification",
        sizes="188 graphs of 10 to 28 nodes, 7 kinds of atoms, 2 classes",
        licence="BSD-3 where it is fetched from",
        citation="A. K. Debnath et al., Journal of Medicinal Chemistry 34(2), 1991; N. Kriege, P. Mutzel, Subgraph "
        "matching kernels for attributed graphs, ICML 2012",
        folder="tu_mutag",
        files=remote_files(
            "https://raw.githubusercontent.com/ysig/GraKeL/24d496d8dac448bd520ac8d83b571fbaafc0db71/"
            "grakel/tests/data/MUTAG/",
            ("MUTAG_A.txt", 76_940, "d9656ca7493f3445d737c711710bb36fd432dddd1c0ea32e1d4713c86ebd28e2"),
            ("MUTAG_edge_labels.txt", 14_884, "4669ce755075ff86c3240709345745886400908fa637a49310459b9c267b3e56"),
            ("MUTAG_graph_indicator.txt", 11_532, "7d520a4d6c7961c0cdeabe076d8fe27e795b6d373485c9a2b744987e560a2056"),
            ("MUTAG_graph_labels.txt", 439, "a1518ea39ba3426bd42f57396b9c4baffe68e9adc718caeeab0119c6591a5f2c"),
            ("MUTAG_node_labels.txt", 6_742, "678f429965490e84dd27713017538c995fc05d1621beac910848b600015ee863"),
        ),
        enough=("MUTAG_A.txt", "MUTAG_graph_indicator.txt", "MUTAG_graph_labels.txt", "MUTAG_node_labels.txt"),
    ),
}

# The numbers in the files, as described in their README.
ATOMS = {
    "label 0": "C",
    "label 1": "N",
    "label 2": "O",
    "label 3": "F",
    "label 4": "I",
    "label 5": "Cl",
    "label 6": "Br",
}
BONDS = {"label 0": "aromatic", "label 1": "single", "label 2": "double", "label 3": "triple"}
MUTAGENIC = {"-1": "not mutagenic", "1": "mutagenic"}
LEADERS = (0, 33)  # the instructor and the administrator, who led the two factions
KARATE_KNOWN = "Training knows the instructor and the administrator alone, one of each side. "
KARATE_VALIDATION = 8 / 32  # of the other members


def open_cora(request: Request) -> DataSet:
    """Load Cora with the public split: 20 nodes of each class for training, 500 for validation, 1 000 for the test."""
    return _dataset(request, read_planetoid(request.place))


def open_mutag(request: Request) -> DataSet:
    """Load MUTAG with the names of atoms and classes."""
    graphs = read_tu(request.place)
    assert graphs.table is not None
    assert graphs.targets is not None
    atom = f"{LABEL} 1"
    atoms = graphs.table.frame[atom].replace(ATOMS).alias("atom")
    classes = graphs.targets.frame[GRAPH_CLASS].replace(MUTAGENIC).alias(GRAPH_CLASS)
    bonds = None
    if graphs.edge_table is not None:  # an optional file
        bonds = Table("", pl.DataFrame([graphs.edge_table.frame[f"{EDGE_LABEL} 1"].replace(BONDS).alias("bond")]))
    graphs = dataclasses.replace(
        graphs,
        table=Table("", pl.DataFrame([atoms])),
        edge_table=bonds,
        columns=("atom",),
        targets=Table("", pl.DataFrame([classes])),
    )
    return _dataset(request, graphs)


def open_esol(request: Request) -> DataSet:
    """Load ESOL: log solubility in mol/l of molecules, split at random."""
    settings = request.settings
    target, smiles = settings.target or request.named.target, settings.smiles or "smiles"
    graphs = read_molecules(request.place / ESOL, smiles, Form.from_settings(settings), settings.missing == "drop")
    settings = dataclasses.replace(settings, target=target, smiles=smiles)
    return graph_dataset(graphs, published_source(request), settings)


def open_karate(request: Request) -> DataSet:
    """Load the karate club. Only the two leaders are labelled; all other members are classified from the links."""
    import networkx  # imported here because it is slow to import

    club = networkx.karate_club_graph()
    links = np.array(club.edges, np.int64).T  # (2, 78)
    sides = [str(club.nodes[i]["club"]) for i in range(len(club))]
    others = np.setdiff1d(np.arange(len(club)), LEADERS)
    strata = np.array([sides[i] == sides[0] for i in others])
    seed = request.settings.split_seed
    drawn = split_indices(len(others), val=KARATE_VALIDATION, test=0.0, seed=seed, strata=strata)
    digest = hashlib.sha256(links.astype("<i8").tobytes() + "".join(sides).encode()).hexdigest()
    graphs = RawGraphs(
        title="the karate club",
        edges=np.concatenate([links, links[::-1]], axis=1),
        names=[f"member {i + 1}" for i in range(len(club))],
        targets=Table("", pl.DataFrame({"club": sides})),
        target="club",
        target_kind="category",
        splits={"train": np.array(LEADERS), "val": others[drawn["val"]], "test": others[drawn["train"]]},
    )
    known = "" if request.settings.links else KARATE_KNOWN
    note = f"{known}How often members met, which networkx has as weights of links, is not used."
    return graph_dataset(graphs, DataSource(request.name, request.name, digest, [note]), request.settings)


def _dataset(request: Request, graphs: RawGraphs) -> DataSet:
    """Build a data set from published graph files."""
    files = [file for file in request.named.sums if (request.place / file).is_file()]
    return graph_dataset(graphs, published_source(request, files=files), request.settings)


OPENERS = {"cora": open_cora, "esol": open_esol, "karate": open_karate, "mutag": open_mutag}
