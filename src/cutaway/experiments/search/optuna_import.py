"""Import of the optional dependency Optuna."""

from __future__ import annotations

from ...core.errors import SettingError


def require_optuna() -> None:
    """Raise SettingError if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise SettingError(
            f"A search needs Optuna, which is not here ({error}): pip install 'cutaway[search]'."
        ) from error
