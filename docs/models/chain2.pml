/*
 * threefs: one chunk on one chain. Explicit-state model of what docs/protocol.md describes.
 *
 * How it is kept small:
 *  - Content of a chunk IS its history: 2 bits per version, holding the id of the write that made it; the
 *    version is the number of digits. Lost, doubled, reordered and torn histories all show.
 *  - conf[v] is the chain table of chain version v. A target knows one version and learns newer ones late,
 *    skipping some. Clients know any version: a write may reach any target that believes it is head.
 *  - An acknowledgement or a read result counts at the earliest instant at which it can leave the server.
 *  - A request lies in its sender's handler until the receiver takes it, as often as it likes (lost reply plus
 *    retry); the stray is one copy of a forward or replace that outlives its sender's call.
 *  - lease 1 is a valid lease. A crash or a lapse ends it; only then may the manager call the target dead.
 *  - Every step changes the state and faults are budgeted, so every run ends, and then all must have converged.
 *
 * PARALLEL_PERSIST (PARALLEL.md): the payload runs ahead as an "ahead" message, and all replicas write their pending
 * version at the same time; the forward of before is the token that makes it count. Without the flag: chain.pml.
 *
 * MOVE: the chain starts with two of three targets. The third joins empty; when it serves, one of the others leaves for
 * good: it gives its lease up, and the manager demotes it as one that is dead and never readmits it.
 * SHRINK, with MOVE: the chain starts with all three, none joins, and any one leaves while another one serves.
 *
 * FENCE: the fence of the inode is raised once. It lies in another chunk of the chain, of which a target knows only whether
 * it is pending or committed. When the head has answered, no version that it had not committed may be committed.
 *
 * All rules are on by default. A -D flag takes one away; check.py lists the flags with the rule they remove.
 */

#ifndef N
#define N 3                     /* targets on the chain, all serving at the start */
#endif
#ifndef WRITES
#define WRITES 2                /* distinct write identities, 1 to 3, all concurrent */
#endif
#ifndef TRIES
#define TRIES 2                 /* how often one identity may be taken in by some head */
#endif
#ifndef READS
#define READS 2                 /* apportioned reads, one after the other; clean reads are unlimited */
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef LAPSES
#define LAPSES 0                /* a live target loses its lease: a pause or a partition */
#endif
#ifndef STRAYS
#define STRAYS 0                /* messages that outlive the call that sent them */
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 0              /* a handler gives up an open call and frees the chunk lock */
#endif
#ifndef POWER_CUTS
#define POWER_CUTS 0            /* all targets crash at once and one of them never comes back */
#endif

#ifndef FAILS
#define FAILS 0                 /* a write to the disk fails cleanly: nothing is there, the handler gives up */
#endif

#define MAXV 13                 /* chain versions that somebody still knows; asserted to suffice */
#define NIL 3                   /* no target */

/* ---- contents: the id of the write that made version p+1 sits in bits 2p and 2p+1 ---- */
#define VER(c)      ((c) > 63 -> 4 : ((c) > 15 -> 3 : ((c) > 3 -> 2 : ((c) > 0 -> 1 : 0))))
#define PART(c,n)   ((c) & ((1 << (2 * (n))) - 1))
#define PREFIX(c,d) (PART(d, VER(c)) == (c))
#define ALIGNED(c,d) (PREFIX(c,d) || PREFIX(d,c))
#define DIGIT(c,p)  (((c) >> (2 * (p))) & 3)
#define LASTID(c)   DIGIT(c, VER(c) - 1)
#define APPEND(c,i) ((c) | ((i) << (2 * VER(c))))
#define PATCH(c,d)  (PART(c, VER(d) - 1) | (LASTID(d) << (2 * (VER(d) - 1))))   /* apply only d's last write to c */
#define STRIP(c)    PART(c, VER(c) - 1)
#define HAS(c,i)    (DIGIT(c,0) == (i) || DIGIT(c,1) == (i) || DIGIT(c,2) == (i) || DIGIT(c,3) == (i))
#define UPTO(c,i)   PART(c, (DIGIT(c,0) == (i) -> 1 : (DIGIT(c,1) == (i) -> 2 : (DIGIT(c,2) == (i) -> 3 : 4))))
#define SAME(c,p,q) (DIGIT(c,p) != 0 && DIGIT(c,p) == DIGIT(c,q))
#define TWICE(c)    (SAME(c,0,1) || SAME(c,0,2) || SAME(c,0,3) || SAME(c,1,2) || SAME(c,1,3) || SAME(c,2,3))

/* ---- chain tables: up to three serving targets in chain order, then a syncing one; 2 bits each ---- */
#define TABLE(p,q,r,y) ((p) | ((q) << 2) | ((r) << 4) | ((y) << 6))
#if N == 2 || defined(MOVE) && !defined(SHRINK)
#define START TABLE(0, 1, NIL, NIL)
#else
#define START TABLE(0, 1, 2, NIL)
#endif
byte conf[MAXV + 1] = START;
#define S0(k)       (conf[k] & 3)
#define S1(k)       ((conf[k] >> 2) & 3)
#define S2(k)       ((conf[k] >> 4) & 3)
#define SYNCING(k)  ((conf[k] >> 6) & 3)
#define SERVES(x,k) (S0(k) == (x) || S1(k) == (x) || S2(k) == (x))
#define MEMBER(x,k) (SERVES(x,k) || SYNCING(k) == (x))
#define LAST(k)     (S2(k) != NIL -> S2(k) : (S1(k) != NIL -> S1(k) : S0(k)))
#define SUCC(x,k)   (S0(k) == (x) -> (S1(k) != NIL -> S1(k) : SYNCING(k)) : \
                    (S1(k) == (x) -> (S2(k) != NIL -> S2(k) : SYNCING(k)) : \
                    (S2(k) == (x) -> SYNCING(k) : NIL)))
#ifdef QUERY_LAST_SERVING       /* "the tail" read as: the last serving target */
#define TAIL(k)     LAST(k)
#else                           /* the last target that writes reach, syncing included */
#define TAIL(k)     (SYNCING(k) != NIL -> SYNCING(k) : LAST(k))
#endif

/* ---- a target ---- */
#define IDLE 0                  /* handler; in any other step it holds the chunk lock */
#define WRITING 1               /* checks passed, data and record are on their way to the disk; parallel: the successor
                                   may take the ahead message, while both know the same version */
#define FORWARDING 2            /* pending durable, call to the successor open */
#define CONFIRMED 3             /* the successor said yes */
#define SHIPPING 4              /* resync: whole-chunk replace to the syncing successor open */

#define EXPECTED 2              /* lease: not granted yet, but the manager counts the target alive */

typedef Target {
  bit up = 1;
  bit fresh;                    /* restarted, and its old incarnation not yet demoted */
  bit unsynced;                 /* the commit record is not synced: a crash may turn it back into pending */
  bit client;                   /* the handler will acknowledge to a client */
  unsigned lease : 2 = 1;
  unsigned knows : 4 = 1;           /* the chain version it knows */
  unsigned since : 4;           /* the version that last demoted or readmitted it, 0 once it knows that */
  bit current;                  /* pending was taken in the chain version it knows */
#ifdef PARALLEL_PERSIST
  bit early;                    /* in memory: pending ran ahead, and its token has not come. A restart forgets it: then
                                   pending counts as any other */
#ifdef FENCE
  unsigned fence : 2;           /* 1 pending here, so older writes are refused; 2 committed */
  bit raising;                  /* its handler of the fence was admitted, and lives */
#endif
  bit token;                    /* what is being written may count at once: all predecessors have it on their disks */
#endif
#ifdef LOSE_DROPS
  byte dropped;                 /* an early version that was dropped, until a newer record is durable: a crash may bring
                                   it back */
  bit torn;                     /* the bytes of pending were overwritten */
#endif
  bit replaced;                 /* syncing: a whole chunk has come in the chain version it knows */
  bit ready;                    /* syncing: it reports up-to-date for the manager's chain version */
  unsigned step : 3;
  unsigned hcv : 4;             /* the chain version of the open call */
  unsigned to : 2 = NIL;              /* whom the open call goes to */
  unsigned from : 2 = NIL;            /* the predecessor that waits for this handler */
  unsigned resync : 2;          /* 0 no run, 1 has the inventory, 2 equal now, 3 has said so */
  byte com;                     /* committed content */
  byte pen;                     /* pending content, 0 for none */
  byte data;                    /* content being written */
  byte seen;                    /* what the successor's inventory said */
#ifdef FRAIL
  bit frail;                    /* the newest version may not be on the disk */
#endif
#ifdef ENTRIES_APART
  unsigned once : 4;            /* exactly-once entries, kept apart from the content: one bit per write */
  unsigned news : 4;            /* the entries that WRITING will set */
#endif
};
Target t[N];

#ifdef FENCE
bit stands;                     /* the head has answered to the raise */
byte ended;                     /* what it had committed then */
#endif

byte cv = 1;                    /* the manager's chain version */
unsigned lastsrv : 3;           /* the targets in state lastsrv, one bit each */

/* ---- budgets ---- */
unsigned crashes : 2 = CRASHES;
unsigned lapses : 2 = LAPSES;
unsigned strays : 2 = STRAYS;
unsigned timeouts : 2 = TIMEOUTS;
unsigned fails : 2 = FAILS;
bit power_cuts = POWER_CUTS;
unsigned lost : 2 = NIL;        /* the target that a power cut destroyed */
#ifdef MOVE
unsigned leaving : 2 = NIL;     /* the target that the manager has asked to leave */
#define LEAVING(x) (leaving == (x))
#define ALONE(x) (S0(cv) == (x) && S1(cv) == NIL)   /* what only a leaving target has must still be served */
#else
#define LEAVING(x) 0
#define ALONE(x) 0
#endif
unsigned reads : 2 = READS;
unsigned tries1 : 2 = TRIES;
unsigned tries2 : 2 = TRIES;
unsigned tries3 : 2 = TRIES;

#ifdef NO_UNKNOWN               /* an error of the head's own disk says that the write had no effect */
unsigned denied : 4;            /* the writes of which a client was told so */
#define DENIED(i) ((denied >> (i)) & 1)
#define NONE_DENIED(c) (!(DENIED(1) && HAS(c,1)) && !(DENIED(2) && HAS(c,2)) && !(DENIED(3) && HAS(c,3)))
#else                           /* it says that the outcome is unknown, once the payload has gone ahead */
#define DENIED(i) 0
#define NONE_DENIED(c) 1
#endif

/* ---- the stray message ---- */
unsigned sto : 2 = NIL;
unsigned scv : 4;
bit sship;
#ifdef PARALLEL_PERSIST
bit sahead;                     /* it is an ahead message */
#endif
byte sdata;
#ifdef NO_VERSION_UNDER_LOCK
bit squeued;                    /* passed the check, waits for the lock */
#endif

/* ---- the apportioned read in flight ---- */
unsigned rat : 2 = NIL;         /* the replica that serves it */
unsigned rcv : 4;
byte rfloor;                    /* what had been revealed when it began */
byte rcom;                      /* the replica's committed content when it began */
#ifdef CHECK_THEN_PAUSE
bit slow;
#endif

byte shown;                     /* the longest content that a finished read or an acknowledgement revealed */

/* Always 0. They name, by the design's numbers, the assertion that failed. */
hidden byte I1_stale_read, I1_history_forks, I2_acknowledged_lost, I3_successor_behind, I4_replicas_differ;
hidden byte I18_behind_the_fence;
hidden byte I14_not_everywhere, I6_denied_and_applied, I12_torn_bytes;
hidden byte I6_applied_twice, I7_promoted_unequal, I13_not_converged, bound_too_small, checksum_differs;

hidden byte u, v, w, z;         /* scratch inside one step */
hidden byte base;               /* what renumbering took away, for printing */

/* ================================================================ rules that an ablation can remove */
#ifdef NO_READ_LEASE
#define READ_LEASE(x) 1
#else
#define READ_LEASE(x) (t[x].lease == 1)
#endif
#ifdef NO_QUERY_LEASE
#define QUERY_LEASE(x) 1
#else
#define QUERY_LEASE(x) (t[x].lease == 1)
#endif
#ifdef NO_WRITE_LEASE
#define WRITE_LEASE(x) 1
#else
#define WRITE_LEASE(x) (t[x].lease == 1)
#endif

#ifdef PARALLEL_PERSIST         /* may pending be committed or shown by somebody? else it is only a payload that came early */
#define SURE(x) (!t[x].early || S0(t[x].knows) == x)
#ifdef NO_LEASE_TO_FINISH
#define FINISH_LEASE(x) 1
#else
#define FINISH_LEASE(x) (t[x].lease == 1)
#endif
#else
#define FINISH_LEASE(x) 1
#define SURE(x) 1
#endif
#ifdef FINISH_AHEAD             /* whoever holds it may drive it on */
#define DRIVABLE(x) 1
#else
#define DRIVABLE(x) SURE(x)
#endif
#ifdef NO_LEASE_AHEAD
#define AHEAD_LEASE(x) 1
#else
#define AHEAD_LEASE(x) (t[x].lease == 1)
#endif
#ifdef NO_VERSION_AHEAD
#define AHEAD_VERSION(x,k) 1
#define AHEAD_HOPELESS 0
#else
#define AHEAD_VERSION(x,k) (t[x].knows == (k))
#define AHEAD_HOPELESS 1
#endif
#ifdef NO_GAP_AHEAD
#define AHEAD_FITS(x,c) (VER(c) > VER(t[x].com))
#else
#define AHEAD_FITS(x,c) (VER(c) == VER(t[x].com) + 1)
#endif
#ifdef AHEAD_REPLACES           /* an ahead message takes the place of whatever is pending */
#define AHEAD_YIELDS(x) 1
#else
#define AHEAD_YIELDS(x) (!SURE(x))
#endif
#ifdef NO_IDENTITY              /* the token names a version number only */
#define SAME_WRITE(x,c) 1
#else
#define SAME_WRITE(x,c) (LASTID(t[x].pen) == LASTID(c))
#endif

#ifdef FENCE
#define FENCED(x) (t[x].fence != 0)
#define FENCE_FINISHED(x) (t[x].fence != 1)
#ifdef FENCE_IGNORED_AHEAD      /* only the head refuses writes behind the fence */
#define FENCED_AHEAD(x) 0
#else
#define FENCED_AHEAD(x) FENCED(x)
#endif
#ifdef FENCE_KEEPS_EARLY        /* a target lets the fence pass its early version */
#define NOTHING_EARLY(x) 1
#else
#define NOTHING_EARLY(x) ((t[x].pen == 0 || SURE(x)) && !(t[x].step == WRITING && !t[x].token))
#endif
#else
#define FENCED(x) 0
#define FENCE_FINISHED(x) 1
#define FENCED_AHEAD(x) 0
#endif

#define FINISHED(x) (t[x].pen == 0 || t[x].current || !SURE(x))
#ifdef NO_FINISH_BEFORE_READ
#define READ_FINISHED(x) 1
#elif defined(FINISH_BEFORE_READ_AT_TAIL_ONLY)
#define READ_FINISHED(x) (FINISHED(x) || x != TAIL(t[x].knows))
#else
#define READ_FINISHED(x) FINISHED(x)
#endif
#ifdef NO_FINISH_BEFORE_QUERY
#define QUERY_FINISHED(x) 1
#else
#define QUERY_FINISHED(x) FINISHED(x)
#endif
#ifdef NO_FINISH_BEFORE_RESYNC
#define RESYNC_FINISHED(x) 1
#else
#define RESYNC_FINISHED(x) FINISHED(x)
#endif
#ifdef NO_FINISH_BEFORE_WRITE
#define WRITE_FINISHED(x) 1
#else
#define WRITE_FINISHED(x) (t[x].pen == 0)
#endif

#ifdef NO_VERSION_AT_SUCCESSOR
#define SAME_VERSION(x,k) 1
#else
#define SAME_VERSION(x,k) (t[x].knows == (k))
#endif
#ifdef NO_VERSION_AT_SUCCESSOR  /* a stray of an older chain version cannot be taken any more */
#define STRAY_HOPELESS 0
#elif defined(NO_VERSION_UNDER_LOCK)
#ifdef WAITERS_DROPPED_ON_DEMOTION
#define STRAY_HOPELESS (!squeued || !SERVES(sto, t[sto].knows))
#else
#define STRAY_HOPELESS (!squeued)
#endif
#else
#define STRAY_HOPELESS 1
#endif
#ifdef NO_VERSION_UNDER_LOCK
#define STRAY_VERSION(x) (squeued || SAME_VERSION(x, scv))
#else
#define STRAY_VERSION(x) SAME_VERSION(x, scv)
#endif
#ifdef NO_VERSION_IN_QUERY
#define QUERY_VERSION(x,k) 1
#else
#define QUERY_VERSION(x,k) (t[x].knows == (k))
#endif

#ifdef NO_GAP_REFUSAL
#define FITS(x,c) 1
#else
#define FITS(x,c) (VER(c) == VER(t[x].com) + 1)
#endif
#ifdef NO_LOCK_TO_COMPARE
#define COMPARE_FREE(x) 1
#else
#define COMPARE_FREE(x) (t[x].step == IDLE)
#endif
#ifdef COMPARE_BY_VERSION       /* resync compares version numbers, not contents */
#define EQUAL(c,d) (VER(c) == VER(d))
#else
#define EQUAL(c,d) (c == d)
#endif
#ifdef NO_MONOTONE_REPLACE
#define NEWER_HERE(x,c) 0
#else                           /* something as new has come in this very chain version */
#define NEWER_HERE(x,c) (t[x].replaced && VER(t[x].com) >= VER(c))
#endif

#ifdef NO_VERSION_FOR_PROMOTION
#define READY_FOR(k) 1
#else
#define READY_FOR(k) (k == cv)
#endif

#ifdef ENTRIES_APART
#define DONE(x,i) ((t[x].once >> (i)) & 1)
#else                           /* entries are part of the record, and the content says it all */
#define DONE(x,i) HAS(t[x].com, i)
#endif

/* ================================================================ monitors */
inline expose(C) {              /* a client sees content C */
  assert(I1_history_forks || ALIGNED(shown, C));
  assert(I6_applied_twice || !TWICE(C));
  assert(I6_denied_and_applied || NONE_DENIED(C));
  if :: VER(C) > VER(shown) -> shown = C :: else fi
}

inline reveal(C, floor) {       /* by a read that began when floor had been shown */
  assert(I1_stale_read || PREFIX(floor, C));
  expose(C)
}

inline acknowledge(x, C) {      /* C ends in the acknowledged write */
  printf("%d acknowledges %x to the client\n", x, C);
  expose(C)
}

inline audit(x) {               /* x has just committed */
#ifdef FENCE
  assert(I18_behind_the_fence || !stands || VER(t[x].com) <= VER(ended));
#endif
#ifndef ONLY_CLIENTS
  assert(I6_applied_twice || !TWICE(t[x].com));
#ifdef PARALLEL_PERSIST
  for (u : 0 .. N - 1) {        /* whoever serves now and for x has it on its disk */
    assert(I14_not_everywhere || !SERVES(u, cv) || !SERVES(u, t[x].knows) || PREFIX(t[x].com, t[u].com) || t[u].pen == t[x].com)
  }
  u = 0;
#endif
  assert(I4_replicas_differ || (ALIGNED(t[x].com, t[0].com) && ALIGNED(t[x].com, t[1].com) && ALIGNED(t[x].com, t[N-1].com)));
  if
  :: SERVES(x, cv) && SUCC(x, cv) != NIL && SUCC(x, cv) != SYNCING(cv) ->
     u = SUCC(x, cv);
     assert(I3_successor_behind || !t[u].up || t[u].fresh || PREFIX(t[x].com, t[u].com))
  :: else
  fi
#else
  skip
#endif
}

/* ================================================================ handler */
inline release(x) {
  t[x].step = IDLE; t[x].hcv = 0; t[x].to = NIL; t[x].from = NIL; t[x].client = 0; t[x].data = 0
#ifdef PARALLEL_PERSIST
  ; t[x].token = 0
#endif
#ifdef ENTRIES_APART
  ; t[x].news = 0
#endif
}

inline hang_up(x) {             /* leave the open call: the callee's answer will find nobody */
  if
  :: t[x].step == FORWARDING && t[t[x].to].from == x -> t[t[x].to].from = NIL
  :: else
  fi
}

inline abort(x) {               /* drop the handler and the resync run; what is on the disk stays */
  hang_up(x); release(x); t[x].resync = 0; t[x].seen = 0
#ifdef FENCE
  ; t[x].raising = 0
#endif
}

inline confirm(x, P) {
  if :: P != NIL -> t[P].step = CONFIRMED; printf("%d confirms to %d\n", x, P) :: else fi
}

inline answer(x) {              /* x's handler has committed */
  if :: t[x].client -> acknowledge(x, t[x].com) :: else fi;
  confirm(x, t[x].from);
  release(x)
}

inline commit(x) {              /* pending becomes committed; nobody syncs the record */
#ifdef LOSE_DROPS
  assert(I12_torn_bytes || !t[x].torn);
#endif
  t[x].com = t[x].pen; t[x].pen = 0; t[x].current = 0; t[x].unsynced = 1;
#ifdef PARALLEL_PERSIST
  t[x].early = 0;
#endif
  printf("%d commits %x\n", x, t[x].com);
  audit(x);
  answer(x)
}

inline drive(x, K) {            /* forward pending to the successor of version k; nobody follows: commit */
  t[x].step = FORWARDING; t[x].hcv = K; t[x].to = SUCC(x, K);
#if defined(PARALLEL_PERSIST) && !defined(NO_MARK)
  t[x].early = 0;
#endif
  if
  :: t[x].to == NIL -> commit(x)
  :: t[x].to != NIL ->
     printf("%d forwards %x to %d in version %d\n", x, t[x].pen, t[x].to, base + K)
#ifdef COMMIT_BEFORE_SUCCESSOR
     ; if :: t[x].client -> acknowledge(x, t[x].pen) :: else fi; t[x].client = 0
#endif
  fi
}

#ifndef PARALLEL_PERSIST
#define TENTATIVE(x,w) 0
#elif defined(COMMIT_AHEAD)
#define TENTATIVE(x,w) (!t[x].token && SUCC(x, w) != NIL)
#else
#define TENTATIVE(x,w) (!t[x].token)
#endif

inline land(x) {                /* the disk has what WRITING wrote */
#ifdef LOSE_DROPS
  t[x].dropped = 0; t[x].torn = 0;
#endif
#ifdef LOOKUP_AT_ADMISSION
  w = t[x].hcv;
#else
  w = t[x].knows;
#endif
#ifdef ENTRIES_APART
  t[x].once = t[x].news; t[x].news = 0;
#endif
  if
  :: !MEMBER(x, t[x].knows) ->  /* only when handlers survive a demotion */
     t[x].pen = t[x].data; t[x].current = 1; release(x)
#ifdef PARALLEL_PERSIST
  :: MEMBER(x, t[x].knows) && TENTATIVE(x, w) ->
     t[x].pen = t[x].data; t[x].current = 0; t[x].early = 1; t[x].unsynced = 0;
#ifdef NO_PERSIST_BEFORE_FORWARD
     t[x].frail = 1;
#endif
     printf("%d holds %x, without the token\n", x, t[x].pen);
     release(x)
#endif
  :: MEMBER(x, t[x].knows) && !TENTATIVE(x, w) && SUCC(x, w) == NIL ->              /* last of the write chain: commit directly */
     t[x].com = t[x].data; t[x].pen = 0; t[x].current = 0;
#ifdef PARALLEL_PERSIST
     t[x].early = 0;
#endif
#ifdef TAIL_COMMIT_UNSYNCED
     t[x].unsynced = 1;
#else
     t[x].unsynced = 0;
#endif
#ifdef TAIL_NOT_DURABLE
     t[x].frail = 1;
#endif
     t[x].replaced = (SYNCING(t[x].knows) == x);
     printf("%d commits %x directly\n", x, t[x].com);
     audit(x);
     answer(x)
  :: else ->
     t[x].pen = t[x].data; t[x].data = 0; t[x].current = 1; t[x].unsynced = 0;
#ifdef NO_PERSIST_BEFORE_FORWARD
     t[x].frail = 1;
#endif
     drive(x, w)
  fi
}

inline begin(x, C, K, P) {      /* take the lock and write content c, for predecessor p */
  t[x].step = WRITING; t[x].data = C; t[x].from = P;
#ifdef LOOKUP_AT_ADMISSION
  t[x].hcv = K;
#endif
#ifdef PARALLEL_PERSIST         /* the payload goes to a serving successor at once: SENDS_AHEAD */
  t[x].token = 1;
#endif
  printf("%d, in version %d, writes %x\n", x, base + t[x].knows, C)
}

/* ================================================================ forwards and replaces at the receiver */
#define TAKES(x,c) (t[x].up && WRITE_LEASE(x) && t[x].step == IDLE && MEMBER(x, t[x].knows) && \
  (SYNCING(t[x].knows) == x || VER(c) <= VER(t[x].com) || (t[x].pen != 0 && VER(t[x].pen) == VER(c)) || \
   (t[x].pen == 0 && FITS(x,c))))

#ifdef ENTRIES_APART
inline entries(x, C, P) {
  if
#ifdef NO_ENTRIES_SHIPPED
  :: SYNCING(t[x].knows) == x -> t[x].news = 1 << LASTID(C)
#else
  :: SYNCING(t[x].knows) == x && P != NIL -> t[x].news = t[P].once
#endif
#if defined(PARALLEL_PERSIST) && !defined(ENTRIES_KEPT)  /* the entry of the version that gives way goes with it */
  :: SYNCING(t[x].knows) != x && t[x].pen != 0 -> t[x].news = (t[x].once & ~(1 << LASTID(t[x].pen))) | (1 << LASTID(C))
#endif
  :: else -> t[x].news = t[x].once | (1 << LASTID(C))
  fi
}
#endif

#ifdef PARALLEL_PERSIST         /* pending came early, and the token is for another write */
#define GIVES_WAY(x,c) (t[x].pen != 0 && !SURE(x) && !SAME_WRITE(x,c))

inline give_way(x) {            /* what is pending is early: it is dropped before another write takes its place */
#ifdef LOSE_DROPS
  if
  :: t[x].pen != 0 -> t[x].dropped = t[x].pen; t[x].pen = 0; t[x].early = 0; t[x].current = 0
  :: else
  fi
#else
  skip
#endif
}

#define TAKES_AHEAD(x,c) (t[x].up && AHEAD_LEASE(x) && t[x].step == IDLE && SERVES(x, t[x].knows) && AHEAD_FITS(x,c) && \
  !FENCED_AHEAD(x) && \
  (t[x].pen == 0 || (AHEAD_YIELDS(x) && t[x].pen != (c))))

inline take_ahead(x, C) {
  printf("ahead: ");
  z = PATCH(t[x].com, C);
  give_way(x);
  begin(x, z, t[x].knows, NIL);
  t[x].token = 0
#ifdef ENTRIES_APART
  ; entries(x, C, NIL)
#endif
}
#else
#define GIVES_WAY(x,c) 0
#define give_way(x) skip
#endif

inline take_forward(x, C, K, P) {
  if
  :: SYNCING(t[x].knows) == x && NEWER_HERE(x, C) -> confirm(x, P)
#ifdef SYNCING_LIKE_SERVING     /* a syncing target applies the version rules to what it held before */
  :: SYNCING(t[x].knows) == x && !NEWER_HERE(x, C) && VER(C) <= VER(t[x].com) -> confirm(x, P)
  :: SYNCING(t[x].knows) == x && VER(C) > VER(t[x].com) && t[x].pen != 0 && VER(t[x].pen) == VER(C) ->
     t[x].from = P; drive(x, t[x].knows)
  :: SYNCING(t[x].knows) == x && VER(C) > VER(t[x].com) && (t[x].pen == 0 || VER(t[x].pen) != VER(C)) -> begin(x, C, K, P)
#elif defined(NO_WHOLE_CHUNK)
  :: SYNCING(t[x].knows) == x && !NEWER_HERE(x, C) -> z = PATCH(t[x].com, C); begin(x, z, K, P)
#else
  :: SYNCING(t[x].knows) == x && !NEWER_HERE(x, C) -> begin(x, C, K, P)
#endif
  :: SYNCING(t[x].knows) != x && VER(C) <= VER(t[x].com) ->
#if !defined(NO_CHECKSUM) && !defined(ONLY_CLIENTS)
     assert(checksum_differs || PREFIX(C, t[x].com));
#endif
     confirm(x, P)
  :: SYNCING(t[x].knows) != x && VER(C) > VER(t[x].com) && t[x].pen != 0 && !GIVES_WAY(x,C) ->     /* a repeat */
#if !defined(NO_CHECKSUM) && !defined(ONLY_CLIENTS)
     assert(checksum_differs || t[x].pen == C);
#endif
#ifdef PARALLEL_PERSIST
     if
     :: !SURE(x) -> printf("%d has the token for %x\n", x, t[x].pen); t[x].current = 1   /* drive() makes it sure */
     :: else
     fi;
#endif
     t[x].from = P; drive(x, t[x].knows)
  :: SYNCING(t[x].knows) != x && VER(C) > VER(t[x].com) && (t[x].pen == 0 || GIVES_WAY(x,C)) ->
#if !defined(NO_CHECKSUM) && !defined(ONLY_CLIENTS)
     assert(checksum_differs || PATCH(t[x].com, C) == C);
#endif
     z = PATCH(t[x].com, C); give_way(x); begin(x, z, K, P)
  fi
#ifdef ENTRIES_APART
  ; if :: t[x].step == WRITING && t[x].news == 0 -> entries(x, C, P) :: else fi
#endif
}

#define TAKES_SHIP(x) (t[x].up && WRITE_LEASE(x) && t[x].step == IDLE && SYNCING(t[x].knows) == x)

inline take_ship(x, C) {
  if
  :: NEWER_HERE(x, C)
  :: else ->
     t[x].com = C; t[x].pen = 0; t[x].current = 0; t[x].unsynced = 0; t[x].replaced = 1;
#ifdef LOSE_DROPS
     t[x].dropped = 0; t[x].torn = 0;
#endif
#ifdef PARALLEL_PERSIST
     t[x].early = 0;
#endif
#ifdef FRAIL
     t[x].frail = 0;
#endif
     printf("%d is replaced by %x\n", x, C)
  fi
}

inline delivered(x, P) {        /* x has taken the replace of p */
#ifdef ENTRIES_APART
#ifdef NO_ENTRIES_SHIPPED
  t[x].once = 0;
#elif defined(ENTRIES_MERGED)
  t[x].once = t[x].once | t[P].once;
#else
  t[x].once = t[P].once;
#endif
#endif
  release(P);
  t[P].resync = 2
}

#define CALLS(p,x) (t[p].step == FORWARDING && t[p].to == x && SAME_VERSION(x, t[p].hcv) && TAKES(x, t[p].pen))
#define AHEAD_TO(p) (SUCC(p, t[p].knows) == SYNCING(t[p].knows) -> NIL : SUCC(p, t[p].knows))
#define SENDS_AHEAD(p,x) (t[p].step == WRITING && AHEAD_TO(p) == x && AHEAD_VERSION(x, t[p].knows) && TAKES_AHEAD(x, t[p].data))
#define SHIPS(p,x) (t[p].step == SHIPPING && t[p].to == x && SAME_VERSION(x, t[p].hcv) && TAKES_SHIP(x))

/* ================================================================ writes at the head */
#define HEAD_FREE(x) (t[x].up && WRITE_LEASE(x) && t[x].step == IDLE && S0(t[x].knows) == x)
#define REPEATS(x,i) (HEAD_FREE(x) && t[x].pen == 0 && DONE(x,i) && !HAS(shown,i) && !DENIED(i))
#define ADMITS(x,i,left) (HEAD_FREE(x) && !FENCED(x) && !DENIED(i) && WRITE_FINISHED(x) && !DONE(x,i) && left > 0 && VER(t[x].com) < 4)

inline repeat(x, i) {
  assert(I2_acknowledged_lost || HAS(t[x].com, i));
  z = UPTO(t[x].com, i);
  acknowledge(x, z)
}

inline admit(x, i, left) {
  left--;
  t[x].client = 1;
  printf("write %d: ", i);
  z = APPEND(t[x].com, i);
  begin(x, z, t[x].knows, NIL);
#ifdef ENTRIES_APART
  t[x].news = t[x].once | (1 << i)
#endif
}

/* ================================================================ learning a chain version */
inline forget() {               /* versions that nobody can look up any more go, and the rest are renumbered */
  w = cv;
  for (u : 0 .. N - 1) {
    if :: t[u].knows < w -> w = t[u].knows :: else fi;
    if :: t[u].hcv != 0 && t[u].hcv < w -> w = t[u].hcv :: else fi
  }
  if :: rat != NIL && rcv < w -> w = rcv :: else fi;
  if :: sto != NIL && scv < w -> w = scv :: else fi;
  w--;
  if
  :: w > 0 ->
     for (u : 1 .. MAXV) { conf[u] = (u + w <= cv -> conf[u + w] : START) }
     for (u : 0 .. N - 1) {
       t[u].knows = t[u].knows - w;
       if :: t[u].hcv != 0 -> t[u].hcv = t[u].hcv - w :: else fi;
       if :: t[u].since != 0 -> t[u].since = t[u].since - w :: else fi
     }
     if :: rat != NIL -> rcv = rcv - w :: else fi;
     if :: sto != NIL -> scv = scv - w :: else fi;
     cv = cv - w;
     base = base + w
  :: else
  fi;
  u = 0; w = 0
}

inline drop_stray() {
  sto = NIL; scv = 0; sship = 0; sdata = 0
#ifdef PARALLEL_PERSIST
  ; sahead = 0
#endif
#ifdef NO_VERSION_UNDER_LOCK
  ; squeued = 0
#endif
}

#define OUTDATED(x) (t[x].pen != 0 && !t[x].current)            /* pending since before it was syncing */

inline drop_outdated(x) {       /* before it may serve; until then its bytes may be the only good ones */
#ifndef NO_DROP_PENDING
  if
  :: OUTDATED(x) ->
#if defined(ENTRIES_APART) && !defined(ENTRIES_MERGED)
     t[x].once = t[x].once & ~(1 << LASTID(t[x].pen));          /* the entry goes with its version */
#endif
     t[x].pen = 0
#ifdef LOSE_DROPS
     ; t[x].torn = 0
#endif
  :: else
  fi
#else
  skip
#endif
}

inline learn(x, K) {
  t[x].knows = K;
  printf("%d learns version %d\n", x, base + K);
  t[x].current = 0; t[x].replaced = 0;
  if :: t[x].since <= K -> t[x].since = 0 :: else fi;
  t[x].resync = 0; t[x].seen = 0;                               /* a chain change ends a resync run */
#ifdef FORGET_ON_CHANGE         /* the token counts only in the chain version in which it came */
  t[x].early = t[x].pen != 0;
#endif
#ifdef HEAD_DROPS
  if :: S0(K) == x && t[x].early -> t[x].pen = 0; t[x].early = 0 :: else fi;
#endif
  if :: t[x].step == SHIPPING -> release(x) :: else fi;
#ifndef NO_ABORT_ON_DEMOTION
  if :: !SERVES(x, K) -> abort(x) :: else fi;
#endif
#ifdef PARALLEL_PERSIST
  if :: !SERVES(x, K) -> t[x].early = 0 :: else fi;              /* it will be head (lastsrv), or drop it (syncing) */
  if :: sto == x && scv < K && sahead && AHEAD_HOPELESS -> drop_stray() :: else fi;
  if :: sto == x && scv < K && !sahead && STRAY_HOPELESS -> drop_stray() :: else fi;
#else
  if :: sto == x && scv < K && STRAY_HOPELESS -> drop_stray() :: else fi;
#endif
  if :: !MEMBER(x, K) -> t[x].ready = 0 :: else fi;
  forget()
}

/* ================================================================ the fence */
#ifdef FENCE
#define FENCE_COMES(p,x) (t[p].up && t[p].fence == 1 && SUCC(p, t[p].knows) == x && t[p].knows == t[x].knows)
#define FENCE_TAKEN(x,s) (s == NIL || (t[s].up && t[s].fence == 2 && t[s].knows == t[x].knows))
#endif

/* ================================================================ targets */
#ifdef PARALLEL_PERSIST
#define NOT_AHEAD !sahead
#else
#define NOT_AHEAD 1
#endif
#define PEER1 ((_pid + 1) % N)
#define PEER2 ((_pid + 2) % N)

active [N] proctype Storage() {
end:
  do
  :: d_step { t[_pid].up && t[_pid].knows < cv -> v = t[_pid].knows + 1; learn(_pid, v) }
  :: d_step { t[_pid].up && t[_pid].knows + 1 < cv -> v = cv; learn(_pid, v) }

  /* write */
  :: d_step { ADMITS(_pid, 1, tries1) -> admit(_pid, 1, tries1) }
  :: d_step { REPEATS(_pid, 1) -> repeat(_pid, 1) }
#if WRITES > 1
  :: d_step { ADMITS(_pid, 2, tries2) -> admit(_pid, 2, tries2) }
  :: d_step { REPEATS(_pid, 2) -> repeat(_pid, 2) }
#endif
#if WRITES > 2
  :: d_step { ADMITS(_pid, 3, tries3) -> admit(_pid, 3, tries3) }
  :: d_step { REPEATS(_pid, 3) -> repeat(_pid, 3) }
#endif
#ifdef ANSWER_BEFORE_FINISH     /* the entry of a pending version already counts as the result */
  :: d_step { HEAD_FREE(_pid) && t[_pid].pen != 0 && !HAS(shown, LASTID(t[_pid].pen)) -> acknowledge(_pid, t[_pid].pen) }
#endif
  :: d_step { t[_pid].step == WRITING -> land(_pid) }
#if FAILS > 0
  :: d_step { t[_pid].step == WRITING && fails > 0 -> fails--; printf("%d cannot write %x\n", _pid, t[_pid].data);
#ifdef NO_UNKNOWN
       if :: t[_pid].client -> denied = denied | (1 << LASTID(t[_pid].data)) :: else fi;
#endif
       release(_pid) }
#endif

#ifdef PARALLEL_PERSIST
  /* the payload that runs ahead, from either neighbour; one without the token may be dropped at any time */
  :: d_step { SENDS_AHEAD(PEER1, _pid) -> v = PEER1; take_ahead(_pid, t[v].data) }
#if N > 2
  :: d_step { SENDS_AHEAD(PEER2, _pid) -> v = PEER2; take_ahead(_pid, t[v].data) }
#endif
#if STRAYS > 0
  :: d_step { sto == _pid && sahead && AHEAD_VERSION(_pid, scv) && TAKES_AHEAD(_pid, sdata) ->
       printf("stray "); take_ahead(_pid, sdata); drop_stray() }
#endif
#ifdef DROP_AHEAD
  :: d_step { t[_pid].up && t[_pid].step == IDLE && t[_pid].pen != 0 && !SURE(_pid) && SERVES(_pid, t[_pid].knows) ->
       printf("%d drops %x\n", _pid, t[_pid].pen);
#ifdef ENTRIES_APART
       t[_pid].once = t[_pid].once & ~(1 << LASTID(t[_pid].pen));
#endif
#ifdef LOSE_DROPS
       t[_pid].dropped = t[_pid].pen;
#endif
       t[_pid].pen = 0; t[_pid].early = 0 }
#endif
#endif

#ifdef FENCE
  /* the fence goes along the chain; each target drops what is early, and only then answers */
  :: d_step { t[_pid].up && t[_pid].fence == 0 && t[_pid].lease == 1 && S0(t[_pid].knows) == _pid ->
       t[_pid].fence = 1; t[_pid].raising = 1; printf("%d raises the fence\n", _pid) }
  :: d_step { t[_pid].up && t[_pid].fence == 0 && t[_pid].lease == 1 && FENCE_COMES(PEER1, _pid) ->
       t[_pid].fence = 1; t[_pid].raising = 1; printf("the fence comes to %d\n", _pid) }
#if N > 2
  :: d_step { t[_pid].up && t[_pid].fence == 0 && t[_pid].lease == 1 && FENCE_COMES(PEER2, _pid) ->
       t[_pid].fence = 1; t[_pid].raising = 1; printf("the fence comes to %d\n", _pid) }
#endif
  :: d_step { t[_pid].up && t[_pid].fence != 0 && !t[_pid].raising && t[_pid].lease == 1 && MEMBER(_pid, t[_pid].knows) ->
       t[_pid].raising = 1; printf("%d is asked for the fence once more\n", _pid) }
  :: d_step { t[_pid].raising && t[_pid].fence == 1 && t[_pid].step == IDLE && t[_pid].pen != 0 && !SURE(_pid) &&
       SERVES(_pid, t[_pid].knows) ->
       printf("%d drops %x, behind the fence\n", _pid, t[_pid].pen);
#ifdef ENTRIES_APART
       t[_pid].once = t[_pid].once & ~(1 << LASTID(t[_pid].pen));
#endif
#ifdef FENCE_DROPS_UNSYNCED     /* a crash may bring it back */
       t[_pid].dropped = t[_pid].pen;
#endif
       t[_pid].pen = 0; t[_pid].early = 0 }
  :: d_step { t[_pid].raising && t[_pid].fence == 1 && MEMBER(_pid, t[_pid].knows) && NOTHING_EARLY(_pid) &&
       FENCE_TAKEN(_pid, SUCC(_pid, t[_pid].knows)) ->
       t[_pid].fence = 2;
#ifdef LOSE_DROPS
#ifndef FENCE_DROPS_UNSYNCED
       t[_pid].dropped = 0;
#endif
#endif
       printf("%d has the fence\n", _pid) }
  :: d_step { !stands && t[_pid].raising && t[_pid].fence == 2 && S0(t[_pid].knows) == _pid && t[_pid].step == IDLE &&
       t[_pid].pen == 0 ->
       stands = 1; ended = t[_pid].com; printf("%d answers: the fence stands, after %x\n", _pid, ended) }
#endif

  /* forward from either neighbour, or from the stray */
  :: d_step { CALLS(PEER1, _pid) -> v = PEER1; take_forward(_pid, t[v].pen, t[v].hcv, v) }
#if N > 2
  :: d_step { CALLS(PEER2, _pid) -> v = PEER2; take_forward(_pid, t[v].pen, t[v].hcv, v) }
#endif
#if STRAYS > 0
  :: d_step { sto == _pid && !sship && NOT_AHEAD && STRAY_VERSION(_pid) && TAKES(_pid, sdata) ->
       printf("stray: "); take_forward(_pid, sdata, scv, NIL); drop_stray() }
  :: d_step { sto == _pid && sship && STRAY_VERSION(_pid) && TAKES_SHIP(_pid) ->
       printf("stray: "); take_ship(_pid, sdata); drop_stray() }
#ifdef NO_VERSION_UNDER_LOCK
  :: d_step { sto == _pid && !squeued && t[_pid].up && WRITE_LEASE(_pid) && t[_pid].knows == scv -> squeued = 1;
       printf("stray: waits for the lock of %d\n", _pid) }
#endif
#endif

  /* finish what is pending and has no handler; look up the successor again after a chain change; commit */
  :: d_step { t[_pid].up && t[_pid].step == IDLE && t[_pid].pen != 0 && SERVES(_pid, t[_pid].knows) &&
       DRIVABLE(_pid) && FINISH_LEASE(_pid) ->
       drive(_pid, t[_pid].knows) }
  :: d_step { t[_pid].step == FORWARDING && t[_pid].hcv != t[_pid].knows ->
       hang_up(_pid);
       if
       :: SERVES(_pid, t[_pid].knows) -> drive(_pid, t[_pid].knows)
       :: else -> release(_pid)
       fi }
  :: d_step { t[_pid].step == CONFIRMED ->
       if
#ifndef NO_RECHECK_AT_COMMIT
       :: t[_pid].hcv != t[_pid].knows && SERVES(_pid, t[_pid].knows) -> drive(_pid, t[_pid].knows)
#endif
       :: else -> commit(_pid)
       fi }
#if TIMEOUTS > 0
  :: d_step { timeouts > 0 && (t[_pid].step == FORWARDING || t[_pid].step == CONFIRMED || t[_pid].step == SHIPPING) ->
       timeouts--; printf("%d gives up its call\n", _pid); abort(_pid) }
#endif

  /* resync of the syncing successor: inventory, compare under the lock, ship, say it is equal */
  :: d_step { t[_pid].up && t[_pid].resync == 0 && LAST(t[_pid].knows) == _pid && SYNCING(t[_pid].knows) != NIL &&
       t[SYNCING(t[_pid].knows)].up && t[SYNCING(t[_pid].knows)].lease == 1 &&
       t[SYNCING(t[_pid].knows)].knows == t[_pid].knows ->
       t[_pid].resync = 1; t[_pid].seen = t[SYNCING(t[_pid].knows)].com;
       printf("%d starts resync, inventory %x\n", _pid, t[_pid].seen) }
  :: d_step { t[_pid].resync == 1 && t[_pid].step != SHIPPING && COMPARE_FREE(_pid) && RESYNC_FINISHED(_pid) &&
       (EQUAL(t[_pid].com, t[_pid].seen) || t[_pid].step == IDLE) ->
       if
       :: EQUAL(t[_pid].com, t[_pid].seen) -> t[_pid].resync = 2
       :: else -> t[_pid].step = SHIPPING; t[_pid].hcv = t[_pid].knows; t[_pid].to = SYNCING(t[_pid].knows);
          printf("%d ships %x\n", _pid, t[_pid].com)
       fi;
       t[_pid].seen = 0 }
  :: d_step { SHIPS(PEER1, _pid) -> v = PEER1; take_ship(_pid, t[v].com); delivered(_pid, v) }
#if N > 2
  :: d_step { SHIPS(PEER2, _pid) -> v = PEER2; take_ship(_pid, t[v].com); delivered(_pid, v) }
#endif
  :: d_step { t[_pid].resync == 2 && t[_pid].step != SHIPPING && FENCE_FINISHED(_pid) && t[SYNCING(t[_pid].knows)].up &&
       t[SYNCING(t[_pid].knows)].knows == t[_pid].knows &&
       WRITE_LEASE(SYNCING(t[_pid].knows)) &&
       (t[SYNCING(t[_pid].knows)].step == IDLE || !OUTDATED(SYNCING(t[_pid].knows))) ->
       v = SYNCING(t[_pid].knows); drop_outdated(v);
       t[_pid].resync = 3; t[v].ready = READY_FOR(t[_pid].knows);
#ifdef FENCE
       t[v].fence = t[_pid].fence;
#endif
       printf("%d: resync done, %d is up-to-date in version %d\n", _pid, SYNCING(t[_pid].knows), base + t[_pid].knows) }

  /* read */
  :: d_step { t[_pid].up && READ_LEASE(_pid) && SERVES(_pid, t[_pid].knows) && t[_pid].com != shown &&
       (t[_pid].pen == 0 || !SURE(_pid)
#ifdef NO_ASK_TAIL
        || READ_FINISHED(_pid)
#else
        || (TAIL(t[_pid].knows) == _pid && READ_FINISHED(_pid))
#endif
       ) ->
       printf("read at %d, version %d: %x\n", _pid, base + t[_pid].knows, t[_pid].com); reveal(t[_pid].com, shown) }
#ifdef CHECK_THEN_PAUSE         /* a clean read checks lease and version, pauses, and only then looks at the record */
  :: d_step { rat == NIL && reads > 0 && t[_pid].up && READ_LEASE(_pid) && SERVES(_pid, t[_pid].knows) ->
       reads--; rat = _pid; rcv = t[_pid].knows; rfloor = shown; slow = 1; printf("read at %d pauses\n", _pid) }
  :: d_step { rat == _pid && slow && t[_pid].pen == 0 ->
       printf("read at %d answers %x\n", _pid, t[_pid].com); reveal(t[_pid].com, rfloor);
       rat = NIL; rcv = 0; rfloor = 0; slow = 0 }
  :: d_step { rat == _pid && slow -> rat = NIL; rcv = 0; rfloor = 0; slow = 0 }
#elif READS > 0 && !defined(NO_ASK_TAIL)
  :: d_step { rat == NIL && reads > 0 && t[_pid].up && READ_LEASE(_pid) && SERVES(_pid, t[_pid].knows) &&
       t[_pid].pen != 0 && SURE(_pid) && READ_FINISHED(_pid) && TAIL(t[_pid].knows) != _pid ->
       reads--; rat = _pid; rcv = t[_pid].knows; rfloor = shown; rcom = t[_pid].com;
       printf("read at %d begins: committed %x, pending %x, asks %d in version %d\n",
              _pid, rcom, t[_pid].pen, TAIL(rcv), base + rcv) }
  :: d_step { rat != NIL && TAIL(rcv) == _pid && t[_pid].up && QUERY_LEASE(_pid) && QUERY_VERSION(_pid, rcv) &&
       QUERY_FINISHED(_pid) ->
       v = VER(t[_pid].com);
       if
       :: v <= VER(rcom) -> w = rcom
       :: v > VER(rcom) && VER(t[rat].pen) >= v -> w = PART(t[rat].pen, v)
       :: else -> w = PART(t[rat].com, v)
       fi;
       if
       :: VER(w) >= v || v <= VER(rcom) -> printf("read at %d answers %x\n", rat, w); reveal(w, rfloor)
       :: else -> printf("read at %d: version gone, retry\n", rat)
       fi;
       rat = NIL; rcv = 0; rfloor = 0; rcom = 0; w = 0 }
  :: d_step { rat == _pid -> printf("read at %d fails\n", rat); rat = NIL; rcv = 0; rfloor = 0; rcom = 0 }
#endif
  od
}

/* ================================================================ faults */
inline crash(x) {
  printf("%d crashes\n", x);
  abort(x);
  t[x].up = 0; t[x].lease = 0; t[x].ready = 0; t[x].replaced = 0; t[x].current = 0;
#ifdef PARALLEL_PERSIST
#ifdef RESTART_AS_EARLY         /* what is pending after a restart counts as not committed by anybody */
  t[x].early = t[x].pen != 0;
#else
  t[x].early = 0;
#endif
#endif
#ifdef LOSE_DROPS
  t[x].dropped = 0;
#endif
#ifndef NO_RESTART_DEMOTION
  t[x].fresh = MEMBER(x, cv);
#endif
#ifdef NO_ENTRIES_PERSISTED
  t[x].once = 0;
#endif
  if :: rat == x -> rat = NIL; rcv = 0; rfloor = 0; rcom = 0 :: else fi;
#ifdef NO_VERSION_UNDER_LOCK
  if :: sto == x -> drop_stray() :: else fi
#endif
}

inline stray(x, ship, C) {      /* a copy of x's open call stays in the network */
  strays--; sto = t[x].to; scv = t[x].hcv; sship = ship; sdata = C;
  printf("a copy of the call of %d to %d stays behind\n", x, sto)
}

proctype Faults(byte x) {
end:
  do
  :: d_step { crashes > 0 && t[x].up -> crashes--; crash(x) }
#if POWER_CUTS > 0
  :: d_step { power_cuts > 0 && t[0].up && t[1].up && t[N-1].up ->
       power_cuts--; crash(0); crash(1); crash((N - 1)); lost = x; printf("power cut, %d is lost\n", x) }
#endif
  :: d_step { crashes > 0 && t[x].up && t[x].unsynced && t[x].pen == 0 && t[x].com != 0 ->
       crashes--; crash(x); printf("  and its commit of %x is pending again\n", t[x].com);
       t[x].pen = t[x].com; t[x].com = STRIP(t[x].com); t[x].unsynced = 0 }
#ifdef LOSE_DROPS
  :: d_step { crashes > 0 && t[x].up && t[x].dropped != 0 && t[x].pen == 0 && VER(t[x].dropped) == VER(t[x].com) + 1 ->
       crashes--; z = t[x].dropped; w = (t[x].step == WRITING); crash(x);
       printf("  and its drop of %x is lost\n", z);
       t[x].pen = z; t[x].early = 0;
#ifdef IN_PLACE                 /* the next write goes where the dropped version was */
       t[x].torn = w;
#endif
       z = 0; w = 0 }
#endif
#ifdef FRAIL
  :: d_step { crashes > 0 && t[x].up && t[x].frail && (t[x].pen != 0 || t[x].com != 0) ->
       crashes--; crash(x); printf("  and loses its newest version\n");
       if :: t[x].pen != 0 -> t[x].pen = 0 :: else -> t[x].com = STRIP(t[x].com) fi;
       t[x].frail = 0; t[x].unsynced = 0 }
#endif
  :: d_step { !t[x].up && lost != x -> t[x].up = 1; printf("%d restarts\n", x) }
  :: d_step { lapses > 0 && t[x].up && t[x].lease != 0 -> lapses--; t[x].lease = 0; printf("%d loses its lease\n", x) }
#if STRAYS > 0
  :: d_step { strays > 0 && sto == NIL && t[x].step == FORWARDING -> stray(x, 0, t[x].pen) }
  :: d_step { strays > 0 && sto == NIL && t[x].step == SHIPPING -> stray(x, 1, t[x].com) }
#ifdef PARALLEL_PERSIST
  :: d_step { strays > 0 && sto == NIL && t[x].step == WRITING && AHEAD_TO(x) != NIL ->
       strays--; sto = AHEAD_TO(x); scv = t[x].knows; sahead = 1; sdata = t[x].data;
       printf("a copy of the ahead message of %d to %d stays behind\n", x, sto) }
#endif
#endif
  od
}

/* ================================================================ the cluster manager */
#ifdef NO_VERSION_FOR_LEASE     /* every heartbeat is acknowledged */
#define LEASABLE(x) 1
#else
#define LEASABLE(x) (MEMBER(x, cv) && t[x].knows >= t[x].since && (!LEAVING(x) || ALONE(x)))
#endif
#ifdef NO_VERSION_FOR_READMISSION
#define READMISSIBLE(x) 1
#else
#define READMISSIBLE(x) (t[x].knows >= t[x].since)
#endif
#ifdef ANYONE_RETURNS
#define IS_LASTSRV(x) 1
#else
#define IS_LASTSRV(x) ((lastsrv >> x) & 1)
#endif

#define WITHOUT(x) (S0(cv) == x -> TABLE(S1(cv), S2(cv), NIL, SYNCING(cv)) : \
                   (S1(cv) == x -> TABLE(S0(cv), S2(cv), NIL, SYNCING(cv)) : TABLE(S0(cv), S1(cv), NIL, SYNCING(cv))))
#define DEAD(x) (t[x].lease == 0)
#ifdef WITNESS                  /* a target is put offline only while another serving one is known to live */
#define REPLACEABLE(x) ((S0(cv) != x && !DEAD(S0(cv))) || (S1(cv) != NIL && S1(cv) != x && !DEAD(S1(cv))) || \
                        (S2(cv) != NIL && S2(cv) != x && !DEAD(S2(cv))))
#else
#define REPLACEABLE(x) (S1(cv) != NIL)
#endif

inline publish() {              /* the table in z */
  cv++;
#ifndef NO_VERSION_FOR_PROMOTION
  t[0].ready = 0; t[1].ready = 0; t[N-1].ready = 0;
#endif
  assert(bound_too_small || cv <= MAXV);
  conf[cv] = z;
  printf("chain version %d: serving %d %d %d, syncing %d, lastsrv %d\n", base + cv, S0(cv), S1(cv), S2(cv), SYNCING(cv), lastsrv)
}

inline out(x) { t[x].since = cv; t[x].fresh = 0 }

proctype Manager(byte x) {      /* the part of the transition function that moves target x */
end:
  do
  :: d_step { SERVES(x, cv) && DEAD(x) && REPLACEABLE(x) -> z = WITHOUT(x); publish(); out(x) }
#ifdef NO_LEASE_WAIT
  :: d_step { SERVES(x, cv) && !DEAD(x) && lapses > 0 && S1(cv) != NIL -> lapses--; z = WITHOUT(x); publish(); out(x) }
#endif
  /* all serving targets are dead: every one of them becomes lastsrv (one step, done for the head) */
  :: d_step { S0(cv) == x && DEAD(x) && (S1(cv) == NIL || DEAD(S1(cv))) && (S2(cv) == NIL || DEAD(S2(cv))) ->
       lastsrv = 1 << x;
       if :: S1(cv) != NIL -> lastsrv = lastsrv | (1 << S1(cv)) :: else fi;
       if :: S2(cv) != NIL -> lastsrv = lastsrv | (1 << S2(cv)) :: else fi;
       w = conf[cv];
       z = TABLE(NIL, NIL, NIL, NIL); publish();
       for (u : 0 .. N - 1) {
         if :: (w & 3) == u || ((w >> 2) & 3) == u || ((w >> 4) & 3) == u || ((w >> 6) & 3) == u -> out(u) :: else fi
       }
       u = 0; w = 0 }
  :: d_step { S0(cv) == NIL && IS_LASTSRV(x) && t[x].up ->
       lastsrv = 0; z = TABLE(x, NIL, NIL, NIL); publish(); out(x);
#ifdef NO_LASTSRV_COMMIT
       t[x].pen = 0;
#ifdef PARALLEL_PERSIST
       t[x].early = 0;
#endif
#ifdef LOSE_DROPS
       t[x].torn = 0;
#endif
#endif
       if :: t[x].lease == 0 -> t[x].lease = EXPECTED :: else fi }
  :: d_step { S0(cv) != NIL && SYNCING(cv) == NIL && !SERVES(x, cv) && t[x].up && READMISSIBLE(x) && !LEAVING(x) ->
       z = TABLE(S0(cv), S1(cv), S2(cv), x); publish(); out(x);
       if :: t[x].lease == 0 -> t[x].lease = EXPECTED :: else fi }
  :: d_step { SYNCING(cv) == x && DEAD(x) -> z = TABLE(S0(cv), S1(cv), S2(cv), NIL); publish(); out(x) }
  :: d_step { SYNCING(cv) == x && t[x].ready && !DEAD(x) ->
#ifndef ONLY_CLIENTS
       assert(I7_promoted_unequal || PREFIX(t[LAST(cv)].com, t[x].com));
#endif
       z = (S1(cv) == NIL -> TABLE(S0(cv), x, NIL, NIL) : TABLE(S0(cv), S1(cv), x, NIL)); publish() }
#ifdef SHRINK
#define MAY_LEAVE(x) (SERVES(x, cv) && S1(cv) != NIL)
#else
#define MAY_LEAVE(x) (x != 2 && SERVES(x, cv) && SERVES(2, cv))
#endif
#ifdef MOVE
  :: d_step { leaving == NIL && MAY_LEAVE(x) -> leaving = x; printf("%d is to leave\n", x) }
  /* it has seen that, while another target serves */
  :: d_step { LEAVING(x) && t[x].up && t[x].lease == 1 && SERVES(x, t[x].knows) && S1(t[x].knows) != NIL ->
       t[x].lease = 0; printf("%d gives its lease up\n", x) }
#ifdef DROP_LEASED              /* it is taken out before its lease has ended */
  :: d_step { LEAVING(x) && SERVES(x, cv) && S1(cv) != NIL -> z = WITHOUT(x); publish(); out(x) }
#endif
#endif
  /* an acknowledged heartbeat */
  :: d_step { t[x].up && t[x].lease != 1 && !t[x].fresh && LEASABLE(x) -> t[x].lease = 1 }
  od
}

/* ================================================================ when nothing more can happen */
#if FAILS > 0 && !defined(DROP_AHEAD)   /* a payload that came early may stay until the next write replaces it */
#define EMPTY(x) (t[x].pen == 0 || !SURE(x))
#else
#define EMPTY(x) (t[x].pen == 0)
#endif
#define WHOLE(x) (lost == x || LEAVING(x) && !MEMBER(x, cv) || t[x].up && t[x].lease == 1 && t[x].knows == cv && SERVES(x, cv) && t[x].step == IDLE && EMPTY(x))

proctype Quiet() {
  timeout ->
#ifndef ONLY_CLIENTS
  assert(I13_not_converged || (WHOLE(0) && WHOLE(1) && WHOLE((N - 1)) && SYNCING(cv) == NIL));
#ifdef MOVE
  assert(I13_not_converged || leaving != NIL);
  assert(I4_replicas_differ || t[(leaving + 1) % 3].com == t[(leaving + 2) % 3].com);
#else
  assert(I4_replicas_differ || ((t[0].com == t[1].com || lost <= 1) && (t[0].com == t[N-1].com || lost == 0 || lost == N-1)));
#endif
#endif
  assert(I2_acknowledged_lost || S0(cv) == NIL || PREFIX(shown, t[S0(cv)].com))
}

active proctype Start() {
  atomic {
#if defined(MOVE) && !defined(SHRINK)
    t[2].lease = 0;             /* it is empty, and no member */
#endif
    run Faults(0); run Manager(0);
    run Faults(1); run Manager(1);
#if N > 2
    run Faults(2); run Manager(2);
#endif
    run Quiet()
  }
}
