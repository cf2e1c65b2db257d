"""Names of result files by processor, for benchmarks that keep one file per processor."""

import os
import re

from gossamer.backend import choice
from gossamer.backend.loader import TITLES


def backend() -> tuple[str, bool]:
    """Return the instruction set of the kernels, and whether it is not the best of this machine."""
    names = [*choice.KERNELS, choice.TORCH]
    forced = os.environ.get(choice.VARIABLE, "auto")
    if forced == "auto":
        return names[0], False
    return forced, forced != names[0]


def short_name(processor: str) -> str:
    """Return the name of a processor without trade marks, clock rate and the word itself.

    Args:
        processor: The name of the processor, as the operating system gives it.

    Example:
        >>> short_name("Intel(R) Xeon(R) Processor @ 2.60GHz")
        'Intel Xeon'
    """
    words = re.sub(r"\(r\)|\(tm\)|@.*|\bcpu\b|\bprocessor\b", " ", processor, flags=re.I)
    return " ".join(words.split())


def slug(processor: str) -> str:
    """Return the name of a processor as a part of a file name.

    Args:
        processor: The name of the processor, as the operating system gives it.

    Example:
        >>> slug("Intel(R) Xeon(R) Processor @ 2.60GHz")
        'intel-xeon'
    """
    return "-".join(re.findall("[a-z0-9]+", short_name(processor).lower()))


def file_name(benchmark: str, processor: str) -> str:
    """Return the name of the results of a benchmark on a processor, without a suffix.

    Args:
        benchmark: The name of the benchmark.
        processor: The name of the processor, as the operating system gives it.
    """
    name, is_forced = backend()
    parts = [benchmark, slug(processor), name]
    if is_forced:
        parts.append("forced")
    return "-".join(parts)


def title(processor: str) -> str:
    """Return the processor and its instruction set in words, for a heading."""
    name, is_forced = backend()
    words = f"{short_name(processor)}, {TITLES.get(name, 'plain torch')}"
    if is_forced:
        words += " forced"
    return words
