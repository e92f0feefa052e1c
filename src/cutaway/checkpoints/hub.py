"""Weights from the Hugging Face Hub, downloaded by huggingface_hub to its cache for `hub:ORG/NAME`.

Only the necessary files are downloaded: config.json, the tokenizer and the weights as safetensors, never a pickle. A
cached version is used without a request. `@REVISION` (a branch, a tag or a commit) selects the version, and a run
records the resolved commit.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import DownloadError, FileError
from .huggingface.config_files import GENERATION, PREPARATION
from .huggingface.folders import Folder
from .huggingface.tokenizer_files import COMPANION_FILES, TOKENIZER
from .saving import CONFIG, INDEX, WEIGHTS
from .torchvision import torchvision_names

HUB = "hub:"
FORM = re.compile(r"hub:(?P<name>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")
FILE_PATTERNS = (
    CONFIG,
    WEIGHTS,
    INDEX,
    "model-*-of-*.safetensors",
    TOKENIZER,
    *COMPANION_FILES,
    GENERATION,
    *PREPARATION,
)
REPOSITORIES = {  # repositories of the published weights of presets
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
    """Local version of a repository."""

    folder: Path
    name: str  # ORG/NAME
    commit: str

    @property
    def pinned(self) -> str:
        """Return the address of exactly this version."""
        return f"{HUB}{self.name}@{self.commit}"


def is_hub(path: str) -> bool:
    """Return whether a path names a repository of the Hub."""
    return path.startswith(HUB)


def fetch(path: str) -> Fetched:
    """Return the folder of `hub:ORG/NAME[@REVISION]`, from the cache or downloaded.

    Raises FileError for an invalid name, if the Hub cannot be reached, or if the repository, the revision or its
    safetensors do not exist.
    """
    match = FORM.fullmatch(path)
    if match is None:
        raise DownloadError(f"{path} names no repository: write hub:ORG/NAME, or hub:ORG/NAME@REVISION.")
    name, revision = match["name"], match["revision"]
    library = _library()
    found = _from_cache(library, name, revision)
    if found is None:
        try:
            found = Path(library.snapshot_download(name, revision=revision, allow_patterns=list(FILE_PATTERNS)))
        except Exception as error:  # errors of httpx, the library and the system share no base class
            raise DownloadError(f"{path} could not be fetched: {_reason(library, error, name, revision)}") from error
        if not _is_complete(found):
            raise FileError(
                f"{path} has no weights that can be read: it needs {CONFIG} and {WEIGHTS}, as one file or in parts. "
                "Pickles (pytorch_model.bin) are not fetched. Its page may name a revision with safetensors."
            )
    return Fetched(found, name, found.name)


def resolve_path(path: str | os.PathLike[str]) -> Path:
    """Return a path unchanged, or the folder of `hub:ORG/NAME[@REVISION]`, which is downloaded if needed."""
    given = os.fspath(path)
    return fetch(given).folder if is_hub(given) else Path(path).expanduser()


def download_hint(preset: str) -> str:
    """Return commands to get weights of a preset; empty if none are published."""
    if preset in REPOSITORIES:
        name = REPOSITORIES[preset]
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
    """Import huggingface_hub without telemetry. Raises FileError if it is not installed."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise FileError(
            "hub: needs the package huggingface_hub, which is not installed here: pip install huggingface_hub.",
            code="CUT-105",
        ) from error
    return huggingface_hub


def _from_cache(library: Any, name: str, revision: str | None) -> Path | None:
    """Return the cached version if it is complete."""
    try:
        cached = library.snapshot_download(
            name, revision=revision, allow_patterns=list(FILE_PATTERNS), local_files_only=True
        )
    except (OSError, ValueError):  # not cached, or an invalid name, which the download reports
        return None
    return Path(cached) if _is_complete(Path(cached)) else None


def _is_complete(folder: Path) -> bool:
    """Return whether a folder has a config.json and all its weights."""
    try:
        return bool(Folder(folder).files)
    except FileError:
        return False


def _reason(library: Any, error: Exception, name: str, revision: str | None) -> str:
    """Return the reason of a failed download and a fix."""
    errors = library.errors
    if isinstance(error, errors.GatedRepoError):
        return f"{name} is given only to who accepted its terms: accept them on its page, then `hf auth login`."
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{name} has no revision {revision!r}. Leave @{revision} out for the newest."
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"the Hub has no public repository {name}. Is it spelled as on its page? If private: `hf auth login`."
    if isinstance(error, errors.HFValidationError):
        return f"{name} is not the name of a repository."
    if isinstance(error, errors.HfHubHTTPError) and getattr(error, "response", None) is not None:
        return f"the Hub answered {error.response.status_code}. Try again later."
    said = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
    return (
        f"the Hub cannot be reached from here, and it is not in the cache ({said}). "
        "Connect once, or copy the folder from a machine that has it and give its path."
    )
