"""Weights from the Hugging Face Hub, fetched because a person typed `hub:ORG/NAME`: by huggingface_hub, to its cache.

Only what is needed is fetched: config.json, the tokenizer and the weights as safetensors, never a pickle. What was
fetched once is taken from the cache without asking anybody; `@REVISION` (a branch, a tag, a commit) says which version,
and the commit that it came to is what a run records.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import FileError
from .huggingface.auxiliary_configs import GENERATION, PREPARATION
from .huggingface.loading import Folder
from .huggingface.vocabulary import BESIDE, TOKENIZER
from .names import torchvision_names
from .saving import CONFIG, INDEX, WEIGHTS

HUB = "hub:"
FORM = re.compile(r"hub:(?P<name>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")
FETCHED = (CONFIG, WEIGHTS, INDEX, "model-*-of-*.safetensors", TOKENIZER, *BESIDE, GENERATION, *PREPARATION)
PUBLISHED = {  # where the weights of a preset are published
    "bert-base-uncased": "google-bert/bert-base-uncased",
    "bert-large-uncased": "google-bert/bert-large-uncased",
    "roberta-base": "FacebookAI/roberta-base",
    "distilbert-base": "distilbert/distilbert-base-uncased",
    "albert-base-v2": "albert/albert-base-v2",
    **{name: f"openai-community/{name}" for name in ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")},
    **{name: f"google-t5/{name}" for name in ("t5-small", "t5-base")},
    **{name: f"facebook/{name}" for name in ("bart-base", "bart-large")},
}


@dataclass(frozen=True)
class Fetched:
    """A version of a repository, on this machine."""

    folder: Path
    name: str  # ORG/NAME
    commit: str

    @property
    def pinned(self) -> str:
        """What to type for the same bytes again."""
        return f"{HUB}{self.name}@{self.commit}"


def is_hub(path: str) -> bool:
    """Whether a path names a repository of the Hub."""
    return path.startswith(HUB)


def fetch(path: str) -> Fetched:
    """The folder of `hub:ORG/NAME[@REVISION]`: from the cache, or fetched now where it is not there whole.

    Raises FileError where the name is none, nothing of it is here and the Hub cannot be asked, or it has no such
    repository or revision, or no safetensors in it.
    """
    match = FORM.fullmatch(path)
    if match is None:
        raise FileError(f"{path} names no repository: write hub:ORG/NAME, or hub:ORG/NAME@REVISION.")
    name, revision = match["name"], match["revision"]
    library = _library()
    found = _cached(library, name, revision)
    if found is None:
        try:
            found = Path(library.snapshot_download(name, revision=revision, allow_patterns=list(FETCHED)))
        except Exception as error:  # httpx's, the library's and the system's own, which share no class
            raise FileError(f"{path} could not be fetched: {_reason(library, error, name, revision)}") from error
        if not _whole(found):
            raise FileError(
                f"{path} has no weights that are read here: no {WEIGHTS}, alone or in parts, beside a {CONFIG}. "
                "Pickles (pytorch_model.bin) are not fetched. Its page may name a revision with safetensors."
            )
    return Fetched(found, name, found.name)


def here(path: str | os.PathLike[str]) -> Path:
    """The path itself, or the folder of `hub:ORG/NAME[@REVISION]`, fetched where it is not there. Raises FileError."""
    given = os.fspath(path)
    return fetch(given).folder if is_hub(given) else Path(path).expanduser()


def how_to_get(preset: str) -> str:
    """How a person gets weights of a preset, as commands; empty where nobody publishes any."""
    if preset in PUBLISHED:
        name = PUBLISHED[preset]
        return (
            f"To get them from Hugging Face: weights={HUB}{name} fetches them; or `hf download {name} {CONFIG} "
            f"{WEIGHTS} {TOKENIZER} --local-dir {preset}`, and then weights={preset}."
        )
    builder = torchvision_names().get(preset.removesuffix("-v1"))
    if builder is None:
        return ""
    return (
        f"To get torchvision's: `python -c \"import torch, torchvision; torch.save(torchvision.models.{builder}"
        f"(weights='DEFAULT').state_dict(), '{builder}.pth')\"`, and then weights={builder}.pth."
    )


def _library() -> Any:
    """huggingface_hub, told to send nothing but what it asks for. Raises FileError where it is not installed."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise FileError(
            "hub: needs the package huggingface_hub, which is not installed here: pip install huggingface_hub."
        ) from error
    return huggingface_hub


def _cached(library: Any, name: str, revision: str | None) -> Path | None:
    """The version in the cache, if it is there whole."""
    try:
        here = library.snapshot_download(name, revision=revision, allow_patterns=list(FETCHED), local_files_only=True)
    except (OSError, ValueError):  # nothing of it is here; or the name is none, which fetching says
        return None
    return Path(here) if _whole(Path(here)) else None


def _whole(folder: Path) -> bool:
    """Whether a folder has a config.json and all its weights."""
    try:
        return bool(Folder(folder).files)
    except FileError:
        return False


def _reason(library: Any, error: Exception, name: str, revision: str | None) -> str:
    """Why nothing came, and the way out, as one or two sentences."""
    errors = library.errors
    if isinstance(error, errors.GatedRepoError):
        return f"{name} is given only to who accepted its terms: accept them on its page, then `hf auth login`."
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{name} has no revision {revision!r}. Leave @{revision} out for the newest."
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"the Hub has no public repository {name}. Is it spelled as on its page? If private: `hf auth login`."
    if isinstance(error, errors.HFValidationError):
        return f"{name} is no name of a repository."
    if isinstance(error, errors.HfHubHTTPError) and getattr(error, "response", None) is not None:
        return f"the Hub answered {error.response.status_code}. Try again later."
    said = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
    return (
        f"the Hub cannot be reached from here, and it is not in the cache ({said}). "
        "Connect once, or copy the folder from a machine that has it and give its path."
    )
