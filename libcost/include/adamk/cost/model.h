// Cost model: predicted microseconds per decoded token of a Schedule. A sum of few terms per stage, each with one cause,
// so that a search can rank plans without a GPU and a person can see where the time goes. It ranks; it does not promise:
// docs/cost-model.md compares it with measurements.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "adamk/dag/schedule.h"

namespace adamk {

/// Changes whenever predictions do; part of the identity of a simulated device.
std::string_view cost_model_version();

/// What one exchange costs, in units of Target::hop_us (one tagged exchange on an idle memory system).
struct ExchangeCost {
  double latency;   // overlaps with the loader's prefetch of the stage's weights
  double serial;    // overlaps with nothing: fences, the barrier's own round trip
};

/// Figures that do not come from the Target. Defaults: measured on an H200 (132 SMs, 1.16 us hop, 4690 GB/s).
struct CostConstants {
  double memory_latency_us = 0.72;      // 16 KB in flight on each of 132 SMs read 2990 GB/s
  double sm_share = 1.10;               // the most one SM reads, in fair shares: 112 of 132 SMs still read 91 %
  double l2_share = 1.4;                // bandwidth of reads that hit L2, in units of read_gbps
  ExchangeCost tagged{1.3, 0.25};       // 1.2 to 2.5 us with 2048 values
  ExchangeCost counter{2.0, 0.6};       // about 2.7 us
  ExchangeCost barrier{2.2, 1.0};       // 2.5 to 4 us
  double chunk_clocks = 150;            // a consumer warp's wait and release around one ring stage
  double warp_bytes_per_clock = 16;     // one step: 512 bytes from shared memory and an mma, 32 clocks of issue
  double smem_bytes_per_clock = 128;    // of an SM
  double storer_clocks = 108;           // per 16 rows: handshake and publish
  double storer_warp_clocks = 12;       // per 16 rows and consumer warp: the serial sum of partials
  double norm_clocks = 200;             // reduction over the block (recompute)
  double norm_sum_clocks = 4;           // per producing SM whose sum of squares is collected (exchange)
  double silu_clocks = 24;              // per pair of values a reader computes itself, divided over the block's lanes
  double position_clocks = 60;          // attention: one pass over as many positions as a warp holds at once
  double combine_clocks = 1000;         // attention: across warps and splits
};

/// One stage, us each time it runs; the terms add up to total_us().
struct StageCost {
  StageKind kind = StageKind::qkv;
  int times = 1;              // per token: layers, or 1 for the head
  double exchange_us = 0;     // waiting for inputs, beyond what prefetch hides
  double read_us = 0;         // the matrix's own bytes at the bandwidth the window reaches
  double padding_us = 0;      // zero padding of tiles and K slices
  double imbalance_us = 0;    // SMs with fewer tiles wait for those with most
  double compute_us = 0;      // consumer warps, beyond reading; norms
  double storer_us = 0;       // sums and publishing, beyond what the double buffer hides
  double attention_us = 0;    // KV bytes and serial work over positions
  std::int64_t bytes = 0;     // packed weights and KV that this stage reads
  double total_us() const {
    return exchange_us + read_us + padding_us + imbalance_us + compute_us + storer_us + attention_us;
  }
};

struct Cost {
  std::vector<StageCost> stages;   // the layer's stages in order, then the head
  double us_per_token = 0;         // sum of times x total_us
  double bytes_per_token = 0;      // sum of times x bytes: the packed weights and KV up to the position
};

/// Clocks that the consumer warps take for one tile of a stage, all at it together; for attention, for one time through its loop
/// over positions. From a kernel's instruction DAG (docs/instruction-dag.md) or measured; a stage that is not there keeps the
/// formula's term.
using TileTerms = std::map<StageKind, double>;

/// `position`: how many positions attention reads; negative: the whole context.
Cost predict(const Deployment& deployment, const Schedule& schedule, std::int64_t position = -1,
             const CostConstants& constants = {}, const TileTerms& tiles = {});

/// GB/s that `grid` SMs reach with `bytes_in_flight` each: Little's law below the ceiling, bent smoothly into it.
double window_gbps(const Target& target, int grid, std::int64_t bytes_in_flight, const CostConstants& constants = {});

/// Bytes that one token must read: the model's own matrices and the KV cache of `position` positions (negative: the whole
/// context), without padding. The numerator of every GB/s figure, so that padding never looks like speed.
double necessary_bytes(const Deployment& deployment, std::int64_t position = -1);

}  // namespace adamk
