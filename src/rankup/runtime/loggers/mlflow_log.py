"""MLflow: a file store in ``mlruns/`` of the run directory, unless ``MLFLOW_TRACKING_URI`` names a server."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.runtime.loggers.earlier import EarlierAttempts


class MlflowLog:
    """All attempts are one run of MLflow."""

    def __init__(self, folder: Path, facts: Mapping[str, Any], earlier: EarlierAttempts) -> None:
        from mlflow.tracking import MlflowClient

        # MLflow 3.7 and later want this said before they write files.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        uri = os.environ.get("MLFLOW_TRACKING_URI") or (folder.absolute() / "mlruns").as_uri()
        self._client = MlflowClient(tracking_uri=uri)
        self._earlier = earlier
        self._run = self._resumed() or self._created(folder, facts)
        earlier.keep("mlflow", self._run)
        # A parameter is written once: those of the first attempt stay, also if another has more GPUs.
        written = self._client.get_run(self._run).data.params
        for key, value in facts.items():
            if key not in written:
                self._client.log_param(self._run, key, str(value)[:500])

    def _resumed(self) -> str | None:
        """The run of the earlier attempts, None if this is the first, or if they had another server."""
        from mlflow.exceptions import MlflowException

        ident = self._earlier.ident("mlflow")
        if ident is None:
            return None
        try:
            self._client.update_run(ident, status="RUNNING")
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        return ident

    def _created(self, folder: Path, facts: Mapping[str, Any]) -> str:
        experiment = self._client.get_experiment_by_name("rankup")
        ident = experiment.experiment_id if experiment else self._client.create_experiment("rankup")
        name = "-".join(filter(None, (folder.name, facts.get("training"))))
        return str(self._client.create_run(ident, run_name=name).info.run_id)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in self._earlier.untold(step, metrics).items():
            self._client.log_metric(self._run, re.sub(r"[^\w\-. /]", "_", name), value, step=step)

    def drop_after(self, step: int) -> None:
        """MLflow takes nothing back that it has got: what was told stays."""

    def close(self) -> None:
        self._client.set_terminated(self._run)
