"""Scenes of two shapes: captions, held-out scenes, drawing, and the check of drawn images."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from PIL import Image

from cutaway.data.synthetic.shape_scenes import (
    BACKGROUND,
    COLORS,
    RELATIONS,
    SHAPES,
    Scene,
    agreement,
    all_scenes,
    draw_scene,
    held_out_scenes,
    parse_caption,
    read_scene,
)

ABOVE = Scene(0, ("red", "circle"), ("blue", "square"))


def test_each_scene_has_two_captions() -> None:
    scenes = all_scenes()
    captions = [caption for scene in scenes for caption in scene.captions]
    assert (len(scenes), len(set(captions))) == (264, 528)
    assert ABOVE.captions == ("a red circle above a blue square", "a blue square below a red circle")
    beside = Scene(1, ("red", "circle"), ("blue", "square"))
    assert beside.captions == ("a red circle left of a blue square", "a blue square right of a red circle")
    assert all(parse_caption(caption) == scene for scene in scenes for caption in scene.captions)
    with pytest.raises(ValueError, match="no caption of two shapes, such as 'a red circle above a red square'"):
        parse_caption("a cat")


def test_held_out_scenes_have_known_parts() -> None:
    test = held_out_scenes()
    assert len(set(test)) == 48
    train = [scene for scene in all_scenes() if scene not in test]
    objects = list(product(COLORS, SHAPES))
    for axis in (0, 1):
        assert {scene.first for scene in train if scene.axis == axis} == set(objects)
        assert {scene.second for scene in train if scene.axis == axis} == set(objects)
    assert {scene.axis for scene in test} == {axis for axis, _ in RELATIONS.values()}


def test_a_drawn_scene_is_read_again() -> None:
    rng = np.random.default_rng(0)
    images = [(scene, draw_scene(scene, rng)) for scene in all_scenes()]
    assert all(read_scene(image) == scene for scene, image in images)
    assert len({image.tobytes() for _, image in images}) > 240
    assert all(agreement(Image.fromarray(image), scene.captions[k])["scene"] for k in (0, 1) for scene, image in images)


def test_parts_of_a_caption_are_compared() -> None:
    rng = np.random.default_rng(0)
    image = draw_scene(ABOVE, rng)

    def parts(caption: str) -> tuple[bool, ...]:
        return tuple(agreement(image, caption).values())  # colors, shapes, objects, scene

    assert parts("a red circle above a blue square") == (True, True, True, True)
    assert parts("a blue square above a red circle") == (True, True, True, False)
    assert parts("a red circle left of a blue square") == (True, True, True, False)
    assert parts("a red square above a blue circle") == (True, True, False, False)
    assert parts("a red circle above a green square") == (False, True, False, False)
    assert parts("a red circle above a blue triangle") == (True, False, False, False)


def test_other_images_are_no_scene() -> None:
    image = draw_scene(ABOVE, np.random.default_rng(0))
    row, column = np.argwhere((image == COLORS["blue"]).all(2))[0]
    for where, value in (((row, column), BACKGROUND), ((row, column), COLORS["green"]), ((0, 9), COLORS["red"])):
        changed = image.copy()
        changed[where] = value
        assert (changed != image).any()
        assert read_scene(changed) is None
    for other in (np.full((10, 10, 3), 255, np.uint8), np.zeros((12, 10, 3), np.uint8)):
        assert read_scene(other) is None
    diagonal = np.full((10, 10, 3), 255, np.uint8)
    diagonal[:4, :4], diagonal[6:, 6:] = COLORS["red"], COLORS["blue"]
    assert read_scene(diagonal) is None  # above and left of
