"""Models of one task held against each other as what they are shipped as: what they score, how many
bytes they have, and how long an answer takes."""
