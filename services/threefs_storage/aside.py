"""What becomes of a store whose table can no longer be read: it is put aside, and the target begins with an empty one.

The chain takes that for an exchanged disk. What was put aside is kept until it happens again.
"""

import shutil
from pathlib import Path

from threefs.ids import TargetId
from threefs.routing import Chain, PublicState


def elsewhere(chain: Chain, target_id: TargetId) -> bool:
    """Whether another target may have all that this one should have."""
    return any(
        member.target_id != target_id and member.state in (PublicState.SERVING, PublicState.LASTSRV)
        for member in chain.members
    )


def put_aside(directory: Path) -> Path:
    """Where it is now. One that was put aside before is removed: the disk shall not fill up with them."""
    aside = directory.with_name(f"{directory.name}.damaged")
    shutil.rmtree(aside, ignore_errors=True)
    directory.rename(aside)
    return aside
