"""The clock of the analyses hears every text once."""

from bertwright.bench import analysing


def test_every_text_is_read_and_heard() -> None:
    said: list[str] = []
    found = analysing.compare("bert-tiny", 9, 2, said.append)
    assert [line.split()[0] for line in said] == ["5", "4"]
    assert found["texts"] == 9
    assert found["analyses"] == 5
    assert 0 < found["of_reading"] < 2
    assert found["mebibytes"] >= 0
    assert {*analysing.COLUMNS} == {*found}
