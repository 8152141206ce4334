"""The methods of the contract, typed. Names and numbers come from proto/, only the pairing of types is said here."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from threefs.errors import LimitExceeded
from threefs.rpc import rows
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire import backup_pb2, common_pb2, manager_pb2, meta_pb2, storage_pb2

Req = TypeVar("Req", bound=Message)
Rep = TypeVar("Rep", bound=Message)

_BODY_BYTES = 1 << 20  # of a request, unless its method says otherwise
_LARGE_BODY_BYTES = 8 << 20  # paths of thousands of files, the disks of a large cluster, thousands of pieces
#: Messages and texts within a request. Without a bound, parsing them would hold up the loop for seconds.
_MAX_ROWS = 1 << 16
_NUMBER_BYTES = 8  # that a number in a column takes at most; in the body it may take one
_SMALL_BODY_BYTES = 4096  # of up to so many bytes, each counts as a number: to count them takes time
_ROW_BYTES = 256  # that one of them takes at most when it is parsed; in the body it may take two


@dataclass(frozen=True, slots=True, eq=False)
class Method(Generic[Req, Rep]):
    """One call of one service."""

    service: str  # full name, "threefs.wire.Storage"
    name: str  # "Read"
    number: int  # in frames
    request: type[Req]
    reply: type[Rep]
    traffic: TrafficClass = TrafficClass.METADATA  # of its calls, unless the caller says otherwise
    body_bytes: int = _BODY_BYTES  # the largest body of a request
    row_tags: bytes = b""  # see `rows.row_tags`
    has_columns: bool = False  # of numbers

    def request_bytes(self, body: bytes) -> int:
        """How much memory a request takes at most when it is parsed. Raises LimitExceeded if it should not be."""
        if len(body) > self.body_bytes:
            raise LimitExceeded(f"a request of {self} of {len(body)} bytes exceeds the limit of {self.body_bytes}")
        size = len(body)
        if self.has_columns:
            size += _NUMBER_BYTES * (rows.most_numbers(body) if size > _SMALL_BODY_BYTES else size)
        if not self.row_tags:
            return size
        found = rows.most_rows(body, self.row_tags)
        count = found if found <= _MAX_ROWS else rows.count_fields(self.request, body, _MAX_ROWS)
        if count is None:
            raise LimitExceeded(
                f"a request of {self} with more than {_MAX_ROWS} fields exceeds the limit, or is broken"
            )
        return size + count * _ROW_BYTES

    def __str__(self) -> str:
        return f"{self.service.rpartition('.')[2]}.{self.name}"


def _method(
    module: Any,
    service: str,
    name: str,
    request: type[Req],
    reply: type[Rep],
    traffic: TrafficClass = TrafficClass.METADATA,
    body_bytes: int = _BODY_BYTES,
) -> Method[Req, Rep]:
    owner = module.DESCRIPTOR.services_by_name[service]
    found = owner.methods_by_name[name]
    assert found.input_type is request.DESCRIPTOR and found.output_type is reply.DESCRIPTOR, found.full_name
    number = found.GetOptions().Extensions[common_pb2.number]
    tags = rows.row_tags(request)
    columns = rows.has_columns(request)
    return Method(owner.full_name, name, number, request, reply, traffic, body_bytes, tags, columns)


_M, _F, _S = manager_pb2, meta_pb2, storage_pb2
_DATA, _REPLICATION, _BACKGROUND = TrafficClass.DATA, TrafficClass.REPLICATION, TrafficClass.BACKGROUND

INIT = _method(_M, "Manager", "Init", _M.InitRequest, _M.InitReply, body_bytes=_LARGE_BODY_BYTES)
REGISTER = _method(_M, "Manager", "Register", _M.RegisterRequest, _M.RegisterReply)
HEARTBEAT = _method(_M, "Manager", "Heartbeat", _M.HeartbeatRequest, _M.HeartbeatReply)
GET_ROUTING = _method(_M, "Manager", "GetRouting", _M.GetRoutingRequest, _M.GetRoutingReply)
GET_STATUS = _method(_M, "Manager", "GetStatus", _M.GetStatusRequest, _M.GetStatusReply)
PRESENCE = _method(_M, "Manager", "Presence", _M.PresenceRequest, _M.PresenceReply)
ACCEPT_LOSS = _method(_M, "Manager", "AcceptLoss", _M.AcceptLossRequest, _M.AcceptLossReply)
SET_MIN_REPLICAS = _method(_M, "Manager", "SetMinReplicas", _M.SetMinReplicasRequest, _M.SetMinReplicasReply)
ACCEPT_UNHEARD = _method(_M, "Manager", "AcceptUnheard", _M.AcceptUnheardRequest, _M.AcceptUnheardReply)
ADMIT_STORE = _method(_M, "Manager", "AdmitStore", _M.AdmitStoreRequest, _M.AdmitStoreReply)
ADD_NODES = _method(_M, "Manager", "AddNodes", _M.AddNodesRequest, _M.AddNodesReply, body_bytes=_LARGE_BODY_BYTES)
SET_DRAINING = _method(_M, "Manager", "SetDraining", _M.SetDrainingRequest, _M.SetDrainingReply)
REMOVE_NODE = _method(_M, "Manager", "RemoveNode", _M.RemoveNodeRequest, _M.RemoveNodeReply)
REBALANCE = _method(_M, "Manager", "Rebalance", _M.RebalanceRequest, _M.RebalanceReply)
CREATE_TABLE = _method(_M, "Manager", "CreateTable", _M.CreateTableRequest, _M.CreateTableReply)
SET_DEFAULT_TABLE = _method(_M, "Manager", "SetDefaultTable", _M.SetDefaultTableRequest, _M.SetDefaultTableReply)
CHAIN_EVENTS = _method(_M, "Manager", "ChainEvents", _M.ChainEventsRequest, _M.ChainEventsReply)
HOLD_TARGETS = _method(_M, "Manager", "HoldTargets", _M.HoldTargetsRequest, _M.HoldTargetsReply)
REPORT_BACKUP = _method(_M, "Manager", "ReportBackup", _M.ReportBackupRequest, _M.ReportBackupReply)
SET_REPLICAS = _method(_M, "Manager", "SetReplicas", _M.SetReplicasRequest, _M.SetReplicasReply)
GET_CONFIGURATION = _method(_M, "Manager", "GetConfiguration", _M.GetConfigurationRequest, _M.GetConfigurationReply)
SET_CONFIGURATION = _method(_M, "Manager", "SetConfiguration", _M.SetConfigurationRequest, _M.SetConfigurationReply)

CREATE = _method(_F, "Meta", "Create", _F.CreateRequest, _F.CreateReply)
OPEN = _method(_F, "Meta", "Open", _F.OpenRequest, _F.OpenReply)
CLOSE = _method(_F, "Meta", "Close", _F.CloseRequest, _F.InodeReply)
SYNC = _method(_F, "Meta", "Sync", _F.SyncRequest, _F.InodeReply)
STAT = _method(_F, "Meta", "Stat", _F.StatRequest, _F.InodeReply)
BATCH_STAT = _method(_F, "Meta", "BatchStat", _F.BatchStatRequest, _F.BatchStatReply, body_bytes=_LARGE_BODY_BYTES)
LOOKUP = _method(_F, "Meta", "Lookup", _F.LookupRequest, _F.InodeReply)
LIST = _method(_F, "Meta", "List", _F.ListRequest, _F.ListReply)
LIST_NAMES = _method(_F, "Meta", "ListNames", _F.ListNamesRequest, _F.ListNamesReply)
MKDIR = _method(_F, "Meta", "Mkdir", _F.MkdirRequest, _F.InodeReply)
REMOVE = _method(_F, "Meta", "Remove", _F.RemoveRequest, _F.RemoveReply)
RENAME = _method(_F, "Meta", "Rename", _F.RenameRequest, _F.InodeReply)
SYMLINK = _method(_F, "Meta", "Symlink", _F.SymlinkRequest, _F.InodeReply)
LINK = _method(_F, "Meta", "Link", _F.LinkRequest, _F.InodeReply)
SET_ATTR = _method(_F, "Meta", "SetAttr", _F.SetAttrRequest, _F.InodeReply)
TRUNCATE = _method(_F, "Meta", "Truncate", _F.TruncateRequest, _F.InodeReply)
SET_LAYOUT = _method(_F, "Meta", "SetLayout", _F.SetLayoutRequest, _F.InodeReply)
STAT_FS = _method(_F, "Meta", "StatFs", _F.StatFsRequest, _F.StatFsReply)
BATCH = _method(_F, "Meta", "Batch", _F.BatchRequest, _F.BatchReply, body_bytes=_LARGE_BODY_BYTES)
RENEW_LEASE = _method(_F, "Meta", "RenewLease", _F.RenewLeaseRequest, _F.RenewLeaseReply)
SET_QUOTA = _method(_F, "Meta", "SetQuota", _F.SetQuotaRequest, _F.QuotaReply)
SHOW_QUOTA = _method(_F, "Meta", "ShowQuota", _F.ShowQuotaRequest, _F.QuotaReply)
LIST_QUOTAS = _method(_F, "Meta", "ListQuotas", _F.ListQuotasRequest, _F.ListQuotasReply)
STATISTICS = _method(_F, "Meta", "Statistics", _F.StatisticsRequest, _F.StatisticsReply)
FSCK_SCAN = _method(_F, "Meta", "FsckScan", _F.FsckScanRequest, _F.FsckScanReply)
FSCK_RECHECK = _method(
    _F, "Meta", "FsckRecheck", _F.FsckRecheckRequest, _F.FsckRecheckReply, body_bytes=_LARGE_BODY_BYTES
)
ACCESS = _method(_F, "Meta", "Access", _F.AccessRequest, _F.InodeReply)
MKNOD = _method(_F, "Meta", "Mknod", _F.MknodRequest, _F.InodeReply)
GET_XATTR = _method(_F, "Meta", "GetXattr", _F.GetXattrRequest, _F.GetXattrReply)
LIST_XATTR = _method(_F, "Meta", "ListXattr", _F.ListXattrRequest, _F.ListXattrReply)
SET_XATTR = _method(_F, "Meta", "SetXattr", _F.SetXattrRequest, _F.InodeReply)
REMOVE_XATTR = _method(_F, "Meta", "RemoveXattr", _F.RemoveXattrRequest, _F.InodeReply)
LOCK = _method(_F, "Meta", "Lock", _F.LockRequest, _F.LockReply)
REPORT_ATIME = _method(_F, "Meta", "ReportAtime", _F.ReportAtimeRequest, _F.ReportAtimeReply)
SET_TRASH = _method(_F, "Meta", "SetTrash", _F.SetTrashRequest, _F.InodeReply)
LIST_TRASH = _method(_F, "Meta", "ListTrash", _F.ListTrashRequest, _F.ListTrashReply)
RESERVE = _method(_F, "Meta", "Reserve", _F.ReserveRequest, _F.ReserveReply)
QUERY_LOCK = _method(_F, "Meta", "QueryLock", _F.QueryLockRequest, _F.QueryLockReply)
DELEGATE = _method(_F, "Meta", "Delegate", _F.DelegateRequest, _F.DelegateReply)
RETURN_DELEGATION = _method(_F, "Meta", "ReturnDelegation", _F.ReturnDelegationRequest, _F.ReturnDelegationReply)
PRECREATE = _method(_F, "Meta", "Precreate", _F.PrecreateRequest, _F.PrecreateReply)
PUBLISH = _method(_F, "Meta", "Publish", _F.PublishRequest, _F.InodeReply)

READ = _method(_S, "Storage", "Read", _S.ReadRequest, _S.ReadReply, _DATA)
WRITE = _method(_S, "Storage", "Write", _S.WriteRequest, _S.WriteReply, _DATA, _LARGE_BODY_BYTES)
QUERY_VERSION = _method(_S, "Storage", "QueryVersion", _S.QueryVersionRequest, _S.QueryVersionReply, _REPLICATION)
LAST_CHUNK = _method(_S, "Storage", "LastChunk", _S.LastChunkRequest, _S.LastChunkReply, _DATA)
LIST_CHUNKS = _method(_S, "Storage", "ListChunks", _S.ListChunksRequest, _S.ListChunksReply, _DATA)
SPACE_INFO = _method(_S, "Storage", "SpaceInfo", _S.SpaceInfoRequest, _S.SpaceInfoReply, _DATA)
INVENTORY = _method(_S, "Storage", "Inventory", _S.InventoryRequest, _S.InventoryReply, _BACKGROUND)
SYNC_DONE = _method(_S, "Storage", "SyncDone", _S.SyncDoneRequest, _S.SyncDoneReply, _BACKGROUND)
FETCH_CHUNK = _method(_S, "Storage", "FetchChunk", _S.FetchChunkRequest, _S.FetchChunkReply, _BACKGROUND)
STAGE_AHEAD = _method(
    _S, "Storage", "StageAhead", _S.StageAheadRequest, _S.StageAheadReply, _REPLICATION, _LARGE_BODY_BYTES
)
FORWARD_STAGED = _method(_S, "Storage", "ForwardStaged", _S.ForwardStagedRequest, _S.ChunkWriteResult, _REPLICATION)
FORWARD_VERSIONS = _method(
    _S, "Storage", "ForwardVersions", _S.ForwardVersionsRequest, _S.ForwardVersionsReply, _REPLICATION
)
SCAN_CHUNKS = _method(_S, "Storage", "ScanChunks", _S.ScanChunksRequest, _S.ScanChunksReply, _BACKGROUND)
INSPECT_CHUNK = _method(_S, "Storage", "InspectChunk", _S.InspectChunkRequest, _S.InspectChunkReply)
START_SCRUB = _method(_S, "Storage", "StartScrub", _S.StartScrubRequest, _S.StartScrubReply)

READ_SNAPSHOT = _method(
    backup_pb2, "Backup", "ReadSnapshot", backup_pb2.ReadSnapshotRequest, backup_pb2.ReadSnapshotReply, _BACKGROUND
)
READ_LOG = _method(backup_pb2, "Backup", "ReadLog", backup_pb2.ReadLogRequest, backup_pb2.ReadLogReply, _BACKGROUND)
