"""A word for each token: in chunks it is the same loss, with the same gradients and figures, as with whole outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.core.config import build
from cutaway.core.errors import SettingError
from cutaway.core.spec import Masked, NextToken, PairSpec, TextSpec, Tokens
from cutaway.data.dataset_base import IGNORED, Batch, DataSet, SequenceSplit
from cutaway.data.pairs.transforms import PairsSplit
from cutaway.data.text.corpus_transforms import StreamSplit
from cutaway.models.registry import create_model
from cutaway.tasks.task import task_for
from cutaway.training import chunked_head as chunks
from cutaway.training.callbacks import Progress
from cutaway.training.chunked_head import ChunkedHead, build_chunked_head, last_layer_inputs
from cutaway.training.config import TrainSettings
from cutaway.training.device import select_device
from cutaway.training.evaluation import evaluate_split, sequential_batches
from cutaway.training.setup import reject_incompatible, setup_training
from cutaway.training.trainer import Trainer

SMALL = {"dim": 8, "layers": 1, "heads": 2, "dropout": 0.0}
V = 11  # different tokens
LENGTHS = torch.tensor([9, 2, 5, 7, 1, 4, 8, 3] * 4)


def texts() -> SequenceSplit:
    """32 texts of 1 to 9 tokens, each token with the next one as its target."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, V, (int(LENGTHS.sum()),), generator=generator)
    return SequenceSplit(ids, LENGTHS, ids.roll(-1), by_step=True)


def hidden_texts() -> SequenceSplit:
    """The same texts, where a sixth of the tokens is to be told; of some texts none."""
    split = texts()
    hidden = torch.rand(len(split.values), generator=torch.Generator().manual_seed(1)) < 1 / 6
    split.target = split.values.where(hidden, IGNORED)
    split.values = split.values.masked_fill(hidden, 1)
    return split


def pairs() -> PairsSplit:
    """The texts as sources, others as their targets."""
    generator = torch.Generator().manual_seed(2)
    lengths = LENGTHS.flip(0)
    ids = torch.randint(4, V, (int(lengths.sum()),), generator=generator)
    ids[lengths.cumsum(0) - 1] = 3
    return PairsSplit((texts().values, LENGTHS), (ids, lengths), begin=2, names=str)


CASES: dict[str, tuple[Callable[[], Any], Any, dict[str, Any]]] = {
    "gpt2": (texts, NextToken(V), {"vocab_size": V, "context_length": 9}),
    "bert-base-uncased": (hidden_texts, Masked(V, 1), {"vocab_size": V, "context_length": 9, "head": "masked"}),
    "seq2seq-gru": (
        pairs,
        Tokens(V, 2, 3, 9),
        {"vocab_size": V, "target_vocab_size": V, "hidden_dim": 8, "dropout": 0.0},
    ),
    "transformer-tiny": (pairs, Tokens(V, 2, 3, 9), {"vocab_size": V}),
    "t5-small": (pairs, Tokens(V, 2, 3, 9), {"vocab_size": V, "head_dim": 4}),
    "bart-base": (pairs, Tokens(V, 2, 3, 9), {"vocab_size": V, "attention_dropout": 0.0, "activation_dropout": 0.0}),
}


def build_case(name: str) -> tuple[nn.Module, DataSet]:
    """The model in double precision with nothing at its beginning, and the data."""
    split, target, settings = CASES[name]
    torch.manual_seed(0)
    small = {} if name == "seq2seq-gru" else SMALL
    model = create_model(name, **{**small, **settings}).double()
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point() and not tensor.any():
                tensor.normal_(std=0.5)  # biases and constants that are 0 would hide that they are left out
    spec = PairSpec(V, 9, target) if isinstance(target, Tokens) else TextSpec(V, 9, target)
    splits = {"train": split(), "val": split()}
    return model.eval(), DataSet("toy", "toy", spec, splits, preprocessing=None, fingerprint="", split_hash="")  # type: ignore[arg-type]


def train(name: str, folder: Path, smoothing: float = 0.0, **given: Any) -> Trainer:
    """A trainer of the case, in double precision."""
    model, data = build_case(name)
    settings = build(TrainSettings, {"precision": "float64", "optimizer": "sgd", "lr": 0.1, "epochs": 1, **given})
    task = task_for(data.spec, label_smoothing=smoothing)
    place = select_device("cpu", "float64", None, model)
    return Trainer(model, data, task, settings, place, folder, Progress(shown=False))


def gradients(trainer: Trainer, group: list[Batch]) -> dict[str, Tensor]:
    """What one update of these batches has for each parameter."""
    trainer.step(group, steps=1)
    return {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}


def batches(trainer: Trainer, size: int) -> list[Batch]:
    return list(trainer.train.batches(torch.arange(32).split(size)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", CASES)
def test_chunks_give_the_loss_and_every_gradient_of_whole_outputs(name: str, smoothing: float, tmp_path: Path) -> None:
    whole = train(name, tmp_path, smoothing, loss_chunk=0)
    expected = gradients(whole, batches(whole, 32))
    in_chunks = train(name, tmp_path, smoothing, loss_chunk=7)
    width = 128 if name == "seq2seq-gru" else 8
    assert last_layer_inputs(in_chunks.model.head, torch.zeros(1, width, dtype=torch.float64)) is not None  # type: ignore[arg-type]
    found = gradients(in_chunks, batches(in_chunks, 32))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-10, atol=1e-12, msg=key)
    assert in_chunks.state.loss_sum == pytest.approx(whole.state.loss_sum, rel=1e-12)


@pytest.mark.parametrize("chunk", [0, 7], ids=["whole", "chunks"])
@pytest.mark.parametrize("name", CASES)
def test_four_ragged_batches_of_eight_are_one_of_thirty_two(name: str, chunk: int, tmp_path: Path) -> None:
    one, four = train(name, tmp_path, loss_chunk=chunk), train(name, tmp_path, loss_chunk=chunk, accumulate=4)
    eights = batches(four, 8)
    assert len({int((b.target != IGNORED).sum()) for b in eights}) > 1 or name != "bert-base-uncased"
    expected, found = gradients(one, batches(one, 32)), gradients(four, eights)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-10, atol=1e-12, msg=key)
    assert one.train_loss == pytest.approx(four.train_loss, rel=1e-12)


def test_a_batch_from_which_nothing_is_to_be_told_teaches_nothing(tmp_path: Path) -> None:
    trainer = train("bert-base-uncased", tmp_path, loss_chunk=7)
    (batch,) = batches(trainer, 32)
    nothing = Batch(batch.inputs, torch.full_like(batch.target, IGNORED))
    assert all(not g.any() for g in gradients(trainer, [nothing]).values())


def test_in_bfloat16_chunks_learn_as_the_whole_does() -> None:
    model, data = build_case("gpt2")
    model.float()
    (batch,) = data.splits["train"].batches([torch.arange(32)])
    words = build_chunked_head(model, task_for(data.spec), chunk=7)
    assert words is not None
    found = {}
    for which in ("whole", "chunks"):
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            whole = task_for(data.spec).loss(model(*batch.inputs), batch.target)
            loss = words.loss(batch.inputs, batch.target) if which == "chunks" else whole
        loss.backward()  # type: ignore[no-untyped-call]
        found[which] = loss.item(), torch.cat([p.grad.flatten() for p in model.parameters()])
    assert found["chunks"][0] == pytest.approx(found["whole"][0], rel=1e-3)
    assert F.cosine_similarity(found["chunks"][1], found["whole"][1], dim=0) > 0.999


def test_compiled_features_learn_the_same() -> None:
    model, data = build_case("gpt2")
    (batch,) = data.splits["train"].batches([torch.arange(32)])
    task = task_for(data.spec)
    torch._dynamo.reset()  # whatever was compiled before in this process
    found = []
    for compiled in (False, True):
        features = torch.compile(model.features, backend="eager") if compiled else model.features  # type: ignore[call-overload]
        loss = ChunkedHead(features, model.head, task, 7).loss(batch.inputs, batch.target)  # type: ignore[arg-type]
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


class Scaled(nn.Module):
    """A head that is more than a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, V)

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * self.linear(x).tanh()


def test_a_head_that_is_no_matrix_sees_the_real_tokens_alone() -> None:
    model, data = build_case("gpt2")
    head = Scaled().double()
    model.head = head
    (batch,) = data.splits["train"].batches([torch.arange(32)])
    task, seen = task_for(data.spec), []
    head.register_forward_hook(lambda module, args, out: seen.append(args[0].shape))
    loss = ChunkedHead(model.features, head, task, 7).loss(batch.inputs, batch.target)  # type: ignore[arg-type]
    assert seen == [(int(LENGTHS.sum()), 8)]
    torch.testing.assert_close(loss, task.loss(model(*batch.inputs), batch.target), rtol=1e-12, atol=0)


@pytest.mark.parametrize("setting", [None, 0, 300])
def test_auto_holds_few_outputs_and_chunks_many(setting: int | None) -> None:
    model, data = build_case("gpt2")
    words = build_chunked_head(model, task_for(data.spec), chunk=setting)
    assert words is not None
    few = torch.zeros(4, 9, dtype=torch.long)
    many = torch.zeros(chunks.MIN_CHUNKED_LOGITS // V // 9 + 1, 9, dtype=torch.long)
    expected = {None: (False, True), 0: (False, False), 300: (True, True)}[setting]
    assert (words.should_chunk(few), words.should_chunk(many)) == expected
    assert words.chunk == (setting if setting is not None else chunks.LOGITS_PER_CHUNK // V)


def test_what_goes_on_from_a_state_or_answers_otherwise_has_whole_outputs() -> None:
    lstm = create_model("lstm", vocab_size=V, num_classes=V, pooling="every", hidden_dim=8)
    assert build_chunked_head(lstm, task_for(TextSpec(V, 9, NextToken(V)))) is None
    assert build_chunked_head(nn.Linear(3, 3), task_for(TextSpec(V, 9, NextToken(V)))) is None
    assert build_chunked_head(create_model("gpt2", **SMALL, vocab_size=V, context_length=9), None) is None


@pytest.mark.parametrize("decodes", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_evaluation_keeps_the_same_of_some_texts_at_a_time(
    name: str, decodes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = build_case(name)
    task, place = task_for(data.spec), select_device("cpu", "float64", None, model)

    def kept() -> tuple[Tensor, Tensor]:
        return evaluate_split(model, data.splits["val"], place, 16, task, decodes=decodes)

    whole = kept()
    monkeypatch.setattr(chunks, "MAX_EVALUATION_LOGITS", 3 * 9 * V)  # three of the longest texts
    at_a_time = kept()
    torch.testing.assert_close(at_a_time[0], whole[0], rtol=1e-6, atol=1e-7, equal_nan=True)
    assert torch.equal(at_a_time[1], whole[1])
    with torch.no_grad():
        (batch,) = data.splits["val"].batches([torch.arange(32)])
        loss = task.loss(model(*batch.inputs), batch.target) / task.loss_denominator(batch.target)
    assert task.fast_metrics(*at_a_time)["loss"] == pytest.approx(loss.item(), rel=1e-6)


def test_evaluation_never_holds_the_outputs_of_a_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = build_case("gpt2")
    monkeypatch.setattr(chunks, "MAX_EVALUATION_LOGITS", 3 * 9 * V)
    sizes: list[int] = []
    model.head.register_forward_hook(lambda module, args, out: sizes.append(out.numel()))  # type: ignore[union-attr]
    evaluate_split(model, data.splits["val"], select_device("cpu", "float64", None, model), 32, task_for(data.spec))
    assert max(sizes) <= 3 * 9 * V
    assert len(sizes) > 8


def test_batches_hold_at_most_so_many_tokens_with_their_padding(tmp_path: Path) -> None:
    if "tokens" not in inspect.signature(SequenceSplit.plan).parameters:
        pytest.skip("splits have no such plan")
    trainer = train("gpt2", tmp_path, batch_tokens=20)
    for epoch in (0, 1):
        plan = trainer.epoch_batches(epoch)
        assert sorted(torch.cat(plan).tolist()) == list(range(32))
        assert all(len(b) * int(LENGTHS[b].max()) <= 20 for b in plan)
    read = sequential_batches(trainer.train, 256, tokens=20)
    assert max(len(b) * int(LENGTHS[b].max()) for b in read) <= 20
    trainer.fit()
    assert trainer.state.update == len(trainer.epoch_batches(0))


def test_a_part_that_has_no_such_batches_rejects_them() -> None:
    class Old(SequenceSplit):
        def plan(self, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:  # type: ignore[override]
            return super().plan(batch_size, generator)

    split = texts()
    split.__class__ = Old
    with pytest.raises(SettingError, match=r"batch_tokens=64 .* give batch_size instead"):
        reject_incompatible(build(TrainSettings, {"batch_tokens": 64}), split)
    with pytest.raises(SettingError, match=r"batch_tokens=64 .* give batch_size instead"):
        setup_training("mlp", "moons", {"batch_tokens": 64})


def test_language_models_learn_alike_from_whole_outputs_and_chunks(tmp_path: Path) -> None:
    stream = StreamSplit([torch.arange(200) % V], 9, False, str)
    losses = []
    for chunk in (0, 5):
        trainer = train("gpt2", tmp_path, loss_chunk=chunk, epochs=3, optimizer="adamw", lr=1e-2, batch_size=4)
        trainer.train = stream
        trainer.fit()
        losses.append([row["train_loss"] for row in trainer.state.history])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.parametrize("preset", ["gpt2", "parallel-transformer"])
def test_a_batch_without_padding_needs_no_mask(preset: str) -> None:
    torch.manual_seed(0)
    model = create_model(preset, vocab_size=V, context_length=9, **SMALL).double()
    words = build_chunked_head(model, task_for(TextSpec(V, 9, NextToken(V))), chunk=5)
    assert words is not None
    tokens = torch.randint(V, (4, 10))
    seen, target = tokens[:, :-1], tokens[:, 1:]
    found = []
    for inputs in ((seen,), (seen, torch.ones_like(seen, dtype=torch.bool))):
        loss = words.loss(inputs, target)
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
