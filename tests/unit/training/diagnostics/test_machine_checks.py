"""``doctor --machine`` with a failing compiler."""

import pytest

from bertwright.training.diagnostics.hardware.checks import compiled_step_checks


@pytest.mark.full
def test_a_failing_compiler_is_reported_by_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    checks = list(compiled_step_checks())
    assert len(checks) == 4
    for check in checks:
        assert not check.ok
        assert "/bin/false" in check.detail
        assert check.detail.endswith("training continues uncompiled")
