"""Checks of the kernel's write-back of unsynced bytes, and of its report of failures.

The kernel writes the bytes that an append leaves in the page cache in the background: after
`vm.dirty_expire_centisecs`, or as soon as `vm.dirty_background_*` is passed, by threads that wake
up every `vm.dirty_writeback_centisecs`. A process that writes when `vm.dirty_*` is passed has to
wait. So these settings decide how many bytes that were only `written` a power cut loses, and how
long a sync may have to queue.

Thread-safety: pure functions of a context.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkalog.doctor.check_context import CheckContext, size_text
from kafkalog.doctor.findings import Finding, Severity
from kafkalog.files.mounts import FIRST_KERNEL, kernel_version

__all__ = [
    "check_background_threshold",
    "check_dirty_limit",
    "check_expiry",
    "check_kernel",
    "check_laptop_mode",
    "check_swapping",
    "check_writeback_interval",
]

# In older kernels the first sync of any process consumed the error, and no other process saw it.
FIRST_RELIABLE_KERNEL: Final = (4, 13)
# Four seconds of a disk that writes 1 GB/s, forty seconds at 100 MB/s.
BACKGROUND_BYTES_MAX: Final = 4 << 30
# The default of the kernel is 30 s.
EXPIRY_MS_MAX: Final = 60_000
SWAPPINESS_MAX: Final = 10

_PERMANENT: Final = "and the same line in a file of /etc/sysctl.d"


def _change(name: str, value: int) -> str:
    return f"sysctl -w vm.{name}={value}   ({_PERMANENT})"


def check_kernel(context: CheckContext) -> Iterator[Finding]:
    """Report if the kernel does not keep the error of a write-back for the next sync."""
    release = context.machine.release()
    if not context.is_linux:
        yield Finding(
            Severity.WARNING,
            "kernel.release",
            f"{context.machine.system()} {release}",
            "the meaning of a successful sync is known only for Linux; recoveries write again all"
            " bytes above the recovery point",
            "keep data that has to survive a power cut on Linux",
        )
        return
    version = kernel_version(release)
    if version is None:
        context.skip(f"the kernel's version: its release is {release!r}")
    elif version < FIRST_RELIABLE_KERNEL:
        yield Finding(
            Severity.ERROR,
            "kernel.release",
            f"Linux {release}",
            "before Linux 4.13 the error of a failed write-back is reported only once, to the"
            " process that syncs first: a durable append may be confirmed that the disk has lost",
            "run Linux 4.17 or newer",
        )
    elif version < FIRST_KERNEL:
        yield Finding(
            Severity.WARNING,
            "kernel.release",
            f"Linux {release}",
            "before Linux 4.17 an error from before a file was opened is not reported: a recovery"
            " writes again all bytes above the recovery point, as if every sync had failed",
            "run Linux 4.17 or newer",
        )


def check_background_threshold(context: CheckContext) -> Iterator[Finding]:
    """Report if much may be dirty before the kernel begins to write."""
    threshold = _threshold(context, "dirty_background_bytes", "dirty_background_ratio")
    if threshold is None:
        return
    size, shown = threshold
    if size > BACKGROUND_BYTES_MAX:
        yield Finding(
            Severity.WARNING,
            "vm.dirty_background",
            f"write-back begins at {size_text(size)} of dirty pages ({shown})",
            "it then comes in bursts, and every durable append and flush on that disk waits for"
            " it; a power cut takes up to that much of what was appended with wait='written'",
            _change("dirty_background_bytes", 512 << 20),
        )


def check_dirty_limit(context: CheckContext) -> Iterator[Finding]:
    """Report if writers are stopped long before, or when, write-back begins."""
    background = _threshold(context, "dirty_background_bytes", "dirty_background_ratio")
    limit = _threshold(context, "dirty_bytes", "dirty_ratio")
    if background is None or limit is None:
        return
    if background[0] >= limit[0]:
        yield Finding(
            Severity.WARNING,
            "vm.dirty_limit",
            f"writers are made to wait at {size_text(limit[0])} of dirty pages ({limit[1]}), and"
            f" write-back in the background begins no earlier ({background[1]})",
            "the kernel then takes half of the limit for the background; what was meant by the"
            " settings does not happen, and appends stop for write-back",
            _change("dirty_bytes", 4 * background[0]),
        )


def check_expiry(context: CheckContext) -> Iterator[Finding]:
    """Report how long bytes may wait for the disk without a sync."""
    expiry = context.kernel_setting("dirty_expire_centisecs")
    if expiry is not None and expiry * 10 > EXPIRY_MS_MAX:
        yield Finding(
            Severity.WARNING,
            "vm.dirty_expire",
            f"vm.dirty_expire_centisecs = {expiry}: dirty pages may wait {expiry / 100:g} s",
            "a power cut takes what was appended with wait='written' in that time and more",
            f"{_change('dirty_expire_centisecs', 3000)}, or set flush.ms for the topics",
        )


def check_writeback_interval(context: CheckContext) -> Iterator[Finding]:
    """Report if dirty pages are not written by age."""
    if context.kernel_setting("dirty_writeback_centisecs") == 0:
        yield Finding(
            Severity.ERROR,
            "vm.dirty_writeback",
            "vm.dirty_writeback_centisecs = 0: no thread writes old dirty pages",
            "what was appended with wait='written' may stay in memory for ever, and a power cut"
            " takes it however old it is",
            _change("dirty_writeback_centisecs", 500),
        )


def check_laptop_mode(context: CheckContext) -> Iterator[Finding]:
    """Report if writes are delayed to let a disk sleep."""
    # Newer kernels do not have the setting.
    if context.optional_setting("laptop_mode"):
        yield Finding(
            Severity.WARNING,
            "vm.laptop_mode",
            "vm.laptop_mode is on",
            "write-back is delayed until something else wakes the disk, and then all of it comes"
            " at once",
            _change("laptop_mode", 0),
        )


def check_swapping(context: CheckContext) -> Iterator[Finding]:
    """Report if the kernel may swap the process out to keep pages of files."""
    swappiness = context.kernel_setting("swappiness")
    swap = context.memory_bytes("SwapTotal")
    if swappiness is None or not swap:
        return
    if swappiness > SWAPPINESS_MAX:
        yield Finding(
            Severity.WARNING,
            "vm.swappiness",
            f"vm.swappiness = {swappiness}, with {size_text(swap)} of swap",
            "a log fills the page cache; the kernel then swaps out memory of the process that"
            " writes it, and an append waits for the disk to get that back",
            _change("swappiness", 1),
        )


def _threshold(context: CheckContext, name: str, ratio_name: str) -> tuple[int, str] | None:
    """Return a threshold in bytes and the setting it comes from; None if it is unknown."""
    size = context.kernel_setting(name)
    if size is None:
        return None
    if size:
        return size, f"vm.{name} = {size}"
    ratio = context.kernel_setting(ratio_name)
    # The kernel applies the ratio to available memory: free memory and page cache.
    memory = context.memory_bytes("MemAvailable")
    if ratio is None or memory is None:
        return None
    return memory * ratio // 100, f"vm.{ratio_name} = {ratio} of {size_text(memory)}"
