"""Helpers for the pages of the chapters: source code of the library, interactive drawings, and a style for figures."""

from __future__ import annotations

import inspect
import os
import textwrap
from pathlib import Path
from typing import Any

from ...core.errors import SettingError
from ...draw.description import Drawing, View, table
from ...draw.html_page import render_view

# M. Okabe's and K. Ito's colours, which are distinct in any colour vision, on light and dark backgrounds.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK = "#7d848c"  # colour of axes and text: enough contrast with white and with black


class Source:
    """Source code of an object of the library, read from its file."""

    def __init__(self, *objects: Any) -> None:
        # A decorator such as torch.no_grad() returns a wrapper, whose file is torch's.
        self.objects = tuple(one if inspect.isclass(one) else inspect.unwrap(one) for one in objects)

    def __repr__(self) -> str:
        return "\n\n".join(textwrap.dedent(inspect.getsource(one)).rstrip() for one in self.objects)

    def _repr_markdown_(self) -> str:
        package = Path(__file__).parents[2]
        files = dict.fromkeys(
            Path(inspect.getsourcefile(one) or "").resolve().relative_to(package.resolve()).as_posix()
            for one in self.objects
        )
        names = ", ".join(f"`src/cutaway/{name}`" for name in files)
        return f"```python\n{self!r}\n```\n\n{names}\n"


def source(*objects: Any) -> Source:
    """Return the source code of functions, methods or classes of the library."""
    return Source(*objects)


class Frame:
    """A view in an iframe, which reacts to pointer and keyboard and has no other rights."""

    def __init__(self, view: View, height: int) -> None:
        self.view, self.height = view, height

    def __repr__(self) -> str:
        return f"Frame({self.view['title']!r})"

    def _repr_html_(self) -> str:
        return render_view(self.view, self.height)


def frame(first: Any, *more: Drawing, title: str = "", says: str = "", height: int = 480) -> Frame:
    """Return an interactive frame with a View, such as `cutaway.look(...)["boundary"]`, or with drawings of draw/ and a
    title.

    `says` is the sentence below the title. `height` in pixels is the height until it is drawn.
    """
    if "drawings" in first:
        view: Any = {**first, "title": title or first["title"], "says": says or first["says"]}
    else:
        view = View(id="drawing", title=title, says=says, summary="", table=table({}, []), drawings=[first, *more])
    return Frame(view, height)


def style() -> None:
    """Set the matplotlib style of the course: a transparent background, for light and dark pages. Raises SettingError
    if matplotlib is not installed."""
    try:
        from cycler import cycler
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise SettingError("The chapters draw with matplotlib: pip install matplotlib.") from error
    plt.rcParams.update(
        {
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
            "legend.framealpha": 0.0,
            "figure.figsize": (7.2, 3.4),
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.titlesize": 10,
            "axes.titleweight": "bold",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=COLOURS),
            "image.cmap": "PuOr",
            "svg.fonttype": "path",
            "svg.hashsalt": "cutaway",  # makes the file of a figure reproducible
            **dict.fromkeys(
                ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"),
                INK,
            ),
        }
    )
    if "inline" in plt.get_backend().lower():
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        inline: Any = set_matplotlib_formats
        inline("svg", bbox_inches="tight", metadata={"Date": None})
    elif not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))):
        plt.switch_backend("agg")
