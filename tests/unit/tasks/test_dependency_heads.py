"""Dependency heads: scores, targets across sequences, predictions, and what files may hold."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.tasks.baselines.frequency import NeighbourHeadBaseline
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.outputs import DependencyHeadOutput
from bertwright.tasks.task import Task
from small_tasks import attached, until

CONLLU = "\n".join(
    f"{n}\t{word}\t_\tX\t_\t_\t{head}\tdep\t_\t_"
    for n, word, head in ((1, "red", 2), (2, "birds", 3), (3, "sing", 0))
)
DECODER = DependencyHeadOutput(width=3).build_decoder(())


def parts(*sizes: int) -> list[TaskSequence]:
    """Return sequences of a sentence with as many words."""
    return [
        TaskSequence([], 0, positions=tuple(range(size)), first_word=sum(sizes[:index]))
        for index, size in enumerate(sizes)
    ]


def test_score_is_the_scaled_product_of_dependent_and_head() -> None:
    outputs = torch.randn(5, 6)
    logits = DECODER.logits(outputs, [3, 2])
    for first, size in ((0, 3), (3, 2)):
        for i in range(first, first + size):
            for j in range(size):
                product = sum(outputs[i, k] * outputs[first + j, 3 + k] for k in range(3))
                assert logits[i, j] == pytest.approx(float(product) / 3**0.5, abs=1e-5)
    assert (logits[3:, 2] < -1e8).all()
    loss, _ = DECODER.loss(outputs, [3, 2], torch.tensor([1, 2, 2, -100, 0]))
    rows = [(0, 1), (1, 2), (2, 2), (4, 0)]  # the fourth word has its head in another sequence
    expected = sum(float(logits[i].logsumexp(0) - logits[i, j]) for i, j in rows)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_root_is_the_head_of_itself_and_other_sequences_are_out_of_reach() -> None:
    sentence = TaggedSentence(("a", "b", "c", "d"), ("2", "0", "4", "2"))
    assert DECODER.targets(parts(4), sentence) == [1, 1, 3, 1]
    assert DECODER.targets(parts(2, 2), sentence) == [1, 1, 1, -100]


def test_targets_are_decoded_to_the_heads_of_the_file() -> None:
    sentence = TaggedSentence(("a", "b", "c", "d"), ("2", "0", "4", "3"))
    vectors = np.eye(4, dtype=np.float32)
    decoder = DependencyHeadOutput(width=4).build_decoder(())
    sequences, outputs = parts(2, 2), list[np.ndarray]()
    for sequence in sequences:
        targets = decoder.targets([sequence], sentence)
        outputs.append(np.concatenate([9 * vectors[targets], vectors[: len(targets)]], 1))
    prediction = decoder.decode_example(sentence, list(zip(sequences, outputs, strict=True)))
    assert prediction.value == sentence.tags
    assert all(p > 0.9 for p in prediction.probabilities)


def test_heads_are_learned(pretrained) -> None:
    task = Task("heads", DependencyHeadOutput(width=8))
    settings = {"epochs": 40, "learning_rate": 5e-3, "dropout": 0.0, "compile": False}
    examples = attached()
    result = finetune(
        pretrained(),
        task,
        train=examples,
        dev=examples,
        make_reporter=until(0.95),
        batch_size=8,
        **settings,
    )
    assert result.scores[0] > 0.9
    assert result.model.predict("The red bird is old")[0].value is not None


def test_files_of_universal_dependencies_are_read(tmp_path: Path) -> None:
    task, file = find_task("dependency-heads"), tmp_path / "a.conllu"
    file.write_text(f"{CONLLU}\n\n")
    (sentence,) = task.read_examples(file)
    assert sentence == TaggedSentence(("red", "birds", "sing"), ("2", "3", "0"))
    (prediction,) = NeighbourHeadBaseline.fit([sentence]).predict([sentence])
    assert prediction.value == ("2", "3", "0")
    file.write_text(
        f"{CONLLU.replace('birds	_	X	_	_	3', 'birds	_	X	_	_	7')}\n\n"
    )
    with pytest.raises(UserError, match=r"head of the word 'birds' is '7', and .* words 1 to 3"):
        task.read_examples(file)
