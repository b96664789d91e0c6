// A child process that answers JSON lines over a socket, in a process group of its own, so that it and whatever it started
// can be killed when it crashes, hangs or talks nonsense. Nothing here knows what is asked.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "adamk/base/json.h"
#include "adamk/base/result.h"

namespace adamk {

enum class ReplyState {
  ok,
  died,        // the process ended; `detail` says how
  timeout,     // the deadline passed; the process group was killed
  garbage,     // what came back is no JSON object; killed as well
  cancelled,   // `cancelled` returned true; killed as well
};

struct Reply {
  ReplyState state = ReplyState::ok;
  Json value;
  std::string detail;
};

/// A folder for one worker, made when it is not there.
Result<std::string> make_worker_folder(const std::filesystem::path& parent, const std::string& name);
/// `command` for a worker whose scratch folder is `folder`.
std::vector<std::string> worker_command(std::vector<std::string> command, const std::string& folder, bool isolate);

class WorkerProcess {
 public:
  /// File descriptor of the socket in the child.
  static constexpr int channel = 3;

  /// Forks and executes `command` (a path and its arguments). Its stdin is /dev/null and its stdout goes to stderr: kernels
  /// and libraries that print cannot disturb the channel, and nothing else that is open here stays open there. It dies with
  /// the thread that started it.
  static Result<WorkerProcess> start(const std::vector<std::string>& command);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) noexcept;
  ~WorkerProcess();   // kills

  /// Sends one line and waits for one. After anything but `ok` the process is gone. `cancelled` is asked a few times a
  /// second.
  Reply ask(const Json& request, double seconds, const std::function<bool()>& cancelled = {});
  bool alive() const { return pid_ > 0; }
  void kill();

 private:
  WorkerProcess() = default;
  Reply end(ReplyState state, std::string detail);
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string received_;   // after the last line
};

}  // namespace adamk
