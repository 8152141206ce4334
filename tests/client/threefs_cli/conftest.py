"""The command line on the shared cluster."""

import pytest

from tests.support.cluster import LocalCluster
from tests.support.command_line import CommandLine


@pytest.fixture(scope="session")
def threefs(cluster: LocalCluster) -> CommandLine:
    return CommandLine(cluster.address)
