"""Every system at toy size: the same axes, with sizes that train in a moment."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import nn

from bertwright.models.model import DeviceBatch
from bertwright.recipes import Recipe
from bertwright.recipes.loading import system_names
from bertwright.testing.toy import (
    NUM_SEQUENCES,
    TOY_LENGTH,
    TOY_SPECIAL_TOKENS,
    TOY_VOCAB_SIZE,
    ToyText,
    toy_arrays,
    toy_recipe,
)

Module = TypeVar("Module", bound=nn.Module)

LENGTH, VOCABULARY, SPECIALS = TOY_LENGTH, TOY_VOCAB_SIZE, TOY_SPECIAL_TOKENS

SYSTEMS = system_names()

TYPICAL_SYSTEMS = ("bert", "modern", "xlnet", "gpt-2", "t5", "elmo", "longformer", "reformer")
"""Systems whose encoders differ most."""

__all__ = [
    "LENGTH",
    "NUM_SEQUENCES",
    "SPECIALS",
    "SYSTEMS",
    "TYPICAL_SYSTEMS",
    "VOCABULARY",
    "ToyText",
    "every_encoder",
    "marked_systems",
    "published",
    "shaken",
    "sparse",
    "toy",
    "toy_batch",
    "toy_batches",
]

SPARSE = {
    "longformer": "{kind: or, rules: [{kind: window, size: 3}, {kind: global}]}",
    "longformer-char": "{kind: and, rules: [causal, {kind: windows, sizes: [8, 7],"
    " dilations: [1, 3], dilated_heads: 1}]}",
    "bigbird": "{kind: or, rules: [{kind: window, size: 1, block: 2}, {kind: global, first: 1,"
    " last: 1, block: 2}, {kind: random-blocks, number: 1, block: 2, draws: 2},"
    " {kind: short, length: 14}]}",
}
"""Visibility rules for long sequences, at toy size."""


def toy_batches(
    recipe: Recipe, phase: int, device: torch.device | str = "cpu"
) -> list[DeviceBatch]:
    """Return one batch for each turn of a phase."""
    turns = range(len(recipe.objective_schedule(phase)))
    return [toy_batch(recipe, phase, turn=turn, device=device) for turn in turns]


def toy_batch(
    recipe: Recipe,
    phase: int,
    epoch: int = 0,
    turn: int = 0,
    device: torch.device | str = "cpu",
) -> DeviceBatch:
    """Return eight sequences of toy text with the targets of one turn of a phase."""
    return DeviceBatch(toy_arrays(recipe, phase, epoch, turn), device)


def shaken(module: Module, size: float) -> Module:
    """Add fixed noise of this size to all parameters, so that none keeps its initial 0 or 1."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(size * noise.to(parameter.device))
    return module


@cache
def published(system: str) -> Recipe:
    """Return a system's recipe, cached since recipes are frozen."""
    return Recipe.load(system)


def sparse(system: str) -> tuple[str, ...]:
    """Return the override of a system's visibility at toy size, if it needs one."""
    return (f"encoder.visibility={SPARSE[system]}",) if system in SPARSE else ()


@cache
def toy(system: str, *overrides: str) -> Recipe:
    """Return a system with 2 blocks of width 32, sequences of 24 tokens and 40 token ids."""
    return toy_recipe(system, *sparse(system), *overrides)


@cache
def encoder_representatives() -> frozenset[str]:
    """Return the first system of each resolved encoder and decoder, whatever their numbers."""
    representatives: dict[str, str] = {}
    for system in SYSTEMS:
        recipe = published(system).model_dump(mode="json", include={"encoder", "decoder"})
        representatives.setdefault(json.dumps(_without_numbers(recipe)), system)
    return frozenset(representatives.values())


def _without_numbers(settings: Any) -> Any:
    """Return nested settings with None for every number."""
    if isinstance(settings, dict):
        return {key: _without_numbers(value) for key, value in settings.items()}
    if isinstance(settings, list):
        return [_without_numbers(value) for value in settings]
    is_number = isinstance(settings, int | float) and not isinstance(settings, bool)
    return None if is_number else settings


def marked_systems(systems: Iterable[str] = SYSTEMS) -> list[ParameterSet]:
    """Return parameters of a test that depends on the encoder alone.

    Systems with the encoder of an earlier one are marked ``full``.
    """
    representatives = encoder_representatives()
    return [
        pytest.param(system, marks=() if system in representatives else pytest.mark.full)
        for system in systems
    ]


every_encoder = pytest.mark.parametrize("system", marked_systems())
"""A test that depends on the encoder alone."""
