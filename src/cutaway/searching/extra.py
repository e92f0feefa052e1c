"""Optuna, which is an extra: asked for here, once, before anything that needs it is imported."""

from __future__ import annotations

import warnings

from ..errors import SettingError


def need_optuna() -> None:
    """Raise SettingError where Optuna is not installed; and keep it from printing of its own."""
    try:
        import optuna
    except ImportError as error:
        raise SettingError(
            f"A search needs Optuna, which is not here ({error}): pip install 'cutaway[search]'."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
