"""What a run is asked for that it cannot do."""

from __future__ import annotations

from ..data.problems.problem import Branches
from ..data.sets import Preprocessing
from ..data.text.problems import ProblemPreprocessing
from ..errors import SettingError
from ..generation.thoughts import CHAINS, Method
from ..spec import Spec, Transcript


def reject_beams(spec: Spec, num_beams: int | None, length_penalty: float | None) -> None:
    """Raise SettingError for settings of decoding, where the run decodes nothing, or has no such setting."""
    if length_penalty is not None and type(spec.target) is Transcript:
        raise SettingError(
            "length_penalty is for what is written token after token, and this run says a character or none at "
            "every frame: leave it out."
        )
    if (num_beams is not None or length_penalty is not None) and not spec.target.written:
        raise SettingError(
            "num_beams and length_penalty are for runs that learned pairs of sequences or captions, and this one "
            f"learned the {spec.target.column} of {spec.kind} data: leave them out."
        )


def reject_method(preprocessing: Preprocessing, method: Method | None) -> None:
    """Raise SettingError for a search, where the run solves no problems, or not by steps."""
    if method is None:
        return
    if not isinstance(preprocessing, ProblemPreprocessing):
        raise SettingError(
            f"method={method.method} is how solutions of problems are looked for, and this run learned the "
            f"{preprocessing.spec.target.column} of {preprocessing.spec.kind} data: leave it out."
        )
    if method.method in CHAINS:
        preprocessing.in_form(method.form)
        return
    kind, forms = preprocessing.kind, preprocessing.forms
    if not isinstance(kind, Branches) or kind.tree not in forms:
        raise SettingError(
            f"method={method.method} needs a run that was trained to propose steps and to value them, and this one "
            f"learned {kind.name} in the form {', '.join(forms)}: train with form=steps,tree on countdown or game24, "
            "or look for a solution by chains (greedy, sample, consistency, likelihood, verifier)."
        )
