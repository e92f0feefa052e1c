"""Weight files of a Hugging Face folder, and the dtypes of their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...core.errors import FileError
from ...core.files import read_json
from ...nn.mixed_precision import HALF_DTYPES
from ..saving import CONFIG, INDEX, WEIGHTS

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
                f"{absent[0]}. Take the folder whole, from where it came."
            )
        return tuple(path / name for name in names)
    pickles = sorted({found.name for pattern in PICKLES for found in path.glob(pattern)})
    if pickles:
        raise FileError(
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
