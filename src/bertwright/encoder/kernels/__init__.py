"""The fast versions of plain definitions, each equal to its definition in a test."""
