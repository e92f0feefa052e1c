"""What a training costs: joules from a folder laid out as Linux has it, and memory."""

from __future__ import annotations

import mmap
import os
import sys
import time
from pathlib import Path

import pytest

from cutaway.experiments import cost
from cutaway.experiments.cost import EnergyMeter, read_counters

RANGE = 262_143_328_850  # microjoules: what a common processor has


def zone(root: Path, path: str, name: str, value: int, ends: int = RANGE) -> Path:
    """A zone in /sys/devices, and where it is a top one or a part, the link to it in /sys/class/powercap."""
    folder = root / "devices" / path
    folder.mkdir(parents=True)
    for file, said in (("name", name), ("energy_uj", value), ("max_energy_range_uj", ends), ("enabled", 1)):
        (folder / file).write_text(f"{said}\n")
    link = root / "powercap" / folder.name
    link.symlink_to(folder, target_is_directory=True)
    return link


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    """Two processors with parts, their memory, the whole machine, and the second interface to the first processor."""
    root = tmp_path / "powercap"
    root.mkdir()
    for control in ("intel-rapl", "intel-rapl-mmio"):
        (root / control).mkdir()
        (root / control / "enabled").write_text("1\n")
    zone(tmp_path, "intel-rapl/intel-rapl:0", "package-0", 1_000_000)
    zone(tmp_path, "intel-rapl/intel-rapl:0/intel-rapl:0:0", "core", 600_000)
    zone(tmp_path, "intel-rapl/intel-rapl:0/intel-rapl:0:1", "uncore", 50_000)
    zone(tmp_path, "intel-rapl/intel-rapl:0/intel-rapl:0:2", "dram", 200_000, 65_712_999_613)
    zone(tmp_path, "intel-rapl/intel-rapl:1", "package-1", RANGE - 500_000)
    zone(tmp_path, "intel-rapl/intel-rapl:2", "psys", 9_000_000)
    zone(tmp_path, "intel-rapl-mmio/intel-rapl-mmio:0", "package-0", 1_000_000)
    return root


def use(powercap: Path, **joules: float) -> None:
    """Count on, beginning anew after the range."""
    for key, more in joules.items():
        folder = powercap / f"intel-rapl:{key[1:].replace('_', ':')}"
        ends = int((folder / "max_energy_range_uj").read_text())
        value = int((folder / "energy_uj").read_text()) + round(1e6 * more)
        (folder / "new").write_text(f"{value % ends}\n")
        (folder / "new").replace(folder / "energy_uj")  # at once, as the kernel does


def test_packages_and_memory_are_counted_once(powercap: Path) -> None:
    assert list(read_counters(powercap)) == ["intel-rapl:0", "intel-rapl:0:2", "intel-rapl:1"]
    with EnergyMeter(powercap) as meter:
        use(powercap, z0=20.0, z0_0=15.0, z0_1=1.0, z0_2=3.0, z1=0.25, z2=30.0)
    assert meter.joules == pytest.approx(23.25)


def test_a_counter_that_begins_anew_counts_on(powercap: Path) -> None:
    with EnergyMeter(powercap) as meter:
        use(powercap, z1=2.0)  # its counter was half a joule from the end
    assert meter.joules == pytest.approx(2.0)


def test_a_counter_that_begins_anew_more_than_once_is_read_in_between(powercap: Path) -> None:
    with EnergyMeter(powercap, every=0.002) as meter:
        for _ in range(3):
            before = meter._last
            use(powercap, z0=0.6 * RANGE / 1e6)
            end = time.monotonic() + 10
            while meter._last == before and time.monotonic() < end:
                time.sleep(0.002)
    assert meter.joules == pytest.approx(1.8 * RANGE / 1e6)


def test_what_may_not_be_read_is_not_told(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux lets root alone read counters, since they tell what others compute; half of a sum would be a lie."""
    (powercap / "intel-rapl:1" / "energy_uj").chmod(0)
    if os.geteuid() == 0:  # whom no mode stops
        read = Path.read_text

        def denied(path: Path, *args: object, **how: object) -> str:
            if not path.stat().st_mode & 0o444:
                raise PermissionError(13, "Permission denied", str(path))
            return read(path)

        monkeypatch.setattr(Path, "read_text", denied)
    assert read_counters(powercap) == {}
    with EnergyMeter(powercap) as meter:
        use(powercap, z0=20.0)
    assert meter.joules is None


def test_a_machine_without_counters_tells_nothing(powercap: Path, tmp_path: Path) -> None:
    with EnergyMeter(tmp_path / "none") as meter:
        pass
    assert meter.joules is None
    (powercap / "intel-rapl:0" / "energy_uj").write_text("none\n")
    assert read_counters(powercap) == {}


def test_a_zone_that_goes_away_takes_the_sum_with_it(powercap: Path) -> None:
    with EnergyMeter(powercap) as meter:
        (powercap / "intel-rapl:1").unlink()
    assert meter.joules is None


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells its processes' memory on Linux alone")
def test_memory_is_what_was_held_at_most() -> None:
    before = cost.reset_peak_memory()
    assert before is not None
    with mmap.mmap(-1, 64 << 20) as block:  # pages that no allocator has had before
        block[:: mmap.PAGESIZE] = bytes((64 << 20) // mmap.PAGESIZE)  # touched, each
    most = cost.peak_memory_since(before)
    assert most is not None
    assert 60 << 20 < most < 100 << 20
    cost.reset_peak_memory()
    assert (cost.peak_memory_since(before) or 0) < most
