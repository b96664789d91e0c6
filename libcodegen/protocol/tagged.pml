/* The tagged exchange: exchange.cuh (publish_pair, publish_rows, Fours, layer_tag), one buffer for each edge, over LAYERS layers and
   STEPS steps, on SMs with and without work.

   A layer has two stages and so two edges, each read by the next stage, the second one by the next layer or the head. The SMs of
   the bit mask STAGE_0 (STAGE_1, HEAD) have tiles of that stage. A storer publishes two packets, two 64-bit accesses; consumer
   c of CONSUMERS polls every CONSUMERS-th pair, its slice of K, and may run ahead of its storer by two tiles.

   Abstracted: one tile for each SM and stage; partials.pml's buffers are counters here and token.pml's hand-over a count of
   finished steps, which carries no knowledge. A value is the turn, step x LAYERS + layer + 1, that it belongs to. A tag orders
   its own packet only: with -DSPLIT_PACKET value and tag are two locations, and the value is a race although no interleaving
   shows a wrong one. Asserted: every value is that of the reader's turn. A packet that is overwritten before all have read it
   leaves its reader waiting: an invalid end state.

   sizes: -DSMS=2 -DCONSUMERS=1 -DLAYERS=2 -DSTEPS=2 -DSTAGE_0=3 -DSTAGE_1=3 -DHEAD=3
   sizes: -DSMS=2 -DCONSUMERS=2 -DLAYERS=2 -DSTEPS=1 -DSTAGE_0=3 -DSTAGE_1=1 -DHEAD=3
   sizes: -DSMS=3 -DCONSUMERS=1 -DLAYERS=2 -DSTEPS=2 -DSTAGE_0=3 -DSTAGE_1=5 -DHEAD=2
   nightly: -DSMS=2 -DCONSUMERS=2 -DLAYERS=3 -DSTEPS=3 -DSTAGE_0=3 -DSTAGE_1=3 -DHEAD=3
   nightly: -DSMS=3 -DCONSUMERS=2 -DLAYERS=2 -DSTEPS=2 -DSTAGE_0=7 -DSTAGE_1=3 -DHEAD=6
   nightly: -DSMS=4 -DCONSUMERS=1 -DLAYERS=2 -DSTEPS=2 -DSTAGE_0=13 -DSTAGE_1=7 -DHEAD=8
   defect: -DNO_POLL                      a consumer reads without looking at the tags
   defect: -DONE_TAG                      ... looks at the first packet's tag only
   defect: -DSPLIT_PACKET                 values lie beside their tags
   defect: -DTAG_FIRST -DSPLIT_PACKET     ... and are written after them
   defect: -DTAG_STEP=0 -DLAYERS=1        tags are the same in every step
   defect: -DTAG_LAYER=0                  tags are the same in every layer
   defect: -DREAD_TAG=1                   readers expect the next layer's tag
   defect: -DTAG_FROM=0                   the first tag is what fresh memory holds
   defect: -DPARTIAL_JOIN -DCONSUMERS=2   a storer publishes when its first consumer is done
   defect: -DEARLY_PUBLISH                ... before its consumers have read their inputs
   defect: -DOWN_PACKETS_ONLY             stage 0 needs but its own SM's packets, not all of K
   defect: -DSTAGE_1=1 -DIDLE_READS       an SM without work reads its edge all the same
   defect: -DDROP_PACKET                  the second packet of one turn is not published */

#ifndef TAG_STEP
#define TAG_STEP 1
#endif
#ifndef TAG_LAYER
#define TAG_LAYER 1
#endif
#ifndef TAG_FROM
#define TAG_FROM 1
#endif
#define TAG(s, l) ((s) * TAG_STEP * (LAYERS + 1) + (l) * TAG_LAYER + TAG_FROM)
#ifndef READ_TAG
#define READ_TAG 0
#endif
#define TURN(s, l) ((s) * LAYERS + (l) + 1)

#define AGENTS (SMS * (CONSUMERS + 1))
#define BARRIERS 1
#define WAITERS 1
#define CONSUMER(sm, c) ((sm) * (CONSUMERS + 1) + (c))
#define STORER(sm) ((sm) * (CONSUMERS + 1) + CONSUMERS)

#include "synchronisation.h"

#define PACKET(edge, sm, i) (((edge) * SMS + (sm)) * 2 + (i))
#define works(mask, sm) (((mask) >> (sm)) & 1)

byte tag[4 * SMS], value[4 * SMS];
byte parts[SMS * CONSUMERS], taken[SMS];   /* tiles handed to the storer, and finished by it */
byte finished[SMS], token[SMS];            /* steps */
hidden byte right_value;

#define WRITE(packet) (1 << (packet))

inline publish_one(packet) {
#ifdef SPLIT_PACKET
#ifdef TAG_FIRST
  tag[packet] = TAG(step, layer);
#endif
  write(STORER(sm), WRITE(packet), 0);
  value[packet] = TURN(step, layer);
#ifndef TAG_FIRST
  tag[packet] = TAG(step, layer)
#endif
#else
  d_step { tag[packet] = TAG(step, layer); value[packet] = TURN(step, layer) }
#endif
}

inline publish(edge) {
  publish_one(PACKET(edge, sm, 0));
#ifdef DROP_PACKET
  if :: sm == 0 && edge == 0 && layer == 1 :: else -> publish_one(PACKET(edge, sm, 1)) fi
#else
  publish_one(PACKET(edge, sm, 1))
#endif
}

inline take(packet, from_layer) {
#ifdef SPLIT_PACKET
  ordered = (known[CONSUMER(sm, c)] & WRITE(packet)) != 0;
  assert(ordered);
#endif
  right_value = value[packet] == TURN(step, from_layer);
  assert(right_value)
}

/* A poll is one step: it changes nothing until it finds the tag. */
#ifdef NO_POLL
#define poll(packet, from_layer) d_step { take(packet, from_layer) }
#else
#define poll(packet, from_layer) \
  d_step { tag[packet] == TAG(step, from_layer + READ_TAG) -> take(packet, from_layer) }
#endif
#ifdef ONE_TAG
#define poll_second(packet, from_layer) d_step { take(packet, from_layer) }
#else
#define poll_second(packet, from_layer) poll(packet, from_layer)
#endif

inline receive(edge, mask, from_layer) {
  pair = 0;
  for (from : 0 .. SMS - 1) {
    if
#ifdef OWN_PACKETS_ONLY
    :: works(mask, from) && (edge == 0 || from == sm) ->
#else
    :: works(mask, from) && pair % CONSUMERS == c ->
#endif
       poll(PACKET(edge, from, 0), from_layer);
       poll_second(PACKET(edge, from, 1), from_layer)
    :: else
    fi;
    pair = pair + works(mask, from)
  }
  from = 0;
  pair = 0
}

#define hand_over() d_step { parts[sm * CONSUMERS + c] - taken[sm] < 2 -> parts[sm * CONSUMERS + c]++ }

proctype consumer(byte sm; byte c) {
  byte step, layer, from, pair;
  for (step : 0 .. STEPS - 1) {
    token[sm] > step;
    for (layer : 0 .. LAYERS - 1) {
      if
      :: works(STAGE_0, sm) ->
#ifdef EARLY_PUBLISH
         hand_over();
#endif
         if :: layer > 0 -> receive(1, STAGE_1, layer - 1) :: else fi;   /* the first layer's input is the token's row */
#ifndef EARLY_PUBLISH
         hand_over()
#endif
      :: else
      fi;
      if
      :: works(STAGE_1, sm) -> receive(0, STAGE_0, layer); hand_over()
#ifdef IDLE_READS
      :: else -> receive(0, STAGE_0, layer)
#else
      :: else
#endif
      fi
    }
    if
    :: works(HEAD, sm) -> receive(1, STAGE_1, LAYERS - 1); hand_over()
    :: else
    fi
  }
}

inline finish_tile() {
  for (c : 0 .. CONSUMERS - 1) {
#ifdef PARTIAL_JOIN
    if :: c == 0 -> parts[sm * CONSUMERS] > taken[sm] :: else fi
#else
    parts[sm * CONSUMERS + c] > taken[sm]
#endif
  }
  taken[sm]++
}

proctype storer(byte sm) {
  byte step, layer, c;
  for (step : 0 .. STEPS - 1) {
    token[sm] > step;
    for (layer : 0 .. LAYERS - 1) {
      if :: works(STAGE_0, sm) -> finish_tile(); publish(0) :: else fi;
      if :: works(STAGE_1, sm) -> finish_tile(); publish(1) :: else fi
    }
    if :: works(HEAD, sm) -> finish_tile() :: else fi;
    finished[sm] = step + 1
  }
}

proctype launcher(byte sm) {
  byte step, from;
  for (step : 0 .. STEPS - 1) {
    token[sm] = step + 1;
    for (from : 0 .. SMS - 1) { finished[from] > step };
    from = 0
  }
}

init {
  byte i, w;
  atomic {
    init_agents();
    for (i : 0 .. SMS - 1) {
      for (w : 0 .. CONSUMERS - 1) { run consumer(i, w) };
      run storer(i);
      run launcher(i)
    }
  }
}
