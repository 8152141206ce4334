"""The command line on the shared cluster."""

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.command_line import CommandLine


@pytest.fixture(scope="session")
def threefs(cluster: LocalCluster) -> CommandLine:
    return CommandLine(cluster.address)
