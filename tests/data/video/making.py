"""Real videos for tests: files by PyAV, and folders of frames."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
from PIL import Image

Frames = npt.NDArray[np.uint8]  # (T, H, W, 3)


def moving_bar(count: int = 12, height: int = 32, width: int = 48, down: bool = False, start: int = 0) -> Frames:
    """A white bar on grey that moves by two pixels a frame, to the right or down: codecs keep it well."""
    frames = np.full((count, height, width, 3), 60, np.uint8)
    for t in range(count):
        at = (start + 2 * t) % ((height if down else width) - 7)
        if down:
            frames[t, at : at + 8] = 230
        else:
            frames[t, :, at : at + 8] = 230
    return frames


def write_video(path: Path, frames: Frames, codec: str = "mpeg4") -> Path:
    """A video file of these frames; what its suffix says is what it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "gray" if codec == "ffv1" else "yuv420p"
        stream.bit_rate = 4_000_000
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return path


def write_frames(folder: Path, frames: Frames, first: int = 1) -> Path:
    """A folder of PNG files: 1.png, 2.png, … 10.png."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"{first + i}.png")
    return folder


def turn(path: Path) -> Path:
    """Ask players of an .mp4 to turn it by a quarter, as telephones do that are held upright."""
    data = bytearray(path.read_bytes())
    matrix = data.index(b"tkhd") + 4 + 40  # after the version, times, number, duration, layer and volume
    one, least = 1 << 16, (1 << 32) - (1 << 16)  # 1 and −1 with 16 binary places
    for i, value in enumerate((0, one, 0, least, 0, 0)):
        data[matrix + 4 * i : matrix + 4 * i + 4] = value.to_bytes(4, "big")
    path.write_bytes(data)
    return path
