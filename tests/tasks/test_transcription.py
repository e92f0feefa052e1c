"""Speech recognition: the loss as PyTorch has it, errors of words and characters as jiwer and a table count them."""

from __future__ import annotations

import jiwer
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.spec import AudioSpec, Spelled, Transcript, from_json, to_json
from cutaway.data.dataset_base import IGNORED
from cutaway.inference.sequence_decoding import transcribe
from cutaway.nn.losses import SILENT
from cutaway.tasks.sequences import edit_distances
from cutaway.tasks.task import task_for
from cutaway.tasks.transcription import ABSENT, SpeechRecognition, Spelling, align_words, character_errors, word_errors

ALPHABET = (" ", "a", "b", "c")
TASK = SpeechRecognition(Transcript(ALPHABET))
TEXT = st.text(alphabet="abc ", max_size=8).map(lambda text: " ".join(text.split()))


def targets(*texts: str) -> Tensor:
    longest = max(map(len, texts))
    return torch.tensor([[*(ALPHABET.index(c) + 1 for c in t), *[IGNORED] * (longest - len(t))] for t in texts])


def saying(*texts: str, frames: int = 20) -> Tensor:
    """Logits (N, T, K) that say these texts, a blank after each character."""
    found = torch.zeros(len(texts), frames, 5)
    found[:, :, 0] = 6
    for i, text in enumerate(texts):
        for t, character in enumerate(text):
            found[i, 2 * t, ALPHABET.index(character) + 1] = 12
    return found


def kept_of(outputs: Tensor, target: Tensor, beams: int = 1) -> Tensor:
    return TASK.summarize_outputs(outputs, target, transcribe(outputs.log_softmax(2), beams))


def test_the_loss_is_pytorchs_over_the_characters() -> None:
    outputs = torch.randn(3, 9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = targets("ab a", "cc", "b")
    by_hand = [
        F.ctc_loss(z.log_softmax(1), t[t != IGNORED], torch.tensor(9), torch.tensor(n), reduction="sum")
        for z, t, n in zip(outputs, target, (4, 2, 1))
    ]
    torch.testing.assert_close(TASK.losses(outputs, target), torch.stack(by_hand))
    assert TASK.loss(outputs, target).item() == pytest.approx(sum(loss.item() for loss in by_hand))
    assert TASK.loss_denominator(target) == 7
    loss = TASK.fast_metrics(kept_of(outputs, target), target)["loss"]
    assert loss == pytest.approx(TASK.loss(outputs, target).item() / 7)


def test_padding_of_frames_and_of_transcripts_changes_nothing() -> None:
    outputs, target = saying("ab a", "cc"), targets("ab c", "cc")
    silence = torch.tensor([0.0] + [SILENT] * 4).expand(2, 3, 5)
    wider = torch.cat([outputs, silence], 1), F.pad(target, (0, 2), value=IGNORED)
    kept, wide = kept_of(outputs, target), kept_of(*wider)
    torch.testing.assert_close(kept, wide)
    longer = F.pad(kept, (0, 3), value=torch.nan)  # as evaluation joins batches
    assert TASK.metrics(longer, target) == TASK.metrics(kept, target)
    assert TASK.predictions(longer) == TASK.predictions(kept)
    assert TASK.example_results(longer, target) == TASK.example_results(kept, target)


@settings(max_examples=40, deadline=None)
@given(pairs=st.lists(st.tuples(TEXT.filter(bool), TEXT), min_size=1, max_size=5))
def test_errors_are_edit_distances(pairs: list[tuple[str, str]]) -> None:
    actual, said = [a for a, _ in pairs], [b for _, b in pairs]
    numbers = {word: k for k, word in enumerate({w for text in (*actual, *said) for w in text.split()})}
    ids = [[[numbers[w] for w in text.split()] for text in those] for those in (said, actual)]
    assert word_errors(actual, said)[:, 0].tolist() == edit_distances(*ids).tolist()
    assert word_errors(actual, said)[:, 1].tolist() == [len(text.split()) for text in actual]
    letters = [[[ord(c) for c in text] for text in those] for those in (said, actual)]
    assert character_errors(actual, said)[:, 0].tolist() == edit_distances(*letters).tolist()
    errors = word_errors(actual, said).sum(0)
    assert errors[0] / errors[1] == pytest.approx(jiwer.wer(actual, said))
    for a, b in pairs:
        both = align_words(a.split(), b.split())
        assert [w for w, _ in both if w != ABSENT] == a.split()
        assert [w for _, w in both if w != ABSENT] == b.split()


def test_metrics_have_intervals_that_hold_them() -> None:
    target = targets("a b", "ab", "c c", "b")
    kept = kept_of(saying("a c", "ab", "c c", "b a"), target)
    found = TASK.metrics(kept, target)
    assert found["word_error"].value == pytest.approx(2 / 6)  # a substitution and an insertion, of six words
    assert found["character_error"].value == pytest.approx(3 / 9)
    assert found["sequence_error"].value == 0.5
    for name, metric in found.items():
        assert metric.note.startswith("no interval: fewer than 10 ") or metric.low <= metric.value <= metric.high, name
    quick = TASK.fast_metrics(kept, target)
    assert {name: quick[name] for name in ("word_error", "character_error")} == {
        name: found[name].value for name in ("word_error", "character_error")
    }
    assert quick.keys() == set(TASK.monitors)


def test_the_probability_is_that_of_the_text_that_is_read() -> None:
    outputs = torch.tensor([[[0.4, 0.01, 0.35, 0.12, 0.12]] * 2], dtype=torch.float64).log()
    nothing = torch.empty(1, 0)
    assert TASK.predictions(kept_of(outputs, nothing)) == [{"transcript": "", "probability": pytest.approx(0.16)}]
    paths = 0.35 * 0.35 + 2 * 0.4 * 0.35
    assert TASK.predictions(kept_of(outputs, nothing, 4)) == [{"transcript": "a", "probability": pytest.approx(paths)}]


def test_mistakes_and_confusions_are_in_words() -> None:
    target = targets("a b", "c")
    kept = kept_of(saying("a c", "c b"), target)
    first, second = TASK.example_results(kept, target)
    assert (first["actual"], first["predicted"], first["wrong"]) == ("a b", "a c", True)
    assert 0 < first["confidence"] <= 1
    assert second["loss"] > 0
    assert TASK.details(kept, target)["words"] == {
        "mistakes": 2,
        "confusions": [
            {"actual": "b", "predicted": "c", "count": 1},
            {"actual": ABSENT, "predicted": "b", "count": 1},
        ],
    }


def test_the_baseline_is_the_commonest_transcript_or_nothing() -> None:
    train = targets("a b", "a b", "c")
    assert TASK.baseline(train, targets("a b", "a c")) == {
        "name": "most-frequent-transcript baseline ('a b')",
        "value": 0.25,
    }
    assert TASK.baseline(train, targets("c", "c")) == {"name": "empty-transcript baseline", "value": 1.0}


def test_the_task_is_that_of_transcripts() -> None:
    spec = AudioSpec(90, 40, Transcript(ALPHABET, lower=True))
    assert isinstance(task_for(spec), SpeechRecognition)
    assert from_json(to_json(spec)) == spec
    assert spec.target.outputs == 5


def test_spelling_is_learned_token_by_token() -> None:
    spec = AudioSpec(20, 4, Spelled(ALPHABET, longest=5))
    assert from_json(to_json(spec)) == spec
    task = task_for(spec, label_smoothing=0.1)
    assert isinstance(task, Spelling)
    target = torch.tensor([[2, 3, 1, 2, 0], [4, 4, 0, IGNORED, IGNORED]])  # "ab a" and "cc", and their ends
    outputs = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0))
    log_p = outputs.log_softmax(2)
    each = torch.stack(
        [-sum(log_p[i, t, k] for t, k in enumerate(row) if k != IGNORED) for i, row in enumerate(target)]
    )
    torch.testing.assert_close(task.losses(outputs, target), each)
    smoothed = F.cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(task.loss(outputs, target), smoothed)
    assert task.loss_denominator(target) == 8
    read = torch.tensor([[2, 3, 1, 2], [4, -1, -1, -1]])
    kept = task.summarize_outputs(outputs, target, read, torch.tensor([-1.0, -2.0], dtype=torch.float64))
    found = task.metrics(kept, target)
    assert found["word_error"].value == pytest.approx(1 / 3)
    assert found["character_error"].value == pytest.approx(1 / 6)
    assert found["loss"].value == pytest.approx(each.mean().item())
    new = task.predictions(task.summarize_outputs(outputs[:, :1], torch.empty(2, 0), read, torch.tensor([-1.0, -2.0])))
    assert [row["transcript"] for row in new] == ["ab a", "c"]
    assert new[0]["probability"] == pytest.approx(0.36788, rel=1e-4)
