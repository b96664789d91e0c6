// The worker's side of the channel.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "adamk/profile/device_evaluator.h"
#include "worker_isolation.h"
#include "worker_process.h"
#include "worker_protocol.h"
#include "worker_session.h"

namespace adamk {
namespace {

/// One line without its end; nullopt when the parent closed the channel.
std::optional<std::string> read_line(int channel, std::string& pending) {
  std::array<char, 65536> buffer;
  while (true) {
    if (const std::size_t end = pending.find('\n'); end != std::string::npos) {
      std::string line = pending.substr(0, end);
      pending.erase(0, end + 1);
      return line;
    }
    const ssize_t count = read(channel, buffer.data(), buffer.size());
    if (count == 0 || (count < 0 && errno != EINTR)) return std::nullopt;
    if (count > 0) pending.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

bool write_all(int channel, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(channel, text.data(), text.size());
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

int serve_worker(int channel, const Result<std::string>& isolation) {
  WorkerSession session(isolation.value_or(""));
  std::string pending;
  while (const std::optional<std::string> line = read_line(channel, pending)) {
    Result<Json> request = parse_json(*line, "request");
    if (!isolation) request = tl::unexpected(isolation.error());   // nothing is done unconfined
    const Result<Json> answer = request ? session.answer(*request) : request;
    if (!write_all(channel, reply_to_json(answer).dump() + "\n")) return 1;
  }
  return 0;
}

std::optional<int> run_worker_if_asked(int argc, const char* const* argv) {
  if (argc < 3 || argc > 4 || std::strcmp(argv[1], worker_argument) != 0) return std::nullopt;
  if (argc == 4 && std::strcmp(argv[3], unconfined_argument) == 0) {
    return serve_worker(WorkerProcess::channel, std::string("none (--no-isolation)"));
  }
  return serve_worker(WorkerProcess::channel, isolate_worker(argv[2]));
}

}  // namespace adamk
