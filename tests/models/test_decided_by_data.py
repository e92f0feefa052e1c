"""What the data decides of a model cannot be typed against it: each such setting of each family is rejected by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cutaway.apps.cli import main
from cutaway.core.errors import ModelError, SettingError
from cutaway.core.spec import (
    AudioSpec,
    Boxes,
    Classes,
    Context,
    GraphSpec,
    Horizon,
    Image,
    ImageSpec,
    ImageTokens,
    Links,
    Mask,
    Masked,
    NextToken,
    Noise,
    PairSpec,
    SeriesSpec,
    Spec,
    Spelled,
    TableSpec,
    Tags,
    TextSpec,
    Tokens,
    Transcript,
    Value,
    VideoSpec,
)
from cutaway.models.registry import OUTPUT_FIELDS, Preset, preset, presets

NAMES = ("a", "b")
TARGETS = (
    Classes(NAMES),
    Value("y"),
    Tags(NAMES),
    NextToken(29),
    Masked(29, mask=2),
    Context(29, window=3),
    Horizon(4, ("y",), (0.0,), (1.0,)),
)
SPECS: list[Spec] = [
    ImageSpec(1, 32, 32, Boxes(NAMES)),
    ImageSpec(1, 32, 32, Mask(NAMES)),
    AudioSpec(21, 5, Transcript(NAMES)),
    AudioSpec(21, 5, Spelled(NAMES)),
    GraphSpec(3, Links()),
    *(
        spec
        for target in TARGETS
        for spec in (
            TableSpec(("p", "q", "r"), target),  # type: ignore[arg-type]
            ImageSpec(1, 32, 32, target),  # type: ignore[arg-type]
            TextSpec(29, 17, target),  # type: ignore[arg-type]
            SeriesSpec(21, 3, target),  # type: ignore[arg-type]
            AudioSpec(21, 5, target),  # type: ignore[arg-type]
            VideoSpec(6, 1, 24, 24, target),  # type: ignore[arg-type]
            GraphSpec(3, target),  # type: ignore[arg-type]
        )
    ),
    ImageSpec(3, 32, 32, Image(NAMES, 3072)),
    ImageSpec(1, 32, 32, Noise(NAMES, 1024)),
    ImageSpec(1, 32, 32, ImageTokens(NAMES, 1024, cells=(1,) * 9)),
    PairSpec(29, 17, Tokens(29, 0, 1, 13), joint_vocab=True),
    ImageSpec(1, 32, 32, Tokens(29, 0, 1, 13)),
]
DECIDED = (
    "num_classes",
    "target_vocab_size",
    "in_features",
    "in_channels",
    "colors",
    "steps",
    "horizon",
    "known_future",
    "graph_level",
    "head",
    "window",
    "joint_vocab",
)


def fitted(found: Preset) -> list[tuple[Spec, Any]]:
    """The configs of a preset, fitted to each kind of data that it takes and can learn from."""
    made = []
    for spec in SPECS:
        if spec.kind in found.takes and isinstance(spec.target, found.targets):
            try:
                made.append((spec, found.configure(spec)))
            except ValueError:  # a preset for another target
                continue
    return made


@pytest.mark.parametrize("name", sorted({p.module.__name__: name for name, p in presets().items()}.values()))
def test_what_is_typed_against_the_data_is_rejected_and_what_agrees_is_taken(name: str) -> None:
    found = preset(name)
    configs = fitted(found)
    assert configs, "this family takes none of the kinds above"
    tried = 0
    for spec, config in configs:
        for key in DECIDED:
            own = getattr(config, key, None)
            by_data = key in OUTPUT_FIELDS or own != getattr(found.config, key, None)
            if own is None or not by_data:
                continue
            other = not own if isinstance(own, bool) else own + 1 if isinstance(own, int) else "classes"
            if other == own or (key in OUTPUT_FIELDS and other == spec.target.outputs):
                continue
            # these words, or those of its Config
            own_words = rf"^(Invalid model\.{key}=.*: the data sets {key}|Invalid {key}=.*: must be)"
            with pytest.raises((SettingError, ModelError), match=own_words):
                found.configure(spec, {key: other})
            if key not in OUTPUT_FIELDS:
                assert getattr(found.configure(spec, {key: own}), key) == own
            tried += 1
    assert tried or found.card.card.family == "transformer", "nothing of this family is decided by data"


def test_room_for_more_than_the_data_has_may_be_asked_for() -> None:
    spec = TextSpec(29, 17, NextToken(29))
    config = preset("gpt2").configure(spec, {"vocab_size": 50, "context_length": 64})
    assert (config.vocab_size, config.context_length) == (50, 64)
    with pytest.raises(SettingError, match="the data sets vocab_size to 29"):
        preset("gpt2").configure(spec, {"vocab_size": 20})
    with pytest.raises(SettingError, match="the data sets vocab_size to 0"):
        preset("lstm").configure(SeriesSpec(21, 3, Classes(NAMES)), {"vocab_size": 20})
    with pytest.raises(SettingError, match=r"Invalid model.image_size=64: the data sets image_size to 32"):
        preset("lenet5-modern").configure(ImageSpec(1, 32, 32, Classes(NAMES)), {"image_size": 64})


def test_what_is_left_to_the_model_stays_with_the_data() -> None:
    spec = TextSpec(29, 17, Tags(NAMES))
    assert preset("lstm").configure(spec, {"pooling": "auto"}) == preset("lstm").configure(spec)


@pytest.mark.parametrize("command", ["check", "train"])
@pytest.mark.parametrize("word", ["model.num_classes=200", "model.num_classes=1", "model.in_features=7"])
def test_both_commands_reject_it(command: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "mlp", "xor", word]) == 2
    key = word.removeprefix("model.").partition("=")[0]
    assert f"Invalid {word}: the data sets {key} to 2" in " ".join(capsys.readouterr().err.split())


def test_the_specs_above_are_of_every_kind() -> None:
    assert len({type(spec) for spec in SPECS}) == 8
    assert dataclasses.is_dataclass(SPECS[0])
