"""From a model to a smaller one."""
