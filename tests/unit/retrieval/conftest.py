"""Files that need not survive the machine."""

import pytest


@pytest.fixture(autouse=True)
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk, to which every segment is flushed."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
