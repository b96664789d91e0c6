#include "common/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/terminal.h"

namespace adamk {

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 10) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e9)));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::string progress_line(const ProgressState& state) {
  std::string line = state.total ? fmt::format("{}/{} {}", state.done, *state.total, state.unit)
                                 : fmt::format("{} {}", state.done, state.unit);
  const double rate = state.seconds > 0 ? static_cast<double>(state.done) / state.seconds : 0;
  if (rate > 0) line += rate >= 0.1 ? fmt::format(", {:.1f}/s", rate) : fmt::format(", {:.1f}/min", rate * 60);
  std::optional<double> left = state.seconds_left;
  if (!left && state.total && rate > 0) left = static_cast<double>(*state.total - state.done) / rate;
  if (left && !state.finished) line += fmt::format(", {} left", duration_text(std::max(0.0, *left)));
  if (!state.note.empty()) line += ", " + state.note;
  return line;
}

Progress::Progress(bool quiet, std::FILE* stream)
    : quiet_(quiet), terminal_(is_terminal(stream)), stream_(stream), start_(Clock::now()), last_(start_) {}

Progress::~Progress() {
  if (open_) std::fputc('\n', stream_);
}

void Progress::show(ProgressState state) {
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(2000);
  if (now - last_ < pause) return;
  last_ = now;
  state.seconds = std::chrono::duration<double>(now - start_).count();
  write(progress_line(state));
}

void Progress::finish(ProgressState state) {
  if (quiet_) return;
  state.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  state.finished = true;
  write(progress_line(state));
  if (open_) std::fputc('\n', stream_);
  open_ = false;
}

void Progress::write(const std::string& line) {
  if (terminal_) {
    fmt::print(stream_, "\r\x1b[K{}", line);
    open_ = true;
  } else {
    fmt::print(stream_, "{}\n", line);
  }
  std::fflush(stream_);
}

}  // namespace adamk
