"""Sequences: a language model's epoch beside a bare loop, mixed lengths beside padding, text to tensors."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer as Library
from torch import Tensor, nn

from cutaway.core.spec import NextToken
from cutaway.data.dataset_base import DataSet
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.text.tokenizers import train_tokenizer
from cutaway.models.registry import create_model
from cutaway.tasks.task import task_for
from cutaway.training.callbacks import Progress
from cutaway.training.config import TrainSettings
from cutaway.training.device import select_device
from cutaway.training.trainer import Trainer

from .pairs import Pair, race

ROWS, STEPS, HIDDEN = 32, 64, 256  # of the language model's batches; numbers in its state
UPDATES = 100
LENGTHS = torch.arange(1, 101)  # spread evenly


def language_model(data: DataSet) -> nn.Module:
    """An LSTM over characters, always with the same weights."""
    torch.manual_seed(0)
    vocab_size = data.spec.target.outputs
    return create_model("lstm", vocab_size=vocab_size, num_classes=vocab_size, hidden_dim=HIDDEN, pooling="every")


def ours(data: DataSet) -> Callable[[], object]:
    """So many updates in our loop, with carried state and clipping, a checkpoint at the end included."""
    settings = TrainSettings(epochs=1, batch_size=ROWS, schedule="constant", save_minutes=1e9, grad_clip=1.0)
    model = language_model(data)
    place = select_device("cpu", "float32", None, model)
    folder = Path(tempfile.mkdtemp())
    trainer = Trainer(model, data, task_for(data.spec), settings, place, folder, Progress(shown=False))

    def epoch() -> None:
        trainer.state.epoch, trainer.state.stopped = 0, ""
        trainer.fit()

    return epoch


class Bare(nn.Module):
    """An embedding, `nn.LSTM` and a linear layer, as a tutorial writes them."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, batch_first=True)
        self.linear = nn.Linear(HIDDEN, vocab_size)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Logits (N, T, V), and the state after the last token."""
        outputs, state = self.lstm(self.embedding(x), state)
        return self.linear(outputs), state


def bare(batches: list[tuple[Tensor, Tensor]], vocab_size: int) -> Callable[[], object]:
    """As many updates on the same batches, the state carried, with the fused optimizer."""
    torch.manual_seed(0)
    model = Bare(vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def epoch() -> None:
        model.train()
        state = None
        for x, y in batches:
            outputs, state = model(x, state)
            state = (state[0].detach(), state[1].detach())
            loss = F.cross_entropy(outputs.flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return epoch


def stepping() -> Pair:
    """Our loop beside a bare one on the same batches."""
    source = "tinyshakespeare"
    data = open_data(source, DataSettings(length=STEPS, stateful=True), targets=(NextToken,))
    split = data.splits["train"]
    plan = split.plan(ROWS, None)[:UPDATES]  # type: ignore[attr-defined]
    batches = [(b.inputs[0], b.target) for b in split.batches(plan)]
    split.plan = lambda batch_size, generator: plan  # type: ignore[attr-defined]
    data.splits = {"train": split}
    name = f"loop: lstm of {HIDDEN} on characters, {ROWS} × {STEPS}, state carried"
    return race(name, ours(data), bare(batches, data.spec.target.outputs), runs=7, warm_up=1)


def mixed_lengths() -> Pair:
    """Learning from sequences of 1 to 100 steps, as they are and padded to the longest."""
    torch.manual_seed(0)
    model = create_model("lstm", in_features=64, hidden_dim=HIDDEN, num_classes=10)
    x = torch.randn(len(LENGTHS), int(LENGTHS.max()), 64)
    mask = torch.arange(x.shape[1]) < LENGTHS[:, None]
    target = torch.randint(10, (len(x),))

    def step(*inputs: Tensor) -> None:
        F.cross_entropy(model(*inputs), target).backward()

    return race("lengths 1 to 100: lstm, unpadded, vs. padded", lambda: step(x, mask), lambda: step(x), runs=21)


def text_to_tensors() -> Pair:
    """Sentences to token ids, beside the `tokenizers` library alone."""
    split = open_data("sst2", DataSettings()).splits["train"]
    sentences = [str((split.row(i) or {})["text"]) for i in range(len(split))] * 3
    tokenizer = train_tokenizer("bpe", sentences, vocab_size=8000, min_count=2, lower=False)
    peer = Library.from_str(tokenizer.to_json()["library"])
    return race(
        f"text: {len(sentences):,} sentences to ids, BPE, vs. tokenizers",
        lambda: tokenizer.encode_many(sentences),
        lambda: [e.ids for e in peer.encode_batch_fast(sentences, add_special_tokens=False)],
        runs=9,
    )


def rows() -> list[tuple[Pair, float]]:
    """Every row with the most that its ratio may be."""
    return [(stepping(), 1.05), (mixed_lengths(), 0.6), (text_to_tensors(), 1.11)]
