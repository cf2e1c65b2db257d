"""Run a study of a sweep: what would be shown for one run is a message or a file."""

from __future__ import annotations

import warnings
from pathlib import Path

from gossamer.errors import Diverged, GossamerError, NetworkWarning
from gossamer.study.run import run
from gossamer.study.study import Study
from gossamer.tasks import Data


def run_quietly(study: Study, path: Path, data: Data, keep_models: bool) -> str | None:
    """Run a study into a folder, without its warnings.

    Args:
        study: What to run.
        path: The run folder.
        data: The data of the study.
        keep_models: Whether the folder keeps the final models too.

    Returns:
        A message if it failed, else None; a divergence is a result.
    """
    try:
        with warnings.catch_warnings():
            # The caller has warned once, of the whole study and not of a short part of it.
            warnings.simplefilter("ignore", NetworkWarning)
            run(study, path, resume=True, data=data, keep_models=keep_models)
    except Diverged:
        return None  # the summary has the round
    except GossamerError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
