"""Hugging Face folders with config.json, weights and a tokenizer, read into our models and written.

`model_type` in config.json names the network and `architectures` its head. The weights are one file, or several with an
index. The names of the backbone's tensors may have the family's prefix (bert.embeddings…, from a network with a head)
or not (embeddings…, from the bare backbone). Pickles are never opened.

Tensors are matched only by names and shapes. A square matrix that another program wrote transposed (GPT-2's are (in,
out) there) cannot be detected unless other matrices are not square.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from ...core.config import as_text
from ...core.errors import CheckpointConfigError, FileError, ModelError, UnsafeFileError, WeightsMismatchError
from ...core.files import atomic_dir, read_json, write_json, write_text
from ...core.memory_budget import build_on_meta
from ...models.registry import Preset, preset
from ...nn.mixed_precision import HALF_DTYPES
from ..match_config import Origin, closest_preset, diff, get_origin
from ..saving import (
    CONFIG,
    INDEX,
    SHARED_LAYERS,
    WEIGHTS,
    load_weights,
    open_safetensors,
    read_tensor,
    reject_not_finite,
    reject_pickle,
)
from . import (
    Family,
    Rule,
    families,
    find_family,
    from_transformers_names,
    to_config_json,
    to_transformers_names,
    transformers_names,
)
from .bert import num_labels
from .config_files import (
    GENERATION,
    format_json,
    generation_note,
    preparation_note,
    resolve_aliases,
    use_transformers_names,
)
from .tokenizer_files import TOKENIZER, Vocabulary

PICKLES = ("pytorch_model*.bin", "*.pth", "*.pt", "*.ckpt")


def find_weight_files(path: Path) -> tuple[Path, ...]:
    """Return the weight files of a folder: one, or those that an index names.

    Raises FileError if there are only pickles, or a file is missing.
    """
    if (path / WEIGHTS).is_file():
        return (path / WEIGHTS,)
    if (path / INDEX).is_file():
        index = read_json(path / INDEX)
        names = sorted(set(index["weight_map"].values())) if _is_index(index) else []
        if not names or any(Path(name).name != name for name in names):
            raise FileError(f"{path / INDEX} does not map each tensor to a file of its folder.")
        absent = [name for name in names if not (path / name).is_file()]
        if absent:
            raise FileError(
                f"{path} lacks {len(absent)} of the {len(names)} files that its {INDEX} names, the first "
                f"{absent[0]}. Download the whole folder again."
            )
        return tuple(path / name for name in names)
    pickles = sorted({found.name for pattern in PICKLES for found in path.glob(pattern)})
    if pickles:
        raise UnsafeFileError(
            f"{path} has its weights as a pickle alone ({pickles[0]}). Reading one can run any program that "
            f"is hidden in it, so it was not opened. Take {WEIGHTS} from where the folder came; or, where you "
            "trust it, let transformers write one: AutoModel.from_pretrained(IN).save_pretrained(OUT)."
        )
    raise FileError(f"{path} has a {CONFIG} and no weights: {WEIGHTS} is missing.")


def to_single(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return contiguous tensors with half precision converted to float32, and a note if there are any."""
    halves = sorted({str(t.dtype).removeprefix("torch.") for t in tensors.values() if t.dtype in HALF_DTYPES.values()})
    found = {name: (t.float() if t.dtype in HALF_DTYPES.values() else t).contiguous() for name, t in tensors.items()}
    return found, (f"The weights are {' and '.join(halves)} in the file, and float32 here.",) if halves else ()


def _is_index(index: Any) -> bool:
    names = index.get("weight_map") if isinstance(index, dict) else None
    return isinstance(names, dict) and all(isinstance(name, str) for name in names.values())


HEADS = ("next", "masked", "classes", "tags", "tokens")  # kinds of heads of a Config
ANSWERS = ("classes", "tags")  # heads with as many outputs as config.json has labels
HEAD = "head"  # the child of a model that a bare backbone lacks
# Fields of a Config that do not identify a preset: those of the head and of training.
FREE = (
    "head",
    "num_classes",
    "dropout",
    "attention_dropout",
    "embedding_dropout",
    "activation_dropout",
    "head_dropout",
)

# Tensors that older versions saved in addition, and older names of tensors.
COMPUTED_TENSORS = (r"(.*\.)?(position_ids|token_type_ids|inv_freq)",)
OLD_NAMES = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
# Fields of a Config that are bounded by a dimension of some tensor, and by the number of tensors.
SIDES = (
    "vocab_size",
    "target_vocab_size",
    "context_length",
    "dim",
    "ffn_dim",
    "embedding_dim",
    "token_types",
    "heads",
    "head_dim",
    "num_buckets",
)
STACKS = ("layers", "decoder_layers")
NEW_CLASSES = 1_000_000  # maximum classes of a new head


@dataclasses.dataclass(frozen=True)
class TensorMatch:
    """Mapping of the folder's tensors to a model's."""

    tensors: Mapping[str, Tensor]  # by our names
    key_map: Mapping[str, str]  # the folder's name → ours
    new: tuple[str, ...]  # our tensors of a head that the folder lacks
    notes: tuple[str, ...]
    problems: tuple[str, ...]  # why it does not fit, with the folder's names; empty if it fits


def is_folder(path: Path) -> bool:
    """Return whether this is a Hugging Face folder, by its config.json."""
    if not (path / CONFIG).is_file():
        return False
    try:
        document = read_json(path / CONFIG)
    except FileError:
        return False
    return isinstance(document, dict) and "model_type" in document


class Folder:
    """Hugging Face folder with its config. Tensors are read when they are needed."""

    def __init__(self, path: Path) -> None:
        """Read the config.

        Raises FileError if there is no config.json, ModelError for an unsupported network or value.
        """
        self.path = path
        if not (path / CONFIG).is_file():
            raise FileError(
                f"{path} has no {CONFIG}, which says what network it holds. Give a folder in Hugging Face's form "
                f"({CONFIG}, {WEIGHTS}, {TOKENIZER}), or a run's or model's folder of Cutaway."
            )
        self.theirs = read_json(path / CONFIG)
        kind = self.theirs.get("model_type") if isinstance(self.theirs, dict) else None
        if not isinstance(kind, str) or kind not in families():
            what = f"a network of model_type {format_json(kind)}, which is not here" if kind else "no model_type"
            raise CheckpointConfigError(f"{path / CONFIG} has {what}. Supported are: {', '.join(families())}.")
        self.family: Family = families()[kind]
        try:
            self._fields = resolve_aliases(self.theirs, self.family.aliases)
            self.config = self._with_head(self.family.config(self._fields))
        except ModelError as error:
            said, theirs = (
                str(error),
                f"{CONFIG} has ",
            )  # messages about their fields begin with this, others are about our Config
            said = said.removeprefix(theirs) if said.startswith(theirs) else use_transformers_names(kind, said)
            raise CheckpointConfigError(f"{path / CONFIG}: {said}") from error
        self.family = self.family.with_head(self.config)
        if (path / WEIGHTS).is_file() or (path / INDEX).is_file():
            self._reject_oversized()
        self.tokenizer = path / TOKENIZER if (path / TOKENIZER).is_file() else None

    def origin(self, new: tuple[str, ...] = ()) -> Origin:
        """Return the settings of the folder other than sizes and weights. `new` are our tensors that it lacks.

        Raises FileError for an invalid generation_config.json.
        """
        generation = read_json(self.path / GENERATION) if (self.path / GENERATION).is_file() else None
        if generation is not None and not isinstance(generation, dict):
            raise FileError(f"{self.path / GENERATION} holds no settings by name: download it again.")
        found = Origin(self.theirs, to_config_json(self.family, self.config), generation, self.family.tokens, new)
        if not all(isinstance(end, int) and not isinstance(end, bool) and end >= 0 for end in found.ends):
            raise FileError(
                f"{self.path} has eos_token_id={format_json(list(found.ends))}, where ids of tokens belong."
            )
        return found

    @functools.cached_property
    def files(self) -> tuple[Path, ...]:
        """Return the weight files. Raises FileError if there are only pickles, or a file is missing."""
        return find_weight_files(self.path)

    @functools.cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Return all tensors by their names in the files. Raises FileError if a file cannot be read."""
        found: dict[str, Tensor] = {}
        for file in self.files:
            reject_pickle(file)
            with open_safetensors(file) as opened:
                for name in opened.keys():  # noqa: SIM118  # no mapping
                    if name in found:
                        raise FileError(
                            f"{self.path} has {name} in two files, of which {file.name} is one: restore it from a copy."
                        )
                    found[name] = read_tensor(file, opened, name)
        return found

    @functools.cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of all tensors by their names in the files, from the headers.

        Raises FileError if a file cannot be read.
        """
        found: dict[str, tuple[int, ...]] = {}
        for file in self.files:
            reject_pickle(file)
            with open_safetensors(file) as opened:
                found |= {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        return found

    def _reject_oversized(self) -> None:
        """Raise ModelError if config.json describes a network that is larger than the weights, before it is built.

        A large number in config.json could otherwise take all memory, or days.
        """
        most = max((side for shape in self.shapes.values() for side in shape), default=0)
        bounds = dict.fromkeys(SIDES, most) | dict.fromkeys(STACKS, len(self.shapes))
        if getattr(self.config, "share_layers", False):
            bounds["layers"] = max(bounds["layers"], SHARED_LAYERS)
        bounds["num_classes"] = max(most, NEW_CLASSES)  # a head may be new
        for field, bound in bounds.items():
            value = getattr(self.config, field, None)
            if isinstance(value, int) and value > bound:
                what = f"{bound:,} tensors in all" if field in STACKS else f"no tensor with more than {bound:,} rows"
                said = use_transformers_names(self.family.model_type, f"{field}={value}")
                raise CheckpointConfigError(
                    f"{self.path / CONFIG}: {said} does not fit the weights in this folder, which have {what}. "
                    "Take both from one copy."
                )

    @property
    def architecture(self) -> str:
        """Return the class in transformers that saved the folder; empty if it is not given."""
        names = self.theirs.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    def preset(self, name: str | None = None) -> Preset:
        """Return the preset of a name, which must be of the folder's family, or the one with the closest config.

        Raises ModelError for a preset of another family.
        """
        if name is not None:
            found = preset(name)
            if found.name not in self.family.presets:
                raise CheckpointConfigError(
                    f"{self.path} holds a {self.family.model_type}, not a {found.name}: read it as "
                    f"{', '.join(self.family.presets)}, or without a name."
                )
            return found
        return closest_preset(self.config, map(preset, self.family.presets), FREE)

    def config_note(self, found: Preset) -> tuple[str, ...]:
        """Return a sentence on the settings that differ from the preset; none if there are none."""
        fields = diff(self.config, found.config, FREE)
        if not fields:
            return ()
        said = ", ".join(f"{field}={as_text(value)}" for field, value in fields.items())
        return (f"It is read as {found.name} with {said}.",)

    def match(self, shapes: Mapping[str, tuple[int, ...]]) -> TensorMatch:
        """Map the folder's tensors to those of a model, given by names and shapes.

        Half-precision tensors become float32.

        A missing head is new. Tensors of other heads and unused tensors are left out. All other differences are
        problems.
        """
        tensors, origin = self._full()
        theirs = {ours: transformers_names(self.family, ours) for ours in shapes}
        new = self._new(theirs, tensors)
        wanted = {ours: found for ours, found in theirs.items() if ours not in new}
        missing = [name for _, names in wanted.values() for name in names if name not in tensors]
        misshapen = []
        for ours, (rule, names) in wanted.items():
            shape = _part_shape(shapes[ours], len(names), rule.transposed)
            misshapen += [(n, shape) for n in names if n in tensors and tuple(tensors[n].shape) != shape]
        known = {name for _, names in theirs.values() for name in names}
        added, saved = self._missing_bias(origin)
        if saved in known:
            missing.append(added)
        left, extra = self._set_apart([name for name in origin if name not in known], tensors)
        others, extra = self._split_other_heads(extra)

        problems = []
        if missing:
            said = f"the first {missing[0].removeprefix(self.family.prefix) if self.bare else missing[0]}"
            problems.append(f"{len(missing)} of the network's {len(known)} tensors are missing, {said}")
            if added in missing:
                problems.append(
                    f"{saved} is there, which transformers does not add where words have an output matrix of their own"
                )
        if extra:
            problems.append(f"{len(extra)} are not the network's, the first {origin[extra[0]]}")
            if set(extra) & set(self._outputs) and self.family.tied_by is not None:
                problems.append(
                    f'as words have an output matrix of their own there, {CONFIG} has to say "{self.family.tied_by}": '
                    "false"
                )
            if computed := [origin[name] for name in extra if name in self.family.computed]:
                problems.append(f"{computed[0]} holds other numbers than the sinusoids that the network computes")
        if misshapen:
            name, shape = misshapen[0]
            first = f"{origin[name]}: {tuple(tensors[name].shape)} where the network has {shape}"
            problems.append(f"{len(misshapen)} have another shape, the first {first}")
            if all(tuple(tensors[n].shape) == expected[::-1] for n, expected in misshapen):
                problems.append(
                    "they are transposed, rows for columns, and so may be square ones, which nobody can tell"
                )
        if problems:
            return TensorMatch({}, {}, new, (), tuple(problems))
        found, names_ours = from_transformers_names(self.family, wanted, tensors)
        reject_not_finite({origin.get(name, name): tensors[name] for name in names_ours}, self.path)
        found, halves = to_single(found)
        notes = list(halves)
        if new:
            notes.append(f"New, since the folder has none: {_listed(list(new))}. Train before you trust its answers.")
        if others:
            notes.append(f"Left out, of another head: {_listed([origin[n] for n in others])}.")
        if left:
            notes.append(f"Left out, since nothing here needs them: {_listed([origin[n] for n in left])}.")
        return TensorMatch(found, {origin[k]: v for k, v in names_ours.items() if k in origin}, new, tuple(notes), ())

    def offered(
        self, shapes: Mapping[str, tuple[int, ...]], head: str | None
    ) -> tuple[dict[str, Tensor], tuple[str, ...]]:
        """Return the available tensors of a model under our names, also if they do not fit, and notes.

        `head` is the kind of the model's head. A head of another kind can have the same names and is left out. All
        other unknown tensors keep their names.
        """
        tensors, origin = self._full()
        alike = head == getattr(self.config, "head", None)
        rules = {ours: transformers_names(self.family, ours) for ours in shapes}
        theirs = {k: names for k, (rule, names) in rules.items() if alike or not (rule.outside and _is_head(k))}
        _, unused = self._missing_bias(origin)
        theirs = {k: names for k, names in theirs.items() if unused not in names}
        # Parts whose shapes do not match are not concatenated.
        whole = [k for k, names in theirs.items() if len({tensors[n].shape[1:] for n in names if n in tensors}) == 1]
        found, names_ours = from_transformers_names(self.family, whole, tensors)
        reject_not_finite({origin.get(name, name): tensors[name] for name in names_ours}, self.path)
        known = {name for ours in found for name in theirs[ours]}
        _, extra = self._set_apart([name for name in origin if name not in known], tensors)
        _, extra = self._split_other_heads(extra)
        found, notes = to_single(found)
        return {**found, **{origin[name]: tensors[name] for name in extra}}, notes

    def _full(self) -> tuple[Mapping[str, Tensor], Mapping[str, str]]:
        """Return the tensors under the names of a network with a head, and their names in the files.

        Computed tensors are included. Raises FileError if two names in the files refer to one tensor.
        """
        outside = [_pattern(name) for rule in self.family.rules if rule.outside for name in rule.theirs]
        outside += map(re.escape, self.family.output_bias or ())
        tensors: dict[str, Tensor] = {}
        origin: dict[str, str] = {}
        for name, tensor in self.tensors.items():
            full = name
            for pattern, replacement in OLD_NAMES:
                full = re.sub(pattern, replacement, full)
            if self.bare and not any(re.fullmatch(pattern, full) for pattern in outside):
                full = self.family.prefix + full
            if full in origin:
                raise FileError(
                    f"{self.path} has {origin[full]} and {name}, which are two names of one tensor: keep one of them."
                )
            tensors[full], origin[full] = tensor, name
        for added, saved in (self.family.output_bias,) if self.family.output_bias else ():
            if added in tensors:
                tensors[saved], origin[saved] = tensors.pop(added), origin.pop(added)
        if (
            (table := self._embedding) is not None
            and table not in tensors
            and getattr(self.config, "tie_weights", True)
        ):
            found = next((name for name in (*self._outputs, *self.family.embedding_names) if name in tensors), None)
            if found is not None:
                tensors[table], origin[table] = tensors.pop(found), origin.pop(found)
        return {**self.family.default_tensors(self.config, tensors), **tensors}, origin

    def _missing_bias(self, origin: Mapping[str, str]) -> tuple[str, str]:
        """Return the name of the missing output bias and that of the one in its place, or two empty names.

        The two are one tensor only if the output matrix is the embedding.
        """
        added, saved = self.family.output_bias or ("", "")
        tied = getattr(self.config, "tie_weights", True)
        return (added, saved) if not tied and origin.get(saved, "") == saved else ("", "")

    @property
    def writes(self) -> bool:
        """Return whether the network generates text token by token."""
        return self._embedding is not None and getattr(self.config, "head", "next") == "next"

    @property
    def _embedding(self) -> str | None:
        """Return the name of the word embedding; None for a network without one."""
        of_words = any(re.fullmatch(rule.ours, "embedding.weight") for rule in self.family.rules)
        return transformers_names(self.family, "embedding.weight")[1][0] if of_words else None

    @property
    def _outputs(self) -> tuple[str, ...]:
        """Return the names of the output matrix over words."""
        return tuple(n for rule in self.family.rules if rule.ours.endswith("unembedding") for n in rule.theirs)

    @property
    def bare(self) -> bool:
        """Return whether the names lack the family's prefix."""
        prefix = self.family.prefix
        return bool(prefix) and not any(name.startswith(prefix) for name in self.tensors)

    def _new(self, theirs: Mapping[str, tuple[Rule, list[str]]], tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Return our tensors of a missing head.

        A head is missing if the file has none of its tensors and none outside the backbone. A head that the
        architecture names was trained with the backbone and is never new.
        """
        head = {ours: found for ours, found in theirs.items() if _is_head(ours)}
        named = self.architecture == self.family.architecture(self.config)
        of_words = not self.family.prefix and getattr(self.config, "head", None) not in ANSWERS
        if (named or of_words) and not self.bare:
            return ()
        if any(name in tensors for rule, names in head.values() if rule.outside for name in names):
            return ()
        return tuple(ours for ours, (_, names) in head.items() if not any(name in tensors for name in names))

    def _set_apart(self, names: Iterable[str], tensors: Mapping[str, Tensor]) -> tuple[list[str], list[str]]:
        """Split names into unused tensors and others.

        A tensor that should be the embedding, or be computed from config.json, but has other values, is among the
        others.
        """
        prefix, patterns = self.family.prefix, (*self.family.ignored, *COMPUTED_TENSORS)
        table = None if self._embedding is None else tensors.get(self._embedding)
        same = (*self._outputs, *self.family.embedding_names)
        left: list[str] = []
        others: list[str] = []
        for name in names:
            tensor, forms = tensors[name], (name, prefix + name, name.removeprefix(prefix))
            is_left = any(re.fullmatch(pattern, form) for pattern in patterns for form in forms)
            if table is not None and any(form in same for form in forms):
                is_left = is_left and torch.equal(tensor, table)
            if name in self.family.computed:
                is_left = is_left and self.family.computed[name].matches(tensor, self._fields)
            (left if is_left else others).append(name)
        return left, others

    def _split_other_heads(self, names: list[str]) -> tuple[list[str], list[str]]:
        """Split names into those of other heads and others."""
        found, known = preset(self.family.presets[0]), set[str]()
        for config in self._configs() if names else ():
            for ours in tensor_shapes(found, config):
                known |= set(transformers_names(self.family, ours)[1]) if _is_head(ours) else set()
        return [n for n in names if n in known], [n for n in names if n not in known]

    def _configs(self) -> list[Any]:
        """Return the config with each head of the family."""
        found = []
        for head in HEADS if hasattr(self.config, "head") else ():
            try:
                found.append(dataclasses.replace(self.config, head=head))
            except ModelError:  # this family has no such head
                continue
        return found or [self.config]

    def _with_head(self, config: Any) -> Any:
        """Return the config with the head of the folder's architecture, and with the number of labels."""
        self.config = config
        fitting = [c for c in [config, *self._configs()] if self.family.architecture(c) == self.architecture]
        if fitting:
            config = fitting[0]
        if getattr(config, "head", None) in ANSWERS:
            config = dataclasses.replace(config, num_classes=num_labels(self.theirs))
        return config


@functools.cache
def tensor_shapes(found: Preset, config: Any) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes of a model's tensors by our names, without allocating memory."""
    return {k: tuple(v.shape) for k, v in build_on_meta(found, config).state_dict().items()}


def _is_head(ours: str) -> bool:
    return ours.split(".")[0] == HEAD


def _pattern(name: str) -> str:
    """Return a regular expression for a rule's name with any group values."""
    return re.sub(r"\\\\\d", ".*", re.escape(name))


def _part_shape(shape: tuple[int, ...], parts: int, transposed: bool) -> tuple[int, ...]:
    """Return the shape of one of `parts` parts of our tensor in transformers."""
    found = (shape[0] // parts, *shape[1:]) if shape else ()
    return found[::-1] if transposed and len(found) == 2 else found


def _listed(names: list[str]) -> str:
    first = ", ".join(names[:3])
    return first if len(names) <= 3 else f"{first} and {len(names) - 3} more"


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Model loaded from a folder."""

    model: nn.Module
    preset: Preset
    key_map: Mapping[str, str]  # the folder's name → ours
    notes: tuple[str, ...]  # notes for the user
    tokenizer: Path | None  # its tokenizer.json, if it has one
    new: tuple[str, ...] = ()  # our tensors that the folder lacks and that are untrained


def read_folder(path: Path, name: str | None = None) -> Loaded:
    """Load the model of a folder in eval mode.

    Its preset is `name`, or the one with the closest config. Its config is always that of the folder. A missing head is
    initialized from torch's random state, which is not changed. Raises FileError if the folder is invalid or its
    tensors do not fit, ModelError if the network or a value of its config is not supported.
    """
    folder = Folder(path)
    found = folder.preset(name)
    _ = folder.files  # raises before anything is built if there are no weights
    matched = folder.match(tensor_shapes(found, folder.config))
    if matched.problems:
        raise WeightsMismatchError(
            f"{path} does not fit the network of its {CONFIG}: {'; '.join(matched.problems)}. Take the "
            "whole folder from where it came."
        )
    with torch.random.fork_rng(devices=[]):
        model = found.build(folder.config)
    kinds = {t.dtype for t in matched.tensors.values() if t.is_floating_point()}
    kind = kinds.pop() if len(kinds) == 1 else torch.float32
    own = {k: v.to(kind) for k, v in model.state_dict().items() if k in matched.new}
    load_weights(model, {**own, **matched.tensors}, folder.path)
    origin = folder.origin(matched.new)
    model.origin = origin  # type: ignore[assignment]  # not a module or tensor
    notes = (*folder.config_note(found), *matched.notes, *preparation_note(path))
    if folder.writes:
        notes += generation_note(origin.generation, origin.config)
    return Loaded(model.eval(), found, matched.key_map, notes, folder.tokenizer, matched.new)


def write_folder(
    model: nn.Module,
    name: str,
    path: Path,
    vocabulary: Vocabulary | None = None,
    labels: Sequence[str] = (),
    problem: str | None = None,
) -> dict[str, str]:
    """Write a model of the preset `name` atomically as a folder for transformers' from_pretrained.

    The settings of the original folder are written again unless they changed. A head that it lacked and that is
    untrained is not written.

    Args:
        model: Model to write.
        name: Preset of the model.
        path: Folder to write.
        vocabulary: Tokenizer files and special tokens.
        labels: Names of the classes.
        problem: Transformers' name of the task.

    Returns:
        The key map, ours → theirs.

    Raises:
        ModelError: If transformers has no such network.
        FileError: If the folder exists or cannot be written.
    """
    family = find_family(name)
    if family is None:
        known = ", ".join(n for f in families().values() for n in f.presets)
        raise CheckpointConfigError(
            f"transformers has no network like {name}, so it has no Hugging Face form. These have: {known}."
        )
    family, origin = family.with_head(model.config), get_origin(model)
    own = {k: v for k, v in model.state_dict().items() if origin is None or k not in origin.new}
    tensors = {k: v.detach().cpu().contiguous() for k, v in to_transformers_names(family, own).items()}
    # Views of a larger tensor are written as separate tensors.
    alone = {k: v if v.untyped_storage().nbytes() == v.nbytes else v.clone() for k, v in tensors.items()}
    untied = not getattr(model.config, "tie_weights", True)
    again = {theirs: ours for ours, names in family.untied_names.items() if untied and ours in own for theirs in names}
    alone |= {theirs: own[ours].detach().cpu().clone() for theirs, ours in again.items()}
    floating = next(t.dtype for t in alone.values() if t.is_floating_point())
    document = _document(model.config, family, origin, vocabulary, labels, problem)
    document["dtype"] = str(floating).removeprefix("torch.")
    with atomic_dir(path) as folder:
        write_json(folder / CONFIG, document)
        if origin is not None and origin.generation is not None:
            write_json(folder / GENERATION, {**origin.generation, **(vocabulary.own if vocabulary else {})})
        try:
            fields = resolve_aliases(document, family.aliases)
            made = {k: c.values(c.shape(fields)).to(floating) for k, c in family.computed.items()}
            save_file({**alone, **made}, folder / WEIGHTS, {"format": "pt"})
        except SafetensorError as error:  # a full disk, for one
            raise OSError(str(error)) from error
        for file, text in vocabulary.files.items() if vocabulary else ():
            write_text(folder / file, text)
    added, saved = family.output_bias or ("", "")
    read = {saved: added} if added in again else {}  # the bias that transformers adds
    return {ours: ", ".join(read.get(name, name) for name in transformers_names(family, ours)[1]) for ours in own}


def _document(
    config: Any,
    family: Family,
    origin: Origin | None,
    vocabulary: Vocabulary | None,
    labels: Sequence[str],
    problem: str | None,
) -> dict[str, Any]:
    """Return config.json: changed settings and those of the original folder."""
    settings, kept = to_config_json(family, config), dict(origin.config) if origin else {}
    named = labels if settings.get("num_labels") == len(labels) else ()
    if origin:
        settings = {k: v for k, v in settings.items() if k not in origin.settings or origin.settings[k] != v}
        gone = [alias for alias, field in family.aliases.items() if field in settings]
        gone += ["id2label", "label2id"] if named or "num_labels" in settings else []
        kept = {k: v for k, v in kept.items() if k not in (*gone, "torch_dtype", "transformers_version")}
    if named:
        settings.pop("num_labels", None)
        kept.pop("num_labels", None)
        settings["id2label"] = {str(i): label for i, label in enumerate(named)}
        settings["label2id"] = {label: i for i, label in enumerate(named)}
    if problem is not None and _has_labels(config):
        settings["problem_type"] = problem
    special = vocabulary.ids if vocabulary else {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
    if origin:  # special tokens of the original folder are kept, also its defaults
        said = {**origin.tokens, **origin.config}
        special = {key: value for key, value in (vocabulary.ids if vocabulary else {}).items() if said.get(key) is None}
    return {
        **kept,
        "model_type": family.model_type,
        **{key: value for key, value in special.items() if key not in settings},
        **settings,
        **(vocabulary.own if vocabulary else {}),
    }


def _has_labels(config: Any) -> bool:
    """Return whether the model has an output for each label."""
    return getattr(config, "head", None) in ANSWERS
