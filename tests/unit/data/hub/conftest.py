"""A Hub on loopback."""

from hub_server import dataset_hub, hub, hub_server

__all__ = ["dataset_hub", "hub", "hub_server"]
