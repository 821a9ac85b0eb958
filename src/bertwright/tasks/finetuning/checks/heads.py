"""Requirements of the heads of tasks: their output types, texts and adaptation."""

from collections.abc import Iterator, Sequence

from bertwright.core.errors import UserError
from bertwright.objectives.heads.lm_head import LMHeadConfig
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.linear_gain import check_linear_gain
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.heads.default_head import check_added_features, check_head, has_pairs
from bertwright.tasks.heads.head import HeadConfig
from bertwright.tasks.heads.kinds import BiLSTMHeadConfig
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.outputs.token_classification import TokenClassificationOutput
from bertwright.tasks.outputs.windows import WindowedOutput
from bertwright.tasks.task import Task


def check_heads(
    heads: Sequence[HeadConfig],
    task_data: Sequence[tuple[Task, Examples, Examples]],
    config: FineTuningConfig,
    lm_head: LMHeadConfig,
    max_length: int,
) -> None:
    """Raise UserError for a head that does not fit its task or the settings.

    ``task_data`` has a task, its training examples and its held-out ones for each head.
    ``max_length`` is the maximum sequence length.
    """
    for head, (task, train, _) in zip(heads, task_data, strict=True):
        problems = _problems(head, task, train, config, lm_head, max_length)
        if problem := next(problems, None):
            raise UserError(problem)


def _problems(
    head: HeadConfig,
    task: Task,
    train: Examples,
    config: FineTuningConfig,
    lm_head: LMHeadConfig,
    max_length: int,
) -> Iterator[str]:
    """Yield why a head does not fit."""
    output_type, adaptation = task.output_type, config.adaptation
    if problem := check_head(head, output_type, lm_head):
        yield problem
    yield from _stride_problems(output_type, max_length)
    has_vectors = isinstance(head, BiLSTMHeadConfig) and head.word_vectors is not None
    if has_vectors and not adaptation.has_frozen_encoder:
        yield (
            "head.word_vectors stand beside features of a frozen encoder: set adaptation=frozen, "
            "or leave them out"
        )
    if adaptation.adds_features and (problem := check_added_features(head, output_type)):
        yield problem
    if config.linear_gain and (
        problem := check_linear_gain(head, output_type, adaptation.has_frozen_encoder)
    ):
        yield problem
    if head.pooling == "pair":
        yield from _answer_network_problems(task, train, adaptation.has_frozen_encoder)


def _stride_problems(output_type: OutputType, max_length: int) -> Iterator[str]:
    has_windows = isinstance(output_type, WindowedOutput | TokenClassificationOutput)
    stride = output_type.stride if has_windows else None
    if stride is not None and stride >= max_length:
        yield (
            f"output_type.stride: {stride} is not less than the maximum sequence length "
            f"{max_length}: choose less"
        )


def _answer_network_problems(task: Task, train: Examples, is_frozen: bool) -> Iterator[str]:
    if not has_pairs(train):
        yield (
            f"head.kind: san compares two texts, and task {task.name} has one: use pair_head for "
            f"tasks with pairs only"
        )
    if is_frozen:
        yield (
            "head.kind: san reads all tokens of a pair, and a frozen encoder's features are a "
            "summary: choose adaptation=full or last"
        )
