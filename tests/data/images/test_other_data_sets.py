"""A named set's images go through another run's preprocessing with the masks, boxes or captions that they have."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from cutaway.core.errors import DataError
from cutaway.core.spec import Boxes, Mask
from cutaway.data.dataset_base import Batch, DataSet, Split
from cutaway.data.images.captioning import CaptionPreprocessing, CaptionSplit
from cutaway.data.images.detection import BoxPreprocessing
from cutaway.data.images.segmentation import MaskPreprocessing
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings

FEW = torch.arange(20)


@pytest.fixture(scope="module")
def sets() -> dict[str, DataSet]:
    """The small named sets, at their own size."""
    return {what: open_data(f"digit_{what}_small", DataSettings()) for what in ("scenes", "boxes", "captions")}


def first(split: Split) -> Batch:
    return next(iter(split.batches([FEW])))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["scenes", "boxes", "captions"])
def test_a_set_adopted_by_its_own_preprocessing_is_itself(sets: dict[str, DataSet], what: str) -> None:
    data = sets[what]
    split = data.splits["test"]
    prepared = data.preprocessing.adopted(split, data.preprocessing)  # type: ignore[attr-defined]
    assert len(prepared) == len(split)
    (images, *sofar), target = first(prepared)
    (before, *sofar_before), actual = first(split)
    torch.testing.assert_close(images, before, rtol=0, atol=1e-6)
    torch.testing.assert_close((sofar, target), (sofar_before, actual), rtol=0, atol=1e-3)
    assert prepared.target is not None
    torch.testing.assert_close(prepared.target, split.target, rtol=0, atol=1e-3)
    if what == "captions":
        assert isinstance(split, CaptionSplit)
        assert [prepared.references(i) for i in range(20)] == [split.references(i) for i in range(20)]


def test_classes_go_by_their_names(sets: dict[str, DataSet]) -> None:
    for what in ("scenes", "boxes"):
        theirs = sets[what].preprocessing
        assert isinstance(theirs, MaskPreprocessing | BoxPreprocessing)
        target = theirs.spec.target
        assert isinstance(target, Mask | Boxes)
        names = (target.names[0], *reversed(target.names[1:]))
        ours = dataclasses.replace(
            theirs, spec=dataclasses.replace(theirs.spec, target=dataclasses.replace(target, names=names))
        )
        split = sets[what].splits["test"]
        before, after = first(split).target, first(ours.adopted(split, theirs)).target
        if what == "boxes":
            before, after = before[:, :, 4], after[:, :, 4]
        real = (before > 0) & (before < len(names))
        assert torch.equal(after[real].long(), len(names) - before[real].long())
        assert torch.equal(after[~real].long(), before[~real].long())
        fewer = dataclasses.replace(
            theirs, spec=dataclasses.replace(theirs.spec, target=dataclasses.replace(target, names=names[:3]))
        )
        with pytest.raises(DataError, match="classes that this run did not learn: "):
            fewer.adopted(split, theirs)


def test_masks_come_at_the_runs_own_size(sets: dict[str, DataSet]) -> None:
    larger = open_data("digit_scenes_small", DataSettings(image_size=48))
    own = larger.preprocessing
    assert isinstance(own, MaskPreprocessing)
    prepared = own.adopted(sets["scenes"].splits["test"], sets["scenes"].preprocessing)
    (images,), masks = first(prepared)
    (before,), actual = first(larger.splits["test"])
    torch.testing.assert_close(images, before, rtol=0, atol=1e-6)
    assert torch.equal(masks, actual)


def test_captions_keep_their_words_under_another_tokenizer(sets: dict[str, DataSet]) -> None:
    characters = open_data("digit_captions_small", DataSettings(tokenizer="characters"))
    own, split = characters.preprocessing, sets["captions"].splits["test"]
    assert isinstance(own, CaptionPreprocessing)
    prepared = own.adopted(split, sets["captions"].preprocessing)
    assert prepared.texts is not None
    assert own.words(prepared.references(0)[0]) == prepared.texts(0)[0] == split.row(0)["caption"]  # type: ignore[index]
