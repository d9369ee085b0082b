"""What tests of reports may ask for."""

import pytest

from helpers.raw_runs import raw_rows, train_on_raw

SCRIPT = "<script>document.title = 'taken over'</script>"


@pytest.fixture(scope="session")
def odd_run(tmp_path_factory):
    """The folder of a run whose most frequent user is a script, beside its data set."""
    rows = [row | {"user": SCRIPT if index % 3 == 0 else row["user"]} for index, row in enumerate(raw_rows())]
    return train_on_raw(tmp_path_factory.mktemp("odd-run"), rows=rows)
