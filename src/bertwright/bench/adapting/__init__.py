"""Ways to adapt held against each other: encoders x tasks x ways x seeds, in one table."""
