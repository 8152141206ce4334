/*
 * threefs: leases from a primary whose store is an older copy (I15).
 *
 * One target, which may know nothing of what the cluster did while it was paused or cut off, and the manager's store,
 * which is exchanged for an older copy, and back. The copy shows the target as serving in the chain version that the
 * target knows, so neither contradicts the other. Other nodes would contradict; here none of them is heard in time.
 * Time is discrete, as in leader.pml: a tick ages every counter at once and may come at any moment, so any party may be
 * slow for any time, and a heartbeat may be on its way for any time.
 *
 * Property
 *   I5  a target that was put out of its chain, by the right store, holds no lease
 * All rules are on by default; a -D flag takes one away.
 */

#ifndef T
#define T 4                     /* the manager waits T; a lease lasts T/2 from the sending of the heartbeat */
#endif
#ifndef EXCHANGES
#define EXCHANGES 3
#endif

#define NONE 0                  /* the heartbeat: SENT, and DONE when it was granted a lease */
#define SENT 1
#define DONE 2

/* ---- the store and its manager ---- */
bit copy;                       /* the store is the older copy */
bit out;                        /* in the right store the target has been put out */
unsigned silent : 4;            /* ticks since it last granted a lease, or since its term began */
unsigned exchanges : 2 = EXCHANGES;

/* ---- target ---- */
unsigned granted : 4 = T;       /* ticks since the sending of the last heartbeat that was granted a lease */
unsigned beat : 2;
unsigned sent : 4;              /* ticks since it was sent */
bit said;                       /* it says that the last lease is older than T: the chain may have gone on without it */

hidden byte I5_put_out_with_lease;

#define AGE(c, cap) c = (c < (cap) -> c + 1 : c)
#define LAPSED (granted >= T)

inline check() {
  assert(I5_put_out_with_lease || !(granted < T / 2 && out))
}

/* ---- rules ---- */
#ifdef LEASES_AT_ONCE           /* a new primary grants a lease before it has heard those that would know */
#define MAY_GRANT 1
#else
#define MAY_GRANT (!copy || !said)
#endif
#ifdef NO_CHECK_OF_THE_ANSWER   /* the answer to a heartbeat that said "not lapsed" counts whenever it comes */
#define TAKES_ANSWER 1
#else
#define TAKES_ANSWER (said || !LAPSED)
#endif

proctype Manager() {
end:
  do
  :: d_step { exchanges > 0 ->
       exchanges--; copy = !copy; silent = 0; printf("the store is exchanged: %d\n", copy) }
  :: d_step { silent > 0 -> silent = 0; printf("another term\n") }
  :: d_step { !copy && !out && silent >= T -> out = 1; printf("the target is put out\n"); check() }
  :: d_step { beat == SENT && (copy || !out) && MAY_GRANT ->
       beat = DONE; silent = 0; printf("a lease is granted\n") }
  od
}

proctype Target() {
end:
  do
  :: d_step { beat == NONE -> beat = SENT; sent = 0; said = LAPSED; printf("heartbeat, lapsed: %d\n", said) }
  :: d_step { beat != NONE -> beat = NONE; sent = 0; said = 0; printf("no answer\n") }
  :: d_step { beat == DONE ->
       granted = (TAKES_ANSWER && sent < granted -> sent : granted);
       beat = NONE; sent = 0; said = 0; check() }
  od
}

proctype Clock() {
end:
  do
  :: d_step {
       AGE(silent, T); AGE(granted, T);
       if :: beat != NONE -> AGE(sent, T) :: else fi;
       printf("tick\n") }
  od
}

active proctype Begin() {
  atomic { run Manager(); run Target(); run Clock() }
}
