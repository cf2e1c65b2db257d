"""Weights & Biases: one run per run, one group per comparison."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer._core.arguments import checked
from gossamer.errors import MissingExtra
from gossamer.study.track.base import Status, Tracker, keep_run_id, run_id, run_name, settings

if TYPE_CHECKING:
    from gossamer.study.study import Study

_PROJECT = "gossamer"
_LONGEST_TAG = 64  # characters that wandb accepts
# Progress bars are no log; and a run that the user has open in the same process stays open.
_SETTINGS: dict[str, Any] = {"console": "off", "reinit": "create_new"}


@checked
class WandB(Tracker):
    """Write the measurements of runs for Weights & Biases.

    Nothing is sent unless you ask for it: runs are written to the folder `wandb`, and
    `wandb sync` uploads them. Set `mode="online"`, or the environment variable `WANDB_MODE`, to
    upload while the run goes. The other environment variables of wandb apply too: `WANDB_PROJECT`,
    `WANDB_RUN_GROUP`, `WANDB_TAGS`, `WANDB_ENTITY`, `WANDB_DIR`.

    Args:
        project: The project; else `WANDB_PROJECT`, else "gossamer".
        group: The group; else `WANDB_RUN_GROUP`, else the study's name, which the methods and
            seeds of a comparison share.
        tags: Tags beside the label of the method.
        mode: "offline" or "online"; else `WANDB_MODE`, else "offline".
        **options: Other arguments of `wandb.init`, such as `entity` and `notes`.

    Raises:
        MissingExtra: If wandb is not installed.

    Example:
        >>> import gossamer as gs
        >>> board = gs.WandB(project="fleet", tags=["winter"])                 # doctest: +SKIP
        >>> gs.run(gs.Study(), "runs/demo", observers=[board])                 # doctest: +SKIP
    """

    name = "wandb"

    def __init__(
        self,
        project: str | None = None,
        *,
        group: str | None = None,
        tags: Sequence[str] = (),
        mode: str | None = None,
        **options: Any,
    ) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtra("wandb", "Weights & Biases") from None
        self._wandb: Any = wandb
        self._project = _chosen(project, "WANDB_PROJECT", _PROJECT)
        self._group = group
        self._tags = tuple(tags)
        self._mode: Any = _chosen(mode, "WANDB_MODE", "offline")
        self._options = options
        self._folders: list[Path] = []
        self._url: str | None = None

    @property
    def note(self) -> str:
        """One sentence that says where the runs are, and how to upload those that are offline."""
        if self._url is not None:
            return f"wandb: {self._url}"
        if not self._folders:
            return "wandb: nothing was written"
        place = os.path.relpath(self._folders[0].parent)
        return f"wandb: written offline; `wandb sync {place}/offline-run-*` uploads it"

    def open(self, study: Study, folder: Path | None) -> int:
        """Start a run of wandb, or continue that of the run folder.

        Args:
            study: The study.
            folder: The run folder, if there is one.

        Returns:
            The last round that the server holds of a run that continues; else -1.
        """
        options = dict(self._options)
        more = dict(options.pop("settings", {}))
        self._run = self._wandb.init(
            project=self._project,
            group=_chosen(self._group, "WANDB_RUN_GROUP", study.name),
            name=run_name(study, folder),
            id=run_id(folder, self.name),
            resume="allow",
            mode=self._mode,
            config=settings(study),
            settings=self._wandb.Settings(**(_SETTINGS | more)),
            **options,
        )
        label = study.algorithm.label[:_LONGEST_TAG]
        self._run.tags = (*(self._run.tags or ()), label, *self._tags)
        keep_run_id(folder, self.name, self._run.id)
        if not self._run.offline:
            self._url = self._run.url
        self._folders.append(Path(self._run.dir).parent)
        return int(self._run.step) - 1

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write one measurement.

        Args:
            values: The measured values by name.
            step: The round.
        """
        self._run.log(dict(values), step=step)

    def close(self, summary: Mapping[str, Any], status: Status) -> None:
        """Write the summary and finish the run; one that did not finish is marked as failed.

        Args:
            summary: The results by name.
            status: How the run ended.
        """
        self._run.summary.update({**summary, "status": status})
        self._run.finish(exit_code=int(status != "finished"))


def _chosen(given: str | None, variable: str, default: str) -> str | None:
    """Return what was given or the default; None if wandb reads it from the environment."""
    if given is not None:
        return given
    if os.environ.get(variable):
        return None
    return default
