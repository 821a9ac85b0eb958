"""``doctor --machine``: what it says where compiled steps cannot be had."""

import pytest

from bertwright.training.doctor import machine_checks


def test_a_compiler_that_fails_is_named_by_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    checks = list(machine_checks.compiled_step_checks())
    assert len(checks) == 4
    for check in checks:
        assert not check.ok
        assert "/bin/false" in check.detail
        assert check.detail.endswith("training goes on uncompiled")
