"""The processor that a model runs on, by name."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
from pathlib import Path

from twoshift.errors import InvalidInput
from twoshift.extras import needed

__all__ = [
    "checked_device",
    "chosen_cuda",
    "cpu_device",
    "cpu_only",
    "cuda_device",
    "grouped_gpus",
    "share_threads",
    "usable_threads",
    "visible_gpus",
]

_share: list[int] = []  # of the cores, where this process shares them with others of its kind


def checked_device(device: str) -> str:
    """`auto`, `cpu`, `cuda` or `cuda:N`; raises InvalidInput."""
    if device in ("auto", "cpu") or re.fullmatch(r"cuda(:\d+)?", device):
        return device
    raise InvalidInput("device", device, "auto, cpu, cuda or cuda:N")


def cpu_only(device: str, what: str) -> None:
    """Refuse a device other than the CPU for a kind of model that runs nowhere else."""
    if checked_device(device) not in ("auto", "cpu"):
        raise InvalidInput("device", device, f"cpu or auto: {what} runs only on the CPU")


def chosen_cuda(device: str) -> str | None:
    """The GPU to use, as PyTorch names it; None for the CPU. `auto` is the first GPU that PyTorch can use."""
    if checked_device(device) == "cpu" or (device == "auto" and not _may_have_gpu()):
        return None
    torch = needed("torch", "torch", device, field="device")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = int(device.partition(":")[2] or 0)
    if index < count:
        return f"cuda:{index}"
    if device == "auto":
        return None
    gpus = "no GPU" if not count else "1 GPU" if count == 1 else f"{count} GPUs"
    seen = f"PyTorch {torch.__version__} finds {gpus}"
    raise InvalidInput("device", device, f"cpu, or a GPU that this machine has: {seen}")


def _may_have_gpu() -> bool:
    """Whether it is worth the seconds that importing PyTorch takes."""
    return importlib.util.find_spec("torch") is not None and any(Path("/dev").glob("nvidia[0-9]*"))


def visible_gpus(device: str) -> list[str]:
    """The GPUs for processes to share out, as CUDA_VISIBLE_DEVICES names them; none where one was chosen."""
    if checked_device(device) not in ("auto", "cuda") or not _may_have_gpu():
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip()]
    return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]


def grouped_gpus(gpus: list[str], each: int) -> list[str]:
    """The same for processes of several GPUs; those that are left over have none, and too few are one group."""
    groups = [",".join(gpus[at : at + each]) for at in range(0, len(gpus), each)]
    return groups if len(gpus) < each else groups[: len(gpus) // each]


def cpu_device(threads: int, *, chosen: bool = False) -> str:
    """How a profile names this CPU: `cpu: <name>, 2 threads`, or `up to 2 threads` where a call's size decides."""
    return f"cpu: {_cpu_name()}, {'up to ' * chosen}{threads} thread{'' if threads == 1 else 's'}"


def cuda_device(index: int = 0) -> str:
    """How a profile names this GPU, from the driver's own files: `cuda: NVIDIA H200`."""
    names = []
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        found = re.search(r"^Model:\s*(.+)$", file.read_text(), re.MULTILINE)
        names.append(found[1].strip() if found else "unknown")
    return f"cuda: {names[index]}" if index < len(names) else f"cuda: device {index}"


def usable_threads(threads: int | None = None) -> int:
    """The threads asked for, or as many as this process may use: its share, affinity and the container's quota."""
    if threads is not None:
        if threads < 1:
            raise InvalidInput("threads", threads, "at least 1")
        return threads
    if _share:
        return _share[0]
    affinity = getattr(os, "sched_getaffinity", None)
    usable = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(usable, _quota_threads() or usable))


def share_threads(threads: int) -> None:
    """Have models of this process use so many threads where nobody says how many; the tokenizer, too."""
    _share[:] = [threads]
    os.environ["RAYON_NUM_THREADS"] = str(threads)


def _quota_threads() -> int | None:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, int(int(quota) / int(period)))
    except (OSError, ValueError):  # no cgroup, or "max": no quota
        return None


@functools.cache
def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine() or "unknown"
