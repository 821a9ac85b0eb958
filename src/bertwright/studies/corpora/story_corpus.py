"""A corpus of stories in a synthetic language, with minimal pairs, prompts and tasks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from bertwright.data.preparation import prepare
from bertwright.data.tokenization.tokenizer import TokenizerConfig
from bertwright.data.vocabulary_training import train_tokenizer_on_files
from bertwright.studies.corpora.corpus import Corpus, CorpusFolder, write_jsonl
from bertwright.studies.corpora.dialogues import generate_dialogues
from bertwright.studies.corpora.stories import Story, World, add_connectives, generate_stories
from bertwright.studies.corpora.story_tasks import write_minimal_pairs, write_prompts, write_tasks

ANNOTATED_FILE, DIALOGUE_FILE = "annotated.jsonl", "dialogues.jsonl"
"""Files with the annotated stories and the dialogues, next to the folder of text."""


class StoryCorpus(Corpus):
    """A corpus of stories from the world of a seed.

    ``annotated`` marks names, phrases and capitals; ``connected`` starts sentences with
    connectives; ``dialogues`` is the number of dialogues. Without ``hours`` a sentence does not
    begin with its hour, which only its verb tells, and there are no facts.
    """

    kind: Literal["grammar"] = "grammar"
    documents: int = Field(default=20_000, ge=100)
    seed: int = 0
    annotated: bool = False
    connected: bool = False
    hours: bool = True
    dialogues: int = Field(default=0, ge=0)

    def write(self, corpus_folder: CorpusFolder) -> None:
        world = World(self.seed)
        corpus_folder.text.mkdir(parents=True)
        with open(corpus_folder.text / "stories.txt", "w", encoding="utf-8") as file:
            for story in self._stories(world):
                file.write(f"{story}\n\n")
        write_minimal_pairs(world, self.seed, corpus_folder.minimal_pairs)
        write_prompts(world, corpus_folder.prompts)
        write_tasks(world, self.seed, corpus_folder, with_hours=self.hours)
        if self.annotated:
            documents = (_annotated_document(story, world) for story in self._stories(world))
            write_jsonl(corpus_folder.folder / ANNOTATED_FILE, documents)
        if self.dialogues:
            dialogues = generate_dialogues(world, self.seed, self.dialogues)
            write_jsonl(
                corpus_folder.folder / DIALOGUE_FILE, ({"dialogue": turns} for turns in dialogues)
            )

    def _stories(self, world: World) -> Iterator[Story]:
        stories = generate_stories(world, self.seed, "text", self.documents, self.hours)
        return map(add_connectives, stories) if self.connected else stories

    def prepare(
        self,
        corpus_folder: CorpusFolder,
        tokenizer: TokenizerConfig,
        tokenizer_folder: Path,
        data: Path,
    ) -> None:
        if not tokenizer_folder.is_dir():
            train_tokenizer_on_files([corpus_folder.text], tokenizer_folder, tokenizer)
        prepare(
            [corpus_folder.folder / ANNOTATED_FILE] if self.annotated else [corpus_folder.text],
            data,
            tokenizer_folder,
            annotations_column="known" if self.annotated else None,
            dialogues=[corpus_folder.folder / DIALOGUE_FILE] if self.dialogues else [],
            capitals=self.annotated,
        )


def _annotated_document(story: Story, world: World) -> dict[str, Any]:
    annotations = story.annotations(set(world.phrases))
    return {
        "text": str(story),
        "known": [{"start": a, "stop": b, "label": label} for a, b, label in annotations],
    }
