"""Questions asked of a text: one file each."""
