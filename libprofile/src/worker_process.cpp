#include "worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "adamk/profile/device_evaluator.h"

namespace adamk {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t longest_reply = 64u << 20;
constexpr int poll_slice_ms = 50;   // how late a cancellation may be noticed

/// Between fork and exec only async-signal-safe calls are allowed: other threads may hold locks.
[[noreturn]] void become(char* const* arguments, int socket, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);   // the parent died before the line above
  const int null = open("/dev/null", O_RDONLY);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) _exit(127);
  // dup2 onto itself would keep close-on-exec set.
  if (socket == WorkerProcess::channel) fcntl(socket, F_SETFD, 0);
  else if (dup2(socket, WorkerProcess::channel) < 0) _exit(127);
  syscall(SYS_close_range, WorkerProcess::channel + 1, ~0u, 0);   // what a library opened without close-on-exec
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv(arguments[0], arguments);
  _exit(127);
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("the worker was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return "the worker could not be started";
  return fmt::format("the worker ended with status {}", WIFEXITED(status) ? WEXITSTATUS(status) : status);
}

/// Whole message or error; never raises SIGPIPE.
bool send_all(int socket, std::string_view text, Clock::time_point deadline) {
  while (!text.empty()) {
    const ssize_t sent = send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      text.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (Clock::now() >= deadline) return false;
      pollfd ready{socket, POLLOUT, 0};
      poll(&ready, 1, poll_slice_ms);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<std::string> make_worker_folder(const std::filesystem::path& parent, const std::string& name) {
  std::error_code code;
  const std::filesystem::path folder = parent / name;
  std::filesystem::create_directory(folder, code);
  if (code) return fail(Errc::io, "cannot make the folder {}: {}", folder.string(), code.message());
  return folder.string();
}

std::vector<std::string> worker_command(std::vector<std::string> command, const std::string& folder, bool isolate) {
  command.push_back(folder);
  if (!isolate) command.emplace_back(unconfined_argument);
  return command;
}

Result<WorkerProcess> WorkerProcess::start(const std::vector<std::string>& command) {
  if (command.empty()) return fail(Errc::machine, "no command to start a worker with");
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::array<int, 2> sockets{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    return fail(Errc::machine, "a worker's socket cannot be made: {}", std::strerror(errno));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(arguments.data(), sockets[1], parent);
  close(sockets[1]);
  if (pid < 0) {
    const int code = errno;
    close(sockets[0]);
    return fail(Errc::machine, "a worker process cannot be started: {}", std::strerror(code));
  }
  setpgid(pid, pid);   // in the child too: whoever comes first, before a kill can need it
  WorkerProcess process;
  process.pid_ = pid;
  process.socket_ = sockets[0];
  return process;
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), socket_(std::exchange(other.socket_, -1)), received_(std::move(other.received_)) {}

WorkerProcess& WorkerProcess::operator=(WorkerProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(socket_, other.socket_);
  std::swap(received_, other.received_);
  return *this;
}

WorkerProcess::~WorkerProcess() { kill(); }

void WorkerProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  close(socket_);
  pid_ = socket_ = -1;
}

Reply WorkerProcess::end(ReplyState state, std::string detail) {
  if (state == ReplyState::died) {
    // The socket is closed before the process is gone: give it a moment to be waited for, then make sure.
    int status = 0;
    pid_t ended = 0;
    for (int i = 0; i < 40 && ended == 0; ++i) {
      ended = waitpid(pid_, &status, WNOHANG);
      if (ended == 0) poll(nullptr, 0, poll_slice_ms);
    }
    if (ended == pid_) {
      ::kill(-pid_, SIGKILL);   // what it started
      close(socket_);
      pid_ = socket_ = -1;
      return {state, {}, how_it_ended(status)};
    }
    detail = "the worker closed its channel";
  }
  kill();
  return {state, {}, std::move(detail)};
}

Reply WorkerProcess::ask(const Json& request, double seconds, const std::function<bool()>& cancelled) {
  if (!alive()) return {ReplyState::died, {}, "the worker is gone"};
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  if (!send_all(socket_, request.dump() + "\n", deadline)) return end(ReplyState::died, {});
  std::array<char, 65536> buffer;
  while (true) {
    if (const std::size_t line = received_.find('\n'); line != std::string::npos) {
      auto value = parse_json(std::string_view(received_).substr(0, line), "worker");
      if (!value || !value->is_object()) {
        return end(ReplyState::garbage, fmt::format("the worker answered '{}'", received_.substr(0, std::min<std::size_t>(line, 80))));
      }
      received_.erase(0, line + 1);
      return {ReplyState::ok, std::move(*value), {}};
    }
    if (received_.size() > longest_reply) return end(ReplyState::garbage, "the worker's answer has no end");
    if (cancelled && cancelled()) return end(ReplyState::cancelled, "cancelled");
    if (Clock::now() >= deadline) return end(ReplyState::timeout, fmt::format("no answer within {:.0f} s", seconds));
    pollfd ready{socket_, POLLIN, 0};
    if (poll(&ready, 1, poll_slice_ms) <= 0) continue;
    const ssize_t count = read(socket_, buffer.data(), buffer.size());
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) return end(ReplyState::died, {});
    if (count > 0) received_.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace adamk
