"""Networks with a decoder of links: both decoders and the loss beside PyTorch Geometric's, and pairs in any order."""

from __future__ import annotations

import pytest
import torch

from cutaway import create_model
from cutaway.core.errors import ModelError, SettingError
from cutaway.core.spec import Classes, GraphSpec, Links
from cutaway.models import gae, gat, gcn, graphsage
from cutaway.models.registry import preset
from cutaway.tasks.link_prediction import LinkPrediction
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

FAMILIES = {"gae": gae, "gat": gat, "gcn": gcn, "graphsage": graphsage}
names = pytest.mark.parametrize("name", FAMILIES)
SMALL = {"in_features": 5, "hidden_dim": 4}


@names
@pytest.mark.parametrize("decoder", ["dot", "bilinear"])
def test_decoders_are_their_oracles_too(name: str, decoder: str) -> None:
    config = FAMILIES[name].Config(**SMALL, decoder=decoder)  # type: ignore[attr-defined]
    torch.manual_seed(0)
    model = FAMILIES[name].Model(config)  # type: ignore[attr-defined]
    found = compare(model, oracle_for(name, config), torch.Generator().manual_seed(0))
    assert found.equal, found


@names
@pytest.mark.parametrize("decoder", ["dot", "bilinear"])
def test_a_pair_has_no_first_node(name: str, decoder: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, **SMALL, decoder=decoder).double().eval()
    x, edges = torch.randn(8, 5, dtype=torch.float64), torch.randint(8, (2, 20))
    pairs = torch.randint(8, (11, 2))
    logits, z = model(x, edges, pairs), model(x, edges)
    assert logits.shape == (11, 1)
    torch.testing.assert_close(model(x, edges, pairs.flip(1)), logits)
    assert torch.equal(model.features(x, edges, pairs), z[pairs])  # type: ignore[operator]
    assert torch.equal(model(x, edges, pairs[:, 0]), z[pairs[:, 0]])
    every = model.head.between(z, z)  # type: ignore[operator, union-attr]
    torch.testing.assert_close(every[pairs[:, 0], pairs[:, 1]], logits[:, 0])


def test_the_data_decides_whether_links_are_decoded() -> None:
    links, classes = GraphSpec(9, Links()), GraphSpec(9, Classes(("a", "b")))
    assert preset("gcn").configure(links).decoder == "dot"
    assert preset("gat").configure(links, {"decoder": "bilinear"}).decoder == "bilinear"
    assert preset("graphsage").configure(classes).decoder == "none"
    with pytest.raises(SettingError, match=r"Invalid model\.decoder=dot: the data sets decoder"):
        preset("gcn").configure(classes, {"decoder": "dot"})
    with pytest.raises(ModelError, match="gin does not learn what this graph data asks for, link: these models learn"):
        preset("gin").configure(links)
    with pytest.raises(ModelError, match="gae does not learn what this graph data asks for, class"):
        preset("gae").configure(classes)
    with pytest.raises(ModelError, match="Invalid decoder='dot': must be none with graph_level=true"):
        gcn.Config(graph_level=True, decoder="dot")


def test_the_loss_is_that_of_pytorch_geometric() -> None:
    """Its loss is the mean over links plus that over absent ones; ours the mean over both, of as many."""
    from torch_geometric.nn.models.autoencoder import GAE

    task, generator = LinkPrediction(Links()), torch.Generator().manual_seed(0)
    model = create_model("gae", in_features=6).double()
    x = torch.randn(9, 6, generator=generator, dtype=torch.float64)
    edges = torch.randint(9, (2, 20), generator=generator)
    links, absent = torch.randint(9, (2, 7, 2), generator=generator)
    target = torch.cat([torch.ones(7), torch.zeros(7)]).long()
    ours = task.loss(model(x, edges, torch.cat([links, absent])), target) / task.loss_denominator(target)
    theirs = GAE(torch.nn.Identity()).recon_loss(model(x, edges), links.t(), absent.t()) / 2
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-12)  # it adds 1e-15 before each logarithm
    wanted = torch.autograd.grad(theirs, list(model.parameters()))
    for mine, their in zip(torch.autograd.grad(ours, list(model.parameters())), wanted):
        torch.testing.assert_close(mine, their, rtol=1e-9, atol=1e-12)
