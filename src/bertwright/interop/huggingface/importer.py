"""Import a Hugging Face folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bertwright.batches.formats import InputFormat
from bertwright.core.config import InferencePrecision, to_user_error
from bertwright.core.errors import UserError
from bertwright.data.hub.reference import describe_folder
from bertwright.data.tokenization.tokenizer import SpecialTokens, Tokenizer
from bertwright.interop.huggingface import CONFIG_FILE
from bertwright.interop.huggingface.config import read_config
from bertwright.interop.huggingface.families.config_keys import StockConfig
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.families.registry import FAMILIES
from bertwright.interop.huggingface.head_types import BASE, POOLER
from bertwright.interop.huggingface.sentence_transformers_config import (
    read_embedding_settings,
    read_projection_weights,
)
from bertwright.interop.huggingface.tensor_names import StateDict, from_stock_names, has_stock_name
from bertwright.interop.huggingface.tokenizer.reader import read_tokenizer
from bertwright.interop.huggingface.weights import read_weights, resolve_ties
from bertwright.models import Model
from bertwright.models.saving import model_from_tensors
from bertwright.models.text_model import TextModel
from bertwright.modules.vector_projection import VECTOR_PROJECTION
from bertwright.objectives import Objective
from bertwright.recipes import Recipe, SentenceVectorSettings
from bertwright.recipes.loading import read_recipe

TOKEN_EMBEDDING = "encoder.embeddings.tokens.weight"


@dataclass(frozen=True)
class HuggingFaceFolder:
    """The content of a folder: tensors by our names, head type, recipe and tokenizer."""

    folder: Path
    family: ModelFamily
    config: StockConfig
    head_type: str
    tensors: StateDict
    recipe: Recipe
    tokenizer: Tokenizer

    @property
    def num_embeddings(self) -> int:
        """Number of rows of the token embedding; there may be more rows than tokens."""
        return len(self.tensors[TOKEN_EMBEDDING])


def load_huggingface(folder: Path, precision: InferencePrecision | None = None) -> TextModel:
    """Return the model of a folder; a :class:`FineTunedModel` for a stock class with a task head.

    Raises UserError as :func:`import_huggingface` does.
    """
    from bertwright.interop.sentence_transformers.importer import (
        is_retrieval_folder,
        load_retrieval_folder,
    )

    if is_retrieval_folder(folder):
        return load_retrieval_folder(folder, precision)
    source = read_huggingface_folder(folder)
    if source.head_type in source.family.task_heads:
        from bertwright.interop.huggingface.task_importer import build_fine_tuned_model

        return build_fine_tuned_model(source, precision)
    return TextModel(_build_model(source), source.tokenizer, precision)


def import_huggingface(folder: Path) -> tuple[Model, Tokenizer]:
    """Read a pre-trained model of a supported stock class, in float32.

    The recipe describes what the weights contain: without an LM head there are no objectives. A
    pooler and the embedding settings of sentence-transformers are kept.

    Raises UserError for a folder that is not a Hugging Face folder or is damaged, pickled or
    fine-tuned; for embeddings that ``embed`` cannot compute; and for a configuration that no axis
    supports.
    """
    source = read_huggingface_folder(folder)
    if source.head_type in source.family.task_heads:
        raise UserError(f"{folder} holds a fine-tuned model: name a pre-trained encoder")
    return _build_model(source), source.tokenizer


def read_huggingface_folder(
    folder: Path, vectors: SentenceVectorSettings | None = None
) -> HuggingFaceFolder:
    """Read and check all files of a folder, except a pooler that a stock task class ignores.

    ``vectors`` replace the embedding settings of sentence-transformers.
    """
    config = read_config(folder)
    family = _find_family(folder, config).variant_of_config(config)
    try:
        tensors, config = resolve_ties(family, read_weights(folder), config)
        head_type = _find_head_type(family, tensors, config)
        tensors = from_stock_names(family.name_table(head_type), family.from_stock_shape(tensors))
        tensors = family.import_tensors(tensors, config)
        if head_type in family.task_heads:
            tensors = _drop_pooler(tensors)
        elif not any(bool(t.any()) for n, t in tensors.items() if n.startswith(f"{POOLER}.")):
            tensors = _drop_pooler(tensors)  # zeros mean no pooler
        settings = family.recipe_settings(config)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    except (RuntimeError, LookupError) as error:  # tensors that do not fit together
        raise UserError(
            f"{folder}: its tensors do not fit {family.class_name} ({error}): copy it again"
        ) from error
    tokenizer = read_tokenizer(folder, config, family.published_special_tokens)
    start_id = config.get("decoder_start_token_id")
    recipe = _build_recipe(folder, family, settings, head_type, tensors, tokenizer, start_id)
    if vectors is None:
        vectors = read_embedding_settings(
            folder, config, tokenizer.lowercase, recipe.assembly.ends_with_start_token
        )
        if vectors.projection is not None and head_type in family.task_heads:
            vectors = vectors.without_projection()
        elif vectors.projection is not None:
            weights = read_projection_weights(folder)
            tensors |= {VECTOR_PROJECTION + name: tensor for name, tensor in weights.items()}
    recipe = recipe.model_copy(update={"vectors": vectors})
    source = HuggingFaceFolder(folder, family, config, head_type, tensors, recipe, tokenizer)
    if TOKEN_EMBEDDING not in tensors or tokenizer.vocab_size > source.num_embeddings:
        size = source.num_embeddings if TOKEN_EMBEDDING in tensors else "no token embedding"
        raise UserError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, the model {size}: they do "
            f"not belong together"
        )
    return source


def _drop_pooler(tensors: StateDict) -> StateDict:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(f"{POOLER}.")}


def _decoder_start_role(
    folder: Path, special_tokens: SpecialTokens, decoder_start_token_id: int, default_role: str
) -> str:
    """Return the role of the decoder start token; ``default_role`` if that has the same id."""
    for role in (default_role, "pad", "end", "start", "mask"):
        if getattr(special_tokens, role) == decoder_start_token_id:
            return role
    raise UserError(
        f"{folder / CONFIG_FILE}: decoder_start_token_id is {decoder_start_token_id}, which is no "
        f"special token: it must be the pad, end, start or mask token"
    )


def _build_model(source: HuggingFaceFolder) -> Model:
    return model_from_tensors(
        source.recipe, source.num_embeddings, source.tensors, str(source.folder)
    )


def _find_head_type(family: ModelFamily, tensors: StateDict, config: StockConfig) -> str:
    """Return the head type; pre-training heads are recognised by their tensors."""
    architecture = next(iter(config.get("architectures") or [""]))
    stated_type = architecture.removeprefix(family.class_name)
    if stated_type in family.task_heads:
        return stated_type
    base_table = family.name_table(BASE)
    if stated_type == BASE and all(has_stock_name(base_table, name) for name in tensors):
        return BASE
    if not any(name.startswith(f"{family.base_model_prefix}.") for name in tensors):
        return BASE
    table = family.name_table(family.pretraining_head_types[True, None])
    parts = {tuple(name.split(".")[:2]) for name in from_stock_names(table, tensors)}
    heads = {head for _, head in family.pretraining_head_types if head is not None}
    head = next((head for head in heads if ("heads", head) in parts), None)
    has_lm_head = family.output_bias_name is None or any(part[0] == "output" for part in parts)
    return family.pretraining_head_types[has_lm_head, head]


def _find_family(folder: Path, config: StockConfig) -> ModelFamily:
    model_type = config.get("model_type")
    if (family := FAMILIES.find(model_type)) is None:
        known = ", ".join(sorted(FAMILIES))
        raise UserError(
            f"{folder / CONFIG_FILE}: model_type is {model_type!r}: supported are {known}"
        )
    return family


def _build_recipe(
    folder: Path,
    family: ModelFamily,
    settings: dict[str, Any],
    head_type: str,
    tensors: StateDict,
    tokenizer: Tokenizer,
    decoder_start_token_id: int | None,
) -> Recipe:
    """Return a folder's recipe: its own axes, and the training of our recipe of its family."""
    training = read_recipe(family.recipe_name)
    objective_names = {
        stock_type: (family.lm_objective if has_lm_head else None, head)
        for (has_lm_head, head), stock_type in family.pretraining_head_types.items()
    }
    names = [name for name in objective_names.get(head_type, ()) if name is not None]
    stock_settings = family.objective_settings()
    objectives = {
        name: {**training["objectives"].get(name, {}), **stock_settings.get(name, {})}
        for name in names
    }
    if "denoising" in objectives and decoder_start_token_id is not None:
        noising = objectives["denoising"]["noising"]
        role = _decoder_start_role(
            folder, tokenizer.special_tokens, decoder_start_token_id, noising["begins"]
        )
        noising = {**noising, "begins": role}
        objectives = {"denoising": {**objectives["denoising"], "noising": noising}}
    assembly = {"kind": "full-sentences"}
    capabilities = [Objective.kinds()[name].capabilities for name in objectives]
    if any(c.relations for c in capabilities):
        assembly = {"kind": "segment-pair"}
    elif (
        any(c.prediction == "causal" for c in capabilities)
        or InputFormat.parse(training["assembly"]).ends_with_start_token
    ):
        assembly = training["assembly"]  # decides the start token and its position
    content = {
        **training,
        "name": f"{family.model_type}-imported",
        "source": f"imported from {describe_folder(folder)}",
        "family": family.model_type,
        "text": {
            "tokenizer": {
                "kind": tokenizer.kind,
                "vocab_size": tokenizer.vocab_size,
                "lowercase": tokenizer.lowercase,
            }
        },
        **settings,
        "assembly": {**assembly, **settings["assembly"]},
        "objectives": objectives,
        "pooler": "pooler.weight" in tensors,
        "phases": [{}],
    }
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise to_user_error(error, str(folder / CONFIG_FILE)) from error
