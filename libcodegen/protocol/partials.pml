/* Partial sums on their way from the consumers to the storer, through two buffers: consumer.cuh (multiply, second half) and
   storer.cuh (tile_sum). With BUFFERS=1 the attention scratch: attention.cuh (attend_items) and storer.cuh (store_attention).

   CONSUMERS warps write their part of each of TILES tiles and arrive at the buffer's full barrier; the storer reads all parts in
   a fixed order and hands the buffer back.

   Abstracted: tiles of all stages, layers and steps are one sequence, as they are for the buffers; a part is the number of its
   tile; a warp is lane 0, which arrives, and the other lanes, both of which write (the storer's: read). Asserted besides turns and
   races: every part belongs to the storer's tile.

   sizes: -DBUFFERS=2 -DCONSUMERS=2 -DTILES=5
   sizes: -DBUFFERS=1 -DCONSUMERS=2 -DTILES=4
   nightly: -DBUFFERS=2 -DCONSUMERS=4 -DTILES=7
   nightly: -DBUFFERS=1 -DCONSUMERS=5 -DTILES=5
   defect: -DNO_EMPTY_WAIT      a consumer writes without waiting for the buffer
   defect: -DEMPTY_PARITY=0     ... waits for the wrong parity
   defect: -DFULL_PARITY=1      the storer waits for the wrong parity
   defect: -DNO_BUFFER_FLIP     a consumer writes always to the same buffer
   defect: -DNO_STORER_FLIP     the storer keeps its parity when the buffers wrap
   defect: -DEARLY_FLIP         a consumer changes its parity with every tile
   defect: -DLATE_ACQUIRE       the storer reads first and waits then
   defect: -DEARLY_RELEASE      the storer hands back first and reads then
   defect: -DEARLY_ARRIVE       a consumer arrives first and writes then
   defect: -DNO_SYNCWARP        lane 0 of a consumer arrives before the other lanes have written
   defect: -DNO_STORER_SYNCWARP lane 0 of the storer hands back before the other lanes have read
   defect: -DRELAXED_ARRIVE     a consumer's arrival orders nothing
   defect: -DRELAXED_RELEASE    nor does the storer's
   defect: -DFULL_ARRIVALS=1    a tile counts as full when one consumer has written
   defect: -DFULL_ARRIVALS=3    ... never
   defect: -DSKIP_TILE          one consumer leaves a tile out */

#ifndef EMPTY_PARITY
#define EMPTY_PARITY 1
#endif
#ifndef FULL_PARITY
#define FULL_PARITY 0
#endif
#ifndef FULL_ARRIVALS
#define FULL_ARRIVALS CONSUMERS
#endif

#define BARRIERS (2 * BUFFERS)
#define FULL(b) (b)
#define EMPTY(b) (BUFFERS + (b))
#define WAITERS (CONSUMERS + 1)
#define LANE_0(w) (w)             /* agents: of each warp, the storer's number is CONSUMERS */
#define OTHERS(w) (CONSUMERS + 1 + (w))
#define STORER CONSUMERS
#define AGENTS (2 * (CONSUMERS + 1))

#include "synchronisation.h"

#define BUFFER_BITS (2 * CONSUMERS + 2)
#define WRITE(b, w, lanes) (1 << ((b) * BUFFER_BITS + 2 * (w) + (lanes)))   /* lanes: 0 lane 0, 1 the others */
#define WRITES(b) (((1 << (2 * CONSUMERS)) - 1) << ((b) * BUFFER_BITS))
#define READ(b, lanes) (1 << ((b) * BUFFER_BITS + 2 * CONSUMERS + (lanes)))
#define READS(b) (3 << ((b) * BUFFER_BITS + 2 * CONSUMERS))

byte part[BUFFERS * CONSUMERS];   /* tile + 1 */
hidden byte right_part;

#ifdef RELAXED_ARRIVE
#define arrive_full(me) arrive_relaxed(FULL(buffer))
#else
#define arrive_full(me) arrive(FULL(buffer), LANE_0(me))
#endif
#ifdef RELAXED_RELEASE
#define release() arrive_relaxed(EMPTY(buffer))
#else
#define release() arrive(EMPTY(buffer), LANE_0(STORER))
#endif

proctype consumer(byte me) {
  byte tile, buffer;
  bit empty_parity = EMPTY_PARITY;
  do
  :: tile < TILES ->
#ifdef SKIP_TILE
     if :: me == 1 && tile == 1 -> goto next :: else fi;
#endif
#ifndef NO_EMPTY_WAIT
     await(EMPTY(buffer), me, empty_parity, LANE_0(me));
     known[OTHERS(me)] = known[OTHERS(me)] | known[LANE_0(me)];
#endif
#ifdef EARLY_ARRIVE
     arrive_full(me);
#endif
     write(OTHERS(me), WRITE(buffer, me, 1), READS(buffer));
     write(LANE_0(me), WRITE(buffer, me, 0), READS(buffer));
     part[buffer * CONSUMERS + me] = tile + 1;
#ifndef NO_SYNCWARP
     known[LANE_0(me)] = known[LANE_0(me)] | known[OTHERS(me)];
#endif
#ifndef EARLY_ARRIVE
     arrive_full(me);
#endif
#ifdef SKIP_TILE
next:
#endif
#ifndef NO_BUFFER_FLIP
     buffer = (buffer + 1) % BUFFERS;
#endif
#ifdef EARLY_FLIP
     empty_parity = 1 - empty_parity;
#else
     if :: (tile + 1) % BUFFERS == 0 -> empty_parity = 1 - empty_parity :: else fi;
#endif
     tile++
  :: else -> break
  od
}

inline look() {
  for (w : 0 .. CONSUMERS - 1) {
    d_step {
      right_part = part[buffer * CONSUMERS + w] == tile + 1;
      assert(right_part)
    }
  }
  read(OTHERS(STORER), READ(buffer, 1), WRITES(buffer));
  read(LANE_0(STORER), READ(buffer, 0), WRITES(buffer))
}

proctype storer() {
  byte tile, buffer, w;
  bit full_parity = FULL_PARITY;
  do
  :: tile < TILES ->
#ifdef LATE_ACQUIRE
     look();
#endif
     await(FULL(buffer), STORER, full_parity, LANE_0(STORER));
     known[OTHERS(STORER)] = known[OTHERS(STORER)] | known[LANE_0(STORER)];
#ifdef EARLY_RELEASE
     release();
#endif
#ifndef LATE_ACQUIRE
     look();
#endif
#ifndef NO_STORER_SYNCWARP
     known[LANE_0(STORER)] = known[LANE_0(STORER)] | known[OTHERS(STORER)];
#endif
#ifndef EARLY_RELEASE
     release();
#endif
     buffer = (buffer + 1) % BUFFERS;
#ifndef NO_STORER_FLIP
     if :: buffer == 0 -> full_parity = 1 - full_parity :: else fi;
#endif
     tile++
  :: else -> break
  od
}

init {
  byte i, w;
  atomic {
    init_agents();
    for (i : 0 .. BUFFERS - 1) {
      init_barrier(FULL(i), FULL_ARRIVALS);
      init_barrier(EMPTY(i), 1);
      waits(FULL(i), STORER, 1);
      for (w : 0 .. CONSUMERS - 1) { waits(EMPTY(i), w, 0) }
    }
    run storer();
    for (i : 0 .. CONSUMERS - 1) { run consumer(i) }
  }
}
