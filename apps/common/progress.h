// Progress on stderr: one line rewritten in place on a terminal, plain lines now and then when piped.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace adamk {

struct ProgressState {
  std::int64_t done = 0;
  std::optional<std::int64_t> total;          // unknown when the budget is time
  double seconds = 0;                         // since the start
  std::optional<double> seconds_left;         // when the caller knows better than done, total and seconds tell
  bool finished = false;                      // nothing is left, whatever `total` says (a budget or a signal ended it)
  std::string unit = "trials";
  std::string note;                           // "best 712.3 us, 3 rejected"
};

/// "12/200 trials, 1.5/s, 2m05s left, best 712.3 us": pure, for both kinds of output.
std::string progress_line(const ProgressState& state);
/// "0.4s", "42s", "2m05s", "1h03m".
std::string duration_text(double seconds);

class Progress {
 public:
  explicit Progress(bool quiet, std::FILE* stream = stderr);
  ~Progress();                                // ends the line on a terminal
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows the state, at most ten times a second on a terminal and once in two seconds when piped. `seconds` is filled in.
  void show(ProgressState state);
  /// The last state, always shown.
  void finish(ProgressState state);

 private:
  using Clock = std::chrono::steady_clock;
  void write(const std::string& line);
  bool quiet_, terminal_, open_ = false;
  std::FILE* stream_;
  Clock::time_point start_, last_;
};

}  // namespace adamk
