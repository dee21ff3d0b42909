"""The tool that takes guards out finds them, and tells where no test fails."""

from mutations import ROOT, mutants


def test_every_listed_function_and_test_is_there() -> None:
    actual = {mutant.file: mutant for mutant in mutants()}
    assert len(actual) >= 10
    for file, pair in actual.items():
        compile(pair.source((ROOT / file).read_text("utf-8")), file, "exec")
        assert all((ROOT / "tests" / test).is_file() for test in pair.tests)
