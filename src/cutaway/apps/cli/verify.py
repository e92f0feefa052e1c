"""cutaway verify: checks of each model's card against independent implementations."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...models.registry import Preset

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
UNFIT = (ValueError, RuntimeError, TypeError, KeyError, IndexError)  # raised by networks with different architectures


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim about a model, and whether it holds."""

    model: str
    claim: str
    status: str  # passed, failed, skipped
    detail: str  # the result, or why the claim was skipped
    measured: float | None = None
    bound: float | None = None  # upper bound, or the exact value if the claim is a count


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("models", metavar="MODEL", nargs="*", help="names of models (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_verify(args: argparse.Namespace) -> int:
    """Check every claim. Exit status 0 if none failed, otherwise 1."""
    from ...draw.number_format import plural
    from ...models.registry import preset, presets
    from .output import console, emit_json, note

    found = [preset(name) for name in args.models] or list(presets().values())
    claims = []
    for one in found:
        for claim in check_claims(one):
            claims.append(claim)
            if not args.json:
                style = {FAILED: "bold red", SKIPPED: "dim"}.get(claim.status)
                line = f"{claim.status:<8} {claim.model:<20} {claim.claim:<38} {claim.detail}"
                console().print(line, style=style, markup=False)
    if args.json:
        emit_json([dataclasses.asdict(claim) for claim in claims])
    counts = {status: sum(c.status == status for c in claims) for status in (PASSED, SKIPPED, FAILED)}
    text = f"{plural(len(found), 'model')}, {plural(len(claims), 'claim')}"
    note(f"{text}: {', '.join(f'{n} {status}' for status, n in counts.items())}")
    unchecked = {c.detail for c in claims if c.status == SKIPPED and c.measured is None}
    for reason in sorted(unchecked):
        count = plural(sum(c.status == SKIPPED and c.detail == reason for c in claims), "claim")
        note(f"not checked, {count}: {reason}")
    return 1 if counts[FAILED] else 0


def check_claims(found: Preset) -> Iterator[Claim]:
    """Check all claims of one preset and yield the results. Torch's random state is preserved.

    Parameter and MAC counts are those of the preset itself, on the meta device. Claims about values are checked with
    the config that is compared with the oracle, which for large presets has fewer blocks of the same kinds.
    """
    import torch

    from ...verify import compared_config

    config = compared_config(found.name, found.config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = found.build(config)
        yield from _counts(found)
        yield from _settings(found)
        yield _initial(found, model)
        yield from _oracle(found, config, model)
        yield _saved(found, model)
        yield from _torchvision(found)
        yield from _hugging_face(found, model)
        yield from _behaviour(found, config, model)
        yield from _textbook(found, config, model)


def _counts(found: Preset) -> Iterator[Claim]:
    """Check that parameters and MACs (multiply-adds) are those of the card."""
    from ...draw.number_format import count
    from ...inspect.layers import preset_layer_table

    layers = preset_layer_table(found, found.config)
    at_least = "" if layers.complete else "at least "
    for what, counted, published in (
        ("parameters", layers.parameters, found.card.published_parameters),
        ("MACs", layers.multiply_adds, found.card.published_multiply_adds),
    ):
        claim, text = f"{what} = {found.card.published.by}", at_least * (what == "MACs") + count(counted)
        if published is None:
            yield Claim(found.name, claim, SKIPPED, f"{text} here; the card has no published count", counted)
        else:
            passed = counted == published and (layers.complete or what == "parameters")
            detail = text if passed else f"{text} here, {count(published)} {found.card.published.by}"
            if what == "parameters" and found.card.published.paper:
                detail += f"; published {found.card.published.paper}"
            yield Claim(found.name, claim, PASSED if passed else FAILED, detail, counted, published)


def _settings(found: Preset) -> Iterator[Claim]:
    """Check that the preset's constants are those of its paper, and of the library that has the same network.

    The reference values are independent of the preset, or the library's own.
    """
    import torch

    from ...checkpoints.huggingface import find_family
    from ...checkpoints.torchvision import torchvision_names
    from ...verify import OracleMissing
    from ...verify.huggingface import reference_differences
    from ...verify.published import SETTINGS, published_differences, torchvision_differences

    yield _none_differ(
        found, "settings = published", f"{len(SETTINGS[found.name])}", published_differences(found.name, found.config)
    )
    family = find_family(found.name)
    if family is not None:
        claim = "settings = transformers'"
        try:
            yield _none_differ(found, claim, "each", reference_differences(family, found.name, found.config))
        except OracleMissing as missing:
            yield Claim(found.name, claim, SKIPPED, str(missing))
        except UNFIT as error:  # an architecture that the library does not have
            yield Claim(found.name, claim, FAILED, str(error))
    if found.name in torchvision_names():
        claim = "settings of layers = torchvision's"
        try:
            with torch.device("meta"):
                count, unlike = torchvision_differences(found.name, found.build(found.config))
            yield _none_differ(found, claim, f"{count:,}", unlike)
        except OracleMissing as missing:
            yield Claim(found.name, claim, SKIPPED, str(missing))


def _initial(found: Preset, model: Any) -> Claim:
    """Check that the initial weights follow the paper or its code."""
    from ...verify.initialization import initialization_differences

    count = f"{sum(1 for _ in model.parameters()):,}"
    family = found.module.__name__.rpartition(".")[2]
    return _none_differ(found, "initial weights = published", count, initialization_differences(family, model))


def _none_differ(found: Preset, claim: str, count: str, unlike: list[str]) -> Claim:
    """Return a claim that holds if nothing differs; otherwise it lists the first three differences."""
    if not unlike:
        return Claim(found.name, claim, PASSED, f"{count} equal")
    more = f"; and {len(unlike) - 3} more" if len(unlike) > 3 else ""
    return Claim(found.name, claim, FAILED, "; ".join(unlike[:3]) + more)


def _oracle(found: Preset, config: Any, model: Any) -> Iterator[Claim]:
    """Check outputs and all parameter gradients against an independent implementation."""
    import torch

    from ...core.config import as_text
    from ...verify import OracleMissing, oracle_for
    from ...verify.compare import BOUND, compare

    claims = ("outputs = oracle's", "gradients = oracle's")
    try:
        oracle = oracle_for(found.name, config)
    except OracleMissing as missing:
        for claim in claims:
            yield Claim(found.name, claim, SKIPPED, str(missing), bound=BOUND)
        return
    except UNFIT as error:
        for claim in claims:
            yield Claim(
                found.name, claim, FAILED, f"the oracle cannot be built with the same settings: {error}", bound=BOUND
            )
        return
    try:
        measured = compare(model, oracle, torch.Generator().manual_seed(0))
    except UNFIT as error:
        for claim in claims:
            yield Claim(found.name, claim, FAILED, f"they cannot be compared: {error}", bound=BOUND)
        return
    fields = dataclasses.fields(config)
    reduced = [f.name for f in fields if getattr(config, f.name) != getattr(found.config, f.name)]
    where = ", with " + ", ".join(f"{name}={as_text(getattr(config, name))}" for name in reduced) if reduced else ""
    for claim, difference in zip(claims, (measured.outputs, measured.gradients)):
        yield _bounded_claim(found, claim, difference, BOUND, where)


def _saved(found: Preset, model: Any) -> Claim:
    """Check that a model is bit-identical after saving and loading."""
    from ...checkpoints.saving import load_model, save_model

    def there_and_back(folder: Path) -> Any:
        save_model(model, folder, found)
        return load_model(folder)[0]

    return _round_trip(found, "saved and loaded, bit for bit", model, there_and_back)


def _torchvision(found: Preset) -> Iterator[Claim]:
    """Check that a model is bit-identical after a round trip through torchvision's format."""
    from ...checkpoints.torchvision import read_checkpoint, torchvision_names, write_checkpoint

    if found.name not in torchvision_names():
        return
    model = found.build(found.config)

    def there_and_back(folder: Path) -> Any:
        write_checkpoint(model, folder / "model.safetensors")
        return read_checkpoint(folder / "model.safetensors", found.name).model

    yield _round_trip(found, "to torchvision and back, bit for bit", model, there_and_back)


def _hugging_face(found: Preset, model: Any) -> Iterator[Claim]:
    """Check that a model is bit-identical after a round trip through a Hugging Face folder."""
    from ...checkpoints.huggingface import find_family
    from ...checkpoints.huggingface.folders import read_folder, write_folder

    if find_family(found.name) is None:
        return

    def there_and_back(folder: Path) -> Any:
        write_folder(model, found.name, folder / "model")
        return read_folder(folder / "model", found.name).model

    yield _round_trip(found, "to Hugging Face and back, bit for bit", model, there_and_back)


def _round_trip(found: Preset, claim: str, model: Any, there_and_back: Any) -> Claim:
    import tempfile

    import torch

    with tempfile.TemporaryDirectory() as folder:
        before, after = model.state_dict(), there_and_back(Path(folder)).state_dict()
        differ = [k for k in before if k not in after or not torch.equal(before[k], after[k])]
    if differ or len(before) != len(after):
        return Claim(found.name, claim, FAILED, f"{len(differ)} tensors differ, the first {differ[:1]}")
    return Claim(found.name, claim, PASSED, f"{len(before)} tensors")


def _behaviour(found: Preset, config: Any, model: Any) -> Iterator[Claim]:
    """Check that every parameter gets a gradient, and that in eval mode an example's output does not depend on the
    others."""
    import torch

    from ...core.spec import OF_TOKENS, Context
    from ...inspect.example_inputs import example_inputs, example_shape, input_modality
    from ...models.base import as_output_tuple
    from ...verify.compare import BOUND, difference, fixed_dropout

    shape, sizes = example_shape(found, config), found.image_sizes(config)
    if sizes.least > 1:  # twice the minimum image size is enough for this check, and cheaper than the published size
        side = sizes.enough(2 * sizes.least)
        shape = (*shape[:-2], side, side)
    drawn = example_inputs(found, config, shape, count=3)
    inputs = tuple(x.double() if x.is_floating_point() else x for x in drawn)
    kind = input_modality(found, config)
    model = model.double().train()
    with torch.no_grad():  # zero weights would block the gradients of earlier layers
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    with fixed_dropout():  # dropout may drop a whole branch
        answers = as_output_tuple(model(*inputs))
    torch.autograd.backward(answers, [torch.randn_like(answer) for answer in answers])

    def has_gradient(parameter: torch.Tensor) -> bool:
        grad = parameter.grad
        return grad is not None and bool((grad.to_dense() if grad.is_sparse else grad).any())

    without = [k for k, p in model.named_parameters() if p.requires_grad and not has_gradient(p)]
    detail = f"none reaches {', '.join(without)}" if without else f"{sum(1 for _ in model.parameters())} parameters"
    yield Claim(found.name, "gradients reach every parameter", FAILED if without else PASSED, detail)

    model.eval()
    with torch.no_grad():
        if kind == "graph" and getattr(config, "graph_level", False):
            x, edges = inputs
            graphs = torch.stack([x, -x, x.flip(0)])  # (3, V, F)
            side_by_side = torch.cat([edges + i * len(x) for i in range(3)], 1)
            together = model(graphs.flatten(0, 1), side_by_side, None, torch.arange(3).repeat_interleave(len(x)))
            alone = torch.cat([model(one, edges) for one in graphs])
        elif kind == "graph":  # its examples are nodes, selected by index
            together = model(*inputs)[:3]
            alone = torch.cat([model(*inputs, torch.tensor([i])) for i in range(3)])
        elif kind in OF_TOKENS and Context not in found.targets:  # word vectors know no padding
            together, alone = _alone_without_padding(model, inputs)
        else:
            together = model(*inputs)
            alone = torch.cat([model(*(x[i : i + 1] for x in inputs)) for i in range(3)])
    yield _bounded_claim(found, "one alone = one of many", difference(alone, together), BOUND)


def _textbook(found: Preset, config: Any, model: Any) -> Iterator[Claim]:
    """Check fast layers against textbook code, cached generation against generation without a cache, and an update
    against the optimizer's equation."""
    from ...inspect.example_inputs import example_inputs, example_shape
    from ...training.config import TrainSettings
    from ...verify.compare import BOUND
    from .verify_textbook import compare_cached, compare_layers, compare_updates

    shape, sizes = example_shape(found, config), found.image_sizes(config)
    if sizes.least > 1:
        side = sizes.enough(sizes.least)
        shape = (*shape[:-2], side, side)
    drawn = example_inputs(found, config, shape, count=2)
    inputs = tuple(x.double() if x.is_floating_point() else x for x in drawn)
    written = dict(compare_layers(model.double().eval(), inputs))
    if written:
        worst = max(written, key=written.__getitem__)
        yield _bounded_claim(
            found, "layers = the textbook's", written[worst], BOUND, f", {len(written)} layers, worst {worst}"
        )
    apart = compare_cached(found, config, model)
    if apart is not None:
        yield _bounded_claim(found, "token after token = all at once", apart, BOUND)
    step = compare_updates(TrainSettings(**_training_settings(found)))
    if step is not None:
        yield _bounded_claim(found, "a step = the textbook's", step[1], BOUND, f", {step[0]}")


def _training_settings(found: Preset) -> dict[str, Any]:
    """Return the preset's training settings, without those of the data."""
    from ...training.config import TrainSettings

    names = {field.name for field in dataclasses.fields(TrainSettings)}
    return {key: value for key, value in found.card.settings.items() if key in names}


def _alone_without_padding(model: Any, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return answers for tokens (N, T) with a mask (N, T), where each row after the first is cut shorter than the one
    before: as one padded batch, and row by row without padding. Answers at padding are left out."""
    import torch

    tokens, mask, *more = inputs
    lengths = [max(1, tokens.shape[1] // (i + 1)) for i in range(len(tokens))]
    mask = mask & (torch.arange(tokens.shape[1]) < torch.tensor(lengths)[:, None])  # (N, T)
    together = model(tokens * mask, mask, *more)
    alone = [model(tokens[i : i + 1, :n], mask[i : i + 1, :n], *(x[i : i + 1] for x in more))
             for i, n in enumerate(lengths)]  # fmt: skip
    ends = [one.shape[1] if one.ndim == 3 else None for one in alone]
    return torch.cat([y[:n].flatten() for y, n in zip(together, ends)]), torch.cat([one.flatten() for one in alone])


def _bounded_claim(found: Preset, claim: str, measured: float, bound: float, where: str = "") -> Claim:
    passed = measured <= bound
    detail = f"{measured:.1e} {'≤' if passed else '>'} {bound:g} relative{where}"
    # JSON has no infinity, which is the difference of a missing gradient.
    return Claim(found.name, claim, PASSED if passed else FAILED, detail, measured if measured < 1e300 else None, bound)
