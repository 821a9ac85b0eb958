"""Stories in a language made to order, with minimal pairs and tasks beside them."""

from typing import Literal

from pydantic import Field

from bertwright.studies.corpora.corpus import Corpus, Written
from bertwright.studies.corpora.stories import World, stories
from bertwright.studies.corpora.story_tasks import write_pairs, write_tasks


class Grammar(Corpus):
    """So many stories of the world of a seed."""

    kind: Literal["grammar"] = "grammar"
    documents: int = Field(default=20_000, ge=100)
    seed: int = 0

    def write(self, to: Written) -> None:
        world = World(self.seed)
        to.text.mkdir(parents=True)
        with open(to.text / "stories.txt", "w", encoding="utf-8") as file:
            for story in stories(world, self.seed, "text", self.documents):
                file.write(f"{story}\n\n")
        write_pairs(world, self.seed, to.pairs)
        write_tasks(world, self.seed, to)
