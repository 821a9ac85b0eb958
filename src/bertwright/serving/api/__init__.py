"""The endpoints of the server, by protocol."""
