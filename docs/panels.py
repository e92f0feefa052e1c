"""Charts side by side in one SVG, as the pages' pictures of results have them."""

from __future__ import annotations

from collections.abc import Sequence

INK, FAINT, GRID = "#222222", "#999999", "#e3e3e3"
# M. Okabe's and K. Ito's palette, told apart by people with any colour vision.
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
WIDE, HIGH, LEFT, TOP, GAP = 250, 210, 44, 58, 62

Points = Sequence[tuple[float, float]]


class Panel:
    """A chart from x0 to x1 and from y0 to y1."""

    def __init__(self, place: int, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.left, self.x, self.y = LEFT + place * (WIDE + GAP), x, y
        self.parts: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point is, in pixels."""
        across, up = (x - self.x[0]) / (self.x[1] - self.x[0]), (y - self.y[0]) / (self.y[1] - self.y[0])
        return round(self.left + across * WIDE, 1), round(TOP + (1 - up) * HIGH, 1)

    def axes(self, title: str, xs: Sequence[float], ys: Sequence[float], below: str) -> None:
        """The title, and lines at these places."""
        self.text(self.left, TOP - 18, title, weight="bold", size=15)
        for y in ys:
            a, b = self.at(self.x[0], y), self.at(self.x[1], y)
            self.parts.append(f'<path d="M{a[0]} {a[1]}H{b[0]}" stroke="{GRID}"/>')
            self.text(a[0] - 6, a[1] + 4, f"{y:g}".replace("-", "−"), anchor="end", size=11)
        for x in xs:
            a = self.at(x, self.y[0])
            self.text(a[0], TOP + HIGH + 16, f"{x:g}".replace("-", "−"), anchor="middle", size=11)
        self.text(self.left + WIDE / 2, TOP + HIGH + 33, below, anchor="middle", size=12)

    def text(
        self, x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, weight: str = "normal"
    ) -> None:
        """A line of words."""
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}">'
            f"{words}</text>"
        )

    def curve(self, points: Points, colour: str, dashes: str = "", width: float = 2) -> None:
        """A line through the points, which ends where it leaves the chart."""
        inside = [self.at(x, min(max(y, self.y[0]), self.y[1])) for x, y in points]
        path = "L".join(f"{x} {y}" for x, y in inside)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def mark(self, x: float, y: float, colour: str) -> None:
        """A dot."""
        across, down = self.at(x, y)
        self.parts.append(f'<circle cx="{across}" cy="{down}" r="3.5" fill="{colour}" stroke="#ffffff"/>')


def drawing(title: str, panels: Sequence[Panel], count: int, foot: int = 84) -> str:
    """The SVG of panels, `count` of them side by side."""
    width, height = LEFT + count * WIDE + (count - 1) * GAP + 16, TOP + HIGH + foot
    parts = "\n".join(part for panel in panels for part in panel.parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" role="img">\n'
        f"<title>{title}</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n{parts}\n</svg>\n'
    )
