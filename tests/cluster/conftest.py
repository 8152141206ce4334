"""Commands on clusters of real processes."""

from collections.abc import Iterator

import pytest
from threefs_cli import checkpoint_commands, cluster_selector, data_commands

_CONNECT_S = 15.0


@pytest.fixture(scope="module", autouse=True)
def commands_wait_for_a_manager_that_stalls() -> Iterator[None]:
    """A command gives up when no manager has answered for three seconds: a person calls it again. On a busy machine a
    manager may have no core for so long, in a test that has called hundreds of commands."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (checkpoint_commands, cluster_selector, data_commands):
            patch.setattr(module, "CONNECT_S", _CONNECT_S)
        yield
