"""Warnings about studies that can be run, but look like a mistake."""

from __future__ import annotations

import warnings

from gossamer.errors import NetworkWarning
from gossamer.network.sparsity import few_links
from gossamer.study.study import Study


def warn_of_few_links(study: Study) -> list[str]:
    """Warn if the devices of a study have fewer than one link each in the whole run.

    Methods that use no links, such as all-reduce and those with a server, give no warning. It is
    attributed to the caller of the function that calls this one.

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
    warnings.warn(text, NetworkWarning, stacklevel=3)
    return [text]
