"""The state machine of the file system: all rules together."""

from tests.harness.machine_acls import AclsRules
from tests.harness.machine_attributes import AttributesRules
from tests.harness.machine_copies import CopiesRules
from tests.harness.machine_faults import FaultRules
from tests.harness.machine_looks import LooksRules
from tests.harness.machine_names import NamesRules
from tests.harness.machine_trash import TrashRules


class FilesystemMachine(NamesRules, LooksRules, CopiesRules, AttributesRules, AclsRules, TrashRules, FaultRules):
    """Each rule does the same through the client library or a mount and in a local directory, and compares."""


class LookingMachine(NamesRules, LooksRules, CopiesRules):
    """Mostly what mounts remember."""
