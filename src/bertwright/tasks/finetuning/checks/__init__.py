"""Settings that do not fit the task, the model or the batches."""
