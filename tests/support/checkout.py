"""The folders of the checkout."""

from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
DOCUMENTS = CHECKOUT / "docs"
EXAMPLES = DOCUMENTS / "examples"
