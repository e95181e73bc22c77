"""What the machine is, and where its CPU time goes."""

from __future__ import annotations

import fcntl
import os
import platform
import sqlite3
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

TICKS = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
QUIET = 0.03
"""The share of the machine that others may take before a run is noisy and made again."""


class Sample(msgspec.Struct):
    """CPU seconds at one moment: of groups of processes, of ourselves, and of the whole machine."""

    at: float
    groups: dict[str, float]
    own: float
    machine: float


class Usage(msgspec.Struct):
    """CPU seconds between two samples. `foreign` is the share of the machine that others took."""

    seconds: float
    groups: dict[str, float]
    own: float
    foreign: float


def sample(groups: dict[str, int]) -> Sample:
    """`groups` names process trees by their root."""
    stats = _stats()
    return Sample(
        time.time(),
        {name: sum(stats[pid][1] for pid in _tree(root, stats)) for name, root in groups.items()},
        time.process_time(),
        _machine(),
    )


def usage(before: Sample, after: Sample, others: float = 0.0) -> Usage:
    """`others` are CPU seconds of our processes that are in no group."""
    seconds = after.at - before.at
    groups = {name: after.groups[name] - before.groups[name] for name in before.groups}
    own = after.own - before.own
    foreign = after.machine - before.machine - sum(groups.values()) - own - others
    return Usage(seconds, groups, own, max(0.0, foreign / (seconds * CORES)))


def await_quiet(share: float, patience_s: float, window_s: float = 0.5) -> None:
    """Wait, while nothing of ours is at work, until others take less than `share` of the machine."""
    deadline = time.monotonic() + patience_s
    before = sample({})
    while time.monotonic() < deadline:
        time.sleep(window_s)
        after = sample({})
        if usage(before, after).foreign <= share:
            return
        before = after


def memory_mb(pid: int) -> float:
    """Resident memory of a process tree."""
    total = 0
    for member in _tree(pid, _stats()):
        for line in Path(f"/proc/{member}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total / 1024


def child_named(name: str) -> int:
    """Our own child process that runs `name`."""
    for pid, (parent, _) in _stats().items():
        if parent == os.getpid() and Path(f"/proc/{pid}/comm").read_text().strip() == name:
            return pid
    raise LookupError(f"no child process is called {name}")


def describe(postgres: Path | None) -> dict[str, str | int | float]:
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    facts: dict[str, str | int | float] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": model[0].partition(":")[2].strip() if model else platform.machine(),
        "cores": CORES,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "synced_writes_per_s": round(_synced_writes()),
    }
    for package in ("inver", "uvloop", "httptools", "msgspec", "asyncpg"):
        facts[package] = version(package)
    if postgres is not None:
        shown = subprocess.run([postgres / "postgres", "--version"], capture_output=True, text=True)
        facts["postgresql"] = shown.stdout.strip().rpartition(") ")[2].split()[0]
    return facts


def _synced_writes(seconds: float = 0.5) -> float:
    """How often the disk confirms 8 KB that overwrite others: no commit of a lone client is faster."""
    block = bytes(8192)
    count = 0
    with tempfile.TemporaryFile(prefix="inver-bench-") as file:
        os.pwrite(file.fileno(), block, 0)
        os.fsync(file.fileno())
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            os.pwrite(file.fileno(), block, 0)
            os.fdatasync(file.fileno())
            count += 1
    return count / elapsed


def _stats() -> dict[int, tuple[int, float]]:
    """Parent and CPU seconds of every process; those of reaped children are their parent's."""
    found: dict[int, tuple[int, float]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                text = Path(f"/proc/{entry.name}/stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            fields = text.rpartition(")")[2].split()
            found[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / TICKS)
    return found


def _tree(root: int, stats: dict[int, tuple[int, float]]) -> Iterable[int]:
    members = {root} & stats.keys()
    while True:
        more = {pid for pid, (parent, _) in stats.items() if parent in members} - members
        if not more:
            return members
        members |= more


def _machine() -> float:
    """Interrupts are left out: most of them carry our own packets."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, _irq, _softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + steal) / TICKS


_GET_FLAGS, _SET_FLAGS, _TOP = 0x80086601, 0x40086602, 0x20000


def spread(folder: Path) -> None:
    """Let folders made here lie where nobody has lately removed files, on file systems that can be told so.

    An ext4 without a journal looks at every file that was removed around a new one in the last minutes.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        flags = struct.unpack("l", fcntl.ioctl(handle, _GET_FLAGS, struct.pack("l", 0)))[0]
        fcntl.ioctl(handle, _SET_FLAGS, struct.pack("l", flags | _TOP))
    except OSError:
        pass
    finally:
        os.close(handle)
