"""The analyses benchmark reads every text once."""

from benchmarks import analysis as analysis_speed


def test_every_text_is_read_once() -> None:
    lines: list[str] = []
    result = analysis_speed.compare("bert-tiny", 9, 2, lines.append)
    assert [line.split()[0] for line in lines] == ["5", "4"]
    assert result["texts"] == 9
    assert result["analyses"] == 5
    assert 0 < result["relative_speed"] < 2
    assert result["mebibytes"] >= 0
    assert {*analysis_speed.COLUMNS} == {*result}
