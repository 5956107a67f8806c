"""Where else the numbers go: ``rankup.init(log="csv,tensorboard")``, ``rankup train --log``. On rank 0 alone.

| module | what |
|---|---|
| ``base`` | the protocol, and the table of names |
| ``earlier`` | what earlier attempts told, and the ids of W&B and MLflow |
| ``csv_log`` | ``metrics.csv`` in the run directory |
| ``tensorboard_log`` | TensorBoard's event files |
| ``wandb_log`` | W&B; offline unless the user says otherwise |
| ``mlflow_log`` | MLflow; a file store unless the user has a server |
"""
