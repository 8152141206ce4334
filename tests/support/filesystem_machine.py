"""The state machine of the file system: all rules together."""

from tests.support.machine_attributes import AttributesRules
from tests.support.machine_content import ContentRules
from tests.support.machine_faults import FaultRules
from tests.support.machine_looks import LooksRules
from tests.support.machine_names import NamesRules


class FilesystemMachine(NamesRules, LooksRules, ContentRules, AttributesRules, FaultRules):
    """Each rule does the same through the client library or a mount and in a local directory, and compares."""


class LookingMachine(NamesRules, LooksRules, ContentRules):
    """Mostly what mounts remember."""
