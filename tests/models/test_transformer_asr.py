"""Whisper: counts, padding that says nothing, one token at a time, fitting, rejections. Its oracle is in interop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.core.spec import AudioSpec, Classes, Spelled, Transcript
from cutaway.inference.sequence_decoding import decode_scored
from cutaway.models.registry import preset
from cutaway.models.transformer_asr import CARD, Config, Model, sinusoids

SMALL = Config(3, dim=8, layers=2, decoder_layers=1, heads=2, target_vocab_size=5, context_length=7)


def small() -> Model:
    torch.manual_seed(0)
    return Model(SMALL).double().eval()


def recordings(lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Frames (N, T, F) of these lengths, whose padding is noise, and their mask."""
    x = torch.randn(len(lengths), max(lengths), 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def test_the_parameters_are_those_of_the_paper_s_two_stacks() -> None:
    d, v = 384, 51_865
    attention, mlp, norm = 4 * d * d + 3 * d, 8 * d * d + 5 * d, 2 * d  # keys have no bias
    encoder = 3 * 80 * d + d + 3 * d * d + d + 4 * (attention + mlp + 2 * norm) + norm
    decoder = v * d + 448 * d + 4 * (2 * attention + mlp + 3 * norm) + norm
    assert CARD.published["whisper-tiny"].parameters == encoder + decoder
    assert encoder + decoder + 1500 * d == 37_760_640  # with the table of sinusoids, as transformers counts


def test_sinusoids_are_sines_and_then_cosines() -> None:
    found = sinusoids(3, 4)  # rates 1 and 1/10 000
    wanted = torch.tensor([[0.0, 0, 1, 1], [1, 1e-4, 1, 1], [2, 2e-4, 2, 2]], dtype=torch.float64)
    wanted[1:, :2] = wanted[1:, :2].sin()
    wanted[1:, 2:] = (wanted[1:, 2:] * torch.tensor([1, 1e-4])).cos()
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=1e-7)


@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3), more=st.integers(0, 3), steps=st.integers(1, 7))
def test_a_token_hangs_on_its_recording_and_on_the_tokens_before_it_alone(
    lengths: list[int], more: int, steps: int
) -> None:
    model, (x, mask) = small(), recordings([*lengths, max(lengths) + more])
    tokens = torch.randint(0, 5, (len(x), steps), generator=torch.Generator().manual_seed(2))
    together = model(x, mask, tokens)
    assert together.shape == (len(x), steps, 5)
    with torch.no_grad():
        state = model.begin(x, mask)
        for t in range(steps):
            logits, state = model.step(tokens[:, t], state)
            torch.testing.assert_close(logits, together[:, t], rtol=1e-10, atol=1e-12)
    for i, length in enumerate(lengths):
        alone = model(x[i : i + 1, :length], None, tokens[i : i + 1])
        torch.testing.assert_close(alone[0], together[i], rtol=1e-10, atol=1e-12)
    assert model.output_frames(mask.sum(1)).tolist() == [(n + 1) // 2 for n in mask.sum(1).tolist()]


def test_no_gradient_reaches_padding() -> None:
    x, mask = recordings([9, 4])
    x.requires_grad_()
    small()(x, mask, torch.tensor([[0, 1], [0, 2]])).square().sum().backward()
    assert x.grad is not None
    assert not x.grad[~mask].any()
    assert x.grad[mask].abs().sum(1).all()


@torch.no_grad()
def test_what_begins_may_end_and_a_beam_as_wide_as_all_there_is_finds_the_best() -> None:
    model, (x, mask) = small(), recordings([9, 4])
    target = Spelled(tuple("abcd"), longest=3).tokens
    said, scores = decode_scored(model, x, mask, target, 3, num_beams=125, length_penalty=0.0)
    every = torch.cartesian_prod(*[torch.arange(5)] * 3)  # (125, 3): all there is to say, and more after an end
    so_far = torch.cat([torch.zeros_like(every[:, :1]), every[:, :-1]], 1)
    after_end = (so_far[:, 1:] == 0).cumsum(1).clamp(max=1)
    for i in range(len(x)):
        log_p = model(x[i : i + 1].expand(125, -1, -1), mask[i : i + 1].expand(125, -1), so_far).log_softmax(2)
        own = log_p.gather(2, every[:, :, None])[:, :, 0]  # (125, 3)
        own[:, 1:] *= 1 - after_end
        assert scores[i].item() == pytest.approx(own.sum(1).max().item(), rel=1e-9)
    assert 0 not in said


def test_it_fits_itself_to_data() -> None:
    fitted = preset("transformer-asr").configure(AudioSpec(90, 40, Spelled(("a", "b"), longest=9)))
    assert (fitted.in_features, fitted.target_vocab_size, fitted.context_length) == (40, 3, 14)
    with pytest.raises(ModelError, match="these models learn it: ctc-conv-gru, transformer-asr"):
        preset("gru").configure(AudioSpec(90, 40, Transcript(("a", "b"))))
    with pytest.raises(ModelError, match="transformer-asr does not learn what this audio data asks for, class"):
        preset("transformer-asr").configure(AudioSpec(90, 40, Classes(("a", "b"))))


def test_inputs_that_cannot_be_are_rejected() -> None:
    (x, mask), so_far = recordings([5, 4]), torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(ModelError, match=r"frames of shape \(N, T, 3\), and these are \(2, 5, 2\)"):
        small()(x[..., :2], mask, so_far)
    with pytest.raises(ModelError, match="padding before a real step"):
        small()(x, mask.flip(1), so_far)
    with pytest.raises(ModelError, match="learned positions for 7 tokens, and this transcript has 8"):
        small()(x, mask, torch.zeros(2, 8, dtype=torch.int64))
    with pytest.raises(ModelError, match=r"^Invalid dim=2"):
        Config(dim=2, heads=1)
    with pytest.raises(ModelError, match=r"^Invalid heads=3"):
        Config(dim=8, heads=3)
