"""Small models for retrieval, not trained further, in float32."""

import json
from typing import Any

import tokenizers as library

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.task import Task
from small_tasks import partners
from toy_recipes import toy

QUERIES = ("red bird", "an old, green house?", "river", "the tree is new and remarkably large")
DOCUMENTS = ("The red bird is old.", "house", "The river, the tree and the bird are small!")


def retrieval_task(**output_type: Any) -> Task:
    """Return a task of retrieval with this output type."""
    return Task("retrieval", OutputType.parse(output_type), find_task("retrieval").reader)


def retrieval_model(source: TextModel, **output_type: Any) -> FineTunedModel:
    """Return a model for retrieval with its new parameters as they are initialised."""
    result = finetune(
        source, retrieval_task(**output_type), train=partners(), dev=partners(), epochs=0
    )
    model = result.model
    return FineTunedModel(
        model.task_model, model.tokenizer, model.task, model.example_encoder.max_length, "float32"
    )


def with_bert_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Return a WordPiece tokenizer with punctuation and unused tokens, as BERT's has."""
    settings = json.loads(tokenizer.backend.to_str())
    vocabulary = settings["model"]["vocab"]
    tokens = ("[unused0]", "[unused1]", ".", ",", "?", "!")
    vocabulary |= {token: len(vocabulary) + n for n, token in enumerate(tokens)}
    return Tokenizer(library.Tokenizer.from_str(json.dumps(settings)), tokenizer.roles)


def bert_with_marks(tokenizer: Tokenizer) -> TextModel:
    """Return a random BERT whose vocabulary has punctuation and unused tokens."""
    tokenizer = with_bert_tokens(tokenizer)
    recipe = toy("bert", "encoder.initialisation={kind: width-aware}")
    return TextModel(Model.build(recipe, tokenizer.vocab_size, tokenizer), tokenizer, "float32")
