/* Barrier edges: exchange.cuh (publish_done, control_edge with kKind == kBarrier). All SMs arrive at every phase; one that has no
   work in the stage arrives through its controller, which waits for each phase and so cannot arrive at the next one first. All
   else, and what is abstracted, is counter.pml.

   sizes: -DSMS=2 -DCONSUMERS=1 -DLAYERS=2 -DSTEPS=2 -DSTAGE_0=3 -DSTAGE_1=1 -DHEAD=2
   sizes: -DSMS=3 -DCONSUMERS=1 -DLAYERS=2 -DSTEPS=1 -DSTAGE_0=3 -DSTAGE_1=4 -DHEAD=2
   sizes: -DSMS=2 -DCONSUMERS=2 -DLAYERS=2 -DSTEPS=1 -DSTAGE_0=1 -DSTAGE_1=3 -DHEAD=3
   nightly: -DSMS=3 -DCONSUMERS=1 -DLAYERS=2 -DSTEPS=2 -DSTAGE_0=3 -DSTAGE_1=1 -DHEAD=6
   nightly: -DSMS=3 -DCONSUMERS=2 -DLAYERS=2 -DSTEPS=1 -DSTAGE_0=3 -DSTAGE_1=4 -DHEAD=2
   defect: -DNO_IDLE_ARRIVAL               SMs without work do not arrive
   defect: -DSMS=3 -DIDLE_STORER_ARRIVES   they arrive through the storer, which waits for nothing
   defect: -DSMS=3 -DIDLE_RUNS_AHEAD        their controllers do not wait for the phases that they do not read
   defect: -DTARGET_OFF=-1                 the target is one arrival short
   defect: -DTARGET_OFF=1                  ... one too many
   defect: -DRELAXED_ADD                   the arrival releases nothing
   defect: -DRELAXED_POLL                  the poll acquires nothing
   defect: -DDROP_ADD -DSTAGE_1=3          one SM's arrival is missing
   defect: -DDOUBLE_ADD                    one SM arrives twice */

#define BARRIER
#include "counter.pml"
