/* The ring: block.cuh (fill, advance, load_stage, drain) and the weights part of consumer.cuh (multiply).

   The loader fills RING_STAGES slots in turn with at most WINDOW fills in flight; CONSUMERS warps read each of CHUNKS chunks and
   release its slot. A fill is PIECES bulk copies that complete in any order and report bytes; with CP_ASYNC each of PIECES groups of
   lanes arrives once its copies have landed, as before sm_90. With ABORT a watchdog may tell all to leave at any wait.

   Abstracted: chunks of all stages, layers and steps are one sequence, as they are for the ring; what a chunk holds is its number; a
   warp is lane 0, which arrives, and the other lanes. Asserted besides turns and races: the right chunk in every slot, nothing in
   flight when the loader leaves.

   sizes: -DRING_STAGES=2 -DWINDOW=2 -DCHUNKS=5 -DCONSUMERS=2 -DPIECES=1
   sizes: -DRING_STAGES=3 -DWINDOW=2 -DCHUNKS=7 -DCONSUMERS=1 -DPIECES=2
   sizes: -DRING_STAGES=2 -DWINDOW=1 -DCHUNKS=5 -DCONSUMERS=1 -DPIECES=2 -DCP_ASYNC
   sizes: -DRING_STAGES=2 -DWINDOW=2 -DCHUNKS=3 -DCONSUMERS=1 -DPIECES=1 -DABORT
   nightly: -DRING_STAGES=3 -DWINDOW=3 -DCHUNKS=9 -DCONSUMERS=2 -DPIECES=2
   nightly: -DRING_STAGES=3 -DWINDOW=2 -DCHUNKS=8 -DCONSUMERS=3 -DPIECES=1
   nightly: -DRING_STAGES=3 -DWINDOW=3 -DCHUNKS=7 -DCONSUMERS=2 -DPIECES=2 -DABORT
   defect: -DNO_EMPTY_WAIT             the loader fills without waiting for the slot
   defect: -DEMPTY_PARITY=0            ... waits for the wrong parity
   defect: -DFULL_PARITY=1             a consumer waits for the wrong parity
   defect: -DNO_FULL_FLIP              a consumer keeps its parity when the ring wraps
   defect: -DNO_TAIL_FLIP              so does the window's tail
   defect: -DWINDOW=3                  a window larger than the ring
   defect: -DLATE_ACQUIRE              a consumer reads first and waits then
   defect: -DEARLY_RELEASE             a consumer releases first and reads then
   defect: -DNO_SYNCWARP               lane 0 releases before the other lanes have read
   defect: -DRELAXED_RELEASE           the release of a slot orders nothing
   defect: -DEMPTY_ARRIVALS=1          a slot counts as empty when one consumer has released it
   defect: -DEMPTY_ARRIVALS=3          ... never
   defect: -DSKIP_RELEASE              one consumer skips the release of the second chunk
   defect: -DPIECES=2 -DSHORT_EXPECT   fewer bytes expected than copied
   defect: -DABORT -DNO_DRAIN          the loader leaves with copies in flight
   defect: -DABORT -DNO_FINAL_DRAIN    ... at its normal end, while others may leave early */

#ifndef EMPTY_PARITY
#define EMPTY_PARITY 1
#endif
#ifndef FULL_PARITY
#define FULL_PARITY 0
#endif
#ifndef EMPTY_ARRIVALS
#define EMPTY_ARRIVALS CONSUMERS
#endif

#define BARRIERS (2 * RING_STAGES)
#define FULL(s) (s)
#define EMPTY(s) (RING_STAGES + (s))
#define WAITERS (CONSUMERS + 1)
#define LOADER CONSUMERS
#define LANE_0(c) (c)                      /* agents: lane 0 and the other lanes of each consumer, the loader, each copy */
#define OTHERS(c) (CONSUMERS + (c))
#define LOADER_AGENT (2 * CONSUMERS)
#define COPY(s, p) (2 * CONSUMERS + 1 + (s) * PIECES + (p))
#define AGENTS (2 * CONSUMERS + 1 + RING_STAGES * PIECES)

#include "synchronisation.h"

#define SLOT_BITS (PIECES + 2 * CONSUMERS)
#define WRITE(s, p) (1 << ((s) * SLOT_BITS + (p)))
#define WRITES(s) (((1 << PIECES) - 1) << ((s) * SLOT_BITS))
#define READ(s, r) (1 << ((s) * SLOT_BITS + PIECES + (r)))
#define READS(s) (((1 << (2 * CONSUMERS)) - 1) << ((s) * SLOT_BITS + PIECES))

byte data[RING_STAGES * PIECES];           /* chunk + 1 */
byte copying[RING_STAGES * PIECES];        /* chunk + 1 while a copy is in flight */
byte flying;                               /* how many are */
bool aborted;
hidden byte right_data;

#define advance(slot, parity) slot++; if :: slot == RING_STAGES -> slot = 0; parity = 1 - parity :: else fi

#ifdef CP_ASYNC
#define FULL_ARRIVALS PIECES
#else
#define FULL_ARRIVALS 1
#endif
#ifdef SHORT_EXPECT
#define EXPECTED 1
#else
#define EXPECTED PIECES
#endif

proctype memory() {
  byte at;
end:
  do
  :: atomic { flying > 0 ->
       select (at : 0 .. RING_STAGES * PIECES - 1);
       if
       :: copying[at] != 0 ->
          write(COPY(at / PIECES, at % PIECES), WRITE(at / PIECES, at % PIECES), READS(at / PIECES));
          data[at] = copying[at];
          copying[at] = 0;
          flying--;
#ifdef CP_ASYNC
          arrive(FULL(at / PIECES), COPY(at / PIECES, at % PIECES))
#else
          complete_bytes(FULL(at / PIECES), COPY(at / PIECES, at % PIECES), 1)
#endif
       :: else
       fi
     }
  od
}

proctype loader() {
  byte chunk, slot, tail, in_flight, piece;
  bit empty_parity = EMPTY_PARITY, tail_parity;
  do
  :: chunk < CHUNKS ->
     if
     :: in_flight == WINDOW ->
        if
        :: await(FULL(tail), LOADER, tail_parity, LOADER_AGENT)
        :: aborted -> goto drain
        fi;
#ifdef NO_TAIL_FLIP
        tail = (tail + 1) % RING_STAGES;
#else
        advance(tail, tail_parity);
#endif
        in_flight--
     :: else
     fi;
#ifndef NO_EMPTY_WAIT
     if
     :: await(EMPTY(slot), LOADER, empty_parity, LOADER_AGENT)
     :: aborted -> goto drain
     fi;
#endif
#ifndef CP_ASYNC
     arrive_expect(FULL(slot), LOADER_AGENT, EXPECTED);
#endif
     for (piece : 0 .. PIECES - 1) {
       d_step {
         assert(copying[slot * PIECES + piece] == 0);
         copying[slot * PIECES + piece] = chunk + 1;
         flying++;
         known[COPY(slot, piece)] = known[COPY(slot, piece)] | known[LOADER_AGENT]
       }
     }
     in_flight++;
     advance(slot, empty_parity);
     chunk++
  :: else -> break
  od;
#ifdef NO_FINAL_DRAIN
  goto leave;
#endif
drain:
#ifndef NO_DRAIN
  do
  :: in_flight > 0 ->
     await(FULL(tail), LOADER, tail_parity, LOADER_AGENT);
     advance(tail, tail_parity);
     in_flight--
  :: else -> break
  od;
#endif
leave:
  assert(flying == 0)   /* the block's shared memory may go once all have left */
}

#define release(me) arrive(EMPTY(slot), LANE_0(me))
inline look(me) {
  for (piece : 0 .. PIECES - 1) {
    d_step {
      right_data = data[slot * PIECES + piece] == chunk + 1;
      assert(right_data)
    }
  }
  read(OTHERS(me), READ(slot, CONSUMERS + me), WRITES(slot));
  read(LANE_0(me), READ(slot, me), WRITES(slot))
}

proctype consumer(byte me) {
  byte chunk, slot, piece;
  bit full_parity = FULL_PARITY;
  do
  :: chunk < CHUNKS ->
#ifdef LATE_ACQUIRE
     look(me);
#endif
     if
     :: await(FULL(slot), me, full_parity, LANE_0(me))
     :: aborted -> goto leave
     fi;
     known[OTHERS(me)] = known[OTHERS(me)] | known[LANE_0(me)];   /* every lane waits */
#ifdef EARLY_RELEASE
     release(me);
#endif
#ifndef LATE_ACQUIRE
     look(me);
#endif
#ifndef NO_SYNCWARP
     known[LANE_0(me)] = known[LANE_0(me)] | known[OTHERS(me)];
#endif
#ifdef RELAXED_RELEASE
     arrive_relaxed(EMPTY(slot));
#else
#ifdef SKIP_RELEASE
     if :: chunk == 1 && me == 0 :: else -> release(me) fi;
#else
#ifndef EARLY_RELEASE
     release(me);
#endif
#endif
#endif
#ifdef NO_FULL_FLIP
     slot = (slot + 1) % RING_STAGES;
#else
     advance(slot, full_parity);
#endif
     chunk++
  :: else -> break
  od;
leave: skip
}

#ifdef ABORT
proctype watchdog() { aborted = true }
#endif

init {
  byte i, w;
  atomic {
    init_agents();
    for (i : 0 .. RING_STAGES - 1) {
      init_barrier(FULL(i), FULL_ARRIVALS);
      init_barrier(EMPTY(i), EMPTY_ARRIVALS);
      for (w : 0 .. CONSUMERS) { waits(FULL(i), w, 1) };
      waits(EMPTY(i), LOADER, 0)
    }
    run memory();
    run loader();
    for (i : 0 .. CONSUMERS - 1) { run consumer(i) };
#ifdef ABORT
    run watchdog()
#endif
  }
}
