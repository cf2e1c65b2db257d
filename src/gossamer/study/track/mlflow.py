"""MLflow: one run per run, one experiment per comparison."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer._core.arguments import checked
from gossamer.errors import InputError, MissingExtra
from gossamer.study.track.base import Status, Tracker, keep_run_id, run_id, run_name, settings

if TYPE_CHECKING:
    from gossamer.study.study import Study

_TELEMETRY = "MLFLOW_DISABLE_TELEMETRY"
_BATCH = 100  # params that a store accepts at once
# MLflow's own words for the status of a run.
_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "diverged": "FAILED", "failed": "FAILED"}


@checked
class MLflow(Tracker):
    """Write the measurements of runs to an MLflow store.

    The store is MLflow's own choice: `MLFLOW_TRACKING_URI`, else the file `mlflow.db` of the
    current folder. MLflow reports usage statistics to its makers when it is imported; unless it
    has been imported before or `MLFLOW_DISABLE_TELEMETRY` is set, this class switches them off.

    Args:
        experiment: The experiment; else `MLFLOW_EXPERIMENT_NAME`, else the study's name, which the
            methods and seeds of a comparison share.
        uri: The store, such as "http://host:5000" or "sqlite:///fleet.db"; else MLflow's choice.
        tags: Tags of every run, beside `method`, `seed` and `status`.

    Raises:
        MissingExtra: If MLflow is not installed.
        InputError: If MLflow cannot open the store.

    Example:
        >>> import gossamer as gs
        >>> board = gs.MLflow("fleet", tags={"season": "winter"})              # doctest: +SKIP
        >>> gs.run(gs.Study(), "runs/demo", observers=[board])                 # doctest: +SKIP
    """

    name = "mlflow"

    def __init__(
        self,
        experiment: str | None = None,
        *,
        uri: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        try:
            with _without_telemetry():
                from mlflow import MlflowClient, get_tracking_uri
                from mlflow.exceptions import MlflowException
        except ImportError:
            raise MissingExtra("mlflow", "MLflow") from None
        self._error: type[Exception] = MlflowException
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        self._tags = dict(tags or {})
        self._uri = uri or get_tracking_uri()
        try:
            self._client: Any = MlflowClient(tracking_uri=self._uri)
        except MlflowException as error:
            if self._uri.startswith("sqlite:") and find_spec("sqlalchemy") is None:
                raise MissingExtra("mlflow", "sqlalchemy, for the local store of MLflow,") from None
            reason = str(error).strip().split(". ")[0]
            accepted = f"the address of a store that MLflow can open ({reason})"
            field = "MLFLOW_TRACKING_URI"
            if uri:
                field = "uri"
            raise InputError(field, self._uri, accepted) from None
        self._written = ""  # name of the experiment

    @property
    def note(self) -> str:
        """One sentence that says where the runs are."""
        if not self._written:
            return "MLflow: nothing was written"
        return f"MLflow: experiment {self._written!r} of {self._uri}"

    def open(self, study: Study, folder: Path | None) -> int:
        """Start a run of MLflow, or continue that of the run folder.

        Args:
            study: The study.
            folder: The run folder, if there is one.

        Returns:
            The last round that the store holds of a run that continues; else -1.
        """
        self._written = self._experiment or study.name
        earlier = run_id(folder, self.name)
        if earlier is not None and self._continues(earlier):
            self._run = earlier
            return self._last_step()
        tags = {"method": study.algorithm.label, "seed": str(study.seed), **self._tags}
        created = self._client.create_run(
            self._experiment_id(self._written), run_name=run_name(study, folder), tags=tags
        )
        self._run = created.info.run_id
        keep_run_id(folder, self.name, self._run)
        self._log_params(settings(study))
        return -1

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write one measurement.

        Args:
            values: The measured values by name.
            step: The round.
        """
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = []
        for name, value in values.items():
            metrics.append(Metric(name, value, now, step))
        self._client.log_batch(self._run, metrics=metrics)

    def close(self, summary: Mapping[str, Any], status: Status) -> None:
        """Write the summary and the status, and end the run.

        Args:
            summary: The results by name; numbers become metrics, the rest tags.
            status: How the run ended.
        """
        from mlflow.entities import Metric, RunTag

        now = int(time.time() * 1000)
        metrics = []
        tags = [RunTag("status", status)]
        for name, value in summary.items():
            key = f"summary/{_key(name)}"
            if isinstance(value, bool | str):
                tags.append(RunTag(key, str(value)))
            else:
                metrics.append(Metric(key, value, now, 0))
        self._client.log_batch(self._run, metrics=metrics, tags=tags)
        self._client.set_terminated(self._run, _STATUS[status])

    def _experiment_id(self, name: str) -> str:
        """Return the id of an experiment, which is created if it is new."""
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(name))

    def _continues(self, run: str) -> bool:
        """Mark a run as running again; False if this store does not hold it."""
        try:
            self._client.update_run(run, status="RUNNING")
        except self._error:
            return False
        return True

    def _last_step(self) -> int:
        """Return the last round that the store holds of the run; -1 if it holds none."""
        last = -1
        for metric in self._client.get_metric_history(self._run, "loss/mean"):
            last = max(last, metric.step)
        return last

    def _log_params(self, table: Mapping[str, Any]) -> None:
        """Write the settings, as many at a time as a store accepts."""
        from mlflow.entities import Param

        params = []
        for name, value in table.items():
            params.append(Param(_key(name), str(value)))
        for begin in range(0, len(params), _BATCH):
            self._client.log_batch(self._run, params=params[begin : begin + _BATCH])


def _key(name: str) -> str:
    """Return a name in the letters that MLflow accepts.

    Example:
        >>> _key("rounds_to.accuracy >= 0.8")
        'rounds_to.accuracy ge 0.8'
    """
    return name.replace(">=", "ge").replace("<=", "le")


@contextmanager
def _without_telemetry() -> Iterator[None]:
    """Switch MLflow's usage statistics off while it is imported, unless the user has chosen."""
    if _TELEMETRY in os.environ:
        yield
        return
    os.environ[_TELEMETRY] = "true"
    try:
        yield
    finally:
        del os.environ[_TELEMETRY]
