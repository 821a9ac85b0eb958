"""Write the output and the plot of the quickstart into README.md.

python docs/readme.py [quickstart]
"""

import shutil
import sys
from pathlib import Path

from bertwright.core.files import write_text

ROOT = Path(__file__).parents[1]
README, PICTURE = ROOT / "README.md", Path("docs/pictures/quickstart.png")
BEGIN, END = "<!-- quickstart: written by docs/readme.py -->", "<!-- end of quickstart -->"


def section(printed: str) -> str:
    """Return the section for the output of the quickstart."""
    return f"""{BEGIN}

![Left: the pre-training loss falls below the unigram entropy. Right: macro F1 of restoring
punctuation and capitals, for the trained encoder and its baselines.]({PICTURE})

```console
$ make quickstart
{printed.strip()}
```

Losses are in nats. The unigram entropy is the loss of a model that knows token frequencies and
nothing else. Training masks more tokens than evaluation, so its loss is higher.

{END}"""


def main(folder: Path) -> None:
    """Rewrite the section and copy the plot."""
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    printed = (folder / "output.txt").read_text(encoding="utf-8")
    (ROOT / PICTURE).parent.mkdir(exist_ok=True)
    shutil.copyfile(folder / "quickstart.png", ROOT / PICTURE)
    write_text(README, before + section(printed) + after)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "quickstart"))
