"""A rule of the state machine about the trash: locally, what is removed is put aside."""

import os
import stat

from hypothesis import strategies as st
from hypothesis.stateful import rule
from threefs_client.metadata.trash import Trashed

from tests.harness.client_driver import run
from tests.harness.differential_trees import CLIENT, DRIVERS, PATHS, TwoTrees
from tests.harness.fs_drivers import NOREPLACE, outcome


class TrashRules(TwoTrees):
    @rule(driver=DRIVERS, path=PATHS, back=st.one_of(st.none(), PATHS))
    def remove_to_the_trash_and_restore(self, driver: str, path: str, back: str | None) -> None:
        found = outcome(lambda: self.local.stat(path, False)).value
        if found is None or stat.S_ISDIR(found.type):
            return
        trash, aside = self.world.fs.trash, str(self.world.local / "aside")
        self.settle(CLIENT)
        run(trash.set(f"/{self.top}", 3600))
        self.driver(driver).remove_file(path)
        run(trash.set(f"/{self.top}", None))
        self._move_locally(path, aside)
        self.compare(driver)
        (item,) = run(self._trashed(found.uid))
        to = None if back is None else f"/{self.top}/{back}"
        expected = outcome(lambda: self._move_locally(aside, back or path))
        got = outcome(lambda: run(trash.restore(item.path, to)))
        assert bool(got.error) == bool(expected.error), f"restored: {got}; a local directory: {expected}"
        if got.error:
            assert run(trash.empty(found.uid)) == 1
            os.unlink(aside)
        self.compare(CLIENT)

    def _move_locally(self, old: str, new: str) -> None:
        self.local.rename(old, new, NOREPLACE)

    async def _trashed(self, uid: int) -> list[Trashed]:
        return [item async for item in self.world.fs.trash.list(uid)]
