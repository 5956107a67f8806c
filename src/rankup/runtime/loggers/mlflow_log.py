"""MLflow: a file store in ``mlruns/`` of the run directory, unless ``MLFLOW_TRACKING_URI`` names a server."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class MlflowLog:
    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        from mlflow.tracking import MlflowClient

        # MLflow 3.7 and later want this said before they write files.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        uri = os.environ.get("MLFLOW_TRACKING_URI") or (folder.absolute() / "mlruns").as_uri()
        self._client = MlflowClient(tracking_uri=uri)
        name = "rankup"
        experiment = self._client.get_experiment_by_name(name)
        ident = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self._run = self._client.create_run(ident, run_name=folder.name).info.run_id
        for key, value in facts.items():
            self._client.log_param(self._run, key, str(value)[:500])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._client.log_metric(self._run, re.sub(r"[^\w\-. /]", "_", name), value, step=step)

    def drop_after(self, step: int) -> None:
        """Each attempt is a run of its own there."""

    def close(self) -> None:
        self._client.set_terminated(self._run)
