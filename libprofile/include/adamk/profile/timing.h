// Steady-state timing: multi-token launches back to back over weights far larger than L2, until the figure settles.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/profile/statistics.h"
#include "adamk/runtime/decoder.h"
#include "adamk/search/evaluator.h"

namespace adamk {

struct TimingOptions {
  std::int64_t position = 0;       // of the first token of every launch
  int steps = 0;                   // tokens a launch decodes; 0: as many as the recipe and the context allow
  int warmup_launches = 3;
  int batch_launches = 5;          // queued back to back; the clock is checked after each batch
  int min_samples = 10;
  int max_samples = 100;
  double relative_error = 0.002;   // settled when the standard error of the median is below this part of it
  double max_seconds = 3;          // no new batch after this much time
  int max_discards = 5;            // batches thrown away because the SM clock was low
  double discard_wait_seconds = 2;
  bool use_cupti = true;
};

/// What the sampling loop needs of the world; tests use a fake.
struct SampleSource {
  std::function<Result<std::vector<double>>(int launches)> launches_us;   // us of each, in order
  std::function<Result<double>()> clock_mhz;                              // SM clock right now; empty: not checked
  std::function<void(double seconds)> wait;
  std::function<double()> seconds;                                        // a steady clock
};

struct Samples {
  std::vector<double> us;          // of each launch kept
  bool settled = false;
  int discarded = 0;               // launches thrown away
  double clock_mhz = 0;            // lowest seen among those kept; 0: not checked
};

/// Warms up, then takes batches until the relative error settles or a cap is reached. A batch after which the SM clock is
/// below 75 % of `nominal_mhz` is discarded, at most options.max_discards times; later ones are kept, and counted as
/// `discarded` no more, so a throttled device still gives a figure.
Result<Samples> take_samples(const SampleSource& source, const TimingOptions& options, double nominal_mhz);

struct Timing {
  Samples launches;                // us per launch
  std::vector<double> samples_us;  // us per token: launch duration / steps
  Statistics per_token;            // of samples_us
  Method method = Method::events;
  double events_us = 0;            // us per token by events over the same launches; equal to the median when method is events
  int steps = 0;
  std::string note;                // why CUPTI was not used; empty otherwise
};

/// CUPTI activity when it works, else events with the reason in `note`. The given token is 0: speed does not depend on it.
Result<Timing> time_decoder(Decoder& decoder, const TimingOptions& options = {});

/// Where launches are timed when nobody says: in the middle of the context, at 128 at most. `steps` 0: as many as fit.
std::int64_t default_timing_position(const Recipe& recipe, int steps = 0);

/// What one token must move, averaged over a launch of `steps` tokens from `position`: every weight once, the keys and values
/// of earlier positions read and its own written.
struct TokenBytes {
  double weights = 0, kv = 0;
  double total() const { return weights + kv; }
};
TokenBytes token_bytes(const Recipe& recipe, std::int64_t position, int steps);

/// A B A B in one process; options.max_samples pairs.
struct PairedTiming {
  std::vector<double> a_us, b_us;  // us per token
  Comparison comparison;
  Method method = Method::events;
};
Result<PairedTiming> time_pairs(Decoder& a, Decoder& b, const TimingOptions& options = {});

/// The SM clock at this moment: %clock64 against %globaltimer in a kernel of a millisecond. Owns its kernel; the device
/// must outlive it.
class ClockProbe {
 public:
  static Result<ClockProbe> create(Device& device);
  Result<double> mhz();

  ClockProbe(ClockProbe&&) noexcept;
  ClockProbe& operator=(ClockProbe&&) = delete;
  ~ClockProbe();

 private:
  struct State;
  explicit ClockProbe(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace adamk
