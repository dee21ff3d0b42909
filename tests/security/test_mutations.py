"""The tool that takes guards out finds them, and tells where no test fails."""

from mutations import ROOT, mutants


def test_every_listed_function_and_test_is_there() -> None:
    found = {one.file: one for one in mutants()}
    assert len(found) >= 10
    for file, one in found.items():
        compile(one.source((ROOT / file).read_text("utf-8")), file, "exec")
        assert all((ROOT / "tests" / test).is_file() for test in one.tests)
