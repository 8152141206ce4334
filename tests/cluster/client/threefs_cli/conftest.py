"""The command line on the shared cluster."""

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.command_line import CommandLine


@pytest.fixture
def threefs(cluster: LocalCluster) -> CommandLine:
    """A storage process that had no core for a while has been put out of its chains: each test begins when all is
    whole."""
    cluster.wait_whole()
    return CommandLine(cluster.address)
