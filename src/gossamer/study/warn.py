"""Warnings about studies that can be run, but look like a mistake."""

from __future__ import annotations

from gossamer._core.warn import warn_user
from gossamer.errors import NetworkWarning
from gossamer.network.sparsity import few_links
from gossamer.study.study import Study


def warn_of_few_links(study: Study) -> list[str]:
    """Warn if the devices of a study have fewer than one link each in the whole run.

    Methods that use no links, such as all-reduce and those with a server, give no warning.

    Args:
        study: The study.

    Returns:
        The warnings as sentences, for the summary of the run; usually none.
    """
    if study.algorithm.weights.sums == "nothing":
        return []
    text = few_links(study.network, study.rounds)
    if text is None:
        return []
    warn_user(text, NetworkWarning)
    return [text]
