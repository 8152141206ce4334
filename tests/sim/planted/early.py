"""Changes that come ahead without one of the rules P2, P4, P5, P7, P11, P12 and P13."""

import dataclasses
from types import SimpleNamespace
from typing import Any

from threefs_storage.chain import admission, early_staging, shared_messages, writes
from threefs_storage.chain import craq as craq_module
from threefs_storage.chain.craq import Craq
from threefs_storage.chain.early_staging import EarlyStaging
from threefs_storage.chain.early_versions import Change, EarlyVersion, EarlyVersions
from threefs_storage.chain.shared_messages import SharedMessages
from threefs_storage.chain.successor import AheadCall, Successor
from threefs_storage.chain.writes import Writes
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.target import Target

from tests.sim.planted.registry import plant, plant_for, put
from threefs.errors import ThreefsError
from threefs.ids import ChunkId
from threefs.routing import Chain
from threefs.wire import storage_pb2 as pb

_SHARED = "cluster/services/threefs_storage/chain/test_shared_messages.py"
_STAGING = "cluster/services/threefs_storage/chain/test_early_staging.py"


@plant
def tail_commits_what_came_ahead() -> None:
    """P4: the tail commits a version as soon as it has it on its disk."""
    stage = EarlyStaging.stage

    async def hasty(self: EarlyStaging, target: Target, write: pb.ChunkWrite, *rest: Any) -> None:
        await stage(self, target, write, *rest)
        chunk = ChunkId(write.chunk.inode, write.chunk.index)
        if target.is_last and chunk in target.early and chunk not in target.locks:
            target.early.discard(chunk)
            target.engine.commit(chunk, write.version, target.chain.version)

    put(EarlyStaging, "stage", hasty)


@plant
def early_versions_are_finished() -> None:
    """P4, P10: readers and the background take an early version for one that somebody may have committed."""
    put(EarlyVersions, "__contains__", lambda self, chunk: False)


@plant
def early_version_is_sent_on() -> None:
    """P4: a target that has a version on its disk forwards it before its own predecessor has."""
    stage = EarlyStaging.stage

    async def hasty(self: EarlyStaging, target: Target, write: pb.ChunkWrite, payload: Any, deadline: float) -> None:
        await stage(self, target, write, payload, deadline)
        chunk = ChunkId(write.chunk.inode, write.chunk.index)
        if chunk in target.early:
            async with self._craq.locked_change(target, chunk, deadline):
                record = target.engine.record(chunk)
                if chunk in target.early and record is not None and record.pending is not None:
                    await self._craq.promote(target, chunk, record.pending, deadline)

    put(EarlyStaging, "stage", hasty)


@plant
def forward_names_only_the_number() -> None:
    """P5: an early version of another write counts as the one that is forwarded."""

    def is_named_by(version: Version, request: pb.ForwardStagedRequest) -> bool:
        return version.version == request.version

    def is_made_by(self: EarlyVersions, chunk: ChunkId, change: Change) -> bool:
        early = self._by_chunk.get(chunk)
        return early is not None and early.change.version == change.version

    put(early_staging, "is_named_by", is_named_by)
    put(EarlyVersions, "is_made_by", is_made_by)


@plant
def mark_stays_while_a_version_is_forwarded() -> None:
    """P5: a version counts as early until the successor has committed it."""
    forward = Successor.forward

    async def marked(self: Successor, target: Target, *args: Any, **more: Any) -> Any:
        if target.chain.head == target.target_id:
            return await forward(self, target, *args, **more)
        _, chunk, pending = args[:3]
        change = Change(pending.version, pending.identity, pending.stamp, 0, 0, 0, 0)
        target.current_pending.discard(chunk)
        target.early._by_chunk[chunk] = EarlyVersion(change, 1e9, None)
        try:
            return await forward(self, target, *args, **more)
        finally:
            target.early.discard(chunk)

    put(Successor, "forward", marked)


@plant
def early_at_the_head_is_not_finished() -> None:
    """P7: a target that becomes head treats what came ahead as before."""
    apply_chain = Target.apply_chain

    def forgetful(self: Target, chain: Any) -> None:
        marks = dict(self.early._by_chunk)
        apply_chain(self, chain)
        if self.serving:
            self.early._by_chunk.update(marks)

    put(Target, "apply_chain", forgetful)


@plant_for(f"{_STAGING}::test_a_full_version_is_not_replaced")
def full_version_is_replaced() -> None:
    """P2: a change that comes ahead takes the place of whatever is pending."""
    takes = EarlyStaging._takes_early

    def always(self: EarlyStaging, target: Target, chunk: ChunkId, write: pb.ChunkWrite, change: Change) -> bool:
        target.engine.drop_pending(chunk)
        target.early.discard(chunk)
        return takes(self, target, chunk, write, change)

    put(EarlyStaging, "_takes_early", always)


@plant_for(f"{_STAGING}::test_an_error_of_the_heads_own_disk_is_an_unknown_outcome")
def no_effect_is_promised_of_what_went_ahead() -> None:
    """P11: the head says that a write had no effect which its successor has."""
    put(craq_module, "_REFUSED_EVERYWHERE", (ThreefsError,))


@plant_for("contract/test_chunk_engine_durability.py::test_an_append_does_not_overwrite_a_version_that_was_dropped")
def append_over_a_dropped_version() -> None:
    """P12: a change is written over the bytes of an early one, which a crash may bring back."""
    drop = ChunkEngine.drop_pending

    def trusting(self: ChunkEngine, chunk: ChunkId) -> None:
        drop(self, chunk)
        self._writer.torn.clear()

    put(ChunkEngine, "drop_pending", trusting)


@plant_for(f"{_STAGING}::test_a_forward_does_not_overtake_its_payload")
def forward_overtakes_its_payload() -> None:
    """A version is forwarded by name while its payload is still being sent, so the payload is sent twice."""

    async def at_once(self: AheadCall, target: Target) -> None:
        pass

    put(AheadCall, "sent", at_once)


@plant_for(f"{_STAGING}::test_a_full_version_stays_full_in_later_chain_versions")
def full_version_is_early_in_the_next_chain_version() -> None:
    """P6: a forward counts only in the chain version in which it came."""
    apply_chain = Target.apply_chain

    def forgetful(self: Target, chain: Chain) -> None:
        apply_chain(self, chain)
        if not self.serving or chain.head == self.target_id:
            return
        for chunk in self.engine.pending_chunks:
            if chunk not in self.early and chunk not in self.locks:  # the change of a locked one goes on
                self.early.mark(chunk, EarlyVersion(Change(0, None, 0, 0, 0, 0, 0), self._clock.monotonic(), None))

    put(Target, "apply_chain", forgetful)


@plant_for("contract/test_buffer_ownership.py::test_a_payload_that_goes_ahead_is_not_sent_after_its_write_has_ended")
def payload_goes_ahead_after_its_write() -> None:
    """I14: the call that sends a change ahead outlives the write whose buffer it sends from."""
    put(AheadCall, "__exit__", lambda self, *_: None)


@plant_for("contract/test_buffer_ownership.py::test_changes_that_share_a_message_are_sent_from_a_copy")
def shared_message_sends_from_the_buffer_of_a_write() -> None:
    """I14: a message that changes share outlives them, and has no copy of their payloads."""
    begin = SharedMessages.begin_ahead

    def borrowed(self: SharedMessages, target: Any, write: Any, payload: Any, hops: int, sent: Any) -> Any:
        begun = begin(self, target, write, payload, hops, sent)
        if begun is not None:
            row = self._aheads._turns[self._peers.address_of(target), hops][-1]
            row.call = dataclasses.replace(row.call, payload=payload)
        return begun

    put(SharedMessages, "begin_ahead", borrowed)


@plant_for(f"{_SHARED}::test_what_is_lost_on_the_way_is_sent_again_by_itself")
def outcomes_of_a_shared_message_are_mixed_up() -> None:
    """What the successor says of one change counts for another one."""
    answer = shared_messages._answer

    def turned(rows: list[Any], call: Any) -> None:
        answer(rows[::-1], call)

    put(shared_messages, "_answer", turned)


@plant_for(f"{_SHARED}::test_a_slow_chunk_holds_up_no_other")
def forwards_in_progress_count_as_done() -> None:
    """I2: a version that the successor has not committed yet is committed here."""

    async def hasty(self: SharedMessages, target: Any, version: pb.ForwardStagedRequest, *_: Any) -> Any:
        return pb.ChunkWriteResult(version=version.version, length=version.length, checksum=version.checksum)

    put(SharedMessages, "_forward_alone", hasty)


@plant_for(f"{_SHARED}::test_a_message_of_which_every_change_was_cancelled_is_given_up")
def shared_message_outlives_all_its_changes() -> None:
    """The successor holds the locks of chunks for changes that nobody waits for any more."""
    put(shared_messages, "_give_up", lambda *_: None)


@plant_for(f"{_SHARED}::test_a_slow_chunk_holds_up_no_other")
def shared_forwards_wait_for_the_slowest() -> None:
    """One chunk that is slow holds up all that are forwarded with it."""
    run = Writes._run

    async def patient(self: Writes, call: Any, count: int, rows: Any, after_ms: int, answer: Any) -> None:
        await run(self, call, count, rows, 0, answer)

    put(Writes, "_run", patient)


@plant_for("contract/test_overload.py::test_changes_of_clients_leave_room_for_those_that_services_forward")
def clients_take_the_room_of_forwards() -> None:
    """I13: services that are full of clients' changes wait for each other's forwards."""
    put(writes, "_most_in_flight", lambda hops: writes._MAX_IN_FLIGHT * 3 // 4)


@plant_for(f"{_SHARED}::test_a_message_of_one_change_is_answered_as_one_of_several")
def answer_to_one_change_has_no_result() -> None:
    """The predecessor takes the change for one that was lost, and sends its bytes again."""
    stage_ahead = Writes._stage_ahead

    async def terse(self: Writes, call: Any) -> None:
        reply = call.reply
        call = SimpleNamespace(request=call.request, payload=call.payload, deadline=call.deadline, hops=call.hops)
        call.reply = lambda message: reply(message if len(message.results) > 1 else pb.StageAheadReply())
        await stage_ahead(self, call)

    put(Writes, "_stage_ahead", terse)


@plant_for("contract/test_fences.py::test_a_write_that_only_successors_have_is_gone_when_the_fence_stands")
def fence_passes_early_versions() -> None:
    """P13: only what is pending at the head ends before the fence stands."""

    async def kept(self: Craq, target: Target, inode: int, deadline: float) -> None:
        pass

    put(Craq, "_drop_early_behind_fence", kept)


@plant
def fence_stands_before_its_drops_are_durable() -> None:
    """P13: a version that a fence has dropped is pending again after a crash, and a lastsrv target commits it."""

    async def hasty(self: Craq, target: Target, inode: int, deadline: float) -> None:
        for chunk in [chunk for chunk in target.early if chunk.inode == inode]:
            async with self.locked_change(target, chunk, deadline):
                target.drop_early(chunk)

    put(Craq, "_drop_early_behind_fence", hasty)


@plant_for("contract/test_fences.py::test_what_comes_ahead_after_the_fence_is_not_staged")
def old_changes_come_ahead_of_a_fence() -> None:
    """P13: a change that was on its way when the fence was raised is staged behind it."""
    check = admission.check_fence

    def at_the_head(target: Target, write: pb.ChunkWrite) -> None:
        if not write.version:
            check(target, write)

    put(admission, "check_fence", at_the_head)


@plant_for("contract/test_fences.py::test_a_repeat_is_refused_only_when_its_first_attempt_is_gone_everywhere")
def repeat_is_refused_before_the_fence_stands() -> None:
    """P13: the client makes the change anew, and a successor that becomes head finishes the first attempt."""
    check = admission.check_fence

    def hasty(target: Target, write: pb.ChunkWrite) -> None:
        first = pb.ChunkWrite()
        first.CopyFrom(write)
        first.again = False
        check(target, first)

    put(admission, "check_fence", hasty)
