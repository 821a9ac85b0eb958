"""From a model and a goal to what is shipped: the largest that is small and fast enough."""
