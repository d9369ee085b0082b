"""`cce cite`: BibTeX of the papers that methods come from."""

from cce.cli import main


def test_entries_of_the_methods_that_are_named(capsys):
    assert main(["cite", "cce", "robe"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("@")] == [
        "@inproceedings{tsang2023clustering,",
        "@inproceedings{desai2022random,",
    ]


def test_without_a_name_it_is_the_paper_of_cce(capsys):
    main(["cite"])
    assert capsys.readouterr().out.count("@") == 1


def test_an_unknown_method_gets_one_line(capsys):
    assert main(["cite", "cec"]) == 2
    assert capsys.readouterr().err.startswith("cce cite: method must be one of cce, cce-paper, ce-concat")
