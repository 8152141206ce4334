"""The state machine kills and restarts what is below it, once in an example, if the world has a fault for it."""

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant
from threefs_fsck import check

from tests.harness.client_driver import run
from tests.harness.differential_trees import MOUNT, TwoTrees
from tests.harness.mounts import Mount
from tests.harness.processes import Program


class FaultRules(TwoTrees):
    fault_at = 0
    step = 0

    @initialize(step=st.integers(5, 40))
    def prepare_fault(self, step: int) -> None:
        self.fault_at = step

    @invariant()
    def meet_fault(self) -> None:
        self.step += 1
        if self.step == self.fault_at and self.world.fault:
            FAULTS[self.world.fault](self)

    def restart(self, *programs: Program) -> None:
        for program in programs:
            program.kill()
        for program in programs:
            program.launch()
        for program in programs:
            program.wait_ready()

    def kill_storage(self) -> None:
        self.restart(self.world.cluster.storage[1 + self.world.examples % 2])

    def kill_meta(self) -> None:
        self.restart(self.world.cluster.meta)

    def kill_manager(self) -> None:
        self.restart(self.world.cluster.manager)

    def kill_services(self) -> None:
        cluster = self.world.cluster
        self.restart(cluster.manager, cluster.meta, *cluster.storage.values())

    def _remount(self, end: Callable[[Mount], None]) -> None:
        mount, mounted = self.world.mount, self.mounted
        assert mount is not None and mounted is not None, "this fault needs a mount"
        end(mount)
        for one in [each for each in self.opened if each.driver == MOUNT]:
            if one.locked:
                self.lost_locks.add(one.mine.inode())
            self.drop(one)
        mounted.leave()
        mount.umount()
        mount.mount()
        self.open_mount()

    def mount_again(self) -> None:
        """Nothing is lost: what a mount holds is stored before it ends."""
        for one in [each for each in self.opened if each.driver == MOUNT]:
            self.close_file(one)
        self._remount(lambda mount: None)
        self.compare(MOUNT)

    def kill_mount(self) -> None:
        """What was synced is there. Other bytes may be there or not."""
        for one in [each for each in self.opened if each.dirty and each.driver != MOUNT]:
            self.sync(one)
        lost, self.unsynced = self.unsynced, {}
        self._remount(Mount.kill)
        self.adopt_after_crash(lost)
        self.compare(MOUNT)

    def check_all(self) -> None:
        for one in self.opened:
            if one.dirty:
                self.sync(one)
        report = run(check(self.world.fs))
        assert report.complete and not report.findings, report.findings


FAULTS: dict[str, Callable[[FaultRules], None]] = {
    "storage killed": FaultRules.kill_storage,
    "meta killed": FaultRules.kill_meta,
    "manager killed": FaultRules.kill_manager,
    "all services killed": FaultRules.kill_services,
    "checked in between": FaultRules.check_all,
    "mounted again": FaultRules.mount_again,
    "mount killed": FaultRules.kill_mount,
}
#: Those that need no mount.
OF_SERVICES = [name for name in FAULTS if not name.startswith("mount")]
