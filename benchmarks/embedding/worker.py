"""Worker process that embeds sentences.

It is run as a file, so that a checkout without this module can run it, too.
"""

import json
import sys
from pathlib import Path

import bertwright as bw
from bertwright.timing.interleaved import StepTimer


def main() -> None:
    """Embed all sentences in every step, until the process is stopped."""
    settings = json.loads(sys.argv[1])
    timer = StepTimer.from_standard_streams("cpu")
    model = bw.load(settings["model"])
    sentences = json.loads(Path(settings["sentences"]).read_text())
    while True:
        timer.before_step()
        model.embed(sentences, normalise=True)


if __name__ == "__main__":
    main()
