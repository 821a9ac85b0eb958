"""The verb of the server."""
