"""The folder of a finished run."""

import pytest
from web_helpers import make_run


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path)
