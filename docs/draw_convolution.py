"""Draw the pictures of docs/convolution.md: python docs/draw_convolution.py.

They come out of the code that they are about: a cell of normalization.svg is shaded where moving the marked entry moves
what comes out there, receptive.png is `effective_field`, and the areas of sliding.svg are `convolve` of two functions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from panels import BLUE, ORANGE, PURPLE, Panel, drawing
from PIL import Image
from torch import Tensor, nn

from cutaway.core.files import atomic_write, write_text
from cutaway.inspect.receptive_field import effective_field, gradient_extent, save_field
from cutaway.nn.normalization import batch_norm, layer_norm, local_response_norm, rms_norm
from cutaway.nn.textbook.convolution import convolve

IMAGES = Path(__file__).parent / "images"

EXAMPLES, CHANNELS, PIXELS = 3, 6, 6
ENTRY = (1, 2, 3)  # example, channel, pixel
NORMS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "Batch": ("one channel: every example, every pixel", lambda x: batch_norm(x, None, None, training=True)),
    "Layer, of maps": ("one example: every channel, every pixel", lambda x: layer_norm(x, (CHANNELS, PIXELS))),
    "Layer and RMS, of tokens": ("one place: every channel", lambda x: rms_norm(x.mT, (CHANNELS,)).mT),
    "Local response": ("one pixel: 3 neighbouring channels", lambda x: local_response_norm(x, 3, alpha=1.0)),
}

# Blue and orange of M. Okabe's and K. Ito's palette, told apart by people with any colour vision; the entry has a
# shape of its own besides.
SHARED, ALONE, MARK, INK = "#0072b2", "#e3e3e3", "#e69f00", "#222222"
CELL, GAP, MARGIN = 15, 12, 28


def shared(norm: Callable[[Tensor], Tensor]) -> Tensor:
    """Where the output moves with the marked entry, (examples, channels, pixels) of truths."""
    x = torch.randn(EXAMPLES, CHANNELS, PIXELS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = x.clone()
    moved[ENTRY] += 1
    return (norm(x) - norm(moved)).abs() > 1e-9


def text(x: float, y: float, words: str, size: int = 13, anchor: str = "start", weight: str = "normal") -> str:
    """A line of words."""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}">'
        f"{words}</text>"
    )


def panel(left: float, top: float, name: str, what: str, truths: Tensor) -> list[str]:
    """One normalization: a grid of channels by pixels for each example."""
    parts = [text(left, top, name, 16, weight="bold"), text(left, top + 19, what)]
    for n in range(EXAMPLES):
        x0, y0 = left + n * (PIXELS * CELL + GAP), top + 34
        for c in range(CHANNELS):
            for i in range(PIXELS):
                fill = SHARED if truths[n, c, i] else ALONE
                parts.append(
                    f'<rect x="{x0 + i * CELL}" y="{y0 + c * CELL}" width="{CELL - 1}" height="{CELL - 1}" '
                    f'fill="{fill}"/>'
                )
                if (n, c, i) == ENTRY:
                    middle = (x0 + (i + 0.5) * CELL - 0.5, y0 + (c + 0.5) * CELL - 0.5)
                    parts.append(
                        f'<circle cx="{middle[0]}" cy="{middle[1]}" r="{CELL * 0.36}" fill="{MARK}" stroke="{INK}"/>'
                    )
        parts.append(text(x0 + PIXELS * CELL / 2, y0 + CHANNELS * CELL + 16, f"example {n + 1}", 12, "middle"))
    return parts


def normalization() -> str:
    """The four normalizations, two by two."""
    wide = EXAMPLES * PIXELS * CELL + (EXAMPLES - 1) * GAP
    high = 34 + CHANNELS * CELL + 24
    width, height = 3 * MARGIN + 2 * wide, 2 * MARGIN + 2 * high + 82
    parts = []
    for k, (name, (what, norm)) in enumerate(NORMS.items()):
        left, top = MARGIN + (k % 2) * (wide + MARGIN), MARGIN + 14 + (k // 2) * (high + 30)
        parts += panel(left, top, name, what, shared(norm))
    foot = height - MARGIN - 14
    parts.append(f'<circle cx="{MARGIN + 6}" cy="{foot - 4}" r="{CELL * 0.36}" fill="{MARK}" stroke="{INK}"/>')
    parts.append(text(MARGIN + 18, foot, "an entry"))
    parts.append(f'<rect x="{MARGIN + 92}" y="{foot - 11}" width="14" height="14" fill="{SHARED}"/>')
    parts.append(text(MARGIN + 112, foot, "what it shares a mean, or a mean square, with"))
    parts.append(
        text(MARGIN, foot + 22, "Of each example: rows are channels, columns are pixels, or the tokens of a text.")
    )
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" role="img">\n'
        "<title>Which entries share a mean, in batch, layer, RMS and local response normalization</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n{lines}\n</svg>\n'
    )


DEPTHS, SIDE, SCALE = (5, 10, 20, 40), 85, 3


def receptive(path: Path) -> None:
    """Effective fields of networks of 5, 10, 20 and 40 rectified 3×3 convolutions, with the theoretical ones framed."""
    torch.manual_seed(0)
    inputs = torch.randn(64, 1, SIDE, SIDE)
    tiles = []
    for depth in DEPTHS:
        layers: list[nn.Module] = []
        for i in range(depth):
            conv = nn.Conv2d(1 if i == 0 else 16, 16, 3, padding=1, bias=False)
            nn.init.kaiming_normal_(conv.weight)
            layers += [conv, nn.ReLU()]
        model = nn.Sequential(*layers)
        tile = path.with_name(f".field-{depth}.png")
        extent = gradient_extent(model, (1, SIDE, SIDE))
        save_field(effective_field(model, inputs), tile, extent=extent)
        with Image.open(tile) as image:
            tiles.append(image.resize((SIDE * SCALE, SIDE * SCALE), Image.Resampling.NEAREST))
        tile.unlink()
    gap = 8
    whole = Image.new("RGB", (len(tiles) * (SIDE * SCALE + gap) - gap, SIDE * SCALE), "white")
    for k, tile_image in enumerate(tiles):
        whole.paste(tile_image, (k * (SIDE * SCALE + gap), 0))
    with atomic_write(path) as temporary:
        whole.save(temporary, format="PNG", optimize=True)


SHIFTS, REACH = (-0.5, 0.5, 1.0, 1.8), 3.0
FINE, COARSE = 1 / 512, 1 / 64  # the grids of areas and of curves


def box(t: Tensor) -> Tensor:
    """1 from 0 to 1."""
    return ((t >= 0) & (t < 1)).double()


def decay(t: Tensor) -> Tensor:
    """e^{−2t} from 0 on."""
    return torch.where(t >= 0, torch.exp(-2 * t.clamp(min=0)), 0.0)


def sliding() -> str:
    """A box f and a decaying g: g flipped, shifted by u, and multiplied by f; the area is (f ∗ g)(u)."""
    fine = torch.arange(-REACH, REACH, FINE, dtype=torch.float64)
    areas = convolve(box(fine), decay(fine), padding="full", method="fft") * FINE  # at −2 REACH, −2 REACH + FINE, …
    t = torch.arange(-1, 2.5 + COARSE, COARSE, dtype=torch.float64)
    panels = []
    for place, u in enumerate(SHIFTS):
        moved = decay(u - t)
        area = float(areas[round((u + 2 * REACH) / FINE)])
        panel = Panel(place, (-1, 2.5), (0, 1.05))
        panel.axes(f"u = {u:g}, area {area:.2f}".replace("-", "−"), (-1, 0, 1, 2), (0, 0.5, 1), "t")
        under = [(float(a), float(p)) for a, p in zip(t, box(t) * moved)]
        shape = "L".join("{} {}".format(*panel.at(a, p)) for a, p in [(-1, 0), *under, (2.5, 0)])
        panel.parts.append(f'<path d="M{shape}Z" fill="{PURPLE}" fill-opacity="0.45"/>')
        panel.curve(list(zip(t.tolist(), box(t).tolist())), BLUE)
        panel.curve(list(zip(t.tolist(), moved.tolist())), ORANGE, "6 3")
        panels.append(panel)
    x, y = panels[0].left, 346
    for words, mark in (
        ("f(t)", f'<path d="M{{x}} {{y}}h30" stroke="{BLUE}" stroke-width="2"/>'),
        ("g(u − t)", f'<path d="M{{x}} {{y}}h30" stroke="{ORANGE}" stroke-width="2" stroke-dasharray="6 3"/>'),
        ("their product, with the area (f ∗ g)(u)", f'<path d="M{{x}} {{y}}h30" stroke="{PURPLE}" stroke-width="9"/>'),
    ):
        panels[0].parts.append(mark.format(x=x, y=y - 4))
        panels[0].text(x + 38, y, words)
        x += 60 + 8 * len(words)
    return drawing("Flip, shift, multiply, area", panels, len(panels), foot=96)


if __name__ == "__main__":
    write_text(IMAGES / "normalization.svg", normalization())
    write_text(IMAGES / "sliding.svg", sliding())
    receptive(IMAGES / "receptive.png")
    print("wrote docs/images/normalization.svg, docs/images/sliding.svg and docs/images/receptive.png")
