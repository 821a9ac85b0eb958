"""Embedding of sentences as a contestant. It is run as a file, so that another checkout, which may
not have it, can run it as well."""

import json
import sys
from pathlib import Path

import bertwright as bw
from bertwright.bench.turns import Turns


def main() -> None:
    """Embed all sentences in every step, until no turn comes any more."""
    settings = json.loads(sys.argv[1])
    turns = Turns.over_standard_streams("cpu")
    model = bw.load(settings["model"])
    sentences = json.loads(Path(settings["sentences"]).read_text())
    while True:
        turns.before_step()
        model.embed(sentences, normalise=True)


if __name__ == "__main__":
    main()
