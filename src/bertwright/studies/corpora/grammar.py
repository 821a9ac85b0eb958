"""Stories in a language made to order, with minimal pairs and tasks beside them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from bertwright.studies.corpora.corpus import Corpus, Written, write_lines
from bertwright.studies.corpora.stories import Story, World, connected, stories
from bertwright.studies.corpora.story_tasks import write_pairs, write_questions, write_tasks
from bertwright.studies.corpora.talks import talks
from bertwright.text.preparation import prepare
from bertwright.text.tokenizers import TokenizerChoice
from bertwright.text.vocabularies import train_on_files

ANNOTATED, DIALOGUES = "annotated.jsonl", "dialogues.jsonl"
"""The stories with what is known of them, and the dialogues, beside the folder of text."""


class Grammar(Corpus):
    """So many stories of the world of a seed; ``annotated`` says where their names, phrases
    and capitals stand, ``connected`` opens some of their sentences with connectives, and
    ``dialogues`` are so many beside them."""

    kind: Literal["grammar"] = "grammar"
    documents: int = Field(default=20_000, ge=100)
    seed: int = 0
    annotated: bool = False
    connected: bool = False
    dialogues: int = Field(default=0, ge=0)

    def write(self, to: Written) -> None:
        world = World(self.seed)
        to.text.mkdir(parents=True)
        with open(to.text / "stories.txt", "w", encoding="utf-8") as file:
            for story in self._stories(world):
                file.write(f"{story}\n\n")
        write_pairs(world, self.seed, to.pairs)
        write_questions(world, to.questions)
        write_tasks(world, self.seed, to)
        if self.annotated:
            told = (_annotated(story, world) for story in self._stories(world))
            write_lines(to.folder / ANNOTATED, told)
        if self.dialogues:
            spoken = talks(world, self.seed, self.dialogues)
            write_lines(to.folder / DIALOGUES, ({"dialogue": turns} for turns in spoken))

    def _stories(self, world: World) -> Iterator[Story]:
        told = stories(world, self.seed, "text", self.documents)
        return map(connected, told) if self.connected else told

    def prepare(
        self, written: Written, tokenizer: TokenizerChoice, vocabulary: Path, data: Path
    ) -> None:
        if not vocabulary.is_dir():
            train_on_files([written.text], vocabulary, tokenizer)
        prepare(
            [written.folder / ANNOTATED] if self.annotated else [written.text],
            data,
            vocabulary,
            annotations="known" if self.annotated else None,
            dialogues=[written.folder / DIALOGUES] if self.dialogues else [],
            capitals=self.annotated,
        )


def _annotated(story: Story, world: World) -> dict[str, Any]:
    known = story.known(set(world.phrases))
    return {
        "text": str(story),
        "known": [{"start": a, "stop": b, "label": label} for a, b, label in known],
    }
