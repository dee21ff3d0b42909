"""The tool that takes guards out finds them, and tells where no test fails."""

from mutations import ROOT, mutants


def test_every_listed_function_and_test_is_there() -> None:
    by_file = {mutant.file: mutant for mutant in mutants()}
    assert len(by_file) >= 10
    for file, mutant in by_file.items():
        compile(mutant.source((ROOT / file).read_text("utf-8")), file, "exec")
        assert all((ROOT / "tests" / test).is_file() for test in mutant.tests)
