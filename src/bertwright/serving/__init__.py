"""Models behind an address: requests are read, refused or queued, computed in batches, answered."""
