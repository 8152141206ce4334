import os
from pathlib import Path

import pytest

from threefs.env.directory import owned
from threefs.errors import Unavailable


def test_a_directory_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with owned(tmp_path / "new" / "data"):
        with pytest.raises(Unavailable, match=f"is in use by process {os.getpid()}"), owned(tmp_path / "new" / "data"):
            pass
        with owned(tmp_path / "other"):
            pass
    with owned(tmp_path / "new" / "data"):
        pass
