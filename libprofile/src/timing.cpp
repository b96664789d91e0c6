#include "adamk/profile/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "adamk/profile/cupti.h"

namespace adamk {
namespace {

constexpr double lowest_clock = 0.75;   // of nominal; below, the device throttles or has not woken up yet
constexpr int token = 0;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void sleep_seconds(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// Durations in us of `launches` launches of one decoder.
class LaunchClock {
 public:
  LaunchClock(Decoder& decoder, const TimingOptions& options, int steps)
      : decoder_(decoder), options_(options), steps_(steps), cupti_(options.use_cupti) {}

  Result<std::vector<double>> take(int launches) {
    if (cupti_) {
      auto durations = by_activity(launches);
      if (durations) return durations;
      // A kernel that failed is an error of the candidate; only CUPTI's own failures lead to events.
      if (decoder_failed_) return durations;
      cupti_ = false;
      note_ = durations.error().message;
      events_us_.clear();
    }
    return by_events(launches);
  }

  Method method() const { return cupti_ ? Method::cupti : Method::events; }
  const std::string& note() const { return note_; }
  double events_median_us() const { return summarise(events_us_).median; }
  void forget() { events_us_.clear(); }

 private:
  Result<double> launch_all(int launches) {
    const int given[] = {token};
    auto total = decoder_.time_launches_us(options_.position, given, steps_, launches);
    decoder_failed_ = !total;
    if (total) events_us_.push_back(*total / launches);
    return total;
  }

  Result<std::vector<double>> by_activity(int launches) {
    ADAMK_TRY(ActivityTrace trace, ActivityTrace::start());
    const auto launched = launch_all(launches);
    auto kernels = trace.stop();
    ADAMK_CHECK(launched);
    ADAMK_CHECK(kernels);
    std::vector<double> durations;
    for (const KernelTime& kernel : *kernels) {
      if (kernel.name == decoder_.recipe().entry) durations.push_back(static_cast<double>(kernel.duration_ns) / 1000);
    }
    if (static_cast<int>(durations.size()) != launches) {
      return fail(Errc::machine, "CUPTI recorded {} of {} launches of {}", durations.size(), launches, decoder_.recipe().entry);
    }
    return durations;
  }

  /// Launch by launch, so that a sample is one launch with either clock.
  Result<std::vector<double>> by_events(int launches) {
    std::vector<double> durations;
    const int given[] = {token};
    for (int i = 0; i < launches; ++i) {
      ADAMK_TRY(const double us, decoder_.time_launch_us(options_.position, given, steps_));
      durations.push_back(us);
      events_us_.push_back(us);
    }
    return durations;
  }

  Decoder& decoder_;
  const TimingOptions& options_;
  int steps_;
  bool cupti_;
  bool decoder_failed_ = false;
  std::string note_;
  std::vector<double> events_us_;   // per launch
};

Result<int> steps_of_launch(const Decoder& decoder, const TimingOptions& options) {
  const Recipe& recipe = decoder.recipe();
  const std::int64_t room = recipe.context - options.position;
  if (options.position < 0 || room < 1) {
    return fail(Errc::bad_input, "position {} is outside of the context of {}", options.position, recipe.context);
  }
  const auto most = static_cast<int>(std::min<std::int64_t>(recipe.max_steps, room));
  if (options.steps > most || options.steps < 0) {
    return fail(Errc::bad_input, "{} steps from position {} do not fit: at most {} (steps per launch {}, context {})",
                options.steps, options.position, most, recipe.max_steps, recipe.context);
  }
  return options.steps == 0 ? most : options.steps;
}

std::vector<double> per_token(const std::vector<double>& launches_us, int steps) {
  std::vector<double> result;
  for (double us : launches_us) result.push_back(us / steps);
  return result;
}

}  // namespace

Result<Samples> take_samples(const SampleSource& source, const TimingOptions& options, double nominal_mhz) {
  const int batch = std::max(1, options.batch_launches);
  if (options.warmup_launches > 0) ADAMK_CHECK(source.launches_us(options.warmup_launches));
  Samples samples;
  int discards = 0;
  const double begin = source.seconds();
  while (static_cast<int>(samples.us.size()) < options.max_samples) {
    ADAMK_TRY(const std::vector<double> taken,
              source.launches_us(std::min(batch, options.max_samples - static_cast<int>(samples.us.size()))));
    if (source.clock_mhz) {
      ADAMK_TRY(const double mhz, source.clock_mhz());
      if (mhz < lowest_clock * nominal_mhz && discards < options.max_discards) {
        ++discards;
        samples.discarded += static_cast<int>(taken.size());
        source.wait(options.discard_wait_seconds);
        continue;
      }
      samples.clock_mhz = samples.clock_mhz == 0 ? mhz : std::min(samples.clock_mhz, mhz);
    }
    samples.us.insert(samples.us.end(), taken.begin(), taken.end());
    samples.settled = static_cast<int>(samples.us.size()) >= options.min_samples &&
                      relative_error(samples.us) <= options.relative_error;
    // Time spent waiting for the clock does not shorten the measurement.
    const double spent = source.seconds() - begin - discards * options.discard_wait_seconds;
    if (samples.settled || (static_cast<int>(samples.us.size()) >= 2 && spent >= options.max_seconds)) break;
  }
  if (samples.us.empty()) return fail(Errc::machine, "no launch was timed (max_samples is {})", options.max_samples);
  return samples;
}

Result<Timing> time_decoder(Decoder& decoder, const TimingOptions& options) {
  Timing timing;
  ADAMK_TRY(timing.steps, steps_of_launch(decoder, options));
  LaunchClock clock(decoder, options, timing.steps);
  auto probe = ClockProbe::create(decoder.device());

  SampleSource source;
  bool warm = false;
  source.launches_us = [&](int launches) {
    auto taken = clock.take(launches);
    if (!warm) clock.forget();
    warm = true;
    return taken;
  };
  if (probe) source.clock_mhz = [&] { return probe->mhz(); };
  source.wait = sleep_seconds;
  source.seconds = steady_seconds;
  const double nominal_mhz = decoder.device().info().clock_khz / 1000.0;

  // CUPTI may give up in the middle: figures of two clocks are not mixed, so the samples are taken again.
  const Method first = clock.method();
  ADAMK_TRY(timing.launches, take_samples(source, options, nominal_mhz));
  if (clock.method() != first) {
    ADAMK_TRY(timing.launches, take_samples(source, options, nominal_mhz));
  }
  timing.method = clock.method();
  timing.note = clock.note();
  if (!probe) timing.note += (timing.note.empty() ? "" : "; ") + ("the SM clock was not checked: " + probe.error().message);
  timing.samples_us = per_token(timing.launches.us, timing.steps);
  timing.per_token = summarise(timing.samples_us);
  timing.events_us = clock.events_median_us() / timing.steps;
  return timing;
}

std::int64_t default_timing_position(const Recipe& recipe, int steps) {
  constexpr std::int64_t latest = 128;
  const std::int64_t decoded = steps > 0 ? steps : std::min<std::int64_t>(recipe.max_steps, recipe.context);
  return std::clamp<std::int64_t>((recipe.context - decoded) / 2, 0, latest);
}

TokenBytes token_bytes(const Recipe& recipe, std::int64_t position, int steps) {
  const double kv_per_position = 2.0 * sizeof(std::uint16_t) * recipe.layers * recipe.kv_heads * recipe.head_dim;
  const double positions = static_cast<double>(position) + (steps - 1) / 2.0 + 1.0;
  return {static_cast<double>(recipe.bytes_per_step), kv_per_position * positions};
}

Result<PairedTiming> time_pairs(Decoder& a, Decoder& b, const TimingOptions& options) {
  ADAMK_TRY(const int a_steps, steps_of_launch(a, options));
  ADAMK_TRY(const int b_steps, steps_of_launch(b, options));
  const int steps = std::min(a_steps, b_steps);   // the same positions for both
  LaunchClock clock_a(a, options, steps), clock_b(b, options, steps);
  for (LaunchClock* clock : {&clock_a, &clock_b}) ADAMK_CHECK(clock->take(std::max(1, options.warmup_launches)));
  std::vector<double> a_us, b_us;
  const double begin = steady_seconds();
  for (int pair = 0; pair < options.max_samples; ++pair) {
    const Method before_a = clock_a.method(), before_b = clock_b.method();
    ADAMK_TRY(const std::vector<double> one_a, clock_a.take(1));
    ADAMK_TRY(const std::vector<double> one_b, clock_b.take(1));
    if (clock_a.method() != before_a || clock_b.method() != before_b) {   // the clock changed: start again
      a_us.clear();
      b_us.clear();
    } else {
      a_us.push_back(one_a[0]);
      b_us.push_back(one_b[0]);
    }
    if (pair + 1 >= options.min_samples && steady_seconds() - begin >= options.max_seconds) break;
  }
  if (clock_a.method() != clock_b.method()) {
    return fail(Errc::machine, "the two kernels were timed by different clocks: {}{}", clock_a.note(), clock_b.note());
  }
  PairedTiming result;
  result.method = clock_a.method();
  result.a_us = per_token(a_us, steps);
  result.b_us = per_token(b_us, steps);
  result.comparison = compare_pairs(result.a_us, result.b_us);
  return result;
}

}  // namespace adamk
