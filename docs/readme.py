"""Writes into README.md what the quickstart printed and drew, from the folder that it left.

python docs/readme.py [quickstart]
"""

import shutil
import sys
from pathlib import Path

from bertwright.files import write_text

ROOT = Path(__file__).parents[1]
README, PICTURE = ROOT / "README.md", Path("docs/pictures/quickstart.png")
BEGIN, END = "<!-- quickstart: written by docs/readme.py -->", "<!-- end of quickstart -->"


def section(printed: str) -> str:
    """The section for what was printed."""
    return f"""{BEGIN}

![Left: the loss of pre-training falls below the unigram entropy. Right: macro F1 of restoring
punctuation and capitals, of the trained encoder and of what it is compared with.]({PICTURE})

Training hides more than evaluation does, and in the end whole words: so the dots of the held-out
text lie below the line.

## Quickstart

One command, no data to download. The text is the documentation that Python and its packages bring
along; a part of its documents is held out, and the task is made of that part. It needs Python 3.11,
make and g++, leaves everything in `quickstart/`, and takes under ten minutes on two cores,
installation included where pip has its packages at hand.

```console
$ make quickstart
{printed.strip()}
```

Losses are in nats; the unigram entropy is what a model reaches that knows how frequent pieces are,
and nothing else; macro F1 is the mean over the marks and capitals of how well each is restored. The
trained encoder lies in `quickstart/encoder`:
`.venv/bin/bertwright fill-mask quickstart/encoder "This [MASK] returns a list."` asks it.

{END}"""


def main(folder: Path) -> None:
    """Rewrite the section, and copy the picture."""
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    printed = (folder / "output.txt").read_text(encoding="utf-8")
    (ROOT / PICTURE).parent.mkdir(exist_ok=True)
    shutil.copyfile(folder / "quickstart.png", ROOT / PICTURE)
    write_text(README, before + section(printed) + after)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "quickstart"))
