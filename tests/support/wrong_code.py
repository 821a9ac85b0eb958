"""Compilers that miscompile on purpose."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

Change = Callable[[torch.Tensor], torch.Tensor]


def compile_with(
    monkeypatch: pytest.MonkeyPatch,
    forward: Change | None = None,
    backward: Change | None = None,
) -> None:
    """Make ``torch.compile`` run graphs eagerly, and change their outputs."""
    backend = aot_autograd(fw_compiler=_changed(forward), bw_compiler=_changed(backward))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    # Module.compile does not call torch.compile by this name.
    monkeypatch.setattr(torch.nn.Module, "compile", _compile_module)


def _compile_module(module: torch.nn.Module, **settings: Any) -> None:
    module._compiled_call_impl = torch.compile(module._call_impl, **settings)


def _changed(change: Change | None) -> Callable[..., Any]:
    def compiler(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            outputs = graph(*inputs)
            if change is None:
                return outputs
            return [
                change(x) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
                for x in outputs
            ]

        return make_boxed_func(run)

    return compiler
