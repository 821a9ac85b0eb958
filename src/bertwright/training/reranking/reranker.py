"""The re-ranker of PRM: a transformer over the items of one list (Pei et al. 2019, section 3)."""

from pathlib import Path
from typing import cast

import torch
from pydantic import Field, ValidationError
from safetensors.torch import save_file
from torch import Tensor, nn

from bertwright.core.config import Settings, to_user_error
from bertwright.core.errors import UserError
from bertwright.core.files import parse_json, read_text, write_text
from bertwright.encoder.block import Block
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.depth import StackConfig
from bertwright.encoder.encoder import build_blocks
from bertwright.models.saving import load_tensors, read_tensors
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.attention.mask import BidirectionalVisibility, build_attention_mask
from bertwright.modules.attention.positions import NoPositionsConfig
from bertwright.modules.context import AttentionContext, BlockContext
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.modules.token_tensors import TokenInfo

CONFIG_FILE, WEIGHTS_FILE = "reranker.json", "model.safetensors"


class RerankerConfig(Settings):
    """The sizes of a re-ranker.

    ``list_length`` is the number of items of a list, ``num_features`` the number of features of an
    item.
    """

    list_length: int = Field(ge=2, le=10_000)
    num_features: int = Field(ge=1, le=1 << 20)
    width: int = Field(default=64, ge=1, le=65_536)
    depth: int = Field(default=2, ge=1, le=1_024)
    heads: int = Field(default=2, ge=1, le=1_024)
    dropout: float = Field(default=0.1, ge=0, lt=1)


class ListReranker(nn.Module):
    """A transformer encoder over a list, with a learned embedding of the initial rank."""

    def __init__(self, config: RerankerConfig) -> None:
        super().__init__()
        self.config = config
        if config.width % config.heads:
            raise UserError(
                f"width {config.width} is no multiple of the {config.heads} heads: change one"
            )
        self.ranks = nn.Parameter(torch.empty(config.list_length, config.num_features))
        self.input = nn.Linear(config.num_features, config.width)
        stack = EncoderConfig(
            width=config.width,
            depth=StackConfig(layers=config.depth),
            positions=NoPositionsConfig(),
            mixer=AttentionConfig(heads=config.heads),
            dropout=config.dropout,
        )
        self.blocks = nn.ModuleList(build_blocks(stack))
        self.score = nn.Linear(config.width, 1)

    @property
    def parameter_roles(self) -> dict[str, ParameterRole]:
        """Return the role of the embeddings of the initial rank."""
        return {"ranks": ParameterRole("table")}

    def forward(self, features: Tensor, dropout_rng: DropoutRng | None = None) -> Tensor:
        """Map features (B, N, F) in the initial order to scores (B, N).

        The softmax of the scores is the probability of a click (equation 10).
        """
        x = self.input(features + self.ranks)
        info = TokenInfo.from_token_ids(torch.zeros(x.shape[:2], device=x.device))
        context = AttentionContext(build_attention_mask(BidirectionalVisibility(), info))
        for index, block in enumerate(self.blocks):
            rng = None if dropout_rng is None else dropout_rng.for_block(index)
            x = cast(Block, block)(x, BlockContext(context, rng))
        return self.score(x).squeeze(-1).float()

    def save(self, folder: Path) -> None:
        """Write config and weights to a folder, weights last."""
        write_text(folder / CONFIG_FILE, self.config.model_dump_json(indent=1) + "\n")
        tensors = {name: tensor.detach().cpu() for name, tensor in self.state_dict().items()}
        save_file(tensors, str(folder / WEIGHTS_FILE))

    @staticmethod
    def load(folder: Path) -> "ListReranker":
        """Load a re-ranker. Errors: UserError for a folder that holds none, or is damaged."""
        file = folder / CONFIG_FILE
        if not file.is_file():
            raise UserError(f"{folder} holds no re-ranker: it has no {CONFIG_FILE}: run rerank")
        try:
            config = RerankerConfig.model_validate(
                parse_json(read_text(file), str(file), "copy it again")
            )
        except ValidationError as error:
            raise to_user_error(error, str(file)) from error
        with torch.device("meta"):
            reranker = ListReranker(config)
        load_tensors(reranker, read_tensors(folder / WEIGHTS_FILE), str(folder / WEIGHTS_FILE))
        return reranker.eval()
